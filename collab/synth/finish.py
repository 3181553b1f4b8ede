"""The end of a synthesis: journal → rows that are kept → one Parquet file per level, the card and the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from collab.errors import RunError
from collab.splits.split import Split
from collab.store.files import write_atomic, writing
from collab.store.manifest import now
from collab.synth.card import write_card
from collab.synth.journal import FILE, Head, read_head, read_records, resume_command, write_head
from collab.synth.plan import SynthConfig, Unit
from collab.synth.report import Made, Report, gather, most_refused, report
from collab.synth.rows import Row
from collab.synth.select import refuse_leaks, select
from collab.synth.table import RowWriter

CARD = "card.md"

_REPORT: TypeAdapter[Report] = TypeAdapter(Report)


def finish(
    directory: Path, head: Head, config: SynthConfig, units: Sequence[Unit], splits: Mapping[str, Split]
) -> Report:
    """Select, check and write what the journal holds; writing it again gives the same files.

    Where units broke, the tables hold the rows of the others; the card is written, and the manifest says that all is
    over, when none is broken any more.

    Raises:
        RunError: no row came out, because units broke.
        UsageError: no row came out, although none broke.
        OverlapError: a row holds what is kept for evaluation; no table is written.
        StoreFailure: the disk is full.
    """
    made = gather(read_records(directory))
    _check_something(directory, made)
    selection = select(made.rows(units), seed=config.seed, cap=config.at_most)
    refuse_leaks(selection.rows, splits.values())
    found = report(made, selection)
    files = _write_tables(directory, config, selection.rows)
    with writing(directory, _go_on(directory)):
        if found.broken:
            (directory / CARD).unlink(missing_ok=True)
        else:
            card = write_card(head, config, found, [name for name, split in splits.items() if not split.trains])
            write_atomic(directory / CARD, card.encode("utf-8", "replace"))
            files[CARD] = {"sha256": _sha256(directory / CARD)}
        over = None if found.broken else now()
        write_head(directory, replace(head, finished=over, files=files, report=asdict(found)))
    return found


def finished(directory: Path, head: Head) -> Report | None:
    """The report of a synthesis that is over; None while units are left or broken, or a file is not as it was."""
    if head.finished is None or head.report.get("broken"):
        return None
    for name, told in head.files.items():
        path = directory / name
        if not path.is_file() or _sha256(path) != told["sha256"]:
            return None
    return _REPORT.validate_python(head.report)


def missing(directory: Path) -> str | None:
    """What a set of rows still lacks, in one line; None where it is whole, or `collab synth` did not make it.

    Raises:
        RunFormatError: its manifest cannot be read by this version.
    """
    if not (directory / FILE).is_file():
        return None
    head = read_head(directory)
    broken = len(head.report.get("broken", ()))
    if broken:
        units = "1 unit is" if broken == 1 else f"{broken} units are"
        return f"{directory}: {units} missing; make the set whole with: {resume_command(directory)}"
    return f"{directory}: is not finished; {_go_on(directory)}" if head.finished is None else None


def _check_something(directory: Path, made: Made) -> None:
    if any(done.rows for done in made.units.values()):
        return
    if made.broken:
        last = list(made.broken.values())[-1]
        raise RunError(f"no row was made: {len(made.broken)} units broke, the last: {last}; {_go_on(directory)}")
    causes = most_refused(made.units.values())
    if causes:
        raise RunError(f"{directory}: no row was made; refused most often: {causes}; try another teacher")


def _write_tables(directory: Path, config: SynthConfig, rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """One file per level that has rows; those of an earlier end that has fewer levels are removed."""
    kept = list(rows)
    files: dict[str, dict[str, Any]] = {}
    for level in config.levels:
        path = directory / f"{level}.parquet"
        own = [row for row in kept if row.level == level]
        if not own:
            path.unlink(missing_ok=True)
            continue
        with RowWriter(path) as out:
            for row in own:
                out.add(row)
        files[path.name] = {"sha256": _sha256(path), "rows": len(own)}
    return files


def _go_on(directory: Path) -> str:
    return f"go on with: {resume_command(directory)}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
