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
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench import Figures, Target, measure_ms, report
from bench_phones import bench_adb, bench_crowd

from collab import collect
from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_action
from collab.envs.simphone.suite import PhoneEnvironment, SimPhoneSuite
from collab.envs.simphone.ui.render import render, render_png
from collab.errors import UsageError
from collab.testing.scripted import ScriptedModel
from collab.types import Action, Observation, Task

# ------------------------------------------------------------------------------------------------------- phone


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What to do on one instance; found out before the clock runs."""

    task: Task
    texts: tuple[str, ...]
    """Actions in JSON."""


async def write_script(suite: SimPhoneSuite, name: str, seed: int) -> Script:
    """Play an instance once: the oracle's action or a random one, by the toss of a coin, until it ends."""
    task = suite.instance(name, seed)
    environment = await suite.open()
    observation = await environment.reset(task)
    rng = random.Random(f"{name}/{seed}")
    texts: list[str] = []
    done = False
    while not done:
        plan = environment.oracle() if rng.random() < 0.5 else None
        action = plan[0] if plan else draw_action(MOBILE, observation, rng, ending=False)
        result = await environment.step(action)
        texts.append(MOBILE.format(action))
        observation, done = result.observation, result.done
    return Script(task=task, texts=tuple(texts))


@dataclass(slots=True)
class Clock:
    """Seconds that went by, on the wall and on the processor."""

    wall: float = 0.0
    cpu: float = 0.0

    def start(self) -> None:
        """Begin a stretch."""
        self.wall -= time.perf_counter()
        self.cpu -= time.process_time()

    def stop(self) -> None:
        """End it."""
        self.wall += time.perf_counter()
        self.cpu += time.process_time()


async def follow(environment: PhoneEnvironment, script: Script, steps: Clock, resets: Clock) -> list[Observation]:
    """The timed part: reset, then every action from its text."""
    resets.start()
    seen = [await environment.reset(script.task)]
    resets.stop()
    steps.start()
    for text in script.texts:
        action = MOBILE.parse(text)
        assert isinstance(action, Action)
        seen.append((await environment.step(action)).observation)
    steps.stop()
    assert all(observation.text for observation in seen)
    return seen


@dataclass(slots=True)
class Pace:
    """What came of playing every task once per repetition; the first, which warms the caches up, does not count."""

    screens: list[Observation] = field(default_factory=list)
    forks_ms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    cpu_rates: list[float] = field(default_factory=list)
    resets_ms: list[float] = field(default_factory=list)
    resets_cpu_ms: list[float] = field(default_factory=list)
    steps: int = 0


async def play(suite: SimPhoneSuite, repetitions: int) -> Pace:
    """Follow scripts over all tasks, each repetition with another seed."""
    pace = Pace()
    names = [info.name for info in suite.tasks()]
    for repetition in range(repetitions):
        scripts = [await write_script(suite, name, 100 + repetition) for name in names]
        steps, resets = Clock(), Clock()
        environment = await suite.open()
        for script in scripts:
            seen = await follow(environment, script, steps, resets)
            pace.screens.append(seen[len(seen) // 2])
        pace.forks_ms.append(measure_ms(environment.core.fork, 20))
        if repetition == 0:
            continue
        taken = sum(len(script.texts) for script in scripts)
        pace.steps += taken
        pace.rates.append(taken / steps.wall)
        pace.cpu_rates.append(taken / steps.cpu)
        pace.resets_ms.append(1000 * resets.wall / len(scripts))
        pace.resets_cpu_ms.append(1000 * resets.cpu / len(scripts))
    return pace


async def bench_phone(quick: bool) -> Figures:
    """Steps per second, reset, fork and drawing of SimPhone."""
    suite = SimPhoneSuite()
    pace = await play(suite, 4 if quick else 11)
    looks = pace.screens[:: max(1, len(pace.screens) // 40)]
    render(looks[0])
    return {
        "tasks": len(suite.tasks()),
        "steps": pace.steps,
        "steps_per_s": round(statistics.median(pace.rates)),
        "steps_per_cpu_s": round(statistics.median(pace.cpu_rates)),
        "reset_ms": round(statistics.median(pace.resets_ms), 3),
        "reset_cpu_ms": round(statistics.median(pace.resets_cpu_ms), 3),
        "fork_ms": round(statistics.median(pace.forks_ms), 4),
        "render_ms": round(statistics.median(measure_ms(partial(render, look)) for look in looks), 1),
        "png_ms": round(statistics.median(measure_ms(partial(render_png, look)) for look in looks), 1),
    }


async def bench_distracted(quick: bool) -> Figures:
    """Steps per second and reset of SimPhone with the presets that are not calm; German throughout in the last."""
    figures: Figures = {}
    for name, suite in (
        ("daily", SimPhoneSuite(preset="daily")),
        ("hostile", SimPhoneSuite(preset="hostile")),
        ("german", SimPhoneSuite(preset="hostile", language="german")),
    ):
        pace = await play(suite, 3 if quick else 6)
        figures[f"{name}_steps_per_s"] = round(statistics.median(pace.rates))
        figures[f"{name}_steps_per_cpu_s"] = round(statistics.median(pace.cpu_rates))
        figures[f"{name}_reset_cpu_ms"] = round(statistics.median(pace.resets_cpu_ms), 3)
    return figures


# ------------------------------------------------------------------------------------------------------ others


async def bench_miniwob(quick: bool) -> Figures:
    """Clicks per second on MiniWoB++ pages: all of them, or with `quick` every fifth."""
    from bench_miniwob import bench

    return await bench(tabs=4, steps=10 if quick else 50, mix="click", every=5 if quick else 1)


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
    Target("crowd", "resident_mb", "MB", 1000),
    Target("phone", "steps_per_s", "steps/s", 3000, at_least=True),
    Target("phone", "reset_ms", "ms", 2),
    Target("phone", "fork_ms", "ms", 1),
    Target("phone", "render_ms", "ms", 25),
    Target("distracted", "hostile_steps_per_s", "steps/s", 3000, at_least=True),
    Target("adb", "dump_ms", "ms", 60),
    Target("miniwob", "median_steps_per_s", "steps/s", 250, at_least=True),
    Target("start", "help_ms", "ms", 500),
    Target("deliberation", "step_ms", "ms", 3),
)

PARTS: dict[str, Callable[[bool], Coroutine[Any, Any, Figures]]] = {
    "crowd": bench_crowd,  # first: what later parts leave behind is not its memory
    "phone": bench_phone,
    "distracted": bench_distracted,
    "adb": bench_adb,
    "miniwob": bench_miniwob,
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
    facts = report(measured, TARGETS, quick=options.quick, out=options.out)
    told = (f"{one['figure']} {one['value']:g} {one['unit']} (×{one['ratio']:g})" for one in facts["goals"])
    where = facts["machine"]
    print(f"{', '.join(told)}; {where['cpu']}, {where['cores']} cores, load {where['load']}")


if __name__ == "__main__":
    main()
