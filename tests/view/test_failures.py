"""Why episodes failed, on the first page of a run: in data, in a report, and in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.cli.main import main
from collab.view.export import export

LIBRARY = str(Path(__file__).parents[1] / "cli" / "library")


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in the corridor, all of whose episodes fail."""
    run = tmp_path_factory.mktemp("lost") / "run"
    play = ("--env", "corridor", "--graph", "single", "--agents", "parrot", "--tasks", "TypeWord", "--episodes", "3")
    assert main(["rollout", *play, "--library", LIBRARY, "--out", str(run)]) == 0
    return run


def test_they_are_there_once_they_were_looked_at(lost, inspect, read_report, tmp_path):
    inspector = inspect(lost)
    id = inspector.list_runs().runs[0].id
    assert inspector.get_overview(id, None).failures == []
    assert main(["runs", "show", str(lost), "--failures"]) == 0
    (shown,) = inspector.get_overview(id, None).failures
    assert (shown.mode, shown.coarse, shown.episodes) == ("no attempt", "stuck midway", 3)
    export(inspector, id, tmp_path / "report.html")
    answers = read_report(tmp_path / "report.html").answers
    (overview,) = (answer for name, answer in answers.items() if name.startswith(f"run/{id}/overview"))
    assert [one["mode"] for one in overview["failures"]] == ["no attempt"]
    kept = (lost / "failures.json").read_text()
    (lost / "failures.json").write_text("{")
    assert inspector.get_overview(id, None).failures == []
    (lost / "failures.json").write_text(kept)
