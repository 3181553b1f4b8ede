"""Measure on recorded runs how often a verifier agrees with another one.

    result = await measure_agreement(AgreementRequest(runs=[run], verifier=choice, against=rules), out)

Both judge every episode that has an outcome; verdicts lie beside the runs, so the same call resumes where it stopped
and pays for no verdict twice. The record is written when all are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collab.config import Budget
from collab.errors import UnknownName, UsageError
from collab.rewards.base import label_of
from collab.rewards.verifiers.agreement import JudgedPair, compare_verdicts
from collab.rewards.verifiers.gate import AgreementRecord, write_agreement
from collab.rewards.verifiers.registry import VerifierChoice, open_verifier
from collab.rewards.verifiers.verdicts import VerifiedRollout, VerifyingProgress, verify_rollout
from collab.store.reader import EpisodeSummary, RunReader
from collab.store.run import RunStore
from collab.types import Usage
from collab.utils.text import format_amount


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRequest:
    """Runs and verifiers to be compared."""

    runs: Sequence[Path]
    """Run directories of one environment."""
    verifier: VerifierChoice
    against: VerifierChoice
    tasks: Sequence[str] = ()
    """Tasks whose episodes count; empty for all."""
    held_out: Sequence[str] = ()
    """Tasks whose episodes count as far as the runs have them; empty for all."""
    name: str | None = None
    """Name of the verifier's verdicts beside the runs; None for the verifier's."""
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    concurrency: int = 4

    @property
    def names(self) -> tuple[str, str]:
        """Names of both verifiers' verdicts."""
        return self.name or self.verifier.labels, self.against.labels


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementResult:
    """Result of a comparison."""

    out: Path
    record: AgreementRecord | None
    """None where it stopped early."""
    progress: VerifyingProgress
    left_out: int
    """Broken and unfinished episodes."""
    stopped: str | None = None
    """Why it ended early."""


async def measure_agreement(
    request: AgreementRequest,
    out: Path,
    *,
    watch: Callable[[VerifyingProgress], object] = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> AgreementResult:
    """Judge all episodes by both verifiers, compare them, and write the record.

    Args:
        out: directory that is made for the record.

    Raises:
        UsageError: `out` is there; the runs are of several environments, or have no episode to judge; a task is in none
            of them; both verifiers have the same name; and all of `verify_rollout`.
        ModelFailure: a server does not answer.
        StoreFailure: verdicts or record cannot be written.
    """
    if out.exists():
        raise UsageError(f"--out {out}: is there already; name another directory, or remove it")
    own, other = request.names
    if own == other:
        raise UsageError(f"--against {request.against.name}: its verdicts are called {own!r}, as the verifier's own")
    survey = _survey(request)
    # Built before anything is judged: a mistake in a definition must not cost a call.
    label, digest = await _identify(request.verifier)
    against, _ = await _identify(request.against)
    progress = VerifyingProgress(planned=2 * survey.counted)
    watch(progress)
    pairs, spent, failed = list[JudgedPair](), Usage(), list[str]()
    for run in request.runs:
        with RunStore.open(run).open_reader() as reader:
            reference, verified = await _judge(reader, request, survey, progress, stop)
            failed += [*reference.failed.values(), *verified.failed.values()]
            pairs += _pair(reader, reference, verified)
            spent += verified.spent
        if progress.stopped is not None:
            break
    # An episode that could not be asked about is no missing verdict: the same command asks again.
    if progress.stopped is None and failed:
        progress.stopped = f"{len(failed)} of {format_amount(progress.planned, 'verdict')} failed ({failed[0]})"
    stopped, left_out = progress.stopped, survey.left_out
    if stopped is not None:
        return AgreementResult(out=out, record=None, progress=progress, left_out=left_out, stopped=stopped)
    record = AgreementRecord(
        verifier=request.verifier.name,
        label=label,
        digest=digest,
        config=request.verifier.definition.model_dump(mode="json"),
        against=against,
        environment=survey.environment,
        environment_version=survey.version,
        runs=[str(run) for run in request.runs],
        tasks=survey.tasks,
        seed=request.seed,
        numbers=compare_verdicts(pairs),
        spent=spent,
    )
    write_agreement(out, record)
    return AgreementResult(out=out, record=record, progress=progress, left_out=left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    """Content of the runs."""

    environment: str
    version: str
    tasks: Sequence[str]
    """Tasks whose episodes count; empty for all."""
    counted: int
    """Episodes with an outcome."""
    left_out: int

    def list_episodes(self, reader: RunReader) -> list[EpisodeSummary]:
        """List a run's episodes of these tasks."""
        return [one for one in reader.list_episodes() if not self.tasks or one.task in self.tasks]


def _survey(request: AgreementRequest) -> _Survey:
    """Look at the runs' heads and episodes; raises as `measure_agreement`."""
    labels, states = dict[tuple[str, str], Path](), list[tuple[str, str]]()
    for run in request.runs:
        with RunStore.open(run).open_reader() as reader:
            labels.setdefault((reader.manifest.environment, reader.manifest.environment_version), run)
            states += [(one.task, one.state) for one in reader.list_episodes()]
    # Agreement in one environment says nothing about another, so a mixture would have no meaning.
    if len(labels) > 1:
        (first, one), (second, two) = list(labels.items())[:2]
        raise UsageError(
            f"--runs: {one} is of {first[0]} version {first[1]}, {two} of {second[0]} version {second[1]}; compare on "
            "runs of one environment at a time"
        )
    known = {task for task, _ in states}
    unknown = sorted(set(request.tasks) - known)
    if unknown:
        raise UnknownName.of("task of these runs", unknown[0], known)
    tasks = sorted({*request.tasks, *known.intersection(request.held_out)})
    if request.held_out and not tasks:
        raise UsageError(f"--held-out: these runs have none of its {format_amount(len(request.held_out), 'task')}")
    ends = [state for task, state in states if not tasks or task in tasks]
    counted = ends.count("finished")
    if not counted:
        raise UsageError(f"--runs: none of {format_amount(len(ends), 'episode')} has an outcome to judge")
    ((environment, version),) = labels
    return _Survey(environment=environment, version=version, tasks=tasks, counted=counted, left_out=len(ends) - counted)


async def _identify(choice: VerifierChoice) -> tuple[str, str]:
    async with open_verifier(choice, asks=False) as resources:
        return label_of(resources.build_verifier()), resources.compute_digest()


async def _judge(
    reader: RunReader,
    request: AgreementRequest,
    survey: _Survey,
    progress: VerifyingProgress,
    stop: asyncio.Event | None,
) -> tuple[VerifiedRollout, VerifiedRollout]:
    """Return the reference's and the verifier's verdicts on a run."""
    own, other = request.names
    episodes = [reader.read_trajectory(one.id) for one in survey.list_episodes(reader) if one.state == "finished"]

    async def verify(choice: VerifierChoice, name: str) -> VerifiedRollout:
        return await verify_rollout(
            episodes,
            reader,
            choice,
            name=name,
            seed=request.seed,
            budget=request.budget,
            concurrency=request.concurrency,
            stop=stop,
            progress=progress,
        )

    # The reference first: it is usually free.
    reference = await verify(request.against, other)
    return reference, reference if progress.stopped else await verify(request.verifier, own)


def _pair(reader: RunReader, reference: VerifiedRollout, verified: VerifiedRollout) -> list[JudgedPair]:
    tasks = {one.id: one.task for one in reader.list_episodes()}
    return [
        JudgedPair(task=tasks[name], verifier=verdict, reference=reference.verdicts[name])
        for name, verdict in verified.verdicts.items()
        if name in reference.verdicts
    ]
