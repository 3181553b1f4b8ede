"""`docs/androidworld-tasks.md` says what the oracles do today."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from collab.envs.simphone.suite import SimPhoneSuite

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "androidworld-tasks.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("| ")]
OPTIMAL = {cells[0]: int(cells[4]) for cells in ROWS[1:]}
FACTS = ROOT.parent / "shared" / "data" / "androidworld_tasks.json"


@pytest.fixture
def oracle_paths(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import oracle_paths

    return oracle_paths


@pytest.mark.slow
def test_the_table_is_current(
    oracle_paths: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    metadata = tmp_path / "task_metadata.json"
    metadata.write_text(json.dumps([{"task_name": name, "optimal_steps": str(n)} for name, n in OPTIMAL.items()]))
    monkeypatch.setattr(sys, "argv", ["oracle_paths.py", "--metadata", str(metadata)])
    assert oracle_paths.main() == 0
    assert capsys.readouterr().out == TABLE, "make it anew; its fourth paragraph says how"


def test_without_their_file_the_column_is_empty(oracle_paths: ModuleType) -> None:
    info = next(info for info in SimPhoneSuite().tasks() if info.name == "ClockStopWatchRunning")
    line = oracle_paths.row(info, oracle_paths.Played(steps=4.0, score=1.0), {})
    assert line == "| ClockStopWatchRunning | clock | easy | 10 |  | 4.0 | 1.0 |"


def test_an_oracle_that_fails_is_shown(oracle_paths: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_paths.SimPhone, "oracle", lambda phone: None)
    suite = SimPhoneSuite()
    lost = oracle_paths.play(suite, "SystemWifiTurnOn")
    assert (lost.steps, lost.score) == (0, 0)
    infos = [info for info in suite.tasks() if info.name == "SystemWifiTurnOn"]
    assert oracle_paths.summary(infos, {"SystemWifiTurnOn": lost}, {}).startswith("0 of 1 oracles")


@pytest.mark.skipif(not FACTS.exists(), reason="AndroidWorld's facts are not beside the checkout")
def test_optimal_steps_are_androidworlds() -> None:
    facts = {task["name"]: task["optimal_steps"] for task in json.loads(FACTS.read_text())["tasks"]}
    assert {name: facts[name] for name in OPTIMAL} == OPTIMAL
    assert len(OPTIMAL) == 88
