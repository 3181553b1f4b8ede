"""Preferences between whole trajectories: loss, exact gradient, order, and which pairs are left out."""

from __future__ import annotations

import math
import types
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from collab.errors import ConfigError
from collab.trainers.base_model import silence_libraries
from collab.trainers.prepare import Prepared
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir
from collab.trainers.trainer import build_trainer
from collab.trainers.trajectory_dpo import TrajectoryRows, build_trajectory_steps, prepare_trajectories, weigh

SMALL = ("batch_rows=3", "rows_at_once=2", "epochs=1", "beta=0.2", "anchor=0.5", "sharing=none")


def test_the_loss_and_its_factors_by_hand() -> None:
    """One pair, log-ratios 1 and 2 against -1, β 0.5: M = 0.5 (1 + 2 - -1) = 2; anchor 0.1 over 4 + 6 tokens."""
    found = weigh(
        torch.tensor([-3.0, -4.0, -6.0]),
        torch.tensor([-4.0, -6.0, -5.0]),
        torch.tensor([1, 1, -1]),
        torch.tensor([7, 7, 7]),
        torch.tensor([4, 6, 9]),
        beta=0.5,
        anchor=0.1,
    )
    assert found.margins.tolist() == pytest.approx([2.0])
    assert float(found.loss) == pytest.approx(math.log(1 + math.exp(-2)) + 0.1 * 7 / 10)
    pull = 0.5 / (1 + math.exp(2))
    assert found.factors.tolist() == pytest.approx([-pull - 0.01, -pull - 0.01, pull])


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.sampled_from([1, -1]), st.integers(0, 3)), min_size=1))
def test_factors_are_the_derivative_of_the_loss(said: list[tuple[float, float, int, int]]) -> None:
    logps, reference = (torch.tensor([one[place] for one in said], dtype=torch.float64) for place in (0, 1))
    sides, pairs = (torch.tensor([one[place] for one in said]) for place in (2, 3))
    logps.requires_grad_()
    found = weigh(logps, reference, sides, pairs, torch.full_like(sides, 2), beta=0.7, anchor=0.3)
    found.loss.backward()
    torch.testing.assert_close(logps.grad, found.factors.detach())


def trajectories(samples: types.SimpleNamespace, *sizes: tuple[int, int]) -> list[TrajectoryRows]:
    """Pairs with so many replies on both sides."""
    rows = iter(samples.rows(sum(map(sum, sizes)), ["demonstration"]))
    return [
        TrajectoryRows(chosen=[next(rows) for _ in range(good)], rejected=[next(rows) for _ in range(bad)])
        for good, bad in sizes
    ]


def prepared(samples: types.SimpleNamespace, base: Path, *settings: str) -> Prepared:
    task = samples.task(base, "dpo", *SMALL, *settings)
    return prepare_trajectories(task, trajectories(samples, (3, 2), (2, 4)))


@pytest.mark.parametrize(("sharing", "temperature"), [("none", 1.5), ("prefix", 1.0), ("prefix", 1.5)])
def test_a_step_in_passes_has_the_gradient_of_the_whole(
    sharing: str, temperature: float, samples: types.SimpleNamespace, base: Path, tmp_path: Path
) -> None:
    """Against the formula, differentiated in one piece; the reference is the policy before a push."""
    made = prepared(samples, base, f"sharing={sharing}", "batch_rows=5", f"temperature={temperature}")
    (step,) = made.steps
    with silence_libraries():
        trainer = build_trainer(made, FinetuneDir(tmp_path), "cpu", ())
    trainer.steps = [step.parts]
    with torch.no_grad():
        for number, weight in enumerate(trainer.model.parameters()):
            weight.add_(0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(number)))
    assert len(step.parts) > 1
    loss = trainer.training_step(trainer.model, next(iter(trainer.get_train_dataloader())))
    found = {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}
    trainer.model.zero_grad()
    whole = _whole_loss(made, trainer, temperature)
    whole.backward()
    assert float(loss) == pytest.approx(whole.item(), rel=1e-4)
    for name, weight in trainer.model.named_parameters():
        torch.testing.assert_close(found[name], weight.grad, rtol=1e-3, atol=1e-5)


