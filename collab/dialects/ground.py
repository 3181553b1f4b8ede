"""From what a model said in its dialect to one action of the environment, or the reason why there is none.

    parsed = read_in_dialect(reply.text, dialect, space, observation, finish=reply.finish)

Points become screen pixels by the dialect's grid and the size in which the picture was sent. On pages they become the
element below them, since actions of pages name elements. What an environment cannot do is refused by its name:
"unsupported". Two things are approximate: a swipe from point to point keeps its start and its longer direction and
loses its length, and a scroll's amount is the environment's own.

A typed text on a page is put behind what the field holds, unless the dialect's verb empties it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from collab.dialects.actions import DIRECTIONS, GuiAction, Pair
from collab.dialects.base import Dialect
from collab.dialects.registry import recognise
from collab.envs.grammar import ActionSpace
from collab.envs.syntax import Reject
from collab.envs.text import find_element_at
from collab.prompts.parse import ParsedReply, read_withheld
from collab.types import Action, Element, Observation, ParseFailure

_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_MEANS_ENTER = frozenset({"enter", "return", "keycode_enter"})
_KEY_KINDS = {
    **{"back": "back", "keycode_back": "back", "home": "home", "keycode_home": "home"},
    **{"alt+left": "back", "alt+right": "forward"},
}
"""Keys that are an action of their own."""


def read_in_dialect(
    text: str,
    dialect: Dialect,
    space: ActionSpace,
    observation: Observation,
    *,
    finish: str | None = None,
    aside: str = "",
) -> ParsedReply:
    """Read a reply in its agent's dialect; never raises.

    Args:
        finish: `Reply.finish`.
        aside: `Reply.aside`.
    """
    reply = dialect.read(text, "web" if space.name == "web" else "mobile")
    if reply.failure is not None:
        failure = read_withheld(finish, aside) or _explain(reply.failure, text, dialect, finish)
        return ParsedReply(reason=reply.reason, action=None, failure=failure)
    chosen = dialect.choose(reply.actions)
    ground = _Ground(dialect=dialect, space=space, observation=observation)
    remarks = tuple(f"also said: {one}" for one in reply.actions if one is not chosen)
    try:
        action = ground.build(chosen)
    except Reject as reject:
        return ParsedReply(reason=reply.reason, action=None, failure=reject.failure, remarks=remarks)
    missing = space.check(action, observation)
    if missing is not None:
        return ParsedReply(reason=reply.reason, action=None, failure=missing, remarks=remarks)
    remarks += tuple(f"moved to the edge: ({x:g}, {y:g})" for x, y in ground.moved)
    canonical = space.canonical(action, observation)
    return ParsedReply(reason=reply.reason, action=canonical, failure=None, remarks=remarks)


def _explain(failure: ParseFailure, text: str, dialect: Dialect, finish: str | None) -> ParseFailure:
    """Return the cause of a reply without an action, if more is known than that it does not read."""
    if failure.kind in ("no_action", "unknown_type", "missing_field", "bad_field"):
        other = recognise(text, dialect.name)
        if other is not None:
            detail = f"the reply looks like {other.name}, and the agent's dialect is {dialect.name}"
            return ParseFailure(kind="other_dialect", detail=detail)
    if finish == "length" and failure.kind in ("no_action", "malformed"):
        return ParseFailure(kind="cut", detail=f"max_tokens cut the reply before its action ({failure.detail})")
    return failure


@dataclass(slots=True, kw_only=True)
class _Ground:
    """Turns the actions of one reply into those of a space."""

    dialect: Dialect
    space: ActionSpace
    observation: Observation
    moved: tuple[Pair, ...] = ()
    """Points that lay beyond an edge."""

    def build(self, said: GuiAction) -> Action:
        """Return the action that was said; raises Reject."""
        keys = (said.text or "").lower()
        if said.kind == "keys" and keys in _MEANS_ENTER:
            said = GuiAction(kind="enter")
        elif said.kind == "keys" and keys in _KEY_KINDS:
            said = GuiAction(kind=_KEY_KINDS[keys])
        table = _PHONE if self.space.name == "mobile" else _PAGE if self.space.name == "web" else {}
        handler = table.get(said.kind)
        if handler is None:
            raise Reject("unsupported", f"{said}: this environment has no such action, it has {self._list_types()}")
        return handler(self, said)

    def make(self, type: str, **arguments: Any) -> Action:
        """Build an action of the space."""
        built = self.space.build({"type": type, **arguments})
        if isinstance(built, ParseFailure):
            raise Reject(built.kind, built.detail)
        return built

    def _list_types(self) -> str:
        return ", ".join(self.space.types)

    def find_pixel(self, point: Pair) -> tuple[int, int]:
        """Return the screen pixel of a point; one beyond the edge is moved to it and noted."""
        screen = (self.observation.width, self.observation.height)
        x, y, is_moved = self.dialect.grid.to_pixel(point, self.dialect.resize.fit(*screen), screen)
        if is_moved:
            self.moved = (*self.moved, point)
        return x, y

    def aim(self, said: GuiAction, *, needed: bool = True) -> dict[str, int]:
        """Return the arguments that name the target: an element's number, or a pixel on a phone."""
        if said.index is not None:
            return {self.space.index_field: said.index}
        if said.point is None:
            if needed:
                raise Reject("missing_field", f"{said}: it needs a point")
            return {}
        x, y = self.find_pixel(said.point)
        if self.space.points:
            return {"x": x, "y": y}
        element = find_element_at(self.observation, x, y)
        if element is None:
            raise Reject("no_such_element", f"{said}: there is no element at pixel ({x}, {y})")
        return {self.space.index_field: element.index}

    def find_direction(self, said: GuiAction) -> str:
        """Return the direction of a finger that moves between two points: the longer one."""
        if said.direction in DIRECTIONS:
            return said.direction
        if said.point is None or said.to is None:
            raise Reject("missing_field", f"{said}: it needs a direction or two points")
        (x, y), (to_x, to_y) = self.find_pixel(said.point), self.find_pixel(said.to)
        if (x, y) == (to_x, to_y):
            raise Reject("bad_field", f"{said}: it starts and ends at one point")
        if abs(to_x - x) > abs(to_y - y):
            return "right" if to_x > x else "left"
        return "down" if to_y > y else "up"

    def find_field(self, said: GuiAction) -> Element:
        """Return the field of a page that is typed into: at the point, else the one with the focus."""
        if said.point is not None or said.index is not None:
            index = self.aim(said)[self.space.index_field]
            if index < len(self.observation.elements):
                return self.observation.elements[index]
            raise Reject("no_such_element", f"{said}: there is no such element")
        for element in self.observation.elements:
            if "focused" in element.flags:
                return element
        raise Reject("no_such_element", f"{said}: no field has the cursor, click one first")


