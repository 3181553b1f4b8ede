"""Worker pools, stoppable waiting, background threads, and notes on long operations.

    pool = WorkerPool(items, exceeded=lambda: progress.explain_exceeded(budget), stop=stop)
    await pool.run(workers, work)                       # each worker: for item in pool.take(): ...
    capabilities = await wait_unless_stopped(team.probe(), stop, "the models were asked what they support")
    result = await run_in_background(train, folder)
    with note_doing("loading the model"): ...           # the command line prints it if it takes long

A worker pool ends when no item is left, on request, when a limit is used up, or after ten failures in a row.

An event loop waits for threads of `asyncio.to_thread` when it closes, so leaving a command during an optimizer step
would wait for the step. Threads of `run_in_background` are not waited for; their work must survive a kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from collab.errors import RunError

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

PATIENCE = 10
"""Failures in a row before work stops, since single items are then not the cause."""
REQUESTED = "stopped on request"

GRACE_S = 3.0
"""Seconds that running requests may still take once work is to stop."""
_NAME = "collab-background"
_MOMENT_S = 0.1
"""Seconds that a thread may take to end after its result."""


class Stopped(RunError):
    """Work was stopped on request before it was done."""


async def wait_unless_stopped(
    work: Awaitable[ResultT], stop: asyncio.Event | None, doing: str, *, grace_s: float = 0.0
) -> ResultT:
    """Wait for some work until `stop` is set; it is cancelled then.

    Args:
        stop: set from outside; None waits to the end.
        doing: description of the work, for the message: "the models were asked what they support".
        grace_s: seconds to wait for the work after that.

    Raises:
        Stopped: it was not done in time.
    """
    # Without a stop there is nothing to watch: the common case costs no task.
    if stop is None:
        return await work
    # A timeout without an end, so that a stop can set one later: it cancels the work, and only the work.
    limit = asyncio.timeout(None)
    try:
        async with limit:
            watcher = asyncio.create_task(_end_when(stop, limit, grace_s))
            try:
                return await work
            finally:
                watcher.cancel()
    except TimeoutError:
        # The work may raise TimeoutError of its own; only our limit means "stopped".
        if not limit.expired():
            raise
        raise Stopped(f"stopped on request while {doing}") from None


async def _end_when(stop: asyncio.Event, limit: asyncio.Timeout, grace_s: float) -> None:
    await stop.wait()
    limit.reschedule(asyncio.get_running_loop().time() + grace_s)


class WorkerPool(Generic[ItemT]):
    """Workers that take items from one queue.

    Args:
        items: in the order in which they are begun, read one by one.
        exceeded: returns which limit is used up; None while there is room.
        stop: set from outside to end the work; None for never.
        failing: noun for the failures that `count` counts, for the message, e.g. "failures in a row".
        has_clock: whether a limit may be used up without an item ending: it is checked five times a second.
        finishes: whether begun items are finished after a limit, and have `GRACE_S` after a request to stop. Otherwise
            they are cancelled at once.
    """

    def __init__(
        self,
        items: Iterable[ItemT],
        *,
        exceeded: Callable[[], str | None],
        stop: asyncio.Event | None = None,
        failing: str = "failures in a row",
        has_clock: bool = False,
        finishes: bool = False,
    ) -> None:
        self._items, self._exceeded, self._failing = iter(items), exceeded, failing
        self._stop, self._halt = stop or asyncio.Event(), asyncio.Event()
        self._has_clock, self._finishes = has_clock, finishes
        self.stopped: str | None = None
        """Reason why the work ended early; None while it runs and when it is complete."""
        self.failed_in_a_row = 0

    def take(self) -> Iterator[ItemT]:
        """Yield items to one worker, until none is left or the work ends early."""
        # Items are taken one by one, so that work ends at an item's border; the iterator is shared by all workers.
        while not self._halt.is_set():
            try:
                item = next(self._items)
            except StopIteration:
                return
            yield item

    def can_continue(self) -> bool:
        """Check for a stop or a used-up limit; return whether work may continue."""
        # A request comes before a limit: a user's own stop is the reported reason.
        why = REQUESTED if self._stop.is_set() else self._exceeded()
        if why is not None:
            self.halt(why)
        return self.stopped is None

    def halt(self, why: str) -> None:
        """End the work early; the first reason is kept."""
        self.stopped = self.stopped or why
        self._halt.set()

    def count(self, failure: str | None) -> None:
        """Count a finished item, and why it failed; None if it did not."""
        # Any success in between clears the count: single items may fail, a broken server fails them all.
        self.failed_in_a_row = 0 if failure is None else self.failed_in_a_row + 1
        if failure is not None and self.failed_in_a_row >= PATIENCE:
            self.halt(f"{PATIENCE} {self._failing}, the last: {failure}")

    async def run(self, workers: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run so many workers until they are done or the work is stopped; the first error of one ends all."""
        # Waiting tasks in place of polling: a stop is seen at once, even while every worker waits for a server.
        jobs = (run_together([work] * workers), self._stop.wait(), self._halt.wait(), self._watch_clock())
        working, asked, halted, clock = (asyncio.ensure_future(job) for job in jobs)
        try:
            await asyncio.wait({working, asked, halted}, return_when=asyncio.FIRST_COMPLETED)
            if self._finishes:  # a limit waits for what is begun, a request only for a moment
                await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait({working}, timeout=GRACE_S)
            # Only a request to stop, or its grace, leaves workers unfinished; a limit's own reason was set before.
            if not working.done():
                self.halt(REQUESTED)
        finally:
            # All are cancelled and awaited here: no worker may write after `run` has returned.
            for task in (working, asked, halted, clock):
                task.cancel()
            await asyncio.gather(working, asked, halted, clock, return_exceptions=True)
        # An error of a worker, or of the clock, is raised plainly; a cancelled one was stopped, which `stopped` says.
        for task in (working, clock):
            if not task.cancelled():
                task.result()

    async def _watch_clock(self) -> None:
        try:
            while self._has_clock:
                await asyncio.sleep(0.2)
                self.can_continue()
        except Exception:
            # A limit that cannot be watched is no limit: the work ends, and `run` raises the error.
            self._halt.set()
            raise


