"""Markor tasks, tidying up: folders, moving and deleting."""

from __future__ import annotations

import random
from functools import partial

from collab.envs.phone.apps.markor_dialogs import entry_key
from collab.envs.phone.apps.markor_editor import PACKAGE
from collab.envs.phone.notes import MARKOR, note_files
from collab.envs.phone.pools import NOTE_FOLDERS, SENTENCES, draw_note_name, draw_other, draw_word
from collab.envs.phone.screen import Frame
from collab.envs.phone.selection import chosen
from collab.envs.phone.state import Phone
from collab.envs.phone.storage import folder_of, make_folder, write
from collab.envs.phone.tasks import plans
from collab.envs.phone.tasks.notebook import TITLES, empty, noise, note, prepare_note, select, to_folder
from collab.envs.phone.tasks.spec import Params, TaskSpec, nothing_drawn, phrasings
from collab.types import Action

_ID = PACKAGE + ":id/"
_MINUTE_MS = 60_000


def _delete(frame: Frame, path: str) -> Action:
    if frame.page.screen == "markor.delete" and frame.page.data["paths"] == (path,):
        return plans.aim(frame, _ID + "delete__ok")
    return select(frame, path) or plans.aim(frame, _ID + "action_delete")


def _delete_plan(frame: Frame, params: Params, start: Phone) -> Action:
    path = note(params)
    return _delete(frame, path) if path in frame.phone.files else plans.done()


def _delete_newest_plan(frame: Frame, params: Params, start: Phone) -> Action:
    added = sorted(note_files(frame.phone).keys() - note_files(start).keys())
    path = added[0] if added else _newest(start)
    return _delete(frame, path) if path in frame.phone.files else plans.done()


def _delete_all_plan(frame: Frame, params: Params, start: Phone) -> Action:
    left = note_files(frame.phone)
    if not left:
        return plans.done()
    if frame.page.screen == "markor.delete" and set(left) <= set(frame.page.data["paths"]):
        return plans.aim(frame, _ID + "delete__ok")
    step = to_folder(frame, MARKOR, keep_selection=True)
    if step is not None:
        return step
    selected = chosen(frame.page)
    if not selected:
        first = next((key for key in map(entry_key, left) if frame.index(key) is not None), entry_key(min(left)))
        return plans.aim(frame, first, "long_press")
    return plans.aim(frame, _ID + ("action_delete" if set(left) <= set(selected) else "action_select_all"))


def _move_plan(frame: Frame, params: Params, start: Phone) -> Action:
    source, target = _moved(params)
    if source not in frame.phone.files and target in frame.phone.files:
        return plans.done()
    if not (frame.page.screen == "markor.move" and frame.page.data["paths"] == (source,)):
        return select(frame, source) or plans.aim(frame, _ID + "action_move")
    here, wanted = str(frame.page.data["folder"]), folder_of(target)
    if here == wanted:
        return plans.aim(frame, _ID + "move__ok")
    return plans.aim(frame, entry_key(wanted) if here == MARKOR else _ID + "parent")


def _folder_plan(frame: Frame, params: Params, start: Phone) -> Action:
    name = str(params["folder_name"])
    if f"{MARKOR}/{name}" in frame.phone.files:
        return plans.done()
    if frame.page.screen == "markor.new" and frame.page.data["folder"] == MARKOR:
        step = plans.fill(frame, _ID + "new_file_dialog__name", name)
        return step or plans.aim(frame, _ID + "new_file_dialog__folder")
    return to_folder(frame, MARKOR) or plans.aim(frame, _ID + "fab_add_new_item")


def _delete_score(start: Phone, end: Phone, params: Params) -> float:
    return float(note(params) not in end.files)


def _newest(phone: Phone) -> str:
    notes = note_files(phone)
    return max(notes, key=lambda path: (notes[path], path))


def _delete_newest_score(start: Phone, end: Phone, params: Params) -> float:
    notes = note_files(start)
    del notes[_newest(start)]
    return float(note_files(end) == notes)


def _delete_all_score(start: Phone, end: Phone, params: Params) -> float:
    return float(not note_files(end))


def _folder_score(start: Phone, end: Phone, params: Params) -> float:
    return float(note(params, "folder_name") in end.files)


def _moved(params: Params) -> tuple[str, str]:
    name = params["file_name"]
    return f"{MARKOR}/{params['source_folder']}/{name}", f"{MARKOR}/{params['destination_folder']}/{name}"


