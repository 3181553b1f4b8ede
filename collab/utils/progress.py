"""Progress of long work on stderr: live on a terminal, plain lines elsewhere.

    result = await show_work(lambda watch, stop: start(config, library, out, watch=watch, stop=stop))

If a command prints nothing for a moment, a thread prints the current operation. It runs only in processes of the
command line (`begin`), and is silent while a live line is on the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TextIO, TypeVar

from collab.errors import RunError
from collab.utils.concurrency import get_latest_doing
from collab.utils.text import clean_line, format_clock

ResultT = TypeVar("ResultT")

Watch = Callable[[Any], None]
"""Called once with a live object, whose kind the display must know."""
Job = Callable[[Watch, asyncio.Event], Coroutine[Any, Any, ResultT]]
Lines = Callable[[Any], Sequence[str]]
"""Formats the live object of a job in lines."""

BLINK_S = 0.2
"""Seconds between two refreshes of the live line."""
LINE_S = 5.0
"""Seconds between two plain lines."""


SILENCE_S = 1.5
"""Seconds without output after which the current operation is printed."""
_LOOK_S = 0.1

_state = {"spoken": 0.0, "paused": 0.0}
"""Time of the last output, 0 for never; and number of live lines on the screen."""


class Pace:
    """Estimates the time left of work that consists of like parts, from the time that parts took since the first look.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: tuple[float, int] | None = None

    def describe_left(self, done: int, planned: int) -> list[str]:
        """Format the time left, "about 1:20 left"; none before a part is done, or after the last.

        Args:
            done: parts, those of earlier processes included.
        """
        now = self._clock()
        if self._begun is None:
            self._begun = now, done
        since, before = self._begun
        if not before < done < planned:
            return []
        return [f"about {format_clock((now - since) / (done - before) * (planned - done))} left"]


def begin() -> None:
    """Watch over this process from now on."""
    threading.Thread(target=_watch, args=(time.monotonic(),), name="collab-herald", daemon=True).start()


def mark_spoken() -> None:
    """Note that a line was printed."""
    _state["spoken"] = time.monotonic()


@contextlib.contextmanager
def pause_output() -> Iterator[None]:
    """Print no operations during the block, which has a live line."""
    _state["paused"] += 1
    try:
        yield
    finally:
        _state["paused"] -= 1
        mark_spoken()


def _watch(started: float) -> None:
    told = ""
    while True:
        time.sleep(_LOOK_S)
        now, last, what = time.monotonic(), _state["spoken"], get_latest_doing()
        if _state["paused"] or now - max(last, started) < SILENCE_S:
            continue
        # By its words: many calls may wait for the same thing, one after the other.
        if what is not None and what.what != told:
            told = what.what
            note(f"{told} …")
        elif not last:
            note("loading …")


def note(text: str) -> None:
    """Print a line beside the result, on stderr; ignore a closed stream."""
    from collab.utils.redact import hide_text

    with contextlib.suppress(OSError):
        write_line(sys.stderr, clean_line(hide_text(text)))


def write_line(stream: TextIO, text: str) -> None:
    """Write a line, and note the output."""
    mark_spoken()
    stream.write(text + "\n")
    stream.flush()


async def show_work(
    job: Job[ResultT],
    *,
    stop: asyncio.Event | None = None,
    opening: str = "",
    describe: Callable[[Any], str] = str,
    below: Lines = lambda progress: (),
    news: Lines = lambda progress: (),
) -> ResultT:
    """Await a job with its progress on stderr; signals are left to the caller of the event loop.

    Args:
        stop: passed to the job; a job that has nothing to show yet ends when it is set.
        opening: printed once the work has begun; empty for nothing.
        describe: formats the live line.
        below: formats the lines below it on a terminal.
        news: formats all lines that are printed once elsewhere; it only grows.

    Raises:
        RunError: it was stopped before anything was begun.
    """
    stop, seen, texts = stop or asyncio.Event(), list[Any](), _Texts(describe, below, news)

    def watch(progress: Any) -> None:
        seen.append(progress)
        if opening:
            note(opening)

    with _open_display() as display:
        # The display is updated beside the work, which may not return for minutes.
        ticker = asyncio.create_task(_tick(seen, display, texts))
        try:
            return await _run_until_stopped(job(watch, stop), stop, seen)
        finally:
            ticker.cancel()
            if seen:
                display.end(seen[-1], texts)


