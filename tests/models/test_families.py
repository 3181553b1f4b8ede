"""Families of language models: each plays and trains a step, or is refused in one line before anything is played."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import transformers  # noqa: E402

from collab.config import override  # noqa: E402
from collab.data.example import Example, Provenance  # noqa: E402
from collab.data.tokenize import EncodedExample  # noqa: E402
from collab.errors import ConfigError  # noqa: E402
from collab.loop.export import export, find  # noqa: E402
from collab.models.base import Request  # noqa: E402
from collab.models.local import LocalModel  # noqa: E402
from collab.testing.tiny_checkpoint import make_tiny_checkpoint  # noqa: E402
from collab.trainers.prepare import FinetuneTask, prepare  # noqa: E402
from collab.trainers.recipe import load_preset  # noqa: E402
from collab.trainers.run import begin, train  # noqa: E402
from collab.types import Prompt, Sampling, Segment  # noqa: E402
from tests.models.vision.tiny_vision import GRID, asked, make_grid, picture, together  # noqa: E402

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 16}
LINEAR = ["linear_attention", "full_attention"]
slow = pytest.mark.slow
FAMILIES: dict[str, tuple[dict[str, Any], str]] = {
    "gemma4_text": (
        GROUPED
        | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16, "global_head_dim": 32}
        | {"hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 512},
        "its layers are not all full attention",
    ),
    "gemma2": (GROUPED | {"sliding_window": 16}, "its layers are not all full attention"),
    "gpt_oss": (
        GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
        "its layers are not all full attention",
    ),
    "gptj": ({"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "n_positions": 512}, "attention of their own"),
    "bloom": ({"hidden_size": 64, "n_layer": 2, "n_head": 4}, "attention of their own"),
    "gpt_bigcode": ({"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}, "share what they begin"),
    "mamba": ({"hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 8}, "full attention"),
    "falcon_mamba": (
        {"hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 8},
        "its layers are not all full attention",
    ),
    "qwen3_next": (
        GROUPED
        | {"layer_types": LINEAR, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16}
        | {"linear_value_head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
        | {"shared_expert_intermediate_size": 32},
        "its layers are not all full attention",
    ),
    "deepseek_v3": (
        SMALL
        | {"num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 32, "qk_nope_head_dim": 16, "v_head_dim": 16}
        | {"qk_rope_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
        | {"moe_intermediate_size": 32, "first_k_dense_replace": 1},
        "other heads than its configuration says",
    ),
    "qwen3_moe": (
        GROUPED | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        "share what they begin",
    ),
    "granitemoe": (
        SMALL | {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2},
        "share what they begin",
    ),
    "doge": (SMALL | {"num_key_value_heads": 2}, "share what they begin"),
    "opt": (
        {"hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
        | {"word_embed_proj_dim": 64, "max_position_embeddings": 512},
        "share what they begin",
    ),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "bert": (SMALL | {"max_position_embeddings": 512}, "its tokens see those that follow them"),
    "recurrent_gemma": (GROUPED | {"num_hidden_layers": 3, "lru_width": 64}, ""),
    "openai-gpt": ({"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}, ""),
}
"""Those that cannot be played; and why they cannot be trained, "" where they can."""
FAST = {"gemma4_text", "gptj", "mamba"}
ORIGIN = Provenance(
    environment="nowhere[test]",
    environment_version="1",
    task="TaskOne",
    seed=1,
    step=0,
    screen="0" * 64,
    apps=(),
    teacher="oracle",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"))


def checkpoint(kind: str, settings: dict[str, Any], tiny: Path, folder: Path) -> Path:
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    special = {"vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.CONFIG_MAPPING[kind](**{**settings, **special})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def play(folder: Path, dtype: str = "auto") -> str:
    """Two prompts of different lengths, answered together; why prompts do not share what they begin with, if so."""
    model = LocalModel(path=str(folder), dtype=dtype)

    async def scene() -> str:
        try:
            notes = (await model.probe()).notes
            asked = [
                Request(
                    prompt=Prompt(system="Rules.", shared="tap the Save " * number, segments=(Segment(text=" you"),)),
                    sampling=Sampling(max_tokens=2 + number),
                    seed=number,
                )
                for number in (1, 5)
            ]
            assert [one.finish for one in await asyncio.gather(*map(model.generate, asked))]
            return notes[-1]
        finally:
            await model.close()

    return asyncio.run(scene())


def learn(folder: Path, out: Path, *settings: str) -> None:
    """One step on two rows."""
    small = ["context=200", "batch_rows=4", "precision=float32", "saved=float32", "epochs=1", "prompt_weight=0"]
    small += settings
    fields = {"level": "basic", "kind": "one-step", "rejected": None, "provenance": ORIGIN}
    rows = [
        Example(prompt=Prompt(system="Rules.", shared=f"tap {one}", segments=()), reply=f"Action: {one}", **fields)  # type: ignore[arg-type]
        for one in (3, 444)
    ]
    task = FinetuneTask(
        stage="sft", base=str(folder), preset="pocket", recipe=override(load_preset("pocket").get_recipe("sft"), small)
    )
    prepared = prepare(task, rows)
    assert all(isinstance(one, EncodedExample) for one in prepared.encoded.items)
    assert train(prepared, begin(prepared, out), device="cpu").final is not None


@pytest.mark.variations
@pytest.mark.parametrize("kind", [pytest.param(one, marks=() if one in FAST else slow) for one in FAMILIES])
def test_a_family_plays_and_trains_a_step(kind: str, tiny: Path, tmp_path: Path) -> None:
    settings, note = FAMILIES[kind]
    folder = checkpoint(kind, settings, tiny, tmp_path / "model")
    assert note in play(folder)
    learn(folder, tmp_path / "run")
    assert note in play(tmp_path / "run/final")


@pytest.mark.variations
@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("kind", [pytest.param(one, marks=() if one == "qwen3_vl" else slow) for one in GRID])
def test_one_that_sees_still_sees_when_it_was_trained_on_texts(kind: str, merged: bool, tmp_path: Path) -> None:
    folder = make_grid(tmp_path / "model", kind)
    adapter = ["lora={rank: 4, alpha: 64, targets: [q_proj, v_proj]}", "lora.merge=false", "learning_rate=0.1"]
    learn(folder, tmp_path / "run", *([] if merged else adapter))
    question, final = asked("Tap Save.", picture(1)), str(tmp_path / "run/final")
    [before] = together(folder, (question,))
    [after] = together(Path(final), (question,)) if merged else together(folder, (question,), adapter=final)
    assert after.prompt_tokens == before.prompt_tokens
    assert after.logprobs != pytest.approx(before.logprobs, abs=1e-6)
    exported = export(find(final), tmp_path / "exported", merge=True, dtype=None).path
    assert "AutoModelForImageTextToText.from_pretrained" in (exported / "README.md").read_text()
    [played] = together(exported, (question,))
    assert played.logprobs == pytest.approx(after.logprobs, abs=1e-4)


@pytest.mark.parametrize("kind", [pytest.param(one, marks=slow) for one in REFUSED])
def test_a_family_that_cannot_be_played_is_one_line(kind: str, tiny: Path, tmp_path: Path) -> None:
    settings, trains = REFUSED[kind]
    folder = checkpoint(kind, settings, tiny, tmp_path / "model")
    with pytest.raises(ConfigError, match=f"models of type {kind} cannot be computed here: .*; serve it"):
        play(folder)
    if trains:
        with pytest.raises(ConfigError, match=trains):
            learn(folder, tmp_path / "run")


@pytest.mark.medium
def test_rounding_is_not_taken_for_another_model(tiny: Path, tmp_path: Path) -> None:
    """In bfloat16 the log-probabilities of a sure model are off by more than 0.15 at some token, as in a large one."""
    folder = checkpoint(
        "qwen2", GROUPED | {"num_hidden_layers": 12, "tie_word_embeddings": False}, tiny, tmp_path / "model"
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(60)
    model.save_pretrained(folder)
    ids = torch.arange(24)[None] * 7
    exact, rounded = (
        model.to(dtype)(input_ids=ids).logits.float().log_softmax(-1) for dtype in (torch.float32, torch.bfloat16)
    )
    assert (exact - rounded).abs().max() > 0.15
    assert "share what they begin" in play(folder, dtype="bfloat16")
    learn(folder, tmp_path / "run", "weights=bfloat16", "lora={rank: 4, alpha: 8}")
