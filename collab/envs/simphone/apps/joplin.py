"""Joplin: notes by notebook, one note, its form, and a search.

Joplin's notes and notebooks, in the app's own database, with the table its search is kept in.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from collab.envs.simphone.app import App, Item, UiNode, View, button, icon, item, row, text, text_field
from collab.envs.simphone.state import Page, Phone, Table, TableRow, pop, push, rows, swap, to_whole, toast
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


def _make_blank(table: Table) -> TableRow:
    return MappingProxyType({name: "" if kind.startswith("TEXT") else 0 for name, kind in table.columns})


_BLANK_NOTE, _BLANK_FOLDER = _make_blank(NOTES), _make_blank(FOLDERS)


def list_folders(phone: Phone) -> list[TableRow]:
    """Return all notebooks by title."""
    return sorted(rows(phone, FOLDERS), key=lambda row: (read_text(row, "title").casefold(), read_text(row, "id")))


def list_notes(phone: Phone, folder: str | None = None) -> list[TableRow]:
    """Return the notes of a notebook, or all when it is None, by title."""
    found = [row for row in rows(phone, NOTES) if folder is None or row["parent_id"] == folder]
    return sorted(found, key=lambda row: (read_text(row, "title").casefold(), read_text(row, "id")))


def note(phone: Phone, id: str) -> TableRow | None:
    """Return a note by its id."""
    return next((row for row in rows(phone, NOTES) if row["id"] == id), None)


def find_notes(phone: Phone, wanted: str) -> list[TableRow]:
    """Return notes with these words in title or body, those with them in the title first."""
    words = wanted.casefold()
    found = [
        row for row in list_notes(phone) if any(words in read_text(row, name).casefold() for name in ("title", "body"))
    ]
    return sorted(found, key=lambda row: words not in read_text(row, "title").casefold())


def put_library(phone: Phone, records: Iterable[tuple[str, TableRow]]) -> Phone:
    """Replace everything by (title of the notebook, columns of a note), in this order."""
    keys: dict[str, str] = {}
    written = []
    for number, (folder, record) in enumerate(records, 1):
        parent = keys.setdefault(folder, f"{len(keys) + 1:032x}")
        written.append(_build_note(phone, {**record, "id": f"{number:032x}", "parent_id": parent}))
    titled = tuple(
        {**_BLANK_FOLDER, "id": key, "title": title, "created_time": phone.now_ms} for title, key in keys.items()
    )
    return _put(replace(phone, rows={**phone.rows, (_PATH, FOLDERS.name): titled}), tuple(written))


def add_note(phone: Phone, folder: str, **values: Scalar) -> Phone:
    """Store a new note in a notebook."""
    taken = {read_text(row, "id") for row in rows(phone, NOTES)}
    id = next(id for number in range(1, len(taken) + 2) if (id := f"{number:032x}") not in taken)
    return _put(phone, (*rows(phone, NOTES), _build_note(phone, {**values, "id": id, "parent_id": folder})))


def change_note(phone: Phone, id: str, **values: Scalar) -> Phone:
    """Change columns of a note."""
    changed = {**values, "updated_time": phone.now_ms, "user_updated_time": phone.now_ms}
    return _put(phone, tuple({**row, **changed} if row["id"] == id else row for row in rows(phone, NOTES)))


def remove_note(phone: Phone, id: str) -> Phone:
    """Delete a note."""
    return _put(phone, tuple(row for row in rows(phone, NOTES) if row["id"] != id))


def read_text(row: TableRow, name: str) -> str:
    """Return one of a row's texts; empty when there is none."""
    return str(row[name] or "")


def is_todo(row: TableRow) -> bool:
    """Return whether a note is a to-do."""
    return to_whole(row["is_todo"]) != 0


def _build_note(phone: Phone, values: TableRow) -> TableRow:
    times = dict.fromkeys(("created_time", "updated_time", "user_created_time", "user_updated_time"), phone.now_ms)
    return {**_BLANK_NOTE, "markup_language": 1, **times, **values}


