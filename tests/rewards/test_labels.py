"""Judgements beside a run: side by side, resumable, and the run itself untouched."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.errors import ModelFailure, RunFormatError, StoreFailure, UnknownName, UsageError
from collab.rewards.base import UNREAD, CellScore, CriticCall, CriticInput, Judgement, build_inputs, build_judgement
from collab.rewards.labels import LabelHead, LabelWriter, count_missing, list_label_sets, read_labels
from collab.store.fingerprint import hash_run
from collab.store.run import RunStore
from collab.types import CellRef, Usage

HEAD = LabelHead(critic="test-1", options={"per": "step"}, seed=3)


class Critic:
    name, version = "test", "1"

    async def judge(self, case: CriticInput) -> Judgement:
        raise NotImplementedError


@pytest.fixture
def run(corridor, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    shutil.copytree(corridor[1], tmp_path / "run", ignore=shutil.ignore_patterns("labels"))
    return tmp_path / "run"


@pytest.fixture
def found(corridor) -> list[CriticInput]:  # type: ignore[no-untyped-def]
    suite, _, (doors, _) = corridor
    return list(build_inputs(doors, suite.space))


def judged(case: CriticInput, score: float | None = 0.9, reason: str = "it opens the door") -> Judgement:
    word = CellScore.none("it said nothing") if score is None else CellScore(score=score, reason=reason)
    call = CriticCall(
        prompt="5e" * 32,
        model="fake",
        seed=7,
        reply="a lone \ud83d surrogate",
        cells=tuple(cell.cell for cell in case.matrix),
        shown={"ada": "B"},
        cost_usd=0.25,
    )
    return build_judgement(case, Critic(), {cell.cell: word for cell in case.matrix}, [call])


def files(run: Path) -> dict[str, str]:
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.rglob("*")
        if path.is_file() and "labels" not in path.relative_to(run).parts
    }


def test_what_is_written_is_read_back_and_the_run_does_not_change(run: Path, found: list[CriticInput]) -> None:
    before, hashed = files(run), hash_run(RunStore.open(run))
    told = [judged(case) for case in found]
    with LabelWriter(run, "one", HEAD) as writer:
        for judgement in told:
            writer.record(judgement)
    labels = read_labels(run, "one")
    assert list(labels.judged.values()) == told
    assert [labels.of(case) for case in found] == told
    assert labels.head == HEAD
    assert files(run) == before
    assert hash_run(RunStore.open(run)) == hashed


def test_a_pair_can_be_traced_to_the_call(found: list[CriticInput]) -> None:
    judgement = judged(found[0])
    call = judgement.call_of(CellRef("ada", 0))
    assert call is judgement.calls[0]
    assert judgement.call_of(CellRef("zoe", 0)) is None
    assert judgement.of(CellRef("ben", 1)).cell == ("ben", 1)


def test_labellings_stand_side_by_side(run: Path, found: list[CriticInput]) -> None:
    for name, score in (("strict", 0.1), ("mild", 0.9)):
        with LabelWriter(run, name, HEAD) as writer:
            writer.record(judged(found[0], score))
    assert list_label_sets(run) == ["mild", "strict"]
    words = {name: read_labels(run, name).judged[found[0].key] for name in list_label_sets(run)}
    assert {name: one.of(CellRef("ada", 0)).reward for name, one in words.items()} in (
        {"mild": 1, "strict": 0},
        {"mild": None, "strict": None},
    )


def test_what_is_judged_is_known_after_a_kill_in_the_middle_of_a_line(run: Path, found: list[CriticInput]) -> None:
    with LabelWriter(run, "one", HEAD) as writer:
        writer.record(judged(found[0]))
        writer.record(judged(found[1]))
    (segment,) = (run / "labels" / "one" / "events").iterdir()
    segment.write_bytes(segment.read_bytes()[:-40])
    with LabelWriter(run, "one", HEAD) as writer:
        assert [writer.has_label(case) for case in found[:2]] == [True, False]
        writer.record(judged(found[1]))
        assert writer.has_label(found[1])
    with LabelWriter(run, "one", HEAD):
        pass
    assert len(read_labels(run, "one").judged) == 2
    assert len(list((run / "labels" / "one" / "events").iterdir())) == 2  # none of who had nothing to write


def test_a_step_that_was_played_again_is_not_judged(run: Path, found: list[CriticInput]) -> None:
    again = replace(found[0], task=replace(found[0].task, goal="Something else."))
    with LabelWriter(run, "one", HEAD) as writer:
        writer.record(judged(found[0]))
        assert not writer.has_label(again)
        assert read_labels(run, "one").of(again) is None
        writer.record(judged(again))
        assert read_labels(run, "one").of(again) is not None


def test_a_step_without_an_answer_stays_open(run: Path, found: list[CriticInput]) -> None:
    with LabelWriter(run, "one", HEAD) as writer:
        writer.fail(found[0], ModelFailure("the server is gone; Bearer abcdefgh12345"))
        assert not writer.has_label(found[0])
        (failed,) = read_labels(run, "one").failed.values()
        assert (failed.error, failed.message) == ("ModelFailure", "the server is gone; Bearer [redacted]")
        writer.record(judged(found[0]))
    labels = read_labels(run, "one")
    assert (len(labels.judged), len(labels.failed)) == (1, 0)


def test_what_was_paid_in_vain_is_kept_every_time_also_when_the_step_is_judged(
    run: Path, found: list[CriticInput]
) -> None:
    paid = Usage(calls=1, prompt_tokens=70, completion_tokens=9, cost_usd=0.25)
    gone = ModelFailure("the server is gone")
    with LabelWriter(run, "one", HEAD) as writer:
        writer.fail(found[0], gone, paid)
        writer.fail(found[0], gone, paid)
        writer.fail(found[1], gone)
        assert [one.spent for one in read_labels(run, "one").failed.values()] == [paid, Usage()]
        writer.record(judged(found[0]))
    assert list(read_labels(run, "one").lost) == [paid, paid, Usage()]


def test_failures_of_older_versions_tell_of_no_cost(run: Path, found: list[CriticInput]) -> None:
    with LabelWriter(run, "one", HEAD) as writer:
        writer.fail(found[0], ModelFailure("the server is gone"))
    (segment,) = (run / "labels" / "one" / "events").iterdir()
    told = json.loads(segment.read_text())
    del told["spent"]
    segment.write_text(json.dumps(told) + "\n")
    (failed,) = read_labels(run, "one").failed.values()
    assert (failed.message, failed.spent) == ("the server is gone", Usage())


def test_missing_cells_are_counted_by_cause(run: Path, found: list[CriticInput]) -> None:
    with LabelWriter(run, "one", HEAD) as writer:
        for case in found:
            writer.record(judged(case, None))
    cells = [cell for case in found for cell in case.matrix]
    silent = sum(cell.action is None for cell in cells)
    counted = count_missing(read_labels(run, "one"))
    assert counted["it said nothing"] == len(cells) - silent
    assert counted[UNREAD] == silent


def test_a_secret_is_hidden(run: Path, found: list[CriticInput], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRITIC_API_KEY", "sk-very-secret-0123456789")
    with LabelWriter(run, "one", replace(HEAD, options={"key": "sk-very-secret-0123456789"})) as writer:
        writer.record(judged(found[0], reason="the key is sk-very-secret-0123456789"))
    with LabelWriter(run, "one", replace(HEAD, options={"key": "sk-very-secret-0123456789"})):
        pass
    for path in (run / "labels").rglob("*"):
        assert not path.is_file() or b"very-secret" not in path.read_bytes()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"critic": "test-2"}, "critic 'test-1'"),
        ({"seed": 4}, "seed 3"),
        ({"options": {}}, "option per 'step', now it is None"),
    ],
)
def test_another_critic_needs_another_name(run: Path, change: dict[str, Any], told: str) -> None:
    with LabelWriter(run, "one", HEAD):
        pass
    with pytest.raises(UsageError, match=told):
        LabelWriter(run, "one", replace(HEAD, **change))
    with LabelWriter(run, "one", HEAD):  # and the refused writer gave its lock back
        pass


def test_two_writers_do_not_write_one_labelling(run: Path) -> None:
    with LabelWriter(run, "one", HEAD):
        with pytest.raises(UsageError, match="is being written by process"):
            LabelWriter(run, "one", HEAD)
        with LabelWriter(run, "two", HEAD):
            pass


def test_names_and_folders_that_are_none(run: Path, tmp_path: Path) -> None:
    for name in ("", "../x", "a b", ".hidden", "x" * 65):
        with pytest.raises(UsageError, match="a name has letters"):
            LabelWriter(run, name, HEAD)
    with pytest.raises(RunFormatError, match="not a run directory"):
        LabelWriter(tmp_path / "nowhere", "one", HEAD)
    assert not (tmp_path / "nowhere").exists()
    with LabelWriter(run, "one", HEAD):
        pass
    with pytest.raises(UnknownName, match="did you mean one"):
        read_labels(run, "ones")


def test_a_full_disk_is_one_line_and_half_a_line_does_not_count(
    run: Path, found: list[CriticInput], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, [3000]

    def full(descriptor: int, content: bytes) -> int:
        if room[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, content[: room[0]])
        room[0] -= written
        return written

    kept: list[int] = []
    with monkeypatch.context() as patch, LabelWriter(run, "one", HEAD) as writer:
        patch.setattr("collab.store.log.os.write", full)
        told = (judged(replace(found[0], step=number)) for number in range(100))
        with pytest.raises(StoreFailure, match=r"No space left on device.*what is judged is not asked again"):
            kept.extend(one.rewards.step for one in told if writer.record(one) is None)
    assert kept
    with LabelWriter(run, "one", HEAD) as writer:
        assert [step for _, step in read_labels(run, "one").judged] == kept
        writer.record(judged(found[1]))
        assert writer.has_label(found[1])


def test_the_documented_fields_are_those_that_are_written(run: Path, found: list[CriticInput]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "run-format.md").read_text(encoding="utf-8")
    section = text.partition("## `labels/`")[2].partition("## `lock`")[0]
    with LabelWriter(run, "one", HEAD) as writer:
        writer.record(judged(found[0]))
        writer.fail(found[1], ModelFailure("gone"))
    (segment,) = (run / "labels" / "one" / "events").iterdir()
    first, second = map(json.loads, segment.read_text(encoding="utf-8").splitlines())
    assert (first["type"], second["type"]) == ("judged", "failed")
    named = {"type", "case", "rewards", "calls"}
    assert first.keys() == named
    for name in (*named - {"type"}, "judged", "failed", "trajectory", "step", "critic", "score", "reason", "missing"):
        assert f"`{name}`" in section


def test_a_spoilt_line_is_named(run: Path, found: list[CriticInput]) -> None:
    with LabelWriter(run, "one", HEAD) as writer:
        writer.record(judged(found[0]))
    (segment,) = (run / "labels" / "one" / "events").iterdir()
    segment.write_bytes(segment.read_bytes().replace(b'"case"', b'"cake"'))
    with pytest.raises(RunFormatError, match=r"jsonl:1: is spoilt"):
        read_labels(run, "one")
