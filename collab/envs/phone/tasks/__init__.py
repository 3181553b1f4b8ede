"""All tasks. A new group of tasks is one module with `TASKS`, and one line here."""

from __future__ import annotations

import itertools

from collab.envs.phone.tasks import (
    calendar_editing,
    calendar_questions,
    clipboard,
    clock,
    contacts,
    expense,
    files,
    joplin,
    markor_editing,
    markor_tidying,
    markor_writing,
    recipe,
    sms,
    system,
    todos,
)
from collab.envs.phone.tasks.spec import TaskSpec

_GROUPS = (
    calendar_editing.TASKS,
    calendar_questions.TASKS,
    clipboard.TASKS,
    clock.TASKS,
    contacts.TASKS,
    expense.TASKS,
    files.TASKS,
    joplin.TASKS,
    markor_editing.EDITING_TASKS,
    markor_tidying.TIDYING_TASKS,
    markor_writing.TASKS,
    recipe.TASKS,
    sms.TASKS,
    system.TASKS,
    todos.TASKS,
)
TASKS: tuple[TaskSpec, ...] = tuple(sorted(itertools.chain(*_GROUPS), key=lambda spec: spec.name))
"""In the order of their names."""
BY_NAME = {spec.name: spec for spec in TASKS}

__all__ = ["BY_NAME", "TASKS", "TaskSpec"]
