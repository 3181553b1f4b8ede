"""A run within a split: its tasks, its seed and, for training, a phone without the unseen apps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

from collab.config import EnvironmentDefinition, SplitChoice
from collab.errors import UsageError
from collab.splits.overlap import Instance, kept_by, refuse_overlap
from collab.splits.split import EVALUATION_SEEDS, INSTANCES, Split

WITHOUT = "without"
"""Option of a backend: apps that its phones do not have."""


class Seeded(Protocol):
    """A configuration that plays tasks with a run seed: of a run, of a synthesis."""

    @property
    def environment_name(self) -> str:
        """As the user asks for it."""

    @property
    def environment(self) -> EnvironmentDefinition:
        """Where the tasks are played."""

    @property
    def tasks(self) -> list[str]:
        """Their names."""

    @property
    def seed(self) -> int:
        """The run seed."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """The same with other fields; a pydantic model has it."""


SeededT = TypeVar("SeededT", bound=Seeded)


def within(config: SeededT, split: Split) -> SeededT:
    """The run, kept to a split.

    Args:
        config: with its tasks written out and a field `split`.

    Raises:
        UsageError: its seed is not one of the split's, or none of its tasks is.
    """
    if not split.takes(config.seed):
        example = 0 if split.trains else EVALUATION_SEEDS.start
        raise UsageError(
            f"run seed {config.seed} is not one of split {split.name} of {split.environment} ({split.seeds}); "
            f"try --seed {example}"
        )
    own = set(split.tasks)
    tasks = [task for task in config.tasks if task in own]
    if not tasks:
        raise UsageError(
            f"none of the {len(config.tasks)} chosen tasks is in split {split.name} of {split.environment}; "
            f"see them with: collab env tasks {config.environment_name} --split {split.name}"
        )
    environment = _without_unseen(config.environment) if split.trains else config.environment
    choice = SplitChoice(name=split.name, hash=split.hash)
    return config.model_copy(update={"tasks": tasks, "environment": environment, "split": choice})


def check_plan(split: Split, splits: Iterable[Split], plan: Sequence[Instance]) -> None:
    """Make sure that planned episodes are the split's own.

    Raises:
        UsageError: more instances of a task than an evaluation split keeps.
        OverlapError: a training seed leads by chance to an instance that is kept for evaluation.
    """
    if split.trains:
        refuse_overlap(plan, kept_by(splits), remedy="take another --seed, or fewer --episodes")
        return
    most = max(Counter(one.task for one in plan).values(), default=0)
    if most > INSTANCES:
        raise UsageError(
            f"split {split.name} of {split.environment} keeps {INSTANCES} instances of a task per seed, asked for "
            f"{most}; play fewer episodes, or more seeds: {split.seeds}"
        )


def whole(environment: EnvironmentDefinition) -> EnvironmentDefinition:
    """The environment with all its apps, whatever a run within a split left out of it."""
    options = {name: value for name, value in environment.part.options.items() if name != WITHOUT}
    return _with_options(environment, options)


def _without_unseen(environment: EnvironmentDefinition) -> EnvironmentDefinition:
    """The environment without the unseen apps; unchanged when there are none."""
    if not environment.unseen.apps:
        return environment
    left_out = [*environment.part.options.get(WITHOUT, ()), *environment.unseen.apps]
    return _with_options(environment, environment.part.options | {WITHOUT: list(dict.fromkeys(left_out))})


def _with_options(environment: EnvironmentDefinition, options: dict[str, object]) -> EnvironmentDefinition:
    part = environment.part.model_copy(update={"options": options})
    return environment.model_copy(update={"backends": environment.backends | {environment.backend: part}})
