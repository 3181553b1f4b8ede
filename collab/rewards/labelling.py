"""Label a run: judge many steps at once, each once, independently of the process that plays.

    with LabelWriter(run, "oracle", head) as writer:
        labelling = await label_cases(cases, critic, writer)

Judged steps are skipped, so the same call resumes where a killed one stopped. If a critic fails on a step (its model or
its environment failed), the step is recorded as failed, the others continue, and the next call asks again. Answers
before the failure were paid for, so their cost is recorded with it. Labelling stops after ten failures in a row, as the
steps are not their cause. It also stops after ten judgements in a row without a single score, when a model answers
something else.

`label_all` does this for any judge and kind of labels; verdicts on episodes are given in the same way
(`collab.rewards.verifiers.verdicts`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from collab.config import Budget
from collab.errors import EnvironmentFailure, ModelFailure, boundary
from collab.models.base import count_lost_calls
from collab.rewards.base import UNREAD, Critic, CriticCall, CriticInput, Judgement, drop_invalid_scores, sum_spent
from collab.rewards.labels import HeadT, LabelledCase, LabelT, LabelWriter, StoredLabelWriter
from collab.rewards.structured_replies import PartlyAnswered
from collab.rollout.collector import UsageMeter
from collab.types import Usage
from collab.utils.concurrency import PATIENCE, WorkerPool
from collab.utils.redact import redact
from collab.utils.text import format_amount

_SHOWN = 80
"""Characters of a reply that a message repeats."""
CaseT = TypeVar("CaseT", bound=LabelledCase)


@dataclass(slots=True, kw_only=True)
class JudgingProgress(UsageMeter):
    """Progress of any judge; a live object."""

    known: int = 0
    """Cases that were judged before."""
    judged: int = 0
    failed: int = 0
    """Cases on which the judge failed; the next call asks about them again."""
    failed_in_a_row: int = 0
    """Failures since the last judged case, over all calls that share this object."""
    silent_in_a_row: int = 0
    """Labels that say nothing since the last that did, counting only those for which a model was asked."""
    missing: Counter[str] = field(default_factory=Counter)
    """What new labels do not say, by cause: cells without a score, episodes without a verdict."""
    stopped: str | None = None
    """Why the work ended early; None when every case was asked about."""


@dataclass(slots=True, kw_only=True)
class LabellingProgress(JudgingProgress):
    """Progress of a critic's labels and its result; a live object."""

    threshold: float = 0.5
    """A score above it is a reward."""
    rewarded: int = 0
    cells: int = 0
    """Cells of new judgements with a score."""

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
    labelling = so_far or LabellingProgress()

    async def judge(case: CriticInput) -> Judgement:
        judgement = drop_invalid_scores(await critic.judge(case))
        # A judgement that lacks cells would count as silence about them.
        _require_whole(case, judgement)
        return judgement

    judging = Judging(
        who="critic",
        judge=judge,
        asked=critic,
        name=critic.name,
        count=labelling.count,
        is_silent=lambda judgement: judgement.silent,
        describe_silence=lambda count, last: f"no score in {count} judgements in a row; {format_last_reply(last)}",
    )
    await label_all(
        cases,
        judging,
        writer,
        labelling,
        concurrency=concurrency,
        budget=budget or Budget(),
        stop=stop,
        watch=lambda: watch(labelling),
        most_silent=most_silent,
    )
    return labelling


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging(Generic[CaseT, LabelT]):
    """The way a judge is asked and its labels are counted."""

    who: str
    """Noun for messages, e.g. "critic"."""
    name: str
    """Its kind, for messages."""
    judge: Callable[[CaseT], Awaitable[LabelT]]
    """Any error that it raises concerns this case alone."""
    asked: object
    """The judge itself, whose unanswered calls are counted."""
    count: Callable[[LabelT], None]
    """Called with every new label."""
    is_silent: Callable[[LabelT], bool]
    """Whether a model was asked and said nothing that counts."""
    describe_silence: Callable[[int, LabelT], str]
    """Describes so many silent labels in a row and the last of them."""


