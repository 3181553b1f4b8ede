"""Estimates of a training: joined to the steps that they are of, told in words where they are lacking, counted once."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collab.cli.main import main
from collab.errors import RunFormatError
from collab.loop.interfaces import load_algorithm
from collab.loop.loop import start
from collab.loop.record import TrainingDir, read_record
from collab.testing.toy_team import configure_toy_training, write_library
from collab.trainers.rl.step_estimates import ESTIMATES, read_estimates
from collab.view.export import export
from collab.view.inspector import Inspector
from collab.view.markdown import report
from collab.view.schema.episodes import EpisodeFilter

Open = Callable[[Path], Inspector]


def lesson(training: TrainingDir, epoch: int) -> Path:
    return training.get_epoch(epoch).examples / "shared"


def first_episode(inspector: Inspector) -> tuple[str, str]:
    """Run and id of the first episode of the first epoch."""
    row = inspector.list_episodes(inspector.list_ids()[0], EpisodeFilter(epoch=1)).rows[0]
    return row.run, row.id


def test_the_estimates_of_an_episode_are_those_of_its_steps(estimated: TrainingDir, inspect: Open) -> None:
    inspector = inspect(estimated.path)
    run, id = first_episode(inspector)
    view = inspector.get_episode(run, id)
    assert [(one.epoch, one.policy) for one in view.estimates] == [(2, "shared"), (1, "shared")], "the newest first"
    assert view.unestimated is None
    for found in view.estimates:
        assert [one.step for one in found.steps] == [step.step for step in view.steps]
        (written,) = [
            one for one in read_estimates(lesson(estimated, found.epoch)) if (one.trajectory, one.step) == (id, 1)
        ]
        told = found.steps[1]
        for name in ("reward", "value", "value_next", "advantage", "threshold", "weight", "instruct_value", "why"):
            assert getattr(told, name) == getattr(written, name)
    # The same episode of the second rollout was estimated by none.
    other = inspector.list_episodes(inspector.list_ids()[0], EpisodeFilter(epoch=2)).rows[0]
    view = inspector.get_episode(other.run, other.id)
    assert (view.row.id, view.estimates, view.unestimated) == (id, [], "no epoch has estimated this episode")


def test_a_moved_training_keeps_its_estimates(estimated: TrainingDir, tmp_path: Path, inspect: Open) -> None:
    shutil.move(estimated.path, tmp_path / "elsewhere")
    inspector = inspect(tmp_path / "elsewhere")
    assert len(inspector.get_episode(*first_episode(inspector)).estimates) == 2


def test_runs_of_no_training_and_trainings_without_lessons_say_nothing(
    recorded: Path, estimated: TrainingDir, inspect: Open
) -> None:
    alone = inspect(recorded)
    view = alone.get_episode(*first_episode_of(alone))
    assert (view.estimates, view.unestimated) == ([], None)
    for number in (1, 2):
        shutil.rmtree(estimated.get_epoch(number).examples)
    inspector = inspect(estimated.path)
    view = inspector.get_episode(*first_episode(inspector))
    assert (view.estimates, view.unestimated) == ([], None)
    found = inspector.get_overview(inspector.list_ids()[0])
    assert (found.calibrations, found.unestimated) == ([], None)


def first_episode_of(inspector: Inspector) -> tuple[str, str]:
    row = inspector.list_episodes(inspector.list_ids()[0], EpisodeFilter()).rows[0]
    return row.run, row.id


def remove(file: Path) -> None:
    file.unlink()


def spoil(file: Path) -> None:
    file.write_bytes(b"PAR1 nonsense PAR1")


def link_out(file: Path) -> None:
    other = Path(shutil.move(file, file.parents[6] / "outside.parquet"))
    file.symlink_to(other)


def change_columns(file: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(
        pyarrow.table({"run": ["./epochs/1/rollout"], "trajectory": [7], "why": ["x" * 9000]}), file
    )


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (remove, "is missing"),
        (spoil, "cannot be read: "),
        (change_columns, "cannot be read: it has other columns than run, trajectory"),
        (link_out, "is a link out of the run; its target is not read"),
    ],
)
def test_what_is_lacking_is_told_and_the_rest_shown(
    estimated: TrainingDir, inspect: Open, harm: Callable[[Path], None], said: str
) -> None:
    harm(lesson(estimated, 2) / ESTIMATES)
    inspector = inspect(estimated.path)
    id = inspector.list_ids()[0]
    view, found = inspector.get_episode(*first_episode(inspector)), inspector.get_overview(id)
    told = f"epochs/2/examples/shared/{ESTIMATES}: {said}"
    assert [one.epoch for one in view.estimates] == [1]
    assert {one.epoch for one in found.calibrations} == {1}
    for words in (view.unestimated, found.unestimated):
        assert words is not None
        assert words.startswith(told)
        assert str(estimated.path) not in words
        assert len(words) < 600
    problems = inspector.list_problems(id).problems
    assert [one.file for one in problems if one.file.endswith(ESTIMATES)] == [f"epochs/2/examples/shared/{ESTIMATES}"]
    assert found.run.problems == len(problems)


def test_pages_hear_of_new_estimates(estimated: TrainingDir, inspect: Open) -> None:
    file = lesson(estimated, 2) / ESTIMATES
    content = file.read_bytes()
    file.unlink()
    inspector = inspect(estimated.path)
    run, id = first_episode(inspector)
    ids = (inspector.list_ids()[0], run)
    before = [inspector.describe_state(one) for one in ids]
    assert [one.epoch for one in inspector.get_overview(ids[0]).calibrations] == [1, 1]
    file.write_bytes(content)
    assert all(inspector.describe_state(one) != old for one, old in zip(ids, before, strict=True))
    assert [one.epoch for one in inspector.get_episode(run, id).estimates] == [2, 1]
    assert [one.epoch for one in inspector.get_overview(ids[0]).calibrations] == [1, 1, 2, 2]
    assert inspector.get_growth(run).state == inspector.describe_state(run)


def test_estimates_that_cannot_be_read_are_one_error(estimated: TrainingDir) -> None:
    folder = lesson(estimated, 1)
    spoil(folder / ESTIMATES)
    with pytest.raises(RunFormatError, match=r"estimates\.parquet: cannot be read"):
        list(read_estimates(folder))


def test_values_are_held_against_outcomes_in_ten_bins(estimated: TrainingDir, inspect: Open) -> None:
    inspector = inspect(estimated.path)
    found = inspector.get_overview(inspector.list_ids()[0])
    assert [(one.epoch, one.rated) for one in found.calibrations] == [
        *((1, "states"), (1, "tasks"), (2, "states"), (2, "tasks"))
    ]
    estimates = list(read_estimates(lesson(estimated, 2)))
    counts = Counter(2 + one.step for one in estimates)
    states, tasks = found.calibrations[2:]
    assert [one.count for one in states.bins] == [counts[place] for place in range(10)]
    assert {one.solved for one in states.bins if one.count} == {1.0}
    episodes = {one.trajectory for one in estimates}
    assert [one.count for one in tasks.bins] == [0] * 9 + [len(episodes)], "a task has one value per episode"


def test_the_command_line_the_page_and_the_appendix_tell_the_same_numbers(
    estimated: TrainingDir, inspect: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    inspector = inspect(estimated.path)
    id = inspector.list_ids()[0]
    found = inspector.get_overview(id)
    record = read_record(estimated.get_epoch(2).record)
    algorithm = load_algorithm("digirl")
    epoch, (solved, kept, left_out, *values) = found.epochs[-1], algorithm.format_lines(record)
    assert (epoch.kept, epoch.left_out) == (algorithm.summarize(record).kept, algorithm.summarize(record).left_out)
    (part, whole), (episodes, of) = epoch.kept["steps"], epoch.kept["episodes"]
    assert solved.startswith("solved ")
    assert kept == f"kept     {episodes} of {of} episodes, {part} of {whole} steps"
    assert left_out.startswith(f"left out {whole - part}: ")
    assert values == [
        "V        of tasks: accuracy 0.50, AUC -, ECE 0.50 on episodes held out, n = 2; all of these ended alike",
        "V        of states: accuracy 0.75, AUC 0.62, ECE 0.12 on episodes held out, n = 9",
    ]
    assert algorithm.build_columns(record) == {
        "episodes kept": f"{episodes} of {of}",
        "steps kept": f"{part} of {whole}",
        "V accuracy": "75%",
    }
    assert (epoch.predictions["states"].auc, epoch.predictions["tasks"].auc) == (0.625, None)
    text = report(inspector.get_run(id), found)
    assert f"| 2 | {episodes} of {of} | {part} of {whole} | {whole - part} |" in text
    assert "| 2 | states | 0.75 | 0.625 | 0.125 | 9 |" in text
    assert "<img" not in text.replace("\\<img", "")


def test_metrics_that_the_algorithm_cannot_have_written_are_a_problem(estimated: TrainingDir, inspect: Open) -> None:
    path = estimated.get_epoch(2).record
    content = json.loads(path.read_text())
    content["metrics"]["kept"] = {"episodes": "many"}
    path.write_text(json.dumps(content))
    inspector = inspect(estimated.path)
    told = {one.file: one.reason for one in inspector.list_problems(inspector.list_ids()[0]).problems}
    assert "kept" in told["epochs/2/epoch.json"]


def test_a_report_holds_the_estimates_of_its_episodes(
    estimated: TrainingDir, inspect: Open, read_report: Callable[[Path], Any], tmp_path: Path
) -> None:
    inspector = inspect(estimated.path)
    run, id = first_episode(inspector)
    export(inspector, inspector.list_ids()[0], tmp_path / "report.html")
    answers = read_report(tmp_path / "report.html").answers
    (view,) = [
        one for address, one in answers.items() if address.startswith(f"run/{run}/episode?") and one["row"]["id"] == id
    ]
    assert [one["epoch"] for one in view["estimates"]] == [2, 1]
    assert answers[f"run/{inspector.list_ids()[0]}/overview"]["calibrations"]
    assert str(estimated.path) not in json.dumps(view)


@pytest.mark.medium
def test_every_part_of_what_was_learned_is_a_figure(estimated: TrainingDir, tmp_path: Path) -> None:
    assert main(["report", str(estimated.path), "--figures", str(tmp_path / "figures")]) == 0
    names = {one.stem for one in (tmp_path / "figures").glob("*.svg")}
    learned = {"kept", "left-out", "values-accuracy", "values-auc", "values-ece", "calibration-1", "calibration-2"}
    assert learned <= names


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_that_was_trained_is_estimated_where_it_learned(
    finetuned: Path, tmp_path: Path, inspect: Open
) -> None:
    library = write_library(tmp_path / "library", finetuned)
    config = asyncio.run(configure_toy_training(library, "determinism=fast", algorithm="digirl"))
    result = asyncio.run(start(config, tmp_path / "run", device="cpu"))
    inspector = inspect(tmp_path / "run")
    id = inspector.list_ids()[0]
    found = inspector.get_overview(id)
    assert found.unestimated is None
    for record in result.records[1:]:
        (epoch,) = [one for one in found.epochs if one.epoch == record.epoch]
        estimates = list(read_estimates(lesson(TrainingDir(tmp_path / "run"), record.epoch)))
        assert epoch.kept["steps"] == (sum(one.weight > 0 for one in estimates), len(estimates))
        assert sum(epoch.left_out.values()) == sum(one.weight == 0 for one in estimates)
        assert epoch.predictions.keys() == {"tasks", "states"}
    rows = inspector.list_episodes(id, EpisodeFilter()).rows
    seen = [inspector.get_episode(row.run, row.id) for row in rows if row.epoch == 1]
    estimated = [view for view in seen if view.estimates]
    assert len(estimated) == result.records[1].metrics["remembered"]["episodes"], "the others are beyond its steps"
    assert {tuple(one.epoch for one in view.estimates) for view in estimated} == {(2, 1)}
    assert all(len(one.steps) == len(view.steps) for view in seen for one in view.estimates)
