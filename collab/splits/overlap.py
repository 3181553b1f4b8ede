"""The check that stands before any training: nothing that is kept for evaluation may be in it.

    kept = kept_by(splits.values())
    refuse_overlap(rows, kept)                              # raises OverlapError, with counts and the first offenders
    found = refuse_overlap(rows, kept, allow_overlap=True)  # says what overlaps and goes on

An instance overlaps when its task is kept whatever the seed, when it touches a kept app, when its seed is one of the
kept seeds of its task or not known, or when one of its texts says a kept word. Names are compared without regard to
case, spacing and kinds of quotes, words as whole words ("ExpenseAddSingle" says "expense", "add" and "single").

Instructions may be task names, too, so that lists of other projects can be checked:
`refuse_overlap([Instance(task=line) for line in train], [HeldOut(name="test", tasks=folded(test))])`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from collab.errors import OverlapError
from collab.splits.split import NEW_SEEDS, UNSEEN_APP, Split, kept_instances

SHOWN = 3
"""Offenders that a message names."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_QUOTES = str.maketrans('‘’“”"', "'''''")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Something to be trained on: an episode, a row."""

    task: str
    """Name of the task it comes from."""
    seed: int | None = None
    """Of the task instance; None when it is not known."""
    apps: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Whatever of it a model reads: goal, screens, replies."""
    source: str = ""
    """Where it stands, for messages: a run and an episode, a file and a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """What training must not touch."""

    name: str
    tasks: frozenset[str] = frozenset()
    """Kept whatever the seed; folded, see `folded`."""
    seeds: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Kept instance seeds, by folded task name."""
    apps: frozenset[str] = frozenset()
    """Folded."""
    words: frozenset[str] = frozenset()
    """In lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """What a check found."""

    checked: int
    """Instances in all."""
    offenders: int
    """Instances that overlap with anything."""
    by_name: Mapping[str, int]
    """Offenders of each `HeldOut`; one instance may count for several."""
    first: tuple[str, ...]
    """The first few in words."""

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.by_name.items() if count)
        return f"{self.offenders} of {self.checked} training instances overlap ({counts}): {'; '.join(self.first)}"


def held_out(split: Split) -> HeldOut:
    """What an evaluation split keeps from training: instance seeds of seen tasks, everything of other tasks."""
    if split.name == NEW_SEEDS:
        return HeldOut(name=split.name, seeds={fold(task): kept_instances(task) for task in split.tasks})
    whole_app = split.name == UNSEEN_APP
    return HeldOut(
        name=split.name,
        tasks=folded(split.tasks),
        apps=folded(split.unseen.apps) if whole_app else frozenset(),
        words=frozenset(word.casefold() for word in split.unseen.words) if whole_app else frozenset(),
    )


def kept_by(splits: Iterable[Split]) -> list[HeldOut]:
    """What the evaluation splits among these keep."""
    return [held_out(split) for split in splits if not split.trains]


def refuse_overlap(
    training: Iterable[Instance],
    kept: Sequence[HeldOut],
    *,
    allow_overlap: bool = False,
    remedy: str = "leave these out, or add --allow-overlap",
) -> Overlap:
    """Compare what is to be trained on with what is kept.

    Args:
        training: read once, one at a time.
        allow_overlap: say what was found and go on, instead of refusing.
        remedy: what to do about it, for the message.

    Raises:
        OverlapError: something overlaps and this was not allowed.
    """
    checked = offenders = 0
    first: list[str] = []
    by_name = Counter({one.name: 0 for one in kept})
    for instance in training:
        checked += 1
        found = [(one.name, why) for one in kept if (why := reason(instance, one)) is not None]
        by_name.update(name for name, _ in found)
        offenders += bool(found)
        if found and len(first) < SHOWN:
            name, why = found[0]
            first.append(f"{instance.source} {instance.task!r}: {why} ({name})".strip())
    overlap = Overlap(checked=checked, offenders=offenders, by_name=dict(by_name), first=tuple(first))
    if offenders and not allow_overlap:
        raise OverlapError(f"{overlap}; {remedy}")
    return overlap


def reason(instance: Instance, kept: HeldOut) -> str | None:
    """Why an instance must not be trained on; None when nothing speaks against it."""
    task = fold(instance.task)
    if task in kept.tasks:
        return "its task is kept"
    touched = next((app for app in instance.apps if fold(app) in kept.apps), None)
    if touched is not None:
        return f"touches the app {touched!r}"
    seeds = kept.seeds.get(task)
    if seeds is not None and instance.seed is None:
        return "its instance seed is not known, and some are kept"
    if seeds is not None and instance.seed in seeds:
        return f"its instance seed {instance.seed} is kept"
    said = next((said for text in instance.texts if (said := words_of(text) & kept.words)), None)
    return None if said is None else f"says {min(said)!r}"


def words_of(text: str) -> set[str]:
    """Its words in lower case: runs of letters, where a capital after a small letter begins a new one."""
    return {word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", text))}


def fold(name: str) -> str:
    """A name without regard to case, spacing, kinds of quotes and ways to encode a letter."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().translate(_QUOTES).split())


def folded(names: Iterable[str]) -> frozenset[str]:
    """Many names, folded."""
    return frozenset(fold(name) for name in names)
