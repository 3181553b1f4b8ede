"""Progress of long work: live on a terminal, plain lines elsewhere, and Ctrl-C that loses nothing.

    result = work(lambda watch, stop: start(config, library, out, watch=watch, stop=stop), out)

The first Ctrl-C or SIGTERM asks the work to stop; its record stays and can be resumed. The second one ends the process
at once. Progress goes to stderr.

    with handle_signals(lambda number: stop.set(), leaving=f"go on with: {command}"):
        asyncio.run(job())

Python raises KeyboardInterrupt between two instructions of the main thread: never while a library computes there, and
inside the event loop's own calls, which may then wait for ever. So a thread of its own reads the signals from the pipe
to which the operating system's handler writes (`signal.set_wakeup_fd`). Leaving is as safe as a kill: every record is
with the operating system before the call that writes it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

import typer

from collab.cli.output import emit, note, pause_output
from collab.errors import RunError
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.rollout.collector import Progress
    from collab.store.run_dir import RunDir


SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\r\x1b[J\x1b[?25h"
"""Erases the live line of a terminal and shows the cursor that it hid."""


class _Listener:
    """Reads this process's signals in a thread of its own and counts them."""

    def __init__(self) -> None:
        read, self.pipe = os.pipe()
        os.set_blocking(self.pipe, False)  # the handler must never wait
        self.count = 0
        self.ask: Callable[[signal.Signals], object] | None = None
        self.leaving = ""
        self.clean_up: Callable[[], None] = lambda: None
        threading.Thread(target=self._read, args=(read,), name="collab-signals", daemon=True).start()
        os.register_at_fork(after_in_child=_hear_nothing)  # a child's signals are not the parent's

    def _read(self, pipe: int) -> None:
        while numbers := os.read(pipe, 64):
            for number in numbers:
                if number in SIGNALS:
                    self._count(signal.Signals(number))

    def _count(self, number: signal.Signals) -> None:
        self.count += 1
        if self.count > 1:
            self._leave()
        if self.ask is not None:
            self.ask(number)

    def _leave(self) -> NoReturn:
        with contextlib.suppress(Exception):
            self.clean_up()
        line = f"error: interrupted{'; ' if self.leaving else ''}{self.leaving}\n".encode(errors="replace")
        with contextlib.suppress(OSError):  # past every lock: another thread may hold that of sys.stderr for ever
            os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + line)
        os._exit(1)


_listener: _Listener | None = None


def listen() -> None:
    """Let the second signal end this process from here on, whatever it does. Call it in the main thread."""
    global _listener
    _listener = _listener or _Listener()
    signal.set_wakeup_fd(_listener.pipe, warn_on_full_buffer=False)


def treat_sigterm_as_ctrl_c() -> None:
    """Let SIGTERM interrupt this process as Ctrl-C does, so that it restores temporary changes."""
    signal.signal(signal.SIGTERM, _interrupt)


@contextlib.contextmanager
def handle_signals(
    ask: Callable[[signal.Signals], object], *, leaving: str = "", clean_up: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Call `ask` at the first signal instead of raising KeyboardInterrupt; the second ends the process.

    In another thread than the main one signals are not heard, and nothing changes.

    Args:
        ask: called in a thread of its own with the signal.
        leaving: ends the line that is printed when the second signal ends the process.
        clean_up: called before it ends, e.g. to kill a server that would outlive it.
    """
    # Signals come to the main thread alone; elsewhere there is nothing to catch.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wakeup = signal.set_wakeup_fd(-1)
    listen()
    assert _listener is not None
    # Nested use: what was listening before listens again afterwards.
    outer = _listener.ask, _listener.leaving, _listener.clean_up
    _listener.count, _listener.ask, _listener.leaving, _listener.clean_up = 0, ask, leaving, clean_up
    handlers = {number: signal.signal(number, _take_note) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _listener.ask, _listener.leaving, _listener.clean_up = outer
        # The old descriptor may be full, which is no problem of the one that was lent.
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)


def _take_note(number: int, frame: object) -> None:
    """Do nothing: Python's handler for a signal that the listener reads."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C would do now: asyncio puts a handler of its own in its place while it runs."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # Ctrl-C is ignored, as in a shell's background
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)


def _hear_nothing() -> None:
    """Give a forked child no part in its parent's pipe, and let SIGTERM end it."""
    with contextlib.suppress(ValueError):  # forked from another thread
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGTERM) is _interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


ResultT = TypeVar("ResultT")

Watch = Callable[[Any], None]
"""Receives a live object once; the display must know its kind."""
Job = Callable[[Watch, asyncio.Event], Coroutine[Any, Any, ResultT]]
Lines = Callable[[Any], Sequence[str]]
"""Returns lines for a job's progress object."""

BLINK_S = 0.2
"""Seconds between two refreshes of the live line."""
LINE_S = 5.0
"""Seconds between two plain lines."""


