"""Ranges, and what models are asked, for estimates before a training begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collab.learn.forecast import Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Between the least and the most."""

    low: float
    high: float

    def times(self, factor: float) -> Range:
        """Both ends."""
        return Range(low=self.low * factor, high=self.high * factor)

    def plus(self, other: Range) -> Range:
        """The ends added up."""
        return Range(low=self.low + other.low, high=self.high + other.high)

    def or_(self, other: Range) -> Range:
        """Around both."""
        return Range(low=min(self.low, other.low), high=max(self.high, other.high))


NOTHING = Range(low=0, high=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is asked of models, about one step or in a whole training."""

    calls: Range
    prompt_tokens: Range
    completion_tokens: Range
    """At most what a reply may have; how much will be said is not known."""
    usd: Range | None
    """None where a price is not known."""

    def of_steps(self, steps: Range) -> Questions:
        """The same of so many steps."""
        return Questions(
            calls=_scaled(self.calls, steps),
            prompt_tokens=_scaled(self.prompt_tokens, steps),
            completion_tokens=_scaled(self.completion_tokens, steps),
            usd=None if self.usd is None else _scaled(self.usd, steps),
        )

    def or_(self, other: Questions) -> Questions:
        """One of both, which is not known; the price is known where both are."""
        return Questions(
            calls=self.calls.or_(other.calls),
            prompt_tokens=self.prompt_tokens.or_(other.prompt_tokens),
            completion_tokens=self.completion_tokens.or_(other.completion_tokens),
            usd=None if self.usd is None or other.usd is None else self.usd.or_(other.usd),
        )


def _scaled(one: Range, steps: Range) -> Range:
    return Range(low=one.low * steps.low, high=one.high * steps.high)


NONE_ASKED = Questions(calls=NOTHING, prompt_tokens=NOTHING, completion_tokens=NOTHING, usd=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEstimate:
    """What a part of the labelling takes, per step of a rollout."""

    name: str
    """Of the part, as `Labels.spent` names it."""
    doing: str
    """What it does, in a word, for the line about time."""
    asked: Questions | None
    """What it asks a model; None where it does not tell."""
    seconds: float | None
    """None where a model would have been asked, and nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What an algorithm makes of the rollouts of a training."""

    noun: str
    """What is learned from, in a word, e.g. "replies"."""
    examples: Range
    """So many of them, in the whole training."""
    replies: Range
    """Items that are trained with them, each as large as those that were tried."""
    slower: float = 1.0
    """How much longer each takes than those that were tried."""
    labels: Sequence[LabelEstimate] = ()
    training: Forecast
    """Of the examples of one step."""
