"""The methods that uiautomator2's client calls on a phone, over JSON-RPC.

A method is a function of the handle and the parameters. Views are touched by their middle, as the real program does.

The touches that uiautomator2's client asks for. Views are touched by their middle, as the real program does.

A phone that several connections share: the only thing of this room that changes.
"""

from __future__ import annotations

import asyncio
import base64
import io
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from collab.envs.simphone.adb.selectors import BadSelector, find, remember
from collab.envs.simphone.apps.system import open_quick_settings, open_shade
from collab.envs.simphone.shell import input
from collab.envs.simphone.shell.system import PROPERTIES
from collab.envs.simphone.state import HEIGHT, LAUNCHER, WIDTH, Phone, close_app, go_home, put_field, toast
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.ui.hierarchy import ViewNode, build_hierarchy, dump
from collab.envs.simphone.ui.screen import find_foreground_package, look
from collab.types import Box

if TYPE_CHECKING:
    from collab.envs.simphone.core import PhoneEpisode


logger = logging.getLogger(__name__)


class PhoneHandle:
    """A phone behind the server.

    Args:
        phone: its state at the start; None for a fresh one with the apps of `suite`.
        suite: the tasks that a client can begin on it; None for the usual ones.
    """

    def __init__(self, phone: Phone | None = None, suite: SimPhoneSuite | None = None) -> None:
        self.suite = suite or SimPhoneSuite()
        self._phone = phone if phone is not None else self.suite.phone().phone
        self.helper: tuple[str, int] | None = None
        """md5 and size of the automation program that a client has pushed. It would run on a phone; here its place
        is taken by this server, so the bytes are not kept."""
        self.exam: PhoneEpisode | None = None
        """The task that a client has begun on it (see `exam`); None before the first."""
        self.finger: tuple[float, float, float] | None = None
        """Where (pixels) and when (monotonic seconds) a finger was put down that has not been lifted yet."""

    @property
    def phone(self) -> Phone:
        """The present state."""
        return self._phone

    def put(self, phone: Phone) -> None:
        """Take over a new state. An app that cannot show itself in it has crashed, and is closed as Android does."""
        if phone is self._phone:
            return
        self._phone = drop_crashed_app(phone)


def drop_crashed_app(phone: Phone) -> Phone:
    """Return the phone as it is, or without the app in front when that cannot be shown."""
    try:
        look(phone)
    except Exception:  # whatever state came in from outside, one app's failure must not end the server
        logger.warning("app %s crashed and was closed", phone.foreground, exc_info=True)
        package = phone.foreground
        closed = go_home(phone) if package == LAUNCHER else close_app(phone, package)
        return toast(closed, f"{package} keeps stopping")
    return phone


_STEP_MS = 5
"""What one step of a gesture takes."""
_MOST_SWIPES = 500
_NO_OBJECT = "androidx.test.uiautomator.UiObjectNotFoundException"


class RpcError(Exception):
    """Error that a call answers with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def find_view(handle: PhoneHandle, selector: object) -> ViewNode:
    """Return the first view that matches; RpcError when there is none."""
    views = find(build_hierarchy(handle.phone), selector)
    if not views:
        raise RpcError(-32001, f"{_NO_OBJECT}: {selector}")
    return views[0]


# ------------------------------------------------------------------------------------------------------- touching


def exist(handle: PhoneHandle, selector: object) -> bool:
    """Return whether any view matches."""
    return bool(find(build_hierarchy(handle.phone), selector))


def click(handle: PhoneHandle, x: object, y: object = None, duration_ms: float = 0) -> bool:
    """Tap a pixel (with a duration: hold it) or the view that matches."""
    if isinstance(x, (dict, str)):
        place = find_view(handle, x).box.center
        handle.put(input.tap(handle.phone, *place))
    elif float(duration_ms) >= input.LONG_PRESS_MS:
        handle.put(input.long_press(handle.phone, _number(x), _number(y)))
    else:
        handle.put(input.tap(handle.phone, _number(x), _number(y)))
    return True


def long_click(handle: PhoneHandle, selector: object) -> bool:
    """Hold the view that matches."""
    handle.put(input.long_press(handle.phone, *find_view(handle, selector).box.center))
    return True


def _number(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e7:
        return value
    raise TypeError("a coordinate is no number")


def drag(handle: PhoneHandle, *args: object) -> bool:
    """Swipe from a point to another, in so many steps."""
    x1, y1, x2, y2, *steps = (_number(arg) for arg in args)
    handle.put(input.drag(handle.phone, (x1, y1), (x2, y2), round((steps[0] if steps else 55) * _STEP_MS)))
    return True


def swipe(handle: PhoneHandle, first: object, *args: object) -> bool:
    """Swipe from a point to another, or from a view's middle to its edge."""
    if not isinstance(first, (dict, str)):
        return drag(handle, first, *args)
    box = find_view(handle, first).box
    x, y = box.center
    ends = {"up": (x, box.top), "down": (x, box.bottom - 1), "left": (box.left, y), "right": (box.right - 1, y)}
    return drag(handle, x, y, *ends.get(str(args[0]) if args else "", (x, y)), 10)


