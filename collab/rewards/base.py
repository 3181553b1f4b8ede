"""The interface of critics: a `Critic` turns a `CriticInput` (a recorded step) into a `Judgement`.

    for trajectory in reader.iterate_trajectories():
        for case in build_inputs(trajectory, suite.space, states):
            judgement = await critic.judge(case)
    judgement.rewards                       # n × m scores, missing ones included
    judgement.call_of(cell)                 # the model call behind one of them, or None

    oracle     by executing each action in the very state                   collab.rewards.oracle
    outcome    by how the episode ended                                      collab.rewards.outcome
    llm        by asking a language model (CollabUIAgents, eq. 6)            collab.rewards.llm
    model      by a scoring checkpoint                                       collab.rewards.reward_model
    prm        by asking for True or False of one action (Android Coach)     collab.rewards.process_reward
    any        with a share of its rewards inverted on purpose               collab.rewards.flip

A critic never guesses: a cell that it cannot judge is *missing*, with the cause in words. It earns no reward and is in
no pair. ⌈score − 0.5⌉ is `CellReward.reward`: 1 iff score > 0.5, so exactly one half earns nothing. A training counts
with its own threshold instead (`collab.rewards.credit.list_with_reward`; 0.5 by default).

A critic input is built from the record alone. Where the state before the action can be restored, `CriticInput.state`
does it; critics that need no environment never touch it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Protocol, TypeAlias

from collab.envs.base import Environment
from collab.envs.grammar import ActionSpace
from collab.rewards.structured_replies import number_in
from collab.store.rewards import CellReward, RewardMatrix
from collab.types import (
    Action,
    ActionMatrix,
    CellRef,
    HistoryEntry,
    Observation,
    Outcome,
    Task,
    Trajectory,
    Usage,
    Utterance,
)


class RestorableState(Protocol):
    """A way back into the state before a step.

    async with state.open() as environment:
        result = await environment.step(action)
    """

    def open(self) -> AbstractAsyncContextManager[Environment]:
        """Open an environment of the caller's own in this state, closed at the end of the block.

        It may be opened again, but not within another open block: there is room for forks alone.

        Raises:
            EnvironmentFailure: the world broke, or shows another screen than the recorded one.
        """
        ...


States: TypeAlias = Callable[[Trajectory, int], RestorableState | None]
"""(trajectory, step) → a way back; None where there is none (`collab.rewards.restore`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticInput:
    """One step of one episode, to be judged."""

    trajectory: str
    """`Trajectory.id`."""
    task: Task
    """The task, with the goal as the environment stated it."""
    step: int
    """t, from 0."""
    space: ActionSpace
    observation: Observation
    """The screen before the action, as every cell saw it."""
    history: tuple[HistoryEntry, ...]
    """All executed steps before, oldest first, as prompts show them."""
    summary: str
    """The prompts' summary of earlier steps; empty when none was kept."""
    matrix: ActionMatrix
    """All replies, with the edges and the cells that each cell heard."""
    executed: Action | None
    """The action that won the vote; None for a web step without a parsable cell."""
    last: Action | None = None
    """The action executed before this step; None at the start, or where there was none."""
    later: tuple[Action | None, ...]
    """Actions executed after this step, to the end of the episode."""
    outcome: Outcome | None
    """The episode's outcome, which no agent could know at this step; None for broken or unfinished episodes."""
    environment: str
    """Label, e.g. "androidworld[simphone]"."""
    environment_version: str
    state: RestorableState | None = None
    """None where the state cannot be restored."""

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step: unique in a run."""
        return self.trajectory, self.step

    @property
    def digest(self) -> str:
        """SHA-256 of goal, screen, edges and all replies: an episode that was played again gives other cases."""
        return hash_input(self.task.goal, self.observation, self.matrix)

    def group_proposals(self) -> dict[Action, tuple[Utterance, ...]]:
        """Return each distinct canonical action → the cells that proposed it, in conversation order."""
        found: dict[Action, list[Utterance]] = {}
        for cell in self.matrix:
            if cell.action is not None:
                found.setdefault(cell.action, []).append(cell)
        return {action: tuple(cells) for action, cells in found.items()}


def hash_input(goal: str, observation: Observation, matrix: ActionMatrix) -> str:
    """Hash goal, screen, edges and replies; see `CriticInput.digest`."""
    said = [[cell.agent, cell.round, cell.text] for cell in matrix]
    whole = json.dumps([goal, observation.digest, matrix.edges, said])
    return hashlib.sha256(whole.encode()).hexdigest()


def build_inputs(trajectory: Trajectory, space: ActionSpace, states: States | None = None) -> Iterator[CriticInput]:
    """Yield the steps of an episode, first to last; for a broken or unfinished episode, the recorded ones.

    Args:
        space: of the suite that the episode was played in.
        states: restores states; None when no critic needs it.
    """
    # Everything that a critic may read, later steps and outcome included; each critic reads what it needs.
    steps = trajectory.steps
    for place, step in enumerate(steps):
        yield CriticInput(
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
            # Lazily: restoring a state means playing the episode again up to there.
            state=None if states is None else states(trajectory, step.index),
        )


UNREAD = "its reply did not parse"
"""Cause of a missing score: there is no action to judge."""
ABSENT = "the critic gave no score"
NO_NUMBER = "the critic's score is no number"
OUT_OF_RANGE = "the critic's score is outside of [0, 1]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticCall:
    """One model call of a critic, so that a score can be traced to the words it came from."""

    prompt: str
    """SHA-256 of system and user text as asked; the critic rebuilds the text from the case and its templates."""
    model: str
    """Model name or checkpoint directory, with its adapter where it has one."""
    seed: int
    """Seed of the call; it also decided the names that were shown."""
    reply: str
    """As sampled."""
    cells: tuple[CellRef, ...]
    """Cells whose scores the call asked for."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Slot → the name under which the critic read it; empty when none was shown."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """None when the model does not count."""
    cost_usd: float | None = None
    """None when the price is not known."""
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A critic's scores for one step."""

    case: str
    """`CriticInput.digest` of the judged step."""
    rewards: RewardMatrix
    """One entry per cell, in conversation order."""
    calls: tuple[CriticCall, ...] = ()
    """Empty for critics that ask no model."""

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step."""
        return self.rewards.trajectory, self.rewards.step

    @property
    def missing(self) -> Counter[str]:
        """Cells without a score, by cause."""
        return Counter(reward.missing for reward in self.rewards.rewards if reward.missing is not None)

    @property
    def silent(self) -> bool:
        """Return whether a model was asked and gave no score at all, for example in replies of prose."""
        asked = {cell for call in self.calls for cell in call.cells}
        return bool(asked) and all(one.score is None for one in self.rewards.rewards if one.cell in asked)

    def of(self, cell: CellRef) -> CellReward:
        """Return one cell's reward; KeyError when there is no such cell."""
        for reward in self.rewards.rewards:
            if reward.cell == cell:
                return reward
        raise KeyError(cell)

    def call_of(self, cell: CellRef) -> CriticCall | None:
        """Return the call in which a cell was judged; None where no model was asked about it."""
        return next((call for call in self.calls if cell in call.cells), None)


class Critic(Protocol):
    """Judges all cells of a step."""

    @property
    def name(self) -> str:
        """Its kind, e.g. "oracle" or "llm"."""

    @property
    def version(self) -> str:
        """Changes whenever the same case, options and seed could be judged otherwise."""

    async def judge(self, case: CriticInput) -> Judgement:
        """Judge a step; a cell that cannot be judged is missing, with its cause. Called for many cases at once.

        Raises:
            EnvironmentFailure, ModelFailure: nothing was judged; asking again may help.
                `collab.rewards.structured_replies.PartlyAnswered` where some answers were paid for.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CellScore:
    """A score and its reason, or why there is none."""

    score: float | None
    """In [0, 1]; None when missing."""
    reason: str = ""
    missing: str | None = None
    """Cause of a missing score; None exactly when there is a score."""

    @classmethod
    def none(cls, cause: str) -> CellScore:
        """Return a missing score with its cause."""
        return cls(score=None, missing=cause)

    @classmethod
    def of(cls, score: object, reason: str = "") -> CellScore:
        """Check a given score: quoted numbers count; other values and numbers out of range become missing scores."""
        if score is None:
            return cls.none(ABSENT)
        score = number_in(score)
        try:
            number = math.nan if isinstance(score, bool) or not isinstance(score, Real) else float(score)
        except OverflowError:  # an integer beyond all floats
            return cls.none(OUT_OF_RANGE)
        if math.isnan(number):
            return cls.none(NO_NUMBER)
        return cls(score=number, reason=reason) if 0 <= number <= 1 else cls.none(OUT_OF_RANGE)


def build_judgement(
    case: CriticInput, critic: Critic, words: Mapping[CellRef, CellScore], calls: Iterable[CriticCall] = ()
) -> Judgement:
    """Build a judgement of scores by cell; every cell whose reply parsed must have one."""
    rewards = []
    for cell in case.matrix:
        word = CellScore.none(UNREAD) if cell.action is None else words[cell.cell]
        rewards.append(CellReward(cell=cell.cell, score=word.score, reason=word.reason, missing=word.missing))
    matrix = RewardMatrix(trajectory=case.trajectory, step=case.step, critic=label_of(critic), rewards=tuple(rewards))
    return Judgement(case=case.digest, rewards=matrix, calls=tuple(calls))


def drop_invalid_scores(judgement: Judgement) -> Judgement:
    """Turn scores outside [0, 1] into missing ones."""
    rewards = tuple(
        one if one.missing and one.score is None else _drop_invalid_score(one) for one in judgement.rewards.rewards
    )
    return replace(judgement, rewards=replace(judgement.rewards, rewards=rewards))


def _drop_invalid_score(one: CellReward) -> CellReward:
    word = CellScore.of(one.score, one.reason)
    return replace(one, score=word.score, reason=word.reason, missing=word.missing)


def to_all_equal(case: CriticInput, words: Mapping[Action, CellScore]) -> dict[CellRef, CellScore]:
    """Spread scores of distinct actions over cells: all cells with the same action get the same score."""
    return {cell.cell: words[action] for action, cells in case.group_proposals().items() for cell in cells}


def sum_spent(calls: Iterable[CriticCall]) -> Usage:
    """Sum the cost of calls; uncounted tokens and unknown prices count as 0."""
    each = (Usage.of_call(call.prompt_tokens, call.completion_tokens, call.cost_usd) for call in calls)
    return sum(each, Usage())


class Versioned(Protocol):
    """A critic or a verifier, as labels name it."""

    @property
    def name(self) -> str:
        """Its kind."""

    @property
    def version(self) -> str:
        """Changes whenever the same case, options and seed could be judged otherwise."""


def label_of(judge: Versioned) -> str:
    """Return a judge's name and version, e.g. "oracle-2"."""
    return f"{judge.name}-{judge.version}"
