"""Broccoli tasks: recipes added from a text or a note, and recipes deleted by title, by ingredient or as duplicates.

The recipes that recipe tasks draw from.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from collab.envs.simphone.apps.markor import MARKOR
from collab.envs.simphone.apps.recipe import FIELDS, PACKAGE, RECIPES, TEXTS, entry_key, list_recipes
from collab.envs.simphone.state import Phone, to_whole, write
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.markor_writing import empty_notebook
from collab.envs.simphone.tasks.records import (
    RecordTable,
    TaskRecord,
    draw_distinct,
    format_records,
    make_goal,
)
from collab.envs.simphone.tasks.spec import Params, TaskSpec
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

DIRECTIONS = {
    "Almond Rice Pudding": "Simmer rice in milk with cinnamon until thick, then fold in almonds and honey.",
    "Apricot Oat Bars": "Press oats mixed with butter and apricots into a tin and bake until crisp.",
    "Baked Feta with Olives": "Cover feta with olives, oregano and olive oil and bake until it softens.",
    "Barley Mushroom Bowl": "Boil barley, brown mushrooms in butter and toss both with parsley.",
    "Beetroot Walnut Salad": "Roast beetroot, slice it and dress it with walnuts, dill and vinegar.",
    "Black Bean Burritos": "Mash black beans with cumin and lime, spoon onto tortillas with rice and roll up.",
    "Cabbage Noodle Pan": "Fry cabbage and onions until golden, then stir in noodles and caraway.",
    "Carrot Ginger Soup": "Sweat carrots with ginger, pour on stock and blend with coconut milk.",
    "Chickpea Lemon Stew": "Cook chickpeas with garlic, tomatoes and spinach, and finish with lemon.",
    "Cod on Potato Mash": "Steam cod over boiling potatoes, mash these with butter and serve with dill.",
    "Courgette Fritters": "Grate courgettes, bind them with eggs and flour and fry in olive oil.",
    "Cucumber Yogurt Dip": "Grate cucumber, salt it, press it out and stir it into yogurt with garlic.",
    "Egg Fried Rice": "Scramble eggs in a hot wok, add cold rice, peas and soy sauce.",
    "Fennel Orange Salad": "Shave fennel thinly and toss it with orange, olives and mint.",
    "Fish Cakes with Dill": "Shape cod, potatoes and dill into cakes, coat with flour and fry.",
    "French Toast": "Soak bread in eggs and milk, fry in butter and dust with cinnamon.",
    "Green Pea Risotto": "Stir rice with stock until creamy, then add peas, butter and mint.",
    "Honey Roast Carrots": "Toss carrots in honey, thyme and olive oil and roast until sticky.",
    "Leek Potato Gratin": "Layer leeks and potatoes with cream and nutmeg and bake under cheese.",
    "Lentil Shepherds Pie": "Simmer lentils with carrots and thyme, top with mashed potatoes and bake.",
    "Mango Lime Salad": "Cube mango, add chili, lime and mint and chill before serving.",
    "Miso Aubergine": "Score aubergine, brush with miso and honey and grill until dark.",
    "Mushroom Toast": "Fry mushrooms with garlic and thyme and heap them onto toasted bread.",
    "Onion Soup": "Cook onions in butter very slowly, add stock and float bread with cheese on top.",
    "Peanut Noodles": "Whisk peanut butter with soy sauce and lime and pour over noodles.",
    "Pear Ginger Crumble": "Cover pears and ginger with oats, butter and flour and bake until bubbling.",
    "Potato Spinach Curry": "Fry cumin and ginger, add potatoes and coconut milk, and wilt spinach in it.",
    "Pumpkin Gnocchi": "Knead pumpkin with flour and eggs, cut into pieces and boil until they float.",
    "Red Lentil Dal": "Boil lentils with turmeric and stir in garlic and cumin fried in butter.",
    "Salmon Rice Bowl": "Glaze salmon with soy sauce and honey, grill it and serve on rice with cucumber.",
    "Shakshuka": "Stew tomatoes, onions and cumin, break eggs into the sauce and cover.",
    "Spinach Cheese Pie": "Fill pastry with spinach, feta and eggs and bake until golden.",
    "Tofu Pepper Skewers": "Thread tofu and peppers on sticks, brush with soy sauce and grill.",
    "Tomato Bread Soup": "Simmer tomatoes with garlic and basil and let old bread fall apart in it.",
    "Walnut Banana Loaf": "Mash bananas, stir in flour, eggs and walnuts and bake in a tin.",
    "White Bean Soup": "Simmer white beans with leeks, thyme and stock and mash half of them.",
}
"""How to cook, by title; in the order of titles."""
INGREDIENTS = (
    "butter garlic thyme dill cumin honey lime mint eggs flour rice potatoes carrots spinach onions noodles bread "
    "lentils tomatoes olives walnuts ginger mushrooms cucumber cheese milk leeks oats feta soy_sauce olive_oil cinnamon"
).split()
"""Each is in the directions of one recipe at least; underscores stand for blanks."""
_DESCRIPTIONS = (
    "Good for a weeknight when time is short.",
    "A family favourite that also works for guests.",
    "Light enough for a warm evening.",
)
_HINTS = ("Taste before you serve it.", "Leftovers keep for two days.", "Double the amounts for a crowd.")
_SERVINGS = ("1 portion", "2 portions", "4 portions", "6 portions", "10 portions")
TIMES = ("5 min", "15 min", "25 min", "40 min", "1 h", "90 min", "2 h", "3 h")
_AMOUNTS = (
    "what the text names",
    "from the pantry",
    "to taste",
    "see below",
    "whatever is fresh",
    "a handful of each",
    "season decides",
)


TITLES = tuple(DIRECTIONS)


def draw_recipe(rng: random.Random, titles: Sequence[str] = TITLES) -> dict[str, str | int]:
    """Return a recipe as a row without its key; it has all texts but a source."""
    title = rng.choice(titles)
    return {
        "title": title,
        "description": rng.choice(_DESCRIPTIONS),
        "servings": rng.choice(_SERVINGS),
        "preparationTime": rng.choice(TIMES),
        "source": "",
        "ingredients": rng.choice(_AMOUNTS),
        "directions": f"{DIRECTIONS[title]} {rng.choice(_HINTS)}",
        "favorite": 0,
        "imageName": "",
    }


_ID = PACKAGE + ":id/"
_NOTE = f"{MARKOR}/recipes.txt"


# -------------------------------------------------------------------------------------------------------- planning


def _add(frame: Frame, record: TaskRecord) -> Action:
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Broccoli")
    if frame.page.screen == "recipe.list":
        return plans.aim_at(frame, _ID + "fab_recipes")
    if frame.page.screen == "recipe.discard":
        new = frame.phone.stacks[PACKAGE][-2].data["id"] is None
        return plans.aim_at(frame, _ID + ("cancel" if new else "discard"))
    if frame.page.screen == "system.text_menu":
        unwanted = record.get(frame.page.data["field"]) == ""
        return plans.aim_at(frame, f"android:id/{'cut' if unwanted else 'done'}")
    if frame.page.screen != "recipe.editor" or frame.page.data["id"] is not None:
        return plans.press_back()
    return _fill_form(frame, record) or plans.aim_at(frame, _ID + "button_save_recipe")


def _fill_form(frame: Frame, record: TaskRecord) -> Action | None:
    """Write what the record says; a field it leaves empty is cut empty by its long-press menu."""
    for name, key in FIELDS.items():
        wanted, written = str(record[name]).strip(), frame.page.fields.get(name, "").strip()
        if wanted != written:
            return plans.fill(frame, _ID + key, wanted) if wanted else plans.aim_at(frame, _ID + key, "long_press")
    return None


def _delete(frame: Frame, ids: set[int]) -> Action:
    """Open one of them after the other and delete it by its menu."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Broccoli")
    if frame.page.screen == "recipe.discard":
        return plans.aim_at(frame, _ID + "discard")
    if frame.page.screen == "recipe.list":
        keys = [entry_key(id) for one in list_recipes(frame.phone) if (id := to_whole(one["recipeId"])) in ids]
        return plans.aim_at(frame, next((key for key in keys if frame.index(key) is not None), keys[0]))
    steps = {"recipe.detail": "more", "recipe.menu": "action_details_delete", "recipe.delete": "delete"}
    if frame.page.screen in steps and frame.page.data["id"] in ids:
        return plans.aim_at(frame, _ID + steps[frame.page.screen])
    return plans.press_back()


