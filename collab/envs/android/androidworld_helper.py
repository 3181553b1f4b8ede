"""AndroidWorld behind JSON lines: runs in the user's own AndroidWorld environment and imports nothing of this project.

    python androidworld_helper.py < questions > answers

One question a line, {"ask": name, …}, and one answer a line: {"result": …} or {"error": {"kind": …, "message": …}}.
AndroidWorld is imported with the first question. The end of stdin ends the helper. Kinds of errors: "missing" (it
cannot be imported), "version" (it lacks what is needed), "no_adb", "no_emulator", "no_task" (unknown name), "order"
(nothing is connected or begun), "failed" (anything that AndroidWorld raises).
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import importlib
import inspect
import json
import logging
import os
import random
import shutil
import socket
import struct
import sys
import zlib
from pathlib import Path
from typing import Any, TextIO

logger = logging.getLogger("androidworld_helper")

HOST = "127.0.0.1"
ADB_HOMES = ("~/Android/Sdk/platform-tools/adb", "~/Library/Android/sdk/platform-tools/adb")
_NEEDED = (
    ("android_world.registry", "TaskRegistry"),
    ("android_world.env.env_launcher", "load_and_setup_env"),
    ("android_world.env.json_action", "JSONAction"),
)
_LAUNCH_OPTIONS = ("console_port", "grpc_port", "adb_path", "emulator_setup", "freeze_datetime")


class HelperRefusal(Exception):
    """A question that cannot be answered: its kind and why."""


class AndroidWorld:
    """AndroidWorld's tasks, and one emulator."""

    def __init__(self) -> None:
        self._tasks: dict[str, Any] = {}
        """Name → AndroidWorld's task class; empty before `hello`."""
        self._params: dict[tuple[str, int], dict[str, Any]] = {}
        self._env: Any = None
        self._task: Any = None
        """The running task; None between episodes."""
        self._state: Any = None
        self._size = (0, 0)
        """Width and height of the screen at the last look."""

    def hello(self, family: str, package: str | None = None) -> dict[str, Any]:
        """Import AndroidWorld, from a checkout if one is given, and check that it has what is needed."""
        if package is not None:
            sys.path.insert(0, package)
        # Checked name by name: versions of AndroidWorld say nothing about what they have.
        for module, name in _NEEDED:
            if not hasattr(_find_module(module), name):
                raise HelperRefusal(
                    "version", f"{module} at {_find_home()} has no {name}; use AndroidWorld of 2024 or later"
                )
        # Its launcher's options are checked, too, before an emulator is touched.
        launch = inspect.signature(_find_module("android_world.env.env_launcher").load_and_setup_env)
        unknown = [option for option in _LAUNCH_OPTIONS if option not in launch.parameters]
        if unknown:
            raise HelperRefusal(
                "version", f"load_and_setup_env at {_find_home()} takes no {', '.join(unknown)}; use a later one"
            )
        self._tasks = dict(_find_module("android_world.registry").TaskRegistry().get_registry(family))
        return {"python": sys.version.split()[0], "home": _find_home(), "tasks": len(self._tasks)}

    def tasks(self) -> list[dict[str, Any]]:
        """Return every task (name, apps, steps, difficulty, tags), or `broken` for one that cannot be instantiated."""
        known = _read_metadata()
        return [self._describe_task(name, known.get(name, {})) for name in sorted(self._tasks)]

    def _describe_task(self, name: str, known: dict[str, Any]) -> dict[str, Any]:
        tags = [tag for tag in known.get("tags", ()) if tag]
        told = {"name": name, "difficulty": known.get("difficulty"), "tags": tags}
        try:
            return told | self._describe_instance(self._build_task(name, 0))
        except Exception as error:  # one task's fault must not hide the others
            logger.warning("%s cannot be instantiated", name, exc_info=True)
            return {"name": name, "broken": f"{type(error).__name__}: {error}"}

    def instance(self, name: str, seed: int) -> dict[str, Any]:
        """Return goal, parameters and steps of the instance that AndroidWorld draws with this seed."""
        return self._describe_instance(self._build_task(name, seed))

    def _build_task(self, name: str, seed: int) -> Any:
        if name not in self._tasks:
            raise HelperRefusal("no_task", f"AndroidWorld has no task {name!r}")
        kind = self._tasks[name]
        if hasattr(kind, "set_device_time"):
            kind.set_device_time(self._env)
        if (name, seed) not in self._params:  # once: some tasks put the present time into theirs
            random.seed(seed)  # as its suite_utils does; its tasks draw from the global generator
            self._params[name, seed] = kind.generate_random_params() | {"seed": seed}
        return kind(copy.deepcopy(self._params[name, seed]))

    def _describe_instance(self, task: Any) -> dict[str, Any]:
        return {
            "goal": str(task.goal),
            "params": _to_plain(task.params),
            "max_steps": int(10 * task.complexity),
            "apps": [str(app) for app in task.app_names],
        }

    def connect(
        self, console_port: int, grpc_port: int, adb_path: str | None, emulator_setup: bool, freeze_datetime: bool
    ) -> dict[str, Any]:
        """Connect to a running emulator; adb at None is looked for where Android Studio puts it, then on the PATH."""
        adb = _find_adb(adb_path)
        start = f"start it with: emulator -avd NAME -no-snapshot -grpc {grpc_port} -port {console_port}"
        # Both ports are tried first: AndroidWorld itself would wait for minutes.
        for what, port in (("console", console_port), ("gRPC", grpc_port)):
            if not _is_listening(port):
                raise HelperRefusal(
                    "no_emulator", f"no emulator: nothing listens at its {what} port {HOST}:{port}; {start}"
                )
        if self._env is None:
            self._env = _find_module("android_world.env.env_launcher").load_and_setup_env(
                console_port=console_port,
                grpc_port=grpc_port,
                adb_path=adb,
                emulator_setup=emulator_setup,
                freeze_datetime=freeze_datetime,
            )
        return {"adb": adb}

    def begin(self, name: str, seed: int) -> dict[str, Any]:
        """Initialise an instance, as AndroidWorld's episode runner does; ends one that is still running."""
        env = self._require_env()
        self.finish(judge=False)
        task = self._build_task(name, seed)
        task.initialize_task(env)
        self._task = task
        if hasattr(env, "hide_automation_ui"):
            env.hide_automation_ui()
        env.reset(go_home=bool(task.start_on_home_screen))
        return self._describe_instance(task)

    def look(self) -> dict[str, Any]:
        """Return the settled screen: its size in pixels, the app in front, AndroidWorld's UI elements."""
        env = self._require_env()
        self._state = env.get_state(wait_to_stabilize=True)
        width, height = (int(number) for number in env.logical_screen_size)
        self._size = width, height
        return {
            "width": width,
            "height": height,
            "activity": str(env.foreground_activity_name),
            "elements": [_element_to_json(one) for one in self._state.ui_elements],
        }

    def picture(self) -> dict[str, Any]:
        """Return what was looked at last, as PNG in base64; upright on a turned screen, as its elements are."""
        if self._state is None:
            raise HelperRefusal("order", "look first")
        pixels = self._turn_upright(self._state.pixels)
        height, width = pixels.shape[:2]
        return {"png": base64.b64encode(encode_png(pixels[:, :, :3].tobytes(), width, height)).decode()}

    def _turn_upright(self, pixels: Any) -> Any:
        """Turn a picture, which AndroidWorld takes in the device's own orientation, as the screen is turned."""
        (height, width), (screen_width, screen_height) = pixels.shape[:2], self._size
        if (width > height) == (screen_width > screen_height) or screen_width == screen_height:
            return pixels
        turns = int(getattr(self._require_env(), "orientation", 1))
        return _find_module("numpy").rot90(pixels, turns if turns in (1, 3) else 1)

    def act(self, action: dict[str, Any]) -> dict[str, Any]:
        """Execute an action of AndroidWorld's; "refused" says why one that makes no sense here was not."""
        try:
            self._require_env().execute_action(_find_module("android_world.env.json_action").JSONAction(**action))
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        return {}

    def finish(self, judge: bool) -> dict[str, Any]:
        """Tear the task down after AndroidWorld's verdict, if asked for; "trouble" says why that failed."""
        env, task, self._task = self._env, self._task, None
        if task is None and judge:
            raise HelperRefusal("order", "no task has begun")
        if task is None:
            return {"score": None}
        result: dict[str, Any] = {"score": float(task.is_successful(env)) if judge else None}
        try:
            task.tear_down(env)
        except Exception as error:  # whatever it is, the verdict must not be lost with it
            logger.warning("tear-down of %s", task.name, exc_info=True)
            result["trouble"] = f"{type(error).__name__}: {error}"
        return result

    def close(self) -> dict[str, Any]:
        """Let the emulator go."""
        if self._env is not None:
            self.finish(judge=False)
            self._env.close()
            self._env = None
        return {}

    def _require_env(self) -> Any:
        if self._env is None:
            raise HelperRefusal("order", "no emulator is connected")
        return self._env


