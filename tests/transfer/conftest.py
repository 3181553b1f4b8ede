"""A corridor where a team is trained, a longer one that it is taken to, and agents that need no checkpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from collab.library import Library
from collab.loop.loop import start as train
from collab.testing import toy_team

DEFINITIONS = {
    "envs/street.yaml": (
        "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: 4}}\ntasks: [PressButton]\n"
    ),
    "graphs/alone.yaml": "slots: [ada]\nrounds: 1\n",
    "agents/presser.yaml": (
        "kind: scripted\noptions:\n  replies:\n"
        '    - \'Reason: the first. Action: {"action_type": "click", "index": 1}\'\n'
        '    - \'Reason: done. Action: {"action_type": "status", "goal_status": "complete"}\'\n'
    ),
    "agents/idler.yaml": (
        "kind: scripted\noptions:\n  replies:\n"
        '    - \'Reason: done. Action: {"action_type": "status", "goal_status": "complete"}\'\n'
    ),
    "agents/show.yaml": "kind: rehearsal\n",
}


def write_library(folder: Path, checkpoint: Path) -> Library:
    """The toy team's definitions and ours, with agents on that checkpoint."""
    library = toy_team.write_library(folder, checkpoint)
    for name, text in DEFINITIONS.items():
        (folder / name).write_text(text)
    return library


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """With a checkpoint that does not exist."""
    return write_library(tmp_path_factory.mktemp("library"), Path("checkpoints/none"))


@pytest.fixture(scope="session")
def taught(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """With a checkpoint that was fine-tuned to press this or that button."""
    return write_library(tmp_path_factory.mktemp("toy"), finetuned.resolve())


@pytest.fixture(scope="session")
def home(taught: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team that was trained in the corridor for an epoch, so briefly that most of what it says still parses."""
    config = asyncio.run(toy_team.configure_toy_training(taught, "epochs=1", "dpo.epochs=1"))
    return asyncio.run(train(config, tmp_path_factory.mktemp("home") / "run", device="cpu")).path
