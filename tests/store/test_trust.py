"""An index that leads elsewhere, or to something else, is not believed: the log of the run is."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from collab.errors import RunFormatError
from collab.store import index as trust
from collab.store import tables
from collab.store.index import FILE, Index
from collab.store.log import Place, read
from collab.store.run import RunStore


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """What waits for a pipe is ended, and the test with it."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def played(store: RunStore, make: SimpleNamespace) -> RunStore:
    """Two episodes, the first of them begun twice, with texts."""
    with store.open_writer() as writer:
        make.begin(writer, "A/0")
        writer.step("A/0", make.step(0))
    with store.open_writer() as writer:
        make.play(writer, "A/0", 3)
        make.play(writer, "B/0", 3)
        writer.store_text("ab" * 32, "the beginning of prompts")
        writer.store_text("cd" * 32, "another")
    return store


def change(store: RunStore, sql: str, *values: object) -> None:
    connection = sqlite3.connect(store.path / FILE)
    assert connection.execute(sql, values).rowcount >= 1
    connection.commit()
    connection.close()


def believed(store: RunStore) -> bool:
    """Whether a reader starts from the run's own index."""
    change(store, "UPDATE episodes SET reason = 'told by the index'")
    index = Index.load(store.path)
    found = index.connection.execute("SELECT DISTINCT reason FROM episodes").fetchall()
    index.close()
    return found == [("told by the index",)]


def test_every_place_in_the_tables_is_looked_at() -> None:
    named = re.findall(r"CREATE TABLE (\w+) \((.*?)\n?\)(?: WITHOUT ROWID)?;", tables.SCHEMA, re.S)
    places = {(table, to) for table, columns in named for to in re.findall(r"(\w*)segment TEXT, \1offset", columns)}
    assert places == set(trust.PLACES)


def test_what_the_writer_kept_is_believed(played: RunStore) -> None:
    assert believed(played)


@pytest.mark.parametrize(("table", "to"), trust.PLACES)
@pytest.mark.parametrize(
    "place",
    [
        ("../../other/events/0001-ab.jsonl", 0, 10),
        ("/dev/zero", 0, 10**12),
        (None, 0, 10),
        (b"0001-ab.jsonl", 0, 10),
        (1, -1, 10),
        (1, 0, 0),
        (1, 0, -1),
        (1, 0, 10**12),
        (1, 2**63 - 1, 2**63 - 1),
        (1, "0", "x"),
    ],
    ids=repr,
)
def test_a_place_that_is_not_in_the_log_spoils_the_index(
    played: RunStore, table: str, to: str, place: tuple[object, object, object]
) -> None:
    segment, *numbers = place
    if segment is None and to == "end_":
        return  # an episode that has not ended
    name = sorted(path.name for path in (played.path / "events").iterdir())[1] if segment == 1 else segment
    where = "rowid = 1" if table == "events" else f"{to}length = (SELECT max({to}length) FROM {table})"
    sql = f"UPDATE {table} SET {to}segment = ?, {to}offset = ?, {to}length = ? WHERE {where}"
    change(played, sql, name, *numbers)
    assert not believed(played)


@pytest.mark.parametrize("row", [("../run.json", 0, 0), ("0009-ab.jsonl", 0, 0), ("0001-ab.jsonl", "x", 0)], ids=repr)
def test_a_segment_that_the_log_does_not_have_spoils_the_index(played: RunStore, row: tuple[object, ...]) -> None:
    change(played, "INSERT INTO segments VALUES (?, ?, ?)", *row)
    assert not believed(played)


def test_nothing_of_another_run_is_shown(played: RunStore, make: SimpleNamespace, tmp_path: Path) -> None:
    other = RunStore.create(tmp_path / "other", make.manifest())
    with other.open_writer() as writer:
        make.play(writer, "A/0", [make.step(0, screen=make.screen("Secret"))])
    (segment,) = (other.path / "events").iterdir()
    with other.open_reader() as reader:
        ((offset, length),) = reader.query("SELECT offset, length FROM steps")
    for name in (str(segment), f"../../other/events/{segment.name}"):
        change(played, "UPDATE steps SET segment = ?, offset = ?, length = ? WHERE step = 0", name, offset, length)
        with pytest.raises(OSError, match="no segment of a log"):
            read(played.path, Place(name, offset, length))
        with played.open_reader() as reader:
            assert reader.step("A/0", 0) == make.step(0)


