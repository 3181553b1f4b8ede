"""Host and workers without Ray: the actors live in this process, behind a stand-in for Ray that passes messages on."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

import collab
from collab.errors import UsageError
from collab.models.base import Capabilities, Reply, Request
from collab.rollout.executors import ray as host
from collab.rollout.executors import worker
from collab.rollout.executors.worker import WorkerActor
from collab.store.events import Record
from collab.store.fingerprint import hash_run
from collab.store.run import RunStore
from collab.testing.scripted import ScriptedModel
from collab.utils.concurrency import get_latest_doing

DEFINITIONS = {
    "envs/corridor.yaml": "backend: fake\nbackends:\n  fake: {kind: fake}\n",
    "agents/erring.yaml": "kind: rehearsal\noptions: {error_base: 0.5}\n",
}


class NotingModel(ScriptedModel):
    """Opens an app and goes home, so that screens change, and keeps what it was asked."""

    asked: ClassVar[list[Request]] = []
    running: ClassVar[int] = 0
    most_at_once: ClassVar[int] = 0

    def __init__(self) -> None:
        opening, leaving = '{"action_type": "open_app", "app_name": "Contacts"}', '{"action_type": "navigate_home"}'
        super().__init__(replies=[f"Action: {action}" for action in (opening, leaving, leaving)])

    async def probe(self) -> Capabilities:
        return Capabilities(images=True)

    async def generate(self, request: Request) -> Reply:
        self.asked.append(request)
        NotingModel.running += 1
        NotingModel.most_at_once = max(NotingModel.most_at_once, NotingModel.running)
        await asyncio.sleep(0.01)
        NotingModel.running -= 1
        return await super().generate(request)

    @classmethod
    def take(cls) -> list[dict[str, Any]]:
        """Return what was asked since the last time, without clocks."""
        found = [{one.name: getattr(request, one.name) for one in dataclasses.fields(Request)} for request in cls.asked]
        cls.asked.clear()
        return [{**request, "clock": None} for request in found]


class RayError(Exception):
    """As Ray's own."""


class ActorDiedError(RayError):
    """As Ray's own."""


class Handle:
    """An actor's handle; a dead one's calls fail, also those that wait."""

    def __init__(self, actor: WorkerActor, dies_after: int | None) -> None:
        self._actor, self._left = actor, dies_after
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(remote=self._follow if name == "play" else lambda *given: self._call(name, given))

    def kill(self) -> None:
        if not self.death.done():
            self.death.set_result(None)

    def _call(self, name: str, given: tuple[Any, ...]) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._await(getattr(self._actor, name)(*given)))

    async def _follow(self, order: Any) -> AsyncIterator[asyncio.Future[Any]]:
        stream = self._actor.play(order)
        while True:
            if self._left == 0:
                self.kill()
            try:
                messages = await self._await(anext(stream))
            except StopAsyncIteration:
                return
            steps = sum(b'"type":"step"' in getattr(message, "line", b"") for message in messages)
            if self._left is not None:
                self._left = max(0, self._left - steps)
            yield asyncio.ensure_future(asyncio.sleep(0, messages))

    async def _await(self, work: Any) -> Any:
        answer = asyncio.ensure_future(work)
        await asyncio.wait((answer, self.death), return_when=asyncio.FIRST_COMPLETED)
        if self.death.done():
            answer.cancel()
            raise ActorDiedError("its process is gone")
        return answer.result()


