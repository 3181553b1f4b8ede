"""Ray workers from the command line: a machine that leaves, a host that is killed, a cluster that is not there."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collab.loop.loop import resume
from collab.loop.record import TrainingDir, read_records
from collab.loop.recorded import begin_replay
from collab.store.fingerprint import hash_run
from collab.store.run import RunStore
from collab.testing import toy_team

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray: pip install 'collab-marl[ray]'"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]

DEFINITIONS = {
    "envs/slow.yaml": "backend: fake\nbackends:\n  fake: {kind: fake, options: {slow_s: 0.3}}\n",
    "agents/erring.yaml": "kind: rehearsal\noptions: {error_base: 0.5}\n",
}
RAY = Path(sys.executable).with_name("ray")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in DEFINITIONS.items():
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "library"


def build_settings(address: str) -> dict[str, str]:
    """Return variables of a command: it shows its token to the cluster at that address, or starts one of its own."""
    return {"RAY_AUTH_MODE": "token" if address else "disabled", "RAY_ADDRESS": address, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a command in the background; what is left of it at the end is killed."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*words: str | Path, address: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "collab", *map(str, words)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        begun.append(subprocess.Popen(command, env=os.environ | build_settings(address), **pipes))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


class Machine:
    """A node that `ray start` made as docs/several-machines.md says, with a CPU and a home of its own.

    Args:
        home: holds the token.
        words: options of `ray start`: it is the head, or joins one.
    """

    def __init__(self, home: Path, *words: str) -> None:
        size = ["--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats", "--block"]
        self.home = home
        self.address = ""
        self._log = home / "ray.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [RAY, "start", *words, *size], env=build_home(home), stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        """Wait until it plays its part, and keep the address that others join."""
        for _ in range(1200):
            told = self._log.read_text()
            if "Ray runtime started." in told and "--block" in told:
                if found := re.search(r"ray start --address='([\d.:]+)'", told):
                    self.address = found[1]
                return
            assert self._process.poll() is None, told
            time.sleep(0.1)
        raise AssertionError(self._log.read_text())

    def close(self) -> None:
        """End all its processes at once, as a power cut does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def build_home(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "RAY_AUTH_MODE": "token", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A cluster of one machine, on which the test's commands are typed."""
    home = tmp_path / "north"
    home.mkdir()
    subprocess.run([RAY, "get-auth-token", "--generate"], env=build_home(home), capture_output=True, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("HOME", str(home))
    with contextlib.closing(Machine(home, "--head", "--port=0", f"--ray-client-server-port={port}")) as machine:
        machine.wait()
        yield machine


@pytest.fixture
def other(head: Machine, tmp_path: Path) -> Iterator[Machine]:
    """Another machine, which has the token and joins."""
    home = tmp_path / "south"
    shutil.copytree(head.home / ".ray", home / ".ray")
    with contextlib.closing(Machine(home, f"--address={head.address}")) as machine:
        machine.wait()
        yield machine


def rollout(library: Path, out: Path, *more: str) -> list[str]:
    play = ["--env", "slow", "--agents", "erring", "--graph", "team", "--episodes", "12", "--library", str(library)]
    return ["rollout", *play, "--out", str(out), *more]


def wait_for_steps(run: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(1800):
        if any('"type":"step"' in log.read_text() for log in (run / "events").glob("*.jsonl")):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("no step was made")


def end_of(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, told = process.communicate(timeout=240)
    return process.returncode, out, told


def hash_of(path: Path) -> str:
    return hash_run(RunStore.open(path))


def test_a_machine_that_leaves_costs_no_episode(
    library: Path, tmp_path: Path, start: Start, head: Machine, other: Machine
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert end_of(start(*rollout(library, here)))[0] == 0

    code, _, told = end_of(start(*rollout(library, there, "--executor", "ray", "--workers", "3"), address=head.address))
    assert code == 2
    assert "--workers 3: the Ray cluster has 2 CPUs, and each worker takes one; use --workers 2, or join" in told
    assert not there.exists()

    playing = start(*rollout(library, there, "--executor", "ray", "--workers", "2"), address=head.address)
    wait_for_steps(there, playing)
    code, out, told = end_of(start("workers", "status", "--json", address=head.address))
    assert code == 0, told
    states = json.loads(out)
    assert [state["name"] for state in states] == ["worker 1", "worker 2"]
    assert all(state["environment"] == "1" for state in states)

    other.close()
    code, out, told = end_of(playing)
    assert code == 0, told
    assert "success  100.0%" in out
    assert "(12/12)" in out
    assert "another worker" in told
    assert told.count("warning: worker") == 1
    assert hash_of(here) == hash_of(there)


def test_evaluations_are_played_on_a_cluster(library: Path, tmp_path: Path, start: Start) -> None:
    """Every seed in workers, with the episodes of one process."""
    play = ["--env", "slow", "--agents", "erring", "--graph", "team", "--episodes", "3", "--seeds", "30,31"]
    for place, more in (("here", []), ("there", ["--executor", "ray", "--workers", "2"])):
        code, _, told = end_of(start("eval", *play, "--library", library, "--out", tmp_path / place, *more))
        assert code == 0, told
    for seed in ("seed-30", "seed-31"):
        assert hash_of(tmp_path / "here" / seed) == hash_of(tmp_path / "there" / seed)


TRAIN = """
import asyncio, sys
from pathlib import Path
from collab.library import Library
from collab.loop.loop import start
from collab.testing.toy_team import configure_toy_training

library, out, *settings = sys.argv[1:]
config = configure_toy_training(Library.for_recorded_training(library), *settings, algorithm="distrl", seed=3)
asyncio.run(start(asyncio.run(config), Path(out), device="cpu"))
"""
PLAYED_ON = ("collection=async", "steps=12", "epochs=2", "run.executor=ray", "run.concurrency=2")


@pytest.mark.timeout(600)
def test_a_training_that_plays_on_is_measured_beside_the_workers_that_hold_all_cpus(
    finetuned: Path, tmp_path: Path, head: Machine, other: Machine
) -> None:
    toy_team.write_library(tmp_path / "toy", finetuned)
    played_on = (*PLAYED_ON, "held_out.every=1")
    command = [sys.executable, "-c", TRAIN, str(tmp_path / "toy"), str(tmp_path / "run"), *played_on]
    settings = build_settings(head.address)
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    records = read_records(TrainingDir(tmp_path / "run"), 2)
    assert all(one.success is not None for one in records)


@pytest.mark.timeout(900)
def test_a_training_of_the_command_line_is_killed_twice_and_moved(
    finetuned: Path, tmp_path: Path, start: Start
) -> None:
    """Two workers, then one, then none: it ends with the weights of a training that stayed in one process."""
    toy_team.write_library(tmp_path / "toy", finetuned)
    slow = "run.environment.backends.fake.options.slow_s=0.1"
    held_out = ("held_out.before=false", "held_out.every=9", "held_out.episodes=2")
    settings = (*toy_team.list_toy_settings("distrl"), *held_out, slow)
    play = "train --algo distrl --seed 3 --env corridor --graph single --agents toy --device cpu".split()
    words = [*play, "--library", tmp_path / "toy", *(word for one in settings for word in ("--set", one)), "--out"]
    here, there = tmp_path / "here", tmp_path / "there"
    assert end_of(start(*words, here))[0] == 0

    playing = start(*words, there, "--executor", "ray", "--workers", "2")
    for number, more in ((1, ["--executor", "ray", "--workers", "1"]), (2, ["--executor", "local"])):
        wait_for_steps(there / f"epochs/{number}/rollout", playing)
        playing.kill()
        playing.communicate()
        playing = start("train", "--resume", there, *more)
    code, _, told = end_of(playing)
    assert code == 0, told
    assert "from here on; until now in 1 Ray worker" in told
    moves = TrainingDir(there).read()["moves"]
    assert [(one["executor"], one["concurrency"]) for one in moves] == [("ray", 1), ("local", 1)]
    ends = [[one.hashes["weights"] for one in read_records(TrainingDir(run), 2)[1:]] for run in (here, there)]
    assert ends[0] == ends[1]


@pytest.mark.timeout(600)
def test_a_worker_that_is_killed_costs_a_training_no_episode(finetuned: Path, tmp_path: Path) -> None:
    """Another one plays on, and the training is repeated from its record."""
    toy_team.write_library(tmp_path / "toy", finetuned)
    run = tmp_path / "run"
    slow = ("run.environment.backends.fake.options.slow_s=0.3", "held_out.before=false", "held_out.every=9")
    command = [sys.executable, "-c", TRAIN, str(tmp_path / "toy"), str(run), *PLAYED_ON, *slow]
    training = subprocess.Popen(command, env=os.environ | build_settings(""))
    first = run / "epochs/1/rollout"
    try:
        wait_for_steps(first, training)
        text = "".join(log.read_text() for log in (first / "events").glob("*.jsonl"))
        os.kill(int(re.findall(r"\(process (\d+)\)", text)[-1]), signal.SIGKILL)
        assert training.wait(timeout=240) == 0
    finally:
        training.kill()
    with RunStore.open(first).open_reader() as reader:
        assert all(one.state == "finished" for one in reader.list_episodes())
    assert "its process died; PressButton/" in "".join(log.read_text() for log in (first / "events").glob("*.jsonl"))
    begin_replay(run, tmp_path / "replayed")
    replayed = asyncio.run(resume(tmp_path / "replayed"))
    weights = [
        [one.hashes["weights"] for one in found[1:]] for found in (replayed.records, read_records(TrainingDir(run), 2))
    ]
    assert weights[0] == weights[1]


def test_a_killed_host_is_resumed_without_ray(library: Path, tmp_path: Path, start: Start) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    assert end_of(start(*rollout(library, here)))[0] == 0
    playing = start(*rollout(library, there, "--executor", "ray", "--workers", "2"))
    wait_for_steps(there, playing)
    playing.send_signal(signal.SIGKILL)
    playing.wait()

    code, out, told = end_of(start("runs", "resume", there, "--executor", "local"))
    assert code == 0, told
    assert "(12/12)" in out
    assert hash_of(here) == hash_of(there)


def test_a_cluster_whose_head_dies_loses_nothing(library: Path, tmp_path: Path, start: Start, head: Machine) -> None:
    """Ray ends the host, which is resumed anywhere."""
    here, there = tmp_path / "here", tmp_path / "there"
    assert end_of(start(*rollout(library, here)))[0] == 0
    playing = start(*rollout(library, there, "--executor", "ray", "--workers", "1"), address=head.address)
    wait_for_steps(there, playing)
    head.close()
    code, _, told = end_of(playing)
    assert code == 1
    assert "GCS may have been killed" in told
    code, out, told = end_of(start("runs", "resume", there, "--executor", "local"))
    assert code == 0, told
    assert "(12/12)" in out
    assert hash_of(here) == hash_of(there)


def test_a_cluster_that_is_not_there_is_named(library: Path, tmp_path: Path, start: Start) -> None:
    code, _, told = end_of(start(*rollout(library, tmp_path / "run", "--executor", "ray"), address="127.0.0.1:1"))
    assert code == 2
    assert "error: RAY_ADDRESS=127.0.0.1:1: no Ray cluster answers there" in told
    assert not (tmp_path / "run").exists()

    address = "ray://north:10001"
    code, _, told = end_of(start(*rollout(library, tmp_path / "run", "--executor", "ray"), address=address))
    assert code == 2
    assert (
        "error: RAY_ADDRESS=ray://north:10001: is no address of a cluster's head; on a machine of the cluster" in told
    )

    code, _, told = end_of(start("workers", "status"))
    assert code == 2
    assert "error: RAY_ADDRESS is not set: name the cluster's head" in told


def test_a_machine_without_the_cluster_s_token_is_told_where_it_lies(
    library: Path, tmp_path: Path, start: Start, head: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = rollout(library, tmp_path / "run", "--executor", "ray", "--workers", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    for token in (None, "0" * 64):
        if token is not None:
            monkeypatch.setenv("RAY_AUTH_TOKEN", token)
        code, _, told = end_of(start(*words, address=head.address))
        assert code == 2
        assert f"error: RAY_ADDRESS={head.address}: no Ray cluster admits this process there; copy ~/.ray" in told
        assert not (tmp_path / "run").exists()


def test_a_cluster_with_another_version_of_ray_is_named(library: Path, tmp_path: Path, head: Machine) -> None:
    code = "import ray; ray.__version__ = '9.9.9'; from collab.__main__ import run; run()"
    words = map(str, rollout(library, tmp_path / "run", "--executor", "ray", "--workers", "1"))
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(
        command, env=os.environ | build_settings(head.address), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 2, done.stderr
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("error: ")]
    assert "the cluster cannot be joined: it runs Ray " in line
    assert "and this machine has Ray 9.9.9 on Python " in line
    assert not (tmp_path / "run").exists()


def test_workers_are_counted_only_where_they_play(library: Path, tmp_path: Path, start: Start) -> None:
    code, _, told = end_of(start(*rollout(library, tmp_path / "run", "--workers", "3")))
    assert code == 2
    assert "--workers 3: counts Ray workers, and this run is played in this process; add --executor ray" in told
