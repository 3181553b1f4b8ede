"""An overview made by hand, so that what is drawn and told of it can be counted, and runs that are really recorded."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.loop.record import EpochRecord, TrainingDir
from collab.store.run import RunStore
from collab.trainers.rl.step_estimates import StepEstimate, write_estimates
from collab.utils.files import write_json
from collab.view.inspector import Inspector
from collab.view.schema.runs import (
    EpochView,
    GraphView,
    HeatView,
    MetricView,
    RateView,
    RunOverview,
    RunRow,
    RunView,
    SpendingView,
    TaskRateView,
    TrainedView,
)

AGENTS = ("ada", "ben")


def rate(successes: int, episodes: int) -> RateView:
    share = successes / episodes
    return RateView(
        successes=successes,
        episodes=episodes,
        value=share,
        low=max(0.0, share - 0.1),
        high=min(1.0, share + 0.1),
    )


def make_row(**changes: object) -> RunRow:
    fields: dict[str, object] = {
        "id": "marl",
        "path": "runs/marl",
        "kind": "training",
        "unreadable": None,
        "command": "train",
        "algorithm": "collabuiagents",
        "environment": "androidworld[simphone]",
        "graph": "team",
        "agents": "pocket",
        "seed": "7",
        "created": "2026-11-20T12:00:00.000Z",
        "updated": "2026-11-20T12:30:00.000Z",
        "status": "finished",
        "privileged": False,
        "planned": 2,
        "done": 2,
        "episodes": 90,
        "broken": 0,
        "success": rate(30, 50),
        "success_of": "on held-out seeds after epoch 2",
        "replies": 5760,
        "without_action": 12,
        "sampling": "temperature 1.5",
        "steps": 480,
        "calls": 5760,
        "prompt_tokens": 90000,
        "completion_tokens": 8000,
        "cost_usd": None,
        "seconds": 61.5,
        "problems": 0,
    }
    return RunRow(**(fields | changes))


def make_epoch(number: int, **changes: object) -> EpochView:
    fields: dict[str, object] = {
        "epoch": number,
        "over": True,
        "played": rate(20 + number, 40),
        "measured": rate(25 + number, 50),
        "steps": 240,
        "rewards": HeatView(agents=AGENTS, rounds=2, rates=((0.25, 0.5), (0.75, None)), critic="oracle-2"),
        "missing": {"not parsed": 3},
        "agreement": 0.5 + 0.1 * number,
        "entropy": 0.9 - 0.1 * number,
        "ties": 4,
        "failures": {"malformed": 2, "no_action": 1},
        "pairs": {"adversary": 100 * number, "contrast": 40},
        "unpaired": {"no source had a worse reply": 7},
        "older": 0,
        "trained": (
            TrainedView(
                policy="shared",
                metrics={
                    "loss": MetricView(title="Loss", value=0.175, points=[(step, 0.7 / step) for step in range(1, 5)]),
                    "margin": MetricView(
                        title="Margin", value=0.4, points=[(step, 0.1 * step) for step in range(1, 5)]
                    ),
                    "accuracy": MetricView(title="Accuracy", value=0.875, points=()),
                },
                steps=4,
                tokens=12345,
                untrained=None,
                alarm=None,
            ),
        ),
        "spent": (
            SpendingView(
                part="rollout",
                seconds=20.0,
                seconds_note=None,
                calls=2880,
                prompt_tokens=40000,
                completion_tokens=4000,
                cost_usd=None,
            ),
            SpendingView(
                part="training",
                seconds=None,
                seconds_note="not known: the training was resumed, and no log tells it",
                calls=0,
                prompt_tokens=12345,
                completion_tokens=None,
                cost_usd=None,
            ),
        ),
        "graph": GraphView(
            agents=AGENTS, edges=(("ada", "ben"),), layers=(("ada",), ("ben",)), added=(), removed=(("ben", "ada"),)
        ),
        "runs": (),
    }
    return EpochView(**(fields | changes))


@pytest.fixture
def overview() -> RunOverview:
    tasks = (
        TaskRateView(name="ContactsAddContact", difficulty="easy", success=rate(9, 10)),
        TaskRateView(name="ExpenseDeleteSingle", difficulty=None, success=rate(1, 10)),
    )
    return RunOverview(run=make_row(), labels=None, tasks=tasks, epochs=(make_epoch(1), make_epoch(2)), best=2)


@pytest.fixture
def one_epoch(overview: RunOverview) -> RunOverview:
    run = make_row(kind="run", command="rollout", planned=50, done=50)
    return replace(overview, run=run, epochs=(make_epoch(0, measured=None, trained=()),), best=None)


@pytest.fixture
def view_of() -> Callable[[RunOverview], RunView]:
    def make(overview: RunOverview) -> RunView:
        return RunView(
            run=overview.run,
            training=None,
            parts=(),
            versions={"python": "3.11.7", "collab": "0.1.0"},
            label_sets=(),
            pair_sets=(),
            config="{}",
        )

    return make


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a team on the phone that is judged by the oracle and paired; copy it before you change it."""
    run = tmp_path_factory.mktemp("recorded") / "team"
    played = ["--env", "androidworld", "--agents", "rehearsal", "--graph", "team", "--out", str(run)]
    tasks = ["--tasks", "ClockStopWatchRunning,ContactsAddContact", "--episodes", "3", "--set", "graph.rounds=2"]
    assert main(["rollout", *played, *tasks]) == 0
    assert main(["pairs", "rebuild", str(run)]) == 0
    return run


