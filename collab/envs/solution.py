"""The environment's own solution as a measure: whether a step leaves fewer actions of it.

    good     1     fewer actions are left afterwards, or the action ends the episode with success
    neutral  0.5   as many are left as before; or nothing is known: no way is known before or after, or the step budget
                   ended the episode
    bad      0     more are left, no way leads on any more, or the episode ends without success

A solution need not be the shortest: another order of the same steps may look neutral. Where a solution names only what
the present screen shows (a tab to open, and not yet the link behind it), it is followed to its end on a fork, and its
steps are counted. So its own next action is good wherever the step budget lets it end.

    critic = SolutionScorer(environment)             # judges in the present state of an environment
    verdict = await critic(action)                 # score 1, 0.5 or 0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from collab.envs.base import Environment, Forkable, HasOracle, SolvesByScreen
from collab.types import Action, StepResult

GOOD, NEUTRAL, BAD = 1.0, 0.5, 0.0

NO_WAY = "no way is known, neither before nor after it"
BUDGET = "the step budget ended the episode with it"
FIRST_ERROR = "stopped at its first error"
"""How an outcome's reason begins where a run ends its episodes there (`environment.limits.stop_at_first_error`)."""
_FARTHEST = 50
"""Most steps of a solution by screens; a longer one counts as no way."""


@runtime_checkable
class SolutionEnvironment(Environment, Forkable, HasOracle, Protocol):
    """An environment that can be forked and knows solutions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleVerdict:
    """The oracle's score of one action."""

    score: float
    """In [0, 1]."""
    reason: str
    """One line."""
    left: int | None
    """Actions of the solution left afterwards; None when no way is known, or the episode is over."""
    known: bool = True
    """False where nothing is known (the reason is `NO_WAY` or `BUDGET`); the score is neutral then."""


class SolutionScorer:
    """Judges actions in the present state of an environment.

    Equal actions are tried once. The critic never steps the environment; build a new one after each step.

    Args:
        environment: in the middle of an episode.
    """

    def __init__(self, environment: SolutionEnvironment) -> None:
        self._environment = environment
        self._before: tuple[int | None] | None = None
        """Actions left in the present state; None until it is needed."""
        self._known: dict[Action | None, OracleVerdict] = {}

    async def __call__(self, action: Action | None) -> OracleVerdict:
        """Judge one canonical action; None judges a step without an action.

        Raises:
            EnvironmentFailure: the environment broke.
        """
        if action not in self._known:
            self._known[action] = await self._judge_cell(action)
        return self._known[action]

    async def _judge_cell(self, action: Action | None) -> OracleVerdict:
        if self._before is None:
            self._before = (await look_ahead(self._environment),)
        fork = await self._environment.fork()
        try:
            result, after = await execute_action(fork, action)
        finally:
            await fork.close()
        return score_step(*self._before, result, after)


async def look_ahead(environment: Environment) -> int | None:
    """Count the actions that are left of the environment's solution, on a fork where it must be followed for that."""
    if not isinstance(environment, SolvesByScreen):
        return count_named(environment)
    fork = await environment.fork()
    try:
        return await count_left(fork)
    finally:
        await fork.close()


async def execute_action(environment: Environment, action: Action | None) -> tuple[StepResult, int | None]:
    """Execute an action, and count the actions left; None where no way is known, or the episode is over."""
    result = await environment.step(action)
    return result, None if result.done else await count_left(environment)


async def count_left(environment: Environment) -> int | None:
    """Count the actions that are left of the environment's solution; None where no way is known.

    A solution by screens is followed to its end, in the environment itself; if the step budget cuts it off, no way is
    known.
    """
    if not isinstance(environment, SolvesByScreen):
        return count_named(environment)
    for taken in range(_FARTHEST):
        ahead = environment.oracle()
        if not ahead:
            return None if ahead is None else taken
        result = await environment.step(ahead[0])
        if result.done:
            return taken + 1 if result.outcome is not None and result.outcome.success else None
    return None


def count_named(environment: Environment) -> int | None:
    """Count the actions that the environment's solution names; None where it has none."""
    ahead = environment.oracle() if isinstance(environment, HasOracle) else None
    return None if ahead is None else len(ahead)


def score_step(before: int | None, result: StepResult, after: int | None) -> OracleVerdict:
    """Score a step by the solution's actions left before and after it; None where no way was known."""
    # An end is judged by its outcome; the way no longer matters.
    if result.outcome is not None:
        if result.outcome.success:
            return OracleVerdict(score=GOOD, reason="it ends the task with success", left=None)
        # The step budget ran out, which shows nothing about this action.
        if result.truncated:
            return OracleVerdict(score=NEUTRAL, reason=BUDGET, left=None, known=False)
        why = f": {result.outcome.reason}" if result.outcome.reason else ""
        return OracleVerdict(score=BAD, reason=f"it ends the task without success{why}", left=None)
    # No known way before and after: then nothing is known about the step.
    if after is None:
        if before is None:
            return OracleVerdict(score=NEUTRAL, reason=NO_WAY, left=None, known=False)
        return OracleVerdict(score=BAD, reason="no way leads on from there", left=None)
    if before is None:
        return OracleVerdict(score=GOOD, reason=f"it finds a way: {_list_actions(after)} left", left=after)
    # The score compares solution lengths: shorter is good, equal neutral, longer bad.
    told = f"{_list_actions(before)} left before, {after} after"
    if after < before:
        return OracleVerdict(score=GOOD, reason=f"it leads on: {told}", left=after)
    if after == before:
        return OracleVerdict(score=NEUTRAL, reason=f"it does not lead on: {told}", left=after)
    return OracleVerdict(score=BAD, reason=f"it leads away: {told}", left=after)


def _list_actions(count: int) -> str:
    return "1 action" if count == 1 else f"{count} actions"
