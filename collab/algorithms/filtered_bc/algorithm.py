"""Filtered behaviour cloning: imitate every reply of the episodes that were solved.

    collab train --algo filtered-bc --env androidworld --graph team --agents pocket --out runs/bc

The simplest way to learn from own episodes, and a baseline: no labels, no comparison, only next tokens of replies that
the environment's outcome let through. A team that solves nothing in its first rollout is not trained.

Source: "Filtered BC" in DigiRL (Bai et al. 2024), there with single agents. Here every agent that spoke in a solved
episode is imitated, in every round, also if the vote went against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from collab.data.tokenize import read_data
from collab.loop.checks import check_bases
from collab.loop.config import Method, TrainingConfig
from collab.loop.estimate import build_likely_examples
from collab.loop.example_store import Examples, get_examples_file, read_counts, store
from collab.loop.examples import Target, make_builder
from collab.loop.finetuning import Finetuning, build_task, finetune
from collab.loop.interfaces import Algorithm, Labels, Rollout, TriedStep, Update
from collab.loop.phases import refuse_barren_rollout
from collab.loop.policy import Policy, build_chat_tokenizer, get_template
from collab.loop.ranges import Estimate, Range
from collab.loop.record import ExampleCounts
from collab.loop.state import LoopState
from collab.store.rewards import ReplyRef
from collab.trainers.prepare import FinetuneTask, Prepared, prepare
from collab.trainers.recipe import Recipe, SftRecipe
from collab.types import Trajectory
from collab.utils.text import format_amount

FILE = "demonstration.parquet"
"""File of a policy's examples, as `collab.data.tokenize` reads it."""


class FilteredBCMethod(Method):
    """Settings of imitating solved episodes."""

    RECIPE: ClassVar[str] = "sft"
    sft: SftRecipe
    most_per_task: int | None = Field(default=None, ge=1)
    """At most so many solved episodes of a task are imitated, the first by number; None imitates all."""

    @model_validator(mode="after")
    def _check_levels(self) -> FilteredBCMethod:
        if self.sft.levels != ("demonstration",):
            raise ValueError(f"sft.levels: {list(self.sft.levels)}, but all examples are demonstrations; leave it out")
        return self


class ImitationLearner:
    """Learns the replies of solved episodes; see `Learner`."""

    def check(self, config: TrainingConfig, first: Policy) -> None:
        """Refuse checkpoints that the recipe cannot train."""
        check_bases(config, first)

    async def update(self, state: LoopState, rollout: Rollout, labels: Labels, policy: Policy) -> Update:
        """Write the replies of solved episodes, then train every policy on its own."""
        folder, number, method = state.folder, rollout.number, state.config.method
        # Examples are written once: a resumed epoch trains on the file, not on what a newer library would build.
        counts = read_counts(folder.get_epoch(number).examples, ExampleCounts)
        # Counted from the rollout, not from the file, so the numbers do not depend on where the epoch was resumed.
        solved, imitated = self._select_imitated(state.config, rollout)
        if counts is None:
            state.begin("examples")
            counts = store(self._build_examples(state.config, rollout, policy, imitated), folder, number, file=FILE)
        metrics = {"solved": solved, "imitated": len(imitated)}
        state.progress.update(examples=counts, metrics=metrics)
        if not solved:
            refuse_barren_rollout(
                rollout,
                f"0 of {format_amount(len(rollout.trajectories), 'episode')} solved",
                "another base (--agents), easier tasks (--tasks) or more steps (--set steps=N)",
            )

        # Called only for a group that is still to be trained; a finished checkpoint is not prepared again.
        def prepare_group(group: str) -> Prepared:
            rows = read_data([folder.get_epoch(number).examples / group], ("demonstration",)).rows
            task = build_task(state, number, group, policy, method.build_recipe(number), "sft")
            return prepare(task, rows, processes=method.processes, can_shrink=True)

        finetuning = Finetuning(
            nothing="no reply of a solved episode in this epoch",
            has_examples=lambda group: get_examples_file(folder, number, group, FILE).exists(),
            prepare=prepare_group,
        )
        trained, untrained = await finetune(state, number, finetuning)
        return Update(trained=trained, untrained=untrained, examples=counts, metrics=metrics)

    def _build_examples(self, config: TrainingConfig, rollout: Rollout, policy: Policy, imitated: set[str]) -> Examples:
        made, builder = Examples.of(config), make_builder(config, rollout, policy)
        # Each slot's replies train the policy that wrote them: slots of one group share a policy.
        groups = builder.groups
        # The outcome is the only filter: no critic, so wrong turns inside a solved episode are imitated, too.
        for one in (one for one in rollout.trajectories if one.id in imitated):
            for said in self.iterate_replies(one):
                target = Target(said=said, level="demonstration", kind="solved", teacher="outcome")
                made.add(groups[said.cell.agent], builder, target)
        return made

    def iterate_replies(self, trajectory: Trajectory) -> Iterator[ReplyRef]:
        """Yield the replies of a solved episode that are imitated."""
        # Every cell, not only the winners of the vote: in a solved episode the discussion is learned as well.
        for step in trajectory.steps:
            for cell in step.matrix.utterances:
                yield ReplyRef(trajectory=trajectory.id, step=step.index, cell=cell.cell)

    def _select_imitated(self, config: TrainingConfig, rollout: Rollout) -> tuple[int, set[str]]:
        """Return the number of solved episodes, and the ids of those that are learned from."""
        assert isinstance(config.method, FilteredBCMethod), "the loop gives each algorithm its own method"
        found: dict[str, list[str]] = {}
        # Rollouts list episodes by task and number, so a cap keeps the same ones after a resume.
        for one in rollout.trajectories:
            if one.success:
                found.setdefault(one.task.name, []).append(one.id)
        imitated = {name for names in found.values() for name in names[: config.method.most_per_task]}
        return sum(map(len, found.values())), imitated


class FilteredBC(Algorithm):
    """Imitation of solved episodes."""

    name = "filtered-bc"
    description = "filtered behaviour cloning: imitate every reply of the episodes that were solved"
    method = FilteredBCMethod
    presets = Path(__file__).parent / "presets"
    default_preset = "filtered-bc"
    toy = ("episodes=12", "run.environment.backends.fake.options.declared=false")  # easy enough to be solved at times
    learner = ImitationLearner()

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate learning from every reply of every episode, an upper bound."""
        from collab.trainers.estimate import forecast

        slots = next(iter(config.groups.values()))  # the first policy's cost stands for all
        base, (said, read) = tried.policy.of(slots), tried.select_cells(slots)
        recipe: Recipe = config.method.recipe.model_copy(update=get_template(config.run.agents[slots[0]]))
        task = FinetuneTask(stage="sft", base=base, preset=config.preset, recipe=recipe)
        items = build_likely_examples(said, read, build_chat_tokenizer(config.run.agents[slots[0]], base))
        replies = Range(low=0, high=rolled.high * len(tried.prompts))
        training = forecast(task, items, tried.device, processes=config.method.processes)
        return Estimate(noun="replies", examples=replies, replies=replies, training=training)
