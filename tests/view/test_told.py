"""What cannot be read is counted where runs are listed, and what is no run is not listed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.loop.record import TrainingDir
from collab.utils.files import write_json
from collab.view.inspector import Inspector

Open = Callable[[Path], Inspector]


@pytest.fixture
def training(recorded: Path, tmp_path: Path) -> TrainingDir:
    folder = TrainingDir(tmp_path / "runs" / "marl")
    for number in (1, 2):
        shutil.copytree(recorded, folder.get_epoch(number).rollout)
    folder.write({"config": {}, "created": "2026-11-22T00:00:00.000Z"})
    return folder


def test_a_training_counts_all_that_cannot_be_read_of_it(training: TrainingDir, tmp_path: Path, inspect: Open) -> None:
    """A head that is no head, a spoilt judgement, a link out of it and a measure that is none."""
    (training.get_epoch(1).rollout / "run.json").write_text('{"format_version": "9.0"}')
    (words,) = (training.get_epoch(2).rollout / "labels" / "oracle" / "events").iterdir()
    words.write_bytes(b"nonsense\n" + words.read_bytes())
    (tmp_path / "elsewhere").mkdir()
    (training.path / "epochs" / "3").symlink_to(tmp_path / "elsewhere")
    training.get_epoch(2).get_training_dir("shared").mkdir()
    (training.get_epoch(2).get_training_dir("shared") / "metrics.jsonl").write_text('{"step": 1}\n')
    inspector = inspect(training.path)
    row = inspector.list_runs().runs[0]
    method, *told = inspector.list_problems(row.id).problems
    assert method.file == "training.json", "it has none"
    assert [one.file.split("/")[1] for one in told] == ["3", "2", "1", "2"]
    assert row.problems == 1 + len(told)
    assert [inspector.get_row(part.id).problems for part in inspector.get_run(row.id).parts] == [1], (
        "the other is unreadable"
    )


@pytest.mark.slow
def test_lines_of_a_log_of_training_that_are_no_measures_are_left_out_and_told(
    training: TrainingDir, tmp_path: Path, inspect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = training.get_epoch(1).get_training_dir("shared")
    folder.mkdir()
    good = [{"step": step, "loss": 1 / step, "margin": 0.5, "tokens": 10 * step} for step in (1, 2, 3)]
    spoilt = [
        *(b'{"step": "x", "loss": 1}', b'{"step": null, "loss": 1}', b'{"step": 1e999, "loss": 1}'),
        *(b'{"step": true, "loss": 1}', b'{"step": 3, "loss": NaN}', b'{"step": 3, "loss": 1, "margin": "a"}'),
        *(b'{"step": 3, "loss": \xff}', b"[" * 100_000, b"7", b'{"step": 3}', b""),
        *(b'{"step": 3, "loss": 1, "compared": 0}', b'{"step": 3, "loss": 1, "margin": 1, "compared": null}'),
    ]
    lines = [json.dumps(good[0]).encode(), *spoilt, *(json.dumps(one).encode() for one in good[1:])]
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines) + b'\n{"step": 4, "lo')
    inspector = inspect(training.path)
    row = inspector.list_runs().runs[0]
    (policy,) = inspector.get_overview(row.id).epochs[0].trained
    assert {name: list(one.points) for name, one in policy.metrics.items()} == {
        "loss": [(1, 1.0), (2, 0.5), (3, 1 / 3)],
        "margin": [(1, 0.5), (2, 0.5), (3, 0.5)],
    }
    assert (policy.steps, policy.tokens) == (3, 30)
    told = inspector.list_problems(row.id).problems[1:]
    assert {one.file for one in told} == {"epochs/1/training/metrics.jsonl"}
    assert [one.line for one in told] == list(range(2, 2 + len(spoilt)))
    assert row.problems == 1 + len(spoilt)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["report", str(training.path), "--figures", str(tmp_path / "plots")]) == 0


def test_heads_and_records_that_are_none_are_told_and_the_others_shown(
    training: TrainingDir, recorded: Path, tmp_path: Path, inspect: Open
) -> None:
    """Nested too deeply, cut in half, counted beyond all reason: each is a line among the problems."""
    shutil.copytree(recorded, tmp_path / "runs" / "whole")
    shutil.copytree(recorded, tmp_path / "runs" / "deep")
    (tmp_path / "runs" / "deep" / "run.json").write_text("[" * 100_000)
    (training.get_epoch(1).rollout / "labels" / "oracle" / "label.json").write_text('{"critic": "ora')
    training.get_epoch(1).record.write_text("[" * 100_000)
    training.get_epoch(2).record.write_text('{"epoch": 1' + "0" * 400 + "}")
    inspector = inspect(tmp_path / "runs")
    rows = {row.path.rsplit("/", 1)[-1]: row for row in inspector.list_runs().runs}
    assert rows.keys() == {"whole", "deep", "marl"}
    assert rows["whole"].problems == 0
    told = {one.file for one in inspector.list_problems(rows["marl"].id).problems}
    assert told >= {
        "training.json",
        "epochs/1/epoch.json",
        "epochs/2/epoch.json",
        "epochs/1/rollout/labels/oracle/label.json",
    }
    assert rows["marl"].problems == len(inspector.list_problems(rows["marl"].id).problems)


def test_a_journal_of_a_synthesis_is_no_run_and_a_run_without_a_head_is_one(recorded: Path, tmp_path: Path) -> None:
    journal = tmp_path / "rows" / "events"
    journal.mkdir(parents=True)
    (journal / "0001-aa.jsonl").write_text('{"unit":"walk/0","rows":[]}\n')
    (tmp_path / "rows" / "synth.json").write_text("{}")
    (tmp_path / "empty" / "events").mkdir(parents=True)
    (tmp_path / "outward").mkdir()
    (tmp_path / "outward" / "events").symlink_to(recorded / "events")
    headless = Path(shutil.copytree(recorded, tmp_path / "headless"))
    (headless / "run.json").unlink()
    (log,) = (headless / "events").iterdir()
    log.write_bytes(b"spoilt\n" + log.read_bytes())
    inspector = Inspector([tmp_path], index_cache=tmp_path / "index_cache")
    assert [Path(row.path).name for row in inspector.list_runs().runs] == ["headless"]
    assert inspector.list_runs().runs[0].done == 3
    inspector.close()


def test_what_is_made_anew_at_the_same_length_is_read_anew(recorded: Path, tmp_path: Path, inspect: Open) -> None:
    run = Path(shutil.copytree(recorded, tmp_path / "runs" / "run"))
    inspector = inspect(run)
    id = inspector.list_ids()[0]
    before = inspector.get_overview(id).epochs[0].pairs
    (head,) = (run / "pairs").glob("*/pairs.json")
    content = json.loads(head.read_text())
    old = content["counts"]["adversary"]
    new = old - 1
    assert len(str(old)) == len(str(new))
    size = head.stat().st_size
    head.write_text(head.read_text().replace(f'"adversary": {old}', f'"adversary": {new}'))
    assert head.stat().st_size == size
    after = inspector.get_overview(id).epochs[0].pairs
    assert (before["adversary"], after["adversary"]) == (old, new)
    assert inspector.get_row(id).seed != "4711"
    write_json(run / "run.json", json.loads((run / "run.json").read_text()) | {"seed": 4711})
    assert inspector.get_row(id).seed == "4711"
    head = json.loads((run / "run.json").read_text())
    for beside, told in ((1, "4711 (sampled with 1)"), ("x" * 9000, "4711")):
        write_json(run / "run.json", head | {"config": head["config"] | {"sampling_seed": beside}})
        assert inspector.get_row(id).seed == told
    (run / "run.json").write_text("{")
    assert (inspector.get_row(id).seed, inspector.get_row(id).problems) != ("4711", 0), (
        "the copy in the log, and a problem"
    )


def test_whose_word_is_unknown_is_refused_for_trainings_too(
    training: TrainingDir, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for path in (training.path, training.get_epoch(1).rollout):
        assert main(["report", str(path), "--labels", "nonsense"]) == 2
        assert "nonsense" in capsys.readouterr().err
