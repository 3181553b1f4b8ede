"""Agreement of two verifiers: pure functions over their verdicts on the same episodes.

    agreement     share of episodes on which both say the same, with Wilson's interval
    kappa         Cohen's κ = (p − e) / (1 − e): agreement p beyond the agreement e that chance would give
    positives     of the episodes that the reference calls failures, the share that the verifier calls successes
    negatives     of the episodes that the reference calls successes, the share that the verifier calls failures

Episodes without one of the two verdicts are left out and counted: a verifier that judges only easy episodes looks
better than it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from collab.evaluation.metrics import Rate
from collab.rewards.verifiers.base import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A share of some episodes with its 95 % Wilson interval."""

    count: int
    total: int
    value: float | None
    """In [0, 1]; None without episodes."""
    low: float
    high: float

    @classmethod
    def of(cls, count: int, total: int) -> Share:
        """Return the share of so many among all."""
        rate = Rate(successes=count, episodes=total)
        low, high = rate.interval
        return cls(count=count, total=total, value=rate.value if total else None, low=low, high=high)

    def __str__(self) -> str:
        return Rate(successes=self.count, episodes=self.total).numbers if self.total else "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Episodes by what the verifier and the reference say."""

    true_positives: int = 0
    """Both say success."""
    false_positives: int = 0
    """The verifier says success, the reference failure."""
    true_negatives: int = 0
    false_negatives: int = 0

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> Confusion:
        """Count pairs of verifier's and reference's verdict."""
        counts = Counter(pairs)
        return cls(
            true_positives=counts[True, True],
            false_positives=counts[True, False],
            true_negatives=counts[False, False],
            false_negatives=counts[False, True],
        )

    @property
    def total(self) -> int:
        """All episodes."""
        return self.true_positives + self.false_positives + self.true_negatives + self.false_negatives

    @property
    def agreement(self) -> Share:
        """Episodes on which both say the same."""
        return Share.of(self.true_positives + self.true_negatives, self.total)

    @property
    def wrong_successes(self) -> Share:
        """False positives among the reference's failures."""
        return Share.of(self.false_positives, self.false_positives + self.true_negatives)

    @property
    def wrong_failures(self) -> Share:
        """False negatives among the reference's successes."""
        return Share.of(self.false_negatives, self.false_negatives + self.true_positives)

    @property
    def kappa(self) -> float | None:
        """Cohen's κ; None without episodes, or where both always say the same one thing."""
        if not self.total:
            return None
        own, other = self.true_positives + self.false_positives, self.true_positives + self.false_negatives
        n = self.total
        chance = (own * other + (n - own) * (n - other)) / n**2
        agreed = (self.true_positives + self.true_negatives) / n
        return None if chance == 1 else (agreed - chance) / (1 - chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAgreement:
    """Agreement on the episodes of one task."""

    task: str
    agreement: Share
    confusion: Confusion


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of a verifier with a reference."""

    episodes: int
    """Episodes that were judged, those without a verdict included."""
    agreement: Share
    """Over the episodes on which both gave a verdict, as all that follows."""
    kappa: float | None
    positives: Share
    negatives: Share
    confusion: Confusion
    by_task: tuple[TaskAgreement, ...]
    """By name."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Episodes without a verdict of the verifier, by cause, most first."""
    reference_missing: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """Both verdicts on one episode."""

    task: str
    verifier: Verdict
    reference: Verdict


def compare_verdicts(pairs: Sequence[JudgedPair]) -> Agreement:
    """Compare both verdicts on each episode."""
    by_task: dict[str, list[tuple[bool, bool]]] = {}
    for one in pairs:
        own, other = one.verifier.success, one.reference.success
        said = by_task.setdefault(one.task, [])
        if own is not None and other is not None:
            said.append((own, other))
    whole = Confusion.of(pair for said in by_task.values() for pair in said)
    counts = {task: Confusion.of(said) for task, said in sorted(by_task.items())}
    return Agreement(
        episodes=len(pairs),
        agreement=whole.agreement,
        kappa=whole.kappa,
        positives=whole.wrong_successes,
        negatives=whole.wrong_failures,
        confusion=whole,
        by_task=tuple(TaskAgreement(task=task, agreement=one.agreement, confusion=one) for task, one in counts.items()),
        missing=_count_causes(one.verifier for one in pairs),
        reference_missing=_count_causes(one.reference for one in pairs),
    )


def _count_causes(verdicts: Iterable[Verdict]) -> dict[str, int]:
    return dict(Counter(one.missing for one in verdicts if one.missing is not None).most_common())
