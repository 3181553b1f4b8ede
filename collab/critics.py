"""A critic from its agents file: what it is made with, and the digest by which its calibrations are found again.

    definition = load_critic(library, "critic-llm")
    bench = Bench.of("critic-llm", definition, critic_texts(library, definition))
    critic = bench.critic(seed=0)
    await bench.close()

A critic's file names a kind among the critics (`oracle`, `outcome`, `llm`, `model`, an entry point or
package.module:Class). The option `model` of a kind that asks one is a part of its own, {kind, options}, so any engine
can be asked. The options of a kind that takes a scorer (`model`) are those of the scorer of the same name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from collab.config import AgentDefinition, Keyless, Part, SamplingDefinition, validate
from collab.credit.critic import Critic, label_of
from collab.credit.language_prompt import FOLDER, read_critic_prompts
from collab.credit.scoring_prompt import read_scoring_prompts
from collab.errors import ConfigError, UnknownName
from collab.library import Library
from collab.models.base import AskedAlike, Model
from collab.models.meter import tell_lost
from collab.models.reward import RewardModel
from collab.resolve import build, kinds, takes

MODEL = "model"
"""Option that says which engine is asked."""
SCORER = "scorer"
"""Parameter of critics that are made with a reward model."""
REACHING = frozenset(
    {
        *("api_key_env", "base_url", "concurrency", "retries", "timeout_s"),
        *("usd_per_million_prompt", "usd_per_million_completion"),
        *("cache_mb", "device", "download", "max_batch", "prefill_tokens"),
    }
)
"""Options of engines that say how a model is reached, computed and paid, not which one it is or what it is asked."""

_NOBODY = "http://nobody.invalid/v1"
"""A name that no server can have (RFC 2606)."""


class CriticDefinition(Keyless):
    """`agents/*.yaml` of a critic: who judges. Defaults are the paper's temperature and what a whole step needs."""

    description: str = ""
    """What listings say of it."""
    prompt: str = FOLDER
    """Folder in `prompts/`."""
    sampling: SamplingDefinition = SamplingDefinition(temperature=0.1, max_tokens=2048)
    context_tokens: int = Field(default=8500, ge=256)
    """Longest prompt plus reply, in tokens; history is left out until a question fits."""
    history: int = Field(default=10, ge=0)
    """How many executed actions a question tells."""


def load_critic(library: Library, name: str) -> CriticDefinition:
    """Read a critic's file.

    Raises:
        UnknownName: no agents file has that name, or no critic is of its kind.
        ConfigError: it does not fit, or it is of somebody who speaks.
    """
    kind = library.load("agents", name, AgentDefinition).kind
    if kind in kinds("models") and kind not in kinds("critics"):
        raise ConfigError(
            f"agents/{name}: kind {kind} speaks and does not judge; make it the option model of a critic of kind llm, "
            "as in agents/critic-llm.yaml"
        )
    if ":" not in kind and kind not in kinds("critics"):
        raise UnknownName.of(
            f"critics kind (in agents/{name})", kind, kinds("critics"), "or write package.module:Class"
        )
    return library.load("agents", name, CriticDefinition)


def critic_texts(library: Library, definition: CriticDefinition) -> dict[str, str]:
    """Template → text of what a critic asks; empty for a kind that asks nothing.

    Raises:
        UnknownName: there is no such prompt.
        ConfigError: a template is missing or cannot be read.
    """
    if not takes(definition, "texts", "critics"):
        return {}
    read = read_scoring_prompts if takes(definition, SCORER, "critics") else read_critic_prompts
    return read(library.path("prompts", definition.prompt))


def deciding(definition: CriticDefinition, *, placeless: bool) -> dict[str, Any]:
    """A definition as JSON, without what decides no score: words for people, and how a model is reached (`REACHING`).

    Texts are compared instead of `prompt`, which names their folder.

    Args:
        placeless: whether a reward model is known by its weights; then its `path` does not count either.
    """
    told = definition.model_dump(mode="json", exclude={"description", "prompt"})
    engine = told["options"].get(MODEL)
    if definition.kind in kinds("scorers"):
        told["options"] = _without(told["options"], REACHING | {"path"} if placeless else REACHING)
    elif isinstance(engine, dict):
        told["options"][MODEL] = engine | {"options": _without(engine.get("options", {}), REACHING)}
    return told


