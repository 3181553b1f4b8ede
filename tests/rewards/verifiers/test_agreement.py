"""Agreement by hand, and the gate before verdicts are learned from."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.errors import ConfigError, RunFormatError
from collab.rewards.verifiers.agreement import Agreement, Confusion, JudgedPair, compare_verdicts
from collab.rewards.verifiers.base import Verdict
from collab.rewards.verifiers.gate import (
    FILE,
    AgreementRecord,
    admit_verifier,
    check_verifier,
    find_last_agreement,
    format_agreement,
    write_agreement,
)
from collab.rewards.verifiers.registry import VerifierChoice, VerifierDefinition, VerifierResources
from collab.types import Usage


def confuse(tp: int, fp: int, tn: int, fn: int) -> Confusion:
    return Confusion(true_positives=tp, false_positives=fp, true_negatives=tn, false_negatives=fn)


@pytest.mark.parametrize(
    ("counts", "agreement", "kappa", "positives", "negatives"),
    [
        # Chance: (50 · 45 + 50 · 55) / 100² = 0.5, so κ = (0.85 − 0.5) / 0.5.
        ((40, 10, 45, 5), 0.85, 0.7, 10 / 55, 5 / 45),
        ((25, 25, 25, 25), 0.5, 0.0, 0.5, 0.5),
        ((0, 10, 0, 10), 0.0, -1.0, 1.0, 1.0),
        ((10, 0, 0, 0), 1.0, None, None, 0.0),
        ((0, 0, 0, 0), None, None, None, None),
    ],
)
def test_numbers_by_hand(
    counts: tuple[int, int, int, int],
    agreement: float | None,
    kappa: float | None,
    positives: float | None,
    negatives: float | None,
) -> None:
    found = confuse(*counts)
    assert found.agreement.value == agreement
    assert found.kappa == (None if kappa is None else pytest.approx(kappa, abs=1e-12))
    assert found.wrong_successes.value == (None if positives is None else pytest.approx(positives, abs=1e-12))
    assert found.wrong_failures.value == (None if negatives is None else pytest.approx(negatives, abs=1e-12))


def build_verdict(name: str, success: bool | None) -> Verdict:
    missing = "it shrugs" if success is None else None
    return Verdict(trajectory=name, step=1, case="c", verifier="v-1", success=success, missing=missing)


def compare(*said: tuple[str, bool | None, bool | None]) -> Agreement:
    return compare_verdicts(
        [
            JudgedPair(task=task, verifier=build_verdict(f"{number}", own), reference=build_verdict(f"{number}", other))
            for number, (task, own, other) in enumerate(said)
        ]
    )


def test_what_is_missing_is_counted_and_neither_right_nor_wrong() -> None:
    found = compare(("A", True, True), ("A", None, False), ("B", False, None), ("B", True, False), ("C", None, None))
    assert (found.episodes, found.agreement.count, found.agreement.total) == (5, 1, 2)
    assert (found.missing, found.reference_missing) == ({"it shrugs": 2}, {"it shrugs": 2})
    assert [(one.task, one.agreement.count, one.agreement.total) for one in found.by_task] == [
        ("A", 1, 1),
        ("B", 0, 1),
        ("C", 0, 0),
    ]


CHOICE = VerifierChoice(name="verifier-llm", definition=VerifierDefinition(kind="text-judge"))


def record(*counts: int, missing: int = 0, **changes: Any) -> AgreementRecord:
    tp, fp, tn, fn = counts
    said: list[tuple[str, bool | None, bool | None]] = [("A", True, True)] * tp
    said += [("A", True, False)] * fp + [("A", False, False)] * tn + [("A", False, True)] * fn
    said += [("A", None, True)] * missing
    fields: dict[str, Any] = dict(
        verifier="verifier-llm",
        label="text-judge-1",
        digest="mine",
        config={},
        against="rules-1",
        environment="here",
        environment_version="1",
        runs=["runs/first"],
        tasks=[],
        seed=0,
        numbers=compare(*said),
        spent=Usage(),
    )
    return AgreementRecord(**fields | changes)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            None,
            "not measured in here as it is now (looked in calibrations); measure it on runs that were recorded there",
        ),
        (record(40, 5, 45, 10), "it agrees in 85.0% [76.7%, 90.7%] (85/100) of the episodes, at least 90% are wanted"),
        (record(90, 2, 8, 0), "it calls 20.0% [5.7%, 51.0%] (2/10) of the failures successes, at most 10% are"),
        (record(50, 0, 0, 0), "it met no failed episode, so its false positives are not known"),
        (record(30, 0, 30, 0, missing=40), "it gave 60 of 100 verdicts, at least 75% are wanted"),
    ],
)
def test_the_gate_names_what_is_wrong(found: AgreementRecord | None, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        admit_verifier(found, CHOICE, environment="here")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "or let it judge all the same: --allow-uncalibrated" in str(refused.value)
    admit_verifier(found, CHOICE, environment="here", allow_uncalibrated=True)


def test_the_gate_lets_a_good_one_and_the_rules_pass() -> None:
    admit_verifier(record(50, 4, 44, 2), CHOICE, environment="here")
    rules = VerifierChoice(name="rules", definition=VerifierDefinition(kind="rules"))
    admit_verifier(None, rules, environment="here")
    noisy = replace(rules, definition=VerifierDefinition(kind="rules", false_positives=0.2))
    with pytest.raises(ConfigError, match="not measured in here"):
        admit_verifier(None, noisy, environment="here")


def test_the_last_record_of_this_verifier_here_against_the_rules_counts(tmp_path: Path) -> None:
    assert find_last_agreement(tmp_path / "none", "mine", "here") is None
    times = [f"2026-01-0{day}T00:00:00Z" for day in range(1, 6)]
    write_agreement(tmp_path / "a", record(1, 0, 1, 0, created=times[0]))
    write_agreement(tmp_path / "b", record(2, 0, 1, 0, created=times[1]))
    write_agreement(tmp_path / "c", record(3, 0, 1, 0, created=times[2], environment="there"))
    write_agreement(tmp_path / "d", record(4, 0, 1, 0, created=times[3], digest="other"))
    write_agreement(tmp_path / "e", record(5, 0, 1, 0, created=times[4], against="text-judge-1"))
    found = find_last_agreement(tmp_path, "mine", "here")
    assert found is not None
    assert found.created == times[1]
    assert find_last_agreement(tmp_path / "a", "mine", "here") == record(1, 0, 1, 0, created=times[0])
    told = "agrees in 100.0% [43.9%, 100.0%] (3/3), which is a rough measure, κ 1.000, false positives "
    assert format_agreement(found).startswith(told)


def test_a_spoilt_record_is_an_error_only_where_it_may_be_the_one(tmp_path: Path) -> None:
    write_agreement(tmp_path / "a", record(1, 0, 1, 0, digest="other"))
    os.truncate(tmp_path / "a" / FILE, 40)
    with pytest.raises(RunFormatError, match="not JSON"):
        find_last_agreement(tmp_path, "mine", "here")
    write_agreement(tmp_path / "b", record(1, 0, 1, 0))
    assert find_last_agreement(tmp_path, "mine", "here") is not None


def test_a_training_gets_a_line_or_a_refusal_and_asks_no_model(tmp_path: Path) -> None:
    def check(choice: VerifierChoice, **options: Any) -> str:
        return asyncio.run(check_verifier(choice, "here", folder=tmp_path, **options))

    rules = VerifierChoice(name="rules", definition=VerifierDefinition(kind="rules"))
    assert check(rules) == "needs no measurement: it is the environment's own outcome"
    noisy = replace(rules, definition=VerifierDefinition(kind="rules", false_positives=0.05))
    with pytest.raises(ConfigError, match="not measured in here as it is now"):
        check(noisy)
    assert check(noisy, allow_uncalibrated=True) == "not measured in here"
    digest = VerifierResources.of(noisy).compute_digest()
    write_agreement(tmp_path / "a", record(50, 2, 48, 0, digest=digest))
    assert re.fullmatch(r"measured 20.*: agrees in 98\.0% .* in here", check(noisy))
    other = replace(rules, definition=VerifierDefinition(kind="rules", false_positives=0.06))
    with pytest.raises(ConfigError, match="not measured in here as it is now"):
        check(other)
    os.truncate(tmp_path / "a" / FILE, 40)
    with pytest.raises(RunFormatError):
        check(noisy)
    assert check(noisy, allow_uncalibrated=True) == "not measured in here"
