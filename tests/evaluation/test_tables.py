"""Tables of arms: cells and differences worked out by hand, and what must not stand in one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.errors import UsageError
from collab.evaluation.metrics import EpisodeResult, summarise
from collab.evaluation.report import EvaluatedRun, ReportTable, Setting, format_markdown, pool_runs, tabulate
from collab.seeds import Seeds
from collab.types import PlannedTask

PHONE, WEB = "androidworld[simphone]", "mobile-miniwob"


def run(
    path: str,
    wins: int,
    *,
    seed: int = 30,
    sampling: int | None = None,
    tasks: int = 10,
    environment: str = PHONE,
    split: str | None = "new-seeds",
    digest: str = "a" * 64,
    version: str = "1",
    agents: str = "pocket",
    privileged: bool = False,
    planned: int = 1,
) -> EvaluatedRun:
    """A run that solves the first `wins` of `tasks` tasks, one instance each."""
    results = [
        EpisodeResult(
            id=f"T{number}/0",
            task=f"T{number}",
            difficulty="easy",
            seed=1000 * seed + number,
            success=number < wins,
            steps=3,
            max_steps=10,
            error=None,
        )
        for number in range(tasks)
    ]
    report = summarise(
        results,
        [PlannedTask(name=f"T{number}", difficulty="easy", episodes=planned) for number in range(tasks)],
        environment=environment,
        environment_version=version,
        privileged=privileged,
    )
    return EvaluatedRun(
        path=Path(path),
        command="eval",
        seeds=Seeds(seed, sampling),
        setting=Setting(environment=environment, split=split),
        team={"agents": agents, "split": None if split is None else {"name": split, "hash": digest}},
        report=report,
    )


def differences(table: ReportTable, column: int = 0) -> list[float | None]:
    cells = [line.cells[column] for line in table.lines]
    return [cell.difference.difference if cell and cell.difference else None for cell in cells]


STAGES = {"base": [run("a", 1)], "+ basic": [run("b", 3)], "+ process DPO": [run("c", 8)]}


def test_differences_are_against_the_first_line_or_the_one_before() -> None:
    assert differences(tabulate(STAGES)) == [None, pytest.approx(0.2), pytest.approx(0.7)]
    assert differences(tabulate(STAGES, "previous")) == [None, pytest.approx(0.2), pytest.approx(0.5)]


def test_a_table_in_markdown() -> None:
    # Wilson, n = 10: s = 1 gives 1.8 to 40.4, s = 3 gives 10.8 to 60.3. A gain of -1 in 4 of 4 instances has no spread.
    arms = {
        "base": [run("a", 1), run("w", 4, tasks=4, environment=WEB, split=None)],
        "a|b": [run("b", 3), run("x", 0, tasks=4, environment=WEB, split=None)],
    }
    head, rule, base, other, empty, legend = format_markdown(tabulate(arms)).split("\n")
    assert head == "|  | androidworld[simphone] new-seeds | difference | mobile-miniwob | difference |"
    assert rule == "| --- | --- | --- | --- | --- |"
    assert base == "| base | 10.0 [1.8, 40.4] (10) |  | 100.0 [51.0, 100.0] (4) |  |"
    assert other == (
        "| a\\|b | 30.0 [10.8, 60.3] (10) | +20.0 [+0.0, +50.0] (10) | 0.0 [0.0, 49.0] (4) | "
        "-100.0 [-100.0, -100.0] (4) |"
    )
    assert empty == ""
    assert "run seeds 30." in legend
    assert "Differences to the first line in percentage points (number of equal instances)" in legend
    assert "Where episodes are fewer than 10: the interval says little." in legend
    assert "the line above" in format_markdown(tabulate(arms, "previous"))


def test_one_line_has_no_differences() -> None:
    assert format_markdown(tabulate({"base": [run("a", 1)]})) == (
        "|  | androidworld[simphone] new-seeds |\n| --- | --- |\n| base | 10.0 [1.8, 40.4] (10) |\n\n"
        "Success in % with 95 % Wilson intervals (episodes); run seeds 30."
    )


def test_seeds_are_pooled_and_pairs_told_where_they_are_fewer() -> None:
    arms = {"base": [run("a", 1)], "more": [run("b/30", 3), run("b/31", 5, seed=31)]}
    table = tabulate(arms)
    text = format_markdown(table)
    assert "| more | 40.0 [21.9, 61.3] (20) | +20.0 [+0.0, +50.0] (10) |" in text
    assert "run seeds 30, 31." in text
    cell = table.lines[1].cells[0]
    assert cell is not None
    assert {seed: report.planned.successes for seed, report in cell.evaluation.by_seed.items()} == {30: 3, 31: 5}


def test_runs_that_differ_in_sampling_alone_are_told_apart() -> None:
    arms = {"base": [run("a", 1)], "again": [run("b", 3, sampling=2)], "zero": [run("c", 3, sampling=0)]}
    assert "run seeds 30, 30 (sampled with 0), 30 (sampled with 2)." in format_markdown(tabulate(arms))


def test_columns_come_in_the_order_of_splits_and_may_have_gaps() -> None:
    arms = {
        "one": [run("a", 1, split="unseen-app"), run("b", 1, split="new-seeds")],
        "two": [run("c", 1, split="unseen-tasks"), run("d", 2, split="new-seeds")],
        "three": [run("e", 2, split="unseen-tasks"), run("f", 2, split="unseen-app")],
    }
    table = tabulate(arms, "previous")
    assert [column.split for column in table.columns] == ["new-seeds", "unseen-tasks", "unseen-app"]
    assert differences(table, 0) == [None, pytest.approx(0.1), None]
    assert differences(table, 1) == [None, None, pytest.approx(0.1)]
    assert differences(table, 2) == [None, None, None], "the line above was not played there"
    assert "| two | 20.0" in format_markdown(table)
    assert format_markdown(table).splitlines()[4].count("|  |  |") == 1


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ({"base": [run("a", 1, privileged=True)]}, "base, androidworld[simphone] new-seeds: a rehearsal follows"),
        ({"base": [run("a", 1, planned=2)]}, "base, androidworld[simphone] new-seeds: only 10 of 20 episodes"),
        (
            {"one": [run("a", 1)], "two": [run("b", 1, version="2")]},
            "androidworld[simphone] new-seeds: the runs are of androidworld[simphone] version 1 and",
        ),
        (
            {"one": [run("a", 1)], "two": [run("b", 1, digest="b" * 64)]},
            "one and two were played with different lists of tasks (hash aaaaaaaaaaaa and bbbbbbbbbbbb)",
        ),
        (
            {"one": [run("a", 1)], "two": [run("b", 1, seed=31)]},
            "two against one, androidworld[simphone] new-seeds: the two runs share no (task, seed)",
        ),
        ({"one": [run("a", 1), run("b", 1, seed=31, agents="x")]}, "one: a and b differ in agents: not one evaluation"),
        ({"one": [run("a", 1), run("b", 1)]}, "one: a and b both played T0 with instance seed 30000"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(arms: dict[str, list[EvaluatedRun]], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        tabulate(arms)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_force_takes_unfinished_runs_but_no_rehearsal() -> None:
    assert len(tabulate({"base": [run("a", 1, planned=2)]}, force=True).lines) == 1
    with pytest.raises(UsageError, match="rehearsal"):
        tabulate({"base": [run("a", 1, privileged=True)]}, force=True)


def test_runs_of_two_settings_are_not_one_evaluation() -> None:
    with pytest.raises(UsageError, match=r"a is of .* new-seeds, b of .* unseen-app: not one evaluation"):
        pool_runs([run("a", 1), run("b", 1, seed=31, split="unseen-app")])
