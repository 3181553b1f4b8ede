"""From names to the configuration of a calibration; every mistake is found here or never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from collab.config import (
    Budget,
    Definition,
    EnvironmentDefinition,
    SplitChoice,
    load_environment,
    override,
    validate,
)
from collab.credit.known import require_known
from collab.critics import CriticDefinition, critic_texts, load_critic
from collab.envs.base import Suite
from collab.errors import UsageError
from collab.library import Library
from collab.resolve import build_environment, order_tasks, splits_in, task_names
from collab.splits.choose import within
from collab.splits.split import TRAIN, named


class CalibrationConfig(Definition):
    """Everything that decides what a critic is asked."""

    environment_name: str
    """File that it came from."""
    environment: EnvironmentDefinition
    critic_name: str
    """Of its agents file."""
    critic: CriticDefinition
    texts: dict[str, str] = Field(default_factory=dict)
    """Template → text of its prompt; empty where nothing is asked."""
    tasks: list[str]
    """Task names, resolved, in the order in which they have their turn."""
    cases: int = Field(default=100, ge=1)
    """Known steps."""
    steps: int = Field(default=8, ge=1)
    """Of one episode at most, from its beginning."""
    permutations: int = Field(default=3, ge=0)
    """Passes under other names."""
    bins: int = Field(default=10, ge=1)
    """Columns of the reliability picture."""
    seed: int = 0
    """Draws the known steps and their order."""
    split: SplitChoice | None = None
    concurrency: int = Field(default=4, ge=1)
    """Steps that are judged at once."""
    budget: Budget = Budget()


_BY_OPTION = {
    "environment_name": "--env",
    "critic_name": "--critic",
    "texts": "a prompt of your own in --library",
    "split": "",
}
"""Fields that `--set` does not reach → what says them; empty where they follow from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for, in names."""

    env: str
    critic: str
    """An agents file."""
    cases: int = 100
    seed: int = 0
    tasks: Sequence[str] = ()
    """Empty for what the environment's file says."""
    budget: Budget = field(default_factory=Budget)
    settings: Sequence[str] = ()


async def configure(library: Library, wish: Wish) -> CalibrationConfig:
    """Put a calibration together from names; nothing is asked, opened or written.

    Raises:
        UsageError: a name, a number or a combination does not fit; the environment has no steps of known worth, or no
            such task is trained on.
    """
    environment = load_environment(library, wish.env)
    critic = load_critic(library, wish.critic)
    data = {
        "environment_name": _short(wish.env),
        "environment": environment,
        "critic_name": _short(wish.critic),
        "critic": critic.model_dump(mode="json"),
        "tasks": list(wish.tasks) or environment.own_tasks,
        "cases": wish.cases,
        "seed": wish.seed,
        "budget": wish.budget.model_dump(),
    }
    asked = validate(CalibrationConfig, data, "collab critic calibrate")
    config = override(asked, wish.settings)
    for name, option in _BY_OPTION.items():
        if getattr(asked, name) != getattr(config, name):
            raise UsageError(f"--set {name}: cannot be set; " + (f"say it with {option}" if option else "it follows"))
    config = config.model_copy(update={"texts": critic_texts(library, config.critic)})
    return await _resolved(config)


async def _resolved(config: CalibrationConfig) -> CalibrationConfig:
    """With tasks written out: those of the training split whose solution is known."""
    suite = suite_of(config)
    try:
        require_known(suite)
        wanted = config.tasks
        tasks = task_names(suite, wanted, config.environment_name, config.environment)
        solved = {info.name for info in suite.tasks() if info.oracle}
        known = [task for task in tasks if task in solved]
        if not known:
            raise UsageError(
                f"none of the {len(tasks)} chosen tasks of {config.environment_name} has a known solution; "
                "choose with --tasks tag:oracle"
            )
        splits = await splits_in(config.environment_name, config.environment)
        config = within(config.model_copy(update={"tasks": known}), named(splits, TRAIN))
        return config.model_copy(update={"tasks": order_tasks(suite, wanted, config.tasks, config.seed)})
    finally:
        await suite.close()


def suite_of(config: CalibrationConfig) -> Suite:
    """The environments of a calibration; see `collab.resolve.build` for the errors."""
    return build_environment(config.environment_name, config.environment)


def _short(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix in (".yaml", ".yml") else name
