"""Measure Ray workers: what playing on saves with them, and how many steps the host records.

    python scripts/bench_workers.py                    # both parts, in minutes
    python scripts/bench_workers.py ray --median 2     # episodes that last ten times as long
    python scripts/bench_workers.py ingest --out ingest.json

ray      episodes by the clock in Ray workers whose environments sleep, `--median` seconds in the median, with a spread
         (p99 / p1) of 100. `waiting` begins an epoch of one episode per worker when the one before is over, `playing`
         when so many episodes have arrived (`collab.loop.continuous`); `busy` is the share of the workers' time that
         is slept, and `of_bound` the time of list scheduling, in which no worker is ever idle and nothing but sleep
         takes time, over the time taken. The same on a virtual clock: `bench_collect.py`.
ingest   steps per second that reach the log of one run from Ray workers whose environment and policy take no time,
         between the first recorded step and the last, and the memory of a worker
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bench_collect import MEDIAN_S, NotingWorker, draw_seconds, schedule

import collab
from collab.config import RunConfig
from collab.library import Library
from collab.loop.continuous import RunGate, SharedWorkers
from collab.rollout.build import build_suite, build_team, with_prompts
from collab.rollout.executors.cluster import read_workers
from collab.rollout.plan import run_config
from collab.rollout.run import build_executor, start
from collab.store.run import RunStore
from collab.testing.corridor import CorridorEnvironment, CorridorSuite
from collab.types import Observation, Task, Trajectory
from collab.utils.files import write_json

SPREAD = 100.0
DEFINITIONS = {
    "envs/sleepy.yaml": (
        "backend: own\nbackends:\n  own: {kind: 'bench_workers:SleepySuite', options: {median_s: MEDIAN}}\n"
    ),
    "envs/corridor.yaml": "backend: fake\nbackends:\n  fake: {kind: fake}\n",
    "agents/parrot.yaml": 'kind: scripted\noptions:\n  replies: [\'Action: {"action_type": "click", "index": 1}\']\n',
}


class SleepyEnvironment(CorridorEnvironment):
    """Sleeps before its episode, which is over after one step."""

    async def reset(self, task: Task) -> Observation:
        """Sleep for as long as the instance says."""
        await asyncio.sleep(task.params["sleep_s"])
        return await super().reset(task)


class SleepySuite(CorridorSuite):
    """Instances of one step whose times are lognormal, `median_s` seconds in the median."""

    def __init__(self, median_s: float) -> None:
        super().__init__(max_steps=1)
        self.median_s = median_s

    def instance(self, name: str, seed: int) -> Task:
        """Return an instance with its time."""
        task = super().instance(name, seed)
        seconds = next(draw_seconds(SPREAD, seed)) * self.median_s / MEDIAN_S
        return replace(task, params={**task.params, "sleep_s": seconds})

    async def open(self) -> SleepyEnvironment:
        """Open an environment."""
        return SleepyEnvironment(self)


@contextmanager
def open_library(median_s: float) -> Iterator[tuple[Library, Path]]:
    """Write the definitions into a folder; return them, and a place for runs."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in DEFINITIONS.items():
            path = Path(folder, "library", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("MEDIAN", str(median_s)), encoding="utf-8")
        yield Library(own=Path(folder, "library")), Path(folder)


async def play_by_clock(workers: int, epochs: int, waits: bool, library: Library, out: Path) -> dict[str, float]:
    """Play epochs of one episode per worker in Ray workers; return seconds, both shares, and the host's work.

    Args:
        waits: whether an epoch begins when the one before is over; else when so many episodes have arrived.
    """

    def configure(epoch: int, episodes: int) -> RunConfig:
        choices: dict[str, Any] = {"executor": "ray", "workers": workers, "seed": epoch, "episodes": episodes}
        config = run_config(library=library, env="sleepy", graph="single", agents="parrot", tasks=("all",), **choices)
        return with_prompts(config, library)

    config = configure(0, workers)
    suite = build_suite(config)
    team = build_team(config)
    executor = build_executor(config, suite, team)
    await executor.start()
    shared, arrived, slept, begun = SharedWorkers(executor, workers), 0, 0.0, list[float]()
    shared.free = [NotingWorker(one, begun) for one in shared.free]
    runs, news = list[asyncio.Task[Any]](), asyncio.Event()
    began, computed = time.monotonic(), time.process_time()

    # As in a training: an episode counts when it ends, whichever policy began it.
    def arrive(trajectory: Trajectory) -> None:
        nonlocal arrived, slept
        arrived, slept = arrived + 1, slept + trajectory.task.params["sleep_s"]
        news.set()

    for epoch in range(1, epochs + 1):
        gate = RunGate(workers=shared, epoch=epoch, begun=set(), arrive=arrive)
        run = start(
            configure(epoch, workers if waits else 2 * workers),
            library,
            out / str(epoch),
            executor=gate,
            admit=gate.admit,
            suite=suite,
        )
        runs.append(asyncio.create_task(run))
        while arrived < epoch * workers:
            news.clear()
            await news.wait()
        if waits:
            await runs[-1]
    seconds, computed = time.monotonic() - began, time.process_time() - computed
    # Behind the last episode that was begun, none ends in time.
    bound = schedule(arrived, workers, itertools.chain(begun, itertools.repeat(math.inf)))
    found = {"seconds": seconds, "busy": slept / (workers * seconds), "rate": arrived / seconds}
    found["of_bound"] = bound / seconds
    for one in runs:
        one.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    await executor.close()
    await team.close()
    return {**found, "host": computed / seconds}


