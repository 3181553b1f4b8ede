"""The learner: examples from pairs and rewarded replies, then one fine-tuning run per policy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from collab.algorithms.collabuiagents.config import CollabConfig
from collab.algorithms.collabuiagents.examples import FILES, CollabExamples, examples_of, read_trajectories
from collab.algorithms.collabuiagents.labeller import config_of
from collab.algorithms.collabuiagents.metrics import CollabCounts, training_metrics
from collab.data.tokenize import read_data
from collab.loop.checks import check_bases
from collab.loop.config import TrainingConfig
from collab.loop.example_store import draw_older, examples_file, store, stored
from collab.loop.examples import example_builder
from collab.loop.finetuning import Finetuning, finetune, task_of_epoch
from collab.loop.interfaces import Labels, Rollout, Update
from collab.loop.policy import Policy, first_policy
from collab.loop.record import ExampleCounts, TrainingDir
from collab.loop.state import LoopState
from collab.rollout.build import build_suite
from collab.trainers.prepare import Prepared, Task, prepare
from collab.trainers.recipe import DpoRecipe, Recipe, SftRecipe
from collab.trainers.trajectory_dpo import prepare_trajectories

NO_PAIR, NO_REWARD = "no valid pair in this epoch", "no rewarded reply in this epoch"


class CreditLearner:
    """Learns from pairs by DPO, or from rewarded replies; see `Learner`."""

    def check(self, config: TrainingConfig) -> None:
        """Refuse checkpoints that the recipe cannot train."""
        check_bases(config)

    async def update(self, state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> Update:
        """Write the examples of an epoch, then train every policy on its own."""
        counts = await write_examples(state, rollout, labels, policy)
        examples = {group: _generic(one) for group, one in counts.items()}
        metrics = {
            "anchors": {group: one.anchors for group, one in counts.items() if one.anchors},
            "unjudged": {group: one.unjudged for group, one in counts.items() if one.unjudged},
        }
        state.progress.tell(examples=examples, metrics={**labels.metrics, **metrics})
        trained, untrained = await finetune(state, rollout.number, finetuning(state, rollout.number, policy))
        return Update(trained=trained, untrained=untrained, examples=examples, metrics=metrics)


async def write_examples(state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> dict[str, CollabCounts]:
    """Return the counts of an epoch's examples, as they were written, or written now."""
    config, folder, number = config_of(state), state.folder, rollout.number
    counts = stored(folder.epoch(number).examples, CollabCounts)
    if counts is not None:
        return counts
    state.begin("examples")
    suite = build_suite(rollout.run)
    try:
        with example_builder(config, rollout, policy) as builder:
            made = examples_of(rollout, labels.value, suite.space, builder)
    finally:
        await suite.close()
    return store_examples(config, folder, number, made)


def store_examples(
    config: CollabConfig, folder: TrainingDir, number: int, made: CollabExamples
) -> dict[str, CollabCounts]:
    """Write the examples of an epoch, with those of older epochs that are drawn for it, and return their counts."""
    file, share = FILES[config.method.objective], config.method.older
    older = {
        group: draw_older(config, folder, number, group, file=file, share=share, own=len(rows), purpose="older pairs")
        for group, rows in made.rows.items()
    }
    store(made, folder, number, file=file, older=older)
    return {group: made.counts(group, older[group]) for group in made.rows}


def rewarded_recipe(recipe: DpoRecipe) -> SftRecipe:
    """Return the same recipe without a comparison: rate, batches, passes, adapter and precision are those of DPO.

    What is left of its loss is what the anchor of DPO is, the mean −log p per token of good replies, with weight 1.
    """
    same = {name: getattr(recipe, name) for name in Recipe.model_fields}
    return SftRecipe(**same, levels=("demonstration",))


def finetuning(state: LoopState, number: int, policy: Policy) -> Finetuning:
    """Return how every policy is trained on its examples of an epoch."""
    config = config_of(state)
    file = FILES[config.method.objective]
    return Finetuning(
        nothing=NO_REWARD if config.method.objective == "rft" else NO_PAIR,
        has_examples=lambda group: examples_file(state.folder, number, group, file).exists(),
        prepare=partial(_prepared, state, number, policy),
        measure=lambda lines: training_metrics(lines, config.method.dpo.beta),
    )


# ------------------------------------------------------------------------------------------------------ inside


def _prepared(state: LoopState, number: int, policy: Policy, group: str) -> Prepared:
    """What to train: from the policy as it is, examples tokenised and ordered, against what the objective names.

    Few examples make one smaller step, which the manifest tells.

    Raises:
        NothingFits: all are longer than the context.
    """
    config, epoch = config_of(state), state.folder.epoch(number)
    method, recipe = config.method, config.method.recipe_of(number)
    assert isinstance(recipe, DpoRecipe), "the recipe of this method is DPO's"
    if method.objective == "rft":
        rows = read_data([epoch.examples / group], ("demonstration",)).rows
        task = task_of_epoch(state, number, group, policy, rewarded_recipe(recipe), "sft")
        return prepare(task, rows, processes=method.processes, fits=True)
    task = _compared(config, policy, group, task_of_epoch(state, number, group, policy, recipe, "dpo"))
    if method.objective == "trajectory-dpo":
        counts = (stored(epoch.examples, CollabCounts) or {})[group]
        file = examples_file(state.folder, number, group, FILES[method.objective])
        return prepare_trajectories(task, read_trajectories(file, counts.replies))
    return prepare(
        task, read_data([epoch.examples / group], ("preference",)).rows, processes=method.processes, fits=True
    )


def _compared(config: CollabConfig, policy: Policy, group: str, task: Task) -> Task:
    """The task with what preferences are compared with: the first policy, or the one that the epoch begins with."""
    slots, first = config.groups[group], first_policy(config.run, config.method)
    if config.method.reference == "previous":
        return replace(task, reference_adapter=policy.adapter_of(slots))
    other = first.of(slots) if first.of(slots) != task.base else None
    return replace(task, reference=other, reference_adapter=first.adapter_of(slots))


def _generic(counts: CollabCounts) -> ExampleCounts:
    return ExampleCounts.model_validate({name: getattr(counts, name) for name in ExampleCounts.model_fields})
