"""Judging a rollout by a critic, also while later episodes are still played.

    async with judging_ahead(state, run, out):
        await roll_out(state, run, out)
    labels = await judge(state, run, out, played)           # asks about what is left

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

from collab.algorithms.collabuiagents.config import CollabConfig
from collab.config import Budget, RunConfig
from collab.credit.case import Case, cases
from collab.credit.critic import Critic, Judgement
from collab.credit.labelling import Labelling, label, last_reply
from collab.credit.labels import FOLDER as LABELS
from collab.credit.labels import Labels, LabelWriter, labellings, read_labels
from collab.credit.language_prompt import TOO_LONG
from collab.credit.rebuild import Rebuilder
from collab.critics import MODEL
from collab.envs.base import Suite
from collab.errors import CollabError
from collab.loop.layout import LABELS as NAME
from collab.loop.state import Halted, LoopState
from collab.loop.step_budget import certain, planned_order
from collab.preferences.parties import opened_critic
from collab.resolve import build_suite
from collab.store.manifest import FILE
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.types import Trajectory
from collab.wording import amount

_SERVED = frozenset({"openai"})
"""Engines that compute elsewhere."""
_LOOK_S = 0.2
"""Seconds between two looks at what is over."""


def config_of(state: LoopState) -> CollabConfig:
    """Return the configuration of a training of this algorithm."""
    assert isinstance(state.config, CollabConfig), "the loop gives each algorithm its own configuration"
    return state.config


async def judge(state: LoopState, run: RunConfig, out: Path, played: Sequence[Trajectory]) -> Labels:
    """Have every step of a rollout judged that is not judged yet, and read the judgements.

    A step about which nobody could be asked stays unjudged and is counted; ten in a row stop the training, and so does
    more than half of all. So do answers without a single score.

    Raises:
        Halted: it stopped before its end, or knows less than half of it.
        StoreFailure: the judgements cannot be written.
    """
    state.begin("critic")
    suite = build_suite(run)
    with state.timed("critic", whole=NAME not in labellings(out) or "critic" in state.seconds):
        try:
            if _is_left(out, played, suite):
                told = await _label(state, run, out, played, suite)
                state.spend(told.spent)
                state.halt(told.stopped)
        finally:
            await suite.close()
    labels = read_labels(out, NAME)
    state.halt(_mostly_unjudged(labels, out))
    return labels


def _mostly_unjudged(labels: Labels, out: Path) -> str | None:
    """Why an epoch cannot be learned from, where a critic judged less than half of it; else None.

    It may not have been reached, have answered without a score, or not have been asked for want of room; what counts is
    their sum. Who goes on asks again only about steps for which it was not reached: where these decide, nothing else is
    left to do, and the message names them first.
    """
    judged, failed = list(labels.judged.values()), list(labels.failed.values())
    silent = [one for one in judged if one.silent]
    long = [one for one in judged if _is_too_long(one) and not one.silent]
    steps = len(failed) + len(judged)
    if 2 * (len(failed) + len(silent) + len(long)) <= steps:
        return None
    too_long = (len(long), f"{len(long)} of {amount(steps, 'step')} do not fit into the critic's context")
    mute = (len(silent), f"the critic gave no score about {len(silent)} of {amount(steps, 'step')}")
    unreached = (len(failed), f"the critic could not be asked about {len(failed)} of {amount(steps, 'step')}")
    if 2 * (len(silent) + len(long)) <= steps:
        causes, more = [unreached, too_long, mute], f"the last: {failed[-1].message}"
    elif len(long) >= len(silent):
        causes = [too_long, mute, unreached]
        more = (
            "begin another training with a larger context_tokens in the critic's agents file, or with a smaller "
            "history there"
        )
    else:
        causes = [mute, too_long, unreached]
        more = (
            f"{last_reply(silent[-1])}; begin another training with another critic, or remove {out / LABELS / NAME} to "
            "have this one asked again"
        )
    return "; ".join([", ".join(told for count, told in causes if count), more])


def _is_too_long(one: Judgement) -> bool:
    """Whether nothing of a step was shown to the critic, because it does not fit."""
    return TOO_LONG in one.missing and all(cell.score is None for cell in one.rewards.rewards)


def _is_left(out: Path, played: Sequence[Trajectory], suite: Suite) -> bool:
    """Whether the critic is to be asked about anything; opening one for nothing may take a server's time."""
    if NAME not in labellings(out):
        return True
    known = read_labels(out, NAME)
    return any(known.of(case) is None for one in played for case in cases(one, suite.space))