def measure_ray(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both arms in Ray workers."""
    found: dict[str, Any] = {"workers": options.workers, "epochs": options.epochs, "median_s": options.median}
    with open_library(options.median) as (library, folder):
        for name, waits in (("waiting", True), ("playing", False)):
            arm = play_by_clock(options.workers, options.epochs, waits, library, folder / name)
            found[name] = asyncio.run(arm)
    found["gain"] = found["playing"]["rate"] / found["waiting"]["rate"]
    waiting, playing = found["waiting"], found["playing"]
    print(
        f"ray: {options.workers} workers, {options.median:g} s in the median: {found['gain']:.2f} times as many "
        f"episodes per second as with waiting; busy {playing['busy']:.1%} and {waiting['busy']:.1%}, "
        f"{playing['of_bound']:.1%} and {waiting['of_bound']:.1%} of the bound; host {playing['host']:.2f} CPU s per s"
    )
    return found


async def measure_memory(delay_s: float) -> dict[str, float]:
    """Return the memory of the Ray workers that play, in MB each, and how many of them have loaded torch."""
    await asyncio.sleep(delay_s)
    states = await read_workers()
    sizes, with_torch = list[int](), 0
    for state in states:
        rollup = Path(f"/proc/{state.process}/smaps_rollup").read_text(encoding="ascii")
        sizes.append(next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")))
        with_torch += "libtorch" in Path(f"/proc/{state.process}/maps").read_text(encoding="utf-8", errors="replace")
    return {"seen": len(states), "worker_mb": statistics.fmean(sizes) / 1000, "with_torch": with_torch}


async def play_and_look(options: argparse.Namespace, library: Library, out: Path) -> dict[str, float]:
    """Play a run in Ray workers, and look at their memory once steps are recorded."""
    playing = asyncio.create_task(
        collab.collect(
            env="corridor",
            agents="parrot",
            graph="single",
            episodes=options.senders * options.each,
            executor="ray",
            workers=options.senders,
            library=library.own,
            out=out,
            progress=False,
        )
    )
    while not playing.done() and '"type":"step"' not in "".join(log.read_text() for log in out.glob("events/*.jsonl")):
        await asyncio.sleep(0.5)
    memory = await measure_memory(2.0)
    await playing
    return memory


def measure_ingest(options: argparse.Namespace) -> dict[str, Any]:
    """Measure how fast the steps of Ray workers are recorded."""
    with open_library(options.median) as (library, folder):
        began = time.process_time()
        memory = asyncio.run(play_and_look(options, library, folder / "run"))
        computed = time.process_time() - began
        with RunStore.open(folder / "run").open_reader() as reader:
            times = [one.time for one in reader.iterate_events() if one.type == "step"]
    first, last = (datetime.fromisoformat(times[place]) for place in (0, -1))
    rate = (len(times) - 1) / (last - first).total_seconds()
    print(
        f"ingest: {len(times)} steps of {options.senders} workers, {rate:.0f} per s; host "
        f"{1000 * computed / len(times):.2f} CPU ms per step, start included; {memory['worker_mb']:.0f} MB per worker, "
        f"{memory['with_torch']} with torch"
    )
    return {"workers": options.senders, "steps": len(times), "per_s": rate, "host_s": computed, **memory}


PARTS = {"ray": measure_ray, "ingest": measure_ingest}


def main() -> None:
    """Measure the parts that were asked for, print a line of each, and write all numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--workers", type=int, default=8, help="of `ray`")
    parser.add_argument("--epochs", type=int, default=40, help="of `ray`")
    parser.add_argument("--median", type=float, default=0.2, help="seconds of an episode of `ray`")
    parser.add_argument("--senders", type=int, default=32, help="workers of `ingest`")
    parser.add_argument("--out", type=Path, help="JSON with all numbers")
    parser.add_argument("--each", type=int, default=30, help="episodes per worker of `ingest`")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    # Workers of Ray import the environment from here.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    found = {part: PARTS[part](options) for part in options.parts or PARTS}
    if options.out is not None:
        write_json(options.out, found)


if __name__ == "__main__":
    main()
