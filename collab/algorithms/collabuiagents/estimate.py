"""Estimate what a training costs: judge, pair and train on one tried step, without asking a model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from collab.algorithms.collabuiagents.config import CollabConfig
from collab.algorithms.collabuiagents.labeller import pair_judged
from collab.algorithms.collabuiagents.learner import build_sft_recipe
from collab.algorithms.judging import build_first_input, estimate_critic_questions, judge_rollout
from collab.config import Budget
from collab.data.tokenize import EncodedPair
from collab.errors import RunError
from collab.loop.estimate import build_likely_examples, build_questions, count_prompt_tokens, encode_cells
from collab.loop.interfaces import Rollout, TriedStep
from collab.loop.policy import build_chat_tokenizer, get_template
from collab.loop.ranges import NONE_ASKED, Estimate, LabelEstimate, Questions, Range
from collab.loop.record import TrainingDir
from collab.loop.state import Halted, LoopState, TrainingProgress
from collab.models.base import Model
from collab.models.tokenizer import ChatTokenizer
from collab.preferences.registry import AdversaryChoice
from collab.rewards.registry import (
    make_token_counter,
)
from collab.rollout.build import build
from collab.store.run import RunStore
from collab.trainers.prepare import FinetuneTask
from collab.types import Prompt, Utterance

if TYPE_CHECKING:
    from collab.trainers.estimate import Forecast


_ONCE_MORE = 5 / 4
"""Extra work on a reply of a whole trajectory: two forward passes of the policy, one of the reference, one back for
two."""


async def estimate(config: CollabConfig, tried: TriedStep, rolled: Range) -> Estimate:
    """Judge and pair the tried step if that asks no model, and train on its likely examples.

    Args:
        rolled: environment steps of all rollouts.

    Raises:
        UsageError, RunError: as the parts of the training would.
    """
    # One real step stands for all: its cells are judged and paired where that costs no model call.
    method = config.method
    judge_s, pair_s = await _estimate_labels(config, tried)
    asked: Questions | None = NONE_ASKED
    if method.is_judged:
        asked = await estimate_critic_questions(
            config.build_critic_choice("plan", tried.run.seed), method.critic, await build_first_input(tried)
        )
    doubted = await estimate_adversary_questions(config, tried.prompts) if method.objective == "dpo" else NONE_ASKED
    # Named as progress names the parts, so that a plan and the display of a training speak of the same things.
    labels = (
        LabelEstimate(name="critic", doing="judging", asked=asked, seconds=judge_s),
        LabelEstimate(name="adversary", doing="pairing", asked=doubted, seconds=pair_s),
    )
    return count_examples(config, rolled, labels, _forecast_training(config, tried))


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
    # Anchors come on top of the cap, but no cell gives two examples from one state.
    pairs = Range(low=0, high=rolled.high * min(cells, (method.pairs.cap or cells) + method.pairs.anchors))
    # Replayed pairs of older epochs are trained, too: of n new ones, n / (1 − share) in all.
    replies = pairs.times(1 / (1 - method.replay_fraction))
    return Estimate(noun=noun, examples=pairs, replies=replies, labels=labels, training=training)


def build_likely_pairs(cells: Sequence[Utterance], prompts: Sequence[Prompt], chat: ChatTokenizer) -> list[EncodedPair]:
    """Return a pair for each cell, with its own prompt and reply; the rejected side is as long and differs at once."""
    # As long as the chosen side but different from its first token on: the dearest case, as no prefix is shared.
    return [
        EncodedPair(group="preference", prompt=read, chosen=said, rejected=said[::-1].copy(), state=cell.prompt.prefix)
        for cell, (read, said) in zip(cells, encode_cells(cells, prompts, chat), strict=True)
    ]


async def estimate_adversary_questions(config: CollabConfig, prompts: Sequence[Prompt]) -> Questions | None:
    """Estimate the calls and tokens that the adversary needs for a step, from none to every attempt at every cell.

    The lower end is unknown: a rewarded cell without a contrast falls to the adversary, whatever its weight.

    Args:
        prompts: of the cells of the step.

    Returns:
        None if the kind of adversary is unknown and asks no model.
    """
    sources = config.method.pairs
    return await _estimate_choice_questions(config.erring, prompts, sources.attempts if sources.adversary else 0)


async def _estimate_choice_questions(
    choice: AdversaryChoice, prompts: Sequence[Prompt], times: int
) -> Questions | None:
    """Return the calls and tokens of one adversary; if several take turns, those of the dearest.

    Args:
        times: attempts per prompt, at most.
    """
    # Zero weight is zero calls: the estimate must not open a model that the training never asks.
    if choice.free or not times:
        return NONE_ASKED
    if choice.turns:
        # The dearest of the alternatives bounds every draw; the sum would count calls that exclude each other.
        found = NONE_ASKED
        for one, weight in choice.turns:
            asked = await _estimate_choice_questions(one, prompts, times if weight else 0)
            if asked is None:
                return None
            found = found.union(asked)
        return found
    if choice.agent is None:
        return None
    # Built for its tokenizer alone; nothing is asked.
    model: Model = build("models", make_token_counter(choice.agent), "agents file of the adversary")
    try:
        role = sum(map(model.count_tokens, choice.texts.values()))
        tokens = sum(count_prompt_tokens(model, prompt) + role for prompt in prompts)
    finally:
        await model.close()
    calls = Range(low=0, high=times * len(prompts))
    said = calls.times(choice.agent.sampling.max_tokens)
    return build_questions(calls, Range(low=0, high=times * tokens), said, choice.agent)


async def _estimate_labels(config: CollabConfig, tried: TriedStep) -> tuple[float | None, float | None]:
    """Return the seconds of judging and of pairing, if these ask no model; pairing needs judgements.

    Raises:
        RunError: the step can be neither judged nor paired.
    """
    # Episodes are compared by outcome: nothing is judged and nothing paired.
    if not config.method.is_judged:
        return 0.0, 0.0
    # A critic that asks a model would cost money, and a plan is free.
    if not config.build_critic_choice("plan", tried.run.seed).free:
        return None, None
    # A loop of its own, beside the training: no budget, nothing is displayed, nothing outlives it.
    state = LoopState(
        config=config,
        folder=TrainingDir(tried.out.parent),
        library=tried.library,
        budget=Budget(),
        stop=asyncio.Event(),
        device="cpu",
        progress=TrainingProgress(algorithm=config.algorithm, epochs=config.method.epochs),
        first=tried.policy,
    )
    try:
        labels = await judge_rollout(state, tried.run, tried.out, [tried.trajectory])
        # Only "dpo" pairs by replies; the other objectives end with the judgements.
        if config.method.objective != "dpo":
            return state.seconds["critic"], 0.0
        if not config.erring.free:
            return state.seconds["critic"], None
        with RunStore.open(tried.out).open_reader() as reader:
            played = Rollout(number=1, run=tried.run, path=tried.out, trajectories=[tried.trajectory], reader=reader)
            await pair_judged(state, played, labels)
    except Halted as why:
        # A plan has no resume: what would halt a training is an error of the plan.
        raise RunError(f"the one step that is tried: {why}") from None
    finally:
        await state.close_suite()
    return state.seconds["critic"], state.seconds["adversary"]


def _forecast_training(config: CollabConfig, tried: TriedStep) -> Forecast:
    """Forecast the training on this step's likely examples; of separate policies, the first one's."""
    from collab.trainers.estimate import forecast

    method, slots = config.method, next(iter(config.groups.values()))
    base, said, read = tried.policy.of(slots), *tried.select_cells(slots)
    agent = config.run.agents[slots[0]]
    chat, recipe = build_chat_tokenizer(agent, base), method.dpo.model_copy(update=get_template(agent))
    if method.objective == "rft":
        task = FinetuneTask(stage="sft", base=base, preset=config.preset, recipe=build_sft_recipe(recipe))
        return forecast(task, build_likely_examples(said, read, chat), tried.device, processes=method.processes)
    task = FinetuneTask(stage="dpo", base=base, preset=config.preset, recipe=recipe)
    # The reference is the base as long as nothing was trained; later it costs memory of its own.
    if method.reference == "initial" and method.epochs > 1 and not method.is_adapter_kept:
        task = replace(task, reference=base)  # a second checkpoint from the second epoch on
    return forecast(task, build_likely_pairs(said, read, chat), tried.device, processes=method.processes)
