"""What a training will take, before anything is started: calls, tokens, memory, disk, time and money, as ranges.

Counted exactly are episodes, cells and parameters. How many steps an episode takes is not known, so it lies between one
and its budget; both ends are told. All that is known by step is measured: one step of one task is really tried in a
temporary directory (`probe`). Training is counted from no pair at all to a pair for every cell.

Money is what policies, critic and adversary cost where their files name prices, and nothing for what this process
computes. What cannot be known is told as unknown, and so is every sum that it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from collab.config import RunConfig
from collab.learn.plan import GIB
from collab.learn.prepare import check_device
from collab.library import Library
from collab.marl.config import MarlConfig
from collab.marl.expense import NOTHING, Questions, Range
from collab.marl.gate import worth_knowing
from collab.marl.play import draw, rollout_config
from collab.marl.policy import first_policy
from collab.marl.probe import Probe, probe
from collab.marl.suited import check_suited
from collab.resolve import build_suite, plan_episodes

BYTES_PER_CALL = 3000
"""On disk of a recorded call with its share of screen and prompt, roughly."""
MIB = float(1 << 20)
UNKNOWN = "unknown"
_ONCE_MORE = 5 / 4
"""Work on a reply of a whole trajectory: two forward passes of the policy, one of the reference, one back for two."""


_LIKELY = 0.5
"""Share of its step budget that an episode is likely to take: solved ones take less, others all of it."""
_LIKELY_PAIRS = 0.25
"""Share of cells that is likely to be on one side of a pair or to be held on to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A training in numbers."""

    episodes: int
    """Rollouts and evaluations, over all epochs; at most, where `epoch_steps` are given."""
    epoch_steps: int | None
    """Environment steps after which an epoch's rollout ends; None where all its episodes are played."""
    calls: Range
    """Of the policies."""
    judged: Range
    """Steps that the critic judges."""
    pairs: Range
    """None, or one per cell of the rollouts; of whole trajectories one for every two episodes. Of rft, rewarded replies
    that are learned with nothing to compare them with."""
    tokens: Range
    """Of the policies' calls, prompts and replies."""
    critic: Questions | None
    """What the critic asks a model; None where it does not tell."""
    adversary: Questions | None
    """What the adversary asks a model, at most for every cell."""
    trained: Range
    """Tokens that training computes, over all passes."""
    memory: Range
    """Bytes of one process that trains: of what is as long as what was tried, and as long as the context."""
    disk: Range
    """Bytes: recorded calls, one checkpoint per trained policy and epoch, and what one training goes on from."""
    play_s: Range
    """Rollouts and evaluations, at the speed of as many episodes at once as the training plays."""
    judge_s: Range | None
    """None where it is not known."""
    pair_s: Range | None
    train_s: Range
    """By one process."""
    processes: int
    """That train a policy together."""
    shared_s: Range
    """Training at best, shared evenly by all of them."""
    total_s: Range | None
    """At least with training shared evenly; None where a part of it is not known."""
    likely_s: float | None
    """One value of `total_s`: see `_LIKELY`."""
    usd: Range | None
    """None where a price is not known."""
    probe: Probe
    notes: tuple[str, ...] = ()
    """What `collab.marl.gate.worth_knowing` finds."""


async def plan(config: MarlConfig, library: Library, device: str = "auto") -> Plan:
    """Count, and try one step.

    Args:
        device: where policies are trained, "auto" or "cpu".

    Raises:
        UsageError, RunError: as the first epoch would.
    """
    check_device(device)
    check_suited(config)
    notes = tuple(await worth_knowing(config))
    policy = first_policy(config.run, config.method)
    run = await rollout_config(config, 1, policy, draw(config, 1), {})
    found = planned(config, await _steps(config, run), await probe(config, run, library, policy, device))
    return replace(found, notes=notes)


