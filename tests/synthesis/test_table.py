"""Rows as Parquet: what is written is read back, and what is broken is named."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collab.data.example import Example, Provenance, Sampled
from collab.data.parquet import COLUMNS, ExampleWriter, read_rows
from collab.errors import ConfigError, StoreFailure, UsageError
from collab.types import Prompt, Segment
from tests.properties import examples

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ROWS = st.builds(
    lambda system, shared, segments, reply, rejected, action, seed, apps, asked: Example(
        level="demonstration" if rejected is None else "preference",
        kind="solution",
        prompt=Prompt(system=system, shared=shared, segments=tuple(Segment(text=text) for text in segments)),
        reply=f"Reason: {reply}",
        rejected=rejected,
        action_type=action,
        provenance=Provenance(
            environment="androidworld[simphone]",
            environment_version="simphone-2",
            task="SystemWifiTurnOn",
            seed=seed,
            step=3,
            screen="f" * 64,
            apps=tuple(apps),
            teacher="oracle",
            teacher_prompt=asked,
        ),
    ),
    TEXT,
    TEXT,
    st.lists(TEXT, max_size=4),
    TEXT,
    st.none() | TEXT,
    st.none() | st.just("click"),
    st.integers(0, 2**32 - 1),
    st.lists(TEXT, max_size=2),
    st.none() | st.just("a" * 64),
)


IDS = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)


def write(path: Path, rows: Iterable[Example], *, sampled: bool = False) -> Path:
    with ExampleWriter(path, sampled=sampled) as out:
        for row in rows:
            out.add(row)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(st.lists(ROWS, max_size=5))
def test_rows_survive_the_round_trip(tmp_path: Path, rows: list[Example]) -> None:
    assert list(read_rows(write(tmp_path / "basic.parquet", rows))) == rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(st.lists(ROWS, max_size=5), st.data())
def test_what_was_sampled_survives_the_round_trip(tmp_path: Path, rows: list[Example], data: st.DataObject) -> None:
    """Of any side and any segment, beside rows that hold none."""
    sampled = st.none() | st.builds(Sampled, tokens=IDS, tokenizer=st.sampled_from(["one", "other"]))

    def heard(segment: Segment) -> Segment:
        said = data.draw(sampled)
        return segment if said is None else replace(segment, tokens=said.tokens, tokenizer=said.tokenizer)

    spoken = [
        replace(
            row,
            prompt=replace(row.prompt, segments=tuple(map(heard, row.prompt.segments))),
            reply_sampled=data.draw(sampled),
            rejected_sampled=None if row.rejected is None else data.draw(sampled),
        )
        for row in rows
    ]
    assert list(read_rows(write(tmp_path / "basic.parquet", spoken, sampled=True))) == spoken


def test_a_file_without_sampled_tokens_is_as_it_was(tmp_path: Path, rows: tuple[Example, ...]) -> None:
    """It has no column for them, and its rows the ids that they had before there were any."""
    table = parquet.read_table(write(tmp_path / "basic.parquet", rows[:1]))
    assert table.schema.names == list(COLUMNS)
    (row,) = table.to_pylist()
    said = [row["system"], row["shared"] + "".join(row["segments"]), row["reply"], row["rejected"] or ""]
    assert row["id"] == hashlib.sha256("\x1f".join(said).encode()).hexdigest()


def test_rows_are_the_same_only_in_the_same_tokens(rows: tuple[Example, ...]) -> None:
    one = replace(rows[0], level="preference", rejected="Another.")
    (*before, last) = one.prompt.segments
    said = Sampled(tokens=(1, 2), tokenizer="x")
    heard = replace(one.prompt, segments=(*before, replace(last, tokens=(1, 2), tokenizer="x")))
    others = [
        replace(one, reply_sampled=said),
        replace(one, rejected_sampled=said),
        replace(one, reply_sampled=replace(said, tokens=(1, 2, 3))),
        replace(one, reply_sampled=replace(said, tokenizer="y")),
        replace(one, prompt=heard),
    ]
    assert len({row.id for row in (one, *others)}) == 1 + len(others)
    assert replace(others[0], kind="another").id == others[0].id


def test_more_rows_than_a_group_keep_their_order(
    tmp_path: Path, rows: tuple[Example, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collab.data.parquet.ROW_GROUP", 16)
    path = write(tmp_path / "all.parquet", rows)
    assert parquet.ParquetFile(path).num_row_groups == -(-len(rows) // 16)
    assert list(read_rows(path)) == list(rows)


def test_half_a_character_is_replaced_and_the_id_fits_what_is_stored(tmp_path: Path, rows: tuple[Example, ...]) -> None:
    odd = replace(rows[0], reply="half \ud83d of it")
    (read,) = read_rows(write(tmp_path / "odd.parquet", [odd]))
    assert read.reply == "half ? of it"


def broken_row() -> Example:
    raise ZeroDivisionError


def test_a_file_appears_when_it_is_whole(tmp_path: Path, rows: tuple[Example, ...]) -> None:
    path = write(tmp_path / "basic.parquet", list(rows[:3]))
    with pytest.raises(ZeroDivisionError):
        write(path, (row if number < 2 else broken_row() for number, row in enumerate(rows)))
    assert list(read_rows(path)) == list(rows[:3])
    assert [file.name for file in tmp_path.iterdir()] == ["basic.parquet"]


def test_what_a_table_does_not_keep_is_not_dropped_in_silence(tmp_path: Path, rows: tuple[Example, ...]) -> None:
    heard, said = Segment(text="a", tokens=(1,), tokenizer="x"), Sampled(tokens=(1,), tokenizer="x")
    pictured = replace(rows[0], prompt=replace(rows[0].prompt, images=("f" * 64,)))
    spoken = replace(rows[0], prompt=replace(rows[0].prompt, segments=(heard,)))
    with ExampleWriter(tmp_path / "basic.parquet") as out:
        for row in (pictured, spoken, replace(rows[0], reply_sampled=said), replace(rows[0], rejected_sampled=said)):
            with pytest.raises(ValueError, match="not part of a row"):
                out.add(row)
    with ExampleWriter(tmp_path / "basic.parquet", sampled=True) as out, pytest.raises(ValueError, match="pictures"):
        out.add(pictured)


def test_a_folder_that_cannot_be_made_is_a_store_failure(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StoreFailure, match="synthesise again"), ExampleWriter(tmp_path / "data" / "basic.parquet"):
        pass


def spoiled(path: Path, number: int, changes: dict[str, Any]) -> Path:
    """The file with other values in one row, counted from 1."""
    table = parquet.read_table(path)
    fields = table.to_pylist()
    fields[number - 1] |= changes
    parquet.write_table(pyarrow.Table.from_pylist(fields, schema=table.schema), path)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reply": None}, "row 2: reply: is null"),
        ({"reply": ""}, "row 2: reply: is empty"),
        ({"level": "advanced"}, "row 2: level: is 'advanced', allowed: basic, instruction"),
        ({"rejected": "no"}, "row 2: rejected: a preference needs the other side"),
        ({"segments": ["a", None]}, "row 2: segments: holds a null"),
        ({"shared": "another prompt"}, "row 2: id: is not that of the prompt and reply"),
    ],
)
def test_a_broken_row_is_named_or_skipped_and_counted(
    tmp_path: Path, rows: tuple[Example, ...], changes: dict[str, Any], message: str
) -> None:
    path = spoiled(write(tmp_path / "basic.parquet", list(rows[:4])), 2, changes)
    with pytest.raises(ConfigError, match=message) as error:
        list(read_rows(path))
    assert str(path) in str(error.value)
    skipped = Counter[str]()
    assert list(read_rows(path, skipped=skipped)) == [rows[0], rows[2], rows[3]]
    assert skipped == {next(iter(changes)) if "shared" not in changes else "id": 1}


SAID = {"tokenizer": "x", "tokens": [1, 2]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reply_sampled": SAID | {"tokens": None}}, "reply_sampled: lacks the tokenizer, or holds something else"),
        ({"reply_sampled": SAID | {"tokens": [1, None]}}, "reply_sampled: lacks the tokenizer"),
        ({"rejected_sampled": SAID | {"tokenizer": None}}, "rejected_sampled: lacks the tokenizer"),
        ({"segments_sampled": [SAID | {"tokens": [-1]}]}, "segments_sampled: lacks the tokenizer"),
        ({"segments_sampled": [None] * 9}, r"segments_sampled: are 9, segments are \d"),
        ({"reply_sampled": SAID | {"tokens": [1, 3]}}, "id: is not that of the prompt and reply"),
        ({"reply_sampled": None}, "id: is not that of the prompt and reply"),
    ],
)
def test_broken_tokens_are_named(
    tmp_path: Path, rows: tuple[Example, ...], changes: dict[str, Any], message: str
) -> None:
    one = replace(rows[0], reply_sampled=Sampled(tokens=(1, 2), tokenizer="x"))
    path = spoiled(write(tmp_path / "basic.parquet", [one], sampled=True), 1, changes)
    with pytest.raises(ConfigError, match=f"row 1: {message}"):
        list(read_rows(path))


def test_a_column_of_tokens_of_another_type_is_named(tmp_path: Path, rows: tuple[Example, ...]) -> None:
    path = write(tmp_path / "basic.parquet", list(rows[:1]))
    table = parquet.read_table(path)
    parquet.write_table(table.append_column("reply_sampled", pyarrow.array(["1 2"])), path)
    with pytest.raises(ConfigError, match="column reply_sampled is string, expected struct<tokenizer: string, tokens"):
        list(read_rows(path))


def test_columns_that_are_missing_or_of_another_type_are_named(tmp_path: Path, rows: tuple[Example, ...]) -> None:
    path = write(tmp_path / "basic.parquet", list(rows[:2]))
    table = parquet.read_table(path)
    parquet.write_table(table.drop_columns(["kind"]), path)
    with pytest.raises(ConfigError, match="column kind is missing"):
        list(read_rows(path))
    seeds = pyarrow.array(["1", "2"])
    parquet.write_table(table.set_column(list(COLUMNS).index("seed"), "seed", seeds), path)
    with pytest.raises(ConfigError, match="column seed is string, expected int64"):
        list(read_rows(path))


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file of rows"):
        list(read_rows(tmp_path / "basic.parquet"))
    (tmp_path / "basic.parquet").write_bytes(b"not a table")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        list(read_rows(tmp_path / "basic.parquet"))


def test_a_file_with_damaged_pages_is_named(tmp_path: Path, rows: tuple[Example, ...]) -> None:
    path = write(tmp_path / "basic.parquet", rows)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"basic\.parquet: is damaged"):
        list(read_rows(path))
