"""Rollouts with a budget of environment steps: which episodes belong to one, and when it may end.

    select_belonging(lengths, order, steps)     # names of episodes that are learned from; None while there are too few
    async with open_ending(out, steps, asked) as ending:
        await start(run, library, out, stop=ending.stop, admit=ending.admit)

Arms of a comparison have equal steps only if one rule ends all their rollouts, also after a kill and with any number of
parallel episodes. So episodes count in the order of the plan. The rollout is over at the first episode that reaches the
steps, once all before it are over. Further episodes stay on disk and are not learned from. There are few, because
no episode begins or steps once those before it have the steps. A rollout that is played on while the policy learns has
no such order: all its episodes that are over count. Steps of a broken episode do not count and are not
learned from: it belongs to the rollout with none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collab.config import RunConfig, validate
from collab.evaluation.metrics import Report, summarise
from collab.evaluation.report import report_of
from collab.loop.config import Method
from collab.loop.interfaces import read_training
from collab.loop.record import find_training
from collab.rollout.plan import plan_episodes
from collab.store.manifest import FILE
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.types import Trajectory

_LOOK_S = 0.1
"""Seconds between two looks at the index."""
_FAR = "SELECT trajectory, state, (SELECT count(*) FROM steps WHERE steps.key = episodes.key) FROM episodes"
"""Query of a run's index: progress of each episode. It runs ten times a second, so it makes no summaries."""


def select_belonging(lengths: Mapping[str, int], order: Sequence[str], steps: int) -> tuple[str, ...] | None:
    """Return the shortest beginning of the plan that has enough steps.

    Args:
        lengths: finished episode → its environment steps; 0 for one that broke.
        order: all planned episodes.
        steps: at least so many.

    Returns:
        All episodes if even these have fewer steps; None while an episode that is needed is not over.
    """
    found = select_certain(lengths, order, steps)
    enough = sum(lengths[name] for name in found) >= steps
    return found if enough or len(found) == len(order) else None


def select_certain(lengths: Mapping[str, int], order: Sequence[str], steps: int) -> tuple[str, ...]:
    """Return the episodes that belong to a rollout however the others end. Arguments as `select_belonging`.

    They are the beginning of the plan, up to the first unfinished one, or the one that reaches the steps.
    """
    found: list[str] = []
    total = 0
    for name in order:
        if name not in lengths or total >= steps:
            break
        found.append(name)
        total += lengths[name]
    return tuple(found)


def select_wanted(so_far: Mapping[str, int], order: Sequence[str], steps: int) -> Sequence[str]:
    """Return the episodes that a rollout may still need; no other is begun. Arguments as `select_belonging`.

    Args:
        so_far: as `lengths`, with the current steps of unfinished episodes.
    """
    total = 0
    for position, name in enumerate(order):
        if total >= steps:
            return order[:position]
        total += so_far.get(name, 0)
    return order


def read_step_budget(run: Path) -> int | None:
    """Return the step budget of a training's rollout if its method has one that ends it; None for all other runs.

    Raises:
        RunFormatError: the training that the run belongs to cannot be read.
        ConfigError: its configuration is spoilt.
    """
    found = _read_method(run)
    return None if found is None or found[0].is_continuous else found[0].get_steps(found[1])


def is_open_ended(run: Path) -> bool:
    """Return whether a run is a rollout of a training that plays on: most of its planned episodes are never begun.

    Raises:
        RunFormatError: the training that the run belongs to cannot be read.
        ConfigError: its configuration is spoilt.
    """
    found = _read_method(run)
    return found is not None and found[0].is_continuous


def _read_method(run: Path) -> tuple[Method, int] | None:
    """Return the method of a training and the epoch whose rollout a run is; None for all other runs."""
    training, number = find_training(run), run.resolve().parent.name
    if training is None or training.get_epoch(int(number)).rollout != run.resolve():
        return None
    return read_training(training)[1].method, int(number)


def list_counted(reader: RunReader, steps: int | None) -> tuple[str, ...] | None:
    """List the episodes that belong to a rollout; None if all do, or before it has its steps.

    Raises:
        ConfigError: the configuration of the run is spoilt.
    """
    return (
        None if steps is None else select_belonging(_count_lengths(_query_progress(reader)), plan_order(reader), steps)
    )


def iterate_counted(reader: RunReader, steps: int | None) -> Iterator[Trajectory]:
    """Yield the finished episodes that belong to a rollout, by task and number; all of them if `steps` is None."""
    found = list_counted(reader, steps)
    return (one for one in reader.iterate_trajectories() if found is None or one.id in found)


def build_counted_reader(run: Path) -> Callable[[RunReader], Iterator[Trajectory]]:
    """Return a function from a run's reader to its counted episodes: of a training's rollout, the learned ones.

    Raises:
        RunFormatError: the training that the run belongs to cannot be read.
        ConfigError: its configuration is spoilt.
    """
    steps = read_step_budget(run)
    return lambda reader: iterate_counted(reader, steps)


