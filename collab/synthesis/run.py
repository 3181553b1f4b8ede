"""Start and resume a synthesis, and build its suite, teacher and model."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition, Budget, hide_secrets, validate_recorded
from collab.data.splits import TRAIN, Split, list_kept_by
from collab.envs.base import Suite
from collab.errors import EnvironmentFailure, RunFormatError, UsageError, boundary
from collab.models.base import AskedAlike, Model, count_lost_calls, warn_of_lost_calls
from collab.prompts.render import Template
from collab.rewards.process_reward import ProcessPrompts
from collab.rollout.build import build, build_environment
from collab.rollout.collector import RolloutProgress
from collab.rollout.plan import load_splits
from collab.store import log
from collab.synthesis.caller import Caller
from collab.synthesis.card import SynthesisReport, gather
from collab.synthesis.config import ORACLE, JudgementConfig, SynthConfig, Unit, list_units
from collab.synthesis.conversation import Reader, Talk
from collab.synthesis.journal import Head, Journal, SynthesisDir, UnansweredQuestion, read_records
from collab.synthesis.judgement import CandidateSource
from collab.synthesis.llm_prompts import TeacherPrompts
from collab.synthesis.llm_teacher import LanguageTeacher, TeacherContext
from collab.synthesis.oracle_teacher import Amounts, OracleTeacher
from collab.synthesis.teacher import Teacher
from collab.synthesis.units import Ledger, SynthesisProgress, SynthesisResources, finish, read_report, work
from collab.types import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Resources with their metadata."""

    resources: SynthesisResources
    splits: Mapping[str, Split]
    model: Mapping[str, Any]
    """The policy and capabilities of the teacher's model; empty for the oracle."""
    policy: Mapping[str, Any]
    """Those of the model whose candidates are judged; empty without level judgement."""
    asked: Mapping[str, Model]
    """Noun and name → model, of all that are asked."""


@contextlib.asynccontextmanager
async def open_synthesis(config: SynthConfig, ledger: Ledger, *, ask: bool = True) -> AsyncIterator[Opened]:
    """Open the suite, teacher and model of a synthesis; close them at the end.

    Args:
        ledger: remembers every reply of the teacher's model.
        ask: probe the model; with False it is never called, which suffices for an estimate.

    Raises:
        UsageError: a part cannot be built, the model reads solutions, or a budget would never be reached.
        EnvironmentFailure: no environment can be opened.
        ModelFailure: the teacher's server does not answer.
    """
    reader = Reader(
        template=Template(config.prompt_name, config.prompt),
        context_tokens=config.context_tokens,
        history=config.history,
        max_tokens=config.max_tokens,
    )
    suite = build_environment(config.environment_name, config.environment)
    asked: dict[str, Model] = {}
    try:
        splits = await load_splits(config.environment_name, config.environment, suite)
        with boundary(EnvironmentFailure, f"opening {suite.label}"):
            await (await suite.open()).close()  # a missing browser is found before anything is written
        candidates: CandidateSource | None = None
        policy: dict[str, Any] = {}
        if config.judgement is not None:
            name = config.judgement.policy_name
            sampled = asked[f"policy {name}"] = _build_policy(config.judgement)
            policy = await _describe_model(config, name, sampled) if ask else {}
            candidates = _build_candidate_source(config, config.judgement, sampled, ledger)
        teacher: Teacher = OracleTeacher(
            talk=Talk(reader=reader, share=config.talk),
            amounts=Amounts(
                elements=config.elements,
                seats=config.seats,
                renamed=config.renamed,
                two_steps=config.two_steps,
                hurry=config.hurry,
            ),
            candidates=candidates,
        )
        about: dict[str, Any] = {}
        if config.teacher is not None:
            model = asked[f"teacher {config.teacher_name}"] = _build_model(config, config.teacher)
            about = await _describe_model(config, config.teacher_name, model) if ask else {}
            teacher = _build_language_teacher(config, model, reader, suite, ledger, candidates)
        resources = SynthesisResources(suite=suite, teacher=teacher, kept=list_kept_by(splits.values()))
        yield Opened(resources=resources, splits=splits, model=about, policy=policy, asked=asked)
    finally:
        for name, model in asked.items():
            warn_of_lost_calls(model, name)
            await model.close()
        await suite.close()


