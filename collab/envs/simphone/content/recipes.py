"""Broccoli's recipes, in the app's own database."""

from __future__ import annotations

from collections.abc import Mapping

from collab.envs.simphone.state import Phone, Row, Table, insert, remove, rows, update, whole

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


def recipes(phone: Phone) -> list[Row]:
    """All recipes by title."""
    return sorted(rows(phone, RECIPES), key=lambda row: (said(row, "title").casefold(), whole(row["recipeId"])))


def recipe(phone: Phone, id: int) -> Row | None:
    """A recipe by its id."""
    return next((row for row in rows(phone, RECIPES) if row["recipeId"] == id), None)


def find_recipes(phone: Phone, wanted: str) -> list[Row]:
    """Recipes with these words in what the app's search looks through: everything but the directions."""
    wanted = wanted.casefold()
    return [row for row in recipes(phone) if any(wanted in said(row, name).casefold() for name in _SEARCHED)]


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


def said(row: Row, name: str) -> str:
    """One of a recipe's texts; empty when there is none."""
    return str(row[name] or "")