@pytest.fixture
def estimated(recorded: Path, tmp_path: Path) -> TrainingDir:
    """A training of two epochs whose first rollout was estimated in both; of its steps, every second one is learned.

    V of step s in epoch e is (e + s)/10, and of its task 0.9; all else follows from these.
    """
    folder = TrainingDir(tmp_path / "runs" / "estimated")
    folder.path.mkdir(parents=True)
    learning = {"algorithm": "digirl", "preset": "sound", "method": {"epochs": 2}, "run": {}}
    folder.write({"config": learning, "created": "2026-11-22T00:00:00.000Z"})
    with RunStore.open(recorded).open_reader() as reader:
        played = [(one.id, one.steps) for one in reader.list_episodes()]
    for number in (1, 2):
        epoch = folder.get_epoch(number)
        shutil.copytree(recorded, epoch.rollout)
        lesson = epoch.examples / "shared"
        lesson.mkdir(parents=True)
        estimates = [
            make_estimate(number, trajectory, step, steps) for trajectory, steps in played for step in range(steps)
        ]
        write_estimates(estimates, lesson)
        write_json(lesson / "order.json", {"digest": "", "weights": [], "steps": []})
        kept = sum(one.weight > 0 for one in estimates)
        quality = {"steps": 5, "loss": 0.5, "trained": 4, "curve": []}
        metrics = {
            "solved": 3,
            "remembered": {"episodes": len(played), "steps": len(estimates)},
            "kept": {"episodes": 2, "steps": kept},
            "left_out": {HOSTILE: len(estimates) - kept},
            "values": {
                "instruct": {**quality, "held_out": 2, "accuracy": 0.5, "auc": None, "ece": 0.25 * number},
                "step": {**quality, "held_out": 9, "accuracy": 0.75, "auc": 0.625, "ece": 0.125},
            },
        }
        record = EpochRecord(algorithm="digirl", epoch=number, version=number, weights={}, metrics=metrics, hash="")
        write_json(epoch.record, record.model_dump(mode="json"))
    return folder


HOSTILE = "<img src=x onerror=alert(1)> \u202e"
"""A reason as nobody would give it."""


def make_estimate(number: int, trajectory: str, step: int, steps: int) -> StepEstimate:
    """The estimate of a step in an epoch."""
    value = (number + step) / 10
    return StepEstimate(
        run="./epochs/1/rollout",
        trajectory=trajectory,
        step=step,
        reward=1.0,
        value=value,
        value_next=value + 0.1 if step + 1 < steps else 0.0,
        instruct_value=0.9,
        instruct_advantage=0.1,
        advantage=1 - value,
        threshold=0.05,
        weight=float(step % 2 == 0),
        why="kept" if step % 2 == 0 else HOSTILE,
    )


@pytest.fixture(scope="session")
def inspector(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspector]:
    """Looks into that run."""
    one = Inspector([recorded], index_cache=tmp_path_factory.mktemp("index_cache"))
    yield one
    one.close()


@pytest.fixture
def inspect(tmp_path: Path) -> Iterator[Callable[[Path], Inspector]]:
    """Opens a run with a cache of the test's own."""
    opened: list[Inspector] = []

    def make(path: Path) -> Inspector:
        opened.append(Inspector([path], index_cache=tmp_path / "index_cache"))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@dataclass
class Report(HTMLParser):
    """A report as a browser takes it apart."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Content of scripts and styles, by id or tag."""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._in: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        self._in = (given.get("id") or tag) if tag in ("script", "style", "title") else None

    def handle_endtag(self, tag: str) -> None:
        self._in = None

    def handle_data(self, data: str) -> None:
        if self._in is not None:
            self.texts[self._in] = self.texts.get(self._in, "") + data

    @property
    def data(self) -> Any:
        """What stands open."""
        return json.loads(self.texts["collab-data"])

    def part(self, number: int) -> dict[str, Any]:
        """The answers about one episode."""
        packed = base64.b64decode(json.loads(self.texts[f"collab-part-{number}"]))
        return json.loads(gzip.decompress(packed))

    @property
    def answers(self) -> dict[str, Any]:
        """All of them."""
        found = dict(self.data["answers"])
        for number in self.data["parts"].values():
            found |= self.part(number)
        return found


@pytest.fixture(scope="session")
def read_report() -> Callable[[Path], Report]:
    def read(path: Path) -> Report:
        report = Report()
        report.feed(path.read_text(encoding="utf-8"))
        report.close()
        return report

    return read


@pytest.fixture
def offline() -> Iterator[Callable[[Path], tuple[Any, list[str], list[str]]]]:
    """Opens a file in a browser without a network: (page, what it said, what it asked for)."""
    from playwright.sync_api import sync_playwright

    from collab.envs.web.browser import find_browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser().path, args=["--no-sandbox"])
        context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})

        def open_offline(path: Path) -> tuple[Any, list[str], list[str]]:
            page = context.new_page()
            said: list[str] = []
            asked: list[str] = []
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("dialog", lambda dialog: said.append(dialog.message))
            page.on("request", lambda request: asked.append(request.url.partition("#")[0][:60]))
            page.goto(path.as_uri())
            return page, said, asked

        yield open_offline
        browser.close()
