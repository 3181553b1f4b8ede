"""The record of an epoch, put together from what its parts left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.config import RunConfig
from collab.credit.adversary import FREE
from collab.credit.critic import Judgement
from collab.credit.labels import Labels
from collab.credit.pair_store import PairHead, StoredPairs
from collab.evaluation import Report
from collab.marl.hashing import epoch_hash
from collab.marl.policy import Policy, told
from collab.marl.summary import (
    PairCounts,
    Record,
    RowCounts,
    Spending,
    Success,
    Trained,
    mean_agreement,
    reward_rate,
    reward_rates,
    spent_on_judging,
    unasked,
)
from collab.types import Spent, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an epoch made."""

    run: RunConfig
    heat: Mapping[str, float]
    """Slot → by what the run is hotter than declared."""
    played: Sequence[Trajectory]
    """Finished episodes that are learned from."""
    rollout: Report
    """Of these and of those that broke."""
    labels: Labels | None
    """None where nobody was asked to judge."""
    pairs: StoredPairs | None
    """None where nothing was compared."""
    rows: Mapping[str, RowCounts]
    trained: Mapping[str, Trained]
    untrained: Mapping[str, str]
    report: Report
    """Of the evaluation."""
    measured: Mapping[int, Sequence[Trajectory]]
    """Held-out seed → its episodes."""
    rollout_paid: Spent
    """What all its episodes took, those that are not learned from, too."""
    measured_paid: Spent


def record_of(
    number: int, made: Parts, policy: Policy, root: Path, seconds: Mapping[str, float], threshold: float
) -> Record:
    """Of an epoch that is over.

    Args:
        policy: that it left.
        threshold: a score above it is rewarded.
        root: of the training.
        seconds: by part that this process did from its beginning to its end.
    """
    graph, judged = made.run.graph, _judged(made.labels)
    return Record(
        epoch=number,
        version=policy.version,
        weights={slot: told(root, path) for slot, path in policy.weights.items()},
        adapters={slot: told(root, path) for slot, path in policy.adapters.items()},
        edges=list(graph.edges) if isinstance(graph.edges, list) else [],
        heat=dict(made.heat),
        success=Success.of(made.report),
        **of_play(made.run, made.played, made.rollout),
        **of_judging(made.labels, made.run, threshold),
        **of_pairs(made.pairs),
        rows=dict(made.rows),
        trained=dict(made.trained),
        untrained=dict(made.untrained),
        spent=_spent(made, seconds),
        hash=epoch_hash(
            played=made.played,
            judged=judged,
            pairs=() if made.pairs is None else made.pairs.pairs,
            learned={group: one.digest for group, one in made.rows.items()},
            weights={group: one.digest for group, one in made.trained.items()},
            measured=made.measured,
        ),
    )


def record_of_start(
    report: Report | None,
    measured: Mapping[int, Sequence[Trajectory]],
    paid: Spent,
    policy: Policy,
    root: Path,
    seconds: Mapping[str, float],
) -> Record:
    """Of epoch 0; arguments as `Parts` and `record_of`.

    Args:
        report: None where the untrained team was not measured.
        paid: what measuring it took.
    """
    return Record(
        epoch=0,
        version=policy.version,
        weights={slot: told(root, path) for slot, path in policy.weights.items()},
        adapters={slot: told(root, path) for slot, path in policy.adapters.items()},
        success=None if report is None else Success.of(report),
        spent={"evaluation": Spending.of(paid, seconds.get("evaluation"))},
        hash=epoch_hash(measured=measured),
    )


def of_play(run: RunConfig, played: Sequence[Trajectory], rollout: Report) -> dict[str, Any]:
    """What a rollout tells, as fields of a record; arguments as `Parts`, here and below."""
    found = {one.task.name for one in played}
    return {
        "played": Success.of(rollout),
        "tasks": [task for task in run.tasks if task in found],
        "steps": sum(len(one.steps) for one in played),
        "agreement": mean_agreement(played),
    }


def of_judging(labels: Labels | None, run: RunConfig, threshold: float) -> dict[str, Any]:
    """What judgements tell; a score above the threshold is rewarded."""
    graph, judged = run.graph, _judged(labels)
    return {
        "rewarded": reward_rate(judged, threshold),
        "rewards": reward_rates(judged, graph.slots, graph.rounds, threshold) if judged else {},
        "missing": dict(sum((one.missing for one in judged), Counter[str]())),
        "unasked": {} if labels is None else unasked(labels.failed.values()),
    }


def of_pairs(pairs: StoredPairs | None) -> dict[str, Any]:
    """What became of rewarded cells."""
    return {"pairs": PairCounts() if pairs is None else _counts(pairs.head)}


def _judged(labels: Labels | None) -> list[Judgement]:
    return [] if labels is None else list(labels.judged.values())


def _counts(head: PairHead) -> PairCounts:
    return PairCounts(
        counts=dict(head.counts),
        off_context=head.off_context,
        refused=dict(head.refused),
        failed=dict(head.failed),
        unjudged=head.unjudged,
        untried=head.untried,
    )


def _spent(made: Parts, seconds: Mapping[str, float]) -> dict[str, Spending]:
    asked = FREE if made.pairs is None else made.pairs.head.spent
    lost = () if made.labels is None else made.labels.lost
    return {
        "rollout": Spending.of(made.rollout_paid, seconds.get("rollout")),
        "critic": spent_on_judging(_judged(made.labels), seconds.get("critic"), lost),
        "adversary": Spending.of(asked, seconds.get("adversary")),
        "training": Spending(
            seconds=seconds.get("training"), prompt_tokens=sum(one.tokens for one in made.trained.values())
        ),
        "evaluation": Spending.of(made.measured_paid, seconds.get("evaluation")),
    }
