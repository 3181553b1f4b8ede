"""`input`: fingers and keys from the command line.

What fingers and keys do to a phone, for every face that has no elements to point at.

Deviation: a drag moves the content by the engine's usual distance, however far the finger went; only on a slider
does the place count where the finger is lifted.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot

from collab.envs.grammar import MOBILE
from collab.envs.simphone.apps.system import open_recents, open_shade
from collab.envs.simphone.shell.session import Output, ShellSession
from collab.envs.simphone.state import HEIGHT, WIDTH, Phone, put_field
from collab.envs.simphone.touch import act, erase_letter, find_focused_input, focus_next, press_enter
from collab.envs.simphone.ui.layout import KEYBOARD_TOP
from collab.envs.simphone.ui.screen import look
from collab.envs.text import find_element_at

SLOP = 24
"""A finger that moves less than this, in pixels, does not drag."""
LONG_PRESS_MS = 500

_NAMED = """
UNKNOWN 0 HOME 3 BACK 4 CALL 5 ENDCALL 6 STAR 17 POUND 18 DPAD_UP 19 DPAD_DOWN 20 DPAD_LEFT 21 DPAD_RIGHT 22
DPAD_CENTER 23 VOLUME_UP 24 VOLUME_DOWN 25 POWER 26 CAMERA 27 COMMA 55 PERIOD 56 SHIFT_LEFT 59 TAB 61 SPACE 62
ENTER 66 DEL 67 MINUS 69 EQUALS 70 APOSTROPHE 75 SLASH 76 AT 77 PLUS 81 MENU 82 SEARCH 84 ESCAPE 111 FORWARD_DEL 112
NOTIFICATION 83 CTRL_LEFT 113 CTRL_RIGHT 114 MOVE_HOME 122 MOVE_END 123 NUMPAD_ENTER 160 VOLUME_MUTE 164 APP_SWITCH 187
SLEEP 223 WAKEUP 224 CUT 277 COPY 278 PASTE 279
""".split()
KEYS = {
    **{name: int(code) for name, code in zip(_NAMED[::2], _NAMED[1::2], strict=True)},
    **{str(digit): 7 + digit for digit in range(10)},
    **{chr(65 + place): 29 + place for place in range(26)},
}
"""Android's key codes by name, without KEYCODE_."""
_SYSTEM = {KEYS["NOTIFICATION"]: open_shade, KEYS["APP_SWITCH"]: open_recents}
_LETTERS = {
    **{7 + digit: str(digit) for digit in range(10)},
    **{29 + place: chr(97 + place) for place in range(26)},
    **{62: " ", 55: ",", 56: ".", 69: "-", 70: "=", 76: "/", 77: "@", 81: "+", 17: "*", 18: "#", 75: "'"},
}


def parse_key(name: str) -> int | None:
    """Return a key by number or name ("66", "ENTER", "KEYCODE_ENTER"); None when there is no such key."""
    if name.isascii() and name.isdecimal() and len(name) <= 3:
        return int(name)
    return KEYS.get(name.upper().removeprefix("KEYCODE_"))


def tap(phone: Phone, x: float, y: float) -> Phone:
    """Touch a pixel shortly; outside the screen nothing happens."""
    return _touch(phone, "click", x, y)


def long_press(phone: Phone, x: float, y: float) -> Phone:
    """Hold a pixel."""
    return _touch(phone, "long_press", x, y)


def drag(phone: Phone, start: tuple[float, float], end: tuple[float, float], duration_ms: int) -> Phone:
    """Move a finger over the screen; one that hardly moves taps or holds."""
    across, down = end[0] - start[0], end[1] - start[1]
    # A finger that hardly moves taps, or holds if it stays long enough.
    if hypot(across, down) < SLOP:
        return long_press(phone, *start) if duration_ms >= LONG_PRESS_MS else tap(phone, *start)
    # Along a slider the finger carries its knob; anywhere else it swipes.
    if abs(across) > abs(down):
        slid = _slide(phone, start, end[0])
        if slid is not None:
            return slid
        direction = "right" if across > 0 else "left"
    else:
        direction = "down" if down > 0 else "up"
    frame = look(phone)
    swipe = MOBILE.make("swipe", direction=direction, x=start[0], y=start[1])
    return act(frame, MOBILE.canonical(swipe, frame.observation))


def _touch(phone: Phone, type: str, x: float, y: float) -> Phone:
    if not (0 <= x < WIDTH and 0 <= y < HEIGHT) or (phone.keyboard and y >= KEYBOARD_TOP):
        return phone
    frame = look(phone)
    return act(frame, MOBILE.canonical(MOBILE.make(type, x=x, y=y), frame.observation))


def _slide(phone: Phone, start: tuple[float, float], to: float) -> Phone | None:
    """Move the slider under the start; None when there is none."""
    frame = look(phone)
    element = find_element_at(frame.observation, *start)
    slide = frame.placed.nodes[element.index].slide if element is not None else None
    if slide is None or element is None or element.box is None:
        return None
    share = (to - element.box.left) / max(1, element.box.right - 1 - element.box.left)
    return slide(_clear_toast(phone), min(1.0, max(0.0, share)))


# ----------------------------------------------------------------------------------------------------------- keys


