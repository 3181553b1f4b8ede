"""From what a model said in its dialect to one action of the environment, or the reason why there is none.

    parsed = read_in_dialect(reply.text, dialect, space, observation, finish=reply.finish)

Points become screen pixels by the dialect's grid and the size in which the picture was sent; the canonical form makes
elements of them (`ActionSpace.canonical`). What an environment cannot do is refused by its name: "unsupported". A
scroll's amount is the environment's own, and so are the seconds of waiting and holding. Remarks name longer ones, and
keys that are pressed once instead of several times.

A text is typed at the cursor. Where the dialect's verb names a field of a page, it is put behind what the field holds,
unless the verb empties it first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collab.dialects.actions import GuiAction, Pair
from collab.dialects.base import Dialect
from collab.dialects.registry import recognise
from collab.envs.grammar import ActionSpace
from collab.envs.syntax import Reject, order_keys
from collab.envs.text import find_element_at
from collab.prompts.parse import ParsedReply, list_spaces, read_withheld
from collab.types import Action, Element, Observation, ParseFailure

_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_KEY_KINDS = {
    "mobile": {"enter": "enter", "back": "back", "home": "home", "recents": "recents", "app_switch": "recents"},
    "web": {"alt+left": "back", "alt+right": "forward"},
}
"""Keys that are an action of their own, by space."""
_SECOND = 1.0
"""Seconds of waiting and holding in every environment."""
_MOST_IGNORED = 5
"""Arguments without a part in the action that a remark names."""
_FORM = re.compile(r"[(<{]")
"""Opens an action in nearly all dialects."""
_NEEDS_HELP = "help is needed"
"""Question of a reply that hands over without one."""


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
    remarks += () if reply.unread is None else (f"not read: {reply.unread.detail}",)
    remarks += (f"ignored: {', '.join(chosen.ignored[:_MOST_IGNORED])}",) if chosen.ignored else ()
    try:
        action = ground.build(chosen)
    except Reject as reject:
        return ParsedReply(reason=reply.reason, action=None, failure=reject.failure, remarks=remarks)
    missing = space.check(action, observation)
    if missing is not None:
        return ParsedReply(reason=reply.reason, action=None, failure=missing, remarks=remarks)
    remarks += tuple(ground.remarks)
    canonical = space.canonical(action, observation)
    return ParsedReply(reason=reply.reason, action=canonical, failure=None, remarks=remarks)


def name_dialects(parsed: ParsedReply, text: str) -> ParsedReply:
    """Return the reply of an agent without a dialect, explained by the dialects that read it if it gave no action."""
    failure = parsed.failure
    # A word alone, such as "Done.", is an action in some dialects and an answer of any model.
    if failure is None or failure.kind not in ("no_action", "unknown_type", "missing_field") or not _FORM.search(text):
        return parsed
    names = recognise(text)
    if not names:
        return parsed
    detail = f"the reply looks like {_list_names(names)}, and the agent has no dialect"
    return replace(parsed, failure=ParseFailure(kind="other_dialect", detail=detail))


def _explain(failure: ParseFailure, text: str, dialect: Dialect, finish: str | None) -> ParseFailure:
    """Return the cause of a reply without an action, if more is known than that it does not read."""
    if failure.kind in ("no_action", "unknown_type", "missing_field", "bad_field"):
        own = tuple(f"the {space.name} actions of an agent without a dialect" for space in list_spaces(text))
        names = recognise(text, dialect.name) + own
        if names:
            detail = f"the reply looks like {_list_names(names)}, and the agent's dialect is {dialect.name}"
            return ParseFailure(kind="other_dialect", detail=detail)
    if finish == "length" and failure.kind in ("empty", "no_action", "malformed"):
        return ParseFailure(kind="cut", detail=f"max_tokens cut the reply before its action ({failure.detail})")
    return failure


def _list_names(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


@dataclass(slots=True, kw_only=True)
class _Ground:
    """Turns the actions of one reply into those of a space."""

    dialect: Dialect
    space: ActionSpace
    observation: Observation
    remarks: list[str] = field(default_factory=list)
    """`ParsedReply.remarks` on what is done otherwise than it was said."""

    def build(self, said: GuiAction) -> Action:
        """Return the action that was said; raises Reject."""
        is_longer = (said.seconds or 0) > _SECOND or (said.kind == "keys" and (said.amount or 0) > 1)
        if is_longer or said.kind == "zoom":
            self.remarks.append(f"in part: {said}")
        if said.kind == "keys":
            kind = _KEY_KINDS.get(self.space.name, {}).get(order_keys(said.text or ""))
            said = said if kind is None else GuiAction(kind=kind)
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
            self.remarks.append(f"moved to the edge: ({point[0]:g}, {point[1]:g})")
        return x, y

    def aim(self, said: GuiAction, *, needed: bool = True) -> dict[str, int]:
        """Return the arguments that name the target: an element's number, or a pixel."""
        if said.index is not None:
            return {self.space.index_field: said.index}
        if said.point is None:
            if needed:
                raise Reject("missing_field", f"{said}: it needs a point")
            return {}
        x, y = self.find_pixel(said.point)
        return {"x": x, "y": y}

    def drag(self, said: GuiAction) -> Action:
        """Return the way from one point to another; on a page it may begin where the mouse is."""
        if said.to is None:
            raise Reject("missing_field", f"{said}: it needs a point where it ends")
        start, (to_x, to_y) = self.aim(said, needed=self.space.name != "web"), self.find_pixel(said.to)
        if start == {"x": to_x, "y": to_y}:
            raise Reject("bad_field", f"{said}: it starts and ends at one point")
        return self.make("drag", **start, to_x=to_x, to_y=to_y, hold=said.hold)

    def find_field(self, target: dict[str, int]) -> Element | None:
        """Return the element that a target names, without one the element with the cursor; None if there is none."""
        elements = self.observation.elements
        if "x" in target:
            return find_element_at(self.observation, target["x"], target["y"])
        if target:
            index = target[self.space.index_field]
            return elements[index] if index < len(elements) else None
        return next((element for element in elements if "focused" in element.flags), None)


