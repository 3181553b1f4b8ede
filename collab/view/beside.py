"""Judgements and pairs beside a run, found by step: where each stands in its file, and its scores.

    beside = Beside(reader)
    beside.refresh()
    beside.labellings()                                  # ["oracle", "log:oracle-1"]
    beside.judgement("oracle", "ContactsAddContact/0", 3)
    beside.pairs_of("ContactsAddContact/0", 3)

The files are read once, and what was appended since when asked again; what is kept is a few numbers per cell, in
temporary tables beside the run's index, so that both can be asked in one query. Judgements that stand in the run's own
log are labellings, too; their names begin with "log:".
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from collab.credit import pair_store
from collab.credit.critic import Judgement
from collab.credit.labels import FILE, FOLDER, labellings
from collab.errors import CollabError
from collab.store import log
from collab.store.files import read_json
from collab.store.log import Place
from collab.store.reader import RunReader
from collab.store.summary import Problem
from collab.types import PreferencePair

LOG = "log:"
"""Begins the names of labellings in the log."""

_SCHEMA = """
CREATE TEMP TABLE read_files (file TEXT PRIMARY KEY, consumed INTEGER, lines INTEGER);
CREATE TEMP TABLE unread (file TEXT, line INTEGER, reason TEXT);
CREATE TEMP TABLE judged (
    labels TEXT, trajectory TEXT, step INTEGER, segment TEXT, offset INTEGER, length INTEGER, failed TEXT,
    calls INTEGER, prompt_tokens INTEGER, completion_tokens INTEGER, cost_usd REAL,
    PRIMARY KEY (labels, trajectory, step)
) WITHOUT ROWID;
CREATE TEMP TABLE scores (
    labels TEXT, trajectory TEXT, step INTEGER, agent TEXT, round INTEGER, score REAL, missing TEXT,
    PRIMARY KEY (labels, trajectory, step, agent, round)
) WITHOUT ROWID;
CREATE TEMP TABLE pair_lines (pairs TEXT, id TEXT, source TEXT, offset INTEGER, length INTEGER);
CREATE INDEX pair_lines_by_id ON pair_lines (id);
CREATE TEMP TABLE sides (line INTEGER, trajectory TEXT, step INTEGER);
CREATE INDEX sides_of ON sides (trajectory, step);
CREATE TEMP VIEW scored AS
    SELECT labels, trajectory, step, agent, round, score, missing FROM scores
    UNION ALL SELECT 'log:' || maker, trajectory, step, agent, round, score, missing FROM main.rewards;
"""

_JUDGEMENT: TypeAdapter[Judgement] = TypeAdapter(Judgement)
_PAIR: TypeAdapter[PreferencePair] = TypeAdapter(PreferencePair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a labelling says about a step."""

    judgement: Judgement | None
    """None where nobody could be asked."""
    failed: str | None
    """Why not; None when there is a judgement."""


