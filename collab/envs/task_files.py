"""Task files: a YAML file with the key `tasks`, or the same list written into a definition.

    tasks:
      - name: wifi-page
        goal: Open the page with the Wi-Fi networks.
        …

What a task says is the affair of its environment, which brings a pydantic model with at least a `name`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from collab.envs.base import TaskInfo
from collab.errors import ConfigError
from collab.library import explain, read


class Named(Protocol):
    """Fields that every kind of task has."""

    @property
    def name(self) -> str:
        """Name, unique in its file."""
        ...


class Described(Named, Protocol):
    """Description that every kind of task has."""

    @property
    def apps(self) -> Sequence[str]:
        """Names of the apps or sites it is about."""
        ...

    @property
    def difficulty(self) -> str | None:
        """None when it is not given."""
        ...

    @property
    def max_steps(self) -> int:
        """Step budget."""
        ...

    @property
    def tags(self) -> Sequence[str]:
        """Free words to select by."""
        ...


TaskT = TypeVar("TaskT", bound=BaseModel)


class TaskFile(BaseModel, Generic[TaskT]):
    """A file of tasks of one kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: list[TaskT]

    @model_validator(mode="after")
    def _names_differ(self) -> TaskFile[TaskT]:
        twice = sorted(
            name for name, count in Counter(cast(Named, task).name for task in self.tasks).items() if count > 1
        )
        if twice:
            raise ValueError(f"two tasks are called {twice[0]!r}")
        return self


def list_task_infos(tasks: Iterable[Described]) -> list[TaskInfo]:
    """Return a suite's descriptions of its tasks, in their order."""
    return [
        TaskInfo(
            name=task.name,
            apps=tuple(task.apps),
            difficulty=task.difficulty,
            max_steps=task.max_steps,
            tags=tuple(task.tags),
        )
        for task in tasks
    ]


def load_tasks(tasks: Path | list[dict[str, Any]], kind: type[TaskT], what: str) -> tuple[TaskT, ...]:
    """Read tasks from a YAML file or from a list.

    Args:
        kind: pydantic model of one task.
        what: kind of tasks in words, for messages about a list ("web tasks").

    Raises:
        ConfigError: names the file, the line, the field and what is allowed there.
    """
    model = TaskFile[kind]  # type: ignore[valid-type]
    if isinstance(tasks, Path):
        return tuple(read(tasks.expanduser(), model).tasks)
    try:
        return tuple(model.model_validate({"tasks": tasks}).tasks)
    except ValidationError as error:
        raise ConfigError(explain(error, what, model=model)) from None
