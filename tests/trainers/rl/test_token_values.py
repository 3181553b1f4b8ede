"""Values of tokens: they learn what they are told, no further than the clip, and go on where they were saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from collab.config import override
from collab.errors import Diverged, RunFormatError
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.base_model import Base, open_base
from collab.trainers.recipe import RLRecipe, TokenValueRecipe
from collab.trainers.rl import token_values
from collab.trainers.rl.token_values import TokenValues, ValueRow
from collab.utils.concurrency import get_latest_doing

QUICK = TokenValueRecipe(learning_rate=3e-3, batch_rows=4, rows_at_once=3, passes=30, clip=10.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    torch.set_num_threads(1)
    tiny = make_tiny_checkpoint(tmp_path_factory.mktemp("values") / "tiny", hidden=32, layers=1, context=512)
    return open_base(str(tiny), RLRecipe(learning_rate=1e-4, context=200))


def make_row(number: int, *, reply: int = 0) -> ValueRow:
    ids = np.random.default_rng(number).integers(5, 200, 6 + number % 3 + reply).astype(np.int32)
    places = range(len(ids) - reply, len(ids)) if reply else [len(ids) - 1]
    return ValueRow(ids=ids, places=tuple(places))


ROWS, TARGETS = [make_row(one) for one in range(6)], [1.0, 0.0, 1.0, 0.0, 0.5, 1.0]


def test_an_unfitted_model_values_all_alike_and_a_fitted_one_tells_them_apart(base: Base) -> None:
    model = TokenValues(QUICK, base, device="cpu")
    assert [one.tolist() for one in model.compute(ROWS)] == [[0.0]] * 6
    metrics = model.fit(ROWS, TARGETS, seed=1)
    assert metrics.steps == model.steps == 60
    assert np.concatenate(model.compute(ROWS)) == pytest.approx(TARGETS, abs=0.15)
    # A row's value is its own, whatever it is computed beside.
    (alone,) = model.compute(ROWS[2:3])
    assert alone == pytest.approx(model.compute(ROWS)[2], abs=1e-5)


@pytest.mark.parametrize("lora", [None, "{rank: 4, alpha: 8}"])
def test_a_fit_teaches_the_body_and_not_the_head_alone(base: Base, tmp_path: Path, lora: str | None) -> None:
    """Of a body under an adapter, the adapter."""
    model = TokenValues(override(QUICK, ["passes=2", f"lora={lora or 'null'}"]), base, device="cpu")
    model.save(tmp_path / "before")
    model.fit(ROWS, TARGETS, seed=1)
    model.save(tmp_path / "after")
    (weights,) = [one.name for one in tmp_path.glob("after/*.safetensors") if "moments" not in one.name]
    before, after = (load_file(tmp_path / place / weights) for place in ("before", "after"))
    body = [name for name in before if not name.startswith("head.")]
    assert body
    assert [name for name in body if before[name].equal(after[name])] == []


@pytest.mark.parametrize("level", ["action", "token"])
def test_the_first_loss_is_half_the_mean_square_of_the_returns(base: Base, level: str) -> None:
    recipe = override(QUICK, [f"level={level}", "passes=1", "batch_rows=6"])
    rows = [make_row(one, reply=1 + one) for one in range(6)]
    metrics = TokenValues(recipe, base, device="cpu").fit(rows, TARGETS, seed=1)
    weights = [1.0] * 6 if level == "action" else [1.0 + one for one in range(6)]
    assert metrics.loss == pytest.approx(np.average(np.square(TARGETS), weights=weights) / 2, rel=1e-6)


@pytest.mark.medium
def test_an_action_is_worth_the_mean_of_its_tokens(base: Base) -> None:
    """With the level "token" each token goes to the return, with "action" their mean alone."""
    row = make_row(1, reply=8)
    found = {}
    for level in ("action", "token"):
        model = TokenValues(override(QUICK, [f"level={level}", "passes=150"]), base, device="cpu")
        model.fit([row], [1.0], seed=1)
        (found[level],) = model.compute([row])
    assert found["action"].mean() == pytest.approx(1, abs=0.05)
    assert found["token"] == pytest.approx(np.ones(8), abs=0.1)
    assert np.ptp(found["token"]) < np.ptp(found["action"])


def test_a_fit_moves_a_value_by_the_clip_at_most(base: Base) -> None:
    """Behind 0.5 there is no gradient left: what moves on is momentum alone. The next fit starts from there."""
    model = TokenValues(override(QUICK, ["clip=0.5", "learning_rate=1e-3"]), base, device="cpu")
    model.fit(ROWS, [3.0] * 6, seed=1)
    first = [float(one[0]) for one in model.compute(ROWS)]
    assert 0.4 < max(first) < 0.9
    model.fit(ROWS, [3.0] * 6, seed=2)
    assert min(float(one[0]) for one in model.compute(ROWS)) > max(first)


def test_a_fit_computes_no_value_that_is_known_or_not_needed(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first rows were worth may be given; a fit without the clip counts from no value."""
    compute, read, found = TokenValues.compute, list[int](), []

    def count(self: TokenValues, rows: Sequence[ValueRow]) -> Any:
        read.append(len(rows))
        return compute(self, rows)

    recipe = override(QUICK, ["clip=0.5", "passes=3", "rows_at_once=2"])
    for known in (0, 4):
        model = TokenValues(recipe, base, device="cpu")
        model.fit(ROWS, TARGETS, seed=1)
        before = model.compute(ROWS[:known])
        monkeypatch.setattr(TokenValues, "compute", count)
        model.fit(ROWS, TARGETS, seed=2, known=before)
        monkeypatch.undo()
        found.append(np.concatenate(model.compute(ROWS)))
    # Behind each fit, one pass shows whether its weights can be computed with.
    assert read == [6, 2, 2, 2]
    assert found[1] == pytest.approx(found[0], abs=1e-5)
    monkeypatch.setattr(TokenValues, "compute", count)
    model.fit(ROWS, TARGETS, seed=3, is_clipped=False)
    assert read[4:] == [2]


