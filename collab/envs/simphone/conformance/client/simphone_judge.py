"""AndroidWorld's tasks as judges, for a program in another interpreter: JSON lines on standard input and output.

python simphone_judge.py --package PATH --port PORT --serial SERIAL

    {"do": "start", "task": NAME, "suite_seed": 30}   set the phone up → goal, params, seed, max_steps
    {"do": "act", "action": {"action_type": …}}       execute an action as AndroidWorld does, through adb
    {"do": "answer", "text": TEXT}                    the last answer of the agent; null for none
    {"do": "score"}                                   is_successful → score
    {"do": "end"}                                     tear_down

An answer is one line: {"ok": true, …}, or {"ok": false, "error": TEXT} when AndroidWorld raised. Everything that
AndroidWorld prints goes to standard error. Where it waits for the device, the phone's clock advances instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, SupportsIndex, TextIO

MAX_LINE = 16 * 1024 * 1024


def main() -> int:
    """Answer requests until the input ends."""
    parser = argparse.ArgumentParser(description="AndroidWorld's tasks as judges of a phone.")
    parser.add_argument("--package", required=True, help="folder that holds android_world")
    parser.add_argument("--port", type=int, required=True, help="of the adb server")
    parser.add_argument("--serial", required=True, help="of the phone")
    options = parser.parse_args()
    sys.path.insert(1, options.package)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints from here on must not disturb the replies
    judge = Judge(options.port, options.serial)
    _send(replies, {"ok": True})
    while line := sys.stdin.readline(MAX_LINE):
        _send(replies, _reply(judge, line))
    return 0


def _send(replies: TextIO, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _reply(judge: Judge, line: str) -> dict[str, Any]:
    request = json.loads(line)
    verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "start": judge.start,
        "act": judge.act,
        "answer": judge.answer,
        "score": judge.score,
        "end": judge.end,
    }
    try:
        return {"ok": True, **verbs[request["do"]](request)}
    except Exception as problem:  # noqa: BLE001 - a task may raise anything, and the other side wants to know what
        traceback.print_exc()
        return {"ok": False, "error": f"{type(problem).__name__}: {problem}"}


class Judge:
    """One phone, and the task that was set up on it last."""

    def __init__(self, port: int, serial: str) -> None:
        import simphone_env
        from android_world import registry, suite_utils
        from android_world.env import json_action
        from android_world.utils import app_snapshot

        self._action = json_action.JSONAction
        self._save_snapshot = app_snapshot.save_snapshot
        self._suite = suite_utils
        self._tasks = registry.TaskRegistry().get_registry(registry.TaskRegistry.ANDROID_WORLD_FAMILY)
        self._env = simphone_env.connect(port, serial, pictures=False)
        self._adb = self._env.controller.env.adb
        self._task: Any = None
        time.sleep = self._pass_time

    def start(self, request: dict[str, Any]) -> dict[str, Any]:
        """Draw the task's first instance of a suite and set the phone up for it."""
        name, seed = request["task"], request["suite_seed"]
        one = {name: self._tasks[name]}
        self._task = self._suite.create_suite(one, n_task_combinations=1, seed=seed, tasks=[name])[name][0]
        goal = self._task.goal  # some goals complete the parameters; setting up may reword them
        params = to_plain(self._task.params)
        for app in self._task.app_names:  # AndroidWorld does so once, when it sets up a device
            if app and app != "clipper":
                self._save_snapshot(app, self._env.controller)
        self._task.initialize_task(self._env)
        self._env.reset(go_home=self._task.start_on_home_screen)
        return {"goal": goal, "params": params, "max_steps": int(10 * self._task.complexity)}

    def act(self, request: dict[str, Any]) -> dict[str, Any]:
        """Let AndroidWorld execute an action."""
        self._env.execute_action(self._action(**request["action"]))
        return {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Note what the agent answered, where AndroidWorld looks for it."""
        self._env.interaction_cache = request["text"] or ""
        return {}

    def score(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask the task whether it is solved."""
        return {"score": float(self._task.is_successful(self._env))}

    def end(self, request: dict[str, Any]) -> dict[str, Any]:
        """Tear the task down."""
        self._task.tear_down(self._env)
        return {}

    def _pass_time(self, seconds: float | SupportsIndex) -> None:
        self._adb.shell(f"sleep {seconds}")


def to_plain(value: Any) -> Any:
    """Return parameters as JSON: rows become dictionaries.

    Raises:
        TypeError: something else is among them.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(name): to_plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(part) for part in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"a parameter is a {type(value).__name__}, allowed: JSON values and rows")


if __name__ == "__main__":
    sys.exit(main())
