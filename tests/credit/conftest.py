"""Episodes that were really played and recorded: a rehearsing team in the corridor and on phones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from collab.agents.agent import Agent
from collab.config import Limits
from collab.envs.base import Suite
from collab.envs.simphone.suite import SimPhoneSuite
from collab.graphs.dag import Dag
from collab.graphs.deliberation import Network
from collab.library import root
from collab.models.rehearsal import RehearsalModel
from collab.prompts.render import Template, read_templates
from collab.rollout.collector import collect
from collab.rollout.episode import Episode, Stage
from collab.seeds import Seeds
from collab.store.manifest import Manifest
from collab.store.run import RunRecorder, RunStore
from collab.testing.corridor import CorridorSuite
from collab.types import Sampling, Trajectory

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
    template = Template("default", read_templates(root() / "prompts" / "default"))
    model = RehearsalModel(error_base=errors, error_slope=0.0)
    agent = Agent(slot="", definition="rehearsal", model=model, template=template, sampling=Sampling())
    agents = {slot: replace(agent, slot=slot) for slot in CHAIN.slots}
    team = Network(dag=CHAIN, agents=agents, rounds=2)
    plan = [Episode(task=task, number=0, seed=SEEDS.task(task, 0)) for task in tasks]
    manifest = Manifest(
        command="rollout", config={}, seed=SEEDS.run, environment=suite.label, environment_version=suite.version
    )
    store = RunStore.create(directory, manifest)
    with store.writer() as writer:
        stage = Stage(suite=suite, seeds=SEEDS, limits=Limits(max_steps=max_steps), pictures=False)
        asyncio.run(_collect(plan, team, stage, RunRecorder(writer)))
        writer.finish()
    with store.reader() as reader:
        return list(reader.trajectories())


async def _collect(plan: list[Episode], team: Network, stage: Stage, recorder: RunRecorder) -> None:
    try:
        await collect(plan, lambda _: team, stage, recorder)
    finally:
        await stage.suite.close()


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
