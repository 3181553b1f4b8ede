"""Rollouts of so many environment steps: the same episodes belong to one whatever else was played."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.cli.main import main
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.phases import load_trajectories, report_rollout, sum_paid
from collab.loop.record import EpochRecord, TrainingDir, collect_play_facts
from collab.loop.step_budget import (
    Ending,
    build_counted_reader,
    has_enough,
    open_ending,
    select_belonging,
    select_certain,
    select_wanted,
)
from collab.rollout.build import with_prompts
from collab.rollout.plan import resolve_run, run_config
from collab.rollout.run import read_stored_config, start
from collab.store.reader import RunReader

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@given(LENGTHS, st.integers(1, 40), st.data())
def test_the_shortest_beginning_with_enough_steps_belongs(lengths: list[int], steps: int, data: st.DataObject) -> None:
    order = [f"T/{number}" for number in range(len(lengths))]
    known = dict(zip(order, lengths, strict=True))
    found = select_belonging(known, order, steps)
    assert found == tuple(order[: len(found)])
    assert sum(known[name] for name in found) >= steps or found == tuple(order)
    assert sum(known[name] for name in found[:-1]) < steps
    # what lies behind does not matter, and what is needed cannot be missing
    beyond = set(order) - set(found)
    some = {name: length for name, length in known.items() if name not in beyond or data.draw(st.booleans())}
    assert select_belonging(some, order, steps) == found
    without = data.draw(st.sampled_from(found))
    assert select_belonging({name: known[name] for name in known if name != without}, order, steps) is None


@given(LENGTHS, st.integers(1, 40), st.data())
def test_what_is_certain_belongs_whatever_becomes_of_the_others(
    lengths: list[int], steps: int, data: st.DataObject
) -> None:
    order = [f"T/{number}" for number in range(len(lengths))]
    known = dict(zip(order, lengths, strict=True))
    over = {name: length for name, length in known.items() if data.draw(st.booleans())}
    sure = select_certain(over, order, steps)
    others = {name: data.draw(st.integers(0, 9)) for name in order}
    found = select_belonging({**others, **over}, order, steps)
    assert found is not None
    assert found[: len(sure)] == sure
    assert select_certain(known, order, steps) == select_belonging(known, order, steps)


@given(LENGTHS, st.integers(1, 40), st.data())
def test_what_is_not_wanted_belongs_only_if_something_before_it_breaks(
    lengths: list[int], steps: int, data: st.DataObject
) -> None:
    order = [f"T/{number}" for number in range(len(lengths))]
    whole = dict(zip(order, lengths, strict=True))
    begun = order[: data.draw(st.integers(0, len(order)))]
    so_far = {name: data.draw(st.integers(0, whole[name])) for name in begun}
    found = select_belonging(whole, order, steps)
    assert found is not None
    assert set(found) <= set(select_wanted(so_far, order, steps))
    assert tuple(select_wanted(whole, order, steps)) == found


def test_an_episode_waits_until_it_is_wanted() -> None:
    """The first one has the steps, if it does not break; once it has, the second is begun."""

    async def waits() -> list[bool]:
        ending = Ending(stop=asyncio.Event(), wanted=frozenset(select_wanted({"T/0": 8}, ["T/0", "T/1"], 8)))
        await ending.admit("T/0")
        waiting = asyncio.ensure_future(ending.admit("T/1"))
        await asyncio.sleep(0.15)
        seen = [waiting.done()]
        ending.wanted = frozenset(select_wanted({"T/0": 0}, ["T/0", "T/1"], 8))
        async with asyncio.timeout(5):
            await waiting
        return [*seen, waiting.done()]

    assert asyncio.run(waits()) == [False, True]


def test_a_run_ends_when_it_has_its_steps_and_only_those_are_counted(
    library: Library, configure_toy, tmp_path: Path
) -> None:
    """Six hundred episodes of up to three steps are planned; a run of eight steps is over long before them."""
    out = tmp_path / "run"

    async def play() -> None:
        planned = run_config(library=library, env="corridor", graph="pair", agents="show", episodes=600)
        run = with_prompts(await resolve_run(planned, once_per_task=False), library)
        async with open_ending(out, 8, asyncio.Event()) as ending:
            assert (await start(run, library, out, stop=ending.stop, admit=ending.admit)).stopped is not None

    asyncio.run(play())
    assert has_enough(out, 8)
    counted, everything = load_trajectories(out, 8), load_trajectories(out)
    assert [one.episode for one in counted] == list(range(len(counted)))
    assert sum(len(one.steps) for one in counted[:-1]) < 8 <= sum(len(one.steps) for one in counted)
    assert len(counted) <= len(everything) < 600
    assert not has_enough(out, 10_000)
    folder = TrainingDir(tmp_path / "training")
    folder.begin({"config": configure_toy("steps=8").model_dump(mode="json")})
    folder.get_epoch(1).path.mkdir(parents=True)
    out.rename(folder.get_epoch(1).rollout)
    for run, those in ((folder.get_epoch(1).rollout, counted), (tmp_path / "copy", everything)):
        if not run.exists():
            shutil.copytree(folder.get_epoch(1).rollout, run)
        with RunReader(run) as reader:
            assert [one.id for one in build_counted_reader(run)(reader)] == [one.id for one in those]


@pytest.mark.slow
def test_a_training_says_what_counts_of_its_rollout_and_continues_with_it(
    library: Library,
    configure_toy: Callable[..., TrainingConfig],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rollout that has its steps is whole, however many were planned; to play on would change what was judged."""
    training = TrainingDir(tmp_path / "training")
    training.begin({"config": configure_toy("steps=8").model_dump(mode="json")})
    out = training.get_epoch(1).rollout

    async def play() -> None:
        planned = run_config(library=library, env="corridor", graph="pair", agents="show", episodes=600)
        run = with_prompts(await resolve_run(planned, once_per_task=False), library)
        async with open_ending(out, 8, asyncio.Event()) as ending:
            await start(run, library, out, stop=ending.stop, admit=ending.admit)

    def told(*arguments: str, code: int = 0, beside: bool = False) -> str:
        assert main(["runs", *arguments]) == code
        shown = capsys.readouterr()
        return shown.err if code or beside else shown.out

    asyncio.run(play())
    those = [one.id for one in load_trajectories(out, 8)]
    found = json.loads(told("show", str(out), "--json"))
    assert ([one["id"] for one in found["episodes"]], found["status"]) == (those, "finished")
    assert found["success"]["episodes"] == len(those)
    shown = told("show", str(out))
    assert "its training learns from 8 steps" in shown
    assert "resume with" not in shown
    (row,) = [one for one in json.loads(told("list", str(tmp_path), "--json")) if one["run"] == str(out)]
    assert (row["done"], row["planned"], row["status"]) == (len(those), len(those), "finished")
    assert told("resume", str(out), code=2).rstrip().endswith(f"which alone resumes it: {training.resume}")
    with monkeypatch.context() as inside:
        inside.chdir(tmp_path)
        assert told("resume", "training/epochs/1/rollout", code=2).rstrip().endswith("train --resume training")

    training.write({"config": configure_toy("steps=1000").model_dump(mode="json")})
    shown = told("show", str(out))
    assert "its training ends it with 1000 steps; this is what is over so far" in shown
    assert f"resume with: {training.resume}\n" in shown
    (row,) = [one for one in json.loads(told("list", str(tmp_path), "--json")) if one["run"] == str(out)]
    assert (row["planned"], row["status"]) == (None, "stopped")
    everything = len(load_trajectories(out))
    assert f" {everything} " in told("list", str(tmp_path))
    for spoilt in ("{", "{}", '{"format": 3}', '{"format": 3, "config": []}'):
        training.file.write_text(spoilt)
        assert f"/600)\n         {everything} of 600 episodes are over" in told("show", str(out))
        why = "because the selection of its training could not be read"
        line = f"{out}: all episodes are counted, {why}: {training.file}: "
        for command in (("show", str(out)), ("list", str(tmp_path))):
            assert line in told(*command, beside=True)
        (problem,) = json.loads(told("show", str(out), "--json"))["problems"]
        assert problem.startswith(line)

    def mistaken(_: Path) -> int:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr("collab.loop.step_budget.read_step_budget", mistaken)
    assert "ValueError: a mistake of ours" in told("show", str(out), code=1)


