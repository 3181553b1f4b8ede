"""The algorithm that learns turns of judged episodes, and the labeller that judges them.

A subclass gives what `collab.loop.interfaces.Algorithm` asks for; its learner is a
`collab.algorithms.turn_learner.TurnLearner`. What all of them check, estimate and tell is here.

The setting `verifier` of the method names the verifier. With the rules, the default, nothing is asked and nothing is
written: the outcome is the environment's. Any other verifier's verdicts lie beside the rollout, `verdicts/training`, so
a killed process resumes where it stopped and no verdict is paid for twice. Beside a run that was recorded before the
training they bear the verifier's own name, and serve every training that learns from it.

An episode without a verdict is not learned and is counted. More than `MOST_MISSING` of them stop the epoch: what is
learned would depend on which questions failed. Held-out evaluations are always judged by the environment.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, SerializeAsAny

from collab.algorithms.experience import has_experience
from collab.algorithms.lesson_counts import summarize_kept
from collab.algorithms.turn_learner import ReplayMethod, TurnMethod, estimate_turns
from collab.config import Budget, Definition, PartDefinition, RunConfig, override
from collab.envs.base import Suite
from collab.errors import UsageError
from collab.library import Library
from collab.loop.config import Method, RecordedInput, TrainingConfig
from collab.loop.estimate import build_questions, count_prompt_tokens
from collab.loop.interfaces import Algorithm, Checked, EpochSummary, Labels, Rollout, TriedStep
from collab.loop.ranges import NONE_ASKED, Estimate, LabelEstimate, Questions, Range
from collab.loop.record import LABELS, EpochRecord
from collab.loop.state import LoopState
from collab.models.base import Model
from collab.rewards.calibration.record import FOLDER
from collab.rewards.labelling import describe_reply
from collab.rewards.registry import MODEL, doubt_key
from collab.rewards.verifiers.gate import check_verifier
from collab.rewards.verifiers.judge import EpisodeJudge
from collab.rewards.verifiers.registry import (
    RULES,
    VerifierChoice,
    VerifierDefinition,
    VerifierResources,
    find_verifier,
    open_verifier,
)
from collab.rewards.verifiers.rules import find_asked
from collab.rewards.verifiers.store import VERDICTS
from collab.rewards.verifiers.verdicts import (
    VerifiedRollout,
    VerifyingProgress,
    iterate_cases,
    read_verified,
    verify_rollout,
)
from collab.rollout.build import build_suite
from collab.store.run import RunStore
from collab.types import Usage
from collab.utils.text import format_amount, format_causes

PART = "verifier"
"""Name of the labelling in the records of an epoch."""
MOST_MISSING = 0.1
"""Largest share of an epoch's episodes that may be without a verdict."""


class TurnConfig(TrainingConfig):
    """A training that learns turns of judged episodes: the team and its verifier."""

    method: SerializeAsAny[TurnMethod]
    verifier: VerifierDefinition = VerifierDefinition(kind=RULES)
    """The verifier that judges rollouts; by default the environment itself."""
    verifier_texts: dict[str, str] = Field(default_factory=dict)
    """Template → text of its questions; empty if it asks nothing."""

    @property
    def verifier_choice(self) -> VerifierChoice:
        """Return the verifier as it was chosen."""
        return VerifierChoice(name=self.method.verifier, definition=self.verifier, texts=self.verifier_texts)


class VerdictCounts(Definition):
    """The verdicts of an epoch, for its record."""

    verifier: str
    judged: int
    """Episodes with a verdict."""
    successes: int
    """Episodes that the verifier calls successes."""
    agreeing: int
    """Verdicts that the environment's outcome agrees with."""
    inverted: int = 0
    """Verdicts that were inverted on purpose."""
    missing: dict[str, int] = Field(default_factory=dict)
    """Episodes without a verdict, by cause."""


