"""What of an epoch is judged and paired; both lie beside its rollout, under the name `marl`."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from collab.collector import Progress as Meter
from collab.config import Budget, Part, RunConfig
from collab.credit.adversary import FREE, label_of
from collab.credit.adversary_memory import FOLDER as PROPOSALS
from collab.credit.adversary_memory import ProposalMemory, RememberingAdversary
from collab.credit.case import cases
from collab.credit.critic import Critic, Judgement
from collab.credit.labelling import Labelling, label, last_reply
from collab.credit.labels import FOLDER as LABELS
from collab.credit.labels import Labels, LabelWriter, labellings, read_labels
from collab.credit.language_prompt import TOO_LONG
from collab.credit.pair_store import FOLDER, HEAD, PairHead, StoredPairs, critic_digest, read_pairs, write_pairs
from collab.credit.pairing import OutOfPatience, Paired, Recipe, pair_up
from collab.credit.pairs import Pairing
from collab.credit.pairs_trajectory import trajectory_pairs
from collab.credit.rebuild import Rebuilder
from collab.envs.base import Suite
from collab.errors import RunFormatError
from collab.marl.config import MarlConfig
from collab.marl.layout import PAIRS, EpochFolder
from collab.marl.loop_state import Loop
from collab.marl.row_store import stored
from collab.preferences.adversaries import SAMPLER, AdversaryChoice, adversary_of, deciding, opened_adversary
from collab.preferences.allowance import AllowedAdversary, Exhausted
from collab.preferences.parties import opened_critic
from collab.resolve import build_suite
from collab.store.cost import total
from collab.store.run import RunStore
from collab.types import Trajectory

NAME = PAIRS
"""Of the judgements and of the pairs."""
NO_COUNTERPART = "an episode without one of the same task that ended otherwise"
"""Counted of whole trajectories."""


async def judged(loop: Loop, run: RunConfig, folder: EpochFolder, played: Sequence[Trajectory]) -> Labels | None:
    """The judgements that the method learns from; None where it asks nobody.

    Once pairs or rows were made of them nobody is asked any more: a step that is unjudged stays it, and what was made
    and what is told of it agree.

    Raises:
        UnknownName: there are pairs or rows, and the judgements behind them are gone.
        And all of `judge`.
    """
    if not loop.config.method.is_judged:
        return None
    if _is_paired(folder.rollout) or stored(folder.rows) is not None:
        return read_labels(folder.rollout, NAME)
    return await judge(loop, run, folder.rollout, played)


async def compared(
    loop: Loop, run: RunConfig, out: Path, played: Sequence[Trajectory], labels: Labels | None
) -> StoredPairs | None:
    """The pairs that the method learns from, made or read; None where it compares nothing.

    Raises:
        RunFormatError: they rest on other judgements than `labels`, or were made in another way than the method says.
        And all of `pair`.
    """
    if loop.config.method.objective == "rft":
        return None
    if labels is None:
        pairs = _whole_pairs(loop, run, out, played)
    else:
        pairs = await pair(loop, run, out, played, labels)
    _check_pairs(pairs.head, labels, loop.config, run, out)
    return pairs


async def judge(loop: Loop, run: RunConfig, out: Path, played: Sequence[Trajectory]) -> Labels:
    """Have every step of a rollout judged that is not judged yet, and read the judgements.

    A step about which nobody could be asked stays unjudged and is counted; ten in a row stop the training, and so does
    more than half of all. So do answers without a single score.

    Raises:
        Halted: it stopped before its end, or knows less than half of it.
        StoreFailure: the judgements cannot be written.
    """
    loop.begin("critic")
    suite = build_suite(run)
    with loop.timed("critic", whole=NAME not in labellings(out) or "critic" in loop.seconds):
        try:
            if _is_left(out, played, suite):
                told = await _label(loop, run, out, played, suite)
                loop.spend(told.spent)
                loop.halt(told.stopped)
        finally:
            await suite.close()
    labels = read_labels(out, NAME)
    loop.halt(_mostly_unjudged(labels, out))
    return labels


def _mostly_unjudged(labels: Labels, out: Path) -> str | None:
    """Why an epoch cannot be learned from, where a critic judged less than half of it; else None.

    It may not have been reached, have answered without a score, or not have been asked for want of room; what counts is
    their sum. Who goes on asks again only about steps for which it was not reached: where these decide, nothing else is
    left to do, and the message names them first.
    """
    judged, failed = list(labels.judged.values()), list(labels.failed.values())
    silent = [one for one in judged if one.silent]
    long = [one for one in judged if _is_too_long(one) and not one.silent]
    steps = len(failed) + len(judged)
    if 2 * (len(failed) + len(silent) + len(long)) <= steps:
        return None
    too_long = (len(long), f"{len(long)} of {steps} steps do not fit into the critic's context")
    mute = (len(silent), f"the critic gave no score about {len(silent)} of {steps} steps")
    unreached = (len(failed), f"the critic could not be asked about {len(failed)} of {steps} steps")
    if 2 * (len(silent) + len(long)) <= steps:
        causes, more = [unreached, too_long, mute], f"the last: {failed[-1].message}"
    elif len(long) >= len(silent):
        causes = [too_long, mute, unreached]
        more = (
            "begin another training with a larger context_tokens in the critic's agents file, or with a smaller "
            "history there"
        )
    else:
        causes = [mute, too_long, unreached]
        more = (
            f"{last_reply(silent[-1])}; begin another training with another critic, or remove {out / LABELS / NAME} to "
            "have this one asked again"
        )
    return "; ".join([", ".join(told for count, told in causes if count), more])


def _is_too_long(one: Judgement) -> bool:
    """Whether nothing of a step was shown to the critic, because it does not fit."""
    return TOO_LONG in one.missing and all(cell.score is None for cell in one.rewards.rewards)


def _mostly_unasked(made: Paired) -> str | None:
    """Why pairs are not learned from, where asking the adversary failed for more than half of the steps; else None."""
    failed = sum(made.failed.values())
    if 2 * failed <= made.asked:
        return None
    causes = ", ".join(f"{count} {name}" for name, count in made.failed.items())
    return f"asking the adversary, or trying its answers, failed for {failed} of {made.asked} steps ({causes})"


def _is_left(out: Path, played: Sequence[Trajectory], suite: Suite) -> bool:
    """Whether the critic is to be asked about anything; opening one for nothing may take a server's time."""
    if NAME not in labellings(out):
        return True
    known = read_labels(out, NAME)
    return any(known.of(case) is None for one in played for case in cases(one, suite.space))