def test_what_broke_gives_no_steps_and_is_told(library: Library, tmp_path: Path) -> None:
    """Every other episode breaks in its second step: its first one is recorded and not learned from."""
    out = tmp_path / "run"
    options = "environment.backends.fake.options"
    broken = [f"{options}.fail_at=1", f"{options}.troubled=[TypeWord]", "tasks=[PressButton, TypeWord]"]

    async def play() -> None:
        planned = run_config(
            library=library, env="corridor", graph="pair", agents="show", episodes=200, settings=[*broken]
        )
        run = with_prompts(await resolve_run(planned, once_per_task=False), library)
        async with open_ending(out, 8, asyncio.Event()) as ending:
            await start(run, library, out, stop=ending.stop, admit=ending.admit)

    asyncio.run(play())
    played, report = load_trajectories(out, 8), report_rollout(out, 8)
    assert sum(len(one.steps) for one in played[:-1]) < 8 <= sum(len(one.steps) for one in played)
    assert report.broken > 0
    assert report.planned.episodes == len(played) + report.broken
    record = EpochRecord(
        algorithm="collabuiagents",
        epoch=1,
        version=0,
        weights={},
        hash="",
        **collect_play_facts([read_stored_config(out)], played, report),
    )
    assert record.played is not None
    assert (record.played.broken, record.played.episodes) == (report.broken, report.planned.episodes)
    assert record.steps == sum(len(one.steps) for one in played)
    with RunReader(out) as reader:
        every = sum(one.calls for one in reader.list_spent())
    learned = sum(1 for one in played for step in one.steps for cell in step.matrix)
    assert sum_paid([out]).calls == every > learned


def test_who_asks_ends_it_at_once(tmp_path: Path) -> None:
    async def asked() -> bool:
        event = asyncio.Event()
        async with open_ending(tmp_path / "none", 5, event) as ending:
            event.set()
            async with asyncio.timeout(5):
                await ending.stop.wait()
        return ending.stop.is_set()

    assert asyncio.run(asked())


def test_without_a_budget_nothing_is_watched(tmp_path: Path) -> None:
    async def same() -> bool:
        event = asyncio.Event()
        async with open_ending(tmp_path, None, event) as ending:
            await ending.admit("T/0")
            return ending.stop is event

    assert asyncio.run(same())