class OutcomeLabeller:
    """Judges the episodes of an epoch; see `Labeller`."""

    def label_while_playing(self, state: LoopState, run: RunConfig, out: Path) -> AbstractAsyncContextManager[None]:
        """Do nothing: a question per episode takes little time beside its playing."""
        return contextlib.nullcontext()

    async def label(self, state: LoopState, rollouts: Sequence[Rollout]) -> Sequence[Labels]:
        """Judge what is not judged yet, and read all verdicts; nothing if the environment judges.

        Raises:
            Halted: it stopped before its end, or more than `MOST_MISSING` of the epoch's verdicts are missing.
            ModelFailure, UsageError, StoreFailure: as `verify_rollout`.
        """
        choice = _narrow_config(state.config).verifier_choice
        if choice.is_exact:
            return [Labels() for _ in rollouts]
        state.begin(PART)
        number = rollouts[0].number
        is_recorded = state.config.is_recorded(number)
        is_earlier = not is_recorded and not state.config.is_played(number)
        name = choice.labels if is_recorded else LABELS
        # What is learned was decided by the verdicts that were known then: an epoch that went further asks no more, and
        # none asks about the rollout of an earlier one, or of another training.
        if state.source is not None or is_earlier or has_experience(state.folder, number):
            verified = [
                read_verified(one.path, name, list(iterate_cases(one.trajectories, one.reader))) for one in rollouts
            ]
        else:
            verified = await _verify(state, rollouts, choice, name)
        counts = [count_verdicts(choice.name, one, rollout) for one, rollout in zip(verified, rollouts, strict=True)]
        if not is_earlier:
            _warn_if_alike(state, number, sum_counts(counts))
        return [
            Labels(
                value={name: float(success) for name, success in one.successes.items()},
                metrics={"verdicts": counted.model_dump(mode="json")},
                spent={} if is_earlier else {PART: one.spent},
                hashes={PART: one.digest},
            )
            for one, counted in zip(verified, counts, strict=True)
        ]

    def read_spent(self, rollout: Path) -> Usage:
        """Return the usage of a rollout's verdicts."""
        return VERDICTS.read(rollout, LABELS).spent if LABELS in VERDICTS.list_names(rollout) else Usage()


async def _verify(
    state: LoopState, rollouts: Sequence[Rollout], choice: VerifierChoice, name: str
) -> list[VerifiedRollout]:
    """Judge the rollouts of an epoch one after the other; raises `Halted` if one stops, or if too much is missing."""
    planned = sum(one.outcome is not None for rollout in rollouts for one in rollout.trajectories)
    found = list[VerifiedRollout]()
    for rollout in rollouts:
        found.append(await _verify_rollout(state, rollout, choice, name))
        # Looked at first: ten replies in a row without a verdict stop it, too, and this line has the next move.
        if found[-1].stopped is not None or rollout is rollouts[-1]:
            places = [VERDICTS.get_directory(one.path, name) for one in rollouts]
            state.halt(explain_missing(dict(zip(places, found, strict=False)), choice.name, planned))
        state.halt(found[-1].stopped)
    return found


async def _verify_rollout(state: LoopState, rollout: Rollout, choice: VerifierChoice, name: str) -> VerifiedRollout:
    run = rollout.run
    progress = VerifyingProgress(planned=sum(one.outcome is not None for one in rollout.trajectories))
    # Only the first labelling of a rollout is timed as a whole: a resumed one would report a part as the total.
    with state.time_part(PART, whole=name not in VERDICTS.list_names(rollout.path)):
        try:
            return await verify_rollout(
                rollout.trajectories,
                rollout.reader,
                choice,
                name=name,
                seed=run.seed if name == LABELS else 0,
                budget=state.compute_left(),
                call_s=run.environment.limits.call_s,
                concurrency=run.concurrency,
                stop=state.stop,
                progress=progress,
                watch=state.inner,
            )
        finally:
            state.spend(progress.spent)


def refuse_teams(algorithm: str, config: TrainingConfig) -> None:
    """Raise a UsageError for a graph in which several replies are given before each step."""
    graph = config.run.graph
    cells = len(graph.slots) * graph.rounds
    if cells > 1:
        raise UsageError(
            f"--algo {algorithm}: learns from what one agent said, but the graph has {cells} cells a step; use --graph "
            "single"
        )


