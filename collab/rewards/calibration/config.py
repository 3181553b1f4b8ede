"""From names to the configuration of a calibration; every mistake is found here or never.

What a calibration works with: the known steps, and the critic with the model behind it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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
from collab.data.splits import TRAIN, find_split, restrict_run
from collab.envs.base import Suite
from collab.errors import UsageError
from collab.library import Library
from collab.rewards.base import Critic
from collab.rewards.calibration.cases import KnownCase, build_calibration_set, require_known
from collab.rewards.registry import CriticDefinition, CriticResources, load_critic, read_critic_texts
from collab.rollout.build import build_environment, load_splits, order_tasks, resolve_task_names
from collab.seeds import derive


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
class CalibrationRequest:
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


async def configure(library: Library, wish: CalibrationRequest) -> CalibrationConfig:
    """Put a calibration together from names; nothing is asked, opened or written.

    Raises:
        UsageError: a name, a number or a combination does not fit; the environment has no steps of known worth, or no
            such task is trained on.
    """
    environment = load_environment(library, wish.env)
    critic = load_critic(library, wish.critic)
    # Definitions go in whole: files may change between start and resume.
    data = {
        "environment_name": _shorten(wish.env),
        "environment": environment,
        "critic_name": _shorten(wish.critic),
        "critic": critic.model_dump(mode="json"),
        "tasks": list(wish.tasks) or environment.own_tasks,
        "cases": wish.cases,
        "seed": wish.seed,
        "budget": wish.budget.model_dump(),
    }
    asked = validate(CalibrationConfig, data, "collab critic calibrate")
    config = override(asked, wish.settings)
    # What an option says is not settable besides: two sources for one value would contradict each other.
    for name, option in _BY_OPTION.items():
        if getattr(asked, name) != getattr(config, name):
            raise UsageError(f"--set {name}: cannot be set; " + (f"say it with {option}" if option else "it follows"))
    # Texts are read last, for the settings may name another critic's prompts.
    config = config.model_copy(update={"texts": read_critic_texts(library, config.critic)})
    return await _resolve_tasks(config)


async def _resolve_tasks(config: CalibrationConfig) -> CalibrationConfig:
    """With tasks written out: those of the training split whose solution is known."""
    suite = build_calibration_suite(config)
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
        splits = await load_splits(config.environment_name, config.environment)
        # Calibrating on held-out tasks would choose the critic by what is measured later.
        config = restrict_run(config.model_copy(update={"tasks": known}), find_split(splits, TRAIN))
        return config.model_copy(update={"tasks": order_tasks(suite, wanted, config.tasks, config.seed)})
    finally:
        await suite.close()


def build_calibration_suite(config: CalibrationConfig) -> Suite:
    """The environments of a calibration; see `collab.rollout.build.build` for the errors."""
    return build_environment(config.environment_name, config.environment)


def _shorten(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix in (".yaml", ".yml") else name


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResources:
    """A suite and a critic's bench, built and open."""

    config: CalibrationConfig
    suite: Suite
    bench: CriticResources

    def build_critic(self, seed: int, attempt: int) -> Critic:
        """The critic of a pass, see `collab.rewards.calibration.metrics.CalibrationPass`."""
        limit = self.config.environment.limits.call_s
        return self.bench.build_critic(seed=self.derive_seed(seed), attempt=attempt, call_s=limit)

    def derive_seed(self, number: int) -> int:
        """The critic's own seed in a pass."""
        return derive(self.config.seed, "calibrated critic", number)

    async def build_known(self) -> list[KnownCase]:
        """The known steps, always the same; errors as `build_calibration_set` raises them."""
        config = self.config
        return await build_calibration_set(
            self.suite, config.tasks, seed=config.seed, most=config.steps, wanted=config.cases
        )

    async def describe_model(self) -> dict[str, Any]:
        """Policy and capabilities of the model that is asked; empty where none is.

        Raises:
            UsageError: a limit was set on something that nobody counts.
            ModelFailure: its server does not answer.
        """
        name, budget, model = self.bench.name, self.config.budget, self.bench.model
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
    """Build what a calibration needs, and give it back in the end; nobody is asked yet.

    Args:
        asks: whether the critic's model ever will be, see `CriticResources.of`.

    Raises:
        UsageError: a part cannot be built.
    """
    bench = CriticResources.of(config.critic_name, config.critic, config.texts, asks=asks)
    try:
        bench.build_critic()  # what does not fit is found before anything is written
        suite = build_calibration_suite(config)
        try:
            yield CalibrationResources(config=config, suite=suite, bench=bench)
        finally:
            await suite.close()
    finally:
        await bench.close()


def _require_minutes_only(name: str, budget: Budget) -> None:
    if budget.usd is not None or budget.tokens is not None:
        raise UsageError(
            f"--budget: agents/{name} asks no model and costs neither money nor tokens; limit minutes, or leave it out"
        )
