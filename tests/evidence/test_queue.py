"""The queue of units: what is asked of `collab` (a recorder here), only what is missing, on from where it stopped."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from collab.errors import UsageError
from collab.evidence import queue as queue_at_work
from collab.evidence.plan import Arm, EvidenceUnit, Plan, PlanStage, read_plan
from collab.evidence.queue import (
    Notes,
    NotOver,
    QueueStopped,
    Workspace,
    describe_undone,
    estimate_left,
    find_state,
    select_units,
    work_off,
)
from collab.evidence.record import UnitRecord, file_of, read, read_all, write
from collab.library import Library, find_builtin_root
from collab.loop.configure import configure

MakeRecord = Callable[..., UnitRecord]
TRAIN = EvidenceUnit(arm="full", seed=0, phase="train")
SMALL = read_plan(find_builtin_root() / "docs/results/plan.yaml").model_copy(
    update={
        "seeds": [0, 1],
        "stages": [
            PlanStage(arms=["untrained-team"], phases=["new-seeds"]),
            PlanStage(arms=["full", "untrained-team"], phases=["train", "new-seeds"]),
        ],
    }
)


def find_option(words: Sequence[str], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


@functools.cache
def build_head() -> str:
    """`training.json` as the command of TRAIN begins it."""
    there: dict[str, Any] = {"env": "androidworld", "graph": "team", "agents": SMALL.agents}
    settings = [word for word in SMALL.phases[TRAIN.phase].options.split() if "=" in word]
    begun = configure(Library(), algorithm="collabuiagents", preset="collab", settings=settings, **there)
    return json.dumps({"format": 4, "config": asyncio.run(begun).model_dump(mode="json")})


# ---------------------------------------------------------------------------------------------------- the queue


class Recorder:
    """Stands in place of `collab`: notes what it is asked for, and takes its time."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.calls: list[list[str]] = []
        self.minutes = 10.0
        """That a command takes, unless its budget is smaller."""
        self.fails: set[str] = set()
        self.hash = "h" * 64
        """Of trainings that are done."""
        self.now = 0.0

    def __call__(self, name: str, words: Sequence[str]) -> int:
        self.calls.append(list(words))
        folder = Path(find_option(words, "--out") or find_option(words, "--resume") or "")
        folder.mkdir(parents=True, exist_ok=True)
        if words[0] == "train-marl":
            (folder / "training.json").write_text(build_head())
        if folder.relative_to(self.work).as_posix() in self.fails:
            self.now += 60
            return 1
        budget = float((find_option(words, "--budget") or "minutes=inf").partition("=")[2])
        self.now += 60 * min(budget, self.minutes)
        if budget < self.minutes:
            self.minutes -= budget
            return 1
        (folder / "over").touch()
        if words[0] == "train-marl":
            done = json.loads(build_head()) | {"summary": {"hash": self.hash}}
            (folder / "training.json").write_text(json.dumps(done))
        return 0

    def names(self) -> list[str]:
        """What was asked for, by unit; "resume" before what was resumed."""
        told = []
        for words in self.calls:
            folder = Path(find_option(words, "--out") or find_option(words, "--resume") or "").relative_to(self.work)
            told.append(("resume " if "--resume" in words else "") + folder.as_posix())
        self.calls.clear()
        return told


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(work=tmp_path / "work", units=tmp_path / "units", base="base")


