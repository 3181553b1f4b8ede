"""Which tasks are played where there are fewer episodes than tasks, and in what order: drawn by seed, never by name."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.config import Limits, override
from collab.envs.base import TaskInfo
from collab.envs.simphone.suite import SimPhoneSuite
from collab.library import Library
from collab.loop.configure import configure
from collab.loop.interfaces import load_algorithm, load_method
from collab.loop.phases import build_rollout_config, draw
from collab.loop.policy import build_first_policy
from collab.rollout.build import build_suite
from collab.rollout.plan import draw_order
from collab.rollout.run import start

INFOS = {info.name: info for info in SimPhoneSuite().tasks()}
PLAY = (
    "--env",
    "androidworld",
    "--graph",
    "single",
    "--agents",
    "rehearsal",
    "--set",
    "environment.limits.max_steps=1",
)


def played(out: Path) -> list[str]:
    """Tasks of a run, in the order of its plan."""
    return [one["name"] for one in json.loads((out / "run.json").read_text())["tasks"]]


def play(capsys: pytest.CaptureFixture[str], out: Path, command: str, *options: str) -> tuple[list[str], str]:
    """What a command plays, and what it says on stderr."""
    assert main([command, *PLAY, "--out", str(out), *options]) == 0
    return played(out), capsys.readouterr().err


@pytest.mark.parametrize("command", ["rollout", "eval"])
def test_fewer_episodes_than_tasks_are_drawn_by_the_seed_and_told(command, tmp_path, capsys) -> None:
    seeds = {"rollout": ("1", "2"), "eval": ("31", "32")}[command]
    first, said = play(capsys, tmp_path / "a", command, "--seed", seeds[0], "--episodes", "6")
    again, _ = play(capsys, tmp_path / "b", command, "--seed", seeds[0], "--episodes", "6")
    other, _ = play(capsys, tmp_path / "c", command, "--seed", seeds[1], "--episodes", "6")
    assert first == again
    assert set(first) != set(other)
    assert first != sorted(INFOS)[:6]
    assert f"seed {seeds[0]} plays 6 of 88 tasks: {', '.join(first)}\n" in said
    assert len({INFOS[name].apps for name in first}) >= 3
    assert len({INFOS[name].difficulty for name in first}) >= 2


def test_tasks_that_are_named_keep_their_order(tmp_path, capsys) -> None:
    named = "SystemWifiTurnOn,MarkorCreateNote,ContactsAddContact"
    found, _ = play(capsys, tmp_path / "a", "rollout", "--tasks", named, "--episodes", "2")
    assert found == ["SystemWifiTurnOn", "MarkorCreateNote"]


def test_a_split_is_sampled_too(tmp_path, capsys) -> None:
    found, _ = play(capsys, tmp_path / "a", "eval", "--split", "new-seeds", "--episodes", "5", "--seed", "30")
    other, _ = play(capsys, tmp_path / "b", "eval", "--split", "new-seeds", "--episodes", "5", "--seed", "33")
    assert set(found) != set(other)


def test_what_an_epoch_draws_is_what_its_rollout_plays(tmp_path: Path) -> None:
    """Below a whole pass, epochs play other tasks, and none because of its name."""
    method = override(
        load_method(load_algorithm("collabuiagents")),
        ["critic=critic-oracle", "held_out.episodes=5", "held_out.seeds=[38,39]"],
    )
    choices = {
        "algorithm": "collabuiagents",
        "method": method,
        "env": "androidworld",
        "graph": "single",
        "agents": "pocket",
    }
    config = asyncio.run(configure(Library(), **choices))
    held_out = [set(one.tasks[:5]) for one in config.held_out]
    assert held_out[0] != held_out[1]
    policy = build_first_policy(config.run, config.method)
    drawn = []
    for number in (1, 2):
        run = asyncio.run(build_rollout_config(config, number, policy, draw(config, number), build_suite(config.run)))
        shows = run.agents["ada"].model_copy(update={"kind": "rehearsal", "options": {}})
        limits = run.environment.model_copy(update={"limits": Limits(max_steps=1)})
        short = run.model_copy(update={"episodes": 4, "agents": {"ada": shows}, "environment": limits})
        asyncio.run(start(short, Library(), tmp_path / f"{number}"))
        drawn.append(played(tmp_path / f"{number}"))
        assert drawn[-1] == run.tasks[:4] != sorted(run.tasks)[:4]
    assert set(drawn[0]) != set(drawn[1])


def test_every_beginning_of_an_order_is_spread_over_difficulties_and_apps() -> None:
    for seed in range(20):
        first = [INFOS[name] for name in draw_order(INFOS.values(), seed)[:22]]
        levels = Counter(info.difficulty for info in first)
        assert all(
            abs(levels[name] - share) <= 1 for name, share in (("easy", 51 / 4), ("medium", 29 / 4), ("hard", 2))
        )
        assert len({info.apps[:1] for info in first}) >= 6


def test_in_the_long_run_no_task_comes_earlier_than_others() -> None:
    infos = [TaskInfo(name=f"T{n}", apps=("big",), difficulty="easy") for n in range(9)]
    infos.append(TaskInfo(name="Rare", apps=("small",), difficulty="easy"))
    orders = [draw_order(infos, seed) for seed in range(1000)]
    for info in infos:
        assert 4 < sum(order.index(info.name) for order in orders) / len(orders) < 5
