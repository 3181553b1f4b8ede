"""Pages that are open while a team plays."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

EPISODE = "ContactsAddContact/0"


@pytest.fixture
def playing(command, tmp_path) -> Iterator[Path]:
    """A run in which a team plays for as long as one looks."""
    run = tmp_path / "growing"
    played = ("--env", "androidworld", "--agents", "rehearsal", "--graph", "team", "--episodes", "400")
    process = command("rollout", *played, "--out", str(run))
    try:
        while not (run / "run.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
        yield run
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.medium
def test_a_growing_run_is_followed(recorded, playing, serving, open_page, turn):
    address, inspector = serving(playing)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_runs().runs[0].id}/episodes")
    told = page.get_by_role("status").filter(has_text="episode")
    count = told.inner_text()
    page.wait_for_function("told => !document.querySelector('main').innerText.includes(told)", arg=count)
    assert int(re.findall(r"\d+", told.inner_text())[0]) > int(re.findall(r"\d+|No", count)[0].replace("No", "0"))


@pytest.fixture
def half(recorded, tmp_path):
    """A run that was copied while its second step was played, and what was written afterwards."""
    run = tmp_path / "half"
    shutil.copytree(recorded, run, ignore=shutil.ignore_patterns("index.sqlite*", "labels", "pairs", "proposals"))
    (log,) = (run / "events").glob("*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    end = next(place for place, line in enumerate(lines) if is_step(json.loads(line), EPISODE, 1))
    log.write_bytes(b"".join(lines[:end]))
    return run, log, b"".join(lines[end:])


def is_step(event: dict[str, Any], episode: str, step: int) -> bool:
    return event["type"] == "step" and event["trajectory"] == episode and event["step"]["index"] == step


@pytest.mark.slow
def test_the_newest_step_learns_what_came_of_it_and_the_reader_loses_nothing(
    half, serving, open_page, turn, step_place
):
    run, log, later = half
    address, inspector = serving(run)
    id = inspector.list_runs().runs[0].id
    page = open_page(address)
    turn(page, step_place(id, EPISODE, 0))
    assert inspector.get_step(id, EPISODE, 0).next is None
    page.get_by_text("The next screen is not recorded.").wait_for()
    name = inspector.get_step(id, EPISODE, 0).agents[2]
    page.keyboard.press("3")
    chosen = page.evaluate("document.activeElement.id")
    assert chosen.startswith(f"cell {name} ")
    page.get_by_text("As the agents read it", exact=True).click()
    page.locator(f"[id='{chosen}']").focus()
    with log.open("ab") as stream:
        stream.write(later)
    page.get_by_role("link", name="Next step").wait_for()
    page.get_by_text("The next screen is not recorded.").wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == chosen
    assert page.locator("button.cell[aria-pressed=true]").get_attribute("id") == chosen
    assert page.get_by_label("The screen as the agents read it").is_visible()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h1:has-text('step 1')")


@pytest.mark.slow
def test_an_overview_that_grows_keeps_what_is_open_and_focused(half, serving, open_page, turn):
    run, log, later = half
    address, inspector = serving(run)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_runs().runs[0].id}")
    page.get_by_text("Configuration", exact=True).click()
    page.get_by_role("link", name="Episodes", exact=True).focus()
    steps = page.get_by_text("steps", exact=True).locator("xpath=..")
    told = steps.first.inner_text()
    with log.open("ab") as stream:
        stream.write(later)
    page.wait_for_function("told => !document.querySelector('main').innerText.includes(told)", arg=told)
    assert page.get_by_label("Configuration").is_visible()
    assert page.evaluate("document.activeElement.textContent") == "Episodes"
