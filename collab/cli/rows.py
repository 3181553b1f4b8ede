"""Rows for a training command: read, checked against what is kept for evaluation, tokenised, and told about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collab.cli.output import note
from collab.wording import amount

if TYPE_CHECKING:
    from collab.learn.data import Data
    from collab.learn.folder import RunFolder
    from collab.learn.prepare import Prepared, Task
    from collab.library import Library
    from collab.synth.rows import Level, Row


def prepared(task: Task, definitions: Library, allow_overlap: bool) -> Prepared:
    """Rows read, checked and tokenised; what is worth knowing about them is said."""
    from collab.learn.prepare import levels_of, prepare

    read = _of(task)
    rows = read.rows if read is not None else ()
    refuse_leaks(rows, definitions, allow_overlap)
    prepared = prepare(task, rows)
    tell(f"base: {prepared.base}")
    if prepared.base.chat.doubt is not None:
        tell(f"warning: {prepared.base.path}: {prepared.base.chat.doubt}")
    if read is not None:
        counts = ", ".join(f"{level} {count}" for level, count in read.levels.items())
        tell(f"data: {amount(len(rows), 'row')} ({counts}), {amount(read.repeated, 'repetition')} left out")
        tell_of(task.data, read)
        for absent in (level for level in levels_of(task) if level not in read.levels):
            tell(f"no rows of level {absent}")
    for level, count in prepared.encoded.dropped.items():
        tell(
            f"dropped: {amount(count, 'row')} of level {level} longer than context {task.recipe.context}; "
            f"the longest row has {prepared.encoded.longest} tokens"
        )
    return prepared


def as_before(folder: RunFolder, said: Sequence[str]) -> Prepared:
    """What a run was asked when it began.

    Raises:
        UsageError: options say something else, or base, data or order are no longer what they were.
    """
    from collab.errors import UsageError
    from collab.learn.finetune import check_same
    from collab.learn.prepare import prepare, task_of

    if said:
        raise UsageError(f"--resume goes on with the run as it is; leave out {', '.join(said)}")
    manifest = folder.manifest()
    if folder.final.is_dir():
        raise UsageError(f"{folder.path}: the run is done; its checkpoint is {folder.final}")
    task = task_of(manifest)
    read = _of(task)
    prepared = prepare(task, read.rows if read is not None else ())
    check_same(prepared, manifest)
    tell(f"base: {prepared.base}")
    if prepared.base.chat.doubt is not None:
        tell(f"warning: {prepared.base.path}: {prepared.base.chat.doubt}")
    checkpoint = folder.checkpoint()
    tell(f"resuming {folder.path} from {'its beginning' if checkpoint is None else checkpoint.name}")
    return prepared


def _of(task: Task) -> Data | None:
    """Rows of the task's levels; None for a stage that makes its own."""
    from collab.learn.prepare import levels_of

    return read_rows(task.data, levels_of(task), max_broken=task.max_broken) if task.data else None


def read_rows(folders: Sequence[str], levels: Sequence[Level], *, max_broken: int = 0) -> Data:
    """Rows of some levels from directories as they were named; see `collab.learn.data.read_data`."""
    from collab.learn.data import read_data

    return read_data([Path(folder).expanduser() for folder in folders], levels, max_broken=max_broken)


def refuse_leaks(rows: Sequence[Row], definitions: Library, allowed: bool) -> None:
    """Refuse rows that are kept for evaluation; say what could not be compared, and what overlaps and is allowed to.

    Raises:
        OverlapError: there are some, and that was not allowed.
    """
    from collab.synthesis.leaks import check_rows, undefined

    for name in undefined(rows, definitions):
        tell(f"rows of {name}: not checked against evaluation splits, no environment of that name is defined here")
    for found in asyncio.run(check_rows(rows, definitions, allow_overlap=allowed)):
        tell(str(found))


def tell_of(folders: Sequence[str], data: Data) -> None:
    """Say what data lacks: units of work that broke when it was made, and rows that were left out now."""
    from collab.synth.finish import missing

    for line in filter(None, (missing(Path(folder).expanduser()) for folder in folders)):
        tell(line)
    for field, count in data.broken.items():
        tell(f"left out: {count} broken rows, {field}")


def tell(text: str) -> None:
    """One line on stderr, of the first process alone."""
    from collab.learn.prepare import world

    if world()[0] == 0:
        note(text)
