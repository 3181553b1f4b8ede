"""The four kinds of definitions, and the resolved configuration of a run.

pydantic models with `extra="forbid"`: a wrong key is an error with its line. A `RunConfig` holds everything that a
run needs and nothing else, so a run directory can be resumed from its own manifest.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    PrivateAttr,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from collab.errors import ConfigError, GraphError, UnknownName
from collab.library import Library, explain, find_builtin_root, load_yaml
from collab.seeds import Seeds
from collab.types import Sampling
from collab.utils.redact import find_misplaced_key, hide_in_addresses, hide_values, is_secret_name, redact
from collab.utils.trust import check_trusted, vouch

DefinitionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]
"""Name of a slot: letters, digits, _ and -."""


KEEP_CREDENTIALS = "keep credentials"
"""Key of the serialization context that keeps credentials, for data that is read back and never written."""


@dataclass(frozen=True, slots=True)
class DefinitionOrigin:
    """Source of a definition, for messages; it does not count in comparisons."""

    file: Path | None = field(default=None, compare=False)
    """None for built-in definitions, and those of a recorded run."""


class Definition(BaseModel):
    """Strict base of all definitions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    _origin: DefinitionOrigin = PrivateAttr(default_factory=DefinitionOrigin)

    @property
    def file(self) -> Path | None:
        """The user's file that it was read from, of agents only one given by its path; None for all others."""
        return self._origin.file


DefinitionT = TypeVar("DefinitionT", bound=Definition)


class PartDefinition(Definition):
    """A part to build: a built-in kind, an entry point's name or `package.module:Class`, with its arguments."""

    kind: str
    """A built-in kind, an entry point's name, or `package.module:Class`."""
    options: dict[str, Any] = {}
    """Keyword arguments of the kind."""


class Limits(Definition):
    """When a call, a step or an episode is over. Times are in seconds."""

    call_s: float = Field(default=120.0, gt=0)
    """One model call, its retries included."""
    step_s: float = Field(default=600.0, gt=0)
    """One environment step with its deliberation."""
    episode_s: float = Field(default=3600.0, gt=0)
    """One episode, from reset to outcome."""
    max_steps: int | None = Field(default=None, ge=1)
    """Step budget for all tasks; None uses each task's own."""
    horizon: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Factor on that budget, rounded up."""
    stop_at_first_error: bool = False
    """End an episode, unsolved, with the first step that the environment's own solution does not reward. Steps without
    a known way are none. Needs an environment that can be forked and knows solutions."""

    def limit_steps(self, own: int) -> int:
        """Return the step budget of a task, given its own."""
        return math.ceil((self.max_steps or own) * self.horizon)


class Delay(Definition):
    """Waiting of a step behind its action: a fast environment takes the time of a slow one."""

    step_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Seconds that a step waits, in the median over episodes. They count for `limits`."""
    spread: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    """How unlike episodes are: the 99th percentile of their seconds is so many times the first (lognormal)."""


class Unseen(Definition):
    """Tasks and seeds that are never trained on (`collab.data`)."""

    apps: list[str] = []
    """As tasks name them. Training leaves their tasks out and passes this list to the backend's option `without`."""
    words: list[Annotated[str, Field(pattern=r"^[^\W\d_]+$")]] = []
    """Words that reveal such an app; no training text may contain one."""
    share: int = Field(default=5, ge=2)
    """One task name in so many is unseen."""
    hopeless: list[str] = []
    """Tasks that a policy of the shipped size does not solve even when a solver taught it them: measured apart."""


