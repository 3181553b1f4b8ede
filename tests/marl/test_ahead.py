"""A critic behind a server judges while the team still plays: the same words, earlier."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.api import resolved
from collab.config import Budget, RunConfig, run_config
from collab.credit.labels import FOLDER, Labels, labellings, read_labels
from collab.errors import ModelFailure
from collab.library import Library
from collab.marl.ahead import is_waited_for, judging_ahead
from collab.marl.hashing import epoch_hash
from collab.marl.judge import NAME, judge
from collab.marl.loop_state import Halted, Loop
from collab.marl.play import trajectories_of
from collab.models.fake_server import FakeServer
from collab.resolve import with_prompts
from collab.runs import resume, start
from collab.store.manifest import FILE

JUDGE = "kind: llm\noptions: {model: {kind: openai, options: {model: fake, base_url: URL, retries: 0}}}\n"
EPISODES = 500
"""More than anybody waits for: what is judged here is judged while there are more to be played."""


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
def loop(server: FakeServer, configured, process, tmp_path: Path) -> Loop:
    """A process whose critic is asked over that server."""
    (tmp_path / "judge.yaml").write_text(JUDGE.replace("URL", server.url))
    made: Loop = process(configured(f"critic={tmp_path / 'judge.yaml'}", "least_auc=null"), tmp_path)
    return made


async def planned(library: Library) -> RunConfig:
    run = run_config(library=library, env="corridor", graph="pair", agents="show", episodes=EPISODES, concurrency=2)
    return with_prompts(await resolved(run, once_per_task=False), library)


def judged(out: Path) -> int:
    return len(read_labels(out, NAME).judged) if NAME in labellings(out) else 0


async def live(loop: Loop, run: RunConfig, out: Path, library: Library, *, halted: bool = False) -> None:
    """Play, or play on, until something more is judged; then end, or fail to."""
    before, stop = judged(out), asyncio.Event()
    async with judging_ahead(loop, run, out):
        job = resume(out, stop=stop) if out.exists() else start(run, library, out, stop=stop)
        playing = asyncio.create_task(job)
        async with asyncio.timeout(60):
            while judged(out) == before:
                await asyncio.sleep(0.01)
        stop.set()
        assert (await playing).stopped is not None, "there were episodes left"
        loop.halt("enough" if halted else None)


def test_what_is_judged_meanwhile_is_judged_once_and_as_it_would_be_afterwards(
    server: FakeServer, loop: Loop, library: Library, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    async def lives() -> list[Labels]:
        run = await planned(library)
        with pytest.raises(Halted, match="enough"):
            await live(loop, run, out, library, halted=True)
        await live(loop, run, out, library)
        played = trajectories_of(out)
        assert judged(out) == sum(len(one.steps) for one in played)
        meanwhile = await judge(loop, run, out, played)
        assert {key for key in meanwhile.judged} == {(one.id, step.index) for one in played for step in one.steps}
        asked = [body for body in server.requests if '{"agent"' in str(body["messages"][-1]["content"])]
        calls = [call for one in meanwhile.judged.values() for call in one.calls]
        assert len(asked) == len(calls), "nobody was asked twice"
        assert loop.tokens == sum((call.prompt_tokens or 0) + (call.completion_tokens or 0) for call in calls) > 0
        assert set(loop.seconds) == {"critic"}, "the time that was waited for it"
        shutil.rmtree(out / FOLDER)
        return [meanwhile, await judge(loop, run, out, played)]

    meanwhile, afterwards = (epoch_hash(judged=labels.judged.values()) for labels in asyncio.run(lives()))
    assert meanwhile == afterwards


def test_a_critic_that_cannot_be_asked_stops_no_rollout_and_is_told_behind_it(
    server: FakeServer, loop: Loop, library: Library, tmp_path: Path
) -> None:
    out, stop = tmp_path / "run", asyncio.Event()

    async def play() -> None:
        run = await planned(library)
        async with judging_ahead(loop, run, out):
            playing = asyncio.create_task(start(run, library, out, stop=stop))
            while not ((out / FILE).exists() and trajectories_of(out)):
                await asyncio.sleep(0.05)
            stop.set()
            await playing
        played = trajectories_of(out)
        assert played
        with pytest.raises(ModelFailure):
            await judge(loop, run, out, played)

    server.die()
    asyncio.run(play())


def test_only_a_critic_behind_a_server_is_asked_ahead_and_only_where_nothing_is_shared(
    loop: Loop, configured, process, tmp_path: Path
) -> None:
    assert is_waited_for(loop)
    assert is_waited_for(replace(loop, budget=Budget(minutes=5)))
    assert not is_waited_for(replace(loop, budget=Budget(tokens=5)))
    assert not is_waited_for(replace(loop, budget=Budget(usd=5)))
    assert not is_waited_for(process(configured(), tmp_path)), "the oracle computes here"
    silent = configured(f"critic={tmp_path / 'judge.yaml'}", "objective=trajectory-dpo", "tasks=1", "episodes=4")
    assert not is_waited_for(process(silent, tmp_path))
