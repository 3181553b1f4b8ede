"""The touches that uiautomator2's client asks for. Views are touched by their middle, as the real program does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from collab.envs.phone.adb.handle import PhoneHandle
from collab.envs.phone.adb.hierarchy import ViewNode, hierarchy
from collab.envs.phone.adb.selectors import find
from collab.envs.phone.shell import gestures

_STEP_MS = 5
"""What one step of a gesture takes."""
_MOST_SWIPES = 500
_NO_OBJECT = "androidx.test.uiautomator.UiObjectNotFoundException"


class RpcError(Exception):
    """What a call answers instead of a result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def found_view(handle: PhoneHandle, selector: object) -> ViewNode:
    """The first view that matches; RpcError when there is none."""
    views = find(hierarchy(handle.phone), selector)
    if not views:
        raise RpcError(-32001, f"{_NO_OBJECT}: {selector}")
    return views[0]


# ------------------------------------------------------------------------------------------------------- touching


def exist(handle: PhoneHandle, selector: object) -> bool:
    """Whether any view matches."""
    return bool(find(hierarchy(handle.phone), selector))


def click(handle: PhoneHandle, x: object, y: object = None, duration_ms: float = 0) -> bool:
    """Tap a pixel (with a duration: hold it) or the view that matches."""
    if isinstance(x, (dict, str)):
        place = found_view(handle, x).box.center
        handle.put(gestures.tap(handle.phone, *place))
    elif float(duration_ms) >= gestures.LONG_PRESS_MS:
        handle.put(gestures.long_press(handle.phone, _number(x), _number(y)))
    else:
        handle.put(gestures.tap(handle.phone, _number(x), _number(y)))
    return True


def long_click(handle: PhoneHandle, selector: object) -> bool:
    """Hold the view that matches."""
    handle.put(gestures.long_press(handle.phone, *found_view(handle, selector).box.center))
    return True


