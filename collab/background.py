"""Long work in a thread of its own, which is left behind when nobody waits for it any more; and what takes long.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

_NAME = "collab-background"
_MOMENT_S = 0.1
"""What a thread that has told its result may take to end."""


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
