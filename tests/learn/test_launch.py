"""Several processes over gloo: the losses of one process, whatever each of them has; and how they fail."""

import sys
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from safetensors.torch import load_file

from collab.errors import Diverged, TrainingFailure, UsageError
from collab.learn import launch as launching
from collab.learn.finetune import begin, train
from collab.learn.launch import CONFIGS, LOG, check_processes, command, launch
from collab.learn.process import DIVERGED, ERROR, STOP


def test_what_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    words = command(2, Path("out"), "cpu")
    assert words[:3] == [sys.executable, "-m", "accelerate.commands.launch"]
    assert str(CONFIGS / "cpus.yaml") in words
    assert words[words.index("--num_processes") + 1] == "2"
    assert str(CONFIGS / "fsdp-cpus.yaml") in command(2, Path("out"), "cpu", "fsdp")
    monkeypatch.setattr(launching, "_gpus", lambda device: 8)
    names = {"ddp": "gpus", "fsdp": "fsdp-gpus", "zero2": "zero2", "zero3": "zero3"}
    for parallelism, name in names.items():
        assert str(CONFIGS / f"{name}.yaml") in command(8, Path("out"), "auto", parallelism)


def test_configurations_say_whether_they_were_run() -> None:
    for path in CONFIGS.glob("*.yaml"):
        head = path.read_text(encoding="utf-8").split("\n", 2)[0:2]
        assert ("never run" in " ".join(head)) == (not path.stem.endswith("cpus")), path
        kind = {"fsdp": "FSDP", "zero": "DEEPSPEED"}.get(path.stem[:4], "MULTI_GPU")
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["distributed_type"] == kind
        assert load_config_from_file(str(path)).num_processes == (2 if path.stem.endswith("cpus") else 8)


def test_more_processes_than_gpus_are_refused(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(launching, "_gpus", lambda device: 1)
    prepared = samples.states(base, tmp_path / "data", 2)
    with pytest.raises(UsageError, match="2 processes, but this machine has 1 GPUs"):
        launch(prepared, begin(prepared, tmp_path / "out"))
    with pytest.raises(UsageError, match="zero2 needs GPUs and DeepSpeed here"):
        check_processes(2, "cpu", "zero2")


def test_their_reason_is_ours(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    """Of all that a launcher says, the line of the process that failed."""
    said = (
        f"import sys; print('noise'); print({ERROR!r} + 'step 3: loss is nan'); print('ChildFailedError'); sys.exit(1)"
    )
    monkeypatch.setattr(launching, "command", lambda *asked: [sys.executable, "-S", "-c", said])
    prepared = samples.states(base, tmp_path / "data", 2)
    folder = begin(prepared, tmp_path / "out")
    with pytest.raises(TrainingFailure, match=r"out: the processes that train failed: step 3: loss is nan \(all they"):
        launch(prepared, folder, device="cpu")
    lost = f"print({DIVERGED!r} + 'step 3: loss is nan'); raise SystemExit(1)"
    monkeypatch.setattr(launching, "command", lambda *asked: [sys.executable, "-S", "-c", lost])
    with pytest.raises(Diverged, match=r"^step 3: loss is nan; .* lower learning_rate"):
        launch(prepared, folder, device="cpu")
    monkeypatch.setattr(launching, "command", lambda *asked: [sys.executable, "-S", "-c", "import sys; sys.exit(7)"])
    with pytest.raises(TrainingFailure, match="the launcher ended with exit code 7"):
        launch(prepared, folder, device="cpu")
    assert (folder.path / LOG).read_text() == ""


@pytest.mark.slow
def test_two_processes_train_what_one_trains(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    """Through `accelerate launch`, six steps over unequal states, stopped in between: equal losses and weights."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    settings = ["save_every=2"]
    alone = samples.states(base, tmp_path / "data", 1, *settings)
    lone = begin(alone, tmp_path / "one")
    train(alone, lone, device="cpu")
    both = samples.states(base, tmp_path / "data", 2, *settings)
    assert [sorted(step.rows) for step in both.steps] == [sorted(step.rows) for step in alone.steps]
    assert {len(step.parts) for step in both.steps} == {2}
    folder, seen = begin(both, tmp_path / "two"), []
    first = launch(both, folder, device="cpu", watch=seen.append, stopping=lambda: bool(seen))
    assert first.final is None or first.step == len(both.steps)
    if first.final is None:
        assert launch(both, folder, device="cpu", watch=seen.append).final == folder.final
    assert not (folder.path / STOP).exists()
    lines, expected = folder.read_metrics(), lone.read_metrics()
    assert [line["step"] for line in lines] == [line["step"] for line in expected] == [1, 2, 3]
    for line, other in zip(lines, expected, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert line["margin"] == pytest.approx(other["margin"], abs=1e-4)
    weights, whole = (load_file(one.final / "model.safetensors") for one in (folder, lone))
    for name, weight in whole.items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=5e-5)
    assert seen[-1].step == 3
