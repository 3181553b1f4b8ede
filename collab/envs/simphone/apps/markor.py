"""Markor: a notebook of plain files, with folders, an editor, and a selection mode to rename, move and delete.

Markor's dialogs: a new note or folder, a new name, moving and deleting.

Markor's editor: a note as plain text.

Where Markor keeps its notes: plain files in one folder of the shared storage.
"""

from __future__ import annotations

import datetime
import random
from functools import partial

from collab.envs.simphone.app import (
    App,
    Item,
    UiNode,
    View,
    button,
    icon,
    item,
    list_selected,
    radio,
    select,
    spinner,
    text,
    text_field,
    toggle,
    unselect,
)
from collab.envs.simphone.content.pools import SENTENCES, draw_note_name
from collab.envs.simphone.state import (
    ROOT,
    Page,
    Phone,
    delete,
    edit_page,
    find_folder,
    is_file,
    is_folder,
    keep,
    list_children,
    make_folder,
    move,
    name_of,
    pop,
    push,
    put_field,
    read,
    recall,
    remember,
    toast,
    write,
)

PACKAGE = "net.gsantner.markor"
_ID = PACKAGE + ":id/"


def editor(phone: Phone, page: Page) -> View:
    """Show a note as text; it is stored by Save, and when the editor goes out of sight."""
    path = str(page.data["path"])
    return View(
        title=name_of(path),
        body=[text_field(page, "content", "Note", _ID + "document__edit", multiline=True)],
        actions=(icon("Save", _ID + "action_save", _save_by_hand),),
        leave=_save,
    )


def open_note(phone: Phone, path: str) -> Phone:
    """Open a note in the editor; Markor remembers which notes were opened."""
    recents = tuple(one for one in recall(phone, PACKAGE, "recents", ()) if one != path)
    phone = remember(phone, PACKAGE, recents=(path, *recents))
    return push(phone, Page(screen="markor.editor", data={"path": path}, fields={"content": read(phone, path)}))


def was_opened(phone: Phone, path: str) -> bool:
    """Return whether a note has been opened in the editor."""
    return path in recall(phone, PACKAGE, "recents", ())


def _save(phone: Phone) -> Phone:
    path, content = str(phone.page.data["path"]), phone.page.fields.get("content", "")
    unchanged = is_file(phone, path) and read(phone, path) == content
    return phone if unchanged or is_folder(phone, path) else write(phone, path, content)


def _save_by_hand(phone: Phone) -> Phone:
    saved = _save(phone)
    return phone if saved is phone else toast(saved, "Saved")


MARKOR = f"{ROOT}/Documents/Markor"
"""Markor's notebook folder."""


def note_files(phone: Phone) -> dict[str, int]:
    """Return regular files directly in the notebook: path → time of the last change in milliseconds."""
    return {path: entry.changed_ms for path, entry in list_children(phone, MARKOR) if entry.content is not None}


_TYPES = {"Markdown": ".md", "Plain text": ".txt"}


def entry_key(path: str) -> str:
    """Return the key of a note or folder in a list."""
    return f"{_ID}item{path.removeprefix(MARKOR)}"


# ---------------------------------------------------------------------------------------------------- new entries


def new_dialog(phone: Phone, page: Page) -> View:
    """Name and extension of a new note, or the name of a new folder."""
    extension = page.fields.get("extension", "")
    kind = next((name for name, suffix in _TYPES.items() if suffix == extension), "Other")
    return View(
        title="New file or folder",
        style="dialog",
        body=[
            text_field(page, "name", "Name", _ID + "new_file_dialog__name"),
            text_field(page, "extension", "File extension", _ID + "new_file_dialog__ext"),
            spinner("Type", _ID + "new_file_dialog__type", kind, partial(push, page=Page(screen="markor.type"))),
        ],
        actions=(
            button("Folder", _ID + "new_file_dialog__folder", _create_folder),
            button("Cancel", _ID + "new_file_dialog__cancel", pop),
            button("OK", _ID + "new_file_dialog__ok", _create_note),
        ),
    )


def type_menu(phone: Phone, page: Page) -> View:
    """Show kinds of notes; a choice sets the extension."""
    body: list[Item] = [
        item(name, f"{_ID}type/{suffix}", partial(_set_type, suffix=suffix)) for name, suffix in _TYPES.items()
    ]
    return View(title="Type", style="menu", body=body)


def _set_type(phone: Phone, suffix: str) -> Phone:
    return put_field(pop(phone), "extension", suffix)


def new(phone: Phone, folder: str) -> Phone:
    """Ask for the name of something new."""
    page = Page(screen="markor.new", data={"folder": folder}, fields={"extension": ".md"}, focus="name")
    return push(phone, page)


def _create_note(phone: Phone) -> Phone:
    page = phone.page
    name = page.fields.get("name", "").strip()
    path = f"{page.data['folder']}/{name}{page.fields.get('extension', '').strip()}"
    problem = _find_problem(phone, name, path)
    if problem:
        return toast(phone, problem)
    return open_note(pop(write(phone, path, "")), path)


def _create_folder(phone: Phone) -> Phone:
    name = phone.page.fields.get("name", "").strip()
    path = f"{phone.page.data['folder']}/{name}"
    problem = _find_problem(phone, name, path)
    return toast(phone, problem) if problem else pop(make_folder(phone, path))


