"""The configuration of a calibration, from names to open resources; every mistake is found here."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import Field

from collab.config import (
    Budget,
    Definition,
    EnvironmentDefinition,
    SplitChoice,
    load_environment,
    override,
    shorten_name,
    validate,
)
from collab.data.splits import TRAIN, find_split, restrict_run
from collab.envs.base import Suite
from collab.errors import UsageError
from collab.library import Library
from collab.rewards.base import Critic
from collab.rewards.calibration.cases import KnownCase, build_calibration_set, require_known
from collab.rewards.registry import CriticDefinition, CriticResources, load_critic, read_critic_texts
from collab.rollout.build import build_environment
from collab.rollout.plan import load_splits, order_tasks, resolve_task_names
from collab.seeds import derive


class CalibrationConfig(Definition):
    """Everything that decides the questions of a calibration."""

    environment_name: str
    """Name of the environment's file."""
    environment: EnvironmentDefinition
    critic_name: str
    """Name of the critic's agents file."""
    critic: CriticDefinition
    texts: dict[str, str] = Field(default_factory=dict)
    """Template → text of its prompt; empty where no model is asked."""
    tasks: list[str]
    """Resolved task names, in the order in which they are used."""
    cases: int = Field(default=100, ge=1)
    """Known steps."""
    steps: int = Field(default=8, ge=1)
    """The most steps of one episode, from its beginning."""
    permutations: int = Field(default=3, ge=0)
    """Passes under other names."""
    bins: int = Field(default=10, ge=1)
    """Columns of the reliability diagram."""
    seed: int = 0
    """Seed of the known steps and their order."""
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
"""Fields that `--set` cannot change → the option for them; empty where they follow from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    """Options of a new calibration, by names."""

    env: str
    critic: str
    """An agents file."""
    cases: int = 100
    seed: int = 0
    tasks: Sequence[str] = ()
    """Empty for the tasks of the environment's file."""
    budget: Budget = field(default_factory=Budget)
    settings: Sequence[str] = ()


async def configure(library: Library, request: CalibrationRequest) -> CalibrationConfig:
    """Build the configuration of a calibration from names; no call is made and nothing is written.

    Raises:
        UsageError: a name, a number or a combination does not fit; the environment has no steps of known worth, or no
            such task is trained on.
    """
    environment = load_environment(library, request.env)
    critic = load_critic(library, request.critic)
    # Definitions go in whole: files may change between start and resume.
    data = {
        "environment_name": shorten_name(request.env),
        "environment": environment,
        "critic_name": shorten_name(request.critic),
        "critic": critic,
        "tasks": list(request.tasks) or environment.own_tasks,
        "cases": request.cases,
        "seed": request.seed,
        "budget": request.budget.model_dump(),
    }
    asked = validate(CalibrationConfig, data, "collab critic calibrate")
    config = override(asked, request.settings)
    # Values of an option cannot be set otherwise: two sources for one value could contradict each other.
    for name, option in _BY_OPTION.items():
        if getattr(asked, name) != getattr(config, name):
            raise UsageError(f"--set {name}: cannot be set; " + (f"say it with {option}" if option else "it follows"))
    # Texts are read last, as the settings may name another critic's prompts.
    config = config.model_copy(update={"texts": read_critic_texts(library, config.critic)})
    return await _resolve_tasks(config)


async def _resolve_tasks(config: CalibrationConfig) -> CalibrationConfig:
    """Write out the tasks: those of the training split whose solution is known."""
    suite = build_environment(config.environment_name, config.environment)
    # The suite is closed on every way out: it may hold a browser or a device.
    try:
        require_known(suite)
        wanted = config.tasks
        tasks = resolve_task_names(suite, wanted, config.environment_name, config.environment)
        solved = {info.name for info in suite.tasks() if info.oracle}
        known = [task for task in tasks if task in solved]
        if not known:
            raise UsageError(
                f"none of the {len(tasks)} chosen tasks of {config.environment_name} has a known solution; "
                "choose with --tasks tag:oracle"
            )
        splits = await load_splits(config.environment_name, config.environment, suite)
        # Calibrating on held-out tasks would choose the critic by what is measured later.
        config = restrict_run(
            config.model_copy(update={"tasks": known}), find_split(splits, TRAIN, config.environment_name)
        )
        return config.model_copy(update={"tasks": order_tasks(suite, wanted, config.tasks, config.seed)})
    finally:
        await suite.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResources:
    """A suite and a critic's resources, built and open."""

    config: CalibrationConfig
    suite: Suite
    critic: CriticResources

    def build_critic(self, seed: int, attempt: int) -> Critic:
        """Build the critic of a pass, see `collab.rewards.calibration.metrics.CalibrationPass`."""
        limit = self.config.environment.limits.call_s
        return self.critic.build_critic(seed=self.derive_seed(seed), attempt=attempt, call_s=limit)

    def derive_seed(self, number: int) -> int:
        """Derive the critic's own seed in a pass."""
        return derive(self.config.seed, "calibrated critic", number)

    async def build_known(self) -> list[KnownCase]:
        """Build the known steps, always the same; errors as from `build_calibration_set`."""
        config = self.config
        return await build_calibration_set(
            self.suite, config.tasks, seed=config.seed, most=config.steps, wanted=config.cases
        )

    async def describe_model(self) -> dict[str, Any]:
        """Return policy and capabilities of the critic's model; empty where it asks none.

        Raises:
            UsageError: a limit is on something that is not counted.
            ModelFailure: its server does not answer.
        """
        name, budget, model = self.critic.name, self.config.budget, self.critic.model
        # Without a model nothing can be counted but time.
        if model is None:
            _require_minutes_only(name, budget)
            return {}
        able = await model.probe()
        # A limit on what the model does not report would never stop anything.
        if budget.usd is not None and not able.knows_price:
            raise UsageError(
                f"--budget usd: agents/{name} does not say what it costs; set its prices, or limit tokens or minutes"
            )
        if budget.tokens is not None and not able.counts_tokens:
            raise UsageError(f"--budget tokens: agents/{name} does not count tokens; limit minutes instead")
        return {"policy": asdict(model.policy), "capabilities": asdict(able)}


@contextlib.asynccontextmanager
async def open_resources(config: CalibrationConfig, *, asks: bool = True) -> AsyncIterator[CalibrationResources]:
    """Build a calibration's suite and critic, and close them at the end of the block; no call is made yet.

    Args:
        asks: whether the critic's model will ever be asked, see `CriticResources.of`.

    Raises:
        UsageError: a part cannot be built.
    """
    resources = CriticResources.of(config.critic_name, config.critic, config.texts, asks=asks)
    try:
        resources.build_critic()  # finds mistakes before anything is written
        suite = build_environment(config.environment_name, config.environment)
        try:
            yield CalibrationResources(config=config, suite=suite, critic=resources)
        finally:
            await suite.close()
    finally:
        await resources.close()


def _require_minutes_only(name: str, budget: Budget) -> None:
    if budget.usd is not None or budget.tokens is not None:
        raise UsageError(
            f"--budget: agents/{name} asks no model and costs neither money nor tokens; limit minutes, or leave it out"
        )
