"""Build concrete objects from configurations; the only place that does.

A `kind` is looked up among the built-in parts, then among the entry points that other packages declare
(`collab.environments`, `collab.models`, `collab.scorers`, `collab.critics`, `collab.verifiers`, `collab.adversaries`,
`collab.algorithms`), then read as `package.module:Class`; an algorithm is named by its entry point alone. Options
become keyword arguments and are checked against the constructor's annotations, so a part from outside gets the same
error messages as a built-in one.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from collab.agents.agent import Agent
from collab.config import (
    AgentDefinition,
    EdgeSampler,
    EnvironmentDefinition,
    GraphDefinition,
    PartDefinition,
    RunConfig,
    build_check_command,
    shorten_name,
)
from collab.envs.base import Suite
from collab.errors import (
    CollabError,
    ConfigError,
    MissingExtra,
    UnknownName,
    describe_error,
    note_outside,
    outside_place,
)
from collab.graphs.dag import Dag
from collab.graphs.deliberation import Network
from collab.graphs.edges import build_dag
from collab.library import Library, explain, resolve_checkpoint
from collab.models.base import Adaptable, AskedAlike, Capabilities, Model, NamesItsCheck
from collab.models.tokenizer import OWN_PATH, get_prompt_date, has_date, is_in_template, open_chat
from collab.prompts.render import Template, read_templates
from collab.rollout.dialects import load_dialect
from collab.rollout.episode import Episode, Stage
from collab.rollout.protocols import check_class, check_object
from collab.seeds import Seeds
from collab.utils.trust import know_built_in, list_entry_points

Group = Literal["environments", "models", "scorers", "critics", "verifiers", "adversaries", "algorithms"]

PartT = TypeVar("PartT", bound=PartDefinition)
_THOUGHTS = (b"think", b"THINK", b"thought", b"Thought", b"reason", b"analysis")
"""Words in templates that know of thoughts."""
DATE = "date"
"""Option of a local model: the date in its chat template."""

BUILT_IN: dict[Group, dict[str, str]] = {
    "environments": {
        "simphone": "collab.envs.simphone.suite:SimPhoneSuite",
        "miniwob": "collab.envs.web.miniwob:MiniwobSuite",
        "mobile-miniwob": "collab.envs.web.mobile:MobileMiniwobSuite",
        "web": "collab.envs.web.live:LiveSuite",
        "device": "collab.envs.android.device:DeviceSuite",
        "androidworld-emulator": "collab.envs.android.emulator:EmulatorSuite",
        "androidworld-http": "collab.envs.android.androidworld_server:ServerSuite",
        "instructions": "collab.synthesis.instruction_suite:InstructionSuite",
        "fake": "collab.testing.corridor:CorridorSuite",
    },
    "models": {
        "openai": "collab.models.openai:OpenAIModel",
        "computer-use": "collab.models.computer_use:ComputerUseModel",
        "local": "collab.models.local:LocalModel",
        "rehearsal": "collab.models.rehearsal:RehearsalModel",
        "scripted": "collab.testing.scripted:ScriptedModel",
    },
    "scorers": {"model": "collab.models.reward_model:RewardModel"},
    "critics": {
        "model": "collab.rewards.reward_model:ModelCritic",
        "llm": "collab.rewards.llm:LanguageCritic",
        "prm": "collab.rewards.process_reward:ProcessRewardModel",
        "oracle": "collab.rewards.oracle:SolutionCritic",
        "outcome": "collab.rewards.outcome:OutcomeCritic",
    },
    "verifiers": {
        "rules": "collab.rewards.verifiers.rules:RulesVerifier",
        "text-judge": "collab.rewards.verifiers.judge:TextJudge",
        "screenshot-judge": "collab.rewards.verifiers.judge:ScreenshotJudge",
    },
    "adversaries": {
        "llm": "collab.preferences.adversary:LanguageAdversary",
        "sampler": "collab.preferences.adversary:SamplerAdversary",
    },
    "algorithms": {
        "appvlm": "collab.algorithms.appvlm.algorithm:AppVLM",
        "collabuiagents": "collab.algorithms.collabuiagents.algorithm:CollabUIAgents",
        "filtered-bc": "collab.algorithms.filtered_bc.algorithm:FilteredBC",
        "digirl": "collab.algorithms.digirl.algorithm:DigiRL",
        "coach": "collab.algorithms.coach.algorithm:Coach",
        "distrl": "collab.algorithms.distrl.algorithm:DistRL",
        "grpo": "collab.algorithms.grpo.algorithm:GRPO",
        "ppo": "collab.algorithms.ppo.algorithm:PPO",
    },
}


_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


know_built_in(target for group in BUILT_IN.values() for target in group.values())


def list_kinds(group: Group) -> dict[str, str]:
    """List every kind of a group, built-in ones and installed entry points: name → "module:Class"."""
    outside = {point.name: point.value for point in list_entry_points() if point.group == f"collab.{group}"}
    return outside | BUILT_IN[group]


def is_critic(kind: str) -> bool:
    """Return whether an agents file of this kind is a critic; a class named directly counts as an agent."""
    return kind in list_kinds("critics") and kind not in list_kinds("models")


def is_verifier(kind: str) -> bool:
    """Return whether an agents file of this kind is a verifier; a class named directly counts as an agent."""
    return kind in list_kinds("verifiers") and kind not in list_kinds("models")


def refuse_critic(kind: str, where: str) -> None:
    """Refuse a critic or a verifier in the place of an agent, with a ConfigError."""
    if is_critic(kind) or is_verifier(kind):
        what = "critic" if is_critic(kind) else "verifier"
        raise ConfigError(
            f"{where}: a {what} (kind {kind}) judges and does not speak; see agents with: collab agents list"
        )


def build(group: Group, part: PartDefinition, where: str, given: Mapping[str, Any] | None = None) -> Any:
    """Build the object that a part describes.

    Args:
        where: definition that contains it, for messages.
        given: values that no option can hold (a built model), by parameter name; the class gets those it has a
            parameter for.

    Raises:
        UnknownName: no such kind.
        ConfigError: the class cannot be imported, or the options do not fit it.
        MissingExtra: an optional dependency is missing.
    """
    target = _find_target(group, part, where)
    make = _import_class(group, target, where)
    # Only what the class has a parameter for: parts from outside need not take everything.
    taken = {name: value for name, value in (given or {}).items() if name in inspect.signature(make).parameters}
    options = _build_options_model(make, leaving=taken)
    # Options are validated against the class's own signature, so that a misspelt one names its place in the file.
    try:
        checked = options.model_validate(part.options)
        made = make(**taken, **{name: getattr(checked, name) for name in checked.model_fields_set})
    except ValidationError as error:
        raise ConfigError(explain(error, f"{where}: options of {part.kind}", None, options)) from None
    except CollabError as error:
        # Our own errors get the definition's place, once.
        if type(error) is ConfigError and not str(error).startswith(where):
            raise ConfigError(f"{where}: {error}{_try_again(where, part, str(error))}") from None
        raise
    except ImportError as error:
        raise ConfigError(f"{where}: {target} needs {error.name or error}, which cannot be imported") from None
    except Exception as error:
        # Outside code may raise anything; what is plainly a fault of ours keeps its traceback.
        told = describe_error(error) if outside_place(error) is not None else str(error)
        if told == str(error) and not isinstance(error, TypeError | ValueError | OSError):
            raise
        raise ConfigError(f"{where}: {part.kind} cannot be made from its options: {told}") from None
    check_object(group, made, f"{where}: {target}")
    # Models that are probed must know how they will be asked.
    if isinstance(part, AgentDefinition) and isinstance(made, AskedAlike):
        made.sampling = part.sampling.of(0, 1, where)
    if isinstance(made, NamesItsCheck):
        made.check_command = build_check_command(where, part)
    return made


def _try_again(where: str, part: PartDefinition, said: str) -> str:
    """Return the command that checks a corrected agents file; empty for other definitions, or if `said` names it."""
    command = build_check_command(where, part)
    return "" if not command or "collab " in said else f"; then try: {command}"


def load_class(group: Group, part: PartDefinition, where: str) -> Callable[..., Any]:
    """Return the class or function that builds a part; raises UnknownName and ConfigError as `build` does."""
    return _import_class(group, _find_target(group, part, where), where)


def _find_target(group: Group, part: PartDefinition, where: str) -> str:
    """Return the place of a part's class: "module:Class"."""
    target = part.kind if ":" in part.kind else list_kinds(group).get(part.kind)
    if target is None and group == "models":
        refuse_critic(part.kind, where)
    if target is None:
        raise UnknownName.of(
            f"{group} kind (in {where})", part.kind, list_kinds(group), "or write package.module:Class"
        )
    return target


