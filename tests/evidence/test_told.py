"""What is told by hand is what its records hold: in the README, of the pocket, and of a served judge and adversary."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from collab.evaluation.comparison import compare_trainings
from collab.evaluation.metrics import Report
from collab.evidence.plan import read_plan
from collab.evidence.record import UnitRecord, read, read_all
from collab.evidence.tables import Results, describe_difference, format_rate
from collab.library import find_builtin_root
from collab.loop.interfaces import load_algorithm, load_method

DOCS = find_builtin_root() / "docs"
SERVED = DOCS / "critics/served"
SECTION = " ".join(
    (DOCS / "critics.md").read_text(encoding="utf-8").partition("### Judge and adversary behind a server")[2].split()
).partition("## Calibration ")[0]


def read_json(path: Path) -> dict[str, Any]:
    """Return what a file holds."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def read_report(path: Path) -> tuple[UnitRecord, Report]:
    """Return an evaluation and its report."""
    record = read(path)
    assert record.measured is not None
    return record, record.measured.report()


def test_calibrations_are_told_as_they_are() -> None:
    """The table's columns, from left to right."""
    numbers = [read_json(SERVED / f"calibration-{name}.json")["numbers"] for name in ("served", "in-process", "oracle")]
    for row, place in (("accuracy", "accuracy"), ("AUC", "auc")):
        told = re.search(rf"\| {row} \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", SECTION)
        assert told is not None
        assert list(told.groups()) == [f"{one[place]:.3f}" for one in numbers]


def test_judge_and_oracle_are_compared_cell_by_cell() -> None:
    cells = read_json(SERVED / "agreement.json")
    wrong = cells["both_wrong"] + cells["judge_rewards_wrong"]
    right = cells["both_right"] + cells["judge_misses_right"]
    assert wrong + right + cells["judge_gives_none"] + cells["oracle_gives_none"] == cells["cells"] == 9636
    assert f"on only {(cells['both_right'] + cells['both_wrong']) / (wrong + right):.0%}".replace("%", " %") in SECTION
    assert f"of {wrong + right:,} cells; of {cells['oracle_gives_none']} more" in SECTION
    assert f"It rewarded {100 * cells['judge_rewards_wrong'] / wrong:.0f} % of the wrong ones" in SECTION
    assert f"missed {100 * cells['judge_misses_right'] / right:.0f} % of the right ones" in SECTION


@pytest.mark.parametrize(
    ("arm", "pairs", "told"),
    [
        ("judge-adversary", "4,995 got a pair", "The trained team solves"),
        ("judge-correction", "332 pairs", "a team solves"),
    ],
)
def test_both_trainings_are_told_with_their_difference_to_the_untrained_team(arm: str, pairs: str, told: str) -> None:
    training = read(SERVED / arm / "train.json")
    assert f"{training.epochs[-1].pairs:,}" in pairs
    assert pairs in SECTION
    played, report = read_report(SERVED / arm / "new-seeds.json")
    assert played.measured is not None
    rate = re.fullmatch(r"([\d.]+) (\[.*\]) \(144\)", format_rate([played.measured]))
    assert rate is not None
    assert f"{told} {rate[1]} % {rate[2]}" in SECTION
    _, untrained = read_report(DOCS / "wrong-credit/results/units/untrained/new-seeds.json")
    assert describe_difference(compare_trainings([(untrained, report)])) in SECTION


def test_both_are_compared_with_right_and_with_inverted_rewards() -> None:
    units = DOCS / "wrong-credit/results/units"
    (sampler, _), (right, _), (inverted, report) = (
        read_report(next(units.glob(f"{arm}/**/new-seeds.json")))
        for arm in ("adversary-0", "correction-0", "correction-30")
    )
    shares = [
        100 * sum(row[3] for row in one.measured.episodes) / 144 for one in (sampler, right, inverted) if one.measured
    ]
    assert f"sampler's mistakes a team solves {shares[0]:.1f} %" in SECTION
    assert f"bring corrections to {shares[1]:.1f} %, with 30 % of them inverted to {shares[2]:.1f} %" in SECTION
    _, judged = read_report(SERVED / "judge-correction/new-seeds.json")
    assert f"(difference {describe_difference(compare_trainings([(report, judged)]))})" in SECTION


def test_the_pocket_is_told_as_it_was_played() -> None:
    page = " ".join((DOCS / "results.md").read_text(encoding="utf-8").split())
    splits = ("unseen-tasks", "hopeless", "new-seeds")
    played = {name: read(DOCS / f"results/pocket/{name}.json").measured for name in splits}
    rows = {name: one.episodes for name, one in played.items() if one is not None}
    assert [(sum(row[3] for row in each), len(each)) for each in rows.values()] == [(118, 198), (0, 72), (317, 432)]
    assert "solves 118 of their 198 instances" in page
    assert "solves none of 72 instances" in page
    never = {row[0] for row in rows["unseen-tasks"]} - {row[0] for row in rows["unseen-tasks"] if row[3]}
    assert f"none of {', '.join(sorted(never)[:2])} and {sorted(never)[2]} (9 instances each)" in page
    unsolved = re.search(r"these trained tasks: ([\w, ]+)\.", page)
    assert unsolved is not None
    known = {task: [row[3] for row in rows["new-seeds"] if row[0] == task] for task in unsolved[1].split(", ")}
    one, other = (f"{task} ({sum(each)} of {len(each)}" for task, each in known.items() if any(each))
    assert f"Of the five trained tasks it solves {one} instances) and {other})" in page
    lost = [len(each) for each in known.values() if not any(each)]
    assert f"none of {sum(lost)} of the other three" in page
    assert len(lost) == 3


README = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
TOLD = {
    "one agent, untrained": ("results", "untrained-single"),
    "team of four, untrained": ("results", "untrained-team"),
    "team, [full method](docs/results.md)": ("results", "full"),
    "team, rewarded replies alone": ("results", "rft"),
    "team, no credit re-assignment": ("results", "no-cr"),
    "team, the paper's settings, best of three rates": ("results", "paper-5e-6"),
    "team, no edge updates": ("results", "no-edge-update"),
    "one agent, pairs of the adversary": ("results", "single-agent"),
    "one agent, [filtered behaviour cloning](docs/algorithms.md)": ("algorithms/results", "filtered-bc"),
    "one agent, [DigiRL](docs/algorithms/digirl.md)": ("algorithms/results", "digirl"),
}


@functools.cache
def read_results(folder: str) -> Results:
    """Return the committed results of a folder of docs, read once for all tests."""
    plan = read_plan(DOCS / folder / "plan.yaml")
    return Results(plan, read_all(DOCS / folder / "units", plan))


@pytest.mark.parametrize("label", TOLD)
def test_the_readme_s_table_is_that_of_its_units(label: str) -> None:
    folder, arm = TOLD[label]
    row = re.search(rf"\| {re.escape(label)} \| (\S+) \| ([\d.]+) \| ([\d.]+|not measured) \|", README)
    assert row is not None
    results = read_results(folder)
    steps = {training.steps for training in results.trainings() if training.arm == arm}
    assert row[1] == "–" if not steps else all(abs(one - int(row[1].replace(",", ""))) < 200 for one in steps)
    assert results.format_rate(f"{arm}/new-seeds").startswith(f"{row[2]} [")
    if row[3] == "not measured":
        assert "unseen-tasks" not in results.plan.phases
    else:
        assert results.format_rate(f"{arm}/unseen-tasks").startswith(f"{row[3]} [")


def find_in_readme(difference: str) -> re.Match[str] | None:
    """Find a difference as tables write it, which the README writes with or without "points"."""
    points, _, interval = difference.removesuffix(", not separable").partition(" ")
    return re.search(rf"{re.escape(points)}( points)?,? {re.escape(interval.removesuffix(']'))}", README)


@pytest.mark.parametrize(
    ("folder", "first", "second"),
    [
        ("results", "untrained-team/new-seeds", "full/new-seeds"),
        ("results", "untrained-single/new-seeds", "full/new-seeds"),
        ("results", "no-cr/new-seeds", "full/new-seeds"),
        ("results", "paper-5e-6/new-seeds", "full/new-seeds"),
        ("results", "rft/new-seeds", "full/new-seeds"),
        ("results", "single-agent/new-seeds", "full/new-seeds"),
        ("results", "no-edge-update/new-seeds", "full/new-seeds"),
        ("results", "untrained-team/unseen-tasks", "full/unseen-tasks"),
        ("results", "untrained-single/unseen-tasks", "full/unseen-tasks"),
        ("results", "untrained-team/pages", "full/pages"),
        ("pages/results", "phone-team/pages", "continued/pages"),
        ("pages/results", "phone-team/phone", "continued/phone"),
    ],
)
def test_the_readme_s_differences_are_those_of_the_units(folder: str, first: str, second: str) -> None:
    assert find_in_readme(read_results(folder).format_difference(first, second))


@pytest.mark.parametrize(
    ("arm", "phase"), [("filtered-bc", "new-seeds"), ("digirl", "new-seeds"), ("filtered-bc", "new-seeds-greedy")]
)
def test_the_readme_compares_the_team_with_one_agent_that_learned_more_steps(arm: str, phase: str) -> None:
    """Both pages play the same instances of the same base."""
    agent, team = (
        [one.report() for _, one in sorted(read_results(folder).find_measured(f"{name}/{phase}").items())]
        for folder, name in (("algorithms/results", arm), ("results", "full"))
    )
    difference = describe_difference(compare_trainings(list(zip(agent, team, strict=True))))
    if phase == "new-seeds":
        (label,) = (label for label, place in TOLD.items() if place == ("algorithms/results", arm))
        cells = re.search(rf"\| {re.escape(label)} \|([^|]*\|){{3}} ([^|]*) \|", README)
        assert cells is not None
        assert cells[2] == difference
    else:
        assert f"the team minus that agent is {difference}" in README


def test_the_readme_tells_what_else_differs_between_the_team_and_that_agent() -> None:
    """Optimizer steps, and the tasks that no training played, greedily."""
    places = {"filtered-bc": "algorithms/results", "full": "results"}
    learned = {
        arm: {
            sum(epoch.updates for epoch in training.epochs)
            for training in read_results(folder).trainings()
            if training.arm == arm
        }
        for arm, folder in places.items()
    }
    assert learned == {"filtered-bc": {336}, "full": {160}}
    assert "336 optimizer steps against 160" in README
    agent, team = (read_results(folder).format_rate(f"{arm}/unseen-greedy") for arm, folder in places.items())
    assert f"the team solves {team.partition(' ')[0]} % and the agent {agent.partition(' ')[0]} %, greedily" in README


def test_defaults_train_as_the_full_method_was_measured() -> None:
    """But for the most passes over its examples, and the untrained team on held-out seeds."""
    algorithm = load_algorithm("collabuiagents")
    today = load_method(algorithm, algorithm.default_preset).model_dump(mode="json")
    measured = read(DOCS / "results/units/full/seed-0/train.json").config["method"]
    parts = {"dpo": {"epochs"}, "held_out": {"before"}}
    for name, few in parts.items():
        ours, theirs = today.pop(name), measured.pop(name)
        assert {key for key in ours | theirs if ours.get(key) != theirs.get(key)} == few
    del today["description"], measured["description"]
    assert measured == today
