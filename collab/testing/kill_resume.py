"""Proof that a killed training ends like an undisturbed one: train the same twice and compare hashes.

    proof = verify(Path("verified"), kills=7, seed=0)
    proof.same, proof.points, proof.first_difference

The killed training runs in one process after the other:

    trace = train_undisturbed(config, out / "whole", log)
    for point in draw(trace, kills=7, seed=0):
        died = live(config, out / "killed", log, point)

A process kills itself with SIGKILL when a function of this package is called, never within torch or another library.
The points are drawn from the calls of the undisturbed training: first the part of an epoch, every kind of work once
before any other part (`KINDS`), so that short ones are not missed. Then one of the functions called in it is drawn, so
that hot ones do not hide the others, and one of its calls.

Processes are forked from one that has loaded their modules and computes nothing itself. The team is tiny and plays in a
corridor (`toy_team`), with `determinism: exact`, on a processor. It trains on one example per optimizer step (`STEPS`)
or a few (`SPLIT`), each three times (`AGAIN`), so that optimizers have a state to lose. Resuming processes start with
one thread and must find the training's number of threads in its head. The directory keeps both trainings, `undisturbed`
and `killed`, and `log.txt`, the output of their processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn, Protocol

from collab.errors import TrainingFailure, UsageError
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import load_algorithm, load_config, load_method, read_training
from collab.loop.loop import resume, start
from collab.loop.phases import iterate_trajectories, load_measured
from collab.loop.record import TrainingDir, hash_measured, hash_played, read_record
from collab.loop.state import TrainingProgress
from collab.seeds import derive, generator
from collab.testing.toy_team import configure_toy_training, create_toy_team, write_library
from collab.trainers.prepare import check_installed
from collab.trainers.recipe import RLRecipe
from collab.utils.files import report_write_errors

_ROOT = Path(__file__).parents[1]

LAST = frozenset({"", "evaluation", "training"})
"""Parts of an epoch in which a process is killed only after every other part, including work between parts."""
TRAINING = "training"
BEGINS = {
    "trainers.callbacks.Watcher.on_train_begin": "optimizer",
    "trainers.dpo.ByPairs.get_batch_samples": "optimizer",
    "trainers.trainer.FixedOrder._save_checkpoint": "checkpoint",
    "trainers.run.write_result": "checkpoint",
    "loop.finetuning._read_trained": TRAINING,
}
"""Functions of the part `TRAINING` → the part that begins with them, until the next begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """A planned or actual kill."""

    epoch: int
    part: str
    """Part of the epoch, as in `TrainingProgress.part`; of a training also "optimizer" and "checkpoint"."""
    function: str
    """Function of this package, e.g. "store.run.RunWriter.step"."""
    call: int
    """Number of its call in that part, from 1, as one process counts them."""


@dataclass(slots=True)
class Trace:
    """Calls of a process: (epoch, part) in the order of time → function → calls."""

    parts: dict[tuple[int, str], Counter[str]] = field(default_factory=dict)
    _told: str = ""
    _now: tuple[int, str] = (0, "")

    def count_call(self, progress: TrainingProgress | None, function: str) -> KillPoint:
        """Count a call; return it as a point."""
        if progress is not None and progress.part != self._told:
            self._told = progress.part
            self._now = (progress.epoch, progress.part)
        elif self._told == TRAINING and function in BEGINS:
            self._now = (self._now[0], BEGINS[function])
        calls, (epoch, part) = self.parts.setdefault(self._now, Counter()), self._now
        calls[function] = number = calls[function] + 1
        return KillPoint(epoch=epoch, part=part, function=function, call=number)

    def has_come_to(self, point: KillPoint, call: KillPoint) -> bool:
        """Return whether a call is that of a point, or the first one behind its part."""
        now, part = (call.epoch, call.part), (point.epoch, point.part)
        return call == point if now == part else part in self.parts and _find_told_part(now) != _find_told_part(part)


def draw(trace: Trace, *, kills: int, seed: int) -> list[KillPoint]:
    """Draw points in the order of time, one per kind of work before any other part.

    There is at most one per part, and per training: a resumed process may have too little left to reach another one. If
    more are requested than there are parts, each part gets one.
    """
    rng = generator(derive(seed, "kills"))
    chosen = _choose_parts(trace, kills, rng)
    points = []
    for epoch, part in (one for one in trace.parts if one in chosen):
        calls = trace.parts[epoch, part]
        function = rng.choice(sorted(calls))
        points.append(KillPoint(epoch=epoch, part=part, function=function, call=rng.randint(1, calls[function])))
    return points


