"""The learner: examples from pairs and rewarded replies, then one fine-tuning run per policy.

Examples are replies with their own prompts, in tokenised pieces:

    made = build_examples(rollout, judged, suite.space, make_builder(config, rollout, policy))
    made.rows["shared"], made.count_group("shared")

"dpo" has a row per pair, the chosen and the rejected reply under one prompt. It is that of the reply that is trained:
the rejected one of a correction, the chosen one elsewhere. Behind these stands one row per anchor, a rewarded reply
without a pair of its own, on both sides. "rft" has a row per rewarded reply.
"trajectory-dpo" has a row per reply of both episodes of a pair, each under its own prompt.

Rows stand in the order of the episodes: by task, episode, step, agent and round; in a pair of whole trajectories the
chosen one's come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from collab.algorithms.collabuiagents.config import CollabConfig, CollabMethod, Objective
from collab.algorithms.collabuiagents.labeller import JudgedRollout, get_config
from collab.algorithms.collabuiagents.metrics import CollabCounts, compute_training_metrics
from collab.data.example import Example, Level
from collab.data.parquet import read_rows
from collab.data.tokenize import read_data
from collab.envs.grammar import ActionSpace
from collab.errors import RunFormatError
from collab.loop.checks import check_bases
from collab.loop.config import TrainingConfig
from collab.loop.examples import (
    ExampleBuilder,
    Examples,
    Target,
    draw_older,
    get_examples_file,
    make_builder,
    read_counts,
    store,
)
from collab.loop.finetuning import Finetuning, build_task, finetune
from collab.loop.interfaces import Labels, Rollout, Update
from collab.loop.policy import Policy
from collab.loop.record import ExampleCounts, TrainingDir
from collab.loop.state import LoopState
from collab.preferences.pairs import sum_logprobs
from collab.rewards.base import Judgement, build_inputs
from collab.rewards.credit import BEHIND_ERROR, JudgedStep, find_behind_errors, list_rewarded
from collab.rewards.labels import LabelSet
from collab.store.rewards import PreferencePair, ReplyRef
from collab.trainers.prepare import FinetuneTask, Prepared, prepare
from collab.trainers.recipe import DpoRecipe, Recipe, SftRecipe
from collab.types import CellRef, Trajectory, Utterance

if TYPE_CHECKING:
    from collab.trainers.trajectory_dpo import TrajectoryRows


WHOLE = "compares whole trajectories"
"""Why a pair has no row of its own."""


FILES: Mapping[Objective, str] = {
    "dpo": "preference.parquet",
    "rft": "demonstration.parquet",
    "trajectory-dpo": "trajectory.parquet",
}
"""Objective → file of a policy's examples."""


@dataclass(slots=True, kw_only=True)
class CollabExamples(Examples):
    """Examples by policy, and counts of cells that gave none."""

    replies: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """For pairs of whole trajectories: number of replies of the chosen and of the rejected side."""
    anchors: Counter[str] = field(default_factory=Counter)
    """Examples by policy that compare a reply with itself."""
    unjudged: int = 0
    """Unjudged steps; 0 if there are pairs, whose record counts them."""

    def count_group(self, group: str, older: Sequence[Example] = ()) -> CollabCounts:
        """Return the counts of a policy, with older examples."""
        replies, found = self.replies.get(group, []), super(CollabExamples, self).count_group(group, older)
        counted = {
            **found.model_dump(),
            "examples": len(replies) or found.examples - self.anchors[group],
            "repeated": 0 if replies else found.repeated,
        }
        return CollabCounts(**counted, anchors=self.anchors[group], replies=replies, unjudged=self.unjudged)


def build_examples(
    rollout: Rollout, judged: JudgedRollout, space: ActionSpace, builder: ExampleBuilder
) -> CollabExamples:
    """Return the examples of a rollout, by the method's objective.

    Args:
        space: of the played suite.
    """
    # The objective decides what a row compares: replies of one state, single replies, or whole episodes.
    method, labels, pairs = get_method(builder), judged.labels, judged.pairs
    if method.objective == "trajectory-dpo" and pairs is not None:
        return build_trajectory_examples(pairs.pairs, builder)
    assert labels is not None, "what is not compared as a whole was judged"
    if pairs is None:
        return build_rewarded_examples(rollout.trajectories, labels, space, builder)
    # Anchors stand behind all pairs, so that a row's place shows which it is.
    made = pair_rows(pairs.pairs, builder)
    if method.pairs.anchors:
        add_anchors(made, pairs.pairs, rollout.trajectories, labels, space, builder)
    return made


def get_method(builder: ExampleBuilder) -> CollabMethod:
    """Return the method of a training of this algorithm."""
    assert isinstance(builder.config, CollabConfig), "the loop gives each algorithm its own configuration"
    return builder.config.method


