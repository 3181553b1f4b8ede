"""Measure what it saves to play on while a policy learns, instead of waiting for each epoch's slowest episode.

    python scripts/bench_collect.py --quick                    # 8 and 32 workers, in seconds
    python scripts/bench_collect.py --out collect.json         # and 1,000 workers

Episodes take lognormal times, 60 s in the median, whose 99th percentile is `--spread` times the first. All arms draw
their times from the same endless list, an episode the next one when it begins:

waiting   an epoch plays one episode per worker and waits for all of them, as a synchronous training does
rounds    an epoch plays two episodes per worker and waits for all of them, as DigiRL does with 16 on 8 emulators
playing   one per worker arrives in each epoch, from whichever policy; what is running is carried over
          (`collab.loop.continuous`, the code of trainings)

The clock is virtual: it jumps to the next end of an episode when nothing is left to compute. So hours take seconds, and
only the host's own work costs time, which is printed as CPU seconds per virtual second: below 1, one core serves all
workers. `bound` is the time until as many episodes of that list have arrived where no worker is ever idle. Numbers are
means over `--seeds` lists.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from collab.loop.continuous import RunGate, SharedWorkers
from collab.rollout.collector import collect
from collab.rollout.episode import Episode, Stage
from collab.rollout.executors.base import EpisodeWorker
from collab.seeds import Seeds, draw_lognormal, generator
from collab.testing.corridor import CorridorSuite
from collab.types import Outcome, Trajectory
from collab.utils.files import write_json

MEDIAN_S = 60.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing is ready."""

    _now = 0.0

    def time(self) -> float:
        """Return virtual seconds."""
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def draw_seconds(spread: float, seed: int) -> Iterator[float]:
    """Yield the seconds of episodes in the order in which they begin."""
    rng = generator(seed)
    while True:
        yield draw_lognormal(rng, MEDIAN_S, spread)


