"""Markor's editor: a note as plain text."""

from __future__ import annotations

from collab.envs.phone.state import Page, Phone, push, recall, remember, toast
from collab.envs.phone.storage import is_file, is_folder, name_of, read, write
from collab.envs.phone.widgets import View, icon, text_field

PACKAGE = "net.gsantner.markor"
_ID = PACKAGE + ":id/"


def editor(phone: Phone, page: Page) -> View:
    """A note as text; it is stored by Save, and when the editor goes out of sight."""
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
    """Whether a note has been opened in the editor."""
    return path in recall(phone, PACKAGE, "recents", ())


def _save(phone: Phone) -> Phone:
    path, content = str(phone.page.data["path"]), phone.page.fields.get("content", "")
    unchanged = is_file(phone, path) and read(phone, path) == content
    return phone if unchanged or is_folder(phone, path) else write(phone, path, content)


def _save_by_hand(phone: Phone) -> Phone:
    saved = _save(phone)
    return phone if saved is phone else toast(saved, "Saved")
