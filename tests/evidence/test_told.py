"""What docs/critics.md says of a judge and an adversary behind a server is what their records hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from collab.evaluation.comparison import compare_trainings
from collab.evaluation.metrics import Report
from collab.evaluation.report import show_difference
from collab.evidence.record import UnitRecord, read
from collab.evidence.tables import format_rate
from collab.library import find_builtin_root

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
    found = compare_trainings([(untrained, report)])
    assert show_difference(found).replace(" [", " [") in SECTION
