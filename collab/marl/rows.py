"""Pairs of a rollout as preference rows: the chosen cell's own prompt, in the pieces in which a policy reads it.

    made = rows_of(stored.pairs, told, chats)
    made.rows["shared"], made.counts["shared"]

What a cell read is stored as text. Its pieces, in which it is tokenised, are made again from the messages that it
heard, and a pair is refused unless they are the stored prompt byte for byte, by its hash. Rows stand in the order of
the pairs: by task, episode, step, agent and round, and older epochs before newer ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collab.config import RunConfig, validate
from collab.errors import RunFormatError
from collab.learn.folder import write_json
from collab.marl.config import MarlConfig
from collab.marl.layout import MarlFolder
from collab.marl.summary import RowCounts
from collab.models.chat import ChatTokenizer
from collab.prompts.render import Template, prefix_hash
from collab.seeds import derive, generator
from collab.store.files import writing
from collab.synth.rows import Provenance, Row
from collab.synth.table import RowWriter, read_rows
from collab.types import PreferencePair, Prompt, PromptRef, ReplyRef, Step, Trajectory, Utterance

OWN, OLDER, COUNTS = "preference.parquet", "older.parquet", "rows.json"
"""Files of a policy's rows: of this epoch, mixed in; and of all policies what was counted."""

WHOLE = "compares whole trajectories"
OTHER_PROMPT = "its prompt cannot be made again exactly"
EMPTY = "a side says nothing"
RETOKENISED = "has other tokens now than were sampled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Where what was said is looked up."""

    run: RunConfig
    trajectories: Mapping[str, Trajectory]
    """By id."""
    prefix: Callable[[str], str]
    """Stored text of a prompt's shared part by its hash (`RunReader.prefix`)."""

    def step(self, ref: ReplyRef) -> Step:
        """The step in which something was said."""
        return next(step for step in self.trajectories[ref.trajectory].steps if step.index == ref.step)

    def cell(self, ref: ReplyRef) -> Utterance:
        """What was said there."""
        return self.step(ref).matrix[ref.cell]


