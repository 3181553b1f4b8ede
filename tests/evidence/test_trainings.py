"""Trainings are told as their files have them: from what they learned, and which of their times may be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collab.evidence.record import UnitRecord
from collab.evidence.tables import MISSING
from collab.evidence.trainings import Trainings
from tests.evidence.test_tables import build_results, find_line

MakeRecord = Callable[..., UnitRecord]


def test_alarms_of_trainings_are_told(make_record: MakeRecord) -> None:
    known = make_record("full", 0, "train", epochs=["10", "11", "11"])
    untrained, first, second = known.epochs
    changed = [
        first.model_copy(update={"chosen_gain": 0.34}),
        second.model_copy(update={"chosen_gain": -5.1, "alarm": "!"}),
    ]
    known = known.model_copy(update={"epochs": [untrained, *changed]})
    assert Trainings(build_results(known)).format_likelihood_table().splitlines()[2:] == [
        "| full method, train, run seed 0 | +0.34 | -5.10, alarm |"
    ]
    assert Trainings(build_results(make_record("full", 0, "new-seeds", "11"))).format_likelihood_table() == ""


def test_what_trainings_learned_from_is_told_with_how_much_and_in_how_many_steps(make_record: MakeRecord) -> None:
    def make_training(
        arm: str, seed: int, *counts: tuple[int, int], objective: str = "dpo", **recipe: Any
    ) -> UnitRecord:
        method = {
            "objective": objective,
            "pairs": {"adversary": 0.0, "contrast": 0.5, "correction": 1.0},
            "dpo": {"learning_rate": 2e-5, "lora": None} | recipe,
        }
        record = make_record(arm, seed, "train", epochs=["1"] * 3, config={"method": method})
        first, *epochs = record.epochs
        numbers = [{"pairs": pairs, "updates": updates} for pairs, updates in counts]
        epochs = [one.model_copy(update=more) for one, more in zip(epochs, numbers, strict=True)]
        return record.model_copy(update={"epochs": [first, *epochs]})

    table = Trainings(
        build_results(
            make_training("full", 0, (700, 80), (900, 80)),
            make_training("full", 1, (800, 80), (1200, 80)),
            make_training("rft", 0, (1000, 1060), (1000, 1180), objective="rft"),
            make_training("paper-5e-6", 0, (8, 2), (8, 2), objective="trajectory-dpo", lora={"rank": 4}),
        )
    ).format_learned_table()
    assert find_line(table, " |") == "|  | learns from | rows of an epoch | optimizer steps | changes | rate |"
    assert find_line(table, "full method ").endswith(
        " | pairs: contrast and correction | 900 (700 to 1,200) | 80 | all weights | 2e-05 |"
    )
    assert find_line(table, "rewarded replies").endswith(
        " | rewarded replies | 1,000 | 1,120 (1,060 to 1,180) | all weights | 2e-05 |"
    )
    assert find_line(table, "the paper's settings, rate 5e-6 ").endswith(
        " | pairs of whole episodes | 8 | 2 | LoRA of rank 4 | 2e-05 |"
    )
    assert find_line(table, "without edge updates ") == f"| without edge updates |{f' {MISSING} |' * 5}"


def test_shares_are_of_the_trainings_that_tell_them(make_record: MakeRecord) -> None:
    """One of 10 minutes that tells, and one of 20 that does not: 15 in the mean, shares of the first."""
    telling = make_record("full", 0, "train", epochs=["10", "11"])
    seconds = telling.seconds.model_copy(update={"whole": 1200.0, "critic": None})
    silent = make_record("full", 1, "train", epochs=["10", "11"], seconds=seconds)
    lines = [
        find_line(Trainings(build_results(*made)).format_time_table(), "full method ")
        for made in ([telling], [telling, silent], [silent])
    ]
    assert lines == [
        "| full method | 10 | 50% | 1% | 49% | 10% | 0% | 20% | 20% |",
        "| full method (shares: 1 of 2) | 15 (10 to 20) | 50% | 1% | 49% | 10% | 0% | 20% | 20% |",
        "| full method | 20 | 25% | 0.5% | 24% | not told | 0% | 10% | not told |",
    ]
    both = Trainings(build_results(telling, silent))
    assert [both.format_minutes(spot) for spot in ("full/train", "rft/train")] == ["15 (10 to 20)", MISSING]
    assert "all units" not in Trainings(build_results(telling)).format_time_table()


def test_playing_is_told_where_it_is_not_known_how_it_is_divided(make_record: MakeRecord) -> None:
    """The columns that no training fills are left out; one that only some fill is not told of the others."""
    known = make_record("full", 0, "train", epochs=["10", "11"])
    seconds = known.seconds.model_copy(update={"environment": None, "inference": None})
    undivided = make_record("rft", 0, "train", epochs=["10", "11"], seconds=seconds)
    alone, both = (Trainings(build_results(*made)).format_time_table() for made in ([undivided], [undivided, known]))
    assert alone.startswith("|  | minutes | playing | critic | adversary | training | other |\n")
    assert find_line(alone, "rewarded replies").endswith(" | 10 | 50% | 10% | 0% | 20% | 20% |")
    assert both.startswith(
        "|  | minutes | playing | environment | inference | critic | adversary | training | other |\n"
    )
    assert find_line(both, "rewarded replies").endswith(" | 10 | 50% | not told | not told | 10% | 0% | 20% | 20% |")
    assert Trainings(build_results(undivided, make_record("full", 0, "new-seeds", "10"))).format_time_table() == alone


def test_values_and_samples_have_columns_where_an_algorithm_has_them(make_record: MakeRecord) -> None:
    """Values that are not told are part of what is left, as they were before their files held them."""
    without = make_record("full", 0, "train", epochs=["10", "11"])
    lines = []
    for values in (60.0, None):
        seconds = without.seconds.model_copy(update={"values": values, "samples": 12.0})
        having = make_record("rft", 0, "train", epochs=["10", "11"], seconds=seconds)
        table = Trainings(build_results(without, having)).format_time_table()
        assert table.splitlines()[0].endswith(" | critic | adversary | values | samples | training | other |")
        lines += [find_line(table, "full method "), find_line(table, "rewarded replies")]
    assert [line.partition("49% | ")[2] for line in lines] == [
        "10% | 0% | 0% | 0% | 20% | 20% |",
        "10% | 0% | 10% | 2% | 20% | 8% |",
        "10% | 0% | 0% | 0% | 20% | 20% |",
        "10% | 0% | not told | 2% | 20% | 18% |",
    ]


def test_nothing_is_left_over_where_playing_goes_on_while_a_policy_learns(make_record: MakeRecord) -> None:
    training = make_record("full", 0, "train", epochs=["1"])
    seconds = training.seconds.model_copy(update={"playing": 0.95 * training.seconds.whole})
    continuous = training.model_copy(update={"seconds": seconds})
    assert find_line(Trainings(build_results(continuous)).format_time_table(), "full method ").endswith(
        " | 95% | 1% | 49% | 10% | 0% | 20% | – |"
    )


def test_what_is_there_and_small_is_not_told_as_nothing(make_record: MakeRecord) -> None:
    training = make_record("full", 0, "train", epochs=["1"])
    seconds = training.seconds.model_copy(update={"environment": 0.1, "critic": 2.9, "adversary": 3.1})
    line = find_line(
        Trainings(build_results(training.model_copy(update={"seconds": seconds}))).format_time_table(), "full method "
    )
    assert line == "| full method | 10 | 50% | <0.1% | 49% | 0.5% | 1% | 20% | 29% |"


def test_the_time_until_a_success_is_reached_has_the_environments_latency(make_record: MakeRecord) -> None:
    """By hand: an epoch takes 60 + 120 s and 1.7 · 60 s of waiting: 4.7 minutes; an evaluation takes none of it."""

    def make(arm: str, seed: int, epochs: list[str], seconds: dict[str, float]) -> UnitRecord:
        made, played = make_record(arm, seed, "train", epochs=epochs), [("Task0", 7000, 10, True, 4, None)]
        timed = [
            one.model_copy(update={"seconds": seconds, "rollout": played} if one.epoch else {}) for one in made.epochs
        ]
        return made.model_copy(update={"epochs": timed})

    slow, fast = {"rollout": 60.0, "training": 120.0, "evaluation": 999.0}, {"rollout": 60.0, "training": 60.0}
    known = Trainings(
        build_results(
            make("rft", 0, ["00", "", "10"], slow),
            make("full", 0, ["00", "11"], fast),
            make("rft", 1, ["00", "11"], slow),
            make("full", 1, ["11", "10"], fast),
            make("rft", 2, ["00", "10"], slow),
        )
    )
    pace = known.format_pace_table("rft/train", "full/train", 1, 1.5)
    # Of one played episode an epoch: two in six minutes, and one in two.
    assert find_line(pace, "0") == "| 0 | 6 | 2 | 3 | 20 | 30 | 1.50 | reached |"
    assert find_line(pace, "2").endswith(f"| {MISSING} |")
    table = known.format_reach_table("rft/train", "full/train", 1.7, 1.4)
    # Epoch 0 is what was there before, and reaches nothing.
    assert find_line(table, "0") == "| 0 | 50 | 9 | 4 | 2.54 | reached |"  # 2 · 282 s over 222 s
    assert find_line(table, "1") == "| 1 | 100 | 5 | never | - | missed |"
    assert find_line(table, "2").endswith(f"| {MISSING} |")
    assert "rewarded replies alone" in table
    # Two machines have two paces.
    quick = make("full", 0, ["00", "11"], fast)
    quick = quick.model_copy(update={"machine": {**quick.machine, "model": "another"}})
    mixed = Trainings(build_results(make("rft", 0, ["00", "", "10"], slow), quick))
    arms = ("rft/train", "full/train")
    for table in (mixed.format_pace_table(*arms, 1, 1.5), mixed.format_reach_table(*arms, 1.7, 1.4)):
        assert find_line(table, "0").endswith("| on another machine | - |")
    # What is reached behind an epoch that was not timed has no time; what is not reached is not, timed or not.
    resumed = {"training": 60.0}
    untimed = Trainings(
        build_results(
            make("rft", 0, ["00", "10"], resumed),
            make("full", 0, ["00", "11"], fast),
            make("rft", 1, ["00", "11"], fast),
            make("full", 1, ["00", "10"], resumed),
        )
    )
    table = untimed.format_reach_table("rft/train", "full/train", 1.7, 1.4)
    assert find_line(table, "0") == "| 0 | 50 | not timed | 4 | - | - |"
    assert find_line(table, "1") == "| 1 | 100 | 4 | never | - | missed |"
