"""GRPO: play each instance several times, and learn from what went better there than the others.

    collab train --algo grpo --env androidworld --graph single --agents early --out runs/grpo

A group of G episodes plays one instance, each sampled anew. With r_i the verdict on episode i (1 or 0):

    A_i  = (r_i − mean(r)) / (deviation(r) + 1e-6)                  (`estimators.group_relative`)
    loss = −mean over reply tokens of min(ρ A, clip(ρ, 1 ± ε) A)    (`losses.ppo_clip`)

Every turn of an episode has the episode's advantage. A group whose episodes all ended alike teaches nothing: it is left
out and counted, and where fewer than `FEW` of the groups do, a line of the epoch says what to raise. There is no value
model and no penalty for leaving the first policy.

With `start: state` a group shares a later state. One episode plays each instance as ever; then the others of its group
begin in a state of it that is drawn at random, each as likely as any other, and play on from there
(`epochs/N/branches`). What was played behind that state is compared and learned, and nothing before it. It needs an
environment that the same actions lead to the same state again. `steps` counts those of the first episodes of groups; a
group of G plays about (G − 1) / 2 times as many behind the drawn states.

Source: DeepSeekMath (Shao et al. 2024, section 4.1); as a baseline of Android Coach (appendix A.2), whose settings are
the preset `paper`: groups of four on one instance, the verdict as the only reward. Deviations:

- the standard deviation is that of a sample (divided by G − 1), as in verl, which Android Coach trains with
- DeepSeekMath adds a penalty on the divergence from a reference; Android Coach has none, and here is none
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from collab.algorithms.experience import JudgedEpisode, read_experience
from collab.algorithms.on_policy import OnPolicyAlgorithm, OnPolicyMethod
from collab.algorithms.turn_learner import Experience, TurnLearner, estimate_alike
from collab.config import Budget, RunConfig
from collab.envs.base import Suite
from collab.errors import ConfigError, UsageError
from collab.loop.config import Ablation, Method, TrainingConfig
from collab.loop.interfaces import BranchPlan, Rollout
from collab.loop.record import EpochRecord
from collab.loop.state import LoopState
from collab.rollout.plan import plan_episodes
from collab.rollout.run import Beginning
from collab.seeds import derive, generator
from collab.trainers.rl.estimators import group_relative
from collab.trainers.rl.step_estimates import StepEstimate
from collab.utils.text import format_amount

ALIKE, ALONE, BEFORE = "its group ended alike", "it has no group", "before the state in which its group begins"
FEW = 0.4
"""Share of groups with a spread below which most of what is played teaches nothing."""
FEWEST = 24
"""Groups that may end alike before a training ends; where one in four has a spread, a thousandth of trainings does."""


class GRPOMethod(OnPolicyMethod):
    """Settings of GRPO."""

    REMEDY = "more episodes of an instance (--set group=N), other exploration_temperatures, "

    group: int = Field(default=4, ge=2)
    """Episodes that play each instance."""
    start: Literal["task", "state"] = "task"
    """Where the episodes of a group begin: with the task, or in a state of the first of them."""

    @property
    def most_barren(self) -> int:
        """Return as many epochs as have `FEWEST` groups, but three at least: few groups may end alike by chance."""
        if self.episodes is None:
            return super().most_barren
        groups = self.episodes if self.start == "state" else max(1, self.episodes // self.group)
        return max(super().most_barren, math.ceil(FEWEST / groups))

    @property
    def branches(self) -> int:
        """Return how many of a group begin in a state of the first one."""
        return self.group - 1 if self.start == "state" else 0

    def explore(self, run: RunConfig) -> RunConfig:
        """Return a run played as a rollout: in groups, or the first episode of each."""
        first = {"members": [0]} if self.start == "state" else {}
        return super().explore(run).model_copy(update={"group": self.group, **first})


class GRPOLearner(TurnLearner):
    """Learns the turns of each episode by how it compares with its group."""

    async def estimate(self, state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
        """Return each step's advantage, that of its episode."""
        found = compare_groups(experience.episodes)
        return [estimate for one in experience.episodes for estimate in found[one.key]]

    def read_metrics(self, state: LoopState, number: int, group: str) -> dict[str, Any]:
        """Return how many groups were played, and how many of them had a spread."""
        spread, groups = count_spread(read_experience(state.folder, number))
        return {"groups": groups, "spread": spread}


def gather_groups(episodes: Iterable[JudgedEpisode]) -> Mapping[str, Sequence[JudgedEpisode]]:
    """Return instance → its episodes, in their order."""
    found = defaultdict[str, list[JudgedEpisode]](list)
    for one in episodes:
        found[one.instance].append(one)
    return found


def count_spread(episodes: Iterable[JudgedEpisode]) -> tuple[int, int]:
    """Return how many groups ended differently, and how many there are with two episodes or more."""
    several = [one for one in gather_groups(episodes).values() if len(one) > 1]
    return sum(len({episode.reward for episode in one}) > 1 for one in several), len(several)


