"""Build training examples from recorded replies, each with its own prompt in tokenised pieces.

    row, again = ExampleBuilder.of(recorded, chats, config).build(target)

A prompt is stored as text. Its pieces are rebuilt from the messages that the cell heard. A reply is refused unless they
give the stored prompt byte for byte, by its hash.

A reply is learned in the tokens in which it was sampled, under a prompt in the tokens in which it was read. A row holds
them if they differ from those of the text. If a sampled reply's tokens are not known in the policy's tokenizer, the
text is tokenised again and counted ("retokenised"). Examples lie in a folder per policy, with the older ones that
are mixed in:

    counts = store(made, folder, 2, file="demonstration.parquet")
    read_counts(folder.get_epoch(2).examples, ExampleCounts) == counts

They are written before they are learned, so that a resumed process learns the same.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeVar

from collab.config import RunConfig, validate
from collab.data.example import Example, Level, Provenance, Sampled
from collab.data.parquet import ExampleWriter, read_rows
from collab.data.tokenize import hash_examples
from collab.errors import RunFormatError, StoreFailure
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import Rollout
from collab.loop.policy import Policy, build_chat_tokenizer
from collab.loop.record import ExampleCounts, TrainingDir
from collab.models.tokenizer import ChatTokenizer
from collab.prompts.render import Template, hash_prefix
from collab.seeds import derive, generator
from collab.store.reader import RunReader
from collab.store.rewards import ReplyRef
from collab.types import Prompt, PromptRef, Segment, Step, Trajectory, Utterance
from collab.utils.files import read_plain, report_write_errors, write_json

OTHER_PROMPT = "its prompt cannot be made again exactly"
EMPTY = "a side is empty"
RETOKENISED = "the tokens in which a reply was sampled are not known"
UNKNOWN = "a reply of its episode cannot be learned, or its probability is not known"
OLDER, COUNTS = "older.parquet", "examples.json"
"""Older examples that are mixed in; and the counts of all policies, written last."""

CountsT = TypeVar("CountsT", bound=ExampleCounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A recorded rollout, in which replies are looked up."""

    run: RunConfig
    trajectories: Mapping[str, Trajectory]
    """By id."""
    prefix: Callable[[str], str]
    """Stored text of a prompt's shared part by its hash (`RunReader.read_prefix`)."""

    @classmethod
    def of(cls, run: RunConfig, reader: RunReader) -> RecordedRun:
        """Return a run that is read on request."""
        return cls(run=run, trajectories=_Episodes(reader), prefix=reader.read_prefix)

    def get_step(self, trajectory: str, index: int) -> Step:
        """Return a step by the id of its episode and its index."""
        return next(step for step in self.trajectories[trajectory].steps if step.index == index)

    def step(self, ref: ReplyRef) -> Step:
        """Return the step of a reply."""
        return self.get_step(ref.trajectory, ref.step)

    def get_cell(self, ref: ReplyRef) -> Utterance:
        """Return the cell of a reply."""
        return self.step(ref).matrix[ref.cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reply to learn from, alone or beside another one."""

    said: ReplyRef
    answered: ReplyRef | None = None
    """Another reply of the same step; its prompt is used. None for its own."""
    level: Level
    kind: str
    """The algorithm's word for it, e.g. "solved"."""
    other: ReplyRef | str | None = None
    """The second side of the row (`Example.rejected`): another cell's reply, or a text; None for nothing."""
    teacher: str
    """Source of the label: a labeller's model, or "outcome"."""
    asked: str | None = None
    """Hash of the question to that model; None without a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleBuilder:
    """Builds examples from replies of a rollout."""

    recorded: RecordedRun
    chats: Mapping[str, ChatTokenizer]
    """Slot → tokenizer of its policy."""
    config: TrainingConfig
    templates: Mapping[str, Template]
    """Templates of the run's prompts, by name."""

    @classmethod
    def of(cls, recorded: RecordedRun, chats: Mapping[str, ChatTokenizer], config: TrainingConfig) -> ExampleBuilder:
        """Return a builder with the prompts of the run."""
        templates = {name: Template(name, texts) for name, texts in recorded.run.prompts.items()}
        return cls(recorded=recorded, chats=chats, config=config, templates=templates)

    @property
    def groups(self) -> dict[str, str]:
        """Slot → policy."""
        return {slot: group for group, slots in self.config.groups.items() for slot in slots}

    def build(self, target: Target) -> tuple[Example | str, bool]:
        """Return a row, or the reason why there is none; and whether a sampled reply was tokenised again."""
        # The record is read back whole: prompt, heard messages and policy are those of the rollout, not of today.
        ref, record = target.said, self.recorded
        cell, step, trajectory = record.get_cell(ref), record.step(ref), record.trajectories[ref.trajectory]
        # The prompt may be that of another cell of the step: a reply can be learned where another one was given.
        answered = target.answered or ref
        # Template and tokenizer of the cell whose prompt it is: each slot may have its own.
        slot = answered.cell.agent
        template, chat = self.templates[record.run.agents[slot].prompt], self.chats[slot]
        prompt = read_prompt(record, template, answered, chat)
        # A prompt that today's templates do not give again would be trained in a form that is never played.
        if prompt is None:
            return OTHER_PROMPT, False
        # An empty reply teaches nothing: its only token would be the end of the turn.
        beside, text = self._find_other(target)
        if not cell.text or text == "":
            return EMPTY, False
        # Without its own tokens a reply is tokenised anew, which may differ from what was sampled.
        again = any(get_known_tokens(one, chat) is None for one in (cell, beside) if one is not None)
        if again and self.config.method.retokenised == "refuse":
            return RETOKENISED, True
        # With sampled tokens where they are known: log-probabilities belong to those and to no other spelling.
        row = Example(
            level=target.level,
            kind=target.kind,
            prompt=prompt,
            reply=cell.text,
            reply_sampled=_get_sampled(cell, chat),
            rejected=text,
            rejected_sampled=None if beside is None else _get_sampled(beside, chat),
            action_type=cell.action.type if cell.action is not None else None,
            provenance=_build_provenance(target, trajectory, step),
        )
        return row, again

    def _find_other(self, target: Target) -> tuple[Utterance | None, str | None]:
        """Return the cell of the second side, None for a text, and its text, None for nothing."""
        if not isinstance(target.other, ReplyRef):
            return None, target.other
        cell = self.recorded.get_cell(target.other)
        return cell, cell.text


def make_builder(config: TrainingConfig, rollout: Rollout, policy: Policy) -> ExampleBuilder:
    """Return the builder for a rollout; its tokenizers are those of training."""
    chats = {slot: build_chat_tokenizer(rollout.run.agents[slot], path) for slot, path in policy.weights.items()}
    return ExampleBuilder.of(RecordedRun.of(rollout.run, rollout.reader), chats, config)


class _Episodes(Mapping[str, Trajectory]):
    """Episodes of a run by id, read on request; only the last few are kept."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._read = functools.lru_cache(maxsize=8)(reader.read_trajectory)

    def __getitem__(self, id: str) -> Trajectory:
        return self._read(id)

    def __iter__(self) -> Iterator[str]:
        return (one.id for one in self._reader.list_episodes())

    def __len__(self) -> int:
        return len(self._reader.list_episodes())


def rebuild_prompt(
    cell: Utterance, heard: Sequence[Utterance], prefix: str, template: Template, rounds: int
) -> Prompt | None:
    """Rebuild a cell's prompt in pieces, with sampled tokens of messages; None if the text differs from the record.

    Args:
        heard: messages that the cell heard, in conversation order.
        prefix: stored text of its shared part.
        rounds: of the conversation.
    """
    system, _, shared = prefix.partition("\f")
    told = [*heard] if cell.proposal is None else [*heard, cell.proposal]
    # An agent alone that speaks a dialect reads the shared part and nothing behind it.
    segments = template.render_segments(cell.agent, cell.round, rounds, told) if cell.prompt.suffix else ()
    prompt = Prompt(system=system, shared=shared, segments=segments, layout=cell.prompt.layout)
    again = PromptRef(prefix=hash_prefix(system, shared), suffix=prompt.suffix, layout=prompt.layout)
    return prompt if again.hash == cell.prompt.hash else None


def read_prompt(record: RecordedRun, template: Template, ref: ReplyRef, chat: ChatTokenizer) -> Prompt | None:
    """Return the prompt of a reply with the tokens in which its messages were read, where those differ from the text's.

    Args:
        template: of the cell's prompt.

    Returns:
        None if the text differs from the record.
    """
    cell, matrix = record.get_cell(ref), record.step(ref).matrix
    heard = [matrix[other] for other in cell.heard]
    prompt = rebuild_prompt(cell, heard, record.prefix(cell.prompt.prefix), template, matrix.rounds)
    if prompt is None:
        return None
    pieces = chat.prompt_ids(prompt).pieces[1:-1]
    return replace(
        prompt, segments=tuple(_build_segment(*one, chat) for one in zip(prompt.segments, pieces, strict=True))
    )


def get_known_tokens(cell: Utterance, chat: ChatTokenizer) -> tuple[int, ...] | None:
    """Return the tokens in which a reply was sampled; None if unknown, or of another tokenizer."""
    return (cell.tokens or None) if cell.tokenizer == chat.fingerprint else None


# ------------------------------------------------------------------------------------------------------ inside


def _build_provenance(target: Target, trajectory: Trajectory, step: Step) -> Provenance:
    return Provenance.of_step(
        trajectory,
        step=step.index,
        screen=step.observation.digest,
        teacher=target.teacher,
        teacher_prompt=target.asked,
    )


def _get_sampled(cell: Utterance, chat: ChatTokenizer) -> Sampled | None:
    """Return the sampled tokens of a reply; None if unknown, or equal to those of its text."""
    known = get_known_tokens(cell, chat)
    if known is None or known == chat.encode(cell.text):
        return None
    return Sampled(tokens=known, tokenizer=chat.fingerprint)


def _build_segment(said: Segment, read: tuple[int, ...], chat: ChatTokenizer) -> Segment:
    if read == chat.encode(said.text):
        return Segment(text=said.text)
    return Segment(text=said.text, tokens=read, tokenizer=chat.fingerprint)


# ------------------------------------------------------------------------------------------------------ on disk


@dataclass(slots=True, kw_only=True)
class Examples:
    """Examples of a rollout by policy, and counts of replies that gave none."""

    rows: dict[str, list[Example]]
    refused: dict[str, Counter[str]]
    retokenised: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, config: TrainingConfig) -> Self:
        """Return a set without any example, for each policy of a team."""
        groups = list(config.groups)
        return cls(rows={group: [] for group in groups}, refused={group: Counter() for group in groups})

    def add(self, group: str, builder: ExampleBuilder, target: Target) -> bool:
        """Add a reply to the examples of a policy, or count why not; returns whether it was added."""
        row, again = builder.build(target)
        self.retokenised[group] += again
        if isinstance(row, Example):
            self.rows[group].append(row)
            return True
        self.refused[group][row] += 1
        return False

    def count_group(self, group: str, older: Sequence[Example] = ()) -> ExampleCounts:
        """Return the counts of a policy, with older examples."""
        rows = [*self.rows[group], *older]
        return ExampleCounts(
            examples=len(self.rows[group]),
            written=len(self.rows[group]),
            older=len(older),
            refused=dict(self.refused[group]),
            repeated=len(rows) - len({row.id for row in rows}),
            retokenised=self.retokenised[group],
            digest=hash_examples(rows),
        )


def get_examples_file(folder: TrainingDir, number: int, group: str, file: str) -> Path:
    """Return the file of a policy's examples of an epoch; it exists only if there are any."""
    return folder.get_epoch(number).examples / group / file


def store(
    made: Examples, folder: TrainingDir, number: int, *, file: str, older: Mapping[str, Sequence[Example]] | None = None
) -> dict[str, ExampleCounts]:
    """Write an epoch's examples; the counts are written last.

    Args:
        file: name of the file in each policy's folder, as `collab.data.tokenize` reads it.
        older: by policy, examples of older epochs that are mixed in; None for none.

    Raises:
        StoreFailure: the disk is full or permissions are missing.
    """
    epoch, counts = folder.get_epoch(number), {}
    for group, rows in made.rows.items():
        mixed = (older or {}).get(group, ())
        _write(get_examples_file(folder, number, group, file), rows, folder.resume)
        _write(epoch.examples / group / OLDER, mixed, folder.resume)
        counts[group] = made.count_group(group, mixed)
    write_counts(folder, number, counts)
    return counts


def write_counts(folder: TrainingDir, number: int, counts: Mapping[str, ExampleCounts]) -> None:
    """Write the counts of an epoch's examples, after the examples themselves; StoreFailure if the disk is full."""
    examples = folder.get_epoch(number).examples
    with report_write_errors(examples, folder.resume):
        examples.mkdir(parents=True, exist_ok=True)
        write_json(examples / COUNTS, {group: one.model_dump() for group, one in counts.items()})


def read_counts(examples: Path, model: type[CountsT]) -> dict[str, CountsT] | None:
    """Return the counts of examples that were written completely; None if they were not.

    Args:
        model: the algorithm's type of counts.

    Raises:
        RunFormatError: they are spoilt.
    """
    path = examples / COUNTS
    if not path.exists():
        return None
    try:
        content = json.loads(read_plain(path))
        return {group: validate(model, one, str(path)) for group, one in content.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; remove it, and the examples are made again") from None


def draw_older(
    config: TrainingConfig,
    folder: TrainingDir,
    number: int,
    group: str,
    *,
    file: str,
    share: float,
    own: int,
    purpose: str,
) -> list[Example]:
    """Draw examples of older epochs, those of the original training included; return them in their order.

    Args:
        share: of older examples among all that are learned, as far as there are enough.
        own: number of examples of this epoch.
        purpose: of the draw, for its seed.

    Raises:
        RunFormatError: examples of older epochs, or the original training, are gone.
    """
    wanted = round(share / (1 - share) * own)
    if not wanted:
        return []
    epochs = [*_list_rehearsed(config), *((folder, one) for one in range(1, number))]
    there = [row for training, one in epochs for row in _read_examples(training, one, group, file)]
    rng = generator(derive(config.run.seed, purpose, number, group))
    return [there[place] for place in sorted(rng.sample(range(len(there)), min(wanted, len(there))))]


# ------------------------------------------------------------------------------------------------------ inside


def _list_rehearsed(config: TrainingConfig) -> list[tuple[TrainingDir, int]]:
    """List the epochs of the training that the team comes from; RunFormatError if that training is gone."""
    if config.origin is None:
        return []
    folder = TrainingDir(Path(config.origin.run))
    if not folder.file.is_file():
        raise RunFormatError(f"{folder.path}: the training with the examples to mix in is missing; put it back")
    return [(folder, number) for number in range(1, config.origin.epoch + 1)]


def _read_examples(folder: TrainingDir, number: int, group: str, name: str) -> Iterator[Example]:
    """Yield a policy's examples of an epoch; RunFormatError if they are gone."""
    file, counts = get_examples_file(folder, number, group, name), _read_written(folder.get_epoch(number).examples)
    if file.exists():
        yield from read_rows(file)
    elif counts.get(group, 1):
        raise RunFormatError(
            f"{file}: the examples to mix in are missing; put them back, or train without older examples"
        )


def _read_written(examples: Path) -> dict[str, int]:
    """Return the number of written examples of each policy, whatever else its algorithm counts."""
    path = examples / COUNTS
    try:
        return {group: int(one["written"]) for group, one in json.loads(read_plain(path)).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; put it back, or train without older examples") from None


def _write(path: Path, rows: Sequence[Example], next_move: str) -> None:
    """Write a file of rows; none if there are none."""
    with report_write_errors(path.parent, next_move):
        path.unlink(missing_ok=True)
        if rows:
            _write_all(path, rows)


def _write_all(path: Path, rows: Sequence[Example]) -> None:
    """Write rows; raises a plain OSError, because the writer's own advice is for a synthesis."""
    try:
        with ExampleWriter(path, sampled=True) as out:
            for row in rows:
                out.add(row)
    except StoreFailure as failure:
        raise failure.__cause__ or failure from None
