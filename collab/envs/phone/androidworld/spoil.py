"""A solved phone with one decisive field changed: what a careful judge must not let pass.

What was done is found by comparing the phones before and after; the change is far beyond what fuzzy matching forgives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from collab.envs.phone.apps import clock
from collab.envs.phone.state import Phone, Row, go_home, keep, put_field, put_setting, remember
from collab.envs.phone.storage import ROOT
from collab.types import Scalar

OTHER = "Qwxz 0000"
"""A text that resembles none that a task asks for."""
Spoilt: TypeAlias = tuple[str, Phone]
"""(what was changed, the phone after that)."""


def spoilt(name: str, start: Phone, solved: Phone) -> Spoilt | None:
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
    return _row(start, solved) or _file(start, solved) or _clipboard(start, solved)


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


# ----------------------------------------------------------------------------------------------------------- rows


def _longer(column: str, by: int) -> Callable[[Row], dict[str, Scalar]]:
    return lambda row: {column: int(row[column] or 0) + by}


def _reworded(column: str) -> Callable[[Row], dict[str, Scalar]]:
    return lambda row: {column: OTHER}


_ROWS: Mapping[str, Callable[[Row], dict[str, Scalar]]] = {
    "sms": _reworded("body"),
    "data": _reworded("data1"),
    "expense": _longer("amount", 100),
    "events": _longer("start_ts", 3600),
    "recipes": _reworded("title"),
}
"""The decisive column of each table that tasks add rows to."""


def _row(start: Phone, solved: Phone) -> Spoilt | None:
    """Change the last row that was added, or put back the last that was removed."""
    for key in sorted(set(start.rows) | set(solved.rows)):
        table = key[1]
        if table not in _ROWS:
            continue
        before, after = start.rows.get(key, ()), solved.rows.get(key, ())
        added = [row for row in after if _key(row) not in set(map(_key, before))]
        removed = [row for row in before if _key(row) not in set(map(_key, after))]
        if removed:
            return f"{table}: a row put back", _with_rows(solved, key, tuple(sorted((*after, removed[-1]), key=_key)))
        if added:
            change = _ROWS[table](added[-1])
            rows = tuple({**row, **change} if row is added[-1] else row for row in after)
            return f"{table}.{next(iter(change))}", _with_rows(solved, key, rows)
    return None


def _key(row: Row) -> int:
    """The primary key, which stands first."""
    return int(str(next(iter(row.values()))))


def _with_rows(phone: Phone, key: tuple[str, str], rows: tuple[Row, ...]) -> Phone:
    return replace(phone, rows={**phone.rows, key: rows})


# ---------------------------------------------------------------------------------------------------------- files


def _file(start: Phone, solved: Phone) -> Spoilt | None:
    """Put back a file that is gone, reword one that is new or changed, or remove a new folder."""
    for path, entry in start.files.items():
        if _mine(path) and path not in solved.files:
            return "a file put back", replace(solved, files={**solved.files, path: entry})
    for path, entry in solved.files.items():
        before = start.files.get(path)
        if not _mine(path) or (before is not None and before.content == entry.content):
            continue
        if entry.content is None:
            left = {name: one for name, one in solved.files.items() if name != path}
            return "the folder removed", replace(solved, files=left)
        return "content of a file", replace(solved, files={**solved.files, path: replace(entry, content=OTHER)})
    return None


def _mine(path: str) -> bool:
    return path.startswith(ROOT + "/")


def _clipboard(start: Phone, solved: Phone) -> Spoilt | None:
    return None if solved.clipboard == start.clipboard else ("clipboard", replace(solved, clipboard=OTHER))
