"""What is compared, on what, for how long: the table that a measurement is decided by before it begins.

A *unit* is an arm, a run seed and a phase. Whatever arms have in common stands in the phases, whatever sets them apart
in the arms, so that all of them start from the same checkpoint and play the same instances with the same sampling.

How teams play. All agents sample at temperature 1.5, in training and after it, in every arm; rollouts of later epochs
are hotter where a method explores so (`explore`, as the preset `collab` does). At the temperatures that the pocket's
team comes with its agents agree in practically all steps, and what they do not disagree about teaches them nothing: 12
contrasts in 500 steps, 293 in 1,500 steps at 1.0, 1,932 at 1.5. Heat costs success (of 144 episodes that are not among
those below an untrained team solves 71 % as it comes and 56 % at 1.5), so the team is measured once more at 0.3
(`new-seeds-cold`), which tells what it learned from what it merely does more firmly.

Budgets, and why. A unit should take at most 40 minutes on one core of two. A team of four with three rounds asks its
policy 12 times a step, and with 48 episodes at once a core answers 25 to 45 times a second, the less the busier the
other one is: 1,200 environment steps, some 150 episodes, take 5 to 10 minutes. Their rows take 3, and 36 episodes of
the held-out seed, half of the tasks once, 2. Two epochs of the full method took 22 to 25 minutes. Arms with more rows,
and all of them on busier machines, take longer: 5 of 27 trainings on the phone took more than 40 minutes, and 2 of 3 on
the pages. Steps are what is equal for all arms, because episodes differ in length. The last epoch is what is measured:
36 episodes tell how training goes, and choose no best one.

Each epoch plays all 72 tasks, each about twice, so that whole trajectories (`no-cr`) can be compared within a task.
With three epochs of 800 steps on 48 of the tasks, as this plan had it at first, the full method solved 39 more of the
576 episodes of tasks that its first epoch had played than the untrained team, and 1 more of the 288 of the others (two
trainings): what the first epoch leaves out gains nothing, for it is the first one that changes most.

One play of the untrained team is in every difference to it on new seeds, and trainings of arms that hardly changed what
they chose did worse than that play. So it is played twice more on the same instances, with other sampling seeds
(`new-seeds-sampling-1` and `-2`). This was written down after all else had been measured and before these two were;
aims are judged by the first play, and differences to the others stand beside them. Trained teams draw their replies
with the seeds of the first play, so that a part of its luck is theirs, too.

Evaluations play run seeds 30, 31 and 32: 72 tasks twice are 432 episodes, 8 unseen tasks 13 times 312, 31 pages four
times 372. Held-out seed 39 is none of them, nor are those on which learning rates and the like were tried (33 to
38).

The pages are those of `scripts/evaluate_pocket.sh`, chosen before any training. Training goes on on those of them that
belong to the training split and have a scripted solution, without which the oracle has nothing to say: 23 of 31.
Each proposed action is tried on a page that is rebuilt by replay, so two epochs of 800 steps there took 33 to 57
minutes.
What pages ask for is new to a team that comes from the phone, and it comes surer than it was: in two of three states no
cell was right, and few cells differed. So it explores hotter by what it has become surer (`temperature_scale`), learns
at five times the rate, and has four pairs of the phone among ten, so that it does not forget these meanwhile
(docs/recipe.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

MOST = 40.0
"""Minutes that a unit is meant to take at most; more is told and stops nothing."""
Kind: TypeAlias = Literal["train-marl", "eval"]
"""The command of `collab` that does a phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One line of the tables."""

    told: str
    """As tables call it."""
    graph: str = "team"
    """On which it is measured. Trained is the graph team, or what the ablation brings."""
    method: tuple[str, ...] | None = None
    """Options of `collab train-marl` that set it apart; None for an arm that is not trained and has no run seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What is done with an arm."""

    kind: Kind
    options: tuple[str, ...]
    """All that decides it beside arm and run seed."""
    minutes: float
    """Expected until a finished unit tells better, on one core of two."""
    after: str | None = None
    """The phase whose policy is played, or gone on from; None for the checkpoint that all began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Units in the order in which they are done: by run seed, then arm, then phase."""

    arms: tuple[str, ...]
    phases: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole measurement."""

    agents: str
    """Agents file of the checkpoint that every arm begins with."""
    arms: Mapping[str, Arm]
    phases: Mapping[str, Phase]
    stages: tuple[Stage, ...]
    seeds: tuple[int, ...]
    """Run seeds of the trainings."""
    played: Literal["best", "last"] = "best"
    """Which epoch of a training is measured: the best on the held-out seed, or the last."""
    common: tuple[str, ...] = ()
    """Options of every command."""
    play: tuple[str, ...] = ()
    """Settings of every run, e.g. "agents.*.sampling.temperature=1.5": how all teams play, in training (but for
    `explore`) and after it."""


