"""Numbers of Android Coach in an epoch: candidates, returns, and how right Q is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field

from collab.algorithms.coach.truth import Truth
from collab.config import Definition, validate
from collab.loop.record import EpochRecord
from collab.utils.text import format_amount, format_causes

FEW = 0.4
"""Share of states whose replies differ in value below which most of what is sampled teaches nothing."""


class CoachMetrics(Definition):
    """Numbers of Q and of candidates in an epoch, for its record."""

    states: int
    """Visited states with a candidate."""
    apart: int
    """Those whose candidates differ in Q."""
    compared: int = 0
    """Those that had two replies or more to learn from; 0 in an epoch in which only Q learns."""
    distinct: float | None
    """Mean share of different replies among the candidates of a state; None without a state."""
    distinct_actions: float | None
    """The same of different actions; replies without one count as one."""
    failed: dict[str, int] = Field(default_factory=dict)
    """Replies that could not be had, at states that have others, by cause."""
    unsampled: dict[str, int] = Field(default_factory=dict)
    """States without a candidate, by cause."""
    unvalued: dict[str, int] = Field(default_factory=dict)
    """Executed replies that Q cannot be fitted to, by cause."""
    unrewarded: dict[str, int] = Field(default_factory=dict)
    """Executed actions without a reward by the critic, which no return counts, by cause; empty where none is asked."""
    rewards: dict[str, list[float | None]] = Field(default_factory=dict)
    """Agent → share of its executed actions that the critic rewards, in a list of one; empty where none is asked."""
    explained: float | None
    """1 − var(R − Q) / var(R) before the fit; None where all returns are equal."""
    mean_return: float | None
    mean_length: float | None
    """Mean steps of an episode; None without one."""
    length_correlation: float | None
    """Pearson's, of an episode's steps and the return of its first; None where one of them is constant. Rewards add up,
    so a critic that likes detours shows here."""
    pretrained: int = 0
    """Synthesised candidates that Q was fitted to before this epoch; 0 in all but the first, and without any."""
    rehearsed: int = 0
    """Those of them that its fit learned beside the returns."""
    steps: int = 0
    """Optimizer steps of the fit."""
    loss: float | None = None
    """Mean of these; None where the fit was lost."""
    lost: str | None = None
    """Why the last fit that was undone was; None if none was."""
    unread: str | None = None
    """Why no candidate has a value, so that nothing is learned; None where they have."""
    truth: Truth | None = None
    """How right Q is; None where that was not looked at."""


def read_metrics(record: EpochRecord) -> CoachMetrics | None:
    """Return the candidates and Q of an epoch in numbers; None before an epoch has learned."""
    found = record.metrics.get("coach")
    return None if found is None else validate(CoachMetrics, found, f"epoch {record.epoch}: metrics of its epoch.json")


def format_metrics(told: CoachMetrics) -> list[str]:
    """Format the candidates and Q of an epoch, line by line."""
    states = f"{told.apart} of {told.states} states have replies of different value"
    distinct = f"{_show(told.distinct)} of them distinct, {_show(told.distinct_actions)} of their actions"
    pretrained = told.pretrained and f"fitted to {format_amount(told.pretrained, 'candidate')} at first"
    rehearsed = told.rehearsed and f"fitted to {format_amount(told.rehearsed, 'candidate')} beside the returns"
    explained = f"explained variance {_show(told.explained)} before the fit"
    # Whatever an epoch has not done has no words in its line.
    numbers = [one for one in (pretrained, rehearsed, explained) if one]
    if told.truth is not None:
        one = told.truth
        numbers.append(
            f"right about {_show(one.rank_accuracy)} of {one.pairs} pairs, regret {_show(one.regret)} (by chance "
            f"{_show(one.chance)}), AUC {_show(one.auc)}, n = {one.states} states"
            f"{f' beside {one.broken} at which the environment broke' if one.broken else ''}"
        )
    return [
        f"replies  {states}; {distinct}",
        *_warn_of_few(told),
        f"Q        {'; '.join([*numbers, *(why for why in (told.lost, told.unread) if why)])}",
        f"returns  {_show(told.mean_return)} on average, {_show(told.mean_length)} steps an episode, correlation "
        f"{_show(told.length_correlation)}",
        *format_causes("unrewarded", told.unrewarded),
        *format_causes("failed", told.failed),
        *format_causes("unsampled", told.unsampled),
        *format_causes("unvalued", told.unvalued),
    ]


def _warn_of_few(told: CoachMetrics) -> list[str]:
    """Return what to raise where less than `FEW` of the states with several replies have some of different value."""
    if told.apart >= FEW * told.compared:
        return []
    return [
        "warning  few states have replies of different value, and only these tell replies apart; raise k or "
        "exploration_temperatures, in another training"
    ]


def list_curves(told: CoachMetrics) -> dict[str, dict[str, float | None]]:
    """Return the numbers that the inspector draws over epochs, by chart and line."""
    truth = told.truth
    return {
        "Replies to one state": {
            "states whose replies differ in Q": told.apart / told.states if told.states else None,
            "distinct replies": told.distinct,
            "distinct actions": told.distinct_actions,
        },
        "Q in truth: pairs that it ranks right": {
            "rank accuracy": None if truth is None else truth.rank_accuracy,
            "AUC": None if truth is None else truth.auc,
        },
        "Q in truth: worth lost by its choice": {
            "highest Q": None if truth is None else truth.regret,
            "by chance": None if truth is None else truth.chance,
        },
        "Returns": {"mean return": told.mean_return, "explained by Q before its fit": told.explained},
    }


def _show(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def compute_mean(numbers: Iterable[float]) -> float | None:
    """Return the mean; None of no number."""
    found = list(numbers)
    return math.fsum(found) / len(found) if found else None


def correlate(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Pearson's correlation; None where it is undefined."""
    if len(one) < 2 or not np.ptp(one) or not np.ptp(other):
        return None
    return float(np.corrcoef(one, other)[0, 1])