class Beside:
    """Of one run; safe to use from several threads."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._mutex = threading.RLock()
        self._at: sqlite3.Connection | None = None
        self._version = 0

    @property
    def version(self) -> int:
        """Changes when anything new was read."""
        return self._version

    def refresh(self) -> None:
        """Take in what is there now."""
        with self._mutex, self._reader.connection() as connection:
            if connection is not self._at:  # the index was built anew
                connection.commit()
                connection.execute("PRAGMA temp_store = MEMORY")
                connection.executescript(_SCHEMA)
                self._at = connection
            for name in labellings(self._reader.directory):
                self._read_labels(connection, name)
            for name in self._sets():
                self._read_pairs(connection, name)
            connection.commit()

    def labellings(self) -> list[str]:
        """Names of all labellings, those in the log last."""
        makers = self._reader.query("SELECT DISTINCT maker FROM labels ORDER BY maker")
        return [*labellings(self._reader.directory), *(f"{LOG}{maker}" for (maker,) in makers)]

    def pair_sets(self) -> list[str]:
        """Names of all stored sets of pairs, the one that was stored last at the end."""
        try:
            return pair_store.pair_names(self._reader.directory)
        except CollabError:
            return self._sets()

    def verdict(self, labels: str, trajectory: str, step: int) -> Verdict | None:
        """What a labelling says about a step; None when it says nothing."""
        if labels.startswith(LOG):
            return self._from_log(labels.removeprefix(LOG), trajectory, step)
        rows = self._reader.query(
            "SELECT segment, offset, length, failed FROM judged WHERE labels = ? AND trajectory = ? AND step = ?",
            *(labels, trajectory, step),
        )
        if not rows:
            return None
        segment, offset, length, failed = rows[0]
        if failed is not None:
            return Verdict(judgement=None, failed=failed)
        try:
            content = from_json(log.read(self._folder(labels), Place(segment, offset, length)))
            return Verdict(judgement=_JUDGEMENT.validate_python(_untyped(content)), failed=None)
        except (OSError, ValueError) as error:
            return Verdict(judgement=None, failed=f"its judgement cannot be read: {_line(error)}")

    def pairs_of(self, trajectory: str, step: int) -> list[tuple[str, PreferencePair]]:
        """Pairs of which a side was said at a step, with the name of their set; what cannot be read is left out."""
        rows = self._reader.query(
            "SELECT pairs, offset, length FROM pair_lines WHERE rowid IN"
            " (SELECT line FROM sides WHERE trajectory = ? AND step = ?) ORDER BY rowid",
            *(trajectory, step),
        )
        stored = [(name, pair) for name, *place in rows for pair in self._pair(name, *place)]
        if not self._reader.query("SELECT 1 FROM pairs WHERE trajectory = ? LIMIT 1", trajectory):
            return stored
        logged = [(f"{LOG}{label.maker}", pair) for label in self._reader.labels(trajectory) for pair in label.pairs]
        return stored + [one for one in logged if (trajectory, step) in _where(one[1])]

    def critic(self, labels: str) -> str | None:
        """Who judges in a labelling; None where that cannot be read."""
        try:
            return str(read_json(self._folder(labels) / FILE, labels)["critic"])
        except (CollabError, LookupError, TypeError):
            return None

    def problems(self) -> list[Problem]:
        """Lines that cannot be read."""
        rows = self._reader.query("SELECT file, line, reason FROM unread ORDER BY file, line")
        return [Problem(file=file, line=line, reason=reason) for file, line, reason in rows]

    # -------------------------------------------------------------------------------------------------- inside

    def _folder(self, labels: str) -> Path:
        return self._reader.directory / FOLDER / labels

    def _sets(self) -> list[str]:
        folder = self._reader.directory / pair_store.FOLDER
        return sorted(path.parent.name for path in folder.glob(f"[!.]*/{pair_store.HEAD}"))

    def _read_labels(self, connection: sqlite3.Connection, name: str) -> None:
        folder = self._folder(name)
        for segment in log.segments(folder):
            file = f"{FOLDER}/{name}/{log.FOLDER}/{segment}"
            consumed, lines = self._known(connection, file)
            for line in log.scan(folder, segment, consumed, lines):
                try:
                    _add_label(connection, name, from_json(line.content), line.place)
                except (ValueError, LookupError, TypeError, sqlite3.Error) as error:
                    _unread(connection, file, line.number, error)
                consumed, lines = line.place.offset + line.place.length, line.number
            self._know(connection, file, consumed, lines)

    def _read_pairs(self, connection: sqlite3.Connection, name: str) -> None:
        """A set never changes once it is there."""
        file = f"{pair_store.FOLDER}/{name}/{pair_store.FILE}"
        if self._known(connection, file) != (0, 0):
            return
        offset = number = 0
        try:
            with (self._reader.directory / file).open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    try:
                        _add_pair(connection, name, from_json(line), offset, len(line))
                    except (ValueError, LookupError, TypeError, sqlite3.Error) as error:
                        _unread(connection, file, number, error)
                    offset += len(line)
        except OSError as error:
            _unread(connection, file, None, error)
        self._know(connection, file, offset, max(number, 1))

    def _known(self, connection: sqlite3.Connection, file: str) -> tuple[int, int]:
        rows = connection.execute("SELECT consumed, lines FROM read_files WHERE file = ?", (file,)).fetchall()
        return rows[0] if rows else (0, 0)

    def _know(self, connection: sqlite3.Connection, file: str, consumed: int, lines: int) -> None:
        if (consumed, lines) != self._known(connection, file):
            connection.execute("INSERT OR REPLACE INTO read_files VALUES (?, ?, ?)", (file, consumed, lines))
            self._version += 1

    def _from_log(self, maker: str, trajectory: str, step: int) -> Verdict | None:
        for label in self._reader.labels(trajectory):
            for rewards in label.rewards:
                if (label.maker, rewards.step) == (maker, step):
                    return Verdict(judgement=Judgement(case="", rewards=rewards), failed=None)
        return None

    def _pair(self, name: str, offset: int, length: int) -> Iterator[PreferencePair]:
        path = self._reader.directory / pair_store.FOLDER / name / pair_store.FILE
        try:
            with path.open("rb") as file:
                file.seek(offset)
                yield _PAIR.validate_python(from_json(file.read(length)))
        except (OSError, ValueError):
            return


def _where(pair: PreferencePair) -> set[tuple[str, int]]:
    return {(one.trajectory, one.step) for one in (*pair.chosen, *pair.rejected)}


def _add_label(connection: sqlite3.Connection, name: str, content: Any, place: Place) -> None:
    where = (place.segment, place.offset, place.length)
    if content["type"] == "failed":
        row = (name, content["trajectory"], content["step"], *where, f"{content['error']}: {content['message']}")
        connection.execute("INSERT OR IGNORE INTO judged VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0)", row)
        return
    rewards, calls = content["rewards"], content["calls"]
    key = (name, rewards["trajectory"], rewards["step"])
    spent = [sum(call.get(what) or 0 for call in calls) for what in ("prompt_tokens", "completion_tokens", "cost_usd")]
    row = (*key, *where, None, len(calls), *spent)
    connection.execute("INSERT OR REPLACE INTO judged VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.execute("DELETE FROM scores WHERE labels = ? AND trajectory = ? AND step = ?", key)
    connection.executemany(
        "INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*key, *one["cell"], one["score"], one["missing"]) for one in rewards["rewards"]],
    )


def _add_pair(connection: sqlite3.Connection, name: str, content: Any, offset: int, length: int) -> None:
    row = (name, content["id"], content["source"], offset, length)
    sides = {(one["trajectory"], one["step"]) for side in ("chosen", "rejected") for one in content[side]}
    line = connection.execute("INSERT INTO pair_lines VALUES (?, ?, ?, ?, ?)", row).lastrowid
    connection.executemany("INSERT INTO sides VALUES (?, ?, ?)", [(line, *side) for side in sorted(sides)])


def _unread(connection: sqlite3.Connection, file: str, line: int | None, error: Exception) -> None:
    connection.execute("INSERT INTO unread VALUES (?, ?, ?)", (file, line, _line(error)))


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _untyped(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != "type"}
