"""Long work that ends when it is to stop, work in a thread of its own, which is left behind then, and what takes long.

    capabilities = await unless_stopped(team.probe(), stop, "the models were asked what they support")
    result = await in_background(train, folder)
    with doing("loading the model"): ...                # the command line says so where it takes long

Threads of `asyncio.to_thread` are waited for wherever a loop of events ends, so whoever leaves a command amid an
optimizer step would have to sit it out. What works here must bear to be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from collab.errors import RunError

ResultT = TypeVar("ResultT")

GRACE_S = 3.0
"""How long a question that is on its way is still waited for once work is to stop."""
_NAME = "collab-background"
_MOMENT_S = 0.1
"""What a thread that has told its result may take to end."""


class Stopped(RunError):
    """Work was ended on request before it was done."""


async def unless_stopped(
    work: Awaitable[ResultT], stop: asyncio.Event | None, doing: str, *, grace_s: float = 0.0
) -> ResultT:
    """Wait for some work, but not longer than until somebody asks to stop; it is cancelled then.

    Args:
        stop: set from outside; None waits to the end.
        doing: what the work is, for the message: "the models were asked what they support".
        grace_s: how long the work is waited for after that.

    Raises:
        Stopped: it was not done in time.
    """
    if stop is None:
        return await work
    limit = asyncio.timeout(None)
    try:
        async with limit:
            watcher = asyncio.create_task(_end_when(stop, limit, grace_s))
            try:
                return await work
            finally:
                watcher.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise Stopped(f"stopped on request while {doing}") from None


async def _end_when(stop: asyncio.Event, limit: asyncio.Timeout, grace_s: float) -> None:
    await stop.wait()
    limit.reschedule(asyncio.get_running_loop().time() + grace_s)


@dataclass(eq=False, frozen=True, slots=True)
class Doing:
    """Something that may take long."""

    what: str
    """As a person is told, e.g. "starting a browser"."""


_DOING: list[Doing] = []


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Note what is being done while the block runs, so that whoever waits can be told."""
    one = Doing(what)
    _DOING.append(one)
    try:
        yield
    finally:
        _DOING.remove(one)


def latest_doing() -> Doing | None:
    """Return what was begun last and goes on; None where nothing that was noted does."""
    known = list(_DOING)
    return known[-1] if known else None


async def in_background(function: Callable[..., ResultT], *args: Any) -> ResultT:
    """What a function returns or raises; cancelled, this returns at once and the function works on."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ResultT] = loop.create_future()

    def tell(report: Callable[[Any], None], what: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: whoever waited has left
            loop.call_soon_threadsafe(lambda: None if done.done() else report(what))

    def run() -> None:
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - whoever waits is to have it, whatever it is
            tell(done.set_exception, error)
        else:
            tell(done.set_result, result)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name=_NAME, daemon=True).start()
    return await done


def is_left_behind() -> bool:
    """Whether some work goes on. A process that ends with it must not wait, nor clear up under its feet."""
    threads = [thread for thread in threading.enumerate() if thread.name == _NAME]
    for thread in threads:
        thread.join(_MOMENT_S)
    return any(thread.is_alive() for thread in threads)
