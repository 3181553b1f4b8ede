"""Q of Android Coach in an epoch: fitted to candidates of a synthesis and to returns, then asked about replies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collab.algorithms.candidates import read_candidates
from collab.algorithms.coach.config import CoachMethod, narrow_config
from collab.algorithms.experience import JudgedEpisode
from collab.algorithms.value_store import compute_values
from collab.errors import Diverged
from collab.loop.state import LoopState
from collab.seeds import derive
from collab.trainers.rl.estimators import leave_one_out
from collab.trainers.rl.turns import Turn
from collab.types import Utterance

if TYPE_CHECKING:
    from collab.trainers.rl.token_values import JudgedReplies, TokenValues, ValueRow

UNVALUED = "no executed reply can be valued"


@dataclass(slots=True, kw_only=True)
class DistinctReply:
    """A distinct reply to a state."""

    turn: Turn
    said: Utterance
    count: int = 1
    value: float = math.nan
    advantage: float = 0.0
    truth: float | None = None


@dataclass(slots=True, kw_only=True)
class Visited:
    """A visited state, with what is known of its executed reply."""

    episode: JudgedEpisode
    step: int
    executed: Turn | None
    """None where it cannot be valued."""
    agent: str
    step_reward: float | None
    """r^p; None where it is missing."""
    unrewarded: str | None
    """Why it is missing; None where it is not, or no critic is asked."""
    target: float
    """R."""
    before: float | None = None
    """Q of the executed reply before the fit; None where it has none."""
    value: float | None = None
    """The same behind the fit, as Q of the candidates is."""
    candidates: list[DistinctReply] = field(default_factory=list)

    @property
    def is_taught(self) -> bool:
        """Return whether its candidates teach something."""
        return any(one.advantage for one in self.candidates)

    @property
    def is_apart(self) -> bool:
        """Return whether its candidates differ in Q."""
        return len({one.value for one in self.candidates}) > 1

    @property
    def replies(self) -> int:
        """Return how many candidates it has, equal ones included."""
        return sum(one.count for one in self.candidates)


def read_judged(state: LoopState, group: str, is_first: bool) -> JudgedReplies | None:
    """Return the candidates of `pretraining` in tokens; None if this epoch learns none of them; raises as they do."""
    if not (is_first or narrow_config(state.config).method.rehearsed):
        return None
    return read_candidates(state, group)


def fit_to_returns(
    state: LoopState,
    group: str,
    number: int,
    model: TokenValues,
    visited: Sequence[Visited],
    candidates: JudgedReplies | None,
) -> dict[str, Any]:
    """Value the executed replies, fit Q to their returns, and return the fit as fields of `CoachMetrics`.

    Args:
        candidates: some are learned beside the returns, as `rehearsed` says; None for none.
    """
    known = [one for one in visited if one.executed is not None]
    if not known:
        return {"lost": UNVALUED}
    rows = [build_row(one.executed) for one in known if one.executed is not None]
    read, unread = compute_values(model, rows)
    if read is None:
        return {"lost": f"{unread}; it was not fitted", "unread": describe_unread(unread)}
    for one, values in zip(known, read, strict=True):
        one.before = float(values.mean())
    targets, states = [one.target for one in known], [row.ids[: row.places[0]].tobytes() for row in rows]
    seed = derive(state.config.run.seed, "value updates", number, group)
    if candidates is not None:
        drawn = candidates.draw(narrow_config(state.config).method.rehearsed, derive(seed, "rehearsed"))
        rows, targets, states = rows + drawn.rows, targets + drawn.targets, states + drawn.states
    try:
        fitted = model.fit(rows, targets, seed=seed, groups=states, known=read)
    except Diverged as diverged:
        # Candidates are compared all the same, by Q as it was before.
        return {"lost": f"{diverged.what}; its fit was undone"}
    return {"steps": fitted.steps, "loss": fitted.loss, "rehearsed": len(rows) - len(known)}


def build_row(turn: Turn) -> ValueRow:
    """Return a reply behind its prompt, whose values are read at its tokens."""
    from collab.trainers.rl.token_values import ValueRow

    ids = np.concatenate((turn.prompt, turn.reply)).astype(np.int32)
    return ValueRow(ids=ids, places=tuple(range(len(turn.prompt), len(ids))))


def rate_replies(model: TokenValues, visited: Sequence[Visited], method: CoachMethod) -> dict[str, Any]:
    """Value all executed replies and candidates, and compare the candidates of each state.

    Drops all candidates, and returns why, if some reply has no number.
    """
    rows = [build_row(one) for state in visited for one in _list_turns(state)]
    read, unread = compute_values(model, rows)
    if read is None:
        for one in visited:
            one.candidates = []
        return {"unread": describe_unread(unread)}
    values = map(float, (found.mean() for found in read))
    for state in visited:
        if state.executed is not None:
            state.value = next(values)
        for candidate in state.candidates:
            candidate.value = next(values)
    for one in visited:
        if one.candidates:
            advantages = compare(
                [each.value for each in one.candidates], [each.count for each in one.candidates], method
            )
            for candidate, advantage in zip(one.candidates, advantages, strict=True):
                candidate.advantage = float(advantage)
    return {}


def describe_unread(why: str | None) -> str:
    """Return what a Q without numbers means for its epoch."""
    return f"{why}; the next epoch begins with a new Q"


def _list_turns(state: Visited) -> list[Turn]:
    """Return the executed reply to a state, where it can be valued, and its candidates: they share a prompt."""
    executed = [] if state.executed is None else [state.executed]
    return [*executed, *(one.turn for one in state.candidates)]


def compare(values: Sequence[float], counts: Sequence[int], method: CoachMethod) -> NDArray[np.float64]:
    """Return the advantage of each distinct reply to a state, (n,).

    Args:
        values: Q of each, (n,).
        counts: how often each was given, (n,).
    """
    if method.baseline == "none":
        return np.array(values, np.float64)
    if is_alone(sum(counts), method):
        return np.zeros(len(values))
    every = leave_one_out(np.repeat(np.array(values, np.float64), counts))
    found: NDArray[np.float64] = every[np.cumsum([0, *counts[:-1]])]
    return found


def is_alone(replies: int, method: CoachMethod) -> bool:
    """Return whether so many replies are one that has lost those it would be compared with."""
    return replies == 1 < method.k and method.baseline != "none"
