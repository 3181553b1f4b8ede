"""Judging while later episodes are still played, so that nobody waits for a critic behind a server.

    async with judging_ahead(loop, run, out):
        await roll_out(loop, run, out)
    labels = await judged(loop, run, folder, played)        # asks about what is left

An episode is judged as soon as it is recorded and sure to be learned from. What is said of a step depends on the step,
the critic and its seed alone, and what is judged is not asked again: labels, pairs and hashes are those of a critic
that waited, wherever the training was killed.

Only a critic that is waited for is asked ahead. One that computes in this process (the oracle, a local model) would
take from the rollout what it gains, and memory beside; and limits on money or tokens are spent by one part at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collab.config import RunConfig
from collab.credit.case import Case, cases
from collab.credit.labelling import Labelling, label
from collab.credit.labels import labellings
from collab.credit.rebuild import Rebuilder
from collab.critics import MODEL
from collab.envs.base import Suite
from collab.errors import CollabError
from collab.marl.judge import NAME, asking
from collab.marl.loop_state import Halted, Loop
from collab.marl.step_budget import certain, planned_order
from collab.resolve import build_suite
from collab.store.manifest import FILE
from collab.store.reader import RunReader
from collab.store.run import RunStore

_SERVED = frozenset({"openai"})
"""Engines that compute elsewhere."""
_LOOK_S = 0.2
"""Seconds between two looks at what is over."""


def is_waited_for(loop: Loop) -> bool:
    """Whether judging takes nothing but time: see above."""
    engine = loop.config.critic.options.get(MODEL)
    served = isinstance(engine, dict) and engine.get("kind") in _SERVED
    return loop.config.method.is_judged and served and loop.budget.usd is None and loop.budget.tokens is None


@contextlib.asynccontextmanager
async def judging_ahead(loop: Loop, run: RunConfig, out: Path) -> AsyncIterator[None]:
    """Judge episodes of the rollout that the block plays; where that gains nothing, do nothing beside the block.

    Behind the block the rest is judged, and that is the critic's time; when the block fails, only what is being asked
    is still answered. Where nobody could be asked, or judgements could not be written, nothing is said here: `judge`
    tries again and tells.

    Raises:
        Halted: nothing more may be done when the block has ended.
    """
    if not is_waited_for(loop):
        yield
        return
    whole, over = NAME not in labellings(out), asyncio.Event()
    told = Labelling(threshold=loop.config.method.pairs.threshold)
    judging = asyncio.create_task(_judge(loop, run, out, over, told))
    failed: BaseException | None = None
    try:
        yield
        loop.begin("critic")
        loop.progress.inner = told
    except asyncio.CancelledError as error:
        judging.cancel()
        failed = error
        raise
    except Exception as error:
        told.stopped, failed = repr(error), error
        raise
    finally:
        over.set()
        try:
            with loop.timed("critic", whole=whole):
                await _ended(judging, failed)
        finally:
            loop.spend(told.spent)


async def _ended(judging: asyncio.Task[None], failed: BaseException | None) -> None:
    """Wait for it. What the block failed with is told, and not what judging fails with beside it."""
    if failed is None:
        await judging
        return
    (beside,) = await asyncio.gather(judging, return_exceptions=True)
    if isinstance(beside, Exception):
        failed.add_note(f"judging ahead failed, too: {beside!r}")


async def _judge(loop: Loop, run: RunConfig, out: Path, over: asyncio.Event, told: Labelling) -> None:
    while not over.is_set() and not (out / FILE).exists():
        await _pause(over)
    if over.is_set():
        return
    with contextlib.suppress(CollabError, Halted):
        suite = build_suite(run)
        try:
            await _follow(loop, run, out, suite, over, told)
        finally:
            await suite.close()


async def _follow(loop: Loop, run: RunConfig, out: Path, suite: Suite, over: asyncio.Event, told: Labelling) -> None:
    """Judge until the rollout is over and all of it is judged, or until something stops that."""
    steps, many, budget = loop.config.method.steps, run.concurrency, loop.left()
    async with asking(loop, run, out, budget) as (critic, writer):
        with RunStore.open(out).reader() as reader:
            pile = _Pile(reader=reader, suite=suite, steps=steps, order=() if steps is None else planned_order(reader))
            last = False
            while not last and told.stopped is None:
                last = over.is_set()
                found = pile.cases()
                await label(found, critic, writer, concurrency=many, budget=budget, stop=loop.stop, so_far=told)
                await _pause(over)


async def _pause(over: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), _LOOK_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pile:
    """Episodes that are over, each taken once."""

    reader: RunReader
    suite: Suite
    steps: int | None
    """That the rollout ends with; None where all its episodes belong to it."""
    order: Sequence[str]
    """All planned episodes, where it has `steps`."""
    taken: set[str] = field(default_factory=set)
    states: Rebuilder = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", Rebuilder(self.suite))

    def cases(self) -> Iterator[Case]:
        """Steps of those not taken yet, and of those that end meanwhile."""
        while fresh := self._fresh():
            for name in fresh:
                self.taken.add(name)
                yield from cases(self.reader.trajectory(name), self.suite.space, self.states)

    def _fresh(self) -> list[str]:
        self.reader.refresh()
        # One that broke may be played again, and then have steps: what lies behind it in the plan is not sure yet.
        over = {one.id: one.steps for one in self.reader.episodes() if one.state == "finished"}
        sure = over if self.steps is None else certain(over, self.order, self.steps)
        return [name for name in sure if name not in self.taken]
