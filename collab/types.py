"""The nouns that cross rooms, in the order in which an episode meets them.

    Task → Observation (Element) → Prompt → Utterance → ActionMatrix → Vote → StepResult → Step → Trajectory
    RewardMatrix, PreferencePair — separate records that point to a trajectory

All are frozen, keyword-only values without behaviour beyond small derived properties. Agents are indexed by
i = 0..n−1, rounds by j = 0..m−1, environment steps by t = 0..T−1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from collab.utils.text import format_amount

Scalar: TypeAlias = str | int | float | bool | None
"""What an action argument can be."""


class Box(NamedTuple):
    """A rectangle in screen pixels; left and top inclusive, right and bottom exclusive."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def center(self) -> tuple[int, int]:
        """The middle, in pixels (x, y)."""
        return (self.left + self.right) // 2, (self.top + self.bottom) // 2

    @property
    def area(self) -> int:
        """Square pixels; 0 for an empty box."""
        return max(0, self.right - self.left) * max(0, self.bottom - self.top)

    def contains(self, x: float, y: float) -> bool:
        """Whether the point (pixels) lies inside."""
        return self.left <= x < self.right and self.top <= y < self.bottom


# --------------------------------------------------------------------------------------------- task and screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One instance of a task: a goal, and everything needed to make its initial state again."""

    environment: str
    """Name of the environment it belongs to, e.g. "androidworld"."""
    name: str
    """Name within the environment, e.g. "ContactsAddContact" or "click-button"."""
    seed: int
    """Part of the instance: the same (name, seed) gives the same goal, parameters and initial state."""
    goal: str
    """What the agents are asked to do, in words."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters drawn by the seed; JSON values."""
    max_steps: int = 30
    """Environment steps before the episode is truncated."""
    difficulty: str | None = None
    """"easy", "medium" or "hard"; None where the environment does not say."""
    apps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """How often a run plays a task."""

    name: str
    difficulty: str | None
    """None where the environment does not say."""
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One thing on the screen that can be read or acted on."""

    index: int
    """Position in `Observation.elements`; what an action names."""
    role: str
    """What it is, in plain words: "button", "switch", "text", "input", "link", "slider" …"""
    label: str
    """What a person would call it; may be empty."""
    box: Box | None = None
    """Where it is; None when the environment knows no geometry."""
    value: str | None = None
    """Current content of an input, position of a slider; None when it has none."""
    flags: tuple[str, ...] = ()
    """True properties only, in a fixed order: checked, selected, focused, disabled, scrollable, editable,
    long-clickable, expanded, password, surface. "surface": a point inside is not the same as the element
    (canvas, slider)."""
    key: str = ""
    """Stable identity in the environment (resource id, DOM path); never shown to a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A browser tab; the active one is what `Observation.elements` describes."""

    title: str
    url: str
    active: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the agents see before one step."""

    space: str
    """Name of the action space that fits: "mobile" or "web"."""
    title: str
    """Foreground app and screen, or page title."""
    elements: tuple[Element, ...]
    text: str
    """The observation as a policy reads it: one line per element, label before index."""
    width: int = 1080
    height: int = 2400
    """Screen size in pixels."""
    url: str | None = None
    """Address of the active page; None on a phone."""
    tabs: tuple[Tab, ...] = ()
    notice: str | None = None
    """What happened beside the screen since the last step (toast, dialog, refused download); None if nothing."""
    renderer: str | None = None
    """Name and version of the renderer that can draw this screen from its elements, e.g. "simphone-1";
    None when only a stored picture can show it."""
    drawing: Mapping[str, Any] | None = None
    """What that renderer needs beside the elements; None when nothing."""
    screenshot: str | None = None
    """SHA-256 of the picture as taken; the store keeps it under that name. None when none was taken."""

    @property
    def digest(self) -> str:
        """SHA-256 of what a policy can see (title, address, text): equal screens have equal digests."""
        seen = "\x1f".join([self.space, self.title, self.url or "", self.notice or "", self.text])
        return hashlib.sha256(seen.encode("utf-8", "surrogatepass")).hexdigest()