@pytest.fixture
def recorder(place: Workspace, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """With files of finished units made by hand: what is told in them is another test's."""

    def gather_unit(
        plan: Plan, unit: EvidenceUnit, work: Path, *, base: str, code: Sequence[str], seconds: float
    ) -> UnitRecord:
        trains = plan.is_training(unit)
        took = make_record("full", 0, "train", "1").seconds.model_copy(update={"whole": seconds})
        more = {"code": list(code), "seconds": took}
        return make_record(unit.arm, unit.seed, unit.phase, "10", epochs=["1", "1"] if trains else (), **more)

    monkeypatch.setattr(queue_at_work, "gather_unit", gather_unit)
    monkeypatch.setattr(queue_at_work, "hash_code", lambda: "code")
    monkeypatch.setattr(queue_at_work, "is_finished", lambda plan, unit, work: (work / unit.name / "over").exists())
    return Recorder(place.work)


def work_on(place: Workspace, recorder: Recorder, only: str = "*", **wishes: Any) -> list[str]:
    """Do what is missing; what `collab` was asked for."""
    known, asked = read_all(place.units, SMALL), select_units(SMALL, only)
    work_off(SMALL, place, known, say=print, asked=asked, run=recorder, clock=lambda: recorder.now, **wishes)
    return recorder.names()


ALL = [
    "untrained-team/new-seeds",
    *(f"full/seed-{seed}/{phase}" for seed in (0, 1) for phase in ("train", "new-seeds")),
]


def test_only_what_is_missing_is_done(place: Workspace, recorder: Recorder) -> None:
    assert work_on(place, recorder) == ALL
    assert work_on(place, recorder) == []
    file_of(place.units, TRAIN).unlink()
    assert work_on(place, recorder) == ["resume full/seed-0/train"]


def test_what_failed_is_resumed_and_nothing_else_is_lost(place: Workspace, recorder: Recorder) -> None:
    recorder.fails = {"full/seed-0/train"}
    with pytest.raises(NotOver, match="full/seed-0/train: collab ended with exit code 1"):
        work_on(place, recorder)
    assert recorder.names() == ALL[:2]
    recorder.fails = set()
    assert work_on(place, recorder) == ["resume full/seed-0/train", *ALL[2:]]
    assert read(file_of(place.units, TRAIN)).seconds.whole == 60 + 600


def test_a_unit_that_would_not_fit_is_not_begun(place: Workspace, recorder: Recorder) -> None:
    """Plan: 25 for an evaluation, 30 for a training. The first takes 10, so of 35 only 25 are left."""
    assert work_on(place, recorder, minutes=35) == ALL[:1]
    assert work_on(place, recorder, minutes=19) == []
    assert work_on(place, recorder, minutes=39) == ALL[1:4], "all are known to take 10 minutes once one of them is done"


def test_a_unit_that_takes_longer_is_stopped_and_resumed(place: Workspace, recorder: Recorder) -> None:
    recorder.minutes = 90.0
    assert work_on(place, recorder, only="full/seed-0/*", minutes=60) == ["full/seed-0/train"]
    known = read_all(place.units, SMALL)
    assert (find_state(SMALL, TRAIN, known, place), estimate_left(SMALL, TRAIN, known, place)) == ("begun", 3.0)
    assert work_on(place, recorder, only="full/seed-0/*", minutes=45) == ["resume full/seed-0/train"]
    assert read(file_of(place.units, TRAIN)).seconds.whole == pytest.approx(60 * 90)


def test_what_plays_a_training_waits_for_it_and_for_its_weights(
    place: Workspace, recorder: Recorder, make_record: MakeRecord
) -> None:
    played = EvidenceUnit(arm="full", seed=0, phase="new-seeds")
    assert work_on(place, recorder, only="*/new-seeds") == ALL[:1]
    assert find_state(SMALL, played, read_all(place.units, SMALL), place) == "waits"
    write(place.units, make_record("full", 0, "train", epochs=["1", "1"]))
    assert find_state(SMALL, played, read_all(place.units, SMALL), place) == "lost"
    assert work_on(place, recorder, only="full/seed-0/*") == []
    file_of(place.units, TRAIN).unlink()
    assert work_on(place, recorder, only="full/seed-0/train") == ["full/seed-0/train"]
    assert find_state(SMALL, played, read_all(place.units, SMALL), place) == "missing"


def test_a_fork_waits_for_the_training_whose_epochs_it_takes_over(place: Workspace, make_record: MakeRecord) -> None:
    arms = {**SMALL.arms, "rft": Arm(label="x", method="--preset collab --ablation rft", fork="full/train@1")}
    plan = SMALL.model_copy(update={"arms": arms})
    forked = EvidenceUnit(arm="rft", seed=0, phase="train")
    assert plan.command(forked, Path("w"))[-6:-4] == ["--fork", "w/full/seed-0/train@epoch1"]
    assert "--fork" not in plan.command(EvidenceUnit(arm="rft", seed=0, phase="new-seeds"), Path("w"))
    assert find_state(plan, forked, {}, place) == "waits"
    write(place.units, make_record("full", 0, "train", epochs=["1", "1"]))
    assert find_state(plan, forked, read_all(place.units, plan), place) == "lost"


def test_what_cannot_be_done_is_told_with_the_next_move(
    place: Workspace, recorder: Recorder, make_record: MakeRecord
) -> None:
    """A unit may wait for one of the same call, but not for one that was not asked for."""
    assert describe_undone(SMALL, place, {}, select_units(SMALL, "full/*")) == []
    assert describe_undone(SMALL, place, {}, select_units(SMALL, "*/new-seeds")) == [
        f"full/seed-{seed}/new-seeds: not done: it begins with full/seed-{seed}/train, which is not done and not asked "
        "for; widen --only"
        for seed in (0, 1)
    ]
    write(place.units, make_record("full", 0, "train", epochs=["1", "1"]))
    (told,) = describe_undone(SMALL, place, read_all(place.units, SMALL), select_units(SMALL, "full/*"))
    assert told == (
        "full/seed-0/new-seeds: not done: the weights of full/seed-0/train are not on this machine; remove "
        f"{file_of(place.units, TRAIN)}, and that training is done again"
    )


def test_a_training_done_anew_is_not_taken_for_the_one_that_is_told_of(
    place: Workspace, recorder: Recorder, make_record: MakeRecord
) -> None:
    """Its evaluations would be refused once they are done: they are of other weights."""
    recorder.hash = "a" * 64
    work_on(place, recorder, only="full/seed-0/train")
    known = read_all(place.units, SMALL)
    assert find_state(SMALL, EvidenceUnit(arm="full", seed=0, phase="new-seeds"), known, place) == "lost"


def test_all_code_that_worked_on_a_unit_is_noted(
    place: Workspace, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.fails = {"untrained-team/new-seeds"}
    for digest in ("first", "first", "second"):
        monkeypatch.setattr(queue_at_work, "hash_code", lambda digest=digest: digest)
        with pytest.raises(NotOver):
            work_on(place, recorder)
    unit = SMALL.units[0]
    notes = Notes.read(place, unit)
    assert (notes.code, notes.seconds) == (["first", "second"], 180)
    assert notes.command == SMALL.shown_command(unit, "base")


def test_code_that_changes_while_a_unit_is_worked_on_is_noted(
    place: Workspace, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ["before"]
    monkeypatch.setattr(queue_at_work, "hash_code", lambda: code[-1])

    def change_code(name: str, words: Sequence[str]) -> int:
        code.append("after")
        return recorder(name, words)

    made = work_off(SMALL, place, {}, say=print, asked=SMALL.units[:1], run=change_code, clock=lambda: recorder.now)
    assert [record.code for record in made.values()] == [["before", "after"]]


def test_what_a_killed_process_did_counts(
    place: Workspace, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the last file that it wrote; a unit may else seem to have played for longer than it took."""

    def kill_itself(name: str, words: Sequence[str]) -> int:
        place.folder(TRAIN).mkdir(parents=True)
        (place.folder(TRAIN) / "training.json").write_text(build_head())
        later = time.time() + 120
        os.utime(place.folder(TRAIN) / "training.json", (later, later))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("never reached")

    monkeypatch.setattr(queue_at_work, "hash_code", lambda: "first")
    if not (child := os.fork()):
        work_off(SMALL, place, {}, say=print, asked=[TRAIN], run=kill_itself)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    monkeypatch.setattr(queue_at_work, "hash_code", lambda: "second")
    work_on(place, recorder, only="full/seed-0/train")
    made = read(file_of(place.units, TRAIN))
    assert made.seconds.whole == pytest.approx(720, abs=5)
    assert made.code == ["first", "second"]


def test_what_is_noted_goes_with_the_folder(place: Workspace, recorder: Recorder) -> None:
    assert work_on(place, recorder) == ALL
    file_of(place.units, TRAIN).unlink()
    (place.folder(TRAIN) / "over").unlink()
    (place.folder(TRAIN) / "training.json").unlink()
    place.folder(TRAIN).rmdir()
    assert work_on(place, recorder) == ["full/seed-0/train"]
    assert read(file_of(place.units, TRAIN)).seconds.whole == 600, "and not 1200"


@pytest.mark.parametrize(("minutes", "told"), [(41.0, True), (40.0, False)])
def test_a_unit_that_took_longer_than_units_are_meant_to_is_named(
    place: Workspace, recorder: Recorder, capsys: pytest.CaptureFixture[str], minutes: float, told: bool
) -> None:
    recorder.minutes = minutes
    work_on(place, recorder, only="untrained-team/*")
    line = "warning: untrained-team/new-seeds: took 41.0 minutes, a unit is meant to take at most 40"
    assert (line in capsys.readouterr().out) == told


def test_what_broke_too_often_is_no_result(
    place: Workspace, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Any = vars(queue_at_work)["gather_unit"]  # of the fixture

    def broken(*given: Any, **more: Any) -> UnitRecord:
        record = whole(*given, **more)
        rows = [(*row[:5], "EnvironmentFailure") for row in record.measured.episodes] if record.measured else []
        return UnitRecord.model_validate(
            record.model_dump() | {"measured": record.measured and record.measured.model_dump() | {"episodes": rows}}
        )

    monkeypatch.setattr(queue_at_work, "gather_unit", broken)
    with pytest.raises(NotOver, match="untrained-team/new-seeds: 2 of 2 episodes broke"):
        work_on(place, recorder)
    assert not list(place.units.rglob("*.json"))
    assert recorder.names() == ALL[:1]
    monkeypatch.setattr(queue_at_work, "gather_unit", whole)
    assert work_on(place, recorder) == ALL


# ------------------------------------------------------------------------------------------------- side by side


def run_side_by_side(recorder: Recorder) -> Callable[[str, Sequence[str]], int]:
    """A recorder of which the first two commands wait for each other."""
    meeting, lock, met = threading.Barrier(2), threading.Lock(), itertools.count()

    def run(name: str, words: Sequence[str]) -> int:
        if next(met) < 2:
            meeting.wait(timeout=60)
        with lock:
            return recorder(name, words)

    return run


def test_units_are_worked_on_side_by_side_but_none_before_what_it_plays(place: Workspace, recorder: Recorder) -> None:
    done = work_off(SMALL, place, {}, say=print, jobs=2, run=run_side_by_side(recorder), clock=lambda: recorder.now)
    names = recorder.names()
    assert set(names[:2]) == {"untrained-team/new-seeds", "full/seed-0/train"}
    assert sorted(names) == sorted(ALL)
    assert set(done) == set(SMALL.units)
    assert all(names.index(f"full/seed-{seed}/train") < names.index(f"full/seed-{seed}/new-seeds") for seed in (0, 1))


def test_what_runs_beside_a_unit_that_fails_is_done_and_nothing_else_begun(
    place: Workspace, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.fails = {"untrained-team/new-seeds"}
    known, run, really_wait = threading.Event(), run_side_by_side(recorder), futures.wait

    def wait_and_tell(working: Any, **how: Any) -> Any:
        ended = really_wait(working, **how)
        if any(future.exception() for future in ended.done):
            known.set()
        return ended

    def until_known(name: str, words: Sequence[str]) -> int:
        code = run(name, words)
        assert code or known.wait(timeout=60)
        return code

    monkeypatch.setattr(queue_at_work, "wait", wait_and_tell)
    with pytest.raises(NotOver, match="untrained-team/new-seeds: collab ended with exit code 1"):
        work_off(SMALL, place, {}, say=print, jobs=2, run=until_known, clock=lambda: recorder.now)
    assert sorted(recorder.names()) == ["full/seed-0/train", "untrained-team/new-seeds"]
    assert list(read_all(place.units, SMALL)) == [TRAIN]


def test_what_was_told_to_end_begins_nothing_more(place: Workspace, recorder: Recorder) -> None:
    """Also where another thread catches the signal, so that the main thread's wait isn't interrupted."""

    def interrupt(name: str, words: Sequence[str]) -> int:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        handler: Any = signal.getsignal(signal.SIGINT)
        until = time.monotonic() + 20
        while not handler.__self__.stopping and time.monotonic() < until:
            time.sleep(0.01)
        assert handler.__self__.stopping
        return recorder(name, words)

    with pytest.raises(QueueStopped, match="stopped on request; repeat the same command to resume"):
        work_off(SMALL, place, {}, say=print, run=interrupt, clock=lambda: recorder.now)
    assert recorder.names() == ALL[:1]
    assert [unit.name for unit in read_all(place.units, SMALL)] == ALL[:1]


def test_two_that_fail_are_both_told(place: Workspace, recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    recorder.fails = {"untrained-team/new-seeds", "full/seed-0/train"}
    with pytest.raises(NotOver) as caught:
        work_off(SMALL, place, {}, say=print, jobs=2, run=run_side_by_side(recorder), clock=lambda: recorder.now)
    told = f"error: {caught.value}\n{capsys.readouterr().out}"
    assert told.count("collab ended with exit code 1") == 2


# ------------------------------------------------------------------------------------------- of another recipe


@pytest.mark.parametrize("of", ["settings", "command"])
def test_what_was_begun_by_another_recipe_is_not_resumed(place: Workspace, recorder: Recorder, of: str) -> None:
    recorder.fails = {"full/seed-0/train"}
    with pytest.raises(NotOver):
        work_on(place, recorder, only="full/seed-0/*")
    recorder.names()
    if of == "settings":
        head = json.loads(build_head())
        head["config"]["method"]["dpo"]["learning_rate"] = 0.5
        (place.folder(TRAIN) / "training.json").write_text(json.dumps(head))
    else:
        notes = place.notes(TRAIN)
        notes.write_text(notes.read_text().replace("steps=800", "steps=500"))
    told = {
        "settings": r"full/seed-0/train: was begun .* \(method.dpo.learning_rate: 0.5 there, 2e-05 today\)",
        "command": r"full/seed-0/train: was begun .* \(command: steps=500 there, steps=800 today\)",
    }
    with pytest.raises(UsageError, match=f"{told[of]}; remove that folder, and it is begun anew"):
        work_on(place, recorder, only="full/seed-0/*")
    assert recorder.names() == []


def test_a_training_of_another_recipe_is_not_played(place: Workspace, recorder: Recorder) -> None:
    work_on(place, recorder, only="full/seed-0/train")
    head = json.loads((place.folder(TRAIN) / "training.json").read_text())
    head["config"]["run"]["graph"]["rounds"] = 2
    (place.folder(TRAIN) / "training.json").write_text(json.dumps(head))
    with pytest.raises(UsageError, match=r"full/seed-0/train: was begun .*\(graph.rounds: 2 there, 3 today\)"):
        work_on(place, recorder, only="full/seed-0/*")