class EnvironmentDefinition(Definition):
    """`envs/*.yaml`: an environment."""

    description: str = ""
    """Description for listings."""
    backend: str
    """The chosen one of `backends`."""
    backends: dict[str, PartDefinition]
    """Alternative implementations, by name."""
    tasks: Literal["all"] | list[str] = "all"
    """Names, or "tag:word" for all tasks with that tag."""
    limits: Limits = Limits()
    """Seconds that things may take."""
    delay: Delay = Delay()
    """Seconds that steps take longer than they need."""
    unseen: Unseen = Unseen()
    """Apps and words that are never trained on."""
    lasting: bool = False
    """Whether actions have lasting effects (a real phone): such an environment is checked only if it is named."""

    @field_validator("tasks", mode="before")
    @classmethod
    def _check_tasks(cls, tasks: Any) -> Any:
        if isinstance(tasks, str) and tasks != "all":
            raise ValueError(f"write all, or a list of names and tags: tasks: [{tasks}]")
        return tasks

    @property
    def own_tasks(self) -> list[str]:
        """Tasks that are played if none are named."""
        return [self.tasks] if isinstance(self.tasks, str) else list(self.tasks)

    @field_serializer("backends", when_used="json")
    def _hide_credentials(self, backends: dict[str, PartDefinition], info: FieldSerializationInfo) -> dict[str, Any]:
        """Keep secrets in an address (a task's start) out of all written data."""
        plain = {name: part.model_dump(mode="json") for name, part in backends.items()}
        is_kept = bool(info.context and info.context.get(KEEP_CREDENTIALS))
        return plain if is_kept else {name: hide_in_addresses(part) for name, part in plain.items()}

    @model_validator(mode="after")
    def _check_backend(self) -> EnvironmentDefinition:
        if self.backend not in self.backends:
            raise ValueError(f"backend {self.backend!r} is not among {', '.join(self.backends) or 'none'}")
        return self

    @property
    def part(self) -> PartDefinition:
        """The chosen backend."""
        return self.backends[self.backend]


class EdgeSampler(Definition):
    """Edges drawn anew by a named sampler (see `collab.graphs.edges`)."""

    sampler: str
    """Its name."""
    p: float | None = Field(default=None, ge=0, le=1)
    """Edge probability of `ordered`."""
    widths: list[int] | None = None
    """Layer widths of `layered`."""


class GraphDefinition(Definition):
    """`graphs/*.yaml`: a communication graph."""

    description: str = ""
    """Description for listings."""
    slots: list[DefinitionName] = Field(min_length=1)
    """Names of the slots for agents, in order."""
    rounds: int = Field(default=3, ge=1)
    """m."""
    edges: list[tuple[str, str]] | EdgeSampler = []
    """(speaker, hearer) pairs, or a sampler."""
    rewire: Literal["never", "epoch", "task"] = "never"
    """When a sampled graph is drawn again. "never" and "epoch" are equal with one epoch."""
    vote: Literal["majority"] = "majority"
    """Vote over the cells of a step."""

    @model_validator(mode="after")
    def _check_slots(self) -> GraphDefinition:
        if len(set(self.slots)) != len(self.slots):
            raise ValueError("two slots have the same name")
        if self.rewire != "never" and not isinstance(self.edges, EdgeSampler):
            raise ValueError(f"rewire: {self.rewire} needs edges with a sampler")
        return self


FEW_AT_ONCE = 4
"""Episodes that are played at once unless something else is known or asked."""
Temperature = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""0 is greedy."""


class SamplingDefinition(Definition):
    """Sampling settings of replies; a list gives one temperature per slot, in the order of the graph."""

    temperature: Temperature | list[Temperature] = 0.1
    """0 is greedy; a list gives one to each slot."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draw from the likeliest tokens that hold this much probability together."""
    max_tokens: int = Field(default=256, ge=1)
    """Longest reply."""
    stop: list[str] = []
    """Texts that end a reply."""

    def of(self, position: int, slots: int, source: str) -> Sampling:
        """Return the sampling of the slot at `position`; ConfigError if the list is too short for `slots`."""
        temperature = self.temperature
        if isinstance(temperature, list):
            if len(temperature) < slots:
                raise ConfigError(
                    f"{source}: sampling.temperature has {len(temperature)} values, the graph has {slots} slots; "
                    "give one per slot or a single number"
                )
            temperature = temperature[position]
        return Sampling(temperature=temperature, top_p=self.top_p, max_tokens=self.max_tokens, stop=tuple(self.stop))