async def label_all(
    cases: Iterable[CaseT],
    judging: Judging[CaseT, LabelT],
    writer: StoredLabelWriter[LabelT, HeadT],
    progress: JudgingProgress,
    *,
    concurrency: int,
    budget: Budget,
    stop: asyncio.Event | None,
    watch: Callable[[], object] = lambda: None,
    most_silent: int | None = PATIENCE,
) -> None:
    """Judge all cases that are not judged yet, and count in `progress`; other arguments and errors as `label_cases`."""
    # `stopped` may be set from outside: a failed rollout ends its labelling, too.
    pool = WorkerPool(
        cases, exceeded=lambda: progress.stopped or progress.explain_exceeded(budget), stop=stop, finishes=True
    )
    pool.failed_in_a_row = progress.failed_in_a_row
    worker = _LabelWorker(judging=judging, writer=writer, pool=pool, progress=progress, most_silent=most_silent)
    watch()
    before = count_lost_calls(judging.asked)
    try:
        await pool.run(concurrency, worker.work)
    finally:
        progress.stopped = progress.stopped or pool.stopped
        lost = count_lost_calls(judging.asked) - before
        progress.spent += Usage(lost=lost)
        writer.record_lost(lost)


@dataclass(slots=True, kw_only=True)
class _LabelWorker(Generic[CaseT, LabelT, HeadT]):
    """State that all workers share: one queue of cases, one writer, one count of failures."""

    judging: Judging[CaseT, LabelT]
    writer: StoredLabelWriter[LabelT, HeadT]
    pool: WorkerPool[CaseT]
    progress: JudgingProgress
    most_silent: int | None

    async def work(self) -> None:
        """Judge cases until none is left or labelling is stopped."""
        for case in self.pool.take():
            if self.writer.has_label(case):
                self.progress.known += 1
            elif self.pool.can_continue():
                await self._judge(case)
            await asyncio.sleep(0)  # a judge in pure Python never waits, so yield to other tasks here

    async def _judge(self, case: CaseT) -> None:
        judging = self.judging
        try:
            # Any exception of a judge concerns this case alone.
            with boundary(ModelFailure, f"{judging.who} {judging.name} on step {case.step} of {case.trajectory}"):
                label = await judging.judge(case)
        except PartlyAnswered as failure:
            # Answers before the failure were paid for.
            self._record_failure(case, failure.failure, failure.spent)
        except (EnvironmentFailure, ModelFailure) as failure:
            self._record_failure(case, failure)
        else:
            # Recorded before it is counted: a kill must not leave a count without its label.
            self.writer.record(label)
            judging.count(label)
            self._count_failure(None)
            self._count_heard(label)

    def _count_heard(self, label: LabelT) -> None:
        told, judging = self.progress, self.judging
        if judging.is_silent(label):
            told.silent_in_a_row += 1
        elif label.calls:
            told.silent_in_a_row = 0
        if told.silent_in_a_row == self.most_silent:
            self.pool.halt(
                f"{judging.describe_silence(told.silent_in_a_row, label)}; they are kept: "
                f"remove {self.writer.directory} to have this {judging.who} asked about them again"
            )

    def _record_failure(self, case: CaseT, failure: EnvironmentFailure | ModelFailure, spent: Usage = Usage()) -> None:
        self.progress.spent += spent
        self.writer.fail(case, failure, spent)
        self.progress.failed += 1
        self._count_failure(redact(str(failure)))

    def _count_failure(self, failure: str | None) -> None:
        self.pool.count(failure)
        self.progress.failed_in_a_row = self.pool.failed_in_a_row


def format_last_reply(judgement: Judgement) -> str:
    """Format the model's last reply without scores, with the causes, in one line."""
    return describe_reply(judgement.calls, [cause for cause in judgement.missing if cause != UNREAD])


def describe_reply(calls: Sequence[CriticCall], causes: Iterable[str]) -> str:
    """Format the beginning of the last reply, and what is wrong with it, in one line."""
    said = " ".join(redact(calls[-1].reply).split())
    return f"the last answer begins {said[:_SHOWN]!r} ({', '.join(causes)})"


def _require_whole(case: CriticInput, judgement: Judgement) -> None:
    """Raise ValueError unless a judgement is about this case, with one entry per cell in conversation order."""
    cells = [one.cell for one in judgement.rewards.rewards]
    if judgement.key != case.key or judgement.case != case.digest or cells != [cell.cell for cell in case.matrix]:
        raise ValueError(f"its judgement is not about this step with its {len(case.matrix.utterances)} cells")
