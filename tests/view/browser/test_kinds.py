"""Runs of other kinds than a phone's: web pages, trainings, and words that mean harm."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from collab.view.schema.episodes import EpisodeFilter

pytestmark = pytest.mark.browser


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["script", "markup", "long", "direction", "broken", "template"])
def test_words_from_outside_stay_words(serving, open_page, turn, tmp_path, kind):
    hostile = runpy.run_path(str(Path(__file__).parents[1] / "test_hostile.py"))
    words = hostile["NASTY"][kind]
    path = hostile["hostile_run"](tmp_path / "hostile", words)
    address, inspector = serving(path)
    run = inspector.list_runs().runs[0].id
    page = open_page(address)
    turn(page, f"#/run/{run}")
    turn(page, f"#/run/{run}/episodes")
    page.locator("main a.run-link").first.click()
    page.wait_for_selector("table.matrix")
    assert page.evaluate("window.harmed") is None
    tags = page.evaluate("[...new Set([...document.querySelectorAll('body *')].map(one => one.localName))]")
    assert not {"script", "iframe", "object", "embed", "style", "link", "meta", "base"} & set(tags)
    links = page.evaluate("[...document.querySelectorAll('[href]')].map(one => one.getAttribute('href'))")
    assert [link for link in links if not link.startswith(("#", "/static/", "data:,"))] == []
    attributes = page.evaluate("[...document.querySelectorAll('*')].flatMap(one => one.getAttributeNames())")
    assert not [name for name in attributes if name.startswith("on")]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.slow
def test_web_pages_are_shown_as_they_were_pictured(serving, open_page, turn, command, tmp_path):
    pytest.importorskip("miniwob")
    run = tmp_path / "web"
    played = ("--env", "miniwob", "--agents", "rehearsal", "--graph", "team", "--tasks", "click-button")
    assert command("rollout", *played, "--episodes", "1", "--out", str(run)).wait() == 0
    address, inspector = serving(run)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_runs().runs[0].id}/episode/click-button%2F0/0")
    page.wait_for_function("document.querySelector('.frame img')?.naturalWidth > 0")
    assert page.locator(".overlay .mark.executed").count() == 1


@pytest.mark.medium
def test_a_reply_without_an_action_says_why(serving, open_page, turn, aside, step_place, tmp_path):
    agents = tmp_path / "library" / "agents" / "mute.yaml"
    agents.parent.mkdir(parents=True)
    agents.write_text("kind: scripted\noptions: {replies: ['I would rather not.']}\n")
    asked = ["rollout", "--env", "androidworld", "--agents", "mute", "--graph", "single", "--library"]
    asked += [str(agents.parents[1]), "--tasks", "SystemWifiTurnOff", "--set", "environment.limits.max_steps=1"]
    assert aside(*asked, "--out", str(tmp_path / "run")) == 0
    address, inspector = serving(tmp_path / "run")
    run, episode = inspector.list_runs().runs[0].id, "SystemWifiTurnOff/0"
    (cell,) = inspector.get_step(run, episode, 0).cells
    assert cell.failure is not None
    page = open_page(address)
    turn(page, step_place(run, episode, 0))
    (words,) = page.locator("button.cell .words").all_inner_texts()
    assert words == f"no action: {cell.failure.kind.replace('_', ' ')}"
    turn(page, step_place(run, episode, 0, f"/{cell.agent}/1"))
    assert cell.failure.detail
    page.get_by_text(cell.failure.detail, exact=False).first.wait_for()


@pytest.mark.slow
def test_a_training_is_shown_epoch_by_epoch(serving, open_page, turn, command, faults, tmp_path):
    pytest.importorskip("torch")
    verified = command("verify-resume", "--quick", "--kills", "1", "--seed", "1", "--out", str(tmp_path / "trainings"))
    assert verified.wait() == 0
    address, inspector = serving(tmp_path / "trainings" / "undisturbed")
    run = inspector.list_runs().runs[0]
    assert run.kind == "training"
    page = open_page(address)
    turn(page, f"#/run/{run.id}")
    epochs = inspector.get_overview(run.id).epochs
    names = page.locator("#epoch option").all_inner_texts()
    assert [int(re.findall(r"\d+", name)[0]) for name in names] == [one.epoch for one in epochs]
    rewarded = [rate for row in epochs[-1].rewards.rates for rate in row]
    shown = page.locator("td.heat").all_inner_texts()
    assert shown == ["–" if rate is None else f"{100 * rate:.0f}%" for rate in rewarded]
    for name, counts in (("Pairs by source", epochs[-1].pairs), ("Without a pair, by cause", epochs[-1].unpaired)):
        table = page.locator(".epoch-body").get_by_role("table", name=name)
        assert table.locator("tbody tr").count() == len(counts)
    assert faults(page) == []
    turn(page, f"#/run/{run.id}/episodes")
    headings = page.locator("main table thead th").all_inner_texts()
    column = next(number for number, name in enumerate(headings) if name.startswith("Epoch"))
    rows = page.locator("main table tbody tr").all()
    told = [row.locator("th, td").nth(column).inner_text() for row in rows]
    assert told == [str(row.epoch) for row in inspector.list_episodes(run.id, EpisodeFilter()).rows]
