"""Resolve names to the configuration of a synthesis, check it, and list its units of work.

A unit is one walk (exploring from a task's initial state; some of its screens are taught) or one episode (the way
through a task). The run seed and the unit's place decide all draws, so a unit always gives the same rows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from collab.config import (
    AgentDefinition,
    Budget,
    Definition,
    EnvironmentDefinition,
    SamplingDefinition,
    SplitChoice,
    load_environment,
    override,
    shorten_name,
    validate,
)
from collab.data.example import LEVELS, POLICY_LEVELS, Level
from collab.data.splits import TRAIN, TrainingInstance, check_plan, find_split, restrict_run
from collab.envs.base import PicturesOnly, Suite
from collab.errors import ConfigError, MissingExtra, UnknownName, UsageError
from collab.library import Library
from collab.prompts.render import read_templates
from collab.rewards.process_reward import ProcessRewardModel
from collab.rewards.registry import CriticDefinition, load_critic, read_critic_texts
from collab.rollout.build import add_date, build_environment, load_class, refuse_critic
from collab.rollout.plan import load_splits, order_tasks, resolve_task_names
from collab.seeds import Seeds, derive
from collab.synthesis.llm_prompts import FOLDER, read_teacher_prompts
from collab.utils.text import format_amount

CRITIC = "critic-prm"
"""The process reward model unless another is named."""
ORACLE = "oracle"
"""Name of the teacher that asks the environment."""
SCREENS_PER_WALK = 10
"""Screens that are taught of one walk."""
WALK_STEPS = 30
"""Actions of a walk at most."""
_EXPLORATION = 1
"""Epoch whose instances walks use, so that they differ from those of the episodes."""

Share = Annotated[float, Field(ge=0, lt=1)]


class JudgementConfig(Definition):
    """Settings of level judgement."""

    policy_name: str
    """Agents file whose candidates are judged."""
    policy: AgentDefinition
    """Its definition. It samples at temperature 1 unless another is set here (Android Coach, Appendix B.3)."""
    policy_prompt: dict[str, str] = Field(default_factory=dict)
    """Template → text of its prompt."""
    critic_name: str
    """Agents file of the process reward model that the rows train."""
    critic: CriticDefinition
    """Its definition; of it only the prompt is used."""
    critic_prompt: dict[str, str] = Field(default_factory=dict)
    """Template → text of its prompt."""
    candidates: int = Field(default=8, ge=1)
    """Replies that are sampled on each demonstrated step."""
    rows: int | None = Field(default=4000, ge=2)
    """Rows that are kept at most, half of them right in each task; None keeps all. The paper has 20,000."""


class SynthConfig(Definition):
    """All settings that decide the rows of a synthesis."""

    environment_name: str
    """File that it came from."""
    environment: EnvironmentDefinition
    levels: list[Level] = Field(min_length=1)
    """In the order of the curriculum."""
    teacher_name: str
    """"oracle", or an agents file."""
    teacher: AgentDefinition | None
    """Its definition; None for the oracle. Of its sampling nothing is used: teachers have their own."""
    teacher_prompts: dict[str, str] = Field(default_factory=dict)
    """Template → text; empty for the oracle."""
    sampling: SamplingDefinition = SamplingDefinition(temperature=0.1, max_tokens=2048)
    """Sampling of the teacher's model (CollabUIAgents, Appendix C.4: 0.1)."""
    prompt_name: str = "default"
    """Folder in `prompts/` of the prompt that the policy will read."""
    prompt: dict[str, str] = Field(default_factory=dict)
    """Template → text of the prompt that the policy will read."""
    context_tokens: int = Field(default=8192, ge=256)
    """Context of the policy in tokens; prompts of rows are cut to it."""
    history: int = Field(default=5, ge=0)
    """Executed steps that the prompt shows at most."""
    max_tokens: int = Field(default=256, ge=1)
    """Most tokens of the policy's reply; the rest of its context is for the prompt."""
    tasks: list[str]
    """Task names, resolved."""
    asked_tasks: list[str] = Field(default_factory=list)
    """As they were asked for; empty for what the environment's file says."""
    unsolved: list[str] = Field(default_factory=list)
    """Tasks of the environment's own choice that the oracle leaves out because it knows no solution."""
    settings: list[str] = Field(default_factory=list)
    """Overrides as they were given, for the card; they are in effect already."""
    episodes: int = Field(default=0, ge=0)
    """In all; episode k plays task k mod len(tasks)."""
    screens: int = Field(default=0, ge=0)
    """Screens of exploration to be taught."""
    mistakes: Share = 0.1
    """Chance before each step of an oracle's episode of a mistake, whose way back is taught."""
    elements: int = Field(default=4, ge=0)
    """Number of elements per screen that questions are asked about."""
    seats: int = Field(default=1, ge=1)
    """Decisions that the oracle makes of each step of an episode, each from another seat of another conversation."""
    talk: float = Field(default=0.5, ge=0, le=1)
    """Share of the oracle's decisions in which at least one peer has spoken."""
    renamed: Share = 0.0
    """Share of the oracle's instructions and decisions that are taught under other names of apps and labels."""
    two_steps: Share = 0.0
    """Share of screens on which the oracle asks for two steps at once, too."""
    hurry: Share = 0.0
    """Share of the oracle's demonstrated decisions that are made in a hurry: they skip a step of the solution where the
    screen already allows the one after it."""
    instructions: int = Field(default=8, ge=1)
    """That a model is asked for per screen."""
    judgement: JudgementConfig | None = None
    """Settings of level judgement; None without it."""
    at_most: int | None = Field(default=2000, ge=1)
    """Rows per level, kind, app and action type that are kept; None keeps all."""
    seed: int = 0
    """Draws screens, tasks and instances."""
    split: SplitChoice | None = None
    concurrency: int = Field(default=4, ge=1)
    """Units at once."""
    budget: Budget = Budget()

    @field_validator("levels")
    @classmethod
    def _in_order(cls, levels: list[Level]) -> list[Level]:
        if levels != [one for one in LEVELS if one in levels]:
            raise ValueError(f"levels must stand once and in this order: {', '.join(LEVELS)}")
        return levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One piece of work; its rows are kept whole or not at all."""

    kind: Literal["walk", "episode"]
    number: int
    task: str
    instance: int
    """Seed of the task instance."""
    seed: int
    """Seed of all its random draws."""
    scenes: frozenset[int] = frozenset()
    """Steps of a walk whose screens are taught; empty for an episode, which is taught whole."""

    @property
    def id(self) -> str:
        """Unique in its synthesis, e.g. "walk/12"."""
        return f"{self.kind}/{self.number}"


def list_units(config: SynthConfig) -> list[Unit]:
    """Return all units in the order of their rows: walks first, then episodes."""
    return [*_plan_walks(config), *_plan_episodes(config)]


def list_training_instances(units: list[Unit]) -> list[TrainingInstance]:
    """Return the units' instances for the check against the evaluation splits."""
    return [TrainingInstance(task=unit.task, seed=unit.instance, source=unit.id) for unit in units]


