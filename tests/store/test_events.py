from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.errors import RunFormatError, StoreFailure
from collab.store.events import (
    TYPES,
    BadLine,
    EpisodeFinished,
    Event,
    Note,
    Record,
    StepRecorded,
    TextRecorded,
    decode,
    encode,
)
from collab.store.manifest import FORMAT_VERSION
from collab.types import Action, EpisodeError, Outcome, Point, Step

TEXTS = st.text(max_size=12) | st.sampled_from(["\ud800", "a\udfffb", "</script>", "\x00\x1f\u2028\u202e", "😀", "NaN"])
KEYS = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(),
    bool: st.booleans(),
    type(None): st.none(),
}
NUMBERS = st.floats(allow_nan=False)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def values(kind: Any, number: st.SearchStrategy[float] = NUMBERS) -> st.SearchStrategy[Any]:
    """Any value of a declared type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is float:
        return number
    if kind in PLAIN:
        return PLAIN[kind]
    number = FINITE if kind is Action else number
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(argument, number) for argument in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0], number), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(argument, number) for argument in arguments))
    if origin is not None:  # Mapping[str, Any]
        return st.dictionaries(KEYS, JSON if arguments[1] is Any else values(arguments[1], number), max_size=2)
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        # What holds its own kind, as a reply its proposal, would never end if it were built now.
        return st.builds(
            kind, **{field.name: _build(hints[field.name], kind, number) for field in dataclasses.fields(kind)}
        )
    return st.builds(kind, *[values(hints[name], number) for name in kind._fields])


def _build(kind: Any, outer: Any, number: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    if outer in typing.get_args(kind):
        return st.none() | st.deferred(lambda: values(outer, number))
    return values(kind, number)


def record(event: Event) -> Record:
    return Record.of(event, seq=4, writer="0001-ab")


@pytest.mark.variations
@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
def test_every_event_reads_back_equal(kind: type[Event]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(values(kind))
    def law(event: Event) -> None:
        written = record(event)
        line = encode(written)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        line.decode("utf-8")
        assert decode(line) == written

    law()


def same_types(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            same_types(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, tuple):
        for left, right in zip(one, other, strict=True):
            same_types(left, right)


@pytest.mark.medium
@settings(max_examples=30, deadline=None)
@given(values(Step))
def test_named_tuples_unions_and_scalars_keep_their_types(step: Step) -> None:
    read = decode(encode(record(StepRecorded(trajectory="t", attempt=0, step=step)))).event
    assert isinstance(read, StepRecorded)
    same_types(read.step, step)


def test_a_line_is_json_with_a_head(make: SimpleNamespace) -> None:
    line = encode(record(StepRecorded(trajectory="t/0", attempt=1, step=make.step(0))))
    data = json.loads(line)
    assert list(data)[:5] == ["format_version", "type", "seq", "time", "writer"]
    assert (data["format_version"], data["type"], data["attempt"]) == (FORMAT_VERSION, "step", 1)
    assert data["step"]["observation"]["elements"][1]["box"] == [0, 100, 1080, 190]
    assert data["step"]["matrix"]["utterances"][2]["heard"] == [["ada", 0]]


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_lacks_survive(make: SimpleNamespace, number: float) -> None:
    step = dataclasses.replace(make.step(0), environment_s=number)
    line = encode(record(StepRecorded(trajectory="t", attempt=0, step=step)))
    json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    read = decode(line).event
    assert isinstance(read, StepRecorded)
    assert str(read.step.environment_s) == str(number)


def test_a_whole_point_stays_equal() -> None:
    """Canonical points hold whole numbers where the type says float."""
    point = Point(x=540, y=1200)
    assert Point(x=540.0, y=1200.0) == point


def test_unknown_types_are_kept() -> None:
    line = b'{"format_version":"1.7","type":"weather","seq":1,"time":"now","writer":"w","sky":["blue"]}\n'
    read = decode(line)
    assert read.event is None
    assert read.type == "weather"
    assert read.data["sky"] == ["blue"]


def test_new_fields_of_a_newer_minor_version_are_passed_over() -> None:
    line = encode(record(Note(text="hello")))
    line = line.replace(b'"text"', b'"colour":{"a":1},"text"').replace(FORMAT_VERSION.encode(), b"1.9")
    assert decode(line).event == Note(text="hello")


@pytest.mark.parametrize("version", ["2.0", "10.0", "0.9"])
def test_another_major_version_is_refused(version: str) -> None:
    line = encode(record(Note(text="hello"))).replace(FORMAT_VERSION.encode(), version.encode())
    with pytest.raises(RunFormatError, match=rf"run format {version}.*reads format 1\.x"):
        decode(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{",
        b"null",
        b"[1]",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"type":"note"}',
        b'{"format_version":"one","type":"note","seq":1,"time":"t","writer":"w","text":""}',
        b'{"format_version":"1.1","type":"note","seq":"x","time":"t","writer":"w","text":""}',
        b'{"format_version":"1.1","type":"note","seq":1,"time":"t","writer":"w"}',
        b'{"format_version":"1.1","type":"step","seq":1,"time":"t","writer":"w","trajectory":"t","attempt":0,"step":{}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_event_is_a_bad_line(line: bytes) -> None:
    with pytest.raises(BadLine):
        decode(line)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_junk_never_raises_anything_else(junk: bytes) -> None:
    with pytest.raises(BadLine):
        decode(junk)


def test_a_value_of_the_wrong_type_is_refused_when_written(make: SimpleNamespace) -> None:
    for changes in ({"index": "one"}, {"environment_s": "fast"}, {"info": {"handle": object()}}):
        step = dataclasses.replace(make.step(0), **changes)
        with pytest.raises(StoreFailure, match="event step cannot be recorded"):
            encode(record(StepRecorded(trajectory="t", attempt=0, step=step)))


def test_texts_and_endings_read_back(make: SimpleNamespace) -> None:
    for event in (
        TextRecorded(hash="ab", text="system\fshared \ud83d"),
        EpisodeFinished(
            trajectory="t/0",
            attempt=2,
            outcome=None,
            error=EpisodeError(type="EnvironmentFailure", message="gone", step=3),
            final=None,
            steps=3,
            seconds=0.5,
        ),
        EpisodeFinished(
            trajectory="t/0",
            attempt=0,
            outcome=Outcome(success=True, score=1),
            error=None,
            final=make.screen(),
            steps=3,
            seconds=0.5,
        ),
    ):
        assert decode(encode(record(event))).event == event
