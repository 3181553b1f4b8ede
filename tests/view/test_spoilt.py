"""A run that is spoilt, replaced or closed in the middle takes nothing else with it, and leads nowhere else."""

from __future__ import annotations

import json
import os
import queue
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collab.errors import RunFormatError, UnknownName
from collab.loop.record import TrainingDir
from collab.preferences.store import list_pair_sets, read_pairs
from collab.store import index
from collab.store.run_dir import LOCK, RunLock
from collab.utils.files import write_json
from collab.view import common, overview, readers
from collab.view.inspector import Inspector
from collab.view.labels import LabelSetIndex, PairSetIndex
from collab.view.readers import ReaderPool
from collab.view.runs import ListedRun
from collab.view.schema.episodes import EpisodeFilter


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    """A copy to be spoilt."""
    return Path(shutil.copytree(recorded, tmp_path / "runs" / "hurt"))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[ReaderPool]:
    one = ReaderPool(tmp_path / "index_cache")
    yield one
    one.close()


Open = Callable[[Path], Inspector]


def spoil_index(run: Path) -> None:
    with sqlite3.connect(run / index.FILE) as connection:
        connection.execute("UPDATE episodes SET max_steps = '3x'")
    connection.close()


# ------------------------------------------------------------------------------------------------------- one of many


def test_a_spoilt_value_in_an_index_is_read_from_the_log_again(run: Path, recorded: Path, inspect: Open) -> None:
    spoil_index(run)
    shutil.copytree(recorded, run.parent / "whole")
    inspector = inspect(run.parent)
    assert [(row.unreadable, row.done) for row in inspector.list_runs().runs] == [(None, 3), (None, 3)]