def test_a_fit_tells_how_far_it_is(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command line prints of an operation that takes long."""
    add, told = TokenValues._add_gradients, list[str]()

    def tell(self: TokenValues, *args: Any) -> float:
        doing = get_latest_doing()
        assert doing is not None
        told.append(doing.what)
        return add(self, *args)

    monkeypatch.setattr(TokenValues, "_add_gradients", tell)
    TokenValues(QUICK, base, device="cpu").fit(ROWS, TARGETS, seed=1, passes=2)
    assert told == [f"fitting values of tokens: step {number} of 4" for number in (1, 2, 3, 4)]
    assert get_latest_doing() is None


@pytest.mark.parametrize("lora", ["null", "{rank: 4}"])
def test_replies_to_one_state_share_its_prompt_and_have_the_same_values(base: Base, tmp_path: Path, lora: str) -> None:
    rng = np.random.default_rng(1)
    prompts = [rng.integers(5, 200, size) for size in (30, 40)]
    replies = [rng.integers(5, 200, 3 + number) for number in range(6)]
    whole = [np.concatenate((prompts[number % 2], reply)).astype(np.int32) for number, reply in enumerate(replies)]
    rows = [ValueRow(ids=one, places=tuple(range(30, len(one)))) for one in whole]
    found = {}
    for sharing in ("none", "prefix"):
        recipe = override(QUICK, [f"sharing={sharing}", f"lora={lora}", "passes=5", "rows_at_once=4", "clip=0.5"])
        model = TokenValues(recipe, base, device="cpu")
        model.fit(rows, TARGETS, seed=1)
        found[sharing] = np.concatenate(model.compute(rows))
        model.save(tmp_path / sharing)
    assert np.ptp(found["none"]) > 0.1
    assert found["prefix"] == pytest.approx(found["none"], abs=2e-3)  # of five passes of AdamW
    again = TokenValues.load(tmp_path / "none", recipe, base, device="cpu")
    assert np.concatenate(again.compute(rows)) == pytest.approx(found["none"], abs=1e-5)


def test_no_pass_cuts_a_state(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt is computed once for all replies behind it, in a fit as when they are valued, if one pass holds them."""
    share, passes = token_values.compute_shared_hidden, []

    def note(body: Any, rows: Any, device: Any) -> Any:
        passes.append([int(row[0]) for row in rows])
        return share(body, rows, device)

    monkeypatch.setattr(token_values, "compute_shared_hidden", note)
    replies = {10: 3, 11: 3, 12: 1, 13: 3, 14: 7}  # first token of a prompt → replies behind it
    ids = [[first, 20, 30, 40 + reply] for first, count in replies.items() for reply in range(count)]
    rows = [ValueRow(ids=np.array(one, np.int32), places=(3,)) for one in ids]
    model = TokenValues(
        override(QUICK, ["sharing=prefix", "passes=1", "rows_at_once=5", "batch_rows=100"]), base, device="cpu"
    )
    known = model.compute(rows)
    assert passes == [[10] * 3, [11] * 3 + [12], [13] * 3, [14] * 5, [14] * 2], "seven are more than one pass holds"
    passes.clear()
    model.fit(rows, [0.0] * len(rows), seed=1, groups=[one[0] for one in ids], known=known)
    places = {first: [number for number, one in enumerate(passes[:-1]) if first in one] for first in replies}
    assert sorted(map(len, places.values())) == [1, 1, 1, 1, 2], "the last pass only looks for what is no number"


@pytest.mark.parametrize("lora", [None, "{rank: 4}"])
def test_what_was_saved_goes_on_like_what_was_not(base: Base, tmp_path: Path, lora: str | None) -> None:
    recipe = override(QUICK, ["passes=3", *([f"lora={lora}"] if lora else [])])
    whole, cut = (TokenValues(recipe, base, device="cpu") for _ in range(2))
    assert whole.digest == cut.digest
    for model in (whole, cut):
        model.fit(ROWS, TARGETS, seed=1)
    cut.save(tmp_path / "values")
    again = TokenValues.load(tmp_path / "values", recipe, base, device="cpu")
    assert again.digest == whole.digest
    for model in (whole, again):
        model.fit(ROWS, TARGETS, seed=2)
    assert again.digest == whole.digest
    assert again.steps == whole.steps
    if lora:
        names = {name for name, _ in again._name_trained()}
        assert all("lora_" in name or name.startswith("head.") for name in names)


def test_a_fit_to_no_number_is_undone(base: Base) -> None:
    model = TokenValues(override(QUICK, ["passes=2"]), base, device="cpu")
    model.fit(ROWS, TARGETS, seed=1)
    other = TokenValues(override(QUICK, ["passes=2"]), base, device="cpu")
    other.fit(ROWS, TARGETS, seed=1)
    with pytest.raises(Diverged, match=r"values of tokens, step 5: (loss|grad_norm) is (inf|nan)"):
        model.fit(ROWS, [float("inf")] * 6, seed=2)
    assert (model.digest, model.steps) == (other.digest, other.steps)
    for one in (model, other):
        one.fit(ROWS, TARGETS, seed=3)
    assert model.digest == other.digest
    with pytest.raises(ValueError, match="0 rows, 0 targets"):
        model.fit([], [], seed=1)


def test_a_fit_whose_weights_are_too_large_to_compute_with_is_undone(base: Base) -> None:
    model = TokenValues(override(QUICK, ["passes=1", "batch_rows=6", "learning_rate=3.0e+37"]), base, device="cpu")
    with pytest.raises(Diverged, match="values of tokens, step 1: some are no numbers"):
        model.fit(ROWS, TARGETS, seed=1)
    assert [one.tolist() for one in model.compute(ROWS)] == [[0.0]] * 6


@pytest.mark.parametrize("sharing", ["none", "prefix"])
def test_a_lower_precision_computes_the_body_and_keeps_the_rest_exact(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharing: str
) -> None:
    """Products are bfloat16; weights, values and what they are fitted to are not."""
    multiply, types = torch.nn.functional.linear, set[torch.dtype]()

    def note(*args: Any, **kwargs: Any) -> Any:
        made = multiply(*args, **kwargs)
        types.add(made.dtype)
        return made

    found = []
    for precision in ("float32", "bfloat16"):
        model = TokenValues(override(QUICK, [f"precision={precision}", f"sharing={sharing}"]), base, device="cpu")
        model.fit(ROWS, TARGETS, seed=1)
        types.clear()
        monkeypatch.setattr(torch.nn.functional, "linear", note)
        found.append(np.concatenate(model.compute(ROWS)))
        monkeypatch.undo()
        # The head, a product of its own, stays exact.
        assert types == {torch.float32, *([torch.bfloat16] if precision == "bfloat16" else [])}
        model.save(tmp_path / precision)
        assert {one.dtype for one in load_file(tmp_path / precision / "weights.safetensors").values()} == {
            torch.float32
        }
    exact, lower = found
    assert lower == pytest.approx(TARGETS, abs=0.2)
    assert not np.array_equal(lower, exact)


def test_values_that_were_changed_or_of_another_base_are_refused(base: Base, tmp_path: Path) -> None:
    model = TokenValues(override(QUICK, ["passes=1"]), base, device="cpu")
    model.fit(ROWS, TARGETS, seed=1)
    model.save(tmp_path / "values")
    other = make_tiny_checkpoint(tmp_path / "other", hidden=32, layers=1, context=512, seed=9)
    with pytest.raises(RunFormatError, match="values over another checkpoint"):
        TokenValues.load(
            tmp_path / "values", QUICK, open_base(str(other), RLRecipe(learning_rate=1e-4, context=200)), device="cpu"
        )
    weights = tmp_path / "values/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(RunFormatError, match=r"weights\.safetensors: not what values\.json describes"):
        TokenValues.load(tmp_path / "values", QUICK, base, device="cpu")
    (tmp_path / "values/values.json").unlink()
    with pytest.raises(RunFormatError, match=r"no values\.json"):
        TokenValues.load(tmp_path / "values", QUICK, base, device="cpu")
