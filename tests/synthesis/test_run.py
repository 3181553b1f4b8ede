"""A whole synthesis, stopped and resumed in every way, gives the rows of an undisturbed one."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collab.config import Budget
from collab.data.example import POLICY_LEVELS
from collab.data.parquet import read_rows
from collab.errors import ModelFailure, OverlapError, RunError, RunFormatError, UsageError
from collab.store import log
from collab.synthesis.config import SynthConfig, list_units
from collab.synthesis.estimate import estimate
from collab.synthesis.journal import Done, Journal, Said, SynthesisDir, read_records
from collab.synthesis.run import SynthResult, resume, start
from collab.synthesis.units import describe_missing
from collab.testing.fake_server import FakeServer, Fault
from collab.testing.scripted import answer_as_teacher
from collab.testing.tiny_checkpoint import make_tiny_checkpoint

Wanted = Callable[..., SynthConfig]


def run(config: SynthConfig, path: Path, **more: Any) -> SynthResult:
    return asyncio.run(start(config, path, **more))


def go_on(path: Path, **more: Any) -> SynthResult:
    return asyncio.run(resume(path, **more))


def tables(path: Path) -> dict[str, str]:
    """The Parquet files of a synthesis and their hashes."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(path.glob("*.parquet"))}


def units(path: Path) -> list[Done]:
    return [record for record in read_records(path) if isinstance(record, Done)]


def replies(path: Path) -> list[Said]:
    return [record for record in read_records(path) if isinstance(record, Said)]


@pytest.fixture(params=["oracle", "tutor"])
def teacher(request: pytest.FixtureRequest) -> str:
    return request.param


# ----------------------------------------------------------------------------------------------- an undisturbed one


@pytest.mark.medium
def test_all_levels_are_made_and_every_row_can_be_traced(build_config: Wanted, tmp_path: Path, teacher: str):
    result = run(build_config(teacher=teacher), tmp_path / "out")
    assert result.stopped is None
    assert set(result.report.by_level) == set(POLICY_LEVELS)
    rows = [row for level in POLICY_LEVELS for row in read_rows(tmp_path / "out" / f"{level}.parquet")]
    assert len({row.id for row in rows}) == len(rows) == result.report.rows
    assert {row.provenance.teacher for row in rows} == {teacher}
    assert {row.provenance.environment for row in rows} == {"fake[corridor]"}
    assert all((row.provenance.teacher_prompt is None) is (teacher == "oracle") for row in rows)


def test_the_manifest_holds_the_hash_of_each_file(build_config: Wanted, tmp_path: Path):
    run(build_config(), tmp_path / "out")
    assert describe_missing(tmp_path / "out") is None
    files = json.loads((tmp_path / "out" / "synth.json").read_text())["files"]
    assert set(files) == {*(f"{level}.parquet" for level in POLICY_LEVELS), "instructions.jsonl", "card.md"}
    for name, told in files.items():
        assert told["sha256"] == hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest()


def test_instructions_that_can_be_played_are_lines_of_a_file(build_config: Wanted, tmp_path: Path, teacher: str):
    result = run(build_config(teacher=teacher, levels=["instruction"]), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "instructions.jsonl").read_text().splitlines()]
    rows = {row.id: row for row in read_rows(tmp_path / "out" / "instruction.parquet")}
    assert 0 < len(lines) == result.report.playable <= len(rows)
    assert len({line["name"] for line in lines}) == len({line["row"] for line in lines}) == len(lines)
    assert {line["teacher"] for line in lines} == {teacher}
    for line in lines:
        row = rows[line["row"]]
        assert (line["task"], line["seed"]) == (row.provenance.task, row.provenance.seed)
        assert (len(line["before"]), line["screen"]) == (row.provenance.step, row.provenance.screen)
        assert line["goal"] in row.prompt.shared
        # The last action declares that it is done.
        assert len(line["actions"]) == (1 if line["sort"] == "complete" else 2)
        assert "complete" in line["actions"][-1]


def test_without_the_level_there_is_no_file_of_instructions(build_config: Wanted, tmp_path: Path):
    assert run(build_config(levels=["demonstration"], screens=0), tmp_path / "out").report.playable == 0
    assert not (tmp_path / "out" / "instructions.jsonl").exists()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files_however_many_work(build_config: Wanted, tmp_path: Path, teacher: str):
    run(build_config(teacher=teacher, concurrency=1), tmp_path / "one")
    run(build_config(teacher=teacher, concurrency=5), tmp_path / "five")
    assert tables(tmp_path / "one") == tables(tmp_path / "five")
    run(build_config(teacher=teacher, seed=1), tmp_path / "other")
    assert tables(tmp_path / "other") != tables(tmp_path / "one")


