"""Examples as token ids: exactly the local engine's input, and the reply to learn.

Sampled text is learned in its sampled tokens, if a row holds these and they belong to the checkpoint's tokenizer. Any
other text is tokenised. Every reply ends with the template's closing token, also one that was cut at its longest
length.

An `EncodedExample` is one sequence of which only the end is scored; an `EncodedPair` is one prompt with two ends.

`read_data` reads a stage's examples from directories; the collators pad those of a forward pass on the right.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from collab.data.example import LEVELS, Example, Level, Sampled
from collab.data.parquet import read_rows
from collab.errors import ConfigError, UsageError
from collab.prompts.render import hash_prefix
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from datasets import Dataset  # type: ignore[import-untyped]
    from torch import Tensor

    from collab.models.tokenizer import ChatTokenizer
    from collab.types import Utterance


Ids = NDArray[np.int32]
IGNORED = -100
"""Label of a token that is not scored."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedExample:
    """A sequence to learn."""

    group: str
    """Its group: the level of its row, or "copy"."""
    ids: Ids
    """All tokens."""
    scored_from: int
    """Position of the first scored token; those before it are only read."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def scored(self) -> int:
        """Tokens that are scored."""
        return len(self.ids) - self.scored_from


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedPair:
    """A prompt with a chosen and a rejected reply."""

    group: str
    prompt: Ids
    chosen: Ids
    rejected: Ids
    state: str = ""
    """SHA-256 of the shared beginning of its state's prompts; pairs of one state are computed together."""

    def __len__(self) -> int:
        """Return the tokens of the longer of the two sequences."""
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
class TrajectoryPart:
    """Place of an example in a comparison of whole trajectories."""

    pair: int
    """Number of the pair of trajectories, from 0."""
    side: int
    """1 for the chosen one, -1 for the rejected one."""


class NothingFits(ConfigError):
    """All training examples are longer than the context."""

    def __init__(self, many: int, context: int, longest: int) -> None:
        super().__init__(
            f"none of {format_amount(many, 'row')} fits into context {context}, "
            f"the longest has {format_amount(longest, 'token')}; "
            "raise context (--set context=…) as far as the model allows, or use shorter rows"
        )
        self.many, self.context, self.longest = many, context, longest


ItemT = TypeVar("ItemT", EncodedExample, EncodedPair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded(Generic[ItemT]):
    """Encoded rows."""

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


def encode_replies(rows: Iterable[Example], chat: ChatTokenizer, context: int) -> Encoded[EncodedExample]:
    """Encode prompts with the reply to learn, for next-token loss.

    Args:
        rows: of any level; of a preference, the chosen reply is learned.
        context: longest sequence; longer ones are left out and counted.

    Raises:
        NothingFits: not one row is short enough.
        ConfigError: the checkpoint has no token that ends a reply.
    """
    end = turn_end(chat)

    def one(row: Example) -> EncodedExample:
        prompt = chat.prompt_ids(row.prompt).ids
        ids = np.array((*prompt, *_reply_ids(row.reply, row.reply_sampled, chat), end), np.int32)
        return EncodedExample(group=row.level, ids=ids, scored_from=len(prompt))

    return _keep_fitting(map(one, rows), context)


def encode_pairs(rows: Iterable[Example], chat: ChatTokenizer, context: int) -> Encoded[EncodedPair]:
    """Encode preferences as pairs; rows without a rejected reply are skipped.

    Raises:
        ConfigError: as `encode_replies`.
    """
    end = turn_end(chat)

    def one(row: Example, rejected: str) -> EncodedPair:
        # One prompt, which both replies answer.
        prompt = chat.prompt_ids(row.prompt).ids
        sides = ((row.reply, row.reply_sampled), (rejected, row.rejected_sampled))
        # Ids as sampled where they are known; each reply ends with the end of the turn.
        chosen_ids, rejected_ids = (np.array((*_reply_ids(*side, chat), end), np.int32) for side in sides)
        return EncodedPair(
            group=row.level,
            prompt=np.array(prompt, np.int32),
            chosen=chosen_ids,
            rejected=rejected_ids,
            state=hash_prefix(row.prompt.system, row.prompt.shared),
        )

    return _keep_fitting((one(row, row.rejected) for row in rows if row.rejected is not None), context)


class ReplyTokens(NamedTuple):
    """The tokens by which a policy replied: those of the text, then the end of the turn unless the reply was cut."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    """Per id, plain policy, in nats; None if unknown for one of them."""
    behaviour_logprobs: tuple[float, ...] | None
    """Per id, under the distribution sampled from; None if unknown for one of them."""


def get_reply_tokens(cell: Utterance) -> ReplyTokens | None:
    """Return all sampled tokens of a recorded reply with its end; None if they, or how it ended, are unknown."""
    if cell.tokens is None:
        return None
    if cell.finish == "length":
        return ReplyTokens(cell.tokens, cell.logprobs, cell.behaviour_logprobs)
    # A reply that a stop string ended, or an older run: what was sampled at its end is not known.
    if cell.finish != "stop" or cell.end_token is None:
        return None
    return ReplyTokens(
        (*cell.tokens, cell.end_token),
        _append(cell.logprobs, cell.end_logprob),
        _append(cell.behaviour_logprobs, cell.end_behaviour_logprob),
    )


def _append(values: tuple[float, ...] | None, last: float | None) -> tuple[float, ...] | None:
    return None if values is None or last is None else (*values, last)


def hash_examples(rows: Iterable[Example]) -> str:
    """Return the SHA-256 over the content of rows, in their order: equal for data that trains the same."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.level}\x1f{row.id}\n".encode())
    return digest.hexdigest()