def _without(options: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


def unasked(engine: Part) -> Part:
    """The same engine to count tokens with and to ask nothing, which needs no key.

    OpenAI's own server is the only one that insists on a key; it is exchanged for an address where nobody answers.
    """
    if engine.kind != "openai" or engine.options.get("base_url") is not None:
        return engine
    return engine.model_copy(update={"options": {**engine.options, "base_url": _NOBODY}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """All that a critic is made with; the critics it gives share one model."""

    name: str
    """Of its agents file, for messages."""
    definition: CriticDefinition
    texts: Mapping[str, str]
    model: Model | RewardModel | None
    """Who is asked, or scores; None for a kind that needs no model."""

    @classmethod
    def of(cls, name: str, definition: CriticDefinition, texts: Mapping[str, str], *, asks: bool = True) -> Bench:
        """Build the model that is asked or scores, where there is one; it asks nobody yet.

        Args:
            asks: whether it ever will; a plan only counts what would be asked, see `unasked`.

        Raises:
            ConfigError: no engine is named, or its options do not fit; and all of `collab.resolve.build`.
        """
        model: Model | RewardModel | None = None
        if takes(definition, SCORER, "critics"):
            model = build("scorers", definition, f"agents/{name}")
        elif takes(definition, MODEL, "critics"):
            where = f"agents/{name}: options.{MODEL}"
            if not isinstance(definition.options.get(MODEL), dict):
                got = definition.options.get(MODEL)
                raise ConfigError(
                    f"{where}: got {got!r}; a critic of kind {definition.kind} asks an engine, written as "
                    "{kind: openai, options: {model: …}}"
                )
            part = validate(Part, definition.options[MODEL], where)
            model = build("models", part if asks else unasked(part), where)
            if isinstance(model, AskedAlike):
                model.sampling = definition.sampling.of(0, 1, f"agents/{name}")
        return cls(name=name, definition=definition, texts=texts, model=model)

    def critic(self, *, seed: int = 0, attempt: int = 0, call_s: float = 120.0) -> Critic:
        """A critic.

        Args:
            seed: decides what it draws: names, calls.
            attempt: another one asks the very same questions anew.
            call_s: limit of one call in seconds.

        Raises:
            UnknownName, ConfigError, MissingExtra: see `collab.resolve.build`.
        """
        definition, where = self.definition, f"agents/{self.name}"
        given: dict[str, Any] = {
            "texts": self.texts,
            "sampling": definition.sampling.of(0, 1, where),
            "context_tokens": definition.context_tokens,
            "history": definition.history,
            "call_s": call_s,
            "seed": seed,
            "attempt": attempt,
        }
        options = dict(definition.options)
        if isinstance(self.model, RewardModel):
            given[SCORER], options = self.model, {}
        elif self.model is not None:
            given[MODEL] = self.model
            del options[MODEL]
        made: Critic = build("critics", Part(kind=definition.kind, options=options), where, given)
        return made

    @property
    def label(self) -> str:
        """Name and version of its critics, e.g. "llm-3"."""
        return label_of(self.critic())

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides its scores, seeds left out.

        How a model is reached and paid does not count (`REACHING`): the same model name at another address is the same
        critic. A checkpoint that is asked is told by its path and version, a reward model by its weights.
        """
        told = deciding(self.definition, placeless=True)
        if isinstance(self.model, RewardModel):
            told["options"]["weights"] = self.model.weights
        whole = json.dumps({"critic": self.label, **told, "texts": dict(self.texts)}, sort_keys=True, default=str)
        return hashlib.sha256(whole.encode()).hexdigest()

    async def close(self) -> None:
        """Give back what the model holds, and tell of calls whose cost is not known."""
        if self.model is not None:
            tell_lost(self.model, f"critic {self.name}")
            await self.model.close()
