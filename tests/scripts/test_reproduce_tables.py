"""The queue of units: what is asked of `collab` (a recorder here), only what is missing, on from where it stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import reproduce_tables
from evidence import work as queue_at_work
from evidence.gather import base_of, code_digest, speaking_after
from evidence.plan import ARMS, PLAN, Phase, Plan, Stage
from evidence.record import UnitRecord, file_of, read, read_all, write
from evidence.units import Unit, phase_of, queue
from evidence.work import NotOver, Place, collab, left, read_notes, state, work_off

from collab.errors import UsageError
from collab.library import Library
from collab.marl.layout import MarlFolder
from collab.marl.school import small_training, write_library
from collab.marl.summary import Trained
from collab.models.layout import weights_digest

Made = Callable[..., UnitRecord]
WORK = Path("runs/tables")
TRAIN = Unit(arm="full", seed=0, phase="train")
SMALL = replace(
    PLAN,
    seeds=(0, 1),
    stages=(
        Stage(arms=("untrained-team",), phases=("new-seeds",)),
        Stage(arms=("full", "untrained-team"), phases=("train", "new-seeds")),
    ),
)


def option(words: Sequence[str], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


# ---------------------------------------------------------------------------------------------------- the queue


class Recorder:
    """Stands in place of `collab`: notes what it is asked for, and takes its time."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.calls: list[list[str]] = []
        self.minutes = 10.0
        """That a command takes, unless its budget is smaller."""
        self.fails: set[str] = set()
        self.now = 0.0

    def __call__(self, words: Sequence[str]) -> int:
        self.calls.append(list(words))
        folder = Path(option(words, "--out") or option(words, "--resume") or "")
        folder.mkdir(parents=True, exist_ok=True)
        if words[0] == "train-marl":
            (folder / "marl.json").touch()
        if folder.relative_to(self.work).as_posix() in self.fails:
            self.now += 60
            return 1
        budget = float((option(words, "--budget") or "minutes=inf").partition("=")[2])
        self.now += 60 * min(budget, self.minutes)
        if budget < self.minutes:
            self.minutes -= budget
            return 1
        (folder / "over").touch()
        return 0

    def names(self) -> list[str]:
        """What was asked for, by unit; "resume" before what was gone on with."""
        told = []
        for words in self.calls:
            folder = Path(option(words, "--out") or option(words, "--resume") or "").relative_to(self.work)
            told.append(("resume " if "--resume" in words else "") + folder.as_posix())
        self.calls.clear()
        return told


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(work=tmp_path / "work", units=tmp_path / "units", base="base")


