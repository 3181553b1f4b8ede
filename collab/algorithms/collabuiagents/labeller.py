"""The labeller: a critic judges every cell of a rollout, and the judgements give pairs.

Both lie beside the rollout, under the name `training`. A critic can judge while later episodes are still played:

    async with judge_ahead(state, run, out):
        await roll_out(state, run, out)
    labels = await judge_rollout(state, run, out, played)           # asks about the rest

An episode is judged once it is recorded and sure to be learned from. A judgement depends only on the step, the critic
and its seed, and no step is asked twice. So labels, pairs and hashes are those of a critic that judges afterwards,
wherever the training was killed.

Judging ahead is for critics on another machine. One that computes in this process (the oracle, a local model) would
slow the rollout and use memory. With limits on money or tokens, one part spends at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from collab.algorithms.collabuiagents.config import CollabConfig
from collab.algorithms.collabuiagents.metrics import (
    CollabCounts,
    CollabMetrics,
    hash_pairs,
    label_metrics,
    list_judgements,
    measure_disagreement,
)
from collab.algorithms.judging import hash_judgements, judge_rollout, open_labelling
from collab.config import PartDefinition, RunConfig
from collab.envs.base import Suite
from collab.errors import CollabError, RunFormatError
from collab.loop.examples import read_counts
from collab.loop.interfaces import Labels as Labels
from collab.loop.interfaces import Rollout
from collab.loop.phases import refuse_barren_rollout
from collab.loop.record import LABELS
from collab.loop.state import Halted, LoopState
from collab.loop.step_budget import plan_order, select_certain
from collab.preferences.adversary import AdversaryBudgetSpent, BudgetedAdversary, label_of
from collab.preferences.pairs import PairRecipe, RunPairs, TooManyFailures, build_run_pairs
from collab.preferences.proposals import FOLDER as PROPOSALS
from collab.preferences.proposals import ProposalMemory, RememberingAdversary
from collab.preferences.registry import SAMPLER, AdversaryChoice, open_adversary, read_adversary, select_deciding
from collab.preferences.store import FOLDER, HEAD, PairHead, PairSet, hash_critic, read_pairs, write_pairs
from collab.preferences.trajectory_pairs import build_trajectory_pairs
from collab.rewards.base import CriticInput, build_inputs
from collab.rewards.labelling import LabellingProgress, label_cases
from collab.rewards.labels import LabelSet, list_label_sets, read_labels
from collab.rewards.registry import MODEL
from collab.rewards.restore import StateRebuilder
from collab.rollout.collector import UsageMeter
from collab.store.manifest import FILE
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.types import Trajectory, Usage
from collab.utils.text import format_amount

_SERVED = frozenset({"openai"})
"""Engines that compute elsewhere."""
_FEW, _RARE = 100, 0.2
"""Pairs, or rewarded replies, and share of rewarded cells below which a first rollout is said to teach little."""
_LOOK_S = 0.2
"""Seconds between two looks for finished episodes."""


def get_config(state: LoopState) -> CollabConfig:
    """Return the configuration of a training of this algorithm."""
    assert isinstance(state.config, CollabConfig), "the loop gives each algorithm its own configuration"
    return state.config


def is_waited_for(state: LoopState) -> bool:
    """Return whether judging only waits for another machine: see above."""
    # Judging ahead pays only where the critic's machine is not ours, and no limit makes the parts compete.
    engine = get_config(state).critic.options.get(MODEL)
    served = isinstance(engine, dict) and engine.get("kind") in _SERVED
    return get_config(state).method.is_judged and served and state.budget.usd is None and state.budget.tokens is None


@contextlib.asynccontextmanager
async def judge_ahead(state: LoopState, run: RunConfig, out: Path) -> AsyncIterator[None]:
    """Judge episodes of the rollout that the block plays; do nothing if that gains no time.

    After the block the rest is judged, and that is the critic's time. If the block fails, only questions on their way
    are still answered. Failures to ask or to write are not reported here: `judge_rollout` tries again and
    reports them.

    Raises:
        Halted: nothing more may be spent after the block.
    """
    if not is_waited_for(state):
        yield
        return
    # `whole` is looked at before the task begins, for its first label makes the folder.
    whole, over = LABELS not in list_label_sets(out), asyncio.Event()
    told = LabellingProgress(threshold=get_config(state).method.pairs.threshold)
    judging = asyncio.create_task(_judge(state, run, out, over, told))
    failed: BaseException | None = None
    try:
        yield
        state.begin("critic")
        # Only now the display changes to the critic: while episodes are played, they are what is shown.
        state.progress.inner = told
    except asyncio.CancelledError as error:
        # Cancelled: no answer is waited for, so questions on their way are given up.
        judging.cancel()
        failed = error
        raise
    except Exception as error:
        # The rollout failed: its questions on the way are paid for, so they are answered and stored.
        told.stopped, failed = repr(error), error
        raise
    finally:
        # Signalled first, then waited for: the task ends its loop at the next look.
        over.set()
        try:
            with state.time_part("critic", whole=whole):
                await _finish_judging(judging, failed)
        finally:
            # Also after a failure: what was asked ahead was paid for.
            state.spend(told.spent)


async def _finish_judging(judging: asyncio.Task[None], failed: BaseException | None) -> None:
    """Wait for the judging; an error of the block is raised, one of judging beside it is not."""
    if failed is None:
        await judging
        return
    # The rollout's error is the cause; that of judging beside it becomes a note and hides nothing.
    (beside,) = await asyncio.gather(judging, return_exceptions=True)
    if isinstance(beside, Exception):
        failed.add_note(f"judging ahead failed, too: {beside!r}")


async def _judge(state: LoopState, run: RunConfig, out: Path, over: asyncio.Event, told: LabellingProgress) -> None:
    # The manifest is the first file of a run: before it there is no log to follow.
    while not over.is_set() and not (out / FILE).exists():
        await _pause(over)
    if over.is_set():
        return
    # What fails here fails again in `judge_rollout`, where it is reported; it must not break the rollout.
    with contextlib.suppress(CollabError, Halted):
        await _follow(state, run, out, await state.open_suite(run), over, told)


async def _follow(
    state: LoopState, run: RunConfig, out: Path, suite: Suite, over: asyncio.Event, told: LabellingProgress
) -> None:
    """Judge until the rollout is over and judged, or until something stops that."""
    steps, many, budget = get_config(state).method.steps, run.concurrency, state.compute_left()
    async with open_labelling(state, run, out, budget) as (critic, writer):
        with RunStore.open(out).open_reader() as reader:
            # With a step budget the rollout may drop late episodes: only those that are sure to be kept are judged.
            rest = _RolloutSteps(
                reader=reader, suite=suite, steps=steps, order=() if steps is None else plan_order(reader)
            )
            last = False
            # One look more after the rollout is over, or its last episodes would be left.
            while not last and told.stopped is None:
                last = over.is_set()
                # Each pass takes the episodes that have ended since the last one.
                found = rest.iterate_inputs()
                await label_cases(found, critic, writer, concurrency=many, budget=budget, stop=state.stop, so_far=told)
                await _pause(over)


async def _pause(over: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), _LOOK_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RolloutSteps:
    """Finished episodes, each taken once."""

    reader: RunReader
    suite: Suite
    steps: int | None
    """Steps that end the rollout; None if all its episodes belong to it."""
    order: Sequence[str]
    """All planned episodes, if it has `steps`."""
    taken: set[str] = field(default_factory=set)
    states: StateRebuilder = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", StateRebuilder(self.suite))

    def iterate_inputs(self) -> Iterator[CriticInput]:
        """Yield the steps of finished episodes that were not taken yet, and of those that end meanwhile."""
        # Episodes may end while earlier ones are judged: look again until a look finds nothing new.
        while fresh := self._list_fresh():
            for name in fresh:
                self.taken.add(name)
                yield from build_inputs(self.reader.read_trajectory(name), self.suite.space, self.states)

    def _list_fresh(self) -> list[str]:
        # The rollout appends to the same log meanwhile.
        self.reader.refresh()
        # One that broke may be played again, and then have steps: what lies behind it in the plan is not sure yet.
        over = {one.id: one.steps for one in self.reader.list_episodes() if one.state == "finished"}
        sure = over if self.steps is None else select_certain(over, self.order, self.steps)
        return [name for name in sure if name not in self.taken]


NO_COUNTERPART = "an episode without one of the same task that ended otherwise"
"""Counted of whole trajectories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRollout:
    """Labels of a rollout for the learner."""

    labels: LabelSet | None
    """None if no critic was asked."""
    pairs: PairSet | None
    """None if nothing is compared."""