QUESTIONS = ("hello", "tasks", "instance", "connect", "begin", "look", "picture", "act", "finish", "close")


def _find_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise HelperRefusal("missing", f"{sys.executable} cannot import {name}: {error}") from None


def _find_home() -> str:
    return str(_find_module("android_world").__path__[0])


def _read_metadata() -> dict[str, dict[str, Any]]:
    path = Path(_find_home(), "task_metadata.json")
    listed = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return {one["task_name"]: one for one in listed}


def _find_adb(path: str | None) -> str:
    homes = [path] if path is not None else [*ADB_HOMES, shutil.which("adb") or "adb"]
    for home in homes:
        if os.path.isfile(os.path.expanduser(home)):
            return os.path.expanduser(home)
    raise HelperRefusal("no_adb", f"no adb at {' or '.join(homes)}; give its path with the option adb_path")


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(3)
        return probe.connect_ex((HOST, port)) == 0


def _element_to_json(one: Any) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for field in dataclasses.fields(one):
        value = getattr(one, field.name)
        if field.name == "bbox_pixels" and value is not None:
            told["box"] = [int(value.x_min), int(value.y_min), int(value.x_max), int(value.y_max)]
        elif isinstance(value, (str, bool)):
            told[field.name] = value
    return told


def _to_plain(value: Any) -> Any:
    """Return a parameter as JSON can say it."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(inner) for inner in value]
    if dataclasses.is_dataclass(type(value)):
        return _to_plain(dataclasses.asdict(value))
    return f"<{type(value).__name__}>" if " at 0x" in str(value) else str(value)  # an address differs each time


def encode_png(rgb: bytes, width: int, height: int) -> bytes:
    """Encode eight-bit RGB pixels, row by row, as a PNG."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + rgb[start : start + 3 * width] for start in range(0, 3 * width * height, 3 * width))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def answer(world: AndroidWorld, line: str) -> dict[str, Any]:
    """Answer one line; never raises."""
    try:
        question = json.loads(line)
        name = question.pop("ask")
        if name not in QUESTIONS:
            raise HelperRefusal("order", f"{name!r} is no question; known: {', '.join(QUESTIONS)}")
        return {"result": getattr(world, name)(**question)}
    except HelperRefusal as error:
        return {"error": dict(zip(("kind", "message"), error.args, strict=True))}
    except Exception as error:  # errors are data here, whatever AndroidWorld raises
        logger.warning("failed", exc_info=True)
        return {"error": {"kind": "failed", "message": f"{type(error).__name__}: {error}"}}


def serve(questions: TextIO, answers: TextIO) -> None:
    """Answer line by line until the questions end, then let the emulator go."""
    world = AndroidWorld()
    for line in questions:
        answers.write(json.dumps(answer(world, line)) + "\n")
        answers.flush()
    answer(world, '{"ask": "close"}')


def main() -> None:
    """Serve on stdin and stdout; what AndroidWorld prints goes to stderr."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
