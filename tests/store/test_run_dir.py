"""Directories of work: whole or free after a kill, made and written by one process alone, and how they resume."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.errors import (
    EnvironmentFailure,
    ModelFailure,
    RunError,
    StoreFailure,
    TrainingFailure,
    UsageError,
)
from collab.store.run_dir import RunDir
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.testing.toy_team import create_toy_team
from collab.utils.files import report_write_errors

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


class ThingDir(RunDir):
    HEAD, NOUN, FORMAT, COMMAND = "head.json", "thing", 1, "collab thing --resume"


@pytest.fixture
def thing(tmp_path: Path) -> ThingDir:
    made = ThingDir(tmp_path / "run")
    made.begin({"config": {}})
    return made


def test_what_a_dead_process_left_is_free_and_anything_else_is_not(tmp_path: Path) -> None:
    assert ThingDir(tmp_path / "missing").is_free
    (tmp_path / "lock").touch()
    (tmp_path / "events").mkdir()
    (tmp_path / ".head.json.0123abcd").write_text('{"form')
    folder = ThingDir(tmp_path, "go")
    assert folder.is_free
    with folder.claim():
        assert not list(tmp_path.glob(".head.json.*"))
    for name in ("events/000001.jsonl", "notes.txt", ".head.json.mine"):
        (tmp_path / name).touch()
        with pytest.raises(UsageError, match="something is there already; give another --out"):
            folder.check_free()
        (tmp_path / name).unlink()
    (tmp_path / "head.json").touch()
    with pytest.raises(UsageError, match="a thing is there already; give another --out, or resume it: go"):
        folder.check_free()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert not ThingDir(tmp_path / "dangling").is_free


def test_what_cannot_be_begun_is_not_to_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError(28, "No space left on device")

    made = ThingDir(tmp_path / "run")
    monkeypatch.setattr("collab.store.run_dir.write_json", full)
    with pytest.raises(StoreFailure, match=r"then start the .* again"):
        made.begin({"config": {}})
    with pytest.raises(StoreFailure, match=f"then {made.resume}"):
        made.write({"config": {}})


def test_what_cannot_be_written_in_a_part_says_how_to_resume_all_of_it(thing: ThingDir) -> None:
    with pytest.raises(StoreFailure) as told, thing.lock_parts():
        raise StoreFailure("run/part: cannot write: full; make room, then collab finetune --resume run/part")
    assert str(told.value).endswith(f"run/part; all of the thing is resumed with: {thing.resume}")
    with pytest.raises(StoreFailure) as own, thing.lock_parts():
        raise StoreFailure(f"run: cannot write: full; make room, then {thing.resume}")
    assert str(own.value).count(thing.resume) == 1


def test_a_run_that_cannot_be_written_is_not_to_be_resumed_alone(thing: ThingDir) -> None:
    rollout = thing.path / "epochs/1/rollout"
    with pytest.raises(StoreFailure) as told, thing.lock_parts(), report_write_errors(rollout):
        raise OSError(28, "No space left on device")
    assert str(told.value) == (
        f"{rollout}: cannot write: No space left on device; what was written before is kept:"
        f" make room or fix the rights, then {thing.resume}"
    )


@pytest.mark.parametrize("kind", [EnvironmentFailure, ModelFailure, TrainingFailure, RunError])
def test_what_fails_in_a_part_says_how_to_resume_all_of_it(thing: ThingDir, kind: type[RunError]) -> None:
    with pytest.raises(kind) as told, thing.lock_parts():
        raise kind("the server answered 500")
    assert str(told.value) == f"the server answered 500; all of the thing is resumed with: {thing.resume}"


def test_only_one_writes_at_a_time_and_the_next_one_after_a_failure(thing: ThingDir) -> None:
    with thing.lock_parts(), pytest.raises(UsageError, match="is being written by process"), thing.lock_parts():
        pass
    with pytest.raises(ValueError, match="a mistake"), thing.lock_parts():
        raise ValueError("a mistake")
    with thing.lock_parts():
        pass


def die_before(head: Path) -> None:
    """Kill this process as it puts a written head into its place."""

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and Path(str(arguments[1])) == head:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)


def finetuning(folder: Path) -> list[str]:
    """A copy training of seconds."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    base = make_tiny_checkpoint(folder / "base", hidden=32, context=256)
    settings = ("context=200", "longest=20", "gap=5", "batch_rows=2", "rows_at_once=2", "steps=1")
    small = [part for one in settings for part in ("--set", one)]
    return ["finetune", "--stage", "copy", "--base", str(base), *small]


