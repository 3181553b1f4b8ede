"""AndroidWorld behind its own HTTP server, e.g. the one of its Docker image.

    suite = ServerSuite(url="http://127.0.0.1:5000")

The server tells the screen as a picture only: it has no route for UI elements, so observations have none, agents must
see (`modality: both` or `image`) and aim with x and y. It knows instances by their number in a suite that was drawn
with one seed, so it plays the instances of that suite seed and no others; the suite seed of a run is its --seed. The
emulator behind it is AndroidWorld's to change: nothing on it is off limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from collab.envs.actions import MOBILE
from collab.envs.android.androidworld_budgets import BUDGETS
from collab.envs.android.androidworld_environment import AndroidWorldEnvironment, Look
from collab.envs.android.androidworld_helper import png
from collab.envs.android.androidworld_http import Query, ServerClient
from collab.envs.base import TaskInfo
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.seeds import Seeds
from collab.types import Observation, Task

NAME = "androidworld"
LABEL = "androidworld[http]"


class ServerSuite:
    """AndroidWorld's tasks on a server.

    Args:
        url: where the server listens.
        suite_seed: of the instances; the server is told to draw its suite anew with it.
        instances: how many instances of each task are drawn.
        family: AndroidWorld's suite family.
        max_steps: step budget of tasks that this version does not know; the server does not tell budgets.
        answer_timeout_s: the server must have answered by then; preparing a task takes a minute.

    Raises:
        UsageError: `url` is no address.
    """

    name = NAME
    label = LABEL
    version = "androidworld-http-1"
    space = MOBILE
    capabilities = frozenset({"screenshot"})
    most_environments = 1
    pictures_only = "AndroidWorld's server has no route for UI elements; --backend emulator shows them"

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:5000",
        suite_seed: int = 30,
        instances: int = 10,
        family: Literal["android_world", "android", "information_retrieval"] = "android_world",
        max_steps: int = 30,
        answer_timeout_s: float = 600.0,
    ) -> None:
        self._client = ServerClient(url, answer_timeout_s)
        self._suite_seed, self._instances, self._family, self._max_steps = suite_seed, instances, family, max_steps
        self._names: list[str] | None = None
        self._open: AndroidWorldEnvironment | None = None

    def tasks(self) -> Sequence[TaskInfo]:
        """The server's tasks by name; makes it draw its suite, once.

        Raises:
            EnvironmentFailure: its emulator is not ready.
            UsageError: it cannot be reached, is not AndroidWorld's server, or another version of it.
        """
        return [_info(name, self._max_steps) for name in self._known()]

    def instance(self, name: str, seed: int) -> Task:
        """An instance of the server's suite.

        Raises:
            UnknownName: there is no such task.
            UsageError: the seed belongs to none of the suite's instances.
        """
        if name not in self._known():
            raise UnknownName.of(
                "task", name, self._known(), "see them with: collab env tasks androidworld --backend http"
            )
        goal = str(self._client.get("/task/goal", {"task_type": name, "task_idx": self._number(name, seed)})["goal"])
        info = _info(name, self._max_steps)
        return Task(
            environment=NAME, name=name, seed=seed, goal=goal, max_steps=info.max_steps, difficulty=info.difficulty
        )

    async def open(self) -> AndroidWorldEnvironment:
        """The server's emulator.

        Raises:
            UsageError, EnvironmentFailure: see `tasks`; or it already runs an episode.
        """
        if self._open is not None and not self._open.closed:
            raise UsageError(f"{LABEL}: one emulator plays one episode at a time; use --concurrency 1")
        await asyncio.to_thread(self._known)
        self._open = AndroidWorldEnvironment(_Server(self._client, self._number))
        return self._open

    async def close(self) -> None:
        """Nothing to give back: the server goes on."""

    def _known(self) -> list[str]:
        if self._names is None:
            self._client.check()
            wanted: Query = {
                "n_task_combinations": self._instances,
                "seed": self._suite_seed,
                "task_family": self._family,
            }
            self._client.get("/suite/reinitialize", wanted)
            self._names = [str(name) for name in self._client.get("/suite/task_list", {"max_index": -1})["task_list"]]
        return self._names

    def _number(self, name: str, seed: int) -> int:
        """The place of an instance in the server's suite, by AndroidWorld's rule for instance seeds."""
        numbers = {Seeds(self._suite_seed).task(name, number): number for number in range(self._instances)}
        if seed not in numbers:
            raise UsageError(
                f"{LABEL}: seed {seed} is none of the {self._instances} instances of {name} in the server's suite "
                f"{self._suite_seed}; play with --seed {self._suite_seed}, or set the options suite_seed and instances"
            )
        return numbers[seed]


class _Server:
    """The client as `Remote`."""

    label = LABEL

    def __init__(self, client: ServerClient, number: Callable[[str, int], int]) -> None:
        self._client, self._number = client, number
        self._running: Query | None = None
        self._png = b""

    def begin(self, task: Task) -> str:
        self.finish(judge=False)
        self._running = {"task_type": task.name, "task_idx": self._number(task.name, task.seed)}
        self._client.post("/task/initialize", self._running)
        self._client.post("/reset", {"go_home": True})
        return str(self._client.get("/task/goal", self._running)["goal"])

    def look(self) -> Look:
        told = self._client.get("/screenshot", {"wait_to_stabilize": True}).get("pixels")
        try:
            pixels = np.asarray(told, dtype=np.uint8)[:, :, :3]
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise EnvironmentFailure(f"{LABEL}: a screenshot that is no rows of colours: {error}") from None
        height, width = pixels.shape[:2]
        self._png = png(pixels.tobytes(), width, height)
        return Look(observation=_picture_of(width, height), png=self._png, pixels=pixels)

    def picture(self) -> bytes:
        return self._png

    def act(self, fields: dict[str, Any]) -> str | None:
        self._client.post("/execute_action", body=fields)
        return None

    def finish(self, *, judge: bool) -> float | None:
        which, self._running = self._running, None
        if which is None:
            return None
        try:
            return float(self._client.get("/task/score", which)["score"]) if judge else None
        finally:  # a task that stays set up cannot be begun again
            self._client.post("/task/tear_down", which)


def _picture_of(width: int, height: int) -> Observation:
    text = f"Screen: a picture of {width} x {height} pixels\nNo elements are known; aim with x and y in pixels."
    return Observation(space="mobile", title="a picture", elements=(), text=text, width=width, height=height)


def _info(name: str, max_steps: int) -> TaskInfo:
    steps, difficulty = BUDGETS.get(name, (max_steps, None))
    return TaskInfo(name=name, difficulty=difficulty, max_steps=steps)
