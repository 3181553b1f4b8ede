"""Kill, full disk, spoilt files: nothing acknowledged is lost, nothing half-written counts."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.errors import RunFormatError, StoreFailure, UsageError
from collab.store.run import RunStore
from collab.types import Outcome
from tests.properties import examples

LOOP = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from conftest import begin, make_step
from collab.store.run import RunStore
writer = RunStore.open(Path(sys.argv[1])).open_writer()
begin(writer, "OpenDoors/0")
for index in range(100_000):
    writer.step("OpenDoors/0", make_step(index))
    print(index, flush=True)
"""


def segment_of(store: RunStore) -> Path:
    return sorted((store.path / "events").iterdir())[-1]


@pytest.mark.variations
@pytest.mark.parametrize("moment", [0, 1, 40, 400])
def test_a_kill_loses_no_acknowledged_step(store: RunStore, make: SimpleNamespace, moment: int) -> None:
    command = [sys.executable, "-c", LOOP, str(store.path), str(Path(__file__).parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(moment + 1):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    acknowledged = moment + 1 + len(process.stdout.readlines())
    process.wait()
    reader = store.open_reader()
    assert reader.status == "dead"
    steps = reader.list_unfinished()[0].steps
    assert acknowledged <= len(steps) <= acknowledged + 1
    assert steps == tuple(make.step(index) for index in range(len(steps)))
    with store.open_writer() as writer:  # the lock died with its owner
        assert writer.resume_episode("OpenDoors/0") == len(steps)


def test_a_last_line_cut_anywhere_is_skipped(
    store: RunStore, make: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    with store.open_writer() as writer:
        make.begin(writer)
        for index in range(3):
            writer.step("OpenDoors/0", make.step(index))
    (store.path / "index.sqlite").unlink()
    segment = segment_of(store)
    whole = segment.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1

    @settings(max_examples=examples(60), deadline=None)
    @given(st.integers(start, len(whole) - 1))
    def law(cut: int) -> None:
        segment.write_bytes(whole[:cut])
        reader = store.open_reader()
        assert len(reader.list_unfinished()[0].steps) == 2
        assert [str(problem) for problem in reader.problems] == (
            [f"events/{segment.name}:5: half-written last line ({cut - start} bytes) skipped"] if cut > start else []
        )

    law()
    segment.write_bytes(whole[:-1])
    with store.open_writer() as writer:  # goes on in a segment of its own
        assert writer.resume_episode("OpenDoors/0") == 2
        writer.step("OpenDoors/0", make.step(2))
        writer.end_episode("OpenDoors/0", outcome=Outcome(success=True, score=1.0))
    assert f"events/{segment.name}:5: half-written last line" in caplog.text
    assert store.open_reader().read_trajectory("OpenDoors/0").steps == tuple(make.step(index) for index in range(3))


def test_a_spoilt_line_in_the_middle_is_named_counted_and_skipped(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 3)
        make.play(writer, "B/0", 1)
    (store.path / "index.sqlite").unlink()
    segment = segment_of(store)
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:200] + b"\x00\xff" * 40 + lines[3][280:]  # step 1 of A/0
    segment.write_bytes(b"".join(lines))
    reader = store.open_reader()
    spoilt, gap = reader.problems
    assert (spoilt.file, spoilt.line) == (f"events/{segment.name}", 4)
    assert str(gap) == "events: episode A/0: steps 1 are lost"
    assert [step.index for step in reader.read_trajectory("A/0").steps] == [0, 2]
    assert [one.missing for one in reader.list_episodes()] == [(1,), ()]
    assert reader.read_trajectory("B/0").steps == (make.step(0),)


def test_where_index_and_log_disagree_the_log_is_right(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 3)
    segment = segment_of(store)
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[3] = b" " * (len(lines[3]) - 1) + b"\n"
    segment.write_bytes(b"".join(lines))
    reader = store.open_reader()
    assert reader.problems == ()  # not looked at yet
    assert [step.index for step in reader.read_trajectory("A/0").steps] == [0, 2]
    assert [problem.line for problem in reader.problems] == [4, None]


def test_a_line_with_a_number_beyond_all_bounds_disturbs_no_other(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 2)
    segment = segment_of(store)
    lines = segment.read_bytes().splitlines(keepends=True)
    again = lines[1].replace(b'"attempt":0', b'"attempt":%d' % 2**70)
    segment.write_bytes(b"".join([*lines, again]))
    (store.path / "index.sqlite").unlink()
    for _ in ("told from the log", "told from the index that the next writer made"):
        reader = store.open_reader()
        assert [problem.line for problem in reader.problems] == [len(lines) + 1]
        assert reader.read_trajectory("A/0").success
        store.open_writer().close()


def test_after_a_gap_an_episode_continues_at_the_gap(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.begin(writer)
        for index in range(4):
            writer.step("OpenDoors/0", make.step(index))
    (store.path / "index.sqlite").unlink()
    segment = segment_of(store)
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:3], b"spoilt\n", *lines[4:]]))
    assert [step.index for step in store.open_reader().list_unfinished()[0].steps] == [0]
    with store.open_writer() as writer:
        assert writer.resume_episode("OpenDoors/0") == 1
        for index in (1, 2):
            writer.step("OpenDoors/0", make.step(index))
        writer.end_episode("OpenDoors/0", outcome=Outcome(success=True, score=1.0))
    reader = store.open_reader()
    assert [step.index for step in reader.read_trajectory("OpenDoors/0").steps] == [0, 1, 2]
    assert [problem.line for problem in reader.problems] == [4]


