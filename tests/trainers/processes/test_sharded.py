"""A model split over two processes (FSDP over gloo): the losses and weights of one process; and what is refused."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from collab.errors import TrainingFailure, UsageError
from collab.trainers.distributed import check_checkpoint, check_sharded, check_split, gather_weights, split_by
from collab.trainers.launch import launch
from collab.trainers.prepare import Prepared
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir

FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "WORLD_SIZE": "2",
}
DEEPSPEED = {"ACCELERATE_USE_DEEPSPEED": "true"}
BFLOAT16 = ("precision=bfloat16", "weights=bfloat16", "learning_rate=1e-2", "rows_at_once=3")
ADDED = ("lora={rank: 4, alpha: 8}", *BFLOAT16)
KEPT = ("lora={rank: 4, alpha: 8, merge: false}", *BFLOAT16)
TWICE = "checkpointing=true"
"""Activations, as recipes for large models have it."""


def test_the_launcher_says_what_splits_the_model() -> None:
    assert [split_by(one) for one in ({}, FSDP, DEEPSPEED)] == [None, "fsdp", "deepspeed"]
    assert split_by({"ACCELERATE_USE_FSDP": "false"}) is None


def test_what_cannot_be_split_is_one_line(samples) -> None:
    shared, plain = (samples.recipe("dpo", f"sharing={one}") for one in ("prefix", "none"))
    for recipe, environment in ((shared, {}), (shared, FSDP), (plain, DEEPSPEED)):
        check_split(recipe, environment)
    with pytest.raises(UsageError, match=r"DeepSpeed .* would take a step after each; use sharing=none, or fsdp"):
        check_split(shared, DEEPSPEED)
    with pytest.raises(UsageError, match="muon needs whole matrices, and fsdp splits them; use optimizer=adamw"):
        check_split(samples.recipe("sft", "optimizer=muon"), FSDP)
    with pytest.raises(UsageError, match="fsdp_version 1 and fsdp_state_dict_type FULL_STATE_DICT; supported are"):
        check_split(plain, FSDP | {"FSDP_VERSION": "1"})
    with pytest.raises(UsageError, match="splits a model over several processes, and has started one; start several"):
        check_split(plain, FSDP | {"WORLD_SIZE": "1"})


def test_what_deepspeed_would_round_is_refused(samples) -> None:
    kept, added = (f"lora={{rank: 4, alpha: 8, merge: {merge}}}" for merge in ("false", "true"))
    for settings in ((kept, "precision=float32"), (added, "precision=bfloat16")):
        check_split(samples.recipe("dpo", "sharing=none", "weights=float32", *settings), DEEPSPEED)
    rounded = samples.recipe("dpo", "sharing=none", kept, "precision=bfloat16", "weights=bfloat16")
    check_split(rounded, FSDP)
    with pytest.raises(UsageError, match=r"DeepSpeed \(zero3\) holds and writes it in bfloat16; use fsdp or ddp"):
        check_split(rounded, DEEPSPEED)
    with pytest.raises(UsageError, match="with weights in float32 alone; use weights=float32, or fsdp"):
        check_split(samples.recipe("dpo", "sharing=none", "precision=float32", "weights=bfloat16"), DEEPSPEED)


@pytest.mark.parametrize(
    ("is_fsdp2", "policy"),
    [(False, MixedPrecisionPolicy()), (True, None), (True, MixedPrecisionPolicy(param_dtype=torch.bfloat16))],
)
def test_a_trainer_that_splits_otherwise_than_said_trains_nothing(is_fsdp2: bool, policy: object) -> None:
    state = SimpleNamespace(fsdp_plugin=SimpleNamespace(mixed_precision_policy=policy))
    made = SimpleNamespace(accelerator=SimpleNamespace(is_fsdp2=is_fsdp2, state=state), is_deepspeed_enabled=False)
    check_sharded(made, {})
    for environment in (FSDP, DEEPSPEED):
        with pytest.raises(TrainingFailure, match="the model is not split by"):
            check_sharded(made, environment)


def test_a_run_resumes_as_it_began(tmp_path: Path) -> None:
    check_checkpoint(tmp_path, {})
    with pytest.raises(UsageError, match=r"was written with whole models \(ddp\), this run has fsdp; resume as"):
        check_checkpoint(tmp_path, FSDP)
    (tmp_path / "pytorch_model_fsdp.bin").touch()
    check_checkpoint(tmp_path, FSDP)
    with pytest.raises(UsageError, match=r"was written with fsdp, this run has whole models \(ddp\)"):
        check_checkpoint(tmp_path, {})


def test_a_whole_model_is_left_alone() -> None:
    model = torch.nn.Linear(2, 2)
    with gather_weights(model):
        assert model(torch.zeros(1, 2)).shape == (1, 2)


def test_what_was_gathered_is_a_share_again_layer_by_layer(tmp_path: Path) -> None:
    """Also of a model that makes no other pass for long, as a reference does."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'met'}", rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        for part in (*model, model):
            fully_shard(part, mesh=mesh)
        with gather_weights(model):
            model(torch.zeros(1, 2))
            assert not any(isinstance(layer.weight, DTensor) for layer in model)
        assert all(isinstance(layer.weight, DTensor) for layer in model)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("sharing=prefix", TWICE),
        ("sharing=none", *ADDED),
        ("sharing=none", TWICE, *ADDED),
        ("sharing=prefix", *ADDED),
        ("sharing=prefix", TWICE, *ADDED),
    ],
)
def test_two_processes_train_what_one_trains(settings, samples, base: Path, tmp_path: Path, monkeypatch) -> None:
    """Six pairs of unequal states, stopped and resumed: losses, result and checkpoints are whole and the same."""
    states = functools.partial(samples.states, base, tmp_path / "data", held=True)
    _check_split(states, tmp_path, monkeypatch, settings)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["prefix", "none"])
