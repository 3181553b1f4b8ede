"""The helper with AndroidWorld itself; in place of the emulator stands SimPhone behind AndroidWorld's face."""

import asyncio
import os
import random
import socket
import sys
from pathlib import Path

import pytest

from collab.envs.android.androidworld import BUDGETS
from collab.envs.android.emulator import EmulatorSuite
from collab.envs.grammar import MOBILE
from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.seeds import Seeds

PACKAGE = os.environ.get("COLLAB_ANDROIDWORLD_PACKAGE")
PYTHON = os.environ.get("COLLAB_ANDROIDWORLD_PYTHON") or f"{PACKAGE}/.venv/bin/python"
CLIENT = Path(__file__).parents[3] / "collab" / "envs" / "simphone" / "conformance" / "client"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PACKAGE is None, reason="set COLLAB_ANDROIDWORLD_PACKAGE to AndroidWorld's source code"),
]

ON_SIMPHONE = """\
import runpy, sys
sys.path[:0] = [{package!r}, {client!r}]
from android_world.env import env_launcher
import simphone_env
def launch(console_port, grpc_port, adb_path, emulator_setup, freeze_datetime):
    return simphone_env.connect({port}, "emulator-5554")
launch.__signature__ = __import__("inspect").signature(env_launcher.load_and_setup_env)
env_launcher.load_and_setup_env = launch
runpy.run_path(sys.argv[-1], run_name="__main__")
"""


def test_tasks_budgets_and_instances_are_androidworlds():
    suite = EmulatorSuite(python=Path(PYTHON), package=Path(PACKAGE))
    try:
        infos = suite.tasks()
        assert {info.name: (info.max_steps, info.difficulty) for info in infos} == BUDGETS
        task = suite.instance("ContactsAddContact", Seeds(30).task("ContactsAddContact", 0))
        assert (task.params["name"], task.params["number"]) == ("Hugo Pereira", "+13920741751")
        assert task.params["name"] in task.goal
        seeds = [random.Random(number).randrange(2**32) for number in range(3)]
        for info in infos:
            drawn = [suite.instance(info.name, seed) for seed in (*seeds, seeds[0])]
            assert drawn[0] == drawn[3]
            assert all(one.goal for one in drawn)
    finally:
        asyncio.run(suite.close())


@pytest.fixture
def on_simphone(tmp_path):
    """A suite whose Python puts a SimPhone in the emulator's place; nothing else of AndroidWorld is changed."""
    with (
        serve_phones({"emulator-5554": PhoneHandle()}) as port,
        socket.create_server(("127.0.0.1", 0)) as console,
        socket.create_server(("127.0.0.1", 0)) as grpc,
    ):
        (tmp_path / "start.py").write_text(ON_SIMPHONE.format(package=PACKAGE, client=str(CLIENT), port=port))
        (tmp_path / "python").write_text(f'#!/bin/sh\nexec {PYTHON} -u {tmp_path}/start.py "$@"\n')
        (tmp_path / "python").chmod(0o755)
        ports = {"console_port": console.getsockname()[1], "grpc_port": grpc.getsockname()[1]}
        suite = EmulatorSuite(python=tmp_path / "python", adb_path=sys.executable, **ports)
        yield suite
        asyncio.run(suite.close())


def test_androidworld_sets_up_executes_and_judges(on_simphone):
    suite = on_simphone
    task = suite.instance("SystemWifiTurnOff", 5)
    done = MOBILE.make("status", goal_status="complete")

    async def run():
        environment = await suite.open()
        await environment.reset(task)
        idle = (await environment.step(done)).outcome
        observation = await environment.reset(task)
        assert 'app "Settings"' in observation.text
        result = await environment.step(MOBILE.make("open_app", app_name="settings"))
        for label in ("Network & internet", "Internet"):
            index = next(one.index for one in result.observation.elements if one.label == label)
            result = await environment.step(MOBILE.make("click", index=index))
        switch = next(one for one in result.observation.elements if one.role == "switch")
        assert "checked" in switch.flags
        await environment.step(MOBILE.make("click", index=switch.index))
        assert (await environment.screenshot()).startswith(b"\x89PNG")
        return idle, (await environment.step(done)).outcome

    idle, solved = asyncio.run(run())
    assert (idle.success, idle.score) == (False, 0.0)
    assert (solved.success, solved.score) == (True, 1.0)