def _whole_loss(made: Prepared, trainer: object, temperature: float) -> torch.Tensor:
    """−log σ of the summed log-ratios, plus the anchor, reply by reply, with a model that nothing was done to."""
    plain = AutoModelForCausalLM.from_config(trainer.model.config, attn_implementation="eager")

    def logp(model: object, item: object) -> torch.Tensor:
        asked = {"input_ids": torch.from_numpy(item.ids).long()[None], "use_cache": False}
        logits = torch.func.functional_call(plain, dict(model.named_parameters()), kwargs=asked).logits / temperature
        places = torch.arange(item.scored_from, len(item))
        return logits[0].log_softmax(-1)[places - 1, torch.from_numpy(item.ids).long()[places]].sum()

    margins, likely, tokens = [torch.zeros(()), torch.zeros(())], torch.zeros(()), 0
    for item, part in zip(made.encoded.items, made.trajectories, strict=True):
        now = logp(trainer.model, item)
        with torch.no_grad():
            before = logp(trainer.ref_model, item)
        margins[part.pair] = margins[part.pair] + 0.2 * part.side * (now - before)
        if part.side > 0:
            likely, tokens = likely - now, tokens + item.scored
    return torch.nn.functional.softplus(-torch.stack(margins)).mean() + 0.5 * likely / tokens


def test_steps_take_whole_pairs_until_there_are_enough_chosen_replies(samples: types.SimpleNamespace) -> None:
    pairs = trajectories(samples, (3, 2), (2, 4), (4, 1), (1, 1))
    recipe = samples.recipe("dpo", *SMALL, "epochs=2")
    steps = build_trajectory_steps(pairs, recipe, 0)
    assert steps == build_trajectory_steps(pairs, recipe, 0)
    assert Counter(row for step in steps for row in step.rows) == dict.fromkeys(range(18), 2)
    bounds = [range(5), range(5, 11), range(11, 16), range(16, 18)]
    for step in steps:
        assert all(len(part) <= 4 for part in step.parts)
        taken = [bound for bound in bounds if bound[0] in step.rows]
        assert sorted(step.rows) == [row for bound in taken for row in bound]


def test_a_pair_with_a_reply_that_is_too_long_is_left_out_whole(samples: types.SimpleNamespace, base: Path) -> None:
    pairs = trajectories(samples, (1, 1), (1, 1))
    long = [samples.row(99, "demonstration", words=500)]
    made = prepare_trajectories(
        samples.task(base, "dpo", *SMALL), [*pairs, TrajectoryRows(chosen=long, rejected=pairs[0].rejected)]
    )
    assert (len(made.encoded.items), made.encoded.dropped) == (4, {"trajectory": 1})
    with pytest.raises(ConfigError, match="raise context"):
        prepare_trajectories(made.task, [TrajectoryRows(chosen=long, rejected=long)])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [("sharing=prefix",), ("lora={rank: 4, alpha: 8, merge: true}",)])
def test_trajectories_are_learned_and_a_stopped_run_resumes_exactly(
    settings: tuple[str, ...], samples: types.SimpleNamespace, base: Path, tmp_path: Path
) -> None:
    made = prepared(samples, base, "epochs=6", "learning_rate=5e-3", "batch_rows=2", "save_every=1", *settings)
    whole = train(made, begin(made, tmp_path / "whole"), device="cpu")
    lines = FinetuneDir(tmp_path / "whole").read_metrics()
    assert lines[0]["margin"] == pytest.approx(0, abs=1e-4)
    assert lines[-1]["margin"] > 0.1
    assert lines[-1]["preference_accuracy"] == 1
    folder, asked = begin(made, tmp_path / "parts"), iter([False, True])
    assert train(made, folder, device="cpu", stopping=lambda: next(asked)).final is None
    again = train(made, folder, device="cpu")
    assert whole.final is not None
    assert again.final is not None
    for name in ("model.safetensors",):
        assert (whole.final / name).read_bytes() == (again.final / name).read_bytes()
