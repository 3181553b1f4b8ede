"""Rows as Parquet: what is written is read back, and what is broken is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collab.errors import ConfigError, StoreFailure, UsageError
from collab.synth.rows import Provenance, Row
from collab.synth.table import COLUMNS, RowWriter, read_rows
from collab.types import Prompt, Segment

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ROWS = st.builds(
    lambda system, shared, segments, reply, rejected, action, seed, apps, asked: Row(
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


def write(path: Path, rows: Iterable[Row]) -> Path:
    with RowWriter(path) as out:
        for row in rows:
            out.add(row)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(ROWS, max_size=5))
def test_rows_survive_the_round_trip(tmp_path: Path, rows: list[Row]) -> None:
    assert list(read_rows(write(tmp_path / "basic.parquet", rows))) == rows


def test_more_rows_than_a_group_keep_their_order(
    tmp_path: Path, rows: tuple[Row, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collab.synth.table.ROW_GROUP", 16)
    path = write(tmp_path / "all.parquet", rows)
    assert parquet.ParquetFile(path).num_row_groups == -(-len(rows) // 16)
    assert list(read_rows(path)) == list(rows)


def test_half_a_character_is_replaced_and_the_id_fits_what_is_stored(tmp_path: Path, rows: tuple[Row, ...]) -> None:
    odd = replace(rows[0], reply="half \ud83d of it")
    (read,) = read_rows(write(tmp_path / "odd.parquet", [odd]))
    assert read.reply == "half ? of it"


def broken_row() -> Row:
    raise ZeroDivisionError


def test_a_file_appears_when_it_is_whole(tmp_path: Path, rows: tuple[Row, ...]) -> None:
    path = write(tmp_path / "basic.parquet", list(rows[:3]))
    with pytest.raises(ZeroDivisionError):
        write(path, (row if number < 2 else broken_row() for number, row in enumerate(rows)))
    assert list(read_rows(path)) == list(rows[:3])
    assert [file.name for file in tmp_path.iterdir()] == ["basic.parquet"]


def test_what_a_table_does_not_keep_is_not_dropped_in_silence(tmp_path: Path, rows: tuple[Row, ...]) -> None:
    tokens = Segment(text="a", tokens=(1,), tokenizer="x")
    with RowWriter(tmp_path / "basic.parquet") as out:
        for prompt in (replace(rows[0].prompt, images=("f" * 64,)), replace(rows[0].prompt, segments=(tokens,))):
            with pytest.raises(ValueError, match="not part of a row"):
                out.add(replace(rows[0], prompt=prompt))


def test_a_folder_that_cannot_be_made_is_a_store_failure(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StoreFailure, match="synthesise again"), RowWriter(tmp_path / "data" / "basic.parquet"):
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
    tmp_path: Path, rows: tuple[Row, ...], changes: dict[str, Any], message: str
) -> None:
    path = spoiled(write(tmp_path / "basic.parquet", list(rows[:4])), 2, changes)
    with pytest.raises(ConfigError, match=message) as error:
        list(read_rows(path))
    assert str(path) in str(error.value)
    skipped = Counter[str]()
    assert list(read_rows(path, skipped=skipped)) == [rows[0], rows[2], rows[3]]
    assert skipped == {next(iter(changes)) if "shared" not in changes else "id": 1}


def test_columns_that_are_missing_or_of_another_type_are_named(tmp_path: Path, rows: tuple[Row, ...]) -> None:
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


def test_a_file_with_damaged_pages_is_named(tmp_path: Path, rows: tuple[Row, ...]) -> None:
    path = write(tmp_path / "basic.parquet", rows)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"basic\.parquet: is damaged"):
        list(read_rows(path))
