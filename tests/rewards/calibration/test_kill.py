"""kill -9 in the middle of a calibration, by the command line, and the way on: nothing is paid for twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.rewards.calibration.record import FILE, PICTURE, CalibrationDir
from collab.rewards.labels import list_label_sets, read_labels
from collab.store import log
from collab.testing.fake_server import FakeServer

CODE = "from collab.cli.main import run; run()"


def lines(path: Path) -> int:
    """Judgements on the disk."""
    return sum(file.read_bytes().count(b'\n{"type":"judged"') for file in path.glob(f"labels/*/{log.FOLDER}/*.jsonl"))


@pytest.mark.slow
def test_a_killed_calibration_resumes_and_ends_with_the_same_file(
    folder: Path, tmp_path: Path, server: FakeServer, questions: Callable[[], int]
) -> None:
    asked = ["critic", "calibrate", "--env", "corridor", "--critic", "judge", "--cases", "12", "--library", str(folder)]
    assert main([*asked, "--out", str(tmp_path / "whole")]) == 0
    whole, out = questions(), tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *asked, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while lines(out) < whole // 3 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert CalibrationDir(out).read_record().numbers is None, "it was to be killed in the middle"
    there, before = sum(len(read_labels(out, name).judged) for name in list_label_sets(out)), questions()
    assert whole // 3 <= there < whole

    assert main(["critic", "calibrate", "--resume", str(out)]) == 0
    assert questions() - before == whole - there
    created = [f'"created": "{CalibrationDir(path).read_record().created}"' for path in (out, tmp_path / "whole")]
    assert (out / FILE).read_text().replace(*created) == (tmp_path / "whole" / FILE).read_text()
    assert (out / PICTURE).read_bytes() == (tmp_path / "whole" / PICTURE).read_bytes()