def explain_missing(verified: Mapping[Path, VerifiedRollout], name: str, episodes: int) -> str | None:
    """Return why an epoch cannot be learned from if too many verdicts are missing; else None.

    Args:
        verified: directory of verdicts → these, of each rollout of the epoch.
        name: of the verifier.
        episodes: that should be judged.
    """
    silent = [one for found in verified.values() for one in found.verdicts.values() if one.missing is not None]
    failed = [why for found in verified.values() for why in found.failed.values()]
    missing, most = len(silent) + len(failed), MOST_MISSING * episodes
    if missing <= most:
        return None
    what = (
        f"verifier {name} gave no verdict on {missing} of {format_amount(episodes, 'episode')}, at most "
        f"{MOST_MISSING:.0%} may be missing"
    )
    if len(silent) <= most:
        # A resume asks about these again, so nothing else need change.
        return f"{what}: it could not be asked about {len(failed)}, the last: {failed[-1]}"
    causes, last = Counter(str(one.missing) for one in silent), silent[-1]
    told = [", ".join(f"{count} {cause}" for cause, count in causes.items())]
    if last.calls:
        # Beside a reply, its cause is named with it; one cause need not be named twice.
        told = [*(told if len(causes) > 1 else []), describe_reply(last.calls, [str(last.missing)])]
    places = [str(place) for place, found in verified.items() if found.missing]
    return (
        f"{what}: {'; '.join(told)}; begin another training with another verifier, or remove {' and '.join(places)} to "
        "have this one asked again"
    )


def count_verdicts(name: str, verified: VerifiedRollout, rollout: Rollout) -> VerdictCounts:
    """Count the verdicts of a verifier on a rollout."""
    told, outcomes = verified.successes, {one.id: one.success for one in rollout.trajectories}
    return VerdictCounts(
        verifier=name,
        judged=len(told),
        successes=sum(told.values()),
        agreeing=sum(success is outcomes[episode] for episode, success in told.items()),
        inverted=sum(one.original is not None for one in verified.verdicts.values()),
        missing=dict(verified.missing),
    )


def sum_counts(several: Sequence[VerdictCounts]) -> VerdictCounts:
    """Return the counts of several rollouts, judged by one verifier, as one."""
    missing = sum((Counter(one.missing) for one in several), Counter[str]())
    sums = {
        name: sum(getattr(one, name) for one in several) for name in ("judged", "successes", "agreeing", "inverted")
    }
    return VerdictCounts(verifier=several[0].verifier, missing=dict(missing), **sums)


def _warn_if_alike(state: LoopState, number: int, counts: VerdictCounts) -> None:
    """Warn that all verdicts are alike, so that they choose nothing; with no success at all, the learner refuses."""
    alike = counts.judged > 1 and counts.successes in (0, counts.judged)
    if alike and (counts.successes or number > 1):
        what = "successes" if counts.successes else "failures"
        state.note(
            f"epoch {number}: verifier {counts.verifier} calls all {counts.judged} episodes {what}, so its "
            f"verdicts choose nothing; the environment agrees in {counts.agreeing}"
        )


