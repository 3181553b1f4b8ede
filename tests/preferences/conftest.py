"""A recorded run of two agents that hear nothing of each other."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import collab
from collab.library import Library

DEFINITIONS = {
    "envs/corridor.yaml": "backend: fake\nbackends:\n  fake: {kind: fake}\n",
    "graphs/duo.yaml": "slots: [ada, ben]\nrounds: 1\n",
    "agents/actor.yaml": "kind: rehearsal\noptions: {error_base: 0.5, error_slope: 0}\n",
    "agents/clumsy.yaml": 'kind: scripted\noptions:\n  replies: [\'Reason: done. Action: {"action_type": "status", '
    '"goal_status": "complete"}\']\n',
    "agents/judge.yaml": "kind: llm\noptions:\n  permute: false\n  score: all\n  model: {kind: scripted, options: "
    '{replies: [\'[{"agent": "ada", "round": 1, "score": 0.9, "reason": "she leads on"}, '
    '{"agent": "ben", "round": 1, "score": 0.1, "reason": "he does not"}]\']}}\n',
    "agents/gone.yaml": "kind: scripted\noptions: {replies: [x], fail_calls: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}\n",
}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("library")
    for name, text in DEFINITIONS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Library(own=folder)


@pytest.fixture(scope="session")
def played(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("played") / "run"
    asyncio.run(collab.collect(env="corridor", agents="actor", graph="duo", episodes=4, library=library.own, out=out))
    return out


@pytest.fixture
def run(played: Path, tmp_path: Path) -> Path:
    """A copy of one's own, without labels and pairs."""
    shutil.copytree(played, tmp_path / "run")
    return tmp_path / "run"
