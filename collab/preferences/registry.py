"""Adversaries by name: from the text that a user writes to an adversary that can be asked.

    sampler                     a kind that asks no model, or package.module:Class
    openai                      an agents file: its model is asked to play a clumsy user
    sampler=3,openai=1          one of several for each occasion, drawn by weight
    {kind: llm, agent: openai, sampling: {temperature: 0.1}}                            the same, written out, in YAML
    {kind: mixture, parts: [{kind: sampler, weight: 3}, {kind: llm, agent: openai}]}

The agents file's sampling is for playing and never used here. An adversary is sampled by the `sampling` beside it, or
else by `collab.preferences.adversary.SAMPLING`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import yaml
from pydantic import Field, model_validator

from collab.config import AgentDefinition, Budget, PartDefinition, SamplingDefinition, load_agent, validate
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library, load_yaml
from collab.models.base import Model, check_counted, warn_of_lost_calls
from collab.preferences.adversary import FOLDER, SAMPLING, Adversary, MixtureAdversary, read_adversary_prompts
from collab.preferences.store import PairHead
from collab.rewards.registry import REACHING
from collab.rollout.build import add_date, build, list_kinds, refuse_critic
from collab.utils.trust import check_trusted, vouch

ASKS_A_MODEL: Final = "llm"
"""The kind that needs a model beside its options."""
SAMPLER: Final = "sampler"
MIXTURE: Final = "mixture"


class AdversarySpec(PartDefinition):
    """An adversary as a user writes it; a plain text is read as on the command line."""

    agent: str | None = None
    """Agents file of the adversary's model; None for kinds that ask none."""
    sampling: SamplingDefinition | None = None
    """Sampling of that model; None for the default of adversaries."""
    prompt: str = FOLDER
    """Folder in `prompts/` with the role of that model."""
    parts: tuple[AdversaryTurnSpec, ...] = ()
    """The adversaries of a mixture."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        return _parse_written(data) if isinstance(data, str) else data

    @model_validator(mode="after")
    def _check_kind(self) -> AdversarySpec:
        if self.kind == MIXTURE:
            self._check_mixture()
        elif self.parts:
            raise ValueError(f"kind {self.kind} has no parts; write kind: mixture")
        if self.kind == ASKS_A_MODEL and self.agent is None:
            raise ValueError("kind llm asks a model: name its agents file, e.g. agent: openai")
        if self.kind == SAMPLER and (self.agent is not None or self.sampling is not None):
            raise ValueError("kind sampler asks no model: leave out agent and sampling")
        if self.prompt != FOLDER and self.agent is None:
            raise ValueError(f"kind {self.kind} asks no model: leave out prompt")
        if self.sampling is not None and self.agent is None:
            raise ValueError(f"kind {self.kind} has sampling and asks no model: name its agents file, or leave it out")
        return self

    def _check_mixture(self) -> None:
        if not any(one.weight for one in self.parts):
            raise ValueError("kind mixture needs parts, one at least with a weight above 0")
        if self.options or self.agent is not None or self.sampling is not None or self.prompt != FOLDER:
            raise ValueError(
                "kind mixture has parts and nothing else; options, agent, sampling and prompt stand in each part"
            )


class AdversaryTurnSpec(AdversarySpec):
    """One of several adversaries."""

    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """Weight in the draw; 0 leaves it out."""


AdversarySpec.model_rebuild()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdversaryChoice:
    """An adversary before it is built: all that decides its replies, beside the occasion."""

    part: PartDefinition
    agent: AgentDefinition | None = None
    """Agents file of its model, with the adversary's sampling; None when it asks no model."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Template → text of the model's role; empty when it asks no model."""
    turns: tuple[tuple[AdversaryChoice, float], ...] = ()
    """The adversaries of a mixture with their weights; empty for all others."""

    @property
    def as_json(self) -> dict[str, Any]:
        """JSON data from which `choice_from_json` rebuilds the same choice."""
        if self.turns:
            return {"kind": self.part.kind, "parts": [{**one.as_json, "weight": weight} for one, weight in self.turns]}
        told: dict[str, Any] = {"kind": self.part.kind, "options": self.part.options}
        if self.agent is not None:
            told |= {"agent": self.agent.model_dump(mode="json"), "texts": dict(self.texts)}
        return told

    @property
    def has_model(self) -> bool:
        """Return whether it, or a part of a mixture, asks a model."""
        return self.agent is not None or any(one.has_model for one, _ in self.turns)

    @property
    def free(self) -> bool:
        """Return whether asking is known to cost neither money nor tokens."""
        return all(one.free for one, _ in self.turns) if self.turns else self.part.kind == SAMPLER


_DECIDING = ("kind", "options", "sampling", "context_tokens")
"""Fields of an agents file that decide an adversary's replies."""


