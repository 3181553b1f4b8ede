"""What of an epoch is played: what is no result and is played again, and how far a rollout is."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import collab.loop.loop
import collab.loop.phases as playing_epochs
import collab.loop.policy
import collab.store.manifest
import collab.store.reader
from collab.algorithms.filtered_bc.algorithm import FilteredBC, ImitationLearner
from collab.config import RunConfig
from collab.errors import RunError
from collab.evaluation.metrics import Rate, Report
from collab.library import Library
from collab.loop.interfaces import Labels, Rollout, Update
from collab.loop.loop import resume
from collab.loop.loop import start as train
from collab.loop.phases import (
    evaluate,
    find_settled,
    load_trajectories,
    report_rollout,
    require_measured,
    require_played,
    roll_out,
)
from collab.loop.policy import Policy
from collab.loop.record import TrainingDir
from collab.loop.state import LoopState
from collab.loop.step_budget import count_steps
from collab.rollout.build import with_prompts
from collab.rollout.collector import RolloutProgress
from collab.rollout.plan import resolve_run, run_config
from collab.rollout.run import start
from collab.store.run import RunStore
from collab.testing.corridor import CorridorSuite
from collab.testing.kill_resume import compare_trainings
from collab.types import Usage


async def breaking(library: Library, *settings: str, seed: int = 0) -> RunConfig:
    """Two episodes in a corridor that breaks, one of each task."""
    options = "environment.backends.fake.options"
    broken = [f"{options}.fail_at=0", "tasks=[PressButton, TypeWord]", *(f"{options}.{one}" for one in settings)]
    asked = {"env": "corridor", "graph": "pair", "agents": "show", "episodes": 2, "seed": seed}
    run = run_config(library=library, settings=broken, **asked)
    return with_prompts(await resolve_run(run, once_per_task=False), library)


def reported(library: Library, out: Path, *settings: str) -> Report:
    """These episodes, played."""

    async def play() -> None:
        await start(await breaking(library, *settings), library, out)

    asyncio.run(play())
    return report_rollout(out, None)


def mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing breaks any more."""
    monkeypatch.setattr(CorridorSuite, "fail_at", property(lambda suite: None, lambda suite, step: None), raising=False)


def episodes_of(run: Path) -> dict[str, int]:
    """Episode → its attempt."""
    with RunStore.open(run).open_reader() as reader:
        return {one.id: one.attempt for one in reader.list_episodes()}


def test_where_every_episode_broke_nothing_is_measured_or_learned(
    configure_toy: Any, process: Any, library: Library, tmp_path: Path
) -> None:
    loop, out = process(configure_toy(), tmp_path), tmp_path / "run"
    loop.progress.begin(2)
    with pytest.raises(RunError, match="none of 2 episodes could be played, the first broke with Env") as told:
        require_played(loop, reported(library, out), out)
    assert f"mend that, and play them again with: {loop.folder.resume}; where the policy" in str(told.value)
    assert f"--agents {tmp_path}@epoch1" in str(told.value)
    loop.progress.begin(0)
    with pytest.raises(RunError, match="play them again with") as untrained:
        require_played(loop, reported(library, tmp_path / "untrained"), out)
    assert str(untrained.value).endswith(loop.folder.resume), "no training has harmed a policy yet"
    some = reported(library, tmp_path / "some", "troubled=[TypeWord]")
    assert some.broken == 1
    assert require_played(loop, some, out) is some


def test_no_epoch_is_chosen_where_more_than_two_percent_of_its_episodes_broke(
    configure_toy: Any, process: Any, library: Library, tmp_path: Path
) -> None:
    loop, out = process(configure_toy(), tmp_path), tmp_path / "run"
    some = reported(library, out, "troubled=[TypeWord]")
    with pytest.raises(RunError, match=r"1 of 2 episodes broke \(allowed: 2%\), too many .* broke with Env") as told:
        require_measured(loop, some, out)
    assert str(told.value).endswith(f"mend that, and play them again with: {loop.folder.resume}")
    with pytest.raises(RunError, match="none of 2 episodes could be played"):
        require_measured(loop, reported(library, tmp_path / "lost"), out)
    few = replace(some, planned=Rate(successes=1, episodes=50))
    assert require_measured(loop, few, out) is few
    with pytest.raises(RunError, match="1 of 49 episodes broke"):
        require_measured(loop, replace(some, planned=Rate(successes=1, episodes=49)), out)


