"""What an action leads to, as far as it can be seen: so that two actions that do the same are known for it.

    async with reaching(case.state) as reach:
        same = await reach(one) == await reach(other)

Screens are compared element by element, with what is left to do where the environment knows. Notices do not count, for
they pass by themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from collab.credit.case import State
from collab.envs.base import Environment, Forkable, HasOracle
from collab.errors import EnvironmentFailure, boundary
from collab.types import Action

Seen: TypeAlias = tuple[Any, ...]
"""What can be told of a state; equal for states that cannot be told apart."""

Reach: TypeAlias = Callable[[Action], Awaitable[Seen]]
"""Does an action in a state that is not touched by it."""


@contextlib.asynccontextmanager
async def reaching(state: State) -> AsyncIterator[Reach]:
    """A way to do actions in one state: on copies where its environment can fork, else each in the state made anew.

    Equal actions are done once.

    Raises:
        EnvironmentFailure: here and from what is yielded: the world broke, or is not what was recorded.
    """
    known: dict[Action, Seen] = {}
    async with contextlib.AsyncExitStack() as stack:
        environment = await stack.enter_async_context(state.opened())
        if not isinstance(environment, Forkable):
            await stack.aclose()

        async def reach(action: Action) -> Seen:
            if action not in known:
                with boundary(EnvironmentFailure, f"trying {action.type}"):
                    known[action] = await _try_on_fork(environment, state, action)
            return known[action]

        yield reach


async def reached(environment: Forkable, action: Action) -> Seen:
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


async def _try_on_fork(environment: Environment, state: State, action: Action) -> Seen:
    if isinstance(environment, Forkable):
        return await reached(environment, action)
    async with state.opened() as fresh:
        return await _see_result(fresh, action)
