"""Measure how fast the worlds and the framework around them are.

    python scripts/bench_env.py --quick                  # under a minute
    python scripts/bench_env.py --out bench.json         # more repetitions
    python scripts/bench_env.py --only phone             # one part: crowd, phone, distracted, adb, …

crowd         Memory of a process with 200 SimPhones on all tasks, each some steps into its own.
phone         SimPhone without rendering: a step is an action read from JSON, the new elements and their text. The mix
              is the oracles' paths with every second action replaced by a random valid one, over all tasks. Frames
              are drawn apart from it.
distracted    The same with the presets daily and hostile, and with hostile in German.
adb           The real uiautomator2 client asks a SimPhone for its hierarchy.
miniwob       MiniWoB++ in a real Chromium: a click per step, elements and text, over all pages.
pictures      The same with a picture of the window after every step.
start         `collab --help` in a fresh interpreter.
deliberation  What the framework adds to twelve model calls: prompts, parsing, vote, log; the model is scripted and
              answers at once, the world is the fake one.

Rates are medians over repetitions with different seeds, so no episode is played twice in the timed part. Wall time
is what counts; the time this process had the processor stands beside it, because on a busy machine they differ.
Printed: a table, one line of JSON (also to --out), one line of text.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from bench_phones import bench_adb, bench_crowd, bench_distracted, bench_phone

from collab import collect
from collab.errors import UsageError
from collab.testing.benchmarks import BenchTarget, Clock, Figures, measure_ms, report
from collab.testing.scripted import ScriptedModel


async def bench_miniwob(quick: bool, *, pictures: bool = False) -> Figures:
    """Clicks per second on MiniWoB++ pages: all of them, or with `quick` every fifth."""
    from bench_miniwob import bench

    steps, every = (10, 5) if quick else (50, 1)
    return await bench(tabs=4, steps=steps, mix="click", every=every, pictures=pictures)


async def bench_start(quick: bool) -> Figures:
    """Milliseconds until the first thing that a new user types has answered."""
    command = [sys.executable, "-c", "from collab.__main__ import run; run()", "--help"]
    ask = partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=True)
    ask()
    times = [measure_ms(ask) for _ in range(5 if quick else 20)]
    return {"help_ms": round(statistics.median(times))}


REPLIES = [
    'Reason: The goal names another door.\nAction: {"action_type": "click", "index": 1}',
    'Reason: This is the door that the goal names.\nAction: {"action_type": "click", "index": 2}',
    'Reason: I agree with what was said before me.\nAction: {"action_type": "click", "index": 2}',
    "Reason: I cannot make up my mind.",
    'Reason: Back to the room before.\nAction: {"action_type": "navigate_back"}',
]


class InstantModel(ScriptedModel):
    """Answers at once and counts tokens by length: none of the measured time is a model's."""

    def count_tokens(self, text: str) -> int:
        """A quarter of the characters."""
        return len(text) // 4


async def bench_deliberation(quick: bool) -> Figures:
    """Time of a step of four agents and three rounds when models and world take none."""
    episodes = 8 if quick else 60
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder)
        environment = {"description": "fake", "backend": "fake", "backends": {"fake": {"kind": "fake"}}, "tasks": "all"}
        agent = {"description": "scripted", "kind": "bench_env:InstantModel", "options": {"replies": REPLIES}}
        for room, name, definition in (("envs", "fake", environment), ("agents", "scripted", agent)):
            (library / room).mkdir()
            (library / room / f"{name}.yaml").write_text(json.dumps(definition))
        clock = Clock()
        clock.start()
        result = await collect(
            env="fake",
            agents="scripted",
            tasks=["OpenDoors"],
            episodes=episodes,
            concurrency=1,
            out=library / "run",
            library=library,
        )
        clock.stop()
        trajectories = list(result.trajectories)  # read before the folder is gone
        steps = sum(len(trajectory.steps) for trajectory in trajectories)
        calls = sum(len(step.matrix.utterances) for trajectory in trajectories for step in trajectory.steps)
        played = [1000 * trajectory.seconds / len(trajectory.steps) for trajectory in trajectories]
    return {
        "steps": steps,
        "calls_per_step": calls / steps,
        "step_ms": round(statistics.median(played), 2),
        "step_cpu_ms": round(1000 * clock.cpu / steps, 2),
        "whole_run_ms_per_step": round(1000 * clock.wall / steps, 2),
    }


# ------------------------------------------------------------------------------------------------------ report


TARGETS = (
    BenchTarget("crowd", "resident_mb", "MB", 1000),
    BenchTarget("phone", "steps_per_s", "steps/s", 3000, at_least=True),
    BenchTarget("phone", "reset_ms", "ms", 2),
    BenchTarget("phone", "fork_ms", "ms", 1),
    BenchTarget("phone", "render_ms", "ms", 25),
    BenchTarget("distracted", "hostile_steps_per_s", "steps/s", 3000, at_least=True),
    BenchTarget("adb", "dump_ms", "ms", 60),
    BenchTarget("miniwob", "median_steps_per_s", "steps/s", 250, at_least=True),
    BenchTarget("pictures", "median_steps_per_s", "steps/s", 100, at_least=True),
    BenchTarget("start", "help_ms", "ms", 500),
    BenchTarget("deliberation", "step_ms", "ms", 3),
)

PARTS: dict[str, Callable[[bool], Coroutine[Any, Any, Figures]]] = {
    "crowd": bench_crowd,  # first: what later parts leave behind is not its memory
    "phone": bench_phone,
    "distracted": bench_distracted,
    "adb": bench_adb,
    "miniwob": bench_miniwob,
    "pictures": partial(bench_miniwob, pictures=True),
    "start": bench_start,
    "deliberation": bench_deliberation,
}


def main() -> None:
    """Parse the command line, measure one part after the other, print; a part whose packages are missing says so."""
    parser = argparse.ArgumentParser(description="Measure how fast the worlds and the framework are.")
    parser.add_argument("--quick", action="store_true", help="few repetitions: under a minute")
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help="measure this part; may be repeated")
    parser.add_argument("--out", type=Path, help="write the JSON here, too")
    options = parser.parse_args()
    measured: dict[str, Figures] = {}
    for part in options.only or PARTS:
        try:
            measured[part] = asyncio.run(PARTS[part](options.quick))
        except UsageError as missing:
            measured[part] = {"not_measured": str(missing)}
            print(f"{part:32} not measured: {missing}")
    facts = report(measured, TARGETS, quick=options.quick, out=options.out, say=print)
    told = (f"{one['figure']} {one['value']:g} {one['unit']} (×{one['ratio']:g})" for one in facts["goals"])
    where = facts["machine"]
    print(f"{', '.join(told)}; {where['cpu']}, {where['cores']} cores, load {where['load']}")


if __name__ == "__main__":
    main()
