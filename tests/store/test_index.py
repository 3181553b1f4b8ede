from __future__ import annotations

import shutil
import sqlite3
from types import SimpleNamespace

import pytest

from collab.store.index import Index, remove
from collab.store.run import RunStore
from collab.types import EpisodeError

TABLES = ("segments", "problems", "events", "texts", "episodes", "steps", "cells", "plays")


def dump(store: RunStore, *, trust: bool = True) -> dict[str, list[tuple[object, ...]]]:
    index = Index.load(store.path, trust=trust)
    rows = {name: sorted(index.connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in TABLES}
    index.close()
    keys = {row[0]: row[1] for row in rows["episodes"]}
    for name in ("steps", "cells"):  # keys are numbers given in order of arrival
        rows[name] = sorted(((keys[row[0]], *row[1:]) for row in rows[name]), key=repr)
    rows["episodes"] = sorted((row[1:] for row in rows["episodes"]), key=repr)
    return rows


def fill(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 3)
        writer.store_text("ab" * 32, "a text with a lone \ud800")
        make.begin(writer, "A/1")
        writer.step("A/1", make.step(0))
        writer.end_episode("A/1", error=EpisodeError(type="ModelFailure", message="\udcff", step=1))
        make.begin(writer, "B/0")
        writer.step("B/0", make.step(0))
        writer.step("B/0", make.step(1))
    with store.open_writer() as writer:
        make.play(writer, "A/1", 2)
        writer.resume_episode("B/0", 1)
        writer.step("B/0", make.step(1))
        writer.note("hello")
        writer.finish()


def test_what_the_writer_kept_is_what_the_log_says(store: RunStore, make: SimpleNamespace) -> None:
    fill(store, make)
    kept = dump(store)
    assert kept == dump(store, trust=False)
    remove(store.path)
    assert dump(store) == kept


def test_a_play_lasts_from_a_start_or_resumption_to_the_end_or_the_next_play(
    store: RunStore, make: SimpleNamespace
) -> None:
    with store.open_writer() as writer:
        make.begin(writer, "A/0", worker="worker 1")
        writer.step("A/0", make.step(0))
        writer.step("A/0", make.step(1))
        writer.interrupt_episode("A/0", "gone")
        writer.resume_episode("A/0", 1, worker="worker 2")
        writer.end_episode("A/0", error=EpisodeError(type="ModelFailure", message="", step=1))
        make.begin(writer, "A/0", worker="worker 3")
    with store.open_reader() as reader:
        plays = reader.query("SELECT number, attempt, step, worker, steps, state FROM plays ORDER BY number")
    assert plays == [
        (0, 0, 0, "worker 1", 2, "unfinished"),
        (1, 0, 1, "worker 2", 0, "failed"),
        (2, 1, 0, "worker 3", 0, "unfinished"),
    ]


def test_the_kept_index_is_whole_after_close(store: RunStore, make: SimpleNamespace) -> None:
    """A reader of a finished run has nothing left to read from the log."""
    fill(store, make)
    with sqlite3.connect(store.path / "index.sqlite") as connection:
        consumed = dict(connection.execute("SELECT name, consumed FROM segments"))
    assert consumed == {path.name: path.stat().st_size for path in (store.path / "events").iterdir()}


def test_an_index_that_lags_behind_is_caught_up(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 3)
    early = (store.path / "index.sqlite").read_bytes()
    with store.open_writer() as writer:
        make.play(writer, "A/1", 2)
    late = dump(store)
    (store.path / "index.sqlite").write_bytes(early)
    assert dump(store) == late


@pytest.mark.parametrize("what", ["missing", "empty", "junk", "half", "version", "ahead", "journal", "foreign"])
def test_an_index_that_does_not_fit_is_built_anew(store: RunStore, make: SimpleNamespace, what: str) -> None:
    fill(store, make)
    expected = dump(store)
    path = store.path / "index.sqlite"
    content = path.read_bytes()
    match what:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "junk":
            path.write_bytes(b"junk" * 5000)
        case "half":
            path.write_bytes(content[: len(content) // 2])
        case "version":
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA user_version = 99")
        case "ahead":
            with sqlite3.connect(path) as connection:
                connection.execute("UPDATE segments SET consumed = consumed + 1")
        case "journal":
            (store.path / "index.sqlite-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + b"\0" * 600)
        case "foreign":
            path.unlink()
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE other (x)")
    assert dump(store) == expected
    with store.open_writer() as writer:
        writer.note("and a writer mends it")
    assert dump(store) == dump(store, trust=False)


def test_a_run_whose_index_cannot_be_kept_is_whole(
    store: RunStore, make: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    (store.path / "index.sqlite").mkdir()
    with pytest.raises(Exception, match="cannot write"):
        store.open_writer()
    shutil.rmtree(store.path / "index.sqlite")
    with store.open_writer() as writer:
        make.begin(writer, "A/0")
        writer.step("A/0", make.step(0))
        assert writer._index is not None
        writer._index.connection.execute("DROP TABLE cells")  # as if the file had been spoilt
        writer.step("A/0", make.step(1))
        writer.step("A/0", make.step(2))
    assert "the index cannot be kept" in caplog.text
    assert not (store.path / "index.sqlite").exists()
    assert len(store.open_reader().list_unfinished()[0].steps) == 3


def test_a_reader_in_the_way_delays_a_commit_and_loses_nothing(
    store: RunStore, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collab.store.index._COMMIT_S", 0.0)
    with store.open_writer() as writer:
        make.begin(writer, "A/0")
        slow = sqlite3.connect(store.path / "index.sqlite", isolation_level=None)
        slow.execute("BEGIN")
        slow.execute("SELECT * FROM segments").fetchone()
        writer.step("A/0", make.step(0))
        assert store.open_reader().list_episodes()[0].steps == 1
        slow.close()
        writer.step("A/0", make.step(1))
    assert dump(store) == dump(store, trust=False)


def test_questions_a_viewer_asks(store: RunStore, make: SimpleNamespace) -> None:
    fill(store, make)
    reader = store.open_reader()
    assert reader.query(
        "SELECT action, failure, ballot FROM cells JOIN episodes USING (key) WHERE step = 0 LIMIT 4"
    ) == [
        ("click [0]", None, 0),
        (None, "no_action", None),
        ("click [0]", None, 0),
        ("input_text text='hello' clear_text=True", None, 1),
    ]
    assert reader.query("SELECT agreement, abstained, ballots FROM steps LIMIT 1") == [(0.5, 1, 2)]
