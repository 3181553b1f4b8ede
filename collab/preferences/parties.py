"""Who judges a run and who says something worse, from the names that people give them.

critic     a labelling of the run; a kind that asks no model (oracle, outcome, package.module:Class); or the agents
           file of a critic
adversary  a kind that asks no model (sampler, package.module:Class); or an agents file whose model is asked
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition, Budget, Part, SamplingDefinition, validate
from collab.credit.adversary import Adversary
from collab.credit.adversary_language import FOLDER, SAMPLING, read_adversary_prompts
from collab.credit.critic import Critic, label_of
from collab.credit.labels import LabelHead, labellings, read_labels
from collab.credit.pair_store import PairHead
from collab.critics import Bench, CriticDefinition, critic_texts, load_critic
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library
from collab.models.base import Model
from collab.resolve import build, build_adversary, kinds

ASKS_A_MODEL = "llm"
"""The kind of critics and adversaries that need a model beside their options."""
SAMPLER = "sampler"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdversaryChoice:
    """An adversary before it is built: all that decides what it says, beside the occasion."""

    part: Part
    agent: AgentDefinition | None = None
    """Whose model is asked, see `as_adversary`; None when no model is."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Template → text of what it is asked; empty when no model is."""

    @property
    def told(self) -> dict[str, Any]:
        """As JSON data, from which `adversary_of` makes the same choice again."""
        agent = {} if self.agent is None else {"agent": self.agent.model_dump(mode="json")}
        return {"kind": self.part.kind, "options": self.part.options, **agent} | (
            {"texts": self.texts} if agent else {}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticChoice:
    """A labelling of a run, there already or to be made."""

    labels: str
    """Its name."""
    seed: int
    options: Mapping[str, Any]
    """As `LabelHead.options` has them."""
    definition: CriticDefinition
    texts: Mapping[str, str] = field(default_factory=dict)
    """Template → text of what is asked; empty when no model is."""

    @property
    def free(self) -> bool:
        """Whether judging costs neither money nor tokens, as far as is known."""
        return self.definition.kind in ("oracle", "outcome")

    @property
    def known(self) -> bool:
        """Whether it can be built: a labelling need not tell how the model that judged was asked."""
        kind = self.definition.kind
        return "critic" in self.options or ":" in kind or (kind in kinds("critics") and kind != ASKS_A_MODEL)


def critic_named(library: Library, name: str, run: Path, seed: int) -> CriticChoice:
    """The labelling that a name stands for.

    Args:
        seed: of the run; a labelling that is there already keeps its own.

    Raises:
        UnknownName: it is neither a labelling of the run, nor a critic, nor an agents file.
        ConfigError: the agents file does not fit, or is of somebody who speaks.
    """
    if name in labellings(run):
        return _of_head(name, read_labels(run, name).head)
    known = [kind for kind in kinds("critics") if kind != ASKS_A_MODEL]
    if name in known or ":" in name:
        made = CriticDefinition(kind=name)
        told = {"kind": name, "options": {}}
        return CriticChoice(labels=name.replace(":", "-"), seed=seed, options=told, definition=made)
    try:
        library.path("agents", name)
    except UnknownName:
        every = {*labellings(run), *known, *library.names("agents")}
        raise UnknownName.of("labelling, critic or agents file", name, every) from None
    definition = load_critic(library, name)
    texts = critic_texts(library, definition)
    told = {"critic": definition.model_dump(mode="json", exclude={"description"}), "texts": texts}
    return CriticChoice(labels=Path(name).stem, seed=seed, options=told, definition=definition, texts=texts)


def _of_head(name: str, head: LabelHead) -> CriticChoice:
    """The critic that made a labelling, as far as its head tells."""
    told = dict(head.options)
    if "critic" in told:
        definition = validate(CriticDefinition, told["critic"], f"labels {name!r}: critic")
    else:
        kind = str(told.get("kind", head.critic.rpartition("-")[0]))
        definition = CriticDefinition(kind=kind, options=dict(told.get("options", {})))
    texts = told.get("texts", {})
    return CriticChoice(labels=name, seed=head.seed, options=told, definition=definition, texts=texts)


@contextlib.asynccontextmanager
async def opened_critic(choice: CriticChoice, budget: Budget, call_s: float) -> AsyncIterator[tuple[Critic, LabelHead]]:
    """The critic, and the head of its labels; its model is closed in the end.

    Args:
        call_s: limit of one call in seconds.

    Raises:
        ConfigError: it cannot be built; see `collab.resolve.build`.
        UsageError: nothing tells how it is asked, or a limit is on something that nobody counts.
        ModelFailure: its server does not answer.
    """
    if not choice.known:
        raise UsageError(
            f"labels {choice.labels!r}: nothing is judged yet, and they do not tell how {choice.definition.kind} is "
            "asked; go on with what made them, or name another critic: --critic NAME"
        )
    bench = Bench.of(choice.labels, choice.definition, choice.texts)
    try:
        if bench.model is not None:
            await _check_counted(bench.model, budget, f"agents/{choice.labels}")
        critic = bench.critic(seed=choice.seed, call_s=call_s)
        yield critic, LabelHead(critic=label_of(critic), options=choice.options, seed=choice.seed)
    finally:
        await bench.close()


def adversary_named(library: Library, name: str) -> AdversaryChoice:
    """The adversary that a name stands for.

    Raises:
        UnknownName: it is neither a kind nor an agents file.
        ConfigError: the agents file does not fit.
    """
    known = [kind for kind in kinds("adversaries") if kind != ASKS_A_MODEL]
    if name in known or ":" in name:
        return AdversaryChoice(part=Part(kind=name))
    try:
        agent = library.load("agents", name, AgentDefinition)
    except UnknownName:
        raise UnknownName.of("adversary", name, {*known, *library.names("agents")}) from None
    texts = read_adversary_prompts(library.path("prompts", FOLDER))
    return AdversaryChoice(part=Part(kind=ASKS_A_MODEL), agent=as_adversary(agent), texts=texts)


def as_adversary(agent: AgentDefinition) -> AgentDefinition:
    """An agent with every value of its sampling written out: what its file leaves open is as adversaries are sampled.

    So it means the same after it was stored, when nobody knows any more what the file left open.
    """
    said = {name: getattr(agent.sampling, name) for name in agent.sampling.model_fields_set}
    usual = {"temperature": SAMPLING.temperature, "max_tokens": SAMPLING.max_tokens}
    return agent.model_copy(update={"sampling": SamplingDefinition(**(usual | said))})


def adversary_of(head: PairHead) -> AdversaryChoice:
    """The adversary that stored pairs were made with; `sampler` where they needed none.

    Raises:
        UsageError: they do not say how to make it again.
    """
    if head.adversary is None:
        return AdversaryChoice(part=Part(kind=SAMPLER))
    told = dict(head.adversary_options)
    try:
        agent, texts = told.pop("agent", None), dict(told.pop("texts", {}))
        made = None if agent is None else validate(AgentDefinition, agent, "agent")
        part = validate(Part, told or {"kind": head.adversary.rpartition("-")[0]}, "adversary")
    except (ConfigError, TypeError, ValueError):
        raise UsageError(
            f"the earlier pairs do not say how {head.adversary} was made; say who is asked: --adversary NAME"
        ) from None
    return AdversaryChoice(part=part, agent=made, texts=texts)


@contextlib.asynccontextmanager
async def opened_adversary(choice: AdversaryChoice, budget: Budget, call_s: float) -> AsyncIterator[Adversary]:
    """The adversary; its model is closed in the end.

    Args:
        call_s: limit of one call in seconds.

    Raises:
        ConfigError: it cannot be built; see `collab.resolve.build`.
        UsageError: a limit is on something that nobody counts.
        ModelFailure: its server does not answer.
    """
    if choice.agent is None:
        yield build_adversary(choice.part, f"adversary {choice.part.kind}")
        return
    where, agent = "agents file of the adversary", choice.agent
    model: Model = build("models", agent, where)
    try:
        await _check_counted(model, budget, where)
        sampling = agent.sampling.of(0, 1, where)
        given = {"model": model, "texts": choice.texts, "sampling": sampling, "call_s": call_s}
        yield build_adversary(choice.part, where, given)
    finally:
        await model.close()


async def _check_counted(model: Model, budget: Budget, where: str) -> None:
    """Refuse a limit that would never be reached; a server that does not answer is found before anybody is asked."""
    able = await model.probe()
    if budget.usd is not None and not able.knows_price:
        raise UsageError(
            f"--budget usd: {where} does not say what it costs; set its prices, or limit tokens or minutes"
        )
    if budget.tokens is not None and not able.counts_tokens:
        raise UsageError(f"--budget tokens: {where} does not count tokens; limit minutes instead")
