"""What a training will take, before anything is started: calls, tokens, disk, time, each with a range.

Counted exactly are episodes, cells and parameters. How many steps an episode takes is not known, so it lies between one
and its budget; both ends are told. How long a step takes and how many tokens it reads are measured: one step of one
task is really played in a temporary directory, with the policy and the environment of the training. Training is counted
at most: every cell rewarded and paired, at the length that was measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from collab.config import RunConfig
from collab.library import Library, checkpoint
from collab.marl.config import MarlConfig
from collab.marl.play import draw, rollout_config, trajectories_of
from collab.marl.policy import Policy, first_policy
from collab.resolve import build_suite, plan_episodes
from collab.runs import start
from collab.types import Trajectory

BYTES_PER_CALL = 3000
"""On disk of a recorded call with its share of screen and prompt, roughly."""
MIB = float(1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Between the least and the most."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Both ends."""
        return Range(low=self.low * factor, high=self.high * factor)

    def plus(self, other: Range) -> Range:
        """The ends added up."""
        return Range(low=self.low + other.low, high=self.high + other.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One step that was really played."""

    calls: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    """Of all its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A training in numbers."""

    episodes: int
    """Rollouts and evaluations, over all epochs."""
    calls: Range
    """Of the policies."""
    judged: Range
    """Steps that the critic judges; a critic that asks a model calls it at least once for each."""
    pairs: Range
    """None, or one per cell of the rollouts."""
    tokens: Range
    """Of the policies' calls, prompts and replies."""
    trained: Range
    """Tokens of both sides of all pairs, over all passes."""
    disk: Range
    """Bytes: recorded calls and one checkpoint per trained policy and epoch."""
    play_s: Range
    """Rollouts and evaluations, at the speed that was measured with one episode at a time."""
    probe: Probe


async def plan(config: MarlConfig, library: Library) -> Plan:
    """Count, and play one step.

    Raises:
        UsageError, RunError: as the first rollout would.
    """
    policy = first_policy(config.run, config.method)
    run = await rollout_config(config, 1, policy, draw(config, 1))
    probe = await _probe(run, library)
    return planned(config, await _steps(config, run), probe, _weights(policy))


def planned(config: MarlConfig, steps: tuple[Range, Range], probe: Probe, weights: int) -> Plan:
    """The plan, from what was found out.

    Args:
        steps: environment steps of one rollout, and of one evaluation over all held-out seeds.
        weights: bytes of one checkpoint.
    """
    method, cells = config.method, len(config.run.graph.slots) * config.run.graph.rounds
    measures = method.epochs + method.held_out.before
    rolled = steps[0].times(method.epochs)
    played = rolled.plus(steps[1].times(measures))
    per_call = (probe.prompt_tokens + probe.completion_tokens) / probe.calls
    pairs = Range(low=0, high=rolled.high * cells)
    kept = Range(low=0, high=method.epochs * len(config.groups) * weights)
    return Plan(
        episodes=method.epochs * config.run.episodes + measures * sum(one.episodes for one in config.held_out),
        calls=played.times(cells),
        judged=rolled,
        pairs=pairs,
        tokens=played.times(cells * per_call),
        trained=pairs.times(2 * per_call * method.dpo.epochs / (1 - method.older)),
        disk=played.times(cells * BYTES_PER_CALL).plus(kept),
        play_s=played.times(probe.seconds),
        probe=probe,
    )


def told(plan: Plan) -> str:
    """The plan in lines for people."""
    probe = plan.probe
    least, most = (timedelta(seconds=round(value)) for value in (plan.play_s.low, plan.play_s.high))
    return "\n".join(
        [
            f"episodes  {plan.episodes:,}",
            f"calls     {_range(plan.calls)} of the policies",
            f"tokens    {_range(plan.tokens)}",
            f"judged    {_range(plan.judged)} steps",
            f"pairs     {_range(plan.pairs)}, {_range(plan.trained)} tokens to train",
            f"disk      {plan.disk.low / MIB:,.0f} to {plan.disk.high / MIB:,.0f} MiB",
            f"playing   {least} to {most}, one episode at a time; judging and training come on top",
            f"measured  one step of {probe.calls} calls: {probe.seconds:.2f} s, {probe.prompt_tokens:,} tokens read, "
            f"{probe.completion_tokens:,} said",
            "ranges    from one step per episode to the whole budget of each; from no pair to one per cell",
        ]
    )


def _range(value: Range) -> str:
    return f"{round(value.low):,} to {round(value.high):,}"


async def _probe(run: RunConfig, library: Library) -> Probe:
    limits = run.environment.limits.model_copy(update={"max_steps": 1})
    environment = run.environment.model_copy(update={"limits": limits})
    short = run.model_copy(update={"environment": environment, "episodes": 1, "concurrency": 1})
    with tempfile.TemporaryDirectory(prefix="collab-plan-") as folder:
        await start(short, library, Path(folder) / "run")
        return probe_of(trajectories_of(Path(folder) / "run"))


def probe_of(played: Sequence[Trajectory]) -> Probe:
    """What one step took."""
    step = played[0].steps[0]
    cells = step.matrix.utterances
    return Probe(
        calls=len(cells),
        seconds=step.deliberation_s + step.environment_s,
        prompt_tokens=sum(cell.prompt_tokens or 0 for cell in cells),
        completion_tokens=sum(cell.completion_tokens or 0 for cell in cells),
    )


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
    return rolled, tested


def _weights(policy: Policy) -> int:
    folder = Path(checkpoint(next(iter(policy.weights.values()))))
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
