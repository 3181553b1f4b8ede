"""What a calibration works with: the known steps, and the critic with the model behind it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any

from collab.calibrating.configure import CalibrationConfig, suite_of
from collab.config import Budget
from collab.credit.critic import Critic
from collab.credit.known import KnownCase, known_cases
from collab.critics import Bench
from collab.envs.base import Suite
from collab.errors import UsageError
from collab.seeds import derive


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """A suite and a critic's bench, built and open."""

    config: CalibrationConfig
    suite: Suite
    bench: Bench

    def critic(self, seed: int, attempt: int) -> Critic:
        """The critic of a pass, see `collab.credit.calibration.Pass`."""
        limit = self.config.environment.limits.call_s
        return self.bench.critic(seed=self.seed(seed), attempt=attempt, call_s=limit)

    def seed(self, number: int) -> int:
        """The critic's own seed in a pass."""
        return derive(self.config.seed, "calibrated critic", number)

    async def known(self) -> list[KnownCase]:
        """The known steps, always the same; see `collab.credit.known.known_cases` for the errors."""
        config = self.config
        return await known_cases(self.suite, config.tasks, seed=config.seed, most=config.steps, wanted=config.cases)

    async def about(self) -> dict[str, Any]:
        """Policy and capabilities of the model that is asked; empty where none is.

        Raises:
            UsageError: a limit was set on something that nobody counts.
            ModelFailure: its server does not answer.
        """
        name, budget, model = self.bench.name, self.config.budget, self.bench.model
        if model is None:
            _require_minutes_only(name, budget)
            return {}
        able = await model.probe()
        if budget.usd is not None and not able.knows_price:
            raise UsageError(
                f"--budget usd: agents/{name} does not say what it costs; set its prices, or limit tokens or minutes"
            )
        if budget.tokens is not None and not able.counts_tokens:
            raise UsageError(f"--budget tokens: agents/{name} does not count tokens; limit minutes instead")
        return {"policy": asdict(model.policy), "capabilities": asdict(able)}


@contextlib.asynccontextmanager
async def opened(config: CalibrationConfig, *, asks: bool = True) -> AsyncIterator[Workplace]:
    """Build what a calibration needs, and give it back in the end; nobody is asked yet.

    Args:
        asks: whether the critic's model ever will be, see `Bench.of`.

    Raises:
        UsageError: a part cannot be built.
    """
    bench = Bench.of(config.critic_name, config.critic, config.texts, asks=asks)
    try:
        bench.critic()  # what does not fit is found before anything is written
        suite = suite_of(config)
        try:
            yield Workplace(config=config, suite=suite, bench=bench)
        finally:
            await suite.close()
    finally:
        await bench.close()


def _require_minutes_only(name: str, budget: Budget) -> None:
    if budget.usd is not None or budget.tokens is not None:
        raise UsageError(
            f"--budget: agents/{name} asks no model and costs neither money nor tokens; limit minutes, or leave it out"
        )
