"""A stopped or killed fine-tuning run resumes exactly; a run that cannot begin or resume is refused."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import Trainer

from collab.data.tokenize import read_data
from collab.errors import ConfigError, RunFormatError, StoreFailure, TrainingFailure, UsageError
from collab.trainers.prepare import prepare
from collab.trainers.run import begin, check_same, train
from collab.trainers.run_dir import FinetuneDir
from tests.trainers.finetuned import same, trained, weights


@pytest.mark.medium
@pytest.mark.parametrize(
    ("stage", "levels", "more"),
    [
        ("sft", ["basic", "instruction"], ["optimizer=muon"]),
        pytest.param("sft", ["basic", "instruction"], [], marks=pytest.mark.slow),
        pytest.param("sft", ["basic"], ["lora={rank: 4, dropout: 0.1}", "precision=bfloat16"], marks=pytest.mark.slow),
        pytest.param("dpo", ["preference"], [], marks=pytest.mark.slow),
        pytest.param("dpo", ["preference"], ["lora={rank: 4}"], marks=pytest.mark.slow),
        pytest.param("dpo", ["preference"], ["sharing=prefix"], marks=pytest.mark.slow),
    ],
)
def test_a_stopped_run_resumes_as_if_never_stopped(samples, base: Path, tmp_path: Path, stage, levels, more) -> None:
    task = samples.task(base, stage, "epochs=2", "rows_at_once=4", "save_every=3", *more)
    prepared = prepare(task, samples.rows(16, levels))
    whole = weights(trained(prepared, tmp_path / "whole"))
    folder, asked = begin(prepared, tmp_path / "stopped"), iter([False, True])
    result = train(prepared, folder, device="cpu", stopping=lambda: next(asked))
    assert (result.step, result.final) == (2, None)
    assert not folder.final.exists()
    again = train(prepared, folder, device="cpu")
    assert again.final == folder.final
    assert same(whole, weights(folder.final))
    lines = [FinetuneDir(tmp_path / name).read_metrics() for name in ("whole", "stopped")]
    unclocked = [[{**line, "seconds": 0} for line in run] for run in lines]
    assert unclocked[0] == unclocked[1]
    seconds = [line["seconds"] for line in lines[1]]
    assert seconds == sorted(seconds), "the time of both processes together"


KILLED = """
import sys
from pathlib import Path
from collab.trainers.run import train
from collab.trainers.run_dir import FinetuneDir
from collab.trainers.prepare import prepare, read_task
from collab.data.tokenize import read_data
from collab.trainers.prepare import list_levels

folder = FinetuneDir(Path(sys.argv[1]))
task = read_task(folder.read())
prepared = prepare(task, read_data([Path(name) for name in task.data], list_levels(task)).rows)
train(prepared, folder, device="cpu", watch=lambda progress: print(progress.step, flush=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "levels"), [("sft", ["basic"]), ("dpo", ["preference"])])
def test_a_killed_run_resumes_as_if_never_stopped(samples, base: Path, tmp_path: Path, stage, levels) -> None:
    """kill -9 at three moments, one of them while a checkpoint is half-written; then bit for bit the same weights."""
    data = samples.write(tmp_path / "data", samples.rows(60, levels))
    task = replace(samples.task(base, stage, "epochs=6", "save_every=5"), data=(str(data),))
    prepared = prepare(task, read_data([data], levels).rows)
    whole = weights(trained(prepared, tmp_path / "whole"))
    folder = begin(prepared, tmp_path / "killed")
    for until in (7, 18, 30):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder.path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().isdigit() and int(line) >= until:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        checkpoint = folder.find_checkpoint()
        assert checkpoint is not None
        half = folder.partial / "checkpoint-999"
        half.mkdir(parents=True, exist_ok=True)
        (half / "model.safetensors").write_bytes(b"half of it")
    train(prepared, folder, device="cpu")
    assert same(whole, weights(folder.final))
    assert [line["step"] for line in folder.read_metrics()] == list(range(1, len(prepared.steps) + 1))


