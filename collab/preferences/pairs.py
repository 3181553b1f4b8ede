"""Preference pairs: a rewarded reply against a worse one, under one cell's own input.

`build_step_pairs` builds those of one judged step:

    sources = Sources(adversary=1, contrast=1)
    cells = list_wanted(step, sources, seed)            # about these an adversary has to be asked
    made = build_step_pairs(replace(step, negatives=...), sources, seed, cap=4)

    adversary   against a synthesised reply (CollabUIAgents, eq. 7: only where the reward is 1)
    contrast    against the reply of another cell of the same step whose action parsed and whose reward is exactly 0
    mix         both by weight: each rewarded cell draws its source; without a worse reply there it tries the other
    correction  the reply of a rewarded cell against that of a cell whose action parsed and whose reward is exactly 0,
                under the input of the cell that erred

Deviation: all but `adversary` are ours. A contrast or a correction is off-context unless both cells heard the same
messages; on-context cells are preferred. The rejected reply of a contrast was mostly never given under its input. Its
likelihood falls far, and takes that of good replies along. The rejected reply of a correction was given there.

Everything is a pure function of its arguments: draws depend on the seed and on names, never on the order of arguments.

`build_run_pairs` builds those of a judged run, and counts the steps and cells that have none:

    labels = read_labels(run, "oracle")
    with RunReader(run) as reader:
        made = await build_run_pairs(reader.iterate_trajectories(), labels, recipe, space=suite.space,
                             prefix=reader.read_prefix, adversary=adversary, states=StateRebuilder(suite))
    made.pairs

It reads the record and the judgements, writes nothing and plays nothing. The same record, judgements, recipe and
replies of the adversary give the same pairs. `collab.preferences.explain` shows what another recipe changes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from collab.envs.grammar import ActionSpace
from collab.errors import ConfigError, EnvironmentFailure, ModelFailure, RunError
from collab.models.base import count_lost_calls
from collab.preferences.adversary import Adversary
from collab.preferences.negatives import Negatives, collect_negatives, explain_refusal
from collab.rewards.base import CriticInput, States, build_inputs
from collab.rewards.credit import (
    BEHIND_ERROR,
    JudgedStep,
    Negative,
    find_behind_errors,
    list_rewarded,
    list_rewarded_actions,
    list_with_reward,
)
from collab.rewards.labels import LabelSet
from collab.seeds import generator
from collab.store.rewards import PreferencePair, ReplyRef
from collab.types import CellRef, Trajectory, Usage, Utterance
from collab.utils.concurrency import WorkerPool
from collab.utils.redact import redact

PairSource: TypeAlias = Literal["adversary", "contrast", "correction"]
PlacedReply: TypeAlias = tuple[ReplyRef, Utterance]
"""A reply and its place."""

NOTHING = "no source had a worse reply"
BEYOND_CAP = "beyond the most pairs per state"
ALL_RIGHT = "no cell of the step erred"
NOBODY_RIGHT = "no cell of the step was right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Weights of the sources of pairs; 0 leaves a source out.

    Raises:
        ConfigError: a number does not fit, or all are 0.
    """

    adversary: float = 1.0
    """Weight of this source when a rewarded cell draws its source; weights need not add up to 1."""
    contrast: float = 0.0
    """Another such weight."""
    correction: float = 0.0
    """The chance with which a cell that erred is corrected, up to 1. It takes no rewarded cell's pair away."""

    def __post_init__(self) -> None:
        weights = (self.adversary, self.contrast, self.correction)
        if not all(0 <= weight < float("inf") for weight in weights) or not any(weights) or self.correction > 1:
            raise ConfigError(
                f"pair sources: adversary {self.adversary:g}, contrast {self.contrast:g}, "
                f"correction {self.correction:g}; they are numbers from 0, correction is 1 at most, "
                "and one at least is above 0"
            )

    @property
    def weights(self) -> dict[str, float]:
        """The sources in use, with their weights."""
        every = {"adversary": self.adversary, "contrast": self.contrast, "correction": self.correction}
        return {name: weight for name, weight in every.items() if weight}

    def order(self, seed: int) -> tuple[PairSource, ...]:
        """Return the sources in the order in which a cell with that seed tries them."""
        # The draw decides the order, not the choice alone: a cell for which one source has nothing falls to the other.
        drawn = generator(seed).random() * (self.adversary + self.contrast)
        order: list[PairSource] = ["adversary", "contrast"] if drawn < self.adversary else ["contrast", "adversary"]
        return tuple(name for name in order if getattr(self, name) > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPairs:
    """The pairs of some steps, and why there are no others."""

    pairs: tuple[PreferencePair, ...]
    """By epoch, task, episode, step, agent and round."""
    counts: Counter[str] = field(default_factory=Counter)
    """Pairs by source ("adversary", "contrast", "correction"), and by cause: rewarded cells without a pair, dropped
    negatives, erring cells without a correction."""
    off_context: int = 0
    """Pairs of two cells that heard different messages."""


def count_most_pairs(step: JudgedStep, sources: Sources, seed: int) -> int:
    """Return the most pairs that a step can give: one per rewarded cell if these are compared, and its corrections."""
    said = list_rewarded(step) if sources.adversary or sources.contrast else ()
    return len(said) + sum(1 for _ in _correct_cells(step, sources.correction, seed))


def list_contrasts(step: JudgedStep, chosen: Utterance) -> tuple[Utterance, ...]:
    """Return the cells that a rewarded one can be compared with, by agent and round.

    Their action parsed, their reward is exactly 0 (a missing one is none), and no rewarded cell proposed the same.
    Cells that heard the same come first, then cells that the rewarded one heard: under its prompt, repeating one of
    them is the likeliest mistake.
    """
    # The critic may reward one cell and not another for the same action; such a pair would contradict itself.
    good = list_rewarded_actions(step)
    worse = tuple(cell for cell in list_with_reward(step, 0) if cell.action not in good)
    alike = tuple(cell for cell in worse if is_heard_alike(chosen, cell))
    heard = tuple(cell for cell in worse if cell.cell in chosen.heard)
    # On-context, then heard, then any: the likelier a worse reply is under this prompt, the more its pair teaches.
    return alike or heard or worse


def find_correction(step: JudgedStep, wrong: Utterance) -> Utterance | None:
    """Return the cell whose reply an erring cell should have given; None where no cell, or its own action, is rewarded.

    Rewarded cells that heard the same come first, else those whose action most rewarded cells propose. The one
    with the largest sum of `logprobs` is taken: at a high temperature, the surest reply is the clearest. Ties go to the
    first by agent and round.
    """
    good = list_rewarded(step)
    proposed = Counter(cell.action for cell in good)
    if wrong.action in proposed:
        return None
    alike = [cell for cell in good if is_heard_alike(wrong, cell)]
    most = max(proposed.values(), default=0)
    # `max` keeps the first of equals, and `good` is sorted by agent and round, so the choice is deterministic.
    return max(alike or [cell for cell in good if proposed[cell.action] == most], key=sum_logprobs, default=None)


def sum_logprobs(cell: Utterance) -> float:
    """Return the log-likelihood of a reply under its policy; minus infinity where no `logprobs` were recorded."""
    return float("-inf") if cell.logprobs is None else sum(cell.logprobs)


def is_heard_alike(one: Utterance, other: Utterance) -> bool:
    """Return whether two cells of a step have the same input apart from their own names."""
    return one.prompt.prefix == other.prompt.prefix and one.heard == other.heard


def list_wanted(step: JudgedStep, sources: Sources, seed: int) -> tuple[CellRef, ...]:
    """Return the rewarded cells whose pair needs an adversary, by agent and round; `seed` is the run's."""
    return tuple(
        cell.cell for cell in list_rewarded(step) if _choose_first_source(step, cell, sources, seed) == "adversary"
    )


def build_step_pairs(step: JudgedStep, sources: Sources, seed: int, *, cap: int | None = None) -> CountedPairs:
    """Build the pairs of one state: at most one per rewarded cell, and one correction per cell that erred.

    Negatives are checked again (`collab.preferences.negatives.explain_refusal`): another critic may have rewarded
    their action.

    Args:
        seed: of the run.
        cap: the most pairs of a state, drawn by seed; None keeps all.

    Raises:
        ConfigError: the cap is below 1.
    """
    if cap is not None and cap < 1:
        raise ConfigError(f"at most {cap} pairs per state; allowed: 1 or more, or no limit")
    counts, made = Counter[str](), list[tuple[PreferencePair, bool]]()
    # eq. 7 compares a rewarded cell (r = 1) with a worse reply under the same input x: y⁺ ≻ y⁻ | x.
    for cell in list_rewarded(step) if sources.adversary or sources.contrast else ():
        found = _build_rewarded_pair(step, cell, sources, seed, counts)
        if found is None:
            counts[NOTHING] += 1
        else:
            made.append(found)
    # Corrections are drawn apart from the sources: they take no rewarded cell's pair away.
    if sources.correction:
        counts += _explain_uncorrected(step, alone=not (sources.adversary or sources.contrast))
    # Sorted by the cell whose input is trained, so that the draw below does not depend on how pairs were found.
    made = sorted([*made, *_correct_cells(step, sources.correction, seed)], key=lambda one: _find_answered(one[0]))
    kept = made if cap is None else _cap(made, step, seed, cap)
    counts.update(one.source for one, _ in kept)
    counts[BEYOND_CAP] += len(made) - len(kept)
    # `+counts` drops zeros: a cause that never came up is not in the record.
    off = sum(off_context for _, off_context in kept)
    return CountedPairs(pairs=tuple(one for one, _ in kept), counts=+counts, off_context=off)


def build_pairs(steps: Iterable[JudgedStep], sources: Sources, seed: int, *, cap: int | None = None) -> CountedPairs:
    """Build the pairs of many steps in the order that training uses, whatever the order of the steps."""
    made = [build_step_pairs(step, sources, seed, cap=cap) for step in sorted(steps, key=lambda step: step.place)]
    return CountedPairs(
        pairs=tuple(one for each in made for one in each.pairs),
        counts=sum((each.counts for each in made), Counter[str]()),
        off_context=sum(each.off_context for each in made),
    )


def compute_pair_id(source: str, chosen: Sequence[PlacedReply], rejected: Sequence[PlacedReply] | str) -> str:
    """Return the SHA-256 of source, inputs, replies and places of a pair; a text is a synthesised reply."""
    sides = [side if isinstance(side, str) else [_format(*reply) for reply in side] for side in (chosen, rejected)]
    return hashlib.sha256(json.dumps([source, *sides]).encode("ascii")).hexdigest()


# ------------------------------------------------------------------------------------------------------ inside


def _format(ref: ReplyRef, cell: Utterance) -> list[str | int]:
    return [ref.trajectory, ref.step, *ref.cell, cell.prompt.hash, cell.text]


def _choose_first_source(step: JudgedStep, cell: Utterance, sources: Sources, seed: int) -> PairSource | None:
    """Return the source of the rejected reply, as far as it is known before an adversary is asked."""
    order = sources.order(step.derive_seed(seed, "pair source", cell.cell))
    return next((name for name in order if name == "adversary" or list_contrasts(step, cell)), None)


def _build_rewarded_pair(
    step: JudgedStep, cell: Utterance, sources: Sources, seed: int, counts: Counter[str]
) -> tuple[PreferencePair, bool] | None:
    """Build the pair of a rewarded cell, and whether it is off-context; None where no source has a worse reply."""
    # The same seed as in `list_wanted`: a cell for which no adversary was asked must not draw it here.
    for source in sources.order(step.derive_seed(seed, "pair source", cell.cell)):
        if source == "contrast" and (worse := list_contrasts(step, cell)):
            other = generator(step.derive_seed(seed, "contrast", cell.cell)).choice(worse)
            return _build_cell_pair(step, "contrast", cell, other), not is_heard_alike(cell, other)
        # No action means nothing to compare: a rewarded cell always has one, which the type does not know.
        negative = step.negatives.get(cell.cell) if source == "adversary" else None
        if negative is None or cell.action is None:
            continue
        # Checked again here: replies are kept across critics, and this critic may reward what an older one did not.
        why = explain_refusal(negative.action, cell.action, list_rewarded_actions(step))
        if why is None:
            return _build_adversary_pair(step, cell, negative), False
        counts[why] += 1
    return None


def _correct_cells(step: JudgedStep, chance: float, seed: int) -> Iterator[tuple[PreferencePair, bool]]:
    """Yield corrections of cells that erred, and whether each is off-context."""
    for wrong in list_with_reward(step, 0) if chance else ():
        better = find_correction(step, wrong)
        # Drawn by the erring cell's name: another chance keeps those that a smaller one drew.
        if better is not None and generator(step.derive_seed(seed, "correction", wrong.cell)).random() < chance:
            yield _build_cell_pair(step, "correction", better, wrong), not is_heard_alike(wrong, better)


def _explain_uncorrected(step: JudgedStep, *, alone: bool) -> Counter[str]:
    """Count the cells of a step without corrections, by cause; `alone`: corrections are the only source."""
    wrong, good = list(list_with_reward(step, 0)), list_rewarded(step)
    if wrong and not good:
        return Counter({NOBODY_RIGHT: len(wrong)})
    return Counter({ALL_RIGHT: len(good)} if alone and not wrong else {})


def _find_answered(pair: PreferencePair) -> CellRef:
    """Return the cell under whose input a pair is trained."""
    assert pair.answered is not None, "pairs of one state answer one input"
    return pair.answered.cell


def _build_cell_pair(step: JudgedStep, source: PairSource, better: Utterance, worse: Utterance) -> PreferencePair:
    """Build a pair of two cells' replies, under the input of the better one unless it is a correction."""
    chosen, rejected = step.make_ref(better.cell), step.make_ref(worse.cell)
    return PreferencePair(
        id=compute_pair_id(source, [(chosen, better)], [(rejected, worse)]),
        source=source,
        chosen=(chosen,),
        rejected=(rejected,),
        policy=better.policy,
        prompt=(worse if source == "correction" else better).prompt.hash,
        critic=step.judgement.rewards.critic,
        calls=_list_calls(step, better, worse),
    )


def _build_adversary_pair(step: JudgedStep, cell: Utterance, negative: Negative) -> PreferencePair:
    chosen = step.make_ref(cell.cell)
    return PreferencePair(
        id=compute_pair_id("adversary", [(chosen, cell)], negative.text),
        source="adversary",
        chosen=(chosen,),
        rejected=(),
        synthetic=negative.text,
        adversary=negative.maker,
        policy=cell.policy,
        prompt=cell.prompt.hash,
        critic=step.judgement.rewards.critic,
        calls=_list_calls(step, cell),
    )


def _list_calls(step: JudgedStep, *cells: Utterance) -> tuple[str, ...]:
    calls = (step.judgement.call_of(cell.cell) for cell in cells)
    return tuple(dict.fromkeys(call.prompt for call in calls if call is not None))


def _cap(
    made: list[tuple[PreferencePair, bool]], step: JudgedStep, seed: int, cap: int
) -> list[tuple[PreferencePair, bool]]:
    """Return the pairs that the seed ranks first, in their old order."""
    # Ranked by seeded hashes, not by position: raising the cap adds pairs and drops none.
    ranked = sorted(made, key=lambda one: (step.derive_seed(seed, "pair cap", _find_answered(one[0])), one[0].id))
    kept = {one.id for one, _ in ranked[:cap]}
    return [one for one in made if one[0].id in kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecipe:
    """Recipe for pairs from judgements.

    Raises:
        ConfigError: a value is out of its range.
    """

    sources: Sources = field(default_factory=Sources)
    threshold: float = 0.5
    """A score above it is rewarded; in [0, 1)."""
    cap: int | None = None
    """The most pairs of one state; None for all."""
    attempts: int = 3
    """Questions to the adversary per cell."""
    stop_at_first_error: bool = False
    """Leave out an episode's steps behind its first error; see `collab.rewards.credit.find_behind_errors`."""
    seed: int = 0
    """Seed of the run."""

    def __post_init__(self) -> None:
        wrong = [
            *([] if 0 <= self.threshold < 1 else [f"threshold {self.threshold}, allowed: from 0, below 1"]),
            *([] if self.attempts >= 1 else [f"attempts {self.attempts}, allowed: from 1"]),
            *([] if self.cap is None or self.cap >= 1 else [f"cap {self.cap}, allowed: from 1, or none"]),
        ]
        if wrong:
            raise ConfigError(f"pairs: {'; '.join(wrong)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPairs(CountedPairs):
    """The pairs of a run, and what its adversary did."""

    refused: Counter[str] = field(default_factory=Counter)
    """Dropped replies of the adversary, by cause."""
    failed: Counter[str] = field(default_factory=Counter)
    """Steps about which the adversary could not be asked, by class of error; they have contrasts at most."""
    asked: int = 0
    """Steps that needed the adversary, those of `failed` included."""
    unjudged: int = 0
    """Steps without a judgement."""
    untried: int = 0
    """Negatives, in pairs or not, that could not be tried, as their state cannot be rebuilt."""
    spent: Usage = Usage()
    """Cost of the adversary."""


async def build_run_pairs(
    trajectories: Iterable[Trajectory],
    labels: LabelSet,
    recipe: PairRecipe,
    *,
    space: ActionSpace,
    prefix: Callable[[str], str],
    adversary: Adversary,
    states: States | None = None,
    concurrency: int = 4,
    watch: Callable[[int, int], None] = lambda done, planned: None,
) -> RunPairs:
    """Build the pairs of all judged steps.

    Args:
        prefix: stored text of a prompt's shared part by its hash (`RunReader.read_prefix`).
        states: rebuilds states, so that negatives can be tried; None tries none.
        concurrency: steps about which the adversary is asked at the same time.
        watch: called with the number of steps that are done, and of all, whenever it grows.

    Raises:
        TooManyFailures: asking the adversary, or trying its replies, failed for ten steps in a row.
        RunFormatError: the run was recorded in another version of the environment.
    """
    # Steps behind an episode's first error go first, before an adversary is paid for them.
    judged, unjudged = _list_judged(trajectories, labels, recipe, space, states)
    judged, beyond = _stop_at_first_error(judged, recipe) if recipe.stop_at_first_error else (judged, 0)
    # `finishes`: an answer in flight is paid for already, so workers are not cancelled.
    lost = count_lost_calls(adversary)
    pool = WorkerPool(enumerate(judged), exceeded=lambda: None, failing="steps in a row", finishes=True)
    asking = _AdversaryRun(
        recipe=recipe, prefix=prefix, adversary=adversary, pool=pool, watch=lambda done: watch(done, len(judged))
    )
    asking.watch(0)
    await pool.run(concurrency, asking.work)
    if pool.stopped is not None:
        raise TooManyFailures(f"asking for rejected replies, or trying them, failed for {pool.stopped}")
    # By number, not by time of arrival: concurrency must not change the order of pairs.
    found = [asking.found[number] for number in range(len(judged))]
    steps = [replace(step, negatives=one.negatives) for (_, step), one in zip(judged, found, strict=True)]
    made = build_pairs(steps, recipe.sources, recipe.seed, cap=recipe.cap)
    return RunPairs(
        pairs=made.pairs,
        counts=made.counts + Counter({BEHIND_ERROR: beyond}),
        off_context=made.off_context,
        refused=sum((one.refused for one in found), Counter[str]()),
        failed=asking.failed,
        asked=asking.steps,
        unjudged=unjudged,
        untried=sum(one.untried for one in found),
        spent=sum((one.spent for one in found), Usage(lost=count_lost_calls(adversary) - lost)),
    )


def _list_judged(
    trajectories: Iterable[Trajectory], labels: LabelSet, recipe: PairRecipe, space: ActionSpace, states: States | None
) -> tuple[list[tuple[CriticInput, JudgedStep]], int]:
    """Return the judged steps, and how many are not judged."""
    judged: list[tuple[CriticInput, JudgedStep]] = []
    unjudged = 0
    for trajectory in trajectories:
        for case in build_inputs(trajectory, space, states):
            judgement = labels.of(case)
            if judgement is None:
                unjudged += 1
            else:
                judged.append((case, JudgedStep.of(trajectory, judgement, recipe.threshold)))
    return judged, unjudged


def _stop_at_first_error(
    judged: list[tuple[CriticInput, JudgedStep]], recipe: PairRecipe
) -> tuple[list[tuple[CriticInput, JudgedStep]], int]:
    """Return the steps up to the first error of their episode, and how many pairs the others could have had."""
    behind = find_behind_errors(step for _, step in judged)
    kept = [(case, step) for case, step in judged if case.key not in behind]
    lost = (count_most_pairs(step, recipe.sources, recipe.seed) for case, step in judged if case.key in behind)
    return kept, sum(lost)


class TooManyFailures(RunError):
    """The adversary failed on too many steps in a row; the message has the last cause. Its answers are kept."""


@dataclass(slots=True, kw_only=True)
class _AdversaryRun:
    """Asks an adversary about steps; calls in flight are finished, as they are paid for."""

    recipe: PairRecipe
    prefix: Callable[[str], str]
    adversary: Adversary
    pool: WorkerPool[tuple[int, tuple[CriticInput, JudgedStep]]]
    watch: Callable[[int], None]
    found: dict[int, Negatives] = field(default_factory=dict)
    """Negatives by the step's number; none where the adversary could not be asked."""
    failed: Counter[str] = field(default_factory=Counter)
    steps: int = 0

    async def work(self) -> None:
        """Ask about steps until none is left or too many failed in a row."""
        for number, (case, step) in self.pool.take():
            # `paid` survives a failure below: calls before it were billed, too.
            cells, paid = list_wanted(step, self.recipe.sources, self.recipe.seed), list[Usage]()
            self.steps += bool(cells)
            try:
                self.found[number] = await collect_negatives(
                    case,
                    step,
                    cells,
                    self.adversary,
                    prefix=self.prefix,
                    seed=self.recipe.seed,
                    attempts=self.recipe.attempts,
                    paid=paid,
                )
            except (EnvironmentFailure, ModelFailure) as failure:
                # One step without an answer costs one step: its contrasts are still made.
                self.failed[type(failure).__name__] += 1
                self.found[number] = Negatives(negatives={}, spent=sum(paid, Usage()))
                self.pool.count(redact(str(failure)))
            else:
                # A step that needed no call does not show whether the adversary answers.
                if cells:
                    self.pool.count(None)
            self.watch(len(self.found))
