"""The plan: counts that are those of the order, memory by its formula, time measured or said to be estimated."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from collab.trainers import estimate
from collab.trainers.base_model import Adapter, silence_libraries
from collab.trainers.estimate import estimate_memory, format_plan, measure_sizes, plan
from collab.trainers.prepare import Prepared, prepare
from collab.trainers.trainer import build_trainer


def prepared_with(samples, base: Path, stage="sft", *settings: str) -> Prepared:
    levels = ["preference"] if stage == "dpo" else ["basic", "instruction"]
    return prepare(samples.task(base, stage, *settings), samples.rows(10, levels))


@pytest.mark.slow
def test_counts_are_those_of_every_single_pass(samples, base: Path) -> None:
    prepared = prepared_with(samples, base, "sft", "epochs=2", "rows_at_once=3")
    found = plan(prepared, "cpu")
    lengths = [len(item) for item in prepared.encoded.items]
    assert found.tokens == 2 * sum(lengths)
    assert found.scored == 2 * sum(item.scored for item in prepared.encoded.items)
    computed = sum(len(part) * max(lengths[row] for row in part) for step in prepared.steps for part in step.parts)
    assert found.padding == computed - found.tokens > 0
    assert found.rows == {"basic": 10, "instruction": 10}
    assert found.passes == 3 * found.steps
    assert found.longest == max(lengths)


@pytest.mark.slow
def test_what_pairs_share_is_counted_once(samples, base: Path) -> None:
    """A pass of one pair computes the prompt and what its replies, different from their start, add."""
    prepared = prepared_with(samples, base, "dpo", "epochs=1", "batch_rows=1", "sharing=prefix")
    found, items = plan(prepared, "cpu"), prepared.encoded.items
    for item in items:
        assert item.chosen[0] != item.rejected[0]
    assert found.shared == sum(len(item.prompt) for item in items)
    assert found.tokens - found.shared == sum(len(item.prompt) + item.scored for item in items)
    assert found.padding == 0
    assert f"({found.scored:,} scored), {found.shared:,} shared" in format_plan(found)
    unshared = plan(prepared_with(samples, base, "dpo", "epochs=1", "batch_rows=1"), "cpu")
    assert (unshared.shared, unshared.tokens) == (0, found.tokens)
    assert unshared.memory.activations > found.memory.activations


@pytest.mark.parametrize("settings", [[], ["lora={rank: 4}"], ["lora={rank: 2, targets: [q_proj, v_proj]}"]])
def test_trained_parameters_are_those_of_the_trainer(samples, base: Path, tmp_path: Path, settings) -> None:
    prepared = prepared_with(samples, base, "sft", *settings)
    with silence_libraries():
        model = build_trainer(prepared, _folder(tmp_path), "cpu", ()).model
    trainable = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert measure_sizes(prepared).trainable == trainable


def test_memory_by_hand(samples, base: Path) -> None:
    """Two layers, width 32, feed-forward 64, keys 16, float32; a pass of one row."""
    prepared = prepared_with(samples, base, "sft", "batch_rows=1", "optimizer=adamw")
    parameters = measure_sizes(prepared).parameters
    found = estimate_memory(prepared)
    assert (found.weights, found.gradients, found.optimizer) == (4 * parameters, 4 * parameters, 8 * parameters)
    layer = 8 * 32 + 2 * 16 + 4 * 64
    vocabulary = prepared.base.config.vocab_size
    assert found.activations == max(
        4 * len(one) * 2 * layer + 12 * one.scored * vocabulary for one in prepared.encoded.items
    )
    lighter = estimate_memory(prepared_with(samples, base, "sft", "batch_rows=1", "checkpointing=true"))
    kept = 2 * 32 + layer
    assert lighter.activations == max(
        4 * len(one) * kept + 12 * one.scored * vocabulary for one in prepared.encoded.items
    )


def test_an_adapter_needs_no_second_model(samples, base: Path) -> None:
    full, small = (estimate_memory(prepared_with(samples, base, "dpo", *more)) for more in ([], ["lora={rank: 2}"]))
    size = measure_sizes(prepared_with(samples, base, "dpo", "lora={rank: 2}"))
    assert full.weights == 8 * size.parameters
    assert small.weights == 4 * size.parameters + 4 * size.trainable
    assert small.optimizer == 8 * size.trainable


def test_an_adapter_to_compare_with_lies_beside_the_trained_one(samples, base: Path) -> None:
    prepared = prepared_with(samples, base, "dpo", "lora={rank: 2}")
    both = replace(prepared, reference_adapter=Adapter(path="before", digest="0" * 64))
    assert estimate_memory(both).weights - estimate_memory(prepared).weights == 4 * measure_sizes(prepared).trainable
    assert estimate_memory(both).optimizer == estimate_memory(prepared).optimizer


@pytest.mark.parametrize("settings", [[], ["lora={rank: 2}"]])
def test_moments_are_those_of_the_optimizer(samples, base: Path, tmp_path: Path, settings) -> None:
    """After a step; beside them it counts steps, one number for each weight of AdamW's."""
    for optimizer in ("adamw", "muon"):
        prepared = prepared_with(samples, base, "sft", f"optimizer={optimizer}", *settings)
        with silence_libraries():
            trainer = build_trainer(prepared, _folder(tmp_path), "cpu", ())
        made = trainer.create_optimizer()
        for weight in trainer.model.parameters():
            weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
        made.step()
        states = [one.state for one in getattr(made, "_both", (made,))]
        kept = [value for state in states for one in state.values() for value in one.values() if value.ndim]
        assert sum(value.numel() for value in kept) == measure_sizes(prepared).moments


def test_what_does_not_fit_is_estimated(samples, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepared_with(samples, base)
    monkeypatch.setattr(estimate, "free_memory", lambda device: 1000)
    monkeypatch.setattr(estimate, "_measure_speed", lambda device: 1e9)
    found = plan(prepared, "cpu")
    parameters = measure_sizes(prepared).parameters
    assert not found.time.measured
    least = 6 * parameters * (found.tokens + found.padding) / (estimate.UTILISATION * 1e9)
    assert least < found.time.seconds < 1.2 * least
    assert "estimated" in format_plan(found)


@pytest.mark.slow
def test_the_machine_has_a_speed() -> None:
    assert 1e8 < estimate._measure_speed("cpu") < 1e15


def _folder(path: Path):
    from collab.trainers.run_dir import FinetuneDir

    return FinetuneDir(path)
