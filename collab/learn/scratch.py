"""A checkpoint from nothing: a tokenizer learned from rows, a chat template, random Qwen2 weights.

    new_checkpoint(Path("base"), preset.architecture, rows, seed=0)

The tokenizer is a byte-level BPE, so every text has tokens. Digits stand alone, so that numbers are read and copied
digit by digit; small numbers that stand alone may be one token (`whole_numbers`): an element's index is then the same
token in square brackets and in an action, and pointing is copying one token.

transformers loads whatever stands beside a Qwen2 with Qwen2's own rules of where words begin, so merges are learned
under these very rules, and one more: a word never merges with the space or the quote before it. "Save" is then the same
token in a task, on a button and in an action, and naming what a task names is copying tokens.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from collab.errors import ConfigError, MissingExtra, UsageError
from collab.learn.examples import rows_digest
from collab.learn.folder import saving, sync_files, write_json
from collab.learn.preset import Architecture
from collab.models.chat import quiet_transformers
from collab.models.layout import CARD, write_layout
from collab.seeds import derive
from collab.synth.rows import Row

PADDING, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
CONTROLS = (PADDING, SYSTEM, USER, ASSISTANT, END)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Two tokens per turn, nothing else."""


def new_checkpoint(directory: Path, architecture: Architecture, rows: Iterable[Row], *, seed: int = 0) -> Path:
    """Write an untrained checkpoint (safetensors) with tokenizer and chat template.

    Args:
        directory: new or empty.
        rows: whose texts the tokenizer's merges are learned from.
        seed: of the weights; the same rows, architecture and seed give the same files.

    Returns:
        The directory.

    Raises:
        UsageError: something is there already.
        ConfigError: the rows have no text.
        StoreFailure: it cannot be written; nothing is left behind.
        MissingExtra: torch, transformers or tokenizers is not installed.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory}: something is there already; name a new directory")
    MissingExtra.unless("torch", "transformers", "tokenizers", extra="train", purpose="a new checkpoint")
    import torch
    from transformers import GenerationConfig, Qwen2ForCausalLM

    rows = list(rows)
    tokenizer = train_tokenizer(_texts(rows), architecture)
    config = _config(architecture, tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "weights"))
        model = Qwen2ForCausalLM(config).to(getattr(torch, architecture.dtype))
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model.generation_config = GenerationConfig(do_sample=True, **ends)
    card = {
        "stage": "new",
        "architecture": architecture.model_dump(mode="json"),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "tokens": len(tokenizer),
        "data": {"digest": rows_digest(rows)},
        "seed": seed,
    }
    partial = directory.with_name(f".{directory.name}.partial")
    try:
        with saving(directory, "try again"), quiet_transformers():
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            write_layout(partial)
            write_json(partial / CARD, card)
            sync_files(partial)
            partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


def train_tokenizer(texts: Iterable[str], architecture: Architecture) -> Any:
    """Learn a transformers `Qwen2Tokenizer` of at most `architecture.vocabulary` tokens.

    Raises:
        ConfigError: the vocabulary has no room for bytes, control tokens and numbers.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    from transformers import AddedToken, Qwen2Tokenizer

    numbers = [str(number) for number in range(10, architecture.whole_numbers)]
    size = architecture.vocabulary - len(numbers)
    if size < 256 + len(CONTROLS):
        raise ConfigError(
            f"vocabulary {architecture.vocabulary}: 256 bytes, {len(CONTROLS)} control tokens and {len(numbers)} "
            "numbers do not fit; raise vocabulary or lower whole_numbers"
        )
    rules = Qwen2Tokenizer().backend_tokenizer
    learned = Tokenizer(models.BPE())
    learned.normalizer = rules.normalizer
    words = pre_tokenizers.Split(Regex(r"\p{L}+"), behavior="isolated")
    learned.pre_tokenizer = pre_tokenizers.Sequence([rules.pre_tokenizer[0], words, rules.pre_tokenizer[1]])
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(CONTROLS),
        show_progress=False,
    )
    learned.train_from_iterator(texts, trainer)
    model = json.loads(learned.to_str())["model"]
    made = Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],
        unk_token=PADDING,
        pad_token=PADDING,
        eos_token=END,
        additional_special_tokens=list(CONTROLS),
        model_max_length=architecture.context,
        clean_up_tokenization_spaces=False,
    )
    made.add_tokens([AddedToken(number, single_word=True, normalized=False) for number in numbers])
    made.chat_template = CHAT_TEMPLATE
    return made


def _texts(rows: Iterable[Row]) -> Iterator[str]:
    """Every text of rows; what many rows share is told once, or it would decide all merges."""
    seen: set[str] = set()
    for row in rows:
        prompt = row.prompt
        pieces = (prompt.system, prompt.shared, *(part.text for part in prompt.segments), row.reply, row.rejected or "")
        for text in pieces:
            if text and text not in seen:
                seen.add(text)
                yield text
    if not seen:
        raise ConfigError("the rows have no text; a tokenizer is learned from text")


def _config(architecture: Architecture, tokenizer: Any) -> Any:
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=architecture.hidden,
        intermediate_size=architecture.intermediate,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.key_value_heads,
        max_position_embeddings=architecture.context,
        rope_theta=architecture.rope_theta,
        tie_word_embeddings=architecture.tied,
        initializer_range=architecture.deviation,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