def build_counted_report(reader: RunReader, steps: int | None, *, so_far: bool = False) -> Report:
    """Report a rollout: its planned episodes, or with `steps`, those that belong to it; broken ones are not solved.

    Args:
        reader: of the rollout, or of another run.
        steps: at least so many; None if all planned episodes count.
        so_far: before it has its steps, report only finished episodes, not all planned ones.

    Raises:
        ConfigError: the configuration of the run is spoilt.
    """
    report, found = report_of(reader), list_counted(reader, steps)
    if steps is None or (found is None and not so_far):
        return report
    return select_results(report, found)


def report_run(run: Path, reader: RunReader, *, so_far: bool = False) -> Report:
    """Report the episodes that count: of an open-ended run all that are over, else as `build_counted_report`.

    Raises:
        RunFormatError: the training that the run belongs to cannot be read.
        ConfigError: its configuration is spoilt, or that of the run.
    """
    found = _read_method(run)
    if found is not None and found[0].is_continuous:
        return select_results(report_of(reader), None)
    return build_counted_report(reader, None if found is None else found[0].get_steps(found[1]), so_far=so_far)


def select_results(report: Report, ids: Sequence[str] | None) -> Report:
    """Report these of a run's finished episodes alone, or all; none is missing."""
    return summarise(
        [one for one in report.results if ids is None or one.id in ids],
        environment=report.environment,
        environment_version=report.environment_version,
        privileged=report.privileged,
        sampling=report.sampling,
    )


def count_steps(out: Path) -> int:
    """Count the readable steps of all episodes, unfinished ones included."""
    with RunStore.open(out).open_reader() as reader:
        return sum(played for _, _, played in _query_progress(reader))


def has_enough(out: Path, steps: int) -> bool:
    """Return whether a run that was begun has all episodes that belong to it."""
    with RunStore.open(out).open_reader() as reader:
        return list_counted(reader, steps) is not None


@dataclass(slots=True, kw_only=True)
class Ending:
    """Stop and admission of a run with a step budget."""

    stop: asyncio.Event
    """Set once it has its steps, or when it is asked to end."""
    wanted: frozenset[str] | None = None
    """The episodes that it may still need, as far as known; None for all."""

    async def admit(self, episode: str) -> None:
        """Wait until the episode is wanted: one before it may break, and its steps do not count then."""
        while self.wanted is not None and episode not in self.wanted:
            await asyncio.sleep(_LOOK_S)


@contextlib.asynccontextmanager
async def open_ending(out: Path, steps: int | None, asked: asyncio.Event) -> AsyncIterator[Ending]:
    """Watch a run; yield what ends it once it has its steps, or on request. `steps` None: on request only.

    Args:
        out: where the run is or will be written.
        asked: set from outside to end it at once.
    """
    if steps is None:
        yield Ending(stop=asked)
        return
    ending = Ending(stop=asyncio.Event())
    looking = asyncio.create_task(_look(out, steps, asked, ending))
    try:
        yield ending
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


async def _look(out: Path, steps: int, asked: asyncio.Event, ending: Ending) -> None:
    """Keep `ending` up to date; if the run cannot be read, stop it and raise the error."""
    try:
        # The manifest comes first; without it there is nothing to read.
        while not (out / FILE).exists() and not asked.is_set():
            await asyncio.sleep(_LOOK_S)
        if not asked.is_set():
            with RunStore.open(out).open_reader() as reader:
                order = plan_order(reader)
                while not asked.is_set():
                    far = _query_progress(reader)
                    # Enough steps, in the order of the plan: what is still running belongs to a later epoch or to none.
                    if select_belonging(_count_lengths(far), order, steps) is not None:
                        break
                    # Failed episodes may be played again, so their steps are not counted yet.
                    so_far = {id: played for id, state, played in far if state != "failed"}
                    ending.wanted = frozenset(select_wanted(so_far, order, steps))
                    await asyncio.sleep(_LOOK_S)
                    reader.refresh()
    finally:
        # Also after an error: the rollout must not wait for a look-out that has gone.
        ending.stop.set()


def _query_progress(reader: RunReader) -> list[tuple[str, str, int]]:
    """Return each episode's name, state (see `EpisodeSummary`) and number of readable steps."""
    return reader.query(_FAR)


def _count_lengths(far: Iterable[tuple[str, str, int]]) -> dict[str, int]:
    return {id: played if state == "finished" else 0 for id, state, played in far if state != "unfinished"}


def plan_order(reader: RunReader) -> list[str]:
    """List all planned episodes of a run, by name; ConfigError if its configuration is spoilt."""
    config = validate(RunConfig, reader.manifest.config, f"{reader.directory}/{FILE}")
    return [episode.id for episode in plan_episodes(config)]
