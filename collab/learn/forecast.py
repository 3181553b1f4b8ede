"""What training on preferences will take, from a few of them, before there are any more.

    found = forecast(task, pairs, "auto")
    found.seconds_per_pair, found.memory.high.total

Time is measured on real steps over these very pairs, or estimated where such a step does not fit into this machine
(`clock`). Memory is a formula (`plan.memory`), of a whole step of pairs as long as these, and as long as the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collab.errors import ConfigError
from collab.learn.base import open_base
from collab.learn.examples import Encoded, Ids, Pair
from collab.learn.plan import Memory, memory, sizes
from collab.learn.prepare import Prepared, Task, check_installed, ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Of a training of preferences."""

    seconds_per_pair: float
    """Of one process."""
    measured: bool
    """Whether real steps were timed; else it is an estimate."""
    tokens_per_pair: float
    """Of both sides; with shared prefixes what a state shares is counted once."""
    least: Memory
    """Bytes of one process, where pairs are as long as these."""
    most: Memory
    """Bytes of one process, where they are as long as the context."""
    parameters: int
    trainable: int


def forecast(task: Task, pairs: Sequence[Pair], device: str, *, processes: int = 1) -> Forecast:
    """Look ahead.

    Args:
        task: of stage dpo; its data are not read.
        pairs: of one state, as they might come; those longer than the context are left out, as in a training.
        device: as `finetune.train`.
        processes: that will train together.

    Raises:
        ConfigError: base and recipe do not fit together, or none of the pairs fits into the context.
        MissingExtra: a package is not installed.
    """
    check_installed()
    from collab.learn.clock import measure

    fitting = [pair for pair in pairs if len(pair) <= task.recipe.context]
    if not fitting:
        raise ConfigError(
            f"none of {len(pairs)} pairs fits into context {task.recipe.context}, the shortest has "
            f"{min(map(len, pairs), default=0)} tokens; raise context as far as the model allows"
        )
    few = _prepared(task, fitting, rows=len(fitting), processes=1)
    whole = _prepared(task, _filled(fitting, task.recipe.batch_rows, None), processes=processes)
    longest = _prepared(task, _filled(fitting, task.recipe.batch_rows, task.recipe.context), processes=processes)
    time = measure(few, device, memory(few).total)
    computed = sum(few.computed(part) for step in few.steps for part in step.parts)
    parameters, trainable = sizes(few)
    return Forecast(
        seconds_per_pair=time.seconds / len(fitting),
        measured=time.measured,
        tokens_per_pair=computed / len(fitting),
        least=memory(whole),
        most=memory(longest),
        parameters=parameters,
        trainable=trainable,
    )


def _prepared(task: Task, pairs: Sequence[Pair], *, processes: int, rows: int | None = None) -> Prepared:
    """One pass over some pairs.

    Args:
        rows: of a step at most; None for those of the recipe.
    """
    changed = {"epochs": 1, "batch_rows": min(rows or task.recipe.batch_rows, len(pairs))}
    task = replace(task, recipe=task.recipe.model_copy(update=changed))
    base = open_base(task.base, task.recipe)
    return ordered(task, base, Encoded(items=pairs), rows=None, processes=processes)


def _filled(pairs: Sequence[Pair], rows: int, length: int | None) -> list[Pair]:
    """So many pairs of states that have nothing in common, each like the given one.

    Args:
        length: tokens of each pair; None for those that it has.
    """
    found: list[Pair] = []
    for number in range(rows):
        turn, place = divmod(number, len(pairs))
        pair = pairs[place]
        size = len(pair.prompt) if length is None else length - max(len(pair.chosen), len(pair.rejected))
        found.append(replace(pair, prompt=_other(pair.prompt, turn, size), state=f"{pair.state} {turn}"))
    return found


def _other(prompt: Ids, turn: int, size: int) -> Ids:
    """A prompt of that many tokens that begins otherwise in each turn."""
    return np.resize(np.roll(prompt, turn), size).astype(np.int32)