class Sleeper:
    """Executor and worker in one: an episode takes its time, and does nothing."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self._seconds = seconds

    async def start(self) -> None:
        """Do nothing."""

    def open_worker(self) -> Sleeper:
        """Return itself: nothing tells its workers apart."""
        return self

    async def play(self, episode: Episode, network: Any, stage: Stage, recorder: Any, **named: Any) -> Trajectory:
        """Wait for as long as the next episode takes."""
        await asyncio.sleep(next(self._seconds))
        return Trajectory(
            id=episode.id,
            task=stage.suite.instance(episode.task, episode.seed),
            episode=episode.number,
            epoch=episode.epoch,
            steps=(),
            final=None,
            outcome=Outcome(success=False, score=0.0),
            environment=stage.label,
            environment_version=stage.suite.version,
        )

    async def close(self) -> None:
        """Do nothing."""


class NotingWorker:
    """A worker that notes how long each episode sleeps, in the order in which they begin."""

    def __init__(self, worker: EpisodeWorker, begun: list[float]) -> None:
        self._worker, self._begun = worker, begun

    async def play(self, episode: Episode, network: Any, stage: Stage, recorder: Any, **named: Any) -> Trajectory:
        """Note and play an episode."""
        self._begun.append(stage.suite.instance(episode.task, episode.seed).params["sleep_s"])
        return await self._worker.play(episode, network, stage, recorder, **named)

    async def close(self) -> None:
        """Close the worker."""
        await self._worker.close()


async def play(count: int, workers: int, executor: Any, epoch: int = 0, admit: Any = None) -> None:
    """Play a run of so many episodes, as trainings play theirs, without a record."""
    suite = CorridorSuite()
    plan = [Episode(task=suite.tasks()[0].name, number=number, seed=number, epoch=epoch) for number in range(count)]
    stage, nobody, nothing = Stage(suite=suite, seeds=Seeds(0)), lambda episode: None, None
    await collect(plan, nobody, stage, nothing, executor=executor, concurrency=workers, admit=admit)  # type: ignore[arg-type]


async def wait_for_each(total: int, workers: int, seconds: Iterator[float], rounds: int = 1) -> float:
    """Play epochs of so many episodes per worker, one after the other, and return the virtual seconds."""
    while total > 0:
        count = min(total, rounds * workers)
        await play(count, workers, Sleeper(seconds))
        total -= count
    return asyncio.get_running_loop().time()


async def play_on(total: int, workers: int, seconds: Iterator[float]) -> float:
    """Publish a policy whenever so many episodes have arrived, and return the virtual seconds until all have."""
    shared, arrived = SharedWorkers(Sleeper(seconds), workers), itertools.count(1)
    over, runs = asyncio.get_running_loop().create_future(), list[asyncio.Task[None]]()

    def arrive(_: Trajectory) -> None:
        number = next(arrived)
        if number == total:
            over.set_result(asyncio.get_running_loop().time())
        elif number % workers == 0:
            publish()

    def publish() -> None:
        epoch = len(runs) + 1
        gate = RunGate(workers=shared, epoch=epoch, begun=set(), arrive=arrive)
        runs.append(asyncio.create_task(play(2 * workers, workers, gate, epoch, gate.admit)))

    publish()
    needed: float = await over
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    return needed


def schedule(total: int, workers: int, seconds: Iterator[float]) -> float:
    """Return when the last of so many episodes arrives if each worker begins one whenever it is free."""
    ends = [next(seconds) for _ in range(workers)]
    heapq.heapify(ends)
    end = 0.0
    for _ in range(total):
        end = heapq.heappop(ends)
        heapq.heappush(ends, end + next(seconds))
    return end


def measure(workers: int, spread: float, seed: int, episodes: int = 100) -> dict[str, float]:
    """Measure all arms with the times of one list, until so many episodes per worker have arrived."""
    total, found = episodes * workers, dict[str, float]()
    arms: dict[str, Callable[..., Coroutine[Any, Any, float]]]
    arms = {"waiting": wait_for_each, "rounds": partial(wait_for_each, rounds=2), "playing": play_on}
    for name, arm in arms.items():
        began = time.process_time()
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            found[name] = runner.run(arm(total, workers, draw_seconds(spread, seed)))
        found[f"{name}_cpu"] = time.process_time() - began
    bound = schedule(total, workers, draw_seconds(spread, seed))
    return {
        **found,
        "gain": found["waiting"] / found["playing"],
        "over_rounds": found["rounds"] / found["playing"],
        "of_bound": bound / found["playing"],
        "host": found["playing_cpu"] / found["playing"],
    }


def measure_draws(workers: int, spread: float, seeds: Sequence[int], episodes: int) -> dict[str, Any]:
    """Measure a list per seed; return the means, and each list's own numbers as `draws`."""
    draws = [measure(workers, spread, seed, episodes) for seed in seeds]
    means = {name: statistics.fmean(one[name] for one in draws) for name in draws[0]}
    return {"workers": workers, "spread": spread, "episodes": episodes * workers, **means, "draws": draws}


def main() -> None:
    """Measure, print a line per number of workers and spread, and write all numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", help="default: 8, 32 and 1000")
    parser.add_argument("--spread", type=float, nargs="+", default=[100.0], help="p99 / p1 of an episode's time")
    parser.add_argument(
        "--episodes", type=int, default=100, help="per worker; with fewer, the end, where they run out, weighs in"
    )
    parser.add_argument("--seeds", type=int, default=10, help="number of lists of times, from seed 0 on")
    parser.add_argument("--quick", action="store_true", help="8 and 32 workers alone")
    parser.add_argument("--out", type=Path, help="JSON with all numbers")
    options = parser.parse_args()
    found = []
    for workers in options.workers or ([8, 32] if options.quick else [8, 32, 1000]):
        for spread in options.spread:
            one = measure_draws(workers, spread, range(options.seeds), options.episodes)
            found.append(one)
            low, high = (pick(draw["gain"] for draw in one["draws"]) for pick in (min, max))
            print(
                f"{workers} workers, spread {spread:g}: {one['gain']:.2f} times as many episodes per second as with "
                f"waiting ({low:.2f} to {high:.2f}), {one['over_rounds']:.2f} times as many as with waiting for two "
                f"rounds, {one['of_bound']:.1%} of the bound; host {one['host']:.4f} CPU s per s"
            )
    if options.out is not None:
        write_json(options.out, found)


if __name__ == "__main__":
    main()
