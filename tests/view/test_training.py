"""A training in the inspector: its records, its rollouts, and which labels count."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collab.algorithms.filtered_bc.algorithm import FilteredBC
from collab.cli.main import main
from collab.errors import UnknownName, UsageError
from collab.loop.interfaces import EpochSummary
from collab.loop.record import EpochRecord, Spending, Success, Trained, TrainingDir
from collab.rollout import build
from collab.utils.files import write_json
from collab.view import training
from collab.view.export import export
from collab.view.inspector import Inspector
from collab.view.markdown import report
from collab.view.schema.episodes import EpisodeFilter

Open = Callable[[Path], Inspector]


def sample_at(run: Path, temperature: float) -> None:
    """Rewrite a recorded run as if its agents had been sampled at another temperature."""
    head = json.loads((run / "run.json").read_text())
    for model in head["models"].values():
        model["sampling"]["temperature"] = temperature
    write_json(run / "run.json", head)


def test_a_training_is_its_epochs_together(recorded: Path, tmp_path: Path) -> None:
    folder = TrainingDir(tmp_path / "marl")
    for number in (1, 2):
        shutil.copytree(recorded, rollout := folder.get_epoch(number).rollout)
        (rollout / "labels" / "oracle").rename(rollout / "labels" / "training")
        edges = [["ada", "ben"]] if number == 1 else [["ada", "cyd"]]
        write_json(folder.get_epoch(number).graph, {"slots": ["ada", "ben", "cyd"], "edges": edges})
    shutil.copytree(recorded, folder.get_epoch(1).evaluation / "seed-30")
    sample_at(folder.get_epoch(1).evaluation / "seed-30", 0.3)
    folder.write(
        {
            "config": {
                "algorithm": "collabuiagents",
                "method": {"epochs": 2},
                "run": {"seed": 5, "sampling_seed": 1},
            },
            "created": "2026-11-22T00:00:00.000Z",
        }
    )
    trained = Trained(
        checkpoint="./x",
        digest="",
        dropped=0,
        steps=3,
        tokens=9,
        loss=0.5,
        metrics={"margin": 0.25, "accuracy": 1.0},
    )
    record = EpochRecord(
        algorithm="collabuiagents",
        epoch=1,
        version=1,
        weights={},
        metrics={"rewards": {"ada": [0.5, None]}, "pairs": {"counts": {"contrast": 4}}},
        success=Success(successes=2, episodes=3, low=0.2, high=0.9, broken=0),
        trained={"shared": trained},
        agreement=0.0,
        spent={
            "rollout": Spending(calls=1000, cost_usd=9.0),
            "critic": Spending(seconds=20, calls=7, cost_usd=1.5),
            "training": Spending(seconds=40),
        },
        hash="",
    )
    write_json(folder.get_epoch(1).record, record.model_dump(mode="json"))
    folder.get_epoch(1).get_training_dir("shared").mkdir()
    metrics = [{"step": step, "loss": 1 / step, "margin": step / 10} for step in range(1, 1001)]
    (folder.get_epoch(1).get_training_dir("shared") / "metrics.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in metrics)
    )
    inspector = Inspector([tmp_path], index_cache=tmp_path / "index_cache")
    (row,) = inspector.list_runs().runs
    assert (row.command, row.algorithm) == ("train", "collabuiagents")
    assert (row.kind, row.planned, row.done, row.success.successes) == ("training", 2, 1, 2)
    assert row.seed == "5 (sampled with 1)"
    played = [inspector.get_row(part.id) for part in inspector.get_run(row.id).parts]
    own = inspector.get_row(inspector.get_run(row.id).parts[0].id).sampling
    assert row.sampling == f"{own} in rollouts, temperature 0.3 in evaluations"
    assert (row.calls, row.cost_usd) == (sum(one.calls for one in played), None), "of its runs; none told a price"
    assert row.seconds == pytest.approx(sum(one.seconds for one in played) + 60)
    found = inspector.get_overview(row.id)
    assert [(epoch.epoch, epoch.over) for epoch in found.epochs] == [(1, True), (2, False)]
    first, second = found.epochs
    assert (found.best, found.labels, first.pairs) == (1, "training", {"contrast": 4})
    assert first.rewards is not None
    assert (first.rewards.agents, first.rewards.rates[0]) == (["ada", "ben", "cyd"], [0.5, None])
    assert (first.agreement, first.entropy) == (second.agreement, second.entropy), "both of all cells"
    assert [(one.part, one.cost_usd) for one in first.spent] == [("rollout", 9.0), ("critic", 1.5), ("training", None)]
    assert {one.cost_usd for one in second.spent} == {None}, "the oracle has no price"
    metrics = first.trained[0].metrics
    assert {name: one.value for name, one in metrics.items()} == {"loss": 0.5, "margin": 0.25, "accuracy": 1.0}
    points = metrics["loss"].points
    assert (len(points), points[0], points[-1]) == (200, (1, 1.0), (1000, 0.001))
    assert not metrics["accuracy"].points, "recorded, but not in the log"
    assert second.graph is not None
    assert (second.graph.added, second.graph.removed) == ([("ada", "cyd")], [("ada", "ben")])
    assert second.rewards is not None, "of an epoch that is not over, what its rollout tells"
    parts = inspector.get_run(row.id).parts
    assert [(part.epoch, part.role) for part in parts] == [(1, "rollout"), (1, "evaluation"), (2, "rollout")]
    rows = inspector.list_episodes(row.id, EpisodeFilter()).rows
    assert {one.epoch for one in rows} == {1, 2}
    assert inspector.get_episode(rows[0].run, rows[0].id).row.epoch == 1
    assert Counter(one.run for one in rows) == {parts[0].id: 3, parts[2].id: 3}
    assert inspector.get_step(rows[0].run, rows[0].id, 0).cells
    with pytest.raises(UsageError, match="one of its runs"):
        inspector.get_episode(row.id, rows[0].id)
    write_json(folder.get_epoch(1).record, {"epoch": "odd"})
    files = ["training.json", "epochs/1/epoch.json"]  # its method is not whole either
    assert [one.file for one in inspector.list_problems(row.id).problems] == files
    inspector.close()


class Grader(FilteredBC):
    """An algorithm from elsewhere that has rewards for the inspector to draw."""

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return a reward of every agent, and a number."""
        return EpochSummary(rewards={"ada": [0.75]}, comparisons={"grades": 3}, numbers={"mean grade": 0.5})


