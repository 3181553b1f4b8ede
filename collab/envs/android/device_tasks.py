"""Tasks on a device: what a task file says, and how a screen is judged.

    tasks:
      - name: wifi-page
        goal: Open the page with the Wi-Fi networks.
        start: Settings
        success: {text: Internet, package: com.android.settings}

Nothing on a device can be looked into, so a task is judged by what the last screen shows and what the agent answered,
when the agent says that it is complete. Everything that `success` names must hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from collab.envs import task_files
from collab.envs.base import TaskInfo
from collab.envs.text import MAX_NOTICE, cut_middle
from collab.errors import UnknownName
from collab.types import Action, Element, Outcome, Task


class Success(BaseModel):
    """When a task is solved. Give at least one of text, package, answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | list[str] | None = None
    """Texts that the last screen must show, in a label or a value (spaces and case do not matter)."""
    package: str | None = None
    """App that must be in front."""
    answer: str | list[str] | None = None
    """What `answer` must have said, or any of several (spaces and case do not matter)."""

    @model_validator(mode="after")
    def _says_something(self) -> Success:
        if self.text is None and self.package is None and self.answer is None:
            raise ValueError("give at least one of text, package, answer")
        return self


class DeviceTask(BaseModel):
    """One task of a task file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[\w.-]+$")
    """Unique in its file."""
    goal: str = Field(min_length=1)
    """What the agents are asked to do."""
    success: Success
    """When it is solved."""
    start: str | None = None
    """App to open at the beginning, by name or package; None for the home screen."""
    max_steps: int = Field(default=30, ge=1)
    """Step budget."""
    difficulty: Literal["easy", "medium", "hard"] | None = None
    """For tables and selection."""
    apps: list[str] = []
    """Names of apps that it is about; they are stopped before it begins."""
    tags: list[str] = []
    """Free words to select by."""


def load_tasks(tasks: Path | list[dict[str, Any]]) -> tuple[DeviceTask, ...]:
    """Read tasks on a device; see `task_files.load_tasks`."""
    return task_files.load_tasks(tasks, DeviceTask, "device tasks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is known when the agent says that a task is complete."""

    task: Task
    elements: tuple[Element, ...]
    """The last screen, with its whole texts."""
    package: str
    """Of the app in front."""
    answer: str | None
    """What the agent answered last; None when it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How an episode begins on a device that cannot be put into a state: from the home screen."""

    stop: tuple[str, ...]
    """Apps to stop, by name or package."""
    open: str | None
    """App to open; None for the home screen."""


class DeviceTasks(Protocol):
    """Where the tasks of a device come from. Calls may block."""

    def infos(self) -> Sequence[TaskInfo]:
        """All tasks, in a fixed order."""
        ...

    def instance(self, name: str, seed: int) -> Task:
        """Draw an instance; UnknownName when there is no such task."""
        ...

    def begin(self, task: Task) -> Start | None:
        """Prepare the device; what is left to do with its apps, or None when the task has begun.

        Raises:
            UnknownName: the task is none of these.
        """
        ...

    def answered(self, text: str) -> None:
        """The agent has said this to its user."""
        ...

    def judge(self, ending: Ending) -> Outcome:
        """Judge a task that the agent calls complete."""
        ...

    def oracle(self) -> tuple[Action, ...] | None:
        """Remaining best actions from the present state; None when no way is known."""
        ...


class OwnTasks:
    """Tasks of the device's owner, judged by the last screen.

    Args:
        environment: name that tasks are known under.
        tasks: as a task file has them.
    """

    def __init__(self, environment: str, tasks: Sequence[DeviceTask]) -> None:
        self._environment = environment
        self._tasks = {task.name: task for task in tasks}

    def infos(self) -> Sequence[TaskInfo]:
        """All tasks, in the order of the file."""
        return task_files.task_infos(self._tasks.values())

    def instance(self, name: str, seed: int) -> Task:
        """The task; every seed gives the same. UnknownName when there is none."""
        if name not in self._tasks:
            raise UnknownName.of("task", name, self._tasks)
        task = self._tasks[name]
        return Task(
            environment=self._environment,
            name=name,
            seed=seed,
            goal=task.goal,
            max_steps=task.max_steps,
            difficulty=task.difficulty,
            apps=tuple(task.apps),
        )

    def begin(self, task: Task) -> Start | None:
        """The apps of the task: stop all, go home, open the first one."""
        if task.name not in self._tasks:
            raise UnknownName.of("task", task.name, self._tasks)
        own = self._tasks[task.name]
        return Start(stop=(*own.apps, *([own.start] if own.start else [])), open=own.start)

    def answered(self, text: str) -> None:
        """Nothing: the answer comes with the ending."""

    def judge(self, ending: Ending) -> Outcome:
        """Whether everything that the task's `success` names holds."""
        success = self._tasks[ending.task.name].success
        return judge(success, ending.elements, ending.package, ending.answer)

    def oracle(self) -> tuple[Action, ...] | None:
        """None: nobody knows."""
        return None


def judge(success: Success, elements: Sequence[Element], package: str, answer: str | None) -> Outcome:
    """Judge the screen at the end.

    Args:
        elements: what it shows, with its whole texts.
        package: of the app in front.
        answer: what the agent answered last; None when it did not.
    """
    missing = next(
        (
            reason
            for reason in (_unseen(success, elements), _elsewhere(success, package), _unsaid(success, answer))
            if reason
        ),
        None,
    )
    solved = missing is None
    return Outcome(success=solved, score=float(solved), reason=missing or "everything the task names holds")


def _unseen(success: Success, elements: Sequence[Element]) -> str | None:
    wanted = [success.text] if isinstance(success.text, str) else success.text or []
    seen = _plain(" ".join(f"{one.label} \n {one.value or ''}" for one in elements))
    return next((f"the screen does not show {text!r}" for text in wanted if _plain(text) not in seen), None)


def _elsewhere(success: Success, package: str) -> str | None:
    return f"{package} is in front" if success.package not in (None, package) else None


def _unsaid(success: Success, answer: str | None) -> str | None:
    if success.answer is None:
        return None
    accepted = [success.answer] if isinstance(success.answer, str) else success.answer
    said = _plain(answer or "")
    return (
        None
        if said in [_plain(one) for one in accepted]
        else f"the answer was {cut_middle(answer or '', MAX_NOTICE)!r}"
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
