"""The workers' timeline of an epoch: who played which episode, with which policy, and what was begun again."""

from __future__ import annotations

import shutil

import pytest

from collab.loop.record import TrainingDir
from collab.store.manifest import Manifest
from collab.store.run import RunStore

pytestmark = pytest.mark.browser

FIRST, SECOND = "worker 1 on north (process 7)", "worker 1 on north (process 8)"


@pytest.fixture
def interrupted(recorded, tmp_path):
    """A run whose worker died in an episode, which another process continued; a third episode was cut off."""
    with RunStore.open(recorded).open_reader() as reader:
        one = next(reader.iterate_trajectories())
    assert len(one.steps) > 1
    store = RunStore.create(tmp_path / "interrupted", Manifest(command="rollout", config={}, seed=0, planned=3))
    about = {"epoch": 0, "environment": "x", "environment_version": "1"}
    with store.open_writer() as writer:
        writer.begin_episode("Task/0", one.task, episode=0, worker=FIRST, **about)
        writer.step("Task/0", one.steps[0])
        writer.interrupt_episode("Task/0", "its process died")
        writer.resume_episode("Task/0", 1, worker=SECOND)
        for step in one.steps[1:]:
            writer.step("Task/0", step)
        writer.end_episode("Task/0", outcome=one.outcome, final=one.final, seconds=1.0)
        writer.begin_episode("Task/1", one.task, episode=1, worker="worker 2 on south (process 9)", **about)
        writer.stop("enough")
    return store.path, len(one.steps)


def read_rows(figure):
    figure.locator("summary").click()
    return [row.locator("th, td").all_inner_texts() for row in figure.locator("tbody tr").all()]


@pytest.mark.medium
def test_an_episode_that_changed_its_worker_is_told_twice(interrupted, serving, open_page, turn, faults):
    path, steps = interrupted
    address, inspector = serving(path)
    page = open_page(address)
    turn(page, f"#/run/{inspector.list_ids()[0]}")
    figure = page.locator("figure.timeline")
    rows = [(row[0], row[1], row[2], row[6], row[7]) for row in read_rows(figure)]
    assert rows == [
        ("Task/0", FIRST, "0", "1", "cut off"),
        ("Task/0", SECOND, "0", str(steps - 1), "continued after 1 step, ended"),
        ("Task/1", "worker 2 on south (process 9)", "–", "0", "cut off"),
    ]
    assert figure.locator("svg .play").count() == 4, "three plays, and the key of the one version"
    assert figure.locator("svg .cut").count() == 2
    title = figure.locator(".play title").nth(1).text_content()
    assert title.startswith(f"Task/0: {SECOND}, version 0, from ")
    assert faults(page, (390,)) == []
    figure.get_by_role("link", name="Task/0").first.click()
    page.wait_for_selector("main:not([aria-busy]) h1")
    assert "Task%2F0" in page.evaluate("location.hash")


@pytest.mark.medium
def test_episodes_of_another_epoch_at_the_same_time_are_paler(recorded, tmp_path, serving, open_page, turn):
    folder = TrainingDir(tmp_path / "training")
    for number in (1, 2):
        shutil.copytree(recorded, folder.get_epoch(number).rollout)
    folder.write(
        {
            "config": {"algorithm": "distrl", "method": {"epochs": 2}, "run": {}},
            "created": "2026-11-22T00:00:00.000Z",
        }
    )
    address, inspector = serving(folder.path)
    id = inspector.list_ids()[0]
    (first, second) = inspector.get_overview(id).epochs
    assert {one.worker for one in first.plays} >= {"worker 1", "worker 2"}
    page = open_page(address)
    turn(page, f"#/run/{id}")
    figure = page.locator("figure.timeline")
    assert figure.locator(".scroll .play").count() == len(first.plays) + len(second.plays)
    assert figure.locator(".scroll .play.other").count() == len(first.plays)
    assert "were played at the same time are paler" in figure.inner_text()