Handler = Callable[[_Ground, GuiAction], Action]


def _touch(type: str) -> Handler:
    return lambda ground, said: ground.make(type, **ground.aim(said))


def _plain(type: str, **arguments: Any) -> Handler:
    return lambda ground, said: ground.make(type, **arguments)


def _build_text_handler(type: str, argument: str, default: str | None = None) -> Handler:
    return lambda ground, said: ground.make(type, **{argument: said.text if said.text is not None else default})


def _swipe(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("swipe", direction=ground.find_direction(said), **ground.aim(said, needed=False))


def _scroll(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("scroll", direction=said.direction, **ground.aim(said, needed=False))


def _type_on_phone(ground: _Ground, said: GuiAction) -> Action:
    arguments = {"text": said.text, "clear_text": said.clear, "press_enter": said.enter}
    return ground.make("input_text", **arguments, **ground.aim(said, needed=False))


def _type_on_page(ground: _Ground, said: GuiAction) -> Action:
    field = ground.find_field(said)
    held = "" if said.clear else field.value or ""
    content = held + (said.text or "")
    return ground.make("type_string", id=field.index, content=content, press_enter=said.enter)


def _enter_on_page(ground: _Ground, said: GuiAction) -> Action:
    """Press Enter in the field with the cursor: pages have no key of their own, but typing ends with one."""
    return _type_on_page(ground, replace(said, text="", enter=True))


def _scroll_page(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("scroll_page", direction=said.direction)


def _swipe_page(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("scroll_page", direction=_OPPOSITE[ground.find_direction(said)])


def _select_on_page(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("select", option=said.text, **ground.aim(said))


def _finish(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("finish", **({"answer": said.text} if said.text else {}))


_PHONE: dict[str, Handler] = {
    "click": _touch("click"),
    "double_click": _touch("double_tap"),
    "long_press": _touch("long_press"),
    "swipe": _swipe,
    "scroll": _scroll,
    "type": _type_on_phone,
    "enter": _plain("keyboard_enter"),
    "back": _plain("navigate_back"),
    "home": _plain("navigate_home"),
    "open_app": _build_text_handler("open_app", "app_name"),
    "wait": _plain("wait"),
    "screenshot": _plain("wait"),
    "note": _plain("wait"),
    "answer": _build_text_handler("answer", "text"),
    "done": _plain("status", goal_status="complete"),
    "failed": _plain("status", goal_status="infeasible"),
}
_PAGE: dict[str, Handler] = {
    "click": _touch("click"),
    "hover": _touch("hover"),
    "select": _select_on_page,
    "scroll": _scroll_page,
    "swipe": _swipe_page,
    "type": _type_on_page,
    "enter": _enter_on_page,
    "back": _plain("go", direction="backward"),
    "forward": _plain("go", direction="forward"),
    "open_url": _build_text_handler("jump_to", "url"),
    "ask_user": _build_text_handler("user_input", "message", "help is needed"),
    "answer": _finish,
    "done": _finish,
    "failed": _plain("finish"),
}
