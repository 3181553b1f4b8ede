"""Critics by name: from an agents file, from a kind, or from labels beside a run.

`CriticResources` builds a critic from its agents file, with the digest that identifies its calibrations:

    definition = load_critic(library, "critic-llm")
    resources = CriticResources.of("critic-llm", definition, read_critic_texts(library, definition))
    critic = resources.build_critic(seed=0)
    await resources.close()

A critic's file names a kind among the critics (`oracle`, `outcome`, `llm`, `model`, `prm`, an entry point or
package.module:Class). The option `model` of a kind that asks one is a part of its own, {kind, options}, so any engine
can be asked. The options of a kind that takes a scorer (`model`) are those of the scorer of the same name.

`find_critic` finds the critic of a name that a user gives: a kind that asks no model (oracle, outcome,
package.module:Class), the agents file of a critic, or a label set of the run. A label set belongs to one critic;
another critic is refused.

`explain_difference` explains how the critic of existing labels differs from the one that is named now:

    head = build_head(definition, texts, stored)       # the head that it would write
    explain_difference("mine", stored, head)           # "critic 'outcome-1', now it is 'oracle-2'", or None

It compares all that decides scores: critic, options, prompt texts, weights. Connection and price of a model do not
count, nor does the place of a reward model whose weights are known (`select_deciding`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from collab.config import AgentsFile, Budget, Keyless, PartDefinition, SamplingDefinition, load_agent, validate
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library, resolve_checkpoint
from collab.models.base import AskedAlike, Model, Scorer, check_counted, is_scorer, warn_of_lost_calls
from collab.models.checkpoint_card import hash_played_weights
from collab.models.tokenizer import OWN_PATH
from collab.rewards.base import Critic, label_of
from collab.rewards.flip import FlippedCritic, format_suffix
from collab.rewards.labels import LabelHead, check_name, list_label_sets, read_label_head
from collab.rewards.llm import FOLDER, read_critic_prompts
from collab.rewards.reward_model import read_scoring_prompts
from collab.rollout.build import DATE, Group, add_date, build, has_parameter, list_kinds, load_class
from collab.utils.files import list_differing
from collab.utils.redact import hide_values
from collab.utils.trust import check_trusted, vouch

MODEL = "model"
"""Option that names the engine to ask."""
SCORER = "scorer"
"""Parameter of critics that score with a reward model."""
REACHING = frozenset(
    {
        *("api_key_env", "base_url", "concurrency", "retries", "timeout_s"),
        *("usd_per_million_prompt", "usd_per_million_completion"),
        *("cache_mb", "device", "download", "max_batch", "picture_tokens", "prefill_tokens"),
        DATE,
    }
)
"""Options of engines for connection, computation and price; they decide neither the model nor its prompt.

A date that a template tells is noted, and makes no other critic: one that was calibrated yesterday may judge today."""

_PLACEHOLDER_URL = "http://nobody.invalid/v1"
"""An address that no server can have (RFC 2606)."""


class JudgeDefinition(Keyless):
    """`agents/*.yaml` of a critic or a verifier."""

    description: str = ""
    """Text for listings."""
    prompt: str = ""
    """Folder in `prompts/`; empty for the one of its kind."""
    sampling: SamplingDefinition = SamplingDefinition(temperature=0.1, max_tokens=2048)
    """How replies are sampled."""
    context_tokens: int = Field(default=8500, ge=256)
    """Longest prompt plus reply, in tokens; history is left out until a question fits."""
    history: int = Field(default=10, ge=0)
    """Executed actions in a question."""


class CriticDefinition(JudgeDefinition):
    """`agents/*.yaml` of a critic. Defaults are the paper's temperature and the tokens that a whole step needs."""

    flip: float = Field(default=0.0, ge=0, lt=1)
    """Share of rewards that are inverted on purpose, to measure what wrong credit costs; see `collab.rewards.flip`."""


def load_critic(library: Library, name: str) -> CriticDefinition:
    """Read a critic's file.

    Raises:
        UnknownName: no agents file has that name, or no critic is of its kind.
        ConfigError: it does not fit, or it is a policy's.
    """
    kind = library.load("agents", name, AgentsFile).kind
    if kind in list_kinds("models") and kind not in list_kinds("critics"):
        raise ConfigError(
            f"agents/{name}: kind {kind} speaks and does not judge; make it the option model of a critic of kind llm, "
            "as in agents/critic-llm.yaml"
        )
    if ":" not in kind and kind not in list_kinds("critics"):
        raise UnknownName.of(
            f"critics kind (in agents/{name})", kind, list_kinds("critics"), "or write package.module:Class"
        )
    return add_engine_date(load_agent(library, name, CriticDefinition))


