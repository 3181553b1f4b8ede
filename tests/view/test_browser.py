"""The pages in a real Chromium, on runs that are really recorded, under the server's own policy."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_playwright_python
import pytest

from collab.envs.web.browser import find_browser
from collab.view.export import export
from collab.view.guard import Gate
from collab.view.inspector import Inspector
from collab.view.server import listening

pytestmark = pytest.mark.browser

PATIENCE_MS = 60_000
EPISODE = "ContactsAddContact/0"
BAD = ("serious", "critical")
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@contextmanager
def served(paths: list[Path], spares: Path) -> Iterator[tuple[str, Inspector]]:
    """The address of a server that shows these runs, with its token."""
    import uvicorn

    from collab.view.routes import application

    inspector = Inspector(paths, spares=spares)
    with listening("127.0.0.1", 0) as listener:
        gate = Gate("127.0.0.1", listener.getsockname()[1])
        app = application(inspector, gate, stopped=lambda: server.should_exit, pause_s=0.1)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield gate.address, inspector
        finally:
            server.should_exit = True
            thread.join(timeout=20)
            inspector.close()


@pytest.fixture(scope="module")
def chromium(recorded):
    """One browser for all tests; runs are recorded before it starts, for its driver keeps a loop of its own."""
    sync_api = pytest.importorskip("playwright.sync_api")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser().path, chromium_sandbox=not root)
        yield browser
        browser.close()


@pytest.fixture
def serving(tmp_path):
    """Shows a run; gives the address and the inspector behind it."""
    with ExitStack() as stack:
        yield lambda run: stack.enter_context(served([run], tmp_path / "spares"))


@pytest.fixture
def opened(chromium, serving):
    """Opens an address in a context that ends before its server; whatever the page complains of fails the test."""
    contexts, complaints = [], []

    def make(address: str, **settings):
        context = chromium.new_context(**({"viewport": WIDE} | settings))
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        settled(page)
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


def settled(page) -> None:
    page.wait_for_selector("main:not([aria-busy]) h1")


def turn(page, hash: str) -> None:
    """Go to another place of the page."""
    page.evaluate("document.querySelector('main').replaceChildren()")
    page.evaluate("hash => { location.hash = hash }", hash)
    settled(page)


def collab(*arguments: str) -> subprocess.Popen[bytes]:
    """A command in a process of its own: the browser's driver has the loop of this one."""
    return subprocess.Popen([sys.executable, "-c", "from collab.cli.start import run; run()", *arguments])


def step_place(run: str, step: int, rest: str = "") -> str:
    return f"#/run/{run}/episode/{quote(EPISODE, safe='')}/{step}{rest}"


@pytest.fixture
def team(recorded, serving):
    """A judged and paired run, shown."""
    address, inspector = serving(recorded)
    return address, inspector, inspector.runs().runs[0].id


def test_from_the_runs_to_a_single_cell_by_mouse_and_by_keys(team, opened):
    address, inspector, run = team
    page = opened(address)
    page.get_by_role("link", name=re.compile(r"team$")).click()
    page.get_by_role("link", name="Episodes", exact=True).click()
    page.get_by_role("link", name=EPISODE).click()
    page.wait_for_selector("table.matrix")
    step = inspector.step(run, EPISODE, 0)
    assert page.locator("button.cell").count() == len(step.cells) == 8
    shown = page.locator("button.cell .words").all_inner_texts()
    assert [text for text in shown if not text.startswith("no action")] == [
        cell.action.words for agent in step.agents for cell in step.cells if cell.agent == agent and cell.action
    ]
    placed = sum(one.action.spot is not None or "direction" in one.action.arguments for one in step.vote.ballots)
    assert page.locator(".overlay .mark").count() == placed
    assert page.locator(".stage .chip").count() == len(step.vote.ballots) - placed
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h1:has-text('step 1')")
    assert page.evaluate("location.hash") == step_place(run, 1)
    kept = inspector.step(run, EPISODE, 1).vote.representative
    name = next(agent for agent in step.agents if agent != kept.agent)
    page.keyboard.press(str(step.agents.index(name) + 1))
    assert page.evaluate("location.hash") == step_place(run, 1, f"/{name}/{kept.round + 1}")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


