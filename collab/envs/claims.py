"""What environments promise, as checks: one coroutine per promise.

Each gets a `Subject`, plays on environments of its own, returns one line that says what was seen, and raises
EnvironmentFailure with one line that says what was broken. `check_env` runs them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from collab.envs.base import Environment, Forkable, HasGoal, HasOracle, HasScreenshot, Suite, TaskInfo
from collab.envs.replay import Recording, fingerprint, replay
from collab.envs.samples import ENDINGS, junk_action, random_action
from collab.envs.soundness import check_observation, check_result, require, require_same
from collab.errors import EnvironmentFailure
from collab.seeds import derive, generator
from collab.types import Action, Observation, Task
from collab.wording import amount

_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(slots=True, kw_only=True)
class Subject:
    """One instance of one task, under examination."""

    suite: Suite
    info: TaskInfo
    seed: int
    junk_steps: int
    recordings: list[Recording] = field(default_factory=list)
    """Episodes to be rebuilt in a fresh process later."""

    @property
    def task(self) -> Task:
        """The instance, drawn anew."""
        return self.suite.instance(self.info.name, self.seed)

    def rng(self, purpose: str) -> random.Random:
        """Randomness of one claim on this instance."""
        return generator(derive(self.seed, "check", purpose, self.info.name))

    @asynccontextmanager
    async def started(self) -> AsyncIterator[tuple[Environment, Observation]]:
        """A fresh environment after `reset`; closed at the end."""
        async with closing(await self.suite.open()) as environment:
            yield environment, await environment.reset(self.task)


@asynccontextmanager
async def closing(environment: Environment) -> AsyncIterator[Environment]:
    """Close an environment at the end: twice, since that is promised too."""
    try:
        yield environment
    finally:
        await environment.close()
        await environment.close()


Claim: TypeAlias = Callable[[Subject], Awaitable[str]]


# ------------------------------------------------------------------------------------------------ for every suite


async def seeded(subject: Subject) -> str:
    """The same task and seed give the same start: in two environments, and in one that has been used."""
    require(subject.task == subject.task, "instance() gives two different tasks for one seed")
    async with subject.started() as (one, first), subject.started() as (two, second):
        require_same(first, second, "two environments start differently")
        goals = [each.goal() if isinstance(each, HasGoal) else subject.task.goal for each in (one, two)]
        require(goals[0] == goals[1], f"two goals: {goals[0]!r} and {goals[1]!r}")
        require(bool(goals[0].strip()), "there is no goal, neither in the task nor after reset")
        observation = first
        rng = subject.rng("seeded")
        for _ in range(5):
            result = await one.step(random_action(subject.suite.space, observation, rng, ending=False))
            if result.done:
                break
            observation = result.observation
        require_same(first, await one.reset(subject.task), "reset after an episode starts differently")
    return f"{amount(len(first.elements), 'element')}, the same three times"


async def sound(subject: Subject) -> str:
    """Elements are indexed 0 to n − 1, the text names every index, boxes lie on the screen."""
    count = 0
    async with subject.started() as (environment, observation):
        rng = subject.rng("sound")
        for number in range(subject.junk_steps + 1):
            check_observation(subject.suite.space, observation, f"after {amount(number, 'step')}")
            count += len(observation.elements)
            result = await environment.step(random_action(subject.suite.space, observation, rng, ending=False))
            if result.done:
                check_observation(subject.suite.space, result.observation, "at the end")
                break
            observation = result.observation
    return f"{amount(count, 'element')} in place"


async def unshaken(subject: Subject) -> str:
    """Whatever is done, nothing raises, and every result is well formed."""
    rng = subject.rng("unshaken")
    episodes = 1
    async with subject.started() as (environment, observation):
        for number in range(subject.junk_steps):
            action = junk_action(subject.suite.space, observation, rng)
            result = await environment.step(action)
            check_result(result, f"step {number}, {_words(subject.suite, action)}")
            observation = result.observation
            if result.done:
                observation = await environment.reset(subject.task)
                episodes += 1
    return f"{subject.junk_steps} junk actions in {amount(episodes, 'episode')}"


async def ends(subject: Subject) -> str:
    """The agent can end the episode, and gets an outcome."""
    spec = next((spec for spec in subject.suite.space.specs if spec.name in ENDINGS), None)
    if spec is None:
        return "this action space has no action that ends"
    fields = {field.name: field.choices[0] for field in spec.fields if not field.optional and field.choices}
    async with subject.started() as (environment, _):
        result = await environment.step(subject.suite.space.make(spec.name, **fields))
        require(result.terminated, f"{spec.name} does not terminate the episode")
        check_result(result, spec.name)
    return f"{spec.name} ends it"


async def bounded(subject: Subject) -> str:
    """Doing nothing ends exactly when the budget is used up."""
    limit = subject.task.max_steps
    async with subject.started() as (environment, _):
        for number in range(1, limit + 1):
            result = await environment.step(None)
            check_result(result, f"step {number} of {limit}, nothing done")
            if result.terminated:
                return f"over by itself after {number} of {limit} steps"
            require(result.truncated == (number == limit), _budget_words(number, limit, result.truncated))
    return f"truncated after {limit} steps"


# --------------------------------------------------------------------------------------------- where declared


async def forks(subject: Subject) -> str:
    """A fork behaves like the original, and neither notices what the other does."""
    suite, rng = subject.suite, subject.rng("forks")
    async with subject.started() as (original, observation):
        if not isinstance(original, Forkable):
            raise EnvironmentFailure("claims fork, but the environment has no fork()")
        prefix, observation = await _wander(suite, original, observation, rng, steps=3)
        path: list[Action | None] = []
        async with closing(await original.fork()) as twin:
            async with closing(await original.fork()) as loner:
                await _wander(suite, loner, observation, subject.rng("loner"), steps=5)
            for _ in range(6):
                action = _next(suite, original, observation, rng)
                path.append(action)
                one, other = await original.step(action), await twin.step(action)
                require_same(one.observation, other.observation, f"the fork differs {amount(len(path), 'step')} later")
                require((one.done, one.outcome) == (other.done, other.outcome), "the fork ends differently")
                observation = one.observation
                if one.done:
                    break
    if "deterministic" in suite.capabilities:
        again = await replay(suite, subject.task, [*prefix, *path])
        require(again[-1] == fingerprint(observation), "stepping a fork changed the original")
    return f"equal for {amount(len(path), 'step')}"


async def solved(subject: Subject) -> str:
    """Following the oracle succeeds within the budget, from the start and after a few random actions."""
    suite, budget = subject.suite, subject.task.max_steps
    async with subject.started() as (environment, observation):
        steps = await _follow(suite, environment, observation, "from the start", budget)
        require(steps is not None, f"from the start: not over after {amount(budget, 'step')}")
    async with subject.started() as (environment, observation):
        prefix, observation = await _wander(suite, environment, observation, subject.rng("solved"), steps=3)
        if isinstance(environment, HasOracle) and environment.oracle():
            await _follow(suite, environment, observation, "after three random actions", budget - len(prefix))
    return f"solved in {steps} of {amount(budget, 'step')}"


async def rebuilt(subject: Subject) -> str:
    """The episode can be rebuilt in a fresh environment from task, seed and actions."""
    suite, rng = subject.suite, subject.rng("rebuilt")
    actions: list[Action | None] = []
    async with subject.started() as (environment, observation):
        seen = [fingerprint(observation)]
        for number in range(subject.junk_steps):
            action = (
                _next(suite, environment, observation, rng)
                if number % 2
                else junk_action(suite.space, observation, rng)
            )
            result = await environment.step(action)
            actions.append(action)
            seen.append(fingerprint(result.observation))
            observation = result.observation
            if result.done:
                break
    recording = Recording(task=subject.task, actions=tuple(actions), fingerprints=tuple(seen))
    require_same_episode(recording, await replay(suite, recording.task, actions), "a fresh environment")
    subject.recordings.append(recording)
    return f"equal over {amount(len(actions), 'step')}"


async def pictured(subject: Subject) -> str:
    """A screenshot is a PNG of the size that the observation names, with and without marks."""
    async with subject.started() as (environment, observation):
        if not isinstance(environment, HasScreenshot):
            raise EnvironmentFailure("claims screenshot, but the environment has no screenshot()")
        for marks in (False, True):
            picture = await environment.screenshot(marks=marks)
            require(picture[:8] == _PNG, f"not a PNG: it starts with {picture[:8]!r}")
            width, height = struct.unpack(">II", picture[16:24])
            claimed = observation.width, observation.height
            require((width, height) == claimed, f"{width} × {height} pixels, the observation says {claimed}")
    return f"{width} × {height}, {len(picture) // 1024} KiB"


def require_same_episode(recording: Recording, seen: tuple[str, ...], where: str) -> None:
    """Raise EnvironmentFailure that names the first step at which a rebuilt episode differs."""
    for number, (before, after) in enumerate(zip(recording.fingerprints, seen, strict=True)):
        require(before == after, f"{where} shows another screen after {number} of {amount(len(seen) - 1, 'step')}")


# ------------------------------------------------------------------------------------------------------ actions


def _next(suite: Suite, environment: Environment, observation: Observation, rng: random.Random) -> Action | None:
    """What leads on: the oracle's next action where there is one, else a random one."""
    solution = environment.oracle() if isinstance(environment, HasOracle) else None
    return solution[0] if solution else random_action(suite.space, observation, rng, ending=False)


