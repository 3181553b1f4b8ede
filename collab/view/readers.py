"""Open readers that stay between requests, as many as memory allows, each as fresh as its run.

    pool = ReaderPool()
    with pool.open_run(directory) as run:
        run.reader.list_episodes()
        run.beside.list_label_sets()
        run.get_cached("rows", lambda: slow(run))   # computed again only when the run has grown

Also here: a run's time and calls, in all and by part, and the cache folder of indices that the inspector had to build.
Those are deleted when their runs have not been viewed for a while.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from collab.errors import RunFormatError
from collab.evaluation import failures
from collab.store import log, manifest, run_dir, usage
from collab.store.index import Index
from collab.store.reader import RunReader
from collab.store.usage import CALLS
from collab.view import common
from collab.view.labels import NOTHING, RunLabels, Sums
from collab.view.schema.runs import SpendingView

UNUSED_DAYS = 30
"""Days without a view after which the index of a run is deleted."""

_NAME = re.compile(r"[0-9a-f]{64}\.sqlite|\.[0-9a-f]{64}\.sqlite\.[0-9a-f]+|open-[0-9a-f]{16}\.html")
"""Names of indices, of unfinished ones, and of files that led a browser here (`collab.view.auth`) in a killed
process. Nothing else in the folder is ours."""
_DAY_S = 24 * 60 * 60


def get_index_cache() -> Path:
    """Return the folder for indices of runs that lack one of their own."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collab" / "view"


def locate_cached_index(directory: Path, folder: Path) -> Path:
    """Return the file for the index of a run; it may not exist."""
    return folder / f"{hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()}.sqlite"


def use(spare: Path) -> None:
    """Note that a run is viewed; do nothing where its index is missing."""
    with contextlib.suppress(OSError):
        os.utime(spare)


def clean_index_cache(folder: Path) -> None:
    """Delete indices unused for `UNUSED_DAYS`; undeletable ones stay."""
    oldest = time.time() - UNUSED_DAYS * _DAY_S
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if _NAME.fullmatch(path.name) and path.lstat().st_mtime < oldest:
                    path.unlink()


_T = TypeVar("_T")

_MOST = 600_000
"""Most rows of indices in memory, about 100 bytes each; beyond it, the least recently used run is closed."""


def stat_run(directory: Path) -> str:
    """Return a short text that changes with the files of a run and its writer; reads no run."""
    parts = [f"{one}={_stat_file(one)}" for one in _list_growing_files(directory)]
    owner = None if common.explain_unreadable(directory, directory / run_dir.LOCK) else run_dir.find_owner(directory)
    return hashlib.sha256("\n".join([*parts, str(owner)]).encode("utf-8", "surrogateescape")).hexdigest()


def read_updated(directory: Path) -> float:
    """Return the time at which a file of a run was last written, in seconds since 1970; 0 without any file."""
    return max(_stat_file(one)[0] for one in _list_growing_files(directory)) / 1e9


