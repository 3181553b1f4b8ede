"""Measure a critic on steps of known worth: ask about them several times, and compute numbers of its scores.

    passes = plan_passes(known, permutations=3)
    calibration = measure(critic, known, judged, bins)   # judged: name of a pass → its judgements
    calibration.auc

    once                    accuracy, AUC, reliability diagram, calibration error
    the same again          test-retest reliability
    under other names       position bias; all worths stand in all places
    with longer reasons     length bias; in half of the cells, without new content

Each of these is a `CalibrationPass`: `plan_passes` lists the questions, and `measure` computes numbers from stored
judgements. A critic that shows no names and no list (the oracle), or a list that never changes (`permute: false`), has
no position bias.

    accuracy        rewards (score > 0.5) that are right
    auc             probability that a good action is scored above one that is not; ties count one half
    reliability     scores in bins beside the share of good actions there
    ece             expected calibration error: mean distance of these two
    retest          the same question twice: how often the reward is the same
    position_bias   the same proposals under permuted names: effect of the place in the list
    length_bias     the same proposals with longer reasons: effect of their length

Scores are in [0, 1]. Missing scores are left out (`split_scored`) and counted beside every number: a critic that only
answers easy questions looks better than it is.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from collab.rewards.base import CriticInput, Judgement
from collab.rewards.calibration.cases import KnownCase, KnownWorth
from collab.types import CellRef


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStep:
    """A scored action whose worth is known."""

    score: float
    """In [0, 1]."""
    good: bool
    """Whether it deserves a reward; neutral actions do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A column of the reliability diagram."""

    low: float
    high: float
    """Scores from `low` to below `high`; the last column includes 1."""
    count: int
    mean_score: float | None
    """None where `count` is 0."""
    good: float | None
    """Share of good actions; None where `count` is 0."""

    @property
    def gap(self) -> float | None:
        """Distance of mean score and share; None where `count` is 0."""
        return None if self.mean_score is None or self.good is None else abs(self.mean_score - self.good)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retest:
    """The same cases judged twice."""

    count: int
    """Cells that were scored both times."""
    same: float
    """Share of them with the same reward."""
    difference: float
    """Mean absolute difference of the scores."""


def split_scored(pairs: Iterable[tuple[float | None, bool]]) -> tuple[list[KnownStep], int]:
    """Split (score, good) pairs into scored steps and the number of those without a score."""
    every = list(pairs)
    known = [KnownStep(score=score, good=good) for score, good in every if score is not None]
    return known, len(every) - len(known)


def compute_accuracy(known: Sequence[KnownStep]) -> float | None:
    """Return the share of right rewards, where a reward is score > 0.5; None without scores."""
    return sum((one.score > 0.5) == one.good for one in known) / len(known) if known else None


def compute_auc(known: Sequence[KnownStep]) -> float | None:
    """Compute the area under the ROC curve, as the Mann–Whitney statistic: P(good above other) + ½ P(equal).

    Returns:
        None where there is not at least one good and one other action.
    """
    total = sum(one.good for one in known), sum(not one.good for one in known)
    if not all(total):
        return None
    wins, below = 0.0, 0
    for _, tied in groupby(sorted(known, key=lambda one: one.score), key=lambda one: one.score):
        group = [one.good for one in tied]
        good, other = sum(group), len(group) - sum(group)
        wins += good * (below + other / 2)
        below += other
    return wins / (total[0] * total[1])


def compute_reliability(known: Sequence[KnownStep], bins: int = 10) -> tuple[Bin, ...]:
    """Group scores in columns of equal width, empty ones included; ValueError for fewer than one."""
    if bins < 1:
        raise ValueError(f"{bins} bins; at least 1 is needed")
    columns: list[list[KnownStep]] = [[] for _ in range(bins)]
    for one in known:
        # A score of 1 belongs to the last column.
        columns[min(bins - 1, int(one.score * bins))].append(one)
    return tuple(
        Bin(
            low=place / bins,
            high=(place + 1) / bins,
            count=len(column),
            # Empty columns have no mean: 0 would be drawn as a claim.
            mean_score=_mean([one.score for one in column]) if column else None,
            good=_mean([one.good for one in column]) if column else None,
        )
        for place, column in enumerate(columns)
    )


def compute_ece(picture: Sequence[Bin]) -> float | None:
    """Compute Σ count/n · |mean score − share good| over the columns (Guo et al. 2017, eq. 3); None without scores."""
    total = sum(column.count for column in picture)
    if not total:
        return None
    return sum(column.count / total * column.gap for column in picture if column.gap is not None)


def compute_retest(pairs: Iterable[tuple[float | None, float | None]]) -> Retest | None:
    """Compare first and second score of each cell; None where no cell was scored twice."""
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not both:
        return None
    return Retest(
        count=len(both),
        same=_mean([(one > 0.5) == (other > 0.5) for one, other in both]),
        difference=_mean([abs(one - other) for one, other in both]),
    )


def compute_position_effects(shown: Iterable[Sequence[tuple[int, float]]]) -> dict[int, float]:
    """Estimate the effect of each place in the list on a score.

    Least squares of score = worth of the proposal + effect of its place. So the effects do not depend on how often a
    proposal was shown, nor in which places.

    Args:
        shown: for each proposal the (place, score) pairs of several permutations.

    Returns:
        Place → effect; they sum to 0. Only proposals that stood in at least two places count; without any it is empty.
        Two places are compared where a proposal stood in both, or by way of other places. Where places fall apart into
        groups that nothing connects, only the group with the most scores is returned.
    """
    moved = [places for places in shown if len({place for place, _ in places}) > 1]
    group = _choose_most_scored(moved)
    if not group:
        return {}
    index = {place: row for row, place in enumerate(sorted(group))}
    normal = np.ones((len(index), len(index)))  # fixes the sum of the effects at 0, which the scores leave open
    gains = np.zeros(len(index))
    for places in moved:
        if places[0][0] not in index:
            continue
        rows = [index[place] for place, _ in places]
        centre = _mean([score for _, score in places])
        for row, (_, score) in zip(rows, places, strict=True):
            gains[row] += score - centre
            normal[row, row] += 1
            for other in rows:
                normal[row, other] -= 1 / len(rows)
    return dict(zip(index, np.linalg.solve(normal, gains).tolist(), strict=True))


def _choose_most_scored(moved: Iterable[Sequence[tuple[int, float]]]) -> frozenset[int]:
    """Return the group of connected places with the most scores; ties go to the group of the lowest place."""
    groups: dict[frozenset[int], int] = {}
    for places in moved:
        met = {place for place, _ in places}
        touched = [group for group in groups if group & met]
        count = len(places) + sum(groups.pop(group) for group in touched)
        groups[frozenset(met.union(*touched))] = count
    return max(groups, key=lambda group: (groups[group], -min(group)), default=frozenset())


def compute_position_bias(effects: Mapping[int, float]) -> float | None:
    """Return the best place's effect minus the worst's; None for fewer than two places."""
    return max(effects.values()) - min(effects.values()) if len(effects) > 1 else None


def compute_length_bias(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Return the mean gain of a long reason over a short one; None where no proposal was scored with both."""
    gains = [long - short for short, long in pairs if short is not None and long is not None]
    return _mean(gains) if gains else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Numbers of a calibration; None where they cannot be computed."""

    critic: str
    cases: int
    cells: int
    missing: Mapping[str, int]
    """Cells of the first pass without a score, by cause."""
    mean_scores: Mapping[KnownWorth, float]
    """Means of the first pass; a worth without scores is left out."""
    accuracy: float | None
    auc: float | None
    """Good actions against all others."""
    picture: tuple[Bin, ...]
    ece: float | None
    retest: Retest | None
    position_effects: Mapping[int, float]
    """Effects by place in the list, from 0. Empty where the critic shows no list, or always in the same order, or was
    not asked under other names."""
    position_bias: float | None
    """Best effect minus worst."""
    length_bias: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPass:
    """All steps, judged once."""

    name: str
    """Unique among the passes of a calibration and allowed as a folder name, e.g. "names-2"."""
    seed: int
    """Decides the names that the critic shows."""
    attempt: int
    """Decides the model's sampling alone."""
    cases: tuple[CriticInput, ...]
    """One per known step, in their order."""


