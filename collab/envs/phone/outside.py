"""Apps and tasks that are not part of this project: a Python package each, with an `APP`, `TASKS`, or both.

Tasks without an app of their own are set in the apps that every phone has.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from collab.envs.phone.app import App
from collab.envs.phone.state import Page, Phone
from collab.envs.phone.tasks.spec import TaskSpec
from collab.envs.phone.widgets import View
from collab.errors import ConfigError, EnvironmentFailure, describe_error, note_outside, outside_place
from collab.types import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a package brings to the phone."""

    app: App | None
    """None when it brings only tasks."""
    tasks: Sequence[TaskSpec]
    version: str
    """Names the package and the version of what it brings."""


def bring(module: str) -> Brought:
    """Import an app, tasks, or both from outside.

    Args:
        module: name of an importable package or module.

    Raises:
        ConfigError: it cannot be imported, or its `APP` or `TASKS` are not what they should be.
    """
    note_outside(module)
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code from outside raises what it likes
        where = "install the package, or name its parent folder in PYTHONPATH"
        more = f"; {where}" if outside_place(error) is None else ""
        raise ConfigError(f"simphone: the app {module!r} cannot be imported: {describe_error(error)}{more}") from None
    app, tasks = getattr(found, "APP", None), getattr(found, "TASKS", ())
    if not isinstance(tasks, Sequence) or not all(isinstance(spec, TaskSpec) for spec in tasks):
        raise ConfigError(f"simphone: TASKS of {module} must be a list of TaskSpec, got {tasks!r:.80}")
    if not isinstance(app, App) and not (app is None and tasks):
        raise ConfigError(
            f"simphone: {module} has no APP of type collab.envs.phone.app.App, got {app!r:.80}; a package without an "
            "app needs TASKS"
        )
    tasks = [_checked_task(spec, module) for spec in tasks]
    app = None if app is None else _checked_app(app, module)
    version = f"{app.package}-{app.version}" if app is not None else f"{module}-{getattr(found, 'VERSION', '1')}"
    return Brought(app=app, tasks=tasks, version=version)


def _checked_task(spec: TaskSpec, module: str) -> TaskSpec:
    """Check what a task says of itself; return it with functions whose answers are checked, too."""
    where = f"simphone: task {spec.name!r} of {module}"
    says: tuple[tuple[str, bool, str], ...] = (
        ("name", isinstance(spec.name, str) and bool(spec.name), "a name"),
        ("apps", _are_names(spec.apps), "a tuple of names, such as ('contacts',)"),
        ("complexity", _is_number(spec.complexity) and spec.complexity >= 0.1, "a number of 0.1 or more"),
        ("difficulty", spec.difficulty in ("easy", "medium", "hard"), "easy, medium or hard"),
    )
    functions: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
        ("goal", lambda answer: isinstance(answer, str), "a text"),
        ("draw", _is_json_mapping, "a dict of JSON values"),
        ("prepare", lambda answer: isinstance(answer, Phone), "a Phone"),
        ("score", lambda answer: _is_number(answer) and 0 <= answer <= 1, "a number from 0 to 1"),
        ("plan", lambda answer: isinstance(answer, Action), "an Action"),
    )
    says += tuple((name, callable(getattr(spec, name)), "a function") for name, *_ in functions)
    for name, fits, wanted in says:
        if not fits:
            raise ConfigError(f"{where}: {name} must be {wanted}, got {getattr(spec, name)!r:.80}")
    watched: dict[str, Any] = {
        name: _watched(getattr(spec, name), fits, f"{where}: {name}", what) for name, fits, what in functions
    }
    return replace(spec, apps=tuple(spec.apps), **watched)


def _checked_app(app: App, module: str) -> App:
    """Check what an app says of itself; return it with screens that are checked, too."""
    where = f"simphone: the app of {module}"
    says = (
        ("package", isinstance(app.package, str) and bool(app.package), "a package name"),
        ("names", _are_names(app.names), "a tuple of names, such as ('Pantry',)"),
        ("pages", all(isinstance(page, Page) for page in app.pages) and len(app.pages) > 0, "a tuple of Page"),
        ("screens", all(map(callable, app.screens.values())), "functions by name"),
    )
    for name, fits, wanted in says:
        if not fits:
            raise ConfigError(f"{where}: {name} must be {wanted}, got {getattr(app, name)!r:.80}")
    screens = {
        name: _watched(screen, lambda answer: isinstance(answer, View), f"{where}: screen {name!r}", "a View")
        for name, screen in app.screens.items()
    }
    return replace(app, screens=screens)


def _watched(function: Callable[..., Any], fits: Callable[[Any], bool], where: str, wanted: str) -> Callable[..., Any]:
    """The same function; an answer of another kind is told with the file and line of the function.

    Raises:
        EnvironmentFailure: when it is called and answers something else.
    """

    def call(*args: Any) -> Any:
        answer = function(*args)
        if not fits(answer):
            raise EnvironmentFailure(f"{where} must return {wanted}, got {answer!r:.80} (at {_place_of(function)})")
        return answer

    return call


def _place_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)[:80]


def _are_names(value: object) -> bool:
    return isinstance(value, tuple | list) and bool(value) and all(isinstance(name, str) for name in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_json_mapping(value: object) -> bool:
    try:
        return isinstance(value, dict) and bool(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return False
