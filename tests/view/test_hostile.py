"""Runs whose every word means harm: what is taken away of them."""

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from markdown_it import MarkdownIt

from collab.rewards.base import CriticCall, Judgement
from collab.rewards.labels import LabelHead, LabelWriter
from collab.store.manifest import Manifest
from collab.store.rewards import CellReward, RewardMatrix
from collab.store.run import RunStore
from collab.types import (
    Action,
    ActionMatrix,
    Ballot,
    Box,
    CellRef,
    Element,
    ElementTarget,
    EpisodeError,
    HistoryEntry,
    Observation,
    Outcome,
    ParseFailure,
    PlannedTask,
    PolicyRef,
    PromptRef,
    Sampling,
    Step,
    Tab,
    Task,
    Utterance,
    Vote,
)
from collab.view.common import to_json
from collab.view.export import export
from collab.view.markdown import report as markdown
from collab.view.plots import draw_plots
from collab.view.runs import CONFIG
from collab.view.schema.episodes import EpisodeFilter
from collab.view.schema.runs import CUT

SCRIPT = '</script><script>window.harmed = 1</script><img src="x" onerror="window.harmed = 1">'
NASTY = {
    "script": SCRIPT,
    "markup": "<!--<svg onload=harm()><a href='javascript:harm()'>&lt;b&gt;\"'`",
    "long": "lang" * (1 << 18) + "<b>",
    "direction": "\u202eelif.html\u202c \u2066abc\u2069 \u0007\u0000\x1b[2J",
    "broken": "half \ud800 and \udfff, \ufffe, e\u0301, \u2028\u2029",
    "template": "{{constructor}} ${harm()} %s </title></style>",
}
FAST = ("script", "broken")
PREFIX = "5e" * 32


def hostile_run(folder: Path, words: str, *, short: str | None = None) -> Path:
    """A run in which every text that a model, a page or a file could have written is `words`; one episode broke.

    Args:
        short: what stands where names do; None for the beginning of `words`. Ids of episodes, which are parts of
            addresses, are that beginning in any case.
    """
    id, short = words[:500], words[:500] if short is None else short
    manifest = Manifest(
        command=short,
        config={short: short},
        seed=1,
        environment=short,
        environment_version=short,
        graph=short,
        agents=short,
        planned=2,
        tasks=(PlannedTask(name=short, difficulty=short, episodes=2),),
        versions={short: short},
    )
    task = Task(
        environment=short, name=short, seed=2, goal=words, params={short: words}, difficulty=short, apps=(short,)
    )
    step = hostile_step(words, short)
    with RunStore.create(folder, manifest).open_writer() as writer:
        writer.store_text(PREFIX, words + "\f" + words)
        for number, name in enumerate((f"{id}/0", f"{id}/1")):
            about = {"episode": number, "epoch": 0, "environment": short, "environment_version": short}
            writer.begin_episode(name, task, **about)
            writer.step(name, step)
        outcome = Outcome(success=True, score=1.0, reason=words)
        writer.end_episode(f"{id}/0", outcome=outcome, final=step.observation, seconds=1.0)
        writer.end_episode(f"{id}/1", error=EpisodeError(type=short, message=words, step=1))
        writer.finish()
    scores = (1.0, None)
    rewards = tuple(
        CellReward(cell=cell.cell, score=score, reason=words, missing=None if score else words)
        for cell, score in zip(step.matrix, scores, strict=True)
    )
    with LabelWriter(folder, "critic", LabelHead(critic=short, options={short: words})) as labels:
        matrix = RewardMatrix(trajectory=f"{id}/0", step=0, critic=short, rewards=rewards)
        cells = tuple(cell.cell for cell in step.matrix)
        call = CriticCall(prompt=words, model=short, seed=1, reply=words, cells=cells, shown={short: short})
        labels.record(Judgement(case="", rewards=matrix, calls=(call,)))
    return folder


def hostile_step(words: str, short: str) -> Step:
    given = (("text", words), (short, short))
    action = Action(space="mobile", type=short, target=ElementTarget(index=0), arguments=given)
    element = Element(
        index=0, role=short, label=words, box=Box(0, 0, 100, 50), value=words, flags=(short,) * 20, key=short
    )
    screen = Observation(
        space="mobile",
        title=words,
        elements=(element,),
        text=words,
        url=f"javascript:{short}",
        tabs=(Tab(title=words, url=f"javascript:{short}"),),
        notice=words,
    )
    said = Utterance(
        agent=short,
        round=0,
        heard=(),
        text=words,
        reason=words,
        action=action,
        failure=None,
        prompt=PromptRef(prefix=PREFIX, suffix=words, layout=short, trimmed=(short,) * 30),
        policy=PolicyRef(base=short, adapter=short),
        sampling=Sampling(),
        seed=3,
    )
    failure = ParseFailure(kind="malformed", detail=words)
    silent = replace(said, round=1, heard=(said.cell,), action=None, failure=failure)
    return Step(
        index=0,
        observation=screen,
        matrix=ActionMatrix(agents=(short, "ben"), rounds=2, edges=((short, "ben"),), utterances=(said, silent)),
        vote=Vote(
            action=action,
            representative=said.cell,
            ballots=(Ballot(action=action, cells=(CellRef(short, 0),)),),
            abstained=(silent.cell,),
            entropy=0.0,
            tie=False,
        ),
        executed=action,
        no_action=False,
        history=HistoryEntry(action=words, reason=words, effect=words),
        terminated=True,
        truncated=False,
        summary=words,
        info={short: words},
    )


