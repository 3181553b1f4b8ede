"""Markor tasks, editing: another text, a line above or below, another name.

Markor tasks, tidying up: folders, moving and deleting.
"""

from __future__ import annotations

import random
from functools import partial

from collab.envs.simphone.app import list_selected
from collab.envs.simphone.apps.markor import MARKOR, PACKAGE, entry_key, note_files
from collab.envs.simphone.content.pools import NOTE_FOLDERS, SENTENCES, draw_note_name, draw_other, draw_word
from collab.envs.simphone.state import Phone, find_folder, is_file, make_folder, read, write
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.markor_writing import (
    TITLES,
    add_noise_notes,
    empty_notebook,
    normalise_newlines,
    note,
    open_note,
    prepare_note,
    read_note,
    select,
    to_folder,
)
from collab.envs.simphone.tasks.spec import (
    Params,
    TaskSpec,
    draw_nothing,
    find_move_paths,
    is_similar,
    make_phrasings,
    score_move,
)
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"
_MINUTE_MS = 60_000


def _edit(frame: Frame, path: str, content: str) -> Action | None:
    """Make a note hold `content`; None when its editor shows it (stored or not)."""
    return open_note(frame, path) or plans.fill(frame, _ID + "document__edit", content)


def _rename(frame: Frame, path: str, name: str) -> Action:
    """Rename by the dialog, whose field takes Enter as OK."""
    if frame.page.screen == "markor.rename" and frame.page.data["path"] == path:
        return plans.fill(frame, _ID + "rename__name", name) or plans.aim_at(frame, _ID + "rename__ok")
    return select(frame, path) or plans.aim_at(frame, _ID + "action_rename")


def _edit_plan(frame: Frame, params: Params, start: Phone) -> Action:
    path = note(params)
    wanted = _edit_text(params, read(start, path))
    if read_note(frame.phone, path) == wanted:
        return plans.finish()
    if params["edit_type"] != "footer":
        return _edit(frame, path, wanted) or plans.aim_at(frame, _ID + "action_save")
    step = open_note(frame, path)
    if step is None and frame.page.fields["content"] == read(start, path):
        step = plans.aim_at(frame, _ID + "document__edit", "input_text", text=str(params["footer"]))
    return step or _edit(frame, path, wanted) or plans.aim_at(frame, _ID + "action_save")


def _rewrite_plan(frame: Frame, params: Params, start: Phone, *, header: bool) -> Action:
    """Change the content, then the name; with a header the content must be exact."""
    old, new = note(params, "original_name"), note(params, "new_name")
    content = _add_header(params) if header else str(params["updated_content"])
    path = new if is_file(frame.phone, new) and not is_file(frame.phone, old) else old
    stored = read(frame.phone, path)
    if not (normalise_newlines(stored) == content + "\n" if header else normalise_newlines(stored).strip() == content):
        step = _edit(frame, path, content)
        if step is None and header and frame.page.fields["content"] != content + "\n":
            step = plans.aim_at(frame, _ID + "document__edit", "input_text", text=content, clear_text=True)
        if step is not None:
            return step
        return plans.aim_at(frame, "android:id/up")
    return plans.finish() if path == new else _rename(frame, old, str(params["new_name"]))


def _edit_text(params: Params, original: str) -> str:
    original = original.strip()
    if params["edit_type"] == "header":
        return f"{params['header']}\n{original}"
    return f"{original}\n{params['footer']}" if params["edit_type"] == "footer" else str(params["replace_text"])


def _edit_score(start: Phone, end: Phone, params: Params) -> float:
    path = note(params)
    return float(is_file(end, path) and is_similar(read_note(end, path), _edit_text(params, read(start, path))))


def _add_header(params: Params) -> str:
    return f"{params['header']}\n\n{params['original_content']}"


def _is_renamed(end: Phone, params: Params) -> bool:
    old, new = note(params, "original_name"), note(params, "new_name")
    return old not in end.files and is_file(end, new)


def _score_header(start: Phone, end: Phone, params: Params) -> float:
    exact = normalise_newlines(read(end, note(params, "new_name"))) == _add_header(params) + "\n"
    return float(_is_renamed(end, params) and exact)


def _change_score(start: Phone, end: Phone, params: Params) -> float:
    content = read_note(end, note(params, "new_name"))
    return float(_is_renamed(end, params) and is_similar(content, str(params["updated_content"])))


def _draw_edit(rng: random.Random) -> dict[str, str]:
    kind = rng.choice(("header", "footer", "replace"))
    params = {"file_name": f"note_{draw_word(rng, 5)}{rng.choice(('.md', '.txt'))}", "edit_type": kind}
    if kind == "replace":
        return {**params, "replace_text": "\n".join(rng.sample(SENTENCES, 3))}
    return {**params, kind: rng.choice(SENTENCES)}


