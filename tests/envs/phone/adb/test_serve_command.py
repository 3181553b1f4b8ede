"""`collab phone serve` in a process of its own."""

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