@pytest.mark.slow
def test_a_cell_has_an_address_that_shows_its_exact_words(team, opened):
    address, inspector, run = team
    step = inspector.step(run, EPISODE, 1)
    cell = step.cells[-1]
    whole = inspector.cell(run, EPISODE, 1, cell.agent, cell.round)
    page = opened(address)
    turn(page, step_place(run, 1, f"/{cell.agent}/{cell.round + 1}"))
    page.reload()
    settled(page)
    assert page.locator("button.cell[aria-pressed=true]").get_attribute("id") == f"cell {cell.agent} {cell.round}"
    page.get_by_text("Raw reply", exact=True).click()
    assert page.get_by_label("Raw reply").inner_text().strip() == whole.reply.strip()
    page.get_by_text("Exact prompt", exact=True).click()
    assert page.get_by_label("Task, history and screen").text_content().startswith(whole.shared[:500])
    assert page.locator(".talk .message").count() == len(step.edges)
    assert page.locator(".pair").count() == len([one for one in step.pairs if one.id in cell.pairs])


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_a_phone(team, opened, theme):
    axe = Path(str(axe_playwright_python.__file__)).parent / "axe.min.js"
    address, _, run = team
    page = opened(address, color_scheme=theme)
    places = ["#/", f"#/run/{run}", f"#/run/{run}/episodes", f"#/run/{run}/finds/overruled", step_place(run, 1)]
    episode = quote(EPISODE, safe="")
    places += [f"#/run/{run}/search?q=contact", f"#/compare/{run}/{run}", f"#/compare/{run}/{run}/{episode}/{episode}"]
    serious, wide = [], []
    page.evaluate(axe.read_text(encoding="utf-8"))
    for place in places:
        turn(page, place)
        found = page.evaluate("axe.run()")["violations"]
        serious += [(place, one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in BAD]
        for size in (PHONE, WIDE):
            page.set_viewport_size(size)
            wide += [
                place for width in [page.evaluate("document.documentElement.scrollWidth")] if width > size["width"]
            ]
    assert (serious, wide) == ([], [])


@contextmanager
def playing(run: Path) -> Iterator[None]:
    """A team plays for as long as one looks."""
    played = ("--env", "androidworld", "--agents", "rehearsal", "--graph", "team", "--episodes", "400")
    process = collab("rollout", *played, "--out", str(run))
    try:
        while not (run / "run.json").exists():
            assert process.poll() is None
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_a_growing_run_is_followed(serving, opened, tmp_path):
    run = tmp_path / "growing"
    with playing(run):
        address, inspector = serving(run)
        page = opened(address)
        turn(page, f"#/run/{inspector.runs().runs[0].id}/episodes")
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
def test_the_newest_step_learns_what_came_of_it_and_the_reader_loses_nothing(half, serving, opened):
    run, log, later = half
    address, inspector = serving(run)
    id = inspector.runs().runs[0].id
    page = opened(address)
    turn(page, step_place(id, 0))
    assert inspector.step(id, EPISODE, 0).next is None
    page.get_by_text("The next screen is not recorded.").wait_for()
    name = inspector.step(id, EPISODE, 0).agents[2]
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
def test_an_overview_that_grows_keeps_what_is_open_and_focused(half, serving, opened):
    run, log, later = half
    address, inspector = serving(run)
    page = opened(address)
    turn(page, f"#/run/{inspector.runs().runs[0].id}")
    page.get_by_text("Configuration", exact=True).click()
    page.get_by_role("link", name="Episodes", exact=True).focus()
    steps = page.get_by_text("steps", exact=True).locator("xpath=..")
    told = steps.first.inner_text()
    with log.open("ab") as stream:
        stream.write(later)
    page.wait_for_function("told => !document.querySelector('main').innerText.includes(told)", arg=told)
    assert page.get_by_label("Configuration").is_visible()
    assert page.evaluate("document.activeElement.textContent") == "Episodes"


@pytest.mark.slow
def test_two_critics_are_compared_and_chosen(recorded, serving, opened, tmp_path):
    run = tmp_path / "judged"
    shutil.copytree(recorded, run)
    assert collab("pairs", "rebuild", str(run), "--critic", "outcome", "--name", "second").wait() == 0
    address, inspector = serving(run)
    id = inspector.runs().runs[0].id
    page = opened(address)
    turn(page, step_place(id, 1))
    page.get_by_text("Compare 2 critics on this step", exact=True).click()
    table = page.get_by_role("region", name="Critics side by side")
    found = inspector.critics(id, EPISODE, 1)
    assert table.locator("thead th").all_inner_texts()[2:] == [one.labels for one in found.critics]
    assert table.locator("tr.disputed").count() == len(found.disputed)
    for place in (f"#/run/{id}", f"#/run/{id}/finds/overruled"):
        turn(page, place)
        other = inspector.run(id).labellings[1]
        page.get_by_label("critic").select_option(other)
        page.wait_for_function("labels => location.hash.endsWith('labels=' + labels)", arg=other)
        settled(page)
        assert page.get_by_label("critic").input_value() == other


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["script", "markup", "long", "direction", "broken", "template"])
def test_words_from_outside_stay_words(serving, opened, tmp_path, kind):
    hostile = runpy.run_path(str(Path(__file__).with_name("test_hostile.py")))
    words = hostile["NASTY"][kind]
    path = hostile["hostile_run"](tmp_path / "hostile", words)
    address, inspector = serving(path)
    run = inspector.runs().runs[0].id
    page = opened(address)
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
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"]


