"""AndroidWorld behind its HTTP server: a server with the routes, replies and status codes of its own."""

import asyncio
import hashlib
import io
import json
import logging
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import pytest
from PIL import Image

from collab.envs.android.androidworld_server import ServerClient, ServerSuite
from collab.envs.android.device import CHANGED
from collab.envs.grammar import MOBILE
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.seeds import Seeds

DONE = MOBILE.make("status", goal_status="complete")
FIELDS = {"action_type", "index", "x", "y", "text", "direction", "goal_status", "app_name", "keycode", "clear_text"}


class World:
    """What is behind the routes: two tasks, one of which a tap solves."""

    def __init__(self):
        self.calls = []
        self.suite = {}
        self.initialized = set()
        self.red = 255
        self.healthy, self.pixels = True, None

    def draw(self, n, seed):
        def instance(name, i):
            return int(hashlib.sha256(f"{seed}_{name}_{i}".encode()).hexdigest(), 16) % 2**32

        self.suite = {name: [instance(name, i) for i in range(n)] for name in ("SystemWifiTurnOff", "Unheard")}

    def get_health(self):
        if not self.healthy:
            raise RuntimeError("Environment not initialized")
        return {"status": "success"}

    def get_suite_reinitialize(self, n_task_combinations="2", seed="42", task_family="android_world"):
        assert task_family == "android_world"
        self.draw(int(n_task_combinations), int(seed))
        return {"status": "success", "message": "Task suite re-initialized"}

    def get_suite_task_list(self, max_index):
        names = list(self.suite)
        return {"task_list": names if int(max_index) < 0 else names[: int(max_index)]}

    def get_task_goal(self, task_type, task_idx):
        return {"goal": f"Goal {self.suite[task_type][int(task_idx)]}"}

    def get_task_score(self, task_type, task_idx):
        assert (task_type, task_idx) in self.initialized
        if task_type == "Unheard":
            raise RuntimeError("no such table")
        return {"score": 0.0 if self.red else 1.0}

    def get_screenshot(self, wait_to_stabilize):
        assert wait_to_stabilize == "true"
        return {"pixels": self.pixels or [[[self.red, 0, 7]] * 4] * 8}

    def post_reset(self, go_home):
        assert go_home == "true"
        return {"status": "success", "message": "Environment reset with go_home=True."}

    def post_execute_action(self, body):
        assert set(body) <= FIELDS
        self.red = 0 if body["action_type"] == "click" else self.red
        return {"status": "success", "message": "Action executed."}

    def post_task_initialize(self, task_type, task_idx):
        if (task_type, task_idx) in self.initialized:
            raise RuntimeError("initialize_task() is already called.")
        self.initialized.add((task_type, task_idx))
        self.red = 255
        return {"status": "success", "message": "initialized"}

    def post_task_tear_down(self, task_type, task_idx):
        self.initialized.discard((task_type, task_idx))
        return {"status": "success", "message": "torn down"}

    def get_openapi_json(self):
        names = [name for name in dir(self) if name.startswith(("get_", "post_")) and name != "get_openapi_json"]
        paths = {}
        for name in names:
            method, _, rest = name.partition("_")
            for head in ("suite_", "task_"):
                rest = rest.replace(head, head[:-1] + "/", 1) if rest.startswith(head) else rest
            paths.setdefault(f"/{rest}", {})[method] = {}
        return {"openapi": "3.1.0", "paths": paths}


@contextmanager
def served(world):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def answer(self):
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            name = f"{self.command.lower()}_{parts.path[1:].replace('/', '_').replace('.', '_')}"
            world.calls.append((f"{self.command} {parts.path}", query, json.loads(body) if body else None))
            route = getattr(world, name, None)
            if route is None:
                return 404, {"detail": "Not Found"}
            try:
                return 200, route(json.loads(body)) if body else route(**query)
            except TypeError:
                return 422, {"detail": [{"type": "missing"}]}
            except (RuntimeError, AssertionError, LookupError):
                return 500, "Internal Server Error"

        def do_GET(self):
            status, said = self.answer()
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def world():
    return World()