def settings(**values: object) -> tuple[str, ...]:
    """Options --set; a double underscore stands for the dot."""
    return tuple(word for name, value in values.items() for word in ("--set", f"{name.replace('__', '.')}={value}"))


def ablation(name: str) -> tuple[str, ...]:
    """Options of the full method with one thing changed."""
    return ("--preset", "collab", "--ablation", name)


PAGES = (
    *("click-button", "click-button-sequence", "click-checkboxes", "click-checkboxes-large", "click-checkboxes-soft"),
    *("click-checkboxes-transfer", "click-collapsible", "click-collapsible-2", "click-dialog", "click-dialog-2"),
    *(
        "click-link",
        "click-menu-2",
        "click-option",
        "click-scroll-list",
        "click-tab",
        "click-tab-2",
        "click-tab-2-easy",
    ),
    *("click-tab-2-hard", "click-tab-2-medium", "click-test", "click-test-2", "click-test-transfer", "click-widget"),
    *("enter-date", "enter-password", "enter-text", "enter-text-2", "enter-text-dynamic", "enter-time"),
    *("focus-text", "focus-text-2"),
)
_UNSEEN = ("click-option", "click-tab-2-medium", "click-test-2", "enter-text", "focus-text-2")
_WITHOUT_SOLUTION = ("click-checkboxes-soft", "click-menu-2", "click-scroll-list")
TRAINED_PAGES = tuple(page for page in PAGES if page not in {*_UNSEEN, *_WITHOUT_SOLUTION})

_PAPER = settings(
    critic="critic-oracle",
    adversary="sampler",
    dpo__context=4096,
    dpo__rows_at_once=8,
    dpo__checkpointing="false",
    dpo__weights="float32",
    dpo__precision="float32",
    dpo__saved="float32",
    dpo__sharing="prefix",
)
"""The published method with the critic and the adversary of all arms, held in memory as a small model is."""

ARMS = {
    "untrained-single": Arm(told="one agent, untrained", graph="single"),
    "untrained-team": Arm(told="team of four, untrained"),
    "full": Arm(told="full method", method=("--preset", "collab")),
    "single-agent": Arm(told="one agent, trained", graph="single", method=ablation("single-agent")),
    "paper": Arm(told="the paper's settings, rate not tuned", method=("--preset", "paper", *_PAPER)),
    "no-cr": Arm(told="w/o credit re-assignment", method=ablation("no-cr")),
    "rft": Arm(told="preferences → rejective fine-tuning", method=ablation("rft")),
    "no-edge-update": Arm(told="w/o edge update", method=ablation("no-edge-update")),
    "adversary-pairs": Arm(told="pairs of the adversary alone", method=ablation("adversary-pairs")),
    "contrast-pairs": Arm(told="pairs of disagreement alone", method=ablation("contrast-pairs")),
    "no-anchor": Arm(told="w/o anchor", method=ablation("no-anchor")),
}
"""The full method corrects who erred, so "correction-pairs" is no arm; nor is "mixed-pairs", between two that are, nor
"all-steps", by which the full method was found to lose (docs/recipe.md)."""

_SEEDS = ("--seeds", "30,31,32")
_PHONE = ("--env", "androidworld")
_WEB = ("--env", "mobile-miniwob")
_NEW = (*_PHONE, "--split", "new-seeds", "--episodes", "144", *_SEEDS)
_ON_PAGES = (*_WEB, "--tasks", ",".join(PAGES), "--episodes", "124", *_SEEDS)
_AT_ONCE = ("--concurrency", "48")
_HOT = 1.5
_PLAY = (f"agents.*.sampling.temperature={_HOT}", "agents.*.options.max_batch=192")
_LEARN = settings(dpo__temperature=_HOT, held_out__episodes=36, held_out__before="false")
"""The policy that is measured is the one that is trained; what is held out is played after each epoch."""
_NEW_GROUND = settings(temperature_scale=1.7, replay_fraction=0.4, dpo__learning_rate=1e-4)
"""For a trained team on what it has never seen."""

OTHER_SAMPLING = {f"new-seeds-sampling-{seed}": seed for seed in (1, 2)}
"""Phases of the untrained team on the instances of `new-seeds` → the sampling seed."""

