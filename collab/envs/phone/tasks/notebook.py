"""What the Markor tasks share: walking the notebook, creating notes, and notes that are only noise."""

from __future__ import annotations

import random

from collab.envs.phone.apps.markor_dialogs import entry_key
from collab.envs.phone.apps.markor_editor import PACKAGE
from collab.envs.phone.notes import MARKOR
from collab.envs.phone.pools import NOTE_TITLES, SENTENCES, draw_variant, draw_word
from collab.envs.phone.screen import Frame
from collab.envs.phone.selection import chosen
from collab.envs.phone.state import Phone
from collab.envs.phone.storage import delete, folder_of, is_file, make_folder, read, write
from collab.envs.phone.tasks import plans
from collab.envs.phone.tasks.spec import Params, Score, similar
from collab.types import Action

_ID = PACKAGE + ":id/"
_MINUTE_MS = 60_000
TITLES = tuple(f"{title}.md" for title in NOTE_TITLES)
"""Names of notes that no task asks about."""


def note(params: Params, name: str = "file_name") -> str:
    """Path of the note that a parameter names."""
    return f"{MARKOR}/{params[name]}"


def to_folder(frame: Frame, folder: str, *, keep_selection: bool = False) -> Action | None:
    """Walk to a folder's list; an editor is left by the arrow, which stores the note."""
    if not plans.in_app(frame, PACKAGE):
        return plans.open_app("Markor")
    if frame.page.screen == "markor.editor":
        return plans.aim(frame, "android:id/up")
    if frame.page.screen != "markor.list":
        return plans.back()
    if chosen(frame.page) and not keep_selection:
        return plans.back()
    here = str(frame.page.data["folder"])
    if here == folder:
        return None
    if not folder.startswith(here + "/"):
        return plans.back()
    child = folder[len(here) + 1 :].partition("/")[0]
    return plans.aim(frame, entry_key(f"{here}/{child}"))


def open_note(frame: Frame, path: str) -> Action | None:
    """Get the note into the editor; None when it is there."""
    if plans.in_app(frame, PACKAGE) and frame.page.screen == "markor.editor" and frame.page.data["path"] == path:
        return None
    if not is_file(frame.phone, path):
        raise plans.Lost(f"{path} does not exist any more")
    return to_folder(frame, folder_of(path)) or plans.aim(frame, entry_key(path))


def select(frame: Frame, path: str) -> Action | None:
    """Select exactly one entry of its folder; None when it is selected."""
    on_list = plans.in_app(frame, PACKAGE) and frame.page.screen == "markor.list"
    if on_list and chosen(frame.page) == (path,):
        return None
    if path not in frame.phone.files:
        raise plans.Lost(f"{path} does not exist any more")
    return to_folder(frame, folder_of(path)) or plans.aim(frame, entry_key(path), "long_press")


def _create(frame: Frame, path: str) -> Action:
    """Create a note by the dialog; a name without extension needs the field for it cut empty."""
    if frame.page.screen == "system.text_menu" and frame.page.data["field"] == "extension":
        return plans.aim(frame, "android:id/cut")
    if not (frame.page.screen == "markor.new" and frame.page.data["folder"] == MARKOR):
        return to_folder(frame, MARKOR) or plans.aim(frame, _ID + "fab_add_new_item")
    stem, dot, extension = path[len(MARKOR) + 1 :].rpartition(".") if "." in path else (path[len(MARKOR) + 1 :], "", "")
    step = plans.fill(frame, _ID + "new_file_dialog__name", stem)
    if step is None and dot:
        step = plans.fill(frame, _ID + "new_file_dialog__ext", f".{extension}")
    elif step is None and frame.page.fields.get("extension"):
        step = plans.aim(frame, _ID + "new_file_dialog__ext", "long_press")
    return step or plans.aim(frame, _ID + "new_file_dialog__ok")


def create_with(frame: Frame, path: str, content: str | None) -> Action:
    """Create a note and store `content` in it; None pastes the clipboard."""
    if not is_file(frame.phone, path):
        return _create(frame, path)
    if frame.page.screen == "system.text_menu" and content is None:
        text = str(frame.page.data["text"]).rstrip("\n")
        return plans.aim(frame, "android:id/cut" if text else "android:id/paste")
    if frame.page.screen == "system.text_menu":
        return plans.aim(frame, "android:id/done")
    step = open_note(frame, path)
    if step is None:
        key = _ID + "document__edit"
        step = plans.paste(frame, key) if content is None else plans.fill(frame, key, content)
    return step or plans.aim(frame, _ID + "action_save")


def empty(phone: Phone) -> Phone:
    """A phone whose notebook is empty."""
    return make_folder(delete(phone, MARKOR), MARKOR)


def noise(phone: Phone, rng: random.Random, folder: str, base: str, count: int) -> Phone:
    """`count` notes whose names look like other notes, and sometimes like the one the task is about."""
    names = set[str]()
    while len(names) < count:
        name = draw_variant(rng, rng.choice(TITLES) if rng.random() < 0.85 else base)
        names.add(name if "." in name else f"{name}.md")
    for name in sorted(names - {base}):
        when = phone.now_ms - rng.randint(60, 40_000) * _MINUTE_MS
        phone = write(phone, f"{folder}/{name}", draw_word(rng, 20) + "\n", changed_ms=when)
    return phone


def prepare_note(phone: Phone, params: Params, rng: random.Random, *, name: str, content: str | None) -> Phone:
    """One note among noise; its content is a parameter, or drawn."""
    text = rng.choice(SENTENCES) if content is None else str(params[content])
    phone = write(empty(phone), note(params, name), text + "\n")
    return noise(phone, rng, MARKOR, str(params[name]), count=rng.randint(1, 20))


def text_of(phone: Phone, path: str) -> str:
    """Text of a note as AndroidWorld reads it: without carriage returns, and without blanks at both ends."""
    return unix(read(phone, path)).strip()


def unix(text: str) -> str:
    """A text without carriage returns."""
    return text.replace("\r", "")


def holds(name: str, text: str) -> Score:
    """Score of a note that exists under params[name] with content similar to params[text]."""

    def score(start: Phone, end: Phone, params: Params) -> float:
        path = note(params, name)
        return float(is_file(end, path) and similar(text_of(end, path), str(params[text])))

    return score
