"""Runs that Ray workers play: the same as in one process, whatever dies."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import collab
from collab.config import Budget
from collab.errors import RunError, UsageError
from collab.rollout.executors import cluster
from collab.rollout.executors import ray as executor
from collab.rollout.plan import Placement
from collab.rollout.run import resume
from collab.store.fingerprint import describe_package, hash_run
from collab.store.run import RunStore

HAS_RAY = importlib.util.find_spec("ray") is not None
pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_RAY, reason="needs ray: pip install 'collab-marl[ray]'"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]

DEFINITIONS = {
    "envs/corridor.yaml": "backend: fake\nbackends:\n  fake: {kind: fake}\n",
    "envs/slow.yaml": "backend: fake\nbackends:\n  fake: {kind: fake, options: {slow_s: 0.3}}\n",
    "envs/lame.yaml": "backend: strange\nbackends:\n  strange: {kind: 'strange_suites:Lame'}\n",
    "envs/strange.yaml": "backend: strange\nbackends:\n  strange: {kind: 'strange_suites:OtherThere'}\n",
    "envs/shut.yaml": "backend: strange\nbackends:\n  strange: {kind: 'strange_suites:ShutThere'}\n",
    "envs/single.yaml": "backend: strange\nbackends:\n  strange: {kind: 'strange_suites:Single'}\n",
    "envs/deadly.yaml": "backend: strange\nbackends:\n  strange: {kind: 'strange_suites:Deadly'}\n",
    "envs/random.yaml": "backend: strange\nbackends:\n  strange: {kind: 'strange_suites:Random'}\n",
    "envs/joined.yaml": "backend: strange\nbackends:\n  strange: {kind: 'strange_suites:JoinedLater'}\n",
    "agents/erring.yaml": "kind: rehearsal\noptions: {error_base: 0.5}\n",
}
SUITES = '''
"""Suites that behave otherwise in a worker than at the host."""
import os
from collab.errors import EnvironmentFailure
from collab.testing.corridor import CorridorSuite

THERE = "RAY_RAYLET_PID" in os.environ


class OtherThere(CorridorSuite):
    version = "2" if THERE else "1"


class ShutThere(CorridorSuite):
    async def open(self):
        if THERE:
            raise EnvironmentFailure("no browser here")
        return await super().open()


class Single(CorridorSuite):
    most_environments = 1


class Deadly(CorridorSuite):
    def instance(self, name, seed):
        if THERE and name == "TypeWord":
            os._exit(1)
        return super().instance(name, seed)


class Lame(CorridorSuite):
    """A hundred times as slow in one worker."""

    def __init__(self):
        super().__init__(slow_s=0.015 * 100 ** (THERE and is_first()))


def is_first():
    try:
        open(os.environ["STRANGE_FIRST"], "x").close()
    except FileExistsError:
        return False
    return True


class JoinedLater(CorridorSuite):
    """Has another version in the third process alone, as on a machine that joins while others play."""

    def __init__(self):
        super().__init__(slow_s=0.3)
        if THERE:
            with open(os.environ["STRANGE_FIRST"] + "-processes", "a") as file:
                file.write("x")
                self.version = "2" if file.tell() == 3 else "1"


class Random(CorridorSuite):
    capabilities = CorridorSuite.capabilities - {"deterministic"}

    def __init__(self):
        super().__init__(slow_s=0.3)
'''


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Definitions, and a cluster of this process for all tests."""
    folder = tmp_path_factory.mktemp("library")
    for name, text in DEFINITIONS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "strange_suites.py").write_text(SUITES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRANGE_FIRST", str(folder / "first"))
        patch.setenv("PYTHONPATH", str(folder))  # of the workers
        patch.syspath_prepend(str(folder))
        cluster.connect(start=True)
        yield folder


class Taker:
    """An actor that is given something."""

    def __init__(self, given: object) -> None:
        self.given = given

    def ask(self) -> object:
        return self.given


def hash_of(path: Path) -> str:
    return hash_run(RunStore.open(path))


def play(library: Path, out: Path, **changes: object) -> collab.RunResult:
    arguments = {
        **{"env": "corridor", "agents": "erring", "graph": "team", "episodes": 6, "progress": False},
        **{"executor": "ray", "workers": 2, "library": library, "out": out},
    }
    return asyncio.run(collab.collect(**(arguments | changes)))


def play_here(library: Path, out: Path, **changes: object) -> collab.RunResult:
    return play(library, out, executor="local", workers=None, **changes)


def events(path: Path, kind: str) -> list[dict[str, object]]:
    lines = [line for log in sorted((path / "events").glob("*.jsonl")) for line in log.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["type"] == kind]


Playing = Callable[[cluster.WorkerState], bool]


def in_third_step(state: cluster.WorkerState) -> bool:
    return state.episode.startswith("OpenDoors") and state.steps == 2


def hit_worker(playing: Playing, number: signal.Signals) -> None:
    """Send a signal to the first worker that is seen so."""
    for _ in range(600):
        for state in asyncio.run(cluster.read_workers()):
            if playing(state):
                os.kill(state.process, number)
                return
        time.sleep(0.05)
    raise AssertionError("no worker was seen so")


def play_under_fire(
    library: Path,
    out: Path,
    number: signal.Signals = signal.SIGKILL,
    playing: Playing = in_third_step,
    **changes: object,
) -> collab.RunResult:
    """Play while one worker is hit."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        hit = pool.submit(hit_worker, playing, number)
        result = play(library, out, **changes)
        hit.result()
    return result


def test_workers_play_the_same_run_as_one_process(library: Path, tmp_path: Path) -> None:
    here, there = play_here(library, tmp_path / "here"), play(library, tmp_path / "there")
    assert hash_of(tmp_path / "here") == hash_of(tmp_path / "there")
    assert here.progress.spent == there.progress.spent
    assert there.progress.steps == here.progress.steps
    reader = RunStore.open(tmp_path / "there").open_reader()
    assert reader.status == "finished"
    for trajectory in there.trajectories:
        for step in trajectory.steps:
            assert all(reader.read_prefix(utterance.prompt.prefix) for utterance in step.matrix)


def test_a_killed_worker_costs_no_recorded_step(library: Path, tmp_path: Path) -> None:
    here = play_here(library, tmp_path / "here", env="slow")
    there = play_under_fire(library, tmp_path / "there", env="slow")
    assert hash_of(tmp_path / "here") == hash_of(tmp_path / "there")
    assert there.stopped is None
    assert there.report.broken == 0
    assert there.progress.steps == here.progress.steps, "no step is made twice"
    [loss] = there.progress.losses
    assert "its process died; OpenDoors/" in loss
    assert "continues after 2 steps in another worker" in loss
    assert [event["text"] for event in events(tmp_path / "there", "note")] == [loss]
    assert "1 worker replaced" in str(there.progress)
    began = {event["trajectory"]: event["worker"] for event in events(tmp_path / "there", "episode_started")}
    [again] = events(tmp_path / "there", "episode_resumed")
    assert began[again["trajectory"]] != again["worker"], "another process"
    assert loss.startswith(f"{began[again['trajectory']]}: "), "the log names the one that died"


def test_where_no_step_can_be_replayed_the_episode_starts_again(library: Path, tmp_path: Path) -> None:
    play_here(library, tmp_path / "here", env="random")
    there = play_under_fire(library, tmp_path / "there", env="random")
    assert hash_of(tmp_path / "here") == hash_of(tmp_path / "there")
    assert "OpenDoors/0 starts again in another worker" in there.progress.losses[0]
    assert max(event["attempt"] for event in events(tmp_path / "there", "episode_started")) == 1


def test_a_silent_worker_is_replaced(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "BEAT_S", 0.5)
    monkeypatch.setattr(executor, "SILENT_S", 2.0)
    result = play_under_fire(library, tmp_path / "run", signal.SIGSTOP, env="slow")
    assert result.stopped is None
    assert result.report.broken == 0
    assert "it was silent for 2 s; OpenDoors/" in result.progress.losses[0]


def test_steps_stay_recorded_if_no_other_worker_can_be_started(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again first, as a cluster may be busy; then the episode breaks, with the steps that it had."""
    monkeypatch.setattr(executor, "STARTS", 2)
    start_process, late = executor.RayWorker._start_process, [True, True]

    async def start_late(self, waits):
        if waits and late:
            late.pop()
            raise TimeoutError
        return await start_process(self, waits)

    monkeypatch.setattr(executor.RayWorker, "_start_process", start_late)
    result = play_under_fire(library, tmp_path / "run", env="slow")
    assert result.stopped is None
    assert late == []
    (broken,) = [one for one in result.trajectories if one.error is not None]
    assert len(broken.steps) == 2
    assert re.fullmatch(r"worker \d is not ready after 120 s; see what the cluster does .*", broken.error.message)
    resumed = asyncio.run(resume(tmp_path / "run", placement=Placement(executor="local")))
    assert resumed.report.broken == 0


def test_a_machine_that_does_not_fit_and_joins_later_is_passed_over(library: Path, tmp_path: Path) -> None:
    result = play_under_fire(library, tmp_path / "run", env="joined")
    assert (library / "first-processes").read_text() == "xxxx", "the third was refused, the fourth plays on"
    assert result.stopped is None
    assert result.report.broken == 0
    assert len(result.progress.losses) == 1


def test_an_episode_that_kills_its_workers_breaks_alone(library: Path, tmp_path: Path) -> None:
    result = play(library, tmp_path / "run", env="deadly", episodes=3)
    assert result.stopped is None
    broken = {one.id: one.error for one in result.trajectories if one.error is not None}
    assert list(broken) == ["TypeWord/0"]
    assert "3 workers were lost in this episode, the last: worker" in broken["TypeWord/0"].message
    assert len(result.progress.losses) == 2


def test_a_slow_worker_delays_no_other(library: Path, tmp_path: Path) -> None:
    result = play(library, tmp_path / "run", env="lame", episodes=9)
    slow = [one.id for one in result.trajectories if any(step.environment_s > 1 for step in one.steps)]
    assert 1 <= len(slow) <= 2, "the other worker plays on meanwhile"
    order = [str(event["trajectory"]) for event in events(tmp_path / "run", "episode_finished")]
    assert order[-1] == slow[-1]
    assert result.stopped is None


@pytest.mark.parametrize(
    ("env", "kind", "words"),
    [
        ("strange", UsageError, "has version 2 of the environment, this machine 1; install the same there"),
        ("shut", RunError, "no browser here"),
        ("single", UsageError, "workers cannot share fake[corridor], which has 1 environment; use --executor local"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_written(
    library: Path, tmp_path: Path, env: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as refused:
        play(library, tmp_path / "run", env=env)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_worker_with_other_code_is_refused(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same version, as two checkouts are between releases."""
    here = describe_package()
    monkeypatch.setattr("collab.rollout.executors.ray.describe_package", lambda: f"{here[:-4]}xyz)")
    with pytest.raises(UsageError) as refused:
        play(library, tmp_path / "run")
    assert f"has Collab {here}, this machine {here[:-4]}xyz); install the same there" in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_errors_of_ray_are_one_line(library: Path) -> None:
    import ray

    mismatch = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.3\n    Python: 3.10.1\n"
        "This process on node address 10.0.0.2:6379 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
    )
    told = cluster.describe_ray_error(RuntimeError(mismatch))
    assert told == (
        "it runs Ray 2.9.3 on Python 3.10.1, and this machine has Ray 2.60.0 on Python 3.11.7; install the same on all "
        "machines"
    )
    full = ray.exceptions.ObjectStoreFullError("no room")
    in_worker = ray.exceptions.RayTaskError("play", "Traceback", full)
    for error in (full, in_worker, ray.exceptions.OutOfDiskError("no room")):
        assert cluster.is_store_full(error)
        assert cluster.describe_ray_error(error).startswith("Ray's object store and its disk are full; ")
    assert not cluster.is_store_full(ray.exceptions.RayTaskError("play", "Traceback", ValueError("ours")))


@pytest.mark.parametrize("sent", ["class", "argument"])
def test_what_a_machine_has_not_is_named(
    sent: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Collab or an environment's package is not installed on another machine."""
    import ray

    (tmp_path / "only_here.py").write_text("class Here:\n    def ask(self, said=None): return said\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    here = importlib.import_module("only_here")
    actor = ray.remote(here.Here if sent == "class" else Taker).remote(*([] if sent == "class" else [here.Here()]))
    with pytest.raises(ray.exceptions.ActorDiedError) as refused:
        ray.get(actor.ask.remote())
    assert cluster.describe_ray_error(refused.value) == (
        "its process cannot begin: ModuleNotFoundError: No module named 'only_here'; install its package there, or "
        "name its folder in PYTHONPATH"
    )


def test_a_full_store_costs_a_worker_and_no_episode(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first messages of a worker cannot be stored; its episode is played by the next one."""
    import ray

    listen, fills = executor._HostedEpisode.listen, iter([True])

    async def listen_once_full(self, actor, group):
        if next(fills, False):
            raise ray.exceptions.RayTaskError("play", "Traceback", ray.exceptions.OutOfDiskError("no room"))
        return await listen(self, actor, group)

    monkeypatch.setattr(executor._HostedEpisode, "listen", listen_once_full)
    result = play(library, tmp_path / "run", episodes=3)
    assert result.stopped is None
    assert result.report.broken == 0
    [loss] = result.progress.losses
    assert ": Ray's object store and its disk are full; free space in /tmp/ray" in loss


def test_a_budget_stops_workers_and_another_executor_resumes(library: Path, tmp_path: Path) -> None:
    play_here(library, tmp_path / "here", env="slow")
    stopped = play(library, tmp_path / "there", env="slow", budget="minutes=0.02")
    assert stopped.stopped is not None
    assert stopped.stopped.startswith("budget used up")
    result = asyncio.run(resume(tmp_path / "there", placement=Placement(executor="local"), budget=Budget(minutes=5)))
    assert result.stopped is None
    assert hash_of(tmp_path / "here") == hash_of(tmp_path / "there")