@pytest.fixture
def recorder(place: Place, made: Made, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """With files of finished units made by hand: what is told in them is another test's."""

    def gathered(plan: Plan, unit: Unit, work: Path, *, base: str, code: Sequence[str], seconds: float) -> UnitRecord:
        trains = phase_of(plan, unit).kind == "train-marl"
        took = made("full", 0, "train", "1").seconds.model_copy(update={"whole": seconds})
        more = {"code": list(code), "seconds": took}
        return made(unit.arm, unit.seed, unit.phase, "10", epochs=["1", "1"] if trains else (), **more)

    monkeypatch.setattr(queue_at_work, "gathered", gathered)
    monkeypatch.setattr(queue_at_work, "code_digest", lambda: "code")
    monkeypatch.setattr(queue_at_work, "is_over", lambda plan, unit, work: (work / unit.name / "over").exists())
    return Recorder(place.work)


def worked(place: Place, recorder: Recorder, **wishes: Any) -> list[str]:
    """Do what is missing; what `collab` was asked for."""
    work_off(SMALL, place, read_all(place.units, SMALL), run=recorder, clock=lambda: recorder.now, **wishes)
    return recorder.names()


ALL = [
    "untrained-team/new-seeds",
    *(f"full/seed-{seed}/{phase}" for seed in (0, 1) for phase in ("train", "new-seeds")),
]


def test_only_what_is_missing_is_done(place: Place, recorder: Recorder) -> None:
    assert worked(place, recorder) == ALL
    assert worked(place, recorder) == []
    file_of(place.units, TRAIN).unlink()
    assert worked(place, recorder) == ["resume full/seed-0/train"]


def test_what_failed_is_gone_on_with_and_nothing_else_is_lost(place: Place, recorder: Recorder) -> None:
    recorder.fails = {"full/seed-0/train"}
    with pytest.raises(NotOver, match="full/seed-0/train: collab ended with exit code 1"):
        worked(place, recorder)
    assert recorder.names() == ALL[:2]
    recorder.fails = set()
    assert worked(place, recorder) == ["resume full/seed-0/train", *ALL[2:]]
    assert read(file_of(place.units, TRAIN)).seconds.whole == 60 + 600


def test_a_unit_that_would_not_fit_is_not_begun(place: Place, recorder: Recorder) -> None:
    """Plan: 20 for an evaluation, 38 for a training. The first takes 10, so of 40 only 30 are left."""
    assert worked(place, recorder, minutes=40) == ALL[:1]
    assert worked(place, recorder, minutes=19) == []
    assert worked(place, recorder, minutes=39) == ALL[1:4], "all are known to take 10 minutes once one of them is done"


def test_a_unit_that_takes_longer_is_stopped_and_gone_on_with(place: Place, recorder: Recorder) -> None:
    recorder.minutes = 90.0
    assert worked(place, recorder, only="full/seed-0/*", minutes=60) == ["full/seed-0/train"]
    known = read_all(place.units, SMALL)
    assert (state(SMALL, TRAIN, known, place), left(SMALL, TRAIN, known, place)) == ("begun", 3.8)
    assert worked(place, recorder, only="full/seed-0/*", minutes=45) == ["resume full/seed-0/train"]
    assert read(file_of(place.units, TRAIN)).seconds.whole == pytest.approx(60 * 90)


def test_what_plays_a_training_waits_for_it_and_for_its_weights(place: Place, recorder: Recorder, made: Made) -> None:
    played = Unit(arm="full", seed=0, phase="new-seeds")
    assert worked(place, recorder, only="*/new-seeds") == ALL[:1]
    assert state(SMALL, played, read_all(place.units, SMALL), place) == "waits"
    write(place.units, made("full", 0, "train", epochs=["1", "1"]))
    assert state(SMALL, played, read_all(place.units, SMALL), place) == "lost"
    assert worked(place, recorder, only="full/seed-0/*") == []


def test_all_code_that_worked_on_a_unit_is_noted(
    place: Place, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.fails = {"untrained-team/new-seeds"}
    for digest in ("first", "first", "second"):
        monkeypatch.setattr(queue_at_work, "code_digest", lambda digest=digest: digest)
        with pytest.raises(NotOver):
            worked(place, recorder)
    unit = queue(SMALL)[0]
    notes = read_notes(place.notes(unit))
    assert (notes.code, notes.seconds) == (["first", "second"], 180)


def test_the_program_that_COLLAB_names_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "collab"
    program.write_text('#!/usr/bin/env bash\nprintf "%s|" "$@"; exit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("COLLAB", str(program))
    assert collab(["eval", "--out", "a b"]) == 3
    assert capfd.readouterr().out == "$ collab eval --out 'a b'\neval|--out|a b|"


def test_the_program_stops_in_good_order_when_the_queue_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "collab"
    program.write_text(
        "#!/usr/bin/env bash\ntrap 'echo stopping; exit 1' INT\nsleep 0.3\nkill -TERM $PPID\nsleep 20 & wait\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("COLLAB", str(program))
    assert collab(["eval"]) == 1
    assert capfd.readouterr().out == "$ collab eval\nstopping\n"


def test_what_broke_too_often_is_no_result(place: Place, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = queue_at_work.gathered

    def broken(*given: Any, **more: Any) -> UnitRecord:
        record = whole(*given, **more)
        rows = [(*row[:5], "EnvironmentFailure") for row in record.measured.episodes] if record.measured else []
        return UnitRecord.model_validate(
            record.model_dump() | {"measured": record.measured and record.measured.model_dump() | {"episodes": rows}}
        )

    monkeypatch.setattr(queue_at_work, "gathered", broken)
    with pytest.raises(NotOver, match="untrained-team/new-seeds: 2 of 2 episodes broke"):
        worked(place, recorder)
    assert not list(place.units.rglob("*.json"))
    assert recorder.names() == ALL[:1]
    monkeypatch.setattr(queue_at_work, "gathered", whole)
    assert worked(place, recorder) == ALL


def test_a_pattern_that_names_nothing_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce_tables.main(["--list", "--only", "nobody/*", "--out", str(tmp_path)]) == 2
    assert "--only nobody/*: no unit is called so" in capsys.readouterr().err


def test_the_list_tells_how_far_every_unit_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--list", "--only", "full/seed-0/*", "--out", str(tmp_path), "--work", str(tmp_path / "work")]
    assert reproduce_tables.main(asked) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == [["full/seed-0/train", "missing", "38", "min"], ["full/seed-0/new-seeds", "waits", "20", "min"]]


def test_code_has_one_digest_and_the_base_that_of_its_weights() -> None:
    assert code_digest() == code_digest()
    assert len(base_of("pocket", Library())) == 64
    with pytest.raises(UsageError, match="agents/rehearsal: of kind rehearsal"):
        base_of("rehearsal", Library())


def test_an_adapter_belongs_to_the_weights_that_an_arm_plays(tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter/adapter_model.safetensors").write_bytes(b"weights")
    library = write_library(tmp_path / "library", tmp_path / "base")
    assert library.own is not None
    own = library.own / "agents/over.yaml"
    own.write_text(f"kind: local\noptions: {{path: {tmp_path / 'base'}, adapter: {tmp_path / 'adapter'}}}\n")
    both = f"{base_of('scholar', library)}+{weights_digest(tmp_path / 'adapter')}"
    assert base_of("over", library) == both

    trained = Trained.model_construct(digest="d")
    plain, kept = (asyncio.run(small_training(library, *more)) for more in ((), ("dpo.lora={rank: 4, alpha: 8}",)))
    assert speaking_after(plain, both, trained) == "d"
    assert speaking_after(kept, both, trained) == f"{base_of('scholar', library)}+d"


# ----------------------------------------------------------------------------------------------- for real, slowly


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tiny_training_leaves_all_that_tables_need(tmp_path: Path) -> None:
    """A taught checkpoint in a corridor, by the commands that are really given; then nothing is left to do."""
    from collab.marl.school import SMALL as SECONDS
    from collab.marl.school import found_school

    library = found_school(tmp_path / "school")
    settings = [word for setting in (*SECONDS, "held_out.before=false") for word in ("--set", setting)]
    there = ("--env", "corridor", "--library", str(library.own))
    plan = Plan(
        agents="scholar",
        arms={name: replace(ARMS[name], graph="pair") for name in ("untrained-team", "full")},
        phases={
            "train": Phase(
                kind="train-marl", options=(*there, "--graph", "pair", "--split", "none", *settings), minutes=1
            ),
            "new-seeds": Phase(
                kind="eval", options=(*there, "--episodes", "3", "--seeds", "30,31"), minutes=1, after="train"
            ),
        },
        stages=(Stage(arms=("untrained-team", "full"), phases=("train", "new-seeds")),),
        seeds=(0,),
    )
    base = base_of("scholar", library)
    place = Place(work=tmp_path / "work" / base[:12], units=tmp_path / "units", base=base)
    made = work_off(plan, place, {})
    assert [unit.name for unit in made] == ["untrained-team/new-seeds", "full/seed-0/train", "full/seed-0/new-seeds"]
    assert read_all(place.units, plan) == made

    training, folder = made[TRAIN], MarlFolder(place.folder(TRAIN))
    summary = folder.read()["summary"]
    assert (training.hashes["training"], training.best, len(training.epochs)) == (summary["hash"], summary["best"], 3)
    assert [len(epoch.rollout) for epoch in training.epochs] == [0, 2, 2]
    assert training.steps == sum(row[4] for epoch in training.epochs for row in epoch.rollout) > 0
    assert {training.base, training.policy} == {base}
    told = training.seconds
    parts = [told.environment, told.inference, told.critic, told.adversary, told.training]
    assert 0 < sum(part for part in parts if part is not None) < told.whole
    assert None not in parts

    played = made[Unit(arm="full", seed=0, phase="new-seeds")]
    assert played.measured is not None
    assert (len(played.measured.episodes), played.seeds, list(played.hashes)) == (6, [30, 31], ["30", "31"])
    texts = [file_of(place.units, unit).read_text(encoding="utf-8") for unit in made]
    assert not any(str(tmp_path) in text.replace(str(library.own), "") for text in texts), "but for what was asked"

    def nobody(words: Sequence[str]) -> int:
        raise AssertionError(f"nothing is missing, but {words}")

    assert work_off(plan, place, made, run=nobody) == made


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_after_a_little_training_the_team_is_better_than_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under twenty minutes on two cores, by the policy that comes with the package."""
    assert reproduce_tables.main(["--quick", "--work", str(tmp_path)]) == 0, capsys.readouterr().out
    told = capsys.readouterr().out
    assert "with 90%: better" in told
    assert "| full method |" in told
