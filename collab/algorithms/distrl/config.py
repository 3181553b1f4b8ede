"""The method of DistRL (A-RIDE): what is remembered and drawn, how it is corrected, and what an advantage holds.

Presets: `paper` as published, `released` as the public code computes, `sound` as it works at the size of a small policy
on a processor. The paper gives no rate, no discount and no size of a batch; where it is silent, `paper` takes what the
public code has, and says so.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from collab.algorithms.turn_learner import OfflinePhase, ReplayMethod
from collab.config import Definition
from collab.loop.config import Ablation
from collab.trainers.recipe import ValueRecipe


class DistRLOffline(OfflinePhase):
    """The warm-up: the first epoch, played by the first policy or recorded before."""

    value_updates: int = Field(default=100, ge=1)
    """Optimizer steps of V."""


class Priorities(Definition):
    """Settings of drawing remembered episodes (DistRL, section 5.3; `estimators.trajectory_priority`)."""

    exponent: float = Field(default=0.5, ge=0)
    """α: P ∝ p^α; at 0 all episodes are drawn alike."""
    error: float = Field(default=1.0, ge=0)
    """w1: weight of the mean |δ|, over the largest so far."""
    ratio: float = Field(default=0.5, ge=0)
    """w2: weight of the mean ρ̄."""
    entropy: float = Field(default=0.3, ge=0)
    """w3: weight of the mean entropy, over the largest so far."""
    entropy_of: Literal["distribution", "reply"] = "distribution"
    """What that entropy of a step is: "distribution" is the policy's over the vocabulary, in the mean of the reply's
    tokens; "reply" is −log π of the whole reply (the paper's)."""
    refreshed: int = Field(default=16, ge=0)
    """Episodes per epoch that are measured again although they were not drawn: those not measured for longest."""

    @property
    def weights(self) -> tuple[float, float, float]:
        """Return w."""
        return self.error, self.ratio, self.entropy


class DistRLMethod(ReplayMethod):
    """Settings of DistRL."""

    NEEDS = ("tokens", "probabilities")

    collection: Literal["async", "sync"] = "async"
    """"async" plays on while the policy learns: an epoch takes the episodes that have arrived, in whatever versions
    (`collab.loop.continuous`). "sync" plays an epoch's episodes with its policy and waits for all of them."""
    max_staleness: int | None = Field(default=None, ge=0)
    """Versions that the policy of an arriving episode may be behind the one that learns; an older one stays on disk and
    is not learned. None learns all. Runs that were recorded before the training have no version of it: all are
    learned."""
    offline: DistRLOffline | None = None
    capacity: int = Field(default=5000, ge=1)
    """Environment steps that are remembered, also in epoch 1; whole episodes are forgotten, the oldest first."""
    values: ValueRecipe = ValueRecipe()
    """V of states, on frozen features of the first policy."""
    value_updates: int = Field(default=5, ge=1)
    """Optimizer steps of V per epoch."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """γ: discount per step."""
    trace: float = Field(default=1.0, ge=0, le=1)
    """λ of Retrace: at 0 a value is corrected by its own step alone."""
    target: Literal["v", "q", "returns", "solved"] = "v"
    """What V is fitted to: corrected values in one of the two forms of `estimators.retrace_values`, returns as they
    were, whatever policy played, or 1 where the return is above 0 and else 0."""
    advantage: Literal["corrected", "paper", "released"] = "corrected"
    """"corrected" is r + pen + γ v_next − V. "paper" is r + G_next + pen + γ V_next − V, which counts the future twice.
    "released" is 1 where r + G − 0.05 + pen + γ V_next − V is above 0, and else 0."""
    advantage_range: tuple[float, float] | None = (-1.0, 1.0)
    """An advantage is cut to these two, the lower first; None leaves it. What a reply that is no action
    loses (`invalid_weight`) comes behind it, so with [0, 1] no other reply is made less likely."""
    invalid_weight: float = Field(default=0.1, ge=0)
    """λ_inv: what the advantage of a reply that is no action loses."""
    repeat_penalty: float = Field(default=0.05, ge=0)
    """What the advantage of an action loses that was just tried on the same screen."""
    repeats_add_up: bool = False
    """Whether the n-th repetition in a row costs n penalties."""
    priorities: Priorities = Priorities()
    retokenised: Literal["refuse"] = "refuse"
    """A reply whose sampled tokens are unknown has no ratio."""

    @field_validator("advantage_range")
    @classmethod
    def _is_range(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not value[0] <= 0 < value[1]:
            raise ValueError("expected two numbers, the first at most 0 and the second above 0, such as [0, 1]")
        return value

    @model_validator(mode="after")
    def _is_corrected(self) -> DistRLMethod:
        if self.rl.loss == "ppo-clip":
            raise ValueError("rl.loss: ppo-clip, but replies of older policies are learned by importance; leave it out")
        return self

    @model_validator(mode="after")
    def _has_steps(self) -> DistRLMethod:
        if self.is_continuous and self.steps is None:
            raise ValueError(
                "steps: null, but with collection async an epoch takes the steps that have arrived; set steps, or "
                "collection=sync"
            )
        return self

    @property
    def is_continuous(self) -> bool:
        """Return whether episodes are played on while the policy learns."""
        return self.collection == "async"

    def get_episodes(self, number: int) -> int | None:
        """Return as many episodes as the steps of an epoch could need, where it takes what has arrived."""
        return self.get_steps(number) if self.is_continuous else super().get_episodes(number)

    def get_capacity(self, number: int) -> int:
        """Return the capacity, in all epochs."""
        return self.capacity

    def get_value_updates(self, number: int) -> int:
        """Return the optimizer steps of V in an epoch."""
        return self.value_updates if number > 1 or self.offline is None else self.offline.value_updates


ABLATIONS = {
    "sync": Ablation(description="each epoch waits for its own episodes", settings=("collection=sync",)),
    "no-dper": Ablation(description="episodes are drawn alike", settings=("priorities.exponent=0",)),
    "no-retrace": Ablation(
        description="V is fitted to returns, uncorrected",
        settings=("target=returns",),
        leaves_out=("target=v", "target=q"),
    ),
    "no-entropy": Ablation(description="no reward for the entropy of the policy", settings=("rl.entropy_weight=0",)),
    "no-rho": Ablation(description="no ratio in the loss", settings=("rl.loss=likelihood",)),
    "no-penalty": Ablation(
        description="nothing is subtracted for repetitions and invalid replies",
        settings=("repeat_penalty=0", "invalid_weight=0"),
    ),
}
"""By name, what `--ablation` changes."""
