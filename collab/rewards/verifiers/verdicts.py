"""Verdicts on the episodes of a run, beside the run; each is given once.

    RUN/verdicts/NAME/verdict.json        verifier, options and seed; written once
    RUN/verdicts/NAME/events/*.jsonl      one line per judged episode, and one per episode on which the verifier failed

    verified = await verify_rollout(rollout.trajectories, rollout.reader, choice, seed=run.seed)
    verified.successes["ContactsAddContact/0"]      # True or False; episodes without a verdict are not in it
    verified.missing, verified.spent, verified.digest

The files are those of labels (`collab.rewards.labels`), so a killed process resumes where it stopped, and no verdict is
paid for twice. An episode without a verdict is neither a success nor a failure. It is left out and counted.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collab.config import Budget
from collab.errors import CollabError, ModelFailure, UsageError, check_answer
from collab.rewards.base import sum_spent
from collab.rewards.labelling import Judging, JudgingProgress, describe_reply, label_all
from collab.rewards.labels import StoredLabelWriter
from collab.rewards.registry import describe_difference
from collab.rewards.verifiers.base import OutcomeVerifier, Pictures, Verdict, VerifierInput
from collab.rewards.verifiers.registry import VerifierChoice, open_verifier
from collab.rewards.verifiers.store import VERDICTS, VerdictHead, VerdictSet
from collab.rollout.collector import UsageMeter
from collab.store.reader import RunReader
from collab.types import Observation, Trajectory, Usage
from collab.utils.concurrency import PATIENCE
from collab.utils.files import hash_text
from collab.utils.text import format_amount


@dataclass(slots=True, kw_only=True)
class VerifyingProgress(JudgingProgress):
    """Progress of verdicts; a live object."""

    planned: int = 0
    """Verdicts in all."""
    solved: int = 0
    """New verdicts of success."""

    def __str__(self) -> str:
        """Return one line: verdicts, and calls of the model."""
        judged = f"{self.judged + self.known}/{format_amount(self.planned, 'verdict')}"
        missing = f"{sum(self.missing.values())} missing" if self.missing else ""
        calls = UsageMeter.__str__(self)
        return " | ".join(filter(None, (judged, missing, calls)))

    def count(self, verdict: Verdict) -> None:
        """Add one verdict."""
        self.judged += 1
        self.solved += verdict.success is True
        self.missing.update([verdict.missing] if verdict.missing is not None else [])
        self.spent += sum_spent(verdict.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRollout:
    """The verdicts on some episodes of a run, those of earlier processes included."""

    verdicts: Mapping[str, Verdict]
    """Trajectory → its verdict, those that are missing included."""
    failed: Mapping[str, str]
    """Trajectory → why the verifier could not be asked; the next call asks again."""
    spent: Usage
    """Usage of these verdicts and of all failures, in all processes."""
    stopped: str | None = None
    """Why it ended early; None when every episode was asked about."""

    @property
    def successes(self) -> dict[str, bool]:
        """Trajectory → whether it succeeded; without those whose verdict is missing."""
        return {name: one.success for name, one in self.verdicts.items() if one.success is not None}

    @property
    def missing(self) -> Counter[str]:
        """Episodes without a verdict, by cause; those that could not be asked about included."""
        told = Counter(one.missing for one in self.verdicts.values() if one.missing is not None)
        return told + Counter(self.failed.values())

    @property
    def digest(self) -> str:
        """SHA-256 of the verdicts, whatever their order and the time at which they were given."""
        told = []
        for name, one in self.verdicts.items():
            said = [[call.prompt, call.seed, call.reply] for call in one.calls]
            told.append([name, one.step, one.case, one.verifier, one.success, one.score, one.missing, said])
        return hash_text(json.dumps(sorted(told, key=lambda line: line[0]), sort_keys=True))


async def verify_rollout(
    trajectories: Sequence[Trajectory],
    reader: RunReader,
    choice: VerifierChoice,
    *,
    name: str | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    call_s: float = 120.0,
    concurrency: int = 4,
    stop: asyncio.Event | None = None,
    progress: VerifyingProgress | None = None,
    watch: Callable[[VerifyingProgress], object] = lambda progress: None,
    most_silent: int | None = PATIENCE,
) -> VerifiedRollout:
    """Judge the episodes that have no verdict yet, and return the verdicts on all of them.

    Args:
        trajectories: episodes of one run; broken and unfinished ones are left out, as they have no outcome to judge.
        reader: of their run; verdicts lie beside it.
        name: of the verdicts beside the run; None for the verifier's.
        seed: decides the seeds of calls and which verdicts are inverted on purpose.
        call_s: limit of one call in seconds.
        concurrency: episodes that are judged at the same time.
        stop: set from outside to end; the episodes in flight get a few more seconds.
        progress: continues the counts of other calls under the same budget; None begins at zero.
        watch: called once, with the live object.
        most_silent: replies in a row without a verdict before it stops; None never stops for that.

    Raises:
        ConfigError: the verifier cannot be built, or it looks at pictures and its model takes none.
        UsageError: the stored verdicts of that name are another verifier's.
        ModelFailure: its server does not answer.
        StoreFailure: the verdicts cannot be written; what was recorded stays.
    """
    run, name, cases = reader.directory, name or choice.labels, list(iterate_cases(trajectories, reader))
    told = progress or VerifyingProgress(planned=len(cases))
    watch(told)
    # Nothing is drawn for exact verdicts, so they are the same under every seed.
    seed = 0 if choice.is_exact else seed
    stored = VERDICTS.read(run, name) if name in VERDICTS.list_names(run) else None
    async with open_verifier(choice, asks=False) as resources:
        verifier = resources.build_verifier(seed=seed, call_s=call_s)
        head = resources.build_head(seed)
        # Another verifier under the same name must not pass for this one, even if nothing is left to judge.
        if stored is not None:
            _refuse_other(run, stored, head)
            head = stored.head
        # Asked only now: where all is known, its server may be gone.
        left = [case for case in cases if stored is None or stored.of(case) is None]
        if left:
            _refuse_blind(run, verifier, left, choice)
            await resources.check_answers(budget, stop)
        with StoredLabelWriter(VERDICTS, run, name, head) as writer:
            await label_all(
                cases,
                _build_judging(verifier, told),
                writer,
                told,
                concurrency=concurrency,
                budget=budget or Budget(),
                stop=stop,
                most_silent=most_silent,
            )
    return read_verified(run, name, cases, stopped=told.stopped)


def iterate_cases(trajectories: Iterable[Trajectory], reader: RunReader) -> Iterator[VerifierInput]:
    """Yield the episodes that can be judged, those with an outcome, with their pictures."""
    pictures = _build_pictures(reader)
    return (VerifierInput(episode=one, pictures=pictures) for one in trajectories if one.outcome is not None)


def _build_pictures(reader: RunReader) -> Pictures:
    def show(observation: Observation) -> bytes | None:
        if observation.screenshot is not None:
            try:
                return reader.read_blob(observation.screenshot)
            except CollabError:  # not written before a kill
                return None
        # Imported here, as only verifiers that look need it: a screen that can be drawn again is not stored.
        from collab.envs.simphone.ui.render import RENDERER, render_png

        return render_png(observation) if observation.renderer == RENDERER else None

    return show


def _refuse_blind(run: Path, verifier: OutcomeVerifier, cases: Sequence[VerifierInput], choice: VerifierChoice) -> None:
    """Raise UsageError if a verifier looks at pictures and none of the judged screens has one."""
    if "screenshot" not in verifier.sees or any(case.pictures(case.screens[-1]) is not None for case in cases):
        return
    raise UsageError(
        f"{run}: has no pictures of its last screens, and verifier {choice.name} looks at them; use one that reads "
        "text, such as verifier-llm"
    )


def read_verified(run: Path, name: str, cases: Sequence[VerifierInput], stopped: str | None = None) -> VerifiedRollout:
    """Read the stored verdicts on these episodes; raises as `LabelKind.read`."""
    stored = VERDICTS.read(run, name)
    verdicts = {case.trajectory: found for case in cases if (found := stored.of(case)) is not None}
    failed = {
        case.trajectory: why.message
        for case in cases
        if (why := stored.failed.get(case.key)) is not None and why.case == case.digest
    }
    spent = sum((*(sum_spent(one.calls) for one in verdicts.values()), *stored.lost), Usage())
    return VerifiedRollout(verdicts=verdicts, failed=failed, spent=spent, stopped=stopped)


def _build_judging(verifier: OutcomeVerifier, progress: VerifyingProgress) -> Judging[VerifierInput, Verdict]:
    async def verify(case: VerifierInput) -> Verdict:
        verdict = check_answer(await verifier.verify(case), Verdict, verifier.verify, ModelFailure)
        # A verdict about another episode would be stored as this one's.
        if (verdict.key, verdict.case) != (case.key, case.digest):
            raise ValueError("its verdict is not about this episode")
        return verdict

    return Judging(
        who="verifier",
        name=verifier.name,
        judge=verify,
        asked=verifier,
        count=progress.count,
        is_silent=lambda verdict: verdict.silent,
        describe_silence=lambda count, last: (
            f"no verdict in {count} replies in a row; {describe_reply(last.calls, [str(last.missing)])}"
        ),
    )


def _refuse_other(run: Path, stored: VerdictSet, head: VerdictHead) -> None:
    """Raise UsageError if stored verdicts are another verifier's."""
    before, after = ({"verifier": one.verifier, "seed": one.seed, **one.options} for one in (stored.head, head))
    other = describe_difference(before, after)
    if other is not None:
        raise UsageError(
            f"verdicts {stored.name!r} of {run} were made with {other}; keep both with another name for these "
            f"(--verdicts NAME), or remove {run / VERDICTS.folder / stored.name}"
        )