class TurnAlgorithm(Algorithm):
    """An algorithm that learns turns of judged episodes; a subclass gives what `Algorithm` asks for."""

    method: ClassVar[type[Method]] = TurnMethod
    config: ClassVar[type[TrainingConfig]] = TurnConfig
    options: ClassVar[Mapping[str, Any]] = {"calibrations": FOLDER, "allow_uncalibrated": False}
    toy_options: ClassVar[Mapping[str, Any]] = {"allow_uncalibrated": True}  # no verifier was measured for a toy
    can_replay = True
    labeller = OutcomeLabeller()

    def configure(self, library: Library, method: Method) -> dict[str, Any]:
        """Return the verifier with the content of its file."""
        assert isinstance(method, TurnMethod), "the loop gives each algorithm its own method"
        choice = find_verifier(library, method.verifier)
        return {"verifier": choice.definition, "verifier_texts": dict(choice.texts)}

    def learn_recorded(self, method: Method, recorded: Sequence[RecordedInput]) -> Method:
        """Return the method with an offline phase of these runs; a method without one gets one like its epochs."""
        if not isinstance(method, ReplayMethod):
            return super().learn_recorded(method, recorded)
        steps = sum(one.steps for one in recorded)
        if method.offline is None:
            return override(method, [f"offline={{steps: {steps}, updates: {method.updates}}}"])
        return override(method, [f"offline.steps={steps}"])

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Return a warning for a missing key, and one for verdicts that are inverted on purpose."""
        choice = _narrow_config(config).verifier_choice
        inverted = _describe_inverted(choice.definition)
        return [
            *doubt_key(choice.definition, f"verifier {choice.name}"),
            *([f"verifier {choice.name}: {inverted}"] if inverted else []),
        ]

    async def check(self, config: TrainingConfig, suite: Suite, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Check that the verifier may be learned from, and that it answers.

        Args:
            options: `calibrations`, the folder with its measurements, and `allow_uncalibrated`: let it judge in any
                case.
        """
        choice, found = _narrow_config(config).verifier_choice, self.list_doubts(config, suite)
        if choice.is_exact:
            return Checked(notes=found)
        # The measurement is looked up first: that is free, while opening a verifier may start a server.
        allow_uncalibrated = bool(options["allow_uncalibrated"])
        known = await check_verifier(
            choice, suite.label, folder=Path(options["calibrations"]), allow_uncalibrated=allow_uncalibrated
        )
        await self.check_budget(config, budget)
        notes = (f"verifier {choice.name}: {known}", *found)
        return Checked(notes=notes, head={"agreement": known, "allow_uncalibrated": allow_uncalibrated})

    async def check_budget(self, config: TrainingConfig, budget: Budget) -> None:
        """Open the verifier with the budget and close it again."""
        async with open_verifier(_narrow_config(config).verifier_choice, budget=budget):
            pass

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate verdicts, one per episode, and learning from the turns that are drawn."""
        verdicts = await _estimate_verdicts(_narrow_config(config), tried, rolled)
        return await estimate_turns(config, tried, rolled, verdicts)

    def describe(self, config: TrainingConfig) -> str:
        """Return how policies are trained, and by what their episodes are judged."""
        choice = _narrow_config(config).verifier_choice
        if choice.is_exact:
            return self.description
        inverted = _describe_inverted(choice.definition)
        return f"{self.description}; episodes judged by verifier {choice.name}{f' ({inverted})' if inverted else ''}"

    def build_columns(self, record: EpochRecord) -> dict[str, object]:
        """Return the successes by verdict, and the shares of what was kept."""
        counts, kept = read_counts(record), summarize_kept(record).kept
        return {
            **({} if counts is None else {"verdicts": f"{counts.successes} of {counts.judged}"}),
            **{f"{name} kept": f"{part} of {whole}" for name, (part, whole) in kept.items()},
        }

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return what was kept and left out, and the numbers of the record, named after the verifier if it judged."""
        numbers, counts = super().summarize(record).numbers, read_counts(record)
        if counts is not None:
            by = f"solved, by {counts.verifier}"
            numbers = {by if name == "solved" else name: one for name, one in numbers.items()}
        return replace(summarize_kept(record), numbers=numbers)

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format how many episodes were solved, by whom that is told, and what was kept and left out, line by line."""
        found = summarize_kept(record)
        kept = ", ".join(f"{part} of {whole} {name}" for name, (part, whole) in found.kept.items())
        solved, beyond = (record.metrics.get(name) for name in ("solved", "beyond_capacity"))
        return [
            *(_format_verdicts(record) or ([] if solved is None else [f"solved   {solved}"])),
            *([f"beyond   capacity: {format_amount(beyond, 'episode')} of this epoch"] if beyond else []),
            *([f"kept     {kept}"] if kept else []),
            *format_causes("left out", found.left_out),
        ]


def read_counts(record: EpochRecord) -> VerdictCounts | None:
    """Return the counts of an epoch's verdicts; None where the environment judged."""
    found = record.metrics.get("verdicts")
    if found is None:
        return None
    return sum_counts([VerdictCounts.model_validate(one) for one in (found if isinstance(found, list) else [found])])


