"""Markor tasks, writing: new notes, from text, from the clipboard, from other notes.

What the Markor tasks share: walking the notebook, creating notes, and notes that are only noise.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from collab.envs.simphone.app import list_selected
from collab.envs.simphone.apps.markor import MARKOR, PACKAGE, entry_key, was_opened
from collab.envs.simphone.apps.messages import PACKAGE as SMS_PACKAGE
from collab.envs.simphone.content.pools import (
    NOTE_TITLES,
    SENTENCES,
    draw_note_name,
    draw_number,
    draw_variant,
    draw_word,
)
from collab.envs.simphone.state import Phone, delete, find_folder, is_file, make_folder, read, write
from collab.envs.simphone.tasks import messages, plans
from collab.envs.simphone.tasks.spec import Params, ScoreFunction, TaskSpec, is_similar, make_phrasings
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"
_MINUTE_MS = 60_000
TITLES = tuple(f"{title}.md" for title in NOTE_TITLES)
"""Names of notes that no task asks about."""


def note(params: Params, name: str = "file_name") -> str:
    """Return the path of the note that a parameter names."""
    return f"{MARKOR}/{params[name]}"


def to_folder(frame: Frame, folder: str, *, keep_selection: bool = False) -> Action | None:
    """Walk to a folder's list; an editor is left by the arrow, which stores the note."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Markor")
    if frame.page.screen == "markor.editor":
        return plans.aim_at(frame, "android:id/up")
    if frame.page.screen != "markor.list":
        return plans.press_back()
    if list_selected(frame.page) and not keep_selection:
        return plans.press_back()
    return plans.enter_folder(frame, folder, entry_key)


def open_note(frame: Frame, path: str) -> Action | None:
    """Get the note into the editor; None when it is there."""
    if plans.is_in_app(frame, PACKAGE) and frame.page.screen == "markor.editor" and frame.page.data["path"] == path:
        return None
    if not is_file(frame.phone, path):
        raise plans.PlanError(f"{path} does not exist any more")
    return to_folder(frame, find_folder(path)) or plans.aim_at(frame, entry_key(path))


def select(frame: Frame, path: str) -> Action | None:
    """Select exactly one entry of its folder; None when it is selected."""
    return plans.select_file(frame, path, "markor.list", to_folder, entry_key)


def _create(frame: Frame, path: str) -> Action:
    """Create a note by the dialog; a name without extension needs the field for it cut empty."""
    if frame.page.screen == "system.text_menu" and frame.page.data["field"] == "extension":
        return plans.aim_at(frame, "android:id/cut")
    if not (frame.page.screen == "markor.new" and frame.page.data["folder"] == MARKOR):
        return to_folder(frame, MARKOR) or plans.aim_at(frame, _ID + "fab_add_new_item")
    stem, dot, extension = path[len(MARKOR) + 1 :].rpartition(".") if "." in path else (path[len(MARKOR) + 1 :], "", "")
    step = plans.fill(frame, _ID + "new_file_dialog__name", stem)
    if step is None and dot:
        step = plans.fill(frame, _ID + "new_file_dialog__ext", f".{extension}")
    elif step is None and frame.page.fields.get("extension"):
        step = plans.aim_at(frame, _ID + "new_file_dialog__ext", "long_press")
    return step or plans.aim_at(frame, _ID + "new_file_dialog__ok")


def create_with(frame: Frame, path: str, content: str | None) -> Action:
    """Create a note and store `content` in it; None pastes the clipboard."""
    if not is_file(frame.phone, path):
        return _create(frame, path)
    if frame.page.screen == "system.text_menu" and content is None:
        text = str(frame.page.data["text"]).rstrip("\n")
        return plans.aim_at(frame, "android:id/cut" if text else "android:id/paste")
    if frame.page.screen == "system.text_menu":
        return plans.aim_at(frame, "android:id/done")
    step = open_note(frame, path)
    if step is None:
        key = _ID + "document__edit"
        step = plans.paste(frame, key) if content is None else plans.fill(frame, key, content)
    return step or plans.aim_at(frame, _ID + "action_save")


