"""Who judges a run, from the name that people give.

A name is a kind that asks no model (oracle, outcome, package.module:Class); the agents file of a critic; or a labelling
of the run. A labelling is one critic's: another one of the same name is refused, and never taken for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collab.config import AgentDefinition, Budget
from collab.credit.critic import Critic, label_of
from collab.credit.labels import LabelHead, check_name, labellings, read_label_head
from collab.critics import Bench, CriticDefinition, critic_texts, load_critic
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library
from collab.models.meter import check_counted
from collab.preferences.same_critic import WEIGHTS, definition_of, head_now, other_than
from collab.resolve import kinds
from collab.trust import check_trusted, vouch

NEEDS_OPTIONS = frozenset({"llm", "model"})
"""Kinds of critics that a bare name cannot stand for: they need to be told which model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticChoice:
    """A labelling of a run, there already or to be made."""

    labels: str
    """Its name."""
    name: str
    """The critic's own, for messages: of its agents file as it was given, or of the labels where they alone tell."""
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
        return "critic" in self.options or ":" in kind or (kind in kinds("critics") and kind not in NEEDS_OPTIONS)


def critic_named(library: Library, name: str, run: Path, seed: int, labels: str | None = None) -> CriticChoice:
    """Who judges, and the labelling that it goes on with or makes.

    Args:
        name: of a critic that asks no model, or of an agents file; else of a labelling of the run.
        seed: of the run; a labelling that is there already keeps its own.
        labels: what the labelling is called; None for the critic's name.

    Raises:
        UnknownName: it is neither a labelling of the run, nor a critic, nor an agents file.
        ConfigError: the agents file does not fit, or is of somebody who speaks.
        UsageError: another critic made the labelling of that name, or it can have no such name.
    """
    there, known = labellings(run), [kind for kind in kinds("critics") if kind not in NEEDS_OPTIONS]
    bare = name in known or ":" in name
    if name in there and not bare and not _judges(library, name, run):
        if labels not in (None, name):
            raise UsageError(
                f"--labels {labels}: --critic {name} names labels that are there already, and no critic; "
                "leave one of the two out"
            )
        return labelled(run, name)
    if bare:
        vouch({"kind": name})
        definition, texts = CriticDefinition(kind=name), dict[str, str]()
        told: dict[str, Any] = {"kind": name, "options": {}}
    else:
        try:
            library.path("agents", name)
        except UnknownName:
            every = {*there, *known, *library.names("agents")}
            raise UnknownName.of("labelling, critic or agents file", name, every) from None
        definition = load_critic(library, name)
        texts = critic_texts(library, definition)
        told = {"critic": definition.model_dump(mode="json", exclude={"description"}), "texts": texts}
    labels = labels or (name.replace(":", "-") if bare else Path(name).stem)
    check_name(labels)
    if labels in there:
        stored = read_label_head(run, labels)
        other = other_than(labels, stored, head_now(definition, texts, stored))
        if other is not None:
            raise UsageError(
                f"--critic {name}: labels {labels!r} of {run} were made with {other}; keep both with "
                f"--labels {free_name(labels, there)} beside it, or take what is there with --labels {labels} instead"
            )
        seed, told = stored.seed, dict(stored.options)
    return CriticChoice(labels=labels, name=name, seed=seed, options=told, definition=definition, texts=texts)


def labelled(run: Path, name: str) -> CriticChoice:
    """A labelling that is there, and the critic that made it, as far as its head tells; UnknownName when it is not."""
    there = labellings(run)
    if name not in there:
        raise UnknownName.of(f"labelling of {run}", name, there, "or say who judges: --critic NAME")
    head = read_label_head(run, name)
    definition, texts = definition_of(name, head), head.options.get("texts", {})
    options = dict(head.options)
    return CriticChoice(labels=name, name=name, seed=head.seed, options=options, definition=definition, texts=texts)


def free_name(name: str, taken: Collection[str]) -> str:
    """The name itself, or with the first number that is free."""
    numbered = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    return next(each for each in numbered if each not in taken)


def _judges(library: Library, name: str, run: Path) -> bool:
    """Whether an agents file of that name is a critic's; False where there is none, or it is of somebody who speaks.

    One that cannot be read is taken for the critic's where the labels of that name were made by an agents file: what
    is wrong with it is told then, and nobody goes on with what it said before.
    """
    try:
        kind = library.load("agents", name, AgentDefinition).kind
    except UnknownName:
        return False
    except ConfigError:
        return "critic" in read_label_head(run, name).options
    return kind in kinds("critics") or kind not in kinds("models")


@contextlib.asynccontextmanager
async def opened_critic(
    choice: CriticChoice, budget: Budget, call_s: float, stop: asyncio.Event | None = None
) -> AsyncIterator[tuple[Critic, LabelHead]]:
    """The critic, and the head of its labels, with the digest of its weights; its model is closed in the end.

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
    check_trusted(choice.definition.model_dump(mode="json"), f"labels {choice.labels!r}")
    bench = Bench.of(choice.name, choice.definition, choice.texts)
    try:
        options = {name: value for name, value in choice.options.items() if name != WEIGHTS}
        if bench.model is not None:
            able = await check_counted(bench.model, budget, f"agents/{choice.name}", stop)
            options |= {} if able.weights is None else {WEIGHTS: able.weights}
        critic = bench.critic(seed=choice.seed, call_s=call_s)
        yield critic, LabelHead(critic=label_of(critic), options=options, seed=choice.seed)
    finally:
        await bench.close()
