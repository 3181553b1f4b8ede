"""Broccoli: recipes by title, one recipe, its form, and a search.

Broccoli's recipes, in the app's own database.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

from collab.envs.simphone.app import App, Item, UiNode, View, button, heading, icon, item, line, text, text_field
from collab.envs.simphone.state import (
    Page,
    Phone,
    Table,
    TableRow,
    insert,
    pop,
    push,
    remove,
    rows,
    swap,
    to_whole,
    toast,
    update,
)
from collab.envs.simphone.ui.layout import CHARACTERS

RECIPES = Table(
    path="/data/data/com.flauschcode.broccoli/databases/broccoli",
    name="recipes",
    columns=(
        ("recipeId", "INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"),
        ("title", "TEXT"),
        ("imageName", "TEXT"),
        ("description", "TEXT"),
        ("servings", "TEXT"),
        ("preparationTime", "TEXT"),
        ("source", "TEXT"),
        ("ingredients", "TEXT"),
        ("directions", "TEXT"),
        ("favorite", "INTEGER NOT NULL"),
    ),
)
TEXTS = ("title", "description", "servings", "preparationTime", "source", "ingredients", "directions")
"""What a recipe says, as columns, in the order of the form."""
_SEARCHED = ("title", "description", "source", "ingredients")


def list_recipes(phone: Phone) -> list[TableRow]:
    """Return all recipes by title."""
    return sorted(rows(phone, RECIPES), key=lambda row: (read_text(row, "title").casefold(), to_whole(row["recipeId"])))


def find_recipe(phone: Phone, id: int) -> TableRow | None:
    """Return a recipe by its id."""
    return next((row for row in rows(phone, RECIPES) if row["recipeId"] == id), None)


def find_recipes(phone: Phone, wanted: str) -> list[TableRow]:
    """Return recipes with these words in what the app's search looks through: everything but the directions."""
    wanted = wanted.casefold()
    return [row for row in list_recipes(phone) if any(wanted in read_text(row, name).casefold() for name in _SEARCHED)]


def add_recipe(phone: Phone, texts: Mapping[str, str]) -> Phone:
    """Store a new recipe."""
    return insert(phone, RECIPES, **{**dict.fromkeys(TEXTS, ""), **texts}, imageName="", favorite=0)[0]


def change_recipe(phone: Phone, id: int, texts: Mapping[str, str]) -> Phone:
    """Replace what a recipe says."""
    return update(phone, RECIPES, lambda row: row["recipeId"] == id, **texts)


def set_favorite(phone: Phone, id: int, favorite: bool) -> Phone:
    """Mark a recipe as favorite, or take the mark away."""
    return update(phone, RECIPES, lambda row: row["recipeId"] == id, favorite=int(favorite))


def remove_recipe(phone: Phone, id: int) -> Phone:
    """Delete a recipe."""
    return remove(phone, RECIPES, lambda row: row["recipeId"] == id)


def read_text(row: TableRow, name: str) -> str:
    """Return one of a recipe's texts; empty when there is none."""
    return str(row[name] or "")


PACKAGE = "com.flauschcode.broccoli"
_ID = PACKAGE + ":id/"
FIELDS = {
    "title": "new_title",
    "description": "new_description",
    "servings": "new_servings",
    "preparationTime": "new_preparation_time",
    "source": "new_source",
    "ingredients": "new_ingredients",
    "directions": "new_directions",
}
"""Column → last part of the key of its field in the form."""
_LABELS = dict(
    zip(TEXTS, ("Title", "Description", "Servings", "Time", "Source", "Ingredients", "Directions"), strict=True)
)


def entry_key(id: int) -> str:
    """Return the key of a recipe in a list."""
    return f"{_ID}recipe/{id}"


# --------------------------------------------------------------------------------------------------------- reading


def recipe_list(phone: Phone, page: Page) -> View:
    """Show all recipes."""
    body: list[Item] = [_entry(one) for one in list_recipes(phone)]
    return View(
        title="Recipes",
        body=body or [text("No recipes found.", _ID + "message")],
        actions=(
            icon("Search", _ID + "action_search", partial(push, page=Page(screen="recipe.search", focus="words"))),
        ),
        fab=icon("New Recipe", _ID + "fab_recipes", _create),
    )


def search(phone: Phone, page: Page) -> View:
    """Show recipes that hold the words; the app does not look into directions."""
    words = page.fields.get("words", "").strip()
    found = find_recipes(phone, words) if words else []
    body: list[Item] = [text_field(page, "words", "Search", _ID + "search_src_text")]
    body += [_entry(one) for one in found]
    if words and not found:
        body.append(text("No recipes found.", _ID + "message"))
    return View(title="Search", body=body)


def _entry(one: TableRow) -> UiNode:
    id = _read_id(one)
    return item(
        read_text(one, "title"), entry_key(id), partial(_open, id=id), value=read_text(one, "description") or None
    )


def detail(phone: Phone, page: Page) -> View:
    """Show one recipe."""
    one = find_recipe(phone, int(page.data["id"]))
    if one is None:
        return View(title="Recipe", body=[text("No recipes found.", _ID + "message")])
    favorite = bool(one["favorite"])
    like = "Remove from favorites" if favorite else "Mark as favorite"
    return View(
        title=read_text(one, "title"),
        body=_paragraphs(one),
        actions=(
            icon(like, _ID + "action_details_like", partial(set_favorite, id=_read_id(one), favorite=not favorite)),
            icon("More options", _ID + "more", partial(push, page=Page(screen="recipe.menu", data=page.data))),
        ),
    )


