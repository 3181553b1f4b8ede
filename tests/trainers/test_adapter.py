"""Adapters that training continues: they compute what their sum with the base does; unfit ones are refused."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from collab.errors import ConfigError
from collab.models.local import LocalModel
from collab.trainers.base_model import check_modules, open_adapter
from collab.trainers.prepare import FinetuneTask, prepare, read_task
from collab.trainers.run import begin, train
from collab.trainers.run_dir import FinetuneDir
from collab.trainers.trainer import build_adapter_config

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA = "lora={rank: 4, alpha: 8, merge: MERGE}"


def task(samples: Any, base: Path, *settings: str, merge: bool = False) -> FinetuneTask:
    lora = LORA.replace("MERGE", str(merge).lower())
    found: FinetuneTask = samples.task(base, "dpo", "epochs=1", "batch_rows=4", "learning_rate=1e-2", lora, *settings)
    return found


def trained(asked: FinetuneTask, rows: Any, out: Path) -> FinetuneDir:
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


def first(folder: FinetuneDir) -> dict[str, Any]:
    line: dict[str, Any] = folder.read_metrics()[0]
    return line


@pytest.mark.slow
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
    assert read_task(folder.read()) == kept


@pytest.mark.slow
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
def test_what_is_stopped_resumes_with_both(made, samples, base: Path, tmp_path: Path) -> None:
    rows = samples.rows(8, ["preference"])
    asked = replace(task(samples, base, "save_every=1"), adapter=made["adapter"], reference_adapter=made["adapter"])
    whole = trained(asked, rows, tmp_path / "whole")
    prepared = prepare(asked, rows)
    folder = begin(prepared, tmp_path / "run")
    assert train(prepared, folder, device="cpu", stopping=lambda: True).final is None
    assert train(prepared, folder, device="cpu").final == folder.final
    for name, weight in load_file(whole.final / "adapter_model.safetensors").items():
        assert torch.equal(load_file(folder.final / "adapter_model.safetensors")[name], weight)


@pytest.mark.medium
def test_what_does_not_fit_is_one_line(made, samples, base: Path, tmp_path: Path) -> None:
    recipe = task(samples, base).recipe
    assert open_adapter(None, recipe, str(base)) is None
    with pytest.raises(
        ConfigError, match=r"no PEFT adapter; adapter_config.json and adapter_model.safetensors have to"
    ):
        open_adapter(str(tmp_path), recipe, str(base))
    with pytest.raises(ConfigError, match="the recipe trains all weights; set lora, or add the adapter to its base"):
        open_adapter(made["adapter"], samples.recipe("dpo"), str(base))
    with pytest.raises(ConfigError, match=r"has rank 4 and alpha 8, the recipe 8 and 8; set lora.rank=4 and lora.alp"):
        open_adapter(made["adapter"], samples.recipe("dpo", "lora={rank: 8, alpha: 8}"), str(base))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_rslora", True),
        ("use_dora", True),
        ("rank_pattern", {"q_proj": 8}),
        ("alpha_pattern", {"q_proj": 1}),
        ("bias", "all"),
        ("modules_to_save", ["embed_tokens"]),
        ("init_lora_weights", "pissa_niter_4"),
    ],
)
def test_an_adapter_that_would_be_trained_as_another_one_is_refused(
    made, samples, base: Path, tmp_path: Path, name: str, value: object
) -> None:
    """With the scale of rank-stabilised LoRA, what is trained would not be what played."""
    other = tmp_path / "other"
    shutil.copytree(made["adapter"], other)
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(ConfigError, match=f"has {name}.*, which is played and not trained here; begin with the sum"):
        open_adapter(str(other), task(samples, base).recipe, str(base))


def test_an_adapter_over_another_base_than_its_own_is_refused(made, samples, base: Path) -> None:
    """Trained or played; it has the same sizes, so nothing else would tell."""
    recipe, whole = task(samples, base).recipe, made["whole"]
    with pytest.raises(ConfigError, match=r"not the base that .* was trained on .*; name that one"):
        open_adapter(made["adapter"], recipe, whole)
    with pytest.raises(ConfigError, match=r"not the base that .* was trained on .*; give path the one that it was"):
        LocalModel(path=whole, adapter=made["adapter"])
    assert LocalModel(path=str(base), adapter=made["adapter"]).policy.adapter == made["adapter"]


@pytest.mark.parametrize("targets", ["[q_proj]", "[q_proj, k_proj]"])
def test_other_modules_are_found_before_the_first_episode(made, samples, base: Path, targets: str) -> None:
    recipe = task(samples, base).recipe
    opened = open_adapter(made["adapter"], recipe, str(base))
    assert opened is not None

    def check(*settings: str) -> None:
        model = AutoModelForCausalLM.from_pretrained(base)
        check_modules(opened, model, build_adapter_config(model, samples.recipe("dpo", *settings)))

    check("lora={rank: 4, alpha: 8}")
    check(f"lora={{rank: 4, alpha: 8, targets: [{', '.join(ALL)}]}}")
    with pytest.raises(ConfigError, match=r"made for other modules .*_proj; it has .*: set lora.targets to these"):
        check(f"lora={{rank: 4, alpha: 8, targets: {targets}}}")


def test_an_adapter_of_other_modules_is_one_line(made, samples, base: Path, tmp_path: Path) -> None:
    recipe = samples.recipe("dpo", "lora={rank: 4, alpha: 8, targets: [q_proj]}")
    asked = replace(task(samples, base), recipe=recipe, adapter=made["adapter"])
    prepared = prepare(asked, samples.rows(4, ["preference"]))
    with pytest.raises(ConfigError, match=r"made for other modules than the recipe's, for example .*_proj"):
        train(prepared, begin(prepared, tmp_path / "run"), device="cpu")
    assert json.loads((Path(made["adapter"]) / "adapter_config.json").read_text())["r"] == 4


def test_weights_that_no_recipe_trains_are_named(made, samples, base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(made["adapter"], other)
    weights = load_file(other / "adapter_model.safetensors")
    name = next(iter(weights)).replace(".weight", ".bias")
    save_file(weights | {name: torch.zeros(1)}, other / "adapter_model.safetensors")
    (other / "collab.json").unlink()
    recipe, model = task(samples, base).recipe, AutoModelForCausalLM.from_pretrained(base)
    opened = open_adapter(str(other), recipe, str(base))
    assert opened is not None
    with pytest.raises(ConfigError, match=rf"has {re.escape(name)}, which is played and not trained here"):
        check_modules(opened, model, build_adapter_config(model, recipe))
