"""Weights that are not a model's are refused by name by every command that loads them, and never become random ones."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import transformers  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from collab.cli.main import main  # noqa: E402
from collab.data.example import Example, Provenance  # noqa: E402
from collab.data.parquet import ExampleWriter  # noqa: E402
from collab.errors import ConfigError  # noqa: E402
from collab.models.reward_model import RewardModel  # noqa: E402
from collab.testing.tiny_checkpoint import make_tiny_checkpoint  # noqa: E402
from collab.types import Prompt, Segment  # noqa: E402

Weights = dict[str, Any]
ROW = Example(
    level="basic",
    kind="one-step",
    prompt=Prompt(system="Rules.", shared="tap Save", segments=(Segment(text="You are ada."),)),
    reply="Action: 7",
    rejected=None,
    provenance=Provenance(
        environment="nowhere[test]",
        environment_version="1",
        task="TaskOne",
        seed=1,
        step=0,
        screen="0" * 64,
        apps=(),
        teacher="oracle",
    ),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "base", hidden=32, context=512)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    with ExampleWriter(folder / "basic.parquet") as out:
        out.add(ROW)
    return folder


def change(base: Path, folder: Path, by: Callable[[Weights], Mapping[str, Any]], **config: Any) -> Path:
    """A copy of a checkpoint with other weights and other settings."""
    shutil.copytree(base, folder)
    save_file(dict(by(load_file(folder / "model.safetensors"))), folder / "model.safetensors", {"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def put(piece: str) -> Callable[[Weights], Weights]:
    return lambda weights: {piece + name: weight for name, weight in weights.items()}


def fsdp(weights: Weights) -> Weights:
    return {name.replace("model.layers.", "model.layers._fsdp_wrapped_module."): one for name, one in weights.items()}


def peft(weights: Weights) -> Weights:
    named = {name.replace("q_proj.weight", "q_proj.base_layer.weight"): one for name, one in weights.items()}
    return named | {"model.layers.0.self_attn.q_proj.lora_A.default.weight": torch.zeros(2, 32)}


def wide(weights: Weights) -> Weights:
    return weights | {"model.embed_tokens.weight": torch.zeros(weights["model.embed_tokens.weight"].shape[0], 48)}


def biased(weights: Weights) -> Weights:
    return weights | {"model.layers.0.self_attn.o_proj.bias": torch.ones(32)}


def twice(weights: Weights) -> Weights:
    return weights | {f"_orig_mod.{name}": torch.zeros_like(one) for name, one in weights.items()}


BROKEN: dict[str, tuple[Callable[[Weights], Weights], dict[str, Any], str]] = {
    "compiled": (put("_orig_mod."), {}, r"27 of 27 .*'_orig_mod\.' as torch\.compile leaves it"),
    "parallel": (put("module."), {}, r"missing, for example .*'module\.' as DataParallel or DDP leaves it"),
    "sharded": (fsdp, {}, r"missing, .*'_fsdp_wrapped_module\.' as FSDP leaves it"),
    "adapted": (put("base_model.model."), {}, r"missing, .*'base_model\.model\.' as PEFT leaves it"),
    "half merged": (peft, {}, r"q_proj\.weight; it has .*q_proj\.base_layer.*merge_and_unload"),
    "inside": (put("policy."), {}, r"its names begin with 'policy\.': take that away"),
    "deeper": (lambda weights: weights, {"num_hidden_layers": 4, "layer_types": None}, r"missing, .*layers\.2\."),
    "shallower": (lambda weights: weights, {"num_hidden_layers": 1, "layer_types": None}, r"no place .*layers\.1\."),
    "untied": (lambda weights: weights, {"tie_word_embeddings": False}, r"1 of \d+ are missing, .*lm_head\.weight"),
    "wide": (wide, {}, r"another shape, .*embed_tokens\.weight: \[\d+, 48\], config\.json says \[\d+, 32\]"),
    "biased": (biased, {}, r"1 of its weights have no place .*o_proj\.bias"),
    "twice": (twice, {}, r"have no place .*'_orig_mod\.' as torch\.compile leaves it"),
    "empty": (lambda weights: {"nothing": torch.zeros(1)}, {}, r"27 of 27 are missing"),
}

QUICK = {"compiled", "parallel", "deeper", "biased", "wide"}
"""Those that stand for the others where time is short."""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert [line[:7] for line in shown.err.splitlines()].count("error: ") == 1
    return shown.err.splitlines()[-1]


def agents_file(folder: Path, **options: str) -> str:
    path = folder / "who.yaml"
    path.write_text(json.dumps({"description": "-", "kind": "local", "options": options, "prompt": "default"}))
    return str(path)


@pytest.mark.parametrize("kind", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in BROKEN])
def test_every_command_refuses_weights_that_are_not_the_models(
    kind: str, tiny: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by, config, message = BROKEN[kind]
    broken = change(tiny, tmp_path / "broken", by, **config)
    for arguments in (
        ("agents", "check", agents_file(tmp_path, path=str(broken))),
        ("finetune", "--stage", "sft", "--base", str(broken), "--data", str(rows), "--set", "context=100", "--plan"),
        ("export", str(broken), "--out", str(tmp_path / "out")),
        ("export", str(broken), "--dtype", "bfloat16", "--out", str(tmp_path / "out")),
    ):
        said = refused(capsys, *arguments)
        assert str(broken) in said
        assert re.search(message, said), said
    assert not (tmp_path / "out").exists()


def test_an_adapter_over_such_weights_is_not_added_to_them(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    broken = change(tiny, tmp_path / "broken", put("_orig_mod."))
    asked = ("export", str(tmp_path / "adapter"), "--base", str(broken), "--merge", "--out", str(tmp_path / "out"))
    assert "'_orig_mod.' as torch.compile leaves it" in refused(capsys, *asked)


def test_a_reward_model_over_such_weights_judges_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound = make_tiny_checkpoint(tmp_path / "sound", hidden=32, labels=1)
    broken = RewardModel(path=str(change(sound, tmp_path / "broken", put("module."))))
    with pytest.raises(ConfigError, match="as DataParallel or DDP leaves it"):
        asyncio.run(broken.probe())
    asyncio.run(broken.close())
    assert "whose head puts out no words" in refused(capsys, "agents", "check", agents_file(tmp_path, path=str(sound)))


@pytest.mark.variations
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model.safetensors.index.json": None}, r"has model-00001-of-0000\d\.safetensors and no .*index\.json"),
        ({"model-00002-of-00002.safetensors": None}, r"names 2 files, of which 1 are not there: model-00002-of-00002"),
        ({"model.safetensors.index.json": "{"}, r"index\.json: cannot be read: .*; copy the whole checkpoint again"),
        ({"model.safetensors.index.json": '{"weight_map": []}'}, r"index\.json: cannot be read"),
    ],
)
def test_pieces_that_are_not_whole_are_named(
    files: dict[str, str | None],
    message: str,
    tiny: Path,
    rows: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "pieces")
    (folder / "model.safetensors").unlink()
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    model.save_pretrained(folder, max_shard_size="80KB")
    for name, text in files.items():
        (folder / name).unlink()
        if text is not None:
            (folder / name).write_text(text)
    for arguments in (
        ("agents", "check", agents_file(tmp_path, path=str(folder))),
        ("finetune", "--stage", "sft", "--base", str(folder), "--data", str(rows), "--set", "context=100", "--plan"),
        ("export", str(folder), "--out", str(tmp_path / "out")),
    ):
        said = refused(capsys, *arguments)
        assert re.search(message, said), said


@pytest.mark.slow
def test_sound_checkpoints_are_loaded_however_their_names_are_written(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The inner model's names, tied weights written twice, and parts that a language model does not have."""
    spoken = []
    for name, by in {
        "inner": lambda weights: {one.removeprefix("model."): weight for one, weight in weights.items()},
        "doubled": put("model."),
        "tied twice": lambda weights: weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()},
        "value head": lambda weights: weights | {"v_head.summary.weight": torch.zeros(1, 32)},
        "sound": lambda weights: weights,
    }.items():
        folder = change(tiny, tmp_path / name, by)
        assert main(("agents", "check", "--json", agents_file(tmp_path, path=str(folder)))) == 0
        (answer,) = json.loads(capsys.readouterr().out).values()
        spoken.append(answer["reply"]["text"])
    assert len(set(spoken)) == 1


