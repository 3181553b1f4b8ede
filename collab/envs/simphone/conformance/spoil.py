"""Solved phones with one thing changed, to see how careful a judge is.

    spoilt      one decisive field, far beyond what fuzzy matching forgives: must not pass any more
    blurred     the same field, only in upper and lower case: fuzzy matching forgives that, exact matching does not
    disturbed   something that nobody asked for: a row or a file that had nothing to do with the task

What was done is found by comparing the phones before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from collab.envs.simphone.apps import clock
from collab.envs.simphone.state import ROOT, Phone, Row, go_home, keep, put_field, put_setting, remember
from collab.types import Scalar

OTHER = "Qwxz 0000"
"""A text that resembles none that a task asks for."""
Changed: TypeAlias = tuple[str, Phone]
"""(what was changed, the phone after that)."""


def spoilt(name: str, start: Phone, solved: Phone) -> Changed | None:
    """Change one decisive field of a solved phone; None when nothing in it tells that the task was solved.

    Args:
        name: the task's name.
        start: the phone before the task was solved.
    """
    if name in _SCREENS:
        what, change = _SCREENS[name]
        return what, change(solved)
    if solved.answer is not None:
        return "answer", replace(solved, answer=_other_answer(solved.answer))
    setting = next((setting for word, setting in _SETTINGS.items() if word in name), None)
    if setting is not None:
        return setting, put_setting(solved, setting, _other_setting(setting, solved.settings[setting]))
    return _row(start, solved) or _file(start, solved) or _clipboard(start, solved, OTHER)


def blurred(start: Phone, solved: Phone) -> Changed | None:
    """Swap upper and lower case in one text that solving the task wrote; None when it wrote none with letters."""
    if solved.answer is not None:
        made: Changed | None = "answer", replace(solved, answer=solved.answer.swapcase())
    else:
        made = (
            _blurred_row(start, solved)
            or _blurred_file(start, solved)
            or _clipboard(start, solved, solved.clipboard.swapcase())
        )
    return None if made is None or made[1] == solved else made


def disturbed(start: Phone, solved: Phone) -> Changed | None:
    """Change a row or remove a file beside those of the task; None when it is not about rows or files."""
    return _bystanding_row(start, solved) or _bystanding_file(start, solved)


_SCREENS: Mapping[str, tuple[str, Callable[[Phone], Phone]]] = {
    "ClockTimerEntry": ("a digit of the timer", lambda phone: keep(phone, digits=_other_digits(phone))),
    "ClockStopWatchRunning": ("stopwatch paused", lambda phone: _with_stopwatch(phone, None)),
    "ClockStopWatchPausedVerify": ("stopwatch runs", lambda phone: _with_stopwatch(phone, phone.now_ms)),
    "ContactsNewContactDraft": ("phone field", lambda phone: put_field(phone, "phone", "000")),
    "OpenAppTaskEval": ("app in front", go_home),
}
"""Tasks that are judged by what the screen shows."""
_SETTINGS = {
    "Wifi": "global/wifi_on",
    "Bluetooth": "global/bluetooth_on",
    "Brightness": "system/screen_brightness",
}
"""Setting by the word for it in a task's name."""


def _other_digits(phone: Phone) -> str:
    digits = str(phone.page.data["digits"])
    return digits[:-1] + ("1" if digits[-1:] != "1" else "2")


def _with_stopwatch(phone: Phone, since_ms: int | None) -> Phone:
    return remember(phone, clock.PACKAGE, stopwatch=(since_ms, 0, ()))


def _other_answer(answer: str) -> str:
    return str(int(answer) + 1) if answer.strip().isdecimal() else OTHER


def _other_setting(setting: str, value: str) -> str:
    if setting == "system/screen_brightness":
        return "128"
    return "0" if value != "0" else "1"


def _clipboard(start: Phone, solved: Phone, text: str) -> Changed | None:
    return None if solved.clipboard == start.clipboard else ("clipboard", replace(solved, clipboard=text))


# ----------------------------------------------------------------------------------------------------------- rows

Change: TypeAlias = Callable[[Row], dict[str, Scalar]]
_TEXTS: Mapping[str, str] = {"sms": "body", "data": "data1", "expense": "name", "events": "title", "recipes": "title"}
"""A column of words in each table that tasks change."""


def _more(column: str, by: int) -> Change:
    return lambda row: {column: int(row[column] or 0) + by}