@pytest.fixture
def suite(world):
    with served(world) as url:
        yield ServerSuite(url=url, instances=3)


def seed(number, name="SystemWifiTurnOff"):
    return Seeds(30).task(name, number)


def play(suite, actions, name="SystemWifiTurnOff", number=0):
    async def run():
        environment = await suite.open()
        first = await environment.reset(suite.instance(name, seed(number, name)))
        results = [await environment.step(action) for action in actions]
        await environment.close()
        return first, results

    return asyncio.run(run())


# -------------------------------------------------------------------------------------------------- tasks


def test_tasks_are_the_servers_with_androidworlds_budgets(suite, world):
    told = [(info.name, info.max_steps, info.difficulty) for info in suite.tasks()]
    assert told == [("SystemWifiTurnOff", 10, "easy"), ("Unheard", 30, None)]
    assert world.calls[2] == (
        "GET /suite/reinitialize",
        {"n_task_combinations": "3", "seed": "30", "task_family": "android_world"},
        None,
    )
    suite.tasks()
    assert [call for call, *_ in world.calls].count("GET /suite/reinitialize") == 1


def test_an_instance_is_the_one_that_the_seed_names(suite, world):
    for number in range(3):
        task = suite.instance("SystemWifiTurnOff", seed(number))
        assert task.goal == f"Goal {seed(number)}"
    with pytest.raises(UsageError, match=r"seed 5 is none of the 3 instances .* play with --seed 30"):
        suite.instance("SystemWifiTurnOff", 5)
    with pytest.raises(UnknownName, match="did you mean Unheard"):
        suite.instance("Unherd", 0)


# ------------------------------------------------------------------------------------------------- episodes


def test_an_episode_goes_through_the_servers_routes(suite, world):
    first, results = play(suite, [MOBILE.make("open_app", app_name="Settings"), MOBILE.make("click", x=3, y=4), DONE])
    assert (first.elements, first.width, first.height) == ((), 4, 8)
    assert "aim with x and y in pixels" in first.text
    assert [result.info["effect"] for result in results] == [
        "the picture did not change",
        "the picture changed",
        "declared the task complete",
    ]
    assert results[-1].outcome.success
    which = {"task_type": "SystemWifiTurnOff", "task_idx": "0"}
    look = ("GET /screenshot", {"wait_to_stabilize": "true"}, None)
    assert world.calls[5:] == [
        ("POST /task/initialize", which, None),
        ("POST /reset", {"go_home": "true"}, None),
        ("GET /task/goal", which, None),
        look,
        ("POST /execute_action", {}, {"action_type": "open_app", "app_name": "settings"}),
        look,
        look,  # again, before it is touched
        ("POST /execute_action", {}, {"action_type": "click", "x": 3, "y": 4}),
        look,
        ("GET /task/score", which, None),
        ("POST /task/tear_down", which, None),
    ]


def test_an_element_cannot_be_aimed_at(suite, world):
    result = play(suite, [MOBILE.make("click", index=0)])[1][0]
    assert result.info["effect"] == "nothing changed: the screen has no element 0"
    assert not [call for call, *_ in world.calls if call == "POST /execute_action"]


def test_a_picture_that_changed_is_not_touched(world):
    with served(world) as url:
        suite = ServerSuite(url=url, instances=3)

        async def run():
            environment = await suite.open()
            await environment.reset(suite.instance("SystemWifiTurnOff", seed(0)))
            world.red = 40
            return await environment.step(MOBILE.make("click", x=3, y=4))

        assert asyncio.run(run()).info["effect"] == CHANGED
        assert not [call for call, *_ in world.calls if call == "POST /execute_action"]


def test_androidworlds_server_that_turns_tells_the_size_of_each_picture(world):
    with served(world) as url:
        suite = ServerSuite(url=url, instances=3)

        async def run():
            environment = await suite.open()
            first = await environment.reset(suite.instance("SystemWifiTurnOff", seed(0)))
            world.pixels = [[[1, 2, 3]] * 8] * 4
            return first, (await environment.step(None)).observation

        first, second = asyncio.run(run())
    assert [(one.width, one.height) for one in (first, second)] == [(4, 8), (8, 4)]
    assert "8 x 4 pixels" in second.text


