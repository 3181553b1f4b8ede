"""Events that say when a run grew, so that a page can ask again for what it shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from collab.view.answer import encoded
from collab.view.desk import UNREADABLE
from collab.view.inspector import Inspector
from collab.view.shapes.runs import Growth

PAUSE_S = 1.0
"""Between two looks at the disk."""
WALK_S = 5.0
"""Between two walks through the folders that were named, for runs that are new."""
_BREATH_S = 0.2
"""Between two looks at whether the server stops."""
_ALIVE_S = 15.0
"""Between two signs of life, for whoever stands between server and page."""


async def growth(
    inspector: Inspector,
    ids: Sequence[str],
    *,
    stopped: Callable[[], bool],
    pause_s: float = PAUSE_S,
    walk_s: float = WALK_S,
) -> AsyncIterator[bytes]:
    """Server-sent events of type "run", each a `Growth`: first of every run, then of each that changed.

    Args:
        ids: of runs and trainings; without any, all that are listed, new ones included.
        stopped: ends the stream.
    """
    told: dict[str, str] = {}
    alive = time.monotonic()
    listed, walk = list(ids), alive
    yield b"retry: 2000\n\n"
    while not stopped():
        if not ids and time.monotonic() >= walk:
            listed = await asyncio.to_thread(inspector.ids)
            walk = time.monotonic() + walk_s
        for event in await asyncio.to_thread(_news, inspector, listed, told):
            alive = time.monotonic()
            yield b"event: run\ndata: " + encoded(event) + b"\n\n"
        if time.monotonic() - alive > _ALIVE_S:
            alive = time.monotonic()
            yield b": still here\n\n"
        until = time.monotonic() + pause_s
        while not stopped() and time.monotonic() < until:
            await asyncio.sleep(min(_BREATH_S, pause_s))


def _news(inspector: Inspector, ids: Sequence[str], told: dict[str, str]) -> list[Growth]:
    """Where runs stand that have changed since they were told of; one that is gone says nothing."""
    found: list[Growth] = []
    for id in ids:
        try:
            state = inspector.state(id)
            if told.get(id) != state:
                found.append(inspector.growth(id))
                told[id] = state
        except UNREADABLE:
            continue
    return found