def pair_rows(pairs: Iterable[PreferencePair], builder: ExampleBuilder) -> CollabExamples:
    """Return a row per pair of one state, for the policy whose input it has (`PreferencePair.answered`)."""
    made = CollabExamples.of(builder.config)
    # Pairs of whole trajectories have no row of one state; they are counted, not lost.
    for pair in pairs:
        if pair.answered is None:
            made.refused[builder.groups[pair.chosen[0].cell.agent]][WHOLE] += 1
        else:
            made.add(builder.groups[pair.answered.cell.agent], builder, _build_preference(pair, pair.answered))
    return made


def add_anchors(
    made: CollabExamples,
    pairs: Iterable[PreferencePair],
    played: Iterable[Trajectory],
    labels: LabelSet,
    space: ActionSpace,
    builder: ExampleBuilder,
) -> None:
    """Append rewarded replies without a pair of their own to the rows of pairs, at most `anchors` per state.

    A reply that is chosen under another cell's input has no pair under its own. The likeliest replies of the policy
    come first: at a high temperature, unlikely ones are no model to keep. A policy without any pair gets no anchors.

    Args:
        space: of the played suite.
    """
    # "Without a pair under its own input": a reply may well be the chosen one of another cell's correction.
    method = get_method(builder).pairs
    paired = {pair.answered for pair in pairs}
    # A policy without any pair gets no anchors: with nothing to move it, there is nothing to hold.
    learning = {agent for agent, group in builder.groups.items() if made.rows[group]}
    steps = list(filter(None, _iterate_judged(played, labels, space, method.threshold)))
    behind = _find_behind(steps, builder)
    # Steps behind an error are left out here as they are for pairs: both must see the same states.
    for step in (one for one in steps if one.judgement.key not in behind):
        alone = [
            cell
            for cell in list_rewarded(step)
            if cell.cell.agent in learning and step.make_ref(cell.cell) not in paired
        ]
        # Sorted by likelihood to choose, but added in the order of cells: rows keep one order for every cap.
        surest = {cell.cell for cell in sorted(alone, key=sum_logprobs, reverse=True)[: method.anchors]}
        for cell in (cell for cell in alone if cell.cell in surest):
            group, ref = builder.groups[cell.cell.agent], step.make_ref(cell.cell)
            # Chosen and rejected are the same reply: DPO's gradient vanishes, −log p of the anchor term stays.
            target = replace(_build_target(ref, step.judgement, "preference", "anchor"), other=ref)
            made.anchors[group] += made.add(group, builder, target)


def build_rewarded_examples(
    played: Iterable[Trajectory], labels: LabelSet, space: ActionSpace, builder: ExampleBuilder
) -> CollabExamples:
    """Return a row per rewarded reply, compared with nothing (CollabUIAgents, table 3, "PO → RFT").

    If a state has more rewarded replies than `pairs.cap`, the same ones are kept as for pairs.

    Args:
        space: of the played suite.
    """
    # One pass in order; None marks steps without a judgement, which are only counted.
    made, steps = (
        CollabExamples.of(builder.config),
        list(_iterate_judged(played, labels, space, get_method(builder).pairs.threshold)),
    )
    judged = list(filter(None, steps))
    made.unjudged = len(steps) - len(judged)
    behind = _find_behind(judged, builder)
    # All are counted, the ones behind an error as refused, so that the numbers add up to the rewarded cells.
    for step in judged:
        for target in _iterate_rewarded(step, builder):
            group = builder.groups[target.said.cell.agent]
            if step.judgement.key in behind:
                made.refused[group][BEHIND_ERROR] += 1
            else:
                made.add(group, builder, target)
    return made


def build_trajectory_examples(pairs: Iterable[PreferencePair], builder: ExampleBuilder) -> CollabExamples:
    """Return a row per reply of both trajectories of a pair, for each policy its own replies.

    One refused reply refuses the whole pair, by the first cause.
    """
    # All or nothing: a trajectory with a missing reply would be compared as a shorter one.
    made = CollabExamples.of(builder.config)
    for pair in pairs:
        for group, slots in builder.config.groups.items():
            sides = [
                _build_whole_targets(side, kind, slots)
                for side, kind in ((pair.chosen, "solved"), (pair.rejected, "unsolved"))
            ]
            found = [builder.build(target) for side in sides for target in side]
            # A reply whose recorded tokens no longer fit is tokenised again; one is enough to count the pair.
            made.retokenised[group] += any(again for _, again in found)
            refused = [row for row, _ in found if isinstance(row, str)]
            if refused:
                made.refused[group][refused[0]] += 1
            else:
                made.rows[group] += [row for row, _ in found if isinstance(row, Example)]
                # Rows of one pair lie side by side; these counts are what finds its two halves again.
                made.replies.setdefault(group, []).append((len(sides[0]), len(sides[1])))
    return made