def swipe_points(handle: PhoneHandle, points: object, steps: object = 100) -> bool:
    """Swipe along points, given as x, y, x, y …; only the first and the last count."""
    if not isinstance(points, list) or len(points) < 4 or len(points) % 2:
        raise TypeError("not enough points")
    return drag(handle, *points[:2], *points[-2:], 10)


def drag_to(handle: PhoneHandle, selector: object, x: object, y: object = 0, steps: object = 100) -> bool:
    """Drag from a view to a point or to another view."""
    start = find_view(handle, selector).box.center
    end = find_view(handle, x).box.center if isinstance(x, (dict, str)) else (_number(x), _number(y))
    return drag(handle, *start, *end, 100)


def inject(handle: PhoneHandle, action: int, x: float, y: float, meta: int = 0) -> bool:
    """Take one event of a finger: 0 down, 1 up, 2 move; the gesture happens when it is lifted."""
    if action == 0:
        handle.finger = (_number(x), _number(y), time.monotonic())
    elif action == 1 and handle.finger is not None:
        left, top, since = handle.finger
        handle.finger = None
        held_ms = round((time.monotonic() - since) * 1000)
        handle.put(input.drag(handle.phone, (left, top), (_number(x), _number(y)), held_ms))
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
    """Move two fingers from point to point: side by side they drag as one, else nothing happens."""
    find_view(handle, selector)
    starts, ends = (_point(start1), _point(start2)), (_point(end1), _point(end2))
    ways = [(end[0] - start[0], end[1] - start[1]) for start, end in zip(starts, ends, strict=True)]
    together = ways[0][0] * ways[1][0] + ways[0][1] * ways[1][1]
    if together > 0 and together >= 0.9 * math.hypot(*ways[0]) * math.hypot(*ways[1]):
        drag(handle, *starts[0], *ends[0], _number(steps))
    return True


def pinch(handle: PhoneHandle, selector: object, percent: object = 100, steps: object = 50) -> bool:
    """Pinch the view that matches, which changes nothing: no app of this phone zooms."""
    box = find_view(handle, selector).box
    if not 0 <= _number(percent) <= 100:
        raise ValueError("Percent must be between 0 and 100")
    _number(steps)
    if min(box.right - box.left, box.bottom - box.top) <= 2 * input.SLOP:
        raise RpcError(-32001, "java.lang.IllegalStateException: Object width is too small for operation")
    return True


def _point(value: object) -> tuple[float, float]:
    """Return a point as uiautomator2's client sends it: {"x": …, "y": …}."""
    if not isinstance(value, dict):
        raise TypeError("a point has no x and y")
    return _number(value.get("x")), _number(value.get("y"))


# ------------------------------------------------------------------------------------------------------ scrolling


