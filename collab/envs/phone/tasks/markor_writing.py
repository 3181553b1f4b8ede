"""Markor tasks, writing: new notes, from text, from the clipboard, from other notes."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from collab.envs.phone.apps.markor_editor import PACKAGE, was_opened
from collab.envs.phone.apps.messages import PACKAGE as SMS_PACKAGE
from collab.envs.phone.pools import SENTENCES, draw_note_name, draw_number, draw_word
from collab.envs.phone.screen import Frame
from collab.envs.phone.state import Phone
from collab.envs.phone.storage import write
from collab.envs.phone.tasks import plans, sms
from collab.envs.phone.tasks.notebook import create_with, empty, holds, note, open_note, text_of
from collab.envs.phone.tasks.spec import Params, TaskSpec, phrasings, similar
from collab.types import Action

_ID = PACKAGE + ":id/"
_MINUTE_MS = 60_000


def _create_plan(frame: Frame, params: Params, start: Phone) -> Action:
    path, content = note(params), str(params["text"])
    return plans.done() if text_of(frame.phone, path) == content else create_with(frame, path, content)


def _clipboard_plan(frame: Frame, params: Params, start: Phone) -> Action:
    path, content = note(params), str(params["file_content"])
    if text_of(frame.phone, path) == content:
        return plans.done()
    return create_with(frame, path, None if frame.phone.clipboard == content else content)


def _sms_plan(frame: Frame, params: Params, start: Phone) -> Action:
    if text_of(frame.phone, note(params)) != params["text"]:
        return create_with(frame, note(params), str(params["text"]))
    if not sms.was_sent(frame.phone, str(params["number"]), str(params["text"])):
        return sms.send_plan(frame, str(params["number"]), str(params["text"]))
    in_front = plans.in_app(frame, SMS_PACKAGE)
    return plans.done() if in_front else plans.open_app("Simple SMS Messenger")


def _merge_plan(frame: Frame, params: Params, start: Phone) -> Action:
    """Read the three notes, then write what they hold into a new one."""
    path, content = note(params, "new_file_name"), _merged(params)
    if text_of(frame.phone, path) == content:
        return plans.done()
    for name in ("file1_name", "file2_name", "file3_name"):
        if not was_opened(frame.phone, note(params, name)):
            step = open_note(frame, note(params, name))
            if step is not None:
                return step
    return create_with(frame, path, content)


def _merged(params: Params) -> str:
    return "\n\n".join(str(params[f"file{place}_content"]) for place in (1, 2, 3))


def _merge_score(start: Phone, end: Phone, params: Params) -> float:
    content = text_of(end, note(params, "new_file_name"))
    lines = content.split("\n")
    separated = len(lines) == 5 and not lines[1] and not lines[3]
    return float(separated and similar(content, _merged(params) + "\n"))


def _sms_score(start: Phone, end: Phone, params: Params) -> float:
    written = holds("file_name", "text")(start, end, params)
    return (written + sms.score(start, end, {"number": params["number"], "message": params["text"]})) / 2


def _prepare_empty(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return empty(phone)


def _prepare_clipboard(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return replace(empty(phone), clipboard=str(params["file_content"]))


def _prepare_sms(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return sms.without_messages(empty(phone))


def _prepare_merge(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = empty(phone)
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
        goal=phrasings(
            "Write a Markor note called {file_name} that says: {text}",
            'Make a new note {file_name} in Markor with the content "{text}"',
            "In Markor, start a note with the file name {file_name} and type into it: {text}",
        ),
        draw=_draw_create,
        prepare=_prepare_empty,
        score=holds("file_name", "text"),
        plan=_create_plan,
    ),
    _task(
        name="MarkorCreateNoteFromClipboard",
        apps=("markor", "clipper"),
        complexity=1.4,
        difficulty="medium",
        goal=phrasings(
            "Make a Markor note {file_name}, paste the clipboard into it and save.",
            "What I copied should go into a new Markor note named {file_name}: paste it there and save the note.",
            "Create {file_name} in Markor with nothing but the pasted clipboard in it. Save it.",
        ),
        draw=_draw_clipboard,
        prepare=_prepare_clipboard,
        score=holds("file_name", "file_content"),
        plan=_clipboard_plan,
    ),
    _task(
        name="MarkorCreateNoteAndSms",
        apps=("markor", "simple sms messenger"),
        complexity=1.8,
        difficulty="hard",
        goal=phrasings(
            "Write a Markor note {file_name} with this text: {text} Then text the whole note to {number} with Simple "
            "SMS Messenger.",
            'Note down "{text}" in Markor as {file_name}, and send the same text to {number} by Simple SMS Messenger.',
            "In Markor, make {file_name} saying: {text} Afterwards {number} should receive it from Simple SMS "
            "Messenger.",
        ),
        draw=_draw_sms,
        prepare=_prepare_sms,
        score=_sms_score,
        plan=_sms_plan,
    ),
    _task(
        name="MarkorMergeNotes",
        complexity=7.8,
        difficulty="hard",
        goal=phrasings(
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
