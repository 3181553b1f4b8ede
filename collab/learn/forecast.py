"""What training on pairs or replies will take, from a few of them, before there are any more.

    found = forecast(task, pairs, "auto")
    found.seconds_per_item, found.most.total

Time is measured on real steps over these very items, or estimated where such a step does not fit into this machine
(`clock`). Memory is a formula (`plan.memory`), of a whole step of items as long as these, and as long as the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from collab.errors import ConfigError
from collab.learn.base import open_base
from collab.learn.examples import Encoded, Example, Ids, Pair
from collab.learn.plan import Memory, memory, sizes
from collab.learn.prepare import Prepared, Task, check_installed, ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Of a training of pairs, or of replies alone."""

    seconds_per_item: float
    """Of one process."""
    measured: bool
    """Whether real steps were timed; else it is an estimate."""
    tokens_per_item: float
    """Padding included; of a pair, of both sides, and with shared prefixes what a state shares is counted once."""
    least: Memory
    """Bytes of one process, where items are as long as these."""
    most: Memory
    """Bytes of one process, where they are as long as the context."""
    parameters: int
    trainable: int


def forecast(task: Task, items: Sequence[Pair] | Sequence[Example], device: str, *, processes: int = 1) -> Forecast:
    """Look ahead.

    Args:
        task: of stage dpo for pairs, of stage sft for examples of a level that it trains; its data are not read.
        items: of one state, as they might come; those longer than the context are left out, as in a training.
        device: as `finetune.train`.
        processes: that will train together.

    Raises:
        ConfigError: base and recipe do not fit together, or none of the items fits into the context.
        MissingExtra: a package is not installed.
    """
    check_installed()
    from collab.learn.clock import measure

    fitting = [item for item in items if len(item) <= task.recipe.context]
    if not fitting:
        what = "pairs" if task.stage == "dpo" else "replies"
        raise ConfigError(
            f"none of {len(items)} {what} fits into context {task.recipe.context}, the shortest has "
            f"{min(map(len, items), default=0)} tokens; raise context as far as the model allows"
        )
    few = _prepared(task, fitting, rows=len(fitting), processes=1)
    whole = _prepared(task, _filled(fitting, task.recipe.batch_rows, None), processes=processes)
    longest = _prepared(task, _filled(fitting, task.recipe.batch_rows, task.recipe.context), processes=processes)
    time = measure(few, device, memory(few).total)
    computed = sum(few.computed(part) for step in few.steps for part in step.parts)
    size = sizes(few)
    return Forecast(
        seconds_per_item=time.seconds / len(fitting),
        measured=time.measured,
        tokens_per_item=computed / len(fitting),
        least=memory(whole),
        most=memory(longest),
        parameters=size.parameters,
        trainable=size.trainable,
    )


def _prepared(task: Task, items: Sequence[Any], *, processes: int, rows: int | None = None) -> Prepared:
    """One pass over some items.

    Args:
        rows: of a step at most; None for those of the recipe.
    """
    changed = {"epochs": 1, "batch_rows": min(rows or task.recipe.batch_rows, len(items))}
    task = replace(task, recipe=task.recipe.model_copy(update=changed))
    base = open_base(task.base, task.recipe)
    return ordered(task, base, Encoded(items=items), rows=None, processes=processes)


def _filled(items: Sequence[Pair | Example], rows: int, length: int | None) -> list[Pair | Example]:
    """So many items of states that have nothing in common, each like the given one.

    Args:
        length: tokens of each item; None for those that it has.
    """
    found: list[Pair | Example] = []
    for number in range(rows):
        turn, place = divmod(number, len(items))
        item = items[place]
        found.append(_example(item, turn, length) if isinstance(item, Example) else _pair(item, turn, length))
    return found


def _pair(pair: Pair, turn: int, length: int | None) -> Pair:
    size = len(pair.prompt) if length is None else length - max(len(pair.chosen), len(pair.rejected))
    return replace(pair, prompt=_other(pair.prompt, turn, size), state=f"{pair.state} {turn}")


def _example(example: Example, turn: int, length: int | None) -> Example:
    size = example.scored_from if length is None else length - example.scored
    prompt, reply = np.split(example.ids, [example.scored_from])
    return replace(example, ids=np.concatenate((_other(prompt, turn, size), reply)), scored_from=size)


def _other(prompt: Ids, turn: int, size: int) -> Ids:
    """A prompt of that many tokens that begins otherwise in each turn."""
    return np.resize(np.roll(prompt, turn), size).astype(np.int32)