@pytest.mark.parametrize("algorithm", ["filtered-bc", "grader", "removed"])
def test_any_algorithm_says_what_is_drawn_of_its_metrics(
    recorded: Path, tmp_path: Path, inspect: Open, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setitem(build.BUILT_IN["algorithms"], "grader", f"{__name__}:Grader")
    folder = TrainingDir(tmp_path / "run")
    shutil.copytree(recorded, folder.get_epoch(1).rollout)
    metrics = {"solved": 3, "by task": {"a": 1}}
    record = EpochRecord(algorithm=algorithm, epoch=1, version=1, weights={}, metrics=metrics, hash="")
    write_json(folder.get_epoch(1).record, record.model_dump(mode="json"))
    folder.write({"config": {"algorithm": algorithm}, "created": "2026-11-22T00:00:00.000Z"})
    inspector = inspect(folder.path)
    (epoch,) = inspector.get_overview(inspector.list_ids()[0]).epochs
    if algorithm != "grader":
        assert epoch.metrics == {"solved": "3"}
        return
    assert epoch.metrics == {"mean grade": "0.5"}
    assert epoch.pairs == {"grades": 3}
    assert epoch.rewards is not None
    assert dict(zip(epoch.rewards.agents, epoch.rewards.rates, strict=True))["ada"] == [0.75]


@pytest.fixture
def two_critics(recorded: Path, tmp_path: Path) -> Path:
    """Two epochs, the first over; its rollout is judged by two critics, of which the second says the opposite."""
    folder = TrainingDir(tmp_path / "marl")
    for number in (1, 2):
        shutil.copytree(recorded, rollout := folder.get_epoch(number).rollout)
        (rollout / "labels" / "oracle").rename(rollout / "labels" / "training")
    other = folder.get_epoch(1).rollout / "labels" / "contrary"
    shutil.copytree(folder.get_epoch(1).rollout / "labels" / "training", other)
    (path,) = (other / "events").iterdir()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for word in (word for line in lines for word in line["rewards"]["rewards"] if word["score"] is not None):
        word["score"] = 0.0 if word["score"] > 0.5 else 1.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = EpochRecord(
        algorithm="collabuiagents",
        epoch=1,
        version=1,
        weights={},
        metrics={"rewards": {"dee": [0.25, None], "ada": [0.5, 1.0]}},
        hash="",
    )
    write_json(folder.get_epoch(1).record, record.model_dump(mode="json"))
    folder.write({"config": {}, "created": "2026-11-22T00:00:00.000Z"})
    return folder.path


def test_whose_word_counts_in_a_training_can_be_chosen(two_critics: Path, inspect: Open) -> None:
    inspector = inspect(two_critics)
    id = inspector.list_ids()[0]
    assert inspector.get_run(id).label_sets == ["contrary", "training"]
    learned, other, none = (inspector.get_overview(id, labels) for labels in (None, "contrary", ""))
    assert (learned.labels, other.labels, none.labels) == ("training", "contrary", None)
    assert inspector.get_overview(id, "training").epochs == learned.epochs
    first = [one.epochs[0].rewards for one in (learned, other, none)]
    assert first[0] is not None
    assert dict(zip(first[0].agents, first[0].rates, strict=True))["dee"] == [0.25, None], "as its record says"
    rollout = inspector.get_run(id).parts[0]
    assert first[1] == inspector.get_overview(rollout.id, "contrary").epochs[0].rewards
    assert (first[2], other.epochs[1].rewards) == (None, None), "the second epoch has no such label set"
    with pytest.raises(UnknownName, match="nobody"):
        inspector.get_overview(id, "nobody")
    assert inspector.find_steps(id, "overruled", "contrary").rows != inspector.find_steps(id, "overruled").rows
    episode = inspector.list_episodes(rollout.id, EpisodeFilter()).rows[0].id
    assert inspector.get_step(rollout.id, episode, 0).labels == "training"


def test_only_the_rollout_that_has_grown_is_counted_again(
    two_critics: Path, inspect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    count = training._build_rollout
    monkeypatch.setattr(
        training, "_build_rollout", lambda desk, part, labels: counted.append(part.epoch) or count(desk, part, labels)
    )
    inspector = inspect(two_critics)
    id = inspector.list_ids()[0]
    before = inspector.get_overview(id)
    assert (sorted(counted), inspector.get_overview(id)) == ([1, 2], before)
    (path,) = (TrainingDir(two_critics).get_epoch(2).rollout / "labels" / "training" / "events").iterdir()
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    after = inspector.get_overview(id)
    assert sorted(counted) == [1, 2, 2]
    assert (after.epochs[0], after.epochs[1].rewards != before.epochs[1].rewards) == (before.epochs[0], True)


@pytest.mark.medium
def test_a_report_holds_the_chosen_word_where_there_is_one(
    two_critics: Path, inspect: Open, read_report: Callable[[Path], Any], tmp_path: Path
) -> None:
    inspector = inspect(two_critics)
    id = inspector.list_ids()[0]
    with pytest.raises(UnknownName, match="nobody"):
        export(inspector, id, tmp_path / "none.html", labels="nobody")
    assert export(inspector, id, tmp_path / "report.html", labels="contrary").unread == ()
    answers = read_report(tmp_path / "report.html").answers
    assert answers[f"run/{id}"]["label_sets"] == ["contrary"]
    labels = {address.split("/")[1]: one["labels"] for address, one in answers.items() if "/step?" in address}
    first, second = (part.id for part in inspector.get_run(id).parts)
    assert labels == {first: "contrary", second: None}


def test_agents_stand_in_the_same_order_everywhere(two_critics: Path, inspect: Open) -> None:
    inspector = inspect(two_critics)
    id = inspector.list_ids()[0]
    rollout = inspector.get_run(id).parts[0].id
    step = inspector.get_step(rollout, inspector.list_episodes(rollout, EpisodeFilter()).rows[0].id, 0)
    orders = [
        epoch.rewards.agents
        for view in (
            inspector.get_overview(id),
            inspector.get_overview(id, "contrary"),
            inspector.get_overview(rollout),
        )
        for epoch in view.epochs
        if epoch.rewards
    ]
    assert len(orders) == 4
    assert {tuple(one) for one in orders} == {tuple(step.agents)}


def test_a_rollout_that_ended_early_counts_what_it_planned_as_its_epoch_and_the_command_line_do(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of ten planned episodes three were played; the others count as not solved, wherever the run lies."""
    folder = TrainingDir(tmp_path / "marl")
    rollout = folder.get_epoch(1).rollout
    shutil.copytree(recorded, rollout)
    head = json.loads((rollout / "run.json").read_text())
    head["planned"] = 10
    for task in head["tasks"]:
        task["episodes"] = 5
    write_json(rollout / "run.json", head)
    folder.write({"config": {}, "created": "2026-11-22T00:00:00.000Z"})
    shutil.copytree(rollout, tmp_path / "alone")
    inspector = Inspector([tmp_path], index_cache=tmp_path / "index_cache")
    alone, training = sorted(inspector.list_runs().runs, key=lambda row: row.kind)
    part = inspector.get_run(training.id).parts[0].id
    assert (alone.success.episodes, inspector.get_row(part).success.episodes) == (10, 10)
    played = [inspector.get_overview(id).epochs[0].played for id in (alone.id, part, training.id)]
    assert [one.episodes for one in played if one is not None] == [10, 10, 10]
    shown = []
    for place in (tmp_path / "alone", rollout):
        assert main(["runs", "show", str(place), "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out)["success"]["episodes"])
    assert shown == [10, 10], "as the command line says"
    solved = sum(one.success is True for one in inspector.list_episodes(part, EpisodeFilter()).rows)
    assert [one.successes for one in played if one is not None] == [solved] * 3
    tasks = [inspector.get_overview(id).tasks for id in (part, training.id)]
    assert [sum(one.success.episodes for one in found) for found in tasks] == [10, 10]
    inspector.close()


def test_without_a_measured_epoch_the_last_rollout_tells_how_a_training_goes(two_critics: Path, inspect: Open) -> None:
    """Not the evaluation that has begun behind it."""
    folder = TrainingDir(two_critics).get_epoch(2)
    measured = folder.evaluation / "seed-39"
    shutil.copytree(folder.rollout, measured)
    head = json.loads((measured / "run.json").read_text())
    write_json(measured / "run.json", head | {"planned": 40, "tasks": []})
    inspector = inspect(two_critics)
    row = inspector.list_runs().runs[0]
    (rollout,) = [part.id for part in inspector.get_run(row.id).parts if (part.epoch, part.role) == (2, "rollout")]
    assert row.success == inspector.get_row(rollout).success
    text = report(inspector.get_run(row.id), inspector.get_overview(row.id))
    assert "% of its last rollout [95 % Wilson interval]" in text
