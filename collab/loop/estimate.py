"""Estimate a training before anything is started: calls, tokens, memory, disk, time and money, as ranges.

Episodes, cells and parameters are counted exactly. The number of steps per episode is unknown, so each range runs from
one step to the whole budget. Costs per step are measured: one step of one task is played in a temporary directory, with
the policy and the environment of the training. The algorithm labels it without asking a model, and trains on it.
Training is counted from no example at all to as many as the algorithm can make.

Money is the cost of policies and labels whose files name prices; computation in this process costs nothing. Unknown
numbers are printed as unknown, and so is every sum that contains one.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean

import numpy as np

from collab.config import Budget, PartDefinition, RunConfig
from collab.data.tokenize import EncodedExample, Ids, turn_end
from collab.envs.base import Suite, limit_environments
from collab.errors import ModelFailure
from collab.evaluation.metrics import describe_sampling
from collab.library import Library
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import TriedStep, load_algorithm
from collab.loop.phases import get_curriculum
from collab.loop.policy import Policy, build_first_policy
from collab.loop.ranges import ZERO, Estimate, Questions, Range
from collab.loop.record import TrainingDir
from collab.loop.recorded import list_doubts
from collab.loop.state import LoopState, TrainingProgress
from collab.models.base import Model
from collab.models.tokenizer import ChatTokenizer
from collab.prompts.render import rebuild
from collab.rollout.collector import RolloutProgress
from collab.rollout.episode import Episode
from collab.rollout.plan import plan_episodes
from collab.rollout.run import start
from collab.store.run import RunStore
from collab.trainers.prepare import check_device
from collab.types import Outcome, Prompt, Step, Trajectory, Utterance
from collab.utils.concurrency import note_doing

BYTES_PER_CALL = 3000
"""On disk of a recorded call with its share of screen and prompt, roughly."""
MIB, GIB = float(1 << 20), float(1 << 30)
UNKNOWN = "unknown"
_OWN = frozenset({"local"})
"""Engines that compute on this machine and send no bill."""
_MILLION = 1e6
_LIKELY = 0.5
"""Share of its step budget that an episode is likely to take: solved ones take less, failed ones all of it."""
_LIKELY_EXAMPLES = 0.25
"""Share of the possible examples that is likely to be learned."""
_BEFORE_SECOND = 2
"""Requests of an episode before its second step: one to begin, one for its first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Measurements of the one step that was tried."""

    calls: int
    """Calls of the policies."""
    at_once: int
    """Episodes that are played at once; local policies were tried with so many together."""
    seconds: float
    """Per step, with `at_once` episodes in parallel; a server is assumed to answer them as fast as one."""
    prompt_tokens: int
    completion_tokens: int
    """Reply tokens of all its calls."""
    usd: float | None
    """What its calls cost; None where the file of a policy names no prices."""
    estimate: Estimate
    """The algorithm's estimate from this step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    """A part of the labelling, in the whole training."""

    name: str
    doing: str
    asked: Questions | None
    """Its questions to a model; None if it does not say."""
    seconds: Range | None
    """None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The estimate of a training."""

    episodes: int
    """Rollouts and evaluations, over all epochs; at most, where `epoch_steps` are given."""
    recorded: int
    """Episodes of recorded runs that epoch 1 learns from, instead of playing."""
    epoch_steps: int | None
    """Environment steps after which an epoch's rollout ends; None where all its episodes are played."""
    calls: Range
    """Calls of the policies."""
    tokens: Range
    """Tokens of the policies' calls, prompts and replies."""
    steps: Range
    """Steps of all rollouts: they are labelled and learned from."""
    labels: tuple[LabelPlan, ...]
    """What labelling takes, part by part."""
    examples: Range
    """Examples learned, over all epochs."""
    noun: str
    """What they are, in a word, e.g. "replies"."""
    trained: Range
    """Tokens that training processes, over all passes."""
    memory: Range
    """Bytes of one training process: with examples as long as the tried one, and as long as the context."""
    disk: Range
    """Bytes: recorded calls, one checkpoint per trained policy and epoch, and the state that training resumes from."""
    play_s: Range
    """Rollouts and evaluations, at the training's number of parallel episodes."""
    train_s: Range
    """With one process."""
    processes: int
    """Processes that train one policy together."""
    shared_s: Range
    """Training time if all processes share it evenly."""
    is_continuous: bool
    """Whether episodes are played on beside all other work but evaluations."""
    versions: int
    """Versions of the policy that playing may have in memory at once."""
    total_s: Range | None
    """The lower end with training shared evenly; None if a part is unknown."""
    sampled: str
    """Temperatures of the first epoch's rollout and of held-out evaluations, in words."""
    likely_s: float | None
    """One value of `total_s`: see `_LIKELY`."""
    usd: Range | None
    """None if a price is unknown."""
    probe: Probe
    notes: tuple[str, ...] = ()
    """Findings of `Algorithm.list_doubts`."""