def work(
    job: Job[ResultT],
    run: Path,
    *,
    opening: str = "",
    tell: Callable[[Any], str] | None = None,
    below: Lines = lambda progress: (),
    news: Lines = lambda progress: (),
    resume: str | None = None,
) -> ResultT:
    """Run a job to its end with progress shown and signals heard.

    Args:
        run: directory of the record.
        opening: a line printed once the work has really begun; empty for none.
        tell: formats the job's progress on one line; None for a collection's `Progress`.
        below: lines below it on a terminal.
        news: lines that are printed once where there is no terminal; they only grow.
        resume: the command that resumes the work; None for that of a run.
    """
    stop, loop = asyncio.Event(), asyncio.new_event_loop()

    def ask(number: signal.Signals) -> None:
        note("stopping: what was done is recorded; press Ctrl-C again to leave at once")
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work has just ended
            loop.call_soon_threadsafe(stop.set)

    leaving = f"go on with: {resume or resume_command(run)}"
    with handle_signals(ask, leaving=leaving), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_work(job, stop, opening, _Telling(tell or describe, below, news)))


def end_early(stopped: str | None, resume: str) -> None:
    """End the command with exit code 1 where its work stopped early.

    Args:
        stopped: the cause, or None.
        resume: the command that resumes the work.

    Raises:
        typer.Exit: it stopped.
    """
    if stopped is not None:
        note(f"stopped: {stopped}; go on with: {resume}")
        raise typer.Exit(1)


def tell_finished(path: Path, more: str) -> None:
    """Print that a directory's work is finished; `more` is the command for more of its kind."""
    note(f"{path} is finished; {more}")


class _Ended(Protocol):
    """The result of work that can be resumed."""

    @property
    def stopped(self) -> str | None:
        """Why the work ended early; None when it is done."""


_EndedT = TypeVar("_EndedT", bound=_Ended)


def _list_nothing(progress: Any) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """Display of a command whose work is recorded in a directory and can be resumed."""

    describe: Callable[[Any], str]
    """Formats the job's progress on one line."""
    below: Lines = _list_nothing
    news: Lines = _list_nothing
    """Both as in `work`."""
    show: Callable[[Any], None]
    """Prints a result."""
    to_json: Callable[[Any], Any]
    """Converts a result to JSON data."""

    def begin(
        self, job: Callable[..., Coroutine[Any, Any, _EndedT]], folder: RunDir, opening: str, as_json: bool
    ) -> _EndedT:
        """Run a job that makes the directory, and print its result.

        Args:
            job: takes `watch` and `stop`, as in `work`; its result has `stopped`, the cause of an early end.
            opening: a line printed once the work has really begun.

        Raises:
            typer.Exit: it stopped early.
        """
        return self._run(job, folder, opening, self.news, as_json)

    def resume(
        self, job: Callable[..., Coroutine[Any, Any, _EndedT]], folder: RunDir, more: str | None, as_json: bool
    ) -> _EndedT:
        """Run a job that resumes the directory, as `begin`.

        Args:
            more: the command for more of its kind where the work is finished, else None.
        """
        if more is None:
            return self._run(job, folder, f"going on with {folder.path}", self.news, as_json)
        tell_finished(folder.path, more)
        return self._run(job, folder, "", _list_nothing, as_json)  # earlier news are not repeated

    def _run(
        self, job: Callable[..., Coroutine[Any, Any, _EndedT]], folder: RunDir, opening: str, news: Lines, as_json: bool
    ) -> _EndedT:
        result = work(
            lambda watch, stop: job(watch=watch, stop=stop),
            folder.path,
            opening=opening,
            tell=self.describe,
            below=self.below,
            news=news,
            resume=folder.resume,
        )
        if as_json:
            emit(self.to_json(result))
        else:
            self.show(result)
        # Print the result first, then why the work ended early.
        end_early(result.stopped, folder.resume)
        return result


def resume_command(run: Path) -> str:
    """Return the command that resumes a run."""
    return f"collab runs resume {shlex.quote(str(run))}"


class _Telling(NamedTuple):
    line: Callable[[Any], str]
    below: Lines
    news: Lines


async def show_work(
    job: Job[ResultT],
    *,
    opening: str = "",
    tell: Callable[[Any], str] | None = None,
    news: Lines = lambda progress: (),
) -> ResultT:
    """Await a job with progress shown, in a running event loop; arguments as of `work`. Signals are not handled."""
    return await _work(job, asyncio.Event(), opening, _Telling(tell or describe, lambda progress: (), news))


async def _work(job: Job[ResultT], stop: asyncio.Event, opening: str, tell: _Telling) -> ResultT:
    seen: list[Any] = []

    def watch(progress: Any) -> None:
        seen.append(progress)
        if opening:
            note(opening)

    with _open_display() as display:
        # The display is updated beside the work, which may not return for minutes.
        ticker = asyncio.create_task(_tick(seen, display, tell))
        try:
            return await _run_until_stopped(job(watch, stop), stop, seen)
        finally:
            ticker.cancel()
            if seen:
                display.end(seen[-1], tell)


