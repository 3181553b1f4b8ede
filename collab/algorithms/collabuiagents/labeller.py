"""The labeller: a critic judges every cell of a rollout, and pairs are made of its judgements.

Both lie beside the rollout, under the name `training`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from collab.algorithms.collabuiagents.config import CollabConfig
from collab.algorithms.collabuiagents.judge import config_of, judge, judging_ahead
from collab.algorithms.collabuiagents.metrics import (
    CollabCounts,
    judged_hash,
    judgements_of,
    label_metrics,
    pairs_hash,
    spent_on_judging,
)
from collab.collector import Progress as Meter
from collab.config import Part, RunConfig
from collab.credit.adversary import label_of
from collab.credit.adversary_memory import FOLDER as PROPOSALS
from collab.credit.adversary_memory import ProposalMemory, RememberingAdversary
from collab.credit.labels import Labels, labellings, read_labels
from collab.credit.pair_store import FOLDER, HEAD, PairHead, StoredPairs, critic_digest, read_pairs, write_pairs
from collab.credit.pairing import OutOfPatience, Paired, Recipe, pair_up
from collab.credit.pairs import Pairing
from collab.credit.pairs_trajectory import trajectory_pairs
from collab.credit.rebuild import Rebuilder
from collab.envs.base import Suite
from collab.errors import RunFormatError
from collab.loop.example_store import stored
from collab.loop.interfaces import Labels as EpochLabels
from collab.loop.interfaces import Rollout
from collab.loop.layout import LABELS as NAME
from collab.loop.state import LoopState
from collab.preferences.adversaries import SAMPLER, AdversaryChoice, adversary_of, deciding, opened_adversary
from collab.preferences.allowance import AllowedAdversary, Exhausted
from collab.resolve import build_suite
from collab.store.cost import total
from collab.store.run import RunStore
from collab.types import FREE, Spent, Trajectory

NO_COUNTERPART = "an episode without one of the same task that ended otherwise"
"""Counted of whole trajectories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRollout:
    """What the learner takes of a rollout."""

    labels: Labels | None
    """None where no critic was asked."""
    pairs: StoredPairs | None
    """None where nothing is compared."""


class CreditLabeller:
    """Judges and pairs a rollout; see `Labeller`."""

    def while_playing(self, state: LoopState, run: RunConfig, out: Path) -> AbstractAsyncContextManager[None]:
        """Judge episodes that are over while others are played, where the critic is waited for."""
        return judging_ahead(state, run, out)

    async def label(self, state: LoopState, rollout: Rollout) -> EpochLabels:
        """Judge and pair what is not yet, and read all of it; raises as `judge` and `pair`."""
        config, run = config_of(state), rollout.run
        threshold = config.method.pairs.threshold
        labels = await label_rollout(state, rollout)
        state.progress.tell(metrics=label_metrics(labels, None, run, threshold).model_dump(mode="json"))
        pairs = await pair_rollout(state, rollout, labels)
        hashes, spent = {}, {}
        if labels is not None:
            hashes["critic"], spent["critic"] = judged_hash(judgements_of(labels)), spent_on_judging(labels)
        if pairs is not None:
            hashes["pairs"] = pairs_hash(pairs.pairs)
        if pairs is not None and labels is not None:
            spent["adversary"] = pairs.head.spent
        return EpochLabels(
            value=JudgedRollout(labels=labels, pairs=pairs),
            metrics=label_metrics(labels, pairs, run, threshold).model_dump(mode="json"),
            spent=spent,
            hashes=hashes,
        )

    def spent(self, rollout: Path) -> Spent:
        """Return what judgements of a rollout took; what an adversary was paid is counted with its pairs."""
        return spent_on_judging(read_labels(rollout, NAME)) if NAME in labellings(rollout) else FREE


async def label_rollout(state: LoopState, rollout: Rollout) -> Labels | None:
    """Return the judgements that the method learns from; None where it asks no critic.

    Once pairs or examples were made of them the critic is not asked any more: a step that is unjudged stays it, and
    what was made and what is told of it agree.

    Raises:
        UnknownName: there are pairs or examples, and the judgements behind them are gone.
        And all of `judge`.
    """
    if not config_of(state).method.is_judged:
        return None
    made = stored(state.folder.epoch(rollout.number).examples, CollabCounts) is not None
    if made or _is_paired(rollout.path):
        return read_labels(rollout.path, NAME)
    return await judge(state, rollout.run, rollout.path, rollout.trajectories)


async def pair_rollout(state: LoopState, rollout: Rollout, labels: Labels | None) -> StoredPairs | None:
    """Return the pairs that the method learns from, made or read; None where it compares nothing.

    Raises:
        RunFormatError: they rest on other judgements than `labels`, or were made in another way than the method says.
        And all of `pair`.
    """
    config, run, out = config_of(state), rollout.run, rollout.path
    if config.method.objective == "rft":
        return None
    if labels is None:
        pairs = _whole_pairs(config, run, out, rollout.trajectories)
    else:
        pairs = await pair(state, run, out, rollout.trajectories, labels)
    _check_pairs(pairs.head, labels, config, run, out)
    return pairs


