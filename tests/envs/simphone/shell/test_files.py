"""Files from the phone's shell."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.envs.simphone.core import FACTORY, add_noise
from collab.envs.simphone.shell import run, tree
from collab.envs.simphone.state import write
from collab.seeds import generator
from tests.envs.simphone.shell.commands import SDCARD, after, out
from tests.properties import examples


def test_files_are_written_read_copied_moved_and_removed():
    phone = after("mkdir -p /sdcard/a/b && echo hello > /sdcard/a/x.txt && echo more >> /sdcard/a/x.txt")
    assert out("cat /sdcard/a/x.txt", phone) == "hello\nmore\n"
    phone = after(
        "cp -a /sdcard/a/. /sdcard/copy/; mv /sdcard/a/x.txt '/sdcard/a/b/y z.txt'", after("mkdir /sdcard/copy", phone)
    )
    assert out("find /sdcard/a /sdcard/copy -type f | sort", phone) == "/sdcard/a/b/y z.txt\n/sdcard/copy/x.txt\n"
    phone = after("rm -r /sdcard/a /sdcard/copy/*", phone)
    assert out("ls /sdcard/copy; ls -d /sdcard/a", phone) == ""


def test_a_long_listing_is_what_androidworld_reads():
    phone = write(FACTORY, f"{SDCARD}/Music/my song.mp3", "12345", changed_ms=1_697_384_040_250)
    lines = out(f"ls {SDCARD}/Music -ll -au", phone).splitlines()
    (line,) = [line for line in lines if line.startswith("-")]
    parts = line.split(None, 8)
    assert parts[4:] == ["5", "2023-10-15", "15:34:00.250000000", "+0000", "my song.mp3"]


def test_find_lists_and_deletes_as_androidworld_asks():
    phone = add_noise(generator(1))
    phone = write(phone, f"{SDCARD}/Documents/a.md", "x")
    found = out(f"find {SDCARD}/Documents -type f -o -type d", phone).splitlines()
    assert f"{SDCARD}/Documents/a.md" in found
    assert f"{SDCARD}/Documents" in found
    either = f"find {SDCARD}/Documents '(' -name a.md -o -name Documents ')'"
    assert out(f"{either} -type d", phone).splitlines() == [f"{SDCARD}/Documents"]
    assert out(f"{either} ! '(' -type d ')'", phone).splitlines() == [f"{SDCARD}/Documents/a.md"]
    assert "missing )" in run(phone, f"find {SDCARD} '(' -type f").stderr
    odd = write(phone, f"{SDCARD}/Documents/%s.md", "x")
    assert out(f"stat -c '%n %s' {SDCARD}/Documents/%s.md", odd) == f"{SDCARD}/Documents/%s.md 1\n"
    cleared = after(f"find {SDCARD}/ -mindepth 1 -type f -delete", phone)
    assert out(f"find {SDCARD} -type f", cleared) == ""
    assert out("ls /sdcard", cleared).count("\n") >= 12
    assert run(phone, "find / -delete").phone.stacks == phone.stacks


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("cat /sdcard/none", "cat: /sdcard/none: No such file or directory\n"),
        ("cat /sdcard", "cat: /sdcard: Is a directory\n"),
        ("rm /sdcard/none", "rm: /sdcard/none: No such file or directory\n"),
        ("rm /sdcard/Music", "rm: /sdcard/Music: is directory\n"),
        ("mkdir /sdcard/a/b", "mkdir: '/sdcard/a/b': No such file or directory\n"),
        ("mkdir /sdcard/Music", "mkdir: '/sdcard/Music': File exists\n"),
        ("mkdir /system/x", "mkdir: '/system/x': Read-only file system\n"),
        ("ls /none", "ls: /none: No such file or directory\n"),
        ("cd /none", "/system/bin/sh: cd: /none: No such file or directory\n"),
        ("echo x > /none/y", "/system/bin/sh: can't create /none/y: Read-only file system\n"),
        ("echo x > /sdcard/none/y", "/system/bin/sh: can't create /sdcard/none/y: No such file or directory\n"),
        ("cat < /sdcard/none", "/system/bin/sh: can't open /sdcard/none: No such file or directory\n"),
        ("mv /sdcard/none /sdcard/x", "mv: bad '/sdcard/none': No such file or directory\n"),
        ("[ a -eq b ]", "/system/bin/sh: test: a: bad number\n"),
    ],
)
def test_failures_are_told_in_the_systems_words(command, error):
    result = run(FACTORY, command)
    assert result.stderr == error
    assert result.exit_code != 0


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/sdcard/../../../etc/passwd",
        "../../../../etc/passwd",
        "/proc/self/environ",
        "/storage/../etc/hosts",
    ],
)
def test_no_path_leaves_the_phone(path):
    assert run(FACTORY, f"cat {path}").exit_code == 1
    assert not run(FACTORY, f"[ -e {path} ]").stdout
    assert run(FACTORY, f"echo x > {path}").exit_code == 1


@given(st.binary(max_size=300))
@settings(max_examples=examples(100), deadline=None)
def test_files_keep_their_bytes(data):
    path = f"{SDCARD}/Download/x"
    assert tree.read_bytes(tree.write_bytes(FACTORY, path, data), path) == data


def test_normal_paths_have_no_aliases_and_end_at_the_root():
    assert tree.normalise("../../..", "/sdcard") == "/"
    assert tree.normalise("//sdcard//Music/./x/..") == f"{SDCARD}/Music"
    assert tree.normalise("Music", "/sdcard") == f"{SDCARD}/Music"
    assert tree.normalise("/data/user/0/org.x") == "/data/data/org.x"
