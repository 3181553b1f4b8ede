"""Find views by uiautomator2's selectors: the dictionaries its client sends.

Fields must all hold; `instance` picks one of the matches; a chain of "child" and "sibling" continues from the
first match. A string stands for what `childByText` and its kin have found: the same, written as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from collab.envs.simphone.shell.text import PatternProblem, compile_pattern
from collab.envs.simphone.ui.hierarchy import ViewNode


class BadSelector(Exception):
    """The selector is none; the message says why."""


def find(roots: list[ViewNode], selector: object) -> list[ViewNode]:
    """Return all views that match, in reading order.

    Raises:
        BadSelector: the selector is malformed.
    """
    views = [view for root in roots for view in root.walk()]
    if isinstance(selector, str):
        return _find_remembered(roots, selector)
    if not isinstance(selector, Mapping):
        raise BadSelector("selector is no object")
    found = _find_matching(views, selector)
    kinds, selectors = selector.get("childOrSibling") or [], selector.get("childOrSiblingSelector") or []
    if not isinstance(kinds, list) or not isinstance(selectors, list) or len(kinds) != len(selectors):
        raise BadSelector("chain is malformed")
    # Each part of a chain starts from the first view that the part before has found, as uiautomator does.
    for kind, following in zip(kinds, selectors, strict=True):
        if not found:
            return []
        start = found[0] if kind == "child" else found[0].parent
        below = list(start.walk())[1:] if start is not None else []
        if not isinstance(following, Mapping):
            raise BadSelector("chain is malformed")
        found = _find_matching(below, following)
    return found


def remember(parent: object, child: object, words: Mapping[str, object]) -> str:
    """Return the string that stands for the child of `parent` that matches `child` and has `words` in or below it."""
    return json.dumps({"parent": parent, "child": child, "words": dict(words)})


def _find_remembered(roots: list[ViewNode], text: str) -> list[ViewNode]:
    try:
        kept = json.loads(text)
        parent, child, words = kept["parent"], kept["child"], kept["words"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadSelector("unknown object") from None
    if not isinstance(child, Mapping) or not isinstance(words, Mapping):
        raise BadSelector("unknown object")
    # An object is found again by where it was, and not by a number that a new screen would not know.
    owners = find(roots, parent)
    candidates = _find_matching(list(owners[0].walk())[1:], child) if owners else []
    place = words.get("place")
    if isinstance(place, int):
        return candidates[place : place + 1]
    return [view for view in candidates if _find_matching(list(view.walk()), words)]


def _find_matching(views: list[ViewNode], selector: Mapping[str, Any]) -> list[ViewNode]:
    tests = [_test(name, value) for name, value in selector.items() if name in _FIELDS]
    found = [view for view in views if all(test(view) for test in tests)]
    instance = selector.get("instance")
    return found if not isinstance(instance, int) else found[instance : instance + 1] if instance >= 0 else []


def _test(name: str, value: object) -> Callable[[ViewNode], bool]:
    read, compare = _FIELDS[name]
    if compare is _is_same:
        return lambda view: read(view) == value
    if not isinstance(value, str):
        raise BadSelector(f"{name} is no text")
    if compare is _matches:
        matches = _build_pattern(name, value)
        return lambda view: matches(str(read(view)))
    return lambda view: compare(str(read(view)), value)


def _build_pattern(name: str, value: str) -> Callable[[str], bool]:
    def matches(seen: str) -> bool:
        try:
            return expression.fullmatch(seen) is not None
        except PatternProblem as problem:
            raise BadSelector(f"{name}: {problem}") from None

    try:
        expression = compile_pattern(value)
    except PatternProblem as problem:
        raise BadSelector(f"{name}: {problem}") from None
    return matches


def _is_same(seen: str, wanted: str) -> bool:
    return seen == wanted


def _contains(seen: str, wanted: str) -> bool:
    return wanted.lower() in seen.lower()


def _starts_with(seen: str, wanted: str) -> bool:
    return seen.lower().startswith(wanted.lower())


def _matches(seen: str, wanted: str) -> bool:
    return re.fullmatch(wanted, seen) is not None


def _read_flag(name: str) -> Callable[[ViewNode], object]:
    return lambda view: name in view.flags


def _index(view: ViewNode) -> int:
    return view.parent.children.index(view) if view.parent is not None else 0


_FIELDS: dict[str, tuple[Callable[[ViewNode], object], Callable[[str, str], bool]]] = {
    "text": (lambda view: view.text, _is_same),
    "textContains": (lambda view: view.text, _contains),
    "textMatches": (lambda view: view.text, _matches),
    "textStartsWith": (lambda view: view.text, _starts_with),
    "className": (lambda view: view.kind, _is_same),
    "classNameMatches": (lambda view: view.kind, _matches),
    "description": (lambda view: view.description, _is_same),
    "descriptionContains": (lambda view: view.description, _contains),
    "descriptionMatches": (lambda view: view.description, _matches),
    "descriptionStartsWith": (lambda view: view.description, _starts_with),
    "checkable": (_read_flag("checkable"), _is_same),
    "checked": (_read_flag("checked"), _is_same),
    "clickable": (_read_flag("clickable"), _is_same),
    "longClickable": (_read_flag("long-clickable"), _is_same),
    "scrollable": (_read_flag("scrollable"), _is_same),
    "enabled": (lambda view: "disabled" not in view.flags, _is_same),
    "focusable": (_read_flag("focusable"), _is_same),
    "focused": (_read_flag("focused"), _is_same),
    "selected": (_read_flag("selected"), _is_same),
    "packageName": (lambda view: view.package, _is_same),
    "packageNameMatches": (lambda view: view.package, _matches),
    "resourceId": (lambda view: view.id, _is_same),
    "resourceIdMatches": (lambda view: view.id, _matches),
    "index": (_index, _is_same),
}
