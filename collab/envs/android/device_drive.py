"""Fingers and keys on a device through uiautomator2, as AndroidWorld moves them.

Blocking calls: a coroutine runs them in a thread. Text that the `input` tool cannot type
(anything but ASCII) is set through accessibility.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collab.envs.android.device_adb import DeviceAddress, find, find_package
from collab.envs.android.device_screen import ScreenDump, read_dump, read_size
from collab.envs.grammar import MOBILE
from collab.envs.text import find_place
from collab.errors import MissingExtra
from collab.types import Action, Box, ElementTarget, Observation, Point

if TYPE_CHECKING:
    import uiautomator2

LONG_PRESS_S = 1.0
DEEPEST = 1000
"""Levels of views that a dump tells; uiautomator2 stops at 50, below which web pages and lists have their content."""
_FOCUS_S = 1.0
"""How long a tapped field may take to get the focus."""
KEYS: Mapping[str, str | int] = {
    **{"back": "back", "home": "home", "recents": "recent", "app_switch": "recent", "menu": "menu", "search": "search"},
    **{"enter": "enter", "backspace": "del", "delete": "del", "tab": 61, "space": 62, "escape": 111},
    **{"up": "up", "down": "down", "left": "left", "right": "right", "pageup": 92, "pagedown": 93, "end": 123},
    **{name: name for name in ("volume_up", "volume_down", "volume_mute", "camera")},
}
"""Keys by name, as `order_keys` gives it → uiautomator2's name, or Android's code. None of them turns a device off."""
_SELECT_ALL_AND_DELETE = "input keycombination 113 29 && input keyevent 67"


class Driver:
    """One device.

    Args:
        place: which one.

    Raises:
        MissingExtra: uiautomator2 is not installed.
        UsageError: no adb server, or no such device.
    """

    def __init__(self, place: DeviceAddress) -> None:
        device = find(place)
        MissingExtra.unless("uiautomator2", extra="android", purpose="driving a device")
        import uiautomator2

        self._device: uiautomator2.Device = uiautomator2.connect(device)
        self.serial, self.place = str(device.serial), place
        self.width, self.height = self._read_size()
        """Size of the screen at the last look, in pixels."""

    # --------------------------------------------------------------------------------------------------- looking

    def screen(self, settle_s: float) -> ScreenDump:
        """Return the screen as soon as two looks are equal, or after `settle_s` seconds as it is then.

        Its size is found out anew each time: a device can be turned.
        """
        xml, end = self._dump(), time.monotonic() + settle_s
        while time.monotonic() < end:
            time.sleep(0.05)
            again = self._dump()
            if again == xml:
                break
            xml = again
        self.width, self.height = read_size(xml, *self._read_size())
        return read_dump(xml, width=self.width, height=self.height)

    def _read_size(self) -> tuple[int, int]:
        width, height = self._device.window_size()
        return int(width), int(height)

    def _dump(self) -> str:
        return str(self._device.dump_hierarchy(max_depth=DEEPEST))

    def package(self) -> str:
        """Return the package of the app in front."""
        return str(self._device.info["currentPackageName"])

    def toast(self) -> str | None:
        """Return the message that was shown last; each is returned only once."""
        text = self._device.last_toast
        if not text:
            return None
        self._device.clear_toast()
        return str(text)

    def picture(self) -> Any:
        """Return the screen as a Pillow image."""
        return self._device.screenshot()

    # ---------------------------------------------------------------------------------------------------- acting

    def home(self) -> None:
        """Show the home screen."""
        self._device.press("home")

    def start(self, package: str) -> None:
        """Bring an app to the front."""
        self._device.app_start(package)

    def stop(self, package: str) -> None:
        """End an app."""
        self._device.app_stop(package)

    def perform(self, action: Action, observation: Observation, allowed: Mapping[str, str], *, enter: bool) -> None:
        """Execute a canonical action; what makes no sense here does nothing.

        Args:
            allowed: name → package of the apps that can be opened.
            enter: whether typing ends with the Enter key.
        """
        # A touch without a place touches nothing: there is no point to fall back on.
        place = _place(action, observation)
        kind = action.type
        if kind in ("click", "double_tap", "long_press") and place is not None:
            self._touch(kind, *place.center)
        elif kind in ("scroll", "swipe"):
            self._drag(kind, str(action["direction"]), place)
        elif kind == "input_text":
            wanted = bool(action.get("press_enter", True))
            clear = bool(action.get("clear_text", False))
            self._type(str(action["text"]), place, clear=clear, enter=enter and wanted)
        elif kind == "drag" and place is not None:
            end = MOBILE.find_end(action)
            self._move(place, None if end is None else find_place(end, observation))
        elif kind == "press_keys" and action["keys"] in KEYS:
            self._device.press(KEYS[str(action["keys"])])
        elif kind == "open_recents":
            self._device.press("recent")
        elif kind == "keyboard_enter":
            self._device.press("enter")
        elif kind == "navigate_back":
            self._device.press("back")
        elif kind == "navigate_home":
            self.home()
        elif kind == "open_app":
            self.start(find_package(str(action["app_name"]), allowed))
        elif kind == "wait":
            self._device.shell("sleep 1")

    def _touch(self, kind: str, x: int, y: int) -> None:
        if kind == "click":
            self._device.click(x, y)
        elif kind == "double_tap":
            self._device.double_click(x, y, 0.05)
        else:
            self._device.long_click(x, y, LONG_PRESS_S)

    def _move(self, place: Box, end: tuple[float, float] | None) -> None:
        if end is not None:
            self._device.swipe(*place.center, round(end[0]), round(end[1]), duration=0.5)

    def _drag(self, kind: str, direction: str, place: Box | None) -> None:
        """Scroll: from the middle to the edge, against the direction. Swipe: with it, over the whole screen.

        A swipe that starts on an element (a slider) goes from its middle to its edge.
        """
        screen = Box(0, 0, self.width, self.height)
        if kind == "swipe" and place is None:
            start, end = _find_edge(screen, _OPPOSITE[direction]), _find_edge(screen, direction)
        else:
            box = place or screen
            start, end = box.center, _find_edge(box, _OPPOSITE[direction] if kind == "scroll" else direction)
        self._device.swipe(*start, *end, duration=0.3)

    def _type(self, text: str, place: Box | None, *, clear: bool, enter: bool) -> None:
        # No text is nothing to do, unless the field is emptied; Enter alone has an action of its own.
        if not text and not clear:
            return
        if place is not None:
            self._device.click(*place.center)
            # Keys go to the focused field, which takes a moment to get the focus.
            self._wait_for_focus()
        if clear:
            self._device.shell(_SELECT_ALL_AND_DELETE)
        # Line by line, as `input text` knows no line breaks.
        for number, line in enumerate(text.split("\n")):
            if number:
                self._device.press("enter")
            self._type_line(line)
        if enter:
            self._device.press("enter")

    def _wait_for_focus(self) -> None:
        end = time.monotonic() + _FOCUS_S
        while time.monotonic() < end and not self._device(focused=True).exists:
            time.sleep(0.05)

    def _type_line(self, line: str) -> None:
        if not line:
            return
        if line.isascii():
            for part in re.split(r"(?<=%)(?=s)", line):  # the tool reads %s as a space
                self._device.shell(["input", "text", part])
            return
        focused = [one for one in self.screen(0).elements if "focused" in one.flags]
        if focused:
            self._device(focused=True).set_text((focused[0].value or "") + line)


_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


def _find_edge(box: Box, side: str) -> tuple[int, int]:
    """Return the middle of a side, on the last pixel inside the box."""
    x, y = box.center
    return {"up": (x, box.top), "down": (x, box.bottom - 1), "left": (box.left, y), "right": (box.right - 1, y)}[side]


def _place(action: Action, observation: Observation) -> Box | None:
    """Return where an action is aimed at; None when it has no target, or one that is not there."""
    if isinstance(action.target, ElementTarget):
        if action.target.index >= len(observation.elements):
            return None
        return observation.elements[action.target.index].box
    if isinstance(action.target, Point):
        x, y = int(action.target.x), int(action.target.y)
        return Box(x, y, x + 1, y + 1)
    return None