async def plan(config: TrainingConfig, library: Library, device: str = "auto") -> TrainingPlan:
    """Estimate a training; try one step of it.

    Args:
        device: where policies are trained, "auto" or "cpu".

    Raises:
        UsageError, RunError: as the first epoch would.
    """
    check_device(device)
    algorithm, policy = load_algorithm(config.algorithm), build_first_policy(config.run, config.method)
    algorithm.learner.check(config, policy)
    # In a directory that is gone afterwards: the curriculum writes its graph, and a plan leaves nothing.
    with tempfile.TemporaryDirectory(prefix="collab-plan-") as place:
        state = LoopState(
            config=config,
            folder=TrainingDir(Path(place)),
            library=library,
            budget=Budget(),
            stop=asyncio.Event(),
            device=device,
            progress=TrainingProgress(algorithm=config.algorithm, epochs=config.method.epochs),
            first=policy,
        )
        try:
            suite = await state.open_suite(config.run)
            notes = (*list_doubts(config), *algorithm.list_doubts(config, suite))
            # The run that the curriculum plays first; every epoch is taken to be as long.
            played = 1 if config.is_played(1) else 2
            run = (await get_curriculum(algorithm).plan(state, played, policy)).run
            budgets = _list_budgets(run, suite)
            most = limit_environments(suite, run.concurrency)
            # Evaluations may play other tasks, or in another environment, than rollouts.
            measured = config.held_out[0]
            steps = _estimate_steps(config, run, budgets, _list_budgets(measured, await state.open_suite(measured)))
        finally:
            await state.close_suite()
    at_once = max(1, min(run.episodes, most))
    tried = await probe(config, run, library, policy, device, steps[0], at_once)
    return replace(build_plan(config.model_copy(update={"run": run}), steps, tried), notes=notes)


def build_plan(config: TrainingConfig, steps: tuple[Range, Range], tried: Probe) -> TrainingPlan:
    """Return the plan from all measurements.

    Args:
        config: its run is one that an epoch plays.
        steps: environment steps of all rollouts, and of one evaluation over all held-out seeds.
        tried: one step.
    """
    # Ranges run from one step per episode to the whole budget of each; everything below scales with these steps.
    method, cells, found = config.method, len(config.run.graph.slots) * config.run.graph.rounds, tried.estimate
    measures = sum(map(method.is_measured, range(method.epochs + 1)))
    played = steps[0].plus(steps[1].times(measures))
    # Recorded steps are labelled and learned from like those that are played.
    recorded = float(sum(one.steps for one in config.recorded))
    rolled = steps[0].plus(Range(low=recorded, high=recorded))
    # Tokens of later steps are taken as those of the first: what is not known is not guessed, and a note says so.
    per_call = (tried.prompt_tokens + tried.completion_tokens) / tried.calls
    # Every example is read once per pass of the recipe.
    seen = found.replies.times(method.recipe.epochs)
    if (most := method.recipe.max_steps) is not None:
        rows = float(most * method.recipe.batch_rows * method.epochs)
        seen = Range(low=min(seen.low, rows), high=min(seen.high, rows))
    measured_s = steps[1].times(measures * tried.seconds)
    play_s, train_s = played.times(tried.seconds), seen.times(found.training.seconds_per_item * found.slower)
    # Processes share the work at best evenly; the upper bound stays that of one process.
    shared_s = train_s.times(1 / method.processes)
    labels = tuple(
        LabelPlan(
            name=one.name,
            doing=one.doing,
            asked=None if one.asked is None else one.asked.scale_to_steps(rolled),
            seconds=None
            if one.seconds is None
            else rolled.times(one.seconds).plus(Range(low=one.fixed_s, high=one.fixed_s)),
        )
        for one in found.labels
    )
    learn_s = _sum(*(one.seconds for one in labels), Range(low=shared_s.low, high=train_s.high))
    # Built at once, so that no line of the plan rests on another number than its neighbour.
    return TrainingPlan(
        episodes=(1 + method.branches)
        * sum(method.get_episodes(number) or config.run.episodes for number in _list_played(config))
        + measures * sum(one.episodes for one in config.held_out),
        recorded=sum(one.episodes for one in config.recorded),
        epoch_steps=method.steps,
        calls=played.times(cells),
        tokens=played.times(cells * per_call),
        steps=rolled,
        labels=labels,
        examples=found.examples,
        noun=found.noun,
        trained=seen.times(found.training.tokens_per_item),
        memory=Range(low=found.training.least.total, high=found.training.most.total),
        disk=_estimate_disk(config, played.times(cells), found),
        play_s=play_s,
        train_s=train_s,
        processes=method.processes,
        shared_s=shared_s,
        is_continuous=method.is_continuous,
        versions=min(config.run.concurrency + 1, method.epochs) if method.is_continuous else 1,
        total_s=_overlap(play_s, measured_s, learn_s) if method.is_continuous else _sum(play_s, learn_s),
        sampled=f"rollouts at {describe_sampling(config.run.sampling)}, held-out evaluations at "
        f"{describe_sampling(config.held_out[0].sampling)}",
        likely_s=_estimate_seconds(config, steps, tried, shared_s),
        usd=_sum(
            None if tried.usd is None else played.times(tried.usd),
            *(None if one.asked is None else one.asked.usd for one in labels),
        ),
        probe=tried,
    )