def _format_verdicts(record: EpochRecord) -> list[str]:
    """Format the verdicts of an epoch in a line; none where the environment judged."""
    counts = read_counts(record)
    if counts is None:
        return []
    missing = ", ".join(f"{count} {cause}" for cause, count in counts.missing.items())
    parts = [
        f"{counts.verifier} calls {counts.successes} of {format_amount(counts.judged, 'episode')} successes",
        *([f"{counts.inverted} inverted on purpose"] if counts.inverted else []),
        *([f"{sum(counts.missing.values())} missing and not learned: {missing}"] if missing else []),
        f"the environment agrees in {counts.agreeing}",
    ]
    return [f"verdicts {'; '.join(parts)}"]


# ------------------------------------------------------------------------------------------------------ inside


def _narrow_config(config: TrainingConfig) -> TurnConfig:
    assert isinstance(config, TurnConfig), "the loop gives each algorithm its own configuration"
    return config


def _describe_inverted(definition: VerifierDefinition) -> str:
    """Return which verdicts are inverted on purpose, in words; empty if none are."""
    shares = {"failures": definition.false_positives, "successes": definition.false_negatives}
    told = " and ".join(f"{share:.3g} of {name}" for name, share in shares.items() if share)
    return f"verdicts inverted on purpose, {told}" if told else ""


async def _estimate_verdicts(config: TurnConfig, tried: TriedStep, rolled: Range) -> Sequence[LabelEstimate]:
    """Estimate the verdicts of all rollouts, per environment step; empty where the environment judges."""
    choice = config.verifier_choice
    if choice.is_exact:
        return ()
    once = await _estimate_question(choice, tried)
    asked = None if once is None else once.scale_to_steps(await _count_episodes(config, tried))
    if asked is not None:
        # The loop multiplies what a step takes by all steps; verdicts are given per episode.
        asked = asked.scale_to_steps(Range(low=1 / rolled.low, high=1 / rolled.high))
    # A model's speed is not known before it is asked; rules take no time.
    seconds = 0.0 if choice.definition.kind == RULES else None
    return (LabelEstimate(name=PART, doing="verifying", asked=asked, seconds=seconds),)


async def _estimate_question(choice: VerifierChoice, tried: TriedStep) -> Questions | None:
    """Estimate what a verdict asks, from the step that was tried; None if the verifier does not show its question."""
    resources = VerifierResources.of(choice, asks=False)
    try:
        verifier, model = find_asked(resources.build_verifier()), resources.model
        if model is None:
            return NONE_ASKED
        if not isinstance(verifier, EpisodeJudge) or not isinstance(model, Model):
            return None
        with RunStore.open(tried.out).open_reader() as reader:
            (case,) = iterate_cases([tried.trajectory], reader)
            question = verifier.build_question(case)
        if isinstance(question, str):
            return None
        tokens = count_prompt_tokens(model, question.prompt)
    finally:
        await resources.close()
    once = Range(low=1, high=1)
    said = Range(low=0, high=choice.definition.sampling.max_tokens)
    engine = PartDefinition.model_validate(choice.definition.options[MODEL])
    return build_questions(once, Range(low=tokens, high=tokens), said, engine)


async def _count_episodes(config: TurnConfig, tried: TriedStep) -> Range:
    """Return how many episodes all rollouts have."""
    suite = build_suite(tried.run)
    try:
        limits = tried.run.environment.limits
        longest = max(limits.limit_steps(info.max_steps) for info in suite.tasks())
    finally:
        await suite.close()
    method, found = config.method, Range(low=0, high=0)
    for number in range(1, method.epochs + 1):
        if not config.is_recorded(number) and not config.is_played(number):
            continue
        if config.is_recorded(number):
            known = float(sum(one.episodes for one in config.recorded))
            found = found.plus(Range(low=known, high=known))
            continue
        planned, steps = method.get_episodes(number) or config.run.episodes, method.get_steps(number)
        # With a step budget, an epoch has as few episodes as its longest, and at most one per step.
        fewest = planned if steps is None else min(planned, math.ceil(steps / longest))
        found = found.plus(Range(low=fewest, high=planned if steps is None else min(planned, steps)))
    return found
