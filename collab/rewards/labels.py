"""Stored judgements beside a run, in a folder of their own: they never touch the recorded run.

    RUN/labels/NAME/label.json        critic, options and seed; written once
    RUN/labels/NAME/events/*.jsonl    one line per judged step, and one per step on which the critic failed
    RUN/labels/NAME/lock              held by the one process that writes

    with LabelWriter(run, "gpt-4o", head) as writer:
        if not writer.has_label(case):
            writer.record(await critic.judge(case))
    labels = read_labels(run, "gpt-4o")

A run may have several label sets. Lines are only ever appended, with the store's own log. So a killed process loses the
calls in flight and nothing else, and a recorded step is never asked about again. A step that was played again after it
was judged, because its episode had broken, counts as not judged.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from collab.errors import CollabError, RunFormatError, UnknownName, UsageError
from collab.rewards.base import CriticInput, Judgement
from collab.store import log
from collab.store.manifest import collect_versions, find_manifest, format_now
from collab.store.run_dir import RunLock, read_versioned
from collab.types import Usage
from collab.utils.files import report_write_errors, write_json
from collab.utils.redact import hide_values, list_secrets, redact

FOLDER = "labels"
FILE = "label.json"
FORMAT = 1
"""Version of the folder that this code reads and writes."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Allowed names of labels and pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelHead:
    """`label.json`: everything that decides a label set's scores, beside the run itself."""

    critic: str
    """Name and version, see `collab.rewards.base.label_of`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """How the critic was made; JSON values, no secrets."""
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=collect_versions)
    created: str = field(default_factory=format_now)
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLabel:
    """A step on which the critic failed: its cells are missing until it is asked about again."""

    trajectory: str
    step: int
    case: str
    """`CriticInput.digest`."""
    error: str
    """Class name in `collab.errors`."""
    message: str
    spent: Usage = Usage()
    """Cost of answers about it that are lost; older versions recorded nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredCalls:
    """The unanswered calls of one process."""

    lost: int
    """Calls without a complete answer; their cost is unknown."""


LabelRecord: TypeAlias = Judgement | FailedLabel | UnansweredCalls

