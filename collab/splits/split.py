"""The four splits of an environment, decided by names, apps and seeds alone.

Each task belongs to one of three groups:

    of an unseen app    it touches an app that the environment's file calls unseen; of several apps one is enough
    unseen              any other task whose name is unseen: SHA-256 of its UTF-8 bytes, read as a big-endian integer,
                        is divisible by five
    seen                the rest

and each run seed (AndroidWorld's suite seed) to one of two ranges: 30 to 39 are for evaluation, all others for
training. A run seed and a task give instance seeds by `Seeds.task`; the first hundred of every evaluation seed are
kept: an instance with one of them is never trained on, even where a training seed should lead to it by chance.

    split           tasks              run seeds
    train           seen               all but 30 to 39; apps called unseen are not installed
    new-seeds       seen               30 to 39
    unseen-tasks    unseen             30 to 39
    unseen-app      of an unseen app   30 to 39

A training phone lacks the unseen apps altogether, so that not even their names are seen; evaluation takes the whole
phone. The hash of a split covers what defines it, for training also the unseen apps and their words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from collab.config import Unseen
from collab.envs.base import TaskInfo
from collab.errors import ConfigError, UnknownName
from collab.seeds import Seeds

TRAIN, NEW_SEEDS, UNSEEN_TASKS, UNSEEN_APP = "train", "new-seeds", "unseen-tasks", "unseen-app"
NAMES = (TRAIN, NEW_SEEDS, UNSEEN_TASKS, UNSEEN_APP)
_WHAT = {
    TRAIN: "all that is trained on",
    NEW_SEEDS: "tasks of train, instances never trained on",
    UNSEEN_TASKS: "tasks never trained on",
    UNSEEN_APP: "tasks of an app never shown in training",
}
EVALUATION_SEEDS = range(30, 40)
"""Run seeds that nothing is trained on; results use 30, 31 and 32."""
INSTANCES = 100
"""Instances of a task that are kept per evaluation seed, numbered from 0."""
UNSEEN_SHARE = 5
"""One task name in so many is unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Tasks and the run seeds they are played with."""

    environment: str
    name: str
    tasks: tuple[str, ...]
    """In the suite's order; empty when the environment has none of this kind."""
    unseen: Unseen
    """Apps and words that training does without."""

    @property
    def trains(self) -> bool:
        """Whether this is what may be trained on."""
        return self.name == TRAIN

    @property
    def seeds(self) -> str:
        """The run seeds, in words."""
        span = f"{EVALUATION_SEEDS.start} to {EVALUATION_SEEDS.stop - 1}"
        return f"all but {span}" if self.trains else span

    @property
    def what(self) -> str:
        """What it is for, in a few words."""
        return _WHAT[self.name]

    @property
    def hash(self) -> str:
        """SHA-256 of everything that defines the split, as 64 hexadecimal digits."""
        text = json.dumps(described(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def takes(self, seed: int) -> bool:
        """Whether a run with this seed can belong to the split."""
        return (seed in EVALUATION_SEEDS) is not self.trains


def described(split: Split) -> dict[str, Any]:
    """A split as JSON data: what its hash is made of."""
    given = {
        "environment": split.environment,
        "split": split.name,
        "trains": split.trains,
        "tasks": list(split.tasks),
        "evaluation_seeds": list(EVALUATION_SEEDS),
        "kept_per_evaluation_seed": INSTANCES,
    }
    if split.trains:
        given |= {"unseen_apps": sorted(split.unseen.apps), "unseen_words": sorted(split.unseen.words)}
    return given


def is_unseen(task: str) -> bool:
    """Whether a task's name falls on the unseen side: its SHA-256 is divisible by five."""
    return int.from_bytes(hashlib.sha256(task.encode()).digest(), "big") % UNSEEN_SHARE == 0


@lru_cache(maxsize=1 << 9)
def kept_instances(task: str) -> frozenset[int]:
    """Instance seeds of a task that are kept for evaluation."""
    return frozenset(Seeds(seed).task(task, number) for seed in EVALUATION_SEEDS for number in range(INSTANCES))


def splits_of(
    environment: str, infos: Sequence[TaskInfo], unseen: Unseen, where: str | None = None
) -> dict[str, Split]:
    """The splits of an environment by their names: together they hold every task, and only the first two share any.

    Args:
        infos: all tasks of the suite.
        where: the definition that says what is unseen, for messages; None where it bears the suite's name.

    Raises:
        ConfigError: an app is called unseen that no task touches.
    """
    apps = {app.casefold() for app in unseen.apps}
    unknown = apps - {app.casefold() for info in infos for app in info.apps}
    if unknown:
        raise ConfigError(
            f"{where or f'envs/{environment}'}: unseen.apps: no task touches {sorted(unknown)[0]!r}; "
            f"apps: {', '.join(sorted({app for info in infos for app in info.apps})) or 'none'}"
        )
    groups: Mapping[str, list[str]] = {TRAIN: [], UNSEEN_TASKS: [], UNSEEN_APP: []}
    for info in infos:
        groups[_group(info, apps)].append(info.name)
    return {
        name: Split(
            environment=environment,
            name=name,
            tasks=tuple(groups[TRAIN if name == NEW_SEEDS else name]),
            unseen=unseen,
        )
        for name in NAMES
    }


def named(splits: Mapping[str, Split], name: str) -> Split:
    """One of them; UnknownName when none is called so or the environment has no such tasks."""
    split = splits.get(name)
    if split is None:
        raise UnknownName.of("split", name, splits, "see them with: collab env splits NAME")
    if not split.tasks:
        filled = ", ".join(other.name for other in splits.values() if other.tasks)
        raise UnknownName(f"{split.environment} has no task in split {name}; splits with tasks: {filled}")
    return split


def _group(info: TaskInfo, unseen_apps: Iterable[str]) -> str:
    if any(app.casefold() in unseen_apps for app in info.apps):
        return UNSEEN_APP
    return UNSEEN_TASKS if is_unseen(info.name) else TRAIN