def _draw_two_names(rng: random.Random) -> tuple[str, str]:
    first = draw_note_name(rng)
    second = draw_note_name(rng)
    while second == first:
        second = draw_note_name(rng)
    return first, second


def _draw_change(rng: random.Random) -> dict[str, str]:
    old, new = _draw_two_names(rng)
    return {"original_name": old, "new_name": new, "updated_content": draw_word(rng, 20)}


def _draw_header(rng: random.Random) -> dict[str, str]:
    old, new = _draw_two_names(rng)
    content = rng.choice(SENTENCES)
    return {"original_name": old, "original_content": content, "new_name": new, "header": draw_word(rng, 20)}


def _edit_goal(params: Params, rng: random.Random) -> str:
    words = {
        "header": (
            "Open the note {file_name} in Markor and put this line above everything else: {header}",
            'In Markor, "{header}" should become the first line of {file_name}.',
            "The Markor note {file_name} needs a line at its very top: {header}",
        ),
        "footer": (
            "Open the note {file_name} in Markor and put this line below everything else: {footer}",
            'In Markor, "{footer}" should become the last line of {file_name}.',
            "The Markor note {file_name} needs a line at its very end: {footer}",
        ),
        "replace": (
            "Throw away what the Markor note {file_name} says and write this instead: {replace_text}",
            "The Markor note {file_name} should hold nothing but: {replace_text}",
            'Clear {file_name} in Markor and type "{replace_text}" in place of the old text.',
        ),
    }
    return make_phrasings(*words[str(params["edit_type"])])(params, rng)


_task = partial(TaskSpec, apps=("markor",))

EDITING_TASKS: tuple[TaskSpec, ...] = (
    _task(
        name="MarkorEditNote",
        complexity=1.2,
        difficulty="easy",
        goal=_edit_goal,
        draw=_draw_edit,
        prepare=partial(prepare_note, name="file_name", content=None),
        score=_edit_score,
        plan=_edit_plan,
    ),
    _task(
        name="MarkorAddNoteHeader",
        complexity=1.2,
        difficulty="medium",
        goal=make_phrasings(
            'In the Markor note {original_name}, write "{header}" and an empty line above the text, then rename the '
            "note to {new_name}.",
            'The Markor note {original_name} needs "{header}" on top, an empty line, then its old text; its new name '
            "is {new_name}.",
            'Begin {original_name} in Markor with the line "{header}" and an empty one after it, keep the rest, and '
            "call the note {new_name}.",
        ),
        draw=_draw_header,
        prepare=partial(prepare_note, name="original_name", content="original_content"),
        score=_score_header,
        plan=partial(_rewrite_plan, header=True),
    ),
    _task(
        name="MarkorChangeNoteContent",
        complexity=1.2,
        difficulty="medium",
        goal=make_phrasings(
            'Replace the text of the Markor note {original_name} by "{updated_content}" and rename it to {new_name}.',
            "In Markor, {original_name} should say {updated_content} and be called {new_name}.",
            'Markor: overwrite {original_name} with "{updated_content}", then give it the name {new_name}.',
        ),
        draw=_draw_change,
        prepare=partial(prepare_note, name="original_name", content=None),
        score=_change_score,
        plan=partial(_rewrite_plan, header=False),
    ),
)


def _delete(frame: Frame, path: str) -> Action:
    if frame.page.screen == "markor.delete" and frame.page.data["paths"] == (path,):
        return plans.aim_at(frame, _ID + "delete__ok")
    return select(frame, path) or plans.aim_at(frame, _ID + "action_delete")


def _delete_plan(frame: Frame, params: Params, start: Phone) -> Action:
    path = note(params)
    return _delete(frame, path) if path in frame.phone.files else plans.finish()


def _delete_newest_plan(frame: Frame, params: Params, start: Phone) -> Action:
    added = sorted(note_files(frame.phone).keys() - note_files(start).keys())
    path = added[0] if added else _find_newest(start)
    return _delete(frame, path) if path in frame.phone.files else plans.finish()


def _delete_all_plan(frame: Frame, params: Params, start: Phone) -> Action:
    left = note_files(frame.phone)
    if not left:
        return plans.finish()
    if frame.page.screen == "markor.delete" and set(left) <= set(frame.page.data["paths"]):
        return plans.aim_at(frame, _ID + "delete__ok")
    step = to_folder(frame, MARKOR, keep_selection=True)
    if step is not None:
        return step
    selected = list_selected(frame.page)
    if not selected:
        first = next((key for key in map(entry_key, left) if frame.index(key) is not None), entry_key(min(left)))
        return plans.aim_at(frame, first, "long_press")
    return plans.aim_at(frame, _ID + ("action_delete" if set(left) <= set(selected) else "action_select_all"))


