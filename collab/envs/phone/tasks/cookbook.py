"""The recipes that recipe tasks draw from."""

from __future__ import annotations

import random
from collections.abc import Sequence

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
    """A recipe as a row without its key; it has all texts but a source."""
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
