"""All errors, one class per boundary.

    CollabError
    ├── UsageError            the caller asked for something impossible: exit 2, nothing was started
    │   ├── ConfigError           a YAML file, an override or an option does not fit
    │   ├── UnknownName           no definition, task, slot or run has that name
    │   ├── GraphError            the graph has a cycle, an unknown slot, a count that does not match
    │   ├── MissingExtra          an optional dependency is not installed
    │   ├── OverlapError          training data holds what is kept for evaluation
    │   └── RunFormatError        a run directory cannot be read by this version
    └── RunError              something failed while working: exit 1, the run can be resumed
        ├── EnvironmentFailure    an environment died, hung or answered nonsense
        │   └── EnvironmentGone       all environments lost a common part, so no other episode can be played
        ├── ModelFailure          a model call failed after its retries
        ├── TrainingFailure       a training ended early
        │   ├── Diverged              a loss is no longer a number
        │   └── NothingToLearn        first rollouts hold no example; to resume would end alike
        └── StoreFailure          a run could not be written (disk full, no permission)

A run that stops early (on request, by its budget, or after ten broken episodes in a row) raises nothing:
`RunResult.stopped` says why.

A message says what happened, where, what was given, what is allowed and what to do next, in one line. Code of this
project raises these at the source. Foreign code (an environment, a model server, a browser) raises any error, and
`boundary` converts it once, where it enters our code. A typed error passes through a boundary unchanged. Only two
places catch: the rollout, which records a failed episode as data, and the command line, which prints one line and
exits.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.metadata
import importlib.util
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

_SHOWN: Final = 12
"""Names that a message lists."""
_LONGEST: Final = 200
"""Characters of a name that a message shows."""


class CollabError(Exception):
    """Root of the tree. `exit_code` is what the command line returns for it."""

    exit_code = 1


class UsageError(CollabError):
    """A mistake in a request; found before anything was started."""

    exit_code = 2


class ConfigError(UsageError):
    """A definition or an option does not fit its schema."""


class UnknownName(UsageError):
    """A name without a definition."""

    @classmethod
    def of(cls, what: str, name: str, known: Iterable[str], next_move: str = "") -> UnknownName:
        """Build the message with the nearest known names.

        Args:
            what: kind of thing, as a noun ("graph", "task").
            name: the unknown name.
            known: every valid name.
            next_move: how to see them all; empty if the list itself was printed.
        """
        names, name = sorted(known), name[:_LONGEST]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names[:_SHOWN]) or 'none'}{rest}"
        more = f"; {next_move}" if next_move else ""
        return cls(f"no {what} called {name!r}; {hint}{more}")


class GraphError(UsageError):
    """The communication graph is not a DAG over its slots."""


class MissingExtra(UsageError):
    """An optional dependency is missing."""

    @classmethod
    def of(cls, package: str, extra: str, purpose: str) -> MissingExtra:
        """Build the message with the extra that brings `package`, and its purpose."""
        return cls(f"{purpose} needs {package}, which is not installed; run: pip install 'collab-marl[{extra}]'")

    @classmethod
    def unless(cls, *packages: str, extra: str, purpose: str) -> None:
        """Raise the error for the first of `packages` (import names) that is not installed, without importing any.

        Args:
            extra: that brings them all.
            purpose: their purpose, as a noun ("a local model").
        """
        for package in packages:
            if importlib.util.find_spec(package) is None:
                raise cls.of(package, extra, purpose)

    @classmethod
    def from_import(cls, error: ImportError, purpose: str) -> MissingExtra | None:
        """Return the error for an import that failed because a package of an extra is missing; None for all others."""
        if not isinstance(error, ModuleNotFoundError):
            return None
        package = (error.name or "").partition(".")[0]
        try:
            required = importlib.metadata.requires("collab-marl") or []
        except importlib.metadata.PackageNotFoundError:
            return None
        for line in required:
            found = re.fullmatch(rf"{re.escape(package)}\b[^;]*; extra == ['\"](\w+)['\"]", line)
            if found is not None:
                return cls.of(package, found[1], purpose)
        return None


class OverlapError(UsageError):
    """Training data holds something that is kept for evaluation."""


class RunFormatError(UsageError):
    """A run directory is missing, damaged beyond use, or written by a newer major version."""


class RunError(CollabError):
    """A failure while working. Recorded parts stay, and the run can be resumed."""


class EnvironmentFailure(RunError):
    """An environment broke; the policy is not to blame."""


class EnvironmentGone(EnvironmentFailure):
    """A common part of all environments (the adb server) is gone: the run stops and can be resumed when it is back."""


class ModelFailure(RunError):
    """A model call failed after its retries, or its server is gone."""


class TrainingFailure(RunError):
    """A training ended early."""


class NothingToLearn(TrainingFailure):
    """The first rollouts of a training give no example; resuming it would end alike."""


class Diverged(TrainingFailure):
    """A policy cannot be trained further: its loss, gradient or weights are no numbers any more.

    Args:
        what: the event and its place, e.g. "step 3: loss is nan".
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; nothing more can be learned from here: begin a new run with a lower learning_rate "
            "(--set learning_rate=…) or a longer warmup"
        )
        self.what = what


