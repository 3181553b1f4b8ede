"""Adapters that training goes on from: the numbers of their sum with the base, and what does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from collab.errors import ConfigError
from collab.learn.adapter import open_adapter
from collab.learn.finetune import begin, train
from collab.learn.folder import RunFolder
from collab.learn.prepare import Task, prepare, task_of

LORA = "lora={rank: 4, alpha: 8, merge: MERGE}"


def task(samples: Any, base: Path, *settings: str, merge: bool = False) -> Task:
    lora = LORA.replace("MERGE", str(merge).lower())
    found: Task = samples.task(base, "dpo", "epochs=1", "batch_rows=4", "learning_rate=1e-2", lora, *settings)
    return found


def trained(asked: Task, rows: Any, out: Path) -> RunFolder:
    prepared = prepare(asked, rows)
    folder = begin(prepared, out)
    assert train(prepared, folder, device="cpu").final == folder.final
    return folder


@pytest.fixture(scope="module")
def made(samples, base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same training once as an adapter, once added to the weights."""
    place = tmp_path_factory.mktemp("adapter")
    rows = samples.rows(4, ["preference"])
    kinds = {"adapter": False, "whole": True}
    return {
        name: str(trained(task(samples, base, merge=merge), rows, place / name).final) for name, merge in kinds.items()
    }


def first(folder: RunFolder) -> dict[str, Any]:
    line: dict[str, Any] = folder.read_metrics()[0]
    return line


def test_going_on_with_an_adapter_is_going_on_with_its_sum(made, samples, base: Path, tmp_path: Path) -> None:
    """Against the base, the first step has the likelihoods and margins of the whole checkpoint that it stands for."""
    rows = samples.rows(4, ["preference"])
    kept = replace(task(samples, base), adapter=made["adapter"])
    folder = trained(kept, rows, tmp_path / "kept")
    whole = replace(task(samples, base), base=made["whole"], reference=str(base))
    expected = first(trained(whole, rows, tmp_path / "whole"))
    for name in ("loss", "margin", "logp_chosen", "logp_rejected"):
        assert first(folder)[name] == pytest.approx(expected[name], abs=1e-4)
    assert first(folder)["margin"] > 0.01, "the adapter that was gone on from had learned something"
    assert task_of(folder.manifest()) == kept


def test_a_reference_with_an_adapter_is_that_adapter(made, samples, base: Path, tmp_path: Path) -> None:
    """Compared with itself, a policy has no margin at first; the result is the trained adapter alone, in its type."""
    rows = samples.rows(4, ["preference"])
    asked = replace(task(samples, base), adapter=made["adapter"], reference_adapter=made["adapter"])
    folder = trained(asked, rows, tmp_path / "run")
    assert first(folder)["margin"] == pytest.approx(0, abs=1e-6)
    assert [path.name for path in folder.final.glob("**/*.safetensors")] == ["adapter_model.safetensors"]
    before, after = (load_file(Path(path) / "adapter_model.safetensors") for path in (made["adapter"], folder.final))
    assert before.keys() == after.keys()
    assert {weight.dtype for weight in after.values()} == {torch.float32}
    assert any(not torch.equal(before[name], weight) for name, weight in after.items())


@pytest.mark.slow
def test_what_is_stopped_goes_on_with_both(made, samples, base: Path, tmp_path: Path) -> None:
    rows = samples.rows(8, ["preference"])
    asked = replace(task(samples, base, "save_every=1"), adapter=made["adapter"], reference_adapter=made["adapter"])
    whole = trained(asked, rows, tmp_path / "whole")
    prepared = prepare(asked, rows)
    folder = begin(prepared, tmp_path / "run")
    assert train(prepared, folder, device="cpu", stopping=lambda: True).final is None
    assert train(prepared, folder, device="cpu").final == folder.final
    for name, weight in load_file(whole.final / "adapter_model.safetensors").items():
        assert torch.equal(load_file(folder.final / "adapter_model.safetensors")[name], weight)


def test_what_does_not_fit_is_one_line(made, samples, base: Path, tmp_path: Path) -> None:
    recipe = task(samples, base).recipe
    assert open_adapter(None, recipe) is None
    with pytest.raises(
        ConfigError, match=r"no PEFT adapter; adapter_config.json and adapter_model.safetensors have to"
    ):
        open_adapter(str(tmp_path), recipe)
    with pytest.raises(ConfigError, match="the recipe trains all weights; set lora, or add the adapter to its base"):
        open_adapter(made["adapter"], samples.recipe("dpo"))
    with pytest.raises(ConfigError, match=r"has rank 4 and alpha 8, the recipe 8 and 8; set lora.rank=4 and lora.alp"):
        open_adapter(made["adapter"], samples.recipe("dpo", "lora={rank: 8, alpha: 8}"))


def test_an_adapter_of_other_modules_is_one_line(made, samples, base: Path, tmp_path: Path) -> None:
    recipe = samples.recipe("dpo", "lora={rank: 4, alpha: 8, targets: [q_proj]}")
    asked = replace(task(samples, base), recipe=recipe, adapter=made["adapter"])
    prepared = prepare(asked, samples.rows(4, ["preference"]))
    with pytest.raises(ConfigError, match=r"made for other modules than the recipe's, for example .*_proj"):
        train(prepared, begin(prepared, tmp_path / "run"), device="cpu")
    assert json.loads((Path(made["adapter"]) / "adapter_config.json").read_text())["r"] == 4
