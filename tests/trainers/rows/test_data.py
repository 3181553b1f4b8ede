"""Rows are read from directories, by level, each once."""

from pathlib import Path

import pytest

from collab.data.tokenize import read_data
from collab.errors import ConfigError, UsageError


def test_levels_and_directories_are_put_together(samples, tmp_path: Path) -> None:
    first = samples.write(tmp_path / "a", samples.rows(3))
    second = samples.write(tmp_path / "b", [samples.rows(3)[2], samples.row(7)])
    data = read_data([first, second], ["basic", "demonstration"])
    assert data.levels == {"basic": 4, "demonstration": 3}
    assert data.repeated == 1
    assert {row.id for row in data.rows} >= {row.id for row in samples.rows(3, ["basic", "demonstration"])}


def test_a_row_comes_back_as_it_was_written(samples, tmp_path: Path) -> None:
    rows = samples.rows(2, ["preference"])
    assert list(read_data([samples.write(tmp_path, rows)], ["preference"]).rows) == rows


def test_an_empty_directory_says_what_makes_rows(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \*\.parquet in it; make rows with: collab synth"):
        read_data([tmp_path], ["basic"])


def test_more_broken_rows_than_allowed_are_refused(samples, tmp_path: Path) -> None:
    import pyarrow.parquet

    path = samples.write(tmp_path, samples.rows(5, ["basic"])) / "basic.parquet"
    fields = pyarrow.parquet.read_table(path).to_pylist()
    fields[1]["reply"] = fields[2]["reply"] = ""
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(fields, schema=pyarrow.parquet.read_schema(path)), path)
    assert len(read_data([tmp_path], ["basic"], max_broken=2).rows) == 3
    with pytest.raises(ConfigError, match=r"2 broken rows so far \(reply 2\), 1 are allowed"):
        read_data([tmp_path], ["basic"], max_broken=1)
    with pytest.raises(ConfigError, match=r"row 2: reply: is empty"):
        read_data([tmp_path], ["basic"])