class CreditLabeller:
    """Judges and pairs a rollout; see `Labeller`."""

    def label_while_playing(self, state: LoopState, run: RunConfig, out: Path) -> AbstractAsyncContextManager[None]:
        """Judge finished episodes while others are played, if the critic is on another machine."""
        return judge_ahead(state, run, out)

    async def label(self, state: LoopState, rollouts: Sequence[Rollout]) -> Sequence[Labels]:
        """Judge and pair the rest of each rollout, and read all of it; raises as `judge_rollout` and `pair_rollout`."""
        return [await self._label_one(state, rollout) for rollout in rollouts]

    async def _label_one(self, state: LoopState, rollout: Rollout) -> Labels:
        config, run = get_config(state), rollout.run
        threshold = config.method.pairs.threshold
        # First all judgements, then pairs: whether a team erred is known only of whole episodes.
        labels = await label_rollout(state, rollout)
        # Shown before pairing, which may take as long again.
        disagreeing = measure_disagreement(rollout.trajectories)
        known = label_metrics(labels, None, run, threshold, disagreeing)
        state.progress.update(metrics=known.model_dump(mode="json"))
        pairs = await pair_rollout(state, rollout, labels)
        _check_first_rollout(state, rollout, known, None if pairs is None else len(pairs.pairs))
        hashes, spent = {}, {}
        # Only what the objective uses has a hash and a price.
        if labels is not None:
            hashes["critic"], spent["critic"] = hash_judgements(list_judgements(labels)), labels.spent
        if pairs is not None:
            hashes["pairs"] = hash_pairs(pairs.pairs)
        if pairs is not None and labels is not None:
            spent["adversary"] = pairs.head.spent
        return Labels(
            value=JudgedRollout(labels=labels, pairs=pairs),
            metrics=label_metrics(labels, pairs, run, threshold, disagreeing).model_dump(mode="json"),
            spent=spent,
            hashes=hashes,
        )

    def read_spent(self, rollout: Path) -> Usage:
        """Return the usage of a rollout's judgements; the adversary's is counted with its pairs."""
        return read_labels(rollout, LABELS).spent if LABELS in list_label_sets(rollout) else Usage()


