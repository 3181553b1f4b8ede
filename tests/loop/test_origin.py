"""A training knows from which other one its team was taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.errors import ConfigError, RunFormatError
from collab.loop.config import Method, Origin
from collab.loop.configure import _find_origin
from collab.loop.interfaces import load_algorithm
from collab.loop.record import TrainingDir


def origin_of(agents: str, method: Method) -> Origin | None:
    return _find_origin(agents, load_algorithm("collabuiagents"), method)


@pytest.fixture
def first(configure_toy, tmp_path: Path) -> Path:
    folder = TrainingDir(tmp_path / "first")
    folder.begin({"config": configure_toy("policies=per_agent").model_dump(mode="json"), "summary": {"best": 1}})
    return folder.path


def test_an_origin_is_a_training_and_an_epoch(configure_toy, first: Path) -> None:
    method = configure_toy().method
    assert [origin_of(f"{first}@{epoch}", method) for epoch in ("epoch2", "best")] == [
        Origin(run=str(first), epoch=epoch) for epoch in (2, 1)
    ]


def test_agents_files_come_from_no_training(configure_toy, tmp_path: Path) -> None:
    assert origin_of("pocket", configure_toy("replay_fraction=0.3").method) is None
    assert configure_toy().origin is None
    with pytest.raises(RunFormatError, match="no training"):
        origin_of(f"{tmp_path}@best", configure_toy().method)


def test_pairs_of_other_policies_or_another_objective_are_not_mixed_in(configure_toy, first: Path) -> None:
    same = configure_toy("policies=per_agent", "replay_fraction=0.3").method
    assert origin_of(f"{first}@best", same) == Origin(run=str(first), epoch=1)
    for settings, told in ((("policies=shared",), "policies shared"), (("objective=rft",), "objective rft")):
        method = configure_toy("replay_fraction=0.3", "pairs.anchors=0", *settings).method
        with pytest.raises(
            ConfigError,
            match=f"replay_fraction: 0.3 mixes pairs of {first} in, .* this training .*{told}.*; set replay_fraction=0",
        ):
            origin_of(f"{first}@best", method)
