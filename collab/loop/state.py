"""Shared state of a running training: configuration, paths, budget, progress and stop; its spending and time left."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from collab.config import Budget, EnvironmentDefinition, RunConfig
from collab.envs.base import Suite
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.policy import Policy
from collab.loop.record import EpochRecord, TrainingDir
from collab.rollout.build import build_suite
from collab.rollout.collector import USED_UP, RolloutProgress, UsageMeter
from collab.types import Usage
from collab.utils.concurrency import REQUESTED
from collab.utils.text import format_clock, format_count


class Halted(Exception):
    """A training that ends for now, and can be resumed; the text says why."""


@dataclass(slots=True, kw_only=True)
class TrainingProgress:
    """Progress of a training; a live object."""

    algorithm: str
    """Name of the one that trains."""
    epoch: int = 0
    epochs: int
    part: str = ""
    """Current activity in a word."""
    inner: Any = None
    """Live object of the current part: of a rollout, a labelling, or fine-tuning; None for none."""
    records: list[EpochRecord] = field(default_factory=list)
    """Records of the epochs that are over."""
    so_far: EpochRecord | None = None
    """This epoch's record with the fields of its finished parts; the other fields have meaningless defaults. None
    before the first."""
    began: float = field(default_factory=time.monotonic)
    """When this process began with this epoch, of `time.monotonic`."""
    spent: Usage = Usage()
    """Usage of finished parts of this epoch, and of earlier processes on it."""

    def __str__(self) -> str:
        """Return one line: epoch, part and its progress, held-out success, usage, and the time left."""
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
        """Begin the next epoch."""
        self.epoch, self.began, self.so_far = epoch, time.monotonic(), None

    def update(self, **found: Any) -> None:
        """Update fields of this epoch's record when a part is over."""
        known = self.so_far or EpochRecord(algorithm=self.algorithm, epoch=self.epoch, version=0, weights={}, hash="")
        self.so_far = known.model_copy(update=found)

    def count(self, spent: Usage) -> None:
        """Count the usage of a part of this epoch, which is not shown live any more."""
        self.inner = None
        self.spent += spent

    def close(self, record: EpochRecord) -> None:
        """Close an epoch with its record."""
        self.records.append(record)
        self.inner, self.so_far, self.spent = None, None, Usage()


class BackgroundCollection(Protocol):
    """A collection that plays on in the background."""

    @property
    def spent(self) -> Usage:
        """By this process, so far."""

    async def close(self) -> None:
        """End it."""


