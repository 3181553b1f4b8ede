"""Learn again what a training learned, from its recorded episodes alone.

    result = await replay(Path("runs/distrl"), Path("runs/again"))

A training writes down which episodes each epoch learned from, and in which order, before it learns. All else follows
from that, from seeds and from the number of threads. So a replay ends with the same weights, bit for bit, wherever the
episodes came from and however often the training was killed; an epoch that does not ends it with an error.

The new training names the old one (`REPLAYED` in its head) and can be resumed like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from collab.errors import UsageError
from collab.loop.interfaces import load_algorithm, read_training
from collab.loop.loop import TrainingResult, Watch, resume
from collab.loop.record import TrainingDir
from collab.loop.recorded import REPLAYED
from collab.store.manifest import format_now
from collab.trainers.prepare import check_installed
from collab.utils.trust import check_trusted


async def replay(
    path: Path,
    out: Path,
    *,
    note: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> TrainingResult:
    """Learn again, into the directory `out`, from what a training recorded, in the order in which it learned.

    Nothing is played and nothing is measured. Each finished epoch of the training is learned from its own episodes and
    labels, with the threads that it was begun with; its lessons and weights have to be the same, bit for bit.

    Args:
        path: of the training, which is only read.
        note: takes a line per epoch.

    Raises:
        UsageError: its algorithm cannot be replayed, or `out` already holds something; nothing was started.
        RunFormatError: the training cannot be read, or its base or prompts have changed.
        RunError: an epoch ends with other lessons or weights.
    """
    source, folder = TrainingDir(path), TrainingDir(out)
    # The head may name modules to import, so trust is asked for before any of it is built.
    check_trusted(source.read().get("config", {}), str(source.file))
    head, config = read_training(source)
    if not load_algorithm(config.algorithm).can_replay:
        raise UsageError(
            f"--replay {path}: {config.algorithm} asks models while it learns, so its learning cannot be repeated "
            "without them; resume it, or train anew"
        )
    check_installed()
    kept = {name: part for name, part in head.items() if name != "summary"}
    folder.check_free()
    folder.begin({**kept, "created": format_now(), REPLAYED: str(path.resolve())})
    return await resume(out, note=note, watch=watch, stop=stop)