def _import_class(group: Group, target: str, where: str) -> Callable[..., Any]:
    """Return the class of a part, checked for its group's methods; ConfigError if it does not fit."""
    # Checked before importing: the name comes from a file.
    if not _TARGET.fullmatch(target):
        raise ConfigError(f"{where}: kind {target[:80]!r} is no class; write package.module:Class")
    module, _, name = target.partition(":")
    # Remembered, so that later errors can say whose code they come from.
    note_outside(module)
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        # A module from outside may do anything at import, `sys.exit` included.
        if outside_place(error) is None and not isinstance(error, ImportError | ValueError):
            raise
        missing = MissingExtra.from_import(error, f"{where}: {target}") if isinstance(error, ImportError) else None
        if missing is not None:
            raise missing from None
        more = "" if outside_place(error) is not None else "; install its package, or name its folder in PYTHONPATH"
        raise ConfigError(f"{where}: {target} cannot be imported: {describe_error(error)}{more}") from None
    if not hasattr(found, name):
        raise ConfigError(f"{where}: {module} has no {name!r}")
    made: Callable[..., Any] = getattr(found, name)
    check_class(group, made, f"{where}: {target}")
    return made


def _build_options_model(make: Callable[..., Any], leaving: Container[str] = ()) -> type[BaseModel]:
    """Return a pydantic model of a constructor's keyword arguments without `leaving`, from its annotations."""
    try:
        parameters = inspect.signature(make, eval_str=True).parameters.values()
    except NameError:  # annotations that only a type checker can resolve: take any value, the constructor decides
        parameters = inspect.signature(make).parameters.values()
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in leaving:
            continue
        known = parameter.annotation is not parameter.empty and not isinstance(parameter.annotation, str)
        annotation = parameter.annotation if known else Any
        fields[parameter.name] = (annotation, ... if parameter.default is parameter.empty else parameter.default)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    config = ConfigDict(extra="allow" if takes_any else "forbid", arbitrary_types_allowed=True, protected_namespaces=())
    return create_model(make.__name__, __config__=config, **fields)