JudgeT = TypeVar("JudgeT", bound=JudgeDefinition)


def add_engine_date(definition: JudgeT) -> JudgeT:
    """Return a judge with today's date if the template of its checkpoint reads one and none is given."""
    engine = definition.options.get(MODEL)
    if not isinstance(engine, dict):
        return add_date(definition, list_kinds("scorers"))
    options = engine.get("options")
    if not isinstance(engine.get("kind"), str) or not isinstance(options, dict):
        return definition  # refused where it is built
    dated = add_date(PartDefinition(kind=engine["kind"], options=options))
    return _set_options(definition, dated.options)


def _set_options(definition: JudgeT, options: Mapping[str, Any]) -> JudgeT:
    """Return a judge with these options of its checkpoint."""
    engine = definition.options.get(MODEL)
    within = {**definition.options, MODEL: engine | {"options": options}} if isinstance(engine, dict) else options
    return definition.model_copy(update={"options": dict(within)})


def _list_options(definition: JudgeDefinition) -> Mapping[str, Any]:
    """Return the options of a judge's checkpoint, or its own."""
    engine = definition.options.get(MODEL)
    options: Mapping[str, Any] = engine.get("options", {}) if isinstance(engine, dict) else definition.options
    return options


def read_critic_texts(library: Library, definition: CriticDefinition) -> dict[str, str]:
    """Return template → text of a critic's prompts; empty for a kind without prompts.

    Raises:
        UnknownName: there is no such prompt.
        ConfigError: a template is missing or cannot be read.
    """
    if not has_parameter(definition, "texts", "critics"):
        return {}
    own = getattr(load_class("critics", definition, "a critic"), "prompts", FOLDER)
    read = read_scoring_prompts if has_parameter(definition, SCORER, "critics") else read_critic_prompts
    return read(library.find_path("prompts", definition.prompt or own), own)


def select_deciding(definition: JudgeDefinition, *, placeless: bool) -> dict[str, Any]:
    """Return a definition as JSON, without fields that decide no score: descriptions and `REACHING`.

    Texts are compared instead of `prompt`, the name of their folder.

    Args:
        placeless: whether a reward model is known by its weights; then its `path` does not count either.
    """
    told = definition.model_dump(mode="json", exclude={"description", "prompt"})
    engine = told["options"].get(MODEL)
    if definition.kind in list_kinds("scorers"):
        told["options"] = _drop_keys(told["options"], REACHING | {"path"} if placeless else REACHING)
    elif isinstance(engine, dict):
        told["options"][MODEL] = engine | {"options": _drop_keys(engine.get("options", {}), REACHING)}
    return told