# ------------------------------------------------------------------------------------------------------ action


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementTarget:
    """An element of the current observation, by its index."""

    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point on the screen, typed by its space."""

    x: float
    y: float
    space: Literal["pixel", "normalised"] = "pixel"
    """"pixel": whole pixels from the top left; "normalised": fractions of width and height in [0, 1]."""


Target: TypeAlias = ElementTarget | Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action of an action space. Build it with `ActionSpace.make`, which checks it against the grammar."""

    space: str
    type: str
    """Name in the grammar: "click", "input_text", "finish" …"""
    target: Target | None = None
    arguments: tuple[tuple[str, Scalar], ...] = ()
    """Name and value, in the grammar's order, defaults left out: equal actions have equal tuples."""

    def __post_init__(self) -> None:
        """Refuse numbers that no screen has and no log could give back.

        Raises:
            ValueError: a coordinate or an argument is not finite.
        """
        said = [value for _, value in self.arguments]
        if isinstance(self.target, Point):
            said += [self.target.x, self.target.y]
        for value in said:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"action {self.type}: {value} is no finite number")

    def __getitem__(self, name: str) -> Scalar:
        """Value of an argument; KeyError when it was left at its default."""
        return dict(self.arguments)[name]

    def get(self, name: str, default: Scalar = None) -> Scalar:
        """Value of an argument, or `default`."""
        return dict(self.arguments).get(name, default)


