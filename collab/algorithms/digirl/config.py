"""The method of DigiRL: which episodes and steps are learned, and how values of states and tasks are fitted.

    method = override(load_method(algorithm, "sound"), ["curriculum.top=0.2", "values.loss=mse"])

Presets: `paper` as published, `released` as the public code computes, `sound` as it works at the size of a small policy
on a processor. Fields that a preset leaves open stand in its file with the reason for their value.

Source: DigiRL (Bai et al. 2024), §2 and tables 5 and 6. Ablations are those of figure 6 and appendix J.1.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from collab.algorithms.state_features import EncoderChoice
from collab.algorithms.turn_learner import OfflinePhase, ReplayMethod
from collab.config import Definition, RunConfig
from collab.loop.config import Ablation
from collab.trainers.recipe import ValueRecipe
from collab.trainers.rl.estimators import RELEASED_MARGIN

Updates = Annotated[int, Field(ge=1)]


class ValueUpdates(Definition):
    """Optimizer steps of the value models in an epoch."""

    step: Updates = 5
    """Steps of V of states."""
    instruct: Updates = 5
    """Steps of V of tasks."""


class DigiRLValues(ValueRecipe):
    """Value models, and the features that they read."""

    encoder: EncoderChoice = EncoderChoice()

    @property
    def recipe(self) -> ValueRecipe:
        """The networks alone."""
        return ValueRecipe(**self.model_dump(exclude={"encoder"}))


class DigiRLOffline(OfflinePhase):
    """The offline phase: all that the first policy played is learned from at once, successes alone."""

    values: ValueUpdates = ValueUpdates(step=100, instruct=100)


class StepAdvantage(Definition):
    """Advantage of a step, and which steps are learned."""

    form: Literal["published", "printed", "released", "monte-carlo"] = "published"
    """See `collab.trainers.rl.estimators.step_advantage`; "monte-carlo" is the outcome less V of the state."""
    decay: float = Field(default=0.5, ge=0, le=1)
    """λ (of "released" γ): how much of the outcome a step counts per step before the end."""
    threshold: Literal["limit"] | Annotated[float, Field(ge=0, lt=1)] = "limit"
    """Steps above it are learned; "limit" is one over the task's step limit, 1/H."""

    @model_validator(mode="after")
    def _subtracts_once(self) -> StepAdvantage:
        if self.form == "released" and self.threshold == "limit":
            raise ValueError(
                f"threshold: limit, but the form released subtracts {RELEASED_MARGIN:g} from every advantage in place "
                "of 1/H; set advantage.threshold to a number, e.g. 0"
            )
        return self


class InstructCurriculum(Definition):
    """Which episodes are learned: those whose outcome surprises V of their task most."""

    top: float = Field(default=0.1, gt=0, le=1)
    """Share p of the remembered episodes."""
    least: int = Field(default=16, ge=1)
    """Episodes at least, where the share gives fewer."""
    positive: bool = True
    """Whether an episode that went no better than expected is left out in any case."""
    form: Literal["top", "quantile"] = "top"
    """See `collab.trainers.rl.estimators.keep_episodes`."""
    pool: Literal["buffer", "all"] = "buffer"
    """Episodes to choose from: those in the replay buffer, or all that were ever judged. Values are fitted on the
    buffer."""
    fits_first: bool = True
    """Whether V of tasks is fitted on the newest episodes before it chooses, or after."""


class Reweighting(Definition):
    """Advantage-weighted regression in place of the hard filter on steps: all steps are learned, by exp(A/τ)."""

    temperature: float = Field(default=1.0, gt=0)
    """τ."""
    most: float = Field(default=20.0, gt=0)
    """Largest weight."""


class DigiRLMethod(ReplayMethod):
    """Settings of DigiRL."""

    offline: DigiRLOffline | None = None
    values: DigiRLValues = DigiRLValues()
    value_updates: ValueUpdates = ValueUpdates()
    """Per online epoch."""
    advantage: StepAdvantage | None = StepAdvantage()
    """None learns every step of a chosen episode."""
    curriculum: InstructCurriculum | None = InstructCurriculum()
    """None learns from every remembered episode."""
    reweighting: Reweighting | None = None
    """None filters steps by the threshold."""
    horizon: float = Field(default=1.0, gt=0)
    """Factor on each task's own step limit in rollouts; evaluations keep it."""

    @model_validator(mode="after")
    def _has_advantage(self) -> DigiRLMethod:
        if self.reweighting is not None and self.advantage is None:
            raise ValueError(
                "reweighting: weighs steps by their advantage, but advantage is null; leave one of both out"
            )
        return self

    @property
    def is_everything_learned(self) -> bool:
        """True if episodes beyond the capacity may be chosen."""
        return self.curriculum is not None and self.curriculum.pool == "all"

    def get_value_updates(self, number: int) -> ValueUpdates:
        """Return how often an epoch updates both value models."""
        return self.value_updates if number > 1 or self.offline is None else self.offline.values

    def explore(self, run: RunConfig) -> RunConfig:
        """Return a run played as a rollout, with the rollouts' step limits."""
        run = super().explore(run)
        if self.horizon == 1:
            return run
        limits = run.environment.limits.model_copy(update={"horizon": self.horizon})
        return run.model_copy(update={"environment": run.environment.model_copy(update={"limits": limits})})


ABLATIONS = {
    "mse-values": Ablation(description="values by regression on the outcome", settings=("values.loss=mse",)),
    "no-step-advantage": Ablation(
        description="every step of a chosen episode is learned", settings=("advantage=null",)
    ),
    "no-curriculum": Ablation(description="no choice of episodes by their task", settings=("curriculum=null",)),
    "vanilla-awr": Ablation(
        description="advantage-weighted regression on the outcome less V of the state, without curriculum",
        settings=("curriculum=null", "advantage.form=monte-carlo", "reweighting={}"),
    ),
    "awr-exp": Ablation(description="all steps of chosen episodes, weighted by exp(A/τ)", settings=("reweighting={}",)),
    "offline-only": Ablation(description="the offline phase alone", settings=("epochs=1",)),
    "horizon-half": Ablation(description="half of each task's step limit in rollouts", settings=("horizon=0.5",)),
    "horizon-double": Ablation(description="twice each task's step limit in rollouts", settings=("horizon=2",)),
}
"""By name, what `--ablation` changes."""
