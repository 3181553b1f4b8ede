"""The method and the checks of algorithms that learn from the present policy's own episodes alone, e.g. GRPO.

Each epoch plays, learns from every turn that has an advantage, and forgets. A turn is learned by the clipped ratio of
PPO (`collab.trainers.rl.losses.ppo_clip`), so its tokens must be those that were sampled, and from the whole
distribution: without them there is no ratio. What would break that is refused before anything is played
(`collab.algorithms.reply_ratios`).

Order within an epoch: all turns, shuffled, in optimizer steps of `rl.batch_rows`; as often as there are `passes`.
"""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field, model_validator

from collab.algorithms.reply_ratios import refuse_without_ratio
from collab.algorithms.turn_algorithm import TurnAlgorithm, refuse_teams
from collab.algorithms.turn_learner import TurnMethod, draw_passes
from collab.envs.base import Suite
from collab.loop.config import TrainingConfig
from collab.loop.ranges import Range


class OnPolicyMethod(TurnMethod):
    """Settings of learning from the present policy's own episodes."""

    NEEDS = ("tokens",)

    passes: int = Field(default=1, ge=1)
    """How often each turn is learned in its epoch."""
    retokenised: Literal["refuse"] = "refuse"
    """A reply whose sampled tokens are unknown has no ratio."""

    @model_validator(mode="after")
    def _clips(self) -> OnPolicyMethod:
        if self.rl.loss != "ppo-clip":
            raise ValueError(f"rl.loss: {self.rl.loss}, but advantages are learned by ppo-clip; leave it out")
        return self

    @property
    def most_barren(self) -> int:
        """Return three: the next epoch plays other episodes, which may do what these did not."""
        return 3

    def draw(self, number: int, turns: int, rng: random.Random) -> list[list[int]]:
        """Return every turn once per pass, in an order of its own."""
        return draw_passes(turns, self.passes, self.rl.batch_rows, rng)

    def count_drawn(self, rolled: Range) -> Range:
        """Return from none, where no episode has an advantage, to every step in every pass."""
        return Range(low=0, high=rolled.high * self.passes)


class OnPolicyAlgorithm(TurnAlgorithm):
    """An algorithm that learns from the present policy's own episodes."""

    toy_graph = "single"

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Refuse teams, and replies that have no ratio; return doubts about the verifier."""
        refuse_teams(self.name, config)
        refuse_without_ratio(self.name, config)
        return super().list_doubts(config, suite)

    def describe(self, config: TrainingConfig) -> str:
        """Return how policies are trained, and how often each turn is learned."""
        method = config.method
        assert isinstance(method, OnPolicyMethod), "the loop gives each algorithm its own method"
        passes = f"; each turn is learned {method.passes} times" if method.passes > 1 else ""
        return f"{super().describe(config)}{passes}"
