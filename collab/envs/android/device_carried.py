"""Tasks that a device brings along, sets up and judges itself.

A SimPhone from `collab phone serve` answers the adb service `collab:` (one JSON question, one JSON answer); every
other device closes it, and cannot set up or judge anything but what its screen shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from collab.envs.actions import MOBILE
from collab.envs.android.device_tasks import Ending, Start
from collab.envs.base import TaskInfo
from collab.errors import EnvironmentFailure, UnknownName, UsageError, boundary
from collab.types import Action, Outcome, Task

if TYPE_CHECKING:
    import adbutils

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
        """All tasks, in the device's order; the device is asked once.

        Raises:
            UsageError: it is not there, or brings no tasks.
        """
        if self._infos is None:
            told = self._ask("tasks")["tasks"]
            made = [TaskInfo(**one | {"apps": tuple(one["apps"]), "tags": tuple(one["tags"])}) for one in told]
            self._infos = {info.name: info for info in made}
        return list(self._infos.values())

    def instance(self, name: str, seed: int) -> Task:
        """The instance that the device draws; UnknownName when it has no such task."""
        self._known(name)
        told = self._ask("instance", name=name, seed=seed)
        return Task(environment=self._environment, name=name, seed=seed, **told | {"apps": tuple(told["apps"])})

    def begin(self, task: Task) -> Start | None:
        """Put the device into the task's initial state, in which nothing is left to do."""
        self._known(task.name)
        self._ask("begin", name=task.name, seed=task.seed)
        return None

    def answered(self, text: str) -> None:
        """Tell the device what the agent said to its user."""
        self._ask("answer", text=text)

    def judge(self, ending: Ending) -> Outcome:
        """What the device's own checker says."""
        score = float(self._ask("score")["score"])
        return Outcome(success=score == 1.0, score=score, reason=f"the goal holds to {score:.0%}")

    def oracle(self) -> tuple[Action, ...] | None:
        """Remaining best actions from the present state; None when the device knows no way."""
        told = self._ask("oracle")["actions"]
        actions = None if told is None else tuple(MOBILE.parse(text) for text in told)
        return None if actions is None else tuple(action for action in actions if isinstance(action, Action))

    def _known(self, name: str) -> None:
        names = [info.name for info in self.infos()]
        if name not in names:
            raise UnknownName.of("task", name, names)

    def _ask(self, question: str, **details: Any) -> dict[str, Any]:
        with boundary(EnvironmentFailure, f"asking the device for {question}"):
            device = self._find()
            said = self._talk(device, json.dumps({"ask": question, **details}))
        try:
            answer: dict[str, Any] = json.loads(said)
        except ValueError:
            raise EnvironmentFailure(f"device {device.serial}: asked for {question}, it said {said[:80]!r}") from None
        if "error" in answer:
            raise EnvironmentFailure(f"device {device.serial}: {answer['error']}")
        return answer

    def _talk(self, device: adbutils.AdbDevice, question: str) -> str:
        import adbutils

        with device.open_transport(timeout=ANSWER_S) as connection:
            connection.send_command(f"{SERVICE}:{question}")
            try:
                connection.check_okay()
            except adbutils.AdbError:
                raise UsageError(
                    f"device {device.serial} can neither set up nor judge AndroidWorld's tasks: give it tasks of your "
                    "own (option tasks, see envs/device.yaml), or play AndroidWorld itself with --backend emulator"
                ) from None
            return str(connection.read_until_close())
