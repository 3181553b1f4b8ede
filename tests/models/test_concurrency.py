import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.models.base import CallClock, Request
from collab.models.concurrency import START, CallWindow, Slots
from collab.models.http import ServerRefusal
from collab.models.openai import OpenAIModel
from collab.testing.fake_server import FakeServer, Fault
from collab.types import Prompt, Sampling, Segment

NEWS = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=200)
"""(answered or refused, how many eras ago the call was sent)."""


# ---------------------------------------------------------------------------------------------------- the window


@given(st.integers(1, 100), NEWS)
def test_the_window_stays_within_its_bounds(limit: int, news: list[tuple[bool, int]]) -> None:
    window = CallWindow.fresh(limit)
    assert window.size == min(limit, START)
    for good, ago in news:
        before = window
        era = before.era - ago
        window = before.note_answer(era) if good else before.note_refusal(era)
        assert 1 <= window.size <= limit
        if ago:
            assert window == before  # late news change nothing
        elif good:
            assert window.size - before.size in (0, 1)
        else:
            assert window.size == max(1, before.size // 2)
            assert window.era == before.era + 1


@given(st.integers(1, 64), st.integers(2, 20))
def test_calls_of_one_window_that_fail_together_halve_it_once(limit: int, failures: int) -> None:
    window = CallWindow.fresh(limit)
    once = window.note_refusal(window.era)
    many = window
    for _ in range(failures):
        many = many.note_refusal(window.era)
    assert many == once


def test_growth_is_one_per_answer_before_the_first_refusal_and_one_per_window_after() -> None:
    window = CallWindow.fresh(64)
    sizes = []
    for _ in range(4):
        window = window.note_answer(0)
        sizes.append(window.size)
    assert sizes == [9, 10, 11, 12]
    window = window.note_refusal(0)
    assert window.size == 6
    sizes = []
    for _ in range(6 + 7):
        window = window.note_answer(1)
        sizes.append(window.size)
    assert sizes == [6] * 5 + [7] * 7 + [8]


# ----------------------------------------------------------------------------------------------------- the slots


def play(scene: Callable[[], Awaitable[Any]]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(20):
            return await scene()

    return asyncio.run(limited())


def test_slots_go_to_those_who_came_first_and_to_those_tried_again_before_them() -> None:
    order: list[str] = []

    async def scene() -> None:
        slots = Slots(CallWindow(limit=1, size=1))

        async def call(name: str, again: bool = False) -> None:
            async with slots.one(again=again):
                order.append(name)
                await asyncio.sleep(0.001)

        async with asyncio.TaskGroup() as group:
            for name in ("first", "second", "third"):
                group.create_task(call(name))
                await asyncio.sleep(0)
            group.create_task(call("again", again=True))
        assert slots.active == 0

    play(scene)
    assert order == ["first", "again", "second", "third"]


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=25))
def test_no_slot_is_lost_or_given_twice_when_callers_leave(size: int, calls: list[tuple[int, int, bool]]) -> None:
    """Each caller works for some turns of the loop and may be cancelled after some, waiting or not."""

    async def scene() -> None:
        slots = Slots(CallWindow(limit=size, size=size))
        most = finished = 0

        async def call(turns: int, again: bool) -> None:
            nonlocal most, finished
            async with slots.one(again=again):
                most = max(most, slots.active)
                for _ in range(turns):
                    await asyncio.sleep(0)
            finished += 1

        async def leave(task: asyncio.Task[None], turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()

        tasks = [(asyncio.create_task(call(work, again)), patience) for work, patience, again in calls]
        leaving = [asyncio.create_task(leave(task, patience)) for task, patience in tasks if patience < 4]
        staying = [task for task, patience in tasks if patience >= 4]
        await asyncio.gather(*leaving, *(task for task, _ in tasks), return_exceptions=True)
        assert most <= size
        assert slots.active == 0
        assert finished >= len(staying)

    play(scene)


def test_an_idle_server_proves_nothing() -> None:
    async def scene() -> CallWindow:
        slots = Slots(CallWindow.fresh(64))
        for _ in range(50):
            async with slots.one() as era:
                slots.note_answer(era)
        return slots.window

    assert play(scene).size == START


# --------------------------------------------------------------------------------------- against a hidden capacity


@pytest.mark.parametrize("capacity", [1, 3, 12, 40])
def test_the_window_settles_below_a_hidden_capacity(capacity: int) -> None:
    """In exact time: an answer takes 1, a refusal 0.1, and every refused request is repeated at once."""
    window, now, active = CallWindow.fresh(64), 0.0, 0
    flying: list[tuple[float, int, bool]] = []  # when it ends, its era, whether it is answered
    sizes, refusals = [], 0
    while len(sizes) < 2000:
        while len(flying) < window.size:
            good = active < capacity
            active += good
            heapq.heappush(flying, (now + (1.0 if good else 0.1), window.era, good))
        now, era, good = heapq.heappop(flying)
        if good:
            active -= 1
            window = window.note_answer(era)
            sizes.append(window.size)
        else:
            refusals += 1
            window = window.note_refusal(era)
    settled = sizes[500:]
    assert max(settled) <= capacity + 1
    assert sum(settled) / len(settled) >= 0.6 * capacity
    # the first opening may overshoot by a whole window; later ones take 3K²/8 answers from K/2 to K
    assert refusals <= 2 + capacity + len(sizes) / (capacity**2 / 4)


def request(text: str, clock: CallClock | None = None) -> Request:
    prompt = Prompt(system="", shared=text, segments=(Segment(text="."),))
    return Request(prompt=prompt, sampling=Sampling(), seed=hash(text) % 1000, clock=clock)


def crowd(server: FakeServer, calls: int, concurrency: int) -> tuple[OpenAIModel, list[int]]:
    """Many calls at once; the model, and the window's size after each answer."""
    model = OpenAIModel(model="fake", base_url=server.url, concurrency=concurrency, retries=8)
    model.wait = lambda seconds: asyncio.sleep(seconds / 100)
    sizes: list[int] = []

    async def call(number: int) -> None:
        assert (await model.generate(request(f"Task {number}"))).text == f"Task {number}."
        sizes.append(model.window.size)

    async def scene() -> None:
        await model.probe()
        await asyncio.gather(*map(call, range(calls)))
        await model.close()

    play(scene)
    return model, sizes


@pytest.mark.slow
def test_a_crowd_before_a_small_server_is_served_without_a_failure() -> None:
    with FakeServer(delay_s=0.02, capacity=3) as server:
        model, sizes = crowd(server, calls=100, concurrency=64)
        assert server.most_at_once < 64
        assert server.refusals < 40, "sent all at once, nearly every call would be refused, and more than once"
        assert max(sizes[20:]) <= 16
        notes = asyncio.run(noted(model))
    assert model.meter.snapshot().failures == 0
    assert f"concurrency: {model.window.size} of at most 64" in notes


@pytest.mark.variations
@pytest.mark.parametrize(
    ("fault", "halved"),
    [
        (Fault(status=429), True),
        (Fault(status=503), True),
        (Fault(broken="hang"), True),
        (Fault(status=500), False),
        (Fault(broken="close"), False),
    ],
    ids=["429", "503", "timeout", "500", "lost"],
)
def test_what_says_that_there_is_too_much_halves_the_window(fault: Fault, halved: bool) -> None:
    """A timeout too; an error or a lost connection does not say so."""
    with FakeServer() as server:
        model = OpenAIModel(model="fake", base_url=server.url, concurrency=8, timeout_s=1.0)
        model.wait = lambda seconds: asyncio.sleep(0)

        async def scene() -> None:
            await model.probe()
            server.faults.append(fault)
            assert (await model.generate(request("Task"))).text == "Task."
            await model.close()

        play(scene)
    assert model.window.size == (4 if halved else 8)


async def noted(model: OpenAIModel) -> tuple[str, ...]:
    return (await model.probe()).notes


@pytest.mark.slow
def test_a_server_that_bears_everything_is_given_everything() -> None:
    with FakeServer(delay_s=0.02) as server:
        model, _ = crowd(server, calls=120, concurrency=24)
    assert START < server.most_at_once <= 24
    assert model.window == CallWindow(limit=24, size=24)


@pytest.mark.slow
def test_waiting_for_a_slot_is_no_call_time_but_trying_again_is() -> None:
    async def scene(server: FakeServer) -> list[Any]:
        model = OpenAIModel(model="fake", base_url=server.url, concurrency=1)
        await model.probe()

        async def timed(number: int) -> Any:
            clock = CallClock(1.0)
            async with clock.running():
                return await model.generate(request(f"{number}", clock))

        patient = await asyncio.gather(*(timed(number) for number in range(5)), return_exceptions=True)
        server.faults.extend(Fault(status=500) for _ in range(3))
        impatient = await asyncio.gather(timed(9), return_exceptions=True)
        await model.close()
        return [*patient, *impatient]

    with FakeServer(delay_s=0.3) as server:
        *patient, impatient = play(lambda: scene(server))
    assert [reply.text for reply in patient] == [f"{number}." for number in range(5)]  # the last waited longer
    assert isinstance(impatient, ServerRefusal)
    assert "beyond the call's limit" in str(impatient)
