"""Judgements beside a run, in a folder of their own: they never touch what was recorded.

    RUN/labels/NAME/label.json        who judges, with which options; written once
    RUN/labels/NAME/events/*.jsonl    one line per judged step, and one per step that could not be asked about
    RUN/labels/NAME/lock              held by the one process that writes

    with LabelWriter(run, "gpt-4o", head) as writer:
        if not writer.knows(case):
            writer.record(await critic.judge(case))
    labels = read_labels(run, "gpt-4o")

Several labellings of one run stand side by side. Lines are only ever appended, with the store's own log, so a killed
process loses what was in flight and nothing else; what is recorded is never asked again. A step that was played again
after it was judged (its episode had broken) is another case and counts as not judged.
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
"""What labels and pairs may be called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelHead:
    """`label.json`: everything that decides what a labelling says, beside the run itself."""

    critic: str
    """Name and version, see `collab.rewards.base.label_of`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """As the critic was made; JSON values, no secrets."""
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=collect_versions)
    created: str = field(default_factory=format_now)
    format: int = FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLabel:
    """A step about which nobody could be asked: its cells are missing until it is asked about again."""

    trajectory: str
    step: int
    case: str
    """`CriticInput.digest`."""
    error: str
    """Class name in `collab.errors`."""
    message: str
    spent: Usage = Usage()
    """What was paid for answers about it all the same, which are lost; older versions recorded nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredCalls:
    """What one process asked in vain, whatever became of the steps."""

    lost: int
    """Calls that were sent and never answered whole: what they cost is not known."""


LabelRecord: TypeAlias = Judgement | FailedLabel | UnansweredCalls

_HEAD: TypeAdapter[LabelHead] = TypeAdapter(LabelHead)
_KINDS: dict[str, TypeAdapter[Any]] = {
    "judged": TypeAdapter(Judgement),
    "failed": TypeAdapter(FailedLabel),
    "unanswered": TypeAdapter(UnansweredCalls),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSet:
    """A labelling that was read back."""

    name: str
    head: LabelHead
    judged: Mapping[tuple[str, int], Judgement]
    """(trajectory, step) → the last judgement; in the order in which they were made."""
    failed: Mapping[tuple[str, int], FailedLabel]
    """Steps that were asked about in vain and not judged since."""
    lost: Sequence[Usage] = ()
    """What was asked in vain: each step that failed, every time, and the calls whose cost is not known."""

    def of(self, case: CriticInput) -> Judgement | None:
        """The judgement of exactly this case; None when there is none."""
        found = self.judged.get(case.key)
        return found if found is not None and found.case == case.digest else None

    @property
    def missing(self) -> Counter[str]:
        """Cells of judged steps without a score, by cause."""
        return sum((judgement.missing for judgement in self.judged.values()), Counter[str]())


def check_name(name: str) -> None:
    """Refuse what labels cannot be called; UsageError."""
    check_called("labels", name)


def check_called(what: str, name: str) -> None:
    """UsageError for a name that `NAME` does not allow."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{what} called {name!r}: a name has letters, digits, '.', '_' and '-', at most 64 of them")


def list_labellings(run: Path) -> list[str]:
    """Names of all labellings of a run, sorted."""
    folder = run / FOLDER
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}")) if folder.is_dir() else []


def read_label_head(run: Path, name: str) -> LabelHead:
    """What a labelling tells of itself; RunFormatError when it cannot be read."""
    return _read_head_in(_get_labels_directory(run, name))


def read_labels(run: Path, name: str) -> LabelSet:
    """A labelling as it is now, also while it is being written.

    Raises:
        UnknownName: the run has no labelling of that name.
        RunFormatError: it cannot be read by this version, or a whole line is not what was written.
    """
    directory = _get_labels_directory(run, name)
    if not (directory / FILE).exists():
        raise UnknownName.of(f"labelling of {run}", name, list_labellings(run))
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
    """The only writer of a labelling, from construction to `close`; makes a new one or goes on with an old one.

    Args:
        run: directory of a run, finished or not; nothing in it but `labels/` is touched.
        head: of the critic that judges now.
        home: raises where `run` is nothing that judgements may stand beside; by default, no run.

    Raises:
        UsageError: the name is none, another critic or other options made this labelling, or it is being written.
        RunFormatError: there is no run, or the labelling cannot be read.
        StoreFailure: from every method: the disk is full or the rights are missing; nothing half-written counts.
    """

    def __init__(
        self, run: Path, name: str, head: LabelHead, *, home: Callable[[Path], object] = find_manifest
    ) -> None:
        # The run must exist: labels of nothing would never be found.
        home(run)
        self.directory = directory = _get_labels_directory(run, name)
        self._secrets = list_secrets()
        self._open = True
        with report_write_errors(directory, _NEXT_MOVE):
            (directory / log.FOLDER).mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(directory, "wait for it, or choose another name")
        # From here on the lock is held; what fails below gives it back.
        try:
            self._begin(head)
            # What is there is not asked again, as long as its input is the same.
            self._known = {key: one.case for key, one in read_labels(run, name).judged.items()}
            self._log = log.LazyAppender(directory)
        except BaseException:
            self._lock.release()
            raise

    def has_label(self, case: CriticInput) -> bool:
        """Whether exactly this case is judged."""
        return self._known.get(case.key) == case.digest

    def record(self, judgement: Judgement) -> None:
        """Append a judgement: when this returns, no death of this process loses it."""
        self._append("judged", judgement)
        self._known[judgement.key] = judgement.case

    def fail(self, case: CriticInput, error: CollabError, spent: Usage = Usage()) -> None:
        """Append that nobody could be asked about a case; it stays not judged.

        Args:
            spent: what was paid for answers about it all the same.
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
        """Append how many calls were sent and never answered whole; nothing where there is none."""
        if calls:
            self._append("unanswered", UnansweredCalls(lost=calls))

    def close(self) -> None:
        """Bring everything to the disk and let others write. May be called twice."""
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
        """Write the head of a new labelling, or make sure that an old one says the same."""
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
    """Options that are not the same, by name; None where one is not said."""
    names = sorted({*old, *new})
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def _get_labels_directory(run: Path, name: str) -> Path:
    check_name(name)
    return run / FOLDER / name


def _read_head_in(directory: Path) -> LabelHead:
    return read_versioned(directory / FILE, _HEAD, readable=FORMAT)


def _iterate_records(directory: Path) -> Iterator[LabelRecord]:
    """All records, oldest first."""
    for segment in log.list_segments(directory):
        for line in log.scan(directory, segment):
            try:
                content = json.loads(line.content)
                yield _KINDS[content.pop("type")].validate_python(content)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                reason = str(error).splitlines()[0]
                raise RunFormatError(
                    f"{directory}/{log.FOLDER}/{segment}:{line.number}: is spoilt ({reason}); remove that line, "
                    "and what it held is judged again"
                ) from None
