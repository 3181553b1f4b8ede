"""Pools of workers, and work in a thread of its own: results and errors arrive, and nothing waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
import time
from typing import Any

import pytest

from collab.utils.concurrency import (
    Stopped,
    WorkerPool,
    is_left_behind,
    run_in_background,
    run_together,
    wait_unless_stopped,
)

NUMBER = contextvars.ContextVar("NUMBER", default=0)


def test_result_errors_and_context_are_those_of_the_function() -> None:
    async def ask() -> int:
        NUMBER.set(3)
        with pytest.raises(KeyError, match="nowhere"):
            await run_in_background({}.__getitem__, "nowhere")
        return await run_in_background(lambda more: NUMBER.get() + more, 4)

    assert asyncio.run(ask()) == 7
    assert not is_left_behind()


def test_who_is_cancelled_leaves_at_once_and_the_work_continues() -> None:
    begun, wanted, done = threading.Event(), threading.Event(), threading.Event()

    def stubborn() -> None:
        begun.set()
        wanted.wait()
        done.set()

    async def leave() -> None:
        task = asyncio.create_task(run_in_background(stubborn))
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
        assert await wait_unless_stopped(asyncio.sleep(0, "done"), stop, "it slept") == "done"
        assert await wait_unless_stopped(asyncio.sleep(0, "done"), None, "it slept") == "done"
        stop.set()
        assert await wait_unless_stopped(asyncio.sleep(0.01, "done"), stop, "it slept", grace_s=10) == "done"
        with pytest.raises(Stopped, match="stopped on request while it slept"):
            await wait_unless_stopped(asyncio.sleep(60), stop, "it slept")

        async def late() -> None:
            raise TimeoutError("its own")

        with pytest.raises(TimeoutError, match="its own"):
            await wait_unless_stopped(late(), stop, "it slept", grace_s=10)

    asyncio.run(scene())


def pool_of(items: list[int], **options: Any) -> WorkerPool[int]:
    return WorkerPool(items, **{"exceeded": lambda: None, **options})


def test_workers_share_a_queue_and_end_with_it() -> None:
    async def scene() -> tuple[list[int], str | None]:
        pool, done = pool_of([1, 2, 3, 4, 5]), list[int]()

        async def work() -> None:
            for item in pool.take():
                await asyncio.sleep(0)
                done.append(item)

        await pool.run(3, work)
        return done, pool.stopped

    done, stopped = asyncio.run(scene())
    assert (sorted(done), stopped) == ([1, 2, 3, 4, 5], None)


@pytest.mark.parametrize(
    ("finishes", "cause", "done", "stopped"),
    [
        (False, "limit", [1], "budget used up"),
        (True, "limit", [1, 2], "budget used up"),  # what is begun is paid
        (False, "request", [1], "stopped on request"),
        (True, "request", [1, 2], "stopped on request"),
    ],
)
def test_what_is_begun_is_cancelled_or_finished(
    finishes: bool, cause: str, done: list[int], stopped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> tuple[list[int], str | None]:
        stop, over, first = asyncio.Event(), list[int](), asyncio.Event()
        limit = "budget used up" if cause == "limit" else None
        pool = pool_of([1, 2, 3], stop=stop, finishes=finishes, exceeded=lambda: limit if first.is_set() else None)

        async def work() -> None:
            for item in pool.take():
                if item == 1:
                    over.append(item)
                    first.set()
                    if cause == "request":
                        stop.set()
                elif pool.can_continue() or item == 2:
                    await asyncio.sleep(0.05)
                    over.append(item)

        await pool.run(2, work)
        return over, pool.stopped

    assert asyncio.run(scene()) == (done, stopped)


def test_who_does_not_end_after_a_request_has_a_moment_and_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collab.utils.concurrency.GRACE_S", 0.01)

    async def scene() -> str | None:
        stop = asyncio.Event()
        pool = pool_of([1], stop=stop, finishes=True)

        async def work() -> None:
            for _ in pool.take():
                stop.set()
                await asyncio.sleep(60)

        await pool.run(1, work)
        return pool.stopped

    assert asyncio.run(scene()) == "stopped on request"


def test_ten_failures_in_a_row_end_it_and_an_error_is_raised_plainly() -> None:
    async def failing() -> WorkerPool[int]:
        pool = pool_of(list(range(30)), failing="things in a row broke")

        async def work() -> None:
            for item in pool.take():
                pool.count(None if item == 5 else f"thing {item}")

        await pool.run(1, work)
        return pool

    pool = asyncio.run(failing())
    assert pool.stopped == "10 things in a row broke, the last: thing 15"
    assert list(pool.take()) == []

    async def raising() -> None:
        pool = pool_of([1, 2])

        async def work() -> None:
            for item in pool.take():
                await asyncio.sleep(60 if item == 1 else 0)
                raise ValueError(f"item {item}")

        await pool.run(2, work)

    with pytest.raises(ValueError, match="item 2"):
        asyncio.run(raising())


def test_minutes_run_out_though_nothing_ends() -> None:
    async def scene() -> str | None:
        pool = pool_of([1], exceeded=lambda: "budget used up: minutes", has_clock=True)

        async def work() -> None:
            for _ in pool.take():
                await asyncio.sleep(60)

        await pool.run(1, work)
        return pool.stopped

    assert asyncio.run(scene()) == "budget used up: minutes"


def test_jobs_together_keep_their_order_and_only_so_many_run_at_once() -> None:
    running, most = 0, 0

    async def job(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (5 - number))
        running -= 1
        return number

    found = asyncio.run(run_together([functools.partial(job, number) for number in range(5)], at_once=2))
    assert (found, most) == ([0, 1, 2, 3, 4], 2)
