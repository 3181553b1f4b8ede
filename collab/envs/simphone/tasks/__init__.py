"""All tasks. A new group of tasks is one module with `TASKS`, and one line here."""

from __future__ import annotations

import itertools

from collab.envs.simphone.tasks import (
    calendar,
    calendar_questions,
    clipper,
    clock,
    contacts,
    expense,
    files,
    joplin,
    markor,
    markor_writing,
    messages,
    recipe,
    settings,
    todos,
)
from collab.envs.simphone.tasks.spec import TaskSpec

_GROUPS = (
    calendar.TASKS,
    calendar_questions.TASKS,
    clipper.TASKS,
    clock.TASKS,
    contacts.TASKS,
    expense.TASKS,
    files.TASKS,
    joplin.TASKS,
    markor.EDITING_TASKS,
    markor.TIDYING_TASKS,
    markor_writing.TASKS,
    recipe.TASKS,
    messages.TASKS,
    settings.TASKS,
    todos.TASKS,
)
TASKS: tuple[TaskSpec, ...] = tuple(sorted(itertools.chain(*_GROUPS), key=lambda spec: spec.name))
"""In the order of their names."""
BY_NAME = {spec.name: spec for spec in TASKS}

__all__ = ["BY_NAME", "TASKS", "TaskSpec"]
