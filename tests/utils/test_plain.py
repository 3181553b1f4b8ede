"""Links, pipes, sockets and devices among received files are refused by name: none waits, none leads elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.utils.files import NotPlain, check_folders, list_foreign_entries, open_plain, read_plain

SECRET = "a line that nobody was to see"
LIBRARY = str(Path(__file__).parents[1] / "cli" / "library")


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """What waits for a pipe is ended, and the test with it."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(90)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def _pipe(path: Path, target: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, target: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made, contextlib.chdir(path.parent):
        made.bind(path.name)


KINDS = {"a link": _link, "a pipe": _pipe, "a socket": _socket}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("recorded") / "run"
    command = ["rollout", "--env", "corridor", "--agents", "rehearsal", "--library", LIBRARY, "--episodes", "2"]
    assert main([*command, "--out", str(run)]) == 0
    assert main(["pairs", "rebuild", str(run)]) == 0
    return run


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file of the user's own that a link leads to."""
    made = tmp_path / "mine.txt"
    made.write_text(SECRET)
    return made


PLACES = [
    "run.json",
    "lock",
    "index.sqlite",
    "events/SEGMENT",
    "events/0009-ab.jsonl",
    "events",
    "blobs",
    "devices.log",
]
PLACES += [
    "labels/oracle/label.json",
    "pairs/oracle/pairs.jsonl",
    "pairs/lock",
    "labels",
    "labels/oracle/events",
    "odd",
]
CASES = [("a link", place) for place in PLACES]
CASES += [
    ("a pipe", "events/0009-ab.jsonl"),
    ("a pipe", "run.json"),
    ("a pipe", "lock"),
    ("a socket", "events/SEGMENT"),
]
COMMANDS = [["runs", "show"], ["runs", "resume"], ["pairs", "rebuild"]]


@pytest.mark.variations
@pytest.mark.parametrize(("what", "place"), CASES)
def test_a_received_run_is_refused_by_the_name_of_what_is_no_file(
    recorded: Path, tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], what: str, place: str
) -> None:
    run = shutil.copytree(recorded, tmp_path / "runs" / "run")
    shutil.copytree(recorded, tmp_path / "runs" / "other")
    path = run / place.replace("SEGMENT", min((run / "events").iterdir()).name)
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    KINDS[what](path, target if path.suffix or path.name == "lock" else tmp_path)
    for command in COMMANDS:
        capsys.readouterr()
        assert main([*command, str(run)]) == 2, command
        shown = capsys.readouterr()
        assert f"{path}: is " in shown.err
        assert SECRET not in shown.out + shown.err
        assert len(shown.err.splitlines()) == 1
    assert target.read_text() == SECRET
    assert main(["runs", "list", str(tmp_path / "runs")]) == 0
    shown = capsys.readouterr()
    assert "runs/other" in shown.out
    assert f"skipped: {path}: is {what}" in shown.err or path.name == "run.json"


@pytest.mark.parametrize(
    "file", ["training.json", "transfer.json", "finetune.json", "synth.json", "calibration.json", "lock"]
)
@pytest.mark.parametrize("what", KINDS)
def test_what_else_is_recorded_is_refused_too(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], file: str, what: str
) -> None:
    folder = tmp_path / "received"
    folder.mkdir()
    if file == "lock":
        (folder / "training.json").write_text('{"format": 3, "config": {}}')
    KINDS[what](folder / file, target)
    names = {"synth.json": ["synth", "--resume"], "calibration.json": ["critic", "calibrate", "--resume"]}
    command = names.get(file, ["runs", "resume"])
    assert main([*command, str(folder)]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 1
    assert file == "lock" or f"{file}: " in shown
    assert SECRET not in shown
    assert target.read_text() == SECRET


def test_a_lock_that_is_a_link_overwrites_nothing(tmp_path: Path, target: Path) -> None:
    from collab.errors import RunFormatError
    from collab.store.run_dir import RunLock, find_owner

    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(RunFormatError, match="lock: is a link"):
        RunLock(tmp_path)
    assert find_owner(tmp_path) is None
    assert target.read_text() == SECRET


@pytest.mark.parametrize("what", KINDS)
def test_files_of_a_library(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prompt = shutil.copytree(Path(__file__).parents[2] / "prompts" / "default", tmp_path / "own" / "prompts" / "mine")
    (prompt / "system.jinja").unlink()
    KINDS[what](prompt / "system.jinja", target)
    (tmp_path / "own" / "agents").mkdir()
    (tmp_path / "own" / "agents" / "mine.yaml").write_text("kind: rehearsal\nprompt: mine\n")
    KINDS[what](tmp_path / "own" / "agents" / "odd.yaml", target)
    (tmp_path / "own" / "envs").mkdir()
    text = "backend: w\nbackends: {w: {kind: web, options: {tasks: tasks.txt}}}\n"
    (tmp_path / "own" / "envs" / "page.yaml").write_text(text)
    KINDS[what](tmp_path / "own" / "envs" / "tasks.txt", target)
    for arguments, name in (
        (["--agents", "mine"], "system.jinja"),
        (["--agents", "odd"], "odd.yaml"),
        (["--env", "page"], "tasks.txt"),
    ):
        assert main(["rollout", "--episodes", "1", "--library", "own", *arguments]) == 2
        shown = capsys.readouterr().err
        assert name in shown
        assert what in shown or name == "tasks.txt"
        assert SECRET not in shown


def test_plain_files_are_read_and_folders_checked(tmp_path: Path, target: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "file").write_bytes(b"12345")
    assert read_plain(inside / "file", limit=5, within=tmp_path) == b"12345"
    with pytest.raises(OSError, match="longer than 4 bytes"):
        read_plain(inside / "file", limit=4)
    with pytest.raises(NotPlain, match="is a device"):
        open_plain(Path("/dev/zero"))
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    with pytest.raises(NotPlain, match="is a link"):
        check_folders(tmp_path / "linked" / "b", tmp_path)
    assert list_foreign_entries(tmp_path) == [(tmp_path / "linked", "a link")]
    with open_plain(tmp_path / "linked" / "b" / "file", within=tmp_path / "linked") as file:
        assert file.read() == b"12345"
