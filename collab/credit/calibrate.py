"""How far a critic can be trusted, in numbers: pure functions over scores of actions whose worth is known.

    accuracy        rewards (score > 0.5) that are right
    auc             probability that a good action is scored above one that is not; ties count one half
    reliability     scores in bins beside the share of good actions there: the reliability picture
    ece             expected calibration error: how far these two lie apart, on average
    retest          the same question twice: how often the reward is the same
    position_bias   the same proposals under permuted names: what the place in the list is worth
    length_bias     the same proposals with longer reasons: what their length is worth

Scores are in [0, 1]. What the critic left missing must be left out first (`scored`) and told beside every number: a
critic that only answers what is easy looks better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A scored action whose worth is known."""

    score: float
    """In [0, 1]."""
    good: bool
    """Whether it deserves a reward; neutral actions do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A column of the reliability picture."""

    low: float
    high: float
    """Scores from `low` to below `high`; the last column has 1 too."""
    count: int
    mean_score: float | None
    """What the critic said, on average; None where `count` is 0."""
    good: float | None
    """Share of actions that are good; None where `count` is 0."""

    @property
    def gap(self) -> float | None:
        """How far the two lie apart; None where `count` is 0."""
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


def scored(pairs: Iterable[tuple[float | None, bool]]) -> tuple[list[Known], int]:
    """(score, good) pairs → those with a score, and how many have none."""
    every = list(pairs)
    known = [Known(score=score, good=good) for score, good in every if score is not None]
    return known, len(every) - len(known)


def accuracy(known: Sequence[Known]) -> float | None:
    """Share of rewards that are right, a reward being score > 0.5; None without scores."""
    return sum((one.score > 0.5) == one.good for one in known) / len(known) if known else None


def auc(known: Sequence[Known]) -> float | None:
    """Area under the ROC curve, as the Mann–Whitney statistic: P(good above other) + ½ P(equal).

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


def reliability(known: Sequence[Known], bins: int = 10) -> tuple[Bin, ...]:
    """Scores in columns of equal width, empty ones included; ValueError for fewer than one."""
    if bins < 1:
        raise ValueError(f"{bins} bins; at least 1 is needed")
    columns: list[list[Known]] = [[] for _ in range(bins)]
    for one in known:
        columns[min(bins - 1, int(one.score * bins))].append(one)
    return tuple(
        Bin(
            low=place / bins,
            high=(place + 1) / bins,
            count=len(column),
            mean_score=_mean([one.score for one in column]) if column else None,
            good=_mean([one.good for one in column]) if column else None,
        )
        for place, column in enumerate(columns)
    )


def ece(picture: Sequence[Bin]) -> float | None:
    """Expected calibration error, Σ count/n · |mean score − share good| over the columns (Guo et al. 2017, eq. 3).

    Returns:
        None without scores.
    """
    total = sum(column.count for column in picture)
    if not total:
        return None
    return sum(column.count / total * column.gap for column in picture if column.gap is not None)


def retest(pairs: Iterable[tuple[float | None, float | None]]) -> Retest | None:
    """First and second score of each cell → how they agree; None where no cell was scored twice."""
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    if not both:
        return None
    return Retest(
        count=len(both),
        same=_mean([(one > 0.5) == (other > 0.5) for one, other in both]),
        difference=_mean([abs(one - other) for one, other in both]),
    )


def position_effects(shown: Iterable[Sequence[tuple[int, float]]]) -> dict[int, float]:
    """What each place in the list adds to a score, by place.

    Least squares of score = what the proposal is worth + what its place adds, so the effects do not depend on how often
    a proposal was shown, nor on which places it happened to stand in.

    Args:
        shown: for each proposal the (place, score) pairs of several permutations.

    Returns:
        Place → effect; they sum to 0, and are 0 everywhere for a critic that does not care. Only proposals that stood
        in at least two places count; without any it is empty. Two places are compared where a proposal stood in both,
        or by way of other places. Where the places fall apart into groups that nothing compares, those of the group
        with the most scores are told, and the others are left out.
    """
    moved = [places for places in shown if len({place for place, _ in places}) > 1]
    group = _most_scored(moved)
    if not group:
        return {}
    index = {place: row for row, place in enumerate(sorted(group))}
    normal = np.ones((len(index), len(index)))  # the effects' sum, which the scores leave open, is held at 0
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


def _most_scored(moved: Iterable[Sequence[tuple[int, float]]]) -> frozenset[int]:
    """Of the groups of places that are compared, the one with the most scores; of equals, that of the lowest place."""
    groups: dict[frozenset[int], int] = {}
    for places in moved:
        met = {place for place, _ in places}
        touched = [group for group in groups if group & met]
        count = len(places) + sum(groups.pop(group) for group in touched)
        groups[frozenset(met.union(*touched))] = count
    return max(groups, key=lambda group: (groups[group], -min(group)), default=frozenset())


def position_bias(effects: Mapping[int, float]) -> float | None:
    """What the best place adds to a score over the worst; None where there are not two."""
    return max(effects.values()) - min(effects.values()) if len(effects) > 1 else None


def length_bias(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Score with a short reason and with a long one, of the same proposals → the mean gain of the long one.

    Returns:
        None where no proposal was scored with both.
    """
    gains = [long - short for short, long in pairs if short is not None and long is not None]
    return _mean(gains) if gains else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