async def _run_until_stopped(job: Coroutine[Any, Any, ResultT], stop: asyncio.Event, seen: Sequence[Any]) -> ResultT:
    """Run a job, and cancel it if it is asked to stop before its first progress.

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
    """Shows the progress of work."""

    interval_s: float

    def show(self, progress: Any, tell: _Telling) -> None:
        """Show what has changed since the last call."""

    def end(self, progress: Any, tell: _Telling) -> None:
        """Show the last lines before the work is left."""


class _Lines:
    """Plain lines, for logs."""

    interval_s = LINE_S

    def __init__(self) -> None:
        self._shown, self._told = "", 0

    def show(self, progress: Any, tell: _Telling) -> None:
        self.end(progress, tell)
        line = tell.line(progress)
        if line != self._shown:
            note(line)
            self._shown = line

    def end(self, progress: Any, tell: _Telling) -> None:
        lines = tell.news(progress)
        for line in lines[self._told :]:
            note(line)
        self._told = len(lines)


class _Live:
    """A screen that is redrawn, with other output above it."""

    interval_s = BLINK_S

    def __init__(self, update: Callable[[str, Sequence[str]], None]) -> None:
        self._update = update
        self._shown: tuple[str, Sequence[str]] = ("", ())

    def show(self, progress: Any, tell: _Telling) -> None:
        text = tell.line(progress), tell.below(progress)
        if text != self._shown:
            self._update(*text)
            self._shown = text

    def end(self, progress: Any, tell: _Telling) -> None:
        """Do nothing: the screen vanishes, and the result shows all."""


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


async def _tick(seen: list[Any], display: _Display, tell: _Telling) -> None:
    """Show the newest progress at intervals, and only when it has changed."""
    while True:
        await asyncio.sleep(display.interval_s)
        if seen:
            display.show(seen[-1], tell)


def describe(progress: Progress) -> str:
    """Format one line: episodes or steps, how many were solved, calls, tokens, calls per second, time left.

    Of those that are over no rate is told: short episodes end first, and those are solved more often than others.
    Where they are known: the prefix cache's share, the batches' width and a call's mean times in line and at work.
    """
    # No rate before the end: short episodes end first, and they are solved more often.
    solved = f" over, {progress.succeeded} solved" if progress.done else ""
    parts = [f"{progress.done}/{format_amount(progress.planned, 'episode')}{solved}"]
    # A step budget plans steps, and the number of episodes follows.
    if progress.wanted_steps is not None:
        played = min(progress.steps_before + progress.steps, progress.wanted_steps)
        ending = ", ending episodes that were begun" if played == progress.wanted_steps else ""
        parts = [
            f"{played}/{format_amount(progress.wanted_steps, 'step')}{ending}",
            f"{format_amount(progress.done, 'episode')}{solved}",
        ]
    if progress.broken:
        parts.append(f"{progress.broken} broken")
    # Cost of all processes: a resumed run includes the earlier ones.
    whole = progress.spent_in_all
    tokens = format_count(whole.prompt_tokens + whole.completion_tokens, "token")
    parts.append(f"{format_count(whole.calls, 'call')}, {tokens}, {progress.calls_per_s:.1f} calls/s")
    # Only local engines and some servers report their cache; a missing number is left out, not shown as 0.
    if progress.hit_rate is not None:
        computed = shorten_number(progress.computed_tokens)
        parts.append(f"{computed} prompt tokens computed ({progress.hit_rate:.0%} prefix hits)")
    if progress.mean_width is not None:
        parts.append(f"batches {progress.mean_width:.1f} wide")
    # Waiting and working apart: the first mends with more servers, the second with a faster one.
    if progress.timed_calls:
        queue_s, work_s = (total / progress.timed_calls for total in (progress.queue_s, progress.work_s))
        parts.append(f"{queue_s:.2f} s in line, {work_s:.2f} s at work")
    if whole.cost_usd:
        parts.append(f"{whole.cost_usd:.2f} USD")
    if progress.seconds_left is not None:
        parts.append(f"about {format_clock(progress.seconds_left)} left")
    return " | ".join(parts)


def format_count(number: int, noun: str) -> str:
    """Format a count in few letters with its noun, in the singular for one."""
    return format_amount(number, noun) if number == 1 else f"{shorten_number(number)} {noun}s"


def shorten_number(number: int) -> str:
    """Format a count in few letters: 950, 12.3k, 4.56M."""
    if number < 10_000:
        return str(number)
    return f"{number / 1e3:.1f}k" if number < 1_000_000 else f"{number / 1e6:.2f}M"


def format_clock(seconds: float) -> str:
    """Format a duration as 0:07, 12:30 or 1:02:03."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