def format_plan(plan: TrainingPlan) -> str:
    """Format the plan in lines for people."""
    probe, trained = plan.probe, plan.probe.estimate.training
    # The parts in the order in which an epoch runs them, each with its own range.
    parts = [("playing", plan.play_s), *((one.doing, one.seconds) for one in plan.labels), ("training", plan.train_s)]
    kinds = ("weights", "gradients", "optimizer", "activations")
    held = ", ".join(f"{name} {getattr(trained.most, name) / GIB:.2f}" for name in kinds)
    how = "real optimizer steps" if trained.measured else "its speed at multiplying matrices, as it has not the memory"
    many = f"; {plan.processes} processes take {_format_time(plan.shared_s)} at best" if plan.processes > 1 else ""
    amount_at_once = "1 episode at a time" if probe.at_once == 1 else f"{probe.at_once} episodes at once"
    spoken = f"{probe.prompt_tokens:,} tokens read, {probe.completion_tokens:,} said"
    versions = f"; up to {plan.versions} versions of the policy to play with" if plan.versions > 1 else ""
    beside = "; playing continues beside the rest" if plan.is_continuous else ""
    # One line per question that a user asks before starting: how much, how long, how dear.
    return "\n".join(
        [
            f"episodes  {_format_episodes(plan)}",
            f"steps     {_format_range(plan.steps)} to learn from",
            f"sampled   {plan.sampled}",
            f"calls     {_format_range(plan.calls)} of the policies{_format_asked(plan, 'calls')}",
            f"tokens    {_format_range(plan.tokens)} of the policies{_format_asked(plan, 'tokens')}",
            f"{plan.noun:<10}{_format_range(plan.examples)}, {_format_range(plan.trained)} tokens to train",
            f"memory    {plan.memory.low / GIB:.2f} to {plan.memory.high / GIB:.2f} GiB per process that trains "
            f"(at most {held}){versions}",
            f"disk      {plan.disk.low / MIB:,.0f} to {plan.disk.high / MIB:,.0f} MiB",
            f"time      {_format_likely_time(plan)}{_format_time(plan.total_s)}: "
            f"{', '.join(f'{name} {_format_time(one)}' for name, one in parts)}{beside}",
            f"money     {_format_cost(plan)}",
            f"measured  on this machine, one step of {probe.calls} calls: {probe.seconds * probe.at_once:.2f} s, "
            f"{spoken}; {amount_at_once}; training by {how}, in one process{many}",
            f"ranges    from one step per episode to the whole budget of each; from no {plan.noun} to as many as there "
            "can be; prompts as long as in a first step, later ones show a history, too; likely: half of each step "
            f"budget, a quarter of the most {plan.noun}",
            *(f"note      {note}" for note in plan.notes),
        ]
    )


