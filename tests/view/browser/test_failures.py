"""The panel that says why episodes failed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

LIBRARY = str(Path(__file__).parents[2] / "cli" / "library")


@pytest.mark.medium
def test_the_first_page_says_why_episodes_failed(serving, open_page, turn, aside, faults, tmp_path):
    run = tmp_path / "lost"
    play = ("--env", "corridor", "--graph", "single", "--agents", "parrot", "--tasks", "TypeWord", "--episodes", "3")
    assert aside("rollout", *play, "--library", LIBRARY, "--out", str(run)) == 0
    address, inspector = serving(run)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_runs().runs[0].id}")
    assert page.get_by_role("heading", name="Failures").count() == 0
    assert aside("runs", "show", str(run), "--failures") == 0
    page.reload()
    panel = page.locator("section.panel", has=page.get_by_role("heading", name="Failures", exact=True))
    panel.wait_for()
    cells = panel.locator("tbody tr").first.locator("th, td").all_inner_texts()
    assert cells == ["no attempt", "stuck midway", "3", "no step came nearer to the goal"]
    assert faults(page, (390,)) == []