def _mostly_unasked(made: Paired) -> str | None:
    """Why pairs are not learned from, where asking the adversary failed for more than half of the steps; else None."""
    failed = sum(made.failed.values())
    if 2 * failed <= made.asked:
        return None
    causes = ", ".join(f"{count} {name}" for name, count in made.failed.items())
    return f"asking the adversary, or trying its answers, failed for {failed} of {made.asked} steps ({causes})"


async def pair(
    state: LoopState, run: RunConfig, out: Path, played: Sequence[Trajectory], labels: Labels
) -> StoredPairs:
    """Pair a judged rollout, or read the pairs that are there.

    Raises:
        Halted: asking the adversary, or trying its answers, failed for ten steps in a row, or for most; what was
            answered is kept.
        EnvironmentFailure, ModelFailure: whoever is to be asked cannot be reached.
        StoreFailure: the pairs cannot be written.
    """
    if not _is_paired(out):
        state.begin("adversary")
        suite = build_suite(run)
        with state.timed("adversary", whole=not (out / PROPOSALS).exists()):
            try:
                await _pair(state, run, out, played, labels, suite)
            finally:
                await suite.close()
    return read_pairs(out, NAME)


async def _pair(
    state: LoopState, run: RunConfig, out: Path, played: Sequence[Trajectory], labels: Labels, suite: Suite
) -> None:
    recipe, asks = config_of(state).method.pairs.recipe(run.seed), config_of(state).method.asks_an_adversary
    choice = config_of(state).erring if asks else AdversaryChoice(part=Part(kind=SAMPLER))  # which is never asked then
    meter, budget, call_s = Meter(planned=0), state.left(), run.environment.limits.call_s
    state.inner(meter)
    with ProposalMemory(out) as memory, RunStore.open(out).reader() as reader:
        async with opened_adversary(choice, budget, call_s, state.stop) as adversary:
            allowed = AllowedAdversary(
                adversary=adversary, budget=budget, meter=meter, stop=state.stop, at_once=run.concurrency
            )
            remembering = RememberingAdversary(allowed, memory, options=deciding(choice.told))
            stopped = None
            try:
                made = await pair_up(
                    played,
                    labels,
                    recipe,
                    space=suite.space,
                    prefix=reader.prefix,
                    adversary=remembering,
                    states=Rebuilder(suite),
                    concurrency=run.concurrency,
                )
            except (Exhausted, OutOfPatience) as reached:
                stopped = str(reached)
            finally:
                state.spend(meter)
            state.halt(stopped)
            who = label_of(adversary) if asks else None
        state.halt(_mostly_unasked(made))  # before its pairs are there: who goes on asks again
        made = replace(made, spent=total([made.spent, *remembering.recalled]))  # by processes that died, too
        write_pairs(out, NAME, made, recipe=recipe, labels=labels, adversary=who, options=choice.told if asks else {})


def _whole_pairs(config: CollabConfig, run: RunConfig, out: Path, played: Sequence[Trajectory]) -> StoredPairs:
    """Pairs of solved with unsolved episodes; those that have no counterpart are counted."""
    if not _is_paired(out):
        pairs = trajectory_pairs(played, run.seed)
        alone = sum(one.outcome is not None for one in played) - 2 * len(pairs)
        made = Paired(
            pairing=Pairing(pairs=pairs, counts=+Counter({"trajectory": len(pairs), NO_COUNTERPART: alone})),
            refused=Counter(),
            failed=Counter(),
            unjudged=0,
            untried=0,
            spent=FREE,
        )
        write_pairs(out, NAME, made, recipe=config.method.pairs.recipe(run.seed), labels=None, adversary=None)
    return read_pairs(out, NAME)


def _is_paired(out: Path) -> bool:
    return (out / FOLDER / NAME / HEAD).exists()


def _check_pairs(head: PairHead, labels: Labels | None, config: CollabConfig, run: RunConfig, out: Path) -> None:
    """RunFormatError where pairs are not what this training makes of the judgements that lie beside them."""
    others = _made_otherwise(head, labels, config, run)
    if others is not None:
        raise RunFormatError(
            f"{out}: its pairs {NAME!r} {others}; remove {out / FOLDER / NAME}, and they are made again as they are "
            "to be"
        )


def _made_otherwise(head: PairHead, labels: Labels | None, config: CollabConfig, run: RunConfig) -> str | None:
    """What is different about pairs, in words; None where they are as this training makes them."""
    critic = None if labels is None else labels.head.critic
    if head.critic != critic:
        return f"were made of judgements by {head.critic}, there are those by {critic}"
    if head.critic_digest != (None if labels is None else critic_digest(labels.head)):
        return f"were made of judgements by {critic} that was asked in another way or with another seed"
    wanted = config.method.pairs.recipe(run.seed)
    if head.recipe != wanted:
        return f"were made by the recipe {_recipe(head.recipe)}, this training's is {_recipe(wanted)}"
    asked = labels is not None and config.method.asks_an_adversary
    if asked and adversary_of(head).told != config.erring.told:
        return "were made with another adversary, or with one that was asked in another way"
    return None


def _recipe(one: Recipe) -> str:
    """A recipe in words."""
    return (
        f"{','.join(f'{name}={weight:g}' for name, weight in one.sources.weights.items())} "
        f"threshold={one.threshold:g} cap={one.cap or 'none'} attempts={one.attempts} "
        f"until_error={str(one.until_error).lower()} seed={one.seed}"
    )
