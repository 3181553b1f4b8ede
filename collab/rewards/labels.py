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

`LabelKind` is what distinguishes kinds of labels: judgements of steps here, verdicts on episodes in
`collab.rewards.verifiers.verdicts`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from pydantic import TypeAdapter

from collab.errors import CollabError, RunFormatError, UnknownName, UsageError
from collab.rewards.base import CriticCall, Judgement, sum_spent
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


class LabelledCase(Protocol):
    """The object of a label: a step, or an episode."""

    @property
    def trajectory(self) -> str:
        """`Trajectory.id`."""

    @property
    def step(self) -> int:
        """t, from 0."""

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step."""

    @property
    def digest(self) -> str:
        """SHA-256 of all that is judged."""


class StoredLabel(Protocol):
    """A label of one case."""

    @property
    def key(self) -> tuple[str, int]:
        """Trajectory and step."""

    @property
    def case(self) -> str:
        """`LabelledCase.digest`."""

    @property
    def calls(self) -> tuple[CriticCall, ...]:
        """The model calls behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHead:
    """The head of a label set: everything that decides it, beside the run itself."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """How the labels were made; JSON values, no secrets."""
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=collect_versions)
    created: str = field(default_factory=format_now)
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelHead(StoredHead):
    """`label.json`: everything that decides a critic's scores."""

    critic: str
    """Name and version, see `collab.rewards.base.label_of`."""