def with_code(tiny: Path, folder: Path, place: str, **told: Any) -> Path:
    """A checkpoint that asks for Python of its own, which leaves a mark when it is run."""
    shutil.copytree(tiny, folder)
    (folder / "own.py").write_text(f"open({str(folder / 'was-run')!r}, 'w')\n")
    path = folder / place
    path.write_text(json.dumps(json.loads(path.read_text()) | told))
    return folder


@pytest.fixture
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_: str = "") -> str:
        pytest.fail("a prompt appeared")

    monkeypatch.setattr("builtins.input", ask)


@pytest.mark.usefixtures("nobody_is_asked")
def test_code_of_a_checkpoint_is_never_run(
    tiny: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    folder = with_code(tiny, tmp_path / "model", "config.json", model_type="mine", auto_map=classes)
    for arguments in (
        ("agents", "check", agents_file(tmp_path, path=str(folder))),
        ("finetune", "--stage", "sft", "--base", str(folder), "--data", str(rows), "--set", "context=100", "--plan"),
        ("export", str(folder), "--dtype", "bfloat16", "--out", str(tmp_path / "out")),
    ):
        said = refused(capsys, *arguments)
        assert "code of a checkpoint is never run here" in said
        assert str(folder) in said
    assert not (folder / "was-run").exists()


@pytest.mark.medium
@pytest.mark.usefixtures("nobody_is_asked")
def test_a_checkpoint_that_needs_no_code_of_its_own_plays_without_it(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those do that were published before transformers knew their family."""
    classes = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    tokenizers = {"AutoTokenizer": ["own.Mine", "own.Mine"]}
    for folder in (
        with_code(tiny, tmp_path / "model", "config.json", auto_map=classes),
        with_code(tiny, tmp_path / "tokenizer", "tokenizer_config.json", auto_map=tokenizers),
    ):
        assert main(("agents", "check", agents_file(tmp_path, path=str(folder)))) == 0
        assert not (folder / "was-run").exists()


def test_a_tokenizer_with_more_tokens_than_the_model_says_which(
    tiny: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    size = len(tokenizer)
    tokenizer.add_tokens(["<tap>", "<swipe>", "<type>", "<wait>"])
    tokenizer.save_pretrained(folder)
    for arguments in (
        ("agents", "check", agents_file(tmp_path, path=str(folder))),
        ("finetune", "--stage", "sft", "--base", str(folder), "--data", str(rows), "--set", "context=100", "--plan"),
        ("export", str(folder), "--out", str(tmp_path / "out")),
    ):
        said = refused(capsys, *arguments)
        assert f"the tokenizer has {size + 4} tokens, the model {size};" in said
        assert f"4 tokens are beyond what the model reads: '<tap>' ({size}), '<swipe>' ({size + 1})" in said


@pytest.mark.variations
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, r"quantised \(gptq\).*name the checkpoint"),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            r"quantised \(bitsandbytes\)",
        ),
        ({"num_attention_heads": "many"}, r"num_attention_heads.*'many'"),
        ({"num_attention_heads": 0}, r"."),
        ({"model_type": "nobody-knows"}, r"config\.json cannot be used: .*nobody-knows"),
        ({"model_type": "t5"}, r"models of type t5 are no language models"),
        ({"model_type": None}, r"config\.json cannot be used"),
        ({"hidden_act": "nothing"}, r"."),
    ],
)
def test_odd_configurations_are_one_line(
    config: dict[str, Any],
    message: str,
    tiny: Path,
    rows: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = change(tiny, tmp_path / "odd", lambda weights: weights, **config)
    for arguments in (
        ("agents", "check", agents_file(tmp_path, path=str(odd))),
        ("finetune", "--stage", "sft", "--base", str(odd), "--data", str(rows), "--set", "context=100", "--plan"),
    ):
        said = refused(capsys, *arguments)
        assert str(odd) in said
        assert re.search(message, said), said
        assert "bug" not in said
