"""The service `collab:`, which only this phone has: it sets up AndroidWorld-named tasks and judges them itself.

A client opens a transport, names the service `collab:` with a JSON object behind it, and reads one JSON object until
the end. On any other device the service is closed, which tells the client that nobody there can judge such a task.

    {"ask": "tasks"}                                        {"tasks": [{"name": …, "max_steps": …}, …]}
    {"ask": "instance", "name": "SimpleSmsSend", "seed": 7} {"goal": …, "params": …, "max_steps": …}
    {"ask": "begin", "name": "SimpleSmsSend", "seed": 7}    {}              the phone as the task begins
    {"ask": "answer", "text": "42"}                         {}              what the agent said to its user
    {"ask": "oracle"}                                       {"actions": ["{…}", …]}, or null when no way is known
    {"ask": "score"}                                        {"score": 1.0}

A question that cannot be answered gets {"error": "…"}.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from collab.envs.actions import MOBILE
from collab.envs.phone.adb.handle import PhoneHandle
from collab.envs.phone.screen import look
from collab.envs.phone.touch import act
from collab.errors import UnknownName


def examine(handle: PhoneHandle, question: str) -> dict[str, Any]:
    """Answer one question; never raises for what stands in it."""
    try:
        asked = json.loads(question)
        return _ANSWERS[asked.pop("ask")](handle, **asked)
    except UnknownName as error:
        return {"error": str(error)}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"error": f"not a question: {question[:200]!r}; known: {', '.join(_ANSWERS)}"}


def _tasks(handle: PhoneHandle) -> dict[str, Any]:
    return {"tasks": [asdict(info) for info in handle.suite.tasks()]}


def _instance(handle: PhoneHandle, *, name: str, seed: int) -> dict[str, Any]:
    task = handle.suite.instance(name, seed)
    told = ("goal", "params", "max_steps", "difficulty", "apps")
    return {field: value for field, value in asdict(task).items() if field in told}


def begin(handle: PhoneHandle, *, name: str, seed: int) -> dict[str, Any]:
    """Put the phone into the initial state of an instance; UnknownName when there is no such task."""
    phone = handle.suite.phone()
    phone.reset(handle.suite.instance(name, seed))
    handle.exam = phone.episode
    handle.put(phone.phone)
    return {}


def _read_answer(handle: PhoneHandle, *, text: str) -> dict[str, Any]:
    handle.put(act(look(handle.phone), MOBILE.make("answer", text=text)))
    return {}


def _oracle(handle: PhoneHandle) -> dict[str, Any]:
    if handle.exam is None:
        return {"error": "no task has begun"}
    actions = handle.exam.solve(look(handle.phone))
    return {"actions": None if actions is None else [MOBILE.format(action) for action in actions]}


def _score(handle: PhoneHandle) -> dict[str, Any]:
    if handle.exam is None:
        return {"error": "no task has begun"}
    return {"score": handle.exam.score(handle.phone)}


_ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "tasks": _tasks,
    "instance": _instance,
    "begin": begin,
    "answer": _read_answer,
    "oracle": _oracle,
    "score": _score,
}
