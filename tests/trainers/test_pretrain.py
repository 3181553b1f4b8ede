"""A checkpoint from nothing: sizes, seeds, and a tokenizer that reads what a policy reads."""

import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from collab.config import override
from collab.errors import ConfigError, StoreFailure, UsageError
from collab.library import find_builtin_root
from collab.models.tokenizer import ChatTokenizer
from collab.trainers.pretrain import RESPONSE_TEMPLATE, create_checkpoint
from collab.trainers.recipe import Architecture, load_preset
from collab.types import Prompt, Segment

SMALL = [
    "layers=2",
    "hidden=32",
    "heads=2",
    "key_value_heads=1",
    "intermediate=64",
    "vocabulary=400",
    "whole_numbers=50",
]
SCREEN = 'Task: tap Save.\nbutton "Save" [42]\nclock 10:31, 1234 and [7]\n{"action_type": "click", "index": 42}'


def small(*more: str) -> Architecture:
    architecture = load_preset("pocket").architecture
    assert architecture is not None
    return override(architecture, [*SMALL, *more])


@pytest.fixture(scope="module")
def made(samples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    prompt = Prompt(system="Rules.", shared=SCREEN, segments=(Segment(text="You are ada."),))
    rows = [*samples.rows(5), replace(samples.row(99), prompt=prompt)]
    return create_checkpoint(tmp_path_factory.mktemp("scratch") / "new", small(), rows, seed=1)


@pytest.fixture(scope="module")
def chat(made: Path) -> ChatTokenizer:
    return ChatTokenizer(str(made))


def pieces(chat: ChatTokenizer, text: str) -> list[str]:
    return [chat.decode([token]) for token in chat.encode(text)]


def test_text_comes_back_unchanged(chat: ChatTokenizer) -> None:
    for text in (SCREEN, "Zürich 🙂 \t\n  x", "<|user|> is no control here", ""):
        assert chat.decode(chat.encode(text)) == text


def test_small_numbers_that_stand_alone_are_one_token(chat: ChatTokenizer) -> None:
    assert pieces(chat, "[42]").count("42") == 1
    assert pieces(chat, '"index": 42}').count("42") == 1
    assert [piece for piece in pieces(chat, "142 1234") if piece.strip()] == [*"142", *"1234"]
    assert [piece for piece in pieces(chat, "[88]") if piece.isdigit()] == ["8", "8"]  # from 50 on, digits


def test_turns_are_two_tokens_and_one_ends_a_reply(chat: ChatTokenizer) -> None:
    ids = chat.prompt_ids(Prompt(system="", shared="x", segments=(Segment(text="y"),))).ids
    assert chat.decode(ids) == "<|user|>xy<|end|><|assistant|>"
    assert len(ids) == 5
    assert chat.decode([chat.turn_end]) == "<|end|>"
    assert len(chat.control) == 5


def test_checkpoints_mark_where_a_reply_begins(made: Path) -> None:
    shipped = sorted((find_builtin_root() / "agents").glob("*/tokenizer_config.json"))
    assert len(shipped) == 4
    for config in (made / "tokenizer_config.json", *shipped):
        assert json.loads(config.read_text())["response_template"] == RESPONSE_TEMPLATE, config


def test_the_model_has_the_sizes_asked_for(made: Path, chat: ChatTokenizer) -> None:
    model = AutoModelForCausalLM.from_pretrained(made)
    config = model.config
    assert (config.num_hidden_layers, config.hidden_size, config.num_key_value_heads) == (2, 32, 1)
    assert config.vocab_size == chat.size <= 400
    assert config.eos_token_id == chat.turn_end


def test_the_seed_decides_the_weights(samples, made: Path, tmp_path: Path) -> None:
    def weights(folder: Path) -> torch.Tensor:
        return load_file(folder / "model.safetensors")["model.layers.0.mlp.up_proj.weight"]

    rows = samples.rows(5)
    one, same, other = (
        create_checkpoint(tmp_path / name, small(), rows, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    for name in ("model.safetensors", "tokenizer.json"):
        assert (one / name).read_bytes() == (same / name).read_bytes()
    assert not torch.equal(weights(one), weights(other))


def test_what_cannot_be_made_is_one_line(samples, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="do not fit; raise vocabulary or lower whole_numbers"):
        create_checkpoint(tmp_path / "a", small("vocabulary=300"), samples.rows(1))
    with pytest.raises(ConfigError, match="the rows have no text"):
        create_checkpoint(tmp_path / "b", small(), [])
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine").touch()
    with pytest.raises(UsageError, match="something is there already"):
        create_checkpoint(tmp_path / "c", small(), samples.rows(1))


def test_a_disk_that_is_full_leaves_nothing_behind(samples, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(StoreFailure, match="cannot write"):
            create_checkpoint(tmp_path / "new", small(), samples.rows(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    assert create_checkpoint(tmp_path / "new", small(), samples.rows(2)) == tmp_path / "new"