class Keyless(PartDefinition):
    """Base of parts that ask a model: they must contain no key."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_key(cls, data: Any) -> Any:
        found = find_misplaced_key(data, "") if isinstance(data, Mapping) else None
        if found is not None:
            raise ValueError(found)
        return data


class AgentDefinition(Keyless):
    """`agents/*.yaml`: an agent."""

    description: str = ""
    """Description for listings."""
    prompt: str = "default"
    """Folder in `prompts/`."""
    sampling: SamplingDefinition = SamplingDefinition()
    """Sampling settings of replies."""
    context_tokens: int = Field(default=8192, ge=256)
    """Longest prompt plus reply, in tokens; the size guard keeps prompts below it."""
    history: int = Field(default=5, ge=0)
    """Number of executed actions in a prompt."""
    summary: bool = False
    """Whether the policy also writes a summary of all earlier steps, once per step."""
    step_summaries: bool = False
    """Whether the policy also writes what each step changed, from the screens before and after it; prompts show all."""
    proposal: bool = False
    """Whether the policy first puts its next action into words, in a call of its own, and then chooses an action."""
    modality: Literal["text", "image", "both"] = "text"
    """The screen in a prompt: as text, as image or both."""
    dialect: str | None = None
    """How the model's family speaks: a name of `collab agents dialects`, or "auto" to guess it from the model's name
    or config.json; None for the environment's own actions in the prompt's words."""

    @property
    def second_calls(self) -> frozenset[str]:
        """Templates of its prompt for calls beside those for an action."""
        wanted = {"change": self.step_summaries, "proposal": self.proposal}
        return frozenset(name for name, is_wanted in wanted.items() if is_wanted)


class AgentsFile(AgentDefinition):
    """Any file of `agents/`, an agent's, a critic's or a verifier's, read to see of which kind it is."""

    flip: float = Field(default=0.0, ge=0, lt=1)
    """Share of inverted rewards of a critic; see `collab.rewards.registry.CriticDefinition`."""
    false_positives: float = Field(default=0.0, ge=0, le=1)
    false_negatives: float = Field(default=0.0, ge=0, le=1)
    """Shares of inverted verdicts of a verifier; see `collab.rewards.verifiers.registry.VerifierDefinition`."""


class Cast(Definition):
    """Agents by name, so that `--set agents.*.history=3` means the same with and without a run."""

    agents: dict[str, AgentDefinition]


class Budget(Definition):
    """Limits that stop a run, resumable; None means no limit."""

    model_config = ConfigDict(allow_inf_nan=False)

    usd: float | None = Field(default=None, gt=0)
    """Dollars, by the prices in agents files."""
    tokens: int | None = Field(default=None, gt=0)
    """Prompt and reply tokens together."""
    minutes: float | None = Field(default=None, gt=0)
    """Wall-clock time."""

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parse "usd=2,tokens=1e6,minutes=30"; ConfigError names what does not fit."""
        values: dict[str, float] = {}
        for item in filter(None, (item.strip() for item in text.split(","))):
            name, _, value = item.partition("=")
            # A name that is unknown or given twice is a slip that would silently change a limit.
            if name not in cls.model_fields:
                raise UnknownName.of("budget", name, cls.model_fields)
            if name in values:
                raise ConfigError(f"--budget {text!r}: {name} is given twice")
            try:
                values[name] = float(value)
            except ValueError:
                raise ConfigError(f"--budget {name}={value!r}: not a number") from None
        if not values:
            raise ConfigError("--budget is empty; give it limits, e.g. minutes=30, or leave it out")
        return validate(cls, values, "--budget")


class SplitChoice(Definition):
    """The split that a run belongs to."""

    name: str
    """Its name among the splits of the environment."""
    hash: str
    """SHA-256 of the split at the beginning of the run."""


SuccessCheck = Literal["end", "every_step"]
"""When an environment is asked whether a task is solved."""


class RunConfig(Definition):
    """Everything that decides a run."""

    purpose: Literal["rollout", "eval"] = "rollout"
    """"eval" measures: each instance is played, and success is reported with its interval."""
    environment_name: str
    """File of the environment."""
    environment: EnvironmentDefinition
    graph_name: str
    """File of the graph."""
    graph: GraphDefinition
    agents: dict[str, AgentDefinition]
    """Slot → agent."""
    agent_names: dict[str, str]
    """Slot → name of its file."""
    prompts: dict[str, dict[str, str]] = {}
    """Prompt → template → text, as in `prompts/` when the run was configured."""
    tasks: list[str]
    """Task names, resolved."""
    episodes: int = Field(ge=1)
    """In all; group k plays task k mod len(tasks)."""
    group: int = Field(default=1, ge=1)
    """Episodes in a row that play the same instance, each sampled anew; 1 plays another with each."""
    members: list[int] | None = None
    """Which of each group this run plays, from 0; None for all. The others are another run's."""
    seed: int = 0
    """Run seed: draws instances, graphs and, unless `sampling_seed` is set, replies."""
    sampling_seed: int | None = None
    """Draws replies, together with `seed`, and neither instances nor graphs. None: `seed` alone draws them; 0 is
    another draw."""
    series: list[int] = []
    """Run seeds that are evaluated together, this one among them; empty for a single run."""
    split: SplitChoice | None = None
    """None if tasks and seed were chosen freely."""
    success_check: SuccessCheck = "end"
    """"every_step" ends an episode with success as soon as the environment says that it is solved, whatever the agents
    say. Its results have a label of their own: they are not compared with others. Needs an environment that can tell
    at any time."""
    executor: Literal["local", "ray"] = "local"
    """Where episodes are played: in this process, or by Ray workers, one for each of `concurrency`."""
    concurrency: int = Field(default=FEW_AT_ONCE, ge=1)
    """Episodes in parallel."""
    budget: Budget = Budget()
    pictures: bool = True
    """Whether real screens are stored as pictures (where the environment can be looked at)."""

    @property
    def seeds(self) -> Seeds:
        """Seeds of all draws of the run."""
        return Seeds(self.seed, self.sampling_seed)

    @property
    def sampling(self) -> dict[str, Sampling]:
        """Slot → its sampling; ConfigError if a list of temperatures is too short."""
        slots = self.graph.slots
        return {
            slot: self.agents[slot].sampling.of(position, len(slots), f"agents/{self.agent_names[slot]}")
            for position, slot in enumerate(slots)
        }

    @model_validator(mode="after")
    def _check_slots(self) -> RunConfig:
        if set(self.agents) != set(self.graph.slots):
            raise ValueError(f"agents fill {sorted(self.agents)}, the graph has slots {sorted(self.graph.slots)}")
        return self