# ------------------------------------------------------------------------------------------------------ inside


def _build_preference(pair: PreferencePair, answered: ReplyRef) -> Target:
    return Target(
        said=pair.chosen[0],
        answered=answered,
        level="preference",
        kind=pair.source,
        other=pair.rejected[0] if pair.synthetic is None else pair.synthetic,
        teacher=pair.critic or "outcome",
        asked=pair.calls[0] if pair.calls else None,
    )


def _iterate_judged(
    played: Iterable[Trajectory], labels: LabelSet, space: ActionSpace, threshold: float
) -> Iterator[JudgedStep | None]:
    """Yield the steps of a rollout, in its order; None for a step without a judgement."""
    for trajectory in played:
        # Rebuilt from the record, so that a judgement is found by the very input that was judged.
        for case in build_inputs(trajectory, space):
            judgement = labels.of(case)
            yield None if judgement is None else JudgedStep.of(trajectory, judgement, threshold)


def _find_behind(steps: Iterable[JudgedStep], builder: ExampleBuilder) -> frozenset[tuple[str, int]]:
    """Return the steps (trajectory, step) that teach nothing because they stand behind an error."""
    return find_behind_errors(steps) if get_method(builder).pairs.stop_at_first_error else frozenset()


def _iterate_rewarded(step: JudgedStep, builder: ExampleBuilder) -> Iterator[Target]:
    """Yield the rewarded replies of a step that are learned."""
    cells = list_rewarded(step)
    # The same draw as for pairs (`pair cap`), so that ablations learn from the same cells.
    kept = _select_cells(step, cells, builder.recorded.run.seed, get_method(builder).pairs.cap)
    for cell in cells:
        if cell.cell in kept:
            yield _build_target(step.make_ref(cell.cell), step.judgement, "demonstration", "rewarded")


def _build_target(said: ReplyRef, judgement: Judgement, level: Level, kind: str) -> Target:
    """Return the target of a reply that a critic rewarded."""
    call = judgement.call_of(said.cell)
    # The critic's prompt goes into the row, so that a label can be traced to what was asked.
    return Target(
        said=said,
        level=level,
        kind=kind,
        teacher=judgement.rewards.critic,
        asked=None if call is None else call.prompt,
    )


def _select_cells(step: JudgedStep, cells: Sequence[Utterance], seed: int, cap: int | None) -> set[CellRef]:
    """Return the cells that the seed ranks first, as for pairs; all of them without a cap."""
    ranked = sorted(cells, key=lambda cell: step.derive_seed(seed, "pair cap", cell.cell))
    return {cell.cell for cell in ranked[:cap]}


def _build_whole_targets(side: Sequence[ReplyRef], kind: str, slots: Sequence[str]) -> list[Target]:
    """Return targets for all replies of a policy in an episode."""
    return [
        Target(said=ref, level="demonstration", kind=kind, teacher="outcome") for ref in side if ref.cell.agent in slots
    ]


def read_trajectories(path: Path, replies: Sequence[tuple[int, int]]) -> list[TrajectoryRows]:
    """Read pairs of whole trajectories back.

    Args:
        path: of their rows.
        replies: `CollabCounts.replies`.

    Raises:
        RunFormatError: the number of rows is not the counted one.
    """
    from collab.trainers.trajectory_dpo import TrajectoryRows

    # Counted before anything is cut: one row more or less would shift all pairs behind it.
    rows = list(read_rows(path))
    if len(rows) != sum(map(sum, replies)):
        raise RunFormatError(f"{path}: {len(rows)} rows, but {sum(map(sum, replies))} were written; train anew")
    left = iter(rows)
    return [
        TrajectoryRows(chosen=[next(left) for _ in range(good)], rejected=[next(left) for _ in range(bad)])
        for good, bad in replies
    ]


NO_PAIR, NO_REWARD = "no valid pair in this epoch", "no rewarded reply in this epoch"


