"""Hand-made episodes, so that the store is tested without any other room."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from collab.store.manifest import Manifest
from collab.store.run import RunStore, RunWriter
from collab.types import (
    Action,
    ActionMatrix,
    Ballot,
    Box,
    CellRef,
    Element,
    ElementTarget,
    HistoryEntry,
    Observation,
    Outcome,
    ParseFailure,
    PolicyRef,
    PromptRef,
    Sampling,
    Step,
    Task,
    Utterance,
    Vote,
)

AGENTS, ROUNDS = ("ada", "ben"), 2
PREFIX = "5e" * 32


def make_task(name: str = "OpenDoors", seed: int = 7) -> Task:
    return Task(environment="fake", name=name, seed=seed, goal=f"Go through the doors of {name}.", params={"rooms": 2})


def make_screen(title: str = "Room 1", count: int = 3) -> Observation:
    elements = tuple(
        Element(index=index, role="button", label=f"Door {index}", box=Box(0, 100 * index, 1080, 100 * index + 90))
        for index in range(count)
    )
    text = "\n".join(f'button "{element.label}" [{element.index}]' for element in elements)
    return Observation(space="mobile", title=title, elements=elements, text=text, renderer="fake-1")


def make_cell(agent: str, round: int, action: Action | None, **changes: object) -> Utterance:
    failure = None if action else ParseFailure(kind="no_action", detail="no action in the reply")
    fields = {
        "agent": agent,
        "round": round,
        "heard": (CellRef(agent, round - 1),) if round else (),
        "text": "Reason: it is next.\nAction: …",
        "reason": "it is next.",
        "action": action,
        "failure": failure,
        "prompt": PromptRef(prefix=PREFIX, suffix=f"You are {agent}.", layout="1"),
        "policy": PolicyRef(base="tiny"),
        "sampling": Sampling(temperature=0.3),
        "seed": 11,
        "prompt_tokens": 200,
        "completion_tokens": 3,
        "tokens": (5, 6, 7),
        "tokenizer": "tiny-1",
        "logprobs": (-0.5, -0.25, -0.125),
        "latency_s": 0.5,
    }
    return Utterance(**(fields | changes))


def make_step(index: int, *, privileged: bool = False, screen: Observation | None = None) -> Step:
    action = Action(space="mobile", type="click", target=ElementTarget(index=index % 3))
    other = Action(space="mobile", type="input_text", arguments=(("text", "hello"), ("clear_text", True)))
    said = (action, None, action, other)
    places = [(agent, round) for round in range(ROUNDS) for agent in AGENTS]
    cells = tuple(
        make_cell(agent, round, said[number], privileged=privileged) for number, (agent, round) in enumerate(places)
    )
    ballots = (
        Ballot(action=action, cells=(cells[0].cell, cells[2].cell)),
        Ballot(action=other, cells=(cells[3].cell,)),
    )
    return Step(
        index=index,
        observation=screen or make_screen(f"Room {index}"),
        matrix=ActionMatrix(agents=AGENTS, rounds=ROUNDS, edges=(("ada", "ben"),), utterances=cells),
        vote=Vote(
            action=action,
            representative=cells[2].cell,
            ballots=ballots,
            abstained=(cells[1].cell,),
            entropy=0.6365,
            tie=False,
        ),
        executed=action,
        no_action=False,
        history=HistoryEntry(action=f'tap button "Door {index % 3}"', reason="it is next.", effect="the door opened"),
        terminated=False,
        truncated=False,
        info={"effect": "the door opened", "ms": [1, 2.5, None]},
        deliberation_s=1.5,
        environment_s=0.25,
    )


def make_manifest(**changes: object) -> Manifest:
    fields = {"command": "rollout", "config": {"env": "fake", "agents": ["ada", "ben"]}, "seed": 3, "planned": 2}
    return Manifest(**(fields | changes))


def begin(writer: RunWriter, id: str = "OpenDoors/0", **changes: object) -> None:
    task, _, number = id.rpartition("/")
    fields = {"episode": int(number), "epoch": 0, "environment": "fake[doors]", "environment_version": "1"}
    writer.begin_episode(id, make_task(task), **(fields | changes))


def play(writer: RunWriter, id: str = "OpenDoors/0", steps: Sequence[Step] | int = 3, success: bool = True) -> None:
    """A whole episode."""
    begin(writer, id)
    for step in [make_step(index) for index in range(steps)] if isinstance(steps, int) else steps:
        writer.step(id, step)
    outcome = Outcome(
        success=success, score=float(success), reason="all doors are open" if success else "a door is shut"
    )
    writer.end_episode(id, outcome=outcome, final=make_screen("The end", 0), seconds=2.5)


def make_png(color: str = "teal", size: tuple[int, int] = (30, 20)) -> bytes:
    out = io.BytesIO()
    image = Image.linear_gradient("L").resize(size).convert("RGB")
    image.paste(color, (0, 0, size[0] // 2, size[1] // 2))
    image.save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """Builders: task, screen, cell, step, manifest, png; begin and play write an episode."""
    return SimpleNamespace(
        task=make_task,
        screen=make_screen,
        cell=make_cell,
        step=make_step,
        manifest=make_manifest,
        png=make_png,
        begin=begin,
        play=play,
        prefix=PREFIX,
    )


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A new run."""
    return RunStore.create(tmp_path / "run", make_manifest())
