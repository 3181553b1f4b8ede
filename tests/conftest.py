"""Profiles for property tests: no deadline per example, because a busy machine is not a wrong program.

Where a change is checked (`CI` is set) the examples are always the same, so that it fails for its own faults only;
elsewhere they are drawn anew each time. The fast suite tries a quarter of the examples.

A test marked `variations` is fast with its first parameters and slow with all others.

Typer makes all commands anew in every call, which takes longer than most calls; here each application is made once.

Where several processes share the tests (`make` runs two), torch computes with one thread in each: matrices are tiny,
and threads of one process would only stand in the other's way.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable

import pytest
import typer.main
import typer.testing
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported: after this, in children too

settings.register_profile("explore", deadline=None)
settings.register_profile("repeat", deadline=None, derandomize=True)
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)
FAST = 25
"""Examples of a property where slow tests are left out."""


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of each property in the fast suite."""
    profile = "repeat" if os.environ.get("CI") else "explore"
    settings.load_profile(profile)
    if "not slow" in config.option.markexpr:
        settings.register_profile("fast", settings.get_profile(profile), max_examples=FAST)
        settings.load_profile("fast")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but the first parameters of `variations` slow."""
    for item in items:
        if item.get_closest_marker("variations") and any(item.callspec.indices.values()):  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.slow)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker that is done end in peace: the interrupt that ends it could hit any of its last calls."""
    if hasattr(session.config, "workerinput"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.fixture
def soon() -> Callable[[Callable[[], bool]], bool]:
    """`soon(condition)`: whether it comes true, looked at again and again for as long as a busy machine may take."""

    def comes_true(condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + 30
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    return comes_true
