"""How `collab` is run: which program, what is told of it, how it ends."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collab.errors import UsageError
from collab.evidence.queue import Commands, QueueStopped
from collab.library import find_builtin_root

say = functools.partial(print, flush=True)


def program(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in place of `collab`."""
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("COLLAB", str(path))


def test_the_program_that_COLLAB_names_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "collab", 'printf "%s|" "$@"; exit 3', monkeypatch)
    with Commands(1, say) as run:
        assert run("full/seed-0/train", ["eval", "--out", "a b"]) == 3
    assert capfd.readouterr().out == "$ collab eval --out 'a b'\neval|--out|a b|"


def test_a_program_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLAB", str(tmp_path / "gone"))
    with (
        Commands(1, say) as run,
        pytest.raises(UsageError, match=r"gone: cannot be run \(No such .*\); .*COLLAB=PATH$"),
    ):
        run("full/seed-0/train", ["eval"])


def test_each_line_of_several_is_told_with_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "collab", 'echo "one of $1"; echo "two of $1" >&2; exit $1', monkeypatch)
    with Commands(2, say) as run, ThreadPoolExecutor(2) as workers:
        assert list(workers.map(run, ("a", "b"), (["3"], ["4"]))) == [3, 4]
    told = capsys.readouterr()
    assert sorted(told.out.splitlines()) == [
        *("a | $ collab 3", "a | one of 3", "a | two of 3"),
        *("b | $ collab 4", "b | one of 4", "b | two of 4"),
    ]
    assert told.err == ""


@pytest.mark.parametrize(
    ("jobs", "asked", "threads"), [(2, None, "3"), (8, None, "1"), (2, "5", "5"), (1, None, "unset")]
)
def test_processors_are_shared_out_unless_somebody_did(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    jobs: int,
    asked: str | None,
    threads: str,
) -> None:
    program(tmp_path / "collab", "echo ${OMP_NUM_THREADS-unset}", monkeypatch)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    with Commands(jobs, say) as run:
        run("unit", [])
    assert capfd.readouterr().out.splitlines()[-1].removeprefix("unit | ") == threads


@pytest.mark.variations
@pytest.mark.parametrize("how", ["INT", "TERM", "HUP"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_programs_stop_in_good_order_when_the_queue_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jobs: int, how: str
) -> None:
    text = "trap 'echo stopping; exit 1' INT\nsleep 0.3\n"
    text += f'if [ "$1" = first ]; then kill -{how} $PPID; fi\nsleep 20 > /dev/null 2>&1 & wait'
    program(tmp_path / "collab", text, monkeypatch)
    asked = [["first"], ["second"]][:jobs]
    with Commands(jobs, say) as run, ThreadPoolExecutor(jobs) as workers:
        assert list(workers.map(run, ["unit"] * jobs, asked)) == [1] * jobs
        assert run.stopping
        with pytest.raises(QueueStopped, match="stopped on request; repeat the same command"):
            run("unit", ["third"])
    assert capfd.readouterr().out.count("stopping\n") == jobs


def test_what_is_just_being_begun_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the thread that begins it is the one that hears the signal."""
    text = "trap 'echo told >> told; exit 1' INT\n: > ready\nsleep 20 & wait"
    monkeypatch.chdir(tmp_path)
    program(tmp_path / "collab", text, monkeypatch)
    begun = Commands._start

    def told_meanwhile(commands: Commands, words: list[str]) -> subprocess.Popen[bytes]:
        process = begun(commands, words)
        while not Path("ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(Commands, "_start", told_meanwhile)
    with Commands(1, say) as run:
        assert run("unit", []) == 1
    assert Path("told").read_text() == "told\n"


@pytest.mark.medium
def test_what_is_told_to_end_is_told_once_by_a_terminal(tmp_path: Path) -> None:
    """Ctrl-C reaches the foreground of a terminal; a second one would make `collab` leave at once."""
    program = tmp_path / "collab"
    program.write_text(
        f"#!{sys.executable}\nimport signal, time\n"
        "signal.signal(signal.SIGINT, lambda number, frame: print('told', flush=True))\n"
        "print('ready', flush=True)\ntime.sleep(1.2)\n"
    )
    program.chmod(0o755)
    script = """
from collab.evidence.queue import Commands
with Commands(1, lambda line: print(line, flush=True)) as run:
    run("unit", [])
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "COLLAB": str(program), "PYTHONPATH": str(find_builtin_root())},
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        # Tests may run in the background of a shell, which ignores the signal there.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        pass
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout.read().splitlines() == ["told"]
    assert process.wait() == 0


def test_a_signal_just_before_a_wait_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that another thread catches: the main thread's wait isn't interrupted, and it runs the handler."""
    monkeypatch.chdir(tmp_path)
    program(tmp_path / "collab", "trap 'echo told >> told; exit 1' INT\n: > ready\nsleep 20 & wait", monkeypatch)

    def catch() -> None:
        while not Path("ready").exists():
            time.sleep(0.01)
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    begun = time.monotonic()
    with Commands(1, say) as run, ThreadPoolExecutor(1) as workers:
        workers.submit(catch)
        assert run("unit", []) == 1
    assert Path("told").read_text() == "told\n"
    assert time.monotonic() - begun < 15