def _put(phone: Phone, content: tuple[TableRow, ...]) -> Phone:
    """Store the notes, and what the search is kept in: the same with titles in lower case."""
    names = [name for name, _ in NORMALIZED.columns]
    lowered = tuple(
        {**{name: row[name] for name in names}, "title": read_text(row, "title").casefold()} for row in content
    )
    return replace(phone, rows={**phone.rows, (_PATH, NOTES.name): content, (_PATH, NORMALIZED.name): lowered})


PACKAGE = "net.cozic.joplin"
_ID = PACKAGE + ":id/"
ALL = "all"
"""Stands for all notebooks."""


def entry_key(id: str) -> str:
    """Return the key of a note in a list."""
    return f"{_ID}note/{id}"


def folder_key(id: str) -> str:
    """Return the key of a notebook in the sidebar."""
    return f"{_ID}folder/{id}"


def line_key(number: int) -> str:
    """Return the key of a line of the note that is open."""
    return f"{_ID}body/{number}"


def note_list(phone: Phone, page: Page) -> View:
    """Show the notes of a notebook, or all."""
    shown = str(page.data["page"])
    title = next((read_text(one, "title") for one in list_folders(phone) if one["id"] == shown), "All notes")
    body: list[Item] = [_entry(one) for one in list_notes(phone, None if shown == ALL else shown)]
    new = partial(push, page=Page(screen="joplin.new", data={"folder": shown}))
    return View(
        title=title,
        body=body or [text("There are currently no notes.", _ID + "empty")],
        navigation=icon("Open navigation drawer", _ID + "sidebar", partial(push, page=Page(screen="joplin.sidebar"))),
        actions=(icon("Search", _ID + "search", partial(push, page=Page(screen="joplin.search", focus="words"))),),
        fab=icon("Add new", _ID + "add", new) if rows(phone, FOLDERS) else None,
    )


def sidebar(phone: Phone, page: Page) -> View:
    """Show all notebooks."""
    body: list[Item] = [item("All notes", folder_key(ALL), partial(_show, folder=ALL))]
    body += [
        item(read_text(one, "title"), folder_key(read_text(one, "id")), partial(_show, folder=read_text(one, "id")))
        for one in list_folders(phone)
    ]
    return View(title="Notebooks", body=body)


def search(phone: Phone, page: Page) -> View:
    """Show notes that hold the words."""
    words = page.fields.get("words", "").strip()
    body: list[Item] = [text_field(page, "words", "Search", _ID + "words")]
    body += [_entry(one) for one in (find_notes(phone, words) if words else ())]
    return View(title="Search", body=body)


def detail(phone: Phone, page: Page) -> View:
    """Show one note, line by line."""
    one = note(phone, str(page.data["id"]))
    if one is None:
        return View(title="Note", body=[text("This note does not exist.", _ID + "missing")])
    id = read_text(one, "id")
    lines = read_text(one, "body").split("\n")
    # Line by line, so that an agent can point at one of them.
    body: list[Item] = [text(words, line_key(number)) for number, words in enumerate(lines) if words.strip()]
    if is_todo(one):
        body.insert(0, _box(one))
    return View(
        title=read_text(one, "title"),
        body=body,
        actions=(
            icon("Edit", _ID + "edit", partial(_edit, one=one)),
            icon("Delete", _ID + "delete", partial(push, page=Page(screen="joplin.delete", data={"id": id}))),
        ),
    )


def delete(phone: Phone, page: Page) -> View:
    """Show the question before a note is deleted."""
    ok = button("OK", _ID + "ok", partial(_delete, id=str(page.data["id"])))
    return View(
        title="Delete note?",
        style="dialog",
        body=[text("It will be gone for good.", _ID + "message")],
        actions=(button("Cancel", _ID + "cancel", pop), ok),
    )


