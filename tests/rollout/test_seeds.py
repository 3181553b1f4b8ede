"""One evaluation over several seeds: what is over stays, what is missing is played, nothing else is taken for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from collab.config import Budget, RunConfig
from collab.errors import RunFormatError, UsageError
from collab.evaluation.report import read_evaluation
from collab.library import Library
from collab.rollout.collector import UsageMeter
from collab.rollout.plan import resolve_run, run_config
from collab.rollout.seeds import SeedRun, compute_remaining, plan_series, play
from collab.store.fingerprint import hash_run
from collab.store.run import RunStore
from collab.types import Usage

DEFINITIONS = {
    "envs/corridor.yaml": "backend: fake\nbackends:\n  fake: {kind: fake}\n",
    "agents/first.yaml": "kind: scripted\noptions:\n  replies:\n"
    '    - \'Reason: it is. Action: {"action_type": "click", "index": 1}\'\n'
    '    - \'Reason: it was. Action: {"action_type": "status", "goal_status": "complete"}\'\n',
}


@pytest.fixture
def library(tmp_path: Path) -> Library:
    for name, text in DEFINITIONS.items():
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Library(own=tmp_path / "library")


def configs(library: Library, *seeds: int, episodes: int = 3, concurrency: int = 1) -> list[RunConfig]:
    made = [
        run_config(
            library=library,
            purpose="eval",
            env="corridor",
            graph="single",
            agents="first",
            episodes=episodes,
            seed=seed,
            concurrency=concurrency,
        )
        for seed in seeds
    ]
    return [asyncio.run(resolve_run(config, once_per_task=False)) for config in made]


def planned(made: list[RunConfig], library: Library, out: Path) -> tuple[SeedRun, ...]:
    return asyncio.run(plan_series(made, library, out))


def states(runs: tuple[SeedRun, ...]) -> list[tuple[str, bool, bool]]:
    return [(run.path.name, run.begun, run.over) for run in runs]


def finish(runs: tuple[SeedRun, ...], library: Library, budget: Budget | None = None) -> None:
    for run in runs:
        if not run.over:
            asyncio.run(play(run, library, budget=budget or Budget()))


def test_a_series_is_played_seed_by_seed_and_resumed(library: Library, tmp_path: Path) -> None:
    out, wanted = tmp_path / "out", configs(library, 30, 31, 32)
    runs = planned(wanted, library, out)
    assert states(runs) == [("seed-30", False, False), ("seed-31", False, False), ("seed-32", False, False)]
    assert not out.exists(), "planning writes nothing"
    finish(runs[:1], library)
    finish(runs[1:2], library, Budget(tokens=1))
    runs = planned(wanted, library, out)
    assert states(runs) == [("seed-30", True, True), ("seed-31", True, False), ("seed-32", False, False)]
    finish(runs, library)
    assert [run.over for run in planned(wanted, library, out)] == [True, True, True]
    found = read_evaluation(out)
    assert list(found.by_seed) == [30, 31, 32]
    assert (found.report.planned.episodes, len(found.report.results)) == (9, 9)
    seeds = [result.seed for result in found.report.results]
    assert len(set(seeds)) == 9, "each seed has instances of its own"


def test_a_run_of_a_series_is_the_run_of_its_seed_alone(library: Library, tmp_path: Path) -> None:
    finish(planned(configs(library, 31), library, tmp_path / "one"), library)
    finish(planned(configs(library, 30, 31), library, tmp_path / "two"), library)
    alone, among = (hash_run(RunStore.open(tmp_path / name / "seed-31")) for name in ("one", "two"))
    assert alone == among


def test_what_was_begun_with_other_settings_is_not_resumed(library: Library, tmp_path: Path) -> None:
    out = tmp_path / "out"
    finish(planned(configs(library, 30), library, out), library)
    with pytest.raises(UsageError, match=r"seed-30: was begun with other settings \(episodes\)"):
        planned(configs(library, 29, 30, episodes=4), library, out)
    assert not (out / "seed-29").exists()
    assert planned(configs(library, 30, concurrency=3), library, out)[0].over, "concurrency decides no episode"


def test_another_version_of_the_environment_is_refused(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = configs(library, 30)
    finish(planned(wanted, library, tmp_path / "out"), library)
    monkeypatch.setattr("collab.testing.corridor.CorridorSuite.version", "2")
    with pytest.raises(UsageError, match="recorded with corridor version 1, this is version 2"):
        planned(wanted, library, tmp_path / "out")


def test_a_run_that_is_being_played_is_left_alone(library: Library, tmp_path: Path) -> None:
    wanted = configs(library, 30)
    finish(planned(wanted, library, tmp_path / "out"), library)
    with (
        RunStore.open(tmp_path / "out" / "seed-30").open_writer(),
        pytest.raises(UsageError, match="is being played by another process"),
    ):
        planned(wanted, library, tmp_path / "out")


def test_mistakes_are_found_before_anything_is_played(library: Library, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run seed 30 is given twice in 30, 31, 30"):
        planned(configs(library, 30, 31, 30), library, tmp_path / "out")
    (run,) = planned(configs(library, 30), library, tmp_path / "out")
    finish((run,), library)
    with pytest.raises(UsageError, match="seed-30: is a run; several seeds need a folder"):
        planned(configs(library, 30, 31), library, run.path)
    (tmp_path / "out" / "seed-31").mkdir()
    assert not planned(configs(library, 31), library, tmp_path / "out")[0].begun, "an empty folder is in nobody's way"
    (tmp_path / "out" / "seed-31" / "thesis.txt").write_text("two years of work")
    with pytest.raises(RunFormatError, match="seed-31: not a run directory"):
        planned(configs(library, 30, 31), library, tmp_path / "out")


def test_a_budget_is_for_all_seeds_together() -> None:
    progress = UsageMeter(spent=Usage(prompt_tokens=600, completion_tokens=100, cost_usd=0.5))
    left = compute_remaining(Budget(tokens=1000, usd=2), progress)
    assert left is not None
    assert (left.tokens, left.usd, left.minutes) == (300, 1.5, None)
    assert compute_remaining(Budget(tokens=700), progress) is None
    assert compute_remaining(Budget(usd=0.25, tokens=1000), progress) is None
    assert compute_remaining(Budget(), progress) == Budget()
    hours = compute_remaining(Budget(minutes=60), progress)
    assert hours is not None
    assert hours.minutes == pytest.approx(60, abs=0.1)
