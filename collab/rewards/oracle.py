"""The exact critic: it executes an action on a fork and checks whether the rest of the solution gets shorter.

Scores are those of `collab.envs.solution`: 1, 0.5 or 0. The critic replaces the language model of CollabUIAgents
(eq. 6): ⌈score − 0.5⌉ rewards good actions and no others.

    critic = SolutionCritic()                      # judges recorded steps
    judgement = await critic.judge(case)           # of a case with a state

It executes every distinct action once, in its own state; cells with the same canonical action share a score. A cell is
missing where the state cannot be restored, no way is known, or the step budget ended the episode with this step.
Version 1 took the actions that a page names for all that is left.

`open_reach` returns a function from an action to the state behind it, so that actions with the same effect are
recognised:

    async with open_reach(case.state) as reach:
        same = await reach(one) == await reach(other)

Screens are compared element by element, together with the rest of the solution where it is known. Notices do not count,
for they disappear by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from collab.envs.base import Environment, Forkable, HasOracle
from collab.envs.solution import (
    OracleVerdict,
    SolutionEnvironment,
    SolutionScorer,
    count_named,
    execute_action,
    score_step,
)
from collab.errors import EnvironmentFailure, boundary
from collab.rewards.base import CellScore, CriticInput, Judgement, RestorableState, build_judgement, to_all_equal
from collab.types import Action, Observation, StepResult

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
    return describe_state(environment, await environment.step(action))


def describe_state(environment: Environment, result: StepResult) -> Seen:
    """Return the visible state of an environment behind its last step."""
    left = environment.oracle() if isinstance(environment, HasOracle) and not result.done else None
    return *describe_view(result.observation), result.terminated, result.outcome, left


def describe_view(screen: Observation) -> Seen:
    """Return what a screen shows; equal for screens that differ in a notice alone."""
    return screen.title, screen.url, screen.elements, screen.tabs


async def _try_on_fork(environment: Environment, state: RestorableState, action: Action) -> Seen:
    if isinstance(environment, Forkable):
        return await reach(environment, action)
    async with state.open() as fresh:
        return await _see_result(fresh, action)


AskedT = TypeVar("AskedT", bound=Action | None)

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
                words = await score_actions(case.state, actions)
        return build_judgement(case, self, to_all_equal(case, words))


async def score_actions(state: RestorableState, actions: Sequence[AskedT]) -> dict[AskedT, CellScore]:
    """Return the score of each action in a state, recorded or not, each tried once.

    Args:
        actions: None is a step without an action.

    Raises:
        EnvironmentFailure: the environment broke, or differs from the record.
    """
    return {action: _build_score(found) for action, found in (await _try_actions(state, actions)).items()}


async def _try_actions(state: RestorableState, actions: Sequence[AskedT]) -> dict[AskedT, OracleVerdict | None]:
    """Judge each action: on forks of one state where it can be forked, else in one state each."""
    found: dict[AskedT, OracleVerdict | None] = {}
    for action in actions:
        async with state.open() as environment:
            if isinstance(environment, SolutionEnvironment):
                critic = SolutionScorer(environment)
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
