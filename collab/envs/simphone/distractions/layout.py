"""The same screens in another order and other measures.

An order is a property of the episode, not of the moment: what stands where follows from the keys of the entries, so
that an entry keeps its place among the others while some come and go.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from collab.envs.simphone.app import Item, Line, Node, View, grid
from collab.envs.simphone.distractions.presets import Distractions
from collab.envs.simphone.state import ACCENTS, Language, Manner, Phone, put_setting
from collab.seeds import derive, generator

_SHUFFLED = frozenset({"settings.page"})
"""Screens whose rows have no order of their own."""
_TOP = frozenset({"com.android.settings:id/search_action_bar"})
"""What stands above such rows all the same."""


def drawn(distractions: Distractions, seed: int, task: str) -> Manner:
    """The manner of an episode.

    Args:
        seed: of the task instance.
        task: its name.
    """
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
        rows=style.choice((0.85, 1.0, 1.1)) * max(1.0, font**0.5),
        inset=style.choice((0, 20, 40)),
        font=font,
        accent=style.choice((None, *ACCENTS)),
    )


def dressed(phone: Phone, distractions: Distractions, seed: int, task: str) -> Phone:
    """The phone of an instance in the episode's manner; half of all restyled phones are dark."""
    manner = drawn(distractions, seed, task)
    phone = phone if manner == phone.manner else replace(phone, manner=manner)
    if distractions.restyle and generator(derive(seed, "dark", task)).random() < 0.5:
        phone = put_setting(phone, "secure/dark_theme", "1")
    return phone


# --------------------------------------------------------------------------------------------------------------- order


def shuffled(view: View, screen: str, manner: Manner) -> View:
    """The view in the order of the episode; the view itself where order has a meaning."""
    seed = manner.order
    if seed is None:
        return view
    if view.style == "menu" or screen in _SHUFFLED:
        return replace(view, body=sorted(view.body, key=lambda item: (_key(item) not in _TOP, _rank(seed, _key(item)))))
    if screen == "launcher.home" and isinstance(view.footer, Line):
        return replace(view, footer=view.footer._replace(nodes=_mixed(view.footer.nodes, seed)))
    if screen == "launcher.drawer":
        return replace(view, body=_drawer(view.body, seed))
    return view


def _drawer(body: list[Item], seed: int) -> list[Item]:
    """Whatever stands above the apps, then the apps."""
    above = [item for item in body if not isinstance(item, Line)]
    lines = [item for item in body if isinstance(item, Line)]
    apps = tuple(node for one in lines for node in one.nodes)
    return [*above, *grid(list(_mixed(apps, seed)), columns=lines[0].columns)] if lines else body


def _mixed(nodes: tuple[Node, ...], seed: int) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda node: _rank(seed, node.key)))


def _key(item: Item) -> str:
    return item.nodes[0].key if isinstance(item, Line) else item.key


@lru_cache(maxsize=1 << 13)
def _rank(seed: int, key: str) -> int:
    return derive(seed, "rank", key)
