"""From files of finished units to tables: what is there is told exactly, what is not there is never made up."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from collab.errors import ConfigError, RunFormatError, StoreFailure, UsageError
from collab.evaluation.comparison import RunComparison
from collab.evaluation.metrics import Rate, wilson_interval
from collab.evidence.gather import describe_machine, read_processor_model
from collab.evidence.page import Curve, collect_curves, draw_curves, fill_template, judge_training, render_page
from collab.evidence.plan import EvidenceUnit, Goal, read_plan
from collab.evidence.record import (
    LARGEST,
    Records,
    UnitRecord,
    check_base,
    file_of,
    hide_places,
    read,
    read_all,
    write,
)
from collab.evidence.tables import MISSING, Results, judge_goal
from collab.library import find_builtin_root
from collab.utils.plotting import to_svg

MakeRecord = Callable[..., UnitRecord]
FOLDER = find_builtin_root() / "docs" / "results"
PLAN, QUICK = (read_plan(FOLDER / f"{name}.yaml") for name in ("plan", "quick"))
PAGE = FOLDER / "page.md.jinja"
TRAINED_PAGES = PLAN.words["trained_pages"].split(",")
FULL, TEAM = "full/new-seeds", "untrained-team/new-seeds"


def records(*made: UnitRecord) -> dict[EvidenceUnit, UnitRecord]:
    return {one.unit: one for one in made}


def results(*made: UnitRecord) -> Results:
    return Results(PLAN, records(*made))


def document(known: Records) -> str:
    """The page of some units."""
    return fill_template(Results(PLAN, known), PAGE)[0]


def section(known: Records, head: str) -> str:
    """What the page says under a head, in one line."""
    return " ".join(document(known).partition(f"## {head}\n")[2].partition("\n## ")[0].split())


def written(folder: Path, *made: UnitRecord) -> Path:
    for one in made:
        write(folder, one)
    return folder


# ------------------------------------------------------------------------------------------------------- files


def test_a_record_is_read_as_it_was_written_with_a_line_per_episode(tmp_path: Path, make_record: MakeRecord) -> None:
    played, trained = make_record("full", 0, "new-seeds", "1101"), make_record("full", 0, "train", epochs=["10", "11"])
    written(tmp_path, played, trained)
    assert read_all(tmp_path, PLAN) == records(trained, played)
    lines = file_of(tmp_path, played.unit).read_text().splitlines()
    assert sum("Task" in line for line in lines) == 4


def test_a_file_that_would_be_too_large_is_not_written(tmp_path: Path, make_record: MakeRecord) -> None:
    large = make_record("full", 0, "new-seeds", "1", config={"text": "x" * LARGEST})
    with pytest.raises(StoreFailure, match="play fewer episodes"):
        write(tmp_path, large)
    assert not file_of(tmp_path, large.unit).exists()


def test_units_of_two_checkpoints_are_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    other = make_record("untrained-single", None, "new-seeds", "1", base="other", policy="other")
    folder = written(tmp_path, make_record("untrained-team", None, "new-seeds", "1"), other)
    with pytest.raises(UsageError, match="results of different checkpoints are not set side by side"):
        read_all(folder, PLAN)


def test_units_of_another_checkpoint_than_the_present_one_are_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    known = records(make_record("untrained-team", None, "new-seeds", "1"))
    check_base(known, tmp_path, "base")
    with pytest.raises(UsageError, match="began with weights base, the checkpoint is newer now"):
        check_base(known, tmp_path, "newer")


def test_an_evaluation_of_another_training_is_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    training = make_record("full", 0, "train", epochs=["1", "1"])
    written(tmp_path, training, make_record("full", 0, "new-seeds", "1"))
    assert len(read_all(tmp_path, PLAN)) == 2
    written(tmp_path, make_record("full", 0, "new-seeds", "1", policy="weights-9"))
    with pytest.raises(UsageError, match="weights weights-9 are of no epoch of full/seed-0/train"):
        read_all(tmp_path, PLAN)


def test_an_untrained_arm_played_the_base(tmp_path: Path, make_record: MakeRecord) -> None:
    written(tmp_path, make_record("untrained-team", None, "new-seeds", "1", policy="weights-1"))
    with pytest.raises(UsageError, match="not the base"):
        read_all(tmp_path, PLAN)


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', "[]"])
def test_what_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "unit.json"
    path.write_text(text)
    with pytest.raises((RunFormatError, UsageError), match=r"unit\.json"):
        read(path)


def test_a_file_in_another_s_place_is_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    path = write(tmp_path, make_record("full", 0, "new-seeds", "1"))
    path.rename(path.with_name("train.json"))
    with pytest.raises(RunFormatError, match="says that it is full/seed-0/new-seeds"):
        read_all(tmp_path, PLAN)


def test_no_place_of_this_machine_is_told(tmp_path: Path) -> None:
    work = tmp_path / "0f8d"
    config: dict[str, Any] = {
        "path": str(work / "full/final"),
        "library": str(tmp_path / "elsewhere" / "library"),
        "agents": [{"path": "built-in:pocket"}, {"steps": 3}],
    }
    assert hide_places(config, work) == {
        "path": "runs/tables/0f8d/full/final",
        "library": "…/library",
        "agents": [{"path": "built-in:pocket"}, {"steps": 3}],
    }


# ------------------------------------------------------------------------------------------------------- tables


def test_nothing_is_made_up_where_nothing_was_measured() -> None:
    text = document({})
    assert "Nothing has been measured yet" in text
    cells = [cell.strip() for line in text.splitlines() if line.startswith("| ") for cell in line.strip("|").split("|")]
    told = {cell for cell in cells if cell and any(letter.isdigit() for letter in cell)}
    assert all(cell.isdigit() or "full method over" in cell or "training on" in cell for cell in told), told
    assert cells.count(MISSING) > 50


def test_the_page_s_own_words_hold_no_result_and_no_long_line(make_record: MakeRecord) -> None:
    """But for temperatures; tables, commands and links to files are as long as they are."""
    text = document(records(make_record("untrained-team", None, "new-seeds", "1110", base="b" * 64)))
    own, _, _ = text.partition("## Goals")
    assert set(re.findall(r"\d+\.\d+", own)) == {"1.5", "0.3", "0.1", "0.8"}
    assert "weights `bbbbbbbbbbbb`" in own
    assert max(map(len, own.splitlines())) <= 120


def test_the_rate_of_an_arm_is_over_all_run_seeds(make_record: MakeRecord) -> None:
    known = records(make_record("full", 0, "new-seeds", "1100"), make_record("full", 1, "new-seeds", "1110"))
    low, high = wilson_interval(2.5, 4)  # both trainings played the same four instances
    told = f"62.5 [{100 * low:.1f}, {100 * high:.1f}] (2 x 4), 2 of 3 seeds"
    assert Results(PLAN, known).rate(FULL) == told
    alike = records(make_record("full", 0, "new-seeds", "1100"), make_record("full", 1, "new-seeds", "1100"))
    alone = results(make_record("untrained-team", None, "new-seeds", "1100")).rate(TEAM)
    assert Results(PLAN, alike).rate(FULL) == alone.replace("(4)", "(2 x 4), 2 of 3 seeds")
    assert Results(PLAN, known).rate(TEAM) == MISSING
    assert Results(PLAN, known).rate("rft/pages") == "–"


def test_an_untrained_arm_is_paired_with_every_training(make_record: MakeRecord) -> None:
    """By hand: solved before 0, 1, 1, 0; seed 0 wins one and loses none, seed 2 wins two and loses one: 2 of 8."""
    known = records(
        make_record("untrained-team", None, "new-seeds", "0110"),
        make_record("full", 0, "new-seeds", "1110"),
        make_record("full", 2, "new-seeds", "1011"),
    )
    found = Results(PLAN, known).compare(TEAM, FULL)
    assert found is not None
    assert (found.pairs, found.tasks, found.difference) == (8, 2, 0.25)
    turned = Results(PLAN, known).compare(FULL, TEAM)
    assert turned is not None
    assert turned.difference == -0.25
    assert turned.interval == (-found.interval[1], -found.interval[0])


def test_arms_are_paired_within_a_run_seed_and_only_there(make_record: MakeRecord) -> None:
    """Seed 0 has both: one of two is won. Seeds 1 and 2 have one arm each and say nothing."""
    known = records(
        make_record("full", 0, "new-seeds", "11"),
        make_record("rft", 0, "new-seeds", "01"),
        make_record("full", 1, "new-seeds", "00"),
        make_record("rft", 2, "new-seeds", "11"),
    )
    rft = "rft/new-seeds"
    found = Results(PLAN, known).compare(rft, FULL)
    assert found is not None
    assert (found.pairs, found.difference) == (2, 0.5)
    only = {unit: one for unit, one in known.items() if unit.seed != 0}
    assert Results(PLAN, only).difference(rft, FULL) == MISSING


def test_too_many_broken_episodes_are_no_result(make_record: MakeRecord) -> None:
    broken = make_record("full", 0, "new-seeds", "11")
    rows = [(*row[:5], "EnvironmentFailure") for row in broken.measured.episodes] if broken.measured else []
    assert broken.measured is not None
    broken = broken.model_copy(update={"measured": broken.measured.model_copy(update={"episodes": rows})})
    known = records(broken, make_record("untrained-team", None, "new-seeds", "11"))
    with pytest.raises(UsageError, match="2 of 2 episodes broke"):
        Results(PLAN, known).compare(TEAM, FULL)


@pytest.mark.parametrize(("after", "verdict"), [("1111" * 4, "reached so far"), ("0110" * 4, "**not reached so far**")])
def test_goals_are_told_whichever_way_they_fall(make_record: MakeRecord, after: str, verdict: str) -> None:
    known = records(
        make_record("untrained-team", None, "new-seeds", "0110" * 4), make_record("full", 0, "new-seeds", after)
    )
    first, *others = Results(PLAN, known).goal_table().splitlines()[2:]
    assert first.endswith(f"], 1 of 3 seeds | {verdict} |")
    every = records(*known.values(), *(make_record("full", seed, "new-seeds", after) for seed in (1, 2)))
    assert Results(PLAN, every).goal_table().splitlines()[2].endswith(f"] | {verdict.replace(' so far', '')} |")
    assert all(MISSING in line for line in others)


@pytest.mark.parametrize(
    ("interval", "at_most", "said"),
    [
        ((0.02, 0.10), False, "reached"),
        ((-0.02, 0.10), False, "not separable from 0"),
        ((-0.10, 0.0), True, "not separable from 0"),
        ((-0.20, -0.10), True, "reached"),
    ],
)
def test_a_goal_that_the_interval_leaves_open_says_so(interval: tuple[float, float], at_most: bool, said: str) -> None:
    rate = Rate(successes=4, episodes=8)
    found = RunComparison(first=rate, second=rate, difference=0.0, interval=interval, pairs=8, tasks=2)
    limit = {"at_most": 0.0} if at_most else {"at_least": 0.0}
    goal = Goal(label="", first=TEAM, second=FULL, **limit)
    assert judge_goal(goal, found) == said


def test_what_was_gained_on_pages_is_told_of_those_trained_on_and_of_the_others(make_record: MakeRecord) -> None:
    """By hand: of two trained on, one more; of two others, none."""

    def on(solved: str, phase: str) -> UnitRecord:
        names = (*TRAINED_PAGES[:2], "click-option", "enter-text")
        rows = [(name, 7, 10, one == "1", 4, None) for name, one in zip(names, solved, strict=True)]
        record = make_record("full", 0, phase, "1")
        assert record.measured is not None
        return record.model_copy(update={"measured": record.measured.model_copy(update={"episodes": rows})})

    text = document(records(on("0010", "pages"), on("1010", "pages-continued")))
    lines = text.partition("## Another environment")[2].partition("##")[0].splitlines()
    assert [line.partition(" [")[0] for line in lines if line.lstrip().startswith("- ")] == [
        "- Gained on the pages by training there: +25.0",
        "  - of it on the 23 pages that are trained on: +50.0",
        "  - and on the 8 others: +0.0",
        f"- Forgotten on the phone: {MISSING}",
    ]


def test_critics_of_trainings_on_pages_are_told_where_files_name_them(make_record: MakeRecord) -> None:
    def told(*critics: list[str] | None) -> str:
        units = [
            make_record("full", seed, "continual", epochs=["1", "1"], critics=of) for seed, of in enumerate(critics)
        ]
        return document(records(*units)).partition("## Another environment")[2].partition("\n|")[0]

    assert "Judged on the pages by `oracle-2`: run seed 0, run seed 1." in told(["oracle-2"], ["oracle-2"])
    mixed = told(["oracle-2"], ["oracle-3"])
    assert "Judged on the pages by `oracle-2`: run seed 0." in mixed
    assert "Judged on the pages by `oracle-3`: run seed 1." in mixed
    assert "run seed 1" not in told(["oracle-2"], None)


def test_an_epoch_that_trained_nothing_is_told(make_record: MakeRecord) -> None:
    training = make_record("full", 0, "train", epochs=["10", "11", "11"])
    still = [one.model_copy(update={"weights": {}}) if one.epoch == 2 else one for one in training.epochs]
    (line,) = [one for one in results(training).seed_table("train", "new-seeds").splitlines() if "full" in one]
    (other,) = [
        one
        for one in results(training.model_copy(update={"epochs": still})).seed_table("train", "new-seeds").splitlines()
        if "full" in one
    ]
    assert "16 steps:" in line
    assert "16 steps, nothing trained in epoch 2:" in other


def test_alarms_of_trainings_are_told(make_record: MakeRecord) -> None:
    known = make_record("full", 0, "train", epochs=["10", "11", "11"])
    _, first, second = known.epochs
    told = [
        first.model_copy(update={"chosen_gain": 0.34}),
        second.model_copy(update={"chosen_gain": -5.1, "alarm": "!"}),
    ]
    known = known.model_copy(update={"epochs": [known.epochs[0], *told]})
    assert results(known).likelihood_table().splitlines()[2:] == [
        "| full method, train, run seed 0 | +0.34 | -5.10, alarm |"
    ]
    assert "alarm" in document(records(known))
    assert results(make_record("full", 0, "new-seeds", "11")).likelihood_table().splitlines() == []


def in_parts(make_record: MakeRecord, seed: int | None, outcomes: str, **more: Any) -> list[UnitRecord]:
    """Of the quick form: what is played is divided among units."""
    arm, parts = "untrained-team" if seed is None else "full", [name for name in QUICK.phases if name != "train"]
    size, found = len(outcomes) // len(parts), []
    for place, phase in enumerate(parts):
        one = make_record(arm, seed, phase, outcomes[place * size : (place + 1) * size], **more)
        assert one.measured is not None
        rows = [(task, 100 * place + instance, *rest) for task, instance, *rest in one.measured.episodes]
        found.append(one.model_copy(update={"measured": one.measured.model_copy(update={"episodes": rows})}))
    return found


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("0110" * 18, "1111" * 16 + "0110" * 2, "better"),
        ("0110" * 18, "0110" * 18, "not shown better"),
        ("0110" * 18, "0111" + "0110" * 17, "not shown better"),
        ("0110" * 18, "1100" * 9 + "0111" * 1 + "0110" * 8, "not shown better"),
    ],
    ids=["half of all more", "nothing", "one more", "one more of many that differ"],
)
def test_the_quick_form_asks_for_more_than_luck(make_record: MakeRecord, before: str, after: str, said: str) -> None:
    text, better = judge_training(
        Results(QUICK, records(*in_parts(make_record, None, before), *in_parts(make_record, 0, after)))
    )
    (line,) = (one for one in text.splitlines() if one.startswith("difference in points"))
    assert re.search(
        rf"95 % interval over 72 paired episodes of \d+ tasks; at least [+-]\d+\.\d with 90%: {said}$", line
    )
    assert better == (said == "better")


def test_trainings_stand_by_themselves_and_tell_what_took_how_long(make_record: MakeRecord) -> None:
    known = records(make_record("full", 1, "train", epochs=["10", "11"]), make_record("full", 1, "new-seeds", "1110"))
    line = next(
        line for line in Results(PLAN, known).seed_table("train", "new-seeds").splitlines() if "full method" in line
    )
    assert line.startswith(f"| full method | {MISSING} | epoch 1, 16 steps: 75.0 [")
    times = next(line for line in Results(PLAN, known).time_table().splitlines() if "full method" in line)
    assert times == "| full method | 10 | 50% | 1% | 49% | 10% | 0% | 20% | 20% |"
    assert not any("all units" in line for line in Results(PLAN, known).time_table().splitlines())


def test_shares_are_of_the_trainings_that_tell_them(make_record: MakeRecord) -> None:
    """One of 10 minutes that tells, and one of 20 that does not: 15 in the mean, shares of the first."""
    telling = make_record("full", 0, "train", epochs=["10", "11"])
    silent = telling.seconds.model_copy(update={"whole": 1200.0, "critic": None})
    known = records(telling, make_record("full", 1, "train", epochs=["10", "11"], seconds=silent))
    (line,) = (line for line in Results(PLAN, known).time_table().splitlines() if line.startswith("| full method ("))
    assert line == "| full method (shares: 1 of 2) | 15 | 50% | 1% | 49% | 10% | 0% | 20% | 20% |"
    (line,) = (
        line
        for line in results(known[EvidenceUnit(arm="full", seed=1, phase="train")]).time_table().splitlines()
        if "| 20" in line
    )
    assert line == "| full method | 20 | 25% | 0.5% | 24% | not told | 0% | 10% | not told |"


def test_playing_is_told_where_nobody_knows_how_it_is_divided(make_record: MakeRecord) -> None:
    """The columns that no unit fills are left out; one that only some fill is not told of the others."""
    known = make_record("full", 0, "train", epochs=["10", "11"])
    older = make_record(
        "rft",
        0,
        "train",
        epochs=["10", "11"],
        seconds=known.seconds.model_copy(update={"environment": None, "inference": None}),
    )
    alone, both = (results(*those).time_table().splitlines() for those in ((older,), (older, known)))
    assert alone[0] == "|  | minutes | playing | critic | adversary | training | other |"
    assert next(line for line in alone if "rejective" in line).endswith(" | 10 | 50% | 10% | 0% | 20% | 20% |")
    assert both[0] == "|  | minutes | playing | environment | inference | critic | adversary | training | other |"
    assert next(line for line in both if "rejective" in line).endswith(
        " | 10 | 50% | not told | not told | 10% | 0% | 20% | 20% |"
    )
    evaluation = make_record("full", 0, "new-seeds", "10")
    assert results(older, evaluation).time_table().splitlines() == alone, "no training tells"
    assert "inference is the rest of playing" not in " ".join(document(records(older, evaluation)).split())
    assert "before the split of playing was measured" in document(records(older))
    assert "inference is the rest of playing" in " ".join(document(records(older, known)).split())


def test_what_is_there_and_small_is_not_told_as_nothing(make_record: MakeRecord) -> None:
    took = make_record("full", 0, "train", epochs=["1"]).seconds.model_copy(
        update={"environment": 0.1, "critic": 2.9, "adversary": 3.1}
    )
    (line,) = (
        line
        for line in results(make_record("full", 0, "train", epochs=["1"], seconds=took)).time_table().splitlines()
        if line.startswith("| full method | 10 ")
    )
    assert line == "| full method | 10 | 50% | <0.1% | 49% | 0.5% | 1% | 20% | 29% |"


def test_the_quick_form_tells_what_all_units_took(make_record: MakeRecord) -> None:
    """By hand: 600 s of training as above, and six times 100 s, 95 of them playing and 10 in the environment."""
    training = make_record("full", 0, "train", epochs=["10", "11"])
    took = training.seconds.model_copy(
        update={"whole": 100.0, "playing": 95.0, "environment": 10.0, "inference": 85.0, "critic": None}
    )
    played = [part for seed in (0, None) for part in in_parts(make_record, seed, "111", seconds=took)]
    lines = judge_training(Results(QUICK, records(training, *played)))[0].splitlines()
    assert "| all units | 20 | 72% | 6% | 67% | 5% | 0% | 10% | 12% |" in lines
    assert "inference is the rest of playing." in lines[-1]
    silent = training.model_copy(update={"seconds": training.seconds.model_copy(update={"critic": None})})
    lines = judge_training(Results(QUICK, records(silent, *played)))[0].splitlines()
    assert "| all units | 20 | 72% | 6% | 67% | not told | 0% | 10% | not told |" in lines


# ---------------------------------------------------------------------------------------------------- in words


def trained(
    make_record: MakeRecord, arm: str, seed: int, *gains: float, phase: str = "train", **more: Any
) -> UnitRecord:
    """A training of so many epochs, with the change of chosen replies in each."""
    record = make_record(arm, seed, phase, epochs=["10"] * (1 + len(gains)), **more)
    first, *epochs = record.epochs
    told = [one.model_copy(update={"chosen_gain": gain}) for one, gain in zip(epochs, gains, strict=True)]
    return record.model_copy(update={"epochs": [first, *told]})


METHOD = {"objective": "dpo", "dpo": {"beta": 0.5, "batch_rows": 4}}


def with_margins(record: UnitRecord) -> UnitRecord:
    epochs = [epoch.model_copy(update={"margin": 1.0}) for epoch in record.epochs]
    return record.model_copy(update={"config": {"method": METHOD}, "epochs": epochs})


def still(make_record: MakeRecord) -> list[UnitRecord]:
    """Two arms of which chosen replies hardly moved; of eight instances they solve 4, and once 3."""
    return [
        *(with_margins(trained(make_record, "paper", seed, -0.02, 0.05)) for seed in range(3)),
        *(make_record("paper", seed, "new-seeds", "11110000") for seed in range(3)),
        *(trained(make_record, "no-cr", seed, -0.02, 0.05) for seed in range(3)),
        *(
            make_record("no-cr", seed, "new-seeds", told)
            for seed, told in enumerate(("11110000", "01110000", "11110000"))
        ),
    ]


def learn_table_needs(record: UnitRecord) -> UnitRecord:
    """With all of a method that the page shows."""
    shown = {
        "pairs": {"adversary": 1.0, "contrast": 0.0, "correction": 0.0},
        "dpo": METHOD["dpo"] | {"learning_rate": 2e-5, "final_norm_learning_rate": None, "lora": None},
    }
    return record.model_copy(update={"config": {"method": METHOD | shown}}) if record.config else record


def goals_of(*known: UnitRecord) -> str:
    return section(records(*map(learn_table_needs, known)), "Goals")


def test_a_goal_that_was_missed_is_told_with_what_the_records_say(make_record: MakeRecord) -> None:
    """By hand, of eight instances: untrained 5 hot and 6 cold, full 6 and 6."""
    known = [
        make_record("untrained-team", None, "new-seeds", "11111000"),
        make_record("untrained-team", None, "new-seeds-cold", "11111100"),
        *(
            make_record("full", seed, "new-seeds", told)
            for seed, told in enumerate(("11101100", "11111000", "11110100"))
        ),
        *(make_record("full", seed, "new-seeds-cold", "11111100") for seed in range(3)),
        *still(make_record),
    ]
    text = goals_of(*known)
    assert "Missed: full method over the untrained team, new seeds: 8 points or more" in text
    assert "they solve 62.5, 62.5 and 62.5 %, and two of them differ in 2 of 8 instances." in text
    assert (
        "“w/o credit re-assignment” hardly moved their chosen replies (by 0.05 nats at most; rejected ones of" in text
    )
    assert "“the paper's settings, rate not tuned” by 2.0). Yet two trainings of one of these arms" in text
    assert "these arms differ in 0 to 1 of 8 instances. Their 6 trainings solve 37.5 to 50.0 %," in text
    assert "by arm 50.0 and 45.8 in the mean; the untrained team solves 62.5." in text
    assert "Cold, the untrained team solves 75.0 %, +12.5 points over itself hot." in text
    assert "The full method solves 62.5 hot and 75.0 cold, +0.0 over the untrained team there." in text
    assert "Of 8 instances 2 are solved by neither team, hot or cold, in any training; of 4 tasks 1 not once." in text
    assert "Missed: training on the pages" not in text
    fewer = [one for one in known if (one.arm, one.seed, one.phase) != ("full", 2, "new-seeds")]
    assert "Missed:" not in goals_of(*fewer), "not all that was wanted is measured"


def test_nothing_is_said_of_a_goal_that_was_reached(make_record: MakeRecord) -> None:
    after = (make_record("full", seed, "new-seeds", "1111" * 4) for seed in range(3))
    assert "Missed:" not in goals_of(make_record("untrained-team", None, "new-seeds", "0110" * 4), *after)


def on_pages(record: UnitRecord) -> UnitRecord:
    """The same of pages, some of which are trained on."""
    names = ("click-button", "click-option", "click-tab", "focus-text")
    assert record.measured is not None
    rows = [(names[int(task.removeprefix("Task"))], *rest) for task, *rest in record.measured.episodes]
    return record.model_copy(update={"measured": record.measured.model_copy(update={"episodes": rows})})


def test_pages_that_gained_and_pages_that_were_never_solved_are_told(make_record: MakeRecord) -> None:
    """By hand, of four tasks with two instances: the first gains one in two trainings, the last is never solved."""
    known = [
        *(on_pages(make_record("full", seed, "pages", "10111100")) for seed in range(3)),
        *(
            on_pages(make_record("full", seed, "pages-continued", told))
            for seed, told in enumerate(("11111100", "11011100", "10111100"))
        ),
        *(trained(make_record, "full", seed, -0.5 * seed, 2.0, phase="continual") for seed in range(3)),
    ]
    text = goals_of(*known)
    assert "The trainings gain +12.5, +0.0 and +0.0 points, which lie 12.5 apart" in text
    assert (
        "Of 4 pages 1 are not solved once, before or after. 100% of the gain is on 3 pages (`click-button` +33, "
        "`click-tab` +0, `focus-text` +0 points there), and 1 pages are solved less often than before."
    ) in text
    assert "raise the alarm" not in text
    alarmed = [one.model_copy(update={"alarm": "!" if one.epoch == 1 else None}) for one in known[-1].epochs]
    text = goals_of(*known[:-1], known[-1].model_copy(update={"epochs": alarmed}))
    assert "1 of 3 trainings raise the alarm" in text
    assert "end that epoch at -1.00 to -0.00 nats from the reference, and the last one at +2.00." in text


def test_what_one_agent_does_better_is_told_beside_the_goals(make_record: MakeRecord) -> None:
    text = goals_of(
        *(make_record("single-agent", seed, "unseen-tasks", "11110000") for seed in range(3)),
        *(make_record("full", seed, "unseen-tasks", "11100000") for seed in range(3)),
    ).partition("Beyond the goals: ")[2]
    assert text.startswith("- full method over “one agent, trained”, phone, unseen tasks: -12.5 [")
    assert f"- full method over “one agent, trained”, mobile-miniwob: {MISSING}" in text
    assert text.endswith(f"other sampling seeds: {MISSING}")


def test_other_plays_of_the_untrained_team_are_told_beside_the_goals(make_record: MakeRecord) -> None:
    """By hand, of eight instances: untrained 5, 4 and 1 of them, full 5."""
    again = [
        make_record("untrained-team", None, "new-seeds-sampling-1", "11110000"),
        make_record("untrained-team", None, "new-seeds-sampling-2", "00000001"),
    ]
    known = [
        make_record("untrained-team", None, "new-seeds", "11111000"),
        *(make_record("full", seed, "new-seeds", "11111000") for seed in range(3)),
    ]
    text = goals_of(*known, *again)
    assert "- each run separately: +12.5 [" in text
    assert "], +50.0 [" in text
    assert "- the mean of these: +31.2 [" in text
    assert "- the mean of all its runs, including the first: +20.8 [" in text
    assert (
        "It solves 4 and 1 of them, 31.2 % in the mean; its first run solved 5. The mean of all its runs is 41.7 %, "
        "and any two of them differ in 1 to 6 instances. Full method minus the mean of the later runs: +31.2 ["
    ) in text
    assert "] points; minus the mean of all: +20.8 [" in text
    assert "full method differ from it in 0 instances, from the later ones in 1 to 6. So a" in text
    text = goals_of(*known, again[0])
    assert f"], {MISSING} - the mean of these: {MISSING} - the mean of all its runs, including " in text
    assert "played these instances again" not in text


def test_what_trainings_learned_from_is_told_with_how_much_there_was(make_record: MakeRecord) -> None:
    def with_pairs(arm: str, seed: int, objective: str, lora: Any, norm: float | None, *pairs: int) -> UnitRecord:
        method = {
            "objective": objective,
            "pairs": {"adversary": 0.0, "contrast": 0.5, "correction": 1.0},
            "dpo": {"learning_rate": 2e-5, "final_norm_learning_rate": norm, "lora": lora, "batch_rows": 32},
        }
        record = make_record(arm, seed, "train", epochs=["1"] * 3, config={"method": method})
        first, *epochs = record.epochs
        told = [one.model_copy(update={"pairs": many}) for one, many in zip(epochs, pairs, strict=True)]
        return record.model_copy(update={"epochs": [first, *told]})

    known = records(
        with_pairs("full", 0, "dpo", None, 0.1, 700, 900),
        with_pairs("full", 1, "dpo", None, 0.1, 800, 1200),
        with_pairs("paper", 0, "trajectory-dpo", {"rank": 4}, None, 8, 8),
    )
    lines = Results(PLAN, known).learned_table().splitlines()
    row = "| full method | pairs: contrast and correction | 900 (700 to 1,200) | all weights | 2e-05, last norm 0.1 |"
    assert row in lines
    assert (
        "| the paper's settings, rate not tuned | pairs of whole episodes | 8 (8 to 8) | LoRA of rank 4 | 2e-05 |"
        in lines
    )
    assert f"| w/o anchor |{f' {MISSING} |' * 4}" in lines
    assert "An optimizer step takes 32 rows at most" in " ".join(document(known).split())
    silent = make_record("full", 0, "train", epochs=["1"])
    assert "An optimizer step" not in document(records(silent))


def test_units_that_took_long_and_what_files_do_not_tell_are_told(make_record: MakeRecord) -> None:
    long = make_record("full", 0, "train", epochs=["1"]).seconds.model_copy(update={"whole": 2460.0})
    told: dict[str, Any] = {
        **make_record("full", 0, "new-seeds", "1").machine,
        "model": "A Processor",
        "threads": "1",
        "preloaded": "fast.so",
    }
    known = records(
        make_record("full", 0, "train", epochs=["1"], seconds=long, critics=["oracle-2"], code=["a" * 64, "b" * 64]),
        make_record("full", 1, "train", epochs=["1"]),
        make_record("full", 0, "new-seeds", "1", machine=told),
    )
    text = section(known, "Every unit")
    assert "1 of 3 took longer: `full/seed-0/train`." in text
    assert "3 digests below" in text
    assert "2 of 3 files name neither the processor's model nor libraries that were preloaded" in text
    assert "1 of 2 trainings that a critic judged do not name its version" in text
    assert "- 2 processors, Linux, Python 3.12, torch 2.13" in text
    assert "- 2 processors, A Processor, 1 thread a process, preloaded fast.so, Linux, Python 3.12, torch 2.13" in text
    new = section(records(make_record("full", 0, "new-seeds", "1", machine=told)), "Every unit")
    assert "0 of 1 took longer." in new
    assert "noted" not in new


def test_a_machine_is_told_by_its_processor_and_by_what_was_preloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nmodel name\t: A Processor @ 2.20GHz\nprocessor\t: 1\nmodel name\t: B\n")
    assert read_processor_model(told) == "A Processor @ 2.20GHz"
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert read_processor_model(tmp_path / "nothing") is None
    for preloaded, names in ((" ", None), ("/a/b/fast.so", "fast.so"), ("fast.so:/c/d.so /e.so", "fast.so d.so e.so")):
        monkeypatch.setenv("LD_PRELOAD", preloaded)
        assert describe_machine()["preloaded"] == names


# ------------------------------------------------------------------------------------------------------ pictures


def test_a_curve_goes_through_the_means_of_the_run_seeds(make_record: MakeRecord) -> None:
    known = records(
        make_record("full", 0, "train", epochs=["10", "11"]), make_record("full", 1, "train", epochs=["00", "01"])
    )
    (curve,) = collect_curves(Results(PLAN, known), "train", "success")
    assert curve.means == [(0, 25.0), (1, 75.0)]


def test_a_picture_is_whole_and_survives_any_name() -> None:
    curve = Curve(name="<w/o & co>", dots=((0, 1.0), (1, 1.0)))
    figure = draw_curves("a < b", "percent", [curve, replace(curve, dots=((2, -3.5),))])
    words = [text.text for text in ElementTree.fromstring(to_svg(figure)).iter() if text.tag.endswith("}text")]
    assert {"a < b", "percent", "epoch", "<w/o & co>"} <= set(words)
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [2, 2, 1, 1], "each curve, and its dots"
    with pytest.raises(ValueError, match="no curve"):
        draw_curves("empty", "percent", [])


def test_an_arm_looks_the_same_on_every_picture(make_record: MakeRecord) -> None:
    """Though rejective fine-tuning compares nothing, and has no curve on the second."""
    plain = make_record("rft", 0, "train", epochs=["10"])
    mute = plain.model_copy(update={"epochs": [one.model_copy(update={"chosen_gain": None}) for one in plain.epochs]})
    known = records(
        make_record("full", 0, "train", epochs=["10"]), mute, make_record("no-anchor", 0, "train", epochs=["10"])
    )
    first, second = (
        {one.name: one.look for one in collect_curves(Results(PLAN, known), "train", value)}
        for value in ("success", "chosen_gain")
    )
    assert len(set(first.values())) == len(first) == 3
    assert first["full method"] == 0
    assert second == {name: look for name, look in first.items() if name in second} != first


def test_the_page_says_how_each_number_came_to_be(tmp_path: Path, make_record: MakeRecord) -> None:
    known = records(make_record("full", 0, "train", epochs=["10", "11"]), make_record("full", 0, "new-seeds", "1110"))
    folder = tmp_path / "results"
    render_page(Results(PLAN, known), PAGE, tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert f"2 of {len(PLAN.units)} units are done" in text
    assert "$ collab train-marl --out full" in text
    assert "| [full/seed-0/train](results/units/full/seed-0/train.json) | 10 | training `hhhhhhhhhhhh` |" in text
    assert "![Success on the held-out seed](results/success.svg)" in text
    assert sorted(path.name for path in folder.iterdir()) == ["likelihood.svg", "success.svg"]
    render_page(Results(PLAN, {}), PAGE, tmp_path / "results.md")
    assert list(folder.iterdir()) == []


def test_the_page_is_the_one_that_the_files_make(tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs"
    known = read_all(docs / "results" / "units", PLAN)
    render_page(Results(PLAN, known), PAGE, tmp_path / "results.md")
    for path in (tmp_path / "results.md", *sorted((tmp_path / "results").iterdir())):
        shown = docs / path.relative_to(tmp_path)
        assert shown.read_bytes() == path.read_bytes(), f"make {shown.name} anew: --render"
    assert all("/" not in json.dumps(record.machine) for record in known.values())


def test_loops_over_run_seeds_give_exactly_the_commands_that_were_given() -> None:
    """Of what is committed: each loop, as a shell reads it."""
    docs = Path(__file__).parents[2] / "docs"
    known = read_all(docs / "results" / "units", PLAN)
    page = (docs / "results.md").read_text()
    told: list[str] = []
    for line in re.findall(r"^\$ (.*)$", page, flags=re.MULTILINE):
        loop = re.fullmatch(r"for seed in ([\d ]+); do (.*); done", line)
        told += [loop[2].replace("$seed", seed) for seed in loop[1].split()] if loop else [line]
    assert sorted(told) == sorted(record.command for record in known.values())


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ results.rate('full/train') }}{% if %}", r"page\.md\.jinja:1: Expected an expression"),
        ("{{ nobody }}", r"page\.md\.jinja: 'nobody' is undefined"),
    ],
)
def test_a_template_that_cannot_be_filled_is_named(tmp_path: Path, template: str, told: str) -> None:
    (tmp_path / "page.md.jinja").write_text(template)
    with pytest.raises(ConfigError, match=told):
        render_page(results(), tmp_path / "page.md.jinja", tmp_path / "page.md")
