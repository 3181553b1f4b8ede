"""An app from another package: it is played, judged, rebuilt and reached over adb's shell like a built-in one."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from collab.config import PartDefinition
from collab.envs.base import HasOracle
from collab.envs.check import FRESH_PROCESS, check_env
from collab.envs.grammar import MOBILE
from collab.envs.simphone.shell import run, tree
from collab.envs.simphone.suite import PhoneEnvironment, SimPhoneSuite
from collab.errors import ConfigError
from collab.rollout.build import build

APPS = Path(__file__).parents[2] / "fixtures" / "apps"
DATABASE = "/data/data/org.example.pantry/databases/pantry.db"


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder with the example app can be imported from, here and in processes started here."""
    monkeypatch.syspath_prepend(str(APPS))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(APPS), os.environ.get("PYTHONPATH", ""))))


def opened(seed: int = 0) -> PhoneEnvironment:
    suite = SimPhoneSuite(apps=["pantry"])
    environment = asyncio.run(suite.open())
    asyncio.run(environment.reset(suite.instance("PantryAddJar", seed)))
    return environment


def touch(environment: PhoneEnvironment, key: str, type: str = "click", **fields: str) -> None:
    index = environment.core.frame.index(f"org.example.pantry:id/{key}")
    asyncio.run(environment.step(MOBILE.make(type, index=index, **fields)))


@pytest.mark.usefixtures("importable")
def test_the_app_keeps_every_promise() -> None:
    suite = SimPhoneSuite(apps=["pantry"])
    report = asyncio.run(check_env(suite, tasks=["PantryAddJar"], seeds=(0, 1, 2), options={"apps": ["pantry"]}))
    assert report.ok, report.failures
    claims = {finding.claim: finding.status for finding in report.findings}
    assert claims["oracle"] == claims[FRESH_PROCESS] == "passed"


@pytest.mark.usefixtures("importable")
def test_the_oracle_mends_what_somebody_has_done_wrong() -> None:
    environment = opened()
    assert isinstance(environment, HasOracle)
    asyncio.run(environment.step(MOBILE.make("open_app", app_name="Pantry")))
    touch(environment, "add")
    touch(environment, "name", "input_text", text="Something else")
    touch(environment, "save")
    assert environment.core.phone.notice == "Jar added"
    solution = environment.oracle()
    assert solution is not None
    results = [asyncio.run(environment.step(action)) for action in solution]
    assert results[-1].outcome is not None
    assert results[-1].outcome.success


@pytest.mark.usefixtures("importable")
def test_the_shell_sees_its_package_and_its_database() -> None:
    phone = opened().core.phone
    assert "package:org.example.pantry\n" in run(phone, "pm list packages").stdout
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(tree.read_bytes(phone, DATABASE))
        connection.execute("INSERT INTO jars VALUES (9, 'Sago', NULL)")
        connection.commit()
        changed = connection.serialize()
    phone = tree.write_bytes(phone, DATABASE, changed)
    started = run(phone, "monkey -p org.example.pantry 1").phone
    assert started.foreground == "org.example.pantry"
    assert run(started, f"sqlite3 {DATABASE} 'SELECT name FROM jars WHERE _id = 9'").stdout == "Sago\n"


@pytest.mark.usefixtures("importable")
def test_other_phones_do_not_have_it() -> None:
    opened()
    plain = asyncio.run(SimPhoneSuite().open()).core.phone
    assert "pantry" not in plain.apps.by_name
    assert DATABASE not in plain.apps.tables
    assert SimPhoneSuite().label == "androidworld[simphone]"


@pytest.mark.usefixtures("importable")
def test_results_and_recorded_episodes_name_it() -> None:
    with_it, without = SimPhoneSuite(apps=["pantry"]), SimPhoneSuite()
    assert with_it.label == "androidworld[simphone+pantry]"
    assert with_it.version == f"{without.version}+org.example.pantry-1"


@pytest.mark.slow
def test_it_is_named_in_a_definition() -> None:
    command = [sys.executable, "-c", "from collab.cli.main import run; run()", "env", "tasks", "kitchen", "--json"]
    for asked, count in (((), 1), (("--tasks", "all"), 89)):  # its file names one task
        done = subprocess.run(
            [*command, *asked, "--library", str(APPS / "library")],
            env=os.environ | {"PYTHONPATH": str(APPS)},
            capture_output=True,
            text=True,
            check=True,
        )
        tasks = {task["name"]: task for task in json.loads(done.stdout)["tasks"]}
        assert tasks["PantryAddJar"]["oracle"]
        assert len(tasks) == count


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("no_such_app", "the app 'no_such_app' cannot be imported: .*PYTHONPATH"),
        ("json", "json has no APP of type .*, got None"),
        ("", "the app '' cannot be imported"),
    ],
)
def test_what_is_no_app_is_refused_in_one_line(module: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build("environments", PartDefinition(kind="simphone", options={"apps": [module]}), "envs/mine")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("importable")
def test_apps_and_tasks_that_clash_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import pantry

    with pytest.raises(ConfigError, match=r"table 'jars of .*' *|package 'org\.example\.pantry'"):
        SimPhoneSuite(apps=["pantry", "pantry"])
    twin = SimpleNamespace(APP=dataclasses.replace(pantry.APP, package="org.example.twin", tables=()), TASKS=[])
    monkeypatch.setitem(sys.modules, "twin", twin)
    with pytest.raises(ConfigError, match="two apps of one phone have the name 'pantry'"):
        SimPhoneSuite(apps=["pantry", "twin"])
    other = SimpleNamespace(APP=pantry.APP, TASKS=[dataclasses.replace(pantry.TASKS[0], name="SystemWifiTurnOn")])
    monkeypatch.setitem(sys.modules, "other", other)
    with pytest.raises(ConfigError, match="two tasks are called 'SystemWifiTurnOn'"):
        SimPhoneSuite(apps=["other"])
    monkeypatch.setitem(sys.modules, "wrong", SimpleNamespace(APP=pantry.APP, TASKS=["PantryAddJar"]))
    with pytest.raises(ConfigError, match="TASKS of wrong must be a list of TaskSpec"):
        SimPhoneSuite(apps=["wrong"])


CHORES = """
from dataclasses import replace
from collab.envs.simphone.tasks import BY_NAME

TASKS = [replace(BY_NAME["SystemWifiTurnOff"], name="ChoresWifi", wave=2)]
"""


def test_a_package_may_bring_tasks_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chores.py").write_text(CHORES)
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = SimPhoneSuite(apps=["chores"])
    infos = {info.name: info for info in suite.tasks()}
    assert infos["ChoresWifi"].tags == ("settings",)  # no portion of AndroidWorld's
    assert infos["SystemWifiTurnOff"].tags == ("wave-1", "settings")
    assert suite.label == "androidworld[simphone+chores]"
    assert suite.version == f"{SimPhoneSuite().version}+chores-1"
    report = asyncio.run(check_env(suite, tasks=["ChoresWifi"], seeds=(0,), options={"apps": ["chores"]}))
    assert report.ok, report.failures