@dataclass(slots=True, kw_only=True)
class LoopState:
    """One process that trains."""

    config: TrainingConfig
    folder: TrainingDir
    library: Library
    budget: Budget
    """For all work of this process."""
    stop: asyncio.Event
    device: str
    """Where policies are trained, "auto" or "cpu"."""
    progress: TrainingProgress
    first: Policy
    """The policy that training starts from."""
    reports: Sequence[str] = ()
    """Further places for metrics of training."""
    note: Callable[[str], None] = lambda text: None
    """Prints a line for the user during the training."""
    spent: Usage = Usage()
    """By this process, without what plays in the background."""
    started: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of this epoch, by part that this process did from its beginning to its end."""
    source: TrainingDir | None = None
    """The training whose recorded episodes are learned from again, in place of playing and measuring; None for none."""
    collection: BackgroundCollection | None = None
    """The collection of a training that plays on while it learns; None before it plays, and for any other training."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What an algorithm read in an epoch and needs in later ones, by a name of its own; lost with the process."""
    _suite: tuple[tuple[str, EnvironmentDefinition], Suite] | None = None

    async def open_suite(self, run: RunConfig) -> Suite:
        """Return the environments of a run, built once for all parts of a training that use the same."""
        wanted = (run.environment_name, run.environment)
        if self._suite is None or self._suite[0] != wanted:
            await self.close_suite()
            self._suite = wanted, build_suite(run)
        return self._suite[1]

    async def close(self) -> None:
        """End what plays in the background, and release the environments."""
        collection, self.collection = self.collection, None
        if collection is not None:
            await collection.close()
            self.spent += collection.spent
        await self.close_suite()

    async def close_suite(self) -> None:
        """Release the environments, as before weights are trained; they are built again when needed."""
        if self._suite is not None:
            _, suite = self._suite
            self._suite = None
            await suite.close()

    def begin(self, part: str) -> None:
        """Begin a part; raises `Halted` if nothing may be spent any more."""
        self.progress.part, self.progress.inner = part, None
        self.compute_left()

    @contextlib.contextmanager
    def time_part(self, part: str, *, whole: bool) -> Iterator[None]:
        """Measure the seconds of a part, summed over its pieces; skip it unless `whole`: nothing was done before."""
        begun = time.monotonic()
        yield
        if whole:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - begun

    def compute_left(self) -> Budget:
        """Return the remaining budget; raises `Halted` if it is used up, or if a stop was requested."""
        if self.stop.is_set():
            raise Halted(REQUESTED)
        minutes = (time.monotonic() - self.started) / 60
        paid = self.spent if self.collection is None else self.spent + self.collection.spent
        spent = {"usd": paid.cost_usd, "tokens": paid.tokens, "minutes": minutes}
        left = {name: limit - spent[name] for name, limit in self.budget.model_dump(exclude_none=True).items()}
        for name, amount in left.items():
            if amount <= 0:
                raise Halted(_format_used_up(name, getattr(self.budget, name)))
        return Budget(**left)

    def spend(self, spent: Usage) -> None:
        """Count a part's usage."""
        self.spent += spent
        self.progress.count(spent)

    def halt(self, why: str | None) -> None:
        """Raise `Halted` if a part stopped before its end; a limit is reported as that of the whole process."""
        if why is None:
            return
        if why.startswith(USED_UP):
            self.compute_left()
        raise Halted(why)

    def is_stopping(self) -> bool:
        """Return whether training is to stop with a checkpoint."""
        return self.explain_stop() is not None

    def explain_stop(self) -> str | None:
        """Return why training is to stop: on request, or because the minutes are over; None if it is not."""
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

    def watch_rollout(self, progress: RolloutProgress) -> None:
        """Show a rollout as what is being done, and print each worker that is lost in it."""
        self.progress.inner = progress
        self.print_losses(progress)

    def print_losses(self, progress: RolloutProgress) -> None:
        """Print a line for each worker that is lost in a rollout, as soon as it is."""
        progress.on_loss = lambda why: self.note(f"warning: {why}")


def _format_used_up(name: str, limit: float) -> str:
    return f"{USED_UP}: {name}={limit:g}"


def estimate_seconds_left(progress: TrainingProgress, now: float) -> float | None:
    """Estimate the seconds of the rest of this epoch and all later ones, from the mean of finished epochs.

    Patience may end a training earlier, and an epoch that an earlier process began takes less.

    Args:
        now: of `time.monotonic`.

    Returns:
        None before an epoch with known times is over.
    """
    known = [seconds for one in progress.records if one.epoch and (seconds := sum_epoch_seconds(one)) is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    if progress.records[-1].epoch >= progress.epoch:
        return (progress.epochs - progress.epoch) * mean
    return (progress.epochs - progress.epoch) * mean + max(0.0, mean - (now - progress.began))


def sum_epoch_seconds(record: EpochRecord) -> float | None:
    """Sum the seconds of all parts; None if the process of one died, so that its time is unknown."""
    if any(one.seconds is None and (one.calls or one.prompt_tokens) for one in record.spent.values()):
        return None
    return sum(one.seconds or 0.0 for one in record.spent.values())


def sum_spent_so_far(progress: TrainingProgress) -> Usage:
    """Sum the models' usage in finished epochs, by whatever process, and in this one; trained tokens do not count."""
    over = (total_asked(record) for record in progress.records)
    live = progress.inner.spent if isinstance(progress.inner, UsageMeter) else Usage()
    return sum(over, progress.spent + live)


def total_asked(record: EpochRecord) -> Usage:
    """Return the models' usage in an epoch; trained tokens do not count."""
    return sum((one for part, one in record.spent.items() if part != "training"), Usage())
