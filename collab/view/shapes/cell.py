"""What one agent said in one round: in the matrix, and its exact words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collab.view.shapes.common import Text
from collab.view.shapes.screen import ActionView


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """A cell of the matrix."""

    agent: str
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
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
    """What one agent said in one round."""

    agent: str
    round: int
    layer: int | None
    """Depth in the graph; None on a cycle."""
    text: Text
    """The reply as sampled."""
    reason: Text
    action: ActionView | None
    failure: Failure | None
    """None exactly when there is an action."""
    ballot: int | None
    """Which of the ballots it voted for; 0 is the winner, None abstained."""
    representative: bool
    """Whether its reason entered the history."""
    logprob: float | None
    """Of the reply under the plain policy; None where the model tells none."""
    prompt_tokens: int | None
    completion_tokens: int | None
    computed_tokens: int | None
    """Prompt tokens that no prefix cache held; all None where not told."""
    latency_s: float
    queue_s: float | None
    width: float | None
    """Sequences computed together; None where not told."""
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
    because: Text
    """The critic's reason; empty when it gave none."""
    missing: str | None
    """Why there is no score; None when there is one or nobody judged."""
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
class CellWhole:
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
    """Of the plain policy, per token; both None where the model tells none."""
    because: str
    """The critic's reason; empty when it gave none."""
    call: CallView | None
    """None where no model was asked."""