async def _label(state: LoopState, run: RunConfig, out: Path, played: Sequence[Trajectory], suite: Suite) -> Labelling:
    states = Rebuilder(suite)
    async with asking(state, run, out, state.left()) as (critic, writer):
        return await label(
            (case for one in played for case in cases(one, suite.space, states)),
            critic,
            writer,
            concurrency=run.concurrency,
            budget=state.left(),
            stop=state.stop,
            watch=state.inner,
            so_far=Labelling(threshold=config_of(state).method.pairs.threshold),
        )


@contextlib.asynccontextmanager
async def asking(
    state: LoopState, run: RunConfig, out: Path, budget: Budget
) -> AsyncIterator[tuple[Critic, LabelWriter]]:
    """The critic of a rollout, and where its words are written; raises as `opened_critic` and `LabelWriter`."""
    choice, call_s = config_of(state).judging(NAME, run.seed), run.environment.limits.call_s
    async with opened_critic(choice, budget, call_s, state.stop) as (critic, head):
        with LabelWriter(out, NAME, head) as writer:
            yield critic, writer


def is_waited_for(state: LoopState) -> bool:
    """Whether judging takes nothing but time: see above."""
    engine = config_of(state).critic.options.get(MODEL)
    served = isinstance(engine, dict) and engine.get("kind") in _SERVED
    return config_of(state).method.is_judged and served and state.budget.usd is None and state.budget.tokens is None


@contextlib.asynccontextmanager
async def judging_ahead(state: LoopState, run: RunConfig, out: Path) -> AsyncIterator[None]:
    """Judge episodes of the rollout that the block plays; where that gains nothing, do nothing beside the block.

    Behind the block the rest is judged, and that is the critic's time; when the block fails, only what is being asked
    is still answered. Where nobody could be asked, or judgements could not be written, nothing is said here: `judge`
    tries again and tells.

    Raises:
        Halted: nothing more may be done when the block has ended.
    """
    if not is_waited_for(state):
        yield
        return
    whole, over = NAME not in labellings(out), asyncio.Event()
    told = Labelling(threshold=config_of(state).method.pairs.threshold)
    judging = asyncio.create_task(_judge(state, run, out, over, told))
    failed: BaseException | None = None
    try:
        yield
        state.begin("critic")
        state.progress.inner = told
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
            with state.timed("critic", whole=whole):
                await _ended(judging, failed)
        finally:
            state.spend(told.spent)


async def _ended(judging: asyncio.Task[None], failed: BaseException | None) -> None:
    """Wait for it. What the block failed with is told, and not what judging fails with beside it."""
    if failed is None:
        await judging
        return
    (beside,) = await asyncio.gather(judging, return_exceptions=True)
    if isinstance(beside, Exception):
        failed.add_note(f"judging ahead failed, too: {beside!r}")


async def _judge(state: LoopState, run: RunConfig, out: Path, over: asyncio.Event, told: Labelling) -> None:
    while not over.is_set() and not (out / FILE).exists():
        await _pause(over)
    if over.is_set():
        return
    with contextlib.suppress(CollabError, Halted):
        suite = build_suite(run)
        try:
            await _follow(state, run, out, suite, over, told)
        finally:
            await suite.close()


async def _follow(
    state: LoopState, run: RunConfig, out: Path, suite: Suite, over: asyncio.Event, told: Labelling
) -> None:
    """Judge until the rollout is over and all of it is judged, or until something stops that."""
    steps, many, budget = config_of(state).method.steps, run.concurrency, state.left()
    async with asking(state, run, out, budget) as (critic, writer):
        with RunStore.open(out).reader() as reader:
            pile = _Pile(reader=reader, suite=suite, steps=steps, order=() if steps is None else planned_order(reader))
            last = False
            while not last and told.stopped is None:
                last = over.is_set()
                found = pile.cases()
                await label(found, critic, writer, concurrency=many, budget=budget, stop=state.stop, so_far=told)
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
