"""What came of an epoch, `epoch.json`, and of a training, the summary in `marl.json`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from collab.comparison import is_spoilt
from collab.config import Definition, validate
from collab.credit.critic import Judgement, spent_on
from collab.credit.labels import Failed
from collab.errors import RunFormatError
from collab.evaluation import Report, describe_sampling
from collab.marl.layout import MarlFolder
from collab.plain import read_plain
from collab.store.cost import total
from collab.types import Spent, Trajectory


class Success(Definition):
    """How often tasks were solved."""

    successes: int
    episodes: int
    """Planned ones; broken ones count as not solved."""
    low: float
    high: float
    """95 % Wilson interval."""
    broken: int
    replies: int = 0
    """Replies of the episodes that are over."""
    without_action: dict[str, int] = Field(default_factory=dict)
    """Those among them that gave no action, by cause (`ParseFailure.kind`)."""
    sampled: str = ""
    """Temperatures of the agents in words, e.g. "temperature 1.5"; empty where they are not known."""

    @property
    def value(self) -> float:
        """In [0, 1]."""
        return self.successes / self.episodes if self.episodes else 0.0

    @classmethod
    def of(cls, report: Report) -> Success:
        """Of a report, over all planned episodes."""
        low, high = report.planned.interval
        rate = report.planned
        return cls(
            successes=rate.successes,
            episodes=rate.episodes,
            low=low,
            high=high,
            broken=report.broken,
            replies=report.replies.total,
            without_action=dict(report.replies.causes),
            sampled=describe_sampling(report.sampling) if report.sampling else "",
        )


class Spending(Definition):
    """What a part of an epoch took."""

    seconds: float | None = None
    """None where several processes worked on it, or one that did not live to tell; and where nothing was to be done."""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Of training: tokens trained, padding left out, are prompt tokens."""
    cost_usd: float = 0.0

    @classmethod
    def of(cls, paid: Spent, seconds: float | None) -> Spending:
        """Of calls that took so much."""
        return cls(
            seconds=seconds,
            calls=paid.calls,
            prompt_tokens=paid.prompt_tokens,
            completion_tokens=paid.completion_tokens,
            cost_usd=paid.cost_usd,
        )


class Trained(Definition):
    """What became of one policy."""

    checkpoint: str
    """Directory; "./…" lies within the training."""
    digest: str
    """SHA-256 over its weights."""
    dropped: int
    """Examples longer than the context: pairs, anchors and older rows; replies where nothing is compared."""
    steps: int
    tokens: int
    loss: float
    margin: float | None
    """β times the mean difference of log-ratios, chosen less rejected, of the pairs in the last quarter of the logged
    steps; None where nothing was compared, here and below."""
    accuracy: float | None
    """Share of those pairs whose chosen side is preferred."""
    logp_chosen: float | None
    """Mean log p of a pair's chosen reply in nats, of the pairs in the last quarter of the logged steps …"""
    logp_chosen_first: float | None
    """… and of those in the first quarter."""
    chosen_gain: float | None = None
    """Nats that a chosen side is likelier than under the reference, of the pairs in the last quarter of the logged
    steps; None also where an older version wrote it."""
    alarm: str | None = None
    """The last alarm, and at how many of the logged steps there was one; None when there was none."""


class RowCounts(Definition):
    """What became of examples, pairs and rewarded replies, on their way to rows."""

    pairs: int = 0
    """Of this epoch; where nothing is compared, its rewarded replies."""
    replies: list[tuple[int, int]] = Field(default_factory=list)
    """Of pairs of whole trajectories: replies of the chosen and of the rejected one; empty for other pairs."""
    anchors: int = 0
    """Rewarded replies without a pair of their own that the loss holds on to beside pairs; margin, accuracy and log p
    leave them out."""
    older: int = 0
    """Rows of older epochs that were mixed in."""
    refused: dict[str, int] = Field(default_factory=dict)
    """Pairs, and replies that were to be held on to beside them, that became no row, by cause; see `pairs`."""
    repeated: int = 0
    """Rows, older ones included, with prompt and replies of one before them, in the same tokens: each is learned once.
    0 for whole trajectories, of which none is left out."""
    unjudged: int = 0
    """Steps of the epoch that nobody could judge, where rewarded replies are learned; else see `PairCounts`."""
    digest: str | None = None
    """SHA-256 over all that is learned, older rows included; None in records that were written without it."""
    retokenised: int = 0
    """Of all of these, kept or refused, those with a sampled reply whose tokens are not known in the policy's
    tokenizer: it is learned in those of its text."""


class PairCounts(Definition):
    """What became of cells that pairs might have been made of; see `collab.credit.pair_store.PairHead`."""

    counts: dict[str, int] = Field(default_factory=dict)
    off_context: int = 0
    refused: dict[str, int] = Field(default_factory=dict)
    failed: dict[str, int] = Field(default_factory=dict)
    unjudged: int = 0
    untried: int = 0