@pytest.fixture(
    params=[pytest.param(words, marks=() if name in FAST else pytest.mark.slow) for name, words in NASTY.items()],
    ids=NASTY,
)
def hostile(request, tmp_path):
    return hostile_run(tmp_path / "hostile", request.param), request.param


def test_a_report_holds_every_word_as_it_was_and_none_of_it_as_markup(hostile, inspect, read_report, tmp_path):
    path, words = hostile
    inspector = inspect(path)
    run = inspector.list_runs().runs[0].id
    out = tmp_path / "report.html"
    made = export(inspector, run, out)
    assert (made.episodes, made.steps, made.unread) == (2, 2, ())
    page = read_report(out)
    scripts = [given for tag, given in page.tags if tag == "script"]
    assert [given.get("id") for given in scripts] == ["collab-data", "collab-part-0", "collab-part-1", None]
    assert {tag for tag, _ in page.tags} <= {
        *("html", "head", "meta", "title", "link", "style", "body", "noscript", "script")
    }
    answers = page.answers
    cells = [answer for address, answer in answers.items() if "/cell?" in address]
    assert len(cells) == 4
    assert {answer["reply"] for answer in cells} == {words}
    assert {answer["suffix"] for answer in cells} == {words}
    assert {answer["shared"] for answer in cells} == {words}
    screens = [answer for address, answer in answers.items() if "/screen?" in address]
    assert screens == [{"text": words, "elements": []}] * (0 if len(words) < CUT else 3), "as agents read them, no more"
    [step, _] = [answer for address, answer in answers.items() if "/step?" in address]
    assert words.startswith(step["goal"]["text"])
    assert len(step["goal"]["text"]) + step["goal"]["cut"] == len(words)
    assert words.startswith(step["cells"][0]["because"]["text"])


@pytest.mark.slow
def test_nothing_of_any_length_is_answered_whole_but_what_is_asked_for_whole(inspect, tmp_path):
    """A megabyte wherever a text can stand: names of tasks, agents, roles, actions and their arguments among them."""
    words = NASTY["long"]
    path = hostile_run(tmp_path / "hostile", words, short=words)
    (segment,) = (path / "events").iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines) + lines[1].replace(b'"attempt":0', b'"attempt":7'))  # a problem that quotes it
    inspector = inspect(path)
    run = inspector.list_runs().runs[0].id
    (one, other) = inspector.list_episodes(run, EpisodeFilter()).rows
    step = inspector.get_step(run, one.id, 0)
    agent = step.cells[0].agent
    answers = [
        inspector.list_runs(),
        replace(inspector.get_run(run), config=""),
        inspector.get_overview(run),
        inspector.list_problems(run),
        inspector.list_episodes(run, EpisodeFilter()),
        *(inspector.find_steps(run, kind) for kind in ("first-wrong", "overruled", "disagrees")),
        inspector.search(run, "lang"),
        *(inspector.get_episode(run, row.id) for row in (one, other)),
        step,
        inspector.get_final_screen(run, one.id),
        inspector.get_critics(run, one.id, 0),
        inspector.compare(run, run),
        inspector.compare_episodes(run, run, one.id, one.id),
    ]
    longest = {type(answer).__name__: longest_text(json.loads(to_json(answer))) for answer in answers}
    assert longest == {name: min(length, CUT) for name, length in longest.items()}
    assert max(len(to_json(answer)) for answer in answers) < 200_000
    assert len(inspector.get_run(run).config) <= CONFIG + 1
    assert len(agent) == 300
    assert inspector.get_cell(run, one.id, 0, agent, 0).reply == words, "found by the name that is shown"
    assert inspector.get_cell(run, one.id, 0, agent, 1).agent == agent


def longest_text(value) -> int:
    """Characters of the longest text anywhere in an answer, names of fields included."""
    if isinstance(value, dict):
        return max((longest_text(one) for pair in value.items() for one in pair), default=0)
    if isinstance(value, list):
        return max(map(longest_text, value), default=0)
    return len(value) if isinstance(value, str) else 0


def test_markdown_and_plots_of_it_are_text(hostile, inspect):
    inspector = inspect(hostile[0])
    run = inspector.list_runs().runs[0].id
    overview = inspector.get_overview(run)
    text = markdown(inspector.get_run(run), overview, inspector.list_problems(run).problems)
    tokens = [
        child.type
        for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
        for child in (token, *(token.children or ()))
    ]
    assert not {"html_inline", "html_block", "link_open", "image", "em_open", "strong_open", "code_inline"} & set(
        tokens
    )
    assert text.isprintable() or set(text) - {"\n"} == {letter for letter in text if letter.isprintable()}
    for figure in draw_plots(overview):
        svg = figure.svg
        assert "<script" not in svg
        assert "<img" not in svg
        assert len(svg) < 100_000


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["script", "markup", "template"])
def test_a_browser_shows_it_and_runs_none_of_it(kind, inspect, offline, tmp_path):
    words = NASTY[kind]
    inspector = inspect(hostile_run(tmp_path / "hostile", words))
    run = inspector.list_runs().runs[0].id
    out = tmp_path / "report.html"
    export(inspector, run, out)
    page, said, asked = offline(out)
    for where in (
        "",
        f"#/run/{run}",
        f"#/run/{run}/episodes",
        f"#/run/{run}/episode/{quote(words[:500] + '/0', safe='')}",
    ):
        page.goto(out.as_uri() + where)
        page.locator("main:not([aria-busy])").wait_for()
        assert page.evaluate("window.harmed") is None
    page.get_by_text(words[:20]).first.wait_for()
    assert (
        page.locator("main script, main iframe, main [onerror], main [onload], main a[href^=javascript]").count() == 0
    )
    assert said == []
    assert {address.split(":")[0] for address in asked} <= {"file", "data", "blob"}
