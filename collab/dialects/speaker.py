"""Says actions of an environment in a dialect: a solution becomes the replies of a model family.

    speaker = Speaker(dialect, "mobile", lambda: observation)
    for step in speaker.say(action):                  # each for the screen as it is then
        text = speaker.write(step, "It is there.")    # what `read_in_dialect` reads

Elements are named by number where the family does so, else by a point that means them. An action without a word of its
own takes several steps: a text is typed into a field that was clicked and emptied before. A step whose effect the
screen shows already is left out, so the first step of `say` is the next reply of a speaker that remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from collab.dialects.actions import GuiAction, Pair
from collab.dialects.base import Dialect, World
from collab.envs.grammar import SPACES
from collab.envs.text import find_element_at
from collab.types import Action, Element, ElementTarget, Observation

_PLAIN = {
    **{"navigate_back": "back", "navigate_home": "home", "keyboard_enter": "enter", "wait": "wait"},
    **{"click": "click", "long_press": "long_press", "hover": "hover"},
}
"""Type of action → kind without any further field."""
_FINGER = {"up": (0.0, -1.0), "down": (0.0, 1.0), "left": (-1.0, 0.0), "right": (1.0, 0.0)}
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_TIMES: tuple[dict[str, Any], ...] = ({}, {"seconds": 1.0})
_REACH = 1100
"""Pixels that a scroll of a phone moves the content by."""
_SHARES = (0.5, 0.25, 0.75, 0.1, 0.9, 0.03, 0.97)
"""Where a point in an element is looked for, as shares of its width and height."""
_MENU = "Cut"
"""Entry of the menu that holding a text opens on a phone."""
_SWIPES = 10
"""Screens of apps that are looked through for an icon."""
_ENTER_KEYS = (GuiAction(kind="enter"), GuiAction(kind="keys", text="enter"))


class Speaker:
    """Speaks one dialect in one kind of environment.

    Args:
        look: returns the present screen.
        remembers: whether all steps of an action are taken from one call of `say`. Without it, an action whose next
            step the screen does not show has no words.
    """

    def __init__(
        self, dialect: Dialect, world: World, look: Callable[[], Observation], *, remembers: bool = True
    ) -> None:
        self.dialect = replace(dialect, verbs=dialect.list_verbs(world))
        self.world: World = world
        self.look = look
        self.remembers = remembers

    def write(self, said: GuiAction, reason: str) -> str:
        """Write a reply with one step."""
        return self.dialect.write([said], reason, self.world)

    def say(self, action: Action) -> Iterator[GuiAction]:
        """Yield the steps that an action still takes in the dialect, each of them for the screen as it is then.

        Raises:
            LookupError: the dialect has no words for it.
        """
        if action.type in _PLAIN:
            kind = _PLAIN[action.type]
            target = self._aim(action) if action.target is not None else {}
            forms = [GuiAction(kind=kind, **target, **time) for time in _TIMES]
            yield self._choose(*forms, *(_ENTER_KEYS if kind == "enter" else ()))
        elif action.type == "double_tap":
            yield from self._tap_twice(action)
        elif action.type in ("scroll", "swipe", "scroll_page"):
            yield self._move(action)
        elif action.type in ("input_text", "type_string"):
            yield from self._type(action)
        elif action.type == "open_app":
            yield from self._open(str(action["app_name"]))
        elif action.type == "select":
            yield from self._choose_option(action)
        elif action.type == "drag":
            yield from self._drag(action)
        elif action.type == "press_keys":
            yield self._choose(GuiAction(kind="keys", text=str(action["keys"])))
        elif action.type == "answer":
            # Some families answer with their last word only.
            yield self._choose(*(GuiAction(kind=kind, text=str(action["text"])) for kind in ("answer", "done")))
        elif action.type == "finish":
            yield self._choose(GuiAction(kind="done"), GuiAction(kind="done", text="It is done."))
        elif action.type == "status":
            kind = "done" if action["goal_status"] == "complete" else "failed"
            yield self._choose(GuiAction(kind=kind), GuiAction(kind=kind, text="It is done."))
        else:
            raise LookupError(f"{self.dialect.name} has no word for: {action.type}")

    def _tap_twice(self, action: Action) -> Iterator[GuiAction]:
        double = GuiAction(kind="double_click", **self._aim(action))
        if self.dialect.can_say(double):
            yield double
            return
        self._require_memory(double)
        yield from [GuiAction(kind="click", **self._aim(action))] * 2

    def _choose(self, *forms: GuiAction) -> GuiAction:
        """Return the first that the dialect has a word for."""
        found = next((one for one in forms if self.dialect.can_say(one)), None)
        if found is None:
            raise LookupError(f"{self.dialect.name} has no word for: {forms[0]}")
        return found

    def _require_memory(self, said: GuiAction) -> None:
        """Raise a LookupError if no screen tells which of several steps comes next."""
        if not self.remembers:
            raise LookupError(f"{self.dialect.name} has no word for: {said}")

    # ------------------------------------------------------------------------------------------------ places

    def _aim(self, action: Action) -> dict[str, Any]:
        """Return the field that names the target of an action."""
        if isinstance(action.target, ElementTarget):
            return self._name(self.look().elements[action.target.index])
        assert action.target is not None, "asked of actions with a target"
        return {"point": self._point(action.target.x, action.target.y)}

    def _name(self, element: Element) -> dict[str, Any]:
        """Return the field that names an element."""
        return {"index": element.index} if self.dialect.names_elements else {"point": self._find_point(element)}

    def _point(self, x: float, y: float) -> Pair:
        seen = self.look()
        screen = (seen.width, seen.height)
        return self.dialect.grid.from_pixel(x, y, self.dialect.resize.fit(*screen), screen)

    def _find_point(self, element: Element) -> Pair:
        """Return a point that means an element, its middle if possible: smaller ones may lie over it."""
        seen, box = self.look(), element.box
        screen = (seen.width, seen.height)
        sent = self.dialect.resize.fit(*screen)
        places = [(across, down) for across in _SHARES for down in _SHARES] if box is not None else []
        for across, down in places:
            assert box is not None, "an element without a box has no place"
            x = box.left + across * (box.right - box.left)
            y = box.top + down * (box.bottom - box.top)
            point = self.dialect.grid.from_pixel(x, y, sent, screen)
            if find_element_at(seen, *self.dialect.grid.to_pixel(point, sent, screen)[:2]) == element:
                return point
        raise LookupError(f"no point means {element.label or element.role} [{element.index}]")

    # ------------------------------------------------------------------------------------------------ moving

    def _move(self, action: Action) -> GuiAction:
        """Return a scroll or swipe: by its direction, or from point to point."""
        seen, direction = self.look(), str(action["direction"])
        target = {} if action.target is None else self._aim(action)
        kind = "swipe" if action.type == "swipe" else "scroll"
        amounts: tuple[dict[str, Any], ...] = ({}, {"amount": 500.0})
        finger = direction if kind == "swipe" else _OPPOSITE[direction]
        middle = {"point": self._point(seen.width / 2, seen.height / 2)}
        forms = [
            GuiAction(kind=one, direction=way, **place, **amount)
            for one, way in ((kind, direction), ("swipe", finger), ("scroll", _OPPOSITE[finger]))
            for place in ((target,) if target else ({}, middle))
            for amount in amounts
        ]
        # A swipe without a place begins at the edge of the screen, which words for directions may not say.
        from_edge = kind == "swipe" and not target
        x, y = seen.width / 2, seen.height / 2
        if isinstance(action.target, ElementTarget) and (box := seen.elements[action.target.index].box) is not None:
            x, y = box.center
        dx, dy = _FINGER[finger]
        if from_edge:
            x, y = x - dx * (x - 2), y - dy * (y - 2)
        elif not target:
            y -= dy * _REACH / 2
        end = min(max(x + dx * _REACH, 1), seen.width - 2), min(max(y + dy * _REACH, 1), seen.height - 2)
        ends: dict[str, Any] = {"point": self._point(x, y), "to": self._point(*end)}
        drags = [GuiAction(kind=one, **ends, **time) for one in ("swipe", "drag") for time in _TIMES]
        if self.dialect.names_elements:
            drags = []
        return self._choose(*([*drags, *forms] if from_edge else [*forms, *drags]))

    def _drag(self, action: Action) -> Iterator[GuiAction]:
        """Drag from one place to the other, or move the mouse to the first and drag from there."""
        end = SPACES[self.world].find_end(action)
        start, to = self._aim(action)["point"], self._aim(replace(action, target=end))["point"]
        whole = GuiAction(kind="drag", point=start, to=to)
        if self.dialect.can_say(whole):
            yield whole
            return
        self._require_memory(whole)
        yield self._choose(GuiAction(kind="hover", point=start))
        yield self._choose(GuiAction(kind="drag", to=to))

    # ------------------------------------------------------------------------------------------------ typing

    def _type(self, action: Action) -> Iterator[GuiAction]:
        """Click a field, empty it if that is meant and the verb does not, type, and press Enter if that is meant."""
        is_phone = action.type == "input_text"
        text = str(action["text" if is_phone else "content"])
        clear = bool(action.get("clear_text")) if is_phone else True
        enter = bool(action.get("press_enter", is_phone))
        found = self._find_field(action)
        held = (found.value or "") if found is not None else ""
        always, plain = (GuiAction(kind="type", text=text, clear=one) for one in (True, False))
        key = next((one for one in _ENTER_KEYS if self.dialect.can_say(one)), None)
        is_focused = found is not None and "focused" in found.flags
        # With the text in place, Enter is all that is left.
        if enter and is_focused and held == text and key is not None and not self._can_type(replace(plain, enter=True)):
            yield key
            return
        is_emptied = bool(held) and clear and not self._can_type(always)
        # An open menu would close with a click on the field.
        if action.target is not None and not is_focused and not (is_emptied and self._find_label(_MENU)):
            yield GuiAction(kind="click", **self._aim(action))
        if is_emptied:
            yield from self._empty(action, held)
        if not clear and held and not self._can_type(plain):
            text = held + text
        for one in (plain, always) if not (held and clear) else (always, plain):
            said = replace(one, text=text, enter=enter)
            if self.dialect.can_say(said):
                yield said
                return
        said = self._choose(replace(plain, text=text), replace(always, text=text))
        # A family without an Enter key ends the text with a line break, where it can write one.
        if enter and key is None and self._can_write(ended := replace(said, text=f"{text}\n")):
            said = ended
        yield said
        if enter and key is not None:
            yield key

    def _can_type(self, said: GuiAction) -> bool:
        """Return whether the dialect has a word for typing so, with Enter or without."""
        return any(self.dialect.can_say(replace(said, enter=one)) for one in {said.enter, True})

    def _can_write(self, said: GuiAction) -> bool:
        return self.dialect.read(self.write(said, ""), self.world).actions == (said,)

    def _find_field(self, action: Action) -> Element | None:
        """Return the element that an action names; without one that with the cursor, if there is any."""
        seen = self.look()
        if isinstance(action.target, ElementTarget):
            return seen.elements[action.target.index]
        return next((one for one in seen.elements if "focused" in one.flags), None)

    def _empty(self, action: Action, held: str) -> Iterator[GuiAction]:
        """Empty a field by keys, or by the menu that holding it opens on a phone."""
        erase = GuiAction(kind="keys", text="backspace")
        everything = GuiAction(kind="keys", text="ctrl+a")
        if self.world == "web":
            self._require_memory(everything)  # what is selected is not seen
            yield self._choose(everything, GuiAction(kind="triple_click", **self._aim(action)))
        elif self.dialect.can_say(erase):
            for _ in held:
                yield erase
        else:
            found = self._find_field(action)
            if found is None:
                raise LookupError("no field has the cursor, so none can be emptied")
            place = self._name(found)
            if self._find_label(_MENU) is None:
                yield self._choose(*(GuiAction(kind="long_press", **place, **time) for time in _TIMES))
            yield self._click(_MENU)
            if self._find_field(SPACES["mobile"].make("wait")) is None:
                yield GuiAction(kind="click", **place)

    def _find_label(self, label: str) -> Element | None:
        return next((one for one in self.look().elements if one.label.casefold() == label.casefold()), None)

    def _click(self, label: str) -> GuiAction:
        found = self._find_label(label)
        if found is None:
            raise LookupError(f"nothing on the screen is called {label}")
        return GuiAction(kind="click", **self._name(found))

    # ------------------------------------------------------------------------------------------------- opening

    def _open(self, name: str) -> Iterator[GuiAction]:
        """Open an app by name, or by its icon among all apps."""
        named = GuiAction(kind="open_app", text=name)
        if self.dialect.can_say(named):
            yield named
            return
        self._require_memory(named)
        yield GuiAction(kind="home")
        yield self._move(SPACES["mobile"].make("swipe", direction="up"))
        for _ in range(_SWIPES):
            if self._find_label(name) is not None:
                yield self._click(name)
                return
            yield self._move(SPACES["mobile"].make("scroll", direction="down"))
        raise LookupError(f"no icon is called {name}")

    def _choose_option(self, action: Action) -> Iterator[GuiAction]:
        """Choose an option by its name, or by the keys of its name in a closed list."""
        said = GuiAction(kind="select", text=str(action["option"]), **self._aim(action))
        if self.dialect.can_say(said):
            yield said
            return
        self._require_memory(said)
        yield GuiAction(kind="click", **self._aim(action))
        yield self._choose(GuiAction(kind="type", text=str(action["option"])))
