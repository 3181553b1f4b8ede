"""Markor: a notebook of plain files, with folders, an editor, and a selection mode to rename, move and delete."""

from __future__ import annotations

import datetime
import random
from functools import partial

from collab.envs.phone.app import App
from collab.envs.phone.apps.markor_dialogs import (
    ask_delete,
    ask_move,
    ask_rename,
    delete_dialog,
    entry_key,
    move_dialog,
    new,
    new_dialog,
    rename_dialog,
    type_menu,
)
from collab.envs.phone.apps.markor_editor import PACKAGE, editor, open_note
from collab.envs.phone.notes import MARKOR
from collab.envs.phone.pools import SENTENCES, draw_note_name
from collab.envs.phone.selection import chosen, select, toggle, unselect
from collab.envs.phone.state import Page, Phone, pop, push, recall, remember
from collab.envs.phone.storage import children, is_folder, name_of, write
from collab.envs.phone.widgets import Item, Node, View, icon, item, radio, text

_ID = PACKAGE + ":id/"
_ORDERS = {"name": "Name", "date": "Date, newest first"}


# ------------------------------------------------------------------------------------------------------- the list


def note_list(phone: Phone, page: Page) -> View:
    """One folder; a long press starts the selection."""
    folder = str(page.data["folder"])
    selected = chosen(page)
    entries = _ordered(phone, folder)
    body: list[Item] = [_entry(phone, path, path in selected, bool(selected)) for path in entries]
    if not body:
        body = [text("This folder is empty", _ID + "empty")]
    if selected:
        return View(
            title=f"{len(selected)} selected",
            body=body,
            actions=_selection_actions(folder, selected),
            navigation=icon("Done", _ID + "action_mode_close", unselect),
            back=unselect,
        )
    return View(
        title="Markor" if folder == MARKOR else name_of(folder),
        body=body,
        actions=(icon("Sort by", _ID + "action_sort", partial(push, page=Page(screen="markor.sort"))),),
        fab=icon("Create a new file or folder", _ID + "fab_add_new_item", partial(new, folder=folder)),
    )


def _ordered(phone: Phone, folder: str) -> list[str]:
    entries = children(phone, folder)
    if recall(phone, PACKAGE, "order", "name") == "date":
        entries = sorted(entries, key=lambda pair: (pair[1].content is not None, -pair[1].changed_ms))
    return [path for path, _ in entries]


def _entry(phone: Phone, path: str, selected: bool, selecting: bool) -> Node:
    folder = is_folder(phone, path)
    when = datetime.datetime.fromtimestamp(phone.files[path].changed_ms / 1000, tz=datetime.UTC)
    choose = partial(toggle, name=path)
    tap = choose if selecting else partial(_enter if folder else open_note, path=path)
    value = "Folder" if folder else f"{when:%Y-%m-%d %H:%M}"
    return item(name_of(path), entry_key(path), tap, value=value, hold=choose, selected=selected)


def _selection_actions(folder: str, paths: tuple[str, ...]) -> tuple[Node, ...]:
    rename = icon("Rename", _ID + "action_rename", partial(ask_rename, path=paths[0]))
    return (
        *((rename,) if len(paths) == 1 else ()),
        icon("Select all", _ID + "action_select_all", partial(_select_all, folder=folder)),
        icon("Move", _ID + "action_move", partial(ask_move, folder=folder, paths=paths)),
        icon("Delete", _ID + "action_delete", partial(ask_delete, paths=paths)),
    )


def _enter(phone: Phone, path: str) -> Phone:
    return push(phone, Page(screen="markor.list", data={"folder": path}))


def _select_all(phone: Phone, folder: str) -> Phone:
    return select(phone, tuple(_ordered(phone, folder)))


def sort_menu(phone: Phone, page: Page) -> View:
    """The order of the list."""
    now = recall(phone, PACKAGE, "order", "name")
    body: list[Item] = [
        radio(label, f"{_ID}sort/{order}", order == now, partial(_sort, order=order))
        for order, label in _ORDERS.items()
    ]
    return View(title="Sort by", style="menu", body=body)


def _sort(phone: Phone, order: str) -> Phone:
    return pop(remember(phone, PACKAGE, order=order))


def _noise(phone: Phone, rng: random.Random) -> Phone:
    for _ in range(rng.randint(1, 3)):
        when = phone.now_ms - rng.randint(1, 60) * 86_400_000
        phone = write(phone, f"{MARKOR}/{draw_note_name(rng)}", rng.choice(SENTENCES) + "\n", changed_ms=when)
    return phone


APP = App(
    package=PACKAGE,
    names=("Markor",),
    activity=".activity.MainActivity",
    pages=(Page(screen="markor.list", data={"folder": MARKOR}),),
    screens={
        "markor.list": note_list,
        "markor.sort": sort_menu,
        "markor.new": new_dialog,
        "markor.type": type_menu,
        "markor.editor": editor,
        "markor.rename": rename_dialog,
        "markor.delete": delete_dialog,
        "markor.move": move_dialog,
    },
    noise=_noise,
)