_HEAD: TypeAdapter[LabelHead] = TypeAdapter(LabelHead)
_KINDS: dict[str, TypeAdapter[Any]] = {
    "judged": TypeAdapter(Judgement),
    "failed": TypeAdapter(FailedLabel),
    "unanswered": TypeAdapter(UnansweredCalls),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSet:
    """A label set that was read back."""

    name: str
    head: LabelHead
    judged: Mapping[tuple[str, int], Judgement]
    """(trajectory, step) → the last judgement; oldest first."""
    failed: Mapping[tuple[str, int], FailedLabel]
    """Steps on which the critic failed and that were not judged since."""
    lost: Sequence[Usage] = ()
    """Cost of each failure, and the calls of unknown cost."""

    def of(self, case: CriticInput) -> Judgement | None:
        """Return the judgement of exactly this case, or None."""
        found = self.judged.get(case.key)
        return found if found is not None and found.case == case.digest else None

    @property
    def missing(self) -> Counter[str]:
        """Cells of judged steps without a score, by cause."""
        return sum((judgement.missing for judgement in self.judged.values()), Counter[str]())


def check_name(name: str) -> None:
    """Raise UsageError for a name that labels cannot have."""
    check_called("labels", name)


def check_called(what: str, name: str) -> None:
    """Raise UsageError for a name that `NAME` does not allow."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{what} called {name!r}: a name has letters, digits, '.', '_' and '-', at most 64 of them")


def list_label_sets(run: Path) -> list[str]:
    """List the names of all label sets of a run, sorted."""
    folder = run / FOLDER
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}")) if folder.is_dir() else []


def read_label_head(run: Path, name: str) -> LabelHead:
    """Read a label set's head; RunFormatError when it cannot be read."""
    return _read_head_in(_get_labels_directory(run, name))


def read_labels(run: Path, name: str) -> LabelSet:
    """Read a label set as it is now, also while it is being written.

    Raises:
        UnknownName: the run has no label set of that name.
        RunFormatError: it cannot be read by this version, or a complete line is damaged.
    """
    directory = _get_labels_directory(run, name)
    if not (directory / FILE).exists():
        raise UnknownName.of(f"label set of {run}", name, list_label_sets(run))
    judged: dict[tuple[str, int], Judgement] = {}
    failed: dict[tuple[str, int], FailedLabel] = {}
    lost: list[Usage] = []
    # In log order: a step that failed and was judged later is judged.
    for record in _iterate_records(directory):
        if isinstance(record, Judgement):
            judged[record.key] = record
            failed.pop(record.key, None)
        elif isinstance(record, UnansweredCalls):
            lost.append(Usage(lost=record.lost))
        else:
            failed[record.trajectory, record.step] = record
            lost.append(record.spent)
    return LabelSet(name=name, head=_read_head_in(directory), judged=judged, failed=failed, lost=lost)


class LabelWriter:
    """The only writer of a label set, from construction to `close`; it creates or extends one.

    Args:
        run: directory of a run, finished or not; nothing in it but `labels/` is touched.
        head: that of the present critic.
        home: raises where `run` cannot have labels; by default, where it is no run.

    Raises:
        UsageError: the name is not allowed, the label set has another critic or other options, or it is being written.
        RunFormatError: there is no run, or the label set cannot be read.
        StoreFailure: from every method: the disk is full or rights are missing; half-written lines do not count.
    """

    def __init__(
        self, run: Path, name: str, head: LabelHead, *, home: Callable[[Path], object] = find_manifest
    ) -> None:
        # Labels beside a missing run would never be found.
        home(run)
        self.directory = directory = _get_labels_directory(run, name)
        self._secrets = list_secrets()
        self._open = True
        with report_write_errors(directory, _NEXT_MOVE):
            (directory / log.FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(directory, "wait for it, or choose another name")
        # From here on the lock is held; a failure below releases it.
        try:
            self._begin(head)
            # Judged steps are not asked about again, as long as their input is the same.
            self._known = {key: one.case for key, one in read_labels(run, name).judged.items()}
            self._log = log.LazyAppender(directory)
        except BaseException:
            self._lock.release()
            raise

    def has_label(self, case: CriticInput) -> bool:
        """Return whether exactly this case is judged."""
        return self._known.get(case.key) == case.digest

    def record(self, judgement: Judgement) -> None:
        """Append a judgement: when this returns, no death of this process loses it."""
        self._append("judged", judgement)
        self._known[judgement.key] = judgement.case

    def fail(self, case: CriticInput, error: CollabError, spent: Usage = Usage()) -> None:
        """Append that the critic failed on a case; it stays unjudged.

        Args:
            spent: cost of answers about it that are lost.
        """
        told = FailedLabel(
            trajectory=case.trajectory,
            step=case.step,
            case=case.digest,
            error=type(error).__name__,
            message=redact(str(error)),
            spent=spent,
        )
        self._append("failed", told)

    def record_lost(self, calls: int) -> None:
        """Append the number of calls without a complete answer, unless it is 0."""
        if calls:
            self._append("unanswered", UnansweredCalls(lost=calls))

    def close(self) -> None:
        """Sync everything to the disk and release the lock. May be called twice."""
        if self._open:
            self._open = False
            try:
                with report_write_errors(self.directory, _NEXT_MOVE):
                    self._log.close()
            finally:
                self._lock.release()

    def __enter__(self) -> LabelWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, head: LabelHead) -> None:
        """Write the head of a new label set, or check that an old one has the same."""
        if not (self.directory / FILE).exists():
            with report_write_errors(self.directory, _NEXT_MOVE):
                write_json(self.directory / FILE, _HEAD.dump_python(head, mode="json"))
            return
        old = _read_head_in(self.directory)
        new = _HEAD.validate_python(hide_values(_HEAD.dump_python(head, mode="json"), self._secrets))
        told = {"critic": (old.critic, new.critic), "seed": (old.seed, new.seed)}
        told |= {f"option {name}": both for name, both in _list_differing(old.options, new.options).items()}
        for what, (before, after) in told.items():
            if before != after:
                raise UsageError(
                    f"{self.directory}: was made with {what} {before!r}, now it is {after!r}; "
                    "choose another name for these labels"
                )

    def _append(self, kind: str, record: LabelRecord) -> None:
        content = {"type": kind, **_KINDS[kind].dump_python(record, mode="json")}
        line = json.dumps(hide_values(content, self._secrets), ensure_ascii=True, separators=(",", ":")).encode()
        with report_write_errors(self.directory, _NEXT_MOVE):
            self._log.append(line + b"\n")


_NEXT_MOVE = "label the run again: what is judged is not asked again"


def _list_differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the options that differ, by name, with both values; None for a missing one."""
    names = sorted({*old, *new})
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def _get_labels_directory(run: Path, name: str) -> Path:
    check_name(name)
    return run / FOLDER / name


def _read_head_in(directory: Path) -> LabelHead:
    return read_versioned(directory / FILE, _HEAD, readable=FORMAT)


def _iterate_records(directory: Path) -> Iterator[LabelRecord]:
    """Yield all records, oldest first."""
    for segment in log.list_segments(directory):
        for line in log.scan(directory, segment):
            try:
                content = json.loads(line.content)
                yield _KINDS[content.pop("type")].validate_python(content)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                reason = str(error).splitlines()[0]
                raise RunFormatError(
                    f"{directory}/{log.FOLDER}/{segment}:{line.number}: is spoilt ({reason}); remove that line, "
                    "and its step is judged again"
                ) from None
