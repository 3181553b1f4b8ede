"""The five splits of an environment, decided by its file, names, apps and seeds alone.

Each task belongs to one of four groups:

    of an unseen app    it touches an app that the environment's file calls unseen; of several apps one is enough
    hopeless            any other task that the file calls so: a policy of the shipped size does not learn it even from
                        a solver, so it can show neither learning nor generalisation
    unseen              any other task whose name is unseen: SHA-256 of its UTF-8 bytes, read as a big-endian integer,
                        is divisible by the file's `share` (five, if it gives none)
    seen                the rest

and each run seed (AndroidWorld's suite seed) to one of two ranges: 30 to 49 are for evaluation, all others for
training. Recipes were chosen with 30 to 39 in view; results use 40, 41 and 42. A run seed and a task give instance
seeds by `Seeds.task`. The first hundred of every evaluation seed are kept: an instance with one of them is never
trained on, even if a training seed leads to it by chance.

    split           tasks              run seeds
    train           seen               all but 30 to 49; apps called unseen are not installed
    new-seeds       seen               30 to 49
    unseen-tasks    unseen             30 to 49
    unseen-app      of an unseen app   30 to 49
    hopeless        hopeless           30 to 49

A training phone lacks the unseen apps altogether, so that not even their names are seen; evaluation uses the whole
phone. The hash of a split covers its definition, for training also the unseen apps and their words.

`refuse_overlap` is the contamination check before any training: its data must hold nothing that is kept for evaluation.

    kept = list_kept_by(splits.values())
    refuse_overlap(rows, kept)                              # raises OverlapError, with counts and the first offenders
    found = refuse_overlap(rows, kept, allow_overlap=True)  # reports overlaps and continues

An instance overlaps if its task is kept whatever the seed, or if it touches a kept app. It also overlaps if its seed is
unknown or one of the kept seeds of its task, if its instruction is that of a kept task, or if one of its texts contains
a kept word. Names and instructions are compared without regard to case, spacing and kinds of quotes, words as whole
words ("ExpenseAddSingle" has "expense", "add" and "single").

Instructions may be task names, too, so that lists of other projects can be checked:
`refuse_overlap([TrainingInstance(task=line) for line in train], [HeldOutInstances(name="test",
tasks=fold_all(test))])`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from collab.config import EnvironmentDefinition, SplitChoice, Unseen
from collab.envs.base import TaskInfo
from collab.errors import ConfigError, OverlapError, UnknownName, UsageError
from collab.seeds import Seeds
from collab.store.run import RunStore
from collab.types import Trajectory

TRAIN, NEW_SEEDS, UNSEEN_TASKS, UNSEEN_APP, HOPELESS = "train", "new-seeds", "unseen-tasks", "unseen-app", "hopeless"
NAMES = (TRAIN, NEW_SEEDS, UNSEEN_TASKS, UNSEEN_APP, HOPELESS)
_WHAT = {
    TRAIN: "all that is trained on",
    NEW_SEEDS: "tasks of train, instances never trained on",
    UNSEEN_TASKS: "tasks never trained on",
    UNSEEN_APP: "tasks of an app never shown in training",
    HOPELESS: "tasks too hard for a small policy, not trained on",
}
EVALUATION_SEEDS = range(30, 50)
"""Run seeds that are never trained on; results use 40, 41 and 42."""
INSTANCES = 100
"""Instances of a task that are kept per evaluation seed, numbered from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Tasks and the run seeds they are played with."""

    environment: str
    name: str
    tasks: tuple[str, ...]
    """In the suite's order; empty when the environment has none of this kind."""
    unseen: Unseen
    """Apps and words that training must not contain."""

    @property
    def is_training(self) -> bool:
        """Return whether this is the training split."""
        return self.name == TRAIN

    @property
    def seeds(self) -> str:
        """The run seeds, in words."""
        span = f"{EVALUATION_SEEDS.start} to {EVALUATION_SEEDS.stop - 1}"
        return f"all but {span}" if self.is_training else span

    @property
    def what(self) -> str:
        """Its purpose, in a few words."""
        return _WHAT[self.name]

    @property
    def hash(self) -> str:
        """SHA-256 of everything that defines the split, as 64 hexadecimal digits."""
        text = json.dumps(to_json(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def can_use_seed(self, seed: int) -> bool:
        """Return whether a run with this seed can belong to the split."""
        return (seed in EVALUATION_SEEDS) is not self.is_training


def to_json(split: Split) -> dict[str, Any]:
    """Return a split as JSON data, the basis of its hash."""
    given = {
        "environment": split.environment,
        "split": split.name,
        "trains": split.is_training,
        "tasks": list(split.tasks),
        "evaluation_seeds": list(EVALUATION_SEEDS),
        "kept_per_evaluation_seed": INSTANCES,
    }
    if split.is_training:
        given |= {"unseen_apps": sorted(split.unseen.apps), "unseen_words": sorted(split.unseen.words)}
    return given


def is_unseen(task: str, share: int) -> bool:
    """Return whether a task's name is unseen, one in `share`: its SHA-256 is divisible by that."""
    return int.from_bytes(hashlib.sha256(task.encode()).digest(), "big") % share == 0


@lru_cache(maxsize=1 << 9)
def list_kept_instances(task: str) -> frozenset[int]:
    """Return the instance seeds of a task that are kept for evaluation."""
    return frozenset(Seeds(seed).task(task, number) for seed in EVALUATION_SEEDS for number in range(INSTANCES))


def read_splits(
    environment: str, infos: Sequence[TaskInfo], unseen: Unseen, where: str | None = None
) -> dict[str, Split]:
    """Return the splits of an environment by name: together they hold every task, and only the first two share any.

    Args:
        infos: all tasks of the suite.
        where: the definition with the unseen apps, for messages; None if it has the suite's name.

    Raises:
        ConfigError: an app is called unseen that no task touches.
        UnknownName: a task is called hopeless that does not exist.
    """
    # Without regard to case, as apps are named in files by hand.
    apps = {app.casefold() for app in unseen.apps}
    unknown = apps - {app.casefold() for info in infos for app in info.apps}
    if unknown:
        raise ConfigError(
            f"{where or f'envs/{environment}'}: unseen.apps: no task touches {sorted(unknown)[0]!r}; "
            f"apps: {', '.join(sorted({app for info in infos for app in info.apps})) or 'none'}"
        )
    if odd := sorted(set(unseen.hopeless) - {info.name for info in infos}):
        raise UnknownName.of(
            "task", odd[0], [info.name for info in infos], f"in {where or f'envs/{environment}'}: unseen.hopeless"
        )
    groups: Mapping[str, list[str]] = {TRAIN: [], UNSEEN_TASKS: [], UNSEEN_APP: [], HOPELESS: []}
    for info in infos:
        groups[_group(info, apps, unseen)].append(info.name)
    return {
        name: Split(
            environment=environment,
            name=name,
            # New seeds have the tasks of training; only their instances differ.
            tasks=tuple(groups[TRAIN if name == NEW_SEEDS else name]),
            unseen=unseen,
        )
        for name in NAMES
    }


def find_split(splits: Mapping[str, Split], name: str, env: str | Path) -> Split:
    """Return a split by name; UnknownName if there is none, or the environment has no such tasks.

    Args:
        env: the environment's name or file, for the message.
    """
    split = splits.get(name)
    if split is None:
        raise UnknownName.of("split", name, splits, f"see them with: collab env splits {shlex.quote(str(env))}")
    if not split.tasks:
        filled = ", ".join(other.name for other in splits.values() if other.tasks)
        raise UnknownName(f"{split.environment} has no task in split {name}; splits with tasks: {filled}")
    return split


def _group(info: TaskInfo, unseen_apps: Iterable[str], unseen: Unseen) -> str:
    if any(app.casefold() in unseen_apps for app in info.apps):
        return UNSEEN_APP
    if info.name in unseen.hopeless:
        return HOPELESS
    return UNSEEN_TASKS if is_unseen(info.name, unseen.share) else TRAIN


SHOWN = 3
"""Offenders that a message names."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_QUOTES = str.maketrans('‘’“”"', "'''''")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingInstance:
    """An item of training data: an episode, a row."""

    task: str
    """Name of its task."""
    seed: int | None = None
    """Seed of the task instance; None if unknown."""
    apps: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Its texts for models: goal, screens, replies."""
    goal: str = ""
    """Its instruction; empty if it is not to be compared."""
    source: str = ""
    """Its place, for messages: a run and an episode, a file and a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutInstances:
    """Instances that training must not touch."""

    name: str
    tasks: frozenset[str] = frozenset()
    """Kept whatever the seed; folded, see `fold_all`."""
    seeds: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Kept instance seeds, by folded task name."""
    apps: frozenset[str] = frozenset()
    """Folded."""
    words: frozenset[str] = frozenset()
    """In lower case."""
    goals: Mapping[str, str] = field(default_factory=dict)
    """Kept instruction, folded → a task that has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Result of a check."""

    checked: int
    """Instances in all."""
    offenders: int
    """Instances with any overlap."""
    by_name: Mapping[str, int]
    """Offenders of each `HeldOutInstances`; one instance may count for several."""
    first: tuple[str, ...]
    """The first few in words."""

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.by_name.items() if count)
        found = f"{self.offenders} of {self.checked} instances overlap with what is kept for evaluation ({counts})"
        return f"{found}: {'; '.join(self.first)}"


def collect_held_out(split: Split) -> HeldOutInstances:
    """Return what an evaluation split keeps from training: instance seeds of seen tasks, everything of other tasks."""
    if split.name == NEW_SEEDS:
        return HeldOutInstances(name=split.name, seeds={fold(task): list_kept_instances(task) for task in split.tasks})
    whole_app = split.name == UNSEEN_APP
    return HeldOutInstances(
        name=split.name,
        tasks=fold_all(split.tasks),
        apps=fold_all(split.unseen.apps) if whole_app else frozenset(),
        words=frozenset(word.casefold() for word in split.unseen.words) if whole_app else frozenset(),
    )


def list_kept_by(splits: Iterable[Split]) -> list[HeldOutInstances]:
    """Return what the evaluation splits among these keep."""
    return [collect_held_out(split) for split in splits if not split.is_training]


def refuse_overlap(
    training: Iterable[TrainingInstance],
    kept: Sequence[HeldOutInstances],
    *,
    allow_overlap: bool = False,
    remedy: str = "leave these out (--split train plays none of them), or add --allow-overlap",
) -> Overlap:
    """Compare training data with kept instances.

    Args:
        training: read once, one at a time.
        allow_overlap: report overlaps and continue, instead of refusing.
        remedy: advice for the message.

    Raises:
        OverlapError: something overlaps and this was not allowed.
    """
    checked = offenders = 0
    first: list[str] = []
    by_name = Counter({one.name: 0 for one in kept})
    for instance in training:
        checked += 1
        # Every kept set is compared, not only the first that hits: the counts are per set.
        found = [(one.name, why) for one in kept if (why := explain_overlap(instance, one)) is not None]
        by_name.update(name for name, _ in found)
        offenders += bool(found)
        if found and len(first) < SHOWN:
            name, why = found[0]
            first.append(f"{instance.source} {instance.task!r}: {why} ({name})".strip())
    overlap = Overlap(checked=checked, offenders=offenders, by_name=dict(by_name), first=tuple(first))
    # Counted first, refused then: the message shows how large the overlap is.
    if offenders and not allow_overlap:
        raise OverlapError(f"{overlap}; {remedy}")
    return overlap


def explain_overlap(instance: TrainingInstance, kept: HeldOutInstances) -> str | None:
    """Return why an instance must not be trained on; None if nothing overlaps."""
    task = fold(instance.task)
    # From the coarsest to the finest: a kept task is kept whatever the seed.
    if task in kept.tasks:
        return "its task is kept"
    touched = next((app for app in instance.apps if fold(app) in kept.apps), None)
    if touched is not None:
        return f"touches the app {touched!r}"
    seeds = kept.seeds.get(task)
    # An unknown seed may be a kept one.
    if seeds is not None and instance.seed is None:
        return "its instance seed is not known, and some are kept"
    if seeds is not None and instance.seed in seeds:
        return f"its instance seed {instance.seed} is kept"
    # Lists of other projects hold one instruction under several names.
    other = kept.goals.get(fold(instance.goal))
    if other is not None:
        return f"its instruction is that of {other!r}"
    # Words of a kept app in a text: the row describes what is kept, even under another task.
    said = next((said for text in instance.texts if (said := split_words(text) & kept.words)), None)
    return None if said is None else f"contains {min(said)!r}"


def split_words(text: str) -> set[str]:
    """Split a text into words in lower case: runs of letters, with a new word at a capital after a small letter."""
    return {word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", text))}


def fold(name: str) -> str:
    """Fold case, spacing, kinds of quotes and encodings of letters in a name."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().translate(_QUOTES).split())


def fold_all(names: Iterable[str]) -> frozenset[str]:
    """Fold many names."""
    return frozenset(fold(name) for name in names)


WITHOUT = "without"
"""Option of a backend: apps that its phones lack."""


class Seeded(Protocol):
    """A configuration that plays tasks with a run seed: of a run, of a synthesis."""

    @property
    def environment_name(self) -> str:
        """The user's name of the environment."""

    @property
    def environment(self) -> EnvironmentDefinition:
        """The environment of the tasks."""

    @property
    def tasks(self) -> list[str]:
        """Their names."""

    @property
    def seed(self) -> int:
        """The run seed."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """Return a copy with other fields; a pydantic model has this method."""


SeededT = TypeVar("SeededT", bound=Seeded)


def restrict_run(config: SeededT, split: Split) -> SeededT:
    """Restrict a run to a split.

    Args:
        config: with its tasks resolved and a field `split`.

    Raises:
        UsageError: its seed is not one of the split's, or none of its tasks is.
    """
    if not split.can_use_seed(config.seed):
        example = 0 if split.is_training else EVALUATION_SEEDS.start
        raise UsageError(
            f"run seed {config.seed} is not one of split {split.name} of {split.environment} ({split.seeds}); "
            f"take one of these, e.g. {example}"
        )
    own, env = set(split.tasks), config.environment.file or config.environment_name
    tasks = [task for task in config.tasks if task in own]
    if not tasks:
        raise UsageError(
            f"none of the {len(config.tasks)} chosen tasks is in split {split.name} of {split.environment}; "
            f"see them with: collab env tasks {shlex.quote(str(env))} --split {split.name}"
        )
    # Unseen parts are taken out of the environment, too, or training would meet them by chance.
    environment = _remove_unseen(config.environment) if split.is_training else config.environment
    choice = SplitChoice(name=split.name, hash=split.hash)
    return config.model_copy(update={"tasks": tasks, "environment": environment, "split": choice})


def check_plan(split: Split, splits: Iterable[Split], plan: Sequence[TrainingInstance]) -> None:
    """Check that planned episodes belong to the split.

    Raises:
        UsageError: more instances of a task than an evaluation split keeps.
        OverlapError: a training seed leads by chance to an instance that is kept for evaluation.
    """
    if split.is_training:
        refuse_overlap(plan, list_kept_by(splits), remedy="take another --seed, or fewer --episodes")
        return
    most = max(Counter(one.task for one in plan).values(), default=0)
    if most > INSTANCES:
        raise UsageError(
            f"split {split.name} of {split.environment} keeps {INSTANCES} instances of a task per seed, asked for "
            f"{most}; play fewer episodes, or more seeds: {split.seeds}"
        )


def restore_apps(environment: EnvironmentDefinition) -> EnvironmentDefinition:
    """Return the environment with all its apps, including those that a split left out."""
    options = {name: value for name, value in environment.part.options.items() if name != WITHOUT}
    return _replace_options(environment, options)


def _remove_unseen(environment: EnvironmentDefinition) -> EnvironmentDefinition:
    """Return the environment without the unseen apps; unchanged if there are none."""
    if not environment.unseen.apps:
        return environment
    left_out = [*environment.part.options.get(WITHOUT, ()), *environment.unseen.apps]
    return _replace_options(environment, environment.part.options | {WITHOUT: list(dict.fromkeys(left_out))})


def _replace_options(environment: EnvironmentDefinition, options: dict[str, object]) -> EnvironmentDefinition:
    part = environment.part.model_copy(update={"options": options})
    return environment.model_copy(update={"backends": environment.backends | {environment.backend: part}})


def list_instances(run: Path) -> Iterator[TrainingInstance]:
    """Yield every episode of a run, unfinished ones included, with all its texts; one at a time.

    Raises:
        RunFormatError: the run cannot be read.
    """
    with RunStore.open(run).open_reader() as reader:
        for trajectory in (*reader.list_unfinished(), *reader.iterate_trajectories()):
            yield TrainingInstance(
                task=trajectory.task.name,
                seed=trajectory.task.seed,
                apps=trajectory.task.apps,
                texts=tuple(_iterate_texts(trajectory)),
                goal=trajectory.task.goal,
                source=f"{run}: {trajectory.id}",
            )


def _iterate_texts(trajectory: Trajectory) -> Iterator[str]:
    yield trajectory.task.goal
    for step in trajectory.steps:
        yield step.observation.text
        yield step.summary
        yield from (utterance.text for utterance in step.matrix.utterances)
