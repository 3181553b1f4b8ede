"""Look at the failures of a recorded run: measure the distances to the goal, and store the mode of each.

    counts = await measure_failures(Path("runs/first"))

The environment's own solution gives the distances. Each unsolved episode is played again in a fresh environment, and
before each action and behind the last, the rest of the solution is counted. This needs an environment that can be
rebuilt and knows solutions; elsewhere the record alone decides (`collab.evaluation.failures`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from collab.envs.base import Environment, HasOracle
from collab.envs.solution import look_ahead
from collab.errors import CollabError, EnvironmentFailure, boundary
from collab.evaluation.failures import (
    DECLARES,
    EpisodeFailure,
    FailureCounts,
    classify_failure,
    count_failures,
    find_failure,
    list_failed,
    read_failures,
    write_failures,
)
from collab.rewards.restore import EnvironmentSlots, check_version
from collab.rollout.build import build_suite
from collab.rollout.run import read_stored_config
from collab.store.reader import EpisodeSummary, RunReader
from collab.store.run import RunStore
from collab.types import Trajectory
from collab.utils.concurrency import run_together

_AT_ONCE = 4
"""Episodes that are played again at the same time."""
_ROOM = 100
"""Steps beyond the budget of an episode that is played again."""


@dataclass(slots=True, kw_only=True)
class FailureProgress:
    """Progress; a live object."""

    planned: int = 0
    done: int = 0
    problem: str | None = None
    """Why distances of an episode are not known although the environment knows solutions; the first one."""

    def __str__(self) -> str:
        return f"{self.done}/{self.planned} failures looked at"


async def measure_failures(
    run: Path,
    *,
    watch: Callable[[FailureProgress], object] = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> tuple[FailureCounts, FailureProgress]:
    """Look at the unsolved episodes of a run that were not looked at, store their modes, and count all.

    Args:
        stop: set from outside to end; what was looked at is stored.

    Raises:
        RunFormatError: the run or its stored failures cannot be read.
        UsageError: its environment names parts that are not trusted, or cannot be built.
        StoreFailure: the file cannot be written.
    """
    progress = FailureProgress()
    watch(progress)
    stored = read_failures(run)
    with RunStore.open(run).open_reader() as reader:
        episodes = reader.list_episodes()
        fresh = [one for one in list_failed(episodes) if find_failure(stored, one) is None]
        progress.planned = len(fresh)
        if fresh:
            # Built from the run's own configuration, so that a split's phone lacks the same apps.
            suite = build_suite(read_stored_config(run))
            try:
                able = {"oracle", "deterministic"} <= suite.capabilities
                look = partial(_look, reader, EnvironmentSlots(suite) if able else None, progress, stop)
                found = await run_together([partial(look, one) for one in fresh], at_once=_AT_ONCE)
            finally:
                await suite.close()
            stored |= {episode.id: one for episode, one in zip(fresh, found, strict=True) if one is not None}
            write_failures(run, stored)
    return count_failures(episodes, stored), progress


async def _look(
    reader: RunReader,
    slots: EnvironmentSlots | None,
    progress: FailureProgress,
    stop: asyncio.Event | None,
    episode: EpisodeSummary,
) -> EpisodeFailure | None:
    """Return why one episode failed; None once the work is stopped."""
    if stop is not None and stop.is_set():
        return None
    trajectory, distances = reader.read_trajectory(episode.id), None
    if slots is not None and trajectory.error is None:
        try:
            distances = await measure_distances(slots, trajectory)
        except CollabError as error:  # of this episode alone, whose record still tells something
            progress.problem = progress.problem or str(error)
    progress.done += 1
    mode = classify_failure(trajectory, distances)
    return EpisodeFailure(mode=mode, attempt=episode.attempt, steps=episode.steps, distances=distances)


async def measure_distances(slots: EnvironmentSlots, trajectory: Trajectory) -> tuple[int | None, ...] | None:
    """Return the actions that are left to the goal along an episode, which is played again for that.

    Returns:
        One before each step and one behind the last, None where no way leads on; None if no way is known from the
        beginning.

    Raises:
        RunFormatError: the episode was recorded in another environment or version.
        EnvironmentFailure: the world broke, or shows another screen than the recorded one.
    """
    check_version(trajectory, slots.suite)
    found: list[int | None] = []
    async with slots.open() as environment:
        with boundary(EnvironmentFailure, f"{trajectory.id}: playing it again"):
            # With room for the whole solution from the last screen on: a spent budget is no distance.
            seen = await environment.reset(replace(trajectory.task, max_steps=trajectory.task.max_steps + _ROOM))
            for step in trajectory.steps:
                if seen.digest != step.observation.digest:
                    raise EnvironmentFailure(
                        f"{trajectory.id}: the screen before step {step.index} is not the recorded one; the "
                        "environment is not what it was when the run was recorded"
                    )
                found.append(await _count_left(environment))
                if found[0] is None:
                    return None
                seen = (await environment.step(step.executed)).observation
            # A declared end moves nothing, and an environment that has ended is not asked.
            is_over = bool(trajectory.steps) and trajectory.steps[-1].terminated
            found.append(found[-1] if is_over else await _count_left(environment))
    return tuple(found)


async def _count_left(environment: Environment) -> int | None:
    """Count the actions to the goal, without the declaration that ends the solution."""
    left = await look_ahead(environment)
    ahead = environment.oracle() if isinstance(environment, HasOracle) else None
    return None if left is None else left - bool(ahead and ahead[-1].type in DECLARES)
