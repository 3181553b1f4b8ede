"""A run's steps → judgements beside it: many at once, each once, off the path of whatever plays.

    with LabelWriter(run, "oracle", head) as writer:
        labelling = await label(cases, critic, writer)

What is judged already is passed over, so the same call again goes on where a killed one stopped. A case about which
nobody could be asked (its model or its world failed) is recorded as failed, its siblings go on, and the next call asks
again; after ten such in a row labelling stops, for it is not the cases' fault. What was answered of it was paid, and is
counted and recorded with the failure. Ten judgements in a row without a single score, by a model that answers all but
what it is asked, stop it, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from collab.config import Budget
from collab.errors import EnvironmentFailure, ModelFailure, boundary
from collab.models.base import count_lost_calls
from collab.rewards.base import UNREAD, Critic, CriticInput, Judgement, drop_invalid_scores, sum_spent
from collab.rewards.labels import LabelWriter
from collab.rewards.query import PartlyAnswered
from collab.rollout.collector import UsageMeter
from collab.types import Usage
from collab.utils.concurrency import PATIENCE, WorkerPool
from collab.utils.redact import redact
from collab.utils.text import format_amount

_SHOWN = 80
"""Characters of a reply that a message repeats."""


@dataclass(slots=True, kw_only=True)
class Labelling(UsageMeter):
    """How far it is; a live object, read by whoever shows it, and the result in the end."""

    known: int = 0
    """Cases that were judged before."""
    judged: int = 0
    failed: int = 0
    """Cases about which nobody could be asked; they are asked about again next time."""
    failed_in_a_row: int = 0
    """Since the last that was judged, in whatever call of `label` counts on in this object."""
    silent_in_a_row: int = 0
    """Judgements without a score since the last that had one; those for which no model was asked do not count."""
    missing: Counter[str] = field(default_factory=Counter)
    """Cells judged now that have no score, by cause."""
    threshold: float = 0.5
    """A score above it is a reward."""
    rewarded: int = 0
    cells: int = 0
    """Cells judged now that have a score."""
    stopped: str | None = None
    """Why it ended early; None when every case was asked about."""

    def __str__(self) -> str:
        """Return one line: how many steps are judged, and how many cells are rewarded."""
        rewarded = f"{self.rewarded}/{format_amount(self.cells, 'cell')} rewarded"
        return f"{format_amount(self.judged + self.known, 'step')} judged, {rewarded}"

    def count(self, judgement: Judgement) -> None:
        """Add one judgement."""
        self.judged += 1
        self.missing += judgement.missing
        scores = [one.score for one in judgement.rewards.rewards if one.score is not None]
        self.cells += len(scores)
        self.rewarded += sum(score > self.threshold for score in scores)
        self.spent += sum_spent(judgement.calls)


async def label(
    cases: Iterable[CriticInput],
    critic: Critic,
    writer: LabelWriter,
    *,
    concurrency: int = 4,
    budget: Budget | None = None,
    stop: asyncio.Event | None = None,
    watch: Callable[[Labelling], None] = lambda labelling: None,
    so_far: Labelling | None = None,
    most_silent: int | None = PATIENCE,
) -> Labelling:
    """Judge all cases that are not judged yet.

    Args:
        cases: read one by one as they are needed.
        concurrency: cases that are judged at the same time.
        budget: what may be spent; the cases in flight when it is used up are still judged.
        stop: set from outside to end; the cases in flight have a few seconds yet.
        watch: called once, with the live object.
        so_far: counts on in this one, of other labels under the same budget; None begins a new one.
        most_silent: judgements in a row without a single score before it stops; None never stops for that.

    Raises:
        StoreFailure: the labels cannot be written; what was recorded stays.
        UsageError: the critic does not fit the cases (another version of the environment …).
    """
    labelling, limits = so_far or Labelling(), budget or Budget()
    # `stopped` may be set from outside meanwhile: where a rollout fails, its judging ends with it
    pool = WorkerPool(
        cases, exceeded=lambda: labelling.stopped or labelling.explain_exceeded(limits), stop=stop, finishes=True
    )
    pool.failed_in_a_row = labelling.failed_in_a_row
    worker = _Worker(critic=critic, writer=writer, pool=pool, labelling=labelling, most_silent=most_silent)
    watch(labelling)
    before = count_lost_calls(critic)
    try:
        await pool.run(concurrency, worker.work)
    finally:
        labelling.stopped = labelling.stopped or pool.stopped
        lost = count_lost_calls(critic) - before
        labelling.spent += Usage(lost=lost)
        writer.record_lost(lost)
    return labelling


@dataclass(slots=True, kw_only=True)
class _Worker:
    """What all workers share: one pile of cases, one writer, one count of failures."""

    critic: Critic
    writer: LabelWriter
    pool: WorkerPool[CriticInput]
    labelling: Labelling
    most_silent: int | None

    async def work(self) -> None:
        """Judge cases until none is left or something says stop."""
        for case in self.pool.take():
            if self.writer.has_label(case):
                self.labelling.known += 1
            elif self.pool.may_go_on():
                await self._judge(case)
            await asyncio.sleep(0)  # a critic in pure Python never waits; here others have their turn

    async def _judge(self, case: CriticInput) -> None:
        try:
            # Whatever a critic raises is an answer about this step alone.
            with boundary(ModelFailure, f"critic {self.critic.name} on step {case.step} of {case.trajectory}"):
                judgement = drop_invalid_scores(await self.critic.judge(case))
                # A judgement that lacks cells would count as silence about them.
                _require_whole(case, judgement)
        except PartlyAnswered as failure:
            # What was answered before the failure was paid for.
            self._record_failure(case, failure.failure, failure.spent)
        except (EnvironmentFailure, ModelFailure) as failure:
            self._record_failure(case, failure)
        else:
            # Recorded before it is counted: a kill must not leave a count without its judgement.
            self.writer.record(judgement)
            self.labelling.count(judgement)
            self._count_failure(None)
            self._count_heard(judgement)

    def _count_heard(self, judgement: Judgement) -> None:
        told = self.labelling
        if judgement.silent:
            told.silent_in_a_row += 1
        elif judgement.calls:
            told.silent_in_a_row = 0
        if told.silent_in_a_row == self.most_silent:
            self.pool.halt(
                f"no score in {told.silent_in_a_row} judgements in a row; {format_last_reply(judgement)}; "
                "they are kept: "
                f"remove {self.writer.directory} to have this critic asked about them again"
            )

    def _record_failure(
        self, case: CriticInput, failure: EnvironmentFailure | ModelFailure, spent: Usage = Usage()
    ) -> None:
        self.labelling.spent += spent
        self.writer.fail(case, failure, spent)
        self.labelling.failed += 1
        self._count_failure(redact(str(failure)))

    def _count_failure(self, failure: str | None) -> None:
        self.pool.count(failure)
        self.labelling.failed_in_a_row = self.pool.failed_in_a_row


def format_last_reply(judgement: Judgement) -> str:
    """What a model answered last instead of scores, and what was wrong with it, in one line."""
    causes = ", ".join(cause for cause in judgement.missing if cause != UNREAD)
    said = " ".join(redact(judgement.calls[-1].reply).split())
    return f"the last answer begins {said[:_SHOWN]!r} ({causes})"


def _require_whole(case: CriticInput, judgement: Judgement) -> None:
    """ValueError unless a judgement is about this case and has one entry per cell, in conversation order."""
    cells = [one.cell for one in judgement.rewards.rewards]
    if judgement.key != case.key or judgement.case != case.digest or cells != [cell.cell for cell in case.matrix]:
        raise ValueError(f"its judgement is not about this step with its {len(case.matrix.utterances)} cells")
