"""AndroidWorld on its emulator: the real helper on a stand-in of AndroidWorld's package, in a process of its own."""

import asyncio
import io
import logging
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from collab.envs.android.device import CHANGED
from collab.envs.android.emulator import EmulatorSuite
from collab.envs.grammar import MOBILE
from collab.errors import EnvironmentFailure, UnknownName, UsageError
from collab.types import Box

STAND_IN = Path(__file__).parents[2] / "fixtures" / "androidworld"
DONE = MOBILE.make("status", goal_status="complete")


@pytest.fixture
def ports():
    """Two ports where something listens, as an emulator's do."""
    with socket.create_server(("127.0.0.1", 0)) as console, socket.create_server(("127.0.0.1", 0)) as grpc:
        yield console.getsockname()[1], grpc.getsockname()[1]


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What was done to the stand-in, read anew each time."""
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("FAKE_ANDROIDWORLD_LOG", str(path))
    return lambda: path.read_text().splitlines()


@pytest.fixture
def suite(ports, log, tmp_path):
    (tmp_path / "adb").touch()
    with made(console_port=ports[0], grpc_port=ports[1], adb_path=str(tmp_path / "adb")) as suite:
        yield suite


@contextmanager
def made(**options):
    suite = EmulatorSuite(python=Path(sys.executable), **{"package": STAND_IN, **options})
    try:
        yield suite
    finally:
        asyncio.run(suite.close())


def play(suite, name, actions, seed=0):
    async def run():
        environment = await suite.open()
        task = suite.instance(name, seed)
        first = await environment.reset(task)
        results = [await environment.step(action) for action in actions]
        await environment.close()
        return first, results

    return asyncio.run(run())


# -------------------------------------------------------------------------------------------------- tasks


def test_tasks_are_those_of_the_registry(suite, caplog):
    infos = {info.name: info for info in suite.tasks()}
    assert list(infos) == [
        "CannotBegin",
        "CannotTearDown",
        "ContactsAddContact",
        "Deadly",
        "FolderOfNow",
        "SystemWifiTurnOff",
    ]
    contact = infos["ContactsAddContact"]
    assert (contact.difficulty, contact.max_steps, contact.apps, contact.tags) == (
        "medium",
        12,
        ("contacts",),
        ("data_entry",),
    )
    assert "CannotBeMade is left out: ImportError: No module named 'moviepy'" in caplog.text
    assert suite.label == "androidworld[emulator]"


def test_instances_are_drawn_as_androidworld_draws_them(suite):
    import random

    sys.path.insert(0, str(STAND_IN))
    try:
        from android_world.tasks import NAMES
    finally:
        sys.path.remove(str(STAND_IN))
    for seed in (0, 7, 4_000_000_000):
        name = random.Random(seed).choice(NAMES)
        task = suite.instance("ContactsAddContact", seed)
        assert task.goal == f"Create a new contact for {name}."
        assert task.params == {"name": name, "when": "(1+2j)", "seed": seed}
        assert (task.max_steps, task.difficulty, task.environment) == (12, "medium", "androidworld")
    with pytest.raises(UnknownName, match="did you mean SystemWifiTurnOff"):
        suite.instance("SystemWifiTurnof", 0)


# ------------------------------------------------------------------------------------------------- episodes


def test_an_episode_goes_as_androidworlds_runner_does_it(suite, log, ports):
    first, results = play(suite, "SystemWifiTurnOff", [MOBILE.make("click", index=1), DONE])
    assert first.title == "Home"
    assert first.text.splitlines()[1:] == ['text "Wi-Fi" [0]', 'switch "Wi-Fi" [1] (checked)']
    assert (first.width, first.height) == (1080, 2400)
    assert 'switch "Wi-Fi" [1]' == results[0].observation.text.splitlines()[2]
    assert results[0].info["effect"] == "the screen changed"
    assert results[1].terminated
    assert results[1].outcome.success
    assert results[1].outcome.reason == "AndroidWorld's checker gives 1"
    assert log() == [
        f"connect {ports[0]} {ports[1]} adb False True",
        "initialize SystemWifiTurnOff",
        "hide_automation_ui",
        "reset go_home=True",
        "{'action_type': 'click', 'x': 810, 'y': 250}",
        "tear_down SystemWifiTurnOff",
    ]


def test_whatever_status_is_declared_is_judged_and_steps_that_run_out_are_not(suite, log):
    way = [MOBILE.make("click", index=1), MOBILE.make("status", goal_status="infeasible")]
    assert play(suite, "SystemWifiTurnOff", way)[1][-1].outcome.success
    results = play(suite, "SystemWifiTurnOff", [MOBILE.make("click", index=1), *[None] * 9])[1]
    assert results[-1].truncated
    assert results[-1].outcome.score == 0.0
    assert log()[-1] == "tear_down SystemWifiTurnOff"


def test_what_androidworld_does_otherwise_is_told(suite, log):
    """It always presses Enter behind a text, and does nothing for an empty one."""
    way = [
        MOBILE.make("input_text", index=0, text="Zoë", press_enter=False),
        MOBILE.make("input_text", index=0, text="", clear_text=True, press_enter=False),
    ]
    typed, emptied = play(suite, "ContactsAddContact", way)[1]
    assert typed.info["effect"].endswith("; Enter was pressed, as AndroidWorld always does")
    assert emptied.info["effect"] == "nothing changed: AndroidWorld does nothing for an empty text"
    assert len([line for line in log() if "input_text" in line]) == 1


def test_the_goal_is_the_one_that_is_checked(suite, log):
    async def run():
        environment = await suite.open()
        task = suite.instance("FolderOfNow", 0)
        await environment.reset(task)
        return task.goal, environment.goal()

    planned, stated = asyncio.run(run())
    assert planned == stated
    assert stated in log()


def test_actions_reach_androidworld_in_its_own_form(suite, log):
    actions = [
        MOBILE.make("click", x=810, y=250),
        MOBILE.make("click", x=10.6, y=2000.2),
        MOBILE.make("long_press", x=0.5, y=0.5, normalised=True),
        MOBILE.make("input_text", index=0, text="Zoë", clear_text=True),
        MOBILE.make("scroll", direction="down"),
        MOBILE.make("scroll", index=1, direction="up"),
        MOBILE.make("swipe", direction="left"),
        MOBILE.make("drag", x=500, y=1500, to_x=520, to_y=700),
        MOBILE.make("open_recents"),
        MOBILE.make("open_app", app_name="Contacts"),
        None,
    ]
    play(suite, "ContactsAddContact", actions)
    assert [line for line in log() if line.startswith("{")] == [
        "{'action_type': 'click', 'x': 810, 'y': 250}",
        "{'action_type': 'click', 'x': 10, 'y': 2000}",
        "{'action_type': 'long_press', 'x': 540, 'y': 1200}",
        "{'action_type': 'input_text', 'x': 270, 'y': 250, 'text': 'Zoë', 'clear_text': True}",
        "{'action_type': 'scroll', 'direction': 'down'}",
        "{'action_type': 'scroll', 'index': 2, 'direction': 'up'}",
        "{'action_type': 'swipe', 'direction': 'right'}",
        "{'action_type': 'swipe', 'x': 500, 'y': 1500, 'direction': 'up'}",
        "{'action_type': 'open_app', 'app_name': 'contacts'}",
        "{'action_type': 'wait'}",
    ]


def test_every_action_is_logged_before_it_is_executed(suite, log, caplog):
    done_before = {}

    class Watch(logging.Handler):
        def emit(self, record):
            done_before[record.getMessage().split(" {")[0]] = len([line for line in log() if line.startswith("{")])

    logger = logging.getLogger("collab.envs.android.androidworld")
    watch = Watch()
    logger.addHandler(watch)
    try:
        with caplog.at_level(logging.INFO, logger=logger.name):
            way = [MOBILE.make("click", index=1), MOBILE.make("answer", text="done"), DONE]
            play(suite, "SystemWifiTurnOff", way)
    finally:
        logger.removeHandler(watch)
    assert done_before == {
        "androidworld[emulator]: begin SystemWifiTurnOff, seed 0": 0,
        'androidworld[emulator] step 1: tap switch "Wi-Fi"': 0,
        'androidworld[emulator] step 2: answer "done"': 1,
        "androidworld[emulator] step 3: declare the task complete": 2,
    }


def test_androidworlds_emulator_is_looked_at_again(suite, log):
    wizard = MOBILE.make("open_app", app_name="wizard")
    results = play(suite, "SystemWifiTurnOff", [wizard, MOBILE.make("click", index=0)])[1]
    assert results[0].observation.elements[0].label == "Next"
    assert results[1].info["effect"] == CHANGED
    assert not [line for line in log() if "click" in line]


def test_androidworlds_emulator_that_turns_is_seen_upright(suite):
    async def run():
        environment = await suite.open()
        await environment.reset(suite.instance("SystemWifiTurnOff", 0))
        result = await environment.step(MOBILE.make("open_app", app_name="film"))
        picture = await environment.screenshot()
        await environment.close()
        return result.observation, Image.open(io.BytesIO(picture))

    observation, picture = asyncio.run(run())
    assert (observation.width, observation.height) == (2400, 1080)
    assert observation.elements[0].box == Box(2000, 900, 2300, 1000)
    assert picture.size == (240, 108)
    assert picture.getpixel((120, 2))[1] == 255  # the film's top
    assert picture.getpixel((120, 100))[1] == 0


def test_what_makes_no_sense_changes_nothing(suite, log):
    results = play(suite, "SystemWifiTurnOff", [MOBILE.make("click", index=99)])[1]
    assert results[0].info["effect"] == "nothing changed: the screen has no element 99"
    assert not [line for line in log() if line.startswith("{")]
    results = play(suite, "SystemWifiTurnOff", [MOBILE.make("double_tap", x=1, y=1)])[1]
    assert results[0].info["effect"] == "nothing changed: ValueError: Bbox is not present on element."


def test_pictures_are_what_was_looked_at(suite):
    import io

    from PIL import Image

    async def run():
        environment = await suite.open()
        await environment.reset(suite.instance("SystemWifiTurnOff", 0))
        before = await environment.screenshot()
        await environment.step(MOBILE.make("click", index=1))
        return before, await environment.screenshot(), await environment.screenshot(marks=True)

    before, after, marked = (Image.open(io.BytesIO(png)) for png in asyncio.run(run()))
    assert (before.size, before.getpixel((5, 5)), after.getpixel((5, 5))) == ((108, 240), (255, 0, 0), (0, 0, 0))
    assert marked.tobytes() != after.tobytes()


def test_a_second_episode_tears_the_first_one_down(suite, log):
    async def run():
        environment = await suite.open()
        for _ in range(2):
            await environment.reset(suite.instance("SystemWifiTurnOff", 0))
        with pytest.raises(UsageError, match="concurrency 1"):
            await suite.open()

    asyncio.run(run())
    begun = [line for line in log() if line.startswith(("initialize", "tear_down"))]
    assert begun == ["initialize SystemWifiTurnOff", "tear_down SystemWifiTurnOff", "initialize SystemWifiTurnOff"]


# ------------------------------------------------------------------------------------------------- failures


def test_a_failed_tear_down_does_not_cost_the_verdict(suite, caplog):
    assert play(suite, "CannotTearDown", [DONE])[1][0].outcome.success
    assert "could not be torn down: RuntimeError: the snapshot is gone" in caplog.text


def test_a_task_that_cannot_begin_is_a_failure(suite):
    with pytest.raises(EnvironmentFailure, match="AndroidWorld: begin: RuntimeError: no such table: contacts"):
        play(suite, "CannotBegin", [])


def test_an_emulator_that_is_lost_is_a_failure(suite):
    with pytest.raises(EnvironmentFailure, match="act: RuntimeError: adb: device offline"):
        play(suite, "SystemWifiTurnOff", [MOBILE.make("keyboard_enter")])


def test_a_helper_that_dies_says_its_last_words_and_the_next_episode_has_another(suite):
    async def run():
        environment = await suite.open()
        await environment.reset(suite.instance("Deadly", 0))
        with pytest.raises(EnvironmentFailure, match=r"process ended with code 139; it said: .*Segmentation fault"):
            await environment.step(DONE)
        await environment.reset(suite.instance("SystemWifiTurnOff", 0))
        await environment.step(MOBILE.make("click", index=1))
        return await environment.step(DONE)

    assert asyncio.run(run()).outcome.success


def test_a_helper_that_hangs_is_given_up(log, tmp_path):
    stub = tmp_path / "python"
    stub.write_text("#!/bin/sh\nexec sleep 60\n")
    stub.chmod(0o755)
    suite = EmulatorSuite(python=stub, answer_timeout_s=0.3)
    with pytest.raises(EnvironmentFailure, match=r"hello: no answer within 0\.3 s"):
        suite.tasks()


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("console", "nothing listens at its console port .*start it with: emulator -avd"),
        ("grpc", "nothing listens at its gRPC port .*-grpc 1"),
        ("adb", "no adb at /nowhere/adb; give its path with the option adb_path"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_played(missing, words, ports, log, tmp_path):
    (tmp_path / "adb").touch()
    options = {"console_port": ports[0], "grpc_port": ports[1], "adb_path": str(tmp_path / "adb")}
    options |= {"console": {"console_port": 1}, "grpc": {"grpc_port": 1}, "adb": {"adb_path": "/nowhere/adb"}}[missing]
    with made(**options) as suite, pytest.raises(UsageError, match=words):
        asyncio.run(suite.open())
    assert log() == []


def test_without_a_python_the_error_says_how_to_name_it():
    with pytest.raises(UsageError, match=r"--set environment\.backends\.emulator\.options\.python="):
        EmulatorSuite()


def test_a_python_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none/python cannot be run: No such file or directory; the option python"):
        EmulatorSuite(python=tmp_path / "none" / "python").tasks()


def test_a_python_without_androidworld_is_named():
    with made(package=None) as suite, pytest.raises(UsageError, match=r"cannot import android_world.*No module named"):
        suite.tasks()


def test_a_version_that_lacks_what_is_needed_is_named(tmp_path):
    for folder in ("android_world", "android_world/env"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "android_world/registry.py").write_text("class TaskRegistry: pass\n")
    (tmp_path / "android_world/env/env_launcher.py").write_text(
        "def load_and_setup_env(console_port, adb_path): pass\n"
    )
    (tmp_path / "android_world/env/json_action.py").write_text("")
    with made(package=tmp_path) as suite, pytest.raises(UsageError, match=r"json_action at .* has no JSONAction"):
        suite.tasks()
    (tmp_path / "android_world/env/json_action.py").write_text("class JSONAction: pass\n")
    with made(package=tmp_path) as suite, pytest.raises(UsageError, match="takes no grpc_port, emulator_setup, freeze"):
        suite.tasks()