def _build_policy(judged: JudgementConfig) -> Model:
    where = f"agents/{judged.policy_name}"
    model: Model = build("models", judged.policy, where)
    if model.privileged:
        raise UsageError(f"{where} looks at solutions and samples no candidates of its own; name a language model")
    return model


def _build_candidate_source(
    config: SynthConfig, judged: JudgementConfig, model: Model, ledger: Ledger
) -> CandidateSource:
    policy = judged.policy
    return CandidateSource(
        caller=Caller(
            model=model,
            sampling=policy.sampling.of(0, 1, f"agents/{judged.policy_name}"),
            call_s=config.environment.limits.call_s,
            memory=ledger,
            who="the policy",
        ),
        # The policy's own prompt, which need not be the one that rows of other levels are made for.
        reader=Reader(
            template=Template(policy.prompt, judged.policy_prompt),
            context_tokens=policy.context_tokens,
            history=policy.history,
            max_tokens=policy.sampling.max_tokens,
        ),
        prompts=ProcessPrompts(judged.critic_prompt),
        count=judged.candidates,
    )


def _build_model(config: SynthConfig, definition: AgentDefinition) -> Model:
    model: Model = build("models", definition, f"agents/{config.teacher_name}")
    if isinstance(model, AskedAlike):
        model.sampling = config.sampling.of(0, 1, "sampling")
    if model.privileged:
        raise UsageError(
            f"agents/{config.teacher_name} is no language model and looks at solutions; use --teacher {ORACLE} for them"
        )
    return model


def _build_language_teacher(
    config: SynthConfig,
    model: Model,
    reader: Reader,
    suite: Suite,
    ledger: Ledger,
    candidates: CandidateSource | None,
) -> LanguageTeacher:
    caller = Caller(
        model=model,
        sampling=config.sampling.of(0, 1, "sampling"),
        call_s=config.environment.limits.call_s,
        memory=ledger,
    )
    prompts = TeacherPrompts(config.teacher_prompts, suite.space)
    context = TeacherContext(name=config.teacher_name, caller=caller, prompts=prompts, reader=reader)
    return LanguageTeacher(
        context=context, elements=config.elements, instructions=config.instructions, candidates=candidates
    )


async def _describe_model(config: SynthConfig, name: str, model: Model) -> dict[str, Any]:
    """Return the manifest's entry of a model; UsageError if it does not count what the budget limits."""
    able, who = await model.probe(), f"agents/{name}"
    if config.budget.usd is not None and not able.knows_price:
        raise UsageError(f"--budget usd: {who} does not say what it costs; set its prices, or limit tokens or minutes")
    if config.budget.tokens is not None and not able.counts_tokens:
        raise UsageError(f"--budget tokens: {who} does not count tokens; limit minutes instead")
    return {"policy": asdict(model.policy), "capabilities": asdict(able)}


