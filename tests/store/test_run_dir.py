"""New directories: whole or free after a kill at any moment, and made by one process alone."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.errors import UsageError
from collab.store.run_dir import check_free, is_free, new_directory

LIBRARY = str(Path(__file__).parents[1] / "cli" / "library")
ROLLOUT = ["rollout", "--env", "corridor", "--agents", "rehearsal", "--episodes", "1", "--library", LIBRARY, "--out"]


def in_a_child(life: Callable[[], int]) -> int:
    """Run something in a forked process; its exit code, -N when signal N ended it."""
    child = os.fork()
    if not child:
        code = 70
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.dup2(2, 1)
            code = life()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(directory: Path, number: int) -> None:
    """Kill this process before its Nth operation on files in a directory."""
    left = number

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.remove") and str(arguments[0]).startswith(str(directory)):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)


@pytest.mark.slow
def test_a_rollout_killed_before_its_head_is_there_can_be_begun_again(tmp_path: Path, capsys) -> None:
    killed_early = 0
    for number in range(1, 40):
        run = tmp_path / f"run{number}"

        def life(run: Path = run, number: int = number) -> int:
            die_at(run, number)
            return main([*ROLLOUT, str(run)])

        assert in_a_child(life) == -signal.SIGKILL
        if (run / "run.json").exists():
            assert main(["runs", "resume", str(run)]) == 0
            break
        killed_early += 1
        assert main([*ROLLOUT, str(run), "--json"]) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)["episodes"], "it was played"
    assert killed_early >= 4, "before the directory, the lock, the half-written head and its renaming"


def test_of_commands_that_make_the_same_directory_at_once_one_wins(tmp_path: Path) -> None:
    read, write = os.pipe()

    def begin() -> int:
        os.close(write)
        os.read(read, 1)  # until the parent closes its end
        return main([*ROLLOUT, str(tmp_path / "run")])

    children = []
    for _ in range(4):
        if not (child := os.fork()):
            code = 70
            try:
                code = begin()
            finally:
                os._exit(code)
        children.append(child)
    os.close(write)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0, 2, 2, 2]
    assert main(["runs", "show", str(tmp_path / "run")]) == 0


def test_what_a_dead_process_left_is_free_and_anything_else_is_not(tmp_path: Path) -> None:
    assert is_free(tmp_path / "missing", "head.json")
    (tmp_path / "lock").touch()
    (tmp_path / "events").mkdir()
    (tmp_path / ".head.json.0123abcd").write_text('{"form')
    assert is_free(tmp_path, "head.json")
    with new_directory(tmp_path, "head.json", noun="thing", resume="resume it"):
        assert not list(tmp_path.glob(".head.json.*"))
    for name in ("events/000001.jsonl", "notes.txt", ".head.json.mine"):
        (tmp_path / name).touch()
        with pytest.raises(UsageError, match="something is there already; give another --out"):
            check_free(tmp_path, "head.json", noun="thing", resume="resume it")
        (tmp_path / name).unlink()
    (tmp_path / "head.json").touch()
    with pytest.raises(UsageError, match="a thing is there already; give another --out, or resume it: go"):
        check_free(tmp_path, "head.json", noun="thing", resume="go")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert not is_free(tmp_path / "dangling", "head.json")