def _check_first_rollout(state: LoopState, rollout: Rollout, known: CollabMetrics, pairs: int | None) -> None:
    """Warn if a training's first rollout can teach little; stop the training if it can teach nothing.

    Args:
        pairs: number of pairs; None if rewarded replies are learned instead.

    Raises:
        NothingToLearn: there is no pair, or no rewarded reply.
    """
    if rollout.number > 1:
        return
    # What there is to learn: pairs, or with `rft` rewarded cells.
    learned = round((known.rewarded or 0) * known.judged) if pairs is None else pairs
    noun = ("rewarded reply", "rewarded replies") if pairs is None else ("pair", "pairs")
    judged = get_config(state).method.is_judged
    if not judged:
        solved = sum(one.success for one in rollout.trajectories)
        right = f"{solved} of {format_amount(len(rollout.trajectories), 'episode')} solved"
    elif known.rewarded is None:
        right = "no cell has a score"
    else:
        right = f"{known.rewarded:.1%} of {known.judged} cells rewarded"
    facts = f"{format_amount(learned, *noun)}, {right}, agents disagree in {known.disagreeing or 0:.1%} of states"
    steps = 2 * (get_config(state).method.steps or sum(len(one.steps) for one in rollout.trajectories))
    advice = (
        "hotter exploration (--set exploration_temperatures=1.5), another base (--agents) or more steps "
        f"(--set steps={steps})"
    )
    if not learned:
        refuse_barren_rollout(rollout, facts, advice)
    # Also where there is enough to learn, as from an adversary's pairs or from rewarded replies.
    if len(rollout.run.agents) > 1 and known.disagreeing == 0:
        state.note(
            "no two agents of the first rollout proposed different actions in any state, so neither votes nor edges "
            "change anything; begin another training with hotter exploration (--set exploration_temperatures=1.5) or "
            "another base (--agents)"
        )
    # One pair of whole episodes compares many replies: the numbers below are for pairs of replies.
    if judged and (learned < _FEW or (known.rewarded or 0) < _RARE):
        state.note(
            f"the first rollout can teach little: {facts} (little is below {_FEW} or below {_RARE:.0%} rewarded); if "
            f"nothing improves, begin another training with {advice}"
        )


