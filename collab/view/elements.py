"""Elements of a screen as the inspector shows them, and the changes from one screen to the next.

Elements are the same when they have the same key, or, where keys are missing or not unique, the same role and label. Of
several equal ones, the first is matched with the first, the second with the second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from collab.types import Box, Element, Observation
from collab.view import common
from collab.view.schema.step import (
    ChangedElement,
    ElementView,
    Rectangle,
    ScreenChanges,
)

_FLAGS = 10
"""Most flags of an element that are shown."""


def get_rectangle(box: Box | None) -> Rectangle | None:
    """Return a box as its four edges."""
    return None if box is None else (box.left, box.top, box.right, box.bottom)


def build_element_view(element: Element, *, whole: bool = False) -> ElementView:
    """Build the view of an element; its texts are cut unless `whole`."""
    cut = str if whole else common.shorten
    flags = element.flags if whole else [common.shorten(flag) for flag in element.flags[:_FLAGS]]
    return ElementView(
        index=element.index,
        role=cut(element.role),
        label=cut(element.label),
        box=get_rectangle(element.box),
        value=None if element.value is None else cut(element.value),
        flags=flags,
    )


MOST = 500
"""Most listed elements of each kind."""


def compare_screens(before: Observation, after: Observation) -> ScreenChanges:
    """List the changes from one screen to the next."""
    old, new = _index_elements(before.elements), _index_elements(after.elements)
    both = [(old[name], new[name]) for name in old if name in new]
    altered = [(one, other) for one, other in both if _get_content(one) != _get_content(other)]
    fresh = [one for name, one in new.items() if name not in old]
    gone = [one for name, one in old.items() if name not in new]
    return ScreenChanges(
        same=before.digest == after.digest,
        title=_get_new(before.title, after.title),
        url=_get_new(before.url, after.url),
        notice=_get_new(before.notice, after.notice),
        appeared=[build_element_view(one) for one in fresh[:MOST]],
        gone=[build_element_view(one) for one in gone[:MOST]],
        changed=[
            ChangedElement(before=build_element_view(one), after=build_element_view(other))
            for one, other in altered[:MOST]
        ],
        moved=sum(one.box != other.box for one, other in both if _get_content(one) == _get_content(other)),
        more=sum(max(0, len(found) - MOST) for found in (fresh, gone, altered)),
    )


def _index_elements(elements: Sequence[Element]) -> dict[Hashable, Element]:
    """Index elements by their identity, in their order."""
    keys = Counter(element.key for element in elements)
    seen: defaultdict[Hashable, int] = defaultdict(int)
    found: dict[Hashable, Element] = {}
    for element in elements:
        name = element.key if element.key and keys[element.key] == 1 else (element.role, element.label, element.key)
        found[name, seen[name]] = element
        seen[name] += 1
    return found


def _get_content(element: Element) -> tuple[object, ...]:
    return element.role, element.label, element.value, element.flags


def _get_new(before: str | None, after: str | None) -> str | None:
    """Return the new value; None where it is the same, or gone."""
    return None if after is None or after == before else common.shorten(after)