def _number(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e7:
        return value
    raise TypeError("a coordinate is no number")


def drag(handle: PhoneHandle, *args: object) -> bool:
    """A finger from a point to another, in so many steps."""
    x1, y1, x2, y2, *steps = (_number(arg) for arg in args)
    handle.put(gestures.drag(handle.phone, (x1, y1), (x2, y2), round((steps[0] if steps else 55) * _STEP_MS)))
    return True


def swipe(handle: PhoneHandle, first: object, *args: object) -> bool:
    """A finger from a point to another, or from a view's middle to its edge."""
    if not isinstance(first, (dict, str)):
        return drag(handle, first, *args)
    box = found_view(handle, first).box
    x, y = box.center
    ends = {"up": (x, box.top), "down": (x, box.bottom - 1), "left": (box.left, y), "right": (box.right - 1, y)}
    return drag(handle, x, y, *ends.get(str(args[0]) if args else "", (x, y)), 10)


def swipe_points(handle: PhoneHandle, points: object, steps: object = 100) -> bool:
    """A finger along points, given as x, y, x, y …; only the first and the last count."""
    if not isinstance(points, list) or len(points) < 4 or len(points) % 2:
        raise TypeError("not enough points")
    return drag(handle, *points[:2], *points[-2:], 10)


def drag_to(handle: PhoneHandle, selector: object, x: object, y: object = 0, steps: object = 100) -> bool:
    """A finger from a view to a point or to another view."""
    start = found_view(handle, selector).box.center
    end = found_view(handle, x).box.center if isinstance(x, (dict, str)) else (_number(x), _number(y))
    return drag(handle, *start, *end, 100)


def inject(handle: PhoneHandle, action: int, x: float, y: float, meta: int = 0) -> bool:
    """One event of a finger: 0 down, 1 up, 2 move; the gesture happens when it is lifted."""
    if action == 0:
        handle.finger = (_number(x), _number(y), time.monotonic())
    elif action == 1 and handle.finger is not None:
        left, top, since = handle.finger
        handle.finger = None
        held_ms = round((time.monotonic() - since) * 1000)
        handle.put(gestures.drag(handle.phone, (left, top), (_number(x), _number(y)), held_ms))
    return True


def gesture(
    handle: PhoneHandle,
    selector: object,
    start1: object,
    start2: object,
    end1: object,
    end2: object,
    steps: object = 100,
) -> bool:
    """Two fingers, each from a point to another: side by side they drag as one; else nothing on this phone reacts."""
    found_view(handle, selector)
    starts, ends = (_point(start1), _point(start2)), (_point(end1), _point(end2))
    ways = [(end[0] - start[0], end[1] - start[1]) for start, end in zip(starts, ends, strict=True)]
    together = ways[0][0] * ways[1][0] + ways[0][1] * ways[1][1]
    if together > 0 and together >= 0.9 * math.hypot(*ways[0]) * math.hypot(*ways[1]):
        drag(handle, *starts[0], *ends[0], _number(steps))
    return True


def pinch(handle: PhoneHandle, selector: object, percent: object = 100, steps: object = 50) -> bool:
    """Two fingers towards each other or apart over the view that matches: no app of this phone zooms."""
    box = found_view(handle, selector).box
    if not 0 <= _number(percent) <= 100:
        raise ValueError("Percent must be between 0 and 100")
    _number(steps)
    if min(box.right - box.left, box.bottom - box.top) <= 2 * gestures.SLOP:
        raise RpcError(-32001, "java.lang.IllegalStateException: Object width is too small for operation")
    return True


def _point(value: object) -> tuple[float, float]:
    """A point as uiautomator2's client sends it: {"x": …, "y": …}."""
    if not isinstance(value, dict):
        raise TypeError("a point has no x and y")
    return _number(value.get("x")), _number(value.get("y"))


# ------------------------------------------------------------------------------------------------------ scrolling


def _scrolled(handle: PhoneHandle, selector: object, *, forward: bool, vertical: object = True) -> bool:
    """Scroll the view that matches; whether anything moved."""
    box = found_view(handle, selector).box
    x, y = box.center
    before = handle.phone
    half = max(gestures.SLOP, (box.bottom - box.top) // 3)
    if vertical is False:
        half = max(gestures.SLOP, (box.right - box.left) // 3)
        drag(handle, x, y, x - half if forward else x + half, y)
    else:
        drag(handle, x, y, x, y - half if forward else y + half)
    return handle.phone != before


def scroll_forward(handle: PhoneHandle, selector: object, vertical: object = True, steps: object = 55) -> bool:
    """Show what comes next in the view that matches; whether anything moved."""
    return _scrolled(handle, selector, forward=True, vertical=vertical)


def scroll_backward(handle: PhoneHandle, selector: object, vertical: object = True, steps: object = 55) -> bool:
    """Show what came before in the view that matches; whether anything moved."""
    return _scrolled(handle, selector, forward=False, vertical=vertical)


def scroll_far(forward: bool) -> Callable[..., bool]:
    """Scrolling to the end (or the beginning), as a method."""

    def method(
        handle: PhoneHandle, selector: object, vertical: object = True, swipes: int = _MOST_SWIPES, steps: object = 55
    ) -> bool:
        for _ in range(min(_MOST_SWIPES, max(0, int(swipes)))):
            if not find(hierarchy(handle.phone), selector):
                break
            if not _scrolled(handle, selector, forward=forward, vertical=vertical):
                break
        return True

    return method


def scroll_to(handle: PhoneHandle, selector: object, target: object, vertical: object = True) -> bool:
    """From the beginning down until the target is there."""
    if exist(handle, target):
        return True
    if not exist(handle, selector):
        return False
    scroll_far(forward=False)(handle, selector, vertical)
    for _ in range(_MOST_SWIPES):
        if exist(handle, target):
            return True
        if not exist(handle, selector) or not _scrolled(handle, selector, forward=True, vertical=vertical):
            break
    return exist(handle, target)
