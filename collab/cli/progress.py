"""Long work in a command: show its progress (`collab.utils.progress`), and lose nothing on Ctrl-C.

    result = work(lambda watch, stop: start(config, library, out, watch=watch, stop=stop), out)

The first Ctrl-C (or SIGTERM) asks the work to stop; what was recorded stays and can be resumed. The second one ends the
process at once.

    with handle_signals(lambda number: stop.set(), leaving=f"resume with: {command}"):
        asyncio.run(job())

Python raises KeyboardInterrupt between two instructions of the main thread: never while a library computes there, and
inside the event loop's own calls, which may then wait forever. So a thread of its own reads the signals from the pipe
to which the operating system's handler writes (`signal.set_wakeup_fd`). Leaving is as safe as a kill: every record is
with the operating system before the call that writes it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar

import typer

from collab.cli.output import emit
from collab.utils.progress import Job, Lines, ResultT, note, show_work

if TYPE_CHECKING:
    from collab.store.run_dir import RunDir


Arguments = ParamSpec("Arguments")
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
    """Let SIGTERM interrupt this process as Ctrl-C does, so that it removes its temporary files."""
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
    if not _is_main_thread():
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


def run_interruptible(
    job: Callable[Arguments, Coroutine[Any, Any, ResultT]], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> ResultT:
    """Call and run what records nothing; the first signal interrupts it, also where it computes in this thread.

    asyncio's own handler would only cancel what waits: a plan that measures a step in one long call would not stop.
    The coroutine is made here: one that a signal leaves unawaited would be told of by a warning.
    """
    is_at_work = was_asked = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal was_asked
        was_asked = True
        if is_at_work:
            raise KeyboardInterrupt

    async def work() -> ResultT:
        nonlocal is_at_work
        awaited = job(*args, **kwargs)
        try:
            is_at_work = True
            if was_asked:
                raise KeyboardInterrupt
            return await awaited
        finally:
            is_at_work = False
            awaited.close()  # it may not have begun

    # Elsewhere signals are not heard, and in a shell's background Ctrl-C is ignored.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not _is_main_thread():
        return _run(work())

    # asyncio leaves another handler than Python's own alone. While it opens or closes its loop nothing may be raised.
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        result = _run(work())
    finally:
        signal.signal(signal.SIGINT, before)
    if was_asked:
        raise KeyboardInterrupt
    return result


def _run(working: Coroutine[Any, Any, ResultT]) -> ResultT:
    try:
        return asyncio.run(working)
    finally:
        working.close()  # a signal may have come before it began


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _hear_nothing() -> None:
    """Give a forked child no part in its parent's pipe, and let SIGTERM end it."""
    with contextlib.suppress(ValueError):  # forked from another thread
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGTERM) is _interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def work(
    job: Job[ResultT],
    run: Path,
    *,
    opening: str = "",
    describe: Callable[[Any], str] = str,
    below: Lines = lambda progress: (),
    news: Lines = lambda progress: (),
    resume: str | None = None,
) -> ResultT:
    """Run a job to its end with progress shown and signals heard.

    Args:
        run: where it is recorded.
        opening: as of `show_work`, like `describe`, `below` and `news`.
        resume: the command that resumes the work; None for that of a run.
    """
    stop, loop = asyncio.Event(), asyncio.new_event_loop()

    def ask(number: signal.Signals) -> None:
        note("stopping: what was done is recorded; press Ctrl-C again to leave at once")
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work has just ended
            loop.call_soon_threadsafe(stop.set)

    leaving = f"resume with: {resume or resume_command(run)}"
    with handle_signals(ask, leaving=leaving), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(show_work(job, stop=stop, opening=opening, describe=describe, below=below, news=news))


def end_early(stopped: str | None, resume: str) -> None:
    """End the command with exit code 1 where its work stopped early.

    Args:
        stopped: the cause, or None.
        resume: the command that resumes the work.

    Raises:
        typer.Exit: it stopped.
    """
    if stopped is not None:
        note(f"stopped: {stopped}; resume with: {resume}")
        raise typer.Exit(1)


def print_finished(path: Path, more: str) -> None:
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

    describe: Callable[[Any], str] = str
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
            return self._run(job, folder, f"resuming {folder.path}", self.news, as_json)
        print_finished(folder.path, more)
        return self._run(job, folder, "", _list_nothing, as_json)  # earlier news are not repeated

    def _run(
        self, job: Callable[..., Coroutine[Any, Any, _EndedT]], folder: RunDir, opening: str, news: Lines, as_json: bool
    ) -> _EndedT:
        result = work(
            lambda watch, stop: job(watch=watch, stop=stop),
            folder.path,
            opening=opening,
            describe=self.describe,
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
