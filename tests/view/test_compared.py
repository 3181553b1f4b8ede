"""Two runs beside each other: which step is told to be the first that differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collab.store.run import RunStore
from collab.types import Action, ElementTarget
from collab.view.episodes import ActionTrace, find_parting
from collab.view.inspector import Inspector
from collab.view.schema.episodes import EpisodeFilter


def test_two_plays_of_an_instance_part_where_they_first_differ(recorded: Path, tmp_path: Path) -> None:
    with RunStore.open(recorded).open_reader() as reader:
        one = max(reader.iterate_trajectories(), key=lambda trajectory: len(trajectory.steps))
        manifest = reader.manifest
    other = replace(one.steps[2], executed=None, history=replace(one.steps[2].history, action="nothing"))
    store = RunStore.create(tmp_path / "other", manifest)
    with store.open_writer() as writer:
        writer.begin_episode(one.id, one.task, episode=0, epoch=0, environment="x", environment_version="1")
        for step in (*one.steps[:2], other):
            writer.step(one.id, step)
    inspector = Inspector([recorded, store.path], index_cache=tmp_path / "index_cache")
    a, b = (
        next(row.id for row in inspector.list_runs().runs if row.path == str(path)) for path in (recorded, store.path)
    )
    compared = inspector.compare(a, b)
    (instance,) = compared.both
    assert (instance.a.id, instance.b.id, instance.diverged) == (one.id, one.id, 2)
    others = {row.id for row in inspector.list_episodes(a, EpisodeFilter()).rows} - {one.id}
    assert ({row.id for row in compared.only_a}, compared.only_b) == (others, [])
    pair = inspector.compare_episodes(a, b, one.id, one.id)
    assert (pair.diverged, pair.why, len(pair.steps)) == (2, "action", len(one.steps))
    assert (pair.steps[3].b, pair.steps[3].same_screen) == (None, None)
    same = inspector.compare_episodes(a, a, one.id, one.id)
    assert (same.diverged, same.why) == (None, None)
    assert [one.diverged for one in inspector.compare(a, a).both] == [None] * 3
    inspector.close()


def test_the_table_names_the_step_that_the_page_of_an_instance_names(recorded: Path, tmp_path: Path) -> None:
    """A screen of the same title and a typed text that differs behind its 300th letter are what titles do not tell."""
    with RunStore.open(recorded).open_reader() as reader:
        one = max(reader.iterate_trajectories(), key=lambda trajectory: len(trajectory.steps))
        manifest = reader.manifest
    typed = [
        Action(space="mobile", type="input_text", target=ElementTarget(index=0), arguments=(("text", "x" * 300 + end),))
        for end in "ab"
    ]
    first = (one.steps[0], replace(one.steps[1], executed=typed[0]), one.steps[2])
    longer = (one.steps[0], replace(one.steps[1], executed=typed[1]), one.steps[2])
    seen = replace(one.steps[2].observation, text="other words under the same title")
    screens = (one.steps[0], first[1], replace(one.steps[2], observation=seen))
    folders = [tmp_path / name for name in ("first", "longer", "screens")]
    for folder, steps in zip(folders, (first, longer, screens), strict=True):
        with RunStore.create(folder, manifest).open_writer() as writer:
            writer.begin_episode(one.id, one.task, episode=0, epoch=0, environment="x", environment_version="1")
            for step in steps:
                writer.step(one.id, step)
    inspector = Inspector(folders, index_cache=tmp_path / "index_cache")
    a, *others = (next(row.id for row in inspector.list_runs().runs if row.path == str(folder)) for folder in folders)
    for b, step, why in zip(others, (1, 2), ("action", "screen"), strict=True):
        (instance,) = inspector.compare(a, b).both
        pair = inspector.compare_episodes(a, b, one.id, one.id)
        assert (instance.diverged, pair.diverged, pair.why) == (step, step, why)
    inspector.close()


@pytest.mark.parametrize(
    ("a", "b", "parted"),
    [
        ({}, {}, None),
        ({0: ("s", "x")}, {0: ("s", "x")}, None),
        ({0: ("s", "x")}, {0: ("s", None)}, (0, "action")),
        ({0: ("s", "x")}, {0: ("t", "y")}, (0, "screen")),
        ({0: ("s", "x"), 1: ("s", "x")}, {0: ("s", "x")}, (1, "length")),
        ({}, {0: ("s", "x")}, (0, "length")),
        ({0: ("s", "x"), 2: ("s", "x")}, {0: ("s", "x"), 1: ("t", "y"), 2: ("s", "x")}, None),
        ({0: ("s", "x"), 2: ("s", "x")}, {0: ("s", "x"), 1: ("t", "y"), 2: ("s", "z")}, (2, "action")),
    ],
)
def test_episodes_part_at_the_first_step_that_is_known_to_differ(
    a: ActionTrace, b: ActionTrace, parted: object
) -> None:
    assert find_parting(a, b) == find_parting(b, a) == parted
