"""Measure how fast SimPhone is, what many phones cost, and how fast one answers over adb; bench_env.py runs this.

phone   Steps, resets, forks and frames of SimPhone; distracted: the same under presets that are not calm.
crowd   200 phones in one process, each on a task of its own (all tasks, seed after seed) and some steps into it. What
        counts is all memory of the process, imports included, without drawing.
adb     One phone behind the loopback adb server, asked by the real uiautomator2 client for its hierarchy, on screens
        from all tasks.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from functools import partial

from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_mixed_action
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.state import Phone
from collab.envs.simphone.suite import PhoneEnvironment, SimPhoneSuite
from collab.envs.simphone.ui.render import render, render_png
from collab.errors import MissingExtra
from collab.testing.benchmarks import Clock, Figures, measure_ms
from collab.types import Action, Observation, Task
from collab.utils.machine import read_memory_mb

PHONES = 200
SERIAL = "emulator-5554"


def advance_phone(suite: SimPhoneSuite, place: int, steps: int) -> SimPhone:
    """Phone number `place`: on one task after the other, half of its steps the solution's, half of them random."""
    names = [info.name for info in suite.tasks()]
    phone, rng = SimPhone(), random.Random(place)
    phone.reset(suite.instance(names[place % len(names)], place))
    for _ in range(steps):
        if phone.step(draw_mixed_action(MOBILE, phone, phone.frame.observation, rng, ending=False)).done:
            break
    return phone


async def bench_crowd(quick: bool) -> Figures:
    """Memory of many phones that are all in the middle of something."""
    suite = SimPhoneSuite()
    before = read_memory_mb()
    start = time.perf_counter()
    phones = [advance_phone(suite, place, 4 if quick else 12) for place in range(PHONES)]
    seconds = time.perf_counter() - start
    after = read_memory_mb()
    return {
        "phones": len(phones),
        "screens": len({phone.frame.observation.text for phone in phones}),
        "resident_mb": round(after),
        "phones_mb": round(after - before, 1),
        "seconds": round(seconds, 2),
    }


def screens(quick: bool) -> list[Phone]:
    """Phones on different screens: some steps into every task, or with `quick` into every fourth."""
    suite = SimPhoneSuite()
    names = [info.name for info in suite.tasks()][:: 4 if quick else 1]
    return [advance_phone(suite, place, 5).phone for place, _ in enumerate(names)]


async def bench_adb(quick: bool) -> Figures:
    """Round trips of the real client.

    Raises:
        MissingExtra: the client is not installed.
    """
    try:
        import adbutils
        import uiautomator2
    except ImportError:
        raise MissingExtra.of("uiautomator2", "android", "the adb benchmark") from None
    handle, dumps, clicks = PhoneHandle(), list[float](), list[float]()
    with serve_phones({SERIAL: handle}) as port:
        device = uiautomator2.connect(adbutils.AdbClient(host="127.0.0.1", port=port).device(SERIAL))
        for phone in screens(quick):
            handle.put(phone)
            device.dump_hierarchy()  # the first after a change is counted below, too; this one warms the connection up
            for _ in range(2):
                handle.put(phone)
                start = time.perf_counter()
                device.dump_hierarchy()
                dumps.append(1000 * (time.perf_counter() - start))
            start = time.perf_counter()
            device.click(540, 900)
            clicks.append(1000 * (time.perf_counter() - start))
    return {
        "dumps": len(dumps),
        "dump_ms": round(statistics.median(dumps), 1),
        "dump_ms_p95": round(statistics.quantiles(dumps, n=20)[-1], 1),
        "click_ms": round(statistics.median(clicks), 1),
    }


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
        action = draw_mixed_action(MOBILE, environment, observation, rng)
        result = await environment.step(action)
        texts.append(MOBILE.format(action))
        observation, done = result.observation, result.done
    return Script(task=task, texts=tuple(texts))


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