@pytest.mark.slow
def test_a_report_opens_from_a_file_without_a_network(recorded, chromium, opened, tmp_path):
    inspector = Inspector([recorded], spares=tmp_path / "spares")
    out = tmp_path / "report.html"
    export(inspector, run := inspector.runs().runs[0].id, out)
    page = opened(out.as_uri(), offline=True)
    turn(page, f"#/run/{run}")
    turn(page, f"#/run/{run}/episodes?outcome=solved")
    turn(page, step_place(run, 1))
    page.wait_for_selector("table.matrix")
    assert page.evaluate("document.querySelector('.frame img').naturalWidth") == 360
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h1:has-text('step 2')")
    page.get_by_text("Exact prompt", exact=True).click()
    assert page.get_by_label("System", exact=True).inner_text()
    inspector.close()


@pytest.mark.slow
def test_web_pages_are_shown_as_they_were_pictured(serving, opened, tmp_path):
    pytest.importorskip("miniwob")
    run = tmp_path / "web"
    played = ("--env", "miniwob", "--agents", "rehearsal", "--graph", "team", "--tasks", "click-button")
    assert collab("rollout", *played, "--episodes", "1", "--out", str(run)).wait() == 0
    address, inspector = serving(run)
    page = opened(address)
    turn(page, f"#/run/{inspector.runs().runs[0].id}/episode/click-button%2F0/0")
    page.wait_for_function("document.querySelector('.frame img')?.naturalWidth > 0")
    assert page.locator(".overlay .mark.executed").count() == 1


@pytest.mark.slow
def test_a_training_is_shown_epoch_by_epoch(serving, opened, tmp_path):
    pytest.importorskip("torch")
    verified = collab("verify-resume", "--quick", "--kills", "1", "--seed", "1", "--out", str(tmp_path / "trainings"))
    assert verified.wait() == 0
    address, inspector = serving(tmp_path / "trainings" / "undisturbed")
    run = inspector.runs().runs[0]
    assert run.kind == "training"
    page = opened(address)
    turn(page, f"#/run/{run.id}")
    epochs = inspector.overview(run.id).epochs
    names = page.locator("#epoch option").all_inner_texts()
    assert [int(re.findall(r"\d+", name)[0]) for name in names] == [one.epoch for one in epochs]
    rewarded = [rate for row in epochs[-1].rewards.rates for rate in row]
    shown = page.locator("td.heat").all_inner_texts()
    assert shown == ["–" if rate is None else f"{100 * rate:.0f}%" for rate in rewarded]
    pairs = page.locator(".epoch-body").get_by_role("table", name="Pairs by cause")
    assert pairs.locator("tbody tr").count() == len(epochs[-1].pairs)
