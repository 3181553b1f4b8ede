"""A corridor whose steps have a known worth, and a critic behind a real HTTP server that says what tests like."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from collab.library import Library
from collab.rewards.calibration.config import CalibrationConfig, CalibrationRequest, configure
from collab.testing.fake_server import FakeServer

Score = Callable[[int, dict[str, Any]], float]
"""(place in the list, proposal) → score."""


def read_proposals(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The proposals that a request asks about; none of a probe."""
    lines = re.findall(r'^\{"agent".*\}$', str(body["messages"][-1]["content"]), re.MULTILINE)
    return [json.loads(line) for line in lines]


class Voice:
    """What the server says: scores by `score`, or any words by `says`; tests exchange either."""

    def __init__(self) -> None:
        self.score: Score = lambda place, one: 0.9 if "complete" in one["action"] else 0.2
        self.says: Callable[[Mapping[str, Any]], str] = self._scores

    def __call__(self, body: Mapping[str, Any]) -> str:
        return self.says(body)

    def _scores(self, body: Mapping[str, Any]) -> str:
        return json.dumps(
            {"scores": [{**one, "score": self.score(place, one)} for place, one in enumerate(read_proposals(body))]}
        )


@pytest.fixture
def voice() -> Voice:
    return Voice()


@pytest.fixture
def server(voice: Voice) -> Iterator[FakeServer]:
    with FakeServer(supports={"seed"}, says=voice) as running:
        yield running


@pytest.fixture
def questions(server: FakeServer) -> Callable[[], int]:
    """How many the server was asked so far, probes left out."""
    return lambda: sum(bool(read_proposals(body)) for body in server.requests)


@pytest.fixture
def folder(tmp_path: Path, server: FakeServer) -> Path:
    """A library of one's own: an environment, a critic that asks the server, and a speaker."""
    for name in ("envs", "agents"):
        (tmp_path / "library" / name).mkdir(parents=True)
    (tmp_path / "library" / "envs" / "corridor.yaml").write_text("backend: fake\nbackends:\n  fake: {kind: fake}\n")
    broken = "backend: fake\nbackends:\n  fake: {kind: fake, options: {fail_at: 0}}\n"
    (tmp_path / "library" / "envs" / "broken.yaml").write_text(broken)
    engine = f"{{kind: openai, options: {{model: fake, base_url: '{server.url}', retries: 0, timeout_s: 5}}}}"
    (tmp_path / "library" / "agents" / "judge.yaml").write_text(f"kind: llm\noptions: {{model: {engine}}}\n")
    return tmp_path / "library"


@pytest.fixture
def build_config(folder: Path) -> Callable[..., CalibrationConfig]:
    """The configuration of a small calibration; anything can be asked for differently."""

    def make(**other: Any) -> CalibrationConfig:
        given = {"env": "corridor", "critic": "judge", "cases": 4, "settings": ["permutations=1"], **other}
        return asyncio.run(configure(Library(own=folder), CalibrationRequest(**given)))

    return make