def empty_notebook(phone: Phone) -> Phone:
    """Return a phone whose notebook is empty."""
    return make_folder(delete(phone, MARKOR), MARKOR)


def add_noise_notes(phone: Phone, rng: random.Random, folder: str, base: str, count: int) -> Phone:
    """Add `count` notes whose names look like other notes, and sometimes like the task's own."""
    names = set[str]()
    while len(names) < count:
        name = draw_variant(rng, rng.choice(TITLES) if rng.random() < 0.85 else base)
        names.add(name if "." in name else f"{name}.md")
    for name in sorted(names - {base}):
        when = phone.now_ms - rng.randint(60, 40_000) * _MINUTE_MS
        phone = write(phone, f"{folder}/{name}", draw_word(rng, 20) + "\n", changed_ms=when)
    return phone


def prepare_note(phone: Phone, params: Params, rng: random.Random, *, name: str, content: str | None) -> Phone:
    """Store one note among noise; its content is a parameter, or drawn."""
    text = rng.choice(SENTENCES) if content is None else str(params[content])
    phone = write(empty_notebook(phone), note(params, name), text + "\n")
    return add_noise_notes(phone, rng, MARKOR, str(params[name]), count=rng.randint(1, 20))


def read_note(phone: Phone, path: str) -> str:
    """Return the text of a note as AndroidWorld reads it: without carriage returns, and without blanks at both ends."""
    return normalise_newlines(read(phone, path)).strip()


def normalise_newlines(text: str) -> str:
    """Return a text without carriage returns."""
    return text.replace("\r", "")


def make_note_score(name: str, text: str) -> ScoreFunction:
    """Score of a note that exists under params[name] with content similar to params[text]."""

    def score(start: Phone, end: Phone, params: Params) -> float:
        path = note(params, name)
        return float(is_file(end, path) and is_similar(read_note(end, path), str(params[text])))

    return score


def _create_plan(frame: Frame, params: Params, start: Phone) -> Action:
    path, content = note(params), str(params["text"])
    return plans.finish() if read_note(frame.phone, path) == content else create_with(frame, path, content)


def _plan_clipboard(frame: Frame, params: Params, start: Phone) -> Action:
    path, content = note(params), str(params["file_content"])
    if read_note(frame.phone, path) == content:
        return plans.finish()
    return create_with(frame, path, None if frame.phone.clipboard == content else content)


def _plan_sms(frame: Frame, params: Params, start: Phone) -> Action:
    if read_note(frame.phone, note(params)) != params["text"]:
        return create_with(frame, note(params), str(params["text"]))
    if not messages.was_sent(frame.phone, str(params["number"]), str(params["text"])):
        return messages.send_plan(frame, str(params["number"]), str(params["text"]))
    in_front = plans.is_in_app(frame, SMS_PACKAGE)
    return plans.finish() if in_front else plans.open_app("Simple SMS Messenger")


def _merge_plan(frame: Frame, params: Params, start: Phone) -> Action:
    """Read the three notes, then write what they hold into a new one."""
    path, content = note(params, "new_file_name"), _merge_contents(params)
    if read_note(frame.phone, path) == content:
        return plans.finish()
    for name in ("file1_name", "file2_name", "file3_name"):
        if not was_opened(frame.phone, note(params, name)):
            step = open_note(frame, note(params, name))
            if step is not None:
                return step
    return create_with(frame, path, content)


def _merge_contents(params: Params) -> str:
    return "\n\n".join(str(params[f"file{place}_content"]) for place in (1, 2, 3))


def _merge_score(start: Phone, end: Phone, params: Params) -> float:
    content = read_note(end, note(params, "new_file_name"))
    lines = content.split("\n")
    separated = len(lines) == 5 and not lines[1] and not lines[3]
    return float(separated and is_similar(content, _merge_contents(params) + "\n"))


def _score_sms(start: Phone, end: Phone, params: Params) -> float:
    written = make_note_score("file_name", "text")(start, end, params)
    return (written + messages.score(start, end, {"number": params["number"], "message": params["text"]})) / 2


