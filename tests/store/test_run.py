from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import collab
from collab.errors import RunFormatError, StoreFailure, UnknownName, UsageError
from collab.store.events import RunResumed, RunStarted
from collab.store.manifest import FORMAT_VERSION
from collab.store.run import RunStore
from collab.types import EpisodeError, Outcome


def test_an_episode_reads_back_as_it_was_played(store: RunStore, make: SimpleNamespace) -> None:
    steps = [make.step(index) for index in range(3)]
    with store.open_writer() as writer:
        make.play(writer, "OpenDoors/0", steps)
        writer.finish()
    with store.open_reader() as reader:
        trajectory = reader.read_trajectory("OpenDoors/0")
        assert trajectory.steps == tuple(steps)
        assert trajectory.task == make.task("OpenDoors")
        assert trajectory.outcome == Outcome(success=True, score=1.0, reason="all doors are open")
        assert trajectory.final == make.screen("The end", 0)
        assert (trajectory.environment, trajectory.environment_version) == ("fake[doors]", "1")
        assert (trajectory.seconds, trajectory.error, trajectory.privileged) == (2.5, None, False)
        assert reader.step("OpenDoors/0", 1) == steps[1]
        assert reader.problems == ()
        assert reader.manifest == RunStore.open(store.path).open_reader().manifest


def test_summaries_tell_what_became_of_each_episode(store: RunStore, make: SimpleNamespace) -> None:
    error = EpisodeError(type="EnvironmentFailure", message="the browser died", step=1)
    with store.open_writer() as writer:
        make.play(writer, "B/0", 2, success=False)
        make.begin(writer, "A/1")
        writer.step("A/1", make.step(0))
        writer.end_episode("A/1", error=error)
        make.begin(writer, "A/0")
        writer.step("A/0", make.step(0, privileged=True))
        make.begin(writer, "A/2", epoch=1)
        writer.stop("stopped by Ctrl-C")
    reader = store.open_reader()
    told = {one.id: one for one in reader.list_episodes()}
    assert list(told) == ["A/0", "A/1", "B/0", "A/2"]  # by epoch, task, number
    assert [one.state for one in told.values()] == ["unfinished", "failed", "finished", "unfinished"]
    assert told["A/1"].error == error
    assert told["B/0"].outcome == Outcome(success=False, score=0.0, reason="a door is shut")
    assert [one.steps for one in told.values()] == [1, 1, 2, 0]
    assert [one.privileged for one in told.values()] == [True, False, False, False]
    assert reader.read_trajectory("A/0").privileged
    assert reader.read_trajectory("A/1").error == error
    assert [one.id for one in reader.list_unfinished()] == ["A/0", "A/2"]
    assert [one.id for one in reader.iterate_trajectories()] == ["B/0"]


def test_status_follows_the_life_of_a_run(store: RunStore, make: SimpleNamespace) -> None:
    assert store.open_reader().status == "dead"
    writer = store.open_writer()
    assert store.open_reader().status == "running"
    writer.close()
    assert store.open_reader().status == "dead"
    with store.open_writer() as writer:
        writer.stop("budget")
    assert store.open_reader().status == "stopped"
    with pytest.raises(KeyboardInterrupt), store.open_writer():
        raise KeyboardInterrupt
    assert store.open_reader().status == "stopped"
    with store.open_writer() as writer:
        writer.finish()
    assert store.open_reader().status == "finished"