LabelT = TypeVar("LabelT", bound=StoredLabel)
HeadT = TypeVar("HeadT", bound=StoredHead)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelKind(Generic[LabelT, HeadT]):
    """A kind of labels beside a run."""

    folder: str
    """Folder of all its label sets."""
    file: str
    """Name of the head."""
    noun: str
    """Noun for messages, e.g. "label set"."""
    head: TypeAdapter[HeadT]
    label: TypeAdapter[LabelT]
    """Content of a line of type "judged"."""

    def get_directory(self, run: Path, name: str) -> Path:
        """Return the directory of a label set; UsageError for a name that it cannot have."""
        check_called(self.folder, name)
        return run / self.folder / name

    def list_names(self, run: Path) -> list[str]:
        """List the names of all label sets of a run, sorted."""
        folder = run / self.folder
        return sorted(path.parent.name for path in folder.glob(f"*/{self.file}")) if folder.is_dir() else []

    def read_head(self, directory: Path) -> HeadT:
        """Read a label set's head; RunFormatError when it cannot be read."""
        return read_versioned(directory / self.file, self.head, readable=FORMAT)

    def read(self, run: Path, name: str) -> StoredLabels[LabelT, HeadT]:
        """Read a label set as it is now, also while it is being written.

        Raises:
            UnknownName: the run has no label set of that name.
            RunFormatError: it cannot be read by this version, or a complete line is damaged.
        """
        directory = self.get_directory(run, name)
        if not (directory / self.file).exists():
            raise UnknownName.of(f"{self.noun} of {run}", name, self.list_names(run))
        judged: dict[tuple[str, int], LabelT] = {}
        failed: dict[tuple[str, int], FailedLabel] = {}
        lost: list[Usage] = []
        # In log order: a step that failed and was judged later is judged.
        for record in _iterate_records(directory, self.label):
            if isinstance(record, UnansweredCalls):
                lost.append(Usage(lost=record.lost))
            elif isinstance(record, FailedLabel):
                failed[record.trajectory, record.step] = record
                lost.append(record.spent)
            else:
                judged[record.key] = record
                failed.pop(record.key, None)
        return StoredLabels(name=name, head=self.read_head(directory), judged=judged, failed=failed, lost=lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLabel:
    """A step on which the critic failed: its cells are missing until it is asked about again."""

    trajectory: str
    step: int
    case: str
    """`LabelledCase.digest`."""
    error: str
    """Class name in `collab.errors`."""
    message: str
    spent: Usage = Usage()
    """Cost of answers about it that are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredCalls:
    """The unanswered calls of one process."""

    lost: int
    """Calls without a complete answer; their cost is unknown."""


@dataclass(frozen=True, kw_only=True)  # no slots: calling a generic alias would set an attribute that is not there
class StoredLabels(Generic[LabelT, HeadT]):
    """A label set that was read back."""

    name: str
    head: HeadT
    judged: Mapping[tuple[str, int], LabelT]
    """(trajectory, step) → the last label; oldest first."""
    failed: Mapping[tuple[str, int], FailedLabel]
    """Cases on which the judge failed and that were not judged since."""
    lost: Sequence[Usage] = ()
    """Cost of each failure, and the calls of unknown cost."""

    def of(self, case: LabelledCase) -> LabelT | None:
        """Return the label of exactly this case, or None."""
        found = self.judged.get(case.key)
        return found if found is not None and found.case == case.digest else None

    @property
    def spent(self) -> Usage:
        """Cost of all calls, failed cases included."""
        return sum((*(sum_spent(label.calls) for label in self.judged.values()), *self.lost), Usage())


LabelSet: TypeAlias = StoredLabels[Judgement, LabelHead]
"""A critic's label set that was read back."""


def count_missing(labels: LabelSet) -> Counter[str]:
    """Count cells of judged steps without a score, by cause."""
    return sum((judgement.missing for judgement in labels.judged.values()), Counter[str]())


LABELS: LabelKind[Judgement, LabelHead] = LabelKind(
    folder=FOLDER, file=FILE, noun="label set", head=TypeAdapter(LabelHead), label=TypeAdapter(Judgement)
)


def check_name(name: str) -> None:
    """Raise UsageError for a name that labels cannot have."""
    check_called(FOLDER, name)


def check_called(what: str, name: str) -> None:
    """Raise UsageError for a name that `NAME` does not allow."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{what} called {name!r}: a name has letters, digits, '.', '_' and '-', at most 64 of them")


def list_label_sets(run: Path) -> list[str]:
    """List the names of all of critics' label sets of a run, sorted."""
    return LABELS.list_names(run)


def read_label_head(run: Path, name: str) -> LabelHead:
    """Read a critic's label set's head; RunFormatError when it cannot be read."""
    return LABELS.read_head(LABELS.get_directory(run, name))


def read_labels(run: Path, name: str) -> LabelSet:
    """Read a critic's label set; raises as `LabelKind.read`."""
    return LABELS.read(run, name)


class StoredLabelWriter(Generic[LabelT, HeadT]):
    """The only writer of a label set, from construction to `close`; it creates or extends one.

    Args:
        run: directory of a run, finished or not; nothing in it but the folder of this kind of labels is touched.
        head: that of the present judge.
        home: raises where `run` cannot have labels; by default, where it is no run.

    Raises:
        UsageError: the name is not allowed, the label set has another critic or other options, or it is being written.
        RunFormatError: there is no run, or the label set cannot be read.
        StoreFailure: from every method: the disk is full or rights are missing; half-written lines do not count.
    """

    def __init__(
        self,
        kind: LabelKind[LabelT, HeadT],
        run: Path,
        name: str,
        head: HeadT,
        *,
        home: Callable[[Path], object] = find_manifest,
    ) -> None:
        # Labels beside a missing run would never be found.
        home(run)
        self._kind = kind
        self.directory = directory = kind.get_directory(run, name)
        self._secrets = list_secrets()
        self._open = True
        with report_write_errors(directory, _NEXT_MOVE):
            (directory / log.FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(directory, "wait for it, or choose another name")
        # From here on the lock is held; a failure below releases it.
        try:
            self._begin(head)
            # Judged steps are not asked about again, as long as their input is the same.
            self._known = {key: one.case for key, one in kind.read(run, name).judged.items()}
            self._log = log.LazyAppender(directory)
        except BaseException:
            self._lock.release()
            raise

    def has_label(self, case: LabelledCase) -> bool:
        """Return whether exactly this case is judged."""
        return self._known.get(case.key) == case.digest

    def record(self, label: LabelT) -> None:
        """Append a label: when this returns, no death of this process loses it."""
        self._append("judged", self._kind.label, label)
        self._known[label.key] = label.case

    def fail(self, case: LabelledCase, error: CollabError, spent: Usage = Usage()) -> None:
        """Append that the judge failed on a case; it stays unjudged.

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
        self._append("failed", _FAILED, told)

    def record_lost(self, calls: int) -> None:
        """Append the number of calls without a complete answer, unless it is 0."""
        if calls:
            self._append("unanswered", _UNANSWERED, UnansweredCalls(lost=calls))

    def close(self) -> None:
        """Sync everything to the disk and release the lock. May be called twice."""
        if self._open:
            self._open = False
            try:
                with report_write_errors(self.directory, _NEXT_MOVE):
                    self._log.close()
            finally:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, head: HeadT) -> None:
        """Write the head of a new label set, or check that an old one has the same."""
        kind = self._kind
        if not (self.directory / kind.file).exists():
            with report_write_errors(self.directory, _NEXT_MOVE):
                write_json(self.directory / kind.file, kind.head.dump_python(head, mode="json"))
            return
        old = kind.read_head(self.directory)
        new = kind.head.validate_python(hide_values(kind.head.dump_python(head, mode="json"), self._secrets))
        # The judge's name first: it explains most of the other differences.
        names = [one.name for one in reversed(fields(new)) if one.name not in _TOLD]
        told = {name: (getattr(old, name), getattr(new, name)) for name in names}
        told |= {f"option {name}": both for name, both in _list_differing(old.options, new.options).items()}
        for what, (before, after) in told.items():
            if before != after:
                raise UsageError(
                    f"{self.directory}: was made with {what} {before!r}, now it is {after!r}; "
                    f"choose another name for these {kind.folder}"
                )

    def _append(self, word: str, adapter: TypeAdapter[Any], record: object) -> None:
        content = {"type": word, **adapter.dump_python(record, mode="json")}
        line = json.dumps(hide_values(content, self._secrets), ensure_ascii=True, separators=(",", ":")).encode()
        with report_write_errors(self.directory, _NEXT_MOVE):
            self._log.append(line + b"\n")


class LabelWriter(StoredLabelWriter[Judgement, LabelHead]):
    """The only writer of a critic's label set; see `StoredLabelWriter`."""

    def __init__(
        self, run: Path, name: str, head: LabelHead, *, home: Callable[[Path], object] = find_manifest
    ) -> None:
        super().__init__(LABELS, run, name, head, home=home)


_TOLD = ("options", "versions", "created", "format")
"""Fields of a head that do not decide a label, or are compared one by one."""
_NEXT_MOVE = "label the run again: what is judged is not asked again"


def _list_differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the options that differ, by name, with both values; None for a missing one."""
    names = sorted({*old, *new})
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


_FAILED: TypeAdapter[FailedLabel] = TypeAdapter(FailedLabel)
_UNANSWERED: TypeAdapter[UnansweredCalls] = TypeAdapter(UnansweredCalls)


def _iterate_records(directory: Path, label: TypeAdapter[LabelT]) -> Iterator[LabelT | FailedLabel | UnansweredCalls]:
    """Yield all records, oldest first."""
    kinds: dict[str, TypeAdapter[Any]] = {"judged": label, "failed": _FAILED, "unanswered": _UNANSWERED}
    for segment in log.list_segments(directory):
        for line in log.scan(directory, segment):
            try:
                content = json.loads(line.content)
                yield kinds[content.pop("type")].validate_python(content)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                reason = str(error).splitlines()[0]
                raise RunFormatError(
                    f"{directory}/{log.FOLDER}/{segment}:{line.number}: is spoilt ({reason}); remove that line, "
                    "and what it judges is judged again"
                ) from None
