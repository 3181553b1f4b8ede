"""`input`: fingers and keys from the command line."""

from __future__ import annotations

from collab.envs.phone.shell import gestures
from collab.envs.phone.shell.session import Done, Session

_SOURCES = frozenset(
    "touchscreen keyboard mouse touchpad trackball joystick gamepad dpad stylus touchnavigation".split()
)


def input_command(session: Session, args: list[str], stdin: str) -> Done:
    """Tap, swipe, type and press keys."""
    args = args[1:] if args[:1] and args[0] in _SOURCES else args
    args = args[2:] if args[:1] == ["-d"] else args
    if not args:
        return Done(err="Error: No command\nUsage: input [<source>] [-d DISPLAY_ID] <command> [<arg>...]\n", code=255)
    verb, *rest = args
    handler = _VERBS.get(verb)
    if handler is None:
        return Done(err=f"Error: Unknown command: {verb}\n", code=255)
    if not handler(session, rest):
        return Done(err=f"Error: Invalid arguments for command: {verb}\n", code=255)
    return Done()


def _numbers(args: list[str], *counts: int) -> list[float] | None:
    """The arguments as numbers; None when one is none or there are not so many."""
    if len(args) not in counts:
        return None
    try:
        numbers = [float(arg) for arg in args]
    except ValueError:
        return None
    return numbers if all(abs(number) < 1e7 for number in numbers) else None


def _tap(session: Session, args: list[str]) -> bool:
    point = _numbers(args, 2)
    if point is None:
        return False
    session.phone = gestures.tap(session.phone, point[0], point[1])
    return True


def _swipe(session: Session, args: list[str]) -> bool:
    numbers = _numbers(args, 4, 5)
    if numbers is None:
        return False
    duration_ms = int(numbers[4]) if len(numbers) == 5 else 300
    session.phone = gestures.drag(session.phone, (numbers[0], numbers[1]), (numbers[2], numbers[3]), duration_ms)
    return True


def _text(session: Session, args: list[str]) -> bool:
    if not args or not " ".join(args).isascii():  # the tool knows only letters that a keyboard map has
        return False
    if session.selected:
        session.phone = gestures.put_text(session.phone, "")
        session.selected = False
    session.phone = gestures.type_text(session.phone, " ".join(args).replace("%s", " "))
    return True


def _keyevent(session: Session, args: list[str]) -> bool:
    names = [arg for arg in args if not arg.startswith("--")]
    codes = [gestures.key_code(name) for name in names]
    if not codes or None in codes:
        return False
    for code in codes:
        if session.selected and code == gestures.KEYS["DEL"]:
            session.phone = gestures.put_text(session.phone, "")
        else:
            session.phone = gestures.press(session.phone, code or 0)
        session.selected = False
    return True


def _combination(session: Session, args: list[str]) -> bool:
    """Keys held together: only Ctrl with A, C, X or V means something."""
    codes = [gestures.key_code(arg) for arg in args if not arg.startswith("-")]
    if len(codes) < 2 or None in codes:
        return False
    if codes[0] in (gestures.KEYS["CTRL_LEFT"], gestures.KEYS["CTRL_RIGHT"]):
        last = codes[-1]
        if last == gestures.KEYS["A"]:
            session.selected = True
        elif last == gestures.KEYS["V"] and session.selected:
            session.phone = gestures.type_text(gestures.put_text(session.phone, ""), session.phone.clipboard)
            session.selected = False
        else:
            meaning = {gestures.KEYS["C"]: "COPY", gestures.KEYS["X"]: "CUT", gestures.KEYS["V"]: "PASTE"}
            if last in meaning:
                session.phone = gestures.press(session.phone, gestures.KEYS[meaning[last]])
    return True


_VERBS = {
    "tap": _tap,
    "swipe": _swipe,
    "draganddrop": _swipe,
    "text": _text,
    "keyevent": _keyevent,
    "keycombination": _combination,
}