Handler = Callable[[_Ground, GuiAction], Action]


def _touch(type: str) -> Handler:
    return lambda ground, said: ground.make(type, **ground.aim(said), hold=said.hold)


def _plain(type: str, **arguments: Any) -> Handler:
    return lambda ground, said: ground.make(type, **arguments)


def _build_text_handler(type: str, argument: str, default: str | None = None) -> Handler:
    return lambda ground, said: ground.make(type, **{argument: said.text if said.text is not None else default})


def _drag(ground: _Ground, said: GuiAction) -> Action:
    return ground.drag(said)


def _press_keys(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("press_keys", keys=said.text)


def _swipe(ground: _Ground, said: GuiAction) -> Action:
    if said.direction is None:
        return ground.drag(said)
    return ground.make("swipe", direction=said.direction, **ground.aim(said, needed=False))


def _scroll(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("scroll", direction=said.direction, **ground.aim(said, needed=False))


def _type_on_phone(ground: _Ground, said: GuiAction) -> Action:
    target = ground.aim(said, needed=False)
    # A text that is only submitted: phones type nothing then.
    if said.text == "" and said.enter and not said.clear and not target:
        return ground.make("keyboard_enter")
    arguments = {"text": said.text, "clear_text": said.clear, "press_enter": said.enter}
    return ground.make("input_text", **arguments, **target)


def _type_on_page(ground: _Ground, said: GuiAction) -> Action:
    target = ground.aim(said, needed=False)
    if not target and not said.clear:
        return ground.make("insert_text", content=said.text, press_enter=said.enter)
    field = ground.find_field(target)
    if not target and field is None:
        raise Reject("no_such_element", f"{said}: no field has the cursor, click one first")
    held = "" if said.clear or field is None else field.value or ""
    target = target or {"id": field.index if field is not None else 0}
    return ground.make("type_string", **target, content=held + (said.text or ""), press_enter=said.enter)


def _scroll_page(ground: _Ground, said: GuiAction) -> Action:
    target = ground.aim(said, needed=False)
    if not target:
        return ground.make("scroll_page", direction=said.direction)
    return ground.make("scroll_at", direction=said.direction, **target, hold=said.hold)


def _swipe_page(ground: _Ground, said: GuiAction) -> Action:
    if said.direction is None:
        return ground.drag(said)
    return ground.make("scroll_page", direction=_OPPOSITE[said.direction])


def _select_on_page(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("select", option=said.text, **ground.aim(said))


def _end_task(ground: _Ground, said: GuiAction) -> Action:
    return ground.make("status", goal_status="complete", answer=said.text)


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
    "drag": _drag,
    "keys": _press_keys,
    "recents": _plain("open_recents"),
    "ask_user": _build_text_handler("ask_user", "question", _NEEDS_HELP),
    "back": _plain("navigate_back"),
    "home": _plain("navigate_home"),
    "open_app": _build_text_handler("open_app", "app_name"),
    "wait": _plain("wait"),
    **dict.fromkeys(("screenshot", "zoom", "note"), _plain("wait")),
    "answer": _build_text_handler("answer", "text"),
    "done": _end_task,
    "failed": _plain("status", goal_status="infeasible"),
}
_PAGE: dict[str, Handler] = {
    "click": _touch("click"),
    **{f"{one}_click": _touch(f"{one}_click") for one in ("double", "triple", "right", "middle")},
    "hover": _touch("hover"),
    "drag": _drag,
    "keys": _press_keys,
    "select": _select_on_page,
    "scroll": _scroll_page,
    "swipe": _swipe_page,
    "type": _type_on_page,
    "enter": _plain("press_keys", keys="enter"),
    "wait": _plain("wait"),
    **dict.fromkeys(("screenshot", "zoom", "note"), _plain("wait")),
    "back": _plain("go", direction="backward"),
    "forward": _plain("go", direction="forward"),
    "open_url": _build_text_handler("jump_to", "url"),
    "ask_user": _build_text_handler("user_input", "message", _NEEDS_HELP),
    "answer": _finish,
    "done": _finish,
    "failed": _plain("finish"),
}
