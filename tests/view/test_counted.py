"""Which episodes, calls, seconds and failures are counted: also of runs that are not over or played too much."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.collabuiagents.metrics import summarize
from collab.cli.main import main
from collab.evaluation.metrics import evaluate
from collab.loop.interfaces import load_config
from collab.loop.record import EpochRecord, Spending, TrainingDir, collect_play_facts
from collab.loop.step_budget import plan_order
from collab.store.reader import RunReader
from collab.testing import toy_team
from collab.utils.files import write_json
from collab.view.export import export
from collab.view.inspector import Inspector
from collab.view.markdown import report
from collab.view.readers import measure_seconds

Open = Callable[[Path], Inspector]
LIBRARY = str(Path(__file__).parents[1] / "cli" / "library")


def lines_of(run: Path) -> tuple[Path, list[dict[str, Any]]]:
    (path,) = (run / "events").iterdir()
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(recorded, tmp_path / "runs" / "run"))


@pytest.fixture
def budgeted(recorded: Path, tmp_path: Path) -> tuple[Path, str]:
    """A training whose epochs have as many steps as the first episode of its rollout; that episode."""
    folder = TrainingDir(tmp_path / "marl")
    rollout = Path(shutil.copytree(recorded, folder.get_epoch(1).rollout))
    with RunReader(rollout) as reader:
        first = plan_order(reader)[0]
        (steps,) = [one.steps for one in reader.list_episodes() if one.id == first]
    library = toy_team.write_library(tmp_path / "library", Path("checkpoints/none"))
    config = asyncio.run(toy_team.configure_toy_training(library, f"steps={steps}"))
    head = {"config": config.model_dump(mode="json"), "created": "2026-11-22T00:00:00.000Z"}
    folder.write(head)
    return folder.path, first


def test_a_rollout_is_told_by_the_episodes_that_are_learned_from(
    budgeted: tuple[Path, str], inspect: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    path, first = budgeted
    inspector = inspect(path)
    row = inspector.list_runs().runs[0]
    rollout = inspector.get_run(row.id).parts[0].id
    with RunReader(path / "epochs" / "1" / "rollout") as reader:
        votes = reader.query(
            "SELECT count(*), avg(agreement), avg(entropy) FROM steps JOIN episodes USING (key) WHERE trajectory = ?",
            first,
        )[0]
        solved = sum(
            one.outcome is not None and one.outcome.success for one in reader.list_episodes() if one.id == first
        )
        steps = reader.query("SELECT count(*) FROM steps")[0][0]
    assert steps > votes[0]
    for id in (row.id, rollout):
        found = inspector.get_overview(id)
        (epoch,) = found.epochs
        assert (epoch.steps, epoch.agreement, epoch.entropy) == votes
        assert epoch.played is not None
        assert (epoch.played.successes, epoch.played.episodes) == (solved, 1)
        assert [(one.name, one.success.episodes) for one in found.tasks] == [(first.partition("/")[0], 1)]
    assert inspector.get_row(rollout).success.episodes == 1
    assert (inspector.get_row(rollout).done, inspector.get_row(rollout).steps) == (3, steps), "all of it was played"
    assert inspector.get_overview(row.id).tasks_epoch == 1
    alone = inspect(path / "epochs" / "1" / "rollout")
    (one,) = alone.list_runs().runs
    assert (one.success.successes, one.success.episodes) == (solved, 1), "also where its training was not named"
    assert (alone.get_overview(one.id).epochs[0].steps, alone.get_overview(one.id).epochs[0].agreement) == votes[:2]
    assert main(["runs", "show", str(path / "epochs" / "1" / "rollout"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["success"]["episodes"] == 1
    counted = "over the episodes that count for its epoch"
    assert counted in report(alone.get_run(one.id), alone.get_overview(one.id))
    text = report(inspector.get_run(row.id), inspector.get_overview(row.id))
    assert "By task, of the rollout of epoch 1: played to be learned from, not held out." in text


def test_calls_that_nothing_is_learned_from_are_a_part_of_their_epoch(
    budgeted: tuple[Path, str], inspect: Open
) -> None:
    path, _ = budgeted
    spent = {"rollout": Spending(seconds=3.0, calls=2)}
    record = EpochRecord(algorithm="collabuiagents", epoch=1, version=1, weights={}, spent=spent, hash="")
    write_json(TrainingDir(path).get_epoch(1).record, record.model_dump(mode="json"))
    inspector = inspect(path)
    row = inspector.list_runs().runs[0]
    parts = {one.part: one.calls for one in inspector.get_overview(row.id).epochs[0].spent}
    assert parts == {"rollout": 2, "rollout, not learned from": row.calls - 2}
    assert row.seconds == 3.0, "as its record says"


def test_agreement_is_one_number_and_one_sentence_wherever_it_is_told(
    budgeted: tuple[Path, str], inspect: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand, in a step, an episode, a run and its training, in JSON, Markdown and on the command line."""
    path, first = budgeted
    training = TrainingDir(path)
    config = load_config(training.read()["config"], "training.json")
    with RunReader(training.get_epoch(1).rollout) as reader:
        learned = [one for one in reader.iterate_trajectories() if one.id == first]
    facts = collect_play_facts([config.run], learned, evaluate(learned))
    record = EpochRecord(algorithm="collabuiagents", epoch=1, version=1, weights={}, hash="", **facts)
    write_json(training.get_epoch(1).record, record.model_dump(mode="json"))
    shares = []
    for step in learned[0].steps:
        winner = step.vote.ballots[0].cells if step.vote.ballots else ()
        shares.append(len(winner) / len(list(step.matrix)))
    mean = sum(shares) / len(shares)
    assert 0 < mean < 1

    inspector = inspect(path)
    row = inspector.list_runs().runs[0]
    rollout = inspector.get_run(row.id).parts[0].id
    told = [inspector.get_step(rollout, first, number).vote.agreement for number in range(len(shares))]
    assert told == pytest.approx(shares)
    assert [one.agreement for one in inspector.get_episode(rollout, first).steps] == pytest.approx(shares)
    assert inspector.get_episode(rollout, first).row.agreement == pytest.approx(mean)
    for id in (row.id, rollout):
        assert inspector.get_overview(id).epochs[0].agreement == pytest.approx(mean)
    for place in (path, training.get_epoch(1).rollout):
        assert main(["report", str(place)]) == 0
        lines = [line.split("|") for line in capsys.readouterr().out.splitlines()]
        head = next(number for number, line in enumerate(lines) if " agreement " in line)
        assert lines[head + 2][lines[head].index(" agreement ")].strip() == f"{100 * mean:.1f}"
    assert main(["runs", "show", str(path)]) == 0
    assert f"agreed   {mean:.0%} of a step's cells, those without an action included, voted for the winner" in (
        capsys.readouterr().out
    )
    words = "the share of a step's cells, those without an action included, that voted for the winner"
    docs = Path(__file__).parents[2] / "docs"
    for page in ("glossary", "inspector", "training"):
        assert words in " ".join((docs / f"{page}.md").read_text(encoding="utf-8").split())


