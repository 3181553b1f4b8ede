from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from collab.errors import RunFormatError, UsageError
from collab.store.run import RunStore
from collab.store.run_dir import find_owner

HOLD = """
import sys, time
from pathlib import Path
from collab.store.run import RunStore
writer = RunStore.open(Path(sys.argv[1])).open_writer()
print("ready", flush=True)
time.sleep(60)
"""


def test_two_processes_never_write_one_run(store: RunStore) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(store.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        assert store.open_reader().status == "running"
        with pytest.raises(
            UsageError, match=rf"is being written by process {process.pid} since 20.*collab runs resume"
        ):
            store.open_writer()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert store.open_reader().status == "dead"
    store.open_writer().close()


def test_nor_do_two_writers_of_one_process(store: RunStore) -> None:
    writer = store.open_writer()
    found = find_owner(store.path)
    assert found is not None
    assert found.pid == os.getpid()
    with pytest.raises(UsageError, match="is being written by process"):
        store.open_writer()
    assert store.open_reader().status == "running"  # the refused one did not take the lock away
    writer.close()
    writer.close()
    assert find_owner(store.path) is None


def test_a_writer_that_cannot_begin_gives_the_lock_back(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("collab.store.run.Appender", fail)
    with pytest.raises(MemoryError):
        store.open_writer()
    assert find_owner(store.path) is None


def test_readers_neither_write_nor_stop_a_writer(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 2)
    files = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.002):
            find_owner(store.path)

    with store.open_reader() as reader:
        assert reader.status == "dead"
        reader.read_trajectory("A/0")
        assert reader.problems == ()
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == files
    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(20):
            store.open_writer().close()
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()


def test_a_run_without_write_permission_can_be_read(store: RunStore, make: SimpleNamespace) -> None:
    with store.open_writer() as writer:
        make.play(writer, "A/0", 2)
    folders = [path for path in [store.path, *store.path.rglob("*")] if path.is_dir()]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert store.open_reader().read_trajectory("A/0").outcome is not None
    finally:
        for folder in folders:
            folder.chmod(stat.S_IRWXU)


def test_a_pipe_by_the_name_of_the_lock_is_no_lock(store: RunStore) -> None:
    (store.path / "lock").unlink(missing_ok=True)
    os.mkfifo(store.path / "lock")
    looked = threading.Thread(target=find_owner, args=(store.path,), daemon=True)
    looked.start()
    looked.join(10)
    assert not looked.is_alive()
    assert find_owner(store.path) is None
    with pytest.raises(RunFormatError, match="lock: is a pipe"):
        store.open_reader()
