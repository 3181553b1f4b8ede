"""What `scripts/androidworld_fidelity.py` ends with; AndroidWorld itself is not asked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType

import pytest

from collab.envs.simphone.conformance.fidelity import FidelityVerdict

GOOD = FidelityVerdict(task="SimpleSmsSend", suite_seed=30, marks={})
BAD = FidelityVerdict(task="SimpleSmsSend", suite_seed=30, marks={}, problem="setting up failed")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import androidworld_fidelity

    return androidworld_fidelity


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ({"simphone": [GOOD]}, 0),
        ({"simphone": [GOOD, BAD]}, 1),
        ({"simphone": [GOOD], "androidworld": [GOOD]}, 0),
        ({"simphone": [GOOD], "androidworld": [BAD]}, 1),
    ],
)
def test_a_miss_with_anybodys_hands_is_no_success(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, results: dict[str, list[FidelityVerdict]], code: int
) -> None:
    def examine(given: argparse.Namespace, log: Path) -> dict[str, list[FidelityVerdict]]:
        return results

    monkeypatch.setattr(script, "examine", examine)
    monkeypatch.setattr(sys, "argv", ["androidworld_fidelity.py", "--package", "anywhere"])
    assert script.main() == code