# -------------------------------------------------------------------------------------------------------- team


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A built network, and its open models."""

    network: Network
    """On the graph of epoch 0."""
    graph: GraphDefinition
    seeds: Seeds
    per_task: bool
    """Whether each task has its own graph."""
    models: tuple[Model, ...]
    """Each distinct model once."""

    def build_network(self, episode: Episode) -> Network:
        """Return the team on the graph of this episode."""
        if not isinstance(self.graph.edges, EdgeSampler) or self.graph.rewire == "never":
            return self.network
        seed = self.seeds.task_edges(episode.task) if self.per_task else self.seeds.edges(episode.epoch)
        return self.network.rewire(build_dag(self.graph, seed))

    async def probe(self) -> dict[str, Capabilities]:
        """Return the capabilities of each slot's model."""
        found = await asyncio.gather(*(model.probe() for model in self.models))
        known = {id(model): answer for model, answer in zip(self.models, found, strict=True)}
        return {slot: known[id(agent.model)] for slot, agent in self.network.agents.items()}

    async def close(self) -> None:
        """Close the models."""
        await asyncio.gather(*(model.close() for model in self.models))


def build_suite(config: RunConfig) -> Suite:
    """Build the environments of a run; see `build` for the errors."""
    return build_environment(config.environment_name, config.environment)


def build_stage(config: RunConfig, suite: Suite) -> Stage:
    """Return the settings of all episodes of a run."""
    return Stage(
        suite=suite,
        seeds=config.seeds,
        limits=config.environment.limits,
        delay=config.environment.delay,
        pictures=config.pictures,
        success_check=config.success_check,
    )


def build_environment(name: str, definition: EnvironmentDefinition) -> Suite:
    """Build the environments of a definition, with its name if the suite takes one. See `build` for the errors.

    Args:
        name: of the definition, or the path of its file.
    """
    suite: Suite = build(
        "environments", definition.part, f"{describe_place(name, definition)} (backend {definition.backend})"
    )
    take_name = getattr(suite, "take_name", None)
    if take_name is not None:
        take_name(shorten_name(name))
    return suite