def test_an_adapter_is_resumed_and_compared_with_another(
    sharing: str, samples, base: Path, tmp_path: Path, monkeypatch
) -> None:
    """An epoch continues the adapter of the one before and is compared with it, in two processes as in one."""
    settings = (f"sharing={sharing}", TWICE, *KEPT)
    states = functools.partial(samples.states, base, tmp_path / "data")
    before = None
    for name in ("first", "second"):
        prepared = states(1, "epochs=2", *settings, adapter=before)
        folder = begin(prepared, tmp_path / name)
        before = str(train(prepared, folder, device="cpu").final)
    adapters = {"adapter": before, "reference_adapter": str(tmp_path / "first/final")}
    folder = _check_split(functools.partial(states, **adapters), tmp_path, monkeypatch, settings)
    assert abs(folder.read_metrics()[0]["margin"]) > 1e-3, "it is compared with another than itself"
    assert [path.name for path in folder.final.glob("**/*.safetensors")] == ["adapter_model.safetensors"]


def _check_split(
    states: Callable[..., Prepared], place: Path, monkeypatch: Any, settings: Sequence[str]
) -> FinetuneDir:
    """Train in one process, and in two that hold shares, which are stopped once; returns the run of the two."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    settings = ("epochs=6", "save_every=2", *settings)
    alone = states(1, *settings)
    lone = begin(alone, place / "one")
    train(alone, lone, device="cpu")
    both = states(2, *settings)
    folder, seen = begin(both, place / "two"), []
    first = launch(both, folder, device="cpu", parallelism="fsdp", watch=seen.append, stopping=lambda: bool(seen))
    assert first.final is None
    checkpoint = folder.find_checkpoint()
    assert checkpoint is not None
    assert (checkpoint / "pytorch_model_fsdp.bin").is_file(), "it was not sharded"
    assert launch(both, folder, device="cpu", parallelism="fsdp").final == folder.final
    _check_equal(folder, lone)
    return folder


def _check_equal(folder: FinetuneDir, lone: FinetuneDir) -> None:
    lines, expected = folder.read_metrics(), lone.read_metrics()
    assert [line["step"] for line in lines] == [line["step"] for line in expected]
    for line, other in zip(lines, expected, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert line["compared"] == other["compared"]
        for name in ("margin", "reward_chosen", "logp_chosen"):
            assert line[name] == pytest.approx(other[name], rel=1e-4, abs=1e-4), name
        assert line["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    (name,) = (path.name for path in lone.final.glob("*.safetensors"))
    weights, whole = (load_file(one.final / name) for one in (folder, lone))
    assert weights.keys() == whole.keys()
    for key, weight in whole.items():
        torch.testing.assert_close(weights[key], weight, rtol=1e-3, atol=5e-5)
