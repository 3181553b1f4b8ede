"""Rollouts have their own sampling temperatures; evaluations use the declared ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from collab.config import RunConfig, override
from collab.errors import ConfigError
from collab.loop.export import describe_training
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.loop import start
from collab.loop.record import TrainingDir
from collab.loop.report import format_epoch
from collab.rollout.run import read_stored_config

GAIN = "model.norm.weight"


def temperatures(run: RunConfig) -> dict[str, Any]:
    return {slot: agent.sampling.temperature for slot, agent in run.agents.items()}


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("null", {"ada": 0.7, "ben": 0.7}),
        ("0.9", {"ada": 0.9, "ben": 0.9}),
        ("[0.3]", {"ada": 0.3, "ben": 0.3}),
        ("[0.3, 0.5]", {"ada": 0.3, "ben": 0.5}),
        ("[0.3, 0.5, 0.8]", {"ada": 0.3, "ben": 0.5}),
        ("0", {"ada": 0.0, "ben": 0.0}),
    ],
)
def test_rollouts_have_temperatures_of_their_own(configure_toy, setting: str, found: dict[str, float]) -> None:
    config = configure_toy(f"exploration_temperatures={setting}")
    assert temperatures(config.method.explore(config.run)) == found


def test_few_temperatures_are_repeated_and_a_list_of_an_agents_file_is_read_by_slot(configure_toy) -> None:
    config = configure_toy("exploration_temperatures=[0.3, 0.5]", "run.agents.*.sampling.temperature=[0.1, 0.2]")
    graph = config.run.graph.model_copy(update={"slots": ["ada", "ben", "cyd"]})
    ada = config.run.agents["ada"]
    three = config.run.model_copy(update={"graph": graph, "agents": dict.fromkeys(graph.slots, ada)})
    three = three.model_copy(update={"agent_names": dict.fromkeys(graph.slots, "toy")})
    listed = ada.model_copy(update={"sampling": ada.sampling.model_copy(update={"temperature": [0.1, 0.2, 0.4]})})
    three = three.model_copy(update={"agents": dict.fromkeys(graph.slots, listed)})
    assert list(temperatures(config.method.explore(three)).values()) == [0.3, 0.5, 0.3]
    own = override(config.method, ["exploration_temperatures=null"])
    assert own.explore(three) == three


@pytest.mark.parametrize("value", ["[]", "-1", "[0.3, -0.1]", "hot"])
def test_temperatures_that_cannot_be_sampled_at_are_refused(configure_toy, value: str) -> None:
    with pytest.raises(ConfigError, match="exploration_temperatures"):
        configure_toy(f"exploration_temperatures={value}")


def test_the_preset_explores_at_its_own_temperatures_and_plays_as_declared(configure_toy, tmp_path: Path) -> None:
    config = configure_toy("exploration_temperatures=[0.3, 1.2]")
    assert {temperature for one in config.held_out for temperature in temperatures(one).values()} == {0.7}
    told = describe_training(TrainingDir(tmp_path), config, {}, 0, "shared").lines["method"]
    assert "rollouts sampled at temperatures 0.3, 1.2" in told
    preset = load_method(load_algorithm("collabuiagents"))
    assert preset.exploration_temperatures == [0.5, 0.8, 1.0, 1.0]
    assert (preset.epochs, preset.steps, preset.recipe.max_steps) == (2, 800, 80)


@pytest.mark.slow
def test_rollouts_explore_and_evaluations_are_played_as_declared(configure_finetuned, tmp_path: Path) -> None:
    config = configure_finetuned("exploration_temperatures=[0.9, 1.1]", "epochs=1")
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    folder = TrainingDir(result.path)
    explored = {"ada": 0.9, "ben": 1.1}
    assert temperatures(read_stored_config(folder.get_epoch(1).rollout)) == explored
    assert json.loads(folder.get_epoch(1).record.read_text())["temperatures"] == explored
    assert result.records[0].temperatures == {}
    for number in (0, 1):
        measured = read_stored_config(folder.get_epoch(number).evaluation / "seed-39")
        assert temperatures(measured) == {"ada": 0.7, "ben": 0.7}
    text = "\n".join(format_epoch(result.records[1]))
    assert "at temperatures 0.9, 1.1" in text
    assert "at temperature 0.7" in text