def fill_slots(agents: str, slots: Sequence[str]) -> dict[str, str]:
    """Parse `--agents NAME` (fills all slots) or `--agents a=X,b=Y`: slot → name.

    Raises:
        GraphError: a slot is unknown, named twice or left empty.
    """
    # One name fills all slots, which is the common case.
    if "=" not in agents:
        return dict.fromkeys(slots, agents)
    filled: dict[str, str] = {}
    for item in agents.split(","):
        slot, _, name = (part.strip() for part in item.partition("="))
        if slot not in slots:
            raise GraphError(f"--agents {item.strip()!r}: the graph has no slot {slot!r}; slots: {', '.join(slots)}")
        if slot in filled or not name:
            raise GraphError(f"--agents {item.strip()!r}: give each slot one name, once")
        filled[slot] = name
    # Every slot needs an agent: an empty one would be found only when it is to speak.
    empty = [slot for slot in slots if slot not in filled]
    if empty:
        raise GraphError(f"--agents fills {len(filled)} of {len(slots)} slots; no agent for: {', '.join(empty)}")
    return filled


RUN = "run."
"""Prefix of a run's setting; among settings of a training it marks those of the run, e.g. `run.episodes`."""


def validate(model: type[DefinitionT], data: Mapping[str, Any], source: str) -> DefinitionT:
    """Validate data against `model`, with a ConfigError of one line."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, source, None, model)) from None


def validate_recorded(model: type[DefinitionT], data: Mapping[str, Any], source: str) -> DefinitionT:
    """Check recorded data, which may be foreign, before anything is built from it.

    Raises:
        UsageError: it names parts that may not run; see `collab.utils.trust`.
        ConfigError: it does not fit.
    """
    check_trusted(data, source)
    return validate(model, data, source)


def hide_secrets(config: DefinitionT) -> DefinitionT:
    """Return the configuration with this machine's secrets hidden, as it is recorded and played."""
    data = config.model_dump(mode="json")
    hidden = hide_values(data)
    return config if hidden == data else validate(type(config), hidden, "what is recorded")


def override(config: DefinitionT, settings: Sequence[str]) -> DefinitionT:
    """Apply `--set a.b=c`, values read as YAML without comments, and check the result again.

    `agents.ada.history=3` sets one slot's; `agents.*.history=3` all slots'. `run.graph.rounds` of a training is
    `graph.rounds` here, and may be written either way.

    Raises:
        ConfigError: a path leads nowhere, or the result does not fit.
    """
    context = {KEEP_CREDENTIALS: True}
    data, before = (config.model_dump(mode="json", context=context) for _ in range(2))
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ConfigError(f"--set {_format_setting(setting)!r}: write it as a.b=value")
        path = path if "run" in data else strip_run_prefix(path)  # a training has a run, a run has none
        _assign(data, path.split("."), _parse_value(text, setting), setting)
    vouch(data, before)
    made = validate(type(config), data, "--set")
    _keep_origin(made, config)
    return made


def _keep_origin(made: BaseModel, before: BaseModel) -> None:
    """Copy the source file of every part of a definition."""
    if isinstance(made, Definition) and isinstance(before, Definition):
        made._origin = before._origin
    for name in type(made).model_fields:
        inside, was = getattr(made, name), getattr(before, name)
        parts = [(each, was.get(key)) for key, each in inside.items()] if isinstance(inside, dict) else [(inside, was)]
        for part, old in parts:
            if isinstance(part, Definition) and isinstance(old, Definition):
                _keep_origin(part, old)


