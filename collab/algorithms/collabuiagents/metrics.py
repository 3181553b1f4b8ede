"""Metrics of credit re-assignment: rewards, pairs and skipped cells of an epoch, their hashes, and printed lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import Field

from collab.algorithms.collabuiagents.config import CollabMethod
from collab.config import Definition, RunConfig, validate
from collab.errors import ConfigError, RunFormatError
from collab.loop.interfaces import EpochSummary
from collab.loop.record import EpochRecord, ExampleCounts, Trained, average, hash_json
from collab.preferences.explain import count_lines, count_sources, count_unpaired
from collab.preferences.store import PairHead, PairSet
from collab.rewards.base import Judgement
from collab.rewards.labels import FailedLabel, LabelSet
from collab.rewards.registry import read_definition
from collab.store.rewards import PreferencePair
from collab.trainers.run_dir import average_over_pairs, compute_chosen_gain
from collab.types import Trajectory
from collab.utils.text import format_amount, format_causes


class PairCounts(Definition):
    """Counts of cells that could give pairs; see `collab.preferences.store.PairHead`."""

    counts: dict[str, int] = Field(default_factory=dict)
    off_context: int = 0
    refused: dict[str, int] = Field(default_factory=dict)
    failed: dict[str, int] = Field(default_factory=dict)
    unjudged: int = 0
    untried: int = 0


class CollabCounts(ExampleCounts):
    """Counts of pairs and rewarded replies that gave examples."""

    replies: list[tuple[int, int]] = Field(default_factory=list)
    """For pairs of whole trajectories: number of replies of the chosen and of the rejected one; empty for other
    pairs."""
    anchors: int = 0
    """Rewarded replies without a pair of their own, in the anchor term of the loss; margin, accuracy and log p leave
    them out."""
    unjudged: int = 0
    """Unjudged steps of the epoch if rewarded replies are learned; else see `PairCounts`."""


class CollabMetrics(Definition):
    """`metrics` of an epoch's record; missing fields are as in an epoch without labels."""

    rewarded: float | None = None
    """Share of judged cells that were rewarded; None if none was judged."""
    rewards: dict[str, list[float | None]] = Field(default_factory=dict)
    """Agent → per round, the share of judged cells that were rewarded; None if none was judged."""
    judged: int = 0
    """Judged cells: those with a score."""
    disagreeing: float | None = None
    """Share of states in which agents proposed different actions; None without a state."""
    missing: dict[str, int] = Field(default_factory=dict)
    """Cells without a score, by cause."""
    flipped: tuple[int, int] | None = None
    """Cells whose reward was inverted on purpose, and cells with a score; None if the critic inverts none."""
    unasked: dict[str, int] = Field(default_factory=dict)
    """Steps for which asking the critic failed, by cause; their cells are in no other count."""
    pairs: PairCounts = PairCounts()
    anchors: dict[str, int] = Field(default_factory=dict)
    """Policy → `CollabCounts.anchors`, if there are any."""
    unjudged: dict[str, int] = Field(default_factory=dict)
    """Policy → `CollabCounts.unjudged`, if there are any."""


def read_metrics(record: EpochRecord) -> CollabMetrics:
    """Return the metrics of credit re-assignment in a record.

    Raises:
        RunFormatError: it holds something else under these names.
    """
    known = {name: value for name, value in record.metrics.items() if name in CollabMetrics.model_fields}
    try:
        return validate(CollabMetrics, known, f"epoch {record.epoch}: metrics of its epoch.json")
    except ConfigError as error:
        raise RunFormatError(f"{error}; remove that epoch.json, and the training makes it again") from None


def label_metrics(
    labels: LabelSet | None,
    pairs: PairSet | None,
    run: RunConfig,
    threshold: float,
    disagreeing: float | None = None,
) -> CollabMetrics:
    """Return the metrics of judgements and pairs.

    Args:
        labels: None if no critic was asked.
        pairs: None if nothing was compared, or not yet.
        threshold: a score above it is rewarded.
        disagreeing: `measure_disagreement` of the rollout; None if it was not measured.
    """
    judged = list_judgements(labels)
    return CollabMetrics(
        rewarded=compute_reward_rate(judged, threshold),
        rewards=compute_reward_rates(judged, run.graph.slots, run.graph.rounds, threshold) if judged else {},
        judged=sum(one.score is not None for judgement in judged for one in judgement.rewards.rewards),
        disagreeing=disagreeing,
        missing=dict(sum((one.missing for one in judged), Counter[str]())),
        flipped=None if labels is None else count_flipped(labels),
        unasked={} if labels is None else count_unasked(labels.failed.values()),
        pairs=PairCounts() if pairs is None else _build_counts(pairs.head),
    )


