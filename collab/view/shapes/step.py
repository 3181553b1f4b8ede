"""One step whole: screen, cells, vote, words that were heard, what changed, pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collab.view.shapes.cell import CellKey, CellView
from collab.view.shapes.common import Edge, Text
from collab.view.shapes.screen import ActionView, Changes, Screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A reply that stood in another's prompt: an edge of the graph, in the round in which it was read."""

    speaker: str
    said: int
    """Round in which it was said: the same, or the one before for what an agent itself said."""
    hearer: str
    round: int
    """In which it was read. Its text is that of the cell (speaker, said)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BallotView:
    """One distinct action and who voted for it."""

    action: ActionView
    cells: Sequence[CellKey]
    score: float | None
    """Mean over its scored cells; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteView:
    """What was decided."""

    ballots: Sequence[BallotView]
    """Most votes first."""
    abstained: Sequence[CellKey]
    representative: CellKey | None
    """None when no cell had an action."""
    entropy: float
    tie: bool
    agreement: float | None
    overruled: CellKey | None
    """The best proposal, where the vote overruled it (see `collab.view.shapes.finds.Finds`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyKey:
    """A reply that is a side of a pair."""

    episode: str
    step: int
    agent: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """A preference pair in which a reply of this step is a side."""

    id: str
    set: str
    """Name under which it is stored."""
    source: str
    """"adversary", "contrast", "correction" or "trajectory"."""
    chosen: Sequence[ReplyKey]
    rejected: Sequence[ReplyKey]
    """At most 50 each; more than one for whole trajectories; rejected is empty where the reply was made up."""
    more: int
    """Replies of either side beyond those."""
    synthetic: Text | None
    """The made-up worse reply; None when it was said."""
    synthetic_action: ActionView | None
    """As it reads on this screen; None when it cannot be read, or there is none."""
    adversary: str | None
    critic: str | None
    """Who judged its sides; None when the outcome alone decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step whole."""

    run: str
    episode: str
    step: int
    steps: int
    """Of the episode, readable or not."""
    previous: int | None
    next: int | None
    """The nearest steps that can be read; None at the ends."""
    task: str
    goal: Text
    screen: Screen
    summary: Text
    """Of earlier steps, as it stood in the prompts; empty when none is kept."""
    agents: Sequence[str]
    rounds: int
    edges: Sequence[Edge]
    layers: Sequence[Sequence[str]]
    messages: Sequence[Message]
    """By round of reading, hearer, and place in the prompt."""
    cells: Sequence[CellView]
    """In conversation order: round, then layer, then agent; unsaid ones are absent."""
    vote: VoteView
    executed: ActionView | None
    """None for a web step without a parsable cell."""
    no_action: bool
    effect: Text
    """What the screen did, as later prompts tell it."""
    terminated: bool
    truncated: bool
    deliberation_s: float
    environment_s: float
    changes: Changes | None
    """None where the next screen is not recorded."""
    labels: str | None
    """Labelling whose scores are shown; None when there is none."""
    labellings: Sequence[str]
    critic: str | None
    """Who gave the scores; None where this step was not judged."""
    unjudged: str | None
    """Why nobody judged it, where that was tried in vain, or its judgement is of another play of it."""
    pairs: Sequence[PairView]
