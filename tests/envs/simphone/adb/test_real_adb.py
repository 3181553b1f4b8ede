"""The real adb binary drives SimPhone."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import adbutils
import pytest

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.envs.simphone.content.messages import SMS_DATABASE

ADB = Path(adbutils.__file__).parent / "binaries" / "adb"
SERIAL = "emulator-5554"


class Adb:
    def __init__(self, port, phones):
        self.port, self.phones = port, phones

    def __call__(self, *args, stdin=None, serial=SERIAL):
        which = ["-s", serial] if serial else []
        return subprocess.run(
            [str(ADB), "-P", str(self.port), *which, *args], capture_output=True, input=stdin, timeout=20, check=False
        )


@pytest.fixture
def adb():
    phones = {SERIAL: PhoneHandle(), "emulator-5556": PhoneHandle()}
    with serve_phones(phones) as port:
        yield Adb(port, phones)


def test_devices_are_listed(adb):
    assert b"emulator-5554\tdevice\nemulator-5556\tdevice\n" in adb("devices", serial=None).stdout
    assert b"model:SimPhone" in adb("devices", "-l", serial=None).stdout
    assert adb("get-state").stdout == b"device\n"
    assert adb("wait-for-device").returncode == 0


def test_shell_keeps_output_errors_and_exit_code_apart(adb):
    done = adb("shell", "echo out; nosuch; echo more")
    assert (done.stdout, done.returncode) == (b"out\nmore\n", 0)
    assert done.stderr == b"/system/bin/sh: nosuch: inaccessible or not found\n"
    assert adb("shell", "nosuch").returncode == 127


def test_a_terminal_runs_line_after_line(adb):
    done = adb("shell", stdin=b"cd /sdcard\nls /sdcard/Music\nsettings put global wifi_on 0\nexit 3\n")
    assert done.returncode == 3
    assert adb.phones[SERIAL].phone.settings["global/wifi_on"] == "0"
    assert adb.phones["emulator-5556"].phone.settings["global/wifi_on"] == "1"


def test_an_unknown_or_missing_serial_is_refused(adb):
    assert b"device 'nope' not found" in adb("shell", "ls", serial="nope").stderr
    assert b"more than one device/emulator" in adb("shell", "ls", serial=None).stderr


def test_files_come_back_as_they_were_pushed(adb, tmp_path):
    source = tmp_path / "bytes.bin"
    source.write_bytes(bytes(range(256)) * 700)
    assert adb("push", str(source), "/sdcard/Download/bytes.bin").returncode == 0
    assert adb("pull", "/sdcard/Download/bytes.bin", str(tmp_path / "back.bin")).returncode == 0
    assert (tmp_path / "back.bin").read_bytes() == source.read_bytes()


def test_folders_are_pushed_and_pulled(adb, tmp_path):
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "a ü.txt").write_text("one")
    (folder / "deep" / "b.txt").write_text("two 🎉")
    assert adb("push", str(folder), "/sdcard/Documents/").returncode == 0
    assert adb("pull", "/sdcard/Documents/notes", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back" / "a ü.txt").read_text() == "one"
    assert (tmp_path / "back" / "deep" / "b.txt").read_text() == "two 🎉"


def test_files_outside_the_phone_can_neither_be_read_nor_written(adb, tmp_path):
    source = tmp_path / "x"
    source.write_text("x")
    target = tmp_path / "made-by-push"
    assert b"Read-only file system" in adb("push", str(source), str(target)).stderr
    assert not target.exists()
    assert adb("pull", "/../../../../etc/passwd", str(tmp_path / "passwd")).returncode != 0
    assert adb("shell", "cat /etc/passwd").returncode == 1


def test_a_broken_database_is_made_anew(adb, tmp_path):
    broken = tmp_path / "mmssms.db"
    broken.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    adb("shell", "content insert --uri content://sms --bind address:s:1 --bind body:s:x")
    assert adb("shell", "content query --uri content://sms").stdout.startswith(b"Row: 0 _id=1, ")
    assert adb("push", str(broken), SMS_DATABASE).returncode == 0
    assert adb("shell", "content query --uri content://sms").stdout == b"No result found.\n"
    assert adb("pull", SMS_DATABASE, str(tmp_path / "new.db")).returncode == 0
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        assert connection.execute("SELECT count(*) FROM sms").fetchone() == (0,)


def test_a_screenshot_is_a_png_of_the_screen(adb):
    picture = adb("exec-out", "screencap", "-p").stdout
    assert picture.startswith(b"\x89PNG")
    assert picture[16:24] == (1080).to_bytes(4, "big") + (2400).to_bytes(4, "big")


def test_the_server_does_not_stop_and_the_phone_does_not_reboot(adb):
    assert b"SimPhone" in adb("kill-server", serial=None).stderr
    assert adb("reboot").returncode != 0
    assert adb("root").stdout == b"adbd is already running as root\n"
    assert adb("get-state").returncode == 0
