"""Verifiers by name: from an agents file, or from a kind that asks no model.

    choice = find_verifier(library, "verifier-llm")
    async with open_verifier(choice) as resources:
        verdict = await resources.build_verifier(seed=0).verify(case)

A verifier's file names a kind among the verifiers (`rules`, an entry point or package.module:Class). The option `model`
of a kind that asks one is a part of its own, {kind, options}, so any engine can be asked. `false_positives` and
`false_negatives` invert a share of the verdicts of any kind (`collab.rewards.verifiers.rules`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from collab.config import AgentsFile, Budget, Definition, PartDefinition, SamplingDefinition, load_agent, override
from collab.errors import ConfigError, UnknownName
from collab.library import Library
from collab.models.base import Model, Scorer, check_counted, warn_of_lost_calls
from collab.rewards.base import label_of
from collab.rewards.registry import (
    MODEL,
    WEIGHTS,
    JudgeDefinition,
    add_engine_date,
    build_engine,
    hash_engine_weights,
    select_deciding,
)
from collab.rewards.verifiers.base import OutcomeVerifier
from collab.rewards.verifiers.judge import FOLDER, read_judge_prompts
from collab.rewards.verifiers.rules import NoisyVerifier
from collab.rewards.verifiers.store import VerdictHead
from collab.rollout.build import build, has_parameter, list_kinds, load_class
from collab.utils.files import hash_text
from collab.utils.trust import check_trusted, vouch

RULES = "rules"
"""The verifier that needs no model and no agreement: the environment itself."""


class VerifierDefinition(JudgeDefinition):
    """`agents/*.yaml` of a verifier."""

    sampling: SamplingDefinition = SamplingDefinition(temperature=0.0, max_tokens=512)
    """How replies are sampled: at temperature 0, up to 512 tokens."""
    history: int = Field(default=30, ge=0)
    """Executed actions in a question, the last ones; fewer where they do not fit."""
    false_positives: float = Field(default=0.0, ge=0, le=1)
    """Share of failures that are called successes on purpose; see `collab.rewards.verifiers.rules`."""
    false_negatives: float = Field(default=0.0, ge=0, le=1)
    """Share of successes that are called failures on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierChoice:
    """A verifier as it was chosen."""

    name: str
    """Its agents file, or its kind."""
    definition: VerifierDefinition
    texts: Mapping[str, str] = field(default_factory=dict)
    """Template → text of its prompt; empty when no model is asked."""

    @property
    def labels(self) -> str:
        """Default name of its verdicts beside a run."""
        return self.name.replace(":", "-") if ":" in self.name else Path(self.name).stem

    @property
    def is_exact(self) -> bool:
        """Return whether its verdicts are the environment's own."""
        noisy = self.definition.false_positives or self.definition.false_negatives
        return self.definition.kind == RULES and not noisy


class _Chosen(Definition):
    """The choice that `--set` changes."""

    verifier: VerifierDefinition


def find_verifier(library: Library, name: str, settings: Sequence[str] = ()) -> VerifierChoice:
    """Return the verifier of a name that a user gives: a kind that needs no options, or an agents file.

    Args:
        settings: overrides, e.g. "verifier.history=5".

    Raises:
        UnknownName: it is neither.
        ConfigError: the agents file does not fit, or is an agent's or a critic's.
    """
    if name == RULES or ":" in name:
        vouch({"kind": name})  # named by the user, so it may run
        definition = VerifierDefinition(kind=name)
    else:
        try:
            library.find_path("agents", name)
        except UnknownName:
            # Only verifiers are offered: an agent or a critic of a similar name would be refused next.
            known = [RULES, *list_verifiers(library)]
            raise UnknownName.of("verifier", name, known, "see: collab agents list") from None
        definition = load_verifier(library, name)
    definition = override(_Chosen(verifier=definition), settings).verifier
    return VerifierChoice(name=name, definition=definition, texts=read_verifier_texts(library, definition))


def list_verifiers(library: Library) -> list[str]:
    """List the agents files whose kind is a verifier's; unreadable ones are left out."""
    found = library.read_entries("agents", AgentsFile)
    return [one.name for one in found if one.definition is not None and one.definition.kind in list_kinds("verifiers")]


def load_verifier(library: Library, name: str) -> VerifierDefinition:
    """Read a verifier's file.

    Raises:
        UnknownName: no agents file has that name, or no verifier is of its kind.
        ConfigError: it does not fit, or it is an agent's or a critic's.
    """
    kind, known = library.load("agents", name, AgentsFile).kind, list_kinds("verifiers")
    if ":" not in kind and kind not in known:
        if kind in list_kinds("critics"):
            raise ConfigError(f"agents/{name}: a critic (kind {kind}) scores single actions and judges no episode")
        if kind in list_kinds("models"):
            raise ConfigError(
                f"agents/{name}: kind {kind} speaks and does not judge; make it the option model of a verifier, as in "
                "agents/verifier-llm.yaml"
            )
        raise UnknownName.of(f"verifiers kind (in agents/{name})", kind, known, "or write package.module:Class")
    return add_engine_date(load_agent(library, name, VerifierDefinition))


