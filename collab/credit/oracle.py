"""The exact critic: does an action shorten the rest of the solution? Found by doing it on a fork.

    judge = OracleCritic(environment)
    judged = await judge(action)            # score 1, 0.5 or 0

    good     1     fewer actions are left afterwards, or the action ends the episode with success
    neutral  0.5   as many are left as before; or nothing can be said: no way is known before or after, or the step
                   budget ended the episode, whatever was done
    bad      0     more are left, no way leads on any more, or the episode ends without success

It stands where CollabUIAgents asks a language model (eq. 6): ⌈score − 0.5⌉ rewards what is good and nothing else.
"Fewer" is measured against the environment's own solution, which need not be the shortest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from collab.envs.base import Environment, Forkable, HasOracle
from collab.types import Action, StepResult

GOOD, NEUTRAL, BAD = 1.0, 0.5, 0.0

NO_WAY = "no way is known, neither before nor after it"
BUDGET = "the step budget ended the episode with it"


@runtime_checkable
class Knowing(Environment, Forkable, HasOracle, Protocol):
    """An environment that can be copied and knows solutions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A word on one action."""

    score: float
    """In [0, 1]."""
    reason: str
    """One line."""
    left: int | None
    """Actions of the solution that are left afterwards; None when no way is known, or the episode is over."""
    known: bool = True
    """False where nothing can be said (`NO_WAY`, `BUDGET` is the reason); the score is neutral then."""


class OracleCritic:
    """Judges actions in the present state of an environment.

    Equal actions are tried once. The environment itself is never stepped; make a new critic after it was.

    Args:
        environment: in the middle of an episode.
    """

    def __init__(self, environment: Knowing) -> None:
        self._environment = environment
        self._before = environment.oracle()
        self._known: dict[Action | None, Verdict] = {}

    async def __call__(self, action: Action | None) -> Verdict:
        """Judge one action, given in its canonical form; None is what the environment does without an action.

        Raises:
            EnvironmentFailure: the environment broke.
        """
        if action not in self._known:
            self._known[action] = await self._judged(action)
        return self._known[action]

    async def _judged(self, action: Action | None) -> Verdict:
        fork = await self._environment.fork()
        try:
            result = await fork.step(action)
            after = fork.oracle() if isinstance(fork, HasOracle) and not result.done else None
        finally:
            await fork.close()
        return verdict(self._before, result, after)


def verdict(before: tuple[Action, ...] | None, result: StepResult, after: tuple[Action, ...] | None) -> Verdict:
    """Score a step by what of the solution was left before and after it; None where no way was known."""
    if result.outcome is not None:
        if result.outcome.success:
            return Verdict(score=GOOD, reason="it ends the task with success", left=None)
        if result.truncated:
            return Verdict(score=NEUTRAL, reason=BUDGET, left=None, known=False)
        why = f": {result.outcome.reason}" if result.outcome.reason else ""
        return Verdict(score=BAD, reason=f"it ends the task without success{why}", left=None)
    if after is None:
        if before is None:
            return Verdict(score=NEUTRAL, reason=NO_WAY, left=None, known=False)
        return Verdict(score=BAD, reason="no way leads on from there", left=None)
    left = len(after)
    if before is None:
        return Verdict(score=GOOD, reason=f"it finds a way: {_actions(left)} left", left=left)
    told = f"{_actions(len(before))} left before, {left} after"
    if left < len(before):
        return Verdict(score=GOOD, reason=f"it leads on: {told}", left=left)
    if left == len(before):
        return Verdict(score=NEUTRAL, reason=f"it does not lead on: {told}", left=left)
    return Verdict(score=BAD, reason=f"it leads away: {told}", left=left)


def _actions(count: int) -> str:
    return "1 action" if count == 1 else f"{count} actions"
