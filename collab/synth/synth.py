"""From units of work to rows on the disk: many at once, each kept whole or not at all.

    stopped = await work(config, workshop, journal, units, ledger)

A few workers, each with an environment of its own, take units from one queue. A unit that breaks (a dead browser, a
model server that does not answer) is recorded with its reason and made again by the next resume. Work ends when the
queue is empty, when somebody asks it to stop, when a budget is used up, after ten broken units in a row, or after ten
in a row of which nothing that a model said could be used. In all but the first case the units in flight are left
undone; what a model said for them is kept, and they are made from it when the work goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from collab.collector import PATIENCE
from collab.collector import Progress as Calls
from collab.envs.base import Environment, most_forking
from collab.errors import EnvironmentFailure, ModelFailure, boundary
from collab.models.base import Reply
from collab.redact import redact
from collab.synth.journal import Done, Journal, Said
from collab.synth.plan import SynthConfig, Unit
from collab.synth.report import most_refused
from collab.synth.unit import Workshop, make


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a synthesis is; a live object, read by whoever shows it."""

    calls: Calls
    """Units (planned, done, broken), model calls and what they cost."""
    rows: Counter[str] = field(default_factory=Counter)
    """By level, those of earlier processes included; before anything is left out at the end."""
    refused: int = 0


class Ledger:
    """Every reply of the teacher's model: counted, written down and, in a later process, not asked for again."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._said: Mapping[str, str] = {}
        self._journal: Journal | None = None
        self._changed: Callable[[], None] = lambda: None

    def open(self, journal: Journal, said: Mapping[str, str]) -> None:
        """Write into this journal from now on.

        Args:
            said: replies of earlier processes, by the calls that they answer.
        """
        self._journal, self._said = journal, said

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this after every reply."""
        self._changed = changed

    def recall(self, call: str) -> str | None:
        """What an earlier process was told; see `collab.synth.llm.caller.Memory`."""
        return self._said.get(call)

    def keep(self, call: str, reply: Reply) -> None:
        """Count a reply and write it down; StoreFailure when it cannot be written."""
        self.progress.calls.count_reply(reply)
        if self._journal is not None:
            cost = Calls(planned=0)
            cost.count_reply(reply)
            self._journal.record(Said(said=call, text=reply.text, spent=cost.spent))
        self._changed()


async def work(
    config: SynthConfig,
    workshop: Workshop,
    journal: Journal,
    units: Sequence[Unit],
    ledger: Ledger,
    stop: asyncio.Event | None = None,
) -> str | None:
    """Make all units; each is in the journal before the next one of its worker begins.

    Args:
        ledger: told of every reply by whoever asks the teacher's model; open on the same journal.
        stop: set from outside to end the work at once.

    Returns:
        Why it ended early; None when every unit was tried.

    Raises:
        StoreFailure: the journal cannot be written; units in flight are given up.
    """
    budgets = {info.name: config.environment.limits.max_steps or info.max_steps for info in workshop.suite.tasks()}
    for unit in units:
        budget = len(unit.scenes) if unit.kind == "walk" else budgets.get(unit.task, 1)
        ledger.progress.calls.workload.plan(unit.id, budget, unit.kind)
    worker = _Work(config=config, workshop=workshop, journal=journal, ledger=ledger, units=deque(units))
    ledger.watch(worker.check_budget)
    workers = min(config.concurrency, len(units))
    most = most_forking(workshop.suite)
    if most is not None:
        workers = min(workers, most)
    await worker.run(workers, stop or asyncio.Event())
    return worker.stopped if worker.left else None


@dataclass(slots=True, kw_only=True)
class _Work:
    config: SynthConfig
    workshop: Workshop
    journal: Journal
    ledger: Ledger
    units: deque[Unit]
    stopped: str | None = None
    _in_flight: int = 0
    _in_a_row: int = 0
    _fruitless: list[Done] = field(default_factory=list)
    _halt: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def left(self) -> int:
        """Units that were not tried to their end."""
        return len(self.units) + self._in_flight

    async def run(self, workers: int, stop: asyncio.Event) -> None:
        """Run the workers until they are done or something says stop."""
        working = asyncio.ensure_future(self._together(workers))
        others = [asyncio.ensure_future(job) for job in (stop.wait(), self._halt.wait(), self._watch_clock())]
        try:
            await asyncio.wait({working, *others[:2]}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self.stopped = self.stopped or "stopped on request"
        finally:
            for task in (working, *others):
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        with contextlib.suppress(asyncio.CancelledError):
            await working

    async def _together(self, workers: int) -> None:
        tasks = [asyncio.ensure_future(self._work()) for _ in range(workers)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self) -> None:
        environment: Environment | None = None
        try:
            while self.units and not self._halt.is_set():
                unit = self.units.popleft()
                self._in_flight += 1
                self.ledger.progress.calls.workload.begin(unit.id)
                try:
                    with boundary(EnvironmentFailure, f"opening {self.workshop.suite.label}"):
                        environment = environment or await self.workshop.suite.open()
                    done = await self._make(unit, environment)
                except (EnvironmentFailure, ModelFailure) as failure:
                    done = Done(unit=unit.id, broken=redact(str(failure)))
                    if environment is not None:
                        await _discard(environment)
                    environment = None
                self._keep(done)
                self._in_flight -= 1
        finally:
            if environment is not None:
                await _discard(environment)

    async def _make(self, unit: Unit, environment: Environment) -> Done:
        limit = self.config.environment.limits.episode_s
        with boundary(EnvironmentFailure, f"{unit.id} of {self.workshop.suite.label} (limit {limit:g} s)"):
            async with asyncio.timeout(limit):
                return await make(unit, environment, self.config, self.workshop)

    def _keep(self, done: Done) -> None:
        self.journal.record(done)
        progress = self.ledger.progress
        progress.calls.done += 1
        progress.calls.workload.count(done.unit, done.screens)
        progress.calls.workload.end(done.unit)
        progress.calls.broken += done.broken is not None
        progress.rows.update(row.level for row in done.rows)
        progress.refused += sum(sum(causes.values()) for causes in done.refused.values())
        self._in_a_row = 0 if done.broken is None else self._in_a_row + 1
        if self._in_a_row >= PATIENCE:
            self._stop(f"{PATIENCE} units in a row broke, the last: {done.broken}")
        self._fruitless = [] if done.rows or done.broken or not done.refused else [*self._fruitless, done]
        if self.config.teacher is not None and len(self._fruitless) >= PATIENCE:
            causes = most_refused(self._fruitless)
            self._stop(f"nothing of {PATIENCE} units in a row could be used; refused most often: {causes}")

    def check_budget(self) -> None:
        """Stop once a limit is reached."""
        used_up = self.ledger.progress.calls.exceeded(self.config.budget)
        if used_up is not None:
            self._stop(used_up)

    def _stop(self, why: str) -> None:
        self.stopped = self.stopped or why
        self._halt.set()

    async def _watch_clock(self) -> None:
        """Minutes run out between replies too."""
        while self.config.budget.minutes is not None:
            await asyncio.sleep(0.2)
            self.check_budget()


async def _discard(environment: Environment) -> None:
    """Close an environment that may be broken: whatever it says, and however long it takes, work goes on."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(10):
            await environment.close()
