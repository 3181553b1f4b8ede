"""One agent's reply in one round: in the matrix, and its exact words.

One step whole: screen, cells, vote, words that were heard, what changed, pairs.

A screen with its elements, an action on it, and what changed from one to the next.

Every label set of a run on one step, side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from collab.view.schema.runs import Edge, LongTextView

Rectangle: TypeAlias = tuple[int, int, int, int]
"""Left, top, right, bottom."""
ScreenPoint: TypeAlias = tuple[float, float]
"""x, y."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementView:
    """One thing on the screen; texts are cut at 300 characters, flags beyond ten left out."""

    index: int
    role: str
    label: str
    box: Rectangle | None
    """None when the environment knows no geometry."""
    value: str | None
    flags: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TabView:
    """A browser tab; texts are cut at 300 characters."""

    title: str
    url: str
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenView:
    """Screen that the agents saw."""

    space: str
    """"mobile" or "web"."""
    title: str
    url: str | None
    """None on a phone; as text only, never a link."""
    width: int
    height: int
    tabs: Sequence[TabView]
    notice: str | None
    """Events beside the screen since the last step."""
    text: LongTextView
    """As the agents read it."""
    elements: Sequence[ElementView]
    more: int
    """Elements beyond the first 2,000, which are left out."""
    picture: str | None
    """Address of its picture, below /api/; None where there is none: draw the elements."""
    unpictured: str | None
    """Why a picture that was taken cannot be shown; None when it can or none was taken."""
    digest: str
    """Equal screens have equal ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeScreenView:
    """The long parts of a screen uncut."""

    text: str
    elements: Sequence[ElementView]
    """All of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """An action on the screen of its step."""

    type: str
    """Name in the grammar: "click", "input_text", "scroll" …"""
    words: str
    """For people, its element by label; cut at 300 characters."""
    element: int | None
    """Index of its element; None when it names none."""
    box: Rectangle | None
    """Box of that element, where its geometry is known."""
    spot: ScreenPoint | None
    """Where it touches: the named point, or the middle of the box; None when it points nowhere."""
    arguments: Mapping[str, str | int | float | bool | None]
    """Texts cut at 300 characters, e.g. {"direction": "down"}, {"text": "Marta"}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedElement:
    """An element before and after."""

    before: ElementView
    after: ElementView


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenChanges:
    """From this screen to the next one."""

    same: bool
    """Nothing that an agent can see changed."""
    title: str | None
    url: str | None
    notice: str | None
    """The new ones; None where they are the same, or gone."""
    appeared: Sequence[ElementView]
    gone: Sequence[ElementView]
    changed: Sequence[ChangedElement]
    """Label, value or flags; what only moved is none of these."""
    moved: int
    """Elements that are the same elsewhere."""
    more: int
    """Elements beyond the first 500 each that appeared, went or changed, which are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """A cell of the matrix."""

    agent: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """Why a reply gave no action."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """Which weights spoke."""

    base: str
    adapter: str | None
    version: int
    """Counts updates; 0 before any training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """One agent's reply in one round."""

    agent: str
    round: int
    layer: int | None
    """Depth in the graph; None on a cycle."""
    text: LongTextView
    """The reply as sampled."""
    reason: LongTextView
    action: ActionView | None
    failure: FailureView | None
    """None exactly when there is an action."""
    remarks: Sequence[str]
    """What else the reply says: actions not executed or only in part, moved points, what is not read; the first 20."""
    ballot: int | None
    """Which of the ballots it voted for; 0 is the winner, None abstained."""
    representative: bool
    """Whether its reason entered the history."""
    logprob: float | None
    """Log-probability of the reply under the plain policy, without its end; None where the model reports none."""
    end_logprob: float | None
    """Log-probability of the end-of-turn token; None where none was sampled or the model reports none."""
    finish: str | None
    """How the reply ended: "stop", "length" when max_tokens cut it …; None where unknown."""
    prompt_tokens: int | None
    completion_tokens: int | None
    computed_tokens: int | None
    """Prompt tokens that no prefix cache held; all None where unknown."""
    latency_s: float
    queue_s: float | None
    width: float | None
    """Sequences computed together; None where unknown."""
    cost_usd: float | None
    temperature: float
    top_p: float
    seed: str
    policy: PolicyView
    privileged: bool
    trimmed: Sequence[str]
    """What was cut out of its prompt: the first 20 things …"""
    trimmed_more: int
    """… and how many more there were."""
    score: float | None
    """The critic's; None when it gave none."""
    rewarded: bool | None
    """score > 0.5; None without one."""
    because: LongTextView
    """The critic's reason; empty when it gave none."""
    missing: str | None
    """Why there is no score; None when there is one, or no judgement."""
    original: float | None
    """The critic's own score where it was inverted on purpose; else None."""
    pairs: Sequence[str]
    """Ids of the pairs of this step that it is a side of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """The critic's model call behind a score."""

    model: str
    seed: str
    reply: str
    shown: Mapping[str, str]
    """Agent → the name under which the critic read it; empty when none was shown."""
    cells: Sequence[CellKey]
    """That were judged in it."""
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeCellView:
    """The exact prompt and the raw reply of a cell, uncut."""

    agent: str
    round: int
    system: str | None
    shared: str | None
    """Task, history and screen: the same for all agents of a step. None, as `system`, when it cannot be read."""
    suffix: str
    """Messages heard, and the agent's header."""
    unread: str | None
    """Why the prompt cannot be read; None when it can."""
    prompt: str
    """SHA-256 of all that was read."""
    layout: str
    reply: str
    tokens: Sequence[int] | None
    logprobs: Sequence[float | None] | None
    """Log-probabilities of the plain policy, per token; both None where the model reports none."""
    because: str
    """The critic's reason; empty when it gave none."""
    call: CallView | None
    """None where no model was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """A reply that stood in another's prompt: an edge of the graph, in the round in which it was read."""

    speaker: str
    said: int
    """Round of the reply: the same, or the one before for an agent's own reply."""
    hearer: str
    round: int
    """Round in which it was read. Its text is that of the cell (speaker, said)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BallotView:
    """One distinct action and its voters."""

    action: ActionView
    cells: Sequence[CellKey]
    score: float | None
    """Mean over its scored cells; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteView:
    """Result of the vote."""

    ballots: Sequence[BallotView]
    """Most votes first."""
    abstained: Sequence[CellKey]
    representative: CellKey | None
    """None when no cell had an action."""
    entropy: float
    tie: bool
    agreement: float | None
    overruled: CellKey | None
    """The best proposal, where the vote overruled it (see `collab.view.schema.episodes.FoundStepsView`)."""


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
    """At most 50 each; more than one for whole trajectories; rejected is empty for a synthesised reply."""
    more: int
    """Replies of either side beyond those."""
    synthetic: LongTextView | None
    """The synthesised rejected reply; None when a cell wrote it."""
    synthetic_action: ActionView | None
    """As it reads on this screen; None when it cannot be read, or there is none."""
    adversary: str | None
    critic: str | None
    """Critic that judged its sides; None when the outcome alone decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step whole."""

    run: str
    episode: str
    step: int
    steps: int
    """Steps of the episode, readable or not."""
    previous: int | None
    next: int | None
    """The nearest steps that can be read; None at the ends."""
    task: str
    goal: LongTextView
    screen: ScreenView
    summary: LongTextView
    """Summary of earlier steps, as in the prompts; empty when none is kept."""
    agents: Sequence[str]
    rounds: int
    edges: Sequence[Edge]
    layers: Sequence[Sequence[str]]
    messages: Sequence[MessageView]
    """By round of reading, hearer, and place in the prompt."""
    cells: Sequence[CellView]
    """In conversation order: round, then layer, then agent; unsaid ones are absent."""
    vote: VoteView
    executed: ActionView | None
    """None for a web step without a parsable cell."""
    no_action: bool
    copied: bool
    """Taken over from another episode, in whose state this one begins."""
    effect: LongTextView
    """The screen's change, as in later prompts."""
    terminated: bool
    truncated: bool
    deliberation_s: float
    environment_s: float
    changes: ScreenChanges | None
    """None where the next screen is not recorded."""
    labels: str | None
    """Label set whose scores are shown; None when there is none."""
    label_sets: Sequence[str]
    critic: str | None
    """Critic that gave the scores; None where this step was not judged."""
    unjudged: str | None
    """Why it has no judgement: the critic failed, or judged another play of it."""
    pairs: Sequence[PairView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreView:
    """A critic's word on one cell."""

    agent: str
    round: int
    score: float | None
    rewarded: bool | None
    because: LongTextView
    missing: str | None
    original: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticView:
    """One label set on one step."""

    labels: str
    critic: str | None
    unjudged: str | None
    """Why it has no scores; None when it has."""
    scores: Sequence[ScoreView]


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticsView:
    """Every label set of the run on one step, and where they differ."""

    step: int
    critics: Sequence[CriticView]
    disputed: Sequence[CellKey]
    """Cells that one of them rewarded and another did not."""
