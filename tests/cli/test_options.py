"""Options that several commands share: how their values are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.cli import options
from collab.errors import UsageError
from collab.utils.text import split_names


def test_items_stand_between_commas_or_in_options_of_their_own() -> None:
    assert split_names("--tasks", ["a, b", "c,", ""]) == ["a", "b", "c"]
    assert split_names("--tasks", None) == []
    with pytest.raises(UsageError, match="--tasks '': nothing is named"):
        split_names("--tasks", [""])


def test_a_directory_may_hold_commas_where_it_stands_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "one, two").mkdir()
    whole = str(tmp_path / "one, two")
    assert options.split_folders("--data", [whole, "~/one, two", "x,y"]) == [whole, "~/one, two", "x", "y"]
    assert options.split_folders("--data", [f"{whole},x"]) == [str(tmp_path / "one"), "two", "x"]
    with pytest.raises(UsageError, match="--data '': nothing is named"):
        options.split_folders("--data", [""])
