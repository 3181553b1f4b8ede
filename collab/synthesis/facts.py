"""Describe a screen and its elements, as pure functions of an observation.

`ActionBuilder` builds actions by verb in any action space:

    actions = ActionBuilder(space)
    actions.tap(7)                 # click(index=7) on a phone, click(id=7) on a page
    actions.type(3, "Ada")         # input_text, type_string

A verb that the space has no action for gives None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collab.envs.grammar import ActionSpace
from collab.envs.text import flatten, format_element
from collab.types import Action, Element, Observation


@dataclass(frozen=True, slots=True)
class ActionBuilder:
    """Verbs over a space."""

    space: ActionSpace

    def tap(self, index: int) -> Action | None:
        """Touch an element."""
        return self._make_first(("click", self._locate(index)))

    def hold(self, index: int) -> Action | None:
        """Touch it for a second."""
        return self._make_first(("long_press", self._locate(index)))

    def type(self, index: int, text: str, *, instead: bool = False) -> Action | None:
        """Type into a field; `instead` replaces what it holds."""
        clear = {"clear_text": True} if instead else {}
        mobile = ("input_text", {**self._locate(index), "text": text, **clear})
        return self._make_first(mobile, ("type_string", {**self._locate(index), "content": text}))

    def select(self, index: int, option: str) -> Action | None:
        """Choose an option of a list without opening it."""
        return self._make_first(("select", {**self._locate(index), "option": option}))

    def swipe(self, index: int, direction: str) -> Action | None:
        """Move the finger on an element."""
        return self._make_first(("swipe", {**self._locate(index), "direction": direction}))

    def scroll(self, direction: str) -> Action | None:
        """Show what lies in that direction."""
        return self._make_first(("scroll", {"direction": direction}), ("scroll_page", {"direction": direction}))

    def open(self, app: str) -> Action | None:
        """Start an app by its name."""
        return self._make_first(("open_app", {"app_name": app}))

    def go_back(self) -> Action | None:
        """Go to the previous screen."""
        return self._make_first(("navigate_back", {}), ("go", {"direction": "backward"}))

    def go_home(self) -> Action | None:
        """Leave for the home screen."""
        return self._make_first(("navigate_home", {}))

    def declare_done(self) -> Action | None:
        """Declare the task complete."""
        return self._make_first(("status", {"goal_status": "complete"}), ("finish", {}))

    def answer(self, text: str) -> Action | None:
        """Answer a question."""
        return self._make_first(("answer", {"text": text}), ("finish", {"answer": text}))

    def _locate(self, index: int) -> dict[str, Any]:
        return {self.space.index_field: index}

    def _make_first(self, *forms: tuple[str, dict[str, Any]]) -> Action | None:
        known = self.space.types
        return next((self.space.make(name, **fields) for name, fields in forms if name in known), None)


TOGGLES = frozenset({"switch", "checkbox", "radio"})
"""Roles that are on or off."""
FIELDS = frozenset({"input", "textarea"})
"""Roles that text is typed into."""
SET = frozenset({"spinner", "select", "drop-down", "slider"})
"""Roles that are set to a value."""
SILENT = frozenset({"text", "heading", "image"})
"""Roles that are there to be read."""

_OFFERS: tuple[tuple[frozenset[str], str], ...] = (
    (FIELDS, "fill in"),
    (frozenset({"spinner", "select", "drop-down"}), "choose"),
    (TOGGLES, "turn on or off"),
    (frozenset({"slider"}), "adjust"),
    (frozenset({"list item", "link"}), "open"),
    (frozenset({"app"}), "start"),
    (frozenset({"tab"}), "switch to"),
    (frozenset({"option"}), "choose among"),
    (frozenset({"button", "icon", "chip"}), "tap"),
)
"""What is done with elements of a role."""
_ROLES = {
    "spinner": "It opens a list from which {label} is chosen.",
    "select": "It is a list from which {label} is chosen.",
    "drop-down": "It is a list from which {label} is chosen.",
    "option": "It is one of the choices of a list: {label}.",
    "switch": "It turns {label} on or off.",
    "checkbox": "It ticks {label} or takes the tick away.",
    "radio": "It chooses {label} among several.",
    "slider": "It sets {label}.",
    "tab": "It shows the part {label}.",
    "app": "It starts the app {label}.",
    "icon": "It is a picture to tap: {label}.",
    "button": "It is a button to tap: {label}.",
    "link": "It is a link to {label}.",
    "list item": "It is an entry of a list: {label}.",
    "chip": "It is a small button to tap: {label}.",
    "heading": "It is a heading to read: {label}.",
    "image": "It is a picture to look at: {label}.",
    "text": "It is a text to read: {label}.",
}
_VAGUE = frozenset({"the screen changed", "the page changed"})
"""Effects whose detail says what is different."""
_NAMED = 6
"""How many elements of one kind are listed by name."""


def is_typed_into(element: Element) -> bool:
    """Return whether text can be typed into the element."""
    return element.role in FIELDS or "editable" in element.flags


def is_on(element: Element) -> bool:
    """Return whether a toggle is on."""
    return "checked" in element.flags


def label(element: Element) -> str:
    """Return the label on one line, in quotes; "it" without one."""
    return f'"{flatten(element.label)}"' if element.label else "it"


def join_names(names: Sequence[str], most: int = _NAMED) -> str:
    """Join names: "A", "A and B", "A, B and 3 more"."""
    shown = list(dict.fromkeys(names))
    if len(shown) > most:
        shown = [*shown[: most - 1], f"{len(shown) - most + 1} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def list_offers(observation: Observation) -> list[str]:
    """List what can be done on the screen: "fill in First name and Last name", "tap Save"."""
    found = []
    for roles, verb in _OFFERS:
        names = [flatten(one.label) for one in observation.elements if one.role in roles and one.label]
        if names:
            found.append(f"{verb} {join_names(names)}")
    return found


def describe_purpose(observation: Observation) -> str:
    """Describe the screen's purpose."""
    app, _, part = (piece.strip() for piece in observation.title.partition(":"))
    what = f'It is the screen "{part}" of {app}' if part else f"It is the first screen of {app}"
    can = list_offers(observation)
    return f"{what}. It is there to {'; '.join(can[:2])}." if can else f"{what}. It is there to be read."