def compute_training_metrics(lines: Sequence[Mapping[str, object]], beta: float) -> dict[str, float | None]:
    """Return the metrics of preference training, over the pairs in the last quarter of the logged steps.

    margin         β times the mean difference of log-ratios, chosen less rejected; None if nothing was compared
    accuracy       share of pairs whose chosen side is preferred
    log p(chosen)  mean log p of a pair's chosen reply in nats, and of those in the first quarter
    chosen gain    nats that a chosen side is likelier than under the reference
    anchored gain  the same of anchored replies; None without any
    """
    return {
        "margin": average_over_pairs(lines, "margin"),
        "accuracy": average_over_pairs(lines, "preference_accuracy"),
        "logp_chosen": average_over_pairs(lines, "logp_chosen"),
        "logp_chosen_first": average_over_pairs(lines, "logp_chosen", first=True),
        "chosen_gain": compute_chosen_gain(lines, beta),
        "anchored_gain": average_over_pairs(lines, "anchored_gain", count="anchored"),
    }


def measure_disagreement(played: Iterable[Trajectory]) -> float | None:
    """Return the share of states in which agents proposed different actions; None without a state."""
    differs = [len(step.vote.ballots) > 1 for one in played for step in one.steps]
    return sum(differs) / len(differs) if differs else None


def list_judgements(labels: LabelSet | None) -> list[Judgement]:
    """Return the judgements of a rollout; none if no critic was asked."""
    return [] if labels is None else list(labels.judged.values())


def compute_reward_rates(
    judgements: Iterable[Judgement], agents: Sequence[str], rounds: int, threshold: float
) -> dict[str, list[float | None]]:
    """Return the share of judged cells above the threshold, per agent and round; None if none was judged."""
    # Missing scores count in no share: an unjudged cell is neither right nor wrong.
    judged, rewarded = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for judgement in judgements:
        for one in judgement.rewards.rewards:
            judged[one.cell] += one.score is not None
            rewarded[one.cell] += one.score is not None and one.score > threshold
    return {agent: [_share(rewarded, judged, (agent, round)) for round in range(rounds)] for agent in agents}


def compute_reward_rate(judgements: Iterable[Judgement], threshold: float) -> float | None:
    """Return the share of all judged cells with a score above the threshold; None if none was judged."""
    scores = [one.score for judgement in judgements for one in judgement.rewards.rewards if one.score is not None]
    return sum(score > threshold for score in scores) / len(scores) if scores else None


def count_flipped(labels: LabelSet) -> tuple[int, int] | None:
    """Return the cells whose reward was inverted on purpose and those with a score; None if the critic inverts none."""
    if not read_definition(labels.name, labels.head).flip:
        return None
    scored = [one for judged in labels.judged.values() for one in judged.rewards.rewards if one.score is not None]
    return sum(one.original is not None for one in scored), len(scored)


def count_unasked(failed: Iterable[FailedLabel]) -> dict[str, int]:
    """Return cause → steps for which asking the critic failed: the error's class, and its last message."""
    found: dict[str, list[str]] = {}
    for one in failed:
        found.setdefault(one.error, []).append(one.message)
    return {f"{kind}, the last: {said[-1]}": len(said) for kind, said in found.items()}


def hash_pairs(pairs: Iterable[PreferencePair]) -> str:
    """Return the SHA-256 of pairs, whatever their order."""
    return hash_json(sorted(_hash_pair(one) for one in pairs))


# ------------------------------------------------------------------------------------------------------ inside


def _build_counts(head: PairHead) -> PairCounts:
    return PairCounts(
        counts=dict(head.counts),
        off_context=head.off_context,
        refused=dict(head.refused),
        failed=dict(head.failed),
        unjudged=head.unjudged,
        untried=head.untried,
    )


def _hash_pair(pair: PreferencePair) -> str:
    sides = [[[one.trajectory, one.step, *one.cell] for one in side] for side in (pair.chosen, pair.rejected)]
    return hash_json([pair.id, pair.source, sides, pair.synthetic, pair.adversary, pair.prompt, pair.critic])


def _share(
    some: Mapping[tuple[str, int], int], all_: Mapping[tuple[str, int], int], cell: tuple[str, int]
) -> float | None:
    return some[cell] / all_[cell] if all_[cell] else None


