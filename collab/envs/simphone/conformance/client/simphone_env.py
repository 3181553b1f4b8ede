"""SimPhone as AndroidWorld sees a device: android_env's interface over the loopback adb server.

    env = connect(port, "emulator-5554")   # AndroidWorld's own AsyncAndroidEnv on its own controller
    task.initialize_task(env)
    ...
    task.is_successful(env)

It runs under AndroidWorld's interpreter, without this package. Requests are read by android_env's own parser, so every
one becomes the adb command that a real device would get. The accessibility forest, which on a device comes from an
app inside it, is made from a dump of the screen.
"""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
from typing import Any

import dm_env
import numpy as np
from android_env import env_interface
from android_env.components import action_type, adb_call_parser, specs
from android_env.proto import adb_pb2
from android_env.proto.a11y import android_accessibility_forest_pb2, android_accessibility_window_info_pb2
from android_world.env import adb_utils, android_world_controller, interface
from simphone_adb import AdbClient

_EDITABLE = "android.widget.EditText"
_FLAGS = {
    "is_checkable": "checkable",
    "is_checked": "checked",
    "is_clickable": "clickable",
    "is_enabled": "enabled",
    "is_focusable": "focusable",
    "is_focused": "focused",
    "is_long_clickable": "long-clickable",
    "is_password": "password",
    "is_scrollable": "scrollable",
    "is_selected": "selected",
    "is_visible_to_user": "visible-to-user",
}


class SimPhoneEnv(env_interface.AndroidEnvInterface):  # type: ignore[misc]  # their package is not here
    """One phone behind android_env's interface; there is no episode, so rewards are 0 and no step is the last.

    Args:
        pictures: whether observations hold the drawn screen, a tenth of a second each; without it they are black.
    """

    def __init__(self, adb: AdbClient, *, pictures: bool = True) -> None:
        self.adb = adb
        self._pictures = pictures
        self._parser = adb_call_parser.AdbCallParser(adb)
        self._touched: list[tuple[int, int]] = []
        """Pixels of a touch that has not been lifted."""
        self.width, self.height = adb_utils.get_screen_size(self)

    def action_spec(self) -> dict[str, Any]:
        """Return android_env's touch actions."""
        return dict(specs.base_action_spec())

    def observation_spec(self) -> dict[str, Any]:
        """Return android_env's observations: pixels, time since the last one (always 0) and orientation."""
        return dict(specs.base_observation_spec(height=self.height, width=self.width))

    def reset(self) -> dm_env.TimeStep:
        """Look at the phone as it is."""
        self._touched = []
        return dm_env.restart(self._build_observation())

    def step(self, action: dict[str, Any]) -> dm_env.TimeStep:
        """Touch or lift; a touch lifted where it began is a tap, elsewhere a swipe."""
        kind = int(action["action_type"])
        x, y = (float(part) for part in action["touch_position"])
        if kind == action_type.ActionType.TOUCH:
            self._touched.append((round(x * (self.width - 1)), round(y * (self.height - 1))))
        elif kind == action_type.ActionType.LIFT and self._touched:
            begin, end = self._touched[0], self._touched[-1]
            self._touched = []
            gesture = ["tap", *begin] if begin == end else ["swipe", *begin, *end, 200]
            self.adb.shell("input " + " ".join(map(str, gesture)))
        return dm_env.transition(reward=0.0, observation=self._build_observation())

    def close(self) -> None:
        """Give nothing back: every command is a connection of its own."""

    def execute_adb_call(self, call: adb_pb2.AdbRequest) -> adb_pb2.AdbResponse:
        """Execute a request on the phone; AdbControllerError when the command fails, as on a device."""
        return self._parser.parse(call)

    def forest(self) -> Any:
        """Return the accessibility forest of the present screen."""
        dump = self.adb.shell("uiautomator dump /dev/tty").decode("utf-8")
        return forest(dump[: dump.rindex(">") + 1])

    def _build_observation(self) -> dict[str, Any]:
        return {
            "pixels": self._take_picture() if self._pictures else np.zeros((self.height, self.width, 3), np.uint8),
            "timedelta": np.int64(0),
            "orientation": np.array([1, 0, 0, 0], np.uint8),
        }

    def _take_picture(self) -> Any:
        raw = self.adb.shell("screencap")
        width, height = struct.unpack("<II", raw[:8])
        return np.frombuffer(raw, np.uint8, offset=16).reshape(height, width, 4)[:, :, :3].copy()


class SimPhoneController(android_world_controller.AndroidWorldController):  # type: ignore[misc]
    """AndroidWorld's controller; only the forest comes from elsewhere."""

    def __init__(self, env: SimPhoneEnv) -> None:
        super().__init__(env, android_world_controller.A11yMethod.NONE)
        # Nothing has to be installed on this phone, so the wrapper that does so is not wanted, but its forest is.
        self._a11y_method = android_world_controller.A11yMethod.A11Y_FORWARDER_APP

    def get_a11y_forest(self) -> Any:
        """Return the accessibility forest of the present screen."""
        return self.env.forest()


def connect(port: int, serial: str, *, pictures: bool = True) -> interface.AsyncAndroidEnv:
    """Return AndroidWorld's environment on a phone of the adb server at `port`; see `SimPhoneEnv` for `pictures`.

    Raises:
        AdbControllerError: there is no such server or phone.
    """
    return interface.AsyncAndroidEnv(SimPhoneController(SimPhoneEnv(AdbClient(port, serial), pictures=pictures)))


# --------------------------------------------------------------------------------------------------------- forest


def forest(xml: str) -> Any:
    """Return the accessibility forest of a screen dump: a window for each root view, its views in reading order."""
    made = android_accessibility_forest_pb2.AndroidAccessibilityForest()
    kinds = android_accessibility_window_info_pb2.AndroidAccessibilityWindowInfo.WindowType
    for number, root in enumerate(ET.fromstring(xml), 1):
        keyboard = "inputmethod" in root.get("package", "")
        window = made.windows.add(
            id=number, layer=number, window_type=kinds.TYPE_INPUT_METHOD if keyboard else kinds.TYPE_APPLICATION
        )
        window.is_active = window.is_focused = not keyboard
        _set_box(window.bounds_in_screen, root)
        _add(window.tree, root, window_id=number, depth=0)
    return made


def _add(tree: Any, view: ET.Element, *, window_id: int, depth: int) -> int:
    """Add a view and all below it; its place in the tree."""
    place = len(tree.nodes)
    node = tree.nodes.add(
        unique_id=place,
        window_id=window_id,
        depth=depth,
        text=view.get("text", ""),
        content_description=view.get("content-desc", ""),
        hint_text=view.get("hint", ""),
        class_name=view.get("class", ""),
        package_name=view.get("package", ""),
        view_id_resource_name=view.get("resource-id", ""),
        is_editable=view.get("class") == _EDITABLE,
        **{flag: view.get(name) == "true" for flag, name in _FLAGS.items()},
    )
    _set_box(node.bounds_in_screen, view)
    below = [_add(tree, child, window_id=window_id, depth=depth + 1) for child in view]
    tree.nodes[place].child_ids.extend(below)
    return place


def _set_box(rect: Any, view: ET.Element) -> None:
    rect.left, rect.top, rect.right, rect.bottom = map(int, re.findall(r"-?\d+", view.get("bounds", "0 0 0 0")))
