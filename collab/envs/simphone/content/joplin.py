"""Joplin's notes and notebooks, in the app's own database, with the table its search is kept in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from collab.envs.simphone.state import Phone, Row, Table, rows, whole
from collab.types import Scalar

_PATH = "/data/data/net.cozic.joplin/databases/joplin.sqlite"
_TEXT, _NUMBER, _DECIMAL = "TEXT NOT NULL DEFAULT ''", "INT NOT NULL DEFAULT 0", "NUMERIC NOT NULL DEFAULT 0"
FOLDERS = Table(
    path=_PATH,
    name="folders",
    columns=(
        *(("id", "TEXT PRIMARY KEY"), ("title", _TEXT)),
        *((name, _NUMBER) for name in ("created_time", "updated_time", "user_created_time", "user_updated_time")),
        *(("encryption_cipher_text", _TEXT), ("encryption_applied", _NUMBER), ("parent_id", _TEXT)),
        ("is_shared", _NUMBER),
        *((name, _TEXT) for name in ("share_id", "master_key_id", "icon", "user_data")),
    ),
)
NOTES = Table(
    path=_PATH,
    name="notes",
    columns=(
        ("id", "TEXT PRIMARY KEY"),
        *((name, _TEXT) for name in ("parent_id", "title", "body")),
        *((name, _NUMBER) for name in ("created_time", "updated_time", "is_conflict")),
        *((name, _DECIMAL) for name in ("latitude", "longitude", "altitude")),
        *((name, _TEXT) for name in ("author", "source_url")),
        *((name, _NUMBER) for name in ("is_todo", "todo_due", "todo_completed")),
        *((name, _TEXT) for name in ("source", "source_application", "application_data")),
        ("order", _DECIMAL),
        *((name, _NUMBER) for name in ("user_created_time", "user_updated_time")),
        *(("encryption_cipher_text", _TEXT), ("encryption_applied", _NUMBER)),
        *((name, _NUMBER) for name in ("markup_language", "is_shared")),
        *((name, _TEXT) for name in ("share_id", "conflict_original_id", "master_key_id", "user_data")),
    ),
)
NORMALIZED = Table(
    path=_PATH,
    name="notes_normalized",
    columns=(
        ("id", "TEXT PRIMARY KEY"),
        *((name, _TEXT) for name in ("title", "body")),
        *((name, _NUMBER) for name in ("user_created_time", "user_updated_time", "is_todo", "todo_completed")),
        ("parent_id", _TEXT),
        *((name, _DECIMAL) for name in ("latitude", "longitude", "altitude")),
        *(("source_url", _TEXT), ("todo_due", _NUMBER)),
    ),
)


def _blank(table: Table) -> Row:
    return MappingProxyType({name: "" if kind.startswith("TEXT") else 0 for name, kind in table.columns})


_BLANK_NOTE, _BLANK_FOLDER = _blank(NOTES), _blank(FOLDERS)


def folders(phone: Phone) -> list[Row]:
    """All notebooks by title."""
    return sorted(rows(phone, FOLDERS), key=lambda row: (said(row, "title").casefold(), said(row, "id")))


def notes(phone: Phone, folder: str | None = None) -> list[Row]:
    """The notes of a notebook, or all when it is None, by title."""
    found = [row for row in rows(phone, NOTES) if folder is None or row["parent_id"] == folder]
    return sorted(found, key=lambda row: (said(row, "title").casefold(), said(row, "id")))


def note(phone: Phone, id: str) -> Row | None:
    """A note by its id."""
    return next((row for row in rows(phone, NOTES) if row["id"] == id), None)


def find_notes(phone: Phone, wanted: str) -> list[Row]:
    """Notes with these words in title or body, those with them in the title first."""
    words = wanted.casefold()
    found = [row for row in notes(phone) if any(words in said(row, name).casefold() for name in ("title", "body"))]
    return sorted(found, key=lambda row: words not in said(row, "title").casefold())


def put_library(phone: Phone, records: Iterable[tuple[str, Row]]) -> Phone:
    """Replace everything by (title of the notebook, columns of a note), in this order."""
    keys: dict[str, str] = {}
    written = []
    for number, (folder, record) in enumerate(records, 1):
        parent = keys.setdefault(folder, f"{len(keys) + 1:032x}")
        written.append(_written(phone, {**record, "id": f"{number:032x}", "parent_id": parent}))
    titled = tuple(
        {**_BLANK_FOLDER, "id": key, "title": title, "created_time": phone.now_ms} for title, key in keys.items()
    )
    return _put(replace(phone, rows={**phone.rows, (_PATH, FOLDERS.name): titled}), tuple(written))


def add_note(phone: Phone, folder: str, **values: Scalar) -> Phone:
    """Store a new note in a notebook."""
    taken = {said(row, "id") for row in rows(phone, NOTES)}
    id = next(id for number in range(1, len(taken) + 2) if (id := f"{number:032x}") not in taken)
    return _put(phone, (*rows(phone, NOTES), _written(phone, {**values, "id": id, "parent_id": folder})))


def change_note(phone: Phone, id: str, **values: Scalar) -> Phone:
    """Change columns of a note."""
    changed = {**values, "updated_time": phone.now_ms, "user_updated_time": phone.now_ms}
    return _put(phone, tuple({**row, **changed} if row["id"] == id else row for row in rows(phone, NOTES)))


def remove_note(phone: Phone, id: str) -> Phone:
    """Delete a note."""
    return _put(phone, tuple(row for row in rows(phone, NOTES) if row["id"] != id))


def said(row: Row, name: str) -> str:
    """One of a row's texts; empty when there is none."""
    return str(row[name] or "")


def is_todo(row: Row) -> bool:
    """Whether a note is a to-do."""
    return whole(row["is_todo"]) != 0


def _written(phone: Phone, values: Row) -> Row:
    times = dict.fromkeys(("created_time", "updated_time", "user_created_time", "user_updated_time"), phone.now_ms)
    return {**_BLANK_NOTE, "markup_language": 1, **times, **values}


def _put(phone: Phone, content: tuple[Row, ...]) -> Phone:
    """Store the notes, and what the search is kept in: the same with titles in lower case."""
    names = [name for name, _ in NORMALIZED.columns]
    lowered = tuple({**{name: row[name] for name in names}, "title": said(row, "title").casefold()} for row in content)
    return replace(phone, rows={**phone.rows, (_PATH, NOTES.name): content, (_PATH, NORMALIZED.name): lowered})
