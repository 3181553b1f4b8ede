"""The judge's process: what it answers, how it fails, and its client's own parts."""

import dataclasses
import importlib.util
import sys
import types

import pytest

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.envs.simphone.conformance import fidelity as judge_module
from collab.envs.simphone.conformance.fidelity import CLIENT, JudgeRefusal, start_judge
from collab.errors import EnvironmentFailure, UsageError

FAKE = """
import json, sys, time
print(json.dumps({"ok": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "raise":
        print(json.dumps({"ok": False, "error": "ValueError: no"}), flush=True)
    elif asked["do"] == "die":
        sys.exit("out of luck")
    elif asked["do"] == "hang":
        time.sleep(60)
    else:
        print(json.dumps({"ok": True, "score": 0.5, "asked": asked}), flush=True)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Opens a judge whose process only plays one."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setattr(judge_module, "CLIENT", script)
    package = tmp_path / "package"
    (package / "android_world").mkdir(parents=True)
    (package / "android_world" / "registry.py").touch()
    return lambda: start_judge(sys.executable, package, port=1, serial="emulator-5554", log=tmp_path / "log")


def test_requests_are_answered(fake):
    with fake() as judge:
        reply = judge.ask("score", task="ä")
        assert (reply["score"], reply["asked"]) == (0.5, {"do": "score", "task": "ä"})
        with pytest.raises(JudgeRefusal, match="ValueError: no"):
            judge.ask("raise")
        assert judge.ask("score")["ok"]  # a refusal does not end it


def test_a_process_that_dies_is_told_with_its_last_words(fake):
    with fake() as judge:
        with pytest.raises(EnvironmentFailure, match="'die': out of luck"):
            judge.ask("die")
        with pytest.raises(EnvironmentFailure, match="'score'"):
            judge.ask("score")


def test_a_process_that_hangs_is_ended(fake, monkeypatch):
    with fake() as judge:
        monkeypatch.setattr(judge_module, "TIMEOUT_S", 0.2)
        with pytest.raises(EnvironmentFailure, match="'hang': it said nothing"):
            judge.ask("hang")


def test_a_missing_package_or_interpreter_is_named(fake, tmp_path):
    with pytest.raises(UsageError, match=r"no android_world/registry\.py in .*nowhere"):
        start_judge(sys.executable, tmp_path / "nowhere", port=1, serial="x", log=tmp_path / "log").__enter__()
    with pytest.raises(UsageError, match=r"interpreter .*nopython: No such file"):
        start_judge(tmp_path / "nopython", tmp_path / "package", port=1, serial="x", log=tmp_path / "log").__enter__()


def test_an_interpreter_without_androidworlds_packages_says_what_it_misses(tmp_path):
    package = tmp_path / "android_world"
    package.mkdir()
    (package / "registry.py").touch()
    with pytest.raises(EnvironmentFailure, match="'start-up': ModuleNotFoundError"):
        start_judge(sys.executable, tmp_path, port=1, serial="x", log=tmp_path / "log").__enter__()


# ---------------------------------------------------------------------------------------------------- its client


def module(name):
    """A file of the client, as its own interpreter would load it."""
    spec = importlib.util.spec_from_file_location(name, CLIENT.parent / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@dataclasses.dataclass
class Row:
    name: str
    amount: int


def test_rows_become_plain_values():
    plain = module("simphone_judge").to_plain
    assert plain({"rows": [Row("a", 1)], "n": (2, None), "on": True}) == {
        "rows": [{"name": "a", "amount": 1}],
        "n": [2, None],
        "on": True,
    }
    with pytest.raises(TypeError, match="a parameter is a set"):
        plain({"bad": {1}})


class AdbControllerError(Exception):
    pass


@pytest.fixture
def adb(monkeypatch):
    """The client's adb on a served phone; android_env's error stands in for its package."""
    errors = types.SimpleNamespace(AdbControllerError=AdbControllerError)
    monkeypatch.setitem(sys.modules, "android_env", types.ModuleType("android_env"))
    components = types.ModuleType("android_env.components")
    components.errors = errors
    monkeypatch.setitem(sys.modules, "android_env.components", components)
    handle = PhoneHandle()
    with serve_phones({"emulator-5554": handle}) as port:
        yield module("simphone_adb").AdbClient(port, "emulator-5554"), handle


def test_the_client_speaks_adb(adb, tmp_path):
    client, handle = adb
    assert client.execute_command(["shell", "echo", "one;", "echo", "two"]) == b"one\ntwo\n"
    assert client.execute_command(["root"]).startswith(b"adbd is already running as root")
    assert client.execute_command(["emu", "sms", "send", "+15550001", "Hi there"]) == b"OK\n"
    assert b"body=Hi there" in client.shell("content query --uri content://sms/inbox")
    data = bytes(range(256)) * 600  # more than two chunks
    (tmp_path / "sent").write_bytes(data)
    client.execute_command(["push", str(tmp_path / "sent"), "/sdcard/Download/a b.bin"])
    client.execute_command(["pull", "/sdcard/Download/a b.bin", str(tmp_path / "got")])
    assert (tmp_path / "got").read_bytes() == data
    client.shell("svc wifi disable")
    assert handle.phone.settings["global/wifi_on"] == "0"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["shell", "nosuch"], "inaccessible or not found"),
        (["shell", "false"], "adb shell false"),
        (["pull", "/sdcard/none", "{tmp}/x"], "No such file"),
        (["push", "{tmp}/log", "/system/x"], "Read-only file system"),
        (["install", "x.apk"], "no such service"),
    ],
)
def test_what_fails_raises_as_android_envs_own_controller_does(adb, tmp_path, args, said):
    (tmp_path / "log").touch()
    with pytest.raises(AdbControllerError, match=said):
        adb[0].execute_command([arg.replace("{tmp}", str(tmp_path)) for arg in args])


def test_a_server_that_is_gone_and_a_wrong_serial_are_told(adb):
    client, _ = adb
    with pytest.raises(AdbControllerError, match="device 'other' not found"):
        type(client)(client._port, "other").shell("true")
    with pytest.raises(AdbControllerError, match="adb server on port 1"):
        type(client)(1, "emulator-5554").shell("true")
