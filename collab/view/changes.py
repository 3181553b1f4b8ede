"""What changed on the screen between two steps, element by element.

Elements are the same when they have the same key, or, where keys are missing or not unique, the same role and label;
of several, the first stands for the first, the second for the second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from collab.types import Element, Observation
from collab.view import answer
from collab.view.screens import element_view
from collab.view.shapes.screen import Changed, Changes

MOST = 500
"""Elements of each kind that are told."""


def changes(before: Observation, after: Observation) -> Changes:
    """From one screen to the next."""
    old, new = _named(before.elements), _named(after.elements)
    both = [(old[name], new[name]) for name in old if name in new]
    altered = [(one, other) for one, other in both if _content(one) != _content(other)]
    fresh = [one for name, one in new.items() if name not in old]
    gone = [one for name, one in old.items() if name not in new]
    return Changes(
        same=before.digest == after.digest,
        title=_new(before.title, after.title),
        url=_new(before.url, after.url),
        notice=_new(before.notice, after.notice),
        appeared=[element_view(one) for one in fresh[:MOST]],
        gone=[element_view(one) for one in gone[:MOST]],
        changed=[Changed(before=element_view(one), after=element_view(other)) for one, other in altered[:MOST]],
        moved=sum(one.box != other.box for one, other in both if _content(one) == _content(other)),
        more=sum(max(0, len(found) - MOST) for found in (fresh, gone, altered)),
    )


def _named(elements: Sequence[Element]) -> dict[Hashable, Element]:
    """Elements by what tells them apart, in their order."""
    keys = Counter(element.key for element in elements)
    seen: defaultdict[Hashable, int] = defaultdict(int)
    found: dict[Hashable, Element] = {}
    for element in elements:
        name = element.key if element.key and keys[element.key] == 1 else (element.role, element.label, element.key)
        found[name, seen[name]] = element
        seen[name] += 1
    return found


def _content(element: Element) -> tuple[object, ...]:
    return element.role, element.label, element.value, element.flags


def _new(before: str | None, after: str | None) -> str | None:
    """The new one; None where it is the same, or gone."""
    return None if after is None or after == before else answer.short(after)
