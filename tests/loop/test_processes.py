"""A team whose policies are trained by several processes, and what is refused before anything is played."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from collab.errors import ConfigError, UsageError
from collab.loop.loop import start
from collab.trainers import launch as launching
from collab.trainers.launch import LOG
from collab.trainers.run_dir import FinetuneDir


def test_more_processes_than_gpus_are_refused_at_once(configure_toy, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(launching, "_count_gpus", lambda device: 1)
    with pytest.raises(UsageError, match="2 processes, but this machine has 1 GPUs"):
        asyncio.run(start(configure_toy("processes=2"), tmp_path / "run", options={"allow_uncalibrated": True}))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["processes=0"], "processes"),
        (["objective=trajectory-dpo", "processes=2"], "whole trajectories are trained by one process; set processes=1"),
        (["parallelism=fsdp"], "divides a model among processes; set processes above 1"),
        (["parallelism=zero2", "processes=2"], "DeepSpeed .zero2. would take a step after each; use sharing=none"),
    ],
)
def test_what_cannot_be_divided_is_one_line(settings: list[str], said: str, configure_toy) -> None:
    with pytest.raises(ConfigError, match=said):
        configure_toy(*settings)


@pytest.mark.slow
def test_two_processes_train_a_team(configure_finetuned, tmp_path: Path, monkeypatch) -> None:
    """One epoch, played and judged here, trained by others, measured here again."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    result = asyncio.run(
        start(configure_finetuned("epochs=1", "episodes=8", "processes=2"), tmp_path / "run", device="cpu")
    )
    assert result.summary is not None
    record = result.records[1]
    assert record.examples["shared"].examples > 1
    assert record.trained["shared"].steps > 0
    folder = FinetuneDir(tmp_path / "run/epochs/1/training")
    assert folder.read()["processes"] == 2
    assert (folder.path / LOG).is_file()
    assert record.trained["shared"].digest != json.loads((result.path / "training.json").read_text())["base"]["ada"]
    assert folder.read_metrics()[0]["margin"] == pytest.approx(0, abs=1e-6)
