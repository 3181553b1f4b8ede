"""Tables fit where they are shown, and no text from outside gets a control character through."""

import os
import sys

import pytest

from collab.cli.output import print_table
from collab.utils.text import clean_line, format_amount

COLUMNS = ["episode", "seed", "broken"]


def shown(capsys: pytest.CaptureFixture[str], *rows: tuple[object, ...]) -> list[str]:
    print_table(COLUMNS, rows)
    return capsys.readouterr().out.splitlines()


def test_numbers_are_aligned_right_and_none_is_a_dash(capsys):
    assert shown(capsys, ("A/0", 7, None), ("Longer/10", 1234, "it broke")) == [
        "episode    seed  broken",
        "A/0           7  -",
        "Longer/10  1234  it broke",
    ]


def test_without_rows_the_columns_are_named(capsys):
    assert shown(capsys) == ["episode  seed  broken"]


def test_wide_characters_take_two_columns(capsys):
    assert shown(capsys, ("字", 1, "x"))[1] == "字          1  x"


def test_without_a_watcher_lines_stay_whole(capsys):
    assert shown(capsys, ("A/0", 1, "it broke " * 50))[1].endswith("it broke it broke")


def test_a_narrow_terminal_folds_the_widest_cells(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((36, 24)))
    monkeypatch.setenv("TERM", "xterm")
    head, *body = shown(capsys, ("A/0", 1, "the server was gone for good"), ("B/0", 22, "x" * 40))
    assert head.startswith("\x1b[1mepisode")
    assert body == [
        "A/0         1  the server was gone",
        "               for good",
        "B/0        22  xxxxxxxxxxxxxxxxxxxxx",
        "               xxxxxxxxxxxxxxxxxxx",
    ]


def test_a_terminal_narrower_than_any_table_still_shows_everything(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((3, 24)))
    assert "".join(shown(capsys, ("abcdefghij", 1, "-"))[1:]).replace(" ", "") == "abcdefgh1-ij"


@pytest.mark.parametrize(("text", "expected"), [(" a ", "a"), ("a\x1b[31m\nb", "a [31m b"), ("", "")])
def test_plain(text, expected):
    assert clean_line(text) == expected


def test_one_of_a_thing_is_told_in_the_singular() -> None:
    assert [format_amount(number, "episode") for number in (0, 1, 2)] == ["0 episodes", "1 episode", "2 episodes"]
