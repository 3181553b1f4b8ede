"""The directory of a synthesis: its configuration and a log of every reply and finished unit.

    DIR/synth.json      what is made: configuration, versions, models; in the end also the files with their hashes
    DIR/events/*.jsonl  one line per reply of a teacher's model, and one per unit with its rows; they only ever grow
    DIR/lock            held by the one process that writes

A killed process loses only the calls in flight: unfinished units are made again from the logged replies. The store's
log ignores half a line at the end and hides secrets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from collab.data.example import Example
from collab.errors import RunFormatError, StoreFailure
from collab.store import log
from collab.store.manifest import collect_versions, format_now
from collab.store.run_dir import RunDir
from collab.synthesis.teacher import StoredInstruction
from collab.types import Usage
from collab.utils.files import report_write_errors
from collab.utils.redact import hide_values, list_secrets

FILE = "synth.json"
INSTRUCTIONS = "instructions.jsonl"
"""The instructions that can be played as tasks, a line each (`collab.synthesis.teacher.StoredInstruction`)."""

Counts = Mapping[str, Mapping[str, int]]
"""Level → cause → how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One reply of a teacher's model."""

    said: str
    """Which call it answers: SHA-256 of its prompt, seed and role."""
    text: str
    spent: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A unit that is over."""

    unit: str
    rows: tuple[Example, ...] = ()
    instructions: tuple[StoredInstruction, ...] = ()
    """Those of the rows that can be played as tasks."""
    refused: Counts = field(default_factory=dict)
    screens: int = 0
    """Scenes that were taught."""
    broken: str | None = None
    """Why the unit broke; None when it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`synth.json`: what a synthesis makes, and once it is over what it made."""

    config: Mapping[str, Any]
    environment: str
    """Label, as results are labelled."""
    environment_version: str
    model: Mapping[str, Any] = field(default_factory=dict)
    """The teacher's policy and capabilities; empty for the oracle."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Those of the model whose candidates are judged; empty without level judgement."""
    versions: Mapping[str, str] = field(default_factory=collect_versions)
    created: str = field(default_factory=format_now)
    finished: str | None = None
    """When tables and card were written; None while units are left or broken."""
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """File name → {"sha256", "rows"}; empty before every unit was tried."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """The numbers of the card (`collab.synthesis.card.SynthesisReport`); empty before every unit was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredQuestion:
    """Calls of one process without a complete answer."""

    lost: int
    """Number of these calls; their cost is unknown."""


Record: TypeAlias = Done | Said | UnansweredQuestion

_HEAD: TypeAdapter[Head] = TypeAdapter(Head)
_RECORDS: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (Done, Said, UnansweredQuestion)}


class SynthesisDir(RunDir):
    """A synthesis on disk."""

    HEAD, NOUN, FORMAT, COMMAND = FILE, "synthesis", 1, "collab synth --resume"

    def read_head(self) -> Head:
        """Read `synth.json`; RunFormatError when there is none or it cannot be read by this version."""
        return self.read_as(_HEAD)


def read_records(directory: Path) -> Iterator[Record]:
    """Yield all records, oldest first; shared prompt texts are kept once. RunFormatError for a damaged line."""
    known: dict[str, str] = {}
    for segment in log.list_segments(directory):
        for line in log.scan(directory, segment):
            try:
                yield _record(json.loads(line.content), known)
            except (ValueError, LookupError, TypeError) as error:
                reason = str(error).splitlines()[0]
                raise RunFormatError(
                    f"{directory}/{log.FOLDER}/{segment}:{line.number}: is spoilt ({reason}); remove that "
                    f"line, and what it held is made again by: {SynthesisDir(directory).resume}"
                ) from None


def _record(content: Any, known: dict[str, str]) -> Record:
    """Parse a line; equal beginnings of prompts share one string in memory."""
    if "said" in content:
        said: Said = _RECORDS[Said].validate_python(content)
        return said
    if "lost" in content:
        unanswered: UnansweredQuestion = _RECORDS[UnansweredQuestion].validate_python(content)
        return unanswered
    for prompt in (row["prompt"] for row in content["rows"]):
        for part in ("system", "shared"):
            prompt[part] = known.setdefault(prompt[part], prompt[part])
    done: Done = _RECORDS[Done].validate_python(content)
    return done


class Journal:
    """The only writer of a synthesis, from construction to `close`.

    Raises:
        UsageError: another process writes it.
        StoreFailure: from every method: the disk is full or the rights are missing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        folder = SynthesisDir(directory)
        self._next_move = folder.resume
        self._secrets = list_secrets()
        self._lock = folder.lock()
        try:
            with report_write_errors(directory, self._next_move):
                self._log = log.Appender(directory)
        except StoreFailure:
            self._lock.release()
            raise

    def record(self, record: Record) -> None:
        """Append one record: when this returns, no death of this process loses it."""
        content = _RECORDS[type(record)].dump_python(record, mode="json")
        text = json.dumps(hide_values(content, self._secrets), ensure_ascii=True, separators=(",", ":"))
        with report_write_errors(self.directory, self._next_move):
            self._log.append(text.encode() + b"\n")

    def close(self) -> None:
        """Bring everything to the disk and let others write."""
        try:
            with report_write_errors(self.directory, self._next_move):
                self._log.close()
        finally:
            self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