def test_steps_whose_episode_start_is_lost_are_named(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 1)
    (store.path / "index.sqlite").unlink()
    segment = segment_of(store)
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([lines[0], b"{}\n", *lines[2:]]))
    reader = store.open_reader()
    assert reader.list_episodes() == []
    assert [problem.line for problem in reader.problems] == [2, 3, 4]
    assert "the start of attempt 0 of episode A/0 is lost" in str(reader.problems[1])


def test_any_byte_of_a_run_may_be_spoilt(store: RunStore, make: SimpleNamespace, tmp_path: Path) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 1)
    files = [path for path in store.path.rglob("*") if path.is_file() and path.stat().st_size]

    @settings(max_examples=examples(80), deadline=None)
    @given(st.sampled_from(files), st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8))
    def law(path: Path, where: float, junk: bytes) -> None:
        copy = tmp_path / "copy"
        shutil.copytree(store.path, copy)
        try:
            target = copy / path.relative_to(store.path)
            content = bytearray(target.read_bytes())
            offset = int(where * len(content))
            content[offset : offset + len(junk)] = junk
            target.write_bytes(content)
            with contextlib.suppress(UsageError), RunStore(copy).open_reader() as reader:
                for one in reader.list_episodes():
                    reader.read_trajectory(one.id)
                assert all(str(problem) for problem in reader.problems)
        finally:
            shutil.rmtree(copy)

    law()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format_version": "1.0"}', '{"format_version": 1}'])
def test_a_spoilt_head_is_taken_from_the_log(store: RunStore, make: SimpleNamespace, content: str) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 1)
        writer.finish()
    manifest = store.open_reader().manifest
    (store.path / "run.json").write_text(content)
    reader = RunStore.open(store.path).open_reader()
    assert reader.manifest == manifest
    assert "its copy in the log is used" in str(reader.problems[0])
    RunStore.open(store.path).open_writer().close()


def test_a_spoilt_head_without_a_log_is_refused(store: RunStore) -> None:
    (store.path / "run.json").write_text("{")
    for use in (lambda: RunStore.open(store.path), store.open_reader, store.open_writer):
        with pytest.raises(RunFormatError, match=r"run\.json: not JSON"):
            use()


def test_an_unreadable_run_is_one_line(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.open_writer().close()

    def refuse(path: object) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("collab.store.log.os.listdir", refuse)
    with pytest.raises(RunFormatError, match="events: cannot be read: Permission denied"):
        store.open_reader()


@pytest.mark.parametrize("there", [True, False])
def test_a_run_that_cannot_be_made_is_not_in_the_way_of_the_next(
    tmp_path: Path, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    path = tmp_path / "new"
    if there:
        path.mkdir()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("collab.store.run.write_manifest", full)
        with pytest.raises(StoreFailure, match="then start the run again"):
            RunStore.create(path, make.manifest())
    assert path.exists() == there
    RunStore.create(path, make.manifest()).open_writer().close()


def test_a_full_disk_is_one_line_and_half_a_line_does_not_count(
    store: RunStore, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, [40_000]

    def full(descriptor: int, content: bytes) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, content[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr("collab.store.log.os.write", full)
    acknowledged: list[int] = []
    writer = store.open_writer()
    make.begin(writer)
    with pytest.raises(StoreFailure) as caught:
        acknowledged.extend(index for index in range(1000) if writer.step("OpenDoors/0", make.step(index)) is None)
    assert str(caught.value) == (
        f"{store.path}: cannot write: No space left on device; what was written before is kept:"
        f" make room or fix the rights, then collab runs resume {store.path}"
    )
    room[0] = 1_000_000
    with pytest.raises(StoreFailure, match="an earlier event could not be written"):
        writer.note("nothing follows half a line")
    writer.close()
    assert len(acknowledged) > 2
    reader = store.open_reader()
    assert len(reader.list_unfinished()[0].steps) == len(acknowledged)
    assert "half-written last line" in str(reader.problems[0])
    with store.open_writer() as writer:
        assert writer.resume_episode("OpenDoors/0") == len(acknowledged)


def test_a_full_disk_ends_a_block_without_hiding_why(
    store: RunStore, make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def block() -> None:
        with store.open_writer() as writer:
            monkeypatch.setattr("collab.store.log.os.write", full)
            make.begin(writer)

    with pytest.raises(StoreFailure, match="No space left"):
        block()
    assert store.open_reader().status == "dead"


NO_ROOM = """
import resource, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from conftest import begin, make_step
from collab.errors import StoreFailure
from collab.store import index
from collab.store.run import RunStore
index._COMMIT_S = float(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = RunStore.open(Path(sys.argv[1])).open_writer()
begin(writer, "OpenDoors/0")
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
number = 0
try:
    while True:
        writer.step("OpenDoors/0", make_step(number))
        number += 1
except StoreFailure as error:
    print(number)
    print(error)
    writer.close()
"""


@pytest.mark.variations
@pytest.mark.parametrize("pause_s", [0, 60], ids=["the index first", "the log first"])
def test_the_system_refuses_in_the_middle_of_a_line(store: RunStore, make: SimpleNamespace, pause_s: int) -> None:
    """A real short write: the system takes a part of the line and refuses the rest."""
    command = [sys.executable, "-c", NO_ROOM, str(store.path), str(Path(__file__).parent), str(pause_s)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == 2
    assert "cannot write: File too large" in told[1]
    assert segment_of(store).stat().st_size == 30_000
    reader = store.open_reader()
    assert reader.list_unfinished()[0].steps == tuple(make.step(index) for index in range(int(told[0])))
    assert len(reader.list_unfinished()[0].steps) > 2
    assert "half-written last line" in str(reader.problems[0])


def test_a_run_that_cannot_be_made_is_one_line(tmp_path: Path, make: SimpleNamespace) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailure, match="cannot write: Not a directory"):
        RunStore.create(tmp_path / "file" / "run", make.manifest())
