"""A tiny random Qwen2 checkpoint with its own tokenizer: a real model directory in a fraction of a second.

    directory = make_tiny_checkpoint(Path("tiny"))

It knows nothing; it serves tests of templates, batches, seeds, log-probabilities and servers. All readers of Hugging
Face directories can read it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collab.errors import ConfigError, MissingExtra
from collab.models.tokenizer import silence_transformers

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Turns as Qwen2 writes them."""

_TEXT = (
    "You operate a phone together with other agents. Everyone sees the same screen.",
    "Actions: click, long_press, scroll, swipe, input_text, navigate_home, navigate_back, open_app, status, wait",
    '{"action_type": "click", "index": 7} - tap an element',
    '{"action_type": "input_text", "text": "hello", "index": 3} - tap a field, type the text and press Enter',
    '{"action_type": "scroll", "direction": "down"} {"action_type": "status", "goal_status": "complete"}',
    "click(id=7) type_string(id=3, content='milk', press_enter=True) scroll_page(direction='down') finish()",
    'Screen: Settings\nbutton "Save" [7]\nswitch "Wi-Fi" [8] (checked)\ninput "Name": "Ada" [9] (focused)',
    "Task: Turn bluetooth on.\nReason: The switch is off, so it should be tapped.\nAction: ",
    "You are ada. Round 1 of 3. What should be done next?\n[ben, round 2]\n",
)
"""Text from which the tokenizer learns its merges."""

_BYTES_AND_CONTROLS = 256 + 3


def make_tiny_checkpoint(
    directory: Path | str,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    vocabulary: int = 512,
    context: int = 4096,
    labels: int | None = None,
) -> Path:
    """Write a random Qwen2 checkpoint (safetensors) with tokenizer and chat template; return its directory.

    Args:
        directory: created if missing; files in it are overwritten.
        seed: of the weights; the same seed gives the same weights.
        hidden: width of the model, a multiple of 8 (four heads of an even size).
        vocabulary: upper bound of the number of tokens; the 256 bytes and three control tokens are always there.
        context: longest sequence in tokens.
        labels: outputs of a classification head, as reward models have; None makes a language model.

    Raises:
        ConfigError: a size is out of range.
        MissingExtra: torch or transformers is not installed.
    """
    # Checked first: transformers would fail later and less clearly.
    if hidden < 8 or hidden % 8 or vocabulary < _BYTES_AND_CONTROLS or layers < 1 or context < 1:
        raise ConfigError(
            f"tiny checkpoint: hidden {hidden} (a multiple of 8), layers {layers} (from 1), "
            f"vocabulary {vocabulary} (from {_BYTES_AND_CONTROLS}), context {context} (from 1)"
        )
    MissingExtra.unless("torch", "transformers", extra="train", purpose="a tiny checkpoint")
    import torch
    from transformers import (
        GenerationConfig,
        PreTrainedTokenizerFast,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen2ForSequenceClassification,
    )

    directory = Path(directory)
    # A tokenizer of bytes: every text can be expressed, and nothing is downloaded.
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_build_byte_tokenizer(vocabulary),
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    turn_end, padding = tokenizer.eos_token_id, tokenizer.pad_token_id
    # Grouped heads and tied embeddings, as in the models that are used: tests meet the same cases.
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=turn_end,
        pad_token_id=padding,
        **({} if labels is None else {"num_labels": labels}),
    )
    # A fork of the random state: tests that draw numbers must not notice.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = (Qwen2ForCausalLM if labels is None else Qwen2ForSequenceClassification)(config)
    # Ends as published checkpoints name them, in the generation's configuration.
    if labels is None:
        ends = [turn_end, padding]
        model.generation_config = GenerationConfig(do_sample=True, eos_token_id=ends, pad_token_id=padding)
    with silence_transformers():
        model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def _build_byte_tokenizer(vocabulary: int) -> Any:
    """Build a tokenizer over bytes, so that every text has tokens and is decoded unchanged."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # No space before a text: pieces of a prompt are tokenised apart.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    return tokenizer