FIRST, AGAIN, NAMES, LONGER = "first", "again", "names", "longer"
"""Names of the passes; those under other names are numbered."""


def plan_passes(known: Sequence[KnownCase], permutations: int = 3) -> tuple[CalibrationPass, ...]:
    """List the passes: 3 + `permutations` times all steps. The critic's seed is 0 except under other names."""
    plain = tuple(one.case for one in known)
    longer = tuple(one.case for one, _ in _lengthen_all(known))
    return (
        CalibrationPass(name=FIRST, seed=0, attempt=0, cases=plain),
        CalibrationPass(name=AGAIN, seed=0, attempt=1, cases=plain),
        *(
            CalibrationPass(name=f"{NAMES}-{seed}", seed=seed, attempt=0, cases=plain)
            for seed in range(1, 1 + permutations)
        ),
        CalibrationPass(name=LONGER, seed=0, attempt=0, cases=longer),
    )


def measure(
    critic: str, known: Sequence[KnownCase], judged: Mapping[str, Sequence[Judgement]], bins: int = 10
) -> Calibration:
    """Return the numbers of a calibration from the judgements of all its passes.

    Args:
        critic: its name and version.
        judged: pass → its judgements, in the order of the known steps.
        bins: columns of the reliability diagram.
    """
    # The first pass gives the scores; the others only show the effect of changed questions.
    first = judged[FIRST]
    pairs = [(judgement.of(cell).score, worth) for judgement, cell, worth in _list_cells(first, known)]
    # Good against the rest: neutral proposals count as not rewarded, as they are in training.
    values, _ = split_scored((score, worth == "good") for score, worth in pairs)
    picture = compute_reliability(values, bins)
    # Renamed and reordered passes: a critic that prefers a place shows as scores that follow it.
    renamed = [said for name, said in judged.items() if name.startswith(NAMES)]
    effects = compute_position_effects(_list_places([first, *renamed])) if renamed else {}
    return Calibration(
        critic=critic,
        cases=len(known),
        cells=len(pairs),
        missing=sum((judgement.missing for judgement in first), Counter[str]()),
        mean_scores=_compute_means(pairs),
        accuracy=compute_accuracy(values),
        auc=compute_auc(values),
        picture=picture,
        ece=compute_ece(picture),
        retest=compute_retest(_pair_scores(first, judged[AGAIN])),
        position_effects=effects,
        position_bias=compute_position_bias(effects),
        # The same cells, longer: any difference is due to length alone.
        length_bias=compute_length_bias(
            (before.of(cell).score, after.of(cell).score)
            for before, after, (_, chosen) in zip(first, judged[LONGER], _lengthen_all(known), strict=True)
            for cell in sorted(chosen)
        ),
    )


