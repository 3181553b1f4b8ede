"""Tasks on a device, from a task file or from the device, and how they are judged.

    tasks:
      - name: wifi-page
        goal: Open the page with the Wi-Fi networks.
        start: Settings
        success: {text: Internet, package: com.android.settings}

A device's state cannot be read, so the last screen and the agent's answer decide once the agent declares completion.
Everything that `success` names must hold.

A device may also bring, set up and judge tasks itself. A SimPhone from `collab phone serve` answers the adb service
`collab:` (one JSON question, one JSON answer); every other device closes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from collab.envs import task_files
from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE
from collab.envs.text import MAX_NOTICE, cut_middle
from collab.errors import EnvironmentFailure, UnknownName, UsageError, boundary
from collab.types import Action, Element, Outcome, Task

if TYPE_CHECKING:
    import adbutils


class ScreenSuccess(BaseModel):
    """When a task is solved. Give at least one of text, package, answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | list[str] | None = None
    """Texts that the last screen must show, in a label or a value (spaces and case do not matter)."""
    package: str | None = None
    """App that must be in front."""
    answer: str | list[str] | None = None
    """What `answer` must have said, or any of several (spaces and case do not matter)."""

    @model_validator(mode="after")
    def _says_something(self) -> ScreenSuccess:
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
    success: ScreenSuccess
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
class EpisodeEnd:
    """Facts that are known when the agent declares a task complete."""

    task: Task
    elements: tuple[Element, ...]
    """The last screen, with its whole texts."""
    package: str
    """Package of the app in front."""
    answer: str | None
    """What the agent answered last; None when it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The home screen, where an episode begins on a device that cannot be put into a state."""

    stop: tuple[str, ...]
    """Apps to stop, by name or package."""
    open: str | None
    """App to open; None for the home screen."""


class DeviceTasks(Protocol):
    """Source of a device's tasks. Calls may block."""

    def infos(self) -> Sequence[TaskInfo]:
        """Return all tasks, in a fixed order."""
        ...

    def instance(self, name: str, seed: int) -> Task:
        """Draw an instance; UnknownName when there is no such task."""
        ...

    def begin(self, task: Task) -> Start | None:
        """Prepare the device; return what is left to start, or None if the task has begun. UnknownName if unknown."""
        ...

    def report_answer(self, text: str) -> None:
        """Report what the agent answered its user."""
        ...

    def judge(self, ending: EpisodeEnd) -> Outcome:
        """Judge a task that the agent calls complete."""
        ...

    def oracle(self) -> tuple[Action, ...] | None:
        """Return the remaining best actions from the present state; None when no way is known."""
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
        """Return all tasks, in the order of the file."""
        return task_files.list_task_infos(self._tasks.values())

    def instance(self, name: str, seed: int) -> Task:
        """Return the task; every seed gives the same. UnknownName when there is none."""
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
        """Stop the apps of the task, go home, open the first one."""
        if task.name not in self._tasks:
            raise UnknownName.of("task", task.name, self._tasks)
        own = self._tasks[task.name]
        return Start(stop=(*own.apps, *([own.start] if own.start else [])), open=own.start)

    def report_answer(self, text: str) -> None:
        """Do nothing: the answer comes with the ending."""

    def judge(self, ending: EpisodeEnd) -> Outcome:
        """Return whether everything that the task's `success` names holds."""
        success = self._tasks[ending.task.name].success
        return judge(success, ending.elements, ending.package, ending.answer)

    def oracle(self) -> tuple[Action, ...] | None:
        """Return None: no way is known."""
        return None


def judge(success: ScreenSuccess, elements: Sequence[Element], package: str, answer: str | None) -> Outcome:
    """Judge the screen at the end.

    Args:
        elements: what it shows, with its whole texts.
        package: of the app in front.
        answer: what the agent answered last; None when it did not.
    """
    # The first thing that is missing is the reason; one is enough.
    missing = next(
        (
            reason
            for reason in (
                _explain_unseen(success, elements),
                _explain_elsewhere(success, package),
                _explain_unsaid(success, answer),
            )
            if reason
        ),
        None,
    )
    solved = missing is None
    return Outcome(success=solved, score=float(solved), reason=missing or "everything the task names holds")


