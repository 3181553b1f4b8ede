"""Weights as a directory that plain transformers loads: the same numbers, copied, rounded or summed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from collab.errors import ConfigError, UsageError
from collab.models.checkpoint_card import CARD, check_layout, hash_weights, write_layout
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.export import Precision, find_context_length, load_export, open_source, write_export
from collab.utils.files import write_json

IDS = torch.arange(24).view(2, 12) * 7 % 300


@torch.inference_mode()
def logits(model: torch.nn.Module) -> torch.Tensor:
    """(2, 12, vocabulary), float32."""
    found: torch.Tensor = model.eval()(input_ids=IDS).logits.float()
    return found


def plain(folder: Path) -> torch.Tensor:
    return logits(AutoModelForCausalLM.from_pretrained(folder, local_files_only=True))


def exported(path: Path, target: Path, *, merge: bool = False, dtype: Precision | None = None) -> Path:
    source = open_source(str(path))
    write_export(source, load_export(source, merge=merge, dtype=dtype), target)
    return target


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """A LoRA adapter for the base that changes what it says, with a card, as fine-tuning leaves it."""
    folder = tmp_path / "adapter"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "up_proj"], init_lora_weights=False)
        get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    write_layout(folder)
    write_json(folder / CARD, {"base": {"path": str(base), "digest": hash_weights(base)}})
    return folder


def test_who_may_read_an_export_may_read_its_weights(adapter: Path, tmp_path: Path) -> None:
    """The library that writes them keeps them to their owner."""
    made = exported(adapter, tmp_path / "made", merge=True)
    assert len({file.stat().st_mode for file in made.iterdir()}) == 1
    assert next(made.glob("*.safetensors")).stat().st_mode & 0o777 == 0o666 & ~_read_umask()


def _read_umask() -> int:
    """Return what new files of this process are not given."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_checkpoint_is_copied_without_what_its_training_left(base: Path, tmp_path: Path) -> None:
    full = make_tiny_checkpoint(tmp_path / "full", hidden=32, context=512)
    write_layout(full)
    for left in ("optimizer.pt", "trainer_state.json", "digests.json", "README.md"):
        (full / left).write_text("{}")
    made = exported(full, tmp_path / "made")
    assert torch.equal(plain(made), plain(full))
    check_layout(made)
    kept = {"config.json", "generation_config.json", "model.safetensors", "collab.json", "chat_template.jinja"}
    assert {path.name for path in made.iterdir()} == kept | {"tokenizer.json", "tokenizer_config.json"}
    text = "Tap the Save button."
    assert AutoTokenizer.from_pretrained(made).encode(text) == AutoTokenizer.from_pretrained(full).encode(text)
    assert not (exported(base, tmp_path / "foreign") / "collab.json").exists(), "nobody knows what it was trained on"


def test_a_checkpoint_in_several_files_stays_in_them(base: Path, tmp_path: Path) -> None:
    full = make_tiny_checkpoint(tmp_path / "full", hidden=32, context=512)
    (full / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(base).save_pretrained(full, max_shard_size="40KB")
    made = exported(full, tmp_path / "made")
    assert len(list(made.glob("model-*.safetensors"))) > 1
    assert torch.equal(plain(made), plain(base))


def test_weights_are_rounded_once_where_a_dtype_is_asked(base: Path, tmp_path: Path) -> None:
    made = exported(base, tmp_path / "made", dtype="bfloat16")
    model = AutoModelForCausalLM.from_pretrained(made)
    original = AutoModelForCausalLM.from_pretrained(base).to(torch.bfloat16)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), original.parameters(), strict=True))


def test_an_adapter_is_copied_and_finds_its_base(base: Path, adapter: Path, tmp_path: Path) -> None:
    made = exported(adapter, tmp_path / "made")
    named = json.loads((made / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert Path(named) == base.resolve()
    expected = logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter))
    assert torch.equal(logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(named), made)), expected)
    assert not torch.allclose(expected, plain(base), atol=0.01), "the adapter changes something"
    check_layout(made)


def test_a_merged_adapter_computes_what_base_and_adapter_do(base: Path, adapter: Path, tmp_path: Path) -> None:
    made = exported(adapter, tmp_path / "made", merge=True)
    expected = logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter))
    assert torch.allclose(plain(made), expected, atol=1e-5)
    assert not (made / "adapter_config.json").exists()
    check_layout(made)
    rounded = AutoModelForCausalLM.from_pretrained(exported(adapter, tmp_path / "half", merge=True, dtype="bfloat16"))
    assert rounded.dtype == torch.bfloat16


def test_replies_end_where_the_chat_template_ends_them(tmp_path: Path) -> None:
    full = make_tiny_checkpoint(tmp_path / "full", hidden=32)
    turn_end = AutoTokenizer.from_pretrained(full).eos_token_id
    (full / "generation_config.json").write_text('{"eos_token_id": 0, "top_k": 7}')
    told = json.loads((exported(full, tmp_path / "made") / "generation_config.json").read_text())
    assert told == {"eos_token_id": [0, turn_end], "top_k": 7}
    (full / "generation_config.json").unlink()
    assert (
        AutoModelForCausalLM.from_pretrained(exported(full, tmp_path / "more")).generation_config.eos_token_id
        == json.loads((full / "config.json").read_text())["eos_token_id"]
    )


def test_what_cannot_be_exported_is_named(base: Path, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such directory"):
        open_source(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="whole checkpoint and has no base"):
        open_source(str(base), str(base))
    with pytest.raises(UsageError, match="is an adapter and is copied as it is; add --merge"):
        load_export(open_source(str(adapter)), merge=False, dtype="float32")
    with pytest.raises(ConfigError, match=r"no directory here; name it: --base DIR"):
        load_export(open_source(str(adapter), "owner/model"), merge=True, dtype=None)
    other = make_tiny_checkpoint(tmp_path / "other", seed=5, hidden=32, context=512)
    with pytest.raises(ConfigError, match="not the base that"):
        load_export(open_source(str(adapter), str(other)), merge=True, dtype=None)
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"without adapter_model\.safetensors"):
        open_source(str(adapter))


def test_how_much_a_checkpoint_reads(base: Path, adapter: Path) -> None:
    assert find_context_length(open_source(str(base))) == find_context_length(open_source(str(adapter))) == 512
    assert find_context_length(open_source(str(adapter), "owner/model")) is None
