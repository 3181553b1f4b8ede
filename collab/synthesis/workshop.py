"""Building what units are made with: the suite, the teacher and, behind it, a model."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from collab.config import AgentDefinition
from collab.envs.base import Suite
from collab.errors import EnvironmentFailure, UsageError, boundary
from collab.models.base import AskedAlike, Capabilities, Model
from collab.models.meter import tell_lost
from collab.prompts.render import Template
from collab.resolve import build, splits_in
from collab.splits.overlap import kept_by
from collab.splits.split import Split
from collab.synth.llm.caller import Caller
from collab.synth.llm.desk import Desk
from collab.synth.llm.prompts import TeacherPrompts
from collab.synth.llm.teacher import LanguageTeacher
from collab.synth.oracle import Amounts, OracleTeacher
from collab.synth.plan import ORACLE, SynthConfig
from collab.synth.reader import Reader
from collab.synth.synth import Ledger
from collab.synth.talk import Talk
from collab.synth.teacher import Teacher
from collab.synth.unit import Workshop
from collab.synthesis.configure import suite_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A workshop and what is known of it."""

    workshop: Workshop
    splits: Mapping[str, Split]
    model: Mapping[str, Any]
    """The policy and capabilities of the teacher's model; empty for the oracle."""
    teacher: Model | None
    """The teacher's model; None for the oracle."""


@contextlib.asynccontextmanager
async def opened(config: SynthConfig, ledger: Ledger, *, ask: bool = True) -> AsyncIterator[Opened]:
    """What units are made with; given back in the end.

    Args:
        ledger: remembers every reply of the teacher's model.
        ask: find out what the model supports; False asks it nothing, and only looking ahead is possible.

    Raises:
        UsageError: a part cannot be built, the model looks at solutions, or a budget would never be reached.
        EnvironmentFailure: no environment can be opened.
        ModelFailure: the teacher's server does not answer.
    """
    reader = Reader(
        template=Template(config.prompt_name, config.prompt),
        context_tokens=config.context_tokens,
        history=config.history,
        max_tokens=config.max_tokens,
    )
    splits = await splits_in(config.environment_name, config.environment)
    suite = suite_of(config)
    model: Model | None = None
    try:
        with boundary(EnvironmentFailure, f"opening {suite.label}"):
            await (await suite.open()).close()  # a missing browser is found before anything is written
        teacher: Teacher = OracleTeacher(
            talk=Talk(reader=reader, share=config.talk),
            amounts=Amounts(
                elements=config.elements, seats=config.seats, renamed=config.renamed, two_steps=config.two_steps
            ),
        )
        about: dict[str, Any] = {}
        if config.teacher is not None:
            model = _model(config, config.teacher)
            about = _about(config, model, await model.probe()) if ask else {}
            teacher = _language_teacher(config, model, reader, suite, ledger)
        shop = Workshop(suite=suite, teacher=teacher, kept=kept_by(splits.values()))
        yield Opened(workshop=shop, splits=splits, model=about, teacher=model)
    finally:
        if model is not None:
            tell_lost(model, f"teacher {config.teacher_name}")
            await model.close()
        await suite.close()


def _model(config: SynthConfig, definition: AgentDefinition) -> Model:
    model: Model = build("models", definition, f"agents/{config.teacher_name}")
    if isinstance(model, AskedAlike):
        model.sampling = config.sampling.of(0, 1, "sampling")
    if model.privileged:
        raise UsageError(
            f"agents/{config.teacher_name} is no language model and looks at solutions; use --teacher {ORACLE} for them"
        )
    return model


def _language_teacher(
    config: SynthConfig, model: Model, reader: Reader, suite: Suite, ledger: Ledger
) -> LanguageTeacher:
    caller = Caller(
        model=model,
        sampling=config.sampling.of(0, 1, "sampling"),
        call_s=config.environment.limits.call_s,
        memory=ledger,
    )
    prompts = TeacherPrompts(config.teacher_prompts, suite.space)
    desk = Desk(name=config.teacher_name, caller=caller, prompts=prompts, reader=reader)
    return LanguageTeacher(desk=desk, elements=config.elements, instructions=config.instructions)


def _about(config: SynthConfig, model: Model, able: Capabilities) -> dict[str, Any]:
    """What the manifest says of the teacher's model; refuses a limit on something that nobody counts."""
    who = f"agents/{config.teacher_name}"
    if config.budget.usd is not None and not able.knows_price:
        raise UsageError(f"--budget usd: {who} does not say what it costs; set its prices, or limit tokens or minutes")
    if config.budget.tokens is not None and not able.counts_tokens:
        raise UsageError(f"--budget tokens: {who} does not count tokens; limit minutes instead")
    return {"policy": asdict(model.policy), "capabilities": asdict(able)}