class StandIn:
    """A stand-in for Ray: a cluster with two CPUs."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.dies_after: list[int] = []
        """Steps after which the next actors die; none where it is empty."""
        kinds = ("RayTaskError", "ActorUnavailableError", "ObjectStoreFullError", "OutOfDiskError")
        exceptions = {name: type(name, (RayError,), {}) for name in kinds}
        self.module = ModuleType("ray")
        for name, part in {
            "exceptions": SimpleNamespace(RayError=RayError, ActorDiedError=ActorDiedError, **exceptions),
            "remote": lambda kind: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._start)),
            "kill": lambda handle: handle.kill(),
            "cluster_resources": lambda: {"CPU": 2.0},
        }.items():
            setattr(self.module, name, part)

    def _start(self, spec: Any) -> Handle:
        dies_after = self.dies_after.pop(0) if self.dies_after else None
        self.handles.append(Handle(WorkerActor(spec), dies_after))
        return self.handles[-1]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    found = StandIn()
    monkeypatch.setitem(sys.modules, "ray", found.module)
    monkeypatch.setattr(host, "connect", lambda *, start: True)
    return found


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., collab.RunResult]:
    for name, text in DEFINITIONS.items():
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(out: str, **changes: Any) -> collab.RunResult:
        asked = {"env": "corridor", "agents": "erring", "graph": "team", "episodes": 3, "progress": False} | changes
        return asyncio.run(collab.collect(library=tmp_path / "library", out=tmp_path / out, **asked))

    return run


def hash_of(result: collab.RunResult) -> str:
    return hash_run(RunStore.open(result.path))


def test_host_and_workers_play_the_run_of_one_process(ray: StandIn, play: Callable[..., collab.RunResult]) -> None:
    """With its replies, texts and usage; the models answer at the host, and each step is recorded before the next."""
    here, there = play("here"), play("there", executor="ray", workers=2)
    assert hash_of(here) == hash_of(there)
    assert here.progress.spent == there.progress.spent
    assert there.progress.steps == here.progress.steps
    assert len(ray.handles) == 2
    reader = RunStore.open(there.path).open_reader()
    assert {one.worker.split(" on ")[0] for one in reader.list_plays()} == {"worker 1", "worker 2"}
    for trajectory in there.trajectories:
        for step in trajectory.steps:
            assert all(reader.read_prefix(utterance.prompt.prefix) for utterance in step.matrix)


def test_a_lost_worker_is_replaced_and_its_episode_goes_on(ray: StandIn, play: Callable[..., collab.RunResult]) -> None:
    ray.dies_after = [1]
    here, there = play("here"), play("there", executor="ray", workers=1)
    assert hash_of(here) == hash_of(there)
    assert there.progress.steps == here.progress.steps, "no step is made twice"
    assert len(ray.handles) == 2
    (loss,) = there.progress.losses
    assert loss.endswith("continues after 1 step in another worker")
    assert ": its process died; " in loss


@pytest.mark.parametrize(
    "agent",
    [
        {"modality": "both", "prompt": "m3a", "step_summaries": "true"},
        {"modality": "image", "dialect": "ui-tars-1.5"},
        {"modality": "image", "dialect": "qwen3-vl"},
    ],
    ids=["the screens before and after", "points in pixels of a fitted picture", "points of a grid"],
)
def test_models_see_what_they_see_in_one_process(
    ray: StandIn, play: Callable[..., collab.RunResult], tmp_path: Path, agent: dict[str, str]
) -> None:
    words = "".join(f"{name}: {value}\n" for name, value in agent.items())
    file = tmp_path / "noting.yaml"
    file.write_text(f"kind: 'tests.rollout.test_ray_in_process:NotingModel'\nsampling: {{temperature: 0}}\n{words}")
    phone = {"env": "androidworld", "tasks": "ContactsAddContact", "episodes": 1, "graph": "single"}
    choices = {**phone, "agents": str(file), "settings": ["environment.limits.max_steps=3"], "concurrency": 1}
    here = play("here", **choices)
    alone = NotingModel.take()
    there = play("there", executor="ray", workers=1, **choices)
    assert NotingModel.take() == alone
    assert all(request["images"] for request in alone)
    assert len({len(request["images"]) for request in alone}) == 1 + ("step_summaries" in agent)
    assert alone[0]["has_pixel_points"] == (agent.get("dialect") == "ui-tars-1.5")
    assert hash_of(here) == hash_of(there)


def test_it_is_told_how_many_workers_are_ready(
    ray: StandIn, play: Callable[..., collab.RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each starts behind the one before here, and says what is shown meanwhile."""
    start, mutex, told = host.RayWorker.start, asyncio.Lock(), list[str]()

    async def start_in_turn(self: host.RayWorker) -> None:
        async with mutex:
            await asyncio.sleep(0)
            doing = get_latest_doing()
            assert doing is not None
            told.append(doing.what)
            await start(self)

    monkeypatch.setattr(host.RayWorker, "start", start_in_turn)
    play("run", executor="ray", workers=2)
    assert told == ["starting 2 workers on 2 CPUs", "starting 2 workers on 2 CPUs: 1 ready"]


def test_calls_of_all_workers_meet_in_one_model(
    ray: StandIn, play: Callable[..., collab.RunResult], tmp_path: Path
) -> None:
    file = tmp_path / "noting.yaml"
    file.write_text("kind: 'tests.rollout.test_ray_in_process:NotingModel'\n")
    NotingModel.most_at_once = 0
    play("run", agents=str(file), graph="single", executor="ray", workers=2, episodes=4)
    NotingModel.take()
    assert NotingModel.most_at_once == 2


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda line: b"no line", "it sent a line that cannot be recorded: "),
        (lambda line: line.replace(b'"index":0', b'"index":7'), "it sent step 7 after 0 steps"),
    ],
    ids=["no event", "a step too far"],
)
def test_a_line_that_cannot_be_recorded_costs_a_worker(
    ray: StandIn,
    play: Callable[..., collab.RunResult],
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[bytes], bytes],
    why: str,
) -> None:
    """Another one plays the episode."""
    without_secrets, spoilt = worker.without_secrets, list[bytes]()

    def write(record: Record, secrets: Any) -> tuple[Record, bytes]:
        record, line = without_secrets(record, secrets)
        if spoilt or b'"type":"step"' not in line:
            return record, line
        spoilt.append(line)
        return record, spoil(line)

    here = play("here")
    monkeypatch.setattr(worker, "without_secrets", write)
    there = play("there", executor="ray", workers=1)
    assert hash_of(here) == hash_of(there)
    (loss,) = there.progress.losses
    assert why in loss


@pytest.mark.parametrize(("hold_s", "together"), [(60.0, True), (0.01, False)])
def test_a_step_waits_shortly_for_the_call_behind_it(
    monkeypatch: pytest.MonkeyPatch, hold_s: float, together: bool
) -> None:
    monkeypatch.setattr(worker, "HOLD_S", hold_s)
    step, call = worker.Line(b"a step", is_step=True), worker.AdmitCall(number=0)
    nothing: Any = None
    order: Any = SimpleNamespace(episode=SimpleNamespace(id="OpenDoors/0"), done=())

    async def play(order: Any, send: Callable[[Any], None]) -> None:
        send(step)
        await asyncio.sleep(0.3)
        send(call)

    async def listen() -> list[list[Any]]:
        actor = WorkerActor(worker.WorkerSpec(name="one", config=nothing, policies={}, folder=Path.cwd()))
        monkeypatch.setattr(actor, "_play", play)
        return [messages async for messages in actor.play(order) if messages]

    assert asyncio.run(listen()) == ([[step, call]] if together else [[step], [call]])


def test_what_a_cluster_has_no_room_for_is_refused(ray: StandIn, play: Callable[..., collab.RunResult]) -> None:
    with pytest.raises(UsageError, match=r"^--workers 3: the Ray cluster has 2 CPUs, .*; use --workers 2, or join"):
        play("run", executor="ray", workers=3)
    assert not ray.handles
