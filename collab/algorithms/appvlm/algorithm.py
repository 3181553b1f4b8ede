"""AppVLM: collect in rounds, imitate what was solved, and at the end imitate all of it anew from the base.

    collab train --algo appvlm --env androidworld --graph single --agents early --out runs/appvlm

Published as Algorithm 1, here as epochs of the loop that all algorithms share:

    AppVLM-base ← VLM, fine-tuned on D          the first policy, `--agents` (docs/finetuning.md makes one)
    for each iteration i:                       `rounds` epochs, all of them played by RFT_i
        D_on ← D_on ∪ CollectData               first round: all tasks; the others: those solved less than τ times
        RFT_{i+1} ← RFT_i, fine-tuned on D_on   the learning of its last epoch, on all of D_on; others learn nothing
    AppVLM ← AppVLM-base, fine-tuned on D_on    the last epoch, which plays nothing

An example with `rounds: 2`, `epochs: 5`:

    epoch        1        2              3        4              5
    plays        all      below τ        all      below τ        –
    with         base     base           RFT_1    RFT_1          –
    learns       –        RFT_1          –        RFT_2          AppVLM, from base
    evaluates    –        RFT_1          –        RFT_2          AppVLM

D_on is the list of judged episodes of all epochs so far (`collab.algorithms.experience`): references to the rollouts,
written before anything is learned from them. The last epoch learns from the rollouts before it as `--offline` runs are
learned from. Its order of turns is written like any other, and its weights begin with those of the first policy, which
the head of the training keeps a digest of. So every epoch is resumed like one of `filtered-bc`, and nothing is kept in
memory from one to the next: what a round plays, and how often a solution is repeated, follow from episodes on disk.

Balance: a task with n < τ solutions has each of them repeated ⌊τ/n⌋ or ⌈τ/n⌉ times, τ in all, drawn by seed; one with
more keeps all of them, once each. Repeats stand in the order of turns, not in weights: all turns weigh 1.

A step is left out if the next screen is the same: its text and, where pictures are recorded, its picture. The last one
of an episode is kept. Later prompts keep the history as it was recorded.

Source: AppVLM (Papoudakis et al. 2025), sections 3.3, 3.4 and Algorithm 1. Deviations:

- text says three iterations, tables report four; the presets have four
- how often a task is played, at which temperature, and how many solutions are repeated is open
- a fine-tuning begins with a new optimizer, whose rate falls to 0; on which schedule is open, here linearly
- the ablation AWO continues from a checkpoint that the user names (`undemonstrated`)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from collab.algorithms.appvlm.config import ABLATIONS, AppVLMMethod
from collab.algorithms.appvlm.learner import (
    DEMONSTRATED,
    AppVLMCounts,
    AppVLMLearner,
    Demonstrated,
    UnsolvedTasks,
    get_method,
    name_start,
)
from collab.algorithms.lesson_counts import name_policies, read_counts_of
from collab.algorithms.turn_algorithm import TurnAlgorithm, refuse_teams
from collab.config import Budget, validate
from collab.envs.base import Suite
from collab.errors import RunFormatError, UsageError
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import Checked, EpochSummary
from collab.loop.loop import hash_base_weights
from collab.loop.record import EpochRecord
from collab.utils.text import format_amount


class AppVLM(TurnAlgorithm):
    """Reinforced fine-tuning in iterations, and a final one from the base."""

    name = "appvlm"
    description = (
        "AppVLM: imitate what was solved, in iterations that balance tasks, and at the end all of it from the base"
    )
    method = AppVLMMethod
    presets = Path(__file__).parent / "presets"
    default_preset = "sound"
    ablations = ABLATIONS
    toy = (
        *("epochs=3", "episodes=8", "tau=3", "passes=1", "final_passes=1", "rl.batch_rows=8", "demonstrations=2"),
        "run.environment.backends.fake.options.declared=false",
    )
    toy_graph = "single"
    toy_epochs = 3
    curriculum = UnsolvedTasks()
    learner = AppVLMLearner()

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Refuse teams, and a final fine-tuning that begins nowhere; return doubts about the verifier."""
        refuse_teams(self.name, config)
        method = get_method(config)
        if method.final_from == "undemonstrated" and method.undemonstrated is None:
            raise UsageError(
                "final_from=undemonstrated: needs the checkpoint that the first policy was before it learned "
                "demonstrations; name it with --set undemonstrated=DIR"
            )
        found = super().list_doubts(config, suite)
        if method.demonstrations and "oracle" not in suite.capabilities:
            found.append(
                f"demonstrations={method.demonstrations}: {suite.label} knows no solutions, so step accuracy is not "
                "measured"
            )
        return found

    async def check(self, config: TrainingConfig, suite: Suite, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Check the verifier, and record the digest of a checkpoint that the final fine-tuning begins with."""
        found, start = await super().check(config, suite, budget, options), name_start(config)
        return (
            found if start is None else replace(found, head={**found.head, "undemonstrated": hash_base_weights(start)})
        )

    def check_resumed(self, config: TrainingConfig, head: Mapping[str, Any]) -> None:
        """Compare that checkpoint with the one that the training began with."""
        start = name_start(config)
        if start is not None and hash_base_weights(start) != head.get("undemonstrated"):
            raise RunFormatError(
                f"undemonstrated={get_method(config).undemonstrated}: has changed since the training began; put back "
                "what was there, or train anew"
            )

    def describe(self, config: TrainingConfig) -> str:
        """Return how policies are trained, and in how many iterations."""
        iterations = format_amount(get_method(config).iterations, "iteration")
        return f"{super().describe(config)}; {iterations}"

    def build_columns(self, record: EpochRecord) -> dict[str, object]:
        """Return step accuracy, where it is measured, beside the columns of all learners of turns."""
        told = _read_demonstrated(record)
        return {**super().build_columns(record), **({} if told is None else {"step accuracy": str(told)})}

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return step accuracy as a curve, beside what all learners of turns tell."""
        told, found = _read_demonstrated(record), super().summarize(record)
        if told is None or not told.steps:
            return found
        return replace(found, curves={"Steps of held-out demonstrations": {"step accuracy": told.right / told.steps}})

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format the balance of tasks and step accuracy behind what all learners of turns tell."""
        counts, told = name_policies(read_counts_of(record, AppVLMCounts)), _read_demonstrated(record)
        return [
            *super().format_lines(record),
            *(line for of, one in counts for line in format_balance(of, one)),
            *([] if told is None else format_accuracy(told)),
        ]


def format_balance(of: str, counts: AppVLMCounts) -> list[str]:
    """Format how many tasks have solutions, and how many of these are repeated; nothing where none was learned.

    Args:
        of: as `name_policies` gives it.
    """
    if not counts.solved_tasks:
        return []
    below = f", {counts.below_tau} of them less than τ times" if counts.below_tau else ""
    more = f"; {format_amount(counts.repeated, 'solution')} repeated" if counts.repeated else ""
    return [f"balance  {format_amount(counts.solved_tasks, 'task')} solved{of}{below}{more}"]


def format_accuracy(told: Demonstrated) -> list[str]:
    """Format step accuracy in a line."""
    before = "" if told.before is None else f"; {told.before} before any training"
    unknown = f"; {format_amount(told.unknown, 'instance')} without any" if told.unknown else ""
    return [f"steps    {told} demonstrated ones are what the policy would do{before}{unknown}"]


def _read_demonstrated(record: EpochRecord) -> Demonstrated | None:
    """Return the step accuracy of an epoch; None where it was not measured."""
    found = record.metrics.get(DEMONSTRATED)
    where = f"epoch {record.epoch}: metrics of its epoch.json"
    return None if found is None else validate(Demonstrated, found, where)