def test_only_the_levels_asked_for_are_made(build_config: Wanted, tmp_path: Path):
    result = run(build_config(levels=["preference"], screens=0), tmp_path / "out")
    assert set(tables(tmp_path / "out")) == {"preference.parquet"}
    assert set(result.report.by_level) == {"preference"}


def test_more_seats_make_more_decisions_of_the_same_steps(build_config: Wanted, tmp_path: Path):
    asked = {"levels": ["demonstration"], "screens": 0}
    one = run(build_config(**asked, settings=["talk=1"]), tmp_path / "one").report
    many = run(build_config(**asked, settings=["seats=4", "talk=1"]), tmp_path / "four").report
    assert (one.screens, many.made) == (many.screens, 4 * one.made)
    rows = list(read_rows(tmp_path / "four" / "demonstration.parquet"))
    assert all("round" in row.prompt.suffix for row in rows)


def test_groups_are_balanced(build_config: Wanted, tmp_path: Path):
    result = run(build_config(settings=["at_most=2"]), tmp_path / "out")
    assert result.report.dropped["more than 2 of a kind, app and action type"] > 0
    rows = [row for level in POLICY_LEVELS for row in read_rows(tmp_path / "out" / f"{level}.parquet")]
    groups = Counter((row.level, row.kind, row.provenance.apps[-1], row.action_type) for row in rows)
    assert max(groups.values()) == 2


# ------------------------------------------------------------------------------------------------ stopped, gone on


@pytest.mark.slow
def test_a_budget_that_runs_out_stops_and_can_be_resumed(build_config: Wanted, tmp_path: Path, server: FakeServer):
    whole = run(build_config(teacher="tutor"), tmp_path / "whole").report
    result = run(build_config(teacher="tutor", budget=Budget(tokens=40_000), concurrency=2), tmp_path / "out")
    assert result.stopped.startswith("budget used up: ")
    assert result.report is None
    assert not tables(tmp_path / "out")
    times = 0
    while result.stopped is not None:
        result = go_on(tmp_path / "out", budget=Budget(tokens=60_000))
        times += 1
    assert times >= 2
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")
    assert replace(result.report.spent, lost=0) == whole.spent, "what was cut off is counted apart"


@pytest.mark.slow
def test_a_budget_for_one_call_still_gets_on_by_one_call(build_config: Wanted, tmp_path: Path, server: FakeServer):
    asked = {"teacher": "tutor", "episodes": 1, "screens": 1, "concurrency": 1}
    calls = run(build_config(**asked), tmp_path / "whole").report.spent.calls
    result = run(build_config(**asked, budget=Budget(tokens=1)), tmp_path / "out")
    for done in range(1, calls):
        assert len(replies(tmp_path / "out")) == done
        assert result.stopped is not None
        result = go_on(tmp_path / "out")
    assert result.stopped is None
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")


@pytest.mark.slow
def test_no_call_is_paid_for_twice(build_config: Wanted, tmp_path: Path, server: FakeServer):
    run(build_config(teacher="tutor", budget=Budget(tokens=40_000), concurrency=3), tmp_path / "out")
    go_on(tmp_path / "out", budget=Budget(minutes=5))
    said = [reply.said for reply in replies(tmp_path / "out")]
    assert len(set(said)) == len(said)


@pytest.mark.slow
def test_replies_are_taken_from_the_journal_whatever_the_model_would_say_now(
    build_config: Wanted, tmp_path: Path, server: FakeServer, voice: Any
):
    run(build_config(teacher="tutor"), tmp_path / "whole")
    run(build_config(teacher="tutor"), tmp_path / "out")
    (segment,) = log.list_segments(tmp_path / "out")
    path = tmp_path / "out" / log.FOLDER / segment
    (tmp_path / "out" / "card.md").unlink()
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if line.startswith(b'{"said"')]
    path.write_bytes(b"".join(kept))
    voice.says = lambda body: "I am a teapot."
    assert go_on(tmp_path / "out").progress.calls.spent.calls == 0
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")


@pytest.mark.slow
def test_a_server_that_dies_stops_the_work_and_its_return_completes_it(
    build_config: Wanted, tmp_path: Path, server: FakeServer, voice: Any
):
    run(build_config(teacher="tutor", episodes=24), tmp_path / "whole")
    count = len(server.requests)

    def dying(body: Any) -> str:
        if len(server.requests) == count + 30:
            server.die()
        return answer_as_teacher(body)

    voice.says = dying
    result = run(build_config(teacher="tutor", episodes=24), tmp_path / "out")
    assert result.stopped.startswith("10 units in a row broke, the last: ")
    assert result.progress.calls.broken >= 10
    with pytest.raises(ModelFailure):
        go_on(tmp_path / "out")
    server.revive()
    voice.says = answer_as_teacher
    result = go_on(tmp_path / "out")
    assert result.stopped is None
    assert not result.report.broken
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")