def _scroll_view(handle: PhoneHandle, selector: object, *, forward: bool, vertical: object = True) -> bool:
    """Scroll the view that matches; whether anything moved."""
    box = find_view(handle, selector).box
    x, y = box.center
    before = handle.phone
    half = max(input.SLOP, (box.bottom - box.top) // 3)
    if vertical is False:
        half = max(input.SLOP, (box.right - box.left) // 3)
        drag(handle, x, y, x - half if forward else x + half, y)
    else:
        drag(handle, x, y, x, y - half if forward else y + half)
    return handle.phone != before


def scroll_forward(handle: PhoneHandle, selector: object, vertical: object = True, steps: object = 55) -> bool:
    """Show what comes next in the view that matches; whether anything moved."""
    return _scroll_view(handle, selector, forward=True, vertical=vertical)


def scroll_backward(handle: PhoneHandle, selector: object, vertical: object = True, steps: object = 55) -> bool:
    """Show what came before in the view that matches; whether anything moved."""
    return _scroll_view(handle, selector, forward=False, vertical=vertical)


def scroll_far(forward: bool) -> Callable[..., bool]:
    """Build the method that scrolls to the end (or the beginning)."""

    def method(
        handle: PhoneHandle, selector: object, vertical: object = True, swipes: int = _MOST_SWIPES, steps: object = 55
    ) -> bool:
        for _ in range(min(_MOST_SWIPES, max(0, int(swipes)))):
            if not find(build_hierarchy(handle.phone), selector):
                break
            if not _scroll_view(handle, selector, forward=forward, vertical=vertical):
                break
        return True

    return method


def scroll_to(handle: PhoneHandle, selector: object, target: object, vertical: object = True) -> bool:
    """Scroll from the beginning down until the target is there."""
    if exist(handle, target):
        return True
    if not exist(handle, selector):
        return False
    scroll_far(forward=False)(handle, selector, vertical)
    for _ in range(_MOST_SWIPES):
        if exist(handle, target):
            return True
        if not exist(handle, selector) or not _scroll_view(handle, selector, forward=True, vertical=vertical):
            break
    return exist(handle, target)


MAX_TEXT = 1024 * 1024
"""Characters that can be typed or pasted at once."""
MAX_WAIT_S = 120.0
_POLL_S = 0.05


async def call(handle: PhoneHandle, method: str, params: object) -> Any:
    """Call a method.

    Raises:
        RpcError: there is no such method, or it cannot do what was asked.
    """
    function = _METHODS.get(method)
    if function is None:
        raise RpcError(-32601, f"method not found: {method}")
    given = list(params) if isinstance(params, list) else list(params.values()) if isinstance(params, dict) else []
    try:
        result = function(handle, *given)
        return await result if isinstance(result, Awaitable) else result
    except BadSelector as problem:
        raise RpcError(-32602, str(problem)) from None
    except (TypeError, ValueError, OverflowError) as problem:  # the wrong number or kind of parameters
        raise RpcError(-32602, f"{method}: {problem}") from None


# -------------------------------------------------------------------------------------------------------- reading


def _dump(handle: PhoneHandle, compressed: bool = False, max_depth: int = 50, root_in_active: bool = False) -> str:
    roots = build_hierarchy(handle.phone)
    return dump(roots[:1] if root_in_active else roots, max_depth if isinstance(max_depth, int) else 50)


def _describe_device(handle: PhoneHandle) -> dict[str, Any]:
    return {
        "currentPackageName": find_foreground_package(handle.phone),
        "displayHeight": HEIGHT,
        "displayRotation": 0,
        "displaySizeDpX": 411,
        "displaySizeDpY": 914,
        "displayWidth": WIDTH,
        "productName": PROPERTIES["ro.product.name"],
        "sdkInt": int(PROPERTIES["ro.build.version.sdk"]),
        "naturalOrientation": True,
        "screenOn": True,
    }


def _describe_view(view: ViewNode) -> dict[str, Any]:
    bounds = _bounds_to_json(view.box)
    return {
        "bounds": bounds,
        "visibleBounds": bounds,
        "childCount": len(view.children),
        "className": view.kind,
        "contentDescription": view.description,
        "packageName": view.package,
        "resourceName": view.id,
        "text": view.text,
        "enabled": "disabled" not in view.flags,
        "longClickable": "long-clickable" in view.flags,
        **{name: name in view.flags for name in ("checkable", "checked", "clickable", "focusable", "focused")},
        **{name: name in view.flags for name in ("scrollable", "selected")},
    }


def _bounds_to_json(box: Box) -> dict[str, int]:
    return {"left": box.left, "top": box.top, "right": box.right, "bottom": box.bottom}


def _describe_first(handle: PhoneHandle, selector: object) -> dict[str, Any]:
    return _describe_view(find_view(handle, selector))


def _describe_all(handle: PhoneHandle, selector: object) -> list[dict[str, Any]]:
    return [_describe_view(view) for view in find(build_hierarchy(handle.phone), selector)]


def _count(handle: PhoneHandle, selector: object) -> int:
    return len(find(build_hierarchy(handle.phone), selector))


async def _wait(handle: PhoneHandle, selector: object, timeout_ms: float = 0, *, gone: bool = False) -> bool:
    """Wait until a view is there (or gone): other connections may change the screen meanwhile."""
    end = time.monotonic() + min(MAX_WAIT_S, max(0.0, timeout_ms / 1000))
    while exist(handle, selector) == gone:
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(_POLL_S)
    return True


async def _wait_gone(handle: PhoneHandle, selector: object, timeout_ms: float = 0) -> bool:
    return await _wait(handle, selector, timeout_ms, gone=True)


def _get_text(handle: PhoneHandle, selector: object) -> str:
    return find_view(handle, selector).text


def _take_screenshot(handle: PhoneHandle, scale: float = 1, quality: int = 80) -> str:
    from collab.envs.simphone.ui.render import render  # Pillow loads only for a look

    image = render(look(handle.phone).observation).convert("RGB")
    share = min(1.0, max(0.05, float(scale)))
    if share < 1:
        image = image.resize((round(image.width * share), round(image.height * share)))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=min(95, max(1, int(quality))))
    return base64.b64encode(buffer.getvalue()).decode()


def _find_child_by(word: str) -> Callable[..., str]:
    def method(handle: PhoneHandle, parent: object, child: object, text: object, scroll: bool = False) -> str:
        name = remember(parent, child, {word: text})
        find_view(handle, name)
        return name

    return method


# --------------------------------------------------------------------------------------------------------- typing


def _set_text(handle: PhoneHandle, selector: object, text: object) -> bool:
    view = find_view(handle, selector)
    field = look(handle.phone).placed.nodes[view.element].field if view.element is not None else None
    if field is None:
        return False
    handle.put(put_field(handle.phone, field, _clean(text)))
    return True


def _clear_field(handle: PhoneHandle, selector: object) -> bool:
    return _set_text(handle, selector, "")


def _clear_input(handle: PhoneHandle) -> bool:
    handle.put(input.put_text(handle.phone, ""))
    return True


def _clean(text: object) -> str:
    """Return text without half characters, which cannot be stored."""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise TypeError("text is none, or too long")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _set_clipboard(handle: PhoneHandle, label: object, text: object) -> None:
    handle.put(replace(handle.phone, clipboard=_clean(text)))


def _paste(handle: PhoneHandle) -> bool:
    handle.put(input.type_text(handle.phone, handle.phone.clipboard))
    return True


def _press_key(handle: PhoneHandle, name: object) -> bool:
    alias = {"delete": "DEL", "del": "DEL", "recent": "APP_SWITCH", "center": "DPAD_CENTER"}.get(str(name), str(name))
    code = input.parse_key(alias)
    return code is not None and _press_code(handle, code)


def _press_code(handle: PhoneHandle, code: int, meta: object = None) -> bool:
    if not isinstance(code, int):
        raise TypeError("a key code is no number")
    handle.put(input.press(handle.phone, code))
    return True


def _make_toast(handle: PhoneHandle, text: object, duration_ms: object = 1000) -> bool:
    handle.put(toast(handle.phone, _clean(text)))
    return True


def _clear_toast(handle: PhoneHandle) -> None:
    handle.put(replace(handle.phone, notice=None))


def _do_nothing(handle: PhoneHandle, *args: object) -> bool:
    """Accept the call: the screen is always on, upright and idle."""
    return True


def _make_opener(opens: Callable[[Phone], Phone]) -> Callable[[PhoneHandle], bool]:
    def method(handle: PhoneHandle) -> bool:
        handle.put(opens(handle.phone))
        return True

    return method


_METHODS: dict[str, Callable[..., Any]] = {
    "childByDescription": _find_child_by("description"),
    "childByInstance": _find_child_by("place"),
    "childByText": _find_child_by("text"),
    "clearInputText": _clear_input,
    "clearLastToast": _clear_toast,
    "clearLastTraversedText": _do_nothing,
    "clearTextField": _clear_field,
    "click": click,
    "count": _count,
    "deviceInfo": _describe_device,
    "drag": drag,
    "dragTo": drag_to,
    "dumpWindowHierarchy": _dump,
    "exist": exist,
    "flingBackward": scroll_backward,
    "flingForward": scroll_forward,
    "flingToBeginning": scroll_far(forward=False),
    "flingToEnd": scroll_far(forward=True),
    "freezeRotation": _do_nothing,
    "gesture": gesture,
    "getClipboard": lambda handle: handle.phone.clipboard,
    "getLastToast": lambda handle: handle.phone.notice,
    "getLastTraversedText": lambda handle: None,
    "getText": _get_text,
    "injectInputEvent": inject,
    "longClick": long_click,
    "makeToast": _make_toast,
    "objInfo": _describe_first,
    "objInfoOfAllInstances": _describe_all,
    "openNotification": _make_opener(open_shade),
    "openQuickSettings": _make_opener(open_quick_settings),
    "pasteClipboard": _paste,
    "pinchIn": pinch,
    "pinchOut": pinch,
    "pressKey": _press_key,
    "pressKeyCode": _press_code,
    "scrollBackward": scroll_backward,
    "scrollForward": scroll_forward,
    "scrollTo": scroll_to,
    "scrollToBeginning": scroll_far(forward=False),
    "scrollToEnd": scroll_far(forward=True),
    "setClipboard": _set_clipboard,
    "setOrientation": _do_nothing,
    "setText": _set_text,
    "sleep": _do_nothing,
    "swipe": swipe,
    "swipePoints": swipe_points,
    "takeScreenshot": _take_screenshot,
    "waitForExists": _wait,
    "waitForIdle": _do_nothing,
    "waitUntilGone": _wait_gone,
    "wakeUp": _do_nothing,
}
"""Every method of the program that its client uses."""