def planned(config: MarlConfig, steps: tuple[Range, Range], tried: Probe) -> Plan:
    """The plan, from what was found out.

    Args:
        steps: environment steps of one rollout, and of one evaluation over all held-out seeds.
        tried: one step.
    """
    method, cells = config.method, len(config.run.graph.slots) * config.run.graph.rounds
    measures = method.epochs + method.held_out.before
    rolled = steps[0].times(method.epochs)
    played = rolled.plus(steps[1].times(measures))
    per_call = (tried.prompt_tokens + tried.completion_tokens) / tried.calls
    pairs, replied, slower = _learned(config, rolled, cells)
    seen = replied.times(method.dpo.epochs / (1 - method.older))
    play_s, train_s = played.times(tried.seconds), seen.times(tried.training.seconds_per_item * slower)
    judge_s, pair_s = (None if one is None else rolled.times(one) for one in (tried.judge_s, tried.pair_s))
    shared_s = train_s.times(1 / method.processes)
    rolled_likely = min(_likely(steps[0]), method.steps or _likely(steps[0])) * method.epochs
    played_likely = rolled_likely + _likely(steps[1]) * measures
    share = rolled_likely / rolled.high
    likely_s = [
        played_likely * tried.seconds,
        *(None if one is None else rolled_likely * one for one in (tried.judge_s, tried.pair_s)),
        shared_s.high * share * _LIKELY_PAIRS,
    ]
    critic, adversary = (None if one is None else one.of_steps(rolled) for one in (tried.critic, tried.adversary))
    return Plan(
        episodes=method.epochs * config.run.episodes + measures * sum(one.episodes for one in config.held_out),
        epoch_steps=method.steps,
        calls=played.times(cells),
        judged=rolled if method.is_judged else NOTHING,
        pairs=pairs,
        tokens=played.times(cells * per_call),
        critic=critic,
        adversary=adversary,
        trained=seen.times(tried.training.tokens_per_item),
        memory=Range(low=tried.training.least.total, high=tried.training.most.total),
        disk=_disk(config, played.times(cells), tried),
        play_s=play_s,
        judge_s=judge_s,
        pair_s=pair_s,
        train_s=train_s,
        processes=method.processes,
        shared_s=shared_s,
        total_s=_sum(play_s, judge_s, pair_s, Range(low=shared_s.low, high=train_s.high)),
        likely_s=None if None in likely_s else sum(one for one in likely_s if one is not None),
        usd=_sum(
            None if tried.usd is None else played.times(tried.usd),
            *(None if one is None else one.usd for one in (critic, adversary)),
        ),
        probe=tried,
    )


def told(plan: Plan, objective: str = "dpo") -> str:
    """The plan in lines for people.

    Args:
        objective: of the method; with "rft" replies are learned, and nothing is compared.
    """
    learned = "replies" if objective == "rft" else "pairs"
    probe, trained = plan.probe, plan.probe.training
    parts = [("playing", plan.play_s), ("judging", plan.judge_s), ("pairing", plan.pair_s), ("training", plan.train_s)]
    kinds = ("weights", "gradients", "optimizer", "activations")
    held = ", ".join(f"{name} {getattr(trained.most, name) / GIB:.2f}" for name in kinds)
    how = "real optimizer steps" if trained.measured else "its speed at multiplying matrices, as it has not the memory"
    many = f"; {plan.processes} processes take {_time(plan.shared_s)} at best" if plan.processes > 1 else ""
    amount_at_once = "1 episode at a time" if probe.at_once == 1 else f"{probe.at_once} episodes at once"
    spoken = f"{probe.prompt_tokens:,} tokens read, {probe.completion_tokens:,} said"
    return "\n".join(
        [
            f"episodes  {_episodes(plan)}",
            f"calls     {_range(plan.calls)} of the policies{_asked(plan, 'calls')}",
            f"tokens    {_range(plan.tokens)} of the policies{_asked(plan, 'tokens')}",
            f"judged    {_range(plan.judged)} steps",
            f"{learned:<10}{_range(plan.pairs)}, {_range(plan.trained)} tokens to train",
            f"memory    {plan.memory.low / GIB:.2f} to {plan.memory.high / GIB:.2f} GiB per process that trains "
            f"(at most {held})",
            f"disk      {plan.disk.low / MIB:,.0f} to {plan.disk.high / MIB:,.0f} MiB",
            f"time      {_likely_time(plan)}{_time(plan.total_s)}: "
            f"{', '.join(f'{name} {_time(one)}' for name, one in parts)}",
            f"money     {_money(plan)}",
            f"measured  on this machine, one step of {probe.calls} calls: {probe.seconds * probe.at_once:.2f} s, "
            f"{spoken}; {amount_at_once}; training by {how}, in one process{many}",
            "ranges    from one step per episode to the whole budget of each; from no pair to one per cell; prompts "
            "as long as in a first step, later ones tell a history, too; likely: half of each step budget, a pair for "
            "every fourth cell",
            *(f"note      {note}" for note in plan.notes),
        ]
    )


