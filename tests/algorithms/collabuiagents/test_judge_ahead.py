"""A critic behind a server judges while the team still plays, and gives the same labels as afterwards."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.collabuiagents import labeller as ahead
from collab.algorithms.collabuiagents.labeller import is_waited_for, judge_ahead
from collab.algorithms.judging import hash_judgements, judge_rollout
from collab.config import Budget, RunConfig
from collab.errors import ConfigError, ModelFailure
from collab.library import Library
from collab.loop.phases import load_trajectories
from collab.loop.record import LABELS, TrainingDir
from collab.loop.state import Halted, LoopState
from collab.rewards.labelling import LabellingProgress
from collab.rewards.labels import FOLDER, LabelSet, list_label_sets, read_labels
from collab.rollout.build import with_prompts
from collab.rollout.plan import resolve_run, run_config
from collab.rollout.run import resume, start
from collab.store.manifest import FILE
from collab.testing.fake_server import FakeServer, Fault
from collab.testing.kill_resume import compare_trainings
from collab.types import Usage
from collab.utils.concurrency import PATIENCE

JUDGE = "kind: llm\noptions: {model: {kind: openai, options: {model: fake, base_url: URL, retries: 0}}}\n"
CONCURRENCY = 2
EPISODES = 500
"""More episodes than are played at once: labels come while others are still to be played."""


def scores(body: Mapping[str, Any]) -> str:
    """A score for each proposal, by what it says."""
    text = str(body["messages"][-1]["content"])
    proposals = [json.loads(line) for line in re.findall(r'^\{"agent".*\}$', text, re.MULTILINE)]
    return json.dumps([{**one, "score": len(one["action"]) % 10 / 10, "reason": "seen"} for one in proposals])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody")
    with FakeServer(supports={"seed"}, says=scores) as running:
        yield running


@pytest.fixture
def loop(server: FakeServer, configure_toy: Any, process: Any, tmp_path: Path) -> LoopState:
    """A process whose critic is asked over that server."""
    (tmp_path / "judge.yaml").write_text(JUDGE.replace("URL", server.url))
    made: LoopState = process(configure_toy(f"critic={tmp_path / 'judge.yaml'}", "min_critic_auc=null"), tmp_path)
    return made


async def planned(library: Library, episodes: int = EPISODES, concurrency: int = CONCURRENCY) -> RunConfig:
    run = run_config(
        library=library, env="corridor", graph="pair", agents="show", episodes=episodes, concurrency=concurrency
    )
    return with_prompts(await resolve_run(run, once_per_task=False), library)


def judged(out: Path) -> int:
    return len(read_labels(out, LABELS).judged) if LABELS in list_label_sets(out) else 0


async def live(loop: LoopState, run: RunConfig, out: Path, library: Library, *, halted: bool = False) -> None:
    """Play, or play on, until something more is judged; then end, or fail to."""
    before, stop = judged(out), asyncio.Event()
    async with judge_ahead(loop, run, out):
        job = resume(out, stop=stop) if out.exists() else start(run, library, out, stop=stop)
        playing = asyncio.create_task(job)
        async with asyncio.timeout(60):
            while judged(out) == before:
                await asyncio.sleep(0.01)
        stop.set()
        assert (await playing).stopped is not None, "there were episodes left"
        loop.halt("enough" if halted else None)


@pytest.mark.slow
def test_what_is_judged_meanwhile_is_judged_once_and_as_it_would_be_afterwards(
    server: FakeServer, loop: LoopState, library: Library, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    async def lives() -> list[LabelSet]:
        run = await planned(library)
        with pytest.raises(Halted, match="enough"):
            await live(loop, run, out, library, halted=True)
        await live(loop, run, out, library)
        played = load_trajectories(out)
        assert judged(out) == sum(len(one.steps) for one in played)
        meanwhile = await judge_rollout(loop, run, out, played)
        assert {key for key in meanwhile.judged} == {(one.id, step.index) for one in played for step in one.steps}
        asked = [body for body in server.requests if '{"agent"' in str(body["messages"][-1]["content"])]
        calls = [call for one in meanwhile.judged.values() for call in one.calls]
        assert len(asked) == len(calls), "no step was asked about twice"
        assert loop.spent.tokens == sum((call.prompt_tokens or 0) + (call.completion_tokens or 0) for call in calls) > 0
        assert set(loop.seconds) == {"critic"}, "the time that was waited for it"
        shutil.rmtree(out / FOLDER)
        return [meanwhile, await judge_rollout(loop, run, out, played)]

    meanwhile, afterwards = (hash_judgements(labels.judged.values()) for labels in asyncio.run(lives()))
    assert meanwhile == afterwards


@pytest.mark.variations
@pytest.mark.parametrize("dead", [True, False])
def test_a_critic_that_cannot_be_asked_stops_no_rollout_and_is_told_behind_it(
    server: FakeServer, loop: LoopState, library: Library, tmp_path: Path, dead: bool
) -> None:
    out, stop = tmp_path / "run", asyncio.Event()

    async def play() -> None:
        run = await planned(library)
        async with judge_ahead(loop, run, out):
            playing = asyncio.create_task(start(run, library, out, stop=stop))
            async with asyncio.timeout(60):
                while not ((out / FILE).exists() and load_trajectories(out) and is_tried(out)):
                    await asyncio.sleep(0.02)
            stop.set()
            await playing
        played = load_trajectories(out)
        assert played
        with pytest.raises(ModelFailure):
            await judge_rollout(loop, run, out, played)

    def is_tried(out: Path) -> bool:
        """A dead server is not opened; one that begins to refuse is asked until the patience is used up."""
        if dead:
            return True
        if judged(out) and not server.faults:
            server.faults.extend([Fault(status=500)] * 10_000)
        return LABELS in list_label_sets(out) and len(read_labels(out, LABELS).failed) >= PATIENCE

    if dead:
        server.die()
    asyncio.run(play())
    if not dead:
        failed = len(read_labels(out, LABELS).failed)
        assert PATIENCE <= failed <= PATIENCE + CONCURRENCY, "then it is asked no more"


def test_of_a_rollout_of_so_many_steps_only_those_are_judged(
    server: FakeServer, configure_toy: Any, process: Any, library: Library, tmp_path: Path
) -> None:
    """Others are played beside them, and are not learned from."""
    (tmp_path / "judge.yaml").write_text(JUDGE.replace("URL", server.url))
    settings = [f"critic={tmp_path / 'judge.yaml'}", "min_critic_auc=null", "episodes=null", "steps=8"]
    loop = process(configure_toy(*settings), tmp_path)
    out = tmp_path / "run"

    async def play() -> None:
        run = await planned(library, episodes=20, concurrency=6)
        async with judge_ahead(loop, run, out):
            assert (await start(run, library, out)).stopped is None
            async with asyncio.timeout(60):
                while judged(out) < 8:
                    await asyncio.sleep(0.02)

    asyncio.run(play())
    counted = {(one.id, step.index) for one in load_trajectories(out, 8) for step in one.steps}
    assert set(read_labels(out, LABELS).judged) == counted
    assert 8 <= len(counted) < sum(len(one.steps) for one in load_trajectories(out))


def test_what_fails_beside_a_failed_rollout_neither_hides_it_nor_what_was_spent(
    loop: LoopState, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spends(
        loop: LoopState, run: RunConfig, out: Path, suite: Any, over: asyncio.Event, told: LabellingProgress
    ) -> None:
        told.spent += Usage(prompt_tokens=7)
        raise KeyError("a mistake of its own")

    async def play(failure: Exception | None) -> None:
        out = tmp_path / "run"
        out.mkdir(exist_ok=True)
        (out / FILE).touch()
        async with judge_ahead(loop, await planned(library), out):
            await asyncio.sleep(0.01)
            if failure is not None:
                raise failure

    monkeypatch.setattr(ahead, "_follow", spends)
    with pytest.raises(Halted, match="enough") as told:
        asyncio.run(play(Halted("enough")))
    assert "a mistake of its own" in told.value.__notes__[0]
    assert loop.spent.tokens == 7
    with pytest.raises(KeyError, match="a mistake of its own"):
        asyncio.run(play(None))
    assert loop.spent.tokens == 14


def test_environments_that_cannot_be_built_ahead_are_told_by_what_needs_them(
    loop: LoopState, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(run: RunConfig) -> None:
        tried.append(run)
        raise ConfigError("no such environment")

    async def play() -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / FILE).touch()
        async with judge_ahead(loop, await planned(library), tmp_path / "run"):
            await asyncio.sleep(0.01)

    tried: list[RunConfig] = []
    monkeypatch.setattr("collab.loop.state.build_suite", build)
    asyncio.run(play())
    assert len(tried) == 1


TRAIN = """
import asyncio, json, sys
from pathlib import Path
from collab.loop.interfaces import load_config
from collab.loop.loop import resume, start
from collab.types import Usage

