"""Rows as token ids: exactly what the local engine reads when it is asked, and the reply that it should give.

What was sampled is learned in the tokens in which it was sampled, where a row holds these and they belong to the
checkpoint's tokenizer; anything else in the tokens of its text. Every reply is closed by the token that the template
closes it with, also one that was cut at its longest length.

An `Example` is one sequence of which only the end is scored; a `Pair` is one prompt with two ends.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from collab.errors import ConfigError
from collab.prompts.render import prefix_hash
from collab.synth.rows import Row, Sampled
from collab.wording import amount

if TYPE_CHECKING:
    from collab.models.chat import ChatTokenizer

Ids = NDArray[np.int32]
IGNORED = -100
"""Label of a token that is not scored."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Example:
    """A sequence to learn."""

    group: str
    """What it belongs to: the level of its row, or "copy"."""
    ids: Ids
    """All tokens."""
    scored_from: int
    """Position of the first token that is scored; those before it are read only."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def scored(self) -> int:
        """Tokens that are scored."""
        return len(self.ids) - self.scored_from


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A prompt with a good and a bad reply."""

    group: str
    prompt: Ids
    chosen: Ids
    rejected: Ids
    state: str = ""
    """SHA-256 of what all prompts of its state begin with; pairs of one state are computed together."""

    def __len__(self) -> int:
        """Of the longer of the two sequences."""
        return len(self.prompt) + max(len(self.chosen), len(self.rejected))

    @property
    def scored(self) -> int:
        """Tokens that are scored, of both replies."""
        return len(self.chosen) + len(self.rejected)

    @property
    def sides(self) -> tuple[Ids, Ids]:
        """Both sequences, the chosen one first."""
        return np.concatenate((self.prompt, self.chosen)), np.concatenate((self.prompt, self.rejected))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Where an example belongs, if whole trajectories are compared."""

    pair: int
    """Of trajectories, from 0."""
    side: int
    """1 for the chosen one, -1 for the rejected one."""


class NothingFits(ConfigError):
    """Everything that was to be trained is longer than the context."""

    def __init__(self, many: int, context: int, longest: int) -> None:
        super().__init__(
            f"none of {amount(many, 'row')} fits into context {context}, the longest has {amount(longest, 'token')}; "
            "raise context (--set context=…) as far as the model allows, or use shorter rows"
        )
        self.many, self.context, self.longest = many, context, longest


ItemT = TypeVar("ItemT", Example, Pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded(Generic[ItemT]):
    """What rows became."""

    items: Sequence[ItemT]
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows longer than the context, by level."""
    longest: int = 0
    """Tokens of the longest row, dropped ones included."""

    @property
    def groups(self) -> dict[str, list[int]]:
        """Positions in `items`, by group."""
        found: dict[str, list[int]] = {}
        for index, item in enumerate(self.items):
            found.setdefault(item.group, []).append(index)
        return found


def encode_replies(rows: Iterable[Row], chat: ChatTokenizer, context: int) -> Encoded[Example]:
    """Prompts with the reply to learn, for next-token loss.

    Args:
        rows: of any level; of a preference, the chosen reply is learned.
        context: longest sequence; what is longer is left out and counted.

    Raises:
        NothingFits: not one row is short enough.
        ConfigError: the checkpoint has no token that ends a reply.
    """
    end = turn_end(chat)

    def one(row: Row) -> Example:
        prompt = chat.prompt_ids(row.prompt).ids
        ids = np.array((*prompt, *_said(row.reply, row.reply_sampled, chat), end), np.int32)
        return Example(group=row.level, ids=ids, scored_from=len(prompt))

    return _fitting(map(one, rows), context)


def encode_pairs(rows: Iterable[Row], chat: ChatTokenizer, context: int) -> Encoded[Pair]:
    """Preferences as pairs; rows without a rejected reply are no preferences and are passed over.

    Raises:
        ConfigError: as `encode_replies`.
    """
    end = turn_end(chat)

    def one(row: Row, rejected: str) -> Pair:
        prompt = chat.prompt_ids(row.prompt).ids
        sides = ((row.reply, row.reply_sampled), (rejected, row.rejected_sampled))
        chosen_ids, rejected_ids = (np.array((*_said(*side, chat), end), np.int32) for side in sides)
        return Pair(
            group=row.level,
            prompt=np.array(prompt, np.int32),
            chosen=chosen_ids,
            rejected=rejected_ids,
            state=prefix_hash(row.prompt.system, row.prompt.shared),
        )

    return _fitting((one(row, row.rejected) for row in rows if row.rejected is not None), context)


def rows_digest(rows: Iterable[Row]) -> str:
    """SHA-256 over what rows teach, in their order: equal for data that trains the same."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.level}\x1f{row.id}\n".encode())
    return digest.hexdigest()


def items_digest(items: Iterable[Example | Pair]) -> str:
    """SHA-256 over the token ids that are trained: another tokenizer or chat template gives another one."""
    digest = hashlib.sha256()
    for item in items:
        parts = (item.ids,) if isinstance(item, Example) else (item.prompt, item.chosen, item.rejected)
        for ids in parts:
            digest.update(len(ids).to_bytes(8, "little") + ids.astype("<i4").tobytes())
    return digest.hexdigest()


def _said(text: str, sampled: Sampled | None, chat: ChatTokenizer) -> tuple[int, ...]:
    """Ids of a reply without its end, which a model from elsewhere may have left among those that it sampled."""
    if sampled is None or sampled.tokenizer != chat.fingerprint:
        return chat.encode_reply(text)
    said = sampled.tokens
    return said[:-1] if said and said[-1] in chat.turn_ends else said


def _fitting(items: Iterable[ItemT], context: int) -> Encoded[ItemT]:
    kept: list[ItemT] = []
    dropped: Counter[str] = Counter()
    longest = 0
    for item in items:
        longest = max(longest, len(item))
        if len(item) <= context:
            kept.append(item)
        else:
            dropped[item.group] += 1
    if dropped and not kept:
        raise NothingFits(dropped.total(), context, longest)
    return Encoded(items=kept, dropped=dict(dropped), longest=longest)


def turn_end(chat: ChatTokenizer) -> int:
    """The token that closes a reply; ConfigError where the checkpoint has none."""
    if chat.turn_end is None:
        raise ConfigError(
            f"{chat.path}: neither the chat template nor the tokenizer says what ends a reply; "
            "use a checkpoint made for chat"
        )
    return chat.turn_end
