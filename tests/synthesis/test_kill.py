"""kill -9 in the middle of a synthesis, by the command line, and the way on."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.store import log

CODE = "from collab.cli.main import run; run()"


def tables(path: Path) -> dict[str, str]:
    files = [*path.glob("*.parquet"), *path.glob("instructions.jsonl")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def units(path: Path) -> int:
    """How many are over."""
    folder = path / log.FOLDER
    return sum(file.read_bytes().count(b'\n{"unit"') for file in folder.glob("*.jsonl")) if folder.is_dir() else 0


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["tutor", "oracle"])
def test_a_killed_synthesis_resumes_and_ends_with_the_same_files(teacher: str, folder: Path, tmp_path: Path):
    asked = ["synth", "--env", "slow", "--teacher", teacher, "--library", str(folder), "--concurrency", "2"]
    asked += ["--episodes", "9", "--screens", "30", "--seed", "3"]
    assert main([*asked, "--out", str(tmp_path / "whole")]) == 0

    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *asked, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while units(out) < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert 2 <= units(out) < 12, "it was to be killed in the middle"
    assert not tables(out)

    assert main(["synth", "--resume", str(out)]) == 0
    assert tables(out) == tables(tmp_path / "whole")
