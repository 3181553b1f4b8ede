"""The exact critic: does an action shorten the rest of the solution? Found by doing it on a fork.

    judge = OracleCritic(environment)
    judged = await judge(action)            # score 1, 0.5 or 0

    good     1     fewer actions are left afterwards, or the action ends the episode with success
    neutral  0.5   as many are left as before; or nothing can be said: no way is known before or after, or the step
                   budget ended the episode, whatever was done
    bad      0     more are left, no way leads on any more, or the episode ends without success

It stands where CollabUIAgents asks a language model (eq. 6): ⌈score − 0.5⌉ rewards what is good and nothing else.
"Fewer" is measured against the environment's own solution, which need not be the shortest. Where a solution names only
what the present screen shows (a tab to open, and not yet the link behind it), it is followed to its end on the fork,
and its steps are counted: so its own next action is good wherever the step budget lets it end.

`open_reach` tells what an action leads to, so that two actions with the same effect are recognised:

    async with reaching(case.state) as reach:
        same = await reach(one) == await reach(other)

Screens are compared element by element, with what is left to do where the environment knows. Notices do not count, for
they pass by themselves.

`SolutionCritic` is the oracle as a critic of recorded steps. Every distinct action is done once, in its own state:

    critic = SolutionCritic()
    judgement = await critic.judge(case)           # of a case with a state

Scores are those of `collab.rewards.oracle`: 1 where fewer actions of the environment's own solution are left afterwards
or the task ends with success, 0.5 where as many are left, 0 where more are left, no way leads on, or the task ends
without success. Cells with the same canonical action share a score. A cell is missing, never scored, where the state
cannot be brought back, the environment knows no way, neither before nor after the action, or the step budget ended the
episode with this step, so that nobody can ask what would be left.

"Fewer" is measured against the environment's own solution, which need not be the shortest: another order of the same
steps may look neutral. Version 1 took what a page names for all that is left.
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
"""Steps for which a solution by screens is followed; one that goes on is no way."""


@runtime_checkable
class SolutionEnvironment(Environment, Forkable, HasOracle, Protocol):
    """An environment that can be copied and knows solutions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleVerdict:
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

    def __init__(self, environment: SolutionEnvironment) -> None:
        self._environment = environment
        self._before: tuple[int | None] | None = None
        """What is left in the present state; None until it is wanted."""
        self._known: dict[Action | None, OracleVerdict] = {}

    async def __call__(self, action: Action | None) -> OracleVerdict:
        """Judge one action, given in its canonical form; None is what the environment does without an action.

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
    """Do an action, and count what is left behind it; None where no way is known, or the episode is over."""
    result = await environment.step(action)
    return result, None if result.done else await count_left(environment)


async def count_left(environment: Environment) -> int | None:
    """How many actions of its solution are left; None where no way is known.

    A solution by screens is followed to its end, in the environment itself; one that the step budget cuts off is no
    way.
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
    """How many actions its solution names; None where it has none."""
    ahead = environment.oracle() if isinstance(environment, HasOracle) else None
    return None if ahead is None else len(ahead)


def score_step(before: int | None, result: StepResult, after: int | None) -> OracleVerdict:
    """Score a step by how many actions of the solution were left before and after it; None where no way was known."""
    # An end is judged by its outcome; the way no longer matters.
    if result.outcome is not None:
        if result.outcome.success:
            return OracleVerdict(score=GOOD, reason="it ends the task with success", left=None)
        # The budget of steps ran out: that says nothing about this action.
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
"""What can be told of a state; equal for states that cannot be told apart."""

Reach: TypeAlias = Callable[[Action], Awaitable[Seen]]
"""Does an action in a state that is not touched by it."""


@contextlib.asynccontextmanager
async def open_reach(state: RestorableState) -> AsyncIterator[Reach]:
    """A way to do actions in one state: on copies where its environment can fork, else each in the state made anew.

    Equal actions are done once.

    Raises:
        EnvironmentFailure: here and from what is yielded: the world broke, or is not what was recorded.
    """
    known: dict[Action, Seen] = {}
    # A fork starts where the state is; without one, every try plays the episode again.
    async with contextlib.AsyncExitStack() as stack:
        environment = await stack.enter_async_context(state.open())
        if not isinstance(environment, Forkable):
            # The environment is given back at once, as each try opens its own.
            await stack.aclose()

        async def reach(action: Action) -> Seen:
            # Cells often propose the same action, which is then tried once.
            if action not in known:
                with boundary(EnvironmentFailure, f"trying {action.type}"):
                    known[action] = await _try_on_fork(environment, state, action)
            return known[action]

        yield reach


async def reach(environment: Forkable, action: Action) -> Seen:
    """What an action leads to on a copy of an environment."""
    fork = await environment.fork()
    try:
        return await _see_result(fork, action)
    finally:
        await fork.close()


async def _see_result(environment: Environment, action: Action) -> Seen:
    """Do an action, and tell what can be seen then."""
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
    """What comes of each action: on forks of one state where it can be copied, else in one state each."""
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