def hash_encoded(items: Iterable[EncodedExample | EncodedPair]) -> str:
    """Return the SHA-256 over the trained token ids: another tokenizer or chat template gives another one."""
    digest = hashlib.sha256()
    for item in items:
        parts = (item.ids,) if isinstance(item, EncodedExample) else (item.prompt, item.chosen, item.rejected)
        for ids in parts:
            digest.update(len(ids).to_bytes(8, "little") + ids.astype("<i4").tobytes())
    return digest.hexdigest()


def _reply_ids(text: str, sampled: Sampled | None, chat: ChatTokenizer) -> tuple[int, ...]:
    """Return the ids of a reply without its end, which a foreign model may have left in its sampled tokens."""
    if sampled is None or sampled.tokenizer != chat.fingerprint:
        return chat.encode_reply(text)
    said = sampled.tokens
    return said[:-1] if said and said[-1] in chat.turn_ends else said


def _keep_fitting(items: Iterable[ItemT], context: int) -> Encoded[ItemT]:
    kept: list[ItemT] = []
    dropped: Counter[str] = Counter()
    longest = 0
    for item in items:
        # The longest of all is kept, dropped ones included: it is the context that would lose nothing.
        longest = max(longest, len(item))
        if len(item) <= context:
            kept.append(item)
        else:
            dropped[item.group] += 1
    if dropped and not kept:
        raise NothingFits(dropped.total(), context, longest)
    return Encoded(items=kept, dropped=dict(dropped), longest=longest)


