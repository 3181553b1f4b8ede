"""Who judges a run and who says something worse, from the names that people give them.

critic     the name of a labelling of the run, or of a kind that asks no model (oracle, outcome, package.module:Class)
adversary  the name of a kind that asks no model (sampler, package.module:Class), or of an agents file
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition, Budget, Part, validate
from collab.credit.adversary import Adversary
from collab.credit.adversary_language import FOLDER, SAMPLING, read_adversary_prompts
from collab.credit.critic import Critic, label_of
from collab.credit.labels import LabelHead, labellings, read_labels
from collab.credit.pair_store import PairHead
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
    """Whose model is asked; None when no model is."""
    name: str = ""
    """Of the agents file; empty when there is none."""

    @property
    def told(self) -> dict[str, Any]:
        """As JSON data, from which `adversary_of` makes the same choice again."""
        agent = {} if self.agent is None else {"name": self.name, "agent": self.agent.model_dump(mode="json")}
        return self.part.model_dump(mode="json") | agent


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticChoice:
    """A labelling of a run, there already or to be made."""

    labels: str
    """Its name."""
    part: Part
    seed: int

    def built(self) -> tuple[Critic, LabelHead]:
        """The critic and the head of its labels.

        Raises:
            UsageError: a model was asked, and nothing says which.
            ConfigError: it cannot be built; see `collab.resolve.build`.
        """
        if self.part.kind == ASKS_A_MODEL:
            raise UsageError(
                f"labels {self.labels!r}: steps are not judged yet, and those that are were judged by a model that "
                "is not named here; go on with what made them, or name another critic: --critic NAME"
            )
        critic: Critic = build("critics", self.part, f"critic {self.labels}", {"seed": self.seed})
        return critic, LabelHead(critic=label_of(critic), options=self.part.options, seed=self.seed)


def critic_named(name: str, run: Path, seed: int) -> CriticChoice:
    """The labelling that a name stands for.

    Args:
        seed: of the run; a labelling that is there already keeps its own.

    Raises:
        UnknownName: it is neither a labelling of the run nor a critic that asks no model.
    """
    if name in labellings(run):
        head = read_labels(run, name).head
        part = Part(kind=head.critic.rpartition("-")[0], options=dict(head.options))
        return CriticChoice(labels=name, part=part, seed=head.seed)
    known = [kind for kind in kinds("critics") if kind != ASKS_A_MODEL]
    if name not in known and ":" not in name:
        raise UnknownName.of("labelling or critic", name, {*labellings(run), *known})
    return CriticChoice(labels=name.replace(":", "-"), part=Part(kind=name), seed=seed)


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
        raise UnknownName.of("adversary", name, [*known, *library.names("agents")]) from None
    return AdversaryChoice(part=Part(kind=ASKS_A_MODEL), agent=agent, name=Path(name).stem)


def adversary_of(head: PairHead) -> AdversaryChoice:
    """The adversary that stored pairs were made with; `sampler` where they needed none.

    Raises:
        UsageError: they do not say how to make it again.
    """
    if head.adversary is None:
        return AdversaryChoice(part=Part(kind=SAMPLER))
    told = dict(head.adversary_options)
    try:
        agent, name = told.pop("agent", None), str(told.pop("name", ""))
        made = None if agent is None else validate(AgentDefinition, agent, "agent")
        part = validate(Part, told or {"kind": head.adversary.rpartition("-")[0]}, "adversary")
    except (ConfigError, TypeError, AttributeError):
        raise UsageError(
            f"the earlier pairs do not say how {head.adversary} was made; say who is asked: --adversary NAME"
        ) from None
    return AdversaryChoice(part=part, agent=made, name=name)


@contextlib.asynccontextmanager
async def opened_adversary(choice: AdversaryChoice, library: Library, budget: Budget) -> AsyncIterator[Adversary]:
    """The adversary; its model is closed in the end.

    Raises:
        ConfigError: it cannot be built; see `collab.resolve.build`.
        UsageError: a limit is on something that nobody counts.
        ModelFailure: its server does not answer.
    """
    if choice.agent is None:
        yield build_adversary(choice.part, f"adversary {choice.part.kind}")
        return
    where, agent = f"agents/{choice.name}", choice.agent
    model: Model = build("models", agent, where)
    try:
        able = await model.probe()  # a server that does not answer is found before anybody is asked
        if budget.usd is not None and not able.knows_price:
            raise UsageError(f"--budget usd: {where} does not say what it costs; set its prices, or limit tokens")
        if budget.tokens is not None and not able.counts_tokens:
            raise UsageError(f"--budget tokens: {where} does not count tokens; limit minutes instead")
        said = "sampling" in agent.model_fields_set
        given = {
            "model": model,
            "texts": read_adversary_prompts(library.path("prompts", FOLDER)),
            "sampling": agent.sampling.of(0, 1, where) if said else SAMPLING,
        }
        yield build_adversary(choice.part, where, given)
    finally:
        await model.close()