@pytest.mark.slow
def test_checkpoints_are_whole_and_few(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=4", "save_every=2", "keep=2"), samples.rows(8, ["basic"]))
    trained(prepared, tmp_path / "out")
    kept = sorted(path.name for path in (tmp_path / "out" / "checkpoints").glob("step-*"))
    assert kept == ["step-2", "step-4"]
    folder = FinetuneDir(tmp_path / "out")
    assert folder.find_checkpoint() == tmp_path / "out" / "checkpoints" / "step-4"
    (tmp_path / "out" / "checkpoints" / "step-4" / "trainer_state.json").unlink()
    assert folder.find_checkpoint() == tmp_path / "out" / "checkpoints" / "step-2"


@pytest.mark.slow
def test_a_run_that_ended_before_its_result_was_written_writes_it(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=2", "save_every=3"), samples.rows(16, ["basic"]))
    final = trained(prepared, tmp_path / "out")
    before = weights(final)
    shutil.rmtree(final)
    result = train(prepared, FinetuneDir(tmp_path / "out"), device="cpu")
    assert (result.step, result.final) == (4, final)
    assert same(before, weights(final))


@pytest.mark.medium
@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("optimizer.pt", "rng_state.pth", "trainer_state.json")
        ),
    ],
)
def test_a_damaged_checkpoint_is_not_resumed_from(samples, base: Path, tmp_path: Path, name: str) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=4", "save_every=2"), samples.rows(8, ["basic"]))
    folder, asked = begin(prepared, tmp_path / "out"), iter([False, False, True])
    train(prepared, folder, device="cpu", stopping=lambda: next(asked))
    damaged = folder.find_checkpoint()
    assert damaged == tmp_path / "out" / "checkpoints" / "step-3"
    content = bytearray((damaged / name).read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / name).write_bytes(bytes(content))
    with pytest.raises(RunFormatError, match=rf"step-3: damaged since it was written \({name}\); remove it"):
        train(prepared, folder, device="cpu")
    shutil.rmtree(damaged)
    assert train(prepared, folder, device="cpu").final == folder.final


