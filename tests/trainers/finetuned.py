"""Short fine-tuning runs, and their weights."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from collab.trainers.prepare import Prepared
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(next(folder.glob("*.safetensors")))


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def trained(prepared: Prepared, out: Path, **options) -> Path:
    result = train(prepared, begin(prepared, out), device="cpu", **options)
    assert result.final == out / "final"
    assert result.step == result.steps == len(prepared.steps)
    return result.final


def first_loss(prepared: Prepared, out: Path) -> float:
    trained(prepared, out)
    return FinetuneDir(out).read_metrics()[0]["loss"]
