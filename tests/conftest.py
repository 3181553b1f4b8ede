"""Profiles for property tests: no deadline per example, because a busy machine is not a wrong program.

Where a change is checked (`CI` is set) the examples are always the same, so that it fails for its own faults only;
elsewhere they are drawn anew each time. The fast suite tries a few of them.

A test marked `variations` is fast with its first parameters and slow with all others.

Typer makes all commands anew in every call, which takes longer than most calls; here each application is made once.

Where several processes share the tests (`make` runs two), torch computes with one thread in each: matrices are tiny,
and threads of one process would only stand in the other's way.

Episodes that were really played and recorded: a rehearsing team in the corridor and on phones.

`toy_training` has the fixtures of small trainings in the corridor, `real_server` a server of its own process.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
import typer.main
import typer.testing
from hypothesis import settings

from collab.agents.agent import Agent
from collab.config import Limits
from collab.envs.base import Suite
from collab.envs.simphone.suite import SimPhoneSuite
from collab.graphs.dag import Dag
from collab.graphs.deliberation import Network
from collab.library import find_builtin_root
from collab.models.rehearsal import RehearsalModel
from collab.prompts.render import Template, read_templates
from collab.rollout.collector import collect
from collab.rollout.episode import Episode, Stage
from collab.seeds import Seeds
from collab.store.manifest import Manifest
from collab.store.run import RunRecorder, RunStore
from collab.testing.corridor import CorridorSuite
from collab.types import Sampling, Trajectory
from tests.properties import FAST

pytest_plugins = ("tests.toy_training", "tests.real_server")

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is first imported: after this, in children too
os.environ["RAY_AUTH_MODE"] = "disabled"  # no token is made in the home; a process keeps its first Ray's mode

settings.register_profile("explore", deadline=None)
settings.register_profile("repeat", deadline=None, derandomize=True)
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of each property in the fast suite."""
    profile = "repeat" if os.environ.get("CI") else "explore"
    settings.load_profile(profile)
    if "not slow" in config.option.markexpr:
        settings.register_profile("fast", settings.get_profile(profile), max_examples=FAST)
        settings.load_profile("fast")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, keep it from what lives until the end, and then let it come less often."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but the first parameters of `variations` slow, and give slow tests ten minutes on a busy machine."""
    for item in items:
        if item.get_closest_marker("variations") and any(item.callspec.indices.values()):  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))


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


CHAIN = Dag(slots=("ada", "ben", "cyd"), edges=(("ada", "ben"), ("ben", "cyd")))
SEEDS = Seeds(5)


class Recording(Protocol):
    """Plays tasks with a rehearsing team, records them, and reads them back."""

    def __call__(
        self, suite: Suite, tasks: Sequence[str], directory: Path, *, errors: float = ..., max_steps: int | None = ...
    ) -> list[Trajectory]:
        """Returns the episodes as a reader gives them."""
        ...


def record(
    suite: Suite, tasks: Sequence[str], directory: Path, *, errors: float = 0.5, max_steps: int | None = None
) -> list[Trajectory]:
    template = Template("default", read_templates(find_builtin_root() / "prompts" / "default"))
    model = RehearsalModel(error_base=errors, error_slope=0.0)
    agent = Agent(slot="", definition="rehearsal", model=model, template=template, sampling=Sampling())
    agents = {slot: replace(agent, slot=slot) for slot in CHAIN.slots}
    team = Network(dag=CHAIN, agents=agents, rounds=2)
    plan = [Episode(task=task, number=0, seed=SEEDS.task(task, 0)) for task in tasks]
    manifest = Manifest(
        command="rollout", config={}, seed=SEEDS.run, environment=suite.label, environment_version=suite.version
    )
    store = RunStore.create(directory, manifest)
    with store.open_writer() as writer:
        stage = Stage(suite=suite, seeds=SEEDS, limits=Limits(max_steps=max_steps), pictures=False)
        asyncio.run(_collect(plan, team, stage, RunRecorder(writer)))
        writer.finish()
    with store.open_reader() as reader:
        return list(reader.iterate_trajectories())


async def _collect(plan: list[Episode], team: Network, stage: Stage, recorder: RunRecorder) -> None:
    try:
        await collect(plan, lambda _: team, stage, recorder)
    finally:
        await stage.suite.close()


@pytest.fixture(scope="module", autouse=True)
def one_ray_per_file() -> Iterator[None]:
    """A Ray keeps the environment variables that it began with, so the next file's workers would miss theirs."""
    yield
    if (ray := sys.modules.get("ray")) is not None:
        ray.shutdown()


@pytest.fixture(scope="session")
def recording() -> Recording:
    return record


@pytest.fixture(scope="session")
def corridor(tmp_path_factory: pytest.TempPathFactory) -> tuple[CorridorSuite, Path, list[Trajectory]]:
    """Two recorded episodes of the corridor; do not write into the run but under `labels/`."""
    suite, directory = CorridorSuite(), tmp_path_factory.mktemp("corridor") / "run"
    return suite, directory, record(suite, ["OpenDoors", "TypeWord"], directory)


@pytest.fixture(scope="session")
def phone(tmp_path_factory: pytest.TempPathFactory) -> tuple[SimPhoneSuite, Path, list[Trajectory]]:
    """Two recorded episodes of a phone; do not write into the run but under `labels/`."""
    suite, directory = SimPhoneSuite(), tmp_path_factory.mktemp("phone") / "run"
    return suite, directory, record(suite, ["ContactsAddContact", "SystemWifiTurnOn"], directory)