def _find_problem(phone: Phone, name: str, path: str) -> str | None:
    if not name or "/" in path.removeprefix(find_folder(path) + "/") or "/" in name or name in (".", ".."):
        return "Enter a valid name"
    return "There is already a file or folder with this name" if path in phone.files else None


# ------------------------------------------------------------------------------------------- rename, move, delete


def rename_dialog(phone: Phone, page: Page) -> View:
    """Ask for the new name of a note or folder, extension included."""
    return View(
        title="Rename",
        style="dialog",
        body=[text_field(page, "name", "New name", _ID + "rename__name", enter=_rename)],
        actions=(button("Cancel", _ID + "rename__cancel", pop), button("OK", _ID + "rename__ok", _rename)),
    )


def ask_rename(phone: Phone, path: str) -> Phone:
    """Ask for a new name."""
    page = Page(screen="markor.rename", data={"path": path}, fields={"name": name_of(path)}, focus="name")
    return push(phone, page)


def _rename(phone: Phone) -> Phone:
    path, name = str(phone.page.data["path"]), phone.page.fields.get("name", "").strip()
    target = f"{find_folder(path)}/{name}"
    if target == path:
        return unselect(pop(phone))
    problem = _find_problem(phone, name, target)
    return toast(phone, problem) if problem else unselect(pop(move(phone, path, target)))


def delete_dialog(phone: Phone, page: Page) -> View:
    """Show the question before notes are deleted; it names them."""
    paths: tuple[str, ...] = page.data["paths"]
    return View(
        title="Confirm delete",
        style="dialog",
        body=[text("\n".join(name_of(path) for path in paths), _ID + "message")],
        actions=(button("Cancel", _ID + "delete__cancel", pop), button("OK", _ID + "delete__ok", _delete)),
    )


def ask_delete(phone: Phone, paths: tuple[str, ...]) -> Phone:
    """Ask before deleting."""
    return push(phone, Page(screen="markor.delete", data={"paths": paths}))


def _delete(phone: Phone) -> Phone:
    paths: tuple[str, ...] = phone.page.data["paths"]
    for path in paths:
        phone = delete(phone, path)
    return unselect(pop(phone))


def move_dialog(phone: Phone, page: Page) -> View:
    """Ask for the folder to move to: walk there, then confirm."""
    folder = str(page.data["folder"])
    body: list[Item] = [
        item(name_of(path), entry_key(path), partial(_walk, folder=path))
        for path, entry in list_children(phone, folder)
        if entry.content is None
    ]
    if folder != MARKOR:
        body.insert(0, item("..", _ID + "parent", partial(_walk, folder=find_folder(folder))))
    if not body:
        body.append(text("No folders here", _ID + "empty"))
    return View(
        title=f"Move to: {'Markor' if folder == MARKOR else name_of(folder)}",
        style="dialog",
        body=body,
        actions=(button("Cancel", _ID + "move__cancel", pop), button("OK", _ID + "move__ok", _move)),
    )


def ask_move(phone: Phone, folder: str, paths: tuple[str, ...]) -> Phone:
    """Ask where to move."""
    return push(phone, Page(screen="markor.move", data={"folder": folder, "paths": paths}))


def _walk(phone: Phone, folder: str) -> Phone:
    return edit_page(keep(phone, folder=folder), scroll=0)


def _move(phone: Phone) -> Phone:
    folder, paths = str(phone.page.data["folder"]), phone.page.data["paths"]
    moved = phone
    for path in paths:
        moved = move(moved, path, f"{folder}/{name_of(path)}")
    return toast(phone, "Could not move") if moved is phone else unselect(pop(moved))


_ORDERS = {"name": "Name", "date": "Date, newest first"}


# ------------------------------------------------------------------------------------------------------- the list


def note_list(phone: Phone, page: Page) -> View:
    """Show one folder; a long press starts the selection."""
    folder = str(page.data["folder"])
    selected = list_selected(page)
    entries = _sort_entries(phone, folder)
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


def _sort_entries(phone: Phone, folder: str) -> list[str]:
    entries = list_children(phone, folder)
    if recall(phone, PACKAGE, "order", "name") == "date":
        entries = sorted(entries, key=lambda pair: (pair[1].content is not None, -pair[1].changed_ms))
    return [path for path, _ in entries]


def _entry(phone: Phone, path: str, selected: bool, selecting: bool) -> UiNode:
    folder = is_folder(phone, path)
    when = datetime.datetime.fromtimestamp(phone.files[path].changed_ms / 1000, tz=datetime.UTC)
    choose = partial(toggle, name=path)
    tap = choose if selecting else partial(_enter if folder else open_note, path=path)
    value = "Folder" if folder else f"{when:%Y-%m-%d %H:%M}"
    return item(name_of(path), entry_key(path), tap, value=value, hold=choose, selected=selected)


def _selection_actions(folder: str, paths: tuple[str, ...]) -> tuple[UiNode, ...]:
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
    return select(phone, tuple(_sort_entries(phone, folder)))


def sort_menu(phone: Phone, page: Page) -> View:
    """Show the order of the list."""
    now = recall(phone, PACKAGE, "order", "name")
    body: list[Item] = [
        radio(label, f"{_ID}sort/{order}", order == now, partial(_sort, order=order))
        for order, label in _ORDERS.items()
    ]
    return View(title="Sort by", style="menu", body=body)


def _sort(phone: Phone, order: str) -> Phone:
    return pop(remember(phone, PACKAGE, order=order))


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
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
    noise=_add_noise,
)
