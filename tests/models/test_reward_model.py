"""A reward model in this process: the numbers of the checkpoint's own forward pass, and what is no reward model."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from collab.errors import ConfigError, ModelFailure
from collab.models.base import RewardScore
from collab.models.checkpoint import choose_device
from collab.models.reward_model import RewardHead, RewardModel
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Prompt, Segment

PROMPT = Prompt(system="Rules.", shared="Task: Save it.\n", segments=(Segment(text='Screen: button "Save" [7]'),))
ENDINGS = ["tap Save", "press <|im_end|> and go a very long way back", "wait"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("reward"), labels=2, hidden=32, context=400)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / "critic")
    return tmp_path / "critic"


def scored(folder: Path, endings: Sequence[str], **options: Any) -> list[RewardScore]:
    async def whole() -> list[RewardScore]:
        model = RewardModel(path=str(folder), **options)
        try:
            return await model.score(PROMPT, endings)
        finally:
            await model.close()

    return asyncio.run(whole())


def test_endings_are_scored_as_the_checkpoint_scores_the_whole_text(folder: Path) -> None:
    model = RewardModel(path=str(folder))
    own = AutoModelForSequenceClassification.from_pretrained(folder)
    found = scored(folder, ENDINGS)
    for ending, one in zip(ENDINGS, found, strict=True):
        ids = [*model.chat.prompt_ids(PROMPT).ids, *model.chat.encode(ending), model.chat.turn_end]
        assert one.tokens == len(ids) == model.length(PROMPT, [ending])
        with torch.inference_mode():
            expected = own(input_ids=torch.tensor([ids])).logits[0].tolist()
        assert one.logits == pytest.approx(expected, abs=1e-5)
    assert model.length(PROMPT, ENDINGS) == max(one.tokens for one in found)
    text = model.chat.decode(model.chat.prompt_ids(PROMPT).ids)
    assert text.startswith("<|im_start|>system\nRules.<|im_end|>\n<|im_start|>user\nTask: Save it.")
    assert text.endswith('button "Save" [7]<|im_end|>\n<|im_start|>assistant\n')


@pytest.mark.parametrize("width", [1, 2, 16])
def test_how_many_are_computed_together_changes_nothing_but_the_last_bits(folder: Path, width: int) -> None:
    for one, other in zip(scored(folder, ENDINGS, max_batch=width), scored(folder, ENDINGS), strict=True):
        assert one.logits == pytest.approx(other.logits, abs=1e-5)


def test_too_little_memory_makes_smaller_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, rows = RewardHead._select_endings, list[int]()

    def behind(head: RewardHead, keys: Any, first: int, endings: Sequence[Sequence[int]]) -> Any:
        rows.append(len(endings))
        if len(endings) > 1:
            raise torch.OutOfMemoryError("not enough memory")
        return whole(head, keys, first, endings)

    monkeypatch.setattr(RewardHead, "_select_endings", behind)
    assert len(scored(folder, ENDINGS, max_batch=3)) == 3
    assert rows == [3, 2, 1, 1, 1]


def test_it_counts_tells_its_weights_and_can_be_closed(folder: Path, copied: Path) -> None:
    async def scene() -> None:
        model = RewardModel(path=str(folder))
        able = await model.probe()
        assert able.counts_tokens
        assert able.knows_price
        assert able.weights == model.weights == RewardModel(path=str(copied)).weights
        assert able.notes == (f"device {choose_device('auto')}, float32, 2 labels",)
        assert await model.score(PROMPT, []) == []
        await model.close()
        await model.close()
        with pytest.raises(ModelFailure, match="was closed"):
            await model.score(PROMPT, ENDINGS)

    asyncio.run(scene())


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such model directory"):
        RewardModel(path=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="no such model directory"):
        RewardModel(path="Qwen/Qwen2-7B-Instruct")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        RewardModel(path=str(tmp_path))
    with pytest.raises(ConfigError, match="max_batch 0"):
        RewardModel(path=str(tmp_path), max_batch=0)


def test_a_language_model_and_a_head_of_three_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds Qwen2ForCausalLM, which has no score"):
        RewardModel(path=str(make_tiny_checkpoint(tmp_path / "speaker", hidden=16, layers=1)))
    with pytest.raises(ConfigError, match="its head has 3 labels"):
        RewardModel(path=str(make_tiny_checkpoint(tmp_path / "three", hidden=16, layers=1, labels=3)))


def test_a_tokenizer_without_a_template_is_refused(copied: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match="no chat template"):
        RewardModel(path=str(copied))


def test_weights_without_the_head_are_refused_and_never_made_up(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    del weights["score.weight"]
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"would be random: 1 of \d+ are missing, for example score\.weight"):
        scored(copied, ENDINGS)


def test_a_name_that_promises_a_head_over_something_else_is_refused(copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
    with pytest.raises(ConfigError, match=str(copied)):
        scored(copied, ENDINGS)