class StoreFailure(RunError):
    """The run directory cannot be written."""


AnswerT = TypeVar("AnswerT")

_OUTSIDE: set[str] = set()
"""Top-level packages of foreign parts that definitions have named."""


def note_outside(module: str) -> None:
    """Register a module that a definition names, so that its errors are described as its own."""
    package = module.partition(".")[0]
    if package != __name__.partition(".")[0]:
        _OUTSIDE.add(package)


def forget_outside() -> None:
    """Forget all registered modules, at the beginning of a command."""
    _OUTSIDE.clear()


def outside_parts() -> list[str]:
    """Return the registered foreign packages, sorted."""
    return sorted(_OUTSIDE)


def outside_place(error: BaseException) -> str | None:
    """Return "FILE:LINE" in a foreign part where an error arose; None if no such part was involved.

    Files of the part beside its package count, too; this project, Python and installed packages do not.
    """
    if isinstance(error, SyntaxError) and error.filename and not _is_installed(error.filename) and _OUTSIDE:
        return f"{error.filename}:{error.lineno}"
    frames = list(traceback.walk_tb(error.__traceback__))
    if not any(_is_named(frame) for frame, _ in frames):
        # Python replaces some errors by others on their way (a StopIteration in a coroutine).
        return None if error.__cause__ is None else outside_place(error.__cause__)
    own = [one for one in frames if _is_named(one[0]) or not _is_installed(one[0].f_code.co_filename)]
    return f"{own[-1][0].f_code.co_filename}:{own[-1][1]}"


def _is_named(frame: FrameType) -> bool:
    """Return whether a frame runs in a package that a definition has named."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OUTSIDE


def _is_installed(file: str) -> bool:
    """Return whether a file belongs to this project, to Python or to an installed package, or is no file at all."""
    path, paths = Path(file), sysconfig.get_paths()
    homes = [str(Path(__file__).parent), paths["stdlib"], paths["platstdlib"]]
    packages = {"site-packages", "dist-packages"}.intersection(path.parts)
    return file.startswith("<") or bool(packages) or any(path.is_relative_to(home) for home in homes)


def locate_function(function: Any) -> str | None:
    """Return "FILE:LINE" of a foreign function; None for one of this project, or one that is written nowhere."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None)
    is_ours = str(getattr(function, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]
    return None if code is None or is_ours else f"{code.co_filename}:{code.co_firstlineno}"


def check_answer(answer: AnswerT, kind: type[Any], function: Callable[..., Any], error: type[RunError]) -> AnswerT:
    """Return what a part's method answered; raise `error` with the method's place if it is of another kind."""
    if isinstance(answer, kind):
        return answer
    name = getattr(function, "__qualname__", repr(function)[:80])
    raise error(f"{name}: {kind.__name__} wanted, got {answer!r:.80}{describe_code_place(function)}")


def describe_code_place(function: Callable[..., Any]) -> str:
    """Return where a foreign function is written, in brackets for the end of a message; else nothing."""
    place = locate_function(getattr(function, "__func__", function))
    return f" (at {place}, which is no part of collab)" if place else ""


def describe_error(error: BaseException) -> str:
    """Return an error's type and message on one line, with its place if a foreign part raised it."""
    said, place = " ".join(str(error).split()), outside_place(error)
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return what if place is None else f"{what} (at {place}, which is no part of collab)"


@contextlib.contextmanager
def boundary(error: type[RunError], what: str) -> Iterator[None]:
    """Convert any error from the block to `error`, once; a typed error passes unchanged.

    `TimeoutError` becomes "{what} timed out", with its own words behind it. Cancellation and keyboard interrupts are no
    errors and pass. So does an exit, unless a foreign part asks for it.
    """
    try:
        yield
    except CollabError:
        raise
    except SystemExit as cause:
        if outside_place(cause) is None:
            raise
        raise error(f"{what}: {describe_error(cause)}") from cause
    except TimeoutError as cause:
        raise error(f"{what} timed out{f'; before that: {cause}' if str(cause) else ''}") from cause
    except Exception as cause:
        raise error(f"{what}: {describe_error(cause)}") from cause
