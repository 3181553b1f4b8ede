"""Markor tasks, editing: another text, a line above or below, another name."""

from __future__ import annotations

import random
from functools import partial

from collab.envs.phone.apps.markor_editor import PACKAGE
from collab.envs.phone.pools import SENTENCES, draw_note_name, draw_word
from collab.envs.phone.screen import Frame
from collab.envs.phone.state import Phone
from collab.envs.phone.storage import is_file, read
from collab.envs.phone.tasks import plans
from collab.envs.phone.tasks.notebook import note, open_note, prepare_note, select, text_of, unix
from collab.envs.phone.tasks.spec import Params, TaskSpec, phrasings, similar
from collab.types import Action

_ID = PACKAGE + ":id/"
_MINUTE_MS = 60_000


def _edit(frame: Frame, path: str, content: str) -> Action | None:
    """Make a note hold `content`; None when its editor shows it (stored or not)."""
    return open_note(frame, path) or plans.fill(frame, _ID + "document__edit", content)


def _rename(frame: Frame, path: str, name: str) -> Action:
    """Rename by the dialog, whose field takes Enter as OK."""
    if frame.page.screen == "markor.rename" and frame.page.data["path"] == path:
        return plans.fill(frame, _ID + "rename__name", name) or plans.aim(frame, _ID + "rename__ok")
    return select(frame, path) or plans.aim(frame, _ID + "action_rename")


def _edit_plan(frame: Frame, params: Params, start: Phone) -> Action:
    path = note(params)
    wanted = _edited(params, read(start, path))
    if text_of(frame.phone, path) == wanted:
        return plans.done()
    if params["edit_type"] != "footer":
        return _edit(frame, path, wanted) or plans.aim(frame, _ID + "action_save")
    step = open_note(frame, path)
    if step is None and frame.page.fields["content"] == read(start, path):
        step = plans.aim(frame, _ID + "document__edit", "input_text", text=str(params["footer"]))
    return step or _edit(frame, path, wanted) or plans.aim(frame, _ID + "action_save")


def _rewrite_plan(frame: Frame, params: Params, start: Phone, *, header: bool) -> Action:
    """Change the content, then the name; with a header the content must be exact."""
    old, new = note(params, "original_name"), note(params, "new_name")
    content = _with_header(params) if header else str(params["updated_content"])
    path = new if is_file(frame.phone, new) and not is_file(frame.phone, old) else old
    stored = read(frame.phone, path)
    if not (unix(stored) == content + "\n" if header else unix(stored).strip() == content):
        step = _edit(frame, path, content)
        if step is None and header and frame.page.fields["content"] != content + "\n":
            step = plans.aim(frame, _ID + "document__edit", "input_text", text=content, clear_text=True)
        if step is not None:
            return step
        return plans.aim(frame, "android:id/up")
    return plans.done() if path == new else _rename(frame, old, str(params["new_name"]))


def _edited(params: Params, original: str) -> str:
    original = original.strip()
    if params["edit_type"] == "header":
        return f"{params['header']}\n{original}"
    return f"{original}\n{params['footer']}" if params["edit_type"] == "footer" else str(params["replace_text"])


def _edit_score(start: Phone, end: Phone, params: Params) -> float:
    path = note(params)
    return float(is_file(end, path) and similar(text_of(end, path), _edited(params, read(start, path))))


def _with_header(params: Params) -> str:
    return f"{params['header']}\n\n{params['original_content']}"


def _renamed(end: Phone, params: Params) -> bool:
    old, new = note(params, "original_name"), note(params, "new_name")
    return old not in end.files and is_file(end, new)


def _header_score(start: Phone, end: Phone, params: Params) -> float:
    exact = unix(read(end, note(params, "new_name"))) == _with_header(params) + "\n"
    return float(_renamed(end, params) and exact)


def _change_score(start: Phone, end: Phone, params: Params) -> float:
    content = text_of(end, note(params, "new_name"))
    return float(_renamed(end, params) and similar(content, str(params["updated_content"])))


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
    return phrasings(*words[str(params["edit_type"])])(params, rng)


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
        goal=phrasings(
            'In the Markor note {original_name}, write "{header}" and an empty line above the text, then rename the '
            "note to {new_name}.",
            'The Markor note {original_name} needs "{header}" on top, an empty line, then its old text; its new name '
            "is {new_name}.",
            'Begin {original_name} in Markor with the line "{header}" and an empty one after it, keep the rest, and '
            "call the note {new_name}.",
        ),
        draw=_draw_header,
        prepare=partial(prepare_note, name="original_name", content="original_content"),
        score=_header_score,
        plan=partial(_rewrite_plan, header=True),
    ),
    _task(
        name="MarkorChangeNoteContent",
        complexity=1.2,
        difficulty="medium",
        goal=phrasings(
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
