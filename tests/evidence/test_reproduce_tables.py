"""The script: what it lists and refuses, how it ends; and, slowly, whole measurements for real."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import reproduce_tables  # type: ignore[import-not-found]

from collab.errors import UsageError
from collab.evidence.gather import _gather_epoch, get_digest_after, hash_base, hash_code
from collab.evidence.plan import Arm, EvidenceUnit, Phase, Plan, PlanStage
from collab.evidence.queue import Workspace, work_off
from collab.evidence.record import UnitRecord, file_of, read_all
from collab.library import Library
from collab.loop.record import EpochRecord, ExampleCounts, Trained, TrainingDir, read_record
from collab.models.checkpoint_card import hash_weights
from collab.testing.toy_team import configure_toy_training, write_library

MakeRecord = Callable[..., UnitRecord]
TRAIN = EvidenceUnit(arm="full", seed=0, phase="train")


def test_the_quick_form_tells_nothing_of_other_code(
    tmp_path: Path, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places: list[Workspace] = []

    def worked_off(
        plan: Plan, place: Workspace, records: Any, *, say: Any, jobs: int
    ) -> dict[EvidenceUnit, UnitRecord]:
        assert (records, jobs) == ({}, 2)
        places.append(place)
        teams = {("untrained-team", None): "0110" * 9, ("full", 0): "1111" * 9}
        phases = [name for name in plan.phases if name != "train"]
        return {
            one.unit: one
            for team, told in teams.items()
            for one in (make_record(*team, phase, told) for phase in phases)
        }

    monkeypatch.setattr(reproduce_tables, "work_off", worked_off)
    for code in ("a" * 64, "b" * 64, "a" * 64):
        monkeypatch.setattr(reproduce_tables, "hash_code", lambda code=code: code)
        assert reproduce_tables.main(["--quick", "--work", str(tmp_path)]) == 0
    first, second, third = places
    assert first == third != second
    assert not {first.work, first.units} & {second.work, second.units}
    told = capsys.readouterr().out
    assert "with 90%: better" in told
    assert told.splitlines()[-1] == "0.0 minutes this time, 2 units side by side"


def test_a_reader_that_has_gone_ends_the_list_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "argv", ["", "--list", "--out", str(tmp_path), "--work", str(tmp_path)])
    with open(writer, "w", encoding="utf-8") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert reproduce_tables.main() == 1
        gone.write("what Python itself writes in the end")
        gone.flush()


def test_a_pattern_that_names_nothing_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce_tables.main(["--list", "--only", "nobody/*", "--out", str(tmp_path)]) == 2
    assert "--only nobody/*: no unit is called so" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--limit-minutes", "nan"], "--limit-minutes nan: must be a number of minutes above 0"),
        (["--limit-minutes", "-5"], "--limit-minutes -5: must be a number of minutes above 0"),
        (["--quick", "--limit-minutes", "5"], "--limit-minutes has no meaning beside --quick; leave one of them out"),
        (["--jobs", "0"], "--jobs 0: at least one unit is worked on at a time"),
        (["--render", "--jobs", "1"], "--jobs has no meaning beside --render; leave one of them out"),
        (["--quick", "--only", "full/*"], "--only has no meaning beside --quick; leave one of them out"),
        (["--render", "--only", "full/*"], "--only has no meaning beside --render; leave one of them out"),
        (["--list", "--limit-minutes", "5"], "--limit-minutes has no meaning beside --list; leave one of them out"),
    ],
)
def test_options_that_say_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str], told: str
) -> None:
    assert reproduce_tables.main([*asked, "--work", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {told}\n"
    assert list(tmp_path.iterdir()) == []


def test_what_was_asked_for_and_cannot_be_done_ends_in_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--only", "full/seed-0/new-seeds", "--out", str(tmp_path), "--work", str(tmp_path / "work")]
    assert reproduce_tables.main(asked) == 1
    assert "full/seed-0/new-seeds: not done: it begins with full/seed-0/train" in capsys.readouterr().err


def test_the_list_tells_how_far_every_unit_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--list", "--only", "full/seed-0/*", "--out", str(tmp_path), "--work", str(tmp_path / "work")]
    assert reproduce_tables.main(asked) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == [["full/seed-0/train", "missing", "30", "min"], ["full/seed-0/new-seeds", "waits", "25", "min"]]


def test_code_has_one_digest_and_the_base_that_of_its_weights() -> None:
    assert hash_code() == hash_code()
    assert len(hash_base("early", Library())) == 64
    with pytest.raises(UsageError, match="agents/rehearsal: of kind rehearsal"):
        hash_base("rehearsal", Library())


def test_an_adapter_belongs_to_the_weights_that_an_arm_plays(tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter/adapter_model.safetensors").write_bytes(b"weights")
    library = write_library(tmp_path / "library", tmp_path / "base")
    assert library.own is not None
    own = library.own / "agents/over.yaml"
    own.write_text(f"kind: local\noptions: {{path: {tmp_path / 'base'}, adapter: {tmp_path / 'adapter'}}}\n")
    both = f"{hash_base('toy', library)}+{hash_weights(tmp_path / 'adapter')}"
    assert hash_base("over", library) == both

    trained = Trained.model_construct(digest="d")
    plain, kept = (
        asyncio.run(configure_toy_training(library, *more)) for more in ((), ("dpo.lora={rank: 4, alpha: 8}",))
    )
    assert get_digest_after(plain, both, trained) == "d"
    assert get_digest_after(kept, both, trained) == f"{hash_base('toy', library)}+d"


def test_an_epoch_counts_the_rows_and_the_optimizer_steps_of_all_policies(tmp_path: Path) -> None:
    library = write_library(tmp_path / "library", tmp_path / "base")
    config = asyncio.run(configure_toy_training(library, "policies=per_agent"))
    record = EpochRecord.model_construct(
        epoch=1,
        hash="e" * 64,
        agreement=None,
        examples={name: ExampleCounts(examples=5, older=rows, digest="") for name, rows in (("ada", 2), ("ben", 0))},
        trained={
            name: Trained.model_construct(steps=steps, loss=0.5, metrics={}, alarm=None, digest=name)
            for name, steps in (("ada", 3), ("ben", 4))
        },
    )
    base = {"ada": "base", "ben": "base"}
    epoch = _gather_epoch(TrainingDir(tmp_path), config, base, record)
    assert (epoch.pairs, epoch.updates, epoch.weights) == (12, 7, {"ada": "ada", "ben": "ben"})
    assert epoch.step_accuracy is None
    record.metrics["demonstrated"] = {"right": 3, "steps": 4, "instances": 1, "unknown": 0}
    assert _gather_epoch(TrainingDir(tmp_path), config, base, record).step_accuracy == 75


# ----------------------------------------------------------------------------------------------- for real, slowly


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tiny_training_leaves_all_that_tables_need(tmp_path: Path) -> None:
    """A taught checkpoint in a corridor, by the commands that are really given; then nothing is left to do."""
    from collab.testing.toy_team import SMALL as SECONDS
    from collab.testing.toy_team import create_toy_team

    # Six episodes and pairs of every source: a first rollout without a pair would end the training.
    teaching = ("held_out.before=false", "episodes=6", "pairs={adversary: 1, contrast: 1, correction: 0.5}")
    library = create_toy_team(tmp_path / "toy")
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in (*SECONDS, *teaching))
    there = f"--env corridor --library {library.own}"
    train = f"{there} --graph pair --split none {settings}"
    plan = Plan(
        agents="toy",
        arms={
            "untrained-team": Arm(label="untrained", graph="pair"),
            "full": Arm(label="full method", graph="pair", method="--preset collab"),
        },
        phases={
            "train": Phase(kind="train-marl", options=train, minutes=1),
            "new-seeds": Phase(kind="eval", options=f"{there} --episodes 3 --seeds 30,31", minutes=1, after="train"),
        },
        stages=[PlanStage(arms=["untrained-team", "full"], phases=["train", "new-seeds"])],
        seeds=[0],
    )
    base = hash_base("toy", library)
    place = Workspace(work=tmp_path / "work" / base[:12], units=tmp_path / "units", base=base)
    made = work_off(plan, place, {}, say=print)
    assert [unit.name for unit in made] == ["untrained-team/new-seeds", "full/seed-0/train", "full/seed-0/new-seeds"]
    assert read_all(place.units, plan) == made

    training, folder = made[TRAIN], TrainingDir(place.folder(TRAIN))
    summary = folder.read()["summary"]
    assert (training.hashes["training"], training.best, len(training.epochs)) == (summary["hash"], summary["best"], 3)
    assert [len(epoch.rollout) for epoch in training.epochs] == [0, 6, 6]
    assert training.steps == sum(row[4] for epoch in training.epochs for row in epoch.rollout) > 0
    assert {training.base, training.policy} == {base}
    records = [read_record(folder.get_epoch(number).record) for number in range(3)]
    steps = [sum(trained.steps for trained in one.trained.values()) for one in records]
    assert [epoch.updates for epoch in training.epochs] == steps != [0, 0, 0]
    assert training.critics == ["oracle-2"]
    told = training.seconds
    parts = [told.environment, told.inference, told.critic, told.adversary, told.training]
    assert 0 < sum(part for part in parts if part is not None) < told.whole
    assert None not in parts

    played = made[EvidenceUnit(arm="full", seed=0, phase="new-seeds")]
    assert played.measured is not None
    assert (len(played.measured.episodes), played.seeds, list(played.hashes)) == (6, [30, 31], ["30", "31"])
    texts = [file_of(place.units, unit).read_text(encoding="utf-8") for unit in made]
    assert not any(str(tmp_path) in text.replace(str(library.own), "") for text in texts), "but for what was asked"

    def nobody(name: str, words: Sequence[str]) -> int:
        raise AssertionError(f"nothing is missing, but {words}")

    assert work_off(plan, place, made, say=print, run=nobody) == made


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_after_a_little_training_the_team_is_better_than_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the policy that comes with the package; docs/benchmarks.md tells how long it takes on quiet cores."""
    assert reproduce_tables.main(["--quick", "--work", str(tmp_path)]) == 0, capsys.readouterr().out
    told = capsys.readouterr().out
    assert "with 90%: better" in told
    assert "| full method |" in told
    assert "| all units |" in told
