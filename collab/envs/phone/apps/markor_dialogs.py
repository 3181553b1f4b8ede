"""Markor's dialogs: a new note or folder, a new name, moving and deleting."""

from __future__ import annotations

from functools import partial

from collab.envs.phone.apps.markor_editor import PACKAGE, open_note
from collab.envs.phone.notes import MARKOR
from collab.envs.phone.selection import unselect
from collab.envs.phone.state import Page, Phone, edit_page, keep, pop, push, put_field, toast
from collab.envs.phone.storage import children, delete, folder_of, make_folder, move, name_of, write
from collab.envs.phone.widgets import Item, View, button, item, spinner, text, text_field

_ID = PACKAGE + ":id/"
_TYPES = {"Markdown": ".md", "Plain text": ".txt"}


def entry_key(path: str) -> str:
    """Key of a note or folder in a list."""
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
    """Kinds of notes; a choice sets the extension."""
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
    problem = _problem(phone, name, path)
    if problem:
        return toast(phone, problem)
    return open_note(pop(write(phone, path, "")), path)


def _create_folder(phone: Phone) -> Phone:
    name = phone.page.fields.get("name", "").strip()
    path = f"{phone.page.data['folder']}/{name}"
    problem = _problem(phone, name, path)
    return toast(phone, problem) if problem else pop(make_folder(phone, path))


def _problem(phone: Phone, name: str, path: str) -> str | None:
    if not name or "/" in path.removeprefix(folder_of(path) + "/") or "/" in name or name in (".", ".."):
        return "Enter a valid name"
    return "There is already a file or folder with this name" if path in phone.files else None


# ------------------------------------------------------------------------------------------- rename, move, delete


def rename_dialog(phone: Phone, page: Page) -> View:
    """The new name of a note or folder, extension included."""
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
    target = f"{folder_of(path)}/{name}"
    if target == path:
        return unselect(pop(phone))
    problem = _problem(phone, name, target)
    return toast(phone, problem) if problem else unselect(pop(move(phone, path, target)))


def delete_dialog(phone: Phone, page: Page) -> View:
    """The question before notes are deleted; it names them."""
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
    """The folder to move to: walk there, then confirm."""
    folder = str(page.data["folder"])
    body: list[Item] = [
        item(name_of(path), entry_key(path), partial(_walk, folder=path))
        for path, entry in children(phone, folder)
        if entry.content is None
    ]
    if folder != MARKOR:
        body.insert(0, item("..", _ID + "parent", partial(_walk, folder=folder_of(folder))))
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