def test_a_checkpoint_that_lost_its_digests_is_not_resumed_from(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=4", "save_every=2"), samples.rows(8, ["basic"]))
    folder, asked = begin(prepared, tmp_path / "out"), iter([False, True])
    train(prepared, folder, device="cpu", stopping=lambda: next(asked))
    newest = folder.find_checkpoint()
    assert newest is not None
    (newest / "digests.json").unlink()
    with pytest.raises(RunFormatError, match=r"damaged since it was written \(.*digests.json"):
        train(prepared, folder, device="cpu")


@pytest.mark.slow
def test_too_little_memory_is_one_line_and_the_run_resumes(samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=2", "save_every=1"), samples.rows(8, ["basic"]))
    whole = weights(trained(prepared, tmp_path / "whole"))
    folder, step = begin(prepared, tmp_path / "out"), Trainer.training_step
    errors = iter([None, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), None])
    taken = iter([0, 1 << 46])  # bytes that no machine has

    def failing(trainer: Trainer, *args: object, **named: object) -> torch.Tensor:
        if (error := next(errors, None)) is not None:
            raise error
        torch.empty(next(taken, 0), dtype=torch.uint8)
        return step(trainer, *args, **named)

    monkeypatch.setattr(Trainer, "training_step", failing)
    with pytest.raises(TrainingFailure, match=r"out: memory does not suffice to train: CUDA out of .*rows_at_once"):
        train(prepared, folder, device="cpu")
    with pytest.raises(
        TrainingFailure, match=r"memory does not suffice to train: .*; resume where there is more of it"
    ):
        train(prepared, folder, device="cpu")
    train(prepared, folder, device="cpu")
    assert same(whole, weights(folder.final))


@pytest.mark.medium
@pytest.mark.parametrize("limit", [100_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_a_full_disk_is_one_line_and_the_run_resumes(samples, base: Path, tmp_path: Path, limit: int) -> None:
    """A limit on a file's size: weights (140 kB) by safetensors, or the optimizer (280 kB) by torch, do not fit."""
    prepared = prepare(samples.task(base, "sft", "epochs=4", "save_every=2"), samples.rows(8, ["basic"]))
    whole = weights(trained(prepared, tmp_path / "whole"))
    folder, before = begin(prepared, tmp_path / "out"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StoreFailure, match=r"out: cannot write: .* then collab finetune --resume"):
            train(prepared, folder, device="cpu")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    train(prepared, folder, device="cpu")
    assert same(whole, weights(folder.final))


# -------------------------------------------------------------------------------------------------------- refused


def test_a_run_that_another_process_trains_is_left_alone(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "sft", "epochs=1"), samples.rows(2))
    folder = begin(prepared, tmp_path / "out")
    half = folder.partial / "checkpoint-1"
    half.mkdir(parents=True)
    held = folder.lock()
    with pytest.raises(UsageError, match=r"is being written by process \d+ .*collab finetune --resume"):
        train(prepared, folder, device="cpu")
    assert half.is_dir(), "the other one's half checkpoint"
    held.release()
    assert train(prepared, folder, device="cpu").final == folder.final
    with pytest.raises(UsageError, match="the run is done"):
        train(prepared, folder, device="cpu")


def test_a_run_whose_chat_template_changed_is_not_resumed(samples, base: Path, tmp_path: Path) -> None:
    other = tmp_path / "base"
    shutil.copytree(base, other)
    rows = samples.rows(4)
    manifest = begin(prepare(samples.task(other, "sft"), rows), tmp_path / "out").read()
    template = other / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant", "assistans"))
    with pytest.raises(UsageError, match="the base's tokenizer or chat template changed"):
        check_same(prepare(samples.task(other, "sft"), rows), manifest)


@pytest.mark.parametrize("name", ["nope", "lm_head"])
def test_an_adapter_for_layers_that_bear_none_is_refused(samples, base: Path, tmp_path: Path, name: str) -> None:
    prepared = prepare(samples.task(base, "sft", f"lora={{targets: [{name}]}}"), samples.rows(2))
    folder = begin(prepared, tmp_path / "out")
    with pytest.raises(ConfigError, match=rf"lora.targets {name}: no linear layer inside the base; known: down_proj, "):
        train(prepared, folder, device="cpu")
    assert list(folder.path.iterdir()) == []


def test_no_row_of_any_level_is_refused(samples, base: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to train; weights_by_level leaves no row"):
        prepare(samples.task(base, "sft", "weights_by_level={basic: 0}"), samples.rows(4, ["basic"]))


def test_a_run_whose_data_changed_is_not_resumed(samples, base: Path, tmp_path: Path) -> None:
    rows = samples.rows(20)
    prepared = prepare(samples.task(base, "sft"), rows)
    manifest = begin(prepared, tmp_path / "out").read()
    check_same(prepared, manifest)
    with pytest.raises(UsageError, match="the data changed since the run began"):
        check_same(prepare(samples.task(base, "sft"), rows[:-1]), manifest)
    with pytest.raises(UsageError, match="the order of steps changed"):
        check_same(prepare(samples.task(base, "sft", seed=1), rows), manifest)
    with pytest.raises(UsageError, match="the weights of the base changed"):
        check_same(prepared, {**manifest, "base": {**manifest["base"], "digest": "other"}})


def test_a_run_that_could_not_begin_leaves_nothing_behind(samples, base: Path, tmp_path: Path) -> None:
    broken = tmp_path / "base"
    shutil.copytree(base, broken)
    prepared = prepare(samples.task(broken, "sft", "epochs=1"), samples.rows(2))
    (broken / "model.safetensors").write_bytes(b"no weights")  # behind its back
    folder = begin(prepared, tmp_path / "out")
    with pytest.raises(ConfigError, match="the weights cannot be loaded"):
        train(prepared, folder, device="cpu")
    trained(prepare(samples.task(base, "sft", "epochs=1"), samples.rows(2)), tmp_path / "out")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["optimizer=muon"], "needs whole matrices"),
        (["optimizer=adamw"], "fsdp_version 1"),
    ],
)
def test_a_launcher_that_splits_the_model_otherwise_is_refused(
    samples, base: Path, tmp_path: Path, monkeypatch, settings: list[str], reason: str
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    prepared = prepare(samples.task(base, "sft", *settings), samples.rows(2))
    with pytest.raises(UsageError, match=reason):
        train(prepared, begin(prepared, tmp_path / "out"), device="cpu")


def test_a_directory_with_something_in_it_is_refused(samples, base: Path, tmp_path: Path) -> None:
    prepared = prepare(samples.task(base, "sft"), samples.rows(2))
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(UsageError, match="something is there already"):
        begin(prepared, tmp_path)


def test_nothing_to_train_is_refused(samples, base: Path) -> None:
    with pytest.raises(ConfigError, match="the data has no rows of level basic, instruction, demonstration"):
        prepare(samples.task(base, "sft"), [])


def test_a_context_that_the_base_cannot_bear_is_refused(samples, base: Path) -> None:
    with pytest.raises(ConfigError, match="reads 512 tokens, the recipe has context 600; --set context=512"):
        prepare(samples.task(base, "sft", "context=600"), samples.rows(2))