def _drop_keys(options: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


def make_token_counter(engine: PartDefinition) -> PartDefinition:
    """Return the engine for counting tokens only: OpenAI's own server, which insists on a key, gets a dead address."""
    if engine.kind != "openai" or engine.options.get("base_url") is not None:
        return engine
    return engine.model_copy(update={"options": {**engine.options, "base_url": _PLACEHOLDER_URL}})


def doubt_key(part: PartDefinition, where: str) -> list[str]:
    """Return a line if the server of an engine, or of a critic's engine, would be asked without the key that it needs.

    A plan asks nothing and so needs no key, but what it plans does.
    """
    from collab.models.http import find_key

    engine = (
        part.options.get(MODEL)
        if part.kind not in list_kinds("models")
        else {"kind": part.kind, "options": part.options}
    )
    if not isinstance(engine, dict) or engine.get("kind") != "openai":
        return []
    options = engine.get("options", {})
    try:
        find_key(options.get("api_key_env", "OPENAI_API_KEY"), options.get("base_url"))
    except ConfigError as error:
        return [f"{where}: {error}"]
    return []


def build_engine(
    name: str, definition: JudgeDefinition, *, group: Group = "critics", asks: bool = True
) -> Model | Scorer | None:
    """Build the model that a judge asks or scores with; None for a kind that needs none. No call is made yet.

    Args:
        name: of its agents file.
        group: of the judge's kind.
        asks: whether it will ever be asked; a plan only counts tokens, see `make_token_counter`.

    Raises:
        ConfigError: no engine is named, or its options do not fit; and all of `collab.rollout.build.build`.
    """
    # A judge asks a model, scores with one or needs none, as its class's parameters show.
    if has_parameter(definition, SCORER, group):
        scorer: Scorer = build("scorers", definition, f"agents/{name}")
        return scorer
    if not has_parameter(definition, MODEL, group):
        return None
    where, given = f"agents/{name}: options.{MODEL}", definition.options.get(MODEL)
    if not isinstance(given, dict):
        raise ConfigError(
            f"{where}: got {given!r}; a {group.removesuffix('s')} of kind {definition.kind} asks an engine, written as "
            "{kind: openai, options: {model: …}}"
        )
    part = validate(PartDefinition, given, where)
    part._origin = definition._origin
    # For a plan the model is built for its tokenizer alone.
    try:
        model: Model = build("models", part if asks else make_token_counter(part), where)
    except ConfigError as error:  # whose advice is for a file of the model's own
        raise type(error)(str(error).replace(OWN_PATH, f"options.{MODEL}.{OWN_PATH}")) from None
    # Servers are probed with the sampling of later calls.
    if isinstance(model, AskedAlike):
        model.sampling = definition.sampling.of(0, 1, f"agents/{name}")
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticResources:
    """All that a critic is built with; its critics share one model."""

    name: str
    """Name of its agents file, for messages."""
    definition: CriticDefinition
    texts: Mapping[str, str]
    model: Model | Scorer | None
    """The model that is asked or that scores; None for a kind that needs none."""

    @classmethod
    def of(
        cls, name: str, definition: CriticDefinition, texts: Mapping[str, str], *, asks: bool = True
    ) -> CriticResources:
        """Build its model; arguments and errors as of `build_engine`."""
        return cls(name=name, definition=definition, texts=texts, model=build_engine(name, definition, asks=asks))

    def build_critic(self, *, seed: int = 0, attempt: int = 0, call_s: float = 120.0) -> Critic:
        """Build a critic.

        Args:
            seed: decides names and the seeds of calls.
            attempt: another number asks the very same questions anew.
            call_s: limit of one call in seconds.

        Raises:
            UnknownName, ConfigError, MissingExtra: see `collab.rollout.build.build`.
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
        # The model was built above, with its own checks, and takes the place of its definition.
        options = dict(definition.options)
        if is_scorer(self.model):
            given[SCORER], options = self.model, {}
        elif self.model is not None:
            given[MODEL] = self.model
            del options[MODEL]
        made: Critic = build("critics", PartDefinition(kind=definition.kind, options=options), where, given)
        share = definition.flip
        return FlippedCritic(critic=made, share=share, seed=seed, attempt=attempt) if share else made

    @property
    def label(self) -> str:
        """Name and version of its critics, e.g. "llm-3"."""
        return label_of(self.build_critic())

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides its scores, without seeds.

        Connection and price do not count (`REACHING`): the same model name at another address is the same critic. A
        checkpoint that is asked counts by its path and version, a reward model by its weights.
        """
        told = select_deciding(self.definition, placeless=True)
        if is_scorer(self.model):
            told["options"]["weights"] = self.model.weights
        whole = json.dumps({"critic": self.label, **told, "texts": dict(self.texts)}, sort_keys=True, default=str)
        return hashlib.sha256(whole.encode()).hexdigest()

    async def close(self) -> None:
        """Close the model, and report calls of unknown cost."""
        if self.model is not None:
            warn_of_lost_calls(self.model, f"critic {self.name}")
            await self.model.close()


WEIGHTS = "weights"
"""Option of a label set: digest of the critic's weights."""
_SHOWN = 40
"""Most characters of a shown value."""


def read_definition(name: str, head: LabelHead) -> CriticDefinition:
    """Return the critic of a label set, as far as its head records it; ConfigError when the record does not fit."""
    told = head.options
    if "critic" in told:
        return validate(CriticDefinition, told["critic"], f"labels {name!r}: critic")
    kind = str(told.get("kind", head.critic.rpartition("-")[0]))
    return CriticDefinition(kind=kind, options=dict(told.get("options", {})))


def build_head(definition: CriticDefinition, texts: Mapping[str, str], stored: LabelHead) -> LabelHead:
    """Build the head that a critic would write for existing labels, without loading or asking anything.

    Unknown parts are as in the stored head: a name and version that only a built critic has, the seed, and weights that
    are gone from the same place. Weights that are gone from another place are left out.

    Raises:
        ConfigError: its class cannot be imported.
    """
    made = load_class("critics", definition, f"critic {definition.kind}")
    said, version = getattr(made, "name", None), getattr(made, "version", None)
    known = isinstance(said, str) and isinstance(version, str)
    critic = f"{said}-{version}{format_suffix(definition.flip)}" if known else stored.critic
    options: dict[str, Any] = {"critic": definition.model_dump(mode="json", exclude={"description"}), "texts": texts}
    if WEIGHTS in stored.options:
        same = _list_places(definition) == _list_places(read_definition("", stored))
        found = hash_engine_weights(definition) or (stored.options[WEIGHTS] if same else None)
        options |= {} if found is None else {WEIGHTS: found}
    return replace(stored, critic=critic, options=options)


def explain_difference(name: str, old: LabelHead, new: LabelHead) -> str | None:
    """Explain in words how two heads' critics differ; None where they are the same.

    Args:
        name: the labels', for messages.
    """
    weighed = WEIGHTS in old.options and WEIGHTS in new.options
    return describe_difference(*(_select_deciding(name, head, placeless=weighed) for head in (old, new)))


def describe_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Describe the first difference of two judges' settings, as JSON without secrets; None where they are equal."""
    for what, before, after in list_differing(_hide(old), _hide(new)):
        shown = repr(before), repr(after)
        return f"other {what}" if max(map(len, shown)) > _SHOWN else f"{what} {shown[0]}, now it is {shown[1]}"
    return None


def _hide(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are stored: plain JSON without secrets."""
    stored: dict[str, Any] = hide_values(json.loads(json.dumps(settings, default=str)))
    return stored


def _select_deciding(name: str, head: LabelHead, *, placeless: bool) -> dict[str, Any]:
    """Return all of a head that decides scores, as it is stored: without secrets."""
    told = select_deciding(read_definition(name, head), placeless=placeless)
    whole = {"critic": head.critic, **told, "texts": head.options.get("texts", {})}
    return {**whole, WEIGHTS: head.options.get(WEIGHTS)}


def hash_engine_weights(definition: JudgeDefinition) -> str | None:
    """Return the digest of the weights that a definition names by a path; None where none are there."""
    path, adapter = _list_places(definition)
    folders = [Path(resolve_checkpoint(str(path))), *([] if adapter is None else [Path(str(adapter))])]
    there = path is not None and all(folder.is_dir() for folder in folders)
    return hash_played_weights(folders[0], adapter) if there else None


def _list_places(definition: JudgeDefinition) -> tuple[Any, Any]:
    """Return the paths of a definition's checkpoint and adapter; None for a missing one."""
    options = _list_options(definition)
    return options.get("path"), options.get("adapter")


NEEDS_OPTIONS = frozenset({"llm", "model", "prm"})
"""Kinds of critics that need a model, so that a bare name is not enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticChoice:
    """A label set of a run, existing or new."""

    labels: str
    """Name of the label set."""
    name: str
    """The critic's name for messages: its agents file as given, or the labels where only they are known."""
    seed: int
    options: Mapping[str, Any]
    """As in `LabelHead.options`."""
    definition: CriticDefinition
    texts: Mapping[str, str] = field(default_factory=dict)
    """Template → text of the prompt; empty when no model is asked."""

    @property
    def free(self) -> bool:
        """Return whether judging is known to cost neither money nor tokens."""
        return self.definition.kind in ("oracle", "outcome")

    @property
    def known(self) -> bool:
        """Return whether it can be built; a label set need not record how its model was asked."""
        kind = self.definition.kind
        return "critic" in self.options or ":" in kind or (kind in list_kinds("critics") and kind not in NEEDS_OPTIONS)


def find_critic(library: Library, name: str, run: Path, seed: int, labels: str | None = None) -> CriticChoice:
    """Return the critic, and the label set that it extends or makes.

    Args:
        name: a critic that asks no model, an agents file, or else a label set of the run.
        seed: of the run; an existing label set keeps its own.
        labels: name of the label set; None for the critic's name.

    Raises:
        UnknownName: it is neither a label set of the run, nor a critic, nor an agents file.
        ConfigError: the agents file does not fit, or is a policy's.
        UsageError: another critic made the label set of that name, or the name is not allowed.
    """
    # A bare name may be a label set beside the run, a kind, or an agents file.
    there, known = list_label_sets(run), [kind for kind in list_kinds("critics") if kind not in NEEDS_OPTIONS]
    bare = name in known or ":" in name
    # A critic goes before a label set of the same name.
    if name in there and not bare and not _is_critic(library, name, run):
        if labels not in (None, name):
            raise UsageError(
                f"--labels {labels}: --critic {name} names labels that are there already, and no critic; "
                "leave one of the two out"
            )
        return find_labelling(run, name)
    # Named by the user on the command line, so it may run; a recorded name would have to be trusted first.
    if bare:
        vouch({"kind": name})
        definition, texts = CriticDefinition(kind=name), dict[str, str]()
        told: dict[str, Any] = {"kind": name, "options": {}}
    else:
        try:
            # Only to know whether it exists: the error then lists everything that could have been meant.
            library.find_path("agents", name)
        except UnknownName:
            every = {*there, *known, *library.list_names("agents")}
            raise UnknownName.of("label set, critic or agents file", name, every) from None
        definition = load_critic(library, name)
        texts = read_critic_texts(library, definition)
        told = {"critic": definition.model_dump(mode="json", exclude={"description"}), "texts": texts}
    # A label set's name becomes a folder: colons and paths are taken out.
    labels = labels or (name.replace(":", "-") if bare else Path(name).stem)
    check_name(labels)
    # Two critics under one name would mix their labels.
    if labels in there:
        stored = read_label_head(run, labels)
        other = explain_difference(labels, stored, build_head(definition, texts, stored))
        if other is not None:
            raise UsageError(
                f"--critic {name}: labels {labels!r} of {run} were made with {other}; keep both with "
                f"--labels {free_name(labels, there)} beside it, or take what is there with --labels {labels} instead"
            )
        # An existing label set decides seed and options: it is extended, never mixed.
        seed, told = stored.seed, dict(stored.options)
        noted = _list_options(read_definition(labels, stored)).get(DATE)
        if noted is not None:  # labels begun on one day are extended with that day's date
            definition = _set_options(definition, {**_list_options(definition), DATE: noted})
    return CriticChoice(labels=labels, name=name, seed=seed, options=told, definition=definition, texts=texts)


def find_labelling(run: Path, name: str) -> CriticChoice:
    """Return a label set, and the critic of its head; UnknownName when there is no such label set."""
    there = list_label_sets(run)
    if name not in there:
        raise UnknownName.of(f"label set of {run}", name, there, "or say who judges: --critic NAME")
    head = read_label_head(run, name)
    definition, texts = read_definition(name, head), head.options.get("texts", {})
    options = dict(head.options)
    return CriticChoice(labels=name, name=name, seed=head.seed, options=options, definition=definition, texts=texts)


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name itself, or with the first free number."""
    numbered = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
    return next(each for each in numbered if each not in taken)


def _is_critic(library: Library, name: str, run: Path) -> bool:
    """Return whether an agents file of that name is a critic's; False where there is none, or it is a policy's.

    An unreadable file counts as the critic's if an agents file made the labels of that name, so that its error is
    shown.
    """
    try:
        kind = library.load("agents", name, AgentsFile).kind
    except UnknownName:
        return False
    except ConfigError:
        return "critic" in read_label_head(run, name).options
    return kind in list_kinds("critics") or kind not in list_kinds("models")


@contextlib.asynccontextmanager
async def open_critic(
    choice: CriticChoice, budget: Budget, call_s: float, stop: asyncio.Event | None = None
) -> AsyncIterator[tuple[Critic, LabelHead]]:
    """Open the critic, and return it with the head of its labels; its model is closed at the end of the block.

    Args:
        call_s: limit of one call in seconds.

    Raises:
        ConfigError: it cannot be built; see `collab.rollout.build.build`.
        UsageError: the labels do not record how it is asked, or a limit is on something that is not counted.
        ModelFailure: its server does not answer.
    """
    # Labels that do not hold their critic's definition can be read, and not extended.
    if not choice.known:
        raise UsageError(
            f"labels {choice.labels!r}: nothing is judged yet, and they do not record how {choice.definition.kind} is "
            "asked; resume the command that made them, or name another critic: --critic NAME"
        )
    # The definition comes from a file beside the run, so its parts must be trusted before they are imported.
    check_trusted(choice.definition.model_dump(mode="json"), f"labels {choice.labels!r}")
    resources = CriticResources.of(choice.name, choice.definition, choice.texts)
    try:
        # Weights go into the head: the same path with other weights is another critic.
        options = {name: value for name, value in choice.options.items() if name != WEIGHTS}
        if resources.model is not None:
            able = await check_counted(resources.model, budget, f"agents/{choice.name}", stop)
            options |= {} if able.weights is None else {WEIGHTS: able.weights}
        critic = resources.build_critic(seed=choice.seed, call_s=call_s)
        yield critic, LabelHead(critic=label_of(critic), options=options, seed=choice.seed)
    finally:
        await resources.close()
