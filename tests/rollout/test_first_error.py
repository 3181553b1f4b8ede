"""Runs whose episodes end with their first error, beside whole ones of the same seeds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import collab
from collab.cli.main import main
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.solution import SolutionScorer
from collab.errors import UsageError
from collab.types import Trajectory

STOP = "environment.limits.stop_at_first_error=true"


def play(out: Path, *settings: str, seed: int = 3, **more: object) -> collab.RunResult:
    return asyncio.run(
        collab.collect(
            env="androidworld", graph="single", agents="rehearsal", tasks="tag:oracle", episodes=12, seed=seed, out=out,
            settings=["agents.*.sampling.temperature=0.2", *settings], progress=False, **more,
        )
    )  # fmt: skip


async def find_first_error(trajectory: Trajectory) -> int | None:
    """The first step that leads nowhere by the environment's own solution, counted on the environment itself."""
    suite = SimPhoneSuite()
    environment = await suite.open()
    await environment.reset(suite.instance(trajectory.task.name, trajectory.task.seed))
    try:
        for step in trajectory.steps:
            if (await SolutionScorer(environment)(step.executed)).score <= 0.5:
                return step.index
            await environment.step(step.executed)
        return None
    finally:
        await environment.close()
        await suite.close()


@pytest.mark.medium
def test_episodes_are_those_of_a_whole_run_up_to_the_first_error(tmp_path: Path) -> None:
    cut, whole = play(tmp_path / "cut", STOP), play(tmp_path / "whole")
    erred = 0
    for short, long in zip(cut.trajectories, whole.trajectories, strict=True):
        assert [step.executed for step in short.steps] == [step.executed for step in long.steps[: len(short.steps)]]
        first = asyncio.run(find_first_error(long))
        assert len(short.steps) == (len(long.steps) if first is None else first + 1)
        # An episode may also end by itself with its first error, e.g. declared done too early.
        if first is None or first == len(long.steps) - 1:
            assert short.outcome == long.outcome
            continue
        erred += 1
        assert short.steps[-1].truncated
        assert not short.steps[-1].terminated
        assert short.outcome is not None
        assert not short.outcome.success
        assert short.outcome.reason.startswith("stopped at its first error: ")
    assert 0 < erred < 12


@pytest.mark.browser
@pytest.mark.slow
def test_as_many_episodes_on_pages_as_there_are_tabs_end_at_theirs(tmp_path: Path) -> None:
    """Each holds a tab while the solution is followed in another."""
    run = asyncio.run(
        collab.collect(
            env="mobile-miniwob", graph="single", agents="rehearsal", tasks="tag:oracle", episodes=6, seed=3,
            out=tmp_path / "run", settings=["environment.backends.chromium.options.pages=3", STOP], concurrency=3,
            progress=False,
        )
    )  # fmt: skip
    assert [one.error for one in run.trajectories] == [None] * 6
    assert any("stopped at its first error" in one.outcome.reason for one in run.trajectories if one.outcome)
    # None waited for another one's tab to come free, which takes a minute to fail.
    assert max(one.seconds for one in run.trajectories) < 30


def test_the_printed_summary_says_how_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = play(tmp_path / "cut", STOP)
    assert main(["runs", "show", str(run.path)]) == 0
    cut = sum("stopped at its first error" in one.outcome.reason for one in run.trajectories if one.outcome)
    assert f"{cut} of 12 episodes ended with the first error, as asked for, unsolved" in capsys.readouterr().out


def test_an_environment_without_solutions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="knows no solutions that tell errors; set it to false"):
        asyncio.run(collab.collect(env="web", agents="rehearsal", settings=[STOP], out=tmp_path / "run"))
