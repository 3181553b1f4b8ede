"""The sighted policy plays its tasks from pictures with numbered boxes, and cannot by other pictures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from PIL import Image

import collab
from collab.envs.overlay import encode
from collab.envs.simphone.suite import PhoneEnvironment

TASKS = ["OpenAppTaskEval", "ClockStopWatchRunning", "TurnOnWifiAndOpenApp"]


def count_solved(out: Path) -> int:
    """Play two instances of each task; return how many are solved."""
    pytest.importorskip("torch").set_num_threads(1)
    asked = {"agents": "sighted", "env": "androidworld", "graph": "single", "tasks": TASKS, "split": "new-seeds"}
    greedy = {"agents.*.sampling.temperature": 0.0}
    played = asyncio.run(collab.collect(**asked, episodes=6, seed=40, settings=greedy, out=out, progress=False))
    return sum(bool(one.success) for one in played.trajectories)


@pytest.mark.slow
def test_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither without a picture nor by a familiar one, of the first screen, does it know what to do next."""
    assert count_solved(tmp_path / "seen") >= 5
    shown: list[bytes] = []
    draw = PhoneEnvironment.screenshot

    async def draw_first(self: PhoneEnvironment, marks: bool = False) -> bytes:
        shown.append(shown[0] if shown else await draw(self, marks))
        return shown[0]

    monkeypatch.setattr(PhoneEnvironment, "screenshot", draw_first)
    assert count_solved(tmp_path / "first") <= 2

    async def draw_nothing(self: PhoneEnvironment, marks: bool = False) -> bytes:
        return encode(Image.new("RGB", (1080, 2400), "grey"))

    monkeypatch.setattr(PhoneEnvironment, "screenshot", draw_nothing)
    assert count_solved(tmp_path / "grey") == 0