def _explain_unseen(success: ScreenSuccess, elements: Sequence[Element]) -> str | None:
    wanted = [success.text] if isinstance(success.text, str) else success.text or []
    seen = _normalise(" ".join(f"{one.label} \n {one.value or ''}" for one in elements))
    return next((f"the screen does not show {text!r}" for text in wanted if _normalise(text) not in seen), None)


def _explain_elsewhere(success: ScreenSuccess, package: str) -> str | None:
    return f"{package} is in front" if success.package not in (None, package) else None


def _explain_unsaid(success: ScreenSuccess, answer: str | None) -> str | None:
    if success.answer is None:
        return None
    accepted = [success.answer] if isinstance(success.answer, str) else success.answer
    said = _normalise(answer or "")
    return (
        None
        if said in [_normalise(one) for one in accepted]
        else f"the answer was {cut_middle(answer or '', MAX_NOTICE)!r}"
    )


def _normalise(text: str) -> str:
    return " ".join(text.casefold().split())


SERVICE = "collab"
ANSWER_S = 60.0


class CarriedTasks:
    """The tasks of a device that judges itself.

    Args:
        environment: name that tasks are known under.
        find: gives the device; blocking.
    """

    def __init__(self, environment: str, find: Callable[[], adbutils.AdbDevice]) -> None:
        self._environment, self._find = environment, find
        self._infos: dict[str, TaskInfo] | None = None

    def infos(self) -> Sequence[TaskInfo]:
        """Return all tasks, in the device's order; the device is asked once.

        Raises:
            UsageError: it is not there, or brings no tasks.
        """
        if self._infos is None:
            told = self._ask("tasks")["tasks"]
            made = [TaskInfo(**one | {"apps": tuple(one["apps"]), "tags": tuple(one["tags"])}) for one in told]
            self._infos = {info.name: info for info in made}
        return list(self._infos.values())

    def instance(self, name: str, seed: int) -> Task:
        """Return the instance that the device draws; UnknownName when it has no such task."""
        self._require_known(name)
        told = self._ask("instance", name=name, seed=seed)
        return Task(environment=self._environment, name=name, seed=seed, **told | {"apps": tuple(told["apps"])})

    def begin(self, task: Task) -> Start | None:
        """Put the device into the task's initial state, in which nothing is left to do."""
        self._require_known(task.name)
        self._ask("begin", name=task.name, seed=task.seed)
        return None

    def report_answer(self, text: str) -> None:
        """Send the agent's answer to the device."""
        self._ask("answer", text=text)

    def judge(self, ending: EpisodeEnd) -> Outcome:
        """Return what the device's own checker says."""
        score = float(self._ask("score")["score"])
        return Outcome(success=score == 1.0, score=score, reason=f"the goal holds to {score:.0%}")

    def oracle(self) -> tuple[Action, ...] | None:
        """Return the remaining best actions from the present state; None when the device knows no way."""
        told = self._ask("oracle")["actions"]
        actions = None if told is None else tuple(MOBILE.parse(text) for text in told)
        return None if actions is None else tuple(action for action in actions if isinstance(action, Action))

    def _require_known(self, name: str) -> None:
        names = [info.name for info in self.infos()]
        if name not in names:
            raise UnknownName.of("task", name, names)

    def _ask(self, question: str, **details: Any) -> dict[str, Any]:
        with boundary(EnvironmentFailure, f"asking the device for {question}"):
            device = self._find()
            said = self._read_line(device, json.dumps({"ask": question, **details}))
        try:
            answer: dict[str, Any] = json.loads(said)
        except ValueError:
            raise EnvironmentFailure(f"device {device.serial}: asked for {question}, it said {said[:80]!r}") from None
        if "error" in answer:
            raise EnvironmentFailure(f"device {device.serial}: {answer['error']}")
        return answer

    def _read_line(self, device: adbutils.AdbDevice, question: str) -> str:
        import adbutils

        with device.open_transport(timeout=ANSWER_S) as connection:
            connection.send_command(f"{SERVICE}:{question}")
            try:
                connection.check_okay()
            except adbutils.AdbError:
                # Refused: the device is a real phone, which knows nothing of AndroidWorld.
                raise UsageError(
                    f"device {device.serial} can neither set up nor judge AndroidWorld's tasks: give it tasks of your "
                    "own (option tasks, see envs/device.yaml), or play AndroidWorld itself with --backend emulator"
                ) from None
            return str(connection.read_until_close())
