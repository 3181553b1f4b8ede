"""Tiny random checkpoints that see, one per family, and questions about pictures."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image

from collab.models.base import Reply, Request
from collab.models.local import LocalModel
from collab.models.tokenizer import silence_transformers
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Prompt, Sampling, Segment

TURNS = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ PICTURE }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PREFIX = (
    "{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<image>' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)
GRID_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
TEXT = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096, "intermediate_size": 64}
GRID_PICTURES = {"patch_size": 4, "merge_size": 2, "size": {"shortest_edge": 64, "longest_edge": 4096}}
"""From one token to 64: a token is 8 by 8 pixels."""


def tokenizer_with(folder: Path, tokens: tuple[str, ...], template: str, **options: Any) -> Any:
    make_tiny_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens), **options})
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return tokenizer


def save(folder: Path, kind: type[Any], config: Any, processor: dict[str, Any]) -> None:
    with torch.random.fork_rng(devices=[]), silence_transformers():
        torch.manual_seed(0)
        model = kind(config)
        for weight in model.parameters():
            weight.data *= 3 if weight.ndim > 1 else 1  # so that pictures change what is said
        model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LINEAR = {
    **{"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"linear_key_head_dim": 8, "linear_value_head_dim": 8},
}
"""Layers of Qwen3.5: every other one keeps a state in place of keys and values."""
DEEP = {"hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 32, "num_position_embeddings": 16}
GRID: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen2_vl": ("Qwen2VL", {}, {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}),
    "qwen2_5_vl": (
        "Qwen2_5_VL",
        {},
        {"hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 32}
        | {"window_size": 16, "fullatt_block_indexes": [1]},
    ),
    "qwen3_vl": ("Qwen3VL", {"head_dim": 8}, DEEP | {"deepstack_visual_indexes": [0]}),
    "qwen3_vl_moe": ("Qwen3VLMoe", {"head_dim": 8, **EXPERTS}, DEEP | {"deepstack_visual_indexes": [0]}),
    "qwen3_5": ("Qwen3_5", {"head_dim": 8, **LINEAR}, DEEP),
    "qwen3_5_moe": (
        "Qwen3_5Moe",
        {"head_dim": 8, **LINEAR, **EXPERTS, "shared_expert_intermediate_size": 32},
        DEEP,
    ),
}
"""Model type → its name in transformers, and what differs in its text and vision parts."""


def make_grid(folder: Path, family: str) -> Path:
    picture = "'<|vision_start|><|image_pad|><|vision_end|>'"
    tokenizer = tokenizer_with(folder, GRID_TOKENS, TURNS.replace("PICTURE", picture))
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(GRID_TOKENS))
    name, text, vision = GRID[family]
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    if family.startswith("qwen3"):
        rope |= {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "partial_rotary_factor": 1.0}
    text = {
        **TEXT,
        **text,
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "rope_parameters": rope,
    }
    vision = {"depth": 2, "num_heads": 2, "patch_size": 4, "in_channels": 3, **vision}
    tokens = {"vision_start_token_id": start, "vision_end_token_id": end}
    tokens |= {"image_token_id": image, "video_token_id": video}
    config = getattr(transformers, f"{name}Config")
    made = config(text_config=text, vision_config=vision, tie_word_embeddings=False, **tokens)
    kind = getattr(transformers, f"{name}ForConditionalGeneration")
    reader = "Qwen2VLImageProcessorFast" if family.startswith("qwen3") else "Qwen2VLImageProcessor"  # as published
    save(folder, kind, made, {"image_processor_type": reader, **GRID_PICTURES})
    return folder


def make_paligemma(folder: Path) -> Path:
    tokenizer = tokenizer_with(folder, ("<image>",), PREFIX, bos_token="<bos>")
    text = {
        **TEXT,
        "model_type": "gemma",
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "head_dim": 8,
        "num_hidden_layers": 2,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    vision |= {"num_attention_heads": 2, "image_size": 16, "patch_size": 4, "vision_use_head": False}
    config = transformers.PaliGemmaConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
        tie_word_embeddings=False,
    )
    processor = {"image_processor_type": "SiglipImageProcessor", "image_seq_length": 16}
    processor |= {"size": {"height": 16, "width": 16}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    save(folder, transformers.PaliGemmaForConditionalGeneration, config, processor)
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {
    **{family: partial(make_grid, family=family) for family in GRID},
    "paligemma": make_paligemma,
}


def picture(seed: int, width: int = 40, height: int = 24) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (height // 8, width // 8, 3), generator=generator, dtype=torch.uint8)
    image = Image.fromarray(pixels.numpy()).resize((width, height), Image.Resampling.NEAREST)
    held = io.BytesIO()
    image.save(held, "PNG")
    return held.getvalue()


def asked(text: str, *images: bytes, last: bool = False, **sampling: Any) -> Request:
    names = tuple(str(number) for number in range(len(images)))
    prompt = Prompt(
        system="Rules.", shared=text, segments=(Segment(text="\nYou are ada."),), images=names, pictures_last=last
    )
    options = Sampling(**{"temperature": 0.0, "max_tokens": 10, **sampling})
    return Request(prompt=prompt, sampling=options, seed=0, images=images)


def together(checkpoint: Path, requests: tuple[Request, ...], **options: Any) -> list[Reply]:
    model = LocalModel(path=str(checkpoint), **options)

    async def scene() -> list[Reply]:
        try:
            return list(await asyncio.gather(*map(model.generate, requests)))
        finally:
            await model.close()

    return asyncio.run(scene())
