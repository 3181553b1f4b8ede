"""The alarm of preference training, and what is printed while a trainer works."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.data.example import Example
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.callbacks import FinetuneProgress, PairMeans, detect_displacement
from collab.trainers.prepare import prepare
from collab.trainers.run import begin, train

OF_PAIRS = ("logp_chosen", "logp_rejected", "reward_chosen", "reward_rejected", "margin", "preference_accuracy")


@pytest.mark.parametrize(
    ("now", "alarm"),
    [
        ({"margin": 0.5, "reward_chosen": 0.3}, None),  # both better
        ({"margin": 0.5, "reward_chosen": -0.1}, None),  # 1 nat down, within what is allowed
        ({"margin": -0.5, "reward_chosen": -1.0}, None),  # less likely, and the loss shows it
        ({"margin": 0.0, "reward_chosen": -1.0}, None),
        ({"margin": 0.5, "reward_chosen": -1.0}, "10.0 nats less likely than under the reference"),
        ({"margin": 2.9, "reward_chosen": -0.5}, "5.0 nats less likely"),  # whatever the first step of an epoch shows
        ({"margin": 0.5, "reward_chosen": 0.3, "anchored_gain": -1.9}, None),
        ({"margin": 0.5, "reward_chosen": 0.3, "anchored_gain": -2.5}, "replies, which are to be kept, are 2.5"),
        ({"anchored_gain": -3.0}, "3.0 nats less likely than under the reference; raise anchor"),  # no pair in the step
        ({}, None),
    ],
)
def test_the_alarm_of_displacement(now: dict[str, float], alarm: str | None) -> None:
    """With beta 0.1, a reward of −1 is log p − log p_ref = −10 nats."""
    found = detect_displacement(now, beta=0.1)
    assert (found is None) == (alarm is None)
    assert alarm is None or alarm in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["prefix", "none"])
def test_what_is_told_of_pairs_leaves_out_what_is_held_on_to(sharing, samples, base: Path, tmp_path: Path) -> None:
    """Against another reference margins are not 0; rows that are held on to change no metric of pairs."""
    other = make_tiny_checkpoint(tmp_path / "other", hidden=32, layers=2, context=512, seed=1)
    settings = ["epochs=1", "learning_rate=1e-12", f"sharing={sharing}"]
    pairs = samples.rows(4, ["preference"])
    held = [replace(row, rejected=row.reply) for row in samples.rows(8, ["preference"])[4:]]

    def lines(place: str, rows: list[Example], *more: str) -> list[dict[str, Any]]:
        task = replace(samples.task(base, "dpo", *settings, *more), reference=str(other))
        folder = begin(prepare(task, rows), tmp_path / place)
        train(prepare(task, rows), folder, device="cpu")
        return folder.read_metrics()

    (alone,), (beside,) = lines("alone", pairs), lines("beside", pairs + held)
    assert abs(alone["margin"]) > 1e-3
    assert (alone["compared"], beside["compared"]) == (4, 4)
    assert alone["margin"] == pytest.approx(alone["reward_chosen"] - alone["reward_rejected"], rel=1e-3)
    for name in OF_PAIRS:
        assert beside[name] == pytest.approx(alone[name], rel=1e-4), name
    assert "anchored" not in alone
    assert beside["anchored"] == 4
    # Held replies are chosen ones of other pairs: their means are those that they would have there.
    beta = samples.task(base, "dpo").recipe.beta
    (compared,) = lines("compared", samples.rows(8, ["preference"])[4:])
    assert beside["logp_anchored"] == pytest.approx(compared["logp_chosen"], rel=1e-4)
    assert beside["anchored_gain"] == pytest.approx(compared["reward_chosen"] / beta, rel=1e-3)
    single = lines("single", pairs + held, "batch_rows=1", "rows_at_once=1")
    assert len(single) == 8
    told = [line for line in single if "compared" in line]
    assert len(told) == 4
    for name in OF_PAIRS:
        assert sum(line[name] for line in told) / 4 == pytest.approx(alone[name], rel=1e-4), name
    assert not any(name in line for line in single if line not in told for name in OF_PAIRS)
    uneven = lines("uneven", pairs + held[:1], "rows_at_once=3")[0]  # passes of three rows and of two
    assert uneven["compared"] == 4
    assert uneven["preference_accuracy"] == pytest.approx(alone["preference_accuracy"]) == 1
    last = lines("last", pairs + held, "batch_rows=1", "rows_at_once=1", "log_every=8")[-1]
    later = [line for line in told if line["step"] > 1]  # the first step has a line of its own
    assert last["compared"] == len(later)
    for name in OF_PAIRS:
        assert last[name] == pytest.approx(sum(line[name] for line in later) / len(later), rel=1e-4), name


@pytest.mark.medium
@pytest.mark.parametrize("sharing", ["prefix", pytest.param("none", marks=pytest.mark.slow)])
def test_what_is_told_of_pairs_changes_no_weight(sharing, samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    """Steps of several passes, some of them without a pair, with an anchor: bit for bit what is trained without it."""
    pairs = samples.rows(9, ["preference"])
    rows = [row if number % 3 else replace(row, rejected=row.reply) for number, row in enumerate(pairs)]
    settings = ("epochs=2", "batch_rows=4", "rows_at_once=1", "anchor=0.5", f"sharing={sharing}")
    prepared = prepare(samples.task(base, "dpo", *settings), rows)

    def trained(name: str) -> tuple[dict[str, bytes], list[tuple[float, float]], set[str]]:
        folder = begin(prepared, tmp_path / name)
        train(prepared, folder, device="cpu")
        weights = {path.name: path.read_bytes() for path in folder.final.glob("*.safetensors")}
        lines = folder.read_metrics()
        return weights, [(line["loss"], line["grad_norm"]) for line in lines], set().union(*lines)

    weights, losses, told = trained("told")
    monkeypatch.delattr(PairMeans, "compute_loss")
    monkeypatch.delattr(PairMeans, "log")
    assert told.issuperset(OF_PAIRS)
    others, expected, untold = trained("untold")
    assert untold.isdisjoint(OF_PAIRS)
    assert weights == others
    assert losses == expected


@pytest.mark.slow
def test_a_run_that_is_resumed_tells_of_the_pairs_since(samples, base: Path, tmp_path: Path) -> None:
    """Stopped behind its third of eight steps of one row, of which the first and the last have lines."""
    pairs = samples.rows(8, ["preference"])
    rows = [row if number % 2 else replace(row, rejected=row.reply) for number, row in enumerate(pairs)]
    task = samples.task(base, "dpo", "epochs=1", "batch_rows=1", "rows_at_once=1", "log_every=100")
    prepared = prepare(task, rows)
    folder, asked = begin(prepared, tmp_path / "out"), iter([False, False, True])
    train(prepared, folder, device="cpu", stopping=lambda: next(asked))
    assert prepared.step_pairs is not None
    first, third = folder.read_metrics()
    assert (first["step"], third["step"]) == (1, 3), "a stop loses nothing that was not logged yet"
    assert third.get("compared", 0) == sum(prepared.step_pairs[1:3]) > 0
    seen: list[FinetuneProgress] = []
    train(prepared, folder, device="cpu", watch=seen.append)
    last = folder.read_metrics()[-1]
    assert (seen[-1].margin, seen[-1].accuracy) == (last["margin"], last["preference_accuracy"])
    assert last.get("compared", 0) == sum(prepared.step_pairs[3:]) > 0
    assert 0 <= last["preference_accuracy"] <= 1


@pytest.mark.slow
def test_displacement_is_seen_where_it_happens(samples, base: Path, tmp_path: Path) -> None:
    """Pairs whose sides begin alike and a learning rate that is far too high: both sides become unlikely."""
    task = samples.task(base, "dpo", "anchor=0", "beta=0.05", "epochs=12", "learning_rate=3e-2", "schedule=constant")
    prepared = prepare(task, samples.rows(8, ["preference"]))
    seen: list[FinetuneProgress] = []
    folder = begin(prepared, tmp_path / "out")
    train(prepared, folder, device="cpu", watch=seen.append)
    lines = folder.read_metrics()
    told = [progress.alarm for progress in seen]
    assert told == [line.get("alarm") for line in lines]
    assert told[0] is None
    for line in lines:
        assert ("alarm" in line) == (line["margin"] > 0 and line["reward_chosen"] / 0.05 <= -2)
    assert any(told), "this training displaces"
    assert f"alarm: {told[-1]}" in str(seen[-1]) or told[-1] is None


def test_progress_is_one_line() -> None:
    told = str(FinetuneProgress(step=3, steps=9, group="basic", loss=1.25, tokens_per_s=12345.6, left_s=61))
    assert told == "step 3/9  basic  loss 1.25  12,346 tokens/s  0:01:01 left"
    compared = FinetuneProgress(
        step=3, steps=9, group="p", loss=0.5, tokens_per_s=9, left_s=61, margin=0.25, accuracy=0.75
    )
    assert str(compared) == "step 3/9  p  loss 0.5  margin 0.250  accuracy 75.0%  9 tokens/s  0:01:01 left"