_LEDGER = RecordTable(table=RECIPES, text=TEXTS, exact=("favorite",), add=_add, delete=_delete)


# --------------------------------------------------------------------------------------------- preparing and drawing


def _prepare_note(phone: Phone, params: Params, rng: random.Random, *, noise: bool) -> Phone:
    phone = empty_notebook(_LEDGER.prepare(phone, params, rng, targets=False))
    noted = [*params["row_objects"], *(params["noise_row_objects"] if noise else ())]
    if noise:
        rng.shuffle(noted)
    return write(phone, _NOTE, _format_text(noted, params) + "\n")


def _format_text(records: list[TaskRecord], params: Params) -> str:
    names = {"title": "Recipe", "preparationTime": "time"}
    words = [{names.get(name, name): str(record[name]) for name in TEXTS if name != "source"} for record in records]
    return format_records(words, params.get("text_representation_type", "csv"))


def _describe(params: Params) -> dict[str, str]:
    return {
        "titles": ", ".join(str(record["title"]) for record in params["row_objects"]),
        "records": _format_text(params["row_objects"], params),
        "ingredient": str(params.get("ingredient", "")),
        "time": str(params.get("prep_time", "")),
    }


def _draw_added(rng: random.Random, *, count: int, noise: int) -> dict[str, Any]:
    wanted = draw_distinct(rng, draw_recipe, count, "title")
    titles = [title for title in TITLES if all(title != record["title"] for record in wanted)]
    others = draw_distinct(rng, partial(draw_recipe, titles=titles), noise)
    return {"row_objects": wanted, "noise_row_objects": others, "text_representation_type": _draw_form(rng)}


