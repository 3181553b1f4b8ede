"""Rollouts are as hot as at first, however sure the policy has become."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from collab.config import RunConfig, override
from collab.errors import ConfigError
from collab.loop.loop import start
from collab.loop.phases import compute_temperature_scales, scale_temperatures
from collab.loop.policy import Policy
from collab.loop.record import EpochRecord, TrainingDir
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
    method = configure_toy("dpo.final_norm_learning_rate=0.1").method
    assert method.exploration == "match_first_epoch"
    first = Policy(version=0, weights={"ada": str(tiny), "ben": str(tiny)})
    surer = scaled(tiny, tmp_path / "surer", 1.5)
    policy = first.replace_trained(1, {"ben": str(surer)})
    assert compute_temperature_scales(method, policy, first) == {"ada": 1.0, "ben": pytest.approx(1.5)}
    assert compute_temperature_scales(method, first, first) == {}
    assert compute_temperature_scales(override(method, ["exploration=as_declared"]), policy, first) == {}
    assert compute_temperature_scales(override(method, ["dpo.final_norm_learning_rate=null"]), policy, first) == {}


def test_a_heat_of_the_method_holds_from_the_first_epoch_on_and_beside_growth(
    configure_toy, tiny: Path, tmp_path: Path
) -> None:
    method = configure_toy("dpo.final_norm_learning_rate=0.1", "temperature_scale=1.6").method
    first = Policy(version=0, weights={"ada": str(tiny), "ben": str(tiny)})
    surer = first.replace_trained(1, {"ben": str(scaled(tiny, tmp_path / "surer", 1.5))})
    assert compute_temperature_scales(method, first, first) == {"ada": 1.6, "ben": 1.6}
    assert compute_temperature_scales(method, surer, first) == {"ada": 1.6, "ben": pytest.approx(2.4)}
    assert compute_temperature_scales(override(method, ["exploration=as_declared"]), surer, first) == {
        "ada": 1.6,
        "ben": 1.6,
    }


def test_heat_multiplies_one_temperature_or_one_per_slot_and_leaves_the_greedy_greedy(configure_toy) -> None:
    run = configure_toy().run
    assert temperatures(scale_temperatures(run, {"ben": 2.0})) == {"ada": 0.7, "ben": 1.4}
    ada = run.agents["ada"]
    listed = ada.model_copy(update={"sampling": ada.sampling.model_copy(update={"temperature": [0.0, 0.5]})})
    several = run.model_copy(update={"agents": {**run.agents, "ada": listed}})
    assert temperatures(scale_temperatures(several, {"ada": 3.0})) == {"ada": [0.0, 1.5], "ben": 0.7}
    assert scale_temperatures(run, {}) == run


@pytest.mark.slow
def test_the_second_epoch_is_played_as_hot_as_the_first_and_evaluated_as_declared(
    configure_taught, tmp_path: Path
) -> None:
    """The gain of the one policy grows or shrinks in the first epoch; the second tells by how much, and plays so."""
    config = configure_taught("dpo.final_norm_learning_rate=0.1", "held_out.before=false")
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    first, second = result.records[1:]
    folder = TrainingDir(result.path)
    assert first.temperature_scale == {}
    scale = measure_gain(folder.path / first.weights["ada"]) / measure_gain(
        Path(config.run.agents["ada"].options["path"])
    )
    assert abs(scale - 1) > 0.01
    assert second.temperature_scale == {"ada": pytest.approx(scale), "ben": pytest.approx(scale)}
    assert temperatures(read_stored_config(folder.get_epoch(1).rollout)) == {"ada": 0.7, "ben": 0.7}
    assert temperatures(read_stored_config(folder.get_epoch(2).rollout)) == pytest.approx(
        {"ada": 0.7 * scale, "ben": 0.7 * scale}
    )
    seeds = [folder.get_epoch(number).evaluation / "seed-39" for number in (1, 2)]
    assert [temperatures(read_stored_config(one)) for one in seeds] == [{"ada": 0.7, "ben": 0.7}] * 2
    assert f"scale    temperatures of the rollout times {scale:.2f}" in format_epoch(second)


def test_heat_is_told_per_agent_where_their_policies_differ() -> None:
    told = EpochRecord(
        algorithm="collabuiagents", epoch=2, version=1, weights={}, hash="", temperature_scale={"ada": 1.0, "ben": 1.5}
    )
    assert "scale    temperatures of the rollout times ada 1.00, ben 1.50" in format_epoch(told)
    assert not any(line.startswith("scale") for line in format_epoch(told.model_copy(update={"temperature_scale": {}})))
