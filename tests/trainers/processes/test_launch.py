"""Several processes over gloo: the losses of one process, and how they fail."""

import functools
import json
import sys
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from safetensors.torch import load_file

from collab.errors import Diverged, StoreFailure, TrainingFailure, UsageError
from collab.trainers import launch as launching
from collab.trainers.launch import CONFIGS, DIVERGED, ERROR, LOG, STOP, build_command, check_processes, launch
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir

TWICE = "checkpointing=true"
"""Activations, as recipes for large models have it."""


def test_what_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    words = build_command(2, Path("out"), "cpu")
    assert words[:3] == [sys.executable, "-m", "accelerate.commands.launch"]
    assert str(CONFIGS / "cpus.yaml") in words
    assert words[words.index("--num_processes") + 1] == "2"
    assert str(CONFIGS / "fsdp-cpus.yaml") in build_command(2, Path("out"), "cpu", "fsdp")
    monkeypatch.setattr(launching, "_count_gpus", lambda device: 8)
    names = {"ddp": "gpus", "fsdp": "fsdp-gpus", "zero2": "zero2", "zero3": "zero3"}
    for parallelism, name in names.items():
        assert str(CONFIGS / f"{name}.yaml") in build_command(8, Path("out"), "auto", parallelism)


def test_configurations_say_whether_they_were_run() -> None:
    for path in CONFIGS.glob("*.yaml"):
        head = path.read_text(encoding="utf-8").split("\n", 2)[0:2]
        assert ("never run" in " ".join(head)) == (not path.stem.endswith("cpus")), path
        kind = {"fsdp": "FSDP", "zero": "DEEPSPEED"}.get(path.stem[:4], "MULTI_GPU")
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["distributed_type"] == kind
        assert load_config_from_file(str(path)).num_processes == (2 if path.stem.endswith("cpus") else 8)


