"""A tiny checkpoint that proposes actions in the corridor, good and bad ones, and a small method that trains it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.config import Budget
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.examples import RecordedRun as Told
from collab.loop.policy import build_first_policy
from collab.loop.record import TrainingDir
from collab.loop.state import LoopState, TrainingProgress
from collab.testing import toy_team
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Step, Utterance

Configured = Callable[..., TrainingConfig]


def write_library(folder: Path, checkpoint: Path) -> Library:
    """Definitions of one's own, the agents on that checkpoint, and agents that cannot be trained."""
    library = toy_team.write_library(folder, checkpoint)
    (folder / "agents/show.yaml").write_text("kind: rehearsal\n")
    return library


def configure_small(library: Library, *settings: str, **choices: Any) -> TrainingConfig:
    """A small training in the corridor."""
    return asyncio.run(toy_team.configure_toy_training(library, *settings, **choices))


ChangeCells = Callable[[Told, Callable[[Utterance], Utterance]], Told]


@pytest.fixture(scope="session")
def change_cells() -> ChangeCells:
    """What was played, with every cell changed."""

    def apply(record: Told, change: Callable[[Utterance], Utterance]) -> Told:
        def step_of(step: Step) -> Step:
            return replace(step, matrix=replace(step.matrix, utterances=tuple(map(change, step.matrix))))

        trajectories = record.trajectories.values()
        return replace(
            record, trajectories={one.id: replace(one, steps=tuple(map(step_of, one.steps))) for one in trajectories}
        )

    return apply


Processes = Callable[[TrainingConfig, Path], LoopState]


@pytest.fixture(scope="session")
def process(library: Library) -> Processes:
    """One more process that trains in a directory, on a processor and without a budget."""

    def build_state(config: TrainingConfig, folder: Path) -> LoopState:
        return LoopState(
            config=config,
            folder=TrainingDir(folder),
            library=library,
            budget=Budget(),
            stop=asyncio.Event(),
            device="cpu",
            progress=TrainingProgress(algorithm="collabuiagents", epochs=config.method.epochs),
            first=build_first_policy(config.run, config.method),
        )

    return build_state


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that knows nothing; not to be changed."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("marl") / "tiny", hidden=32, layers=2, context=4096)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """An environment, a graph, and agents whose checkpoint does not exist yet."""
    return write_library(tmp_path_factory.mktemp("library"), Path("checkpoints/none"))


@pytest.fixture(scope="session")
def finetuned(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that was fine-tuned to press this or that button: some of what it proposes is right."""
    return toy_team.finetune(tiny, tmp_path_factory.mktemp("taught"))


@pytest.fixture(scope="session")
def configure_toy(library: Library) -> Configured:
    """Puts a small training in the corridor together, from settings and choices."""
    return functools.lru_cache(functools.partial(configure_small, library))


@pytest.fixture(scope="session")
def configure_finetuned(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Configured:
    """The same with the fine-tuned checkpoint in place of one that is not there."""
    library = write_library(tmp_path_factory.mktemp("toy"), finetuned)
    return functools.lru_cache(functools.partial(configure_small, library))