def _choose_parts(trace: Trace, kills: int, rng: random.Random) -> set[tuple[int, str]]:
    left = [part for part in trace.parts if part[1]]
    # One of each kind of part first, so that few kills still cover all of them.
    kinds = sorted({part for _, part in left} - LAST)
    rng.shuffle(kinds)
    chosen: set[tuple[int, str]] = set()
    while left and len(chosen) < kills:
        wanted = kinds.pop() if kinds else None
        fitting = [one for one in left if wanted in (None, one[1])]
        if fitting:
            drawn = rng.choice(fitting)
            chosen.add(drawn)
            # At most one kill per part: a second one there would find nothing new.
            left = [one for one in left if _find_told_part(one) != _find_told_part(drawn)]
    return chosen


def _find_told_part(part: tuple[int, str]) -> tuple[int, str]:
    """Return the part as the loop names it."""
    return (part[0], TRAINING) if part[1] in BEGINS.values() else part


def train_undisturbed(config: TrainingConfig, out: Path, log: Path, *, threads: int) -> Trace:
    """Train undisturbed in a separate process.

    Args:
        threads: of the process.

    Raises:
        TrainingFailure: it failed.
    """
    told = log.with_suffix(".trace.json")

    def life() -> None:
        trace = Trace()
        _train(config, out, trace.count_call, threads)
        told.write_text(json.dumps([[*part, calls] for part, calls in trace.parts.items()]), encoding="utf-8")

    run_to_end(life, log)
    parts = json.loads(told.read_text(encoding="utf-8"))
    return Trace({(epoch, part): Counter(calls) for epoch, part, calls in parts})


def live(config: TrainingConfig, out: Path, log: Path, point: KillPoint | None, *, threads: int) -> KillPoint | None:
    """Start or resume a training in a separate process.

    Functions that look at clocks are not called equally often in every process. A process that misses its call is
    killed at the end of the part; else it would finish, and leave nothing for later points.

    Args:
        point: to be killed at; None to finish.
        threads: of a new training; a resumed one has to find them itself.

    Returns:
        The actual kill: the point, or the first call behind its part; None if the training finished.

    Raises:
        TrainingFailure: it failed by itself, or something else killed it.
    """
    told = log.with_suffix(".killed.json")
    told.unlink(missing_ok=True)

    def life() -> None:
        trace, dying = Trace(), threading.Lock()

        def note_call(progress: TrainingProgress | None, function: str) -> None:
            call = trace.count_call(progress, function)
            if point is not None and trace.has_come_to(point, call):
                dying.acquire()  # for good: another thread, come there meanwhile, writes nothing over it
                told.write_text(json.dumps(asdict(call)), encoding="utf-8")
                os.kill(os.getpid(), signal.SIGKILL)

        _train(config, out, note_call, threads)

    code = _run_forked(life, log)
    if code == 0:
        return None
    if code != -signal.SIGKILL or not told.exists():
        raise _build_failure(log)
    return KillPoint(**json.loads(told.read_text(encoding="utf-8")))


def run_to_end(life: Callable[[], None], log: Path) -> None:
    """Run a function in a separate process; TrainingFailure if it does not finish."""
    if _run_forked(life, log) != 0:
        raise _build_failure(log)


def _run_forked(life: Callable[[], None], log: Path) -> int:
    """Run a function in a forked process; return its exit code, -N if signal N ended it.

    Args:
        log: file to which all of its output is appended.

    Raises:
        UsageError: this system cannot fork.
    """
    if not hasattr(os, "fork"):
        raise UsageError("verifying needs a system that can fork a process: Linux or macOS")
    resume_signals = _put_off_signals()
    try:
        child = os.fork()
    except OSError:
        resume_signals()
        raise
    if not child:
        resume_signals(act=False)  # what came before the child was there is the parent's
        _leave(life, log)
    try:
        resume_signals()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


class _ResumeSignals(Protocol):
    def __call__(self, *, act: bool = True) -> None:
        """Restore the handlers; with `act`, also handle signals received meanwhile."""


def _put_off_signals() -> _ResumeSignals:
    """Defer Ctrl-C and SIGTERM from here on.

    Python runs hooks around a fork (e.g. of `logging`) and swallows their errors: a KeyboardInterrupt of a handler that
    runs there would be lost.
    """
    heard: list[int] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # elsewhere no handler runs
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[number] = signal.signal(number, lambda number, frame: heard.append(number))

    def resume_signals(*, act: bool = True) -> None:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in heard if act else ():
            if callable(handlers[number]):
                handlers[number](number, None)
            else:
                os.kill(os.getpid(), number)

    return resume_signals


