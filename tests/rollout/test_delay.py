"""A fast environment that takes the time of a slow one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import collab
from collab.cli.main import main
from collab.rollout.run import RunResult


def play(folder: Path, *settings: str) -> RunResult:
    (folder / "own/envs").mkdir(parents=True, exist_ok=True)
    (folder / "own/envs/corridor.yaml").write_text("backend: own\nbackends: {own: {kind: fake}}\n")
    asked = {"env": "corridor", "agents": "rehearsal", "graph": "single", "episodes": 6, "progress": False}
    out = folder / f"run-{len(list(folder.iterdir()))}"
    return asyncio.run(collab.collect(library=folder / "own", settings=list(settings), out=out, **asked))


def measure(result: RunResult) -> dict[str, float]:
    """Episode → seconds that its quickest step took."""
    return {one.id: min(step.environment_s for step in one.steps) for one in result.trajectories}


@pytest.mark.slow
def test_each_instance_takes_its_own_time_whoever_plays_it(tmp_path: Path) -> None:
    slow = "environment.delay={step_s: 0.05, spread: 100}"
    first, again, quick = (measure(play(tmp_path, *asked)) for asked in ((slow,), (slow, "concurrency=1"), ()))
    assert max(quick.values()) < 0.01
    assert max(first.values()) > 2 * min(first.values()) > 0.005
    assert again == pytest.approx(first, abs=0.02)


def test_waiting_counts_for_the_limits(tmp_path: Path) -> None:
    result = play(tmp_path, "environment.delay.step_s=5", "environment.limits.step_s=0.2")
    assert all(one.error is not None and "limit 0.2 s" in one.error.message for one in result.trajectories)


def test_a_spread_below_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rollout", "--env", "androidworld", "--agents", "rehearsal", "--set", "environment.delay.spread=0.5"]
    assert main(words) == 2
    assert "environment.delay.spread: Input should be greater than or equal to 1" in capsys.readouterr().err
