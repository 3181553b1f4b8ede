"""A corridor to learn in, a teacher behind a real HTTP server, and a folder of definitions that names both.

A phone as it is for training, a reader with the shipped prompts, and scenes of both kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from collab.data.example import Example, Level
from collab.envs.simphone.suite import SimPhoneSuite
from collab.library import Library, find_builtin_root
from collab.prompts.render import Template, read_templates
from collab.synthesis.config import SynthConfig, SynthesisRequest, configure
from collab.synthesis.conversation import Reader, Talk
from collab.synthesis.oracle_teacher import OracleTeacher
from collab.synthesis.screens import explore, follow
from collab.synthesis.teacher import Scene, TeacherOutput
from collab.testing.fake_server import FakeServer
from collab.testing.scripted import answer_as_teacher

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
        self.says: Callable[[Any], str] = answer_as_teacher

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
def build_config(folder: Path) -> Callable[..., SynthConfig]:
    """The configuration of a small synthesis; anything can be asked for differently."""

    def make(**asked: Any) -> SynthConfig:
        given = {"env": "corridor", "episodes": 6, "screens": 20, **asked}
        return asyncio.run(configure(Library(own=folder), SynthesisRequest(**given)))

    return make


Visit: TypeAlias = Callable[[Scene], Awaitable[None]]


@pytest.fixture(scope="session")
def phones() -> SimPhoneSuite:
    """Phones without the unseen app, as in the train split."""
    return SimPhoneSuite(without=["pro expense"])


@pytest.fixture(scope="session")
def reader() -> Reader:
    return Reader(template=Template("default", read_templates(find_builtin_root() / "prompts" / "default")))


@pytest.fixture(scope="session")
def teacher(reader: Reader) -> OracleTeacher:
    return OracleTeacher(talk=Talk(reader=reader))


@pytest.fixture(scope="session")
def exploring(phones: SimPhoneSuite) -> Callable[..., int]:
    """Explore from a task's start and do something on every scene; how many there were."""

    async def walk(task: str, visit: Visit, steps: int, seed: int) -> int:
        environment, count = await phones.open(), 0
        async for scene in explore(phones, environment, phones.instance(task, 5), seed=seed, steps=steps):
            await visit(scene)
            count += 1
        return count

    def run(task: str, visit: Visit, steps: int = 15, seed: int = 1) -> int:
        return asyncio.run(walk(task, visit, steps, seed))

    return run


@pytest.fixture(scope="session")
def following(phones: SimPhoneSuite) -> Callable[..., int]:
    """Follow a task's solution and do something on every scene; how many there were."""

    async def walk(task: str, visit: Visit, wrong: float, seed: int) -> int:
        environment, count = await phones.open(), 0
        async for scene in follow(phones, environment, phones.instance(task, 5), seed=seed, mistakes=wrong):
            await visit(scene)
            count += 1
        return count

    def run(task: str, visit: Visit, wrong: float = 0.0, seed: int = 1) -> int:
        return asyncio.run(walk(task, visit, wrong, seed))

    return run


@pytest.fixture(scope="session")
def outputs(
    exploring: Callable[..., int], following: Callable[..., int], teacher: OracleTeacher
) -> Callable[[str, Level], list[TeacherOutput]]:
    """What the oracle teaches on some scenes of a task."""

    def make(task: str, level: Level) -> list[TeacherOutput]:
        found: list[TeacherOutput] = []

        async def visit(scene: Scene) -> None:
            found.append(await teacher.teach(scene, level))

        (exploring if level in ("basic", "instruction") else following)(task, visit)
        return found

    return make


@pytest.fixture(scope="session")
def rows(outputs: Callable[[str, Level], list[TeacherOutput]]) -> tuple[Example, ...]:
    """Rows of all levels."""
    levels: tuple[Level, ...] = ("basic", "instruction", "demonstration", "preference")
    return tuple(row for level in levels for output in outputs("SystemWifiTurnOn", level) for row in output.rows)