def test_a_reader_sees_what_is_written_after_it_was_made(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        reader = store.open_reader()
        assert reader.list_episodes() == []
        make.begin(writer)
        writer.step("OpenDoors/0", make.step(0))
        assert reader.refresh() == 2
        assert reader.refresh() == 0
        assert reader.read_trajectory("OpenDoors/0").steps == (make.step(0),)
        writer.step("OpenDoors/0", make.step(1))
        assert store.open_reader().read_trajectory("OpenDoors/0").steps == (make.step(0), make.step(1))


def test_a_resumed_episode_continues_behind_its_steps(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.begin(writer)
        for index in range(3):
            writer.step("OpenDoors/0", make.step(index))
    assert len(store.open_reader().list_unfinished()[0].steps) == 3
    with store.open_writer() as writer:
        assert writer.resume_episode("OpenDoors/0") == 3
        writer.step("OpenDoors/0", make.step(3))
        writer.end_episode("OpenDoors/0", outcome=Outcome(success=True, score=1.0))
    assert store.open_reader().read_trajectory("OpenDoors/0").steps == tuple(make.step(index) for index in range(4))
    assert store.open_reader().list_episodes()[0].attempt == 0


def test_resuming_earlier_drops_what_stood_behind(store: RunStore, make: SimpleNamespace) -> None:
    changed = replace(make.step(1), environment_s=9.0)
    with store.open_writer() as writer:
        make.begin(writer)
        for index in range(4):
            writer.step("OpenDoors/0", make.step(index))
    with store.open_writer() as writer:
        assert writer.resume_episode("OpenDoors/0", 1) == 1
        writer.step("OpenDoors/0", changed)
        writer.end_episode("OpenDoors/0", outcome=Outcome(success=False, score=0.0))
    (store.path / "index.sqlite").unlink()
    reader = store.open_reader()
    assert reader.read_trajectory("OpenDoors/0").steps == (make.step(0), changed)
    assert reader.problems == ()


def test_a_new_attempt_replaces_the_broken_one(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.begin(writer)
        writer.step("OpenDoors/0", make.step(0))
        writer.end_episode("OpenDoors/0", error=EpisodeError(type="ModelFailure", message="gone", step=1))
        make.begin(writer)
        assert [one.state for one in store.open_reader().list_episodes()] == ["unfinished"]
        changed = replace(make.step(0), environment_s=7.0)
        writer.step("OpenDoors/0", changed)
        writer.end_episode("OpenDoors/0", outcome=Outcome(success=True, score=1.0))
    for _ in range(2):  # with the run's own index, then without
        reader = store.open_reader()
        assert reader.read_trajectory("OpenDoors/0").steps == (changed,)
        assert [(one.state, one.attempt) for one in reader.list_episodes()] == [("finished", 1)]
        (store.path / "index.sqlite").unlink(missing_ok=True)


def test_calls_out_of_order_are_refused_and_record_nothing(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "OpenDoors/0", 1)
        make.begin(writer, "OpenDoors/1")
        before = len(list(store.open_reader().iterate_events()))
        outcome = Outcome(success=True, score=1.0)
        with pytest.raises(ValueError, match="is finished"):
            make.begin(writer, "OpenDoors/0")
        with pytest.raises(ValueError, match="is running"):
            make.begin(writer, "OpenDoors/1")
        with pytest.raises(ValueError, match="not running"):
            writer.step("OpenDoors/0", make.step(1))
        with pytest.raises(ValueError, match="step 1 follows 0"):
            writer.step("OpenDoors/1", make.step(1))
        with pytest.raises(ValueError, match="both or neither"):
            writer.end_episode("OpenDoors/1")
        with pytest.raises(ValueError, match="not an unfinished"):
            writer.resume_episode("OpenDoors/0")
        with pytest.raises(StoreFailure, match="cannot be recorded"):
            writer.step("OpenDoors/1", replace(make.step(0), info={"x": object()}))
        assert len(list(store.open_reader().iterate_events())) == before
        writer.step("OpenDoors/1", make.step(0))
        writer.end_episode("OpenDoors/1", outcome=outcome)
    with pytest.raises(ValueError, match="closed"):
        writer.note("too late")


def test_texts_are_stored_once_and_found_by_hash(store: RunStore) -> None:
    texts = ["system\fTask: é", "system\f\ud800 broken"]
    hashes = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts]
    with store.open_writer() as writer:
        for _ in range(3):
            for hash, text in zip(hashes, texts, strict=True):
                writer.store_text(hash, text)
    reader = store.open_reader()
    assert [reader.read_prefix(hash) for hash in hashes] == texts
    assert sum(record.type == "text" for record in reader.iterate_events()) == 2
    with pytest.raises(UnknownName, match="no text"):
        reader.read_prefix("f" * 64)


def test_the_log_tells_who_wrote_with_what(store: RunStore) -> None:
    for _ in range(2):
        store.open_writer().close()
    first, second = (record.event for record in store.open_reader().iterate_events())
    assert isinstance(first, RunStarted)
    assert first.manifest == store.open_reader().manifest
    assert isinstance(second, RunResumed)
    assert second.versions["collab"] == collab.__version__


def test_events_are_numbered_per_writer(store: RunStore) -> None:
    for _ in range(2):
        with store.open_writer() as writer:
            writer.note("a")
            writer.note("b")
    records = list(store.open_reader().iterate_events())
    assert [record.seq for record in records] == [0, 1, 2, 0, 1, 2]
    assert [record.writer[:5] for record in records] == ["0001-"] * 3 + ["0002-"] * 3


def test_order_comes_from_names_and_never_from_clocks(store: RunStore, make: SimpleNamespace) -> None:
    """A second writer whose clock stands a year back still comes second."""
    with store.open_writer() as writer:
        make.begin(writer)
        writer.step("OpenDoors/0", make.step(0))
        writer.end_episode("OpenDoors/0", error=EpisodeError(type="ModelFailure", message="gone", step=1))
    with store.open_writer() as writer:
        make.play(writer, "OpenDoors/0", 2)
        writer.finish()
    later = sorted((store.path / "events").iterdir())[1]
    content = later.read_text().replace('"time":"20', '"time":"19')
    later.write_text(content)
    (store.path / "index.sqlite").unlink()
    reader = store.open_reader()
    assert reader.status == "finished"
    assert reader.list_episodes()[0].state == "finished"


def test_a_run_is_not_made_over_another(tmp_path: Path, make: SimpleNamespace) -> None:
    (tmp_path / "empty").mkdir()
    RunStore.create(tmp_path / "empty", make.manifest())
    (tmp_path / "file").write_text("mine")
    for taken, said in (
        ("empty", "a run is there .*; give another --out, or resume it: collab runs"),
        ("file", "give"),
    ):
        with pytest.raises(UsageError, match=said):
            RunStore.create(tmp_path / taken, make.manifest())


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunFormatError, match="not a run directory"):
            RunStore.open(path)
        with pytest.raises(RunFormatError, match="not a run directory"):
            RunStore(path).open_reader()
        with pytest.raises(RunFormatError, match="not a run directory"):
            RunStore(path).open_writer()


def test_the_head_is_readable_json(store: RunStore) -> None:
    head = json.loads((store.path / "run.json").read_text())
    assert head["format_version"] == FORMAT_VERSION
    assert head["config"] == {"env": "fake", "agents": ["ada", "ben"]}
    assert head["versions"]["collab"] == collab.__version__


def test_a_newer_major_version_is_refused(store: RunStore) -> None:
    store.open_writer().close()
    segment = next((store.path / "events").iterdir())
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole.replace(f'"{FORMAT_VERSION}"'.encode(), b'"2.0"'))
    for read in (store.open_reader, store.open_writer):
        with pytest.raises(RunFormatError, match=r"run format 2\.0"):
            read()
    segment.write_bytes(whole)
    head = store.path / "run.json"
    head.write_text(head.read_text().replace(f'"{FORMAT_VERSION}"', '"2.0"'))
    for read in (store.open_reader, store.open_writer, lambda: RunStore.open(store.path)):
        with pytest.raises(RunFormatError, match=r"run format 2\.0"):
            read()


def test_unknown_names_are_met_with_the_nearest(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "OpenDoors/0", 1)
    with pytest.raises(UnknownName, match="did you mean OpenDoors/0"):
        store.open_reader().read_trajectory("OpenDoor/0")
    with pytest.raises(UnknownName, match="no step 7"):
        store.open_reader().step("OpenDoors/0", 7)