def describe_place(name: str, definition: EnvironmentDefinition) -> str:
    """Return where an environment is defined, for messages."""
    return f"envs/{name}" if definition.file is None else str(definition.file)


def has_parameter(part: PartDefinition, option: str, group: Group = "environments") -> bool:
    """Return whether the class of a part has this parameter; False if it cannot be imported."""
    try:
        return option in inspect.signature(_import_class(group, _find_target(group, part, ""), "")).parameters
    except ConfigError:
        return False


def with_prompts(config: RunConfig, library: Library) -> RunConfig:
    """Return the run with the texts of its prompts, so that it no longer depends on any file.

    Raises:
        UnknownName: an agents file names a prompt that is not there.
        ConfigError: a template is missing or cannot be read, or an agents file is a critic's.
    """
    refuse_critics(config)
    wanted: dict[str, frozenset[str]] = {}
    for agent in config.agents.values():
        wanted[agent.prompt] = wanted.get(agent.prompt, frozenset()) | agent.second_calls
    prompts = {name: read_templates(library.find_path("prompts", name), wanted[name]) for name in sorted(wanted)}
    agents = {slot: add_date(agent) for slot, agent in config.agents.items()}
    return config.model_copy(update={"prompts": prompts, "agents": agents})


def refuse_critics(config: RunConfig) -> None:
    """Refuse agents files of critics and verifiers: they cannot speak."""
    for slot, agent in config.agents.items():
        refuse_critic(agent.kind, f"agents/{config.agent_names[slot]}")


def add_date(part: PartT, kinds: Collection[str] = ("local",)) -> PartT:
    """Return a part with today's date if the chat template of its option `path` reads one and none is given."""
    path = part.options.get("path")
    if part.kind not in kinds or part.options.get(DATE) is not None or not isinstance(path, str):
        return part
    dated = {**part.options, DATE: get_prompt_date().isoformat()}
    return part.model_copy(update={"options": dated}) if has_date(resolve_checkpoint(path)) else part


def list_template_doubts(config: RunConfig) -> list[str]:
    """Return warnings about chat templates that open replies differently than their models write them.

    Only templates that know of thoughts are rendered; `collab agents check` looks at all.
    """
    found: dict[str, str] = {}
    for agent in config.agents.values():
        path = agent.options.get("path")
        if agent.kind != "local" or not isinstance(path, str) or _build_key(agent) in found:
            continue
        if any(is_in_template(resolve_checkpoint(path), word) for word in _THOUGHTS):
            chat = open_chat(resolve_checkpoint(path), template=agent.options.get("chat_template_kwargs"))
            if chat.doubt is not None:
                found[_build_key(agent)] = f"warning: {path}: {chat.doubt}"
    return list(dict.fromkeys(found.values()))


def with_dates_of(config: RunConfig, begun: RunConfig, asked: RunConfig) -> RunConfig:
    """Return a run with the dates of its beginning, unless the user set others.

    Args:
        config: with its prompts and today's date.
        begun: as it was recorded.
        asked: `config` before dates were added.
    """
    agents = dict(config.agents)
    for slot, agent in config.agents.items():
        was = begun.agents.get(slot)
        if was is not None and DATE in agent.options and DATE not in asked.agents[slot].options and DATE in was.options:
            agents[slot] = agent.model_copy(update={"options": {**agent.options, DATE: was.options[DATE]}})
    return config.model_copy(update={"agents": agents})


