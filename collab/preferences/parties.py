"""Who judges a run, from the name that people give.

A name is a labelling of the run; a kind that asks no model (oracle, outcome, package.module:Class); or the agents file
of a critic.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collab.config import Budget, validate
from collab.credit.critic import Critic, label_of
from collab.credit.labels import LabelHead, labellings, read_labels
from collab.critics import Bench, CriticDefinition, critic_texts, load_critic
from collab.errors import UnknownName, UsageError
from collab.library import Library
from collab.preferences.allowance import check_counted
from collab.resolve import kinds

NEEDS_OPTIONS = frozenset({"llm", "model"})
"""Kinds of critics that a bare name cannot stand for: they need to be told which model."""


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
        return "critic" in self.options or ":" in kind or (kind in kinds("critics") and kind not in NEEDS_OPTIONS)


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
    known = [kind for kind in kinds("critics") if kind not in NEEDS_OPTIONS]
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
    bench = Bench.of(choice.labels, choice.definition, choice.texts)
    try:
        options = dict(choice.options)
        if bench.model is not None:
            able = await check_counted(bench.model, budget, f"agents/{choice.labels}")
            options |= {} if able.weights is None else {"weights": able.weights}
        critic = bench.critic(seed=choice.seed, call_s=call_s)
        yield critic, LabelHead(critic=label_of(critic), options=options, seed=choice.seed)
    finally:
        await bench.close()
