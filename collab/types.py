"""Shared data types, in the order in which an episode uses them.

    Task → Observation (Element) → Prompt → Utterance → ActionMatrix → Vote → StepResult → Step → Trajectory

All are frozen, keyword-only values; they have only small derived properties. Agents are indexed by i = 0..n−1, rounds
by j = 0..m−1, environment steps by t = 0..T−1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from collab.utils.text import format_amount

Scalar: TypeAlias = str | int | float | bool | None
"""A value of an action argument."""


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
        """Return whether the point (pixels) lies inside."""
        return self.left <= x < self.right and self.top <= y < self.bottom


# --------------------------------------------------------------------------------------------- task and screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One instance of a task: a goal, and all parameters of its initial state."""

    environment: str
    """Name of the environment it belongs to, e.g. "androidworld"."""
    name: str
    """Name within the environment, e.g. "ContactsAddContact" or "click-button"."""
    seed: int
    """Part of the instance: the same (name, seed) gives the same goal, parameters and initial state."""
    goal: str
    """The agents' goal, in words."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters drawn by the seed; JSON values."""
    max_steps: int = 30
    """Environment steps before the episode is truncated."""
    difficulty: str | None = None
    """"easy", "medium" or "hard"; None if the environment does not say."""
    apps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """Number of episodes of a task in a run."""

    name: str
    difficulty: str | None
    """None if the environment does not say."""
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One thing on the screen that can be read or acted on."""

    index: int
    """Position in `Observation.elements`; what an action names."""
    role: str
    """Kind in plain words: "button", "switch", "text", "input", "link", "slider" …"""
    label: str
    """Name for people; may be empty."""
    box: Box | None = None
    """None if the environment knows no geometry."""
    value: str | None = None
    """Current content of an input, position of a slider; None if it has none."""
    flags: tuple[str, ...] = ()
    """True properties only, in a fixed order: checked, selected, focused, disabled, scrollable, editable,
    long-clickable, expanded, password, surface. "surface": a point inside is not the same as the element
    (canvas, slider)."""
    key: str = ""
    """Stable identity in the environment (resource id, DOM path); never shown to a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A browser tab; `Observation.elements` describes the active one."""

    title: str
    url: str
    active: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The agents' view before one step."""

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
    """Event beside the screen since the last step (toast, dialog, refused download); None if there was none."""
    renderer: str | None = None
    """Name and version of what can draw this screen from its elements, e.g. "simphone-1"; None for a picture alone."""
    drawing: Mapping[str, Any] | None = None
    """Further data for that renderer; None if it needs none."""
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
        """Check that coordinates and arguments are finite, as screens and logs need them; else ValueError."""
        said = [value for _, value in self.arguments]
        if isinstance(self.target, Point):
            said += [self.target.x, self.target.y]
        for value in said:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"action {self.type}: {value} is no finite number")

    def __getitem__(self, name: str) -> Scalar:
        """Return the value of an argument; KeyError if it has its default."""
        return dict(self.arguments)[name]

    def get(self, name: str, default: Scalar = None) -> Scalar:
        """Return the value of an argument, or `default`."""
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
    "other_dialect",
    "outside",
    "unsupported",
    "cut",
    "reasoning",
    "refusal",
    "tool_call",
    "content_filter",
]
"""Why a reply gives no action. "other_space": it gives one of another action space; "other_dialect": other dialects
read it, or, for an agent with a dialect, the environment's own reader; "outside": its point is not on the screen;
"unsupported": the environment has no such action; "cut": max_tokens ended it first; "reasoning": it is only thought;
the last three: the server reports that the model refused, called a tool, or was stopped by a filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseFailure:
    """Why a reply gave no action."""

    kind: Cause
    detail: str
    """One line: the text in question and what is allowed."""


# ------------------------------------------------------------------------------------------------ deliberation


class CellRef(NamedTuple):
    """A cell of the action matrix."""

    agent: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling settings of a reply."""

    temperature: float = 0.1
    """0 is greedy."""
    top_p: float = 1.0
    max_tokens: int = 256
    """Upper bound of the reply's length, in tokens."""
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRef:
    """The weights of a reply."""

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
    """Input of one model call: system text, then one user turn = shared part, then the cell's own segments."""

    system: str
    shared: str
    """Task, history, observation: the same string for all agents of a step."""
    segments: tuple[Segment, ...]
    """The messages heard, in conversation order, and the slot's header last."""
    images: tuple[str, ...] = ()
    """SHA-256 of stored pictures that go before the text."""
    pictures_last: bool = False
    """Whether pictures go behind the text instead."""
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
    """Parts that the size guard removed, e.g. "history:2" or "elements:40"; empty for a whole prompt."""

    @property
    def hash(self) -> str:
        """SHA-256 of the whole prompt: equal prompts have equal hashes."""
        read = "\x1f".join([self.layout, self.prefix, self.suffix])
        return hashlib.sha256(read.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """One agent's reply in one round: a cell of the action matrix."""

    agent: str
    round: int
    heard: tuple[CellRef, ...]
    """Cells whose text stood in the prompt, in conversation order: the agent's own last, then this round's others."""
    text: str
    """The reply as sampled; shown to its successors unchanged."""
    reason: str
    """Text before the action; may be empty."""
    action: Action | None
    """Canonical action; None when the reply did not parse."""
    failure: ParseFailure | None
    """None exactly when `action` is not None, and of a reply that was not asked for an action."""
    prompt: PromptRef
    policy: PolicyRef
    sampling: Sampling
    seed: int
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """Counted by the model; None when it does not count."""
    computed_tokens: int | None = None
    """Prompt tokens computed for this call; the others came from a prefix cache. None if unknown."""
    tokens: tuple[int, ...] | None = None
    """Token ids as sampled; text tokenised again is not what was sampled. None when the server gives none."""
    tokenizer: str | None = None
    """Fingerprint of the tokenizer that `tokens` belong to."""
    logprobs: tuple[float, ...] | None = None
    """Per token, plain policy (temperature 1, no mask), in nats; None when the server gives none."""
    behaviour_logprobs: tuple[float, ...] | None = None
    """Per token, under the distribution really sampled from (temperature, top-p, mask)."""
    finish: str | None = None
    """How it ended: "stop", "length" if max_tokens cut it, why a server gave no text ("refusal" …); None if unknown."""
    end_token: int | None = None
    """Id of the end-of-turn token; None when none was sampled (a cut reply, a stop string) or it is unknown."""
    end_logprob: float | None = None
    """Log-probability of the end-of-turn token, plain policy, in nats; None when none was sampled or it is unknown."""
    end_behaviour_logprob: float | None = None
    """Log-probability of it under the distribution really sampled from; None as `end_logprob`."""
    latency_s: float = 0.0
    """From asking to being answered, waiting and retries included."""
    queue_s: float | None = None
    """Seconds of `latency_s` in the queue before anything was computed; None if unknown."""
    width: float | None = None
    """Sequences computed together, on average over the reply's tokens; None if unknown."""
    cost_usd: float | None = None
    """None if the price is unknown."""
    privileged: bool = False
    """With knowledge of the solution (rehearsal): never a result of a language model."""
    proposal: Utterance | None = None
    """A call before this one, in which the agent put its next action into words; names no action. None without one."""
    remarks: tuple[str, ...] = ()
    """What the reply says besides its action: actions not executed or in part, moved points, what is not read."""

    @property
    def cell(self) -> CellRef:
        """Its place in the matrix."""
        return CellRef(self.agent, self.round)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionMatrix:
    """All replies of one step: n agents × m rounds (CollabUIAgents, A_t in 𝒜^{n×m})."""

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
        """Return the utterance of (agent, round); KeyError if there is none."""
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
    """Result of the majority vote."""

    action: Action | None
    """The winner; None when no cell parsed."""
    representative: CellRef | None
    """The winner's latest cell: its reason enters the history. None when there is no winner."""
    ballots: tuple[Ballot, ...]
    """Most votes first; equal counts by latest vote first."""
    abstained: tuple[CellRef, ...]
    """Cells that did not parse."""
    entropy: float
    """Entropy of the vote shares, in nats; 0 when unanimous or empty."""
    tie: bool
    """Whether another action had as many votes as the winner."""


# ----------------------------------------------------------------------------------------------------- episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of an episode, as judged by the environment."""

    success: bool
    score: float
    """In [0, 1]; 1 is full success."""
    reason: str = ""
    """The checker's finding, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Result of an action."""

    observation: Observation
    terminated: bool = False
    """The task is over: done, failed or given up."""
    truncated: bool = False
    """The step budget ended the episode, or its first error where episodes stop there."""
    outcome: Outcome | None = None
    """Set exactly when terminated or truncated."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Details for people and logs; JSON values. "effect": a short text for the history."""

    @property
    def done(self) -> bool:
        """Return whether no further step is possible."""
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One executed action for later prompts."""

    action: str
    """The action in words, its element by label."""
    reason: str
    """Reason of the representative cell; empty when it gave none."""
    effect: str
    """Effect on the screen."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Step:
    """One environment step: screen, replies, vote and action."""

    index: int
    """t, from 0."""
    observation: Observation
    """Before the action."""
    matrix: ActionMatrix
    vote: Vote
    executed: Action | None
    """Action given to the environment; None for a web step without a parsable cell (`no_action`)."""
    no_action: bool
    """No cell parsed: a phone waited, a page was observed again."""
    history: HistoryEntry
    """Entry for later prompts."""
    terminated: bool
    truncated: bool
    summary: str = ""
    """The summary of earlier steps in this step's prompts; empty if none is kept."""
    copied: bool = False
    """Taken over from another episode, in whose state this one begins: its replies were asked for there."""
    summary_reply: Utterance | None = None
    """The reply that `summary` ends with or is; None if none was asked for. Like a proposal, it names no action."""
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
    """Cost of model calls: of one call, of a process, of a whole run; unfinished steps included."""

    calls: int = 0
    """Calls that were answered."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Over the calls that were counted."""
    cost_usd: float = 0.0
    """Over the calls whose price is known."""
    lost: int = 0
    """Attempts that were sent and never answered completely (cancelled, timed out, cut off): their cost is unknown."""

    @classmethod
    def of_call(cls, prompt_tokens: int | None, completion_tokens: int | None, cost_usd: float | None) -> Usage:
        """Return the usage of one answered call; None for uncounted tokens or an unknown price."""
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
    def copied_steps(self) -> int:
        """First steps that were taken over from another episode."""
        return sum(step.copied for step in self.steps)

    @property
    def success(self) -> bool:
        """Return whether the task was solved; a broken episode was not."""
        return self.outcome is not None and self.outcome.success

    def __repr__(self) -> str:
        ended = "broken" if self.error else "unfinished" if self.outcome is None else "solved" * self.success
        return f"<Trajectory {self.id}: {ended or 'not solved'}, {format_amount(len(self.steps), 'step')}>"
