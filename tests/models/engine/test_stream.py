"""Many environments share one model in this process: one stream of batches, in which no sequence waits for others."""

import asyncio
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from collab.agents.agent import Agent, StepContext
from collab.config import Limits
from collab.graphs.dag import Dag
from collab.graphs.deliberation import Network
from collab.library import find_builtin_root
from collab.models.base import Reply, Request
from collab.models.local import LocalModel
from collab.prompts.render import PromptContext, Template, read_templates
from collab.rollout.collector import RolloutProgress, collect
from collab.rollout.episode import Episode, Stage
from collab.seeds import Seeds
from collab.testing.corridor import CorridorSuite
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import CellRef, Sampling, Trajectory

SLOTS = ("ada", "ben", "cyd", "dee")
CHAIN = Dag(slots=SLOTS, edges=(("ada", "ben"), ("ben", "cyd")))
ROUNDS = 3


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), context=8192)


class Diary(LocalModel):
    """Remembers in which order replies came, and under which seeds."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.order: list[int] = []

    async def generate(self, request: Request) -> Reply:
        reply = await super().generate(request)
        self.order.append(request.seed)
        return reply


def team(model: LocalModel, dag: Dag, lengths: dict[str, int] | int) -> Network:
    template = Template("default", read_templates(find_builtin_root() / "prompts" / "default"))
    agents = {
        slot: Agent(
            slot=slot,
            definition="x",
            model=model,
            template=template,
            sampling=Sampling(
                temperature=1.0, max_tokens=lengths if isinstance(lengths, int) else lengths[slot], stop=()
            ),
        )
        for slot in dag.slots
    }
    return Network(dag=dag, agents=agents, rounds=ROUNDS)


async def deliberated(network: Network, number: int) -> dict[CellRef, int]:
    """Let a team talk about the first screen of an episode; the seed of every cell."""
    suite = CorridorSuite()
    environment = await suite.open()
    task = suite.instance("OpenDoors", number)
    observation = await environment.reset(task)
    seeds: dict[CellRef, int] = {}

    def seed_of(slot: str, round: int) -> int:
        return seeds.setdefault(CellRef(slot, round), Seeds(number).cell(0, task.name, number, 0, slot, round))

    context = PromptContext(goal=task.goal, space=suite.space, observation=observation)
    matrix, _ = await network.deliberate(StepContext(context=context, seed_of=seed_of))
    assert len(list(matrix)) == ROUNDS * len(network.dag.slots)
    return seeds


def test_a_cell_waits_for_what_it_hears_and_for_nothing_else(checkpoint: Path) -> None:
    """Ada talks long. Dee hears no other agent: her three rounds end before Ada's first; so does another team."""
    model = Diary(path=str(checkpoint))

    async def scene() -> tuple[dict[CellRef, int], dict[CellRef, int]]:
        slow = team(model, CHAIN, {"ada": 150, "ben": 4, "cyd": 4, "dee": 4})
        found = await asyncio.gather(deliberated(slow, 1), deliberated(team(model, CHAIN, 4), 2))
        await model.close()
        return found

    slow, quick = asyncio.run(scene())
    place = {seed: number for number, seed in enumerate(model.order)}
    first_word = place[slow[CellRef("ada", 0)]]
    assert place[slow[CellRef("dee", 2)]] < first_word
    assert max(place[seed] for seed in quick.values()) < first_word
    for seeds in (slow, quick):
        for cell, seed in seeds.items():
            assert all(place[seeds[other]] < place[seed] for other in CHAIN.list_dependencies(cell))


def played(checkpoint: Path, environments: int) -> tuple[RolloutProgress, tuple[Trajectory, ...]]:
    model = LocalModel(path=str(checkpoint))
    stage = Stage(suite=CorridorSuite(), seeds=Seeds(7), limits=Limits(max_steps=1))
    plan = [Episode(task="OpenDoors", number=number, seed=Seeds(7).task("OpenDoors", number)) for number in range(4)]
    progress, recorder, ended = RolloutProgress(planned=len(plan)), Mock(), list[Trajectory]()
    recorder.end = ended.append

    async def scene() -> tuple[Trajectory, ...]:
        network = team(model, CHAIN, 8)
        await collect(plan, lambda _: network, stage, recorder, concurrency=environments, progress=progress)
        await model.close()
        reading = model.meter.snapshot()
        assert (reading.calls, reading.computed_tokens) == (progress.spent.calls, progress.computed_tokens)
        assert reading.cacheable_tokens == progress.cacheable_tokens
        assert reading.queue_s == pytest.approx(progress.queue_s)
        return tuple(sorted(ended, key=lambda trajectory: trajectory.episode))

    return progress, asyncio.run(scene())


def test_environments_share_batches_and_nothing_else(checkpoint: Path) -> None:
    one, alone = played(checkpoint, 1)
    four, together = played(checkpoint, 4)
    assert one.spent.calls == four.spent.calls == 4 * ROUNDS * len(SLOTS)
    assert one.mean_width is not None
    assert four.mean_width is not None
    assert four.mean_width > 2 * one.mean_width
    assert four.computed_tokens == one.computed_tokens
    assert four.hit_rate is not None
    assert four.hit_rate > 0.8
    for trajectory, other in zip(alone, together, strict=True):
        assert trajectory.error is None
        for step, another in zip(trajectory.steps, other.steps, strict=True):
            assert [cell.tokens for cell in step.matrix] == [cell.tokens for cell in another.matrix]
