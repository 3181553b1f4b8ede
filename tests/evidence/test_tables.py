"""From files of finished units to tables: what is there is told exactly, what is not there is never made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collab.errors import UsageError
from collab.evaluation.comparison import RunComparison, bootstrap
from collab.evaluation.metrics import Rate
from collab.evidence.plan import EvidenceUnit, Goal, Plan, read_plan
from collab.evidence.record import UnitRecord
from collab.evidence.tables import MISSING, NOT_PLANNED, Results, describe_difference, judge_goal
from collab.library import find_builtin_root

MakeRecord = Callable[..., UnitRecord]
PLAN = read_plan(find_builtin_root() / "docs/results/plan.yaml")
FULL, TEAM, RFT = "full/new-seeds", "untrained-team/new-seeds", "rft/new-seeds"


def build_results(*made: UnitRecord) -> Results:
    """Return the results of some units of the plan."""
    return Results(PLAN, {one.unit: one for one in made})


def find_line(table: str, begins: str) -> str:
    """Return the one line of a table that begins so, bar left out."""
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {begins}"))
    return line


def make_comparison(low: float, high: float, difference: float = 0.0) -> RunComparison:
    """Return a comparison with that interval."""
    rate = Rate(successes=4, episodes=8)
    return RunComparison(first=rate, second=rate, difference=difference, interval=(low, high), pairs=8, tasks=2)


# -------------------------------------------------------------------------------------------- rates, differences


def test_the_rate_of_an_arm_is_over_all_run_seeds(make_record: MakeRecord) -> None:
    known = build_results(make_record("full", 0, "new-seeds", "1100"), make_record("full", 1, "new-seeds", "1110"))
    low, high = bootstrap([[1, 1], [0.5, 0]])  # both trainings played the same four instances of two tasks
    assert known.format_rate(FULL) == f"62.5 [{100 * low:.1f}, {100 * high:.1f}] (2 x 4), 2 of 3 seeds"
    alike = build_results(make_record("full", 0, "new-seeds", "1100"), make_record("full", 1, "new-seeds", "1100"))
    alone = build_results(make_record("untrained-team", None, "new-seeds", "1100")).format_rate(TEAM)
    assert alike.format_rate(FULL) == alone.replace("(4)", "(2 x 4), 2 of 3 seeds")
    assert known.format_rate(TEAM) == MISSING
    assert known.format_rate("rft/sweep") == NOT_PLANNED


def test_an_untrained_arm_is_paired_with_every_training(make_record: MakeRecord) -> None:
    """By hand: solved before 0, 1, 1, 0; seed 0 wins one and loses none, seed 2 wins two and loses one: 2 of 8."""
    known = build_results(
        make_record("untrained-team", None, "new-seeds", "0110"),
        make_record("full", 0, "new-seeds", "1110"),
        make_record("full", 2, "new-seeds", "1011"),
    )
    found, turned = known.compare(TEAM, FULL), known.compare(FULL, TEAM)
    assert found is not None
    assert (found.pairs, found.tasks, found.difference) == (8, 2, 0.25)
    assert turned is not None
    assert turned.difference == -0.25
    assert turned.interval == (-found.interval[1], -found.interval[0])


def test_arms_are_paired_within_a_run_seed_and_only_there(make_record: MakeRecord) -> None:
    """Seed 0 has both: one of two is won. Seeds 1 and 2 have one arm each and say nothing."""
    both = [make_record("full", 0, "new-seeds", "11"), make_record("rft", 0, "new-seeds", "01")]
    apart = [make_record("full", 1, "new-seeds", "00"), make_record("rft", 2, "new-seeds", "11")]
    found = build_results(*both, *apart).compare(RFT, FULL)
    assert found is not None
    assert (found.pairs, found.difference) == (2, 0.5)
    assert build_results(*apart).format_difference(RFT, FULL) == MISSING


def test_an_arm_that_is_planned_for_one_seed_misses_no_other(make_record: MakeRecord) -> None:
    """By hand, of four instances: 2 solved at the first rate and 3 at the second; the full method has three seeds."""
    stages: list[dict[str, Any]] = [
        {"arms": ["full"], "phases": ["train", "new-seeds"]},
        {"arms": ["paper-5e-6", "paper-5e-5", "paper-5e-4"], "phases": ["train", "sweep"], "seeds": [0]},
    ]
    plan = Plan.model_validate(PLAN.model_dump() | {"stages": stages})
    made = [
        one
        for arm, solved in (("paper-5e-6", "0110"), ("paper-5e-5", "0111"))
        for one in (make_record(arm, 0, "train", epochs=["1"] * 3), make_record(arm, 0, "sweep", solved))
    ]
    known = Results(plan, {one.unit: one for one in made})
    assert known.format_rate("paper-5e-5/sweep").endswith("] (4)")
    told = known.format_difference("paper-5e-6/sweep", "paper-5e-5/sweep")
    assert told.startswith("+25.0 [")
    assert "seeds" not in told
    assert build_results(make_record("full", 0, "new-seeds", "1")).format_rate(FULL).endswith("(1), 1 of 3 seeds")
    table = known.format_seed_table("train", "sweep")
    assert find_line(table, "the paper's settings, rate 5e-5 ").endswith(f"(4) | {NOT_PLANNED} | {NOT_PLANNED} |")
    assert find_line(table, "the paper's settings, rate 5e-4 ").endswith(
        f" 5e-4 | {MISSING} | {NOT_PLANNED} | {NOT_PLANNED} |"
    )
    assert find_line(table, "full method ") == f"| full method |{f' {MISSING} |' * 3}"
    line = find_line(known.format_seed_table("train", "new-seeds"), "the paper's settings, rate 5e-5 ")
    assert f"epoch 2, 16 steps: {NOT_PLANNED} |" in line


@pytest.mark.parametrize(
    ("interval", "is_separable"),
    [((0.02, 0.1), True), ((-0.02, 0.1), False), ((0.0, 0.1), False), ((-0.1, 0.0), False), ((-0.2, -0.1), True)],
)
def test_a_difference_is_not_separable_exactly_where_its_interval_holds_0(
    interval: tuple[float, float], is_separable: bool
) -> None:
    low, high = interval
    told = f"+3.0 [{100 * low:+.1f}, {100 * high:+.1f}]"
    assert describe_difference(make_comparison(low, high, 0.03)) == told + ("" if is_separable else ", not separable")


@pytest.mark.parametrize(("after", "said"), [("1" * 16, ""), ("0110" * 3 + "0111", ", not separable")])
def test_tables_say_which_differences_are_not_separable(make_record: MakeRecord, after: str, said: str) -> None:
    known = build_results(
        make_record("untrained-team", None, "new-seeds", "0110" * 4),
        *(make_record("full", seed, "new-seeds", after) for seed in (0, 1)),
    )
    told = known.format_difference(TEAM, FULL)
    assert told.endswith(f"]{said}, 2 of 3 seeds")
    line = find_line(known.format_arm_table(["full"], ["new-seeds"], "untrained-team"), "full method ")
    assert line == f"| full method | {known.format_rate(FULL)} | {told} |"
    line = find_line(known.format_arm_table(["untrained-team"], ["new-seeds"], "full", sign=-1), "team of four")
    assert line.endswith(f" | {told} |")


def test_too_many_broken_episodes_are_no_result(make_record: MakeRecord) -> None:
    broken = make_record("full", 0, "new-seeds", "11")
    assert broken.measured is not None
    rows = [(*row[:5], "EnvironmentFailure") for row in broken.measured.episodes]
    broken = broken.model_copy(update={"measured": broken.measured.model_copy(update={"episodes": rows})})
    known = build_results(broken, make_record("untrained-team", None, "new-seeds", "11"))
    with pytest.raises(UsageError, match="2 of 2 episodes broke"):
        known.compare(TEAM, FULL)


# ------------------------------------------------------------------------------------ epochs of a training


def test_epochs_of_a_training_are_told_and_compared_on_its_held_out_seeds(make_record: MakeRecord) -> None:
    """By hand: one of four instances solved before, then two or three; a seed is paired with itself."""
    one = make_record("full", 0, "train", epochs=["1000", "1100", "1110"])
    accurate = [epoch.model_copy(update={"step_accuracy": 50.0 + epoch.epoch}) for epoch in one.epochs[:2]]
    one = one.model_copy(update={"epochs": [*accurate, one.epochs[2]]})
    other = make_record("full", 2, "train", epochs=["1000", "1100", "1100"])
    known = build_results(one, other)
    found = known.compare("full/train@0", "full/train@2")
    assert found is not None
    assert (found.pairs, found.difference) == (8, 0.375)
    success, accuracy = known.format_epoch_table(["full"], "train", [0, 1, 2, 3]).splitlines()[2:]
    low, high = bootstrap([[1, 1], [0.5, 0]])
    cells = [cell.strip() for cell in success.split("|")[1:-1]]
    assert cells[0] == "full method"
    assert cells[3] == f"62.5 [{100 * low:.1f}, {100 * high:.1f}] (2 x 4), 2 of 3 seeds"
    assert cells[4] == MISSING, "an epoch that no training has"
    assert [cell.strip() for cell in accuracy.split("|")[1:-1]] == [
        *("full method, step accuracy", "50", "51", NOT_PLANNED, NOT_PLANNED)
    ]
    nothing = build_results().format_epoch_table(["full"], "train", [1])
    assert find_line(nothing, "full method") == f"| full method | {MISSING} |"
    with pytest.raises(UsageError, match="held out"):
        build_results(one, make_record("full", 0, "new-seeds", "1111")).compare("full/train@1", FULL)


def test_a_goal_may_name_epochs_of_a_training(make_record: MakeRecord) -> None:
    goal = Goal(label="later over earlier", first="full/train@1", second="full/train@2", at_least=0)
    plan = PLAN.model_copy(update={"goals": {"rounds": goal}})
    made = make_record("full", 0, "train", epochs=["1000", "1100", "1100"])
    line = Results(plan, {made.unit: made}).format_goal_table().splitlines()[2]
    verdict = "undecided so far: 0 lies in the interval"
    assert line == f"| later over earlier | +0.0 [+0.0, +0.0], not separable, 1 of 3 seeds | {verdict} |"


# --------------------------------------------------------------------------------------------------------- goals


@pytest.mark.parametrize(("after", "verdict"), [("1111" * 4, "reached so far"), ("0110" * 4, "**not reached so far**")])
def test_goals_are_told_whichever_way_they_fall(make_record: MakeRecord, after: str, verdict: str) -> None:
    before = make_record("untrained-team", None, "new-seeds", "0110" * 4)
    full = [make_record("full", seed, "new-seeds", after) for seed in range(3)]
    first, *others = build_results(before, full[0]).format_goal_table().splitlines()[2:]
    above = int(after[0])
    apart = "" if above else ", not separable"
    assert first.endswith(f"]{apart}, 1 of 3 seeds | {verdict}; {above} of 1 training above 0 |")
    every = build_results(before, *full).format_goal_table().splitlines()[2]
    assert every.endswith(f"]{apart} | {verdict.replace(' so far', '')}; {3 * above} of 3 trainings above 0 |")
    assert all(MISSING in line for line in others)


@pytest.mark.parametrize(
    ("interval", "at_most", "said"),
    [
        ((0.02, 0.10), False, "reached"),
        ((-0.02, 0.10), False, "undecided: 0 lies in the interval"),
        ((-0.10, 0.0), True, "undecided: 0 lies in the interval"),
        ((-0.20, -0.10), True, "reached"),
    ],
)
def test_a_goal_that_the_interval_leaves_open_says_so(interval: tuple[float, float], at_most: bool, said: str) -> None:
    limit: dict[str, Any] = {"at_most": 0.0} if at_most else {"at_least": 0.0}
    assert judge_goal(Goal(label="", first=TEAM, second=FULL, **limit), make_comparison(*interval)) == said


@pytest.mark.parametrize(
    ("interval", "difference", "said"),
    [
        ((-0.010, 0.006), -0.002, "reached"),
        ((-0.029, -0.010), -0.020, "reached"),
        ((-0.060, 0.020), -0.020, "reached; less lies in the interval, too"),
        ((-0.060, -0.010), -0.040, "**not reached**"),
    ],
)
def test_what_may_be_lost_is_compared_with_the_limit_and_not_with_0(
    interval: tuple[float, float], difference: float, said: str
) -> None:
    goal = Goal(label="at most 3 points lost", first=TEAM, second=FULL, at_least=-3.0)
    assert judge_goal(goal, make_comparison(*interval, difference=difference)) == said


# ----------------------------------------------------------------------------------------------------- trainings


def test_trainings_stand_by_themselves(make_record: MakeRecord) -> None:
    training = make_record("full", 1, "train", epochs=["10", "11", "11"])
    known = build_results(training, make_record("full", 1, "new-seeds", "1110"))
    line = find_line(known.format_seed_table("train", "new-seeds"), "full method ")
    assert line.startswith(f"| full method | {MISSING} | epoch 2, 16 steps: 75.0 [")
    idle = [one.model_copy(update={"weights": {}}) if one.epoch == 2 else one for one in training.epochs]
    known = build_results(training.model_copy(update={"epochs": idle}))
    line = find_line(known.format_seed_table("train", "new-seeds"), "full method ")
    assert f"epoch 2, 16 steps, nothing trained in epoch 2: {MISSING}" in line


# ------------------------------------------------------------------------------------------------------ commands


def test_tasks_that_no_arm_solved_are_named(make_record: MakeRecord) -> None:
    known = build_results(
        make_record("untrained-team", None, "new-seeds", "000100"), make_record("full", 1, "new-seeds", "000000")
    )
    assert known.list_unsolved(["untrained-team", "full", "rft"], "new-seeds") == ["Task0", "Task2"]
    assert known.list_unsolved(["rft"], "new-seeds") == []


def test_tasks_that_fell_stand_by_themselves(make_record: MakeRecord) -> None:
    """By hand: of two instances of each task, Task0 falls from 2 to 1.5 of 2, Task1 from 2 to 0, and Task2 rises."""
    before = make_record("untrained-team", None, "new-seeds", "111100")
    after = [make_record("full", 0, "new-seeds", "110011"), make_record("full", 1, "new-seeds", "100000")]
    table = build_results(before, *after).format_fallen_table(TEAM, FULL).splitlines()
    assert table[2:] == ["| Task1 | 100 | 0 | -100 |", "| Task0 | 100 | 75 | -25 |"]
    beside = build_results(before, *after, make_record("rft", 0, "new-seeds", "1110"))
    table = beside.format_fallen_table(TEAM, FULL, [RFT, "no-cr/new-seeds"]).splitlines()
    assert table[2:] == [
        f"| Task1 | 100 | 0 | -100 | 50 | {MISSING} |",
        f"| Task0 | 100 | 75 | -25 | 100 | {MISSING} |",
    ]
    assert build_results(before).format_fallen_table(TEAM, FULL) == ""


def test_a_goal_may_set_two_differences_against_each_other(make_record: MakeRecord) -> None:
    """By hand: 2 of 4 are lost here and 1 there, so 25 points more are lost here."""
    goal = Goal(label="costs less", first=TEAM, second=FULL, beside=(RFT, "no-cr/new-seeds"), more_than=0)
    plan = PLAN.model_copy(update={"goals": {"one": goal}})
    made = [
        make_record("untrained-team", None, "new-seeds", "1111"),
        make_record("full", 0, "new-seeds", "1100"),
        make_record("rft", 0, "new-seeds", "1111"),
        make_record("no-cr", 0, "new-seeds", "1110"),
    ]
    line = find_line(Results(plan, {one.unit: one for one in made}).format_goal_table(), "costs less")
    assert "| -25.0 [" in line
    assert "**not reached" in line
    assert MISSING in find_line(Results(plan, {one.unit: one for one in made[:3]}).format_goal_table(), "costs less")


def test_differences_against_each_other_are_of_the_same_trainings(make_record: MakeRecord) -> None:
    """By hand: of four, training 0 wins 2 here and 1 there, training 1 wins 1 and 1: 12.5 points more on average."""
    goal = Goal(label="wins more", first=TEAM, second=FULL, beside=(TEAM, RFT), more_than=0)
    plan = PLAN.model_copy(update={"goals": {"one": goal}})
    made = [
        make_record("untrained-team", None, "new-seeds", "0000"),
        make_record("full", 0, "new-seeds", "1100"),
        make_record("full", 1, "new-seeds", "1000"),
        make_record("rft", 1, "new-seeds", "0001"),
        make_record("rft", 0, "new-seeds", "0010"),
    ]
    tables = [Results(plan, {one.unit: one for one in made[:count]}).format_goal_table() for count in (3, 4, 5)]
    none, one, both = (find_line(table, "wins more") for table in tables)
    assert MISSING in none, "rft has no training yet"
    assert "| +0.0 [" in one, "training 1 alone"
    assert "1 of 3 seeds" in one
    assert "| +12.5 [" in both
    assert "2 of 3 seeds" in both


def test_a_goal_may_be_wanted_of_every_training(make_record: MakeRecord) -> None:
    goal = Goal(label="each", first=TEAM, second=FULL, more_than=0, in_each=True)
    plan = PLAN.model_copy(update={"goals": {"one": goal}})
    made = [
        make_record("untrained-team", None, "new-seeds", "1000"),
        make_record("full", 0, "new-seeds", "1111"),
        make_record("full", 1, "new-seeds", "1000"),
    ]
    line = find_line(Results(plan, {one.unit: one for one in made}).format_goal_table(), "each")
    assert line.endswith("| **not reached so far**; 1 of 2 trainings above 0 |")
    line = find_line(Results(plan, {one.unit: one for one in made[:2]}).format_goal_table(), "each")
    assert line.endswith("| reached so far; 1 of 1 training above 0 |")


def test_commands_that_differ_in_their_run_seed_alone_are_told_as_a_loop(make_record: MakeRecord) -> None:
    def make_played(arm: str, seed: int | None) -> UnitRecord:
        unit = EvidenceUnit(arm=arm, seed=seed, phase="new-seeds-greedy")
        return make_record(arm, seed, unit.phase, "1", command=PLAN.shown_command(unit, "base"))

    played = [make_played("untrained-team", None), *(make_played("full", seed) for seed in (2, 0))]
    alone, loop = build_results(*played).list_commands()
    assert alone == f"$ {played[0].command}"
    head, tail = "$ for seed in 0 2; do ", "; done"
    assert (loop[: len(head)], loop[-len(tail) :]) == (head, tail)
    for record in played[1:]:
        assert loop[len(head) : -len(tail)].replace("$seed", str(record.seed)) == record.command


def test_groups_that_teach_are_counted_over_all_epochs(make_record: MakeRecord) -> None:
    """By hand: 3 of 4 and 2 of 6 groups are 5 of 10; an epoch in which none could differ counts in neither."""

    def make(seed: int, *apart: tuple[int, int] | None) -> UnitRecord:
        made = make_record("rft", seed, "train", epochs=["00"] * len(apart))
        return made.model_copy(
            update={
                "epochs": [one.model_copy(update={"apart": told}) for one, told in zip(made.epochs, apart, strict=True)]
            }
        )

    known = build_results(make(0, None, (3, 4), (2, 6)), make(1, None, (1, 4)))
    label = PLAN.arms["rft"].label
    assert known.format_apart_table(["rft/train"], 20).splitlines()[-1] == f"| {label} | 50.0, 25.0 | reached |"
    assert known.format_apart_table(["rft/train"], 40).splitlines()[-1] == f"| {label} | 50.0, 25.0 | missed |"
    assert known.format_apart_table(["full/train"], 40).splitlines()[-1].endswith(f"|  | {MISSING} |")