async def label_rollout(state: LoopState, rollout: Rollout) -> LabelSet | None:
    """Return the judgements that the method learns from; None if it asks no critic.

    Once pairs or examples exist, the critic is not asked any more: unjudged steps stay unjudged, so that records agree.

    Raises:
        UnknownName: there are pairs or examples, and the judgements behind them are gone.
        And all of `judge_rollout`.
    """
    if not get_config(state).method.is_judged:
        return None
    # Pairs or examples fix the judgements they rest on: more of them now would contradict what is written.
    made = read_counts(state.folder.get_epoch(rollout.number).examples, CollabCounts) is not None
    if made or _is_paired(rollout.path):
        return read_labels(rollout.path, LABELS)
    return await judge_rollout(state, rollout.run, rollout.path, rollout.trajectories)


async def pair_rollout(state: LoopState, rollout: Rollout, labels: LabelSet | None) -> PairSet | None:
    """Make or read the pairs that the method learns from; None if it compares nothing.

    Raises:
        RunFormatError: they rest on other judgements than `labels`, or on another recipe than the method's.
        And all of `pair_judged`.
    """
    config, run, out = get_config(state), rollout.run, rollout.path
    if config.method.objective == "rft":
        return None
    if labels is None:
        # Without a critic, the outcome alone says which of two episodes is better.
        pairs = _load_whole_pairs(config, run, out, rollout.trajectories)
    else:
        pairs = await pair_judged(state, rollout, labels)
    # Also for pairs that were read: a changed recipe must not train on pairs of the old one.
    _check_pairs(pairs.head, labels, config, run, out)
    return pairs


def _explain_unasked(made: RunPairs) -> str | None:
    """Return why pairs are not learned from if asking the adversary mostly failed; else None."""
    failed = sum(made.failed.values())
    # More than half without an answer: the pairs that exist would be those of the luckier calls.
    if 2 * failed <= made.asked:
        return None
    causes = ", ".join(f"{count} {name}" for name, count in made.failed.items())
    return f"asking the adversary, or trying its answers, failed for {failed} of {made.asked} steps ({causes})"


async def pair_judged(state: LoopState, rollout: Rollout, labels: LabelSet) -> PairSet:
    """Pair a judged rollout, or read its pairs.

    Raises:
        Halted: asking the adversary, or trying its answers, failed for ten steps in a row, or for most; its answers are
            kept.
        EnvironmentFailure, ModelFailure: the adversary or the environment cannot be reached.
        StoreFailure: the pairs cannot be written.
    """
    # Pairs are written at once at the end, so their head means that all of them are there.
    out = rollout.path
    if not _is_paired(out):
        state.begin("adversary")
        suite = await state.open_suite(rollout.run)
        # Proposals of an earlier process make this one's time a part of the whole.
        with state.time_part("adversary", whole=not (out / PROPOSALS).exists()):
            await _build_pairs(state, rollout, labels, suite)
    return read_pairs(out, LABELS)


