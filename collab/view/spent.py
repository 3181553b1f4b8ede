"""What a run took, by the clock and in model calls, in all and by part."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from collab.store import cost, log
from collab.store.cost import CALLS
from collab.store.reader import RunReader
from collab.view.labelled import NOTHING, Sums
from collab.view.pool import Opened
from collab.view.shapes.overview import Spending

_OF_EPOCH = f"{CALLS} JOIN episodes USING (key) WHERE epoch = ?"

_HEAD = re.compile(rb'^\{"format_version":"[^"]*","type":"[^"]*","seq":\d+,"time":"([^"]{1,40})"', re.MULTILINE)
"""Of an event, as they are written: no string within one can look like it, for quotes are escaped there."""
_WINDOW = 1 << 18
"""Bytes at the end of a segment in which its last event is looked for first."""


def seconds_of(run: Path) -> float:
    """How long its processes worked, by the clock: from the first to the last event of each, added up.

    Episodes run at the same time, so what they took each is more. No two processes write a run at once.
    """
    return math.fsum(_span(run / log.FOLDER / name) for name in log.segments(run))


def paid(reader: RunReader) -> Sums:
    """What its agents' calls took, those of steps that never ended and of replaced attempts included.

    That is what its processes told at their end. Of one that told nothing, because it was killed or is at work, it is
    what was recorded.
    """
    recorded: Sums = reader.query(CALLS)[0]
    whole = cost.paid(reader)
    # A process tells 0 also where no call told anything.
    return (
        whole.calls,
        whole.prompt_tokens or recorded[1],
        whole.completion_tokens or recorded[2],
        whole.cost_usd or recorded[3],
    )


def parts_of(run: Opened, epoch: int, played: tuple[float, float], *, alone: bool) -> Iterator[Spending]:
    """By part: deliberation, environment, critic, adversary, and what became no recorded step.

    Args:
        played: seconds of deliberation and of the environment, added up over episodes.
        alone: whether the run is this one epoch; what an adversary took, and what was not recorded, is not known of
            an epoch among others.
    """
    deliberation, environment = played
    yield spending("deliberation", deliberation, run.reader.query(_OF_EPOCH, epoch)[0])
    yield spending("environment", environment, NOTHING)
    if alone:
        yield from unrecorded("not recorded", paid(run.reader), run.reader.query(CALLS)[0])
    of = {id for (id,) in run.reader.query("SELECT trajectory FROM episodes WHERE epoch = ?", epoch)}
    yield from asked(run, of.__contains__, alone=alone)


def asked(run: Opened, wanted: Callable[[str], bool], *, alone: bool) -> Iterator[Spending]:
    """Critics and adversaries, where they are asked for money or tokens."""
    judging, erring = run.beside.judging(wanted), run.beside.erring() if alone else NOTHING
    if judging[0]:
        yield spending("critic", None, judging)
    if erring[0]:
        yield spending("adversary", None, erring)


def unrecorded(part: str, all_: Sums, known: Sums) -> Iterator[Spending]:
    """What is left of all calls beside the known ones; nothing where all are known."""
    if all_[0] > known[0]:
        prompt, completion, usd = (_rest(all_[at], known[at]) for at in (1, 2, 3))
        yield spending(part, None, (all_[0] - known[0], prompt, completion, usd))


def spending(part: str, seconds: float | None, sums: Sums) -> Spending:
    """A part and what it took."""
    calls, prompt, completion, usd = sums
    return Spending(
        part=part, seconds=seconds, calls=calls, prompt_tokens=prompt, completion_tokens=completion, cost_usd=usd
    )


# ------------------------------------------------------------------------------------------------------ inside


def _span(segment: Path) -> float:
    """Seconds from its first to its last event; 0 where it has none that can be read."""
    try:
        with segment.open("rb") as file:
            first = next((found for line in file if (found := _HEAD.match(line))), None)
            last = None if first is None else _last(file)
            if first is None or last is None:
                return 0.0
            return max(0.0, (_time(last) - _time(first)).total_seconds())
    except (OSError, ValueError, TypeError):
        return 0.0


def _rest(all_: Any, known: Any) -> Any:
    return None if all_ is None else max(0, all_ - (known or 0))


def _last(file: BinaryIO) -> re.Match[bytes] | None:
    size, window = file.seek(0, 2), _WINDOW
    while True:
        file.seek(max(0, size - window))
        block = file.read(window)
        heads = list(_HEAD.finditer(block, 0, block.rfind(b"\n") + 1))
        if heads or window >= size:
            return heads[-1] if heads else None
        window *= 8


def _time(head: re.Match[bytes]) -> datetime:
    return datetime.fromisoformat(head[1].decode("ascii"))
