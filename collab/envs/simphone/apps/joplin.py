"""Joplin: notes by notebook, one note, its form, and a search."""

from __future__ import annotations

import random
from functools import partial

from collab.envs.simphone.app import App, Item, Node, View, button, icon, item, row, text, text_field
from collab.envs.simphone.content.joplin import (
    FOLDERS,
    NORMALIZED,
    NOTES,
    add_note,
    change_note,
    find_notes,
    folders,
    is_todo,
    note,
    notes,
    put_library,
    remove_note,
    said,
)
from collab.envs.simphone.state import Page, Phone, Row, pop, push, rows, swap, toast, whole

PACKAGE = "net.cozic.joplin"
_ID = PACKAGE + ":id/"
ALL = "all"
"""Stands for all notebooks."""


def entry_key(id: str) -> str:
    """Key of a note in a list."""
    return f"{_ID}note/{id}"


def folder_key(id: str) -> str:
    """Key of a notebook in the sidebar."""
    return f"{_ID}folder/{id}"


def line_key(number: int) -> str:
    """Key of a line of the note that is open."""
    return f"{_ID}body/{number}"


def note_list(phone: Phone, page: Page) -> View:
    """The notes of a notebook, or all."""
    shown = str(page.data["page"])
    title = next((said(one, "title") for one in folders(phone) if one["id"] == shown), "All notes")
    body: list[Item] = [_entry(one) for one in notes(phone, None if shown == ALL else shown)]
    new = partial(push, page=Page(screen="joplin.new", data={"folder": shown}))
    return View(
        title=title,
        body=body or [text("There are currently no notes.", _ID + "empty")],
        navigation=icon("Open navigation drawer", _ID + "sidebar", partial(push, page=Page(screen="joplin.sidebar"))),
        actions=(icon("Search", _ID + "search", partial(push, page=Page(screen="joplin.search", focus="words"))),),
        fab=icon("Add new", _ID + "add", new) if rows(phone, FOLDERS) else None,
    )


def sidebar(phone: Phone, page: Page) -> View:
    """All notebooks."""
    body: list[Item] = [item("All notes", folder_key(ALL), partial(_show, folder=ALL))]
    body += [
        item(said(one, "title"), folder_key(said(one, "id")), partial(_show, folder=said(one, "id")))
        for one in folders(phone)
    ]
    return View(title="Notebooks", body=body)


def search(phone: Phone, page: Page) -> View:
    """Notes that hold the words."""
    words = page.fields.get("words", "").strip()
    body: list[Item] = [text_field(page, "words", "Search", _ID + "words")]
    body += [_entry(one) for one in (find_notes(phone, words) if words else ())]
    return View(title="Search", body=body)


def detail(phone: Phone, page: Page) -> View:
    """One note, line by line."""
    one = note(phone, str(page.data["id"]))
    if one is None:
        return View(title="Note", body=[text("This note does not exist.", _ID + "missing")])
    id = said(one, "id")
    lines = said(one, "body").split("\n")
    body: list[Item] = [text(words, line_key(number)) for number, words in enumerate(lines) if words.strip()]
    if is_todo(one):
        body.insert(0, _box(one))
    return View(
        title=said(one, "title"),
        body=body,
        actions=(
            icon("Edit", _ID + "edit", partial(_edit, one=one)),
            icon("Delete", _ID + "delete", partial(push, page=Page(screen="joplin.delete", data={"id": id}))),
        ),
    )


def delete(phone: Phone, page: Page) -> View:
    """The question before a note is deleted."""
    ok = button("OK", _ID + "ok", partial(_delete, id=str(page.data["id"])))
    return View(
        title="Delete note?",
        style="dialog",
        body=[text("It will be gone for good.", _ID + "message")],
        actions=(button("Cancel", _ID + "cancel", pop), ok),
    )


def new(phone: Phone, page: Page) -> View:
    """What to add."""
    choices = {"New note": 0, "New to-do": 1}
    body: list[Item] = [
        item(name, f"{_ID}new/{todo}", partial(_create, folder=str(page.data["folder"]), todo=todo))
        for name, todo in choices.items()
    ]
    return View(title="Add new", style="menu", body=body)


def editor(phone: Phone, page: Page) -> View:
    """The form of a new or an existing note; nothing is stored before Save."""
    return View(
        title="To-do" if page.data["todo"] else "Note",
        body=[
            text_field(page, "title", "Title", _ID + "title"),
            text_field(page, "body", "Body", _ID + "body", multiline=True),
        ],
        actions=(icon("Save", _ID + "save", _save),),
    )


def _entry(one: Row) -> Item:
    entry = item(said(one, "title"), entry_key(said(one, "id")), partial(_open, id=said(one, "id")))
    return row(entry, _box(one)) if is_todo(one) else entry


def _box(one: Row) -> Node:
    done = whole(one["todo_completed"]) != 0
    tap = partial(_check, id=said(one, "id"), done=not done)
    return Node(
        "checkbox", f"To-do {said(one, 'title')}", f"{_ID}todo/{said(one, 'id')}", None, ("checked",) * done, tap
    )


def _check(phone: Phone, id: str, done: bool) -> Phone:
    return change_note(phone, id, todo_completed=phone.now_ms if done else 0)


def _show(phone: Phone, folder: str) -> Phone:
    """The notebook's notes, in place of those that were shown."""
    return swap(phone, Page(screen="joplin.list", data={"page": folder}), closing=2)


def _open(phone: Phone, id: str) -> Phone:
    return push(phone, Page(screen="joplin.note", data={"id": id}))


def _edit(phone: Phone, one: Row) -> Phone:
    data = {"id": said(one, "id"), "folder": said(one, "parent_id"), "todo": int(is_todo(one))}
    fields = {name: said(one, name) for name in ("title", "body")}
    return push(phone, Page(screen="joplin.editor", data=data, fields=fields))


def _create(phone: Phone, folder: str, todo: int) -> Phone:
    """The form; a note without a notebook goes into the first one."""
    parent = said(folders(phone)[0], "id") if folder == ALL else folder
    return swap(phone, Page(screen="joplin.editor", data={"id": None, "folder": parent, "todo": todo}, focus="title"))


def _save(phone: Phone) -> Phone:
    page = phone.page
    values = {"title": page.fields.get("title", "").strip() or "Untitled", "body": page.fields.get("body", "").rstrip()}
    if page.data["id"] is None:
        return pop(add_note(phone, str(page.data["folder"]), **values, is_todo=int(page.data["todo"])))
    return pop(change_note(phone, str(page.data["id"]), **values))


def _delete(phone: Phone, id: str) -> Phone:
    return toast(pop(remove_note(phone, id), count=2), "Note deleted")


def _noise(phone: Phone, rng: random.Random) -> Phone:
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
    noise=_noise,
)
