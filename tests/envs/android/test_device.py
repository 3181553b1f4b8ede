"""The device environment with the real uiautomator2 client, on a SimPhone behind the adb face."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from collab.config import PartDefinition
from collab.envs.android.device import DeviceSuite
from collab.envs.grammar import MOBILE
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.envs.simphone.apps import INSTALLED
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.simphone.tasks import BY_NAME
from collab.errors import ConfigError, EnvironmentFailure, EnvironmentGone, MissingExtra, UnknownName, UsageError
from collab.rollout.build import build
from tests.envs.android.served_phone import SERIAL, on, on_device, play

QUICK = {"SimpleSmsSend", "ClockTimerEntry"}
INSTALLED_APPS = [f"{name}={app.package}" for app in INSTALLED for name in app.names]


@contextmanager
def carrying(**options):
    """A device that brings AndroidWorld-named tasks along."""
    handle = PhoneHandle()
    usual = {"serial": SERIAL, "allow_apps": INSTALLED_APPS, "allow_effects": True, "settle_s": 0.0}
    with serve_phones({SERIAL: handle}) as port:
        yield DeviceSuite(environment="androidworld", adb_port=port, **usual | options), handle


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BY_NAME]
)
def test_the_oracles_actions_lead_to_the_same_phone_and_score(name):
    task = SimPhoneSuite().instance(name, seed=7)
    python = SimPhone()
    python.reset(task)
    actions = python.oracle()
    assert actions
    with carrying() as (suite, handle):
        assert suite.instance(name, seed=7) == task

        async def run():
            environment = await suite.open()
            observation = await environment.reset(task)
            assert environment.oracle() == actions
            for action in actions:
                wanted = python.frame.observation.elements
                assert [one.label for one in observation.elements] == [one.label for one in wanted]
                result, expected = await environment.step(action), python.step(action)
                observation = result.observation
            await suite.close()
            return result, expected

        result, expected = asyncio.run(run())
        assert result.terminated
        assert result.outcome == expected.outcome
        assert result.outcome.success
        assert without_notice(handle.phone) == without_notice(python.phone)


def without_notice(phone):
    """The toast of the last action: a device tells it once."""
    return replace(phone, notice=None)


@pytest.mark.slow
def test_a_task_that_is_not_done_scores_as_on_the_python_face():
    task = SimPhoneSuite().instance("TurnOffWifiAndTurnOnBluetooth", seed=7)
    for status in ("complete", "infeasible"):
        end = MOBILE.make("status", goal_status=status)
        python = SimPhone()
        python.reset(task)
        expected = [python.step(action) for action in (*python.oracle()[:2], end)]
        with carrying() as (suite, _):

            async def run(suite=suite, end=end):
                environment = await suite.open()
                await environment.reset(task)
                results = [await environment.step(action) for action in (*environment.oracle()[:2], end)]
                return results, environment.oracle()

            results, rest = asyncio.run(run())
        assert results[-1].outcome == expected[-1].outcome
        assert not results[-1].outcome.success
        assert rest == ()


def test_a_device_lists_the_tasks_it_brings():
    with carrying() as (suite, _):
        python = SimPhoneSuite()
        assert suite.tasks() == python.tasks()
        assert suite.label == "androidworld[device emulator-5554]"
        with pytest.raises(UnknownName, match="did you mean SimpleSmsSend"):
            suite.instance("SimpleSmsSnd", 0)


def test_a_device_that_was_not_named_is_named_by_what_is_there():
    with carrying(serial=None) as (suite, _):
        assert suite.label == "androidworld[device any]"
        asyncio.run(suite.open())
        assert suite.label == "androidworld[device emulator-5554]"


def test_own_tasks_can_stand_under_androidworlds_name():
    own = [{"name": "home", "goal": "Go home.", "success": {"package": "com.google.android.apps.nexuslauncher"}}]
    with carrying(tasks=own) as (suite, _):
        assert [info.name for info in suite.tasks()] == ["home"]
        assert suite.instance("home", 0).environment == suite.name == "androidworld"
        results = play(suite, [MOBILE.make("status", goal_status="complete")], "home")
        assert results[0].outcome.success


def test_a_phone_that_brings_no_tasks_says_what_to_do(monkeypatch):
    monkeypatch.setattr("collab.envs.android.device_tasks.SERVICE", "nothing")
    with carrying() as (suite, _), pytest.raises(UsageError, match=r"can neither set up nor judge.*--backend emulator"):
        suite.tasks()


def test_nothing_is_played_before_a_user_says_which_apps_may_be_touched():
    with carrying(allow_apps=None) as (suite, _):
        assert suite.tasks()
        with pytest.raises(UsageError, match="--allow-apps Settings,Clock"):
            asyncio.run(suite.open())


@pytest.mark.slow
def test_what_ascii_cannot_say_is_typed_too():
    with on_device() as (suite, handle):
        play(
            suite,
            [
                MOBILE.make("open_app", app_name="Contacts"),
                on("Create contact"),
                on("First name", "input_text", text="100%sure ü🎉"),
                on("First name", "input_text", text='a\'b "$x" & c', clear_text=True),
                on("Last name", "input_text", text="Ünal"),
                on("Last name", "input_text", text=" ö"),
                on("Company", "input_text", text="Acme"),
                on("Company", "input_text", text="", clear_text=True),
            ],
        )
        assert handle.phone.page.fields["company"] == ""
        assert handle.phone.page.fields["first"] == 'a\'b "$x" & c'
        assert handle.phone.page.fields["last"] == "Ünal ö"
        assert handle.phone.clipboard == ""


def test_time_passes_by_waiting():
    with on_device() as (suite, handle):
        before = handle.phone.now_ms
        results = play(suite, [MOBILE.make("wait"), None])
        assert handle.phone.now_ms == before + 2000
        assert results[0].info["effect"] == "one second passed"


def test_junk_actions_change_nothing():
    with on_device() as (suite, handle):
        before = handle.phone
        results = play(
            suite,
            [
                MOBILE.make("click", index=999),
                MOBILE.make("unknown"),
                MOBILE.make("input_text", text=""),
                MOBILE.make("click", x=-5, y=99_999),
            ],
        )
        assert handle.phone == before
        assert "no element 999" in results[0].info["effect"]


def test_screenshots_are_png():
    with on_device() as (suite, _):

        async def run():
            environment = await suite.open()
            await environment.reset(suite.instance("anything", 0))
            return await environment.screenshot(), await environment.screenshot(marks=True)

        plain, marked = asyncio.run(run())
        assert plain.startswith(b"\x89PNG")
        assert marked != plain


# ----------------------------------------------------------------------------------------------------- tasks


@pytest.mark.slow
def test_a_task_is_judged_by_its_last_screen_and_answer():
    tasks = [
        {
            "name": "wifi",
            "goal": "Show the networks and say which is connected.",
            "start": "Settings",
            "success": {
                "text": ["Wi-Fi", "saved  networks"],
                "package": "com.android.settings",
                "answer": "androidwifi",
            },
        }
    ]
    done = MOBILE.make("status", goal_status="complete")
    way = [on("Network & internet"), on("Internet"), MOBILE.make("answer", text="AndroidWifi"), done]
    with on_device(tasks=tasks) as (suite, _):
        assert play(suite, way, "wifi")[-1].outcome.success
        assert "does not show" in play(suite, [done], "wifi")[-1].outcome.reason
        assert "answer" in play(suite, [*way[:2], done], "wifi")[-1].outcome.reason
        assert not play(suite, [MOBILE.make("status", goal_status="infeasible")], "wifi")[-1].outcome.success


def test_the_step_budget_ends_an_episode():
    tasks = [{"name": "short", "goal": "Wait.", "success": {"package": "x"}, "max_steps": 2}]
    with on_device(tasks=tasks) as (suite, _):
        results = play(suite, [None, None], "short")
        assert results[1].truncated
        assert results[1].outcome.score == 0.0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tasks": [{"name": "a", "goal": "g", "success": {}}], "allow_apps": []}, "at least one of"),
        ({"tasks": [{"name": "a", "goal": "g"}], "allow_apps": []}, "success"),
        ({"tasks": [], "allow_apps": ["Nonsense"]}, "'Nonsense', allowed"),
        ({"tasks": [], "allow_apps": ["=org.example"]}, "'=org.example', allowed: Name=package"),
        ({"tasks": [], "allow_apps": ["Settings="]}, "'Settings=', allowed: Name=package"),
        ({"tasks": [], "allow_apps": ["A=org.b=c"]}, "'A=org.b=c', allowed: Name=package"),
        ({"tasks": [], "allow_apps": ["com..x"]}, "'com..x', allowed: a package"),
        (
            {"tasks": [{"name": "a", "goal": "g", "start": "Clock", "success": {"text": "x"}}], "allow_apps": []},
            "not in allow_apps",
        ),
    ],
)
def test_a_definition_that_does_not_fit_says_why(options, error):
    with pytest.raises(ConfigError, match=error):
        DeviceSuite(**options)


def test_a_definition_builds_it(tmp_path):
    (tmp_path / "tasks.yaml").write_text("tasks: [{name: wifi, goal: Look., success: {text: Wi-Fi}}]")
    options = {"serial": SERIAL, "tasks": str(tmp_path / "tasks.yaml"), "allow_apps": ["Settings"], "adb_port": 5037}
    suite = build(
        "environments", PartDefinition(kind="collab.envs.android.device:DeviceSuite", options=options), "envs/mine"
    )
    assert [info.name for info in suite.tasks()] == ["wifi"]
    assert suite.label == "device[emulator-5554]"


def test_a_device_that_is_not_there_is_named():
    with on_device() as (suite, _):
        suite._place = replace(suite._place, serial="nope")
        with pytest.raises(UsageError, match="no device 'nope'; adb devices shows: emulator-5554"):
            asyncio.run(suite.open())


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize("named", [True, False])
def test_where_no_adb_server_is_none_is_started(monkeypatch, named):
    port = free_port()
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "1" if named else str(port))
    suite = DeviceSuite(serial=SERIAL, adb_port=port if named else None, tasks=[], allow_apps=[])
    said = rf"no adb server answers at 127\.0\.0\.1:{port}; start it with: adb -P {port} start-server"
    with pytest.raises(UsageError, match=said):
        asyncio.run(suite.open())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_port_of_the_environment_that_is_none_is_named(monkeypatch):
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", "70000")
    with pytest.raises(UsageError, match="ANDROID_ADB_SERVER_PORT='70000', allowed: a port"):
        asyncio.run(DeviceSuite(tasks=[], allow_apps=[]).open())


@pytest.mark.parametrize("serial", [None, SERIAL])
def test_where_no_device_is_one_has_to_be_connected(serial):
    with serve_phones({}) as port, pytest.raises(UsageError, match=r"no device.*; connect one"):
        asyncio.run(DeviceSuite(serial=serial, adb_port=port, tasks=[], allow_apps=[]).open())


def test_a_device_that_is_lost_in_an_episode_is_a_failure():
    async def run(suite, stop):
        environment = await suite.open()
        await environment.reset(suite.instance("anything", 0))
        stop()
        await environment.step(None)

    with on_device() as (suite, handle), pytest.raises(EnvironmentFailure, match="device"):
        asyncio.run(run(suite, lambda: setattr(handle, "_phone", None)))


@pytest.fixture
def adb_starts(tmp_path, monkeypatch):
    """Says what adb was started with; adbutils starts the one that this variable names."""
    log, adb = tmp_path / "adb-starts", tmp_path / "adb"
    adb.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    adb.chmod(0o755)
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(adb))
    return lambda: log.read_text() if log.exists() else ""


@pytest.mark.parametrize("carried", [False, True])
def test_an_adb_server_that_ends_in_an_episode_is_gone_and_no_other_one_is_started(adb_starts, carried):
    async def begin(suite):
        environment = await suite.open()
        await environment.reset(suite.instance(suite.tasks()[0].name, 0))
        return environment

    with carrying() if carried else on_device() as (suite, _):
        environment = asyncio.run(begin(suite))
    said = r"the adb server has ended: no adb server answers at .*; start it with: adb -P \d+ start-server, and resume"
    for again in (environment.step(MOBILE.make("click", index=0)), environment.step(None), environment.screenshot()):
        with pytest.raises(EnvironmentGone, match=said):
            asyncio.run(again)
    asyncio.run(environment.close())
    with pytest.raises(EnvironmentGone, match=said):
        asyncio.run(suite.open())
    if carried:
        with pytest.raises(EnvironmentGone, match=said):
            suite.instance("SimpleSmsSend", 1)
    assert adb_starts() == ""


@pytest.mark.slow
def test_a_run_whose_adb_server_ends_stops_and_is_resumed_when_it_is_back(adb_starts, tmp_path):
    command = [sys.executable, "-c", "from collab.cli.main import run; run()"]

    def serve(port):
        server = subprocess.Popen([*command, "phone", "serve", "--port", port], stdout=subprocess.PIPE, text=True)
        return server, server.stdout.readline().strip().rpartition("=")[2]

    server, port = serve("0")
    log = tmp_path / "run" / "devices.log"
    options = "--env androidworld --backend device --agents rehearsal --graph single --concurrency 1 --allow-effects"
    tasks = ["--tasks", "SimpleSmsSend,ClockTimerEntry", "--allow-apps", "Simple SMS Messenger,Clock"]
    environment = os.environ | {"ANDROID_ADB_SERVER_PORT": port}
    rollout = subprocess.Popen(
        [*command, "rollout", *options.split(), *tasks, "--out", str(tmp_path / "run")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        while not (log.exists() and "step 2" in log.read_text()) and rollout.poll() is None:
            time.sleep(0.02)
    finally:
        server.kill()
        server.communicate()
    said = rollout.communicate(timeout=60)[0]
    assert rollout.returncode == 1, said
    assert "the adb server has ended" in said.splitlines()[-1]
    assert adb_starts() == ""
    server, _ = serve(port)
    try:
        resumed = subprocess.run([*command, "runs", "resume", str(tmp_path / "run")], env=environment, check=False)
    finally:
        server.kill()
        server.communicate()
    assert resumed.returncode == 0


def test_a_second_episode_at_once_is_refused():
    async def twice(suite):
        await suite.open()
        await suite.open()

    with on_device() as (suite, _), pytest.raises(UsageError, match="concurrency 1"):
        asyncio.run(twice(suite))


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "uiautomator2", None)
    with on_device() as (suite, _), pytest.raises(MissingExtra, match=r"collab-marl\[android\]"):
        asyncio.run(suite.open())


def test_unknown_tasks_are_refused():
    suite = DeviceSuite(tasks=[{"name": "wifi", "goal": "g", "success": {"text": "x"}}], allow_apps=[])
    with pytest.raises(UnknownName, match="did you mean wifi"):
        suite.instance("wify", 0)
    assert suite.label == "device[any]"