def _paragraphs(one: TableRow) -> list[Item]:
    """Show what a recipe says, without what is empty."""
    facts = [
        text(label, f"{_ID}details_{name}", value=read_text(one, name))
        for name, label in (("servings", "Servings"), ("preparationTime", "Time"))
        if read_text(one, name)
    ]
    body: list[Item] = [line(*facts)] if facts else []
    body += [
        text(read_text(one, name), f"{_ID}details_{name}") for name in ("description", "source") if read_text(one, name)
    ]
    # Empty parts have no heading either, as in the app.
    for name in ("ingredients", "directions"):
        if read_text(one, name):
            body.append(heading(_LABELS[name], f"{_ID}details_{name}_title"))
            body.append(text(read_text(one, name), f"{_ID}details_{name}"))
    return body


def menu(phone: Phone, page: Page) -> View:
    """Show more that can be done with a recipe."""
    edit, ask = partial(_edit, id=int(page.data["id"])), Page(screen="recipe.delete", data=page.data)
    body: list[Item] = [
        item("Edit", _ID + "action_details_edit", edit),
        item("Delete", _ID + "action_details_delete", partial(swap, page=ask)),
    ]
    return View(title="More options", style="menu", body=body)


def delete(phone: Phone, page: Page) -> View:
    """Show the question before a recipe is deleted."""
    return View(
        title="Delete this recipe?",
        style="dialog",
        body=[],
        actions=(
            button("Cancel", _ID + "cancel", pop),
            button("Delete", _ID + "delete", partial(_delete, id=int(page.data["id"]))),
        ),
    )


def _open(phone: Phone, id: int) -> Phone:
    return push(phone, Page(screen="recipe.detail", data={"id": id}))


def _delete(phone: Phone, id: int) -> Phone:
    return toast(pop(remove_recipe(phone, id), count=2), "The recipe has been deleted.")


def _read_id(one: TableRow) -> int:
    return to_whole(one["recipeId"])


# --------------------------------------------------------------------------------------------------------- writing


def editor(phone: Phone, page: Page) -> View:
    """Show the form of a new or an existing recipe; nothing is stored before Save."""
    return View(
        title="New Recipe" if page.data["id"] is None else "Edit",
        navigation=icon("Close", _ID + "close", _close_editor),
        actions=(icon("Save", _ID + "button_save_recipe", _save),),
        body=[
            text_field(page, "title", "Title", _ID + FIELDS["title"]),
            _area(page, "description"),
            line(
                *(text_field(page, name, _LABELS[name], _ID + FIELDS[name]) for name in ("servings", "preparationTime"))
            ),
            text_field(page, "source", "Source", _ID + FIELDS["source"]),
            _area(page, "ingredients"),
            _area(page, "directions"),
        ],
        back=_close_editor,
    )


def _area(page: Page, name: str) -> UiNode:
    """Show a field of several lines, as high as its text."""
    lines = sum(1 + len(part) // CHARACTERS for part in page.fields.get(name, "").rstrip("\n").split("\n"))
    return text_field(page, name, _LABELS[name], _ID + FIELDS[name], multiline=True)._replace(height=130 + 60 * lines)


def discard(phone: Phone, page: Page) -> View:
    """Show what the form asks when it is closed with changes in it."""
    return View(
        title="Discard changes?",
        style="dialog",
        body=[],
        actions=(button("Cancel", _ID + "cancel", pop), button("Discard", _ID + "discard", partial(pop, count=2))),
    )


def _create(phone: Phone) -> Phone:
    return push(phone, Page(screen="recipe.editor", data={"id": None}))


def _edit(phone: Phone, id: int) -> Phone:
    return swap(phone, Page(screen="recipe.editor", data={"id": id}, fields=_read_stored(phone, id)))


def _read_stored(phone: Phone, id: int | None) -> dict[str, str]:
    """Return what the form of a recipe starts with."""
    one = None if id is None else find_recipe(phone, id)
    return {name: "" if one is None else read_text(one, name) for name in TEXTS}


def _read_form(page: Page) -> dict[str, str]:
    return {name: page.fields.get(name, "").strip() for name in TEXTS}


def _close_editor(phone: Phone) -> Phone:
    changed = _read_form(phone.page) != _read_stored(phone, phone.page.data["id"])
    return push(phone, Page(screen="recipe.discard")) if changed else pop(phone)


def _save(phone: Phone) -> Phone:
    id, texts = phone.page.data["id"], _read_form(phone.page)
    if not texts["title"]:
        return toast(phone, "Please add a title.")
    phone = add_recipe(phone, texts) if id is None else change_recipe(phone, id, texts)
    return toast(pop(phone), "The recipe has been saved.")


_NOISE = ("Apple Crumble", "Corn Chowder", "Focaccia", "Herb Omelette", "Plum Jam", "Radish Salad")


def _add_noise(phone: Phone, rng: random.Random) -> Phone:
    for title in rng.sample(_NOISE, rng.randint(1, 3)):
        phone = add_recipe(phone, {"title": title, "servings": f"{rng.randint(2, 6)}"})
    return phone


APP = App(
    package=PACKAGE,
    names=("Broccoli", "Broccoli App", "Broccoli Recipe App", "Recipe App"),
    activity=".MainActivity",
    pages=(Page(screen="recipe.list"),),
    screens={
        "recipe.list": recipe_list,
        "recipe.search": search,
        "recipe.detail": detail,
        "recipe.menu": menu,
        "recipe.delete": delete,
        "recipe.editor": editor,
        "recipe.discard": discard,
    },
    tables=(RECIPES,),
    noise=_add_noise,
)
