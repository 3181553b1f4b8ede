"""The calibration set: steps whose actions are known to be good or bad.

    known = await build_calibration_set(suite, ["ContactsAddContact"], seed=0)
    known[0].worth[cell]                        # "good", "neutral" or "bad"

The solution of an instance is followed step by step. In every state the right action stands beside sampled ones
(`collab.rewards.mistakes`), and each is tried on a fork. Its worth is the score of `collab.envs.solution`, never the
kind that was drawn. All are proposed for the same reason in the same words, so that only the actions differ; the agent
of each is drawn. The episode continues with the right action and is played to its end, so that a critic of outcomes has
one.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from collab.envs.base import Environment, HasGoal, Suite
from collab.envs.solution import BAD, GOOD, NEUTRAL, SolutionEnvironment, SolutionScorer
from collab.errors import EnvironmentFailure, UsageError, boundary
from collab.rewards.base import CriticInput
from collab.rewards.mistakes import DecisionPoint, draw_mistakes
from collab.rewards.restore import EnvironmentSlots
from collab.rollout.episode import build_history_entry
from collab.seeds import derive, generator
from collab.types import (
    Action,
    ActionMatrix,
    CellRef,
    HistoryEntry,
    Observation,
    Outcome,
    PolicyRef,
    PromptRef,
    Sampling,
    Task,
    Utterance,
)
from collab.utils.text import format_amount

KnownWorth: TypeAlias = Literal["good", "neutral", "bad"]
WORTH: Mapping[float, KnownWorth] = {GOOD: "good", NEUTRAL: "neutral", BAD: "bad"}

AGENTS = ("ada", "ben", "cyd", "dee")
WANTED: Mapping[KnownWorth, int] = {"good": 1, "neutral": 1, "bad": 2}
"""Proposals of each worth in one state, where the screen allows them."""
_DRAWS = 60
"""Most sampled actions in one state."""
_LONGER = (
    " I have looked at the whole screen carefully, from top to bottom, and compared what it shows with the task and"
    " with what was done before. After weighing the other possibilities one by one I am convinced that this is the"
    " step to take here."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCase:
    """A state with one round of proposals and their worth."""

    case: CriticInput
    worth: Mapping[CellRef, KnownWorth]

    def lengthen_reasons(self, seed: int) -> tuple[KnownCase, frozenset[CellRef]]:
        """Lengthen the reasons of half of the cells without new content, and return the case with these cells."""
        cells = self.case.matrix.utterances
        drawn = generator(derive(seed, "longer", *self.case.key)).sample(cells, (len(cells) + 1) // 2)
        chosen = frozenset(cell.cell for cell in drawn)
        longer = tuple(_replace_reason(cell, cell.reason + _LONGER) if cell.cell in chosen else cell for cell in cells)
        matrix = replace(self.case.matrix, utterances=longer)
        return replace(self, case=replace(self.case, matrix=matrix)), chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedState:
    """A state that is rebuilt by executing all earlier actions; a `collab.rewards.base.RestorableState`."""

    room: EnvironmentSlots
    task: Task
    actions: tuple[Action, ...]

    def open(self) -> AbstractAsyncContextManager[Environment]:
        """Open a fresh environment in which the actions were executed."""
        return self._open()

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Environment]:
        async with self.room.open() as environment:
            with boundary(EnvironmentFailure, f"{self.task.name}: doing {len(self.actions)} actions again"):
                await environment.reset(self.task)
                for action in self.actions:
                    await environment.step(action)
            yield environment


def require_known(suite: Suite) -> None:
    """Raise UsageError if a suite cannot judge actions exactly."""
    if not {"fork", "oracle", "deterministic"} <= suite.capabilities:
        raise UsageError(
            f"{suite.label} cannot be copied or rebuilt, or knows no solutions: nothing is known to be good or bad; "
            "calibrate on another environment"
        )


async def build_calibration_set(
    suite: Suite, tasks: Sequence[str], *, seed: int, most: int = 8, wanted: int | None = None
) -> list[KnownCase]:
    """Return known steps of instances of tasks, in the order of the tasks.

    Args:
        seed: decides instances, sampled actions and their agents.
        most: the most steps of one episode, from its beginning.
        wanted: steps in all, from further instances of the tasks in turn; None takes every task once.

    Raises:
        UsageError: the suite cannot fork or be rebuilt, or knows no solutions; or no task has a known step.
        UnknownName: the suite has no such task.
        EnvironmentFailure: the world broke.
    """
    require_known(suite)
    room = EnvironmentSlots(suite)
    found: list[KnownCase] = []
    number = 0
    # Instance by instance over all tasks, so that a small number of cases still spreads over the tasks.
    while True:
        before = len(found)
        for name in tasks:
            found += await _build_of_instance(room, _Instance(name=name, number=number, seed=seed, most=most))
            if wanted is not None and len(found) >= wanted:
                return found[:wanted]
        if wanted is None:
            return found
        # A whole round without a case: the next ones would add none either.
        if len(found) == before:
            raise UsageError(
                f"{suite.label}: none of {format_amount(len(tasks), 'task')} has a step whose worth is known; "
                "choose others"
            )
        number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Instance:
    """An instance whose solution is followed."""

    name: str
    number: int
    """Number of the instance among those of its task."""
    seed: int
    most: int


async def _build_of_instance(room: EnvironmentSlots, instance: _Instance) -> list[KnownCase]:
    suite = room.suite
    again = (instance.number,) if instance.number else ()
    task = suite.instance(instance.name, derive(instance.seed, "calibration", instance.name, *again))
    environment = await suite.open()
    try:
        with boundary(EnvironmentFailure, f"{suite.label}: {instance.name}"):
            return await _follow(room, environment, task, instance)
    finally:
        await environment.close()


async def _follow(room: EnvironmentSlots, environment: Environment, task: Task, instance: _Instance) -> list[KnownCase]:
    """Follow the solution to its end, and return its steps as known cases."""
    space = room.suite.space
    # The goal is known after the reset only, in some environments.
    observation = await environment.reset(task)
    if isinstance(environment, HasGoal):
        task = replace(task, goal=environment.goal())
    found: list[KnownCase] = []
    history: list[HistoryEntry] = []
    done: list[Action] = []
    outcome: Outcome | None = None
    # Only along the solution is the right action of each state known.
    while outcome is None and isinstance(environment, SolutionEnvironment) and (solution := environment.oracle()):
        right = space.canonical(solution[0], observation)
        # The whole solution is walked, as the cases need the episode's outcome; only the first states become cases.
        if len(done) < instance.most:
            # Named by task, instance and step, so that another number of cases draws the same ones.
            rng = generator(derive(instance.seed, "known step", task.name, instance.number, len(done)))
            spot = DecisionPoint(observation=observation, space=space, last=done[-1] if done else None)
            proposed = await _collect_proposals(environment, right, spot, rng)
            place = _KnownStepBuilder(
                room=room, task=task, number=instance.number, observation=observation, history=tuple(history)
            )
            found.append(place.build_case(proposed, tuple(done), rng))
        # Always the right action: wrong proposals are tried on forks and never change this episode.
        result = await environment.step(right)
        history.append(build_history_entry(space, observation, right, "", result))
        observation, outcome = result.observation, result.outcome
        done.append(right)
    # Outcome and later actions are filled in at the end, as for a critic that judges a finished episode.
    return [_mark_ended(one, done, outcome) for one in found]


def _mark_ended(known: KnownCase, done: Sequence[Action], outcome: Outcome | None) -> KnownCase:
    """Fill in the episode's later actions and outcome."""
    step = known.case.step
    case = replace(known.case, executed=done[step], later=tuple(done[step + 1 :]), outcome=outcome)
    return replace(known, case=case)