def test_what_broke_in_a_measurement_is_played_again_and_nothing_else(
    configure_toy: Any, process: Any, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two held-out seeds each has an episode that broke and one that did not."""
    runs = [asyncio.run(breaking(library, "troubled=[TypeWord]", seed=seed)) for seed in (38, 39)]
    config, folder = configure_toy().model_copy(update={"held_out": runs}), tmp_path / "evaluation"
    monkeypatch.setattr(playing_epochs, "assign_policy", lambda run, policy, determinism: run)

    def measured() -> Report:
        loop = process(config, tmp_path)
        report: Report = asyncio.run(evaluate(loop, None, folder)).report
        return require_measured(loop, report, folder)

    with pytest.raises(RunError, match="2 of 4 episodes broke"):
        measured()
    places = [folder / f"seed-{run.seed}" for run in runs]
    before = [episodes_of(place) for place in places]
    mend(monkeypatch)
    assert measured().broken == 0
    for place, known in zip(places, before, strict=True):
        now = episodes_of(place)
        assert {name for name, attempt in now.items() if known[name] == attempt} == {"PressButton/0"}
    assert measured().broken == 0
    assert [episodes_of(place) for place in places] == [now, now], "nothing is left to be played"


def test_what_could_not_be_played_at_all_is_played_again_and_nothing_else(
    configure_toy: Any, process: Any, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, lost, some = process(configure_toy(), tmp_path), tmp_path / "lost", tmp_path / "some"
    run = run_config(library=library, env="corridor", graph="pair", agents="show", episodes=2)
    reported(library, lost)
    kept = reported(library, some, "troubled=[TypeWord]")
    assert find_settled([lost]) == find_settled([lost, some]) == set()
    assert find_settled([some, tmp_path / "next"]) == {some}, "how many of all broke is not known yet"

    mend(monkeypatch)
    for out in (lost, some):
        asyncio.run(roll_out(loop, run, out, loop.config.method.steps))
    assert len(load_trajectories(lost)) == 2
    assert report_rollout(some, None) == kept
    assert find_settled([lost]) == find_settled([lost, some]) == {lost}


def test_a_rollout_of_so_many_steps_tells_how_far_it_is_in_steps(
    configure_toy: Any, process: Any, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resuming process counts the steps that were there before."""
    seen: list[RolloutProgress] = []
    monkeypatch.setattr(LoopState, "spend", lambda self, spent: seen.append(self.progress.inner))
    run, out = run_config(library=library, env="corridor", graph="pair", agents="show", episodes=600), tmp_path / "run"
    for more in (8, 20):
        before = count_steps(out) if out.exists() else 0
        steps = before + more
        asyncio.run(roll_out(process(configure_toy(), tmp_path), run, out, steps))
        assert (seen[-1].wanted_steps, seen[-1].steps_before) == (steps, before)
        assert steps <= before + seen[-1].steps == count_steps(out)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_epoch_builds_environments_once_and_opens_a_run_once_for_each_that_reads_it(
    configure_finetuned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the checks before it to the evaluation behind it; training gives the environments back."""
    counts = Counter[str]()

    def counted(owner: Any, name: str, what: str) -> None:
        known = getattr(owner, name)

        def count(*asked: Any, **named: Any) -> Any:
            counts[what] += 1
            return known(*asked, **named)

        monkeypatch.setattr(owner, name, count)

    config = configure_finetuned("epochs=1")
    counted(CorridorSuite, "__init__", "suites")
    counted(RunStore, "open", "runs opened")
    counted(collab.store.manifest, "read_manifest", "heads read")
    counted(collab.store.reader, "read_manifest", "heads read")
    counted(collab.loop.loop, "build_first_policy", "first policies")
    counted(collab.loop.policy, "build_first_policy", "first policies")
    result = asyncio.run(train(config, tmp_path / "run", options={"allow_uncalibrated": True}, device="cpu"))
    assert result.stopped is None
    assert counts == {"suites": 3, "runs opened": 6, "heads read": 9, "first policies": 1}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_a_learner_wrote_beside_policies_is_recorded_and_compared(
    configure_finetuned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with a value model of its own, which trains nothing else."""

    class ValueLearner(ImitationLearner):
        async def update(self, state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> Update:
            assert [one.id for one in rollout.trajectories] == [one.id for one in load_trajectories(rollout.path)]
            return Update(
                trained={},
                untrained={"shared": "the value model alone learns"},
                examples={},
                metrics={"value_loss": 0.5},
                spent={"value": Usage(calls=3, prompt_tokens=20, completion_tokens=0, cost_usd=0.25)},
                hashes={"value": "v" * 64},
            )

    class Valued(FilteredBC):
        learner = ValueLearner()

    monkeypatch.setattr("collab.loop.loop.load_algorithm", lambda name: Valued())
    config, out = configure_finetuned("epochs=1", algorithm="filtered-bc"), tmp_path / "run"
    begun = asyncio.run(train(config, out, device="cpu"))
    again = asyncio.run(resume(out))
    assert begun.records == again.records
    record = again.records[1]
    assert list(record.hashes) == ["rollout", "examples", "weights", "value", "evaluation"]
    assert (record.spent["value"].calls, record.spent["value"].cost_usd) == (3, 0.25)
    assert record.metrics == {"value_loss": 0.5}
    assert (1, "value") in [
        (one.epoch, one.part) for one in compare_trainings(TrainingDir(out), TrainingDir(out)) if one.same
    ]