config, out = load_config(json.loads(Path(sys.argv[1]).read_text()), ""), Path(sys.argv[2])
options = {"allow_uncalibrated": True}
asyncio.run(resume(out, device="cpu") if out.exists() else start(config, out, options=options, device="cpu"))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_kill_while_judging_ahead_changes_nothing(
    server: FakeServer, configure_finetuned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process dies after its first label, while it plays; the resumed one ends with the same hashes."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "judge.yaml").write_text(JUDGE.replace("URL", server.url))
    settings = [f"critic={tmp_path / 'judge.yaml'}", "min_critic_auc=null", "epochs=1", "episodes=20"]
    (tmp_path / "config.json").write_text(configure_finetuned(*settings).model_dump_json())
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    rollout = killed / "epochs/1/rollout"
    doomed: list[subprocess.Popen[bytes]] = []

    def deadly(body: Mapping[str, Any]) -> str:
        if doomed and judged(rollout) > 0:
            doomed[0].kill()
        return scores(body)

    def born(out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", TRAIN, str(tmp_path / "config.json"), str(out)])

    monkeypatch.setattr(server, "_says", deadly)
    assert born(whole).wait() == 0
    doomed.append(child := born(killed))
    assert child.wait() == -signal.SIGKILL
    doomed.clear()
    assert len(load_trajectories(rollout)) < 20, "it still played"
    assert born(killed).wait() == 0
    parts = list(compare_trainings(TrainingDir(whole), TrainingDir(killed)))
    assert [one.part for one in parts if not one.same] == []
    assert {"critic", "weights", "run"} <= {one.part for one in parts}


def test_only_a_critic_behind_a_server_is_asked_ahead_and_only_where_nothing_is_shared(
    loop: LoopState, configure_toy: Any, process: Any, tmp_path: Path
) -> None:
    assert is_waited_for(loop)
    assert is_waited_for(replace(loop, budget=Budget(minutes=5)))
    assert not is_waited_for(replace(loop, budget=Budget(tokens=5)))
    assert not is_waited_for(replace(loop, budget=Budget(usd=5)))
    assert not is_waited_for(process(configure_toy(), tmp_path)), "the oracle computes here"
    silent = configure_toy(f"critic={tmp_path / 'judge.yaml'}", "objective=trajectory-dpo", "tasks=1", "episodes=4")
    assert not is_waited_for(process(silent, tmp_path))