def _move_score(start: Phone, end: Phone, params: Params) -> float:
    source, target = _moved(params)
    return float(source not in end.files and target in end.files)


def _prepare_folder(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return noise(empty(phone), rng, MARKOR, "file.md", count=rng.randint(1, 20))


def _prepare_few(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return noise(empty(phone), rng, MARKOR, draw_word(rng, 5), count=rng.randint(2, 6))


def _prepare_newest(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = empty(phone)
    minutes = rng.sample(range(1, 1500), rng.randint(2, 6))
    for age in minutes:
        name = draw_note_name(rng)
        phone = write(
            phone, f"{MARKOR}/{name}", rng.choice(SENTENCES) + "\n", changed_ms=phone.now_ms - age * _MINUTE_MS
        )
    return phone


def _prepare_move(phone: Phone, params: Params, rng: random.Random) -> Phone:
    source, target = _moved(params)
    phone = write(empty(phone), source, draw_word(rng, 20) + "\n")
    for name in (str(params["destination_folder"]), *rng.sample(NOTE_FOLDERS, 2)):
        phone = make_folder(phone, f"{MARKOR}/{name}")
    phone = noise(phone, rng, folder_of(source), str(params["file_name"]), count=rng.randint(1, 20))
    return make_folder(phone, folder_of(target))


def _draw_folder(rng: random.Random) -> dict[str, str]:
    return {"folder_name": f"folder_2023{rng.randint(1, 9):02d}{rng.randint(1, 28):02d}_{rng.randint(0, 235959):06d}"}


def _draw_delete(rng: random.Random) -> dict[str, object]:
    return {"file_name": draw_note_name(rng), "noise_candidates": list(TITLES)}


def _draw_move(rng: random.Random) -> dict[str, object]:
    source = rng.choice(NOTE_FOLDERS)
    return {
        "file_name": draw_note_name(rng),
        "source_folder": source,
        "destination_folder": draw_other(rng, NOTE_FOLDERS, source),
        "noise_candidates": list(TITLES),
    }


_task = partial(TaskSpec, apps=("markor",))

TIDYING_TASKS: tuple[TaskSpec, ...] = (
    _task(
        name="MarkorCreateFolder",
        complexity=1,
        difficulty="easy",
        goal=phrasings(
            "Make a folder {folder_name} in Markor.",
            "I need a new Markor folder with the name {folder_name}.",
            "Add the folder {folder_name} to my Markor notebook.",
        ),
        draw=_draw_folder,
        prepare=_prepare_folder,
        score=_folder_score,
        plan=_folder_plan,
    ),
    _task(
        name="MarkorDeleteNote",
        complexity=1,
        difficulty="easy",
        goal=phrasings(
            "Remove the note {file_name} from Markor.",
            "I do not need the Markor note {file_name} any more. Delete it.",
            "Delete {file_name} in Markor.",
        ),
        draw=_draw_delete,
        prepare=partial(prepare_note, name="file_name", content=None),
        score=_delete_score,
        plan=_delete_plan,
    ),
    _task(
        name="MarkorDeleteNewestNote",
        complexity=1,
        difficulty="easy",
        goal=phrasings(
            "Remove the most recently changed note from Markor.",
            "Of my Markor notes, delete the latest one.",
            "The newest Markor note can go. Delete it.",
        ),
        draw=nothing_drawn,
        prepare=_prepare_newest,
        score=_delete_newest_score,
        plan=_delete_newest_plan,
    ),
    _task(
        name="MarkorDeleteAllNotes",
        complexity=1.4,
        difficulty="easy",
        goal=phrasings(
            "Empty my Markor notebook: delete every note.",
            "Remove all notes from Markor.",
            "None of my Markor notes is needed any longer. Delete them all.",
        ),
        draw=nothing_drawn,
        prepare=_prepare_few,
        score=_delete_all_score,
        plan=_delete_all_plan,
    ),
    _task(
        name="MarkorMoveNote",
        complexity=1.4,
        difficulty="medium",
        goal=phrasings(
            "The Markor note {file_name} is in {source_folder}; move it to {destination_folder}.",
            "Markor: take {file_name} out of the folder {source_folder} and put it into {destination_folder}.",
            "Move {file_name} in Markor. From: {source_folder}. To: {destination_folder}.",
        ),
        draw=_draw_move,
        prepare=_prepare_move,
        score=_move_score,
        plan=_move_plan,
    ),
)
