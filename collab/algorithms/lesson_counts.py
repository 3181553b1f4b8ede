"""Counts of what an epoch keeps of all that it remembers, and why it leaves the rest out: for records and pages.

counts = count_kept(read_estimates(folder))              # as JSON, for the record
for policy, one in read_counts_of(record, LessonCounts).items():
    print(policy, one.kept.steps, one.remembered.steps, one.left_out)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import ConfigDict

from collab.config import Definition, validate
from collab.errors import ConfigError, RunFormatError
from collab.loop.interfaces import EpochSummary
from collab.loop.record import EpochRecord
from collab.trainers.rl.step_estimates import StepEstimate


class LearnedCounts(Definition):
    """Episodes and their steps."""

    episodes: int
    steps: int


class LessonCounts(Definition):
    """The counts of one policy's lesson; an algorithm may add fields."""

    model_config = ConfigDict(extra="ignore")

    remembered: LearnedCounts
    """Those that were estimated."""
    kept: LearnedCounts
    """Steps with a weight, and the episodes that have one."""
    left_out: dict[str, int]
    """Reason → steps."""


Counts = TypeVar("Counts", bound=LessonCounts)


def count_kept(estimates: Iterable[StepEstimate]) -> dict[str, Any]:
    """Return the fields of `LessonCounts` as JSON."""
    remembered, kept, left_out = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[str]()
    for one in estimates:
        episode = (one.run, one.trajectory)
        remembered[episode] += 1
        if one.weight:
            kept[episode] += 1
        else:
            left_out[one.why] += 1
    return {
        **{
            name: {"episodes": len(counts), "steps": counts.total()}
            for name, counts in (("remembered", remembered), ("kept", kept))
        },
        "left_out": dict(left_out),
    }


def read_counts_of(record: EpochRecord, model: type[Counts]) -> dict[str, Counts]:
    """Return policy → its counts in a record; empty before an epoch has learned.

    Raises:
        RunFormatError: it holds something else under their names.
    """
    own = model.model_fields
    # One policy's counts stand in the record itself, those of several under their names.
    told = {"shared": record.metrics, **{name: one for name, one in record.metrics.items() if isinstance(one, dict)}}
    found = {policy: {name: one[name] for name in own if name in one} for policy, one in told.items()}
    try:
        return {
            policy: validate(model, one, f"epoch {record.epoch}: metrics of its epoch.json")
            for policy, one in found.items()
            if "remembered" in one
        }
    except ConfigError as error:
        raise RunFormatError(f"{error}; remove that epoch.json, and the training makes it again") from None


def name_policies(known: dict[str, Counts]) -> list[tuple[str, Counts]]:
    """Return what stands behind the name of a number of each policy, e.g. " of ada"; of a single policy, nothing."""
    return [(f" of {policy}" if len(known) > 1 else "", one) for policy, one in known.items()]


def summarize_kept(record: EpochRecord) -> EpochSummary:
    """Return what was kept and left out, for the inspector; raises as `read_counts_of`."""
    named = name_policies(read_counts_of(record, LessonCounts))
    return EpochSummary(
        kept={
            f"{unit}{of}": (getattr(one.kept, unit), getattr(one.remembered, unit))
            for of, one in named
            for unit in ("episodes", "steps")
        },
        left_out=dict(sum((Counter(one.left_out) for _, one in named), Counter[str]())),
    )
