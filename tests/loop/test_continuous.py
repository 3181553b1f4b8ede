"""Trainings that play on while they learn: what waits to be learned, what it costs, and what a resumed one takes up."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.distrl.learner import DistRLLearner
from collab.cli.main import main
from collab.config import Budget
from collab.errors import RunError
from collab.library import Library
from collab.loop import continuous
from collab.loop.config import TrainingConfig
from collab.loop.loop import resume, start
from collab.loop.phases import sum_paid
from collab.loop.record import TrainingDir
from collab.rollout.executors.base import LocalWorker
from collab.store.run import RunStore
from collab.testing.toy_team import configure_toy_training, list_toy_settings, write_library
from collab.view.inspector import Inspector

ASYNC = (
    *("collection=async", "epochs=3", "run.concurrency=4", "determinism=fast"),
    *("held_out.before=false", "held_out.every=9", "held_out.episodes=1", "rl.save_every=200"),
)


@pytest.fixture
def library(finetuned: Path, tmp_path: Path) -> Library:
    return write_library(tmp_path / "library", finetuned)


def configure(library: Library, *settings: str) -> TrainingConfig:
    return asyncio.run(configure_toy_training(library, *ASYNC, *settings, algorithm="distrl", seed=3))


def delay_learning(patch: pytest.MonkeyPatch, wait: Any) -> None:
    """Have every lesson wait for `wait(state, number)` first."""
    make_lesson = DistRLLearner.make_lesson

    async def make_late(self: Any, state: Any, group: str, experience: Any) -> Any:
        await wait(state, experience.number)
        return await make_lesson(self, state, group, experience)

    patch.setattr(DistRLLearner, "make_lesson", make_late)


def count_played_steps(folder: TrainingDir) -> int:
    return sum(
        episode.steps
        for number in (1, 2, 3)
        for episode in RunStore.open(folder.get_epoch(number).rollout).open_reader().list_episodes()
    )


async def wait_for_silence(state: Any, number: int) -> None:
    """Wait until no episode is played any more."""
    quiet = 0
    while quiet < 10:
        await asyncio.sleep(0.05)
        quiet = 0 if any(run.gate.lent for run in state.collection._runs.values()) else quiet + 1


@pytest.mark.medium
def test_workers_do_not_run_ahead_of_a_slow_learner(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long an epoch learns, only the steps of the next one wait, and behind the last epoch nothing begins."""
    delay_learning(monkeypatch, wait_for_silence)
    result = asyncio.run(start(configure(library, "steps=12"), tmp_path / "run", device="cpu"))
    assert result.summary is not None
    # 30, 12 and 12 steps are learned, each with the rest of an episode of at most 3, and 4 workers end what runs.
    assert 54 <= count_played_steps(TrainingDir(result.path)) <= 54 + 3 * 2 + 4 * 3
    assert max(map(int, result.records[-1].metrics["distrl"]["staleness"])) <= 2


