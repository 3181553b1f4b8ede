r"""Event types of a run's log, and the line that each becomes.

    record = Record.of(StepRecorded(trajectory="click-button/0", attempt=0, step=step), seq=12, writer="0001-5f3a")
    decode(encode(record)) == record

Every line is one JSON object: a head (format_version, type, seq, time, writer) and the fields of the event. The nouns
of `collab.types` are written field by field; named tuples become arrays. Fields of type float may hold "NaN",
"Infinity" or "-Infinity". Lone surrogates, which web pages and broken tokenizers produce, survive as \ud800 escapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json

from collab.errors import StoreFailure
from collab.store.manifest import FORMAT_VERSION, Manifest, check_version, format_now, is_version
from collab.types import EpisodeError, Observation, Outcome, Step, Task, Usage
from collab.utils.redact import has_secret, hide_values

_CONFIG = ConfigDict(ser_json_inf_nan="strings")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The first event of a run; repeats `run.json`, so that the log alone is complete."""

    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """A writer resumed the run."""

    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStopped:
    """The run was stopped before its end and can be resumed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """All planned episodes are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStarted:
    """An episode began; a second start of the same trajectory is a new attempt and replaces the first."""

    trajectory: str
    """`Trajectory.id`."""
    attempt: int
    """From 0; records of lower attempts no longer count."""
    task: Task
    episode: int
    epoch: int
    environment: str
    environment_version: str
    privileged: bool = False
    worker: str = ""
    """Name of the worker that plays it, with machine and process if it has its own; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResumed:
    """An unfinished attempt resumed after its recorded steps were replayed."""

    trajectory: str
    attempt: int
    step: int
    """First new step; earlier records of it and later steps no longer count."""
    worker: str = ""
    """Name of the worker that plays it from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecorded:
    """One environment step."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    trajectory: str
    attempt: int
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFinished:
    """An episode ended: with an outcome, or with the error that broke it."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    trajectory: str
    attempt: int
    outcome: Outcome | None
    error: EpisodeError | None
    final: Observation | None
    """After the last action; None when the episode broke."""
    steps: int
    """How many steps were recorded, so that a lost one is noticed."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRecorded:
    """A text that events name by its hash: the shared part of prompts."""

    hash: str
    """SHA-256 of the text in UTF-8."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentRecorded:
    """Usage of one process, written at its end; a process that died wrote none."""

    __pydantic_config__: ClassVar[ConfigDict] = _CONFIG

    spent: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A remark that changes nothing."""

    text: str


Event: TypeAlias = (
    RunStarted
    | RunResumed
    | RunStopped
    | RunFinished
    | EpisodeStarted
    | EpisodeResumed
    | StepRecorded
    | EpisodeFinished
    | TextRecorded
    | SpentRecorded
    | Note
)

TYPES: dict[str, type[Event]] = {
    "run_started": RunStarted,
    "run_resumed": RunResumed,
    "run_stopped": RunStopped,
    "run_finished": RunFinished,
    "episode_started": EpisodeStarted,
    "episode_resumed": EpisodeResumed,
    "step": StepRecorded,
    "episode_finished": EpisodeFinished,
    "text": TextRecorded,
    "spent": SpentRecorded,
    "note": Note,
}
"""Name in the log and class."""

_NAMES = {cls: name for name, cls in TYPES.items()}
_HEAD = ("format_version", "type", "seq", "time", "writer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of the log."""

    type: str
    seq: int
    """Counts the events of one writer, from 0."""
    writer: str
    event: Event | None
    """None if this version does not know the type; `data` then holds the line."""
    time: str = field(default_factory=format_now)
    """UTC, ISO 8601; for people, never for order."""
    format_version: str = FORMAT_VERSION
    data: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The whole line as JSON values; empty before it is written."""

    @classmethod
    def of(cls, event: Event, *, seq: int, writer: str) -> Record:
        """Return a new record, made now."""
        return cls(type=_NAMES[type(event)], seq=seq, writer=writer, event=event)


class BadLine(ValueError):
    """A line that holds no event."""


def encode(record: Record) -> bytes:
    """Encode a record with an event as a line, with its line break.

    Raises:
        StoreFailure: a value is not of its declared type, so that it could not be read back.
    """
    if record.event is None:
        raise ValueError("a record without an event is only read, never written")
    head = _dump_json({name: getattr(record, name) for name in _HEAD})
    body = _encode_body(record.event, record.type)
    return head[:-1] + (b"," if len(body) > 2 else b"") + body[1:] + b"\n"


def without_secrets(record: Record, secrets: Sequence[str]) -> tuple[Record, bytes]:
    """Return the record with secrets hidden in its texts, and its line, so that index and log are equal.

    Raises:
        StoreFailure: as `encode`.
    """
    line = encode(record)
    if record.event is None or not has_secret(line, secrets):
        return record, line
    adapter = _get_adapter(record.type)
    data = hide_values(adapter.dump_python(record.event), secrets)
    hidden = replace(record, event=adapter.validate_python(data))
    return hidden, encode(hidden)


def decode(line: bytes) -> Record:
    """Read a line back, with or without its line break.

    Raises:
        BadLine: it is not JSON, or not an event of a format this code reads.
        RunFormatError: a newer major version wrote it.
    """
    data = _parse(line)
    name, version = data.get("type"), data.get("format_version")
    seq, time, writer = data.get("seq"), data.get("time"), data.get("writer")
    # The envelope first: without it a line cannot even be skipped in order.
    if not (isinstance(name, str) and isinstance(seq, int) and isinstance(time, str) and isinstance(writer, str)):
        raise BadLine("no event: type, seq, time and writer are needed")
    if not is_version(version):
        raise BadLine(f"no event: format_version is {version!r}")
    # Another version's event is no bad line: its fields may mean something else.
    check_version(version, f"event {seq} of writer {writer}")
    event = None
    # An unknown type is kept as data, for another version may know it.
    if name in TYPES:
        try:
            event = _get_adapter(name).validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise BadLine(f"{name}: {where}: {first['msg']}") from None
    return Record(format_version=version, type=name, seq=seq, time=time, writer=writer, event=event, data=data)


def prepare() -> None:
    """Build the readers of events, so that the first event need not wait for them."""
    for name in TYPES:
        _get_adapter(name)


@cache
def _get_adapter(name: str) -> TypeAdapter[Event]:
    return TypeAdapter(TYPES[name])


def _dump_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _encode_body(event: Event, name: str) -> bytes:
    try:
        return _get_adapter(name).dump_json(event, warnings="error")
    except PydanticSerializationError as error:
        if "surrogates not allowed" not in str(error):
            raise StoreFailure(f"event {name} cannot be recorded: {' '.join(str(error).split())}") from None
    try:
        return _dump_json(asdict(event))  # slower, and able to escape lone surrogates
    except TypeError as error:
        raise StoreFailure(f"event {name} cannot be recorded: {error}") from None


def _parse(line: bytes) -> dict[str, Any]:
    try:
        data = from_json(line)
    except ValueError:
        try:
            data = json.loads(line)  # the strict parser refuses lone surrogates
        except (ValueError, RecursionError) as error:
            raise BadLine(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadLine(f"no event: {type(data).__name__} instead of an object")
    return data
