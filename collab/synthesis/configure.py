"""From names to the configuration of a synthesis; every mistake is found here or never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collab.config import AgentDefinition, Budget, load_environment, override, validate
from collab.envs.base import PicturesOnly, Suite
from collab.errors import ConfigError, MissingExtra, UnknownName, UsageError
from collab.library import Library
from collab.prompts.render import read_templates
from collab.resolve import build_environment, order_tasks, splits_in, task_names
from collab.splits.choose import check_plan, within
from collab.splits.split import TRAIN, named
from collab.synth.llm.prompts import FOLDER, read_teacher_prompts
from collab.synth.plan import ORACLE, SynthConfig, instances_of, units_of
from collab.synth.rows import LEVELS
from collab.wording import amount

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

_OF_ORACLE = frozenset({"mistakes", "seats", "talk", "renamed", "two_steps"})
_OF_MODELS = frozenset({"instructions", "sampling"})
"""Settings that one kind of teacher takes, and the other would pass over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for, in names."""

    env: str
    teacher: str = ORACLE
    """"oracle", or an agents file."""
    levels: Sequence[str] = LEVELS
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


async def configure(library: Library, wish: Wish) -> SynthConfig:
    """Put a synthesis together from names; nothing is asked, opened or written.

    Raises:
        UsageError: a name, a number or a combination does not fit, or none of the tasks is trained on.
        OverlapError: a unit would meet an instance that is kept for evaluation.
    """
    MissingExtra.unless("pyarrow", extra="parquet", purpose="a synthesis")
    environment = load_environment(library, wish.env)
    if wish.backend is not None:
        if wish.backend not in environment.backends:
            hint = "see them with: collab env list"
            raise UnknownName.of(f"backend of {wish.env}", wish.backend, environment.backends, hint)
        environment = environment.model_copy(update={"backend": wish.backend})
    asked_of_oracle = wish.teacher == ORACLE
    data = {
        "environment_name": _short(wish.env),
        "environment": environment,
        "levels": _levels(wish.levels),
        "teacher_name": _short(wish.teacher),
        "teacher": None if asked_of_oracle else library.load("agents", wish.teacher, AgentDefinition).model_dump(),
        "teacher_prompts": {} if asked_of_oracle else read_teacher_prompts(library.path("prompts", FOLDER)),
        "prompt_name": wish.prompt,
        "prompt": read_templates(library.path("prompts", wish.prompt)),
        "tasks": list(wish.tasks) or environment.own_tasks,
        "asked_tasks": list(wish.tasks),
        "settings": list(wish.settings),
        "episodes": 1 if wish.episodes is None else wish.episodes,
        "screens": wish.screens,
        "seed": wish.seed,
        "concurrency": wish.concurrency,
        "budget": wish.budget.model_dump(),
    }
    asked = validate(SynthConfig, data, "collab synth")
    config = override(asked, wish.settings)
    _check_settings(asked, config)
    return await _resolved(config, every_task_once=wish.episodes is None)


def _check_settings(asked: SynthConfig, config: SynthConfig) -> None:
    """Refuse a setting that would be overwritten, tell something untrue of the rows, or let in what is kept."""
    if asked.environment.unseen != config.environment.unseen or config.split is not None:
        raise UsageError(
            "--set: what is kept for evaluation is not changed for a synthesis; give --env an environment of your own"
        )
    for name, option in _BY_OPTION.items():
        if getattr(asked, name) != getattr(config, name):
            raise UsageError(f"--set {name}: cannot be set; " + (f"say it with {option}" if option else "it follows"))
    said = {setting.partition("=")[0].partition(".")[0] for setting in config.settings}
    passed_over = sorted(said & (_OF_MODELS if config.teacher is None else _OF_ORACLE))
    if passed_over:
        whose = "a model" if config.teacher is None else "the oracle"
        raise UsageError(
            f"--set {', '.join(passed_over)}: is for {whose} as a teacher, and means nothing to {config.teacher_name}; "
            "leave it out"
        )


def _levels(asked: Sequence[str]) -> list[str]:
    unknown = [level for level in asked if level not in LEVELS]
    if unknown:
        raise UnknownName.of("level", unknown[0], LEVELS)
    return [level for level in LEVELS if level in asked]


async def _resolved(config: SynthConfig, *, every_task_once: bool) -> SynthConfig:
    """With tasks written out, within the training split, and able to be taught by this teacher."""
    _check_place(config)
    suite = suite_of(config)
    try:
        wanted = config.tasks
        tasks = task_names(suite, wanted, config.environment_name, config.environment)
        config = config.model_copy(update={"tasks": tasks})
        splits = await splits_in(config.environment_name, config.environment)
        config = _teachable(within(config, named(splits, TRAIN)), suite)
        config = config.model_copy(update={"tasks": order_tasks(suite, wanted, config.tasks, config.seed)})
    finally:
        await suite.close()
    if every_task_once:
        config = config.model_copy(update={"episodes": len(config.tasks)})
    _check_amounts(config)
    check_plan(splits[TRAIN], splits.values(), instances_of(units_of(config)))
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


def _teachable(config: SynthConfig, suite: Suite) -> SynthConfig:
    """With the tasks that the teacher can teach: of the environment's own choice the others are left out.

    Raises:
        UsageError: it can teach none, or not one that was asked for.
    """
    where, tasks = config.environment_name, config.tasks
    if config.teacher is not None:
        if isinstance(suite, PicturesOnly):
            raise UsageError(f"{suite.label} shows pictures only, and teachers read text; {suite.pictures_only}")
        return config
    if "oracle" not in suite.capabilities:
        raise UsageError(f"{where} knows no solutions, so it cannot teach by itself; give --teacher an agents file")
    known = {info.name for info in suite.tasks() if info.oracle}
    solved, without = [task for task in tasks if task in known], [task for task in tasks if task not in known]
    if without and (config.asked_tasks or not solved):
        raise UsageError(
            f"{len(without)} of {amount(len(tasks), 'task')} of {where} have no known solution "
            f"({', '.join(without[:3])}{' …' if len(without) > 3 else ''}); choose with --tasks tag:oracle, "
            "or give --teacher an agents file"
        )
    return config.model_copy(update={"tasks": solved, "unsolved": without})


def suite_of(config: SynthConfig) -> Suite:
    """The environments of a synthesis; see `collab.resolve.build` for the errors."""
    return build_environment(config.environment_name, config.environment)


def _short(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix in (".yaml", ".yml") else name