async def _wander(
    suite: Suite, environment: Environment, observation: Observation, rng: random.Random, *, steps: int
) -> tuple[list[Action | None], Observation]:
    """Take random steps that do not end the episode, as far as that is in the agent's hands."""
    actions: list[Action | None] = []
    for _ in range(steps):
        action = random_action(suite.space, observation, rng, ending=False)
        result = await environment.step(action)
        actions.append(action)
        observation = result.observation
        if result.done:
            break
    return actions, observation


async def _follow(
    suite: Suite, environment: Environment, observation: Observation, where: str, budget: int
) -> int | None:
    """Step along the oracle to success; how many steps it took, None when the budget ran out first."""
    if not isinstance(environment, HasOracle):
        raise EnvironmentFailure("claims oracle, but the environment has no oracle()")
    for number in range(1, budget + 1):
        solution = environment.oracle()
        if not solution:
            raise EnvironmentFailure(
                f"{where}: no solution after {amount(number - 1, 'step')}, and the episode goes on"
            )
        action = solution[0]
        missing = suite.space.check(action, observation)
        require(missing is None, f"{where}: solution names {missing.detail if missing else ''}")
        require(suite.space.parse(suite.space.format(action)) == action, f"{where}: solution is not in the grammar")
        result = await environment.step(action)
        observation = result.observation
        if result.truncated:
            return None
        if result.terminated:
            reason = result.outcome.reason if result.outcome else "no outcome"
            require(
                bool(result.outcome and result.outcome.success),
                f"{where}: no success in {amount(number, 'step')}: {reason}",
            )
            return number
    return None


def _budget_words(number: int, limit: int, truncated: bool) -> str:
    return (
        f"truncated after {amount(number, 'step')}, the budget is {limit}"
        if truncated
        else f"goes on after {limit} steps"
    )


def _words(suite: Suite, action: Action | None) -> str:
    text = "nothing" if action is None else suite.space.format(action)
    return text if len(text) < 80 else text[:77] + "…"
