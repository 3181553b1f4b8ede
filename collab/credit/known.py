"""Steps whose worth is known: what a critic is calibrated on.

    known = await known_cases(suite, ["ContactsAddContact"], seed=0)
    known[0].worth[cell]                        # "good", "neutral" or "bad"

The solution of an instance is followed step by step. In every state the right action stands beside sampled ones
(`collab.credit.sampler`), and each is tried on a fork: its worth is what `collab.credit.oracle` found, never what it
was drawn as. All are proposed for the same reason in the same words, so that only the action tells them apart; who
proposes which is drawn.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from collab.credit.case import Case
from collab.credit.oracle import BAD, GOOD, NEUTRAL, Knowing, OracleCritic
from collab.credit.sampler import Spot, mistakes
from collab.envs.base import Environment, HasGoal, Suite
from collab.errors import EnvironmentFailure, UsageError, boundary
from collab.rollout import told
from collab.seeds import derive, generator
from collab.types import (
    Action,
    ActionMatrix,
    CellRef,
    HistoryEntry,
    Observation,
    PolicyRef,
    PromptRef,
    Sampling,
    Task,
    Utterance,
)

Worth: TypeAlias = Literal["good", "neutral", "bad"]
WORTH: Mapping[float, Worth] = {GOOD: "good", NEUTRAL: "neutral", BAD: "bad"}

AGENTS = ("ada", "ben", "cyd", "dee")
WANTED: Mapping[Worth, int] = {"good": 1, "neutral": 1, "bad": 2}
"""Of each worth in one state, where the screen allows it."""
_DRAWS = 60
"""Sampled actions that are looked at in one state."""
_LONGER = (
    " I have looked at the whole screen carefully, from top to bottom, and compared what it shows with the task and"
    " with what was done before. After weighing the other possibilities one by one I am convinced that this is the"
    " step to take here."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCase:
    """A state with one round of proposals, and what each is worth."""

    case: Case
    worth: Mapping[CellRef, Worth]

    def lengthened(self, seed: int) -> tuple[KnownCase, frozenset[CellRef]]:
        """The same with longer reasons, that say nothing more, in half of its cells; and which cells these are."""
        cells = self.case.matrix.utterances
        drawn = generator(derive(seed, "longer", *self.case.key)).sample(cells, (len(cells) + 1) // 2)
        chosen = frozenset(cell.cell for cell in drawn)
        longer = tuple(_said(cell, cell.reason + _LONGER) if cell.cell in chosen else cell for cell in cells)
        matrix = replace(self.case.matrix, utterances=longer)
        return replace(self, case=replace(self.case, matrix=matrix)), chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Redone:
    """A state that is made by doing everything before it; a `collab.credit.case.State`."""

    suite: Suite
    task: Task
    actions: tuple[Action, ...]

    def opened(self) -> AbstractAsyncContextManager[Environment]:
        """A fresh environment, in which the actions were done."""
        return self._opened()

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Environment]:
        environment = await self.suite.open()
        try:
            with boundary(EnvironmentFailure, f"{self.task.name}: doing {len(self.actions)} actions again"):
                await environment.reset(self.task)
                for action in self.actions:
                    await environment.step(action)
            yield environment
        finally:
            await environment.close()


async def known_cases(suite: Suite, tasks: Sequence[str], *, seed: int, most: int = 8) -> list[KnownCase]:
    """Steps of one instance of each task.

    Args:
        seed: decides instances, what is sampled and who proposes it.
        most: steps of one episode, from its beginning.

    Raises:
        UsageError: the suite cannot fork or be rebuilt, or knows no solutions.
        UnknownName: it has no such task.
        EnvironmentFailure: the world broke.
    """
    if not {"fork", "oracle", "deterministic"} <= suite.capabilities:
        raise UsageError(
            f"{suite.label} cannot be copied or rebuilt, or knows no solutions: nothing is known to be good or bad; "
            "calibrate on another environment"
        )
    found: list[KnownCase] = []
    for name in tasks:
        task = suite.instance(name, derive(seed, "calibration", name))
        environment = await suite.open()
        try:
            with boundary(EnvironmentFailure, f"{suite.label}: {name}"):
                found += [known async for known in _follow(suite, environment, task, seed, most)]
        finally:
            await environment.close()
    return found


async def _follow(suite: Suite, environment: Environment, task: Task, seed: int, most: int) -> AsyncIterator[KnownCase]:
    observation = await environment.reset(task)
    if isinstance(environment, HasGoal):
        task = replace(task, goal=environment.goal())
    history: list[HistoryEntry] = []
    done: list[Action] = []
    for step in range(most):
        if not isinstance(environment, Knowing) or not (solution := environment.oracle()):
            return
        rng = generator(derive(seed, "known step", task.name, step))
        right = suite.space.canonical(solution[0], observation)
        spot = Spot(observation=observation, space=suite.space, last=done[-1] if done else None)
        proposed = await _proposed(environment, right, spot, rng)
        place = _Place(suite=suite, task=task, step=step, observation=observation, history=tuple(history))
        yield place.known(proposed, Redone(suite=suite, task=task, actions=tuple(done)), rng)
        result = await environment.step(right)
        if result.done:
            return
        history.append(told(suite.space, observation, right, "", result))
        observation = result.observation
        done.append(right)


async def _proposed(environment: Knowing, right: Action, spot: Spot, rng: random.Random) -> dict[Action, Worth]:
    """The right action and sampled ones, each with what a fork said of it."""
    critic = OracleCritic(environment)
    found: dict[Action, Worth] = {}
    drawn = mistakes(right, spot, rng)
    for action in (right, *(one.action for one, _ in zip(drawn, range(_DRAWS), strict=False))):
        verdict = await critic(action)
        worth = WORTH[verdict.score]
        if verdict.known and action not in found and list(found.values()).count(worth) < WANTED[worth]:
            found[action] = worth
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where proposals are made."""

    suite: Suite
    task: Task
    step: int
    observation: Observation
    history: tuple[HistoryEntry, ...]

    def known(self, proposed: Mapping[Action, Worth], state: Redone, rng: random.Random) -> KnownCase:
        """The proposals as one round of a team, in an order that is drawn."""
        actions = list(proposed)
        rng.shuffle(actions)
        agents = AGENTS[: len(actions)]
        cells = tuple(self._cell(agent, action) for agent, action in zip(agents, actions, strict=True))
        case = Case(
            trajectory=f"calibration/{self.task.name}",
            task=self.task,
            step=self.step,
            space=self.suite.space,
            observation=self.observation,
            history=self.history,
            summary="",
            matrix=ActionMatrix(agents=agents, rounds=1, edges=(), utterances=cells),
            executed=None,
            later=(),
            outcome=None,
            environment=self.suite.label,
            environment_version=self.suite.version,
            state=state,
        )
        return KnownCase(case=case, worth={cell.cell: proposed[a] for cell, a in zip(cells, actions, strict=True)})

    def _cell(self, agent: str, action: Action) -> Utterance:
        cell = Utterance(
            agent=agent,
            round=0,
            heard=(),
            text="",
            reason="",
            action=action,
            failure=None,
            prompt=PromptRef(prefix="", suffix="", layout=""),
            policy=PolicyRef(base="calibration"),
            sampling=Sampling(),
            seed=0,
        )
        words = self.suite.space.describe(action, self.observation)
        return _said(cell, f"The task needs this next: {words}.")


def _said(cell: Utterance, reason: str) -> Utterance:
    """The same action for another reason; the text only has to tell the two apart."""
    return replace(cell, reason=reason, text=f"Reason: {reason}\nAction: {cell.action}")