def turn_end(chat: ChatTokenizer) -> int:
    """Return the token that closes a reply; ConfigError if the checkpoint has none."""
    if chat.turn_end is None:
        raise ConfigError(
            f"{chat.path}: neither the chat template nor the tokenizer names the end of a reply; "
            "use a checkpoint made for chat"
        )
    return chat.turn_end


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Examples that were read."""

    rows: Sequence[Example]
    """Rows of the requested levels, each once, in the order of the files."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """Unusable rows that were left out, by field."""
    repeated: int = 0
    """Repetitions of earlier rows that were left out."""

    @property
    def levels(self) -> dict[str, int]:
        """Rows by level."""
        return dict(Counter(row.level for row in self.rows))


def read_data(folders: Sequence[Path], levels: Sequence[Level], *, max_broken: int = 0) -> Data:
    """Read the rows of some levels from every Parquet file of some directories.

    Args:
        max_broken: broken rows that are left out and counted; one more is refused. 0 refuses the first, by file, row
            and field.

    Raises:
        UsageError: a directory is missing or holds no rows at all.
        ConfigError: a row is broken, or there is none of these levels.
        MissingExtra: pyarrow is not installed.
    """
    # By content id: a row that stands in two files must not count twice in training.
    kept: dict[str, Example] = {}
    repeated = 0
    broken: Counter[str] = Counter()
    for file in _find_files(folders, levels):
        # Without an allowance, `read_rows` raises at the first broken row, with its place.
        for row in read_rows(file, skipped=broken if max_broken else None):
            if row.level in levels and row.id in kept:
                repeated += 1
            elif row.level in levels:
                kept[row.id] = row
        # Checked per file, so that the message names the file that went beyond.
        if broken.total() > max_broken:
            fields = ", ".join(f"{name} {count}" for name, count in broken.items())
            raise ConfigError(
                f"{file}: {broken.total()} broken rows so far ({fields}), {max_broken} are allowed; "
                "make the data again, or raise --max-broken"
            )
    # No row is most often a wrong level, so the message lists what lies there.
    if not kept:
        places = ", ".join(map(str, folders))
        raise ConfigError(
            f"--data {places}: no rows of level {', '.join(levels)}; files there: "
            f"{', '.join(file.name for folder in folders for file in sorted(folder.glob('*.parquet')))}"
        )
    return Data(rows=list(kept.values()), broken=dict(broken), repeated=repeated)


def _find_files(folders: Sequence[Path], levels: Sequence[Level]) -> Iterator[Path]:
    """Yield the files that may hold rows of these levels: a file named for another level does not."""
    others = set(LEVELS) - set(levels)
    for folder in folders:
        if folder.is_file():
            raise UsageError(f"--data {folder}: is a file; name the directory that holds it: {folder.parent}")
        if not folder.is_dir():
            raise UsageError(f"--data {folder}: no such directory; make rows with: collab synth --out {folder}")
        found = sorted(folder.glob("*.parquet"))
        if not found:
            raise UsageError(f"--data {folder}: no *.parquet in it; make rows with: collab synth")
        yield from (file for file in found if file.stem not in others)


Collate = Callable[[Sequence[Mapping[str, int]]], dict[str, Any]]
_ROW = "row"


def make_position_dataset(items: Sequence[Any]) -> Dataset:
    """Make a data set of positions in `items`: TRL needs one, without a second copy of the tokens."""
    from datasets import Dataset

    return Dataset.from_dict({_ROW: range(len(items))})


def select(part: Sequence[int]) -> list[dict[str, int]]:
    """Return the rows of `make_position_dataset` with these numbers."""
    return [{_ROW: row} for row in part]


def collate_examples(examples: Sequence[EncodedExample], padding: int, *, prompts: bool = False) -> Collate:
    """Return a collator of scored sequences.

    Args:
        prompts: label prompts, too, and mark replies in `replies` (see `collab.trainers.pretrain`).

    Returns:
        Function of rows of `make_position_dataset` to input_ids, labels and attention_mask, (rows, longest) each.
    """
    import torch

    def collate(rows: Sequence[Mapping[str, int]]) -> dict[str, Tensor]:
        chosen = [examples[row[_ROW]] for row in rows]
        shape = (len(chosen), max(map(len, chosen)))  # (rows, longest), padded on the right
        ids, labels, mask = (torch.full(shape, value) for value in (padding, IGNORED, 0))
        for place, one in enumerate(chosen):
            ids[place, : len(one)] = torch.from_numpy(one.ids)
            # Only replies are labels; the prompt is read.
            labels[place, one.scored_from : len(one)] = ids[place, one.scored_from : len(one)]
            mask[place, : len(one)] = 1
        batch = {"input_ids": ids, "labels": labels, "attention_mask": mask}
        # With a weight on prompts everything is a label, and `replies` says which part counts fully.
        if prompts:
            batch |= {"replies": labels != IGNORED, "labels": ids.masked_fill(mask == 0, IGNORED)}
        return batch

    return collate


def collate_pairs(pairs: Sequence[EncodedPair], padding: int) -> Collate:
    """Return a collator of preferences like TRL's own: all chosen sides, then all rejected ones."""
    from trl.trainer.dpo_trainer import DataCollatorForPreference

    theirs = DataCollatorForPreference(pad_token_id=padding, max_length=None)

    def collate(rows: Sequence[Mapping[str, int]]) -> dict[str, Any]:
        chosen = [pairs[row[_ROW]] for row in rows]
        fields = ("prompt", "chosen", "rejected")
        batch: dict[str, Any] = theirs(
            [{f"{name}_ids": getattr(one, name).tolist() for name in fields} for one in chosen]
        )
        return batch

    return collate
