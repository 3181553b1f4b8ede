"""Events tell of a run when it grows, and of nothing when it does not."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

from collab.store.manifest import Manifest
from collab.store.run import RunStore
from collab.view.inspector import Inspector
from collab.view.server import stream_growth


async def told(events: AsyncIterator[bytes]) -> dict[str, Any]:
    """The next event about a run."""
    async for chunk in events:
        if chunk.startswith(b"event: run\ndata: "):
            found: dict[str, Any] = json.loads(chunk.removeprefix(b"event: run\ndata: "))
            return found
    raise AssertionError("the stream ended")


def test_a_growing_run_is_told_of_and_a_quiet_one_is_not(recorded: Path, tmp_path: Path) -> None:
    with RunStore.open(recorded).open_reader() as reader:
        played = next(reader.iterate_trajectories())
    store = RunStore.create(tmp_path / "runs" / "one", Manifest(command="rollout", config={}, seed=0))
    inspector = Inspector([tmp_path / "runs"], index_cache=tmp_path / "index_cache")
    where = {"episode": 0, "epoch": 0, "environment": "phone", "environment_version": "1"}

    async def go() -> None:
        events = stream_growth(inspector, [], stopped=lambda: False, pause_s=0.01, walk_s=0.01)
        writer = store.open_writer()
        first = await told(events)
        assert (first["status"], first["done"], first["steps"]) == ("running", 0, 0)
        writer.begin_episode("Task/0", played.task, **where)
        await told(events)
        writer.step("Task/0", played.steps[0])
        grown = await told(events)
        assert (grown["status"], grown["done"], grown["steps"]) == ("running", 0, 1)
        assert inspector.get_step(grown["id"], "Task/0", 0).changes is None
        waiting = asyncio.ensure_future(told(events))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        writer.end_episode("Task/0", outcome=played.outcome, final=played.final, seconds=1.0)
        assert (await waiting)["done"] == 1
        assert inspector.get_step(grown["id"], "Task/0", 0).changes is not None
        writer.finish()
        writer.close()
        last = await told(events)
        while last["status"] == "running":
            last = await told(events)
        assert last["status"] == "finished"
        RunStore.create(tmp_path / "runs" / "two", Manifest(command="rollout", config={}, seed=0))
        assert (await told(events))["id"].startswith("two-")

    asyncio.run(asyncio.wait_for(go(), 60))
    inspector.close()


def test_a_stream_ends_when_the_server_stops(inspector: Inspector) -> None:
    stopped: list[bool] = []

    async def go() -> None:
        events = stream_growth(inspector, ["nothing-0123456789"], stopped=lambda: bool(stopped), pause_s=30)
        assert (await anext(events)).startswith(b"retry:")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.05)
        stopped.append(True)
        with pytest.raises(StopAsyncIteration):
            await waiting

    asyncio.run(asyncio.wait_for(go(), 10))


def test_folders_are_walked_through_less_often_than_runs_are_looked_at(
    inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[int] = []
    looks: list[str] = []
    ids, state = inspector.list_ids(), inspector.describe_state
    monkeypatch.setattr(inspector, "list_ids", lambda: (walks.append(1), ids)[1])
    monkeypatch.setattr(inspector, "describe_state", lambda id: (looks.append(id), state(id))[1])

    async def go() -> None:
        async for _ in stream_growth(inspector, [], stopped=lambda: len(looks) >= 5, pause_s=0.001):
            pass

    asyncio.run(asyncio.wait_for(go(), 10))
    assert (len(walks), len(looks)) == (1, 5)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_interrupted(recorded: Path, number: signal.Signals) -> None:
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "collab.__main__", "view", str(recorded), "--no-open", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    base = address.partition("?")[0]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", address)
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        browser.open(f"{base}api/runs", timeout=30)
    browser.open(address, timeout=30).close()
    with browser.open(f"{base}api/runs", timeout=30) as answer:
        assert [run["done"] for run in json.load(answer)["runs"]] == [3]
    live = browser.open(f"{base}api/live", timeout=30)
    assert live.readline().startswith(b"retry")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    live.close()
    assert process.returncode == 0, errors
    assert "Ctrl-C" in errors.splitlines()[-1]
