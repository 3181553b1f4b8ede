"""Show labels in other words or another language, and screens in another order and other measures.

Three tables lie beside this module, in `tables/`:

    data.yaml      where text comes from users or files. It is never changed, but for the templates named there
    german.yaml    English text → German text, complete for all apps of this package
    synonyms.yaml  per language, a text → others that mean the same

A template has holes: {n} is a number, {said} a text that has a translation itself, {any} anything, which is kept;
digits after the name tell several apart. A text without a translation stays as it is.

Only the display changes, not keys, handlers, pages and state. An order belongs to the episode: it follows from the
entries' keys, so an entry keeps its place among the others while some come and go.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from collab.envs.simphone.app import Item, NodeLine, UiNode, View, grid
from collab.envs.simphone.distractions.presets import Distractions
from collab.envs.simphone.state import ACCENTS, USUAL, Language, Manner, Phone, put_setting
from collab.seeds import derive, generator

_TABLES = Path(__file__).parent / "tables"
_HOLES = {"n": r"\d+", "said": r".+?", "any": r".*"}
_HOLE = re.compile(r"\{((?:n|said|any)\d*)\}")
_LETTER = re.compile(r"[^\W\d_]")
_RENAMED = 0.5
"""Share of the texts with synonyms that an episode says otherwise."""


@cache
def load_table(name: Literal["data", "german", "synonyms"]) -> Mapping[str, Any]:
    """Return one of the tables; read when it is first needed."""
    read: Mapping[str, Any] = yaml.safe_load((_TABLES / f"{name}.yaml").read_text(encoding="utf-8"))
    return read


# ------------------------------------------------------------------------------------------------------- single texts


def place_of(key: str) -> str:
    """Return where a node stands, without what makes it one of many: "org.tasks:id/task/7" → "org.tasks:id/task/*"."""
    package, mark, name = key.partition(":id/")
    head, slash, _ = name.partition("/")
    return f"{package}{mark}{head}/*" if slash else key


@lru_cache(maxsize=1 << 13)
def translate(text: str) -> str | None:
    """Return the German for a label; None when the table has none. A text without letters is its own translation."""
    known = load_table("german")
    exact = known["texts"].get(text) or known["apps"].get(text)
    if exact is not None:
        return str(exact)
    if not _LETTER.search(text):
        return text
    return next(
        (found for one in _load_templates() if (found := _fill_template(one, known["texts"][one], text)) is not None),
        None,
    )


@lru_cache(maxsize=1 << 13)
def translate_at(text: str, place: str) -> str | None:
    """Return the German for what stands at a place; None when there is none, as for all that is a user's own."""
    known = load_table("german")
    special = known["there"].get(place, {}).get(text)
    if special is not None:
        return str(special)
    allowed = load_table("data").get(place)
    if allowed is None:
        return translate(text)
    own = known["beside_data"] | known["texts"]
    return next((found for one in allowed if (found := _fill_template(one, own[one], text)) is not None), None)


@lru_cache(maxsize=1 << 14)
def reword(text: str, place: str, manner: Manner) -> str:
    """Return a text in the words of an episode's manner.

    Args:
        place: where it stands, as in data.yaml.
    """
    shown = (translate_at(text, place) or text) if manner.language == "german" else text
    others = load_table("synonyms")[manner.language].get(shown)
    if manner.wording is None or not others or not is_label(text, place):
        return shown
    rng = generator(derive(manner.wording, "word", shown))
    return str(rng.choice(others)) if rng.random() < _RENAMED else shown


def is_label(text: str, place: str) -> bool:
    """Return whether a text at a place is the phone's own and therefore needs a translation."""
    allowed = load_table("data").get(place)
    ours = allowed is None or any(_compile_pattern(one).fullmatch(text) for one in allowed)
    return ours and bool(_LETTER.search(text))


@cache
def _load_templates() -> tuple[str, ...]:
    """Return the translated texts that have holes, in the order of the file."""
    return tuple(text for text in load_table("german")["texts"] if _HOLE.search(text))


@cache
def _compile_pattern(template: str) -> re.Pattern[str]:
    pieces = _HOLE.split(template)  # text, name of a hole, text, …
    holes = (f"(?P<{name}>{_HOLES[name.rstrip('0123456789')]})" for name in pieces[1::2])
    parts = itertools.chain.from_iterable(itertools.zip_longest(map(re.escape, pieces[::2]), holes, fillvalue=""))
    return re.compile("".join(parts), re.DOTALL)


def _fill_template(template: str, translation: str, text: str) -> str | None:
    """Translate a text that fits a template; None when it does not, or a part has no German."""
    found = _compile_pattern(template).fullmatch(text)
    if found is None:
        return None
    parts = {name: translate(part) if name.startswith("said") else part for name, part in found.groupdict().items()}
    if None in parts.values():
        return None
    return _HOLE.sub(lambda hole: str(parts[hole[1]]), translation)


# -------------------------------------------------------------------------------------------------------------- apps


def name_app(name: str, manner: Manner) -> str:
    """Return an app's name on this phone; apps from elsewhere keep theirs."""
    return str(load_table("german")["apps"].get(name, name)) if manner.language == "german" else name


