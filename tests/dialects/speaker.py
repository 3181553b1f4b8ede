"""Says a solution's actions in a dialect: with points where it has points, in several steps where it has no word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from collab.dialects.actions import GuiAction, Pair
from collab.dialects.base import Dialect, World
from collab.dialects.ground import read_in_dialect
from collab.envs.grammar import SPACES
from collab.envs.text import find_element_at
from collab.types import Action, Element, ElementTarget, Observation

PLAIN = {
    **{"navigate_back": "back", "navigate_home": "home", "keyboard_enter": "enter", "wait": "wait"},
    **{"click": "click", "long_press": "long_press", "hover": "hover"},
}
"""Type of action → kind without any further field."""
FINGER = {"up": (0.0, -1.0), "down": (0.0, 1.0), "left": (-1.0, 0.0), "right": (1.0, 0.0)}
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
TIMES: tuple[dict[str, Any], ...] = ({}, {"seconds": 1.0})
REACH = 1100
"""Pixels that a scroll of a phone moves the content by."""


class Speaker:
    """Speaks one dialect in one kind of environment.

    Args:
        look: returns the present screen.
    """

    def __init__(self, dialect: Dialect, world: World, look: Callable[[], Observation]) -> None:
        self.dialect = replace(dialect, verbs=dialect.list_verbs(world))
        self.world: World = world
        self.look = look
        self.said = ""

    def read(self, said: GuiAction) -> Action:
        """Write an action in the dialect, and return what the environment's reader makes of it."""
        self.said = self.dialect.write([said], "It is there.", self.world)
        parsed = read_in_dialect(self.said, self.dialect, SPACES[self.world], self.look())
        assert parsed.action is not None, (self.said, parsed.failure)
        return parsed.action

    def say(self, action: Action) -> Iterator[GuiAction]:
        """Yield the steps that an action takes in the dialect, each of them for the screen as it is then.

        Raises:
            LookupError: the dialect has no words for it.
        """
        if action.type in PLAIN:
            kind = PLAIN[action.type]
            target = self.aim(action) if action.target is not None else {}
            forms = [GuiAction(kind=kind, **target, **time) for time in TIMES]
            yield self.choose(*forms, *([GuiAction(kind="keys", text="enter")] if kind == "enter" else []))
        elif action.type == "double_tap":
            double = GuiAction(kind="double_click", **self.aim(action))
            yield from [double] if self.dialect.can_say(double) else [GuiAction(kind="click", **self.aim(action))] * 2
        elif action.type in ("scroll", "swipe", "scroll_page"):
            yield self.move(action)
        elif action.type in ("input_text", "type_string"):
            yield from self.type(action)
        elif action.type == "open_app":
            yield from self.open(str(action["app_name"]))
        elif action.type == "select":
            yield from self.choose_option(action)
        elif action.type == "drag":
            yield from self.drag(action)
        elif action.type == "press_keys":
            yield self.choose(GuiAction(kind="keys", text=str(action["keys"])))
        elif action.type == "answer":
            # Some families answer with their last word only.
            yield self.choose(*(GuiAction(kind=kind, text=str(action["text"])) for kind in ("answer", "done")))
        elif action.type == "finish":
            yield self.choose(GuiAction(kind="done"), GuiAction(kind="done", text="It is done."))
        elif action.type == "status":
            kind = "done" if action["goal_status"] == "complete" else "failed"
            yield self.choose(GuiAction(kind=kind), GuiAction(kind=kind, text="It is done."))
        else:
            raise LookupError(action.type)

    def choose(self, *forms: GuiAction) -> GuiAction:
        """Return the first that the dialect has a word for."""
        found = next((one for one in forms if self.dialect.can_say(one)), None)
        if found is None:
            raise LookupError(f"{self.dialect.name} has no word for: {forms[0]}")
        return found

    # ------------------------------------------------------------------------------------------------ places

    def aim(self, action: Action) -> dict[str, Any]:
        """Return the field that names the target of an action."""
        seen = self.look()
        if not isinstance(action.target, ElementTarget):
            assert action.target is not None
            return {"point": self.point(action.target.x, action.target.y)}
        if self.dialect.names_elements:
            return {"index": action.target.index}
        return {"point": self.find_point(seen.elements[action.target.index])}

    def point(self, x: float, y: float) -> Pair:
        seen = self.look()
        screen = (seen.width, seen.height)
        return self.dialect.grid.from_pixel(x, y, self.dialect.resize.fit(*screen), screen)

    def find_point(self, element: Element) -> Pair:
        """Return a point that means an element, its middle if possible: smaller ones may lie over it."""
        seen, box = self.look(), element.box
        assert box is not None, element
        screen = (seen.width, seen.height)
        sent = self.dialect.resize.fit(*screen)
        for share in (0.5, 0.25, 0.75, 0.1, 0.9, 0.03, 0.97):
            for other in (0.5, 0.25, 0.75, 0.1, 0.9, 0.03, 0.97):
                x = box.left + share * (box.right - box.left)
                y = box.top + other * (box.bottom - box.top)
                point = self.dialect.grid.from_pixel(x, y, sent, screen)
                if find_element_at(seen, *self.dialect.grid.to_pixel(point, sent, screen)[:2]) == element:
                    return point
        raise LookupError(f"no point means {element}")

    # ------------------------------------------------------------------------------------------------ moving

    def move(self, action: Action) -> GuiAction:
        """Return a scroll or swipe: by its direction, or from point to point."""
        seen, direction = self.look(), str(action["direction"])
        target = {} if action.target is None else self.aim(action)
        kind = "swipe" if action.type == "swipe" else "scroll"
        amounts: tuple[dict[str, Any], ...] = ({}, {"amount": 500.0})
        finger = direction if kind == "swipe" else OPPOSITE[direction]
        middle = {"point": self.point(seen.width / 2, seen.height / 2)}
        forms = [
            GuiAction(kind=one, direction=way, **place, **amount)
            for one, way in ((kind, direction), ("swipe", finger), ("scroll", OPPOSITE[finger]))
            for place in ((target,) if target else ({}, middle))
            for amount in amounts
        ]
        # A swipe without a place begins at the edge of the screen, which words for directions may not say.
        from_edge = kind == "swipe" and not target
        x, y = seen.width / 2, seen.height / 2
        if action.target is not None and isinstance(action.target, ElementTarget):
            box = seen.elements[action.target.index].box
            assert box is not None
            x, y = box.center
        dx, dy = FINGER[finger]
        if from_edge:
            x, y = x - dx * (x - 2), y - dy * (y - 2)
        elif not target:
            y -= dy * REACH / 2
        end = min(max(x + dx * REACH, 1), seen.width - 2), min(max(y + dy * REACH, 1), seen.height - 2)
        ends: dict[str, Any] = {"point": self.point(x, y), "to": self.point(*end)}
        drags = [GuiAction(kind=one, **ends, **time) for one in ("swipe", "drag") for time in TIMES]
        if self.dialect.names_elements:
            drags = []
        return self.choose(*([*drags, *forms] if from_edge else [*forms, *drags]))

    def drag(self, action: Action) -> Iterator[GuiAction]:
        """Drag from one place to the other, or move the mouse to the first and drag from there."""
        end = SPACES[self.world].find_end(action)
        start, to = self.aim(action)["point"], self.aim(replace(action, target=end))["point"]
        whole = GuiAction(kind="drag", point=start, to=to)
        if self.dialect.can_say(whole):
            yield whole
            return
        yield self.choose(GuiAction(kind="hover", point=start))
        yield self.choose(GuiAction(kind="drag", to=to))

    # ------------------------------------------------------------------------------------------------ typing

    def type(self, action: Action) -> Iterator[GuiAction]:
        """Click a field, empty it if that is meant and the verb does not, type, and press Enter if that is meant."""
        is_phone = action.type == "input_text"
        text = str(action["text" if is_phone else "content"])
        clear = bool(action.get("clear_text")) if is_phone else True
        enter = bool(action.get("press_enter", is_phone))
        field = self.find_field(action)
        held = (field.value or "") if field is not None else ""
        if action.target is not None:
            yield GuiAction(kind="click", **self.aim(action))
        always = GuiAction(kind="type", text=text, clear=True)
        plain = GuiAction(kind="type", text=text)
        if held and clear and not any(self.dialect.can_say(replace(always, enter=one)) for one in (False, True)):
            yield from self.empty(action, held)
        if not clear and held and not any(self.dialect.can_say(replace(plain, enter=one)) for one in (False, True)):
            text = held + text
        for one in (plain, always) if not (held and clear) else (always, plain):
            said = replace(one, text=text, enter=enter)
            if self.dialect.can_say(said):
                yield said
                return
        said = self.choose(replace(plain, text=text), replace(always, text=text))
        keys = [one for one in (GuiAction(kind="enter"), GuiAction(kind="keys", text="enter"))]
        key = next((one for one in keys if self.dialect.can_say(one)), None)
        # A family without an Enter key ends the text with a line break, where it can write one.
        if enter and key is None and self.can_write(ended := replace(said, text=f"{text}\n")):
            said = ended
        yield said
        if enter and key is not None:
            yield key

    def can_write(self, said: GuiAction) -> bool:
        return self.dialect.read(self.dialect.write([said], "", self.world), self.world).actions == (said,)

    def find_field(self, action: Action) -> Element | None:
        seen = self.look()
        if isinstance(action.target, ElementTarget):
            return seen.elements[action.target.index]
        return next((one for one in seen.elements if "focused" in one.flags), None)

    def empty(self, action: Action, held: str) -> Iterator[GuiAction]:
        """Empty a field by keys, or by the menu that holding it opens on a phone."""
        erase = GuiAction(kind="keys", text="backspace")
        everything = GuiAction(kind="keys", text="ctrl+a")
        if self.world == "web":
            triple = GuiAction(kind="triple_click", **self.aim(action))
            yield self.choose(everything, triple)
        elif self.dialect.can_say(erase):
            for _ in held:
                yield erase
        else:
            field = self.find_field(action)
            assert field is not None
            point: dict[str, Any] = (
                {"index": field.index} if self.dialect.names_elements else {"point": self.find_point(field)}
            )
            yield self.choose(GuiAction(kind="long_press", **point), GuiAction(kind="long_press", **point, seconds=1.0))
            yield self.click("Cut")
            if self.find_field(SPACES["mobile"].make("wait")) is None:
                yield GuiAction(kind="click", **point)

    def click(self, label: str) -> GuiAction:
        (found, *_) = (one for one in self.look().elements if one.label.casefold() == label.casefold())
        place: dict[str, Any] = (
            {"index": found.index} if self.dialect.names_elements else {"point": self.find_point(found)}
        )
        return GuiAction(kind="click", **place)

    # ------------------------------------------------------------------------------------------------- opening

    def open(self, name: str) -> Iterator[GuiAction]:
        """Open an app by name, or by its icon among all apps."""
        named = GuiAction(kind="open_app", text=name)
        if self.dialect.can_say(named):
            yield named
            return
        yield GuiAction(kind="home")
        yield self.move(SPACES["mobile"].make("swipe", direction="up"))
        for _ in range(10):
            labels = [one.label.casefold() for one in self.look().elements]
            if name.casefold() in labels:
                yield self.click(name)
                return
            yield self.move(SPACES["mobile"].make("scroll", direction="down"))
        raise LookupError(f"no icon of {name}")

    def choose_option(self, action: Action) -> Iterator[GuiAction]:
        said = GuiAction(kind="select", text=str(action["option"]), **self.aim(action))
        if self.dialect.can_say(said):
            yield said
            return
        # A closed list takes the keys of an option's name.
        yield GuiAction(kind="click", **self.aim(action))
        yield self.choose(GuiAction(kind="type", text=str(action["option"])))
