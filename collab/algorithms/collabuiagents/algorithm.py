"""CollabUIAgents: multi-agent training with credit re-assignment, as an algorithm of the loop.

Each epoch draws a new graph, and the team plays. A critic judges every cell of the action matrix. Rejected replies come
from an adversary or from the team's own disagreement, and DPO trains the policies (section 3.2 of the paper, eq. 7
and 8). The paper leaves open which epoch counts: here it is the best on held-out seeds, ties to the earlier one, and
epoch 0, the untrained team, is a candidate. Other defaults differ where `presets/collab.yaml` says so.

Before a training, critic and adversary must answer, and the critic's latest calibration must let it judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from collab.algorithms.collabuiagents.config import ABLATIONS, CollabConfig, CollabMethod
from collab.algorithms.collabuiagents.labeller import CreditLabeller, pair_judged
from collab.algorithms.collabuiagents.learner import CreditLearner, build_sft_recipe
from collab.algorithms.collabuiagents.metrics import build_columns, describe, format_lines, summarize
from collab.algorithms.judging import (
    admit_critic,
    build_first_input,
    check_critic_answers,
    configure_critic,
    estimate_critic_questions,
    judge_rollout,
    list_critic_doubts,
)
from collab.config import Budget
from collab.data.tokenize import EncodedPair
from collab.envs.base import Suite
from collab.errors import ConfigError, RunError
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.estimate import build_likely_examples, build_questions, count_prompt_tokens, encode_cells
from collab.loop.interfaces import Algorithm, Checked, EpochSummary, Rollout, TriedStep
from collab.loop.policy import build_chat_tokenizer, get_template
from collab.loop.ranges import NONE_ASKED, Estimate, LabelEstimate, Questions, Range
from collab.loop.record import EpochRecord, TrainingDir
from collab.loop.state import Halted, LoopState, TrainingProgress
from collab.models.base import Model
from collab.models.tokenizer import ChatTokenizer
from collab.preferences.rebuild import ORACLE
from collab.preferences.registry import (
    SAMPLER,
    AdversaryChoice,
    open_adversary,
    resolve_adversary,
)
from collab.rewards.calibration.record import FOLDER
from collab.rewards.registry import doubt_key, make_token_counter
from collab.rollout.build import build
from collab.store.run import RunStore
from collab.trainers.prepare import FinetuneTask
from collab.types import Prompt, Utterance
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.trainers.estimate import Forecast


async def check_asked(config: CollabConfig, budget: Budget) -> None:
    """Open and close the critic and adversary that the method needs; raises as `build`."""
    # Opened and closed again: a key, an address or a model that is wrong shows before anything is played.
    method, run = config.method, config.run
    call_s = run.environment.limits.call_s
    await check_critic_answers(config, budget)
    if method.has_adversary:
        async with open_adversary(config.erring, budget, call_s):
            pass


def list_doubts(config: CollabConfig, suite: Suite) -> list[str]:
    """Return settings that may be mistakes, a line each. Models and environments are not opened.

    Args:
        suite: of the run.

    Raises:
        UsageError: the oracle is the critic but knows no solution, so every score would be missing.
    """
    return [
        *_doubt_temperatures(config),
        *_doubt_adversary(config),
        *_doubt_keys(config),
        *list_critic_doubts(config, suite),
        *_warn_of_whole_episodes(config),
    ]


def _doubt_temperatures(config: CollabConfig) -> list[str]:
    """Return a warning if replies are sampled hotter than they are learned from."""
    # DPO's log π is at the learning temperature; replies sampled hotter look less likely than they were drawn.
    learned = config.method.dpo.temperature
    hottest = max(one.temperature for one in config.as_explored.sampling.values())
    if config.method.objective != "dpo" or hottest <= learned:
        return []
    return [
        f"replies are sampled at temperature {hottest:g} and learned from at {learned:g}, as if they had been surer; "
        f"what is played is trained by --set dpo.temperature={hottest:g}"
    ]


def _doubt_adversary(config: CollabConfig) -> list[str]:
    """Return a warning if an adversary is named that no source of pairs asks."""
    method = config.method
    if method.has_adversary or method.adversary.kind == SAMPLER:
        return []
    name = method.adversary.agent or method.adversary.kind
    return [f"adversary {name} is not asked: no source of pairs uses it; --set pairs.adversary=1 makes them"]


def _doubt_keys(config: CollabConfig) -> list[str]:
    """Return a warning for each adversary that would be asked without the key that its server needs."""
    if not config.method.has_adversary:
        return []
    choices = [config.erring, *(one for one, _ in config.erring.turns)]
    return [line for one in choices if one.agent is not None for line in doubt_key(one.agent, "adversary")]


def _warn_of_whole_episodes(config: CollabConfig) -> list[str]:
    """Warn that episodes continue after their first error, although the method would end them there."""
    method = config.method
    if not method.is_taught_to_first_error or config.can_end_at_first_error:
        return []
    why = "its rewards are flipped" if config.critic.kind == ORACLE else "it is not the oracle"
    return [
        f"rollouts play whole episodes, although they teach up to the first error alone: critic {method.critic} cannot "
        f"tell it while they are played ({why})"
    ]


class CollabUIAgents(Algorithm):
    """Credit re-assignment by a critic, preferences by an adversary or by disagreement, iterative DPO."""

    name = "collabuiagents"
    description = "credit re-assignment: a critic rewards every cell, DPO learns from chosen and rejected replies"
    method = CollabMethod
    config = CollabConfig
    presets = Path(__file__).parent / "presets"
    default_preset = "collab"
    ablations = ABLATIONS
    options: ClassVar[Mapping[str, Any]] = {"calibrations": FOLDER, "allow_uncalibrated": False}
    toy_options: ClassVar[Mapping[str, Any]] = {"allow_uncalibrated": True}  # no critic was calibrated for a toy
    toy = (
        "pairs={adversary: 1, contrast: 1, correction: 0.5}",
        "dpo.anchor=0.5",
        "replay_fraction=0",
    )
    labeller, learner = CreditLabeller(), CreditLearner()

    def configure(self, library: Library, method: Method) -> dict[str, Any]:
        """Return critic and adversary with the content of their files."""
        method = _narrow_method(method)
        adversary = resolve_adversary(library, method.adversary).as_json
        return {**configure_critic(library, method), "adversary": adversary}

    def check_plan(self, method: Method, *, episodes: int, tasks: int) -> None:
        """Refuse whole trajectories if each task is played once: no two could be compared."""
        # A pair of trajectories needs two episodes of one task, one solved and one not.
        if _narrow_method(method).objective == "trajectory-dpo" and episodes <= tasks:
            raise ConfigError(
                f"objective: trajectory-dpo, but an epoch plays {format_amount(episodes, 'episode')} of "
                f"{format_amount(tasks, 'task')}: none is played twice, and nothing can be compared; set fewer tasks "
                "or more episodes, e.g. "
                f"--set tasks={max(tasks // 4, 1)} --set episodes={max(tasks // 4, 1) * 4}"
            )

    def check_origin(self, method: Method, other: TrainingConfig, run: Path) -> None:
        """Refuse examples of a training that this one cannot learn from."""
        own = _narrow_method(method)
        if not own.replay_fraction:
            return
        # Pairs cannot be replayed into single replies, nor a shared policy's rows into one of several.
        theirs = other.method.objective if isinstance(other, CollabConfig) else other.algorithm
        kinds = [
            f"objective {what}, policies {one.policies}" for what, one in ((theirs, other.method), (own.objective, own))
        ]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"replay_fraction: {own.replay_fraction:g} mixes pairs of {run} in, which has {kinds[0]}, "
                f"and this training {kinds[1]}; set replay_fraction=0, or use that training's settings"
            )

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Return doubts about temperatures, adversary and critic."""
        return list_doubts(_narrow_config(config), suite)

    async def check(self, config: TrainingConfig, suite: Suite, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Check that critic and adversary answer, and that the critic may judge.

        Args:
            options: `calibrations`, the folder with those of the critic, and `allow_uncalibrated`: let the critic judge
                in any case.
        """
        # The calibration is looked up first: that is free, while opening critic and adversary may start a server.
        mine, allow_uncalibrated = _narrow_config(config), bool(options["allow_uncalibrated"])
        known = await admit_critic(
            mine, suite, calibrations=Path(options["calibrations"]), allow_uncalibrated=allow_uncalibrated
        )
        found = list_doubts(mine, suite)
        await check_asked(mine, budget)
        notes = (f"critic {mine.method.critic}: {known}", *found)
        return Checked(notes=notes, head={"calibration": known, "allow_uncalibrated": allow_uncalibrated})

    async def check_budget(self, config: TrainingConfig, budget: Budget) -> None:
        """Open critic and adversary with the budget and close them again."""
        await check_asked(_narrow_config(config), budget)

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate judging, pairing and learning."""
        return await estimate(_narrow_config(config), tried, rolled)

    def describe(self, config: TrainingConfig) -> str:
        """Return how policies are trained, in a clause."""
        mine = _narrow_config(config)
        return describe(mine.method, mine.critic.flip)

    def describe_examples(self, config: TrainingConfig, records: Sequence[EpochRecord], group: str) -> str:
        """Return a description of a policy's examples."""
        what = "rewarded replies" if _narrow_config(config).method.objective == "rft" else "pairs"
        return f"{sum(one.examples[group].examples for one in records if group in one.examples)} {what}"

    def build_columns(self, record: EpochRecord) -> Mapping[str, object]:
        """Return rewards, pairs and metrics of preference training."""
        return build_columns(record)

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return rewards and pairs for the inspector."""
        return summarize(record)

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format rewards, pairs and skipped cells, line by line."""
        return format_lines(record)


# ------------------------------------------------------------------------------------------------------------- plan


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


def _narrow_method(method: Method) -> CollabMethod:
    assert isinstance(method, CollabMethod), "the loop gives each algorithm its own method"
    return method


def _narrow_config(config: TrainingConfig) -> CollabConfig:
    assert isinstance(config, CollabConfig), "the loop gives each algorithm its own configuration"
    return config
