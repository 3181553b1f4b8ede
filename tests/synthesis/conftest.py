"""A corridor to learn in, a teacher behind a real HTTP server, and a folder of definitions that names both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collab.library import Library
from collab.synthesis.config import SynthConfig, Wish, configure
from collab.testing.fake_server import FakeServer
from collab.testing.teacher import corridor_teacher

ENVIRONMENTS = {
    "corridor": "backend: fake\nbackends:\n  fake: {kind: fake}\n",
    "slow": "backend: fake\nbackends:\n  fake: {kind: fake, options: {slow_s: 0.002}}\n",
    "guarded": "backend: fake\nbackends:\n  fake: {kind: fake}\nunseen: {words: [teapot]}\n",
    "leaking": "backend: fake\nbackends:\n  fake: {kind: fake}\nunseen: {words: [room]}\n",
    "broken": "backend: fake\nbackends:\n  fake: {kind: fake, options: {fail_at: 0}}\n",
    "partly": "backend: fake\nbackends:\n  fake: {kind: fake, options: {fail_at: 0, troubled: [TypeWord]}}\n",
}


class Voice:
    """What the server says; tests exchange it."""

    def __init__(self) -> None:
        self.says: Callable[[Any], str] = corridor_teacher

    def __call__(self, body: Any) -> str:
        return self.says(body)


@pytest.fixture
def voice() -> Voice:
    return Voice()


@pytest.fixture
def server(voice: Voice) -> Iterator[FakeServer]:
    with FakeServer(supports={"seed"}, says=voice) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, server: FakeServer) -> Path:
    """A library of one's own."""
    (tmp_path / "library" / "envs").mkdir(parents=True)
    (tmp_path / "library" / "agents").mkdir()
    for name, text in ENVIRONMENTS.items():
        (tmp_path / "library" / "envs" / f"{name}.yaml").write_text(text)
    options = f"{{model: fake, base_url: '{server.url}', retries: 0, timeout_s: 5}}"
    (tmp_path / "library" / "agents" / "tutor.yaml").write_text(f"kind: openai\noptions: {options}\n")
    return tmp_path / "library"


@pytest.fixture
def wanted(folder: Path) -> Callable[..., SynthConfig]:
    """The configuration of a small synthesis; anything can be asked for differently."""

    def make(**asked: Any) -> SynthConfig:
        wish = {"env": "corridor", "episodes": 6, "screens": 20, **asked}
        return asyncio.run(configure(Library(own=folder), Wish(**wish)))

    return make