def test_more_processes_than_gpus_are_refused(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(launching, "_count_gpus", lambda device: 1)
    prepared = samples.states(base, tmp_path / "data", 2)
    with pytest.raises(UsageError, match="2 processes, but this machine has 1 GPUs"):
        launch(prepared, begin(prepared, tmp_path / "out"))
    with pytest.raises(UsageError, match="zero2 needs GPUs and DeepSpeed here"):
        check_processes(2, "cpu", "zero2")


def test_processes_read_where_things_lie_now(samples, base: Path, tmp_path: Path) -> None:
    """A run that was moved with its base and its data; its digests stay."""
    prepared = samples.states(base, tmp_path / "data", 2)
    folder = begin(prepared, tmp_path / "out")
    known = folder.read()
    elsewhere = {**known, "base": {**known["base"], "path": "/gone"}, "data": {**known["data"], "paths": ["/gone"]}}
    folder.file.write_text(json.dumps(elsewhere))
    folder.place(prepared.build_manifest())
    assert folder.read() == known
    written = folder.file.stat().st_mtime_ns
    folder.place(prepared.build_manifest())
    assert folder.file.stat().st_mtime_ns == written


def test_what_is_trained_again_is_not_told_as_done(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    """Lines of steps behind the newest checkpoint are removed before they are read."""
    monkeypatch.setattr(launching, "build_command", lambda *asked: [sys.executable, "-S", "-c", ""])
    prepared = samples.states(base, tmp_path / "data", 2)
    folder, seen = begin(prepared, tmp_path / "out"), []
    folder.add_metrics({"step": 390, "loss": 0.5, "group": "preference", "seconds": 9.0})
    result = launch(prepared, folder, device="cpu", watch=seen.append)
    assert (result.step, result.loss, seen, folder.read_metrics()) == (0, None, [], [])


def test_a_full_disk_before_the_first_step_is_one_line(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    prepared = samples.states(base, tmp_path / "data", 2)
    folder = begin(prepared, tmp_path / "out")
    folder.add_metrics({"step": 1})
    monkeypatch.setattr("collab.trainers.run_dir.write_atomic", full)
    with pytest.raises(StoreFailure, match="No space left on device"):
        folder.forget_metrics_after(0)
    assert folder.read_metrics() == [{"step": 1}]


@pytest.mark.slow
def test_their_reason_is_ours(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    """Of all that a launcher says, the line of the process that failed."""
    said = (
        f"import sys; print('noise'); print({ERROR!r} + 'step 3: loss is nan'); print('ChildFailedError'); sys.exit(1)"
    )
    monkeypatch.setattr(launching, "build_command", lambda *asked: [sys.executable, "-S", "-c", said])
    prepared = samples.states(base, tmp_path / "data", 2)
    folder = begin(prepared, tmp_path / "out")
    failed = r"out: the processes that train failed: step 3: loss is nan \(whole output: "
    with pytest.raises(TrainingFailure, match=failed):
        launch(prepared, folder, device="cpu")
    lost = f"print({DIVERGED!r} + 'step 3: loss is nan'); raise SystemExit(1)"
    monkeypatch.setattr(launching, "build_command", lambda *asked: [sys.executable, "-S", "-c", lost])
    with pytest.raises(Diverged, match=r"^step 3: loss is nan; .* lower learning_rate"):
        launch(prepared, folder, device="cpu")
    monkeypatch.setattr(
        launching, "build_command", lambda *asked: [sys.executable, "-S", "-c", "import sys; sys.exit(7)"]
    )
    with pytest.raises(TrainingFailure, match="the launcher ended with exit code 7"):
        launch(prepared, folder, device="cpu")
    assert (folder.path / LOG).read_text() == ""


@pytest.mark.slow
def test_two_processes_train_what_one_trains(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    """Through `accelerate launch`, three steps over unequal states, stopped in between: equal losses and weights.

    They are asked to stop from the beginning, so they stop behind the first step, where no checkpoint is due. One row
    is held on to, so that the processes have unequally many pairs to tell of.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    settings = ["save_every=2"]
    alone = samples.states(base, tmp_path / "data", 1, *settings, held=True)
    lone = begin(alone, tmp_path / "one")
    train(alone, lone, device="cpu")
    both = samples.states(base, tmp_path / "data", 2, *settings, held=True)
    assert [sorted(step.rows) for step in both.steps] == [sorted(step.rows) for step in alone.steps]
    assert {len(step.parts) for step in both.steps} == {2}
    folder, seen = begin(both, tmp_path / "two"), []
    first = launch(both, folder, device="cpu", watch=seen.append, stopping=lambda: True)
    assert (first.step, first.final, [told.step for told in seen]) == (1, None, [1])
    assert launch(both, folder, device="cpu", watch=seen.append).final == folder.final
    assert not (folder.path / STOP).exists()
    assert _told_alike(folder, lone) == [1, 2, 3]
    for line in folder.read_metrics():
        assert line["compared"] == 5
    _check_weights(folder, lone)
    assert seen[-1].step == 3


@pytest.mark.slow
def test_an_adapter_learns_from_unequally_many_rows_of_each_process(
    samples, base: Path, tmp_path: Path, monkeypatch
) -> None:
    """As recipes for large models have it, in float32: one process makes the same two passes, one after the other."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    settings = ("sharing=none", TWICE, "lora={rank: 4, alpha: 8}", "batch_rows=3", "rows_at_once=2")
    alone, both = (samples.states(base, tmp_path / "data", processes, *settings) for processes in (1, 2))
    assert both.steps == alone.steps
    assert {tuple(map(len, step.parts)) for step in both.steps} == {(1, 2)}
    lone, folder = begin(alone, tmp_path / "one"), begin(both, tmp_path / "two")
    train(alone, lone, device="cpu")
    assert launch(both, folder, device="cpu").final == folder.final
    assert _told_alike(folder, lone) == [1, 2, 3, 4, 5, 6]
    _check_weights(folder, lone)


@pytest.mark.slow
@pytest.mark.parametrize("held", [("precision=float32",), ("precision=bfloat16", "weights=bfloat16")])
def test_an_adapter_is_resumed_and_compared_with_another(
    held: tuple[str, ...], samples, base: Path, tmp_path: Path, monkeypatch
) -> None:
    """An epoch continues the adapter of the one before and is compared with it, in two processes as in one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    kept = ("lora={rank: 4, alpha: 8, merge: false}", "learning_rate=1e-2", "rows_at_once=3")
    states = functools.partial(samples.states, base, tmp_path / "data")
    settings, before = ("sharing=none", TWICE, *kept, *held), None
    for name in ("first", "second"):
        prepared = states(1, *settings, adapter=before)
        before = str(train(prepared, begin(prepared, tmp_path / name), device="cpu").final)
    adapters = {"adapter": before, "reference_adapter": str(tmp_path / "first/final")}
    alone, both = (states(processes, *settings, **adapters) for processes in (1, 2))
    lone, folder = begin(alone, tmp_path / "one"), begin(both, tmp_path / "two")
    train(alone, lone, device="cpu")
    assert launch(both, folder, device="cpu").final == folder.final
    assert _told_alike(folder, lone) == [1, 2, 3]
    assert abs(folder.read_metrics()[0]["margin"]) > 1e-3, "it is compared with another than itself"
    assert [path.name for path in folder.final.glob("**/*.safetensors")] == ["adapter_model.safetensors"]
    _check_weights(folder, lone)


def _told_alike(folder: FinetuneDir, lone: FinetuneDir) -> list[int]:
    """Check that two runs tell the same; returns the steps that they tell of."""
    lines, expected = folder.read_metrics(), lone.read_metrics()
    for line, other in zip(lines, expected, strict=True):
        assert line["step"] == other["step"]
        assert line["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert line["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
        assert line["compared"] == other["compared"]
        for name in ("margin", "reward_chosen", "logp_chosen"):
            assert line[name] == pytest.approx(other[name], rel=1e-4, abs=1e-4), name
    return [line["step"] for line in lines]


def _check_weights(folder: FinetuneDir, lone: FinetuneDir) -> None:
    (name,) = (path.name for path in lone.final.glob("*.safetensors"))
    weights, whole = (load_file(one.final / name) for one in (folder, lone))
    assert weights.keys() == whole.keys()
    for key, weight in whole.items():
        torch.testing.assert_close(weights[key], weight, rtol=1e-3, atol=5e-5)
