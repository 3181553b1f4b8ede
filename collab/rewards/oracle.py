"""The exact critic: it executes an action on a fork and checks whether the rest of the solution gets shorter.

    good     1     fewer actions are left afterwards, or the action ends the episode with success
    neutral  0.5   as many are left as before; or nothing is known: no way is known before or after, or the step budget
                   ended the episode
    bad      0     more are left, no way leads on any more, or the episode ends without success

It replaces the language model of CollabUIAgents (eq. 6): ⌈score − 0.5⌉ rewards good actions and no others. "Fewer" is
measured against the environment's own solution, which need not be the shortest: another order of the same steps may
look neutral. Where a solution names only what the present screen shows (a tab to open, and not yet the link behind it),
it is followed to its end on the fork, and its steps are counted. So its own next action is good wherever the step
budget lets it end.

    critic = OracleCritic(environment)             # judges in the present state of an environment
    verdict = await critic(action)                 # score 1, 0.5 or 0

    critic = SolutionCritic()                      # judges recorded steps
    judgement = await critic.judge(case)           # of a case with a state

`SolutionCritic` executes every distinct action once, in its own state; cells with the same canonical action share a
score. A cell is missing where the state cannot be restored, no way is known, or the step budget ended the episode with
this step. Version 1 took the actions that a page names for all that is left.

`open_reach` returns a function from an action to the state behind it, so that actions with the same effect are
recognised:

    async with open_reach(case.state) as reach:
        same = await reach(one) == await reach(other)

Screens are compared element by element, together with the rest of the solution where it is known. Notices do not count,
for they disappear by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from collab.envs.base import Environment, Forkable, HasOracle, SolvesByScreen
from collab.errors import EnvironmentFailure, boundary
from collab.rewards.base import CellScore, CriticInput, Judgement, RestorableState, build_judgement, to_all_equal
from collab.types import Action, StepResult

GOOD, NEUTRAL, BAD = 1.0, 0.5, 0.0

NO_WAY = "no way is known, neither before nor after it"
BUDGET = "the step budget ended the episode with it"
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


class OracleCritic:
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
            self._before = (await self._count_left(),)
        fork = await self._environment.fork()
        try:
            result, after = await execute_action(fork, action)
        finally:
            await fork.close()
        return score_step(*self._before, result, after)

    async def _count_left(self) -> int | None:
        if not isinstance(self._environment, SolvesByScreen):
            return count_named(self._environment)
        fork = await self._environment.fork()
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


Seen: TypeAlias = tuple[Any, ...]
"""A state as far as it can be seen; equal for states that cannot be distinguished."""

Reach: TypeAlias = Callable[[Action], Awaitable[Seen]]
"""Executes an action in a copy of a state."""


@contextlib.asynccontextmanager
async def open_reach(state: RestorableState) -> AsyncIterator[Reach]:
    """Open a function that executes actions in one state: on forks where possible, else in the state rebuilt each time.

    Equal actions are executed once.

    Raises:
        EnvironmentFailure: here and from the function: the environment broke, or differs from the record.
    """
    known: dict[Action, Seen] = {}
    # A fork starts where the state is; without one, every try plays the episode again.
    async with contextlib.AsyncExitStack() as stack:
        environment = await stack.enter_async_context(state.open())
        if not isinstance(environment, Forkable):
            # Close the environment at once, as each try opens its own.
            await stack.aclose()

        async def reach(action: Action) -> Seen:
            # Cells often propose the same action, which is then tried once.
            if action not in known:
                with boundary(EnvironmentFailure, f"trying {action.type}"):
                    known[action] = await _try_on_fork(environment, state, action)
            return known[action]

        yield reach


async def reach(environment: Forkable, action: Action) -> Seen:
    """Return the state to which an action leads on a fork of an environment."""
    fork = await environment.fork()
    try:
        return await _see_result(fork, action)
    finally:
        await fork.close()


async def _see_result(environment: Environment, action: Action) -> Seen:
    """Execute an action, and return the visible state behind it."""
    result = await environment.step(action)
    left = environment.oracle() if isinstance(environment, HasOracle) and not result.done else None
    screen = result.observation
    return screen.title, screen.url, screen.elements, screen.tabs, result.terminated, result.outcome, left


async def _try_on_fork(environment: Environment, state: RestorableState, action: Action) -> Seen:
    if isinstance(environment, Forkable):
        return await reach(environment, action)
    async with state.open() as fresh:
        return await _see_result(fresh, action)


NO_STATE = "the state cannot be brought back"
NO_SOLUTION = "the environment knows no solution"


class SolutionCritic:
    """Judges actions by the environment's own solution; kind `oracle`."""

    name = "oracle"
    version = "2"

    async def judge(self, case: CriticInput) -> Judgement:
        """Judge a step; EnvironmentFailure when the world broke."""
        actions = list(case.group_proposals())
        if case.state is None:
            words = dict.fromkeys(actions, CellScore.none(NO_STATE))
        else:
            with boundary(EnvironmentFailure, f"{case.trajectory}: judging step {case.step}"):
                tried = await _try_actions(case.state, actions)
            words = {action: _build_score(found) for action, found in tried.items()}
        return build_judgement(case, self, to_all_equal(case, words))


async def _try_actions(state: RestorableState, actions: list[Action]) -> dict[Action, OracleVerdict | None]:
    """Judge each action: on forks of one state where it can be forked, else in one state each."""
    found: dict[Action, OracleVerdict | None] = {}
    for action in actions:
        async with state.open() as environment:
            if isinstance(environment, SolutionEnvironment):
                critic = OracleCritic(environment)
                return {each: await critic(each) for each in actions}
            if not isinstance(environment, HasOracle):
                return dict.fromkeys(actions)
            before = count_named(environment)
            found[action] = score_step(before, *await execute_action(environment, action))
    return found


def _build_score(found: OracleVerdict | None) -> CellScore:
    if found is None:
        return CellScore.none(NO_SOLUTION)
    if not found.known:
        return CellScore.none(found.reason)
    return CellScore(score=found.score, reason=found.reason)
