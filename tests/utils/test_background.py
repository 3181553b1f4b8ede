"""Work in a thread of its own: its result and its errors arrive, and nobody has to wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time

import pytest

from collab.utils.concurrency import Stopped, in_background, is_left_behind, unless_stopped

NUMBER = contextvars.ContextVar("NUMBER", default=0)


def test_result_errors_and_context_are_those_of_the_function() -> None:
    async def ask() -> int:
        NUMBER.set(3)
        with pytest.raises(KeyError, match="nowhere"):
            await in_background({}.__getitem__, "nowhere")
        return await in_background(lambda more: NUMBER.get() + more, 4)

    assert asyncio.run(ask()) == 7
    assert not is_left_behind()


def test_who_is_cancelled_leaves_at_once_and_the_work_goes_on() -> None:
    begun, wanted, done = threading.Event(), threading.Event(), threading.Event()

    def stubborn() -> None:
        begun.set()
        wanted.wait()
        done.set()

    async def leave() -> None:
        task = asyncio.create_task(in_background(stubborn))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert is_left_behind()
    wanted.set()
    assert done.wait(10)
    while is_left_behind():  # it finds the loop closed, and ends without a word
        time.sleep(0.01)


def test_work_is_waited_for_until_it_is_to_stop_and_a_little_longer() -> None:
    async def scene() -> None:
        stop = asyncio.Event()
        assert await unless_stopped(asyncio.sleep(0, "done"), stop, "it slept") == "done"
        assert await unless_stopped(asyncio.sleep(0, "done"), None, "it slept") == "done"
        stop.set()
        assert await unless_stopped(asyncio.sleep(0.01, "done"), stop, "it slept", grace_s=10) == "done"
        with pytest.raises(Stopped, match="stopped on request while it slept"):
            await unless_stopped(asyncio.sleep(60), stop, "it slept")

        async def late() -> None:
            raise TimeoutError("its own")

        with pytest.raises(TimeoutError, match="its own"):
            await unless_stopped(late(), stop, "it slept", grace_s=10)

    asyncio.run(scene())