Watch = Callable[[SynthesisProgress], None]
"""Called once with a live object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthResult:
    """Result of a synthesis."""

    path: Path
    label: str
    report: SynthesisReport | None
    """None while units are left; `resume` makes broken units again."""
    progress: SynthesisProgress
    """Progress of this process; rows and units of earlier ones are counted in."""
    stopped: str | None
    """Why it ended early; None when every unit was tried."""


async def start(
    config: SynthConfig, out: Path, *, watch: Watch = lambda progress: None, stop: asyncio.Event | None = None
) -> SynthResult:
    """Make a new set of rows in the directory `out`.

    Raises:
        UsageError: something does not fit, or `out` is not empty; nothing was started.
        OverlapError: a row holds an evaluation instance; no table is written.
        StoreFailure: the directory cannot be written; what was recorded stays.
    """
    config = hide_secrets(config)
    _check_budget(config)
    # Check before opening the environment, which takes long.
    SynthesisDir(out).check_free()
    ledger = Ledger(SynthesisProgress(calls=RolloutProgress(planned=len(list_units(config)))))
    async with open_synthesis(config, ledger) as opened:
        suite = opened.resources.suite
        # The head holds all that rows depend on, for a resume to compare.
        head = Head(
            config=config.model_dump(mode="json"),
            environment=suite.label,
            environment_version=suite.version,
            model=opened.model,
            policy=opened.policy,
        )
        SynthesisDir(out).begin(head, folders=(log.FOLDER,))
        return await _make(config, head, opened, out, ledger, watch, stop)


async def resume(
    path: Path,
    *,
    budget: Budget | None = None,
    concurrency: int | None = None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> SynthResult:
    """Resume a synthesis; of a finished one, only return its report.

    Args:
        budget: from here on; None grants the synthesis's own budget once more.
        concurrency: units at once; None as before.

    Raises:
        RunFormatError: it cannot be read, or its environment or split is not what it was.
        UsageError: another process is writing it.
    """
    head = SynthesisDir(path).read_head()
    config = validate_recorded(SynthConfig, head.config, f"{path}/synth.json")
    # A new budget or concurrency changes no row, so both may differ from the beginning.
    changes: Mapping[str, Any] = {"budget": budget, "concurrency": concurrency}
    config = config.model_copy(update={name: value for name, value in changes.items() if value is not None})
    _check_budget(config)
    over = read_report(path, head)
    # A finished set asks nothing any more.
    if over is not None:
        calls = RolloutProgress(planned=over.units, done=over.units, before=over.units)
        progress = SynthesisProgress(calls=calls, rows=Counter(over.by_level))
        return SynthResult(path=path, label=head.environment, report=over, progress=progress, stopped=None)
    ledger = Ledger(SynthesisProgress(calls=RolloutProgress(planned=len(list_units(config)))))
    async with open_synthesis(config, ledger) as opened:
        _check_unchanged(path, head, config, opened)
        return await _make(config, head, opened, path, ledger, watch, stop)


def _check_budget(config: SynthConfig) -> None:
    if (
        config.teacher is None
        and config.judgement is None
        and (config.budget.usd is not None or config.budget.tokens is not None)
    ):
        raise UsageError("--budget: the oracle costs neither money nor tokens; limit minutes, or leave it out")


def _check_unchanged(path: Path, head: Head, config: SynthConfig, opened: Opened) -> None:
    """Check that environment version and split are unchanged; else RunFormatError."""
    version = opened.resources.suite.version
    if head.environment_version != version:
        raise RunFormatError(
            f"{path}: made with {head.environment} version {head.environment_version}, this is version {version}; "
            "resume it with the Collab version that wrote it"
        )
    if config.split is None or opened.splits[TRAIN].hash != config.split.hash:
        raise RunFormatError(f"{path}: the training split is not what it was when this was begun; synthesise anew")


async def _make(
    config: SynthConfig,
    head: Head,
    opened: Opened,
    path: Path,
    ledger: Ledger,
    watch: Watch,
    stop: asyncio.Event | None,
) -> SynthResult:
    units, progress = list_units(config), ledger.progress
    with Journal(path) as journal:
        # What the journal holds is not made again.
        left = _list_left(path, units, ledger, journal)
        watch(progress)
        before = sum(map(count_lost_calls, opened.asked.values()))
        try:
            stopped = await work(config, opened.resources, journal, left, ledger, stop) if left else None
        finally:
            # Also after an error: calls without an answer may have cost something.
            lost = sum(map(count_lost_calls, opened.asked.values())) - before
            progress.calls.spent += Usage(lost=lost)
            if lost:
                journal.record(UnansweredQuestion(lost=lost))
        report = None if stopped else finish(path, head, config, units, opened.splits)
    return SynthResult(path=path, label=head.environment, report=report, progress=progress, stopped=stopped)


def _list_left(path: Path, units: Sequence[Unit], ledger: Ledger, journal: Journal) -> list[Unit]:
    """Return the units left to make; count the others and load the logged replies."""
    made, progress = gather(read_records(path)), ledger.progress
    ledger.open(journal, made.said)
    progress.rows.update(row.level for row in made.iterate_rows(units))
    progress.calls.done = progress.calls.before = sum(unit.id in made.units for unit in units)
    return [unit for unit in units if unit.id not in made.units]
