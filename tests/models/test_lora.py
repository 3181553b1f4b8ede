"""Every kind of LoRA adapter that PEFT writes: played as PEFT computes it, taken off again, and added to its base."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import transformers  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from collab.cli.main import main  # noqa: E402
from collab.errors import ConfigError  # noqa: E402
from collab.models.checkpoint import Checkpoint  # noqa: E402
from collab.models.tokenizer import ChatTokenizer  # noqa: E402
from collab.testing.tiny_checkpoint import make_tiny_checkpoint  # noqa: E402

Q = {"target_modules": ["q_proj", "v_proj"]}
KINDS: dict[str, dict[str, Any]] = {
    "plain": Q,
    "all-linear": {"target_modules": "all-linear"},
    "regex": {"target_modules": r".*layers\.1\..*(up|down)_proj"},
    "rslora": Q | {"use_rslora": True},
    "dora": Q | {"use_dora": True},
    "rank pattern": Q | {"rank_pattern": {"v_proj": 3}, "alpha_pattern": {"v_proj": 7}},
    "layers to transform": Q | {"layers_to_transform": [1], "layers_pattern": "layers"},
    "exclude": {"target_modules": "all-linear", "exclude_modules": ["down_proj"]},
    "bias all": Q | {"bias": "all"},
    "bias lora_only": Q | {"bias": "lora_only"},
    "lora bias": Q | {"lora_bias": True},
    "modules to save: lm_head": Q | {"modules_to_save": ["lm_head"]},
    "modules to save: embed_tokens": Q | {"modules_to_save": ["embed_tokens"]},
    "modules to save: both": Q | {"modules_to_save": ["embed_tokens", "lm_head"]},
    "modules to save: a norm": Q | {"modules_to_save": ["input_layernorm"]},
    "modules to save: tied": Q | {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "embed_tokens": {"target_modules": ["q_proj", "embed_tokens"]},
    "embed_tokens alone": {"target_modules": ["embed_tokens"]},
    "lm_head": {"target_modules": ["q_proj", "lm_head"]},
    "embed_tokens and lm_head": {"target_modules": ["embed_tokens", "lm_head"]},
    "tokens": Q | {"trainable_token_indices": [5, 7]},
    "tokens by name": Q | {"trainable_token_indices": {"embed_tokens": [5, 7]}},
    "tokens of both": Q | {"trainable_token_indices": {"embed_tokens": [5, 7], "lm_head": [5, 8]}},
    "embed_tokens, tied": {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True},
    "parameters": {"target_modules": ["q_proj"], "target_parameters": ["mlp.gate_proj.weight"]},
    "dropout": Q | {"lora_dropout": 0.3},
    "gaussian": Q | {"init_lora_weights": "gaussian"},
    "orthogonal": Q | {"init_lora_weights": "orthogonal"},
    "pissa": Q | {"init_lora_weights": "pissa"},
    "olora": Q | {"init_lora_weights": "olora"},
    "mlp": {"target_modules": ["gate_proj", "up_proj", "down_proj"]},
}


QUICK = {
    "embed_tokens, tied",
    "tokens of both",
    "plain",
    "dora",
    "modules to save: lm_head",
    "pissa",
}
"""Those that stand for the others where time is short."""


@pytest.fixture(scope="module", params=["tied", pytest.param("untied", marks=pytest.mark.slow)])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = make_tiny_checkpoint(tmp_path_factory.mktemp("lora") / request.param, hidden=32, context=256)
    if request.param == "untied":
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        model.config.tie_word_embeddings = False
        untied = transformers.AutoModelForCausalLM.from_config(model.config)
        untied.load_state_dict(model.state_dict() | {"lm_head.weight": torch.randn_like(model.lm_head.weight) / 8})
        untied.save_pretrained(folder)
    return folder


@pytest.fixture
def still() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def adapter_of(base: Path, folder: Path, **options: Any) -> Path:
    """An adapter as a training leaves it: all its weights moved a little."""
    model = get_peft_model(
        transformers.AutoModelForCausalLM.from_pretrained(base),
        LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **options),
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad and weight.is_floating_point():
                weight += 0.1 * torch.randn_like(weight) * (1 if "lora" in name else 0.5)
    model.save_pretrained(folder)
    return folder


def logits(model: Any) -> Any:
    ids = torch.tensor([[3, 5, 7, 11, 200, 5, 42]])
    with torch.no_grad():
        return model(input_ids=ids).logits


@pytest.mark.parametrize("kind", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in KINDS])
@pytest.mark.usefixtures("still")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_kind_is_played_as_peft_computes_it_and_leaves_the_base_as_it_was(
    kind: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = adapter_of(base, tmp_path / "adapter", **KINDS[kind])
    other = adapter_of(base, tmp_path / "other", **Q)
    plain = transformers.AutoModelForCausalLM.from_pretrained(base).eval()
    alone = logits(plain)
    expected = logits(PeftModel.from_pretrained(plain, folder).eval())
    beside = logits(PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), other).eval())
    assert float((expected - alone).abs().max()) > 1e-3  # it says something

    checkpoint = Checkpoint(ChatTokenizer(str(base)), device="cpu", dtype="float32")
    checkpoint.add_adapter("other", str(other))
    checkpoint.add_adapter("this", str(folder))
    for name, wanted in (("this", expected), (None, alone), ("other", beside), ("this", expected)):
        checkpoint.use(name)
        assert torch.allclose(logits(checkpoint.model), wanted, atol=1e-5), name
    checkpoint.drop_adapter("this")
    checkpoint.use("other")
    assert torch.allclose(logits(checkpoint.model), beside, atol=1e-5)

    out = tmp_path / "merged"
    assert main(("export", str(folder), "--base", str(base), "--merge", "--out", str(out))) == 0, capsys.readouterr()
    merged = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    assert torch.allclose(logits(merged), expected, atol=1e-4)
    assert main(("export", str(out), "--out", str(tmp_path / "again"))) == 0


@pytest.mark.usefixtures("still")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_cannot_be_used_or_added_is_one_line(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Checkpoint(ChatTokenizer(str(base)), device="cpu", dtype="float32")
    repeating = adapter_of(base, tmp_path / "repeating", **Q)
    config = json.loads((repeating / "adapter_config.json").read_text())
    (repeating / "adapter_config.json").write_text(json.dumps(config | {"layer_replication": [[0, 2], [0, 2]]}))
    with pytest.raises(ConfigError, match=r"repeating: it repeats layers of its base \(layer_replication\)"):
        checkpoint.add_adapter("repeating", str(repeating))
    biased = adapter_of(base, tmp_path / "biased", target_modules="all-linear", lora_bias=True)
    checkpoint.add_adapter("biased", str(biased))
    assert main(("export", str(biased), "--base", str(base), "--merge", "--out", str(tmp_path / "out"))) == 2
    assert f"{biased}: cannot be added to {base}: " in (said := capsys.readouterr().err)
    assert "play it over its base instead" in said


@pytest.mark.usefixtures("still")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_merge_that_computes_something_else_is_refused(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = adapter_of(base, tmp_path / "adapter", **Q)
    monkeypatch.setattr(PeftModel, "merge_and_unload", lambda self, **_: self.unload(), raising=False)
    assert main(("export", str(folder), "--base", str(base), "--merge", "--out", str(tmp_path / "out"))) == 2
    assert "cannot be added to" in (said := capsys.readouterr().err)
    assert "log-probabilities would differ by" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("still")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_base_that_is_decomposed_by_chance_is_decomposed_alike(base: Path, tmp_path: Path) -> None:
    folder = adapter_of(base, tmp_path / "adapter", **Q, init_lora_weights="pissa_niter_4")
    found = []
    for seed in (1, 2):
        checkpoint = Checkpoint(ChatTokenizer(str(base)), device="cpu", dtype="float32")
        torch.manual_seed(seed)
        checkpoint.add_adapter("this", str(folder))
        checkpoint.use("this")
        found.append(logits(checkpoint.model))
    assert torch.equal(*found)


@pytest.mark.usefixtures("still")
def test_an_adapter_for_another_base_is_told_by_name_and_shape(base: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint(ChatTokenizer(str(base)), device="cpu", dtype="float32")
    before = logits(checkpoint.model)
    wide = make_tiny_checkpoint(tmp_path / "wide", hidden=64, context=256)
    folder = adapter_of(wide, tmp_path / "of-wide", **Q)
    with pytest.raises(ConfigError, match=r"size mismatch for .*q_proj\.lora_A"):
        checkpoint.add_adapter("wide", str(folder))
    lacking = adapter_of(base, tmp_path / "lacking", **Q)
    weights = load_file(lacking / "adapter_model.safetensors")
    name = next(iter(weights))
    save_file({"odd." + name: weights.pop(name), **weights}, lacking / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match=r"1 of its weights have no place there, 1 are missing, for example odd\."):
        checkpoint.add_adapter("lacking", str(lacking))
    scores = shutil.copytree(adapter_of(base, tmp_path / "plain", **Q), tmp_path / "scores")
    config = json.loads((scores / "adapter_config.json").read_text())
    (scores / "adapter_config.json").write_text(json.dumps(config | {"modules_to_save": ["score"]}))
    weights = load_file(scores / "adapter_model.safetensors")
    save_file(weights | {"base_model.model.score.weight": torch.zeros(1, 32)}, scores / "adapter_model.safetensors")
    with pytest.raises(ConfigError, match=r"scores: .*have no place there"):
        checkpoint.add_adapter("scores", str(scores))
    checkpoint.use(None)
    assert torch.equal(logits(checkpoint.model), before)