def build_team(config: RunConfig, given: Mapping[str, Model] | None = None) -> Team:
    """Build the agents of a run on their graph; slots with equal models share one.

    Args:
        config: with its prompts, see `with_prompts`.
        given: slot → its model, which stays the caller's; None builds all.

    Raises:
        ConfigError: a definition does not fit.
        GraphError: the graph is no DAG over its slots.
    """
    seeds = config.seeds
    dag = build_dag(config.graph, seeds.edges(0))
    # Slots with equal definitions share a model: weights and connections exist once.
    models = _Models()
    agents: dict[str, Agent] = {}
    for position, slot in enumerate(config.graph.slots):
        definition, name = config.agents[slot], config.agent_names[slot]
        model = models.of(definition, f"agents/{name}") if given is None else given[slot]
        # A rehearsal answers from the solution and cannot summarise; found here, not in the middle of an episode.
        for option in ("summary", "step_summaries", "proposal") if model.privileged else ():
            if getattr(definition, option):
                raise ConfigError(
                    f"agents/{name}: {option}: true needs a language model; {definition.kind} writes none"
                )
        check_command = build_check_command(f"agents/{name}", definition)
        agents[slot] = Agent(
            slot=slot,
            definition=_group(definition, name),
            model=model,
            template=Template(definition.prompt, config.prompts[definition.prompt], check_command),
            # By position, so that a list of temperatures in one agents file spreads over the slots.
            sampling=definition.sampling.of(position, len(config.graph.slots), f"agents/{name}"),
            context_tokens=definition.context_tokens,
            history=definition.history,
            summary=definition.summary,
            step_summaries=definition.step_summaries,
            proposal=definition.proposal,
            modality=definition.modality,
            dialect=load_dialect(definition, f"agents/{name}"),
            call_s=config.environment.limits.call_s,
        )
    return Team(
        network=Network(dag=dag, agents=agents, rounds=config.graph.rounds),
        graph=config.graph,
        seeds=seeds,
        # An evaluation keeps one graph per task, so that several teams are measured on the same ones.
        per_task=config.purpose == "eval" or config.graph.rewire == "task",
        models=models.models,
    )


def build_model(part: PartDefinition, where: str) -> Model:
    """Build the model of an agent, see `build`; advice names the setting that reaches agents."""
    try:
        made: Model = build("models", part, where)
    except ConfigError as error:
        raise type(error)(str(error).replace(OWN_PATH, "--set 'agents.*.options.path=DIR'")) from None
    return made


class _Models:
    """Models of a team under construction: equal definitions share one, adapters of one base its weights."""

    def __init__(self) -> None:
        self._made: dict[str, Model] = {}
        self._bases: dict[str, Adaptable] = {}

    @property
    def models(self) -> tuple[Model, ...]:
        """Each distinct model once."""
        return tuple(self._made.values())

    def of(self, part: PartDefinition, where: str) -> Model:
        """Return the model of a definition; see `build` for the errors."""
        # Models that differ in adapter alone share the base weights.
        key, base = _build_key(part), _build_key(part, leaving=("adapter", "version"))
        if key not in self._made:
            known = self._bases.get(base)
            if known is None:
                made = self._made[key] = build_model(part, where)
                # The first one made is the base of the others, whichever adapter it has itself.
                if isinstance(made, Adaptable):
                    self._bases[base] = made
            else:
                adapter, version = part.options.get("adapter"), part.options.get("version", 0)
                if not isinstance(adapter, str | None) or not isinstance(version, int):
                    raise ConfigError(
                        f"{where}: adapter is a directory, version a number; got {adapter!r}, {version!r}"
                    )
                self._made[key] = known.with_adapter(adapter, version)
        return self._made[key]


def check_sees(definition: AgentDefinition, able: Capabilities, where: str) -> None:
    """Refuse an agent that sees pictures if its model takes none.

    Raises:
        ConfigError: its modality and its model do not go together.
    """
    if definition.modality != "text" and not able.images:
        raise ConfigError(
            f"{where}: modality: {definition.modality}, but its model takes no pictures; "
            "use modality: text, or a model that sees"
        )


def _build_key(part: PartDefinition, leaving: Sequence[str] = ()) -> str:
    """Return a key that is equal for parts that would be built equal, ignoring options in `leaving`."""
    options = {name: value for name, value in part.options.items() if name not in leaving}
    return json.dumps([part.kind, options], sort_keys=True, default=str)


def _group(definition: AgentDefinition, name: str) -> str:
    """Return the key of slots with the same shared prompt: same file and no overrides for one slot."""
    shape = [definition.prompt, definition.context_tokens, definition.history, definition.modality, definition.dialect]
    return f"{name} {json.dumps([*shape, definition.kind, definition.options], sort_keys=True, default=str)}"


def build_first_dag(graph: GraphDefinition, seed: int = 0) -> Dag:
    """Return the graph of a definition; a sampled one is drawn with the run seed's edges seed of epoch 0."""
    return build_dag(graph, Seeds(seed).edges(0))