def test_a_run_that_cannot_be_read_is_a_line_among_the_others(
    run: Path, inspect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_index(run)
    monkeypatch.setattr(readers, "_open_sound_reader", lambda reader, spare: reader)
    (row,) = inspect(run).list_runs().runs
    assert "3x" in (row.unreadable or "")


def test_a_training_is_read_without_the_rollout_that_cannot_be(recorded: Path, tmp_path: Path, inspect: Open) -> None:
    folder = TrainingDir(tmp_path / "marl")
    for number in (1, 2):
        shutil.copytree(recorded, folder.get_epoch(number).rollout)
    folder.write({"config": {}, "created": "2026-11-22T00:00:00.000Z"})
    head = json.loads((folder.get_epoch(1).rollout / "run.json").read_text())
    write_json(folder.get_epoch(1).rollout / "run.json", head | {"format_version": "9.0"})
    inspector = inspect(folder.path)
    id = inspector.list_runs().runs[0].id
    assert {one.epoch for one in inspector.list_episodes(id, EpisodeFilter()).rows} == {2}
    assert inspector.find_steps(id, "overruled").judged > 0
    assert inspector.search(id, "contact").rows
    assert len(inspector.compare(id, id).both) == 3
    assert any("9.0" in one.reason for one in inspector.list_problems(id).problems)
    with pytest.raises(RunFormatError, match=r"9\.0"):
        inspector.list_episodes(
            next(one for one in inspector._context.roots._known if "-1-rollout" in one), EpisodeFilter()
        )


def test_a_rollout_that_lost_its_head_is_a_part_of_its_training(recorded: Path, tmp_path: Path, inspect: Open) -> None:
    folder = TrainingDir(tmp_path / "marl")
    shutil.copytree(recorded, folder.get_epoch(1).rollout)
    (folder.get_epoch(1).rollout / "run.json").unlink()
    folder.write({"config": {}, "created": "2026-11-22T00:00:00.000Z"})
    inspector = inspect(folder.path)
    id = inspector.list_runs().runs[0].id
    assert len(inspector.list_episodes(id, EpisodeFilter()).rows) == 3
    files = ["training.json", "epochs/1/rollout/run.json"]  # it has no method, which is told, too
    assert [one.file for one in inspector.list_problems(id).problems] == files


# -------------------------------------------------------------------------------------------------------- half lines


def test_a_pair_counts_whole_or_not_at_all(run: Path) -> None:
    (name,) = list_pair_sets(run)
    pairs = read_pairs(run, name).pairs
    path = run / "pairs" / name / "pairs.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    half = json.loads(lines[0])
    del half["id"]
    odd = json.loads(lines[0]) | {"id": 7}
    path.write_bytes(b"".join(json.dumps(one).encode() + b"\n" for one in (half, odd)) + b"".join(lines))
    stored = PairSetIndex(run, name)
    assert [one.line for one in stored.problems] == [1, 2]
    where = pairs[0].chosen[0]
    assert pairs[0] in list(stored.of(where.trajectory, where.step))
    assert stored.count(where.trajectory, where.step) == len(list(stored.of(where.trajectory, where.step)))
    assert [id for id, _ in stored.find_beginning(pairs[-1].id)] == [pairs[-1].id]


def test_a_score_that_no_float_holds_is_a_problem_of_its_line(run: Path) -> None:
    (path,) = (run / "labels" / "oracle" / "events").iterdir()
    line = json.loads(path.read_text().splitlines()[0])
    line["rewards"]["rewards"][0]["score"] = 10**400
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    found = LabelSetIndex(run, "oracle")
    found.refresh()
    assert [one.line for one in found.problems] == [len(path.read_text().splitlines())]


# -------------------------------------------------------------------------------------------- while others ask as well


def test_who_is_counted_keeps_a_run_open(
    recorded: Path, run: Path, opened: ReaderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_MOST", 1)
    with opened.open_run(run):
        pass
    looking, go = threading.Event(), threading.Event()
    fits = readers.OpenRun.is_current

    def slowly(one: readers.OpenRun) -> bool:
        looking.set()
        assert go.wait(10)
        return fits(one)

    monkeypatch.setattr(readers.OpenRun, "is_current", slowly)
    found: list[int] = []

    def ask() -> None:
        with opened.open_run(run) as one:
            found.append(len(one.reader.list_episodes()))

    asking = threading.Thread(target=ask)
    asking.start()
    assert looking.wait(10)
    with opened.open_run(recorded):  # makes room for itself
        go.set()
        asking.join(10)
    assert found == [3]
    with opened.open_run(run) as one:
        assert len(one.reader.list_episodes()) == 3


def test_what_a_labelling_says_does_not_change_under_who_reads_it(run: Path, opened: ReaderPool) -> None:
    with opened.open_run(run) as one:
        said = one.beside.read_scores("oracle")
        (path,) = (run / "labels" / "oracle" / "events").iterdir()
        more = json.loads(path.read_text().splitlines()[0])
        more["rewards"]["step"] = 99
        with path.open("a") as file:
            file.write(json.dumps(more) + "\n")
        for _ in said:
            assert len(one.beside.read_scores("oracle")) == len(said) + 1


def test_what_is_removed_or_made_anew_beside_a_run_is_not_remembered(run: Path, opened: ReaderPool) -> None:
    with opened.open_run(run) as one:
        assert one.beside.list_label_sets() == ["oracle"]
        before = len(one.beside.read_scores("oracle"))
        (path,) = (run / "labels" / "oracle" / "events").iterdir()
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
        assert (before > 1, len(one.beside.read_scores("oracle"))) == (True, 1)
        shutil.rmtree(run / "labels" / "oracle")
        assert one.beside.list_label_sets() == []
        with pytest.raises(UnknownName, match="oracle"):
            one.beside.read_scores("oracle")
        (name,) = one.beside.pair_sets()
        file = run / "pairs" / name / "pairs.jsonl"
        first = json.loads(file.read_text().splitlines()[0])
        file.write_text(json.dumps(first) + "\n")
        sources = one.beside.read_last_pairs()
        assert sources is not None
        assert sources.sources(lambda trajectory: True) == {first["source"]: 1}
        shutil.rmtree(run / "pairs" / name)
        assert (one.beside.pair_sets(), one.beside.read_last_pairs()) == ([], None)


def test_the_numbers_of_a_run_are_counted_once_while_nothing_is_written(
    run: Path, opened: ReaderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    root, count = ListedRun(id="hurt", path=run, kind="run"), overview._build_epoch
    monkeypatch.setattr(
        overview, "_build_epoch", lambda *given, **named: (counted.append(1), count(*given, **named))[1]
    )
    with opened.open_run(run) as one:
        assert overview.build_epochs(root, one, "oracle") == overview.build_epochs(root, one, "oracle")
        assert len(counted) == 1
        (path,) = (run / "labels" / "oracle" / "events").iterdir()
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
        overview.build_epochs(root, one, "oracle")
    assert len(counted) == 2


# --------------------------------------------------------------------------------------------------- links out of a run


@pytest.mark.parametrize("place", ["events", "index.sqlite", "run.json", "segment", "pipe"])
def test_a_run_of_links_is_not_opened(recorded: Path, run: Path, inspect: Open, place: str) -> None:
    (segment,) = (run / "events").iterdir()
    path = segment if place in ("segment", "pipe") else run / place
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if place == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(
            recorded / path.relative_to(run) if place != "segment" else next((recorded / "events").iterdir())
        )
    (row,) = inspect(run).list_runs().runs
    assert row.steps == 0
    assert "out of the run" in (row.unreadable or "") or "neither a file" in (row.unreadable or "")


@pytest.mark.parametrize("how", ["pipe", "link"])
def test_a_training_whose_lock_is_none_is_a_line_among_the_others(tmp_path: Path, inspect: Open, how: str) -> None:
    folder = TrainingDir(tmp_path / "runs" / "marl")
    folder.path.mkdir(parents=True)
    folder.write({"config": {}, "created": "2026-11-22T00:00:00.000Z"})
    os.mkfifo(folder.path / LOCK) if how == "pipe" else (folder.path / LOCK).symlink_to(tmp_path / LOCK)
    held = RunLock(tmp_path)
    inspector, statuses = inspect(folder.path.parent), queue.Queue[list[str]]()
    threading.Thread(
        target=lambda: statuses.put([row.status for row in inspector.list_runs().runs]), daemon=True
    ).start()
    assert statuses.get(timeout=30) == ["stopped"]
    held.release()


@pytest.mark.parametrize("place", ["labels/oracle", "labels/oracle/events", "pairs/{name}", "pairs/{name}/pairs.jsonl"])
def test_judgements_and_pairs_that_are_links_are_not_read(
    recorded: Path, run: Path, opened: ReaderPool, place: str
) -> None:
    place = place.format(name=list_pair_sets(run)[0])
    path = run / place
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(recorded / place)
    with opened.open_run(run) as one:
        said = one.beside.read_scores("oracle") if "oracle" in one.beside.list_label_sets() else {}
        stored = one.beside.read_last_pairs()
        counted = sum(stored.sources(lambda trajectory: True).values()) if stored else 0
        problems = one.beside.problems()
    assert not (said if place.startswith("labels") else counted)
    assert [one.reason for one in problems if "out of the run" in one.reason]


def test_parts_of_a_training_that_are_links_are_not_read(recorded: Path, tmp_path: Path, inspect: Open) -> None:
    folder = TrainingDir(tmp_path / "marl")
    shutil.copytree(recorded, folder.get_epoch(1).rollout)
    folder.get_epoch(2).path.mkdir()
    folder.get_epoch(2).rollout.symlink_to(recorded)
    (outside := tmp_path / "secret.json").write_text('{"slots": ["spy"], "edges": []}')
    folder.get_epoch(1).graph.symlink_to(outside)
    folder.get_epoch(1).record.symlink_to(outside)
    folder.write({"config": {}, "created": "2026-11-22T00:00:00.000Z"})
    inspector = inspect(folder.path)
    id = inspector.list_runs().runs[0].id
    assert {one.epoch for one in inspector.list_episodes(id, EpisodeFilter()).rows} == {1}
    (epoch,) = inspector.get_overview(id).epochs
    assert epoch.graph is not None
    assert "spy" not in epoch.graph.agents
    told = {one.file for one in inspector.list_problems(id).problems if "out of the run" in one.reason}
    assert told == {"epochs/2/rollout", "epochs/1/graph.json", "epochs/1/epoch.json"}


def test_files_of_a_run_are_checked_once_and_again_when_one_was_exchanged(
    recorded: Path, run: Path, opened: ReaderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2, 202):
        (run / "events" / f"{number:04}-{number:08x}.jsonl").touch()
    asked: list[Path] = []
    trouble = common.explain_unreadable
    monkeypatch.setattr(common, "explain_unreadable", lambda root, path: (asked.append(path), trouble(root, path))[1])
    for _ in range(20):
        with opened.open_run(run) as one:
            one.reader.list_episodes()
    assert len(asked) < 20, "neither for every segment nor at every question"
    (run / "events" / "0300-0000ffff.jsonl").symlink_to(next((recorded / "events").iterdir()))
    with pytest.raises(RunFormatError, match="out of the run"), opened.open_run(run):
        pass
