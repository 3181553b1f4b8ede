"""What a transfer compares, on numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.errors import UsageError
from collab.evaluation.metrics import EpisodeResult, Report, summarise
from collab.evaluation.report import EvaluatedRun, Setting
from collab.seeds import Seeds
from collab.transfer.result import Played, build_outcome, compare_forgetting, compare_generalization


def report(solved: dict[str, str], environment: str = "web") -> Report:
    """Task → one letter per instance, "+" for a solved one."""
    results = [
        EpisodeResult(
            id=f"{task}/{number}",
            task=task,
            difficulty="easy",
            seed=number,
            success=letter == "+",
            steps=1,
            max_steps=5,
            error=None,
        )
        for task, letters in solved.items()
        for number, letter in enumerate(letters)
    ]
    return summarise(results, environment=environment, environment_version="1", privileged=False)


def run(found: Report) -> EvaluatedRun:
    setting = Setting(environment=found.environment, split="new-seeds")
    team = {"split": {"name": "new-seeds", "hash": "a" * 64}}
    return EvaluatedRun(path=Path("run"), command="eval", seeds=Seeds(30), setting=setting, team=team, report=found)


BASE = {"link": "+---", "form": "----"}  # 1 of 8
TRANSFERRED = {"link": "++--", "form": "+---"}  # 3 of 8
CONTINUED = {"link": "+++-", "form": "+-++"}  # 6 of 8
BEFORE = {"call": "++++"}  # 4 of 4
AFTER = {"call": "+-+-"}  # 2 of 4


def played() -> Played:
    second = {"base": BASE, "transferred": TRANSFERRED, "continued": CONTINUED}
    first = {"transferred": BEFORE, "continued": AFTER}
    return {
        "second": {arm: [run(report(solved))] for arm, solved in second.items()},
        "first": {arm: [run(report(solved, "phone"))] for arm, solved in first.items()},
    }


def test_generalization_is_the_team_less_its_base() -> None:
    found = compare_generalization(report(BASE), report(TRANSFERRED))
    assert (found.difference, found.pairs, found.tasks) == (2 / 8, 8, 2)


def test_forgetting_is_what_was_solved_before_less_what_is_solved_after() -> None:
    found = compare_forgetting(report(BEFORE), report(AFTER))
    assert found.difference == 2 / 4
    assert found.interval[0] >= 0
    learned = compare_forgetting(report(AFTER), report(BEFORE))
    assert learned.difference == -2 / 4
    assert learned.interval == (0 - found.interval[1], 0 - found.interval[0])


def test_an_outcome_tells_every_rate_and_difference() -> None:
    names = {"agents": "a@best", "base": "a@epoch0", "method": "collab, ablation rft"}
    told = build_outcome(played(), mode="continual", seeds=[30], epoch=2, **names)
    outcome = told.outcome
    assert "Team a@best, base a@epoch0. Trained in the second environment by collab, ablation rft.\n" in told.markdown
    assert {arm: one.successes for arm, one in outcome.second.success.items()} == {
        "base": 1,
        "transferred": 3,
        "continued": 6,
    }
    assert {arm: one.value for arm, one in outcome.generalization.items()} == {"transferred": 2 / 8, "continued": 5 / 8}
    assert outcome.gained is not None
    assert outcome.gained.value == 3 / 8
    assert outcome.forgetting is not None
    assert (outcome.forgetting.value, outcome.forgetting.pairs) == (2 / 4, 4)
    assert outcome.first is not None
    assert outcome.first.environment == "phone"
    assert "| continued | 75.0 [40.9, 92.9] (8) | +62.5 [" in told.markdown
    assert "positive where something is lost: +50.0 [" in told.markdown
    assert type(outcome).model_validate_json(outcome.model_dump_json()) == outcome


def test_what_learned_nothing_is_told_beside_a_gain_of_nothing() -> None:
    names = {"agents": "a@best", "base": "a@epoch0", "method": "collab"}
    told = build_outcome(
        played(), mode="continual", seeds=[30], epoch=1, untrained=["epoch 1, shared: loss is nan"], **names
    )
    assert "\n- learned nothing: epoch 1, shared: loss is nan\n" in told.markdown
    assert told.outcome.untrained == ["epoch 1, shared: loss is nan"]
    assert build_outcome(played(), mode="continual", seeds=[30], epoch=1, **names).outcome.untrained == []


def test_direct_tells_of_one_environment() -> None:
    second = {arm: runs for arm, runs in played()["second"].items() if arm != "continued"}
    outcome = build_outcome({"second": second}, mode="direct", agents="a", base="b", seeds=[30]).outcome
    assert (outcome.first, outcome.gained, outcome.forgetting, outcome.epoch) == (None, None, None, None)
    assert list(outcome.generalization) == ["transferred"]


def test_nothing_is_compared_over_different_instances() -> None:
    with pytest.raises(UsageError, match="nothing to compare"):
        compare_generalization(report({"link": "+"}), report({"form": "+"}))
