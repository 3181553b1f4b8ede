"""Joplin tasks: questions about notes, judged by the answer alone."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from collab.envs.simphone.apps.joplin import (
    FOLDERS,
    NOTES,
    PACKAGE,
    entry_key,
    folder_key,
    is_todo,
    line_key,
    list_notes,
    note,
    put_library,
    read_text,
)
from collab.envs.simphone.state import Phone, TableRow, rows
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.spec import Params, TaskSpec, make_phrasings, say, score_answers, score_number
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"
_FOLDERS = ("Allotment", "Band", "Boat", "Cellar", "Family", "Kitchen", "Office", "Reading", "Trips", "Workshop")
_TITLES = (
    "Spare keys",
    "Paint colours",
    "Birthday ideas",
    "Seed order",
    "Set list",
    "Winter storage",
    "Engine manual",
    "House rules",
    "Packing list",
    "Books to return",
)
_BODIES = (
    "Ask Noor before Friday.",
    "Three are still missing.",
    "The old version is in the drawer.",
    "Check the price once more.",
    "Half of it is done.",
)
_NOISE = tuple(
    f"{thing} {what}"
    for thing in ("Bicycle", "Garden", "Piano", "Kitten", "Attic", "Ferry")
    for what in ("notes", "plans", "costs", "dates", "photos", "rumours")
)
_MEETINGS = ("Harbour Council", "Orchestra Board", "Parents' Evening", "Beekeepers' Assembly", "Tenants' Round Table")
_MINUTES = (
    "Minutes\n- Welcome and apologies\n- {attendee_count} people were there\n- Next date fixed",
    "What happened:\n- We voted on the roof\n- The budget was agreed\n- Attendees: {attendee_count}",
    "Summary\n- {attendee_count} members came\n- New chair elected",
)
_DISHES = ("Plum Dumplings", "Lentil Pie", "Saffron Buns", "Beetroot Soup", "Walnut Bread", "Quince Jelly")
_INGREDIENTS = ("poppy seeds", "rye flour", "cardamom", "oat milk", "dried figs", "hazelnut oil")
_QUANTITIES = ("3 tablespoons", "1/2 cup", "250 grams", "2 teaspoons", "4 ounces", "1 1/2 cups")
_METHODS = (
    "Ingredients:\n- 2 eggs\n- {ingredient_quantity} {ingredient}\n- a pinch of salt\n\nSteps:\n1. Mix.\n2. Bake.",
    "Needed:\n- {ingredient_quantity} {ingredient}\n- 300 grams potatoes\n\nHow to:\n1. Boil.\n2. Stir.\n3. Rest.",
)


# ---------------------------------------------------------------------------------------------------------- planning


def _find(frame: Frame, one: TableRow, *, words: str | None) -> Action | None:
    """Search for a note by its title; then open it where the answer is in its text, in the line with these words."""
    id = read_text(one, "id")
    if note(frame.phone, id) is None:
        raise plans.PlanError("the note that the question is about is gone")
    if words is not None and frame.page.screen == "joplin.note" and frame.page.data["id"] == id:
        lines = read_text(one, "body").split("\n")
        key = line_key(next(number for number, text in enumerate(lines) if words in text))
        return plans.aim_at(frame, key) if frame.index(key) is None else None
    step = plans.follow(
        frame, "Joplin", PACKAGE, {**_from_lists(frame, _ID + "search"), "joplin.search": ""}
    ) or plans.fill(frame, _ID + "words", read_text(one, "title"))
    if step is not None:
        return step
    key = entry_key(id)
    return None if words is None and frame.index(key) is not None else plans.aim_at(frame, key)


def _survey_folder(frame: Frame, folder: str, counted_notes: list[TableRow]) -> Action | None:
    """Show a notebook and scroll to the last of these notes."""
    route = {**_from_lists(frame, _ID + "sidebar"), "joplin.sidebar": folder_key(folder), f"joplin.list/{folder}": ""}
    step = plans.follow(frame, "Joplin", PACKAGE, route)
    ids = {row["id"] for row in counted_notes}
    present = [row for row in list_notes(frame.phone, folder) if row["id"] in ids]
    if len(present) < len(ids):
        raise plans.PlanError("a note that the question is about is gone")
    if step is not None or not present:
        return step
    key = entry_key(read_text(present[-1], "id"))
    return plans.aim_at(frame, key) if frame.index(key) is None else None


def _from_lists(frame: Frame, key: str) -> dict[str, str]:
    """Return the key that leads on from whatever notebook is shown."""
    here = plans.name_page(frame)
    return {here: key} if here.startswith("joplin.list/") else {}


def _plan(frame: Frame, params: Params, start: Phone, *, answer: str) -> Action:
    """Plan the way to an answer; the parameter `answer` holds it."""
    text = str(params[answer])
    if score_answers(frame.phone, [text]) == 1.0:
        return plans.finish()
    one = next((row for row in rows(start, NOTES) if row["title"] == params["title"]), None)
    if one is None:
        raise plans.PlanError("there was no note with the title that the question names")
    return _find(frame, one, words=None if answer == "is_todo" else text) or say([text])


def _score(start: Phone, end: Phone, params: Params, *, answer: str) -> float:
    return score_answers(end, [str(params[answer])])


def _find_todos(start: Phone, params: Params) -> tuple[str, list[TableRow]]:
    """Return (id of the notebook, to-dos in it)."""
    found = (read_text(row, "id") for row in rows(start, FOLDERS) if row["title"] == params["folder"])
    folder = next(found, "")
    return folder, [row for row in list_notes(start, folder) if is_todo(row)]


def _count_plan(frame: Frame, params: Params, start: Phone) -> Action:
    folder, found = _find_todos(start, params)
    if score_number(frame.phone, len(found)) == 1.0:
        return plans.finish()
    return _survey_folder(frame, folder, found) or say([str(len(found))])


def _count_score(start: Phone, end: Phone, params: Params) -> float:
    return score_number(end, len(_find_todos(start, params)[1]))


# ------------------------------------------------------------------------------------------------ preparing and drawing


def _prepare(phone: Phone, params: Params, rng: random.Random, *, folder: str | None, count: int = 1) -> Phone:
    """Store the wanted notes and others: none of that title, and no to-do where to-dos are counted."""
    home = str(params["folder"]) if folder is None else folder
    body = str(params["body"])
    for name in ("attendee_count", "ingredient_quantity", "ingredient"):
        body = body.replace(f"{{{name}}}", str(params.get(name)))
    titles = [str(params["title"]), *rng.sample([one for one in _TITLES if one != params["title"]], count - 1)]
    todo = int(count > 1 or params.get("is_todo") == "True")
    records: list[tuple[str, TableRow]] = [(home, {"title": title, "body": body, "is_todo": todo}) for title in titles]
    for title in rng.sample(_NOISE, len(_NOISE)):
        place = home if rng.random() < 0.2 else rng.choice(_FOLDERS)
        other = int(rng.random() < 0.5 and not (count > 1 and place == home))
        done = phone.now_ms if other and rng.random() < 0.5 else 0
        records.append((place, {"title": title, "body": rng.choice(_BODIES), "is_todo": other, "todo_completed": done}))
    rng.shuffle(records)
    return put_library(phone, records)


def _draw_todo(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(("True", "False"))
    return {"title": rng.choice(_TITLES), "is_todo": kind, "body": rng.choice(_BODIES), "folder": rng.choice(_FOLDERS)}


def _draw_folder(rng: random.Random) -> dict[str, Any]:
    return {"folder": rng.choice(_FOLDERS), "title": rng.choice(_TITLES), "body": rng.choice(_BODIES)}


def _draw_meeting(rng: random.Random) -> dict[str, Any]:
    count = str(rng.randint(4, 120))
    return {"title": rng.choice(_MEETINGS), "attendee_count": count, "body": rng.choice(_MINUTES)}


def _draw_recipe(rng: random.Random) -> dict[str, Any]:
    quantity, ingredient = rng.choice(_QUANTITIES), rng.choice(_INGREDIENTS)
    drawn = {"title": rng.choice(_DISHES), "ingredient_quantity": quantity, "ingredient": ingredient}
    return {**drawn, "body": rng.choice(_METHODS)}


# ------------------------------------------------------------------------------------------------------------- tasks

_task = partial(TaskSpec, apps=("joplin",), complexity=1, difficulty="easy", wave=2)

TASKS: tuple[TaskSpec, ...] = (
    _task(
        name="NotesIsTodo",
        goal=make_phrasings(
            'Is "{title}" in Joplin a to-do? Answer with True or False.',
            'Look at "{title}" in Joplin. Say True when it is a to-do, and False when it is a plain note.',
            'Answer with True or False: the note "{title}" in Joplin is a to-do.',
        ),
        draw=_draw_todo,
        prepare=partial(_prepare, folder=None),
        score=partial(_score, answer="is_todo"),
        plan=partial(_plan, answer="is_todo"),
    ),
    _task(
        name="NotesMeetingAttendeeCount",
        goal=make_phrasings(
            'How many people came to the meeting "{title}"? It is in Joplin. Answer with the number alone.',
            'Joplin has notes on the meeting "{title}". How many attended? Only the number, please.',
            'Look up in Joplin how many people took part in "{title}" and answer with a whole number.',
        ),
        draw=_draw_meeting,
        prepare=partial(_prepare, folder="Meeting Notes"),
        score=lambda start, end, params: score_number(end, int(params["attendee_count"])),
        plan=partial(_plan, answer="attendee_count"),
    ),
    _task(
        name="NotesRecipeIngredientCount",
        goal=make_phrasings(
            'How much {ingredient} does "{title}" in Joplin need? Answer with amount and unit as the recipe writes it.',
            'See the recipe "{title}" in Joplin: what is the quantity of {ingredient}? Copy amount and unit exactly.',
            'I cook "{title}" from my Joplin notes. Tell me amount and unit of {ingredient}, exactly as written there.',
        ),
        draw=_draw_recipe,
        prepare=partial(_prepare, folder="Recipes"),
        score=partial(_score, answer="ingredient_quantity"),
        plan=partial(_plan, answer="ingredient_quantity"),
    ),
    _task(
        name="NotesTodoItemCount",
        difficulty="medium",
        goal=make_phrasings(
            'How many to-dos are in the notebook "{folder}" in Joplin? Answer with the number alone.',
            'Count the to-dos of the Joplin notebook "{folder}". Only the number, please.',
            'Open "{folder}" in Joplin and say how many of its notes are to-dos, as a whole number.',
        ),
        draw=_draw_folder,
        prepare=partial(_prepare, folder=None, count=3),
        score=_count_score,
        plan=_count_plan,
    ),
)
