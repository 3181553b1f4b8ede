"""AndroidWorld behind its own HTTP server, e.g. the one of its Docker image.

    suite = ServerSuite(url="http://127.0.0.1:5000")

The server tells the screen as a picture only: it has no route for UI elements, so observations have none, agents must
see (`modality: both` or `image`) and aim with x and y. It knows instances by their number in a suite that was drawn
with one seed, so it plays the instances of that suite seed and no others; the suite seed of a run is its --seed. The
emulator behind it is AndroidWorld's to change: nothing on it is off limits.

A client of AndroidWorld's HTTP server (`server/android_server.py` of its repository). Calls block.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from collab.envs.android.androidworld import BUDGETS, AndroidWorldEnvironment, Look
from collab.envs.android.androidworld_helper import encode_png
from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.seeds import Seeds
from collab.types import Observation, Task

Query: TypeAlias = Mapping[str, str | int | bool]

ROUTES = (
    ("get", "/health"),
    ("get", "/suite/reinitialize"),
    ("get", "/suite/task_list"),
    ("get", "/task/goal"),
    ("get", "/task/score"),
    ("get", "/screenshot"),
    ("post", "/reset"),
    ("post", "/execute_action"),
    ("post", "/task/initialize"),
    ("post", "/task/tear_down"),
)
"""What is used of it. It offers no route for UI elements."""
_LARGEST_ANSWER = 256 * 2**20
"""Bytes; a picture comes as a list of numbers, about 30 million bytes."""


class _Unreached(EnvironmentFailure):
    """Nothing answered."""


class ServerClient:
    """One server.

    Args:
        url: its address, e.g. "http://127.0.0.1:5000".
        timeout_s: how long one answer may take.

    Raises:
        UsageError: the address is none.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"androidworld[http]: url {url!r}, allowed: an address like http://127.0.0.1:5000")
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def check(self) -> None:
        """Find out whether it is AndroidWorld's server, in a version that has what is used.

        Raises:
            EnvironmentFailure: its emulator is not ready.
            UsageError: it cannot be reached, is something else, or another version.
        """
        try:
            self.get("/health")
        except _Unreached as error:
            raise UsageError(str(error)) from None
        offered = self.get("/openapi.json").get("paths", {})
        missing = [f"{method.upper()} {path}" for method, path in ROUTES if method not in offered.get(path, {})]
        if missing:
            raise UsageError(
                f"androidworld[http]: the server at {self._url} has no {', '.join(missing)}; it is no server of "
                "AndroidWorld's, or of another version: use server/android_server.py of its repository"
            )

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """GET a route; EnvironmentFailure when that fails."""
        return self._ask("GET", path, query or {}, None)

    def post(self, path: str, query: Query | None = None, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """POST to a route, with a JSON body where there is one; EnvironmentFailure when that fails."""
        return self._ask("POST", path, query or {}, body)

    def _ask(self, method: str, path: str, query: Query, body: dict[str, Any] | None) -> dict[str, Any]:
        # The server reads booleans as JSON spells them.
        words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}
        address = f"{self._url}{path}" + (f"?{urllib.parse.urlencode(words)}" if words else "")
        # A POST without a body still needs a length, which an empty one gives it.
        data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
        what = f"androidworld[http]: {method} {path} at {self._url}"
        try:
            with self._opener.open(request, timeout=self._timeout_s) as reply:
                # Bounded: a wrong address may answer with anything.
                said = reply.read(_LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            # An answered refusal is quoted in the server's words; not being reached has another next move.
            raise self._explain_refusal(what, path, error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise _Unreached(
                f"{what}: {reason}; start AndroidWorld's server (docker run --privileged -p 5000:5000 "
                "android_world:latest) or correct the option url"
            ) from None
        try:
            answer: dict[str, Any] = json.loads(said)
            # Any JSON is not enough: the caller reads fields.
            answer.keys()
        except (ValueError, AttributeError):
            raise EnvironmentFailure(f"{what}: not a JSON object: {said[:80]!r}") from None
        return answer

    def _explain_refusal(self, what: str, path: str, error: urllib.error.HTTPError) -> EnvironmentFailure | UsageError:
        said = error.read(500).decode("utf-8", "replace")
        if error.code == 404 and path in ("/health", "/openapi.json"):
            return UsageError(f"{what}: not found; this is no server of AndroidWorld's, correct the option url")
        return EnvironmentFailure(f"{what}: status {error.code}: {' '.join(said.split())}")


NAME = "androidworld"
LABEL = "androidworld[http]"


class ServerSuite:
    """AndroidWorld's tasks on a server.

    Args:
        url: where the server listens.
        suite_seed: of the instances; the server draws its suite again with it.
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
        """Return the server's tasks by name; makes it draw its suite, once.

        Raises:
            EnvironmentFailure: its emulator is not ready.
            UsageError: it cannot be reached, is not AndroidWorld's server, or another version of it.
        """
        return [_read_info(name, self._max_steps) for name in self._list_known()]

    def instance(self, name: str, seed: int) -> Task:
        """Return an instance of the server's suite.

        Raises:
            UnknownName: there is no such task.
            UsageError: the seed belongs to none of the suite's instances.
        """
        if name not in self._list_known():
            raise UnknownName.of(
                "task", name, self._list_known(), "see them with: collab env tasks androidworld --backend http"
            )
        goal = str(self._client.get("/task/goal", {"task_type": name, "task_idx": self._number(name, seed)})["goal"])
        info = _read_info(name, self._max_steps)
        return Task(
            environment=NAME, name=name, seed=seed, goal=goal, max_steps=info.max_steps, difficulty=info.difficulty
        )

    async def open(self) -> AndroidWorldEnvironment:
        """Return the server's emulator.

        Raises:
            UsageError, EnvironmentFailure: see `tasks`; or it already runs an episode.
        """
        if self._open is not None and not self._open.closed:
            raise UsageError(f"{LABEL}: one emulator plays one episode at a time; use --concurrency 1")
        await asyncio.to_thread(self._list_known)
        self._open = AndroidWorldEnvironment(_Server(self._client, self._number))
        return self._open

    async def close(self) -> None:
        """Do nothing: the server keeps running."""

    def _list_known(self) -> list[str]:
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
        """Return the place of an instance in the server's suite, by AndroidWorld's rule for instance seeds."""
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
        self._png = encode_png(pixels.tobytes(), width, height)
        return Look(observation=_observe_picture(width, height), png=self._png, pixels=pixels)

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


def _observe_picture(width: int, height: int) -> Observation:
    text = f"Screen: a picture of {width} x {height} pixels\nNo elements are known; aim with x and y in pixels."
    return Observation(space="mobile", title="a picture", elements=(), text=text, width=width, height=height)


def _read_info(name: str, max_steps: int) -> TaskInfo:
    steps, difficulty = BUDGETS.get(name, (max_steps, None))
    return TaskInfo(name=name, difficulty=difficulty, max_steps=steps)
