"""Which graph an epoch has, and what it plays."""

from __future__ import annotations

import asyncio
from pathlib import Path

from collab.data.splits import EVALUATION_SEEDS, list_kept_instances
from collab.loop.phases import build_rollout_config, draw, draw_graph, sum_paid
from collab.loop.policy import build_first_policy
from collab.loop.record import TrainingDir
from collab.rollout.build import build_suite
from collab.rollout.plan import plan_episodes


def test_every_epoch_has_a_graph_of_its_own(configure_toy) -> None:
    config = configure_toy()
    assert draw(config, 1) == draw(config, 1)
    assert len({draw(config, number).edges for number in range(1, 30)}) == 3  # none, there, and back
    assert draw(configure_toy(seed=5), 1) != draw(config, 1) or draw(configure_toy(seed=6), 1) != draw(config, 1)


def test_without_an_edge_update_the_declared_graph_stays(configure_toy) -> None:
    config = configure_toy("edges=null")
    assert {draw(config, number).edges for number in range(1, 10)} == {(("ada", "ben"),)}
    sampled = configure_toy("edges=null", graph="team")
    assert len({draw(sampled, number).edges for number in range(1, 10)}) == 1


def test_a_graph_is_written_before_the_rollout_and_stays(configure_toy, tmp_path) -> None:
    folder = TrainingDir(tmp_path).get_epoch(1)
    first = draw_graph(configure_toy(), 1, folder, "")
    assert draw_graph(configure_toy(seed=5), 1, folder, "") == first == draw(configure_toy(), 1)


def test_epochs_play_other_instances_and_none_that_is_kept(configure_toy) -> None:
    config = configure_toy()
    policy = build_first_policy(config.run, config.method)
    suite = build_suite(config.run)
    runs = [
        asyncio.run(build_rollout_config(config, number, policy, draw(config, number), suite)) for number in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0].seed != runs[2].seed
    for run in runs:
        assert run.seed not in EVALUATION_SEEDS
        assert run.graph.rewire == "never"
        assert not {one.seed for one in plan_episodes(run)} & list_kept_instances("PressButton")


def test_which_tasks_come_first_differs_by_epoch(configure_toy) -> None:
    """An epoch may play fewer episodes than there are tasks; over many epochs each comes up."""
    config = configure_toy(tasks=("all",), split=None)
    policy = build_first_policy(config.run, config.method)
    suite = build_suite(config.run)
    orders = [
        asyncio.run(build_rollout_config(config, one, policy, draw(config, one), suite)).tasks for one in range(1, 12)
    ]
    assert {order[0] for order in orders} == {"PressButton", "TypeWord", "OpenDoors"}


def test_a_rollout_that_was_killed_before_its_head_was_there_cost_nothing(tmp_path: Path) -> None:
    rollout = tmp_path / "rollout"
    for folder in ("events", "blobs"):
        (rollout / folder).mkdir(parents=True)
    (rollout / "lock").touch()
    assert sum_paid([rollout, tmp_path / "missing"]).calls == 0
