"""What keeps numbers from misleading: temperatures, rehearsals, and one success for a stopped run."""

import json
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from collab.cli.main import main
from collab.cli.output import REHEARSAL

pytestmark = pytest.mark.browser


def reheat(run: Path, temperature: float) -> None:
    """Let a run say that it was sampled at another temperature."""
    file = run / "run.json"
    head = json.loads(file.read_text())
    for model in head["models"].values():
        model["sampling"]["temperature"] = temperature
    file.write_text(json.dumps(head))


@pytest.mark.slow
def test_runs_of_different_temperatures_are_told_apart(recorded, serving, open_page, turn, tmp_path):
    for name, temperature in (("cold", 0.3), ("hot", 1.5)):
        reheat(Path(shutil.copytree(recorded, tmp_path / "runs" / name)), temperature)
    address, inspector = serving(tmp_path / "runs")
    cold, hot = (
        next(row.id for row in inspector.list_runs().runs if row.path.endswith(name)) for name in ("cold", "hot")
    )
    page = open_page(address)
    turn(page, f"#/compare/{cold}/{hot}")
    text = page.inner_text("main")
    assert "sampled differently: temperature 0.3 against temperature 1.5" in text
    assert "sampled at temperature 0.3" in text
    assert "sampled at temperature 1.5" in text
    turn(page, f"#/compare/{cold}/{cold}")
    assert "sampled differently" not in page.inner_text("main")
    turn(page, f"#/run/{hot}")
    assert "sampled at temperature 1.5" in page.inner_text("main")


@pytest.mark.medium
def test_a_stopped_run_has_the_success_that_the_command_line_tells(
    recorded, serving, open_page, turn, tmp_path, capsys
):
    run = Path(shutil.copytree(recorded, tmp_path / "runs" / "run"))
    (log,) = (run / "events").iterdir()
    lines = log.read_text().splitlines(keepends=True)
    ends = [place for place, line in enumerate(lines) if '"type":"episode_finished"' in line]
    log.write_text("".join(line for place, line in enumerate(lines) if place < ends[-1] or '"type":"text"' in line))
    (run / "index.sqlite").unlink()
    assert main(["runs", "show", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    address, inspector = serving(run)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_runs().runs[0].id}")
    text = page.inner_text("main")
    success, replies = told["success"], told["replies"]
    assert f"{success['successes']}/{success['episodes']}, few" in text
    assert f"2 of {success['episodes']} are over; the others count as not solved" in text
    assert f"{replies['without_action']} of {replies['total']}" in text


@pytest.mark.medium
def test_a_rehearsal_is_marked_wherever_its_success_stands(team, open_page, turn, step_place):
    address, inspector, run = team
    page = open_page(address)
    assert REHEARSAL in page.locator("tbody tr", has=page.locator(".rate")).inner_text()
    row = inspector.compare(run, run).both[0].a
    turn(page, f"#/run/{run}")
    assert REHEARSAL in page.locator(".tiles > div", has=page.locator(".rate")).inner_text()
    assert f"{REHEARSAL}. Its agents read the solutions" in page.locator(".note").first.inner_text()
    for place in (f"#/run/{run}/episodes", step_place(run, row.id, 0)):
        turn(page, place)
        assert REHEARSAL in page.locator("main").inner_text()
    turn(page, f"#/compare/{run}/{run}")
    assert page.get_by_role("alert").inner_text().startswith(f"A and B: {REHEARSAL}.")
    for card in page.locator(".two > .panel").all():
        assert REHEARSAL in card.inner_text()
    pair = "/".join([quote(row.id, safe="")] * 2)
    turn(page, f"#/compare/{run}/{run}/{pair}")
    page.wait_for_selector(".sides .panel + .panel .frame")
    for card in page.locator(".sides > .panel").all():
        assert REHEARSAL in card.inner_text()