@cache
def load_english_names() -> Mapping[str, str]:
    """Return German names of apps, in lower case → the English ones, in lower case."""
    return {german.casefold(): english.casefold() for english, german in load_table("german")["apps"].items()}


# ------------------------------------------------------------------------------------------------------ whole screens


def is_usual(manner: Manner) -> bool:
    """Return whether all texts are the apps' own."""
    return manner is USUAL or (manner.language == "english" and manner.wording is None)


def reword_view(view: View, screen: str, manner: Manner) -> View:
    """Return the view with its labels in the episode's words."""
    if is_usual(manner):
        return view
    return replace(
        view,
        title=reword(view.title, f"title/{screen}", manner),
        body=[_reword_item(item, manner) for item in view.body],
        actions=tuple(_reword_single(node, manner) for node in view.actions),
        navigation=_reword_optional(view.navigation, manner),
        footer=None if view.footer is None else _reword_item(view.footer, manner),
        fab=_reword_optional(view.fab, manner),
    )


def reword_node(node: UiNode, manner: Manner) -> UiNode:
    """Return one node in the episode's words."""
    return node if is_usual(manner) else _reword_single(node, manner)


def _reword_item(item: Item, manner: Manner) -> Item:
    if isinstance(item, NodeLine):
        return item._replace(nodes=tuple(_reword_single(node, manner) for node in item.nodes))
    return _reword_single(item, manner)


def _reword_optional(node: UiNode | None, manner: Manner) -> UiNode | None:
    return None if node is None else _reword_single(node, manner)


def _reword_single(node: UiNode, manner: Manner) -> UiNode:
    place = place_of(node.key)
    label = reword(node.label, place, manner)
    value = node.value
    if value and node.field is None:
        value = reword(value, f"{place}=", manner)
    if label is node.label and value is node.value:
        return node
    picture = node.label if node.role in ("icon", "app", "switch") else ""
    return node._replace(label=label, value=value, picture=picture)


_SHUFFLED = frozenset({"settings.page"})
"""Screens whose rows have no order of their own."""
_TOP = frozenset({"com.android.settings:id/search_action_bar"})
"""What stands above such rows all the same."""


def draw_manner(distractions: Distractions, seed: int, task: str) -> Manner:
    """Return the manner of an episode.

    Args:
        seed: of the task instance.
        task: its name.
    """
    # Each property has a seed of its own, so that switching one off changes no other.
    style = generator(derive(seed, "style", task))
    languages: tuple[Language, ...] = ("english", "german")
    language = generator(derive(seed, "language", task)).choice(languages)
    manner = Manner(
        language=language if distractions.language == "either" else distractions.language,
        wording=derive(seed, "wording", task) if distractions.rename else None,
        order=derive(seed, "order", task) if distractions.shuffle else None,
    )
    if not distractions.restyle:
        return manner
    font = style.choice((0.85, 1.0, 1.15, 1.3))
    return replace(
        manner,
        # Larger letters need higher rows, or texts would overlap.
        rows=style.choice((0.85, 1.0, 1.1)) * max(1.0, font**0.5),
        inset=style.choice((0, 20, 40)),
        font=font,
        accent=style.choice((None, *ACCENTS)),
    )


def apply_manner(phone: Phone, distractions: Distractions, seed: int, task: str) -> Phone:
    """Return the phone of an instance in the episode's manner; half of all restyled phones are dark."""
    manner = draw_manner(distractions, seed, task)
    phone = phone if manner == phone.manner else replace(phone, manner=manner)
    if distractions.restyle and generator(derive(seed, "dark", task)).random() < 0.5:
        phone = put_setting(phone, "secure/dark_theme", "1")
    return phone


# --------------------------------------------------------------------------------------------------------------- order


def shuffle_view(view: View, screen: str, manner: Manner) -> View:
    """Shuffle the view as the episode does; keep its order where that has a meaning."""
    seed = manner.order
    if seed is None:
        return view
    # Only where the order has no meaning: in menus, and on the screens that are named for it.
    if view.style == "menu" or screen in _SHUFFLED:
        return replace(
            view, body=sorted(view.body, key=lambda item: (_find_key(item) not in _TOP, _rank(seed, _find_key(item))))
        )
    if screen == "launcher.home" and isinstance(view.footer, NodeLine):
        return replace(view, footer=view.footer._replace(nodes=_mix_nodes(view.footer.nodes, seed)))
    if screen == "launcher.drawer":
        return replace(view, body=_shuffle_drawer(view.body, seed))
    return view


def _shuffle_drawer(body: list[Item], seed: int) -> list[Item]:
    """Return whatever stands above the apps, then the apps."""
    above = [item for item in body if not isinstance(item, NodeLine)]
    lines = [item for item in body if isinstance(item, NodeLine)]
    apps = tuple(node for one in lines for node in one.nodes)
    return [*above, *grid(list(_mix_nodes(apps, seed)), columns=lines[0].columns)] if lines else body


def _mix_nodes(nodes: tuple[UiNode, ...], seed: int) -> tuple[UiNode, ...]:
    return tuple(sorted(nodes, key=lambda node: _rank(seed, node.key)))


def _find_key(item: Item) -> str:
    return item.nodes[0].key if isinstance(item, NodeLine) else item.key


@lru_cache(maxsize=1 << 13)
def _rank(seed: int, key: str) -> int:
    return derive(seed, "rank", key)
