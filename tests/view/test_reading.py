"""What is answered is what was recorded: counted here once more, from the log itself."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.collabuiagents.metrics import compute_reward_rates
from collab.errors import UnknownName, UsageError
from collab.evaluation.report import report_of
from collab.preferences.explain import count_sources, count_unpaired
from collab.preferences.store import list_pair_sets, read_pairs
from collab.prompts.render import rebuild
from collab.rewards.labels import count_missing, read_labels
from collab.store import index
from collab.store.run import RunStore
from collab.types import Box, Element, Observation, PromptRef, Trajectory
from collab.view.elements import compare_screens
from collab.view.episodes import filter_episodes
from collab.view.inspector import Inspector
from collab.view.schema.episodes import EpisodeFilter, EpisodeRow
from collab.view.search import get_step_worth


@pytest.fixture(scope="module")
def played(recorded: Path) -> dict[str, Trajectory]:
    with RunStore.open(recorded).open_reader() as reader:
        return {one.id: one for one in reader.iterate_trajectories()}


@pytest.fixture
def run(inspector: Inspector) -> str:
    return inspector.list_runs().runs[0].id


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


# ------------------------------------------------------------------------------------------------- runs, overview


def test_a_run_is_told_as_its_report_tells_it(inspector: Inspector, recorded: Path, run: str) -> None:
    with RunStore.open(recorded).open_reader() as reader:
        report = report_of(reader)
    row = inspector.get_row(run)
    assert (row.success.successes, row.success.episodes) == (report.planned.successes, report.planned.episodes)
    assert (row.success.low, row.success.high) == report.planned.interval
    assert (row.done, row.broken, row.status, row.privileged) == (3, 0, "finished", True)
    assert {one.name: one.success.successes for one in inspector.get_overview(run).tasks} == {
        group.name: group.planned.successes for group in report.by_task
    }


def test_the_overview_counts_what_was_said_and_judged(
    inspector: Inspector, recorded: Path, played: dict[str, Trajectory], run: str
) -> None:
    (epoch,) = inspector.get_overview(run).epochs
    steps = [step for one in played.values() for step in one.steps]
    shares = [len(step.vote.ballots[0].cells) / 8 if step.vote.ballots else 0 for step in steps]
    assert epoch.steps == len(steps)
    assert math.isclose(epoch.agreement or 0, math.fsum(shares) / len(steps))
    assert math.isclose(epoch.entropy or 0, math.fsum(step.vote.entropy for step in steps) / len(steps))
    assert epoch.ties == sum(step.vote.tie for step in steps)
    assert epoch.failures == Counter(cell.failure.kind for step in steps for cell in step.matrix if cell.failure)
    labels = read_labels(recorded, "oracle")
    assert epoch.rewards is not None
    told = dict(zip(epoch.rewards.agents, epoch.rewards.rates, strict=True))
    assert told == compute_reward_rates(labels.judged.values(), steps[0].matrix.agents, 2, 0.5)
    assert epoch.rewards.critic == labels.head.critic
    assert epoch.missing == count_missing(labels)
    head = read_pairs(recorded, list_pair_sets(recorded)[-1]).head
    assert (epoch.pairs, epoch.unpaired) == (count_sources(head), count_unpaired(head))
    assert sum(epoch.pairs.values()) == head.pairs
    assert epoch.graph is not None
    assert list(epoch.graph.edges) == list(steps[0].matrix.edges)
    assert sorted(agent for layer in epoch.graph.layers for agent in layer) == sorted(steps[0].matrix.agents)
    assert inspector.get_overview(run, "").epochs[0].rewards is None


def test_nothing_in_a_run_is_changed_by_looking(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, run := tmp_path / "run")
    (run / index.FILE).unlink()
    before = files(run)
    one = Inspector([run], index_cache=tmp_path / "index_cache")
    look_at_everything(one)
    one.close()
    assert files(run) == before


def look_at_everything(one: Inspector) -> None:
    for row in (row for row in one.list_runs().runs if row.unreadable is None):
        one.get_run(row.id)
        one.get_overview(row.id)
        one.list_problems(row.id)
        one.search(row.id, "tap")
        one.find_steps(row.id, "disagrees")
        for episode in one.list_episodes(row.id, EpisodeFilter()).rows:
            view = one.get_episode(episode.run, episode.id)
            for step in view.steps:
                one.get_step(episode.run, episode.id, step.step)


# ------------------------------------------------------------------------------------------------------- episodes


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ({"task": "ContactsAddContact"}, lambda one: one.task == "ContactsAddContact"),
        ({"app": "clock"}, lambda one: "clock" in one.apps),
        ({"outcome": "solved"}, lambda one: one.success),
        ({"outcome": "unfinished"}, lambda one: one.state == "unfinished"),
        ({"min_steps": 5}, lambda one: one.steps >= 5),
        ({"max_steps": 4}, lambda one: one.steps <= 4),
        ({"max_agreement": 0.5}, lambda one: one.agreement <= 0.5),
        ({"q": "SAVE"}, lambda one: "save" in one.goal.lower()),
        ({"error": "EnvironmentFailure"}, lambda one: one.error is not None),
    ],
)
def test_a_filter_keeps_exactly_what_passes(
    inspector: Inspector, run: str, wanted: dict[str, Any], passes: Callable[[EpisodeRow], bool]
) -> None:
    everything = inspector.list_episodes(run, EpisodeFilter()).rows
    found = inspector.list_episodes(run, EpisodeFilter(**wanted))
    assert list(found.rows) == [one for one in everything if passes(one)]
    assert found.total == len(found.rows)
    assert sum(facet.episodes for facet in found.tasks) == len(everything) == 3


def test_pages_put_together_are_the_whole_in_order(inspector: Inspector, run: str) -> None:
    for sort in ("order", "task", "steps", "score", "agreement", "entropy", "seconds"):
        whole = inspector.list_episodes(run, EpisodeFilter(sort=sort, descending=True)).rows
        pages = [
            inspector.list_episodes(run, EpisodeFilter(sort=sort, descending=True, offset=at, limit=1))
            for at in range(3)
        ]
        assert [one.rows[0] for one in pages] == list(whole)
        if sort != "order":
            values = [getattr(one, sort) for one in whole]
            assert values == sorted(values, reverse=True)


def test_what_is_not_known_comes_last_either_way_round(inspector: Inspector, run: str) -> None:
    rows = [*inspector.list_episodes(run, EpisodeFilter()).rows]
    scored = [replace(one, score=score) for one, score in zip(rows, (None, 0.0, 1.0), strict=True)]
    for descending, order in ((False, [0.0, 1.0, None]), (True, [1.0, 0.0, None])):
        found = filter_episodes(scored, EpisodeFilter(sort="score", descending=descending)).rows
        assert [one.score for one in found] == order


def test_an_episode_alone_is_what_it_is_among_all(
    inspector: Inspector, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(inspector.list_episodes(run, EpisodeFilter()).rows)
    monkeypatch.setattr("collab.view.episodes.list_episode_rows", None)  # none is looked for among all
    views = [inspector.get_episode(run, one.id) for one in rows]
    assert [one.row for one in views] == rows
    ids = [None, *(one.id for one in rows), None]
    assert [one.previous and one.previous.episode for one in views] == ids[:-2]
    assert [one.next and one.next.episode for one in views] == ids[2:]


def test_a_step_is_worth_what_the_cells_behind_it_scored() -> None:
    """0.4 and 0.2 proposed what was executed: 0.3, although another proposal scored 0.9, the first of two."""
    cells = [("ada", 0, True, 0.4), ("ben", 0, False, 0.9), ("ada", 1, True, 0.2), ("ben", 1, False, 0.9)]
    found = get_step_worth("Task/0", 3, cells)
    assert found is not None
    assert math.isclose(found.score or 0, 0.3)
    assert (found.best, found.best_score, found.overruled) == (("ben", 0), 0.9, True)
    half = get_step_worth("Task/0", 3, [("ada", 0, True, 0.5), ("ben", 0, False, 0.5)])
    assert half is not None
    assert not half.overruled
    assert get_step_worth("Task/0", 3, []) is None


def test_highlights_are_all_steps_of_their_kind_and_no_others(
    inspector: Inspector, recorded: Path, played: dict[str, Trajectory], run: str
) -> None:
    judged = read_labels(recorded, "oracle").judged
    overruled = set()
    for (episode, number), judgement in judged.items():
        scores = {one.cell: one.score for one in judgement.rewards.rewards if one.score is not None}
        step = played[episode].steps[number]
        winners = [scores[cell] for cell in step.vote.ballots[0].cells if cell in scores] if step.vote.ballots else []
        if winners and math.fsum(winners) / len(winners) <= 0.5 < max(scores.values()):
            overruled.add((episode, number))
    found = inspector.find_steps(run, "overruled")
    assert {(one.episode, one.step) for one in found.rows} == overruled
    marked = {(id, row.step) for id in played for row in inspector.get_episode(run, id).steps if row.overruled}
    assert marked == overruled
    assert inspector.find_steps(run, "first-wrong", "").judged == 0
    solved = {one.id for one in played.values() if one.success}
    assert not {one.episode for one in inspector.find_steps(run, "first-wrong").rows} & solved


def test_words_are_found_where_they_stand(inspector: Inspector, recorded: Path, run: str) -> None:
    hits = inspector.search(run, "Create contact").rows
    assert {one.where for one in hits} >= {"screen", "action"}
    assert all("create contact" in one.text.lower() for one in hits)
    assert not inspector.search(run, "100%_\\").rows
    assert inspector.search(run, "z" * 60_000).q == "z" * 300
    pair = read_pairs(recorded, list_pair_sets(recorded)[-1]).pairs[0]
    assert [one.step for one in inspector.search(run, pair.id[:12]).rows] == [pair.chosen[0].step]


# ---------------------------------------------------------------------------------------------------------- steps


def test_a_step_tells_all_that_was_recorded_of_it(
    inspector: Inspector, recorded: Path, played: dict[str, Trajectory], run: str
) -> None:
    labels = read_labels(recorded, "oracle")
    pairs = read_pairs(recorded, list_pair_sets(recorded)[-1]).pairs
    assert pairs
    for one in played.values():
        for step in one.steps:
            view = inspector.get_step(run, one.id, step.index)
            words = labels.judged[one.id, step.index]
            assert [(cell.agent, cell.round) for cell in view.cells] == [cell.cell for cell in step.matrix]
            for cell, said in zip(view.cells, step.matrix, strict=True):
                word = words.of(said.cell)
                assert (cell.text.text, cell.reason.text) == (said.text, said.reason)
                assert (cell.score, cell.because.text, cell.missing) == (word.score, word.reason, word.missing)
                assert cell.rewarded == (None if word.reward is None else bool(word.reward))
                assert (cell.action is None) == (cell.failure is not None)
                assert (cell.ballot is None) == (said.cell in step.vote.abstained)
            heard = [(one.speaker, one.said, one.hearer, one.round) for one in view.messages]
            assert heard == [(*other, *cell.cell) for cell in step.matrix for other in cell.heard]
            mine = {
                pair.id for pair in pairs if (pair.chosen[0].trajectory, pair.chosen[0].step) == (one.id, step.index)
            }
            assert {pair.id for pair in view.pairs} == mine
            assert {id for cell in view.cells for id in cell.pairs} == mine
            assert (view.previous, view.next) == (
                step.index - 1 if step.index else None,
                step.index + 1 if step.index + 1 < len(one.steps) else None,
            )


def test_an_action_is_drawn_where_it_touches(inspector: Inspector, played: dict[str, Trajectory], run: str) -> None:
    found = 0
    for one in played.values():
        for step in one.steps:
            action = inspector.get_step(run, one.id, step.index).executed
            if action is not None and action.box is not None and action.spot is not None:
                assert action.box == step.observation.elements[action.element or 0].box
                left, top, right, bottom = action.box
                assert left <= action.spot[0] < right
                assert top <= action.spot[1] < bottom
                found += 1
    assert found


def test_the_prompt_of_a_cell_is_the_one_it_read(
    inspector: Inspector, recorded: Path, played: dict[str, Trajectory], run: str
) -> None:
    one = next(iter(played.values()))
    said = one.steps[1].matrix["ben", 1]
    whole = inspector.get_cell(run, one.id, 1, "ben", 1)
    with RunStore.open(recorded).open_reader() as reader:
        prompt = rebuild(reader.read_prefix(said.prompt.prefix), said.prompt)
    assert (whole.system, whole.shared, whole.suffix) == (prompt.system, prompt.shared, prompt.suffix)
    again = PromptRef(prefix=said.prompt.prefix, suffix=whole.suffix, layout=whole.layout)
    assert whole.prompt == again.hash
    assert whole.reply == said.text


def element(index: int, label: str, *, top: int = 0, key: str = "", **changes: Any) -> Element:
    return Element(index=index, role="button", label=label, box=Box(0, top, 100, top + 50), key=key, **changes)


def test_changes_of_a_screen_are_those_that_were_made() -> None:
    before = screen(
        element(0, "Old"), element(1, "Same"), element(2, "On", key="a"), element(3, "Row"), element(4, "Row")
    )
    after = screen(element(0, "Same", top=50), element(1, "Off", key="a"), element(2, "Row"), element(3, "New"))
    found = compare_screens(before, after)
    assert [one.label for one in found.appeared] == ["New"]
    assert [(one.label, one.index) for one in found.gone] == [("Old", 0), ("Row", 4)]
    assert [(one.before.label, one.after.label) for one in found.changed] == [("On", "Off")]
    assert (found.moved, found.same) == (1, False)
    assert compare_screens(before, before).same


def screen(*elements: Element) -> Observation:
    text = "\n".join(f"{one.label} [{one.index}]" for one in elements)
    return Observation(space="mobile", title="Room", elements=elements, text=text)


# ---------------------------------------------------------------------------------------------------------- critics


def test_critics_stand_side_by_side_and_a_judgement_of_another_play_counts_as_none(
    recorded: Path, tmp_path: Path
) -> None:
    shutil.copytree(recorded, run := tmp_path / "run")
    shutil.copytree(run / "labels" / "oracle", run / "labels" / "second")
    (log,) = (run / "labels" / "second" / "events").iterdir()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for word in lines[0]["rewards"]["rewards"]:
        word["score"] = None if word["score"] is None else 1 - word["score"]
    lines[1]["case"] = "0" * 64
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (first, second) = [(line["rewards"]["trajectory"], line["rewards"]["step"]) for line in lines[:2]]
    inspector = Inspector([run], index_cache=tmp_path / "index_cache")
    id = inspector.list_runs().runs[0].id
    found = inspector.get_critics(id, *first)
    one, other = found.critics
    assert [one.labels, other.labels] == ["oracle", "second"]
    assert (
        {(cell.agent, cell.round) for cell in found.disputed}
        == {(a.agent, a.round) for a, b in zip(one.scores, other.scores, strict=True) if a.rewarded != b.rewarded}
        != set()
    )
    stale = inspector.get_step(id, *second, labels="second")
    assert "earlier play" in (stale.unjudged or "")
    assert {cell.score for cell in stale.cells} == {None}
    assert inspector.get_step(id, *second, labels="oracle").critic == "oracle-2"
    inspector.close()


# ----------------------------------------------------------------------------------------------------------- damage


def test_a_damaged_run_shows_what_is_left_and_says_what_is_not(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, run := tmp_path / "runs" / "hurt")
    (run / "run.json").write_text("{")
    (log,) = (run / "events").iterdir()
    lines = log.read_bytes().splitlines(keepends=True)
    told = [json.loads(line) for line in lines]
    hurt = next(number for number, one in enumerate(told) if one["type"] == "step" and one["step"]["index"] == 1)
    lines[hurt] = b"\x00" * (len(lines[hurt]) - 1) + b"\n"
    log.write_bytes(b"".join(lines) + b'{"half')
    (words,) = (run / "labels" / "oracle" / "events").iterdir()
    words.write_bytes(b"nonsense\n" + words.read_bytes())
    (pairs,) = (run / "pairs").glob("*/pairs.jsonl")
    pairs.write_bytes(b"[]\n" + pairs.read_bytes())
    (tmp_path / "runs" / "empty" / "events").mkdir(parents=True)
    (tmp_path / "runs" / "empty" / "run.json").write_text("{")
    inspector = Inspector([tmp_path / "runs"], index_cache=tmp_path / "index_cache")
    left, empty = inspector.list_runs().runs
    assert (left.unreadable, left.done) == (None, 3)
    assert "empty" in (empty.unreadable or "")
    assert left.problems == len(inspector.list_problems(left.id).problems) == 4, "head, half a line, judgement, pair"
    with pytest.raises(UnknownName):  # the index still knew it: only whoever reads the line notices
        inspector.get_step(left.id, told[hurt]["trajectory"], 1)
    found = [(one.file.split("/")[0], one.line) for one in inspector.list_problems(left.id).problems]
    assert ("run.json", None) in found
    assert ("events", hurt + 1) in found
    assert ("events", len(lines) + 1) in found
    assert ("labels", 1) in found
    assert ("pairs", 1) in found
    assert any("lost" in one.reason for one in inspector.list_problems(left.id).problems)
    look_at_everything(inspector)
    rows = inspector.list_episodes(left.id, EpisodeFilter()).rows
    views = [inspector.get_episode(left.id, one.id) for one in rows]
    (view,) = [one for one in views if one.missing]
    assert list(view.missing) == [1]
    assert inspector.get_step(left.id, view.row.id, 0).next == 2
    with pytest.raises(UnknownName):
        inspector.get_step(left.id, view.row.id, 1)
    inspector.close()


def test_a_run_without_an_index_is_indexed_once_and_outside_of_it(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_FAR_BEHIND", 1)
    shutil.copytree(recorded, run := tmp_path / "run")
    (run / index.FILE).write_bytes(b"spoilt")
    spare = tmp_path / "index_cache" / "one.sqlite"
    first = index.Index.load(run, spare=spare)
    dump = list(first.connection.iterdump())
    first.close()
    read: list[str] = []
    scan = index.log.scan
    monkeypatch.setattr(index.log, "scan", lambda *where: (read.append(line) or line for line in scan(*where)))
    again = index.Index.load(run, spare=spare)
    assert (list(again.connection.iterdump()), read) == (dump, [])
    again.close()
    spare.write_bytes(b"spoilt, too")
    index.Index.load(run, spare=spare).close()
    assert read
    spare.unlink()
    spare.mkdir()
    index.Index.load(run, spare=spare).close()


def test_what_holds_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "nothing", tmp_path / "folder"):
        with pytest.raises(UsageError, match="collab runs list"):
            Inspector([path])
