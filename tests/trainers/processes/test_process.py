"""One of several training processes resumes from the directory and stops when its parent is gone."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from collab.data.tokenize import read_data
from collab.trainers.launch import STOP, is_alive, main, train_as_asked
from collab.trainers.prepare import Prepared, prepare
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir


@pytest.fixture
def prepared(samples, base: Path, tmp_path: Path) -> Prepared:
    data = samples.write(tmp_path / "data", samples.rows(8, ["preference"]))
    task = replace(samples.task(base, "dpo", "sharing=prefix", "epochs=2", "batch_rows=4"), data=(str(data),))
    return prepare(task, read_data([data], ["preference"]).rows)


@pytest.mark.slow
def test_it_trains_what_the_directory_says(prepared: Prepared, tmp_path: Path) -> None:
    """Stopped by a file, then by the end of its parent, then finished: the weights of an undisturbed run."""
    whole = train(prepared, begin(prepared, tmp_path / "whole"), device="cpu").final
    folder = begin(prepared, tmp_path / "run")
    (folder.path / STOP).touch()
    assert train_as_asked(folder, "cpu", lambda: True).step == 1
    (folder.path / STOP).unlink()
    assert train_as_asked(folder, "cpu", lambda: False).step == 2
    assert main([str(folder.path), "--device", "cpu", "--while-alive", str(os.getpid())]) == 0
    assert whole is not None
    expected, found = (load_file(path / "model.safetensors") for path in (whole, folder.final))
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_why_it_cannot_is_one_line(prepared: Prepared, tmp_path: Path, capfd) -> None:
    arguments = [str(tmp_path / "nowhere"), "--while-alive", "1"]
    assert main(arguments) == 2
    assert capfd.readouterr().err.startswith("error: ")
    changed = begin(replace(prepared, world=2), tmp_path / "run")
    assert main([str(changed.path), "--device", "cpu", "--while-alive", "1"]) == 2
    assert "the number of processes changed" in capfd.readouterr().err
    assert not FinetuneDir(changed.path).final.exists()


def test_what_it_is_a_part_of_says_how_to_resume(prepared: Prepared, tmp_path: Path, capfd) -> None:
    wanted = "collab train-marl --resume runs/marl"
    folder = begin(prepared, tmp_path / "run", wanted)
    (folder.path / "lock").unlink()
    (folder.path / "lock").mkdir()
    assert main([str(folder.path), "--device", "cpu", "--while-alive", "1", "--resume", wanted]) == 1
    said = capfd.readouterr().err
    assert said.endswith(f"then {wanted}\n")
    assert said.count("--resume") == 1


def test_who_is_there() -> None:
    assert is_alive(os.getpid())
    assert is_alive(1)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert not is_alive(child)
