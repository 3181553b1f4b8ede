"""A recorded step as a judge sees it.

    for trajectory in reader.trajectories():
        for case in cases(trajectory, suite.space, states):
            judgement = await critic.judge(case)

A case is made from the record alone. Where the world can be brought back into the state before the action, it says how
(`Case.state`); critics that need no world never touch it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from collab.envs.base import Environment
from collab.envs.grammar import ActionSpace
from collab.types import Action, ActionMatrix, CellRef, HistoryEntry, Observation, Outcome, Task, Trajectory, Utterance


class State(Protocol):
    """A way back into the state before a step.

    async with state.opened() as environment:
        result = await environment.step(action)
    """

    def opened(self) -> AbstractAsyncContextManager[Environment]:
        """An environment of the caller's own in this state, closed at the end of the block; as often as one likes.

        Not within one another: who is in a state has room for copies of its environment, and for no second one.

        Raises:
            EnvironmentFailure: the world broke, or shows another screen than the recorded one.
        """
        ...


States: TypeAlias = Callable[[Trajectory, int], State | None]
"""(trajectory, step) → a way back; None where there is none (`collab.credit.rebuild`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One step of one episode, to be judged."""

    trajectory: str
    """`Trajectory.id`."""
    task: Task
    """With the goal as the environment stated it."""
    step: int
    """t, from 0."""
    space: ActionSpace
    observation: Observation
    """Before the action: what every cell saw."""
    history: tuple[HistoryEntry, ...]
    """All executed steps before, oldest first, as prompts tell them."""
    summary: str
    """The summary of earlier steps that stood in the prompts; empty when none was kept."""
    matrix: ActionMatrix
    """What was said, with the edges and the cells that each cell heard."""
    executed: Action | None
    """What the vote decided; None for a web step without a parsable cell."""
    last: Action | None = None
    """What was executed before this step; None at the start, or where nothing was."""
    later: tuple[Action | None, ...]
    """What was executed behind this step, to the end of the episode."""
    outcome: Outcome | None
    """Of the whole episode, which nobody could know at this step; None when it broke or was not finished."""
    environment: str
    """Label, e.g. "androidworld[simphone]"."""
    environment_version: str
    state: State | None = None
    """None where the world cannot be brought back."""

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step: unique in a run."""
        return self.trajectory, self.step

    @property
    def digest(self) -> str:
        """SHA-256 of goal, screen, edges and all replies: an episode that was played again gives other cases."""
        return case_digest(self.task.goal, self.observation, self.matrix)

    def heard(self, cell: CellRef) -> tuple[Utterance, ...]:
        """What stood in a cell's prompt, in conversation order; KeyError when there is no such cell."""
        return tuple(self.matrix[other] for other in self.matrix[cell].heard)

    def proposals(self) -> dict[Action, tuple[Utterance, ...]]:
        """Each distinct canonical action with the cells that proposed it, in conversation order."""
        found: dict[Action, list[Utterance]] = {}
        for cell in self.matrix:
            if cell.action is not None:
                found.setdefault(cell.action, []).append(cell)
        return {action: tuple(cells) for action, cells in found.items()}


def case_digest(goal: str, observation: Observation, matrix: ActionMatrix) -> str:
    """See `Case.digest`."""
    said = [[cell.agent, cell.round, cell.text] for cell in matrix]
    whole = json.dumps([goal, observation.digest, matrix.edges, said])
    return hashlib.sha256(whole.encode()).hexdigest()


def cases(trajectory: Trajectory, space: ActionSpace, states: States | None = None) -> Iterator[Case]:
    """The steps of an episode, first to last. A broken or unfinished episode gives those that were recorded.

    Args:
        space: of the suite that the episode was played in.
        states: how to bring states back; None when no critic will need it.
    """
    steps = trajectory.steps
    for place, step in enumerate(steps):
        yield Case(
            trajectory=trajectory.id,
            task=trajectory.task,
            step=step.index,
            space=space,
            observation=step.observation,
            history=tuple(earlier.history for earlier in steps[:place]),
            summary=step.summary,
            matrix=step.matrix,
            executed=step.executed,
            last=steps[place - 1].executed if place else None,
            later=tuple(following.executed for following in steps[place + 1 :]),
            outcome=trajectory.outcome,
            environment=trajectory.environment,
            environment_version=trajectory.environment_version,
            state=None if states is None else states(trajectory, step.index),
        )
