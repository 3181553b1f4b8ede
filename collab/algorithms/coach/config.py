"""Settings of Android Coach, and its ablations."""

from __future__ import annotations

import random
from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from collab.algorithms.candidates import PretrainedConfig, PretrainedMethod, hash_candidates
from collab.algorithms.judging import CriticConfig, CriticMethod
from collab.algorithms.turn_learner import draw_passes
from collab.errors import UsageError
from collab.loop.config import Ablation
from collab.loop.ranges import Range
from collab.trainers.recipe import TokenValueRecipe


class CoachMethod(PretrainedMethod, CriticMethod):
    """Settings of Android Coach."""

    REMEDY = "more replies to a state (--set k=N), other exploration_temperatures, "

    critic: str = "critic-oracle"
    """Agents file of the judge of executed actions, r^p (`critic-prm` is one that a process reward model plays)."""
    step_weight: float = Field(default=0.2, ge=0)
    """ω_p: weight of the discounted sum of a step's and all later rewards by the critic; 0 asks none."""
    outcome_weight: float = Field(default=1.0, ge=0)
    """ω_o: weight of the verdict on the episode."""
    gamma: float = Field(default=0.95, gt=0, le=1)
    """γ: discount per step of the critic's rewards."""
    outcome_gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of the verdict per step that follows; 1 for none."""
    k: int = Field(default=4, ge=1)
    """Replies that are sampled at each visited state, none of them executed."""
    baseline: Literal["leave-one-out", "none"] = "leave-one-out"
    """What Q of a reply is compared with: the mean Q of the other replies to its state, or nothing."""
    values: TokenValueRecipe = TokenValueRecipe()
    """The model of Q, and how it is fitted in each epoch."""
    rehearsed: int = Field(default=0, ge=0)
    """At least so many of these candidates, whole states drawn anew, are also learned in each epoch's fit, beside the
    returns. Without, Q forgets how replies to one state differ; a number above theirs takes all."""
    warmup_epochs: int = Field(default=0, ge=0)
    """First epochs in which Q alone learns; replies are sampled at none but `truth_states` states."""
    truth_states: int = Field(default=200, ge=0)
    """States per epoch at which replies are also tried on a copy of the environment, where it knows its solutions, to
    tell how right Q is; nothing is learned from that. 0 tries none."""

    @property
    def why_unasked(self) -> str | None:
        """Return why no critic is asked, in words; None if one is."""
        return None if self.step_weight else "step_weight=0 learns from outcomes alone"

    @property
    def most_unjudged(self) -> float:
        """Return the largest share of an epoch's steps that may be unjudged."""
        return 0.1

    def draw(self, number: int, turns: int, rng: random.Random) -> list[list[int]]:
        """Return every state once per pass, in an order of its own, as many at once as fill a batch with k replies.

        Args:
            turns: how many states there are.
        """
        return draw_passes(turns, self.passes, max(1, self.rl.batch_rows // self.k), rng)

    def count_drawn(self, rolled: Range) -> Range:
        """Return from none, where all replies to each state are alike, to k of each step in every pass."""
        return Range(low=0, high=rolled.high * self.k * self.passes)


class CoachConfig(PretrainedConfig, CriticConfig):
    """A training by Android Coach: the team, its verifier, its critic and the candidates of Q."""

    method: SerializeAsAny[CoachMethod]


_STATES_PER_STEP = 16
"""In all presets: batches of 64 replies, four to a state."""
ABLATIONS: dict[str, Ablation] = {
    **{
        f"k-{k}": Ablation(
            description=f"{k} replies to each visited state" if k > 1 else "one reply to each state, rated by its Q",
            # An optimizer step has as many states as in the presets, whatever their replies.
            settings=(f"k={k}", f"rl.batch_rows={_STATES_PER_STEP * k}"),
        )
        for k in (1, 2, 8)
    },
    "no-loo": Ablation(
        description="a reply is rated by its Q, which is compared with that of no other", settings=("baseline=none",)
    ),
    "no-prm": Ablation(
        description="returns are verdicts on episodes alone, without rewards of steps", settings=("step_weight=0",)
    ),
    "critic-scratch": Ablation(
        description="Q begins at 0, and policy and Q learn from the first epoch on",
        settings=("pretraining=null", "rehearsed=0", "warmup_epochs=0"),
    ),
    "critic-online": Ablation(
        description="Q begins at 0, and learns alone for five epochs",
        settings=("pretraining=null", "rehearsed=0", "warmup_epochs=5"),
    ),
}


def hash_pretraining(method: CoachMethod) -> str | None:
    """Return the SHA-256 of the candidates that Q is fitted to at first; None for none.

    Raises:
        UsageError: as `hash_candidates`, and for `rehearsed` without any.
        ConfigError: as `hash_candidates`.
    """
    if method.pretraining is None and method.rehearsed:
        raise UsageError(
            f"rehearsed={method.rehearsed} takes candidates of pretraining, which is null; --set pretraining=DIR "
            "names some, --set rehearsed=0 takes none"
        )
    return hash_candidates(method)


def narrow_config(config: Any) -> CoachConfig:
    """Return a configuration as that of this algorithm."""
    assert isinstance(config, CoachConfig), "the loop gives each algorithm its own configuration"
    return config
