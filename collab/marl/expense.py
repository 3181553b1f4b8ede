"""What critic and adversary will be asked about a step, and what that costs, without asking anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collab.calibrating.estimate import Asking
from collab.config import Part
from collab.credit.case import Case
from collab.critics import MODEL, Bench, unasked
from collab.marl.config import MarlConfig
from collab.models.base import Model
from collab.preferences.adversaries import AdversaryChoice
from collab.preferences.parties import CriticChoice
from collab.resolve import build
from collab.types import Prompt

_OWN = frozenset({"local"})
"""Engines that compute on this machine and send no bill."""
_MILLION = 1e6


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


NONE_ASKED = Questions(calls=NOTHING, prompt_tokens=NOTHING, completion_tokens=NOTHING, usd=NOTHING)


def prices(engine: Part) -> tuple[float, float] | None:
    """USD per million tokens of prompts and of replies; None where nothing tells them."""
    if engine.kind in _OWN:
        return 0.0, 0.0
    said = [engine.options.get(f"usd_per_million_{name}") for name in ("prompt", "completion")]
    return None if None in said else (float(str(said[0])), float(str(said[1])))


def cost(prompt: Range, completion: Range, per_million: tuple[float, float] | None) -> Range | None:
    """In USD."""
    if per_million is None:
        return None
    return prompt.times(per_million[0] / _MILLION).plus(completion.times(per_million[1] / _MILLION))


async def critic_questions(choice: CriticChoice, name: str, case: Case) -> Questions | None:
    """What a critic asks about a step; None where it does not show its questions.

    Args:
        name: of its agents file, for messages.

    Raises:
        ConfigError: it cannot be built.
    """
    if choice.free:
        return NONE_ASKED
    bench = Bench.of(name, choice.definition, choice.texts, asks=False)
    try:
        critic, model = bench.critic(seed=choice.seed), bench.model
        if not isinstance(model, Model):
            return (
                None if model is None else NONE_ASKED
            )  # a critic of one's own, or a model that scores in this process
        if not isinstance(critic, Asking):
            return None
        prompts = critic.prompts(case)
        tokens = sum(_length(model, prompt) for prompt in prompts)
    finally:
        await bench.close()
    said = Range(low=0, high=len(prompts) * choice.definition.sampling.max_tokens)
    engine = Part.model_validate(choice.definition.options[MODEL])
    return _questions(Range(low=len(prompts), high=len(prompts)), Range(low=tokens, high=tokens), said, engine)


async def adversary_questions(config: MarlConfig, prompts: Sequence[Prompt]) -> Questions | None:
    """What the adversary asks about a step, at most: of every cell, as often as it may try; at least nothing.

    How few of them contrasts take over is not known: a rewarded cell that nothing can be set against falls to the
    adversary, whatever its weight.

    Args:
        prompts: what the cells of the step read.

    Returns:
        None where an adversary that is not known asks by other means than a model.
    """
    sources = config.method.pairs
    return await _asked(config.erring, prompts, sources.attempts if sources.adversary else 0)


async def _asked(choice: AdversaryChoice, prompts: Sequence[Prompt], times: int) -> Questions | None:
    """Of several in turn, each may be the one that is drawn every time, but only one is each time.

    Args:
        times: how often each prompt is asked at most.
    """
    if choice.free or not times:
        return NONE_ASKED
    if choice.turns:
        found = NONE_ASKED
        for one, weight in choice.turns:
            asked = await _asked(one, prompts, times if weight else 0)
            if asked is None:
                return None
            found = found.or_(asked)
        return found
    if choice.agent is None:
        return None
    model: Model = build("models", unasked(choice.agent), "agents file of the adversary")
    try:
        role = sum(map(model.count_tokens, choice.texts.values()))
        tokens = sum(_length(model, prompt) + role for prompt in prompts)
    finally:
        await model.close()
    calls = Range(low=0, high=times * len(prompts))
    said = calls.times(choice.agent.sampling.max_tokens)
    return _questions(calls, Range(low=0, high=times * tokens), said, choice.agent)


def _questions(calls: Range, read: Range, said: Range, engine: Part) -> Questions:
    return Questions(calls=calls, prompt_tokens=read, completion_tokens=said, usd=cost(read, said, prices(engine)))


def _length(model: Model, prompt: Prompt) -> int:
    return model.count_tokens(prompt.system) + model.count_tokens(prompt.user)


def _scaled(one: Range, steps: Range) -> Range:
    return Range(low=one.low * steps.low, high=one.high * steps.high)
