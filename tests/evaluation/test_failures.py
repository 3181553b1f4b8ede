"""Why episodes failed: the rules by hand, and what is stored of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from collab.envs.grammar import MOBILE
from collab.errors import RunFormatError
from collab.evaluation.failures import (
    COARSE,
    FILE,
    MODES,
    WORDS,
    EpisodeFailure,
    classify_failure,
    count_failures,
    find_failure,
    read_failures,
    write_failures,
)
from collab.store.reader import EpisodeSummary
from collab.types import (
    Action,
    ActionMatrix,
    EpisodeError,
    HistoryEntry,
    Observation,
    Outcome,
    Step,
    Task,
    Trajectory,
    Vote,
)

CLICK = MOBILE.make("click", index=0)
COMPLETE = MOBILE.make("status", goal_status="complete")
GIVE_UP = MOBILE.make("status", goal_status="infeasible")
HOME = MOBILE.make("navigate_home")


def build(actions: list[Action | None], screens: list[str] | None = None, **changes: Any) -> Trajectory:
    """An unsolved episode of these actions; each screen differs from the last unless titles are given."""
    titles = screens or [f"Clock: {number}" for number in range(len(actions) + 1)]
    seen = [Observation(space="mobile", title=title, elements=(), text=title) for title in titles]
    matrix = ActionMatrix(agents=(), rounds=0, edges=(), utterances=())
    vote = Vote(action=None, representative=None, ballots=(), abstained=(), entropy=0.0, tie=False)
    steps = tuple(
        Step(
            index=number,
            observation=seen[number],
            matrix=matrix,
            vote=vote,
            executed=action,
            no_action=False,
            history=HistoryEntry(action="", reason="", effect=""),
            terminated=action is not None and action.type == "status",
            truncated=False,
        )
        for number, action in enumerate(actions)
    )
    task = Task(environment="fake", name="T", seed=1, goal="g", apps=("clock",))
    fields: dict[str, Any] = dict(
        id="T/0", task=task, episode=0, epoch=0, steps=steps, final=seen[-1], outcome=Outcome(success=False, score=0.0)
    )
    return Trajectory(**fields | changes)


@pytest.mark.parametrize(
    ("actions", "distances", "mode"),
    [
        ([CLICK, CLICK, COMPLETE], [4, 3, 2, 2], "quit early"),
        ([CLICK, CLICK, CLICK, COMPLETE], [4, 3, 2, 1, 1], "wrong page"),
        ([CLICK, CLICK, CLICK, GIVE_UP], [4, 3, 2, 1, 1], "other"),
        ([CLICK, CLICK, HOME], [4, 3, 3, 4], "quit early"),
        ([CLICK, CLICK, CLICK, HOME], [4, 3, 2, 1, 1], "other"),
        ([CLICK, CLICK, CLICK, HOME], [4, 3, 2, 1, 4], "not recovered"),
        ([CLICK] * 3, [4, 4, 5, 5], "no attempt"),
        ([CLICK] * 3, [4, None, None, None], "no attempt"),
        ([CLICK], [4, 3], "other"),
        ([CLICK] * 3, [4, 4, 4, 3], "other"),
        ([CLICK] * 3, [4, 3, 2, 3], "not recovered"),
        ([CLICK] * 4, [4, 3, 2, 3, 3], "not recovered"),
        ([CLICK] * 4, [4, 3, None, None, None], "not recovered"),
        ([CLICK] * 6, [4, 3, 4, 3, 4, 3, 4], "not recovered"),
        ([CLICK] * 6, [4, 3, 4, 3, 2, 1, 1], "other"),
        ([CLICK] * 3, [4, 3, 2, 1], "other"),
        ([CLICK] * 3, None, "unknown"),
        ([CLICK] * 3, [None, None, None, None], "unknown"),
        ([CLICK, COMPLETE], None, "unknown"),
        ([CLICK, GIVE_UP], None, "quit early"),
        ([CLICK, HOME], None, "quit early"),
        ([], None, "unknown"),
    ],
)
def test_the_first_rule_that_holds_decides(
    actions: list[Action | None], distances: list[int | None] | None, mode: str
) -> None:
    assert classify_failure(build(actions), distances) == mode


@pytest.mark.parametrize("distances", [None, [4, 3, 3, 3, 2, 1]])
def test_three_equal_steps_without_an_effect_are_stuck(distances: list[int | None] | None) -> None:
    same = ["Clock: 0", "Clock: 1", "Clock: 1", "Clock: 1", "Clock: 1", "Clock: 2"]
    assert classify_failure(build([CLICK] * 5, same), distances) == "stuck"
    others: list[Action | None] = [CLICK, CLICK, MOBILE.make("wait"), CLICK, CLICK]
    assert classify_failure(build(others, same), distances) != "stuck"
    moved = ["Clock: 0", "Clock: 1", "Clock: 1", "Clock: 1", "Clock: 3", "Clock: 2"]
    assert classify_failure(build([CLICK] * 5, moved), distances) != "stuck"
    assert classify_failure(build([None] * 5, same), distances) == "stuck", "replies without an action are stuck, too"


def test_a_declaration_in_a_strange_app_is_no_wrong_page() -> None:
    strange = ["Clock", "Clock", "Files: Music", "Files: Music", "Files: Music"]
    actions: list[Action | None] = [CLICK, MOBILE.make("wait"), CLICK, COMPLETE]
    assert classify_failure(build(actions, strange), [5, 4, 3, 1, 1]) == "other"
    assert classify_failure(build(actions), [5, 4, 3, 1, 1]) == "wrong page"


def test_a_broken_episode_is_technical() -> None:
    error = EpisodeError(type="EnvironmentFailure", message="gone", step=0)
    assert classify_failure(build([CLICK], outcome=None, error=error), None) == "technical"


def test_every_mode_has_words_and_five_a_coarse_one() -> None:
    assert set(WORDS) == set(MODES)
    assert len(COARSE) == 5
    assert set(COARSE.values()) == {"wrong goal", "stuck midway", "not recovered"}


def summary(name: str, *, success: bool | None = False, **changes: Any) -> EpisodeSummary:
    outcome = None if success is None else Outcome(success=success, score=float(success))
    fields: dict[str, Any] = dict(
        id=name,
        task="T",
        environment="fake",
        difficulty=None,
        epoch=0,
        episode=0,
        seed=1,
        max_steps=9,
        attempt=0,
        state="finished",
        steps=3,
        missing=(),
        outcome=outcome,
        error=None,
        seconds=1.0,
        privileged=False,
    )
    return EpisodeSummary(**fields | changes)


def test_what_is_stored_counts_for_this_attempt_alone(tmp_path: Path) -> None:
    assert read_failures(tmp_path) == {}
    found = {
        "T/0": EpisodeFailure(mode="stuck", attempt=0, steps=3, distances=(2, None)),
        "T/1": EpisodeFailure(mode="no attempt", attempt=0, steps=3),
        "T/2": EpisodeFailure(mode="not recovered", attempt=0, steps=3),
    }
    write_failures(tmp_path, found)
    assert read_failures(tmp_path) == found
    episodes = [
        summary("T/0"),
        summary("T/1"),
        summary("T/2", attempt=1),
        summary("T/3"),
        summary("T/4", success=True),
        summary("T/5", success=None, state="unfinished"),
    ]
    counts = count_failures(episodes, found)
    assert (counts.failed, counts.unseen) == (4, 2)
    assert counts.modes == {"no attempt": 1, "stuck": 1}
    assert counts.coarse == {"stuck midway": 2}
    assert find_failure(found, episodes[2]) is None


@pytest.mark.parametrize("spoil", ["cut", "format", "mode"])
def test_a_spoilt_file_is_one_line(tmp_path: Path, spoil: str) -> None:
    write_failures(tmp_path, {"T/0": EpisodeFailure(mode="stuck", attempt=0, steps=3)})
    path = tmp_path / FILE
    if spoil == "cut":
        os.truncate(path, 20)
    else:
        changes = {"format": ('"format": 2', '"format": 3'), "mode": ("stuck", "bored")}[spoil]
        path.write_text(path.read_text().replace(*changes))
    with pytest.raises(RunFormatError, match=r"failures\.json: cannot be read: .*; remove it, and look") as refused:
        read_failures(tmp_path)
    assert "\n" not in str(refused.value)