async def _label(loop: Loop, run: RunConfig, out: Path, played: Sequence[Trajectory], suite: Suite) -> Labelling:
    states = Rebuilder(suite)
    async with asking(loop, run, out, loop.left()) as (critic, writer):
        return await label(
            (case for one in played for case in cases(one, suite.space, states)),
            critic,
            writer,
            concurrency=run.concurrency,
            budget=loop.left(),
            stop=loop.stop,
            watch=loop.inner,
            so_far=Labelling(threshold=loop.config.method.pairs.threshold),
        )


@contextlib.asynccontextmanager
async def asking(loop: Loop, run: RunConfig, out: Path, budget: Budget) -> AsyncIterator[tuple[Critic, LabelWriter]]:
    """The critic of a rollout, and where its words are written; raises as `opened_critic` and `LabelWriter`."""
    choice, call_s = loop.config.judging(NAME, run.seed), run.environment.limits.call_s
    async with opened_critic(choice, budget, call_s, loop.stop) as (critic, head):
        with LabelWriter(out, NAME, head) as writer:
            yield critic, writer


async def pair(loop: Loop, run: RunConfig, out: Path, played: Sequence[Trajectory], labels: Labels) -> StoredPairs:
    """Pair a judged rollout, or read the pairs that are there.

    Raises:
        Halted: asking the adversary, or trying its answers, failed for ten steps in a row, or for most; what was
            answered is kept.
        EnvironmentFailure, ModelFailure: whoever is to be asked cannot be reached.
        StoreFailure: the pairs cannot be written.
    """
    if not _is_paired(out):
        loop.begin("adversary")
        suite = build_suite(run)
        with loop.timed("adversary", whole=not (out / PROPOSALS).exists()):
            try:
                await _pair(loop, run, out, played, labels, suite)
            finally:
                await suite.close()
    return read_pairs(out, NAME)


async def _pair(
    loop: Loop, run: RunConfig, out: Path, played: Sequence[Trajectory], labels: Labels, suite: Suite
) -> None:
    recipe, asks = loop.config.method.pairs.recipe(run.seed), loop.config.method.asks_an_adversary
    choice = loop.config.erring if asks else AdversaryChoice(part=Part(kind=SAMPLER))  # which is never asked then
    meter, budget, call_s = Meter(planned=0), loop.left(), run.environment.limits.call_s
    loop.inner(meter)
    with ProposalMemory(out) as memory, RunStore.open(out).reader() as reader:
        async with opened_adversary(choice, budget, call_s, loop.stop) as adversary:
            allowed = AllowedAdversary(
                adversary=adversary, budget=budget, meter=meter, stop=loop.stop, at_once=run.concurrency
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
                loop.spend(meter)
            loop.halt(stopped)
            who = label_of(adversary) if asks else None
        loop.halt(_mostly_unasked(made))  # before its pairs are there: who goes on asks again
        made = replace(made, spent=total([made.spent, *remembering.recalled]))  # by processes that died, too
        write_pairs(out, NAME, made, recipe=recipe, labels=labels, adversary=who, options=choice.told if asks else {})


def _whole_pairs(loop: Loop, run: RunConfig, out: Path, played: Sequence[Trajectory]) -> StoredPairs:
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
        write_pairs(out, NAME, made, recipe=loop.config.method.pairs.recipe(run.seed), labels=None, adversary=None)
    return read_pairs(out, NAME)


def _is_paired(out: Path) -> bool:
    return (out / FOLDER / NAME / HEAD).exists()


def _check_pairs(head: PairHead, labels: Labels | None, config: MarlConfig, run: RunConfig, out: Path) -> None:
    """RunFormatError where pairs are not what this training makes of the judgements that lie beside them."""
    others = _made_otherwise(head, labels, config, run)
    if others is not None:
        raise RunFormatError(
            f"{out}: its pairs {NAME!r} {others}; remove {out / FOLDER / NAME}, and they are made again as they are "
            "to be"
        )


def _made_otherwise(head: PairHead, labels: Labels | None, config: MarlConfig, run: RunConfig) -> str | None:
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