def format_updated(time: float) -> str:
    """Format a time as the store writes it: UTC, ISO 8601, milliseconds."""
    return datetime.fromtimestamp(max(0.0, time), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class OpenRun:
    """An open run with its cached values.

    Raises:
        RunFormatError: it cannot be read, or a part of it is outside.
    """

    def __init__(self, directory: Path, spare: Path) -> None:
        self._folders = common.stamp_folders(directory)
        common.check(directory)
        self._head = _stat_file(directory / manifest.FILE)
        self.reader = _open_sound_reader(RunReader(directory, spare=spare), spare)
        use(spare)
        self.users = 0
        """Requests that use it now."""
        self.dropped = False
        self._beside = RunLabels(self.reader)
        self._kept: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._mutex = threading.RLock()
        self.weight = 0
        """Rows in memory."""
        self._weigh()

    @property
    def beside(self) -> RunLabels:
        """Judgements and pairs, as they are now."""
        self._beside.refresh()
        return self._beside

    def is_current(self) -> bool:
        """Return whether head and log still begin as they were read, and are inside the run."""
        folders = common.stamp_folders(self.reader.directory)
        if folders != self._folders:  # else nothing was exchanged since it was checked
            common.check(self.reader.directory)
            self._folders = folders
        if self._head != _stat_file(self.reader.directory / manifest.FILE):
            return False
        known = self.reader.query("SELECT name, consumed FROM segments")
        return all(log.get_size(self.reader.directory, name) >= consumed for name, consumed in known)

    def refresh(self) -> None:
        """Read what was appended."""
        if self.reader.refresh():
            self._weigh()

    def _weigh(self) -> None:
        (rows,) = self.reader.query("SELECT (SELECT count(*) FROM steps) + (SELECT count(*) FROM cells)")[0]
        self.weight = int(rows)

    def get_cached(self, name: str, compute: Callable[[], _T]) -> _T:
        """Return the cached value of this name, or compute it from the run as it is now."""
        with self._mutex:
            state = (id(self.reader.index), self._beside.version, *self.reader.query("SELECT * FROM segments"))
            known = self._kept.get(name)
            if known is None or known[0] != state:
                known = self._kept[name] = (state, compute())
            found: _T = known[1]
            return found


class ReaderPool:
    """Open runs by directory. Safe to use from several threads.

    Args:
        index_cache: folder for indices of runs whose own is of no use.
    """

    def __init__(self, index_cache: Path) -> None:
        clean_index_cache(index_cache)
        self._index_cache = index_cache
        self._mutex = threading.RLock()
        self._locks: dict[Path, threading.Lock] = {}
        self._held: OrderedDict[Path, OpenRun] = OrderedDict()

    @contextlib.contextmanager
    def open_run(self, directory: Path) -> Iterator[OpenRun]:
        """Open a run as it is now, at least to the end of the block.

        Raises:
            RunFormatError: it cannot be read.
        """
        one = self._take(directory)
        try:
            try:
                one.refresh()
            except OSError as error:
                raise RunFormatError(f"{directory}: cannot be read: {error.strerror or error}") from None
            yield one
        finally:
            self._give_back(one)

    def close(self) -> None:
        """Close unused runs."""
        with self._mutex:
            for path in list(self._held):
                self._drop(path)

    def _take(self, directory: Path) -> OpenRun:
        with self._mutex:
            alone = self._locks.setdefault(directory, threading.Lock())
        with alone:
            one = self._find_fitting(directory)
            if one is None:
                one = OpenRun(directory, locate_cached_index(directory, self._index_cache))
                with self._mutex:
                    one.users += 1
                    self._held[directory] = one
            with self._mutex:
                if not one.dropped:
                    self._held.move_to_end(directory)
                self._make_room()
            return one

    def _find_fitting(self, directory: Path) -> OpenRun | None:
        """Return the open run with one more user; None where none is open, or the directory has another run now."""
        with self._mutex:
            one = self._held.get(directory)
            if one is None:
                return None
            one.users += 1  # from here on it stays open
        is_current = False
        try:
            is_current = one.is_current()
        finally:
            if not is_current:
                with self._mutex:
                    self._drop(directory)
                self._give_back(one)
        return one if is_current else None

    def _give_back(self, one: OpenRun) -> None:
        with self._mutex:
            one.users -= 1
            if one.dropped and not one.users:
                one.reader.close()

    def _make_room(self) -> None:
        weight = sum(one.weight for one in self._held.values())
        for path, one in list(self._held.items())[:-1]:
            if weight <= _MOST:
                return
            weight -= one.weight
            self._drop(path)

    def _drop(self, directory: Path) -> None:
        one = self._held.pop(directory, None)
        if one is None:
            return
        one.dropped = True
        if not one.users:
            one.reader.close()


def _open_sound_reader(reader: RunReader, spare: Path) -> RunReader:
    """Return a reader, with an index rebuilt from the log where the stored one is damaged."""
    try:
        reader.list_episodes()
    except (ValueError, TypeError, sqlite3.Error):
        reader.index.close()
        reader.index = Index.load(reader.directory, trust=False, spare=spare)
    return reader


def _list_growing_files(directory: Path) -> Iterator[Path]:
    """List files that grow or are replaced while a run is played, judged, paired and looked at."""
    yield directory / manifest.FILE
    yield from (directory / log.FOLDER / name for name in log.list_segments(directory))
    yield from sorted(directory.glob(f"labels/*/{log.FOLDER}/*.jsonl"))
    yield from sorted(directory.glob("pairs/*/pairs.json*"))
    yield directory / failures.FILE


def _stat_file(path: Path) -> tuple[int, int]:
    """Return time and size of a file; equal for equal content, as far as the clock's resolution allows."""
    try:
        stat = path.stat()
    except OSError:
        return -1, -1
    return stat.st_mtime_ns, stat.st_size


_OF_EPOCH = f"{CALLS} JOIN episodes USING (key) WHERE epoch = ?"

_HEAD = re.compile(rb'^\{"format_version":"[^"]*","type":"[^"]*","seq":\d+,"time":"([^"]{1,40})"', re.MULTILINE)
"""Bytes of an event's time; no string within an event can contain them, for quotes are escaped there."""
_WINDOW = 1 << 18
"""Bytes at the end of a segment that are searched first for its last event."""


def measure_seconds(run: Path) -> float:
    """Measure how long a run's processes worked, in seconds: from the first to the last event of each, added up.

    Episodes run at the same time, so the sum of their times is larger. No two processes write a run at once.
    """
    return math.fsum(_measure_span(run / log.FOLDER / name) for name in log.list_segments(run))


def sum_paid(reader: RunReader) -> Sums:
    """Sum the calls of a run's agents, also of steps that never ended and of replaced attempts.

    Processes report this at their end. For one that reported nothing, because it was killed or still runs, the recorded
    calls count.
    """
    recorded: Sums = reader.query(CALLS)[0]
    whole = usage.read_usage(reader)
    # A process reports 0 also where no call reported anything.
    return (
        whole.calls,
        whole.prompt_tokens or recorded[1],
        whole.completion_tokens or recorded[2],
        whole.cost_usd or recorded[3],
    )


def list_spending(run: OpenRun, epoch: int, played: tuple[float, float], *, alone: bool) -> Iterator[SpendingView]:
    """List the cost by part: deliberation, environment, critic, adversary, and unrecorded steps.

    Args:
        played: seconds of deliberation and of the environment, added up over episodes.
        alone: whether the run is this one epoch; what an adversary took, and what was not recorded, is not known of
            an epoch among others.
    """
    deliberation, environment = played
    yield build_spending("deliberation", deliberation, run.reader.query(_OF_EPOCH, epoch)[0])
    yield build_spending("environment", environment, NOTHING)
    if alone:
        why = "not known: these steps never ended"
        yield from subtract_known("not recorded", sum_paid(run.reader), run.reader.query(CALLS)[0], why)
    of = {id for (id,) in run.reader.query("SELECT trajectory FROM episodes WHERE epoch = ?", epoch)}
    yield from list_asked(run, of.__contains__, alone=alone)


def list_asked(run: OpenRun, wanted: Callable[[str], bool], *, alone: bool) -> Iterator[SpendingView]:
    """List the critics and adversaries that cost money or tokens."""
    judging, erring = run.beside.sum_critic_spent(wanted), run.beside.sum_adversary_spent() if alone else NOTHING
    if judging[0]:
        yield build_spending("critic", None, judging, UNTIMED)
    if erring[0]:
        yield build_spending("adversary", None, erring, UNTIMED)


def subtract_known(part: str, all_: Sums, known: Sums, note: str) -> Iterator[SpendingView]:
    """Return all calls minus the known ones, with a note on their time; nothing where all are known."""
    if all_[0] > known[0]:
        prompt, completion, usd = (_subtract(all_[at], known[at]) for at in (1, 2, 3))
        yield build_spending(part, None, (all_[0] - known[0], prompt, completion, usd), note)


UNTIMED = "not known: labels and pairs keep no times"
"""Note on the time of a critic and of an adversary that no training timed."""


def build_spending(part: str, seconds: float | None, sums: Sums, note: str | None = None) -> SpendingView:
    """Build the view of a part and its cost."""
    calls, prompt, completion, usd = sums
    return SpendingView(
        part=part,
        seconds=seconds,
        seconds_note=note,
        calls=calls,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost_usd=usd,
    )


# ------------------------------------------------------------------------------------------------------ inside


def _measure_span(segment: Path) -> float:
    """Measure seconds from a log's first to its last event; 0 where none can be read."""
    try:
        with segment.open("rb") as file:
            first = next((found for line in file if (found := _HEAD.match(line))), None)
            last = None if first is None else _read_last_event(file)
            if first is None or last is None:
                return 0.0
            return max(0.0, (_read_time(last) - _read_time(first)).total_seconds())
    except (OSError, ValueError, TypeError):
        return 0.0


def _subtract(all_: Any, known: Any) -> Any:
    return None if all_ is None else max(0, all_ - (known or 0))


def _read_last_event(file: BinaryIO) -> re.Match[bytes] | None:
    size, window = file.seek(0, 2), _WINDOW
    while True:
        file.seek(max(0, size - window))
        block = file.read(window)
        heads = list(_HEAD.finditer(block, 0, block.rfind(b"\n") + 1))
        if heads or window >= size:
            return heads[-1] if heads else None
        window *= 8


def _read_time(head: re.Match[bytes]) -> datetime:
    return datetime.fromisoformat(head[1].decode("ascii"))
