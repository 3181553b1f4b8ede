"""Rows for a training command: read, checked against what is kept for evaluation, tokenised, and told about."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collab.cli.output import note

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
    if read is not None:
        counts = ", ".join(f"{level} {count}" for level, count in read.levels.items())
        tell(f"data: {len(rows)} rows ({counts}), {read.repeated} repetitions left out")
        for field, count in read.broken.items():
            tell(f"left out: {count} broken rows, {field}")
        for absent in (level for level in levels_of(task) if level not in read.levels):
            tell(f"no rows of level {absent}")
    for level, count in prepared.encoded.dropped.items():
        tell(
            f"dropped: {count} rows of level {level} are longer than context {task.recipe.context}; "
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
    checkpoint = folder.checkpoint()
    tell(f"resuming {folder.path} from {'its beginning' if checkpoint is None else checkpoint.name}")
    return prepared


def _of(task: Task) -> Data | None:
    """Rows of the task's levels; None for a stage that makes its own."""
    from collab.learn.prepare import levels_of

    return read(task.data, levels_of(task), max_broken=task.max_broken) if task.data else None


def read(folders: Sequence[str], levels: Sequence[Level], *, max_broken: int = 0) -> Data:
    """Rows of some levels from directories as they were named; see `collab.learn.data.read_data`."""
    from collab.learn.data import read_data

    return read_data([Path(folder).expanduser() for folder in folders], levels, max_broken=max_broken)


def refuse_leaks(rows: Sequence[Row], definitions: Library, allowed: bool) -> None:
    """Refuse rows that are kept for evaluation in the environment that they come from.

    One that is not defined here has no splits to compare with, which is said by name; `collab synth` compared its rows
    when they were made.

    Raises:
        OverlapError: there are some, and that was not allowed.
    """
    from collab.config import load_environment
    from collab.resolve import splits_in
    from collab.splits.overlap import kept_by, refuse_overlap

    for name in sorted({row.provenance.environment.partition("[")[0] for row in rows}):
        if name not in definitions.names("envs"):
            tell(f"rows of {name}: not checked against evaluation splits, no environment of that name is defined here")
            continue
        splits = asyncio.run(splits_in(name, load_environment(definitions, name)))
        mine = (row.instance for row in rows if row.provenance.environment.partition("[")[0] == name)
        found = refuse_overlap(mine, kept_by(splits.values()), allow_overlap=allowed)
        if found.offenders:
            tell(str(found))


def tell(text: str) -> None:
    """One line on stderr, of the first process alone."""
    from collab.learn.prepare import world

    if world()[0] == 0:
        note(text)