# --------------------------------------------------------------------------------------------------- one step tried


async def probe(
    config: TrainingConfig,
    run: RunConfig,
    library: Library,
    policy: Policy,
    device: str,
    rolled: Range,
    at_once: int,
) -> Probe:
    """Try one step.

    Args:
        run: a rollout of the training.
        device: where policies are trained.
        rolled: environment steps of all rollouts.
        at_once: episodes that a rollout plays at once.

    Raises:
        UsageError, RunError: as the parts of the training would.
        ModelFailure: the step could not be played.
    """
    # Local models answer several cells in one pass, so a step alone would look slower than in a rollout.
    tried = at_once if all(agent.kind == "local" for agent in run.agents.values()) else 1
    short = run.model_copy(update={"episodes": tried, "concurrency": tried})
    measuring = note_doing("measuring a step of the team, of its labels and of training")
    # In a directory that is gone afterwards: a plan leaves nothing behind.
    with measuring, tempfile.TemporaryDirectory(prefix="collab-plan-") as place:
        out = Path(place) / "run"
        played = await _play_first_steps(short, library, out)
        step = played[0].steps[0]
        prompts = rebuild_prompts(out, step)
        one = TriedStep(
            run=short, library=library, policy=policy, device=device, out=out, trajectory=played[0], prompts=prompts
        )
        # The algorithm tries its own labels and training on this very step.
        estimate = await load_algorithm(config.algorithm).estimate(config, one, rolled)
    return Probe(
        calls=len(prompts),
        at_once=at_once,
        # Steps of episodes that run side by side share their time.
        seconds=fmean(one.steps[0].deliberation_s + one.steps[0].environment_s for one in played) / at_once,
        prompt_tokens=sum(cell.prompt_tokens or 0 for cell in step.matrix.utterances),
        completion_tokens=sum(cell.completion_tokens or 0 for cell in step.matrix.utterances),
        usd=_sum_cost(step),
        estimate=estimate,
    )


async def _play_first_steps(run: RunConfig, library: Library, out: Path) -> list[Trajectory]:
    """Play the first step of each episode; at least one episode.

    Each episode counts as a success, so that a labeller that uses only outcomes has labels to give.

    Raises:
        ModelFailure: no step was played.
        UsageError, RunError: as `start`.
    """
    stop = asyncio.Event()
    asked = Counter[str]()
    so_far: RolloutProgress | None = None

    def watch(progress: RolloutProgress) -> None:
        nonlocal so_far
        so_far = progress

    async def admit(episode: str) -> None:
        asked[episode] += 1
        if so_far is None or asked[episode] <= _BEFORE_SECOND:
            return
        while so_far.done + sum(count > _BEFORE_SECOND for count in asked.values()) < run.episodes:
            await asyncio.sleep(0.05)  # for others to make their first step, or to be over
        stop.set()
        await asyncio.Event().wait()  # the run ends meanwhile

    await start(run, library, out, watch=watch, stop=stop, admit=admit)
    with RunStore.open(out).open_reader() as reader:
        played = [one for one in (*reader.iterate_trajectories(), *reader.list_unfinished()) if one.steps]
    if not played:
        raise ModelFailure("the one step that is tried broke; play one to see why: collab rollout --episodes 1")
    return [replace(one, outcome=one.outcome or Outcome(success=True, score=1.0)) for one in played]


def rebuild_prompts(out: Path, step: Step) -> list[Prompt]:
    """Rebuild the prompts of a recorded step's cells, in conversation order."""
    with RunStore.open(out).open_reader() as reader:
        return [rebuild(reader.read_prefix(cell.prompt.prefix), cell.prompt) for cell in step.matrix.utterances]


def build_likely_examples(
    cells: Sequence[Utterance], prompts: Sequence[Prompt], chat: ChatTokenizer
) -> list[EncodedExample]:
    """Return an example for each cell, its own reply under its own prompt."""
    return [
        EncodedExample(group="demonstration", ids=np.concatenate((read, said)), scored_from=len(read))
        for read, said in encode_cells(cells, prompts, chat)
    ]


def encode_cells(
    cells: Sequence[Utterance], prompts: Sequence[Prompt], chat: ChatTokenizer
) -> Iterator[tuple[Ids, Ids]]:
    """Yield the token ids of each cell's prompt, (prompt,), and of its reply with the end of its turn, (reply,)."""
    end = turn_end(chat)
    for cell, prompt in zip(cells, prompts, strict=True):
        read: Ids = np.array(chat.prompt_ids(prompt).ids, np.int32)
        said: Ids = np.array((*chat.encode(cell.text), end), np.int32)
        yield read, said