def _draw_timed(rng: random.Random, *, count: int, noise: int) -> dict[str, Any]:
    """Return recipes that take a certain time are wanted; no other takes as long."""
    time, *times = rng.sample(TIMES, len(TIMES))
    wanted = draw_distinct(rng, lambda rng: {**draw_recipe(rng), "preparationTime": time}, count, "title")
    others = draw_distinct(rng, lambda rng: {**draw_recipe(rng), "preparationTime": rng.choice(times)}, noise)
    form = _draw_form(rng)
    return {"row_objects": wanted, "noise_row_objects": others, "text_representation_type": form, "prep_time": time}


def _draw_form(rng: random.Random) -> str:
    return rng.choice(("csv", "text_block"))


def _draw_removed(rng: random.Random, *, count: int, noise: int) -> dict[str, Any]:
    drawn = draw_distinct(rng, draw_recipe, count + noise, "title")
    return {"row_objects": drawn[noise:], **({"noise_row_objects": drawn[:noise]} if noise else {})}


def _draw_using(rng: random.Random, *, count: int, noise: int) -> dict[str, Any]:
    """Return recipes that use an ingredient are to go: as many as there are, at most `count`, and one at least."""
    ingredient = rng.choice(INGREDIENTS).replace("_", " ")
    using = [title for title, directions in DIRECTIONS.items() if ingredient in directions.lower()]
    without = [title for title in TITLES if title not in using]
    wanted = draw_distinct(rng, partial(draw_recipe, titles=using), min(count, len(using)), "title")
    others = draw_distinct(rng, partial(draw_recipe, titles=without), noise)
    return {"row_objects": wanted, "noise_row_objects": others, "ingredient": ingredient}


def _draw_twins(rng: random.Random, *, noise: int, first: int, variants: int, alike: tuple[str, ...]) -> dict[str, Any]:
    """Draw a recipe twice among others: `first` tops the list, `variants` share the columns `alike`."""
    twin, *others = draw_distinct(rng, partial(draw_recipe, titles=TITLES[1:]), 1 + noise)
    others += draw_distinct(rng, partial(draw_recipe, titles=TITLES[:1]), first)
    while len(others) < noise + first + variants:
        record = {**draw_recipe(rng, (str(twin["title"]),)), **{name: twin[name] for name in alike}}
        if record not in (twin, *others):
            others.append(record)
    return {"row_objects": [twin, twin], "noise_row_objects": others}


# ----------------------------------------------------------------------------------------------------------- tasks

