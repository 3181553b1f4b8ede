"""Value models: what can be separated is learned, and a fit that was interrupted goes on with the same bytes."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from collab.errors import Diverged, RunFormatError
from collab.trainers.recipe import ValueRecipe
from collab.trainers.rl.values import ValueModel

Array = np.ndarray[Any, Any]
SIZE = 6


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def recipe(**settings: Any) -> ValueRecipe:
    return ValueRecipe(**{"hidden": 16, "batch": 32, "learning_rate": 1e-2, **settings})


def episodes(many: int = 60, seed: int = 0) -> tuple[Array, list[float], list[str]]:
    """Four states each; solved where the first feature is positive. The others say nothing, on scales of their own."""
    rng = np.random.default_rng(seed)
    solved = rng.random(many) < 0.5
    signal = np.where(solved, 1.0, -1.0).repeat(4) * rng.uniform(0.5, 1.5, 4 * many)
    noise = rng.normal(size=(4 * many, SIZE - 1)) * [1, 1e-3, 1e3, 1, 0] + [0, 50, 0, -7, 3]
    features = np.column_stack([signal, noise]).astype(np.float32)
    return features, solved.repeat(4).astype(float).tolist(), [f"episode-{number // 4}" for number in range(4 * many)]


def fitted(steps: int = 60, seed: int = 0, **settings: Any) -> ValueModel:
    model = ValueModel(recipe(**settings), size=SIZE, seed=seed)
    model.fit(*episodes(), steps=steps, seed=1)
    return model


def files(model: ValueModel, folder: Path) -> dict[str, bytes]:
    model.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ------------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("settings", [{}, {"heads": 2}, {"loss": "mse"}, {"layers": 1}, {"layers": 3, "heads": 2}])
def test_what_can_be_separated_is_learned(settings: dict[str, Any]) -> None:
    model = ValueModel(recipe(learning_rate=0.05, **settings), size=SIZE, seed=0)
    features, outcomes, names = episodes()
    first = model.fit(features, outcomes, names, steps=0, seed=1)
    last = model.fit(features, outcomes, names, steps=100, seed=2)
    assert (first.steps, first.loss, last.steps) == (0, None, 100)
    assert last.trained + last.held_out == len(names)
    assert last.auc == pytest.approx(1.0, abs=0.01)
    assert last.accuracy is not None
    assert last.accuracy > 0.95
    assert last.ece is not None
    assert first.ece is not None
    assert last.ece < min(0.1, first.ece)
    found = model.values(features)
    assert found.shape == (len(names),)
    assert found.dtype == np.float64
    assert found[np.array(outcomes) == 1].mean() > 0.85 > 0.15 > found[np.array(outcomes) == 0].mean()


def test_cross_entropy_gives_the_share_of_success_and_regression_its_mean() -> None:
    """Of two kinds of states one is solved in 3 of 4 cases; both losses are least there."""
    features = np.repeat(np.eye(2, dtype=np.float32), 200, axis=0)
    outcomes = [1.0, 1.0, 1.0, 0.0] * 50 + [0.0] * 200
    for loss in ("cross-entropy", "mse"):
        model = ValueModel(recipe(loss=loss, held_out=0, batch=400), size=2, seed=0)
        metrics = model.fit(features, outcomes, ["x"] * 400, steps=150, seed=0)
        assert model.values(np.eye(2, dtype=np.float32)) == pytest.approx([0.75, 0.0], abs=0.06), loss
        assert metrics.loss is not None
    # Soft targets are learned as such: cross-entropy is least at the target.
    soft = ValueModel(recipe(held_out=0), size=2, seed=0)
    soft.fit(features, [0.3] * 400, ["x"] * 400, steps=200, seed=0)
    assert soft.values(features[:1]) == pytest.approx([0.3], abs=0.03)


def test_the_loss_is_that_of_the_paper() -> None:
    """Equations 2.5 and 2.6 on a model that has learned nothing of four rows: −log V or −log(1 − V), averaged."""
    model = ValueModel(recipe(held_out=0, batch=64, layers=1), size=SIZE, seed=0)
    features, outcomes = np.zeros((1, SIZE), dtype=np.float32), [1.0]
    (before,) = model.values(features)  # the scale of one row is its own: the same input
    metrics = model.fit(features, outcomes, ["x"], steps=1, seed=0)
    assert metrics.loss == pytest.approx(-math.log(before), abs=1e-6)
    squared = ValueModel(recipe(held_out=0, loss="mse"), size=SIZE, seed=0)
    (before,) = squared.values(features)
    assert squared.fit(features, outcomes, ["x"], steps=1, seed=0).loss == pytest.approx((1 - before) ** 2, abs=1e-6)


def test_the_value_is_the_smaller_of_two_heads() -> None:
    features, _, _ = episodes()
    two = fitted(heads=2)
    both = two._predict(two._read(features)).detach().numpy()
    assert both.shape == (2, len(features))
    assert (two.values(features) == both.min(0).astype(np.float64)).all()
    assert (both[0] < both[1]).any()
    assert (both[0] > both[1]).any()


def test_features_are_standardised_by_the_first_fit_for_good() -> None:
    features, outcomes, names = episodes()
    model = ValueModel(recipe(held_out=0), size=SIZE, seed=0)
    model.fit(features, outcomes, names, steps=1, seed=0)
    scaled = model._read(features).numpy()
    np.testing.assert_allclose(scaled[:, :-1].mean(0), 0, atol=0.01)
    np.testing.assert_allclose(scaled[:, :-1].std(0), 1, atol=0.02)
    assert (scaled[:, -1] == 0).all(), "a constant feature says nothing"
    # What hardly varied at first does not drown the rest later, and the scale stays.
    model.fit(features + 1e6, outcomes, names, steps=1, seed=0)
    assert np.abs(model._read(features + 1e6).numpy()).max() <= 10
    assert (model._read(features).numpy() == scaled).all()


def test_scale_of_features_does_not_matter() -> None:
    features, outcomes, names = episodes()
    model, other = (ValueModel(recipe(), size=SIZE, seed=0) for _ in range(2))
    model.fit(features, outcomes, names, steps=30, seed=0)
    other.fit(features * 1024, outcomes, names, steps=30, seed=0)
    np.testing.assert_allclose(model.values(features), other.values(features * 1024), atol=1e-4)


# -------------------------------------------------------------------------------------------------- what is held out


def test_a_trajectory_is_held_out_as_a_whole_and_for_good() -> None:
    features, outcomes, names = episodes(200)
    model = ValueModel(recipe(), size=SIZE, seed=3)
    kept = {name for name in names if model.is_held_out(name)}
    assert 20 < len(kept) < 60
    assert model.fit(features, outcomes, names, steps=1, seed=0).held_out == 4 * len(kept)
    grown = episodes(400)
    model.fit(*grown, steps=1, seed=0)
    assert {name for name in names if model.is_held_out(name)} == kept
    assert {name for name in names if ValueModel(recipe(), size=SIZE, seed=4).is_held_out(name)} != kept


def test_held_out_rows_teach_nothing() -> None:
    """Other outcomes there change the numbers that are measured, and no weight."""
    features, outcomes, names = episodes()
    models = [ValueModel(recipe(), size=SIZE, seed=0) for _ in range(2)]
    turned = [
        1 - outcome if models[0].is_held_out(name) else outcome for outcome, name in zip(outcomes, names, strict=True)
    ]
    one = models[0].fit(features, outcomes, names, steps=60, seed=1)
    other = models[1].fit(features, turned, names, steps=60, seed=1)
    assert models[0].digest == models[1].digest
    assert one.auc is not None
    assert other.auc == pytest.approx(1 - one.auc)


def test_with_nothing_to_train_on_no_step_is_taken() -> None:
    model = ValueModel(recipe(held_out=0.999), size=SIZE, seed=0)
    before = model.digest
    metrics = model.fit(*episodes(3), steps=5, seed=0)
    assert (metrics.steps, metrics.trained, metrics.held_out, metrics.loss) == (0, 0, 12, None)
    assert model.digest == before


# ------------------------------------------------------------------------------------------------------- metrics


def test_one_class_is_fitted_and_has_no_auc() -> None:
    features, _, names = episodes()
    model = ValueModel(recipe(), size=SIZE, seed=0)
    metrics = model.fit(features, [0.0] * len(names), names, steps=60, seed=0)
    assert (metrics.auc, metrics.solved) == (None, 0.0)
    assert metrics.accuracy == 1.0
    assert metrics.ece is not None
    assert metrics.ece < 0.1
    assert model.values(features).max() < 0.1


def test_without_held_out_rows_nothing_is_measured() -> None:
    metrics = ValueModel(recipe(held_out=0), size=SIZE, seed=0).fit(*episodes(), steps=1, seed=0)
    assert (metrics.accuracy, metrics.auc, metrics.ece, metrics.held_out) == (None, None, None, 0)
    assert [column.count for column in metrics.curve] == [0] * 10


def test_the_calibration_curve_holds_every_held_out_row() -> None:
    """Also of a regression, whose values leave [0, 1]."""
    features, outcomes, names = episodes()
    model = ValueModel(recipe(loss="mse"), size=SIZE, seed=0)
    metrics = model.fit(features, outcomes, names, steps=100, seed=0)
    found = model.values(features)
    assert found.min() < 0 < 1 < found.max()
    assert sum(column.count for column in metrics.curve) == metrics.held_out
    assert [column.good for column in metrics.curve if column.count][:: len(metrics.curve)] == [0.0]


# ------------------------------------------------------------------------------------------ the same, and going on


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    assert files(fitted(), tmp_path / "one") == files(fitted(), tmp_path / "two")
    assert fitted(seed=1).digest != fitted().digest != fitted(steps=61).digest


def test_no_global_generator_is_touched() -> None:
    before = torch.random.get_rng_state()
    fitted(5)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("settings", [{}, {"heads": 2, "layers": 3}, {"loss": "mse"}])
def test_a_loaded_model_goes_on_as_if_nothing_had_happened(tmp_path: Path, settings: dict[str, Any]) -> None:
    grown = episodes(90, seed=5)
    undisturbed = fitted(40, **settings)
    undisturbed.save(tmp_path / "between")
    again = ValueModel.load(tmp_path / "between")
    assert (again.digest, again.steps, again.recipe) == (undisturbed.digest, 40, undisturbed.recipe)
    assert again.fit(*grown, steps=40, seed=9) == undisturbed.fit(*grown, steps=40, seed=9)
    assert files(again, tmp_path / "one") == files(undisturbed, tmp_path / "two")
    assert (again.values(grown[0]) == undisturbed.values(grown[0])).all()


def test_a_model_without_a_fit_can_be_kept(tmp_path: Path) -> None:
    model = ValueModel(recipe(), size=SIZE, seed=0)
    model.save(tmp_path / "new")
    assert ValueModel.load(tmp_path / "new").digest == model.digest
    again = ValueModel.load(tmp_path / "new")
    assert again.fit(*episodes(), steps=20, seed=0) == model.fit(*episodes(), steps=20, seed=0)
    assert again.digest == model.digest


def test_files_that_do_not_fit_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunFormatError, match=r"no values\.json: no value model"):
        ValueModel.load(tmp_path)
    whole = tmp_path / "whole"
    fitted(3).save(whole)

    def spoil(name: str) -> Path:
        return shutil.copytree(whole, tmp_path / name)

    (spoil("other") / "values.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(RunFormatError, match=r"not the weights that values\.json describes; copy the whole"):
        ValueModel.load(tmp_path / "other")
    (spoil("half") / "values.safetensors").unlink()
    with pytest.raises(RunFormatError, match=r"values\.safetensors: cannot be read"):
        ValueModel.load(tmp_path / "half")
    head = json.loads((spoil("wrong") / "values.json").read_text())
    for name, value in (("size", SIZE + 1), ("recipe", {**head["recipe"], "heads": 2}), ("recipe", {}), ("seed", None)):
        (tmp_path / "wrong" / "values.json").write_text(json.dumps({**head, name: value}))
        with pytest.raises(RunFormatError, match=r"values\.json: does not fit its weights"):
            ValueModel.load(tmp_path / "wrong")


# ------------------------------------------------------------------------------------------------------- no numbers


@pytest.mark.parametrize("first", [True, False])
def test_a_fit_that_diverges_is_undone(first: bool) -> None:
    features, outcomes, names = episodes()
    lost = features.copy()
    lost[3, 2] = np.nan
    model = ValueModel(recipe(), size=SIZE, seed=0)
    if not first:
        model.fit(features, outcomes, names, steps=20, seed=0)
    before, steps = model.digest, model.steps
    with pytest.raises(Diverged, match=rf"^value model, step {steps}: some features are no numbers; "):
        model.fit(lost, outcomes, names, steps=20, seed=1)
    assert (model.digest, model.steps) == (before, steps)
    with pytest.raises(Diverged, match="some features"):
        model.values(lost)
    # It goes on as if the lost fit had never been tried.
    other = ValueModel(recipe(), size=SIZE, seed=0)
    for one in (model, other):
        if one is other and not first:
            one.fit(features, outcomes, names, steps=20, seed=0)
        one.fit(features, outcomes, names, steps=20, seed=2)
    assert model.digest == other.digest


def test_a_rate_that_is_too_high_is_undone() -> None:
    model = ValueModel(recipe(learning_rate=1e30, loss="mse"), size=SIZE, seed=0)
    before = model.digest
    with pytest.raises(Diverged, match=r"^value model, step 2: loss is (inf|nan); "):
        model.fit(*episodes(), steps=10, seed=0)
    assert (model.digest, model.steps) == (before, 0)
    assert np.isfinite(model.values(episodes()[0])).all()
    # Weights that are numbers and give values that are none are no better.
    features, outcomes, names = episodes()
    far = ValueModel(recipe(learning_rate=1e30), size=SIZE, seed=0)
    before = far.digest
    with pytest.raises(Diverged, match=r"^value model, step 1: some values are no numbers"):
        far.fit(features, outcomes, names, steps=1, seed=0)
    assert (far.digest, far.steps) == (before, 0)


def test_outcomes_and_rows_are_checked() -> None:
    model, (features, outcomes, names) = ValueModel(recipe(), size=SIZE, seed=0), episodes()
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"outcomes must lie in \[0, 1\]"):
            model.fit(features, [wrong, *outcomes[1:]], names, steps=1, seed=0)
    with pytest.raises(ValueError, match="240 rows of features, 240 outcomes, 239 names"):
        model.fit(features, outcomes, names[1:], steps=1, seed=0)
    with pytest.raises(ValueError, match=r"features of shape \(240, 5\); \(n, 6\) is needed"):
        model.values(features[:, 1:])


@pytest.mark.parametrize("wrong", [{"heads": 3}, {"layers": 0}, {"loss": "l1"}, {"held_out": 1}, {"width": 5}])
def test_a_recipe_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        ValueRecipe(**wrong)
