"""Playing on devices from the command line."""

import json
from pathlib import Path

import pytest

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones

SERIAL = "emulator-5554"
SURE = ["--agents", "rehearsal", "--set", "agents.*.options={error_base: 0, error_slope: 0}"]
PLAYED = ["--graph", "single", "--tasks", "SystemWifiTurnOff,OpenAppTaskEval", "--json"]


@pytest.fixture
def collab(run_command, monkeypatch, tmp_path):
    """Runs a command in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.delenv("COLLAB_LIBRARY", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("collab.envs.android.device_guard.TERMINAL", tmp_path / "none" / "tty")
    return run_command


def outcomes(result):
    code, out, err = result
    assert code == 0, err
    found = json.loads(out)
    return {one["id"]: (one["seed"], one["success"], one["steps"]) for one in found["episodes"]}, found["environment"]


def on_phone(port):
    options = "environment.backends.device.options"
    return [*("--backend", "device"), *("--set", f"{options}.adb_port={port}"), *("--set", f"{options}.settle_s=0")]


ALLOWED = ["--serial", SERIAL, "--allow-apps", "Settings,Simple SMS Messenger", "--allow-apps", "Camera,Clock,Contacts"]


@pytest.mark.slow
def test_a_device_gives_the_results_of_the_python_face(collab):
    command = ["eval", "--env", "androidworld", *SURE, *PLAYED]
    here, label = outcomes(collab(*command))
    assert label == "androidworld[simphone]"
    assert [success for _, success, _ in here.values()] == [True, True]
    with serve_phones({SERIAL: PhoneHandle(), "emulator-5556": PhoneHandle()}) as port:
        there, label = outcomes(collab(*command, *on_phone(port), *ALLOWED, "--allow-effects"))
    assert label == "androidworld[device emulator-5554]"
    assert there == here
    (log,) = Path("runs").glob("*/devices.log")
    lines = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
    assert 'androidworld[device emulator-5554] step 1: open the app "settings"' in lines
    assert lines[-1].endswith("declare the task complete")
    assert len(lines) == sum(steps for _, _, steps in there.values())


@pytest.mark.slow
def test_without_allow_effects_nothing_is_sent(collab):
    handle = PhoneHandle()
    with serve_phones({SERIAL: handle}) as port:
        command = ["eval", "--env", "androidworld", *SURE, *PLAYED, "--tasks", "SimpleSmsSend"]
        code, out, err = collab(*command, *on_phone(port), *ALLOWED, "--set", "environment.limits.max_steps=9")
    assert code == 0, err
    solved = {one["id"]: one["success"] for one in json.loads(out)["episodes"]}
    assert solved["SystemWifiTurnOff/0"]
    assert " WARNING androidworld[device emulator-5554] step" in next(Path("runs").glob("*/devices.log")).read_text()
    assert not solved["SimpleSmsSend/0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--serial", "x"], "--serial means nothing to the backend simphone of androidworld; it is for: device"),
        (["--allow-apps", "Clock"], "--allow-apps means nothing to the backend simphone"),
        (["--backend", "emulator", "--allow-effects"], "--allow-effects means nothing to the backend emulator"),
        (["--env", "web", "--serial", "x"], "of web; it is for: none of its backends"),
        (["--backend", "emulator"], "no Python with AndroidWorld was given; name it in"),
        (["--backend", "device", "--allow-apps", "Clok"], "allow_apps: 'Clok', allowed: a package, Name=package"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(collab, arguments, words):
    code, out, err = collab("rollout", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_server_that_is_not_there_is_said_in_one_line(collab):
    url = "environment.backends.http.options.url=http://127.0.0.1:1"
    code, _, err = collab("rollout", "--backend", "http", "--set", url)
    assert code == 2
    assert "androidworld[http]: GET /health at http://127.0.0.1:1" in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_secret_that_a_reply_repeats_is_in_no_file_of_the_run(collab, monkeypatch, tmp_path):
    """Neither in what is recorded nor in the log of what was done on the device."""
    secret = "correct-horse-battery"
    monkeypatch.setenv("MY_SERVICE_KEY", secret)
    agents = tmp_path / "library" / "agents" / "parrot.yaml"
    agents.parent.mkdir(parents=True)
    action = json.dumps({"action_type": "open_app", "app_name": secret})
    agents.write_text(f"kind: scripted\noptions:\n  replies: ['Reason: told to. Action: {action}']\n")
    command = ["rollout", "--env", "androidworld", "--agents", "parrot", "--graph", "single", "--out", "run"]
    command += ["--tasks", "SystemWifiTurnOff", "--library", str(agents.parents[1])]
    with serve_phones({SERIAL: PhoneHandle()}) as port:
        code, _, err = collab(*command, *on_phone(port), *ALLOWED, "--allow-effects")
    assert code == 0, err
    assert "[redacted]" in Path("run/devices.log").read_text()
    written = [path for path in Path("run").rglob("*") if path.is_file()]
    assert [path for path in written if secret.encode() in path.read_bytes()] == []