def new(phone: Phone, page: Page) -> View:
    """Show what to add."""
    choices = {"New note": 0, "New to-do": 1}
    body: list[Item] = [
        item(name, f"{_ID}new/{todo}", partial(_create, folder=str(page.data["folder"]), todo=todo))
        for name, todo in choices.items()
    ]
    return View(title="Add new", style="menu", body=body)


def editor(phone: Phone, page: Page) -> View:
    """Show the form of a new or an existing note; nothing is stored before Save."""
    return View(
        title="To-do" if page.data["todo"] else "Note",
        body=[
            text_field(page, "title", "Title", _ID + "title"),
            text_field(page, "body", "Body", _ID + "body", multiline=True),
        ],
        actions=(icon("Save", _ID + "save", _save),),
    )


def _entry(one: TableRow) -> Item:
    entry = item(read_text(one, "title"), entry_key(read_text(one, "id")), partial(_open, id=read_text(one, "id")))
    return row(entry, _box(one)) if is_todo(one) else entry


def _box(one: TableRow) -> UiNode:
    done = to_whole(one["todo_completed"]) != 0
    tap = partial(_check, id=read_text(one, "id"), done=not done)
    return UiNode(
        "checkbox",
        f"To-do {read_text(one, 'title')}",
        f"{_ID}todo/{read_text(one, 'id')}",
        None,
        ("checked",) * done,
        tap,
    )


def _check(phone: Phone, id: str, done: bool) -> Phone:
    return change_note(phone, id, todo_completed=phone.now_ms if done else 0)


def _show(phone: Phone, folder: str) -> Phone:
    """Show the notebook's notes in place of those that were shown."""
    return swap(phone, Page(screen="joplin.list", data={"page": folder}), closing=2)


def _open(phone: Phone, id: str) -> Phone:
    return push(phone, Page(screen="joplin.note", data={"id": id}))


def _edit(phone: Phone, one: TableRow) -> Phone:
    data = {"id": read_text(one, "id"), "folder": read_text(one, "parent_id"), "todo": int(is_todo(one))}
    fields = {name: read_text(one, name) for name in ("title", "body")}
    return push(phone, Page(screen="joplin.editor", data=data, fields=fields))


def _create(phone: Phone, folder: str, todo: int) -> Phone:
    """Open the form; a note without a notebook goes into the first one."""
    parent = read_text(list_folders(phone)[0], "id") if folder == ALL else folder
    return swap(phone, Page(screen="joplin.editor", data={"id": None, "folder": parent, "todo": todo}, focus="title"))


def _save(phone: Phone) -> Phone:
    page = phone.page
    values = {"title": page.fields.get("title", "").strip() or "Untitled", "body": page.fields.get("body", "").rstrip()}
    if page.data["id"] is None:
        return pop(add_note(phone, str(page.data["folder"]), **values, is_todo=int(page.data["todo"])))
    return pop(change_note(phone, str(page.data["id"]), **values))


def _delete(phone: Phone, id: str) -> Phone:
    return toast(pop(remove_note(phone, id), count=2), "Note deleted")


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
    titles = rng.sample(("Welcome", "Wi-Fi at the cabin", "Shoe sizes", "Bus times", "Films to see"), rng.randint(1, 4))
    return put_library(phone, [("My notebook", {"title": title, "body": "To be written."}) for title in titles])


APP = App(
    package=PACKAGE,
    names=("Joplin", "Joplin Notes"),
    activity=".MainActivity",
    pages=(Page(screen="joplin.list", data={"page": ALL}),),
    screens={
        "joplin.list": note_list,
        "joplin.sidebar": sidebar,
        "joplin.search": search,
        "joplin.note": detail,
        "joplin.delete": delete,
        "joplin.new": new,
        "joplin.editor": editor,
    },
    tables=(FOLDERS, NOTES, NORMALIZED),
    noise=_add_noise,
)