async def run_together(jobs: Sequence[Callable[[], Awaitable[ResultT]]], at_once: int | None = None) -> list[ResultT]:
    """Return the results of jobs, in their order; the first error cancels the rest and is raised plainly.

    Args:
        at_once: number of jobs in parallel; None for all.
    """
    # Bounded by a semaphore and not by fewer tasks, so that results keep the order of the jobs.
    room = asyncio.Semaphore(at_once or max(1, len(jobs)))

    async def run_in_room(job: Callable[[], Awaitable[ResultT]]) -> ResultT:
        async with room:
            return await job()

    tasks = [asyncio.ensure_future(run_in_room(job)) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        # `gather` leaves the other jobs running when one fails; here they must end first.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def find_plain_error(failures: ExceptionGroup[Exception]) -> Exception:
    """Return the first plain error inside nested groups: the one that cancelled the others."""
    cause: Exception = failures
    while isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    return cause


@dataclass(eq=False, slots=True)
class Doing:
    """An operation that may take long."""

    what: str
    """In words for people, e.g. "starting a browser"; may change, to tell how far it is."""
    since: float = field(default_factory=time.monotonic)
    """When it began."""


_DOING: list[Doing] = []


@contextlib.contextmanager
def note_doing(what: str) -> Iterator[Doing]:
    """Note an operation while the block runs, so that the command line can show it."""
    one = Doing(what)
    _DOING.append(one)
    try:
        yield one
    finally:
        _DOING.remove(one)


def get_latest_doing() -> Doing | None:
    """Return the latest operation that is still running; None if there is none."""
    # Copied, because other threads add and remove meanwhile.
    known = list(_DOING)
    return known[-1] if known else None


async def run_in_background(function: Callable[..., ResultT], *args: Any) -> ResultT:
    """Run a function in a thread of its own. On cancellation this returns at once and the function keeps running."""
    # A daemon thread of our own: those of `asyncio.to_thread` are waited for when the loop closes.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()

    def settle(report: Callable[[Any], None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            # The future may be cancelled by then; setting a result would raise in the loop.
            loop.call_soon_threadsafe(lambda: None if done.done() else report(what))

    def run() -> None:
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - the waiting coroutine raises it, whatever it is
            settle(done.set_exception, error)
        else:
            settle(done.set_result, result)

    # Context variables do not cross threads by themselves; settings such as trust must.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name=_NAME, daemon=True).start()
    return await done


def is_left_behind() -> bool:
    """Return whether background work is still running: the process must then exit without waiting or cleaning up."""
    threads = [thread for thread in threading.enumerate() if thread.name == _NAME]
    for thread in threads:
        thread.join(_MOMENT_S)
    return any(thread.is_alive() for thread in threads)