async def _collect_proposals(
    environment: SolutionEnvironment, right: Action, spot: DecisionPoint, rng: random.Random
) -> dict[Action, KnownWorth]:
    """Return the right action and sampled ones, each with its worth on a fork."""
    critic = SolutionScorer(environment)
    found: dict[Action, KnownWorth] = {}
    drawn = draw_mistakes(right, spot, rng)
    for action in (right, *(one.action for one, _ in zip(drawn, range(_DRAWS), strict=False))):
        verdict = await critic(action)
        worth = WORTH[verdict.score]
        if verdict.known and action not in found and list(found.values()).count(worth) < WANTED[worth]:
            found[action] = worth
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownStepBuilder:
    """A state from which a known step is built."""

    room: EnvironmentSlots
    task: Task
    number: int
    """Number of the instance among those of its task."""
    observation: Observation
    history: tuple[HistoryEntry, ...]

    def build_case(
        self, proposed: Mapping[Action, KnownWorth], done: tuple[Action, ...], rng: random.Random
    ) -> KnownCase:
        """Return the proposals as one round of a team, in an order that is drawn.

        Args:
            done: the actions before this step.
        """
        # Shuffled, or the right action would always stand first and a critic could learn its place.
        actions = list(proposed)
        rng.shuffle(actions)
        agents = AGENTS[: len(actions)]
        cells = tuple(self._build_cell(agent, action) for agent, action in zip(agents, actions, strict=True))
        # As in a rollout, with one round and no edges, so that a critic is calibrated on the form that it judges.
        case = CriticInput(
            trajectory=f"calibration/{self.task.name}/{self.number}",
            task=self.task,
            step=len(done),
            space=self.room.suite.space,
            observation=self.observation,
            history=self.history,
            summary="",
            matrix=ActionMatrix(agents=agents, rounds=1, edges=(), utterances=cells),
            executed=None,
            last=done[-1] if done else None,
            later=(),
            outcome=None,
            environment=self.room.suite.label,
            environment_version=self.room.suite.version,
            state=ReplayedState(room=self.room, task=self.task, actions=done),
        )
        return KnownCase(case=case, worth={cell.cell: proposed[a] for cell, a in zip(cells, actions, strict=True)})

    def _build_cell(self, agent: str, action: Action) -> Utterance:
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
        # All proposals give the same reason, so that a critic cannot judge by the wording.
        words = self.room.suite.space.describe(action, self.observation)
        return _replace_reason(cell, f"The task needs this next: {words}.")


def _replace_reason(cell: Utterance, reason: str) -> Utterance:
    """Replace a cell's reason, and its text accordingly."""
    return replace(cell, reason=reason, text=f"Reason: {reason}\nAction: {cell.action}")
