"""`collab phone serve` in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import adbutils

ADB = Path(adbutils.__file__).parent / "binaries" / "adb"


def test_it_serves_until_it_is_interrupted_and_tells_the_score():
    arguments = ["phone", "serve", "--phones", "2", "--task", "SystemWifiTurnOff", "--seed", "3"]
    command = [sys.executable, "-c", "from collab.cli.main import run; run()", *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip().removeprefix("export ANDROID_ADB_SERVER_PORT=")
        assert "Wi-Fi" in server.stdout.readline()
        assert server.stdout.readline().startswith("# emulator-5556: ")
        adb = [str(ADB), "-P", port, "-s", "emulator-5556", "shell", "svc", "wifi", "disable"]
        assert subprocess.run(adb, timeout=20, check=False).returncode == 0
        server.send_signal(signal.SIGINT)
        rest, _ = server.communicate(timeout=20)
    finally:
        server.kill()
    assert server.returncode == 0
    assert rest == ("emulator-5554: SystemWifiTurnOff holds to 0%\nemulator-5556: SystemWifiTurnOff holds to 100%\n")


def test_an_app_from_outside_is_served_with_its_tasks():
    apps = Path(__file__).parents[3] / "fixtures" / "apps"
    arguments = ["phone", "serve", "--app", "pantry", "--task", "PantryAddJar"]
    command = [sys.executable, "-c", "from collab.cli.main import run; run()", *arguments]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(apps)})
    try:
        port = server.stdout.readline().strip().removeprefix("export ANDROID_ADB_SERVER_PORT=")
        assert "Pantry" in server.stdout.readline()
        adb = [str(ADB), "-P", port, "-s", "emulator-5554", "shell"]
        listed = subprocess.run([*adb, "pm list packages -3"], timeout=20, check=True, capture_output=True, text=True)
        assert "package:org.example.pantry" in listed.stdout
        database = "/data/data/org.example.pantry/databases/pantry.db"
        count = [*adb, f"sqlite3 {database} 'SELECT count(*) FROM jars'"]
        assert subprocess.run(count, timeout=20, check=True, capture_output=True, text=True).stdout == "3\n"
        server.send_signal(signal.SIGINT)
        rest, _ = server.communicate(timeout=20)
    finally:
        server.kill()
    assert rest == "emulator-5554: PantryAddJar holds to 0%\n"
