"""Measure how fast MiniWoB++ pages are driven: steps and resets per second over all 130 pages.

    python scripts/bench_miniwob.py --quick            # under a minute
    python scripts/bench_miniwob.py                    # more steps per page
    python scripts/bench_miniwob.py --pictures         # a picture of the window after every step, too

A step is a parsed action on the real page and the new elements with their text. Half of the actions follow the
page's solution where one is scripted, the others are random and valid. Several tabs play at once; every page is
measured while the same page plays in all tabs. Printed: one line of JSON, then one line of text. The processor time
per step (all processes, resets included) says what a busy machine's wall clock hides.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from collab.envs.grammar import WEB
from collab.envs.random_actions import draw_mixed_action
from collab.envs.web.miniwob import MiniwobEnvironment, MiniwobSuite
from collab.testing.benchmarks import describe_machine
from collab.types import Action, Observation, Task

WARM_UP_STEPS = 5
"""Per page and tab, not counted: a freshly loaded page runs its scripts slowly at first."""


@dataclass(slots=True)
class Tally:
    """Wall times of one page, in seconds."""

    steps: int = 0
    resets: list[float] = field(default_factory=list)
    load_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    reset_s: float = 0.0

    @property
    def steps_per_s(self) -> float:
        """Over all tabs, resets left out."""
        return self.steps / max(1e-9, self.wall_s - self.reset_s)


def choose(environment: MiniwobEnvironment, shown: Observation, rng: random.Random, mix: str) -> Action:
    """The next action: a click somewhere, or the solution's and a random one in turns."""
    if mix == "click" and shown.elements:
        return WEB.make("click", id=rng.randrange(len(shown.elements)))
    return draw_mixed_action(WEB, environment, shown, rng)


def cpu_s() -> float:
    """Processor time of this process and all it has started, the browser included; 0 where /proc does not tell."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        process = int(stat.parent.name)
        parents[process] = int(fields[1])
        spent[process] = sum(int(ticks) for ticks in fields[11:15]) / tick
    ours, grown = {os.getpid()}, 0
    while len(ours) > grown:
        grown = len(ours)
        ours |= {process for process, parent in parents.items() if parent in ours}
    return sum(spent.get(process, 0.0) for process in ours)


async def restart(environment: MiniwobEnvironment, task: Task, tally: Tally) -> Observation:
    """Reset and note how long it took."""
    start = time.perf_counter()
    shown = await environment.reset(task)
    tally.resets.append(time.perf_counter() - start)
    return shown


async def play(
    suite: MiniwobSuite, name: str, tab: int, steps: int, mix: str, tally: Tally, pictures: bool = False
) -> None:
    """Take `steps` steps on a page in one tab, starting over whenever an episode ends."""
    environment = await suite.open()
    rng = random.Random(f"{name}/{tab}")
    seed = tab * 1000
    shown = await restart(environment, suite.instance(name, seed), tally)
    for _ in range(steps):
        action = WEB.parse(WEB.format(choose(environment, shown, rng, mix)))
        assert isinstance(action, Action)
        result = await environment.step(action)
        tally.steps += 1
        shown = result.observation
        if pictures:
            await environment.screenshot()
        if result.done:
            seed += 1
            shown = await restart(environment, suite.instance(name, seed), tally)
    await environment.close()


async def measure(suite: MiniwobSuite, name: str, tabs: int, steps: int, mix: str, pictures: bool = False) -> Tally:
    """Play one page in all tabs at once, after a few steps to warm up; the time of that is told apart."""
    start = time.perf_counter()
    await asyncio.gather(*(play(suite, name, tab, WARM_UP_STEPS, mix, Tally(), pictures) for tab in range(tabs)))
    tally = Tally(load_s=time.perf_counter() - start)
    start, before = time.perf_counter(), cpu_s()
    await asyncio.gather(*(play(suite, name, tab, steps, mix, tally, pictures) for tab in range(tabs)))
    tally.wall_s, tally.cpu_s = time.perf_counter() - start, cpu_s() - before
    tally.reset_s = sum(tally.resets) / tabs
    return tally


async def bench(tabs: int, steps: int, mix: str, every: int = 1, pictures: bool = False) -> dict[str, object]:
    """Measure every page, or one in `every`; rates per second, times in milliseconds."""
    suite = MiniwobSuite(pages=tabs)
    start = time.perf_counter()
    try:
        names = [info.name for info in suite.tasks()[::every]]
        tallies = {name: await measure(suite, name, tabs, steps, mix, pictures) for name in names}
    finally:
        await suite.close()
    rates = {name: tally.steps_per_s for name, tally in tallies.items()}
    resets = [reset * 1000 for tally in tallies.values() for reset in tally.resets]
    slowest = sorted(rates, key=lambda name: rates[name])[:5]
    cpu = statistics.median(tally.cpu_s / tally.steps for tally in tallies.values())
    return {
        "mix": mix,
        "pictures": pictures,
        "tabs": tabs,
        "pages": len(rates),
        "steps": sum(tally.steps for tally in tallies.values()),
        "median_steps_per_s": round(statistics.median(rates.values())),
        "slowest": {name: round(rates[name]) for name in slowest},
        "cpu_ms_per_step_median": round(cpu * 1000, 1),
        "reset_ms_median": round(statistics.median(resets), 1) if resets else None,
        "load_and_warm_up_ms_median": round(statistics.median(tally.load_s for tally in tallies.values()) * 1000),
        "seconds": round(time.perf_counter() - start, 1),
        **describe_machine(),
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description="Measure how fast MiniWoB++ pages are driven.")
    parser.add_argument("--quick", action="store_true", help="few steps on every third page: under a minute")
    parser.add_argument("--tabs", type=int, default=4, help="pages at once")
    parser.add_argument("--steps", type=int, default=None, help="steps per page and tab")
    parser.add_argument(
        "--mix", choices=("click", "mixed"), default="mixed", help="clicks only, or half the solution's"
    )
    parser.add_argument("--pictures", action="store_true", help="take a picture of the window after every step")
    options = parser.parse_args()
    steps = options.steps or (6 if options.quick else 50)
    facts = asyncio.run(
        bench(options.tabs, steps, options.mix, every=3 if options.quick else 1, pictures=options.pictures)
    )
    print(json.dumps(facts))
    print(
        f"MiniWoB++: median {facts['median_steps_per_s']} steps/s over {facts['pages']} pages "
        f"({facts['tabs']} tabs, {facts['cores']} cores, load {facts['load']}, "
        f"{facts['cpu_ms_per_step_median']} ms of processor time a step), "
        f"reset {facts['reset_ms_median']} ms, slowest {facts['slowest']}"
    )


if __name__ == "__main__":
    main()
