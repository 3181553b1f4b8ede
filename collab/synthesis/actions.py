"""What a hand can do, in whichever action space: tap, type, go back, say that it is done.

    hands = Hands(space)
    hands.tap(7)                 # click(index=7) on a phone, click(id=7) on a page
    hands.type(3, "Ada")         # input_text, type_string

A verb that the space has no action for gives None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from collab.envs.grammar import ActionSpace
from collab.types import Action


@dataclass(frozen=True, slots=True)
class Hands:
    """Verbs over a space."""

    space: ActionSpace

    def tap(self, index: int) -> Action | None:
        """Touch an element."""
        return self._first(("click", self._at(index)))

    def hold(self, index: int) -> Action | None:
        """Touch it for a second."""
        return self._first(("long_press", self._at(index)))

    def type(self, index: int, text: str, *, instead: bool = False) -> Action | None:
        """Type into a field; `instead` replaces what it holds."""
        clear = {"clear_text": True} if instead else {}
        mobile = ("input_text", {**self._at(index), "text": text, **clear})
        return self._first(mobile, ("type_string", {**self._at(index), "content": text}))

    def select(self, index: int, option: str) -> Action | None:
        """Choose an option of a list without opening it."""
        return self._first(("select", {**self._at(index), "option": option}))

    def swipe(self, index: int, direction: str) -> Action | None:
        """Move the finger on an element."""
        return self._first(("swipe", {**self._at(index), "direction": direction}))

    def scroll(self, direction: str) -> Action | None:
        """Show what lies in that direction."""
        return self._first(("scroll", {"direction": direction}), ("scroll_page", {"direction": direction}))

    def open(self, app: str) -> Action | None:
        """Start an app by its name."""
        return self._first(("open_app", {"app_name": app}))

    def back(self) -> Action | None:
        """Return to where one came from."""
        return self._first(("navigate_back", {}), ("go", {"direction": "backward"}))

    def home(self) -> Action | None:
        """Leave for the home screen."""
        return self._first(("navigate_home", {}))

    def done(self) -> Action | None:
        """Declare the task complete."""
        return self._first(("status", {"goal_status": "complete"}), ("finish", {}))

    def answer(self, text: str) -> Action | None:
        """Answer a question."""
        return self._first(("answer", {"text": text}), ("finish", {"answer": text}))

    def _at(self, index: int) -> dict[str, Any]:
        return {self.space.index_field: index}

    def _first(self, *forms: tuple[str, dict[str, Any]]) -> Action | None:
        known = self.space.types
        return next((self.space.make(name, **fields) for name, fields in forms if name in known), None)