def read_prices(engine: PartDefinition) -> tuple[float, float] | None:
    """Return USD per million tokens of prompts and of replies; None if unknown."""
    if engine.kind in _OWN:
        # A local engine costs nothing, an unpriced server costs "not known": they must not look the same.
        return 0.0, 0.0
    said = [engine.options.get(f"usd_per_million_{name}") for name in ("prompt", "completion")]
    return None if None in said else (float(str(said[0])), float(str(said[1])))


def compute_cost(prompt: Range, completion: Range, per_million: tuple[float, float] | None) -> Range | None:
    """Return the cost in USD; None without prices."""
    if per_million is None:
        return None
    return prompt.times(per_million[0] / _MILLION).plus(completion.times(per_million[1] / _MILLION))


def build_questions(calls: Range, read: Range, said: Range, engine: PartDefinition) -> Questions:
    """Return questions with their cost by the prices of the engine."""
    return Questions(
        calls=calls, prompt_tokens=read, completion_tokens=said, usd=compute_cost(read, said, read_prices(engine))
    )


def count_prompt_tokens(model: Model, prompt: Prompt) -> int:
    """Count the tokens of a prompt that a model reads."""
    return model.count_tokens(prompt.system) + model.count_tokens(prompt.user)


# ------------------------------------------------------------------------------------------------------ inside


def _estimate_seconds(
    config: TrainingConfig, steps: tuple[Range, Range], tried: Probe, shared_s: Range
) -> float | None:
    """Estimate the seconds that the training is likely to take; None if a part is unknown."""
    method = config.method
    budgets = [method.get_steps(number) for number in _list_played(config)]
    # On average an episode that begins in a state of another has half of that one's steps before it.
    with_branches = 1 + method.branches / 2
    likely = steps[0].high * _LIKELY * with_branches / (1 + method.branches)
    rolled = max(steps[0].low, likely)
    if None not in budgets:
        rolled = min(rolled, sum(filter(None, budgets)) * with_branches)
    recorded = sum(one.steps for one in config.recorded)
    measures = sum(map(method.is_measured, range(method.epochs + 1)))
    measured_s = max(steps[1].low, steps[1].high * _LIKELY) * measures * tried.seconds
    roll_s = rolled * tried.seconds
    if tried.estimate.fixed:
        learn_s = shared_s.high
    else:
        learn_s = shared_s.high * (rolled + recorded) / (steps[0].high + recorded) * _LIKELY_EXAMPLES
    for one in tried.estimate.labels:
        if one.seconds is None:
            return None
        learn_s += (rolled + recorded) * one.seconds + one.fixed_s
    if method.is_continuous:  # the first epoch is played before anything is learned, the last learned behind all others
        return measured_s + max(roll_s, learn_s) + min(roll_s, learn_s) / method.epochs
    return measured_s + roll_s + learn_s


def _sum_cost(step: Step) -> float | None:
    """Sum the cost of the step's calls in USD; None if one is unknown."""
    known = [cell.cost_usd for cell in step.matrix.utterances if cell.cost_usd is not None]
    return sum(known) if len(known) == len(step.matrix.utterances) else None


def _format_episodes(plan: TrainingPlan) -> str:
    told = f"; epoch 1 plays none and learns from {plan.recorded:,} recorded ones" if plan.recorded else ""
    if plan.epoch_steps is None:
        return f"{plan.episodes:,}{told}"
    return f"at most {plan.episodes:,}, an epoch plays until it has {plan.epoch_steps:,} steps{told}"


def _sum(*parts: Range | None) -> Range | None:
    """Sum the ranges; None if one is unknown."""
    total = Range(low=0, high=0)
    for part in parts:
        if part is None:
            return None
        total = total.plus(part)
    return total


def _overlap(play_s: Range, measured_s: Range, learn_s: Range | None) -> Range | None:
    """Return the time where playing, evaluations aside, continues beside learning: at worst none of it does."""
    if learn_s is None:
        return None
    beside = max(play_s.low - measured_s.low, learn_s.low)
    return Range(low=beside + measured_s.low, high=play_s.high + learn_s.high)