@pytest.mark.medium
def test_no_worker_waits_while_a_newer_policy_is_loaded(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes begin with the policy before it until its run can play."""
    start_run, begun = continuous.start, list[int]()

    def count() -> int:
        with RunStore.open(tmp_path / "run/epochs/1/rollout").open_reader() as reader:
            return len(reader.list_episodes())

    async def start_late(config: Any, known: Library, out: Path, **named: Any) -> Any:
        if out.parent.name == "2":
            begun.append(count())
            async with asyncio.timeout(20):
                while count() < begun[0] + 2:
                    await asyncio.sleep(0.05)
            begun.append(count())
        return await start_run(config, known, out, **named)

    monkeypatch.setattr(continuous, "start", start_late)
    result = asyncio.run(start(configure(library, "steps=12"), tmp_path / "run", device="cpu"))
    assert result.summary is not None
    assert len(begun) == 2


@pytest.mark.medium
@pytest.mark.variations
@pytest.mark.parametrize("number", ["2", "1"])
def test_a_policy_that_cannot_be_loaded_ends_the_training(
    number: str, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the one before it plays on; resumed, it is loaded again."""
    start_run = continuous.start

    async def fail(config: Any, known: Library, out: Path, **named: Any) -> Any:
        if out.parent.name == number:
            raise RunError("the disk is gone")
        return await start_run(config, known, out, **named)

    with monkeypatch.context() as patch:
        patch.setattr(continuous, "start", fail)
        with pytest.raises(RunError, match="the disk is gone"):
            asyncio.run(start(configure(library, "steps=12"), tmp_path / "run", device="cpu"))
    assert asyncio.run(resume(tmp_path / "run")).summary is not None


@pytest.mark.medium
def test_no_episode_is_counted_that_will_never_be_played(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """More are planned than any epoch could want, for it ends by its steps."""
    shown, lines, play = list[Any](), list[str](), LocalWorker.play

    async def tell(self: LocalWorker, *parts: Any, **named: Any) -> Any:
        trajectory = await play(self, *parts, **named)
        lines.append(str(shown[-1]))
        return trajectory

    monkeypatch.setattr(LocalWorker, "play", tell)
    asyncio.run(start(configure(library, "steps=12", "epochs=1"), tmp_path / "run", device="cpu", watch=shown.append))
    told = [line for line in lines if "| rollout |" in line]
    assert any(" episodes over, " in line for line in told)
    assert not [line for line in told if re.search(r"\| rollout \| \d+/", line)]

    rollout = tmp_path / "run/epochs/1/rollout"
    with RunStore.open(rollout).open_reader() as reader:
        over = reader.list_episodes()
        solved = sum(one.outcome is not None and one.outcome.success for one in over)
        assert len(over) < (reader.manifest.planned or 0)
    assert main(["runs", "show", str(rollout), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["success"]["episodes"]) == ("finished", len(over))
    assert (found["success"]["successes"], len(found["episodes"])) == (solved, len(over))
    assert main(["runs", "list", str(tmp_path), "--json"]) == 0
    (row,) = [one for one in json.loads(capsys.readouterr().out) if one["run"] == str(rollout)]
    assert (row["done"], row["planned"]) == (len(over), None)
    inspector = Inspector([rollout])
    page = inspector.get_overview(inspector.list_runs().runs[0].id)
    assert (page.run.planned, page.run.success.episodes) == (None, len(over))
    assert sum(one.success.episodes for one in page.tasks) == len(over)


@pytest.mark.slow
def test_episodes_of_the_newest_policy_that_a_process_left_are_played_on(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the next policy is published before the resumed run has loaded its own."""
    stop = asyncio.Event()
    run = tmp_path / "run"
    events = run / "epochs/2/rollout/events"

    def read(kind: str) -> list[str]:
        lines = [line for log in sorted(events.glob("*.jsonl")) for line in log.read_text().splitlines()]
        return [event["trajectory"] for event in map(json.loads, lines) if event["type"] == kind]

    async def stop_in_the_middle(state: Any, number: int) -> None:
        while number == 2 and not set(read("step")) - set(read("episode_finished")):
            await asyncio.sleep(0.01)
        if number == 2:
            stop.set()

    with pytest.MonkeyPatch.context() as patch:
        delay_learning(patch, stop_in_the_middle)
        slow = "run.environment.backends.fake.options.slow_s=0.1"
        config = configure(library, "steps=12", slow, "determinism=exact")
        assert asyncio.run(start(config, run, device="cpu", stop=stop)).summary is None
    begun = set(read("step")) - set(read("episode_finished"))
    assert begun

    resume_run, collections = continuous.resume, list[continuous.ContinuousCollection]()
    begin = continuous.ContinuousCollection.begin

    async def begin_known(self: continuous.ContinuousCollection, number: int, config: Any) -> None:
        collections.append(self)
        await begin(self, number, config)

    async def resume_late(path: Path, **named: Any) -> Any:
        while path.parent.name == "2" and collections[0]._workers.newest < 3:
            await asyncio.sleep(0.01)
        return await resume_run(path, **named)

    monkeypatch.setattr(continuous.ContinuousCollection, "begin", begin_known)
    monkeypatch.setattr(continuous, "resume", resume_late)
    assert asyncio.run(resume(run)).summary is not None
    assert set(read("episode_resumed")) >= begun


@pytest.mark.medium
@pytest.mark.timeout(600)
@pytest.mark.parametrize("collection", ["async", "sync"])
def test_a_lost_worker_is_told_while_it_trains(
    collection: str,
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once each, in rollouts and evaluations, in the line that the run's notes have."""
    played, play = list[str](), LocalWorker.play

    async def lose(self: LocalWorker, episode: Any, network: Any, stage: Any, recorder: Any, **named: Any) -> Any:
        played.append(f"worker {len(played)}: its process died; {episode.id} starts again in another worker")
        named["lost"](played[-1])
        return await play(self, episode, network, stage, recorder, **named)

    monkeypatch.setattr(LocalWorker, "play", lose)
    assert library.own is not None
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    own = (*ASYNC, "epochs=1", "held_out.every=1", f"collection={collection}")
    small = (*list_toy_settings("distrl"), *own, *(["steps=12"] if collection == "async" else []))
    sets = [word for one in small for word in ("--set", one)]
    assert main(["train", "--algo", "distrl", *asked, *sets, "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().err
    assert len(played) > 2
    for one in played:
        assert told.count(f"warning: {one}\n") == 1


@pytest.mark.medium
def test_a_budget_counts_what_is_played_whoever_learns_it(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the play while the first epoch learns, and a resumed process pays for its own episodes alone."""
    config, run = configure(library, "steps=12"), tmp_path / "run"

    def count_tokens() -> int:
        return sum_paid(path.parent for path in run.glob("epochs/*/**/run.json")).tokens

    with pytest.MonkeyPatch.context() as patch:
        delay_learning(patch, wait_for_silence)
        # The 30 steps of the first epoch take some 5,000 tokens, and the 12 that wait behind it 2,000.
        first = asyncio.run(start(config, run, device="cpu", budget=Budget(tokens=6000)))
    assert first.stopped == "budget used up: tokens=6000"
    assert [one.parent.name for one in run.glob("epochs/*/arrivals.json")] == ["1"]
    assert first.spent.tokens == count_tokens()
    assert 6000 <= first.spent.tokens < 6000 + 4 * 200, "a reply of each worker may be on its way"

    before = count_tokens()
    second = asyncio.run(resume(run, budget=Budget(tokens=100_000)))
    assert second.summary is not None
    assert second.spent.tokens == count_tokens() - before