class CreditLearner:
    """Learns from pairs by DPO, or from rewarded replies; see `Learner`."""

    def check(self, config: TrainingConfig, first: Policy) -> None:
        """Refuse checkpoints that the recipe cannot train."""
        check_bases(config, first)

    async def update(self, state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> Update:
        """Write the examples of an epoch, then train every policy on its own."""
        # Examples first, as a whole: training reads them from disk, so a resume trains on the same ones.
        counts = await write_examples(state, rollout, labels, policy)
        examples = {group: _convert_counts(one) for group, one in counts.items()}
        metrics = {
            "anchors": {group: one.anchors for group, one in counts.items() if one.anchors},
            "unjudged": {group: one.unjudged for group, one in counts.items() if one.unjudged},
        }
        state.progress.update(examples=examples, metrics={**labels.metrics, **metrics})
        # Every policy is trained from the same rollout and on its own examples only.
        trained, untrained = await finetune(state, rollout.number, build_finetuning(state, rollout.number, policy))
        return Update(trained=trained, untrained=untrained, examples=examples, metrics=metrics)


async def write_examples(state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> dict[str, CollabCounts]:
    """Write an epoch's examples unless they are written; return their counts."""
    config, folder, number = get_config(state), state.folder, rollout.number
    # What is written counts, even if the library would now build other rows.
    counts = read_counts(folder.get_epoch(number).examples, CollabCounts)
    if counts is not None:
        return counts
    state.begin("examples")
    suite = await state.open_suite(rollout.run)
    made = build_examples(rollout, labels.value, suite.space, make_builder(config, rollout, policy))
    return store_examples(config, folder, number, made)


def store_examples(
    config: CollabConfig, folder: TrainingDir, number: int, made: CollabExamples
) -> dict[str, CollabCounts]:
    """Write the examples of an epoch, with drawn examples of older epochs, and return their counts."""
    # Replay: rows of earlier epochs, drawn by seed, are trained beside the new ones.
    file, share = FILES[config.method.objective], config.method.replay_fraction
    older = {
        group: draw_older(config, folder, number, group, file=file, share=share, own=len(rows), purpose="older pairs")
        for group, rows in made.rows.items()
    }
    store(made, folder, number, file=file, older=older)
    return {group: made.count_group(group, older[group]) for group in made.rows}


def build_sft_recipe(recipe: DpoRecipe) -> SftRecipe:
    """Return the recipe without a comparison: the loss is the mean −log p per token, like DPO's anchor at weight 1."""
    # Same rate, batches and passes, so that the ablation changes the loss alone.
    same = {name: getattr(recipe, name) for name in Recipe.model_fields}
    return SftRecipe(**same, levels=("demonstration",))


def build_finetuning(state: LoopState, number: int, policy: Policy) -> Finetuning:
    """Return how every policy is trained on its examples of an epoch."""
    config = get_config(state)
    file = FILES[config.method.objective]
    return Finetuning(
        nothing=NO_REWARD if config.method.objective == "rft" else NO_PAIR,
        has_examples=lambda group: get_examples_file(state.folder, number, group, file).exists(),
        prepare=partial(_prepare_task, state, number, policy),
        measure=lambda lines: compute_training_metrics(lines, config.method.dpo.beta),
    )


# ------------------------------------------------------------------------------------------------------ inside


def _prepare_task(state: LoopState, number: int, policy: Policy, group: str) -> Prepared:
    """Prepare the fine-tuning of a policy: its examples, tokenised and ordered, and its reference.

    Few examples make one smaller step, which the manifest notes.

    Raises:
        NothingFits: all are longer than the context.
    """
    # The recipe of this epoch: rates may fall over the epochs.
    config, epoch = get_config(state), state.folder.get_epoch(number)
    method, recipe = config.method, config.method.build_recipe(number)
    assert isinstance(recipe, DpoRecipe), "the recipe of this method is DPO's"
    # RFT: −log p of rewarded replies, with no reference model in memory.
    if method.objective == "rft":
        rows = read_data([epoch.examples / group], ("demonstration",)).rows
        task = build_task(state, number, group, policy, build_sft_recipe(recipe), "sft")
        return prepare(task, rows, processes=method.processes, can_shrink=True)
    # DPO learns log π − log π_ref, so the reference is a part of the task.
    task = _set_reference(config, state.first, policy, group, build_task(state, number, group, policy, recipe, "dpo"))
    # Whole trajectories: the counts say which rows belong to which side of which pair.
    if method.objective == "trajectory-dpo":
        from collab.trainers.trajectory_dpo import prepare_trajectories

        counts = (read_counts(epoch.examples, CollabCounts) or {})[group]
        file = get_examples_file(state.folder, number, group, FILES[method.objective])
        return prepare_trajectories(task, read_trajectories(file, counts.replies))
    return prepare(
        task, read_data([epoch.examples / group], ("preference",)).rows, processes=method.processes, can_shrink=True
    )


def _set_reference(config: CollabConfig, first: Policy, policy: Policy, group: str, task: FinetuneTask) -> FinetuneTask:
    """Return the task with its reference: the first policy, or the one that the epoch begins with."""
    # Reference "previous" is the policy that the epoch begins with; "initial" is the one before any training.
    slots = config.groups[group]
    if config.method.reference == "previous":
        return replace(task, reference_adapter=policy.get_adapter(slots))
    # None stands for the task's own base: the same checkpoint is not loaded twice.
    other = first.of(slots) if first.of(slots) != task.base else None
    return replace(task, reference=other, reference_adapter=first.get_adapter(slots))


def _convert_counts(counts: CollabCounts) -> ExampleCounts:
    return ExampleCounts.model_validate({name: getattr(counts, name) for name in ExampleCounts.model_fields})