def _format_setting(setting: str) -> str:
    """Format a setting for messages, without a key."""
    path, _, _ = setting.partition("=")
    return f"{path}=…" if any(map(is_secret_name, path.split("."))) or "api_key_env" in path else redact(setting)


def strip_run_prefix(setting: str) -> str:
    """Return a setting without the prefix `run.`."""
    return setting.removeprefix(RUN)


def _parse_value(text: str, setting: str) -> Any:
    """Parse a value as YAML, with "#" as a plain character, since a path may contain it.

    Raises:
        ConfigError: it is not YAML, or a comment follows a quoted or structured value.
    """
    try:
        value, _ = load_yaml(text)
        *tokens, _ = yaml.scan(text, Loader=yaml.SafeLoader)
        tokens = [token for token in tokens if not isinstance(token, yaml.BlockEndToken)]  # stands behind a comment
    except yaml.YAMLError:
        raise ConfigError(f"--set {_format_setting(setting)!r}: the value is not YAML") from None
    if not text[tokens[-1].end_mark.index :].strip():
        return value
    if all(isinstance(token, yaml.ScalarToken) and token.plain for token in tokens[1:]):
        return text.strip()
    raise ConfigError(
        f"--set {_format_setting(setting)!r}: '#' begins a comment there; put what it belongs to in quotes"
    )


def _assign(data: Any, path: list[str], value: Any, setting: str) -> None:
    key = path[0]
    # A star reaches every child, e.g. all agents of a run.
    if key == "*" and isinstance(data, dict) and len(path) > 1:
        for child in data.values():
            _assign(child, path[1:], value, setting)
        return
    if not isinstance(data, dict):
        raise ConfigError(f"--set {_format_setting(setting)!r}: {redact(str(data))!r} is a plain value without {key!r}")
    if len(path) == 1:
        data[key] = value
        return
    # A key that is not there is a slip: definitions are complete when settings come.
    if key not in data:
        raise UnknownName.of("setting", key, data, f"in --set {_format_setting(setting)!r}")
    _assign(data[key], path[1:], value, setting)


def load_agent(library: Library, name: str, model: type[DefinitionT]) -> DefinitionT:
    """Read an agents file, of a speaker or a critic; a path is kept for messages. See `Library.load` for the errors."""
    definition = library.load("agents", name, model)
    if shorten_name(name) != name:
        definition._origin = DefinitionOrigin(Path(name))
    return definition


def build_check_command(where: str, part: PartDefinition) -> str:
    """Return the command that checks an agents file, "agents/NAME"; empty for other definitions.

    Args:
        where: a further place in the file follows a colon: the engine of a critic, which has no file of its own.
    """
    if part.file is None and not where.startswith("agents/"):
        return ""
    name = where.removeprefix("agents/").partition(": ")[0]
    return f"collab agents check {shlex.quote(name if part.file is None else str(part.file))}"


def load_environment(library: Library, name: str) -> EnvironmentDefinition:
    """Read an environment, with absolute paths of its task files.

    The option `tasks` of a backend may be the path of a file. A relative one is looked up beside the definition, then
    in the current folder. A missing one stays as it is, and its reader reports the error.

    Raises:
        UnknownName, ConfigError: see `Library.load`.
    """
    definition = library.load("envs", name, EnvironmentDefinition)
    file = library.find_path("envs", name)
    definition._origin = DefinitionOrigin(None if file.is_relative_to(find_builtin_root()) else file)
    home = file.parent
    received = library.own is not None and home.is_relative_to(library.own)
    backends = {key: _add_task_file(part, (home, Path()), received) for key, part in definition.backends.items()}
    return definition.model_copy(update={"backends": backends})


def _add_task_file(part: PartDefinition, homes: Sequence[Path], received: bool) -> PartDefinition:
    tasks = part.options.get("tasks")
    if not isinstance(tasks, str):
        return part
    found = [path for home in homes if (path := home / Path(tasks).expanduser()).is_file()]
    if received and found and found[0].is_symlink():
        raise ConfigError(f"{found[0]}: is a link; only plain files and folders are read in a library")
    return part.model_copy(update={"options": part.options | {"tasks": str(found[0].resolve())}}) if found else part


def shorten_name(name: str) -> str:
    """Return the name of a definition that may be given by its path."""
    return Path(name).stem if name.endswith((".yaml", ".yml")) else name
