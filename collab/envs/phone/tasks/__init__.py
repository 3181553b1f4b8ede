"""All tasks. A new group of tasks is one module with `TASKS`, and one line here."""

from __future__ import annotations

from collab.envs.phone.tasks import system
from collab.envs.phone.tasks.spec import TaskSpec

TASKS: tuple[TaskSpec, ...] = tuple(sorted((*system.TASKS,), key=lambda spec: spec.name))
"""In the order of their names."""
BY_NAME = {spec.name: spec for spec in TASKS}

__all__ = ["BY_NAME", "TASKS", "TaskSpec"]
