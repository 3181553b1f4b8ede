"""How `collab` is run: which program, what is told of it, how it ends."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from evidence.commands import Commands

from collab.errors import UsageError


def program(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in place of `collab`."""
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setenv("COLLAB", str(path))


def test_the_program_that_COLLAB_names_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "collab", 'printf "%s|" "$@"; exit 3', monkeypatch)
    with Commands() as run:
        assert run("full/seed-0/train", ["eval", "--out", "a b"]) == 3
    assert capfd.readouterr().out == "$ collab eval --out 'a b'\neval|--out|a b|"


def test_a_program_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLAB", str(tmp_path / "gone"))
    with Commands() as run, pytest.raises(UsageError, match=r"gone: cannot be run \(No such .*\); .*COLLAB=PATH$"):
        run("full/seed-0/train", ["eval"])


def test_each_line_of_several_is_told_with_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path / "collab", 'echo "one of $1"; echo "two of $1" >&2; exit $1', monkeypatch)
    with Commands(jobs=2) as run, ThreadPoolExecutor(2) as workers:
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
    with Commands(jobs=jobs) as run:
        run("unit", [])
    assert capfd.readouterr().out.splitlines()[-1].removeprefix("unit | ") == threads


@pytest.mark.parametrize("jobs", [1, 2])
def test_programs_stop_in_good_order_when_the_queue_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jobs: int
) -> None:
    text = "trap 'echo stopping; exit 1' INT\nsleep 0.3\nkill -TERM $PPID\nsleep 20 & wait"
    program(tmp_path / "collab", text, monkeypatch)
    with Commands(jobs=jobs) as run, ThreadPoolExecutor(jobs) as workers:
        assert list(workers.map(run, ["unit"] * jobs, [["eval"]] * jobs)) == [1] * jobs
    assert capfd.readouterr().out.count("stopping\n") == jobs
