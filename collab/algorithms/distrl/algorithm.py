"""DistRL: learn remembered episodes again, drawn by their priority and corrected for the policy that played them.

    collab train --algo distrl --env androidworld --graph single --agents early --out runs/distrl

Parts: `config` (the method and its ablations), `learner` (replay, V, corrections); the buffer is
`collab.trainers.rl.replay`, the formulas are in `collab.trainers.rl.estimators`, the loss is `importance` of
`collab.trainers.rl.policy_gradient`.

Workers play on while the policy learns (`collab.loop.continuous`), so replies come from older policies than the one
that learns; `collection: sync` waits for an epoch's own episodes instead.

Source: DistRL (Wang et al. 2024), its algorithm A-RIDE: sections 5.1 to 5.3 and appendix A.4. Deviations:

- eq. 1 adds λ E[P_invalid] to the loss, which has no gradient in the policy; here it is a part of the advantage
- `sound` corrects the value of a state by V-trace, whose product begins with the state's own action; the paper prints
  that of an action's value (`target: q`)
- `sound` adds r_t and one estimate of the future to an advantage; the paper leaves out r_t and counts the future twice.
  The preset `paper` counts it twice and adds r_t, as a successful last action would earn nothing
- `sound` takes the entropy of the distribution in a priority; the paper, as the other presets, −log π of the reply
- whole episodes leave the buffer, where the paper overwrites transitions one by one
- V reads hidden states of the first policy's checkpoint; the paper has no separate value of trajectories here, which
  labels and filters them: verdicts are the environment's or a verifier's
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from collab.algorithms.distrl.config import ABLATIONS, DistRLMethod
from collab.algorithms.distrl.learner import DistRLLearner, DistRLMetrics, estimate_values
from collab.algorithms.reply_ratios import refuse_without_ratio
from collab.algorithms.turn_algorithm import TurnAlgorithm, refuse_teams
from collab.config import validate
from collab.envs.base import Bounded, Suite
from collab.errors import UsageError
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import EpochSummary, PredictionQuality, TriedStep
from collab.loop.ranges import Estimate, Range
from collab.loop.record import EpochRecord
from collab.utils.text import format_amount

RECORDED = "unknown (recorded before)"
"""Versions since a reply of a run that was recorded before the training, in words."""


class DistRL(TurnAlgorithm):
    """Off-policy learning from prioritised replay."""

    name = "distrl"
    description = "DistRL: episodes are remembered, drawn by priority, and corrected for the policy that played them"
    method = DistRLMethod
    presets = Path(__file__).parent / "presets"
    default_preset = "sound"
    ablations = ABLATIONS
    toy = (  # easy enough to be solved at times
        *(
            "collection=sync",
            "steps=null",
            "episodes=8",
            "updates=2",
            "rl.batch_rows=8",
            "capacity=60",
            "priorities.refreshed=3",
            "advantage_range=[-1,1]",  # an unsolved episode teaches, too: a proof of one turn a step draws a single one
        ),
        *("offline={steps: 30, updates: 2, value_updates: 5}", "values.hidden=8"),
        "run.environment.backends.fake.options.declared=false",
    )
    toy_graph = "single"
    learner = DistRLLearner()

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Refuse teams, and replies that have no ratio; return doubts about the verifier."""
        refuse_teams(self.name, config)
        refuse_without_ratio(self.name, config)
        method = config.method
        assert isinstance(method, DistRLMethod), "the loop gives each algorithm its own method"
        if method.is_continuous and isinstance(suite, Bounded):
            raise UsageError(
                f"collection: async, but {suite.label} has {suite.most_environments} environments, which evaluations "
                "need while episodes are played on; set collection=sync"
            )
        return [*super().list_doubts(config, suite), *_list_own_doubts(config, method)]

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate verdicts, values, and learning from the turns that are drawn."""
        found = await super().estimate(config, tried, rolled)
        return replace(found, labels=(*found.labels, await estimate_values(config, tried)))

    def build_columns(self, record: EpochRecord) -> dict[str, object]:
        """Return how old what is learned was, and how likely it still is, beside the columns of all learners."""
        told = _read_metrics(record)
        if told is None:
            return super().build_columns(record)
        return {
            **super().build_columns(record),
            "staleness": _show(compute_mean_staleness(told.staleness)),
            "ratio": _show(told.ratio),
        }

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return replay, corrections and V in numbers, beside what all learners of turns tell."""
        told, found = _read_metrics(record), super().summarize(record)
        if told is None:
            return found
        curves: dict[str, Mapping[str, float | None]] = {
            "Ratio of drawn replies": {"mean": told.ratio, "a tenth is below": told.lowest_ratio},
            "Versions between reply and learning": {
                "mean": compute_mean_staleness(told.staleness),
                "oldest": max(told.staleness, default=None),
            },
            "Entropy of the policy": {"mean": told.entropy},
            "Priorities": dict(zip(("lowest", "median", "highest"), told.priorities or (), strict=False)),
        }
        # A number that the epoch lacks is no point of its line.
        known = {
            title: {name: value for name, value in lines.items() if value is not None}
            for title, lines in curves.items()
        }
        predictions = {}
        if told.values is not None:
            values = told.values
            predictions["states"] = PredictionQuality(
                held_out=values.states, accuracy=values.accuracy, auc=values.auc, ece=values.ece, note=told.lost
            )
        return replace(
            found,
            curves={title: one for title, one in known.items() if one},
            histograms=build_histograms(told),
            predictions=predictions,
        )

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format replay, corrections and V behind what all learners of turns tell, line by line."""
        told = _read_metrics(record)
        return [*super().format_lines(record), *([] if told is None else format_metrics(told))]


def _list_own_doubts(config: TrainingConfig, method: DistRLMethod) -> list[str]:
    doubts = []
    if method.offline is not None and method.offline.steps > method.capacity:
        doubts.append(
            f"capacity={method.capacity}: of the {method.offline.steps} steps that epoch 1 begins with, only the "
            f"newest are remembered and learned; --set capacity={method.offline.steps} remembers all"
        )
    if method.is_continuous and method.determinism == "exact":
        doubts.append(
            "determinism=exact: with collection=async an epoch learns from what ended first, so two trainings differ "
            "all the same; collection=sync makes them alike, and --replay proves one as it was"
        )
    return doubts


def build_histograms(told: DistRLMetrics) -> dict[str, Mapping[str, int]]:
    """Return title → bins of what was drawn and is remembered; without those that have none."""
    highest = told.priorities[-1] if told.priorities else 0.0
    found = {
        "Drawn replies, by versions since": {
            **{str(age): told.staleness.get(age, 0) for age in range(max(told.staleness, default=-1) + 1)},
            **({RECORDED: told.undated} if told.undated else {}),
        },
        "Drawn replies, by ratio": _name_bins(told.ratios, 1.0),
        "Remembered episodes, by priority": _name_bins(told.priority_counts, highest),
    }
    return {title: bins for title, bins in found.items() if bins}


def compute_mean_staleness(counts: Mapping[int, int]) -> float | None:
    """Return the mean number of versions between replies and learning; None without a reply whose version is known."""
    total = sum(counts.values())
    return sum(age * count for age, count in counts.items()) / total if total else None


def format_metrics(told: DistRLMetrics) -> list[str]:
    """Format the replay, corrections and V of an epoch, line by line."""
    held = f"{format_amount(told.remembered_episodes, 'episode')} of {told.remembered_steps} steps"
    priorities = "" if told.priorities is None else f"; priorities {' … '.join(map(_show, told.priorities))}"
    ages = [f"{count} of {age}" for age, count in sorted(told.staleness.items())]
    ages += [f"{told.undated} {RECORDED}"] if told.undated else []
    marks = {"repetitions": told.penalised, "without an action": told.invalid, "too unlikely": told.underflowed}
    marked = "".join(f", {count} {name}" for name, count in marks.items() if count)
    lines = [
        f"replay   {held}; drawn {told.drawn} replies of {told.drawn_episodes} different episodes{priorities}",
        f"age      drawn replies by versions since: {', '.join(ages) or '-'}",
        f"ratio    {_show(told.ratio)} on average, a tenth below {_show(told.lowest_ratio)}; entropy "
        f"{_show(told.entropy)}{marked}",
    ]
    if told.values is not None:
        found = {"accuracy": told.values.accuracy, "AUC": told.values.auc, "ECE": told.values.ece}
        numbers = ", ".join(f"{name} {_show(value)}" for name, value in found.items())
        lines.append(f"V        of states: {numbers} on new episodes before the fit, n = {told.values.states}")
    return [*lines, *([f"V        {told.lost}"] if told.lost else [])]


def _name_bins(counts: Sequence[int], most: float) -> dict[str, int]:
    """Return the counts of equal bins of [0, most] by name."""
    edges = [most * place / len(counts) for place in range(len(counts) + 1)] if counts else []
    names = [f"{low:.2f} – {high:.2f}" for low, high in pairwise(edges)]
    return dict(zip(names, counts, strict=True))


def _show(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _read_metrics(record: EpochRecord) -> DistRLMetrics | None:
    """Return the metrics of an epoch; None before an epoch has learned."""
    found = record.metrics.get("distrl")
    return None if found is None else validate(DistRLMetrics, found, f"epoch {record.epoch}: metrics of its epoch.json")