@pytest.mark.slow
def test_a_stop_can_be_requested(build_config: Wanted, tmp_path: Path):
    config = build_config(env="slow", episodes=12, screens=30)
    run(config, tmp_path / "whole")

    async def stopped() -> SynthResult:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, stop.set)
        return await start(config, tmp_path / "out", stop=stop)

    assert asyncio.run(stopped()).stopped == "stopped on request"
    assert go_on(tmp_path / "out").stopped is None
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")


def test_half_a_line_at_the_end_of_the_journal_is_a_unit_to_be_made_again(build_config: Wanted, tmp_path: Path):
    run(build_config(), tmp_path / "out")
    whole = tables(tmp_path / "out")
    (segment,) = log.list_segments(tmp_path / "out")
    path = tmp_path / "out" / log.FOLDER / segment
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:100])
    (tmp_path / "out" / "card.md").unlink()
    result = go_on(tmp_path / "out")
    assert (result.progress.calls.before, result.progress.calls.done) == (3, 8)
    assert tables(tmp_path / "out") == whole


@pytest.mark.slow
def test_a_finished_synthesis_is_told_again_without_its_teacher(
    build_config: Wanted, tmp_path: Path, server: FakeServer
):
    first = run(build_config(teacher="tutor"), tmp_path / "out")
    server.die()
    again = go_on(tmp_path / "out")
    assert again.report == first.report
    assert again.progress.calls.done == again.progress.calls.planned == 8


def test_a_file_that_is_not_what_it_was_is_written_again(build_config: Wanted, tmp_path: Path):
    run(build_config(), tmp_path / "out")
    whole = tables(tmp_path / "out")
    (tmp_path / "out" / "basic.parquet").write_bytes(b"spoilt")
    (tmp_path / "out" / "preference.parquet").unlink()
    go_on(tmp_path / "out")
    assert tables(tmp_path / "out") == whole


# ------------------------------------------------------------------------------------------------------ bad teachers


def test_nothing_but_nonsense_stops_early_with_the_causes(build_config: Wanted, tmp_path: Path, voice: Any):
    voice.says = lambda body: "I am a teapot."
    result = run(build_config(teacher="tutor", episodes=24, screens=0), tmp_path / "out")
    assert "nothing of 10 units in a row could be used" in result.stopped
    assert "the reply is not JSON" in result.stopped
    assert result.progress.calls.done < 24


def test_refusals_on_the_way_are_counted_under_a_level_that_was_asked_for(
    build_config: Wanted, tmp_path: Path, voice: Any
):
    voice.says = lambda body: "hm" if "Which single step" in str(body) else answer_as_teacher(body)
    asked = {"teacher": "tutor", "levels": ["basic", "preference"], "episodes": 2, "screens": 2}
    report = run(build_config(**asked), tmp_path / "out").report
    assert report.refused == {"preference": {"the reply is not JSON": 6}}


def test_a_few_units_of_nonsense_end_without_a_file(build_config: Wanted, tmp_path: Path, voice: Any):
    voice.says = lambda body: "I am a teapot."
    with pytest.raises(RunError, match=r"no row was made; refused most often: the reply is not JSON \(\d+\)"):
        run(build_config(teacher="tutor", episodes=2, screens=2), tmp_path / "out")
    assert not tables(tmp_path / "out")


def test_a_checkpoint_in_this_process_may_teach_and_a_random_one_teaches_nothing(build_config: Wanted, tmp_path: Path):
    make_tiny_checkpoint(tmp_path / "tiny")
    agents = tmp_path / "library" / "agents" / "small.yaml"
    agents.write_text(f"kind: local\noptions: {{path: {tmp_path / 'tiny'}}}\n")
    config = build_config(teacher="small", episodes=1, screens=1, settings=["sampling.max_tokens=8"])
    with pytest.raises(RunError, match="no row was made; refused most often: the reply is"):
        run(config, tmp_path / "out")
    assert len(replies(tmp_path / "out")) >= 2