_add_task = _LEDGER.build_form(
    _LEDGER.expect_added,
    targets=False,
    apps=("broccoli app",),
    complexity=6,
    wave=2,
    goal=make_goal(
        _describe,
        "Put these recipes into Broccoli:\n{records}",
        "Please type the following into Broccoli as new recipes.\n{records}",
        "Broccoli does not have these recipes yet; add them.\n{records}",
    ),
)
_note_task = partial(
    _add_task,
    apps=("broccoli app", "markor"),
    difficulty="hard",
    plan=partial(_LEDGER.plan, target=_LEDGER.expect_added, note=_NOTE),
)
_delete_task = _LEDGER.build_form(
    _LEDGER.expect_removed,
    targets=True,
    apps=("broccoli app",),
    wave=2,
    goal=make_goal(
        _describe,
        "Remove from Broccoli: {titles}.",
        "I will not cook this again, so delete it in Broccoli: {titles}.",
        "Broccoli should not list the following any longer: {titles}. Delete that and nothing else.",
    ),
)
_twin_task = _LEDGER.build_form(
    _LEDGER.expect_thinned,
    targets=True,
    apps=("broccoli app",),
    wave=2,
    goal=make_goal(
        _describe,
        "Some recipe is in Broccoli twice, with everything the same. Delete the copy and keep one.",
        "Clean up Broccoli: of recipes that agree in every detail, only one may stay. Keep all others.",
        "Look for recipes in Broccoli that are exact copies of each other and delete all but one of them.",
    ),
)

TASKS: tuple[TaskSpec, ...] = (
    _add_task(
        name="RecipeAddSingleRecipe", complexity=2.4, difficulty="easy", draw=partial(_draw_added, count=1, noise=10)
    ),
    _add_task(name="RecipeAddMultipleRecipes", difficulty="medium", draw=partial(_draw_added, count=3, noise=10)),
    _note_task(
        name="RecipeAddMultipleRecipesFromMarkor",
        goal=make_goal(
            _describe,
            "The Markor note recipes.txt holds recipes. Add all of them to Broccoli.",
            "Copy every recipe from recipes.txt in Markor into Broccoli.",
            "Broccoli should get the recipes that I noted in recipes.txt in Markor.",
        ),
        draw=partial(_draw_added, count=3, noise=10),
        prepare=partial(_prepare_note, noise=False),
    ),
    _note_task(
        name="RecipeAddMultipleRecipesFromMarkor2",
        goal=make_goal(
            _describe,
            "Of the recipes in the Markor note recipes.txt, add those to Broccoli that take {time}.",
            "Look through recipes.txt in Markor and copy what takes {time} to prepare into Broccoli.",
            "Broccoli should get every recipe from recipes.txt in Markor whose time is {time}.",
        ),
        draw=partial(_draw_timed, count=3, noise=40),
        prepare=partial(_prepare_note, noise=True),
    ),
    _delete_task(
        name="RecipeDeleteSingleRecipe", complexity=1, difficulty="easy", draw=partial(_draw_removed, count=1, noise=0)
    ),
    _delete_task(
        name="RecipeDeleteSingleWithRecipeWithNoise",
        complexity=2,
        difficulty="easy",
        draw=partial(_draw_removed, count=1, noise=29),
    ),
    _delete_task(
        name="RecipeDeleteMultipleRecipes",
        complexity=2.4,
        difficulty="easy",
        draw=partial(_draw_removed, count=3, noise=0),
    ),
    _delete_task(
        name="RecipeDeleteMultipleRecipesWithNoise",
        complexity=3.4,
        difficulty="medium",
        draw=partial(_draw_removed, count=3, noise=29),
    ),
    _delete_task(
        name="RecipeDeleteMultipleRecipesWithConstraint",
        complexity=4,
        difficulty="hard",
        goal=make_goal(
            _describe,
            "Remove every recipe from Broccoli whose directions call for {ingredient}.",
            "I cannot eat {ingredient}. Delete the Broccoli recipes that have it in their directions.",
            "Broccoli should not have recipes with {ingredient} in the directions any longer. Delete those.",
        ),
        draw=partial(_draw_using, count=3, noise=29),
    ),
    _twin_task(
        name="RecipeDeleteDuplicateRecipes",
        complexity=1,
        difficulty="easy",
        draw=partial(_draw_twins, noise=5, first=0, variants=0, alike=()),
    ),
    _twin_task(
        name="RecipeDeleteDuplicateRecipes2",
        complexity=2.4,
        difficulty="medium",
        draw=partial(_draw_twins, noise=6, first=0, variants=4, alike=()),
    ),
    _twin_task(
        name="RecipeDeleteDuplicateRecipes3",
        complexity=3.4,
        difficulty="medium",
        draw=partial(_draw_twins, noise=21, first=3, variants=6, alike=("description",)),
    ),
)
