"""Measure what many phones cost and how fast one answers over adb; see bench_env.py, which runs this.

crowd   200 phones in one process, each on a task of its own (all tasks, seed after seed) and some steps into it. What
        counts is all memory of the process, imports included, without drawing.
adb     One phone behind the loopback adb server, asked by the real uiautomator2 client for its hierarchy, on screens
        from all tasks.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

from collab.envs.grammar import MOBILE
from collab.envs.random_actions import draw_action
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.state import Phone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.errors import MissingExtra, UsageError

PHONES = 200
SERIAL = "emulator-5554"


def resident_mb() -> float:
    """Memory of this process that is in RAM, in MB (10^6 bytes).

    Raises:
        UsageError: the system does not say.
    """
    pages = Path("/proc/self/statm")
    if not pages.exists():
        raise UsageError("resident memory is read from /proc, which this system does not have")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def advance_phone(suite: SimPhoneSuite, place: int, steps: int) -> SimPhone:
    """Phone number `place`: on one task after the other, half of its steps the solution's, half of them random."""
    names = [info.name for info in suite.tasks()]
    phone, rng = SimPhone(), random.Random(place)
    phone.reset(suite.instance(names[place % len(names)], place))
    for _ in range(steps):
        plan = phone.oracle() if rng.random() < 0.5 else None
        going_on = plan[0] if plan and len(plan) > 1 else None
        action = going_on or draw_action(MOBILE, phone.frame.observation, rng, ending=False)
        if phone.step(action).done:
            break
    return phone


async def bench_crowd(quick: bool) -> dict[str, Any]:
    """Memory of many phones that are all in the middle of something."""
    suite = SimPhoneSuite()
    before = resident_mb()
    start = time.perf_counter()
    phones = [advance_phone(suite, place, 4 if quick else 12) for place in range(PHONES)]
    seconds = time.perf_counter() - start
    after = resident_mb()
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


async def bench_adb(quick: bool) -> dict[str, Any]:
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
