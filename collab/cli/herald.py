"""Nobody waits for long without a word: what is being done is said on stderr where a command is silent.

A thread looks whether something was printed in the last moment. It runs in processes of the command line alone, and is
silent while a live line is on the screen.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from collab.background import Doing, latest_doing

SILENCE_S = 1.5
"""After so long without a word something is said."""
_LOOK_S = 0.1

_state = {"spoken": 0.0, "paused": 0.0}
"""When something was printed last, 0 for never; and how many live lines are on the screen."""


def begin() -> None:
    """Watch over this process from now on."""
    threading.Thread(target=_watch, args=(time.monotonic(),), name="collab-herald", daemon=True).start()


def spoken() -> None:
    """Note that something was printed."""
    _state["spoken"] = time.monotonic()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Say nothing during the block: a live line tells what goes on."""
    _state["paused"] += 1
    try:
        yield
    finally:
        _state["paused"] -= 1
        spoken()


def _watch(started: float) -> None:
    told: Doing | None = None
    while True:
        time.sleep(_LOOK_S)
        now, last, what = time.monotonic(), _state["spoken"], latest_doing()
        if _state["paused"] or now - max(last, started) < SILENCE_S:
            continue
        if what is not None and what is not told:
            told = what
            _say(f"{what.what} …")
        elif not last:
            _say("loading …")


def _say(text: str) -> None:
    from collab.cli.output import note

    note(text)