def compare_groups(episodes: Iterable[JudgedEpisode]) -> dict[tuple[str, str], list[StepEstimate]]:
    """Return key of an episode → the estimates of its steps.

    An episode whose companions broke or were not judged is compared with those that are left.
    """
    found = dict[tuple[str, str], list[StepEstimate]]()
    for group in gather_groups(episodes).values():
        advantages = group_relative([one.reward for one in group]).tolist()
        shared = max(one.copied for one in group)  # steps before the state in which they begin
        for one, advantage in zip(group, advantages, strict=True):
            why = ALONE if len(group) < 2 else "kept" if advantage else ALIKE
            before = estimate_alike(one, weight=0.0, why=BEFORE)[:shared]
            after = estimate_alike(one, weight=advantage, why=why, advantage=advantage)[shared:]
            found[one.key] = [*before, *after]
    return found


class GRPO(OnPolicyAlgorithm):
    """Group-relative policy optimisation on outcomes."""

    name = "grpo"
    description = "GRPO: each instance is played several times, and what went better there than the others is learned"
    method = GRPOMethod
    presets = Path(__file__).parent / "presets"
    default_preset = "sound"
    ablations: ClassVar[Mapping[str, Ablation]] = {
        f"group-{size}": Ablation(description=f"{size} episodes of each instance", settings=(f"group={size}",))
        for size in (2, 8)
    } | {
        "state-groups": Ablation(
            description="episodes of a group begin in a state of the first of them", settings=("start=state",)
        )
    }
    toy = (  # easy enough to be solved at times
        *("episodes=12", "group=4", "rl.batch_rows=8"),
        "run.environment.backends.fake.options.declared=false",
    )
    learner = GRPOLearner()

    def branch(self, config: TrainingConfig, rollout: Rollout) -> BranchPlan | None:
        """Return the rest of each group, which begins in a state of its first episode; None for groups of a task."""
        method = config.method
        assert isinstance(method, GRPOMethod), "the loop gives each algorithm its own method"
        return plan_branches(rollout, method.group) if method.start == "state" else None

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Refuse, beside what all such algorithms do, states in which no other episode could begin."""
        method = config.method
        assert isinstance(method, GRPOMethod), "the loop gives each algorithm its own method"
        if method.start == "state" and "deterministic" not in suite.capabilities:
            raise UsageError(
                f"start=state: the same actions do not surely lead to the same state in {suite.label}, so no other "
                "episode can begin there; set start=task"
            )
        return super().list_doubts(config, suite)

    def check_plan(self, method: Method, *, episodes: int, tasks: int) -> None:
        """Refuse an epoch that cannot hold whole groups."""
        assert isinstance(method, GRPOMethod), "the loop gives each algorithm its own method"
        if method.start == "state":  # a group begins with one episode, whatever follows
            return
        size = method.group
        if method.episodes is not None and method.episodes % size:
            whole = size * math.ceil(method.episodes / size)
            raise ConfigError(f"episodes={method.episodes}: cannot hold whole groups of {size}; set episodes={whole}")
        if episodes < size:
            told = format_amount(episodes, "episode")
            raise ConfigError(f"group={size}: an epoch has {told}; set episodes={size} or more, or steps")

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format how many groups had a spread, behind what all learners of turns tell, line by line."""
        told = _count_apart(record)
        if told is None:
            return super().format_lines(record)
        lines = [*super().format_lines(record), f"groups   {told} ended differently"]
        if record.metrics["spread"] < FEW * record.metrics["groups"]:
            lines.append(
                "warning  few groups ended differently, and only these teach anything; raise group, "
                "exploration_temperatures or the number of tasks that are neither always nor never solved, in another "
                "training"
            )
        return lines

    def build_columns(self, record: EpochRecord) -> dict[str, object]:
        """Return the groups that ended differently, beside the columns of all learners of turns."""
        return {**super().build_columns(record), "groups apart": _count_apart(record)}


def plan_branches(rollout: Rollout, group: int) -> BranchPlan:
    """Plan the other episodes of each group whose first one is in a rollout.

    A group whose first episode broke begins with its task.
    """
    leaders = [one.id for one in plan_episodes(rollout.run)]
    played = {one.id: len(one.steps) for one in rollout.trajectories}
    groups = 1 + max(leaders.index(id) for id in played)
    run = rollout.run.model_copy(
        update={"members": list(range(1, group)), "episodes": groups * (group - 1), "budget": Budget()}
    )
    beginnings = {}
    for position, episode in enumerate(plan_episodes(run)):
        leader = leaders[position // (group - 1)]
        drawn = generator(derive(run.seed, "state of group", leader)).randrange(max(1, played.get(leader, 0)))
        if drawn:
            beginnings[episode.id] = Beginning(source=rollout.reader, trajectory=leader, steps=drawn)
    return BranchPlan(run=run, beginnings=beginnings)


def _count_apart(record: EpochRecord) -> str | None:
    """Return how many groups had a spread, e.g. "12 of 30"; None where nothing was learned yet, as before epoch 1."""
    groups = record.metrics.get("groups")
    return None if groups is None else f"{record.metrics['spread']} of {groups}"