def test_a_run_that_is_not_over_has_the_same_success_here_and_on_the_command_line(
    run: Path, inspect: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    path, lines = lines_of(run)
    ends = [place for place, line in enumerate(lines) if line["type"] == "episode_finished"]
    finished = inspect(run.parent).list_runs().runs[0]
    assert (finished.status, finished.success.episodes) == ("finished", 3)
    write_lines(path, [line for place, line in enumerate(lines) if place < ends[-1] or line["type"] == "text"])
    (run / "index.sqlite").unlink()
    inspector = inspect(run.parent)
    row = inspector.list_runs().runs[0]
    assert (row.status, row.done, row.planned, row.success.episodes) == ("dead", 2, 3, 3)
    assert main(["runs", "show", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["success"]
    assert (told["successes"], told["episodes"]) == (row.success.successes, 3)
    overview = inspector.get_overview(row.id)
    assert sum(one.success.episodes for one in overview.tasks) == 3
    assert overview.epochs[0].played == row.success
    text = report(inspector.get_run(row.id), overview)
    assert "% over planned episodes, of which 2 are over; the others count as not solved [95 % Wilson" in text


def test_time_goes_by_the_clock_and_not_by_what_ran_at_the_same_time(run: Path, inspect: Open) -> None:
    _, lines = lines_of(run)
    begin, end = (datetime.fromisoformat(lines[place]["time"]) for place in (0, -1))
    inspector = inspect(run)
    row = inspector.list_runs().runs[0]
    assert row.seconds == (end - begin).total_seconds()
    text = report(inspector.get_run(row.id), inspector.get_overview(row.id))
    assert "seconds are added up over episodes, which run at the same time" in text


def test_the_time_between_two_processes_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    begun = datetime.fromisoformat("2026-11-20T12:00:00.000Z")

    def event(seconds: float, filling: str = "") -> str:
        time = (begun + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
        head = f'{{"format_version":"1.1","type":"note","seq":0,"time":"{time}","writer":"1"'
        return head + f',"text":"{filling}"}}\n'

    long = "x" * (1 << 19)
    (tmp_path / "events" / "0001-aa.jsonl").write_text("spoilt\n" + event(0) + event(4) + event(7, long) + '{"half')
    (tmp_path / "events" / "0002-bb.jsonl").write_text(event(1000) + event(1002.5))
    (tmp_path / "events" / "0003-cc.jsonl").write_text("nothing\n")
    (tmp_path / "events" / "0004-dd.jsonl").write_text(event(9) + event(8))
    assert measure_seconds(tmp_path) == 9.5


def test_calls_of_steps_that_never_ended_were_paid_for(run: Path, inspect: Open) -> None:
    path, lines = lines_of(run)
    (spent,) = [line["spent"] for line in lines if line["type"] == "spent"]
    recorded = spent["calls"]
    spent |= {"calls": recorded + 5, "prompt_tokens": 700, "cost_usd": 0.25}
    write_lines(path, lines)
    (run / "index.sqlite").unlink()
    inspector = inspect(run)
    row = inspector.list_runs().runs[0]
    assert (row.calls, row.prompt_tokens, row.completion_tokens, row.cost_usd) == (recorded + 5, 700, None, 0.25)
    parts = {one.part: one for one in inspector.get_overview(row.id).epochs[0].spent}
    assert (parts["deliberation"].calls, parts["not recorded"].calls) == (recorded, 5)
    assert parts["not recorded"].cost_usd == 0.25
    write_lines(path, [line for line in lines if line["type"] != "spent"])
    assert inspect(run).list_runs().runs[0].calls == recorded, "a process that told nothing: what it recorded"


def test_a_run_and_its_training_tell_the_same_causes(recorded: Path, tmp_path: Path, inspect: Open) -> None:
    folder = TrainingDir(tmp_path / "marl")
    rollout = Path(shutil.copytree(recorded, folder.get_epoch(1).rollout))
    (head,) = (rollout / "pairs").glob("*/pairs.json")
    told = json.loads(head.read_text())
    source = next(iter(told["counts"]))
    counts = {
        "counts": {source: 4, "no source had a worse reply": 1},
        "refused": {"leads to the same state": 101},
        "failed": {"ModelFailure": 2, source: 1},
        "unjudged": 3,
        "untried": 0,
    }
    write_json(head, told | counts)
    record = EpochRecord(algorithm="collabuiagents", epoch=1, version=1, weights={}, metrics={"pairs": counts}, hash="")
    write_json(folder.get_epoch(1).record, record.model_dump(mode="json"))
    folder.write({"config": {}, "created": "2026-11-22T00:00:00.000Z"})
    inspector = inspect(folder.path)
    id = inspector.list_ids()[0]
    unpaired = {
        source: 1,
        "no source had a worse reply": 1,
        "leads to the same state": 101,
        "ModelFailure": 2,
        "not judged": 3,
    }
    assert (summarize(record).comparisons, summarize(record).uncompared) == ({source: 4}, unpaired)
    for one in (id, inspector.get_run(id).parts[0].id):
        epoch = inspector.get_overview(one).epochs[0]
        assert (epoch.pairs, epoch.unpaired) == ({source: 4}, unpaired)


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in the corridor, all of whose episodes fail."""
    run = tmp_path_factory.mktemp("lost") / "run"
    play = ("--env", "corridor", "--graph", "single", "--agents", "parrot", "--tasks", "TypeWord", "--episodes", "3")
    assert main(["rollout", *play, "--library", LIBRARY, "--out", str(run)]) == 0
    return run


def test_reasons_of_failure_are_there_once_they_were_looked_at(lost, inspect, read_report, tmp_path):
    inspector = inspect(lost)
    id = inspector.list_runs().runs[0].id
    assert inspector.get_overview(id, None).failures == []
    assert main(["runs", "show", str(lost), "--failures"]) == 0
    (shown,) = inspector.get_overview(id, None).failures
    assert (shown.mode, shown.coarse, shown.episodes) == ("no attempt", "stuck midway", 3)
    export(inspector, id, tmp_path / "report.html")
    answers = read_report(tmp_path / "report.html").answers
    (overview,) = (answer for name, answer in answers.items() if name.startswith(f"run/{id}/overview"))
    assert [one["mode"] for one in overview["failures"]] == ["no attempt"]
    kept = (lost / "failures.json").read_text()
    (lost / "failures.json").write_text("{")
    assert inspector.get_overview(id, None).failures == []
    (lost / "failures.json").write_text(kept)
