"""What the loop says of algorithms that are not whole, not known, or asked for what they have not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from collab.algorithms.filtered_bc.algorithm import FilteredBC
from collab.cli.main import main
from collab.errors import ConfigError
from collab.loop import interfaces
from collab.loop.interfaces import Algorithm, Labels, Update, complete_options, load_algorithm
from collab.loop.record import EpochRecord, TrainingDir
from collab.testing.toy_team import configure_toy_training, write_library
from collab.utils.files import write_json


@pytest.fixture
def training(tmp_path: Path) -> TrainingDir:
    """A training that was begun, and its first epoch's record."""
    library = write_library(tmp_path / "library", tmp_path / "none")
    config = asyncio.run(configure_toy_training(library))
    folder = TrainingDir(tmp_path / "run")
    folder.begin({"config": config.model_dump(mode="json"), "base": {}})
    return folder


def record(folder: TrainingDir, **fields: object) -> None:
    folder.get_epoch(1).path.mkdir(parents=True)
    asked = {"algorithm": "collabuiagents", "epoch": 1, "version": 1, "weights": {}, "hash": "0"}
    write_json(folder.get_epoch(1).record, EpochRecord.model_validate({**asked, **fields}).model_dump(mode="json"))


def test_metrics_that_are_none_are_one_line(training: TrainingDir, capsys: pytest.CaptureFixture[str]) -> None:
    record(training, metrics={"rewarded": "alot"})
    assert main(["runs", "show", str(training.path)]) in (1, 2)
    told = capsys.readouterr()
    assert "metrics of its epoch.json: rewarded: " in told.err
    assert "bug of collab" not in told.err


def test_an_algorithm_that_is_not_installed_is_named_with_its_file(
    training: TrainingDir, capsys: pytest.CaptureFixture[str]
) -> None:
    head = json.loads(training.file.read_text())
    head["config"]["algorithm"] = "voters"
    training.file.write_text(json.dumps(head))
    assert main(["runs", "show", str(training.path)]) == 2
    told = capsys.readouterr().err
    assert f"{training.file}: no algorithm called 'voters'" in told
    assert "install the package that declares it" in told


@pytest.mark.parametrize("name", ["collabuiagents", "filtered-bc"])
def test_what_a_toy_is_begun_with_every_algorithm_takes(name: str) -> None:
    known = load_algorithm(name)
    complete_options(known, known.toy_options)


def test_an_option_that_an_algorithm_has_not_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from collab.algorithms.filtered_bc.algorithm import FilteredBC
    from collab.testing.tiny_checkpoint import make_tiny_checkpoint

    monkeypatch.setattr(FilteredBC, "options", {})

    library = write_library(
        tmp_path / "library", make_tiny_checkpoint(tmp_path / "tiny", hidden=32, layers=1, context=4096)
    )
    asked = ["--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", str(library.own)]
    out = tmp_path / "out"
    assert (
        main(["train", "--algo", "filtered-bc", *asked, "--allow-uncalibrated", "--device", "cpu", "--out", str(out)])
        == 2
    )
    assert "--allow-uncalibrated: filtered-bc has no such option" in capsys.readouterr().err
    assert not out.exists()
    assert main(["train-marl", "--algo", "filtered-bc", *asked, "--out", str(out)]) == 2
    assert "use collab train --algo filtered-bc" in capsys.readouterr().err


def test_an_algorithm_without_its_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half(Algorithm):
        name, description, presets = "half", "…", FilteredBC.presets

    monkeypatch.setattr(interfaces, "load_class", lambda *asked: Half)
    interfaces._create_algorithm.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r"algorithm filtered-bc: .* has no method, learner; docs/algorithms.md"):
            load_algorithm("filtered-bc")
    finally:
        interfaces._create_algorithm.cache_clear()


def test_labels_cannot_take_the_names_of_the_loops_own_parts() -> None:
    with pytest.raises(ValueError, match="rollout are parts of the loop"):
        Labels(hashes={"rollout": "0"})
    with pytest.raises(ValueError, match="weights are parts of the loop"):
        Update(trained={}, untrained={}, examples={}, hashes={"weights": "0"})