def build_columns(record: EpochRecord) -> Mapping[str, object]:
    """Return columns of the table of epochs; the mean over trained policies."""
    found, trained = read_metrics(record), list(record.trained.values())
    # The mean over policies only where all have the number.
    margin, accuracy, logp, gain = (
        average([one.metrics.get(name) for one in trained])
        for name in ("margin", "accuracy", "logp_chosen", "chosen_gain")
    )
    # The gain against the reference stands beside log p: a falling log p is the failure to watch.
    likely = None if logp is None else f"{logp:.3f}{'' if gain is None else f' ({gain:+.2f})'}"
    return {
        "rewarded": None if found.rewarded is None else f"{found.rewarded:.0%}",
        "pairs": sum(one.examples for one in record.examples.values()) if record.examples else None,
        "margin": None if margin is None else f"{margin:.3f}",
        "accuracy": None if accuracy is None else f"{accuracy:.3f}",
        "log p(chosen)": likely,
    }


def summarize(record: EpochRecord) -> EpochSummary:
    """Return rewards and pairs for the inspector; raises as `read_metrics`."""
    found = read_metrics(record)
    return EpochSummary(
        rewards=found.rewards,
        missing=found.missing,
        inverted_labels=found.flipped,
        comparisons=count_sources(found.pairs),
        uncompared=count_unpaired(found.pairs),
    )


def format_lines(record: EpochRecord) -> list[str]:
    """Format rewards and pairs, one line for each kind of them that occurred."""
    found = read_metrics(record)
    # From results to their causes: rewards, training, pairs, then what was left out.
    return [
        *_format_rewards(found),
        *_format_flipped(found.flipped),
        *(
            []
            if found.disagreeing is None
            else [f"differed in {found.disagreeing:.0%} of states agents proposed different actions"]
        ),
        *(line for name, one in record.trained.items() for line in _format_training(name, one.metrics)),
        *count_lines(found.pairs),
        *(_format_anchors(name, count, record.trained.get(name)) for name, count in found.anchors.items()),
        *(
            f"unjudged {name}: {format_amount(count, 'step')} that could not be judged"
            for name, count in found.unjudged.items()
        ),
        *format_causes("no score", found.missing),
        *format_causes("unasked", found.unasked),
    ]


def describe(method: CollabMethod, flip: float = 0.0) -> str:
    """Return critic, adversary and objective in a clause.

    Args:
        flip: share of the critic's rewards that are inverted on purpose.
    """
    critic = f"critic {method.critic}{f' ({flip:.3g} of its labels flipped on purpose)' if flip else ''}"
    compared = f"reference {method.reference}; DPO with β {method.dpo.beta:g}"
    if method.objective == "rft":
        return f"{critic}; fine-tuning on rewarded replies"
    if method.objective == "trajectory-dpo":
        return f"{compared} between whole trajectories by their outcome"
    asked = f", adversary {method.adversary.kind}" if method.has_adversary else ""
    return f"{critic}{asked}, {compared}"


# ------------------------------------------------------------------------------------------------------ inside


def _format_rewards(found: CollabMetrics) -> list[str]:
    """Format the share of rewarded cells, per agent and round."""
    if not any(rate is not None for row in found.rewards.values() for rate in row):
        return []
    rows = [
        f"{agent} {' '.join('-' if one is None else f'{one:.0%}' for one in row)}"
        for agent, row in found.rewards.items()
    ]
    rounds = max(len(row) for row in found.rewards.values())
    return [f"rewarded {', '.join(rows)}{f' (rounds 1 to {rounds})' if rounds > 1 else ''}"]


def _format_flipped(flipped: tuple[int, int] | None) -> list[str]:
    return [] if flipped is None else [f"labels flipped on purpose: {flipped[0]} of {flipped[1]}"]


def _format_training(name: str, metrics: Mapping[str, float | None]) -> list[str]:
    margin, accuracy, logp, gain = (metrics.get(one) for one in ("margin", "accuracy", "logp_chosen", "chosen_gain"))
    against = "" if gain is None else f" ({gain:+.2f} against the reference)"
    parts = [
        *([] if margin is None else [f"margin {margin:.3f}"]),
        *([] if accuracy is None else [f"accuracy {accuracy:.1%}"]),
        *([] if logp is None else [f"log p(chosen) {logp:.1f}{against}"]),
    ]
    return [f"compared {name}: {', '.join(parts)}"] if parts else []


def _format_anchors(name: str, count: int, trained: Trained | None) -> str:
    replies = "1 rewarded reply" if count == 1 else f"{count} rewarded replies"
    gain = None if trained is None else trained.metrics.get("anchored_gain")
    against = "" if gain is None else f", log p {gain:+.2f} against the reference"
    return f"anchors  {name}: {replies} without a pair, learned as anchors{against}"