def select_deciding(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return `AdversaryChoice.as_json` without fields that decide no answer: descriptions, playing, connection."""
    found = dict(told)
    if "parts" in found:
        found["parts"] = [select_deciding(one) for one in found["parts"]]
    if found.get("agent") is not None:
        found["agent"] = {name: found["agent"][name] for name in _DECIDING if name in found["agent"]}
        options = found["agent"].get("options") or {}
        found["agent"]["options"] = {name: value for name, value in options.items() if name not in REACHING}
    return found


def parse_adversary(library: Library, text: str) -> AdversaryChoice:
    """Return the adversary that a command-line text stands for; see `resolve_adversary` for the errors."""
    data = _parse_written(text)
    vouch(data)
    return resolve_adversary(library, validate(AdversarySpec, data, f"adversary {text!r}"))


def resolve_adversary(library: Library, asked: AdversarySpec) -> AdversaryChoice:
    """Return the adversary with the contents of its files.

    Raises:
        UnknownName: there is no such kind or agents file.
        ConfigError: the agents file does not fit or is a critic's, or the options do not fit the kind.
    """
    if asked.parts:
        turns = tuple((resolve_adversary(library, one), one.weight) for one in asked.parts)
        return AdversaryChoice(part=PartDefinition(kind=MIXTURE), turns=turns)
    part = PartDefinition(kind=asked.kind, options=asked.options)
    if asked.agent is None:
        build("adversaries", part, f"adversary {part.kind}")  # finds bad options before a model is asked
        return AdversaryChoice(part=part)
    try:
        agent = load_agent(library, asked.agent, AgentDefinition)
    except UnknownName:
        raise UnknownName.of("adversary", asked.agent, {*_build_silent(), *library.list_names("agents")}) from None
    refuse_critic(agent.kind, f"agents/{asked.agent}")
    usual = SamplingDefinition(temperature=SAMPLING.temperature, max_tokens=SAMPLING.max_tokens)
    sampled = add_date(agent.model_copy(update={"sampling": asked.sampling or usual}))
    texts = read_adversary_prompts(library.find_path("prompts", asked.prompt))
    return AdversaryChoice(part=part, agent=sampled, texts=texts)


def choice_from_json(told: Mapping[str, Any]) -> AdversaryChoice:
    """Rebuild a choice from `AdversaryChoice.as_json`; ConfigError, TypeError or LookupError for other data."""
    told = dict(told)
    if "parts" in told:
        turns = tuple(
            (choice_from_json({name: one[name] for name in one if name != "weight"}), float(one["weight"]))
            for one in told["parts"]
        )
        return AdversaryChoice(part=PartDefinition(kind=MIXTURE), turns=turns)
    agent, texts = told.pop("agent", None), dict(told.pop("texts", {}))
    made = None if agent is None else validate(AgentDefinition, agent, "agent")
    return AdversaryChoice(part=validate(PartDefinition, told, "adversary"), agent=made, texts=texts)


def read_adversary(head: PairHead) -> AdversaryChoice:
    """Return the adversary that stored pairs were made with; `sampler` where they needed none.

    Raises:
        UsageError: the pairs do not record how to build it, or name classes that may not run.
    """
    if head.adversary is None:
        return AdversaryChoice(part=PartDefinition(kind=SAMPLER))
    check_trusted(head.adversary_options or {}, "the earlier pairs")
    try:
        return choice_from_json(head.adversary_options or {"kind": head.adversary.rpartition("-")[0]})
    except (ConfigError, TypeError, ValueError, LookupError):
        raise UsageError(
            f"the earlier pairs do not record how {head.adversary} was made; name the adversary: --adversary NAME"
        ) from None


@contextlib.asynccontextmanager
async def open_adversary(
    choice: AdversaryChoice, budget: Budget, call_s: float, stop: asyncio.Event | None = None
) -> AsyncIterator[Adversary]:
    """Open an adversary, and close its models at the end of the block.

    Args:
        call_s: limit of one call in seconds.

    Raises:
        ConfigError: it cannot be built; see `collab.rollout.build.build`.
        UsageError: a limit is on something that the model does not report.
        ModelFailure: its server does not answer.
    """
    async with contextlib.AsyncExitStack() as stack:
        yield await _open(choice, budget, call_s, stack, stop)


async def _open(
    choice: AdversaryChoice,
    budget: Budget,
    call_s: float,
    stack: contextlib.AsyncExitStack,
    stop: asyncio.Event | None,
) -> Adversary:
    # A mixture opens only what may be drawn.
    if choice.turns:
        taking = [(one, weight) for one, weight in choice.turns if weight]
        return MixtureAdversary([(await _open(one, budget, call_s, stack, stop), weight) for one, weight in taking])
    where, given = f"adversary {choice.part.kind}", dict[str, Any]()
    if choice.agent is not None:
        where = "agents file of the adversary"
        model: Model = build("models", choice.agent, where)
        # Closed in reverse order, and counted before it is closed.
        stack.push_async_callback(model.close)
        stack.callback(warn_of_lost_calls, model, "adversary")
        # A limit on something that the model does not report would never stop anything.
        await check_counted(model, budget, where, stop)
        sampling = choice.agent.sampling.of(0, 1, where)
        given = {
            "model": model,
            "texts": choice.texts,
            "sampling": sampling,
            "context_tokens": choice.agent.context_tokens,
            "call_s": call_s,
        }
    made: Adversary = build("adversaries", choice.part, where, given)
    return made


def _parse_written(text: str) -> dict[str, Any]:
    """Parse a name, names with weights or YAML into data of an `AdversarySpec`; ConfigError for other texts."""
    if text.lstrip().startswith("{"):
        return _parse_mapping(text)
    if "=" not in text and "," not in text:
        return _parse_one(text.strip())
    parts: dict[str, dict[str, Any]] = {}
    for item in text.split(","):
        name, _, weight = (part.strip() for part in item.partition("="))
        try:
            # A name twice, or without a weight, is a mistake.
            if not name or name in parts:
                raise ValueError
            parts[name] = {**_parse_one(name), "weight": float(weight)}
        except ValueError:
            raise ConfigError(
                f"adversary {text!r}: write one name, or each name once with its weight: sampler=3,openai=1"
            ) from None
    return {"kind": MIXTURE, "parts": list(parts.values())}


def _parse_mapping(text: str) -> dict[str, Any]:
    try:
        found, _ = load_yaml(text)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"adversary {text!r}: is not YAML; write it as {{kind: llm, agent: openai}}")
    return found


def _parse_one(name: str) -> dict[str, Any]:
    if ":" in name or name in _build_silent():
        return {"kind": name}
    return {"kind": ASKS_A_MODEL, "agent": name}


def _build_silent() -> list[str]:
    return [kind for kind in list_kinds("adversaries") if kind != ASKS_A_MODEL]
