"""The methods that uiautomator2's client calls on a phone, over JSON-RPC.

A method is a function of the handle and the parameters. Views are touched by their middle, as the real program does.
"""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from collab.envs.phone.adb import touching
from collab.envs.phone.adb.handle import PhoneHandle
from collab.envs.phone.adb.hierarchy import ViewNode, dump, hierarchy
from collab.envs.phone.adb.selectors import BadSelector, find, remember
from collab.envs.phone.adb.touching import RpcError, found_view
from collab.envs.phone.apps.system_shade import open_quick_settings, open_shade
from collab.envs.phone.screen import foreground_package, look
from collab.envs.phone.shell import gestures
from collab.envs.phone.shell.system import PROPERTIES
from collab.envs.phone.state import HEIGHT, WIDTH, Phone, put_field, toast
from collab.types import Box

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
    roots = hierarchy(handle.phone)
    return dump(roots[:1] if root_in_active else roots, max_depth if isinstance(max_depth, int) else 50)


def _device_info(handle: PhoneHandle) -> dict[str, Any]:
    return {
        "currentPackageName": foreground_package(handle.phone),
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


def _info(view: ViewNode) -> dict[str, Any]:
    bounds = _bounds(view.box)
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


def _bounds(box: Box) -> dict[str, int]:
    return {"left": box.left, "top": box.top, "right": box.right, "bottom": box.bottom}


def _obj_info(handle: PhoneHandle, selector: object) -> dict[str, Any]:
    return _info(found_view(handle, selector))


def _obj_infos(handle: PhoneHandle, selector: object) -> list[dict[str, Any]]:
    return [_info(view) for view in find(hierarchy(handle.phone), selector)]


def _count(handle: PhoneHandle, selector: object) -> int:
    return len(find(hierarchy(handle.phone), selector))


async def _wait(handle: PhoneHandle, selector: object, timeout_ms: float = 0, *, gone: bool = False) -> bool:
    """Wait until a view is there (or gone): other connections may change the screen meanwhile."""
    end = time.monotonic() + min(MAX_WAIT_S, max(0.0, timeout_ms / 1000))
    while touching.exist(handle, selector) == gone:
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(_POLL_S)
    return True


async def _wait_gone(handle: PhoneHandle, selector: object, timeout_ms: float = 0) -> bool:
    return await _wait(handle, selector, timeout_ms, gone=True)


def _get_text(handle: PhoneHandle, selector: object) -> str:
    return found_view(handle, selector).text


def _screenshot(handle: PhoneHandle, scale: float = 1, quality: int = 80) -> str:
    from collab.envs.phone.render import render  # Pillow loads only when somebody looks

    image = render(look(handle.phone).observation).convert("RGB")
    share = min(1.0, max(0.05, float(scale)))
    if share < 1:
        image = image.resize((round(image.width * share), round(image.height * share)))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=min(95, max(1, int(quality))))
    return base64.b64encode(buffer.getvalue()).decode()


def _child_by(word: str) -> Callable[..., str]:
    def method(handle: PhoneHandle, parent: object, child: object, text: object, scroll: bool = False) -> str:
        name = remember(parent, child, {word: text})
        found_view(handle, name)
        return name

    return method


# --------------------------------------------------------------------------------------------------------- typing


def _set_text(handle: PhoneHandle, selector: object, text: object) -> bool:
    view = found_view(handle, selector)
    field = look(handle.phone).placed.nodes[view.element].field if view.element is not None else None
    if field is None:
        return False
    handle.put(put_field(handle.phone, field, _clean(text)))
    return True


def _clear_field(handle: PhoneHandle, selector: object) -> bool:
    return _set_text(handle, selector, "")


def _clear_input(handle: PhoneHandle) -> bool:
    handle.put(gestures.put_text(handle.phone, ""))
    return True


def _clean(text: object) -> str:
    """Text without half characters, which cannot be stored."""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise TypeError("text is none, or too long")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _set_clipboard(handle: PhoneHandle, label: object, text: object) -> None:
    handle.put(replace(handle.phone, clipboard=_clean(text)))


def _paste(handle: PhoneHandle) -> bool:
    handle.put(gestures.type_text(handle.phone, handle.phone.clipboard))
    return True


def _press_key(handle: PhoneHandle, name: object) -> bool:
    alias = {"delete": "DEL", "del": "DEL", "recent": "APP_SWITCH", "center": "DPAD_CENTER"}.get(str(name), str(name))
    code = gestures.key_code(alias)
    return code is not None and _press_code(handle, code)


def _press_code(handle: PhoneHandle, code: int, meta: object = None) -> bool:
    if not isinstance(code, int):
        raise TypeError("a key code is no number")
    handle.put(gestures.press(handle.phone, code))
    return True


def _make_toast(handle: PhoneHandle, text: object, duration_ms: object = 1000) -> bool:
    handle.put(toast(handle.phone, _clean(text)))
    return True


def _clear_toast(handle: PhoneHandle) -> None:
    handle.put(replace(handle.phone, notice=None))


def _nothing(handle: PhoneHandle, *args: object) -> bool:
    """Accepted: the screen is always on, upright and idle."""
    return True


def _opened(opens: Callable[[Phone], Phone]) -> Callable[[PhoneHandle], bool]:
    def method(handle: PhoneHandle) -> bool:
        handle.put(opens(handle.phone))
        return True

    return method


_METHODS: dict[str, Callable[..., Any]] = {
    "childByDescription": _child_by("description"),
    "childByInstance": _child_by("place"),
    "childByText": _child_by("text"),
    "clearInputText": _clear_input,
    "clearLastToast": _clear_toast,
    "clearLastTraversedText": _nothing,
    "clearTextField": _clear_field,
    "click": touching.click,
    "count": _count,
    "deviceInfo": _device_info,
    "drag": touching.drag,
    "dragTo": touching.drag_to,
    "dumpWindowHierarchy": _dump,
    "exist": touching.exist,
    "flingBackward": touching.scroll_backward,
    "flingForward": touching.scroll_forward,
    "flingToBeginning": touching.scroll_far(forward=False),
    "flingToEnd": touching.scroll_far(forward=True),
    "freezeRotation": _nothing,
    "gesture": touching.gesture,
    "getClipboard": lambda handle: handle.phone.clipboard,
    "getLastToast": lambda handle: handle.phone.notice,
    "getLastTraversedText": lambda handle: None,
    "getText": _get_text,
    "injectInputEvent": touching.inject,
    "longClick": touching.long_click,
    "makeToast": _make_toast,
    "objInfo": _obj_info,
    "objInfoOfAllInstances": _obj_infos,
    "openNotification": _opened(open_shade),
    "openQuickSettings": _opened(open_quick_settings),
    "pasteClipboard": _paste,
    "pinchIn": touching.pinch,
    "pinchOut": touching.pinch,
    "pressKey": _press_key,
    "pressKeyCode": _press_code,
    "scrollBackward": touching.scroll_backward,
    "scrollForward": touching.scroll_forward,
    "scrollTo": touching.scroll_to,
    "scrollToBeginning": touching.scroll_far(forward=False),
    "scrollToEnd": touching.scroll_far(forward=True),
    "setClipboard": _set_clipboard,
    "setOrientation": _nothing,
    "setText": _set_text,
    "sleep": _nothing,
    "swipe": touching.swipe,
    "swipePoints": touching.swipe_points,
    "takeScreenshot": _screenshot,
    "waitForExists": _wait,
    "waitForIdle": _nothing,
    "waitUntilGone": _wait_gone,
    "wakeUp": _nothing,
}
"""Every method of the program that its client uses."""
