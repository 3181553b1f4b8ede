"""Label a run: judge many steps at once, each once, independently of the process that plays.

    with LabelWriter(run, "oracle", head) as writer:
        labelling = await label_cases(cases, critic, writer)

Judged steps are skipped, so the same call resumes where a killed one stopped. If a critic fails on a step (its model or
its environment failed), the step is recorded as failed, the others continue, and the next call asks again. Answers
before the failure were paid for, so their cost is recorded with it. Labelling stops after ten failures in a row, as the
steps are not their cause. It also stops after ten judgements in a row without a single score, when a model answers
something else.
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
class LabellingProgress(UsageMeter):
    """Progress of labelling and its result; a live object."""

    known: int = 0
    """Cases that were judged before."""
    judged: int = 0
    failed: int = 0
    """Cases on which the critic failed; the next call asks about them again."""
    failed_in_a_row: int = 0
    """Failures since the last judged case, over all calls of `label_cases` that share this object."""
    silent_in_a_row: int = 0
    """Judgements without a score since the last that had one, counting only those for which a model was asked."""
    missing: Counter[str] = field(default_factory=Counter)
    """Cells of new judgements without a score, by cause."""
    threshold: float = 0.5
    """A score above it is a reward."""
    rewarded: int = 0
    cells: int = 0
    """Cells of new judgements with a score."""
    stopped: str | None = None
    """Why labelling ended early; None when every case was asked about."""

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


async def label_cases(
    cases: Iterable[CriticInput],
    critic: Critic,
    writer: LabelWriter,
    *,
    concurrency: int = 4,
    budget: Budget | None = None,
    stop: asyncio.Event | None = None,
    watch: Callable[[LabellingProgress], None] = lambda labelling: None,
    so_far: LabellingProgress | None = None,
    most_silent: int | None = PATIENCE,
) -> LabellingProgress:
    """Judge all cases that are not judged yet.

    Args:
        cases: read lazily, one by one.
        concurrency: cases that are judged at the same time.
        budget: limits; the cases in flight when one is used up are still judged.
        stop: set from outside to end; the cases in flight get a few more seconds.
        watch: called once, with the live object.
        so_far: continues the counts of other labels under the same budget; None begins at zero.
        most_silent: judgements in a row without a single score before labelling stops; None never stops for that.

    Raises:
        StoreFailure: the labels cannot be written; what was recorded stays.
        UsageError: the critic does not fit the cases (another version of the environment …).
    """
    labelling, limits = so_far or LabellingProgress(), budget or Budget()
    # `stopped` may be set from outside: a failed rollout ends its labelling, too.
    pool = WorkerPool(
        cases, exceeded=lambda: labelling.stopped or labelling.explain_exceeded(limits), stop=stop, finishes=True
    )
    pool.failed_in_a_row = labelling.failed_in_a_row
    worker = _LabelWorker(critic=critic, writer=writer, pool=pool, labelling=labelling, most_silent=most_silent)
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
class _LabelWorker:
    """State that all workers share: one queue of cases, one writer, one count of failures."""

    critic: Critic
    writer: LabelWriter
    pool: WorkerPool[CriticInput]
    labelling: LabellingProgress
    most_silent: int | None

    async def work(self) -> None:
        """Judge cases until none is left or labelling is stopped."""
        for case in self.pool.take():
            if self.writer.has_label(case):
                self.labelling.known += 1
            elif self.pool.can_continue():
                await self._judge(case)
            await asyncio.sleep(0)  # a critic in pure Python never waits, so yield to other tasks here

    async def _judge(self, case: CriticInput) -> None:
        try:
            # Any exception of a critic concerns this step alone.
            with boundary(ModelFailure, f"critic {self.critic.name} on step {case.step} of {case.trajectory}"):
                judgement = drop_invalid_scores(await self.critic.judge(case))
                # A judgement that lacks cells would count as silence about them.
                _require_whole(case, judgement)
        except PartlyAnswered as failure:
            # Answers before the failure were paid for.
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
    """Format the model's last reply without scores, with the causes, in one line."""
    causes = ", ".join(cause for cause in judgement.missing if cause != UNREAD)
    said = " ".join(redact(judgement.calls[-1].reply).split())
    return f"the last answer begins {said[:_SHOWN]!r} ({causes})"


def _require_whole(case: CriticInput, judgement: Judgement) -> None:
    """Raise ValueError unless a judgement is about this case, with one entry per cell in conversation order."""
    cells = [one.cell for one in judgement.rewards.rewards]
    if judgement.key != case.key or judgement.case != case.digest or cells != [cell.cell for cell in case.matrix]:
        raise ValueError(f"its judgement is not about this step with its {len(case.matrix.utterances)} cells")