def describe_aim(observation: Observation) -> str:
    """Describe what the user can do."""
    can = "; ".join(list_offers(observation))
    return _write_sentence(can) if can else "Nothing can be done here but to read."


def summarize_screen(observation: Observation) -> str:
    """Summarise the screen's elements by role."""
    count = len(observation.elements)
    parts = [f'"{flatten(observation.title)}" shows {count} element{"" if count == 1 else "s"}.']
    if observation.notice:
        parts.append(f'A message says "{flatten(observation.notice)}".')
    for role in dict.fromkeys(element.role for element in observation.elements):
        alike = [element for element in observation.elements if element.role == role]
        parts.append(
            f"{_format_count(len(alike), role)}: {join_names([_describe_briefly(element) for element in alike])}."
        )
    return " ".join(parts)


def _format_count(count: int, role: str) -> str:
    """Format a count as "1 icon" or "3 switches"."""
    ending = "" if count == 1 else "es" if role.endswith(("ch", "x")) else "s"
    return f"{count} {role}{ending}"


def _describe_briefly(element: Element) -> str:
    name = flatten(element.label) or "without a label"
    if element.role in TOGGLES:
        return f"{name} ({'on' if is_on(element) else 'off'})"
    if is_typed_into(element):
        return f'{name} ("{flatten(element.value)}")' if element.value else f"{name} (empty)"
    return f"{name} ({flatten(element.value)})" if element.value else name


def describe_information(element: Element) -> str:
    """Describe an element's text, content and state."""
    said = [_describe_content(element)]
    said += [f"It is {flag}." for flag in ("selected", "focused", "disabled") if flag in element.flags]
    return " ".join(said)


def _describe_content(element: Element) -> str:
    if element.role in TOGGLES:
        return f"{label(element)} is {'on' if is_on(element) else 'off'}."
    if is_typed_into(element):
        return f'{label(element)} holds "{flatten(element.value)}".' if element.value else f"{label(element)} is empty."
    if element.value:
        return f'{label(element)}: "{flatten(element.value)}".'
    return f"It says {label(element)}." if element.label else "It says nothing."


def describe_function(element: Element) -> str:
    """Describe an element's function by its role."""
    if is_typed_into(element):
        return f"It is the field {label(element)}, to type into." if element.label else "It is a field to type into."
    return _ROLES.get(element.role, "It is a {role}: {label}.").format(role=element.role, label=label(element))


def find_own_action(element: Element, actions: ActionBuilder) -> Action | None:
    """Return the action that an element's role suggests, with "…" for a text or option; None for a text to read."""
    if is_typed_into(element):
        return actions.type(element.index, "…")
    if element.role == "drop-down":
        return actions.select(element.index, "…") or actions.tap(element.index)
    if element.role == "slider":
        return actions.swipe(element.index, "right") or actions.tap(element.index)
    return None if element.role in SILENT else actions.tap(element.index)


def describe_change(before: Observation, after: Observation, effect: str) -> str:
    """Describe an action's effect and the new screen, or new elements of the old one; moved elements do not count."""
    told = _write_sentence(effect)
    if after.title != before.title:
        return told if after.title in effect else f'{told} The screen is "{flatten(after.title)}".'
    old = Counter(map(_build_key, before.elements))
    new = [format_element(element) for element in after.elements if not _is_known(element, old)]
    if not new:
        return told
    return (
        f"{told[:-1]} and now shows {join_names(new, 3)}."
        if effect in _VAGUE
        else f"{told} Now there is {join_names(new, 3)}."
    )


def _build_key(element: Element) -> tuple[str, ...]:
    return element.role, element.label, element.value or "", *element.flags


def _is_known(element: Element, old: Counter[tuple[str, ...]]) -> bool:
    """Return whether an equal element was there before, and consume it."""
    there = old[_build_key(element)] > 0
    old[_build_key(element)] -= there
    return there


def _write_sentence(text: str) -> str:
    """Return the text with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text[-1:] in '.?!' else '.'}"
