"""What judging, pairing and learning will take, from one step that is really tried, without asking a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collab.algorithms.collabuiagents.config import CollabConfig
from collab.algorithms.collabuiagents.labeller import judge, pair
from collab.algorithms.collabuiagents.learner import rewarded_recipe
from collab.config import Budget, PartDefinition
from collab.data.tokenize import EncodedPair
from collab.errors import RunError
from collab.loop.estimate import encode_cells, likely_replies
from collab.loop.interfaces import NONE_ASKED, Estimate, LabelEstimate, Questions, Range, TriedStep
from collab.loop.policy import chat_of, template_of
from collab.loop.record import TrainingDir
from collab.loop.state import Halted, LoopState, Progress
from collab.models.base import Model
from collab.models.tokenizer import ChatTokenizer
from collab.preferences.registry import AdversaryChoice
from collab.rewards.base import CriticInput, cases
from collab.rewards.calibration.run import Asking
from collab.rewards.registry import MODEL, CriticChoice, CriticResources, unasked
from collab.rollout.build import build, build_suite
from collab.trainers.prepare import Task
from collab.types import Prompt, Utterance

if TYPE_CHECKING:
    from collab.trainers.estimate import Forecast

_OWN = frozenset({"local"})
"""Engines that compute on this machine and send no bill."""
_MILLION = 1e6
_ONCE_MORE = 5 / 4
"""Work on a reply of a whole trajectory: two forward passes of the policy, one of the reference, one back for two."""


async def estimate(config: CollabConfig, tried: TriedStep, rolled: Range) -> Estimate:
    """Judge and pair the step that was tried where that asks no model, and train what might be learned of it.

    Args:
        rolled: environment steps of all rollouts.

    Raises:
        UsageError, RunError: as the parts of the training would.
    """
    method = config.method
    judge_s, pair_s = await _label(config, tried)
    asked: Questions | None = NONE_ASKED
    if method.is_judged:
        asked = await critic_questions(config.judging("plan", tried.run.seed), method.critic, await _case(tried))
    doubted = await adversary_questions(config, tried.prompts) if method.objective == "dpo" else NONE_ASKED
    labels = (
        LabelEstimate(name="critic", doing="judging", asked=asked, seconds=judge_s),
        LabelEstimate(name="adversary", doing="pairing", asked=doubted, seconds=pair_s),
    )
    return count_examples(config, rolled, labels, _trained(config, tried))


def count_examples(
    config: CollabConfig, rolled: Range, labels: Sequence[LabelEstimate], training: Forecast
) -> Estimate:
    """Return the estimate with as many examples as the objective can make of so many steps; arguments as its fields."""
    method, cells = config.method, len(config.run.graph.slots) * config.run.graph.rounds
    noun = "replies" if method.objective == "rft" else "pairs"
    if method.objective == "trajectory-dpo":
        # Every reply is at most on one side, and is computed once more to weigh its pair.
        pairs = Range(low=0, high=method.epochs * (config.run.episodes // 2))
        replies = Range(low=0, high=rolled.high * cells / 2)
        return Estimate(noun=noun, examples=pairs, replies=replies, slower=_ONCE_MORE, labels=labels, training=training)
    pairs = Range(low=0, high=rolled.high * min(cells, (method.pairs.cap or cells) + method.pairs.anchors))
    replies = pairs.times(1 / (1 - method.replay_fraction))
    return Estimate(noun=noun, examples=pairs, replies=replies, labels=labels, training=training)


def likely_pairs(cells: Sequence[Utterance], prompts: Sequence[Prompt], chat: ChatTokenizer) -> list[EncodedPair]:
    """A pair for each cell, with its own prompt and reply; the worse side is as long, and differs from its start."""
    return [
        EncodedPair(group="preference", prompt=read, chosen=said, rejected=said[::-1].copy(), state=cell.prompt.prefix)
        for cell, (read, said) in zip(cells, encode_cells(cells, prompts, chat), strict=True)
    ]


def prices(engine: PartDefinition) -> tuple[float, float] | None:
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


async def critic_questions(choice: CriticChoice, name: str, case: CriticInput) -> Questions | None:
    """What a critic asks about a step; None where it does not show its questions.

    Args:
        name: of its agents file, for messages.

    Raises:
        ConfigError: it cannot be built.
    """
    if choice.free:
        return NONE_ASKED
    bench = CriticResources.of(name, choice.definition, choice.texts, asks=False)
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
    engine = PartDefinition.model_validate(choice.definition.options[MODEL])
    return _questions(Range(low=len(prompts), high=len(prompts)), Range(low=tokens, high=tokens), said, engine)


async def adversary_questions(config: CollabConfig, prompts: Sequence[Prompt]) -> Questions | None:
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


def _questions(calls: Range, read: Range, said: Range, engine: PartDefinition) -> Questions:
    return Questions(calls=calls, prompt_tokens=read, completion_tokens=said, usd=cost(read, said, prices(engine)))


async def _label(config: CollabConfig, tried: TriedStep) -> tuple[float | None, float | None]:
    """Seconds of judging and of pairing, where these ask no model; pairing needs judgements.

    Raises:
        RunError: the step can be neither judged nor paired.
    """
    if not config.method.is_judged:
        return 0.0, 0.0
    if not config.judging("plan", tried.run.seed).free:
        return None, None
    state = LoopState(
        config=config,
        folder=TrainingDir(tried.out.parent),
        library=tried.library,
        budget=Budget(),
        stop=asyncio.Event(),
        device="cpu",
        progress=Progress(algorithm=config.algorithm, epochs=config.method.epochs),
    )
    try:
        labels = await judge(state, tried.run, tried.out, [tried.trajectory])
        if config.method.objective != "dpo":
            return state.seconds["critic"], 0.0
        if not config.erring.free:
            return state.seconds["critic"], None
        await pair(state, tried.run, tried.out, [tried.trajectory], labels)
    except Halted as why:
        raise RunError(f"the one step that is tried: {why}") from None
    finally:
        await state.close_suite()
    return state.seconds["critic"], state.seconds["adversary"]


async def _case(tried: TriedStep) -> CriticInput:
    suite = build_suite(tried.run)
    try:
        return next(cases(tried.trajectory, suite.space))
    finally:
        await suite.close()


def _trained(config: CollabConfig, tried: TriedStep) -> Forecast:
    """What might be learned of this step, trained for nothing; of policies that are trained apart, the first one's."""
    from collab.trainers.estimate import forecast

    method, slots = config.method, next(iter(config.groups.values()))
    base, said, read = tried.policy.of(slots), *tried.cells_of(slots)
    agent = config.run.agents[slots[0]]
    chat, recipe = chat_of(agent, base), method.dpo.model_copy(update=template_of(agent))
    if method.objective == "rft":
        task = Task(stage="sft", base=base, preset=config.preset, recipe=rewarded_recipe(recipe))
        return forecast(task, likely_replies(said, read, chat), tried.device, processes=method.processes)
    task = Task(stage="dpo", base=base, preset=config.preset, recipe=recipe)
    if method.reference == "initial" and method.epochs > 1 and not method.keeps_adapters:
        task = replace(task, reference=base)  # a second checkpoint from the second epoch on
    return forecast(task, likely_pairs(said, read, chat), tried.device, processes=method.processes)


def _length(model: Model, prompt: Prompt) -> int:
    return model.count_tokens(prompt.system) + model.count_tokens(prompt.user)