def _plan_walks(config: SynthConfig) -> list[Unit]:
    seeds, tasks = Seeds(config.seed), config.tasks
    walks = []
    # Walks are long enough to leave the start, and teach only some of their screens.
    for number in range(-(-config.screens // SCREENS_PER_WALK)):
        task = tasks[number % len(tasks)]
        seed = derive(config.seed, "walk", number)
        taught = min(SCREENS_PER_WALK, config.screens - number * SCREENS_PER_WALK)
        walks.append(
            Unit(
                kind="walk",
                number=number,
                task=task,
                # Instances of an epoch of their own: walks must not meet those of episodes.
                instance=seeds.task(task, number // len(tasks), epoch=_EXPLORATION),
                seed=seed,
                scenes=frozenset(random.Random(derive(seed, "scenes")).sample(range(WALK_STEPS + 1), taught)),
            )
        )
    return walks


def _plan_episodes(config: SynthConfig) -> list[Unit]:
    seeds, tasks = Seeds(config.seed), config.tasks
    return [
        Unit(
            kind="episode",
            number=number,
            task=task,
            instance=seeds.task(task, number // len(tasks)),
            seed=derive(config.seed, "episode", number),
        )
        for number, task in ((number, tasks[number % len(tasks)]) for number in range(config.episodes))
    ]


_BY_OPTION = {
    "environment_name": "--env",
    "teacher_name": "--teacher",
    "prompt_name": "--prompt",
    "tasks": "--tasks",
    "episodes": "--episodes",
    "asked_tasks": "",
    "unsolved": "",
    "settings": "",
}
"""Fields that `--set` does not reach → the option that says them; empty where they follow from others."""

_OF_ORACLE = frozenset({"mistakes", "seats", "talk", "renamed", "two_steps", "hurry"})
_OF_MODELS = frozenset({"instructions", "sampling"})
"""Settings that one kind of teacher takes, and the other would pass over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisRequest:
    """A synthesis as the user names it."""

    env: str
    teacher: str = ORACLE
    """"oracle", or an agents file."""
    levels: Sequence[str] = POLICY_LEVELS
    agents: str | None = None
    """Policy whose candidates are judged; for level judgement alone, which needs it."""
    critic: str | None = None
    """Process reward model that the rows of level judgement train; None for `CRITIC`."""
    prompt: str = "default"
    """Folder in `prompts/` of the policy that rows are made for."""
    backend: str | None = None
    tasks: Sequence[str] = ()
    episodes: int | None = None
    """None for every task once."""
    screens: int = 200
    seed: int = 0
    concurrency: int = 4
    budget: Budget = field(default_factory=Budget)
    settings: Sequence[str] = ()


async def configure(library: Library, request: SynthesisRequest) -> SynthConfig:
    """Build a configuration from names; calls no model, opens and writes nothing.

    Raises:
        UsageError: a name, a number or a combination does not fit, or none of the tasks is trained on.
        OverlapError: a unit would meet an instance that is kept for evaluation.
    """
    # Before anything is read: rows are written as Parquet at the very end, hours later.
    MissingExtra.unless("pyarrow", extra="parquet", purpose="a synthesis")
    environment = load_environment(library, request.env)
    if request.backend is not None:
        if request.backend not in environment.backends:
            hint = "see them with: collab env list"
            raise UnknownName.of(f"backend of {request.env}", request.backend, environment.backends, hint)
        environment = environment.model_copy(update={"backend": request.backend})
    # The oracle is no agents file: it has neither a model nor prompts.
    asked_of_oracle = request.teacher == ORACLE
    # Definitions go in whole: files may change between start and resume.
    data = {
        "environment_name": shorten_name(request.env),
        "environment": environment,
        "levels": _select_levels(request.levels),
        "teacher_name": shorten_name(request.teacher),
        "teacher": None
        if asked_of_oracle
        else add_date(library.load("agents", request.teacher, AgentDefinition)).model_dump(),
        "teacher_prompts": {} if asked_of_oracle else read_teacher_prompts(library.find_path("prompts", FOLDER)),
        "judgement": _name_judgement(library, request),
        "prompt_name": request.prompt,
        "prompt": read_templates(library.find_path("prompts", request.prompt)),
        "tasks": list(request.tasks) or environment.own_tasks,
        "asked_tasks": list(request.tasks),
        "settings": list(request.settings),
        "episodes": 1 if request.episodes is None else request.episodes,
        "screens": request.screens,
        "seed": request.seed,
        "concurrency": request.concurrency,
        "budget": request.budget.model_dump(),
    }
    asked = validate(SynthConfig, data, "collab synth")
    # Settings last, so that they reach every field and are checked like it.
    config = override(asked, request.settings)
    _check_settings(asked, config)
    if config.judgement is not None:
        # Texts are read last, as the settings may name other prompts.
        config = config.model_copy(update={"judgement": _read_judgement_prompts(library, config.judgement)})
    # Tasks are resolved last, by the suite that the settings ask for.
    return await _resolve_tasks(config, every_task_once=request.episodes is None)


def _name_judgement(library: Library, request: SynthesisRequest) -> dict[str, Any] | None:
    """Return the settings of level judgement by the names of policy and critic; None without that level."""
    if not {"candidate", "judgement"} & set(request.levels):
        if request.agents is not None or request.critic is not None:
            option = "--critic" if request.agents is None else "--agents"
            raise UsageError(f"{option}: is for level judgement, which is not asked for; add --levels judgement")
        return None
    if request.agents is None:
        raise UsageError("--levels judgement: the actions of a policy are judged; name it with --agents, e.g. early")
    policy = add_date(library.load("agents", request.agents, AgentDefinition))
    refuse_critic(policy.kind, f"--agents {request.agents}")
    if policy.modality != "text":
        raise UsageError(f"--agents {request.agents}: reads pictures, which rows do not hold; name one that reads text")
    name = request.critic or CRITIC
    critic = load_critic(library, name)
    made = load_class("critics", critic, f"--critic {name}")
    if not (isinstance(made, type) and issubclass(made, ProcessRewardModel)):
        raise UsageError(f"--critic {name}: a critic of kind {critic.kind} learns no such rows; name one of kind prm")
    # As the paper samples; the file's own temperature is for playing.
    sampling = policy.sampling.model_copy(update={"temperature": 1.0})
    return {
        "policy_name": shorten_name(request.agents),
        "policy": policy.model_copy(update={"sampling": sampling}).model_dump(),
        "critic_name": shorten_name(name),
        "critic": critic.model_dump(),
    }


def _read_judgement_prompts(library: Library, named: JudgementConfig) -> JudgementConfig:
    texts = read_templates(library.find_path("prompts", named.policy.prompt))
    return named.model_copy(update={"policy_prompt": texts, "critic_prompt": read_critic_texts(library, named.critic)})


def _check_settings(asked: SynthConfig, config: SynthConfig) -> None:
    """Check that no setting would be overwritten, misdescribe the rows, or admit evaluation instances."""
    # What is kept for evaluation decides which rows are allowed, so no setting may change it.
    if asked.environment.unseen != config.environment.unseen or config.split is not None:
        raise UsageError(
            "--set: what is kept for evaluation is not changed for a synthesis; give --env an environment of your own"
        )
    for name, option in _BY_OPTION.items():
        if getattr(asked, name) != getattr(config, name):
            raise UsageError(f"--set {name}: cannot be set; " + (f"say it with {option}" if option else "it follows"))
    for name, option in {"policy_name": "--agents", "critic_name": "--critic"}.items():
        if getattr(asked.judgement, name, None) != getattr(config.judgement, name, None):
            raise UsageError(f"--set judgement.{name}: cannot be set; say it with {option}")
    # Settings that the teacher does not read are refused: the card would claim them.
    said = {setting.partition("=")[0].partition(".")[0] for setting in config.settings}
    passed_over = sorted(said & (_OF_MODELS if config.teacher is None else _OF_ORACLE))
    if passed_over:
        whose = "a model" if config.teacher is None else "the oracle"
        raise UsageError(
            f"--set {', '.join(passed_over)}: is for {whose} as a teacher, and means nothing to {config.teacher_name}; "
            "leave it out"
        )


def _select_levels(asked: Sequence[str]) -> list[str]:
    unknown = [level for level in asked if level not in LEVELS]
    if unknown:
        raise UnknownName.of("level", unknown[0], LEVELS)
    # Both are of the same candidates: what is asked about them, and they themselves.
    wanted = {*asked, "candidate", "judgement"} if {"candidate", "judgement"} & set(asked) else set(asked)
    return [level for level in LEVELS if level in wanted]


async def _resolve_tasks(config: SynthConfig, *, every_task_once: bool) -> SynthConfig:
    """Return the configuration with explicit tasks: in the training split and teachable by this teacher."""
    # Place and amounts are checked apart, as the tasks stand between them.
    _check_place(config)
    suite = build_environment(config.environment_name, config.environment)
    try:
        wanted = config.tasks
        tasks = resolve_task_names(suite, wanted, config.environment_name, config.environment)
        config = config.model_copy(update={"tasks": tasks})
        splits = await load_splits(config.environment_name, config.environment, suite)
        config = _select_teachable(restrict_run(config, find_split(splits, TRAIN, config.environment_name)), suite)
        # Ordered by the seed, so that fewer episodes are a beginning of more.
        config = config.model_copy(update={"tasks": order_tasks(suite, wanted, config.tasks, config.seed)})
    finally:
        await suite.close()
    if every_task_once:
        config = config.model_copy(update={"episodes": len(config.tasks)})
    _check_amounts(config)
    # Checked on the very instances that will be met, with the plan that makes them.
    check_plan(splits[TRAIN], splits.values(), list_training_instances(list_units(config)))
    return config


def _check_place(config: SynthConfig) -> None:
    if config.environment.lasting:
        raise UsageError(
            f"{config.environment_name}: what is done there stays done, and exploring acts at random; "
            "synthesise in an embedded environment: see collab env list"
        )


def _check_amounts(config: SynthConfig) -> None:
    if not config.episodes and not config.screens:
        raise ConfigError("neither screens nor episodes are asked for; give --screens or --episodes a number above 0")
    if not config.episodes and not {"basic", "instruction"} & set(config.levels):
        raise ConfigError(f"only episodes teach {' and '.join(config.levels)}, and none is asked for: --episodes N")


def _select_teachable(config: SynthConfig, suite: Suite) -> SynthConfig:
    """Return the configuration with only teachable tasks.

    Raises:
        UsageError: the teacher can teach none, or not one that the user named.
    """
    where, tasks = config.environment_name, config.tasks
    # A model can teach every task; the oracle only those it can solve.
    if config.teacher is not None:
        if isinstance(suite, PicturesOnly):
            raise UsageError(f"{suite.label} shows pictures only, and teachers read text; {suite.pictures_only}")
        return config
    if "oracle" not in suite.capabilities:
        raise UsageError(f"{where} knows no solutions, so it cannot teach by itself; give --teacher an agents file")
    known = {info.name for info in suite.tasks() if info.oracle}
    solved, without = [task for task in tasks if task in known], [task for task in tasks if task not in known]
    # Named tasks without a solution are a mistake; of the environment's own choice they are left out.
    if without and (config.asked_tasks or not solved):
        raise UsageError(
            f"{len(without)} of {format_amount(len(tasks), 'task')} of {where} have no known solution "
            f"({', '.join(without[:3])}{' …' if len(without) > 3 else ''}); choose with --tasks tag:oracle, "
            "or give --teacher an agents file"
        )
    return config.model_copy(update={"tasks": solved, "unsolved": without})
