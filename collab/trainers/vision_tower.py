"""Make a checkpoint that sees out of one that reads: a Qwen2-VL with the decoder of a Qwen2 and an untrained tower.

    add_vision_tower("built-in:pocket", Path("checkpoints/seeing"), VisionTower(), seed=0)

Decoder, tokenizer and turns are those of the base. New are the tower, which makes a token of each square of pixels, and
four control tokens, with which pictures stand in a prompt. A token of text has one place in all three directions of
Qwen2-VL's rotary positions, so a prompt without a picture is answered as the base answers it.

Nothing of a picture is understood before a training. Families differ in little but sizes: a published Qwen2-VL has a
tower of 32 blocks and 1,280 numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from collab.config import Definition
from collab.errors import ConfigError, MissingExtra
from collab.library import resolve_checkpoint
from collab.models.checkpoint_card import hash_weights
from collab.models.tokenizer import silence_transformers
from collab.seeds import derive
from collab.trainers.run_dir import check_new, write_new

START, END, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"

_JOINED = 2
"""Patches that become one token, in each direction; Qwen2-VL's."""

_SAME = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("max_position_embeddings", "rms_norm_eps", "bos_token_id", "eos_token_id", "pad_token_id"),
)
"""What the decoder's configuration keeps of the base's."""


class VisionTower(Definition):
    """Sizes of a vision tower that is made from nothing."""

    model_config = ConfigDict(allow_inf_nan=False)

    layers: int = Field(default=3, ge=1)
    """Transformer blocks."""
    hidden: int = Field(default=128, ge=8)
    """Width; a multiple of four times the heads, because each head rotates pairs in two directions."""
    heads: int = Field(default=4, ge=1)
    """Attention heads."""
    patch: int = Field(default=14, ge=2)
    """Side of a patch in pixels. Two by two of them become one token of the decoder."""
    pixels: int = Field(default=70_000, ge=1)
    """Most pixels of a picture; a larger one is made smaller, in both directions to a multiple of two patches."""

    @model_validator(mode="after")
    def _divides(self) -> VisionTower:
        if self.hidden % (4 * self.heads):
            raise ValueError(f"hidden {self.hidden} must be a multiple of 4 x heads ({self.heads})")
        if self.pixels < (_JOINED * self.patch) ** 2:
            raise ValueError(
                f"pixels {self.pixels} must be at least those of one token, {(_JOINED * self.patch) ** 2} with patches "
                f"of {self.patch}"
            )
        return self


def add_vision_tower(base: str, directory: Path, tower: VisionTower, *, seed: int = 0) -> Path:
    """Write a checkpoint with a base's decoder and an untrained vision tower, in float32.

    Args:
        base: directory of a Qwen2 with a chat template that Collab wrote (`collab checkpoint new`), or "built-in:NAME".
        directory: new or empty.
        seed: of the tower's weights; the same base, tower and seed give the same files.

    Returns:
        The directory.

    Raises:
        UsageError: something is there already.
        ConfigError: the base is no such checkpoint.
        StoreFailure: it cannot be written; nothing is left behind.
        MissingExtra: torch or transformers is not installed.
    """
    check_new(directory)
    MissingExtra.unless("torch", "transformers", extra="train", purpose="a new checkpoint")
    import torch
    from transformers import AutoConfig, AutoTokenizer, Qwen2ForCausalLM, Qwen2VLForConditionalGeneration

    from collab.trainers.pretrain import CHAT_TEMPLATE

    folder = Path(resolve_checkpoint(base))
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"--base {base}: no checkpoint is there (no config.json); name a directory, or built-in:pocket"
        )
    with silence_transformers():
        kind = AutoConfig.from_pretrained(folder).model_type
        tokenizer = AutoTokenizer.from_pretrained(folder)
    # The turns below are these with pictures in them; others would be read as the base never learned to.
    foreign = tokenizer.chat_template != CHAT_TEMPLATE
    if foreign or kind != "qwen2":
        problem = f"a model of type {kind}" if kind != "qwen2" else "its chat template is none of Collab's"
        raise ConfigError(
            f"--base {base}: {problem}; allowed: a Qwen2 that collab checkpoint new made, or that was trained from it, "
            "e.g. built-in:pocket"
        )
    tokenizer.add_tokens([START, END, IMAGE, VIDEO], special_tokens=True)
    tokenizer.chat_template = _write_turns()
    with silence_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "weights"))
        reads = Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)
        sees = Qwen2VLForConditionalGeneration(_build_config(reads.config, tower, tokenizer))
    _copy_decoder(reads, sees)
    card = {
        "stage": "new",
        "base": {"path": base, "digest": hash_weights(folder)},
        "vision": tower.model_dump(mode="json"),
        "parameters": sum(weight.numel() for weight in sees.parameters()),
        "tokens": len(tokenizer),
        "seed": seed,
    }
    write_new(directory, sees, tokenizer, card, {"preprocessor_config.json": _describe_pictures(tower)})
    return directory


def _write_turns() -> str:
    """Return the template of turns whose contents are a text, or parts that are texts and pictures."""
    picture = f"{START}{IMAGE}{END}"
    return (
        "{% for message in messages %}{{ '<|' + message['role'] + '|>' }}"
        "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
        "{% for part in message['content'] %}"
        f"{{% if part['type'] == 'image' %}}{{{{ '{picture}' }}}}{{% else %}}{{{{ part['text'] }}}}{{% endif %}}"
        "{% endfor %}{% endif %}{{ '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )


def _build_config(reads: Any, tower: VisionTower, tokenizer: Any) -> Any:
    from transformers import Qwen2VLConfig

    pairs = reads.hidden_size // reads.num_attention_heads // 2
    aside = 3 * pairs // 8  # as in the published sizes: a quarter for time, three eighths for each direction
    rotary = {**reads.rope_parameters, "mrope_section": [pairs - 2 * aside, aside, aside]}
    start, end, image, video = tokenizer.convert_tokens_to_ids([START, END, IMAGE, VIDEO])
    return Qwen2VLConfig(
        text_config={
            **{name: getattr(reads, name) for name in _SAME},
            "vocab_size": len(tokenizer),
            "tie_word_embeddings": reads.tie_word_embeddings,
            "rope_parameters": rotary,
        },
        vision_config={
            "depth": tower.layers,
            "embed_dim": tower.hidden,
            "hidden_size": reads.hidden_size,
            "num_heads": tower.heads,
            "mlp_ratio": 2,
            "patch_size": tower.patch,
            "spatial_merge_size": _JOINED,
        },
        tie_word_embeddings=reads.tie_word_embeddings,
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
    )


def _copy_decoder(reads: Any, sees: Any) -> None:
    """Copy all weights of a text model; rows of tokens that it lacks keep their random numbers."""
    there = sees.state_dict()
    for name, weight in reads.state_dict().items():
        own = there[name.replace("model.", "model.language_model.", 1)]
        own[: len(weight)].copy_(weight)


def _describe_pictures(tower: VisionTower) -> dict[str, Any]:
    """Return settings of the picture processor, which needs no torchvision."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": tower.patch,
        "merge_size": _JOINED,
        "size": {"shortest_edge": (_JOINED * tower.patch) ** 2, "longest_edge": tower.pixels},
    }