class Record(Definition):
    """`epoch.json`."""

    epoch: int
    version: int
    """Of the policy that it left: the last epoch that changed any weights."""
    weights: dict[str, str]
    """Slot → checkpoint that it left."""
    adapters: dict[str, str] = Field(default_factory=dict)
    """Slot → LoRA adapter over it that it left; slots without one are missing."""
    edges: list[tuple[str, str]] = Field(default_factory=list)
    """(speaker, hearer) of the rollout."""
    heat: dict[str, float] = Field(default_factory=dict)
    """Slot → what its temperature was multiplied by in the rollout; empty where it sampled as declared."""
    played: Success | None = None
    """Of the rollout, of its episodes that broke, too; nothing is learned from those. None for epoch 0."""
    tasks: list[str] = Field(default_factory=list)
    """Tasks that were learned from, in the order in which they were drawn."""
    steps: int = 0
    """Environment steps of the rollout that were learned from."""
    success: Success | None = None
    """On held-out seeds, after training; None for an epoch 0 that was not measured."""
    rewarded: float | None = None
    """Share of judged cells that were rewarded; None where none was judged, or in records that were written without
    it."""
    rewards: dict[str, list[float | None]] = Field(default_factory=dict)
    """Agent → per round, the share of judged cells that were rewarded; None where none was judged."""
    missing: dict[str, int] = Field(default_factory=dict)
    """Cells without a score, by cause."""
    unasked: dict[str, int] = Field(default_factory=dict)
    """Steps about which the critic could not be asked, by cause; their cells are in no other count."""
    agreement: float | None = None
    """`Step.agreement`, the mean over the steps that were learned from; None without any."""
    pairs: PairCounts = PairCounts()
    rows: dict[str, RowCounts] = Field(default_factory=dict)
    """By policy."""
    trained: dict[str, Trained] = Field(default_factory=dict)
    """By policy."""
    untrained: dict[str, str] = Field(default_factory=dict)
    """By policy: why it stays what it was."""
    spent: dict[str, Spending] = Field(default_factory=dict)
    """By part: "rollout", "critic", "adversary", "training", "evaluation"."""
    hash: str
    """Of all that was said, done, rewarded, paired and learned; see `hashing`."""


class Summary(Definition):
    """How a training ended."""

    best: int | None
    """Epoch with the highest held-out success, the earliest of equals; None when none was measured."""
    epochs: int
    """The last one that is over."""
    stopped_early: bool
    """Whether patience ended it before its last epoch."""
    hash: str
    """Run hash."""


def read_record(path: Path) -> Record:
    """An epoch's record; RunFormatError when it cannot be read."""
    try:
        return validate(Record, json.loads(read_plain(path)), str(path))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFormatError(
            f"{path}: cannot be read: {error}; remove it, and it is made again of what lies beside it by: "
            f"{MarlFolder(path.parents[2]).resume}"
        ) from None


def records_until(folder: MarlFolder, epoch: int) -> list[Record]:
    """Of a training's epochs from 0 to this one, those that are over; RunFormatError when one cannot be read."""
    records = [folder.epoch(number).record for number in range(epoch + 1)]
    return [read_record(path) for path in records if path.is_file()]


def best_of(records: Iterable[Record]) -> int | None:
    """The epoch with the highest held-out success; of equals the earliest, None when none was measured.

    One of which too many episodes broke, as older versions recorded, counts as not measured.
    """
    measured = [
        one for one in records if one.success is not None and not is_spoilt(one.success.broken, one.success.episodes)
    ]
    ranked = sorted(measured, key=lambda one: (-(one.success.value if one.success else 0.0), one.epoch))
    return ranked[0].epoch if ranked else None


def patience_is_over(records: Sequence[Record], patience: int | None) -> bool:
    """Whether the best epoch lies `patience` epochs back; never when that is None or nothing was measured."""
    best = best_of(records)
    return patience is not None and best is not None and records[-1].epoch - best >= patience


def reward_rates(
    judgements: Iterable[Judgement], agents: Sequence[str], rounds: int, threshold: float
) -> dict[str, list[float | None]]:
    """Share of judged cells with a score above the threshold, per agent and round; None where none was judged."""
    judged, rewarded = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for judgement in judgements:
        for one in judgement.rewards.rewards:
            judged[one.cell] += one.score is not None
            rewarded[one.cell] += one.score is not None and one.score > threshold
    return {agent: [_share(rewarded, judged, (agent, round)) for round in range(rounds)] for agent in agents}


def reward_rate(judgements: Iterable[Judgement], threshold: float) -> float | None:
    """Share of all judged cells with a score above the threshold; None where none was judged."""
    scores = [one.score for judgement in judgements for one in judgement.rewards.rewards if one.score is not None]
    return sum(score > threshold for score in scores) / len(scores) if scores else None


def unasked(failed: Iterable[Failed]) -> dict[str, int]:
    """Cause → steps about which nobody could be asked: the class of the error, and what the last one said."""
    found: dict[str, list[str]] = {}
    for one in failed:
        found.setdefault(one.error, []).append(one.message)
    return {f"{kind}, the last: {said[-1]}": len(said) for kind, said in found.items()}


def mean_agreement(trajectories: Iterable[Trajectory]) -> float | None:
    """Mean of `Step.agreement` over all steps; None without any."""
    found = [step.agreement for trajectory in trajectories for step in trajectory.steps if step.agreement is not None]
    return sum(found) / len(found) if found else None


def spent_on_judging(judgements: Iterable[Judgement], seconds: float | None, lost: Iterable[Spent] = ()) -> Spending:
    """What the calls behind judgements took.

    Args:
        lost: what was paid for answers about steps that could not be judged, see `Labels.lost`.
    """
    return Spending.of(total([*(spent_on(judgement.calls) for judgement in judgements), *lost]), seconds)


def _share(
    some: Mapping[tuple[str, int], int], all_: Mapping[tuple[str, int], int], cell: tuple[str, int]
) -> float | None:
    return some[cell] / all_[cell] if all_[cell] else None
