"""Apps that are not part of this project: a Python package each, with an `APP` and the `TASKS` that are set in it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from collab.envs.phone.app import App
from collab.envs.phone.tasks.spec import TaskSpec
from collab.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a package brings to the phone."""

    app: App
    tasks: Sequence[TaskSpec]


def bring(module: str) -> Brought:
    """Import an app from outside.

    Args:
        module: name of an importable package or module.

    Raises:
        ConfigError: it cannot be imported, or its `APP` or `TASKS` are not what they should be.
    """
    try:
        found = importlib.import_module(module)
    except (ImportError, SyntaxError, ValueError) as error:
        where = "install the package, or name its parent folder in PYTHONPATH"
        raise ConfigError(f"simphone: the app {module!r} cannot be imported: {error}; {where}") from None
    app, tasks = getattr(found, "APP", None), getattr(found, "TASKS", ())
    if not isinstance(app, App):
        raise ConfigError(f"simphone: {module} has no APP of type collab.envs.phone.app.App, got {app!r:.80}")
    if not isinstance(tasks, Sequence) or not all(isinstance(spec, TaskSpec) for spec in tasks):
        raise ConfigError(f"simphone: TASKS of {module} must be a list of TaskSpec, got {tasks!r:.80}")
    return Brought(app=app, tasks=tasks)
