"""The benchmark of the action server, made small: all arms play the same, and a missed target ends it badly."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import bench_action_server as bench
import pytest

SMALL = ["bench_action_server.py", "--episodes", "4", "--steps", "2", "--at-once", "2", "4"]


def test_arms_are_set_beside_one_by_one() -> None:
    """4 replies a second over 2, and one of two replies another."""
    arms = [{"replies_per_s": 2.0}, {"replies_per_s": 4.0}]
    first, second = bench.compare_arms(arms, [["a", "b"], ["a", "c"]])
    assert (first["over_one_by_one"], first["different"]) == (1.0, 0)
    assert (second["over_one_by_one"], second["different"]) == (2.0, 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_requests_wait_for_each_other_or_are_computed_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "server.json"
    monkeypatch.setattr(sys, "argv", [*SMALL, "--out", str(out)])
    monkeypatch.setattr(bench, "TARGET", 0.0)
    bench.main()
    alone, *others = json.loads(out.read_text())["arms"]
    assert (alone["at_once"], alone["mean_width"], alone["over_one_by_one"]) == (1, 1.0, 1.0)
    assert [one["at_once"] for one in others] == [2, 4]
    assert all(one["mean_width"] > 1 and one["replies"] > 0 for one in others)
    assert "4 at once: " in capsys.readouterr().out
    monkeypatch.setattr(bench, "TARGET", 1e9)
    with pytest.raises(SystemExit, match="less than the target of ×1e\\+09") as ended:
        bench.main()
    assert isinstance(ended.value.code, str), "a text is exit code 1"


def test_more_at_once_than_episodes_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [*SMALL, "--at-once", "16"])
    with pytest.raises(SystemExit) as ended:
        bench.main()
    assert ended.value.code == 2
    assert "--at-once 16: more than the 4 episodes that ask; raise --episodes" in capsys.readouterr().err