def test_half_the_schema_and_another_language_cost_only_what_is_broken(
    build_config: Wanted, tmp_path: Path, voice: Any
):
    def half(body: Any) -> str:
        said = answer_as_teacher(body)
        if not said.startswith('{"answers"'):
            return said
        answers = json.loads(said)["answers"]
        for place, answer in enumerate(answers):
            if place % 3 == 1:
                del answer["answer"]
            if place % 3 == 2:
                answer["answer"] = "Der Raum ist ein Teil von dem Flur und die Tür ist nicht auf."
        return json.dumps(answers)

    voice.says = half
    report = run(build_config(teacher="tutor", levels=["basic"], episodes=0), tmp_path / "out").report
    refused = report.refused["basic"]
    assert refused["another language"] > 0
    assert refused["an item does not fit the schema"] > 0
    assert report.made >= refused["another language"]
    assert all("Flur" not in row.reply for row in read_rows(tmp_path / "out" / "basic.parquet"))


def test_a_kept_word_that_only_the_teacher_says_is_left_out_and_counted(
    build_config: Wanted, tmp_path: Path, voice: Any
):
    voice.says = lambda body: answer_as_teacher(body).replace("a part of the corridor", "as warm as a teapot")
    result = run(build_config(env="guarded", teacher="tutor", screens=4), tmp_path / "out")
    assert result.report.refused["basic"]["a word that is kept for evaluation"] > 0
    assert "basic" not in result.report.by_level
    assert result.report.by_level["instruction"] > 0


def test_a_kept_word_on_the_screens_is_a_leak_and_refused(build_config: Wanted, tmp_path: Path, teacher: str):
    with pytest.raises(OverlapError, match="contains 'room'"):
        run(build_config(env="leaking", teacher=teacher, episodes=2, screens=4), tmp_path / "out")
    assert not tables(tmp_path / "out")


# ----------------------------------------------------------------------------------------------- broken environments


def test_an_environment_that_always_breaks_stops_the_work(build_config: Wanted, tmp_path: Path):
    result = run(build_config(env="broken", episodes=12, screens=0), tmp_path / "out")
    assert result.stopped.startswith("10 units in a row broke, the last: fake environment: broke at step 0")


def test_units_that_broke_are_named_and_the_rest_is_kept(build_config: Wanted, tmp_path: Path):
    config = build_config(env="partly", screens=0)
    report = run(config, tmp_path / "out").report
    broken = config.tasks.index("TypeWord")
    assert set(report.broken) == {f"episode/{broken}", f"episode/{broken + 3}"}
    assert report.units == 6
    assert report.rows > 0
    assert sum(len(list(read_rows(tmp_path / "out" / name))) for name in tables(tmp_path / "out")) == report.rows
    assert not (tmp_path / "out" / "card.md").exists()


def test_a_set_that_an_older_version_ended_with_broken_units_is_not_whole(build_config: Wanted, tmp_path: Path):
    run(build_config(env="partly", screens=0), tmp_path / "out")
    manifest = tmp_path / "out" / "synth.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"finished": "2026-01-01T00:00:00Z"}))
    lacks = f"{tmp_path / 'out'}: 2 units are missing; make the set whole with: collab synth --resume {tmp_path}/out"
    assert describe_missing(tmp_path / "out") == lacks
    assert go_on(tmp_path / "out").progress.calls.broken == 2, "both were tried again"


@pytest.mark.slow
def test_units_that_broke_are_made_again_and_then_the_set_is_whole(
    build_config: Wanted, tmp_path: Path, server: FakeServer, voice: Any
):
    config = build_config(teacher="tutor", episodes=3, screens=0, concurrency=1)
    run(config, tmp_path / "whole")
    count = len(server.requests)

    def failing_once(body: Any) -> str:
        if len(server.requests) == 3 * count // 2:
            server.faults.append(Fault(status=500))
        return answer_as_teacher(body)

    voice.says = failing_once
    first = run(config, tmp_path / "out")
    assert (first.stopped, len(first.report.broken)) == (None, 1)
    assert SynthesisDir(tmp_path / "out").read_head().finished is None
    assert tables(tmp_path / "out") != tables(tmp_path / "whole")
    second = go_on(tmp_path / "out")
    assert not second.report.broken
    assert second.progress.calls.done - second.progress.calls.before == 1
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")
    assert (tmp_path / "out" / "card.md").read_text() == (tmp_path / "whole" / "card.md").read_text()


# --------------------------------------------------------------------------------------------------- the directory


def test_a_directory_that_holds_something_is_left_alone(build_config: Wanted, tmp_path: Path, server: FakeServer):
    run(build_config(), tmp_path / "out")
    server.die()
    with pytest.raises(UsageError, match="a synthesis is there already"):  # found before the teacher is asked
        run(build_config(teacher="tutor"), tmp_path / "out")
    with pytest.raises(
        UsageError, match="a synthesis is there already; give another --out, or resume it: collab synth"
    ):
        run(build_config(), tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="something is there already"):
        run(build_config(), tmp_path / "mine")


