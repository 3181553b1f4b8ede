"""Files that name their format: what is read, and the one line for what is not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from collab.errors import RunFormatError
from collab.store.run_dir import read_versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    text: str
    format: int = 3


NOTE = TypeAdapter(Note)


def test_what_is_of_this_format_is_read(tmp_path: Path) -> None:
    (tmp_path / "note.json").write_text('{"text": "hello", "format": 3}')
    assert read_versioned(tmp_path / "note.json", NOTE, readable=3) == Note(text="hello")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "hello", "format": 4}', "note.json: has format 4, this version reads format 3"),
        (b'{"words": "hello", "format": "3"}', "note.json: has format '3', this version reads format 3"),
        (b'{"text": "hello"}', "note.json: has format None, this version reads format 3"),
        (b'{"text": 7, "format": 3}', "note.json: text: Input should be a valid string"),
        (b"[]", "note.json: file: Input should be a dictionary or an instance of Note"),
        (b"{", "note.json: cannot be read: not JSON: Expecting property name"),
        (b"\xff", "note.json: cannot be read: not JSON: 'utf-8' codec can't decode"),
    ],
)
def test_what_is_not_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "note.json").write_bytes(content)
    with pytest.raises(RunFormatError) as raised:
        read_versioned(tmp_path / "note.json", NOTE, readable=3)
    assert str(raised.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_told_as_the_caller_wants(tmp_path: Path) -> None:
    with pytest.raises(RunFormatError, match=r"note\.json: cannot be read: No such file or directory"):
        read_versioned(tmp_path / "note.json", NOTE, readable=3)
    for path in (tmp_path / "note.json", Path(__file__) / "note.json"):
        with pytest.raises(RunFormatError, match="no note here"):
            read_versioned(path, NOTE, readable=3, absent="no note here")
    with pytest.raises(RunFormatError, match="cannot be read: Is a directory"):
        read_versioned(tmp_path, NOTE, readable=3, absent="no note here")
