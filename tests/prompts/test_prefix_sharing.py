"""Which cells share which prefix, proven on token ids: what a team reads is a tree, not twelve strangers."""

from __future__ import annotations

import asyncio
import itertools
from unittest.mock import Mock

import pytest

from collab.agents.agent import Agent
from collab.config import Limits
from collab.graphs.dag import Dag
from collab.graphs.deliberation import Network
from collab.library import find_builtin_root
from collab.models.base import Reply, Request
from collab.prompts.render import Template, read_templates
from collab.rollout.episode import Episode, Stage, play
from collab.seeds import Seeds
from collab.testing.corridor import CorridorSuite
from collab.types import ActionMatrix, CellRef, Sampling

pytest.importorskip("torch")
DAG = Dag(slots=("ada", "ben", "cyd", "dee"), edges=(("ada", "cyd"), ("ben", "cyd"), ("ada", "dee"), ("ben", "dee")))

Tokens = tuple[int, ...]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> tuple[ActionMatrix, dict[CellRef, Tokens], dict[CellRef, Tokens]]:
    """One deliberation by a real (tiny, random) model: the matrix, what each cell read and what it wrote."""
    from collab.models.local import LocalModel
    from collab.testing.tiny_checkpoint import make_tiny_checkpoint

    class Overheard(LocalModel):
        """Remembers what was asked, in the order of the cells."""

        def __init__(self, **options: object) -> None:
            super().__init__(**options)
            self.read: dict[int, Tokens] = {}

        async def generate(self, request: Request) -> Reply:
            self.read[request.seed] = self.prompt_ids(request.prompt).ids
            return await super().generate(request)

    model = Overheard(path=str(make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), seed=3)))
    template = Template("default", read_templates(find_builtin_root() / "prompts" / "default"))
    sampling = Sampling(temperature=1.0, max_tokens=12)
    agents = {
        slot: Agent(slot=slot, definition="tiny", model=model, template=template, sampling=sampling)
        for slot in DAG.slots
    }
    stage = Stage(suite=CorridorSuite(max_steps=1), seeds=Seeds(1), limits=Limits())

    async def go() -> ActionMatrix:
        network = Network(dag=DAG, agents=agents, rounds=3)
        episode = Episode(task="PressButton", number=0, seed=5)
        trajectory = await play(await stage.suite.open(), network, episode, stage, Mock())
        await model.close()
        return trajectory.steps[0].matrix

    matrix = asyncio.run(go())
    read = {utterance.cell: model.read[utterance.seed] for utterance in matrix}
    wrote = {utterance.cell: utterance.tokens or () for utterance in matrix}
    return matrix, read, wrote


def common(one: Tokens, two: Tokens) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))


def test_all_twelve_cells_share_rules_task_history_and_screen(step: tuple) -> None:
    _, read, _ = step
    first = read[CellRef("ada", 0)]
    shared = min(common(first, ids) for ids in read.values())
    header = len(first) - common(first, read[CellRef("ben", 0)])
    assert shared > 0.8 * len(first)
    assert header < 60, "cells that heard nothing differ in their short header only"
    assert len({ids[:shared] for ids in read.values()}) == 1


def test_cells_that_heard_the_same_share_the_messages_too(step: tuple) -> None:
    matrix, read, wrote = step
    cyd, dee = CellRef("cyd", 0), CellRef("dee", 0)
    assert matrix[cyd].heard == matrix[dee].heard == (("ada", 0), ("ben", 0))
    alone = min(common(read[cyd], ids) for ids in read.values())
    together = common(read[cyd], read[dee])
    assert together >= alone + len(wrote[CellRef("ada", 0)]) + len(wrote[CellRef("ben", 0)])


def test_a_message_stands_in_the_tokens_in_which_it_was_generated(step: tuple) -> None:
    matrix, read, wrote = step
    for utterance in matrix:
        rest = read[utterance.cell]
        for heard in utterance.heard:
            said = wrote[CellRef(*heard)]
            at = next(i for i in range(len(rest)) if rest[i : i + len(said)] == said)
            rest = rest[at + len(said) :]


def test_what_an_agent_reads_next_begins_with_what_it_said_last(step: tuple) -> None:
    _, read, wrote = step
    shared = min(common(read[CellRef("ada", 0)], ids) for ids in read.values())
    for slot, round in itertools.product(DAG.slots, (1, 2)):
        last = wrote[CellRef(slot, round - 1)]
        after = read[CellRef(slot, round)][shared:]
        at = next(i for i in range(len(after)) if after[i : i + len(last)] == last)
        assert at < 40, "the agent's own last word comes first, behind its short frame"