@dataclass(slots=True, kw_only=True)
class Made:
    """Rows by policy, and what there is none of."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    refused: dict[str, Counter[str]] = field(default_factory=dict)
    retokenised: Counter[str] = field(default_factory=Counter)

    def counts(self, group: str, older: int) -> RowCounts:
        """In the form of the record."""
        return RowCounts(
            pairs=len(self.rows[group]),
            older=older,
            refused=dict(self.refused[group]),
            retokenised=self.retokenised[group],
        )


def rows_of(
    pairs: Sequence[PreferencePair], record: Record, chats: Mapping[str, ChatTokenizer], config: MarlConfig
) -> Made:
    """Rows of the pairs of one rollout, for the policies that said their chosen sides.

    Args:
        chats: slot → tokenizer of its policy.
    """
    made = Made()
    group_of = {slot: group for group, slots in config.groups.items() for slot in slots}
    templates = {name: Template(name, texts) for name, texts in record.run.prompts.items()}
    for group in config.groups:
        made.rows[group], made.refused[group] = [], Counter()
    for pair in pairs:
        slot = pair.chosen[0].cell.agent
        row, retokenised = _row(pair, record, templates[record.run.agents[slot].prompt], chats[slot])
        made.retokenised[group_of[slot]] += retokenised
        if retokenised and config.method.retokenised == "refuse":
            row = RETOKENISED
        if isinstance(row, Row):
            made.rows[group_of[slot]].append(row)
        else:
            made.refused[group_of[slot]][row] += 1
    return made


def prompt_of(
    cell: Utterance, heard: Sequence[Utterance], prefix: str, template: Template, rounds: int
) -> Prompt | None:
    """What a cell read, in its pieces, messages in the tokens they were sampled in; None where it is another text.

    Args:
        heard: what the cell heard, in conversation order.
        prefix: stored text of its shared part.
        rounds: of the conversation.
    """
    system, _, shared = prefix.partition("\f")
    segments = template.segments(cell.agent, cell.round, rounds, heard)
    prompt = Prompt(system=system, shared=shared, segments=segments, layout=cell.prompt.layout)
    again = PromptRef(prefix=prefix_hash(system, shared), suffix=prompt.suffix, layout=prompt.layout)
    return prompt if again.hash == cell.prompt.hash else None


def is_retokenised(cell: Utterance, prompt: Prompt, chat: ChatTokenizer) -> bool:
    """Whether a reply, or a message in its prompt, has other tokens as text than those in which it was sampled.

    A reply of which no tokens are known, or those of another tokenizer, counts as such.
    """
    sampled = cell.tokens if cell.tokenizer == chat.fingerprint else None
    return chat.encode(cell.text) != sampled or chat.prompt_ids(prompt).ids != chat.prompt_ids(_plain(prompt)).ids


def store(made: Made, config: MarlConfig, folder: MarlFolder, number: int) -> dict[str, RowCounts]:
    """Write an epoch's rows, with those of older epochs that are drawn for it; the counts are written last.

    Raises:
        StoreFailure: the disk is full or the rights are missing.
    """
    epoch = folder.epoch(number)
    counts = {}
    for group, rows in made.rows.items():
        older = _older(config, folder, number, group, len(rows))
        _write(epoch.rows / group / OWN, rows)
        _write(epoch.rows / group / OLDER, older)
        counts[group] = made.counts(group, len(older))
    with writing(epoch.rows, folder.resume):
        epoch.rows.mkdir(parents=True, exist_ok=True)
        write_json(epoch.rows / COUNTS, {group: one.model_dump() for group, one in counts.items()})
    return counts


def stored(rows: Path) -> dict[str, RowCounts] | None:
    """The counts of rows that were written whole; None where they were not. RunFormatError when they are spoilt."""
    path = rows / COUNTS
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {group: validate(RowCounts, one, str(path)) for group, one in content.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; remove it, and the rows are made again") from None


# ------------------------------------------------------------------------------------------------------ inside


def _row(pair: PreferencePair, record: Record, template: Template, chat: ChatTokenizer) -> tuple[Row | str, bool]:
    """A row, or why there is none; and whether it has other tokens than were sampled."""
    if len(pair.chosen) != 1:
        return WHOLE, False
    ref = pair.chosen[0]
    cell, step, trajectory = record.cell(ref), record.step(ref), record.trajectories[ref.trajectory]
    heard = [step.matrix[other] for other in cell.heard]
    prompt = prompt_of(cell, heard, record.prefix(cell.prompt.prefix), template, step.matrix.rounds)
    if prompt is None:
        return OTHER_PROMPT, False
    rejected = pair.synthetic if pair.synthetic is not None else record.cell(pair.rejected[0]).text
    if not cell.text or not rejected:
        return EMPTY, False
    row = Row(
        level="preference",
        kind=pair.source,
        prompt=_plain(prompt),
        reply=cell.text,
        rejected=rejected,
        action_type=cell.action.type if cell.action is not None else None,
        provenance=_provenance(pair, trajectory, step),
    )
    return row, is_retokenised(cell, prompt, chat)


def _provenance(pair: PreferencePair, trajectory: Trajectory, step: Step) -> Provenance:
    return Provenance(
        environment=trajectory.environment,
        environment_version=trajectory.environment_version,
        task=trajectory.task.name,
        seed=trajectory.task.seed,
        step=step.index,
        screen=step.observation.digest,
        apps=trajectory.task.apps,
        teacher=pair.critic or "outcome",
        teacher_prompt=pair.calls[0] if pair.calls else None,
    )


def _plain(prompt: Prompt) -> Prompt:
    """Without the tokens in which messages were sampled: a row holds texts."""
    segments = tuple(replace(segment, tokens=None, tokenizer=None) for segment in prompt.segments)
    return replace(prompt, segments=segments)


def _older(config: MarlConfig, folder: MarlFolder, number: int, group: str, own: int) -> list[Row]:
    """Rows of older epochs that are drawn for this one, in their order."""
    share = config.method.older
    wanted = round(share / (1 - share) * own)
    if not wanted:
        return []
    files = [folder.epoch(one).rows / group / OWN for one in range(1, number)]
    there = [row for file in files if file.exists() for row in read_rows(file)]
    rng = generator(derive(config.run.seed, "older pairs", number, group))
    return [there[place] for place in sorted(rng.sample(range(len(there)), min(wanted, len(there))))]


def _write(path: Path, rows: Sequence[Row]) -> None:
    """A file of rows; none where there are none."""
    path.unlink(missing_ok=True)
    if rows:
        with RowWriter(path) as out:
            for row in rows:
                out.add(row)
