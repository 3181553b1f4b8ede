"""Rollouts are sampled at temperatures of their own, and as hot as at first, however sure the policy has become."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from collab.config import RunConfig, override
from collab.errors import ConfigError
from collab.loop.export import describe_training
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.loop import start
from collab.loop.phases import compute_growth
from collab.loop.policy import Policy
from collab.loop.record import TrainingDir
from collab.loop.report import format_epoch
from collab.rollout.run import read_stored_config
from collab.trainers.optim import measure_gain

GAIN = "model.norm.weight"


def scaled(checkpoint: Path, out: Path, factor: float) -> Path:
    """A copy of a checkpoint whose last norm scales so many times as much."""
    shutil.copytree(checkpoint, out)
    tensors = load_file(out / "model.safetensors")
    save_file({**tensors, GAIN: factor * tensors[GAIN]}, out / "model.safetensors", metadata={"format": "pt"})
    return out


def temperatures(run: RunConfig) -> dict[str, Any]:
    return {slot: agent.sampling.temperature for slot, agent in run.agents.items()}


def test_the_length_of_a_gain_is_that_of_its_vector(tiny: Path, tmp_path: Path) -> None:
    assert measure_gain(tiny) == pytest.approx(32**0.5)  # of 32 ones
    assert measure_gain(scaled(tiny, tmp_path / "twice", 2.0)) == pytest.approx(2 * 32**0.5)


def test_a_checkpoint_without_weights_is_named(tiny: Path, tmp_path: Path) -> None:
    shutil.copy(tiny / "config.json", tmp_path)
    with pytest.raises(ConfigError, match=f"{tmp_path}: there is no {GAIN} in its safetensors"):
        measure_gain(tmp_path)


def test_a_slot_is_heated_by_what_its_own_gain_has_grown(configure_toy, tiny: Path, tmp_path: Path) -> None:
    method = configure_toy("dpo.final_norm_learning_rate=0.1", "exploration=match_first_epoch").method
    first = Policy(version=0, weights={"ada": str(tiny), "ben": str(tiny)})
    surer = scaled(tiny, tmp_path / "surer", 1.5)
    policy = first.replace_trained(1, {"ben": str(surer)})
    assert compute_growth(method, policy, first) == {"ada": 1.0, "ben": pytest.approx(1.5)}
    assert compute_growth(method, first, first) == {}
    assert compute_growth(override(method, ["exploration=as_declared"]), policy, first) == {}
    assert compute_growth(override(method, ["dpo.final_norm_learning_rate=null"]), policy, first) == {}


@pytest.mark.parametrize(
    ("setting", "growth", "found"),
    [
        ("null", {}, {"ada": 0.7, "ben": 0.7}),
        ("null", {"ben": 2.0}, {"ada": 0.7, "ben": 1.4}),
        ("0.9", {}, {"ada": 0.9, "ben": 0.9}),
        ("[0.3]", {}, {"ada": 0.3, "ben": 0.3}),
        ("[0.3, 0.5]", {}, {"ada": 0.3, "ben": 0.5}),
        ("[0.3, 0.5, 0.8]", {"ada": 2.0}, {"ada": 0.6, "ben": 0.5}),
        ("0", {"ada": 2.0}, {"ada": 0.0, "ben": 0.0}),
    ],
)
def test_rollouts_have_temperatures_of_their_own(
    configure_toy, setting: str, growth: dict[str, float], found: dict[str, float]
) -> None:
    config = configure_toy(f"exploration_temperatures={setting}")
    assert temperatures(config.method.explore(config.run, growth)) == found
    hotter = override(config.method, ["temperature_scale=2"])
    assert temperatures(hotter.explore(config.run, growth)) == {slot: 2 * one for slot, one in found.items()}


def test_few_temperatures_are_repeated_and_a_list_of_an_agents_file_is_read_by_slot(configure_toy) -> None:
    config = configure_toy("exploration_temperatures=[0.3, 0.5]", "run.agents.*.sampling.temperature=[0.1, 0.2]")
    graph = config.run.graph.model_copy(update={"slots": ["ada", "ben", "cyd"]})
    ada = config.run.agents["ada"]
    three = config.run.model_copy(update={"graph": graph, "agents": dict.fromkeys(graph.slots, ada)})
    three = three.model_copy(update={"agent_names": dict.fromkeys(graph.slots, "scholar")})
    listed = ada.model_copy(update={"sampling": ada.sampling.model_copy(update={"temperature": [0.1, 0.2, 0.4]})})
    three = three.model_copy(update={"agents": dict.fromkeys(graph.slots, listed)})
    assert list(temperatures(config.method.explore(three)).values()) == [0.3, 0.5, 0.3]
    own = override(config.method, ["exploration_temperatures=null", "temperature_scale=2"])
    assert list(temperatures(own.explore(three)).values()) == [0.2, 0.4, 0.8]


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
    assert preset.exploration_temperatures == [0.3, 0.5, 0.8, 1.0]
    assert (preset.epochs, preset.steps, preset.recipe.final_norm_learning_rate) == (2, 800, None)


@pytest.mark.slow
def test_the_second_epoch_is_played_as_hot_as_the_first_and_evaluated_as_declared(
    configure_taught, tmp_path: Path
) -> None:
    """The gain of the one policy grows or shrinks in the first epoch; the second tells by how much, and plays so."""
    config = configure_taught(
        "dpo.final_norm_learning_rate=0.1", "held_out.before=false", "exploration=match_first_epoch"
    )
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    first, second = result.records[1:]
    folder = TrainingDir(result.path)
    assert first.temperatures == {"ada": 0.7, "ben": 0.7}
    scale = measure_gain(folder.path / first.weights["ada"]) / measure_gain(
        Path(config.run.agents["ada"].options["path"])
    )
    assert abs(scale - 1) > 0.01
    assert second.temperatures == pytest.approx({"ada": 0.7 * scale, "ben": 0.7 * scale})
    assert temperatures(read_stored_config(folder.get_epoch(1).rollout)) == {"ada": 0.7, "ben": 0.7}
    assert temperatures(read_stored_config(folder.get_epoch(2).rollout)) == pytest.approx(
        {"ada": 0.7 * scale, "ben": 0.7 * scale}
    )
    seeds = [folder.get_epoch(number).evaluation / "seed-39" for number in (1, 2)]
    assert [temperatures(read_stored_config(one)) for one in seeds] == [{"ada": 0.7, "ben": 0.7}] * 2
    (played,) = (line for line in format_epoch(second) if line.startswith("played"))
    assert f"at temperature {0.7 * scale:g}" in played


@pytest.mark.slow
def test_rollouts_explore_and_evaluations_are_played_as_declared(configure_taught, tmp_path: Path) -> None:
    config = configure_taught("exploration_temperatures=[0.9, 1.1]", "epochs=1")
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