class _Texts(NamedTuple):
    line: Callable[[Any], str]
    below: Lines
    news: Lines


async def _run_until_stopped(job: Coroutine[Any, Any, ResultT], stop: asyncio.Event, seen: Sequence[Any]) -> ResultT:
    """Run a job; one that is stopped before it has anything to show is ended at once.

    Raises:
        RunError: it was ended; nothing was begun.
    """
    working, asked = asyncio.ensure_future(job), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
        # Before the first progress there is nothing to keep, so it is cancelled and not asked to finish.
        if not working.done() and not seen:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                return await working
            raise RunError("stopped on request before anything was begun")
        return await working
    finally:
        asked.cancel()
        working.cancel()


class _Display(Protocol):
    """Display of progress."""

    interval_s: float

    def show_opening(self) -> None:
        """Show what is done before there is any progress."""

    def show(self, progress: Any, texts: _Texts) -> None:
        """Show the changes since the last call."""

    def end(self, progress: Any, texts: _Texts) -> None:
        """Print the final state before the work is left."""


class _Lines:
    """Plain lines, for logs."""

    interval_s = LINE_S

    def __init__(self) -> None:
        self._shown, self._told = "", 0

    def show_opening(self) -> None:
        """Show nothing: operations are printed by the thread of `begin`."""

    def show(self, progress: Any, texts: _Texts) -> None:
        self.end(progress, texts)
        line = texts.line(progress)
        if line != self._shown:
            note(line)
            self._shown = line

    def end(self, progress: Any, texts: _Texts) -> None:
        lines = texts.news(progress)
        for line in lines[self._told :]:
            note(line)
        self._told = len(lines)


def _format_wait() -> tuple[str, ...]:
    """Return a line about an operation that takes long; none if there is no such."""
    what = get_latest_doing()
    return () if what is None or time.monotonic() - what.since < SILENCE_S else (f"{what.what} …",)


class _Live:
    """A screen that is rewritten, with other output above it."""

    interval_s = BLINK_S

    def __init__(self, update: Callable[[str, Sequence[str]], None]) -> None:
        self._update = update
        self._shown: tuple[str, Sequence[str]] = ("", ())

    def show_opening(self) -> None:
        what = get_latest_doing()
        text = f"{what.what} …" if what else "starting"
        if (text, ()) != self._shown:
            self._shown = text, ()
            self._update(*self._shown)

    def show(self, progress: Any, texts: _Texts) -> None:
        text = texts.line(progress), (*texts.below(progress), *_format_wait())
        if text != self._shown:
            self._update(*text)
            self._shown = text

    def end(self, progress: Any, texts: _Texts) -> None:
        """Do nothing: the live line vanishes, and the result has all."""


@contextlib.contextmanager
def _open_display() -> Iterator[_Display]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("line", "starting")
    with pause_output(), Live(spinner, console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def update(text: str, below: Sequence[str]) -> None:
            spinner.update(text=Text(text))
            rest = Text("\n".join(below), overflow="fold")
            live.update(Group(spinner, rest) if below else spinner, refresh=True)

        try:
            yield _Live(update)
        finally:
            live.update("", refresh=True)  # rich draws the last frame whole, and cannot erase what is out at the top


async def _tick(seen: list[Any], display: _Display, texts: _Texts) -> None:
    """Show the latest progress at intervals, if there is any."""
    while True:
        await asyncio.sleep(display.interval_s)
        if seen:
            display.show(seen[-1], texts)
        else:
            display.show_opening()