SWAPS = {
    "another step": ("steps", "", "step = 0", "step = 2"),
    "a step of another episode": ("steps", "", "key = 1", "key = 2"),
    "the start of another episode": ("episodes", "start_", "trajectory = 'A/0'", "trajectory = 'B/0'"),
    "the end of another episode": ("episodes", "end_", "trajectory = 'A/0'", "trajectory = 'B/0'"),
    "another text": ("texts", "", "hash LIKE 'ab%'", "hash LIKE 'cd%'"),
}


@pytest.mark.parametrize("swap", SWAPS)
def test_what_stands_at_a_wrong_place_in_the_log_is_not_shown(played: RunStore, swap: str) -> None:
    expected = everything(played)
    table, to, at, source = SWAPS[swap]
    columns = ", ".join(f"{to}{one}" for one in ("segment", "offset", "length"))
    change(played, f"UPDATE {table} SET ({columns}) = (SELECT {columns} FROM {table} WHERE {source}) WHERE {at}")
    assert believed(played), "its places are in the log"
    assert everything(played) == expected


def test_a_step_of_an_attempt_that_no_longer_counts_is_not_shown(played: RunStore, make: SimpleNamespace) -> None:
    first = min((played.path / "events").iterdir())
    lines = first.read_bytes().splitlines(keepends=True)
    (number,) = [number for number, line in enumerate(lines) if b'"type":"step"' in line]
    place = (first.name, sum(map(len, lines[:number])), len(lines[number]))
    change(
        played,
        "UPDATE steps SET segment = ?, offset = ?, length = ? WHERE step = 0 AND key ="
        " (SELECT key FROM episodes WHERE trajectory = 'A/0')",
        *place,
    )
    reader = played.open_reader()
    before = reader.index
    assert reader.step("A/0", 0) == make.step(0)
    assert reader.index is not before, "it was indexed anew"
    reader.close()


def everything(store: RunStore) -> object:
    with store.open_reader() as reader:
        texts = [reader.read_prefix(one * 32) for one in ("ab", "cd")]
        steps = [reader.step(id, step) for id in ("A/0", "B/0") for step in range(3)]
        return [reader.read_trajectory("A/0"), reader.read_head("B/0"), texts, steps]


@pytest.mark.parametrize("what", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("how", ["pipe", "link"])
def test_sqlite_neither_waits_for_a_pipe_nor_follows_a_link(
    played: RunStore, tmp_path: Path, what: str, how: str
) -> None:
    beside = played.path / f"{FILE}{what}"
    (tmp_path / "elsewhere").write_bytes(b"junk" * 5000)
    os.mkfifo(beside) if how == "pipe" else beside.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFormatError, match=f"{FILE}{what}: is a {how}"):
        everything(played)
    assert not trust.is_plain(played.path, played.path / FILE)
    assert (tmp_path / "elsewhere").read_bytes() == b"junk" * 5000


def test_no_index_makes_a_reader_write_into_the_run(played: RunStore) -> None:
    connection = sqlite3.connect(played.path / FILE)
    connection.execute("PRAGMA journal_mode = wal")
    connection.close()
    files = {path: path.stat().st_mtime_ns for path in played.path.rglob("*")}
    with played.open_reader() as reader:
        assert reader.read_trajectory("A/0").success
    assert {path: path.stat().st_mtime_ns for path in played.path.rglob("*")} == files


def test_a_view_without_end_is_not_asked(played: RunStore) -> None:
    path = played.path / FILE
    path.unlink()
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE VIEW segments AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
        f" WHERE x < 0; PRAGMA user_version = {tables.VERSION};"
    )
    connection.close()
    with played.open_reader() as reader:
        assert len(reader.list_episodes()) == 2


def test_an_index_that_is_a_link_is_not_believed(played: RunStore, tmp_path: Path) -> None:
    kept = Path(shutil.move(played.path / FILE, tmp_path / "kept"))
    (played.path / FILE).symlink_to(kept)
    assert not believed(played)