def test_one_process_writes_at_a_time(build_config: Wanted, tmp_path: Path):
    run(build_config(), tmp_path / "out")
    (tmp_path / "out" / "card.md").unlink()
    with (
        Journal(tmp_path / "out"),
        pytest.raises(UsageError, match=r"is being written by process \d+ since .* --resume"),
    ):
        go_on(tmp_path / "out")
    assert go_on(tmp_path / "out").stopped is None


def test_what_is_no_synthesis_is_not_resumed(tmp_path: Path, build_config: Wanted):
    with pytest.raises(RunFormatError, match=r"no synth\.json in it, so it is no synthesis"):
        go_on(tmp_path)
    run(build_config(), tmp_path / "out")
    head = tmp_path / "out" / "synth.json"
    written = json.loads(head.read_text()) | {"finished": None}
    for change, message in (
        ({"format": 2}, "has format 2, this version reads format 1"),
        ({"environment_version": "0"}, "made with fake\\[corridor\\] version 0, this is version 1"),
        ({"created": 7}, "created: Input should be a valid string"),
    ):
        head.write_text(json.dumps(written | change))
        with pytest.raises(RunFormatError, match=message):
            go_on(tmp_path / "out")
    head.write_text("{")
    with pytest.raises(RunFormatError, match="not JSON"):
        go_on(tmp_path / "out")


def test_a_spoilt_line_is_named(build_config: Wanted, tmp_path: Path):
    run(build_config(), tmp_path / "out")
    (segment,) = log.list_segments(tmp_path / "out")
    path = tmp_path / "out" / log.FOLDER / segment
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"unit": 7}\n' + b"".join(lines[1:]))
    (tmp_path / "out" / "card.md").unlink()
    with pytest.raises(RunFormatError, match=rf"{segment}:2: is spoilt .* remove that line"):
        go_on(tmp_path / "out")


def test_secrets_are_hidden_in_the_journal(
    build_config: Wanted, tmp_path: Path, voice: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOUSE_TOKEN", "corridor-4711")
    voice.says = lambda body: answer_as_teacher(body).replace("a part of the corridor", "locked with corridor-4711")
    run(build_config(teacher="tutor", episodes=2, screens=4), tmp_path / "out")
    held = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert b"corridor-4711" not in held
    assert any("[redacted]" in row.reply for row in read_rows(tmp_path / "out" / "basic.parquet"))


def test_every_unit_has_one_record(build_config: Wanted, tmp_path: Path):
    config = build_config()
    run(config, tmp_path / "out")
    records = [done.unit for done in units(tmp_path / "out")]
    assert sorted(records) == sorted(unit.id for unit in list_units(config))
    assert SynthesisDir(tmp_path / "out").read_head().config == config.model_dump(mode="json")


# ------------------------------------------------------------------------------------------------------- the plan


@pytest.mark.slow
def test_the_plan_of_a_model_is_what_a_good_one_is_asked(build_config: Wanted, tmp_path: Path, server: FakeServer):
    config = build_config(teacher="tutor", episodes=9)
    planned = asyncio.run(estimate(config))
    assert not server.requests
    made = run(config, tmp_path / "out").report
    assert planned.screens == 20
    assert sum(planned.calls.values()) == pytest.approx(made.spent.calls, rel=0.3)
    assert planned.rows["preference"] >= made.by_level["preference"]


def test_the_plan_of_a_model_says_what_it_supposes(build_config: Wanted):
    planned = asyncio.run(estimate(build_config(teacher="tutor", tasks=["PressButton"], episodes=2, screens=1)))
    assert planned.basis == (
        "if every reply is whole, every step rewarded and none taken in vain; steps as in 2 known solutions"
    )


def test_the_plan_of_the_oracle_is_exact_where_every_unit_is_looked_at(build_config: Wanted, tmp_path: Path):
    config = build_config()
    planned = asyncio.run(estimate(config))
    run(config, tmp_path / "out")
    made = Counter(row.level for done in units(tmp_path / "out") for row in done.rows)
    assert planned.calls == {}
    assert planned.rows == made
    assert planned.basis == "extrapolated from 2 walks and 6 episodes"


def test_the_plan_of_the_oracle_extrapolates(build_config: Wanted):
    few, many = (asyncio.run(estimate(build_config(episodes=episodes, screens=0))) for episodes in (6, 600))
    assert 50 < many.rows["demonstration"] / few.rows["demonstration"] < 200
