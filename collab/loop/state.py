"""What all parts of a training share while it runs: configuration, places, budget, who watches, when to stop.

What a training has spent so far, and how long it will still take at the pace of its epochs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from collab.config import Budget, EnvironmentDefinition, RunConfig
from collab.envs.base import Suite
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.policy import Policy, build_first_policy
from collab.loop.record import EpochRecord, TrainingDir
from collab.rollout.build import build_suite
from collab.rollout.collector import USED_UP, UsageMeter
from collab.types import Usage
from collab.utils.concurrency import REQUESTED
from collab.utils.text import format_clock, format_count


class Halted(Exception):
    """A training ends here for now, and can be gone on with; its text says why."""


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """How far a training is; a live object."""

    algorithm: str
    """Name of the one that trains."""
    epoch: int = 0
    epochs: int
    part: str = ""
    """What is being done, in a word."""
    inner: Any = None
    """The live object of what is being done: of a collection, of a labelling, of fine-tuning; None for none."""
    records: list[EpochRecord] = field(default_factory=list)
    """Of the epochs that are over."""
    so_far: EpochRecord | None = None
    """Of this epoch, what its parts that are over tell; the other fields have their defaults, which mean nothing yet.
    None before the first."""
    began: float = field(default_factory=time.monotonic)
    """When this process began with this epoch, of `time.monotonic`."""
    spent: Usage = Usage()
    """On parts of this epoch that are over, and by earlier processes on this epoch."""

    def __str__(self) -> str:
        """Return one line: epoch, part and how far it is, held-out success, what was spent, and the time left."""
        parts = [f"epoch {self.epoch}/{self.epochs}", self.part, " ".join(str(self.inner or "").split())]
        last = next((one for one in reversed(self.records) if one.success is not None), None)
        if last is not None:
            parts.append(f"held-out success {last.success} after epoch {last.epoch}")
        spent = sum_spent_so_far(self)
        left = estimate_seconds_left(self, time.monotonic())
        in_all = [
            format_count(spent.tokens, "token"),
            *([f"{spent.cost_usd:.2f} USD"] if spent.cost_usd else []),
            "time left known after an epoch" if left is None else f"at most about {format_clock(left)} left",
        ]
        return " | ".join(part for part in (*parts, f"in all {', '.join(in_all)}") if part)

    def begin(self, epoch: int) -> None:
        """Go on with the next epoch."""
        self.epoch, self.began, self.so_far = epoch, time.monotonic(), None

    def tell(self, **found: Any) -> None:
        """A part of this epoch is over: fields of a record, in place of what was told of them before."""
        known = self.so_far or EpochRecord(algorithm=self.algorithm, epoch=self.epoch, version=0, weights={}, hash="")
        self.so_far = known.model_copy(update=found)

    def close(self, record: EpochRecord) -> None:
        """An epoch is over, and its record tells what it took."""
        self.records.append(record)
        self.inner, self.so_far, self.spent = None, None, Usage()


@dataclass(slots=True, kw_only=True)
class LoopState:
    """One process that trains."""

    config: TrainingConfig
    folder: TrainingDir
    library: Library
    budget: Budget
    """For all that this process does."""
    stop: asyncio.Event
    device: str
    """Where policies are trained, "auto" or "cpu"."""
    progress: TrainingProgress
    reports: Sequence[str] = ()
    """Further places for metrics of training."""
    spent: Usage = Usage()
    """By this process."""
    started: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    """Of this epoch, by part that this process did from its beginning to its end."""
    _first: Policy | None = None
    _suite: tuple[tuple[str, EnvironmentDefinition], Suite] | None = None

    @property
    def first(self) -> Policy:
        """The policy that training starts from; raises as `build_first_policy`."""
        self._first = self._first or build_first_policy(self.config.run, self.config.method)
        return self._first

    async def open_suite(self, run: RunConfig) -> Suite:
        """Return the environments of a run, built once for all parts of a training that play or look in the same."""
        wanted = (run.environment_name, run.environment)
        if self._suite is None or self._suite[0] != wanted:
            await self.close_suite()
            self._suite = wanted, build_suite(run)
        return self._suite[1]

    async def close_suite(self) -> None:
        """Give back what the environments hold, as before weights are trained; they are built again when needed."""
        if self._suite is not None:
            _, suite = self._suite
            self._suite = None
            await suite.close()

    def begin(self, part: str) -> None:
        """Name what is done next, if anything may still be; raises `Halted`."""
        self.progress.part, self.progress.inner = part, None
        self.compute_left()

    @contextlib.contextmanager
    def time_part(self, part: str, *, whole: bool) -> Iterator[None]:
        """Note how long a part takes, unless another process did some of it and took its time with it.

        A part that is done in pieces takes what all of them take.

        Args:
            whole: whether nothing of the part was there before.
        """
        begun = time.monotonic()
        yield
        if whole:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - begun

    def compute_left(self) -> Budget:
        """What may still be spent; raises `Halted` when that is nothing, or when it was asked to stop."""
        if self.stop.is_set():
            raise Halted(REQUESTED)
        minutes = (time.monotonic() - self.started) / 60
        spent = {"usd": self.spent.cost_usd, "tokens": self.spent.tokens, "minutes": minutes}
        left = {name: limit - spent[name] for name, limit in self.budget.model_dump(exclude_none=True).items()}
        for name, amount in left.items():
            if amount <= 0:
                raise Halted(_format_used_up(name, getattr(self.budget, name)))
        return Budget(**left)

    def spend(self, spent: Usage) -> None:
        """Count in what a part has spent."""
        self.spent += spent
        self.progress.inner = None  # counted in now
        self.progress.spent += spent

    def halt(self, why: str | None) -> None:
        """Raise `Halted` where a part stopped before its end; of a limit, what it is for all that this process does."""
        if why is None:
            return
        if why.startswith(USED_UP):
            self.compute_left()
        raise Halted(why)

    def is_stopping(self) -> bool:
        """Whether training is to stop with a checkpoint."""
        return self.explain_stop() is not None

    def explain_stop(self) -> str | None:
        """Why training is to stop: on request, or because the minutes are over; None where it goes on."""
        minutes = self.budget.minutes
        if self.stop.is_set():
            return REQUESTED
        over = minutes is not None and time.monotonic() - self.started >= 60 * minutes
        return _format_used_up("minutes", minutes) if minutes is not None and over else None

    @property
    def inner(self) -> Callable[[Any], None]:
        """Takes the live object of what is being done."""

        def watch(progress: Any) -> None:
            self.progress.inner = progress

        return watch


def _format_used_up(name: str, limit: float) -> str:
    return f"{USED_UP}: {name}={limit:g}"


def estimate_seconds_left(progress: TrainingProgress, now: float) -> float | None:
    """For the rest of this epoch and all that come, each as long as the mean of those that are over.

    Patience may end a training earlier, and an epoch that an earlier process began takes less.

    Args:
        now: of `time.monotonic`.

    Returns:
        None before an epoch is over of which all is known.
    """
    known = [seconds for one in progress.records if one.epoch and (seconds := sum_epoch_seconds(one)) is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    if progress.records[-1].epoch >= progress.epoch:
        return (progress.epochs - progress.epoch) * mean
    return (progress.epochs - progress.epoch) * mean + max(0.0, mean - (now - progress.began))


def sum_epoch_seconds(record: EpochRecord) -> float | None:
    """Of all parts; None where one did something and nobody told how long, for its process died."""
    if any(one.seconds is None and (one.calls or one.prompt_tokens) for one in record.spent.values()):
        return None
    return sum(one.seconds or 0.0 for one in record.spent.values())


def sum_spent_so_far(progress: TrainingProgress) -> Usage:
    """Return what models took: in epochs that are over, by whatever process, and in this one.

    Tokens that were trained on do not count.
    """
    over = (total_asked(record) for record in progress.records)
    live = progress.inner.spent if isinstance(progress.inner, UsageMeter) else Usage()
    return sum(over, progress.spent + live)


def total_asked(record: EpochRecord) -> Usage:
    """Return what models took in an epoch; tokens that were trained on do not count."""
    return sum((one for part, one in record.spent.items() if part != "training"), Usage())