def _move_plan(frame: Frame, params: Params, start: Phone) -> Action:
    source, target = find_move_paths(params, MARKOR)
    if source not in frame.phone.files and target in frame.phone.files:
        return plans.finish()
    if not (frame.page.screen == "markor.move" and frame.page.data["paths"] == (source,)):
        return select(frame, source) or plans.aim_at(frame, _ID + "action_move")
    here, wanted = str(frame.page.data["folder"]), find_folder(target)
    if here == wanted:
        return plans.aim_at(frame, _ID + "move__ok")
    return plans.aim_at(frame, entry_key(wanted) if here == MARKOR else _ID + "parent")


def _plan_folder(frame: Frame, params: Params, start: Phone) -> Action:
    name = str(params["folder_name"])
    if f"{MARKOR}/{name}" in frame.phone.files:
        return plans.finish()
    if frame.page.screen == "markor.new" and frame.page.data["folder"] == MARKOR:
        step = plans.fill(frame, _ID + "new_file_dialog__name", name)
        return step or plans.aim_at(frame, _ID + "new_file_dialog__folder")
    return to_folder(frame, MARKOR) or plans.aim_at(frame, _ID + "fab_add_new_item")


def _delete_score(start: Phone, end: Phone, params: Params) -> float:
    return float(note(params) not in end.files)


def _find_newest(phone: Phone) -> str:
    notes = note_files(phone)
    return max(notes, key=lambda path: (notes[path], path))


def _delete_newest_score(start: Phone, end: Phone, params: Params) -> float:
    notes = note_files(start)
    del notes[_find_newest(start)]
    return float(note_files(end) == notes)


def _delete_all_score(start: Phone, end: Phone, params: Params) -> float:
    return float(not note_files(end))


def _score_folder(start: Phone, end: Phone, params: Params) -> float:
    return float(note(params, "folder_name") in end.files)


def _prepare_folder(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return add_noise_notes(empty_notebook(phone), rng, MARKOR, "file.md", count=rng.randint(1, 20))


def _prepare_few(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return add_noise_notes(empty_notebook(phone), rng, MARKOR, draw_word(rng, 5), count=rng.randint(2, 6))


def _prepare_newest(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = empty_notebook(phone)
    minutes = rng.sample(range(1, 1500), rng.randint(2, 6))
    for age in minutes:
        name = draw_note_name(rng)
        phone = write(
            phone, f"{MARKOR}/{name}", rng.choice(SENTENCES) + "\n", changed_ms=phone.now_ms - age * _MINUTE_MS
        )
    return phone


def _prepare_move(phone: Phone, params: Params, rng: random.Random) -> Phone:
    source, target = find_move_paths(params, MARKOR)
    phone = write(empty_notebook(phone), source, draw_word(rng, 20) + "\n")
    for name in (str(params["destination_folder"]), *rng.sample(NOTE_FOLDERS, 2)):
        phone = make_folder(phone, f"{MARKOR}/{name}")
    phone = add_noise_notes(phone, rng, find_folder(source), str(params["file_name"]), count=rng.randint(1, 20))
    return make_folder(phone, find_folder(target))


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


TIDYING_TASKS: tuple[TaskSpec, ...] = (
    _task(
        name="MarkorCreateFolder",
        complexity=1,
        difficulty="easy",
        goal=make_phrasings(
            "Make a folder {folder_name} in Markor.",
            "I need a new Markor folder with the name {folder_name}.",
            "Add the folder {folder_name} to my Markor notebook.",
        ),
        draw=_draw_folder,
        prepare=_prepare_folder,
        score=_score_folder,
        plan=_plan_folder,
    ),
    _task(
        name="MarkorDeleteNote",
        complexity=1,
        difficulty="easy",
        goal=make_phrasings(
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
        goal=make_phrasings(
            "Remove the most recently changed note from Markor.",
            "Of my Markor notes, delete the latest one.",
            "The newest Markor note can go. Delete it.",
        ),
        draw=draw_nothing,
        prepare=_prepare_newest,
        score=_delete_newest_score,
        plan=_delete_newest_plan,
    ),
    _task(
        name="MarkorDeleteAllNotes",
        complexity=1.4,
        difficulty="easy",
        goal=make_phrasings(
            "Empty my Markor notebook: delete every note.",
            "Remove all notes from Markor.",
            "None of my Markor notes is needed any longer. Delete them all.",
        ),
        draw=draw_nothing,
        prepare=_prepare_few,
        score=_delete_all_score,
        plan=_delete_all_plan,
    ),
    _task(
        name="MarkorMoveNote",
        complexity=1.4,
        difficulty="medium",
        goal=make_phrasings(
            "The Markor note {file_name} is in {source_folder}; move it to {destination_folder}.",
            "Markor: take {file_name} out of the folder {source_folder} and put it into {destination_folder}.",
            "Move {file_name} in Markor. From: {source_folder}. To: {destination_folder}.",
        ),
        draw=_draw_move,
        prepare=_prepare_move,
        score=partial(score_move, root=MARKOR),
        plan=_move_plan,
    ),
)