def synthesis(folder: Path) -> list[str]:
    return ["synth", "--env", "corridor", "--episodes", "1", "--screens", "2", "--library", LIBRARY]


def calibration(folder: Path) -> list[str]:
    asked = ["critic", "calibrate", "--env", "corridor", "--critic", "critic-oracle", "--cases", "2"]
    return [*asked, "--library", LIBRARY]


def transfer(folder: Path) -> list[str]:
    pytest.importorskip("torch")  # once, for all that are born here
    team = ["--agents", "parrot", "--base", "parrot", "--env", "corridor", "--graph", "single"]
    return ["transfer", "--mode", "direct", *team, "--seeds", "30", "--episodes", "1", "--library", LIBRARY]


def training(folder: Path) -> list[str]:
    """An epoch of a team that knows nothing: it plays, and nothing is learned from it."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    library = create_toy_team(folder)
    # Easy enough to be solved at times: a first rollout without a solved episode would end the training.
    easy = ("episodes=12", "exploration_temperatures=null", "run.environment.backends.fake.options.declared=false")
    settings = ("epochs=1", "held_out.episodes=1", "held_out.before=false", "rl.context=2048", *easy)
    small = [part for one in settings for part in ("--set", one)]
    team = ["--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", str(library.own)]
    return ["train", "--algo", "filtered-bc", *team, "--device", "cpu", *small]


def rollout(folder: Path) -> list[str]:
    return ROLLOUT[:-1]


def evaluation(folder: Path) -> list[str]:
    asked = ["eval", "--env", "corridor", "--agents", "rehearsal", "--seeds", "30,31", "--episodes", "1"]
    return [*asked, "--library", LIBRARY]


COMMANDS = [
    (synthesis, "synth.json"),
    (calibration, "calibration.json"),
    pytest.param(transfer, "transfer.json", marks=pytest.mark.slow),
    pytest.param(finetuning, "finetune.json", marks=pytest.mark.slow),
    pytest.param(training, "training.json", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("command", "head"), [(evaluation, "seed-30/run.json"), *COMMANDS])
def test_a_command_killed_before_its_head_is_there_is_begun_again_by_the_same_words(
    command: Callable[[Path], list[str]], head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    asked = [*command(tmp_path), "--out", str(out)]

    def life() -> int:
        die_before(out / head)
        return main(asked)

    assert in_a_child(life) == -signal.SIGKILL
    place = out / head
    left = {path.name for path in place.parent.iterdir()}
    assert place.name not in left
    assert any(name.startswith(f".{place.name}.") for name in left), "it was half written"
    assert main(asked) == 0, capsys.readouterr().err
    assert place.exists()
    assert not list(place.parent.glob(f".{place.name}.*"))


def test_an_export_killed_before_its_tables_are_there_is_begun_again_by_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow.parquet")
    run, out = tmp_path / "run", tmp_path / "out"
    assert main([*ROLLOUT, str(run)]) == 0
    asked = ["runs", "export", str(run), "--parquet", str(out)]

    def life() -> int:
        die_before(out / "episodes.parquet")
        return main(asked)

    assert in_a_child(life) == -signal.SIGKILL
    assert any(out.iterdir()), "it was half written"
    assert main(asked) == 0, capsys.readouterr().err
    assert (out / "episodes.parquet").exists()
    assert not list(out.glob(".*"))
    assert main(asked) == 2
    assert "is not empty, and nothing is overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "head"), [(rollout, "run.json"), *COMMANDS])
def test_of_commands_that_make_the_same_directory_at_once_one_wins(
    command: Callable[[Path], list[str]], head: str, tmp_path: Path
) -> None:
    asked = [*command(tmp_path), "--out", str(tmp_path / "out")]
    read, write = os.pipe()

    def begin(number: int) -> int:
        os.close(write)
        os.read(read, 1)  # until the parent closes its end
        with (tmp_path / f"told{number}").open("w") as told, contextlib.redirect_stderr(told):
            return main(asked)

    children = []
    for number in range(3):
        if not (child := os.fork()):
            code = 70
            try:
                code = begin(number)
            finally:
                os._exit(code)
        children.append(child)
    os.close(write)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0, 2, 2]
    assert (tmp_path / "out" / head).exists()
    for number in (number for number, code in enumerate(codes) if code == 2):
        last = (tmp_path / f"told{number}").read_text().splitlines()[-1]
        assert last.startswith(f"error: {tmp_path / 'out'}: "), last
        assert "is being written by " in last or "is there already" in last