def _learned(config: MarlConfig, rolled: Range, cells: int) -> tuple[Range, Range, float]:
    """Pairs, how many pairs of replies are trained with them, and how much slower than others of DPO, as a factor.

    Of whole trajectories every reply is at most on one side, and is computed once more to weigh its pair. Where nothing
    is compared, replies take the place of pairs, and what was tried were replies, too.
    """
    method = config.method
    if method.objective != "trajectory-dpo":
        pairs = Range(low=0, high=rolled.high * min(cells, (method.pairs.cap or cells) + method.pairs.anchors))
        return pairs, pairs, 1.0
    episodes = method.epochs * (config.run.episodes // 2)
    return Range(low=0, high=episodes), Range(low=0, high=rolled.high * cells / 2), _ONCE_MORE


def _episodes(plan: Plan) -> str:
    if plan.epoch_steps is None:
        return f"{plan.episodes:,}"
    return f"at most {plan.episodes:,}, an epoch plays until it has {plan.epoch_steps:,} steps"


def _sum(*parts: Range | None) -> Range | None:
    """All added up; None where one is not known."""
    total = Range(low=0, high=0)
    for part in parts:
        if part is None:
            return None
        total = total.plus(part)
    return total


def _range(value: Range) -> str:
    return f"{round(value.low):,} to {round(value.high):,}"


def _time(value: Range | None) -> str:
    if value is None:
        return UNKNOWN
    least, most = (timedelta(seconds=round(one)) for one in (value.low, value.high))
    return f"{least} to {most}"


def _likely(steps: Range) -> float:
    """Of steps from one per episode to the whole budget of each."""
    return max(steps.low, steps.high * _LIKELY)


def _likely_time(plan: Plan) -> str:
    """The one value that stands before the range."""
    return "" if plan.likely_s is None else f"likely {timedelta(seconds=round(plan.likely_s))}, "


def _asked(plan: Plan, what: str) -> str:
    """What models beside the policies are asked; empty where none is."""
    told = ""
    for name, one in (("critic", plan.critic), ("adversary", plan.adversary)):
        if one is None:
            told += f", {UNKNOWN} of the {name}"
        elif one.calls.high:
            count = one.calls if what == "calls" else one.prompt_tokens.plus(one.completion_tokens)
            told += f", {_range(count)} of the {name}"
    return told


def _money(plan: Plan) -> str:
    if plan.usd is None:
        return (
            f"{UNKNOWN}: the agents file of a policy, the critic or the adversary names no prices "
            "(usd_per_million_prompt, …)"
        )
    if not plan.usd.high:
        return "0 USD: everything is computed on this machine"
    return f"{plan.usd.low:,.2f} to {plan.usd.high:,.2f} USD, by the prices in the agents files"


def _disk(config: MarlConfig, calls: Range, tried: Probe) -> Range:
    """Bytes in the end, and at the most while an epoch trains."""
    method, found = config.method, tried.training
    recipe = method.dpo
    written = found.trainable if method.keeps_adapters else found.parameters
    checkpoint = written * (4 if recipe.saved == "float32" else 2)
    held = 4 if recipe.weights == "float32" else 2
    weights = held * found.parameters if recipe.lora is None else 4 * found.trainable
    state = weights + 8 * found.trainable  # of the optimizer, two numbers for each
    kept = method.epochs * len(config.groups) * checkpoint + (recipe.keep + 1) * state
    return calls.times(BYTES_PER_CALL).plus(Range(low=0, high=kept))


async def _steps(config: MarlConfig, run: RunConfig) -> tuple[Range, Range]:
    """Steps of a rollout, and of one evaluation on all held-out seeds."""
    suite = build_suite(run)
    try:
        most = {info.name: run.environment.limits.max_steps or info.max_steps for info in suite.tasks()}
    finally:
        await suite.close()
    measured = [episode for one in config.held_out for episode in plan_episodes(one)]
    rolled, tested = (
        Range(low=len(those), high=sum(most[one.task] for one in those)) for those in (plan_episodes(run), measured)
    )
    return _until(rolled, config.method.steps, run.concurrency * max(most.values())), tested


def _until(rolled: Range, steps: int | None, beyond: int) -> Range:
    """Steps of a rollout that ends when it has enough; episodes that were begun meanwhile are played, too."""
    if steps is None:
        return rolled
    return Range(low=min(rolled.low, steps), high=min(rolled.high, steps + beyond))