def read_verifier_texts(library: Library, definition: VerifierDefinition) -> dict[str, str]:
    """Return template → text of a verifier's prompt; empty for a kind without one.

    Raises:
        UnknownName: there is no such prompt.
        ConfigError: a template is missing or cannot be read.
    """
    if not has_parameter(definition, "texts", "verifiers"):
        return {}
    own = getattr(load_class("verifiers", definition, "a verifier"), "prompts", FOLDER)
    return read_judge_prompts(library.find_path("prompts", definition.prompt or own), own)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierResources:
    """All that a verifier is built with."""

    choice: VerifierChoice
    model: Model | Scorer | None
    """The model that is asked; None for a kind that needs none."""

    @classmethod
    def of(cls, choice: VerifierChoice, *, asks: bool = True) -> VerifierResources:
        """Build its model; arguments and errors as of `collab.rewards.registry.build_engine`."""
        model = build_engine(choice.name, choice.definition, group="verifiers", asks=asks)
        return cls(choice=choice, model=model)

    def build_verifier(self, *, seed: int = 0, call_s: float = 120.0) -> OutcomeVerifier:
        """Build the verifier.

        Args:
            seed: decides the seeds of calls and which verdicts are inverted.
            call_s: limit of one call in seconds.

        Raises:
            UnknownName, ConfigError, MissingExtra: see `collab.rollout.build.build`.
        """
        definition, where = self.choice.definition, f"agents/{self.choice.name}"
        given: dict[str, Any] = {
            "texts": self.choice.texts,
            "sampling": definition.sampling.of(0, 1, where),
            "context_tokens": definition.context_tokens,
            "history": definition.history,
            "call_s": call_s,
            "seed": seed,
        }
        options = dict(definition.options)
        if self.model is not None:
            given[MODEL] = self.model
            options.pop(MODEL, None)
        made: OutcomeVerifier = build("verifiers", PartDefinition(kind=definition.kind, options=options), where, given)
        positives, negatives = definition.false_positives, definition.false_negatives
        if not (positives or negatives):
            return made
        return NoisyVerifier(verifier=made, false_positives=positives, false_negatives=negatives, seed=seed)

    @property
    def deciding(self) -> dict[str, Any]:
        """Everything that decides its verdicts, without seeds, as JSON; connection and price do not count.

        A checkpoint in this process counts by its weights, wherever they lie.
        """
        weights = hash_engine_weights(self.choice.definition)
        told = select_deciding(self.choice.definition, placeless=False)
        engine = told["options"].get(MODEL)
        if weights is not None and isinstance(engine, dict):
            places = ("path", "adapter", "version")
            engine["options"] = {name: one for name, one in engine["options"].items() if name not in places}
        return {**told, "texts": dict(self.choice.texts)} | ({} if weights is None else {WEIGHTS: weights})

    def compute_digest(self) -> str:
        """Return the SHA-256 of everything that decides its verdicts, without seeds."""
        whole = {"verifier": label_of(self.build_verifier()), **self.deciding}
        return hash_text(json.dumps(whole, sort_keys=True, default=str))

    def build_head(self, seed: int) -> VerdictHead:
        """Build the head of its verdicts with a seed."""
        return VerdictHead(verifier=label_of(self.build_verifier()), options=self.deciding, seed=seed)

    async def check_answers(self, budget: Budget | None = None, stop: asyncio.Event | None = None) -> None:
        """Check that its model answers, counts what the budget limits, and takes what the verifier shows.

        Raises:
            ConfigError: it looks at pictures and its model takes none.
            UsageError: a limit is on something that is not counted.
            ModelFailure: its server does not answer.
        """
        if self.model is None:
            return
        able = await check_counted(self.model, budget or Budget(), f"agents/{self.choice.name}", stop)
        if "screenshot" in self.build_verifier().sees and not able.images:
            raise ConfigError(
                f"agents/{self.choice.name}: looks at pictures of screens, but its model takes no pictures; use a "
                "model that sees, or a verifier that reads text, such as verifier-llm"
            )

    async def close(self) -> None:
        """Close the model, and report calls of unknown cost."""
        if self.model is not None:
            warn_of_lost_calls(self.model, f"verifier {self.choice.name}")
            await self.model.close()


@contextlib.asynccontextmanager
async def open_verifier(
    choice: VerifierChoice, *, asks: bool = True, budget: Budget | None = None, stop: asyncio.Event | None = None
) -> AsyncIterator[VerifierResources]:
    """Open a verifier's model; it is closed at the end of the block.

    Args:
        asks: whether to check now that it answers, see `VerifierResources.check_answers`.

    Raises:
        ConfigError: it cannot be built; and all of `check_answers`.
        UsageError: a recorded definition names parts that are not trusted.
    """
    check_trusted(choice.definition.model_dump(mode="json"), f"verifier {choice.name}")
    resources = VerifierResources.of(choice)
    try:
        if asks:
            await resources.check_answers(budget, stop)
        yield resources
    finally:
        await resources.close()