def _format_range(value: Range) -> str:
    return f"{round(value.low):,} to {round(value.high):,}"


def _format_time(value: Range | None) -> str:
    if value is None:
        return UNKNOWN
    least, most = (timedelta(seconds=round(one)) for one in (value.low, value.high))
    return f"{least} to {most}"


def _format_likely_time(plan: TrainingPlan) -> str:
    """Format the likely time, printed before the range."""
    return "" if plan.likely_s is None else f"likely {timedelta(seconds=round(plan.likely_s))}, "


def _format_asked(plan: TrainingPlan, what: str) -> str:
    """Format the questions to models other than the policies; empty if there are none."""
    told = ""
    for part in plan.labels:
        if part.asked is None:
            told += f", {UNKNOWN} of the {part.name}"
        elif part.asked.calls.high:
            count = part.asked.calls if what == "calls" else part.asked.prompt_tokens.plus(part.asked.completion_tokens)
            told += f", {_format_range(count)} of the {part.name}"
    return told


def _format_cost(plan: TrainingPlan) -> str:
    if plan.usd is None:
        return f"{UNKNOWN}: an agents file names no prices (usd_per_million_prompt, …)"
    if not plan.usd.high:
        return "0 USD: everything is computed on this machine"
    return f"{plan.usd.low:,.2f} to {plan.usd.high:,.2f} USD, by the prices in the agents files"


def _estimate_disk(config: TrainingConfig, calls: Range, estimate: Estimate) -> Range:
    """Estimate the bytes on disk: at the end, and at most while an epoch trains."""
    method, found = config.method, estimate.training
    recipe = method.recipe
    written = found.trainable if method.is_adapter_kept else found.parameters
    checkpoint = written * (4 if recipe.saved == "float32" else 2)
    held = 4 if recipe.weights == "float32" else 2
    weights = held * found.parameters if recipe.lora is None else 4 * found.trainable
    state = weights + 8 * found.trainable  # of the optimizer, two numbers for each
    kept = method.epochs * len(config.groups) * checkpoint + (recipe.keep + 1) * state
    return calls.times(BYTES_PER_CALL).plus(Range(low=0, high=kept))


def _list_budgets(run: RunConfig, suite: Suite) -> dict[str, int]:
    """Return the step budget of each task of a suite in a run."""
    return {info.name: run.environment.limits.limit_steps(info.max_steps) for info in suite.tasks()}


def _estimate_steps(
    config: TrainingConfig, run: RunConfig, budgets: Mapping[str, int], held_out: Mapping[str, int]
) -> tuple[Range, Range]:
    """Estimate the steps of all rollouts with their branches, and of one evaluation on all held-out seeds.

    Args:
        budgets: step budgets of a rollout's tasks.
        held_out: step budgets of an evaluation's tasks.
    """
    measured = [episode for one in config.held_out for episode in plan_episodes(one)]
    tested, rolled, beyond = _count_steps(measured, held_out), ZERO, run.concurrency * max(budgets.values())
    for number in _list_played(config):
        episodes = config.method.get_episodes(number)
        planned = run if episodes is None else run.model_copy(update={"episodes": episodes})
        whole = _count_steps(plan_episodes(planned), budgets)
        first = _limit_steps(whole, config.method.get_steps(number), beyond)
        # Episodes of all their steps reach a limit with the fewest of them, each with a step in each branch.
        fewest = whole.low if first == whole else min(whole.low, math.ceil(first.low / max(budgets.values())))
        rolled = rolled.plus(first).plus(Range(low=fewest, high=first.high).times(config.method.branches))
    return rolled, tested


def _list_played(config: TrainingConfig) -> list[int]:
    """List the epochs whose rollouts are played."""
    return [number for number in range(1, config.method.epochs + 1) if config.is_played(number)]


def _count_steps(episodes: Sequence[Episode], budgets: Mapping[str, int]) -> Range:
    """Return the steps of some episodes: at least one each, at most the budgets of their tasks."""
    return Range(low=len(episodes), high=sum(budgets[one.task] for one in episodes))


def _limit_steps(rolled: Range, steps: int | None, beyond: int) -> Range:
    """Limit a rollout to `steps`; up to `beyond` more are played by episodes already begun."""
    if steps is None:
        return rolled
    return Range(low=min(rolled.low, steps), high=min(rolled.high, steps + beyond))
