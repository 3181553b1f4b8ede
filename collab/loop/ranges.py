"""The numbers of `--plan`: ranges with a low and a high end, and an algorithm's estimate of its training.

    steps = Range(low=2, high=6)
    step.scale_to_steps(steps).calls      # of `step: Questions`, the questions about one step

`collab.loop.estimate` computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collab.trainers.estimate import Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A low and a high number."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Multiply both ends."""
        return Range(low=self.low * factor, high=self.high * factor)

    def scale(self, factor: Range) -> Range:
        """Multiply low by low, and high by high."""
        return Range(low=self.low * factor.low, high=self.high * factor.high)

    def plus(self, other: Range) -> Range:
        """Add the ends of both."""
        return Range(low=self.low + other.low, high=self.high + other.high)

    def union(self, other: Range) -> Range:
        """Return the smallest range around both."""
        return Range(low=min(self.low, other.low), high=max(self.high, other.high))


ZERO = Range(low=0, high=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Questions to models, about one step or in a whole training."""

    calls: Range
    prompt_tokens: Range
    completion_tokens: Range
    """At most the limit of each reply; its actual length is unknown."""
    usd: Range | None
    """None if a price is unknown."""

    def scale_to_steps(self, steps: Range) -> Questions:
        """Multiply by a range of steps."""
        return Questions(
            calls=self.calls.scale(steps),
            prompt_tokens=self.prompt_tokens.scale(steps),
            completion_tokens=self.completion_tokens.scale(steps),
            usd=None if self.usd is None else self.usd.scale(steps),
        )

    def union(self, other: Questions) -> Questions:
        """Return the range if either of both is asked; the price is known only if both are."""
        return Questions(
            calls=self.calls.union(other.calls),
            prompt_tokens=self.prompt_tokens.union(other.prompt_tokens),
            completion_tokens=self.completion_tokens.union(other.completion_tokens),
            usd=None if self.usd is None or other.usd is None else self.usd.union(other.usd),
        )


NONE_ASKED = Questions(calls=ZERO, prompt_tokens=ZERO, completion_tokens=ZERO, usd=ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEstimate:
    """Estimate of a part of what comes before training, per step of a rollout."""

    name: str
    """Name of the part, as `Labels.spent` names it."""
    doing: str
    """Its activity in a word, for the line about time."""
    asked: Questions | None
    """Its questions to a model; None if unknown."""
    seconds: float | None
    """None if a model would have been asked, and was not."""
    fixed_s: float = 0.0
    """Seconds in the whole training that do not depend on its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An algorithm's estimate for the rollouts of a training."""

    noun: str
    """The algorithm's word for its examples, e.g. "replies"."""
    examples: Range
    """Number of examples in the whole training."""
    replies: Range
    """Number of training rows that the examples become, each assumed to be as large as those of the tried step."""
    slower: float = 1.0
    """Time per row, relative to those of the tried step."""
    fixed: bool = False
    """Whether there are as many rows whatever is played; else they grow with the steps."""
    labels: Sequence[LabelEstimate] = ()
    training: Forecast
    """Forecast of training on the examples of one step."""