def _leave(life: Callable[[], None], log: Path) -> NoReturn:
    """Run the function in the child, and never return."""
    code = 1
    try:
        with contextlib.suppress(ValueError):  # forked from another thread
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent's handler would tell the parent's user
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(written, 1)
        os.dup2(written, 2)
        life()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _train(
    config: TrainingConfig, out: Path, note_call: Callable[[TrainingProgress | None, str], object], threads: int
) -> None:
    """Train to the end and report every call of this package's functions, in all threads.

    Raises:
        TrainingFailure: the training stopped before its end.
    """
    import torch

    progress: list[TrainingProgress | None] = [None]

    def watch(live: TrainingProgress) -> None:
        progress[0] = live

    # Calls are counted by name: that is where a process can be killed.
    _report_calls(lambda function: note_call(progress[0], function))
    if TrainingDir(out).file.exists():
        result = asyncio.run(resume(out, device="cpu", watch=watch))
    else:
        # A resume must find the number of threads by itself.
        torch.set_num_threads(threads)
        options = load_algorithm(config.algorithm).toy_options
        result = asyncio.run(start(config, out, options=options, device="cpu", watch=watch))
    sys.settrace(None)
    if result.stopped is not None:
        raise TrainingFailure(result.stopped)


def _report_calls(note_call: Callable[[str], object]) -> None:
    names: dict[
        int, tuple[CodeType, str | None]
    ] = {}  # with the code itself: the number of one that is gone may return

    def trace(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if id(code) not in names:
            names[id(code)] = (code, _name(code))
        name = names[id(code)][1]
        if name is not None:
            note_call(name)

    threading.settrace(trace)
    sys.settrace(trace)


def _name(code: CodeType) -> str | None:
    """Return the name of a function of this package; None for others and for those without a name."""
    path = Path(code.co_filename)
    if not path.is_relative_to(_ROOT) or code.co_qualname.endswith(">"):
        return None
    return ".".join([*path.relative_to(_ROOT).with_suffix("").parts, code.co_qualname])


def _build_failure(log: Path) -> TrainingFailure:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
    return TrainingFailure(f"the training failed: {lines[-1].strip()}; its output is in {log}")


STEPS = ("batch_rows=1", "rows_at_once=1")
"""Settings of a recipe in which even few examples make several optimizer steps."""
AGAIN = ("epochs=3",)
"""Setting of a recipe that decides how often each example is learned; turns are drawn as often as the method says."""
SPLIT = ("batch_rows=4", "rows_at_once=4")
"""Settings of a recipe in which several threads share work, so that their number changes the weights' last bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One part of both trainings, by hash."""

    epoch: int | None
    """None for the run as a whole."""
    part: str
    undisturbed: str
    killed: str

    @property
    def same(self) -> bool:
        """Return whether both hashes are equal."""
        return self.undisturbed == self.killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of a verification."""

    path: Path
    points: tuple[KillPoint, ...]
    """Actual kills, in the order of time."""
    planned: tuple[KillPoint, ...]
    """Planned kills: they differ from the actual ones if a process made fewer calls than the undisturbed one."""
    missed: tuple[KillPoint, ...] = ()
    """Planned kills without an actual one: the process reached neither the point nor anything behind the part."""
    parts: tuple[Compared, ...]
    """In the order of time; the run hash is the last."""

    @property
    def first_difference(self) -> Compared | None:
        """None if all is the same."""
        return next((one for one in self.parts if not one.same), None)

    @property
    def same(self) -> bool:
        """Return whether all parts are equal, and a process was killed for every planned kill."""
        return bool(self.points) and not self.missed and self.first_difference is None

    @property
    def elsewhere(self) -> dict[int, KillPoint]:
        """Number of a kill, from 1 → its planned point; only those that happened elsewhere."""
        both = enumerate(zip(self.points, self.planned, strict=True), start=1)
        return {number: planned for number, (point, planned) in both if point != planned}


def verify(
    out: Path,
    *,
    kills: int = 7,
    seed: int = 0,
    epochs: int = 2,
    threads: int = 1,
    algorithm: str = "collabuiagents",
    settings: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> Proof:
    """Train undisturbed, train with kills, compare.

    Args:
        out: a new or empty directory.
        kills: wanted; see `draw`.
        seed: of the points.
        epochs: of either training; an algorithm's `toy_epochs` at least.
        threads: of either new training; with several, more is trained at once (`SPLIT`).
        algorithm: of both, by name.
        settings: of both, as for `--set` of a training; applied after its own.
        note: takes a line before each phase.

    Raises:
        UsageError: `out` holds something, this system cannot fork, or episodes are played on while a policy learns.
        ConfigError: a setting does not fit.
        MissingExtra: torch or transformers is not installed.
        TrainingFailure: a training failed by itself.
        StoreFailure: something cannot be written.
    """
    check_installed()
    # Small steps, so that there are many places to be killed at.
    known = load_algorithm(algorithm)
    again = () if isinstance(load_method(known).recipe, RLRecipe) else AGAIN
    steps = [f"{known.method.RECIPE}.{one}" for one in (*STEPS, *again, *(SPLIT if threads > 1 else ()))]
    wanted = (f"epochs={max(epochs, known.toy_epochs)}", *steps, *(("episodes=4",) if threads > 1 else ()), *settings)
    # Settings are checked before a directory is made.
    _check(algorithm, wanted)
    _make(out)
    # Everything heavy is loaded before forking, so that each life starts at once.
    _load()
    log = out / "log.txt"
    config = _teach_team(algorithm, out, log, wanted, note)
    note(f"training undisturbed: epochs={config.method.epochs}, threads={threads}")
    # One training undisturbed, which also shows which calls there are to be killed at.
    whole, killed = TrainingDir(out / "undisturbed"), TrainingDir(out / "killed")
    trace = train_undisturbed(config, whole.path, log, threads=threads)
    # Drawn from actual calls, so that every point can be reached.
    points = draw(trace, kills=kills, seed=seed)
    note(f"training again, killed {len(points)} times")
    died = [live(config, killed.path, log, point, threads=threads) for point in points]
    # The last life is not killed: it has to finish what the others left.
    live(config, killed.path, log, None, threads=threads)
    return Proof(
        # A process that missed its point died behind it or not at all; both are reported separately.
        path=out,
        points=tuple(place for place in died if place is not None),
        planned=tuple(point for point, place in zip(points, died, strict=True) if place is not None),
        missed=tuple(point for point, place in zip(points, died, strict=True) if place is None),
        # Part by part, so that a difference names the phase.
        parts=tuple(compare_trainings(whole, killed)),
    )


def _check(algorithm: str, settings: Sequence[str]) -> None:
    """Raise an error if the training cannot be configured or compared, before anything is made."""
    with tempfile.TemporaryDirectory() as place:
        library = write_library(Path(place), Path(place) / "none")
        config = asyncio.run(configure_toy_training(library, *settings, algorithm=algorithm))
    if config.method.is_continuous:
        raise UsageError(
            "collection=async: which episodes arrive first depends on time, so no two trainings end alike; use "
            "collection=sync, or check that one learned what it recorded with: collab train --replay RUN --out DIR"
        )


def _make(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: something is there already; name a new directory")
    with report_write_errors(out, "verify again"):
        out.mkdir(parents=True, exist_ok=True)


def _load() -> None:
    """Load once what all processes need, without computing, so that forking is safe."""
    import peft  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import torch

    import collab.models.local  # noqa: F401

    torch.set_num_threads(1)


def _teach_team(
    algorithm: str, out: Path, log: Path, settings: Sequence[str], note: Callable[[str], None]
) -> TrainingConfig:
    """Train the toy team in a separate process; return its configuration."""
    told = out / "config.json"

    def write_config() -> None:
        config = asyncio.run(configure_toy_training(create_toy_team(out), *settings, algorithm=algorithm))
        told.write_text(config.model_dump_json(), encoding="utf-8")

    note("teaching a tiny checkpoint")
    run_to_end(write_config, log)
    return load_config(json.loads(told.read_text(encoding="utf-8")), str(told))


def compare_trainings(whole: TrainingDir, killed: TrainingDir) -> Iterator[Compared]:
    """Compare two finished trainings, part by part; a part that only one of them has differs.

    Raises:
        RunFormatError: one of them cannot be read.
    """
    hashes = [dict(_iterate_hashes(folder)) for folder in (whole, killed)]
    for key in dict.fromkeys([*hashes[0], *hashes[1]]):
        one, other = (found.get(key, "missing") for found in hashes)
        yield Compared(epoch=key[0], part=key[1], undisturbed=one, killed=other)


def _iterate_hashes(folder: TrainingDir) -> Iterator[tuple[tuple[int | None, str], str]]:
    """Yield (epoch, part) → hash, in the order of time."""
    head, config = read_training(folder)
    for number in range(head["summary"]["epochs"] + 1):
        epoch = folder.get_epoch(number)
        if number:
            if config.is_played(number):
                steps = config.method.get_steps(number)
                yield (number, "rollout"), hash_played(iterate_trajectories(epoch.rollout, steps))
            for part, digest in read_record(epoch.record).hashes.items():
                if part not in ("rollout", "evaluation"):  # these are hashed anew, from what lies there
                    yield (number, part), digest
        yield (number, "evaluation"), hash_measured(load_measured(config, epoch.evaluation))
    yield (None, "run"), head["summary"]["hash"]