def _prepare_empty(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return empty_notebook(phone)


def _prepare_clipboard(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return replace(empty_notebook(phone), clipboard=str(params["file_content"]))


def _prepare_sms(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return messages.clear_messages(empty_notebook(phone))


def _prepare_merge(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = empty_notebook(phone)
    for place in (1, 2, 3):
        phone = write(phone, note(params, f"file{place}_name"), f"{params[f'file{place}_content']}\n")
    return phone


def _draw_create(rng: random.Random) -> dict[str, str]:
    return {"file_name": draw_note_name(rng), "text": rng.choice(SENTENCES)}


def _draw_sms(rng: random.Random) -> dict[str, str]:
    return {**_draw_create(rng), "number": draw_number(rng)}


def _draw_clipboard(rng: random.Random) -> dict[str, str]:
    return {"file_name": draw_note_name(rng), "file_content": draw_word(rng, 10)}


def _draw_merge(rng: random.Random) -> dict[str, str]:
    names = set[str]()
    while len(names) < 3:
        names.add(draw_note_name(rng))
    params = {f"file{place}_name": name for place, name in enumerate(sorted(names), 1)}
    params["new_file_name"] = draw_word(rng, 8)
    return params | {f"file{place}_content": draw_word(rng, 20) for place in (1, 2, 3)}


_task = partial(TaskSpec, apps=("markor",))

TASKS: tuple[TaskSpec, ...] = (
    _task(
        name="MarkorCreateNote",
        complexity=1.6,
        difficulty="medium",
        goal=make_phrasings(
            "Write a Markor note called {file_name} that says: {text}",
            'Make a new note {file_name} in Markor with the content "{text}"',
            "In Markor, start a note with the file name {file_name} and type into it: {text}",
        ),
        draw=_draw_create,
        prepare=_prepare_empty,
        score=make_note_score("file_name", "text"),
        plan=_create_plan,
    ),
    _task(
        name="MarkorCreateNoteFromClipboard",
        apps=("markor", "clipper"),
        complexity=1.4,
        difficulty="medium",
        goal=make_phrasings(
            "Make a Markor note {file_name}, paste the clipboard into it and save.",
            "What I copied should go into a new Markor note named {file_name}: paste it there and save the note.",
            "Create {file_name} in Markor with nothing but the pasted clipboard in it. Save it.",
        ),
        draw=_draw_clipboard,
        prepare=_prepare_clipboard,
        score=make_note_score("file_name", "file_content"),
        plan=_plan_clipboard,
    ),
    _task(
        name="MarkorCreateNoteAndSms",
        apps=("markor", "simple sms messenger"),
        complexity=1.8,
        difficulty="hard",
        goal=make_phrasings(
            "Write a Markor note {file_name} with this text: {text} Then text the whole note to {number} with Simple "
            "SMS Messenger.",
            'Note down "{text}" in Markor as {file_name}, and send the same text to {number} by Simple SMS Messenger.',
            "In Markor, make {file_name} saying: {text} Afterwards {number} should receive it from Simple SMS "
            "Messenger.",
        ),
        draw=_draw_sms,
        prepare=_prepare_sms,
        score=_score_sms,
        plan=_plan_sms,
    ),
    _task(
        name="MarkorMergeNotes",
        complexity=7.8,
        difficulty="hard",
        goal=make_phrasings(
            "Put the texts of the Markor notes {file1_name}, {file2_name} and {file3_name}, in this order and with an "
            "empty line between them, into a new note {new_file_name} and save it.",
            "Make a Markor note {new_file_name} (no extension) from {file1_name}, then {file2_name}, then "
            "{file3_name}; leave one empty line after each text but the last. Save it.",
            "I want one Markor note, {new_file_name}, that says what {file1_name}, {file2_name} and {file3_name} say, "
            "in that order, each parted from the next by an empty line. Write and save it.",
        ),
        draw=_draw_merge,
        prepare=_prepare_merge,
        score=_merge_score,
        plan=_merge_plan,
    ),
)