def _reworded(column: str) -> Change:
    return lambda row: {column: OTHER}


def _swapped(column: str) -> Change:
    return lambda row: {column: str(row[column]).swapcase()}


_ROWS: Mapping[str, Change] = {
    **{table: _reworded(column) for table, column in _TEXTS.items()},
    "expense": _more("amount", 100),
    "events": _more("start_ts", 3600),
}
"""The decisive change in each of them."""


def _row(start: Phone, solved: Phone) -> Changed | None:
    """Change the last row that was added, or put back the last that was removed."""
    for key, before, after in _tables(start, solved):
        added = [row for row in after if _key(row) not in set(map(_key, before))]
        removed = [row for row in before if _key(row) not in set(map(_key, after))]
        if removed:
            return f"{key[1]}: a row put back", _with_rows(solved, key, tuple(sorted((*after, removed[-1]), key=_key)))
        if added:
            return _altered(solved, key, added[-1], _ROWS[key[1]])
    return None


def _blurred_row(start: Phone, solved: Phone) -> Changed | None:
    for key, before, after in _tables(start, solved):
        added = [row for row in after if _key(row) not in set(map(_key, before))]
        if added:
            return _altered(solved, key, added[-1], _swapped(_TEXTS[key[1]]))
    return None


def _bystanding_row(start: Phone, solved: Phone) -> Changed | None:
    """Reword a row that is as it was, in a table that the task changed."""
    for key, before, after in _tables(start, solved):
        same = [row for row in after if row in before]
        if same and len(same) < max(len(before), len(after)):
            return _altered(solved, key, same[-1], _reworded(_TEXTS[key[1]]))
    return None


def _tables(start: Phone, solved: Phone) -> Iterator[tuple[tuple[str, str], tuple[Row, ...], tuple[Row, ...]]]:
    """(path and name, rows before, rows after) of the tables that tasks change."""
    for key in sorted(set(start.rows) | set(solved.rows)):
        if key[1] in _ROWS:
            yield key, start.rows.get(key, ()), solved.rows.get(key, ())


def _altered(phone: Phone, key: tuple[str, str], row: Row, change: Change) -> Changed:
    changes = change(row)
    rows = tuple({**one, **changes} if one is row else one for one in phone.rows[key])
    return f"{key[1]}.{next(iter(changes))}", _with_rows(phone, key, rows)


def _key(row: Row) -> int:
    """The primary key, which stands first."""
    return int(str(next(iter(row.values()))))


def _with_rows(phone: Phone, key: tuple[str, str], rows: tuple[Row, ...]) -> Phone:
    return replace(phone, rows={**phone.rows, key: rows})


# ---------------------------------------------------------------------------------------------------------- files


def _file(start: Phone, solved: Phone) -> Changed | None:
    """Put back a file that is gone, reword one that is new or changed, or remove a new folder."""
    for path, entry in start.files.items():
        if _mine(path) and path not in solved.files:
            return "a file put back", replace(solved, files={**solved.files, path: entry})
    for path in _written(start, solved):
        if solved.files[path].content is None:
            return "the folder removed", _without(solved, path)
        return "content of a file", _with_content(solved, path, OTHER)
    return None


def _blurred_file(start: Phone, solved: Phone) -> Changed | None:
    for path in _written(start, solved):
        content = solved.files[path].content
        if content:
            return "content of a file", _with_content(solved, path, content.swapcase())
    return None


def _bystanding_file(start: Phone, solved: Phone) -> Changed | None:
    """Remove a file that is as it was, when the task changed files."""
    if start.files == solved.files:
        return None
    same = [path for path in start.files if _mine(path) and solved.files.get(path) == start.files[path]]
    path = next((path for path in reversed(same) if start.files[path].content is not None), None)
    return None if path is None else ("a file removed", _without(solved, path))


def _written(start: Phone, solved: Phone) -> list[str]:
    """Paths of files and folders that are new or have another content."""
    return [
        path
        for path, entry in solved.files.items()
        if _mine(path) and (path not in start.files or start.files[path].content != entry.content)
    ]


def _with_content(phone: Phone, path: str, content: str) -> Phone:
    return replace(phone, files={**phone.files, path: replace(phone.files[path], content=content)})


def _without(phone: Phone, path: str) -> Phone:
    return replace(phone, files={name: entry for name, entry in phone.files.items() if name != path})


def _mine(path: str) -> bool:
    return path.startswith(ROOT + "/")