def press(phone: Phone, code: int) -> Phone:
    """Press a key by its code; keys that mean nothing here do nothing."""
    # Keys that are actions of the mobile space act as those, toasts and all.
    actions = {
        3: "navigate_home",
        4: "navigate_back",
        111: "navigate_back",
        66: "keyboard_enter",
        160: "keyboard_enter",
    }
    if code in actions:
        return act(look(phone), MOBILE.make(actions[code]))
    # Any key sends a toast away, as a touch does.
    phone = _clear_toast(phone)
    if code in _SYSTEM:
        return _SYSTEM[code](phone)
    if code in _LETTERS:
        return type_text(phone, _LETTERS[code])
    if code == KEYS["DEL"]:
        return erase_letter(phone)
    if code == KEYS["TAB"]:
        return focus_next(phone)
    # Copying needs a focused field; without one the key does nothing.
    if code in (KEYS["COPY"], KEYS["CUT"]) and find_focused_input(phone) is not None:
        copied = replace(phone, clipboard=read_typed(phone))
        return put_text(copied, "") if code == KEYS["CUT"] else copied
    return type_text(phone, phone.clipboard) if code == KEYS["PASTE"] else phone


def type_text(phone: Phone, text: str) -> Phone:
    """Type at the end of the focused field; a line break is the Enter key. Without a focus nothing happens."""
    for place, line in enumerate(text.split("\n")):
        if place:
            phone = press_enter(phone)
        if line:
            phone = put_text(phone, read_typed(phone) + line)
    return phone


def read_typed(phone: Phone) -> str:
    """Return the text of the focused field; empty without one."""
    node = find_focused_input(phone)
    return "" if node is None or node.field is None else phone.page.fields.get(node.field, "")


def put_text(phone: Phone, text: str) -> Phone:
    """Replace the text of the focused field; without a focus nothing happens."""
    node = find_focused_input(phone)
    return phone if node is None or node.field is None else put_field(phone, node.field, text)


def _clear_toast(phone: Phone) -> Phone:
    """Return the phone without the message of the last action."""
    return replace(phone, notice=None) if phone.notice is not None else phone


_SOURCES = frozenset(
    "touchscreen keyboard mouse touchpad trackball joystick gamepad dpad stylus touchnavigation".split()
)


def input_command(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Tap, swipe, type and press keys."""
    args = args[1:] if args[:1] and args[0] in _SOURCES else args
    args = args[2:] if args[:1] == ["-d"] else args
    if not args:
        return Output(err="Error: No command\nUsage: input [<source>] [-d DISPLAY_ID] <command> [<arg>...]\n", code=255)
    verb, *rest = args
    handler = _VERBS.get(verb)
    if handler is None:
        return Output(err=f"Error: Unknown command: {verb}\n", code=255)
    if not handler(session, rest):
        return Output(err=f"Error: Invalid arguments for command: {verb}\n", code=255)
    return Output()


def _parse_numbers(args: list[str], *counts: int) -> list[float] | None:
    """Return the arguments as numbers; None when one is none or there are not so many."""
    if len(args) not in counts:
        return None
    try:
        numbers = [float(arg) for arg in args]
    except ValueError:
        return None
    return numbers if all(abs(number) < 1e7 for number in numbers) else None


def _tap(session: ShellSession, args: list[str]) -> bool:
    point = _parse_numbers(args, 2)
    if point is None:
        return False
    session.phone = tap(session.phone, point[0], point[1])
    return True


def _swipe(session: ShellSession, args: list[str]) -> bool:
    numbers = _parse_numbers(args, 4, 5)
    if numbers is None:
        return False
    duration_ms = int(numbers[4]) if len(numbers) == 5 else 300
    session.phone = drag(session.phone, (numbers[0], numbers[1]), (numbers[2], numbers[3]), duration_ms)
    return True


def _type_words(session: ShellSession, args: list[str]) -> bool:
    if not args or not " ".join(args).isascii():  # the tool knows only letters that a keyboard map has
        return False
    if session.selected:
        session.phone = put_text(session.phone, "")
        session.selected = False
    session.phone = type_text(session.phone, " ".join(args).replace("%s", " "))
    return True


def _press_keys(session: ShellSession, args: list[str]) -> bool:
    names = [arg for arg in args if not arg.startswith("--")]
    codes = [parse_key(name) for name in names]
    if not codes or None in codes:
        return False
    for code in codes:
        if session.selected and code == KEYS["DEL"]:
            session.phone = put_text(session.phone, "")
        else:
            session.phone = press(session.phone, code or 0)
        session.selected = False
    return True


def _press_combination(session: ShellSession, args: list[str]) -> bool:
    """Press keys together; only Ctrl with A, C, X or V means something."""
    codes = [parse_key(arg) for arg in args if not arg.startswith("-")]
    if len(codes) < 2 or None in codes:
        return False
    if codes[0] in (KEYS["CTRL_LEFT"], KEYS["CTRL_RIGHT"]):
        last = codes[-1]
        if last == KEYS["A"]:
            session.selected = True
        # Everything was selected: pasting replaces it.
        elif last == KEYS["V"] and session.selected:
            session.phone = type_text(put_text(session.phone, ""), session.phone.clipboard)
            session.selected = False
        else:
            meaning = {KEYS["C"]: "COPY", KEYS["X"]: "CUT", KEYS["V"]: "PASTE"}
            if last in meaning:
                session.phone = press(session.phone, KEYS[meaning[last]])
    return True


_VERBS = {
    "tap": _tap,
    "swipe": _swipe,
    "draganddrop": _swipe,
    "text": _type_words,
    "keyevent": _press_keys,
    "keycombination": _press_combination,
}