Cause: TypeAlias = Literal[
    "empty",
    "no_action",
    "malformed",
    "unknown_type",
    "bad_field",
    "missing_field",
    "no_such_element",
    "other_space",
    "cut",
    "reasoning",
    "refusal",
    "tool_call",
    "content_filter",
]
"""Why a reply gives no action. "other_space": it gives one of another action space; "cut": max_tokens ended it before
its action; "reasoning": it is thought alone; the last three: the server says that the model refused, called a tool, or
was stopped by a filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseFailure:
    """Why a reply gave no action."""

    kind: Cause
    detail: str
    """One line: what stood there and what is allowed."""


# ------------------------------------------------------------------------------------------------ deliberation


class CellRef(NamedTuple):
    """A cell of the action matrix."""

    agent: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a reply is sampled."""

    temperature: float = 0.1
    """0 is greedy."""
    top_p: float = 1.0
    max_tokens: int = 256
    """Upper bound of the reply's length, in tokens."""
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRef:
    """Which weights spoke."""

    base: str
    """Model name or checkpoint directory."""
    adapter: str | None = None
    """Adapter of this slot; None for the base weights."""
    version: int = 0
    """Counts updates; 0 before any training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a prompt that is tokenised by itself, so that its tokens do not depend on its neighbours."""

    text: str
    tokens: tuple[int, ...] | None = None
    """Token ids in which the text was generated; None for text that no model wrote."""
    tokenizer: str | None = None
    """Fingerprint of the tokenizer that `tokens` belong to; None when `tokens` is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What one model call reads: system text, then one user turn = shared part, then the cell's own segments."""

    system: str
    shared: str
    """Task, history, observation: the same string for all agents of a step."""
    segments: tuple[Segment, ...]
    """The messages heard, in conversation order, and the slot's header last."""
    images: tuple[str, ...] = ()
    """SHA-256 of stored pictures that go before the text."""
    layout: str = "1"
    """Version of the prompt layout; a checkpoint names the one it was trained on."""

    @property
    def user(self) -> str:
        """The whole user turn as text."""
        return self.shared + self.suffix

    @property
    def suffix(self) -> str:
        """The cell's own part of the user turn."""
        return "".join(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRef:
    """A stored prompt: each shared part is stored once per step, and any prompt can be rebuilt byte for byte."""

    prefix: str
    """SHA-256 of the stored prefix (system and shared part)."""
    suffix: str
    layout: str
    trimmed: tuple[str, ...] = ()
    """What the size guard removed, e.g. "history:2" or "elements:40"; empty when the prompt is whole."""

    @property
    def hash(self) -> str:
        """SHA-256 of all that was read: equal prompts have equal hashes."""
        read = "\x1f".join([self.layout, self.prefix, self.suffix])
        return hashlib.sha256(read.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """What one agent said in one round: a cell of the action matrix."""

    agent: str
    round: int
    heard: tuple[CellRef, ...]
    """Cells whose text stood in the prompt, in conversation order: the agent's own last, then this round's
    predecessors."""
    text: str
    """The reply as sampled; shown to its successors unchanged."""
    reason: str
    """What stood before the action; empty when nothing did."""
    action: Action | None
    """Canonical action; None when the reply did not parse."""
    failure: ParseFailure | None
    """None exactly when `action` is not None."""
    prompt: PromptRef
    policy: PolicyRef
    sampling: Sampling
    seed: int
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """Counted by the model; None when it does not count."""
    computed_tokens: int | None = None
    """Prompt tokens computed for this call; the others came from a prefix cache. None when not told."""
    tokens: tuple[int, ...] | None = None
    """Token ids as sampled; text tokenised again is not what was sampled. None when the server gives none."""
    tokenizer: str | None = None
    """Fingerprint of the tokenizer that `tokens` belong to."""
    logprobs: tuple[float, ...] | None = None
    """Per token, plain policy (temperature 1, no mask), in nats; None when the server gives none."""
    behaviour_logprobs: tuple[float, ...] | None = None
    """Per token, under the distribution really sampled from (temperature, top-p, mask)."""
    latency_s: float = 0.0
    """From asking to being answered, waiting and retries included."""
    queue_s: float | None = None
    """Seconds of `latency_s` in line before anything was computed; None when not told."""
    width: float | None = None
    """Sequences computed together, on average over the reply's tokens; None when not told."""
    cost_usd: float | None = None
    """None when the price is not known."""
    privileged: bool = False
    """Spoken with knowledge of the solution (rehearsal): never a result of a language model."""

    @property
    def cell(self) -> CellRef:
        """Its place in the matrix."""
        return CellRef(self.agent, self.round)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionMatrix:
    """All that was said before one step: n agents × m rounds (CollabUIAgents, A_t in 𝒜^{n×m})."""

    agents: tuple[str, ...]
    """Slot names in the order of the graph file; length n."""
    rounds: int
    """m."""
    edges: tuple[tuple[str, str], ...]
    """(speaker, hearer) of the graph that was used."""
    utterances: tuple[Utterance, ...]
    """In conversation order: round, then layer, then position in the graph file; length n·m."""

    def __iter__(self) -> Iterator[Utterance]:
        return iter(self.utterances)

    def __getitem__(self, cell: tuple[str, int]) -> Utterance:
        """The utterance of (agent, round); KeyError when there is none."""
        for utterance in self.utterances:
            if (utterance.agent, utterance.round) == tuple(cell):
                return utterance
        raise KeyError(cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """One distinct action and the cells that voted for it, in conversation order."""

    action: Action
    cells: tuple[CellRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What the matrix decided."""

    action: Action | None
    """The winner; None when no cell parsed."""
    representative: CellRef | None
    """The winner's latest cell: its reason enters the history. None when there is no winner."""
    ballots: tuple[Ballot, ...]
    """Most votes first; equal counts by latest vote first."""
    abstained: tuple[CellRef, ...]
    """Cells that did not parse."""
    entropy: float
    """Of the vote shares, in nats; 0 when unanimous or empty."""
    tie: bool
    """Whether another action had as many votes as the winner."""


# ----------------------------------------------------------------------------------------------------- episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an episode ended, as judged by the environment."""

    success: bool
    score: float
    """In [0, 1]; 1 is full success."""
    reason: str = ""
    """What the checker saw, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What an action led to."""

    observation: Observation
    terminated: bool = False
    """The task is over: done, failed or given up."""
    truncated: bool = False
    """The step budget ended the episode."""
    outcome: Outcome | None = None
    """Set exactly when terminated or truncated."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """What the screen did, for people and logs; JSON values. "effect": a short text for the history."""

    @property
    def done(self) -> bool:
        """Whether no further step is possible."""
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One executed action as later prompts tell it."""

    action: str
    """The action in words, its element by label."""
    reason: str
    """Reason of the representative cell; empty when it gave none."""
    effect: str
    """What the screen did."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Step:
    """One environment step: what was seen, said, decided and done."""

    index: int
    """t, from 0."""
    observation: Observation
    """Before the action."""
    matrix: ActionMatrix
    vote: Vote
    executed: Action | None
    """What the environment was given; None for a web step without a parsable cell (`no_action`)."""
    no_action: bool
    """No cell parsed: a phone waited, a page was observed again."""
    history: HistoryEntry
    """How the next prompts will tell this step."""
    terminated: bool
    truncated: bool
    summary: str = ""
    """The summary of earlier steps that stood in this step's prompts; empty when none is kept."""
    info: Mapping[str, Any] = field(default_factory=dict)
    deliberation_s: float = 0.0
    environment_s: float = 0.0

    @property
    def agreement(self) -> float | None:
        """Share of its cells, those without an action included, that voted for the winner; None without a cell."""
        cells, ballots = len(self.matrix.utterances), self.vote.ballots
        return (len(ballots[0].cells) if ballots else 0) / cells if cells else None

    def __repr__(self) -> str:
        return f"<Step {self.index}: {self.history.action}, {format_amount(len(self.matrix.utterances), 'cell')}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What model calls cost: of one call, of a process, of a whole run; those of steps never finished included."""

    calls: int = 0
    """Calls that were answered."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Over the calls that were counted."""
    cost_usd: float = 0.0
    """Over the calls whose price is known."""
    lost: int = 0
    """Attempts that were sent and never answered whole (cancelled, timed out, cut off): what they cost is not known."""

    @classmethod
    def of_call(cls, prompt_tokens: int | None, completion_tokens: int | None, cost_usd: float | None) -> Usage:
        """Return what one answered call cost; None for what was not counted, or has no known price."""
        return cls(
            calls=1,
            prompt_tokens=prompt_tokens or 0,
            completion_tokens=completion_tokens or 0,
            cost_usd=cost_usd or 0.0,
        )

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            lost=self.lost + other.lost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeError:
    """Why an episode broke, when the policy is not to blame."""

    type: str
    """Class name in `collab.errors`."""
    message: str
    step: int
    """The step during which it broke."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trajectory:
    """One episode."""

    id: str
    """Unique in its run: "{task}/{episode}" with the epoch before it when there is more than one."""
    task: Task
    episode: int
    epoch: int
    steps: tuple[Step, ...]
    final: Observation | None
    """After the last action; None when the episode broke."""
    outcome: Outcome | None
    """None exactly when `error` is set: a broken episode has no outcome, not a bad one."""
    error: EpisodeError | None = None
    environment: str = ""
    """Label for results, e.g. "androidworld[simphone]"."""
    environment_version: str = ""
    privileged: bool = False
    """Whether any cell was privileged: such episodes never enter result tables."""
    seconds: float = 0.0

    @property
    def success(self) -> bool:
        """Whether the task was solved; a broken episode was not."""
        return self.outcome is not None and self.outcome.success

    def __repr__(self) -> str:
        ended = "broken" if self.error else "unfinished" if self.outcome is None else "solved" * self.success
        return f"<Trajectory {self.id}: {ended or 'not solved'}, {format_amount(len(self.steps), 'step')}>"


# ------------------------------------------------------------------------------------------------------ labels


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReward:
    """A critic's word on one cell (CollabUIAgents, eq. 6)."""

    cell: CellRef
    score: float | None
    """In [0, 1]; None when the critic gave none or an invalid one."""
    reason: str = ""
    missing: str | None = None
    """Why there is no score; None when there is one."""

    @property
    def reward(self) -> int | None:
        """⌈score − 0.5⌉: 1 iff score > 0.5; None when missing."""
        return None if self.score is None else int(self.score > 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardMatrix:
    """Rewards of one step's action matrix; n × m entries in conversation order, missing ones included."""

    trajectory: str
    step: int
    critic: str
    rewards: tuple[CellReward, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRef:
    """A reply that was said in a run."""

    trajectory: str
    step: int
    cell: CellRef


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencePair:
    """Two sides of one preference: length 1 in the paper's method, whole trajectories in its ablation."""

    id: str
    """SHA-256 of what is preferred to what, and where it was said; whoever judged it does not enter."""
    source: str
    """"adversary", "contrast", "correction" or "trajectory"."""
    chosen: tuple[ReplyRef, ...]
    rejected: tuple[ReplyRef, ...]
    """Empty when the rejected reply was synthesised: then `synthetic` holds it."""
    synthetic: str | None = None
    adversary: str | None = None
    """Who synthesised the rejected reply, and how; None when nobody did."""
    policy: PolicyRef | None = None
    """Who said the chosen side; None when its replies are of several policies."""
    prompt: str | None = None
    """`PromptRef.hash` of the input that both sides answer, which is that of `answered`; None for whole trajectories,
    whose replies each answer their own."""
    critic: str | None = None
    """Who judged its sides, as in `RewardMatrix.critic`; None when the outcome alone decided."""
    calls: tuple[str, ...] = ()
    """Calls of the critic in which its sides were judged, each once, by the SHA-256 of what was asked; empty for
    critics that ask no model."""

    @property
    def answered(self) -> ReplyRef | None:
        """The reply whose input both sides answer and whose agent learns; None for whole trajectories.

        It is the rejected one of a correction, and the chosen one of any other pair.
        """
        if self.source == "trajectory" or len(self.chosen) != 1:
            return None
        return (self.rejected if self.source == "correction" else self.chosen)[0]

    @property
    def place(self) -> ReplyRef:
        """Under which it is listed: the reply whose input is answered, or the first one of the solved trajectory."""
        return self.answered or self.chosen[0]