def test_the_picture_is_the_servers(suite):
    async def run():
        environment = await suite.open()
        await environment.reset(suite.instance("SystemWifiTurnOff", seed(1)))
        return await environment.screenshot(marks=True)

    picture = Image.open(io.BytesIO(asyncio.run(run())))
    assert (picture.size, picture.getpixel((3, 7))) == ((4, 8), (255, 0, 7))


def test_steps_that_run_out_are_torn_down_and_not_judged(suite, world):
    results = play(suite, [None] * 10)[1]
    assert results[-1].truncated
    assert results[-1].outcome.score == 0.0
    assert not world.initialized
    assert not [call for call, *_ in world.calls if call == "GET /task/score"]


def test_every_action_is_logged_before_it_is_executed(suite, world, caplog):
    acted = {}

    class Watch(logging.Handler):
        def emit(self, record):
            acted[record.getMessage()] = len([call for call, *_ in world.calls if call == "POST /execute_action"])

    logger, watch = logging.getLogger("collab.envs.android.androidworld"), Watch()
    logger.addHandler(watch)
    try:
        with caplog.at_level(logging.INFO, logger=logger.name):
            play(suite, [MOBILE.make("click", x=3, y=4), MOBILE.make("navigate_back"), DONE])
    finally:
        logger.removeHandler(watch)
    assert acted == {
        f"androidworld[http]: begin SystemWifiTurnOff, seed {seed(0)}": 0,
        "androidworld[http] step 1: tap (3, 4) {'action_type': 'click', 'x': 3, 'y': 4}": 0,
        "androidworld[http] step 2: go back {'action_type': 'navigate_back'}": 1,
        "androidworld[http] step 3: declare the task complete": 2,
    }


# ------------------------------------------------------------------------------------------------- failures


def test_a_checker_that_fails_is_a_failure_and_the_task_is_torn_down(suite, world):
    with pytest.raises(EnvironmentFailure, match=r"GET /task/score at .*: status 500: .*Internal Server Error"):
        play(suite, [DONE], "Unheard")
    assert not world.initialized


def test_a_server_that_is_not_there_is_the_users_to_start():
    with pytest.raises(UsageError, match=r"GET /health at http://127\.0\.0\.1:1: .*docker run .*option url"):
        ServerSuite(url="http://127.0.0.1:1").tasks()


def test_a_server_that_goes_away_while_it_is_played_on_is_a_failure():
    with pytest.raises(EnvironmentFailure, match=r"POST /reset at http://127\.0\.0\.1:1: "):
        ServerClient("http://127.0.0.1:1", 1.0).post("/reset")


def test_an_emulator_that_is_not_ready_is_a_failure(suite, world):
    world.healthy = False
    with pytest.raises(EnvironmentFailure, match=r"GET /health at .*: status 500"):
        suite.tasks()


def test_another_version_is_told_by_the_routes_it_lacks(world, monkeypatch):
    monkeypatch.delattr(World, "get_task_score")
    with served(world) as url, pytest.raises(UsageError, match=r"has no GET /task/score; .* server/android_server\.py"):
        ServerSuite(url=url).tasks()


def test_another_server_is_told(monkeypatch):
    monkeypatch.delattr(World, "get_health")
    with served(World()) as url, pytest.raises(UsageError, match="this is no server of AndroidWorld's"):
        ServerSuite(url=url).tasks()


@pytest.mark.parametrize("pixels", ["x", [[1, 2]], [[[1, 2, 3]], [[1, 2]]], [[[256, 0, 0]]], [[[-1, 0, 0]]]])
def test_a_broken_picture_is_a_failure(suite, world, pixels):
    world.pixels = pixels
    with pytest.raises(EnvironmentFailure, match="no rows of colours"):
        play(suite, [])


def test_an_address_that_is_none_is_refused():
    with pytest.raises(UsageError, match="allowed: an address like"):
        ServerSuite(url="127.0.0.1:5000")
