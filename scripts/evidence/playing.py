"""From a run's log to the time that was played, and to that in which an environment was at work.

Episodes are played side by side, so their seconds cannot be added up: while one's environment acts, the agents of
others speak. What can be told is how long at least one environment was at work, by the clock on the wall: the length of
the union of all their intervals. The rest of the time that was played is everything else, which is nearly all agents.

An environment is at work while it resets (a process that takes a run up replays what was recorded, too), while it takes
a picture of a screen, and while it executes an action. The log says when each of these ended and how long it took. It
does not say this of the reset of an episode that was cut off, nor of a step that broke; opening an environment is not
part of any episode; and where a step waits to be admitted after its picture was taken, waiting counts. Times of the log
are cut to milliseconds: what is shorter and ends in the same one counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from collab.store.events import EpisodeFinished, EpisodeResumed, EpisodeStarted, Record, StepRecorded
from collab.store.run import RunStore

Interval: TypeAlias = tuple[float, float]
"""From when to when, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What playing took, in seconds by the clock on the wall."""

    whole: float = 0.0
    """From the first reset to the last step, of each process that played; added up."""
    environment: float = 0.0
    """Of it, with at least one environment at work; agents of other episodes may have spoken meanwhile."""

    def __add__(self, other: Played) -> Played:
        return Played(whole=self.whole + other.whole, environment=self.environment + other.environment)


def union(intervals: Iterable[Interval]) -> float:
    """Seconds that lie in at least one of them; one that ends before it begins has none."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def played_in(runs: Iterable[Path]) -> Played:
    """Of runs that were played one after another; RunFormatError where one cannot be read."""
    total = Played()
    for path in runs:
        with RunStore.open(path).open_reader() as reader:
            total += played(reader.iterate_events())
    return total


def played(records: Iterable[Record]) -> Played:
    """Of a run's log: the records of all processes that wrote it, in log order."""
    total = Played()
    for _, own in groupby(records, key=lambda record: record.writer):
        clock = _Clock()
        for record in own:
            clock.read(record)
        total += clock.played
    return total


@dataclass(slots=True)
class _Clock:
    """What one process did when."""

    work: list[Interval] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    begun: dict[str, float] = field(default_factory=dict)
    """Episode → when its reset was over."""
    last: dict[str, float] = field(default_factory=dict)
    """Episode → when its last step was over, or its reset."""

    def read(self, record: Record) -> None:
        now = datetime.fromisoformat(record.time).timestamp()
        match record.event:
            case EpisodeStarted(trajectory=episode) | EpisodeResumed(trajectory=episode):
                self.begun[episode] = self.last[episode] = now
            case StepRecorded(trajectory=episode, step=step):
                acted = now - step.environment_s
                if step.observation.screenshot is not None:
                    self.work.append((self.last.get(episode, acted), acted - step.deliberation_s))
                self.work.append((acted, now))
                self.last[episode] = now
            case EpisodeFinished(trajectory=episode, seconds=seconds):
                self.work.append((now - seconds, self.begun.get(episode, now - seconds)))
                self.times.append(now - seconds)
            case _:
                return
        self.times.append(now)

    @property
    def played(self) -> Played:
        if not self.times:
            return Played()
        return Played(whole=max(self.times) - min(self.times), environment=union(self.work))