PHASES = {
    "train": Phase(kind="train-marl", options=(*_PHONE, *settings(epochs=2, steps=1200), *_LEARN), minutes=30),
    "new-seeds": Phase(kind="eval", options=_NEW, minutes=20, after="train"),
    "new-seeds-cold": Phase(
        kind="eval", options=(*_NEW, "--set", "agents.*.sampling.temperature=0.3"), minutes=15, after="train"
    ),
    "unseen-tasks": Phase(
        kind="eval",
        options=(*_PHONE, "--split", "unseen-tasks", "--episodes", "104", *_SEEDS),
        minutes=20,
        after="train",
    ),
    "pages": Phase(kind="eval", options=_ON_PAGES, minutes=25, after="train"),
    "continual": Phase(
        kind="train-marl",
        options=(*_WEB, "--tasks", ",".join(TRAINED_PAGES), *settings(epochs=2, steps=800), *_NEW_GROUND, *_LEARN),
        minutes=35,
        after="train",
    ),
    "pages-continued": Phase(kind="eval", options=_ON_PAGES, minutes=25, after="continual"),
    "new-seeds-continued": Phase(kind="eval", options=_NEW, minutes=20, after="continual"),
    **{
        name: Phase(kind="eval", options=(*_NEW, *settings(sampling_seed=seed)), minutes=25)
        for name, seed in OTHER_SAMPLING.items()
    },
}

_UNTRAINED = ("untrained-single", "untrained-team")
_ABLATIONS = tuple(name for name in ARMS if name not in {*_UNTRAINED, "full"})

PLAN = Plan(
    agents="pocket",
    arms=ARMS,
    phases=PHASES,
    stages=(
        Stage(arms=("untrained-team",), phases=("new-seeds", "unseen-tasks", "new-seeds-cold", "pages")),
        Stage(arms=("untrained-single",), phases=("new-seeds", "unseen-tasks", "pages")),
        Stage(arms=("full",), phases=("train", "new-seeds", "unseen-tasks", "new-seeds-cold")),
        Stage(arms=("full",), phases=("pages", "continual", "pages-continued", "new-seeds-continued")),
        Stage(arms=_ABLATIONS, phases=("train", "new-seeds")),
        Stage(arms=("single-agent",), phases=("unseen-tasks", "pages")),
        Stage(arms=("untrained-team",), phases=tuple(OTHER_SAMPLING)),
    ),
    seeds=(0, 1, 2),
    played="last",
    common=_AT_ONCE,
    play=_PLAY,
)
"""What matters most comes first: the full method against the untrained team, its transfer, then what it is made of."""

_SMALL = settings(epochs=1, steps=1200, held_out__episodes=12, held_out__before="false", dpo__temperature=_HOT)
_QUICK_PARTS = {f"new-seeds-{seed}": seed for seed in ("30", "31", "32")}

QUICK = Plan(
    agents="pocket",
    arms={name: ARMS[name] for name in ("untrained-team", "full")},
    phases={
        "train": Phase(kind="train-marl", options=(*_PHONE, *_SMALL), minutes=9),
        **{
            name: Phase(
                kind="eval",
                options=(*_PHONE, "--split", "new-seeds", "--episodes", "120", "--seeds", seed),
                minutes=4,
                after="train",
            )
            for name, seed in _QUICK_PARTS.items()
        },
    },
    stages=(
        Stage(arms=("full",), phases=("train", *_QUICK_PARTS)),
        Stage(arms=("untrained-team",), phases=tuple(_QUICK_PARTS)),
    ),
    seeds=(0,),
    played="last",
    common=_AT_ONCE,
    play=_PLAY,
)
"""Two units side by side: the untrained team is played while the other one is trained, then the trained one by both
processes, a run seed at a time. One training of one epoch with all tasks twice, and 360 of the 432 episodes of
`new-seeds` above: that took 18.5 minutes on two cores, with all of them 20.5, and may take 20. With 600 steps and 216
episodes, as it was before, a gain of some 4 points met a standard error of 3.3, and chance hid it two times of two. The
last epoch is played, because a dozen held-out episodes choose no best one."""


def phases_of(plan: Plan, arm: str, chosen: Sequence[str]) -> list[str]:
    """Those of the phases that an arm has: who is not trained has no training."""
    trained = plan.arms[arm].method is not None
    return [name for name in chosen if trained or plan.phases[name].kind == "eval"]