async def _build_pairs(state: LoopState, rollout: Rollout, labels: LabelSet, suite: Suite) -> None:
    run, out = rollout.run, rollout.path
    # Where no source needs an adversary, the sampler stands in; it is never asked.
    recipe, asks = get_config(state).method.pairs.build_recipe(run.seed), get_config(state).method.has_adversary
    choice = (
        get_config(state).erring if asks else AdversaryChoice(part=PartDefinition(kind=SAMPLER))
    )  # which is never asked then
    meter, budget, call_s = UsageMeter(), state.compute_left(), run.environment.limits.call_s
    state.inner(meter)
    # Proposals are remembered on disk as they come: a kill, or a changed recipe, pays no reply twice.
    with ProposalMemory(out) as memory:
        # Inside out: the real adversary, then its budget, then the memory, so that remembered replies cost no budget.
        async with open_adversary(choice, budget, call_s, state.stop) as adversary:
            allowed = BudgetedAdversary(
                adversary=adversary, budget=budget, meter=meter, stop=state.stop, at_once=run.concurrency
            )
            remembering = RememberingAdversary(allowed, memory, options=select_deciding(choice.as_json))
            stopped = None
            try:
                made = await build_run_pairs(
                    rollout.trajectories,
                    labels,
                    recipe,
                    space=suite.space,
                    prefix=rollout.reader.read_prefix,
                    adversary=remembering,
                    states=StateRebuilder(suite),
                    concurrency=run.concurrency,
                )
            except (AdversaryBudgetSpent, TooManyFailures) as reached:
                # Both leave replies in the memory and no pairs on disk: a resume continues from there.
                stopped = str(reached)
            finally:
                state.spend(meter.spent)
            # Halted outside the `try`, so that what was spent is counted first.
            state.halt(stopped)
            who = label_of(adversary) if asks else None
        state.halt(_explain_unasked(made))  # before its pairs are stored: a resume asks again
        made = replace(made, spent=sum(remembering.recalled, made.spent))  # by processes that died, too
        write_pairs(
            out, LABELS, made, recipe=recipe, labels=labels, adversary=who, options=choice.as_json if asks else {}
        )


def _load_whole_pairs(config: CollabConfig, run: RunConfig, out: Path, played: Sequence[Trajectory]) -> PairSet:
    """Return pairs of solved with unsolved episodes; those without a counterpart are counted."""
    # Written once, like all pairs; outcomes do not change.
    if not _is_paired(out):
        pairs = build_trajectory_pairs(played, run.seed)
        # Episodes that broke have no outcome: they are on no side, and lack no counterpart.
        alone = sum(one.outcome is not None for one in played) - 2 * len(pairs)
        made = RunPairs(pairs=pairs, counts=+Counter({"trajectory": len(pairs), NO_COUNTERPART: alone}))
        write_pairs(out, LABELS, made, recipe=config.method.pairs.build_recipe(run.seed), labels=None, adversary=None)
    return read_pairs(out, LABELS)


def _is_paired(out: Path) -> bool:
    return (out / FOLDER / LABELS / HEAD).exists()


def _check_pairs(head: PairHead, labels: LabelSet | None, config: CollabConfig, run: RunConfig, out: Path) -> None:
    """Check that pairs match this training's recipe and the judgements beside them; else RunFormatError."""
    others = _explain_difference(head, labels, config, run)
    if others is not None:
        raise RunFormatError(
            f"{out}: its pairs {LABELS!r} {others}; remove {out / FOLDER / LABELS}, and they are made again as they "
            "are to be"
        )


def _explain_difference(head: PairHead, labels: LabelSet | None, config: CollabConfig, run: RunConfig) -> str | None:
    """Return how pairs differ from this training's, in words; None if they do not."""
    # From the coarsest to the finest difference, so that the message names the cause and not a consequence.
    critic = None if labels is None else labels.head.critic
    if head.critic != critic:
        return f"were made of judgements by {head.critic}, there are those by {critic}"
    if head.critic_digest != (None if labels is None else hash_critic(labels.head)):
        return f"were made of judgements by {critic} that was asked in another way or with another seed"
    wanted = config.method.pairs.build_recipe(run.seed)
    if head.recipe != wanted:
        return f"were made by the recipe {_describe_recipe(head.recipe)}, this training's is {_describe_recipe(wanted)}"
    asked = labels is not None and config.method.has_adversary
    # Options of an adversary that is never asked are not stored, so there is nothing to compare.
    if asked and read_adversary(head).as_json != config.erring.as_json:
        return "were made with another adversary, or with one that was asked in another way"
    return None


def _describe_recipe(one: PairRecipe) -> str:
    """Return a recipe in words."""
    return (
        f"{','.join(f'{name}={weight:g}' for name, weight in one.sources.weights.items())} "
        f"threshold={one.threshold:g} cap={one.cap or 'none'} attempts={one.attempts} "
        f"stop_at_first_error={str(one.stop_at_first_error).lower()} seed={one.seed}"
    )