def _lengthen_all(known: Sequence[KnownCase]) -> list[tuple[KnownCase, frozenset[CellRef]]]:
    """Return each step with longer reasons in some cells, and these cells."""
    return [one.lengthen_reasons(0) for one in known]


def _list_cells(
    judgements: Sequence[Judgement], known: Sequence[KnownCase]
) -> Iterable[tuple[Judgement, CellRef, KnownWorth]]:
    for judgement, one in zip(judgements, known, strict=True):
        for cell, worth in one.worth.items():
            yield judgement, cell, worth


def _compute_means(pairs: Sequence[tuple[float | None, KnownWorth]]) -> dict[KnownWorth, float]:
    found: dict[KnownWorth, list[float]] = defaultdict(list)
    for score, worth in pairs:
        if score is not None:
            found[worth].append(score)
    return {worth: sum(scores) / len(scores) for worth, scores in found.items()}


def _pair_scores(
    first: Sequence[Judgement], second: Sequence[Judgement]
) -> Iterable[tuple[float | None, float | None]]:
    """Yield the scores of each cell in two passes."""
    for one, other in zip(first, second, strict=True):
        for reward in one.rewards.rewards:
            yield reward.score, other.of(reward.cell).score


def _list_places(passes: Sequence[Sequence[Judgement]]) -> Iterable[list[tuple[int, float]]]:
    """Return (place in the list, score) of each cell over all passes; cells that stood in no list are left out."""
    found: dict[tuple[int, CellRef], list[tuple[int, float]]] = defaultdict(list)
    for judgements in passes:
        for number, judgement in enumerate(judgements):
            for place, cell in ((place, cell) for call in judgement.calls for place, cell in enumerate(call.cells)):
                score = judgement.of(cell).score
                if score is not None:
                    found[number, cell].append((place, score))
    return found.values()
