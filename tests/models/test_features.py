"""Frozen features: the numbers of the checkpoint's own forward pass, whatever else is computed beside them."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

from collab.envs.simphone.suite import SimPhoneSuite
from collab.errors import ConfigError, ModelFailure
from collab.library import resolve_checkpoint
from collab.models.features import (
    FeatureInput,
    HiddenEncoder,
    TransformersEncoder,
)
from collab.models.tokenizer import open_chat, silence_transformers
from collab.models.vision import open_image_processor
from collab.prompts.render import rebuild
from collab.store.run import RunStore
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Prompt, Trajectory

VISION = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
PICTURES = {**VISION, "image_size": 28, "patch_size": 14}
SQUARE = {"height": 28, "width": 28}
WORDS = "tap the Save button scroll down type hello in field 7 then go back".split()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), hidden=32, context=200)


def prompts(many: int) -> list[FeatureInput]:
    rng = random.Random(0)
    return [FeatureInput(ids=tuple(rng.choices(range(3, 250), k=rng.randint(1, 60)))) for _ in range(many)]


def own_states(folder: Path, ids: tuple[int, ...]) -> torch.Tensor:
    """What transformers itself gives, (tokens, hidden)."""
    with silence_transformers(), torch.inference_mode():
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0]


# --------------------------------------------------------------------------------------------------- hidden states


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_a_row_is_the_checkpoints_own_hidden_state(tiny: Path, pool: Any) -> None:
    encoder = HiddenEncoder(path=str(tiny), pool=pool, batch=3)
    states = prompts(7)
    found = encoder.encode(states)
    assert found.shape == (7, encoder.size) == (7, 32)
    assert found.dtype == np.float32
    for state, row in zip(states, found, strict=True):
        hidden = own_states(tiny, state.ids)
        expected = hidden[-1] if pool == "last" else hidden.mean(0)
        np.testing.assert_allclose(row, expected.numpy(), atol=1e-5)
    assert encoder.encode([]).shape == (0, 32)


def test_a_row_depends_on_its_own_state_alone(tiny: Path) -> None:
    states = prompts(9)
    encoder = HiddenEncoder(path=str(tiny), device="cpu")
    together = encoder.encode(states)
    assert together.tobytes() == encoder.encode(states[::-1])[::-1].tobytes()
    assert together.tobytes() == b"".join(encoder.encode([state]).tobytes() for state in states)
    # In batches the same to rounding, and the order decides nothing there either.
    batched = HiddenEncoder(path=str(tiny), device="cpu", batch=4)
    np.testing.assert_allclose(batched.encode(states), together, atol=1e-6 * float(np.abs(together).max()), rtol=0)
    assert batched.encode(states).tobytes() == batched.encode(states[::-1])[::-1].tobytes()
    assert batched.digest == encoder.digest


def test_an_instruction_is_read_as_a_prompt_with_the_task_alone(tiny: Path) -> None:
    encoder = HiddenEncoder(path=str(tiny), device="cpu")  # on a GPU, rows of a batch are rounded by its size
    ids = open_chat(str(tiny)).prompt_ids(Prompt(system="", shared="Task: Save it.\n", segments=())).ids
    one, other = encoder.encode([FeatureInput(text="Save it."), FeatureInput(text="Go back.")])
    assert one.tobytes() == encoder.encode([FeatureInput(ids=ids)])[0].tobytes()
    assert not np.allclose(one, other)
    with pytest.raises(ConfigError, match="without a prompt and without a text"):
        encoder.encode([FeatureInput(pictures=(b"",))])


def test_the_digest_names_all_that_decides_a_row(tiny: Path, tmp_path: Path) -> None:
    digest = HiddenEncoder(path=str(tiny)).digest
    moved = shutil.copytree(tiny, tmp_path / "moved")
    assert HiddenEncoder(path=str(moved)).digest == digest
    others = [
        HiddenEncoder(path=str(tiny), pool="mean").digest,
        HiddenEncoder(path=str(tiny), dtype="bfloat16").digest,
        HiddenEncoder(path=str(make_tiny_checkpoint(tmp_path / "other", seed=1, hidden=32, context=200))).digest,
    ]
    assert len({digest, *others}) == 4


def test_an_adapter_is_a_part_of_the_policy(tiny: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    with silence_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
        trained = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
        trained.save_pretrained(tmp_path / "adapter")
    plain, adapted = HiddenEncoder(path=str(tiny)), HiddenEncoder(path=str(tiny), adapter=str(tmp_path / "adapter"))
    (state,) = prompts(1)
    with torch.inference_mode():
        own = trained(input_ids=torch.tensor([state.ids]), output_hidden_states=True).hidden_states[-1][0, -1]
    np.testing.assert_allclose(adapted.encode([state])[0], own.numpy(), atol=1e-5)
    assert not np.allclose(adapted.encode([state]), plain.encode([state]), atol=1e-3)
    assert adapted.digest != plain.digest


def test_a_batch_that_does_not_fit_is_halved(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, states, widths = HiddenEncoder(path=str(tiny), batch=8), prompts(8), []
    expected = HiddenEncoder(path=str(tiny), batch=2).encode(states)
    forward = encoder._checkpoint.model.base_model.forward

    def cramped(input_ids: torch.Tensor, attention_mask: torch.Tensor, **options: Any) -> Any:
        widths.append(len(input_ids))
        if len(input_ids) > room:
            raise torch.OutOfMemoryError("out of memory")
        return forward(input_ids=input_ids, attention_mask=attention_mask, **options)

    monkeypatch.setattr(encoder._checkpoint.model.base_model, "forward", cramped)
    room = 2
    assert encoder.encode(states).tobytes() == expected.tobytes()
    assert widths == [8, 4, 2, 2, 2, 2]
    room = 0
    with pytest.raises(ModelFailure, match="do not fit into memory"):
        encoder.encode(states)


def test_what_gives_no_features_is_told_in_one_line(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^nowhere: no such model directory"):
        HiddenEncoder(path="nowhere")
    with pytest.raises(ConfigError, match="batch 0; allowed: from 1"):
        HiddenEncoder(path=str(tiny), batch=0)
    with pytest.raises(ConfigError, match=r"a prompt has 201 tokens, and features are read of 200 at most; shorten"):
        HiddenEncoder(path=str(tiny)).encode([FeatureInput(ids=(5,) * 201)])
    broken = shutil.copytree(tiny, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][0] = torch.nan
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFailure, match="NaN or infinite"):
        HiddenEncoder(path=str(broken))


@pytest.mark.medium
def test_the_pocket_tells_the_screens_of_a_phone_apart(phone: tuple[SimPhoneSuite, Path, list[Trajectory]]) -> None:
    _, directory, episodes = phone
    chat = open_chat(resolve_checkpoint("built-in:pocket"))
    with RunStore.open(directory).open_reader() as reader:
        asked = [next(iter(step.matrix)).prompt for episode in episodes for step in episode.steps][:8]
        states = [FeatureInput(ids=chat.prompt_ids(rebuild(reader.read_prefix(one.prefix), one)).ids) for one in asked]
    encoder = HiddenEncoder(path="built-in:pocket", device="cpu")
    found = encoder.encode(states)
    assert found.shape == (len(states), 256)
    assert len(np.unique(found, axis=0)) == len(set(states)) > 4
    assert found.tobytes() == encoder.encode(states[::-1])[::-1].tobytes()
    goals = [FeatureInput(text=episode.task.goal) for episode in episodes]
    assert len(np.unique(encoder.encode(goals), axis=0)) == 2


# -------------------------------------------------------------------------------------------- encoders of other kinds


def save_text(folder: Path, build: Callable[[int], Any]) -> Path:
    """A random text encoder with the tokenizer of a tiny checkpoint; `build` gets the number of tokens."""
    make_tiny_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    with silence_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        build(len(transformers.AutoTokenizer.from_pretrained(folder))).save_pretrained(folder)
    return folder


def make_bert(tokens: int) -> Any:
    return transformers.BertModel(
        transformers.BertConfig(**VISION, vocab_size=tokens, max_position_embeddings=32, pad_token_id=0)
    )


def make_roberta(tokens: int) -> Any:
    options = {**VISION, "vocab_size": tokens, "max_position_embeddings": 34, "pad_token_id": 1}
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(**options))


def make_t5(tokens: int) -> Any:
    sizes = {"d_model": 16, "d_ff": 32, "d_kv": 8, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
    return transformers.T5Model(transformers.T5Config(vocab_size=tokens, **sizes))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_text(tmp_path_factory.mktemp("bert"), make_bert)


def save_image(folder: Path, name: str) -> Path:
    """A random image encoder, or a model that has one, with its processor."""
    text = {**VISION, "vocab_size": 300, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2}
    kinds: dict[str, tuple[Callable[[], Any], str]] = {
        "dinov2": (lambda: transformers.Dinov2Model(transformers.Dinov2Config(**PICTURES)), "Bit"),
        "siglip": (
            lambda: transformers.SiglipModel(transformers.SiglipConfig(vision_config=PICTURES, text_config=text)),
            "Siglip",
        ),
        "siglip vision": (
            lambda: transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**PICTURES)),
            "Siglip",
        ),
        "clip": (
            lambda: transformers.CLIPModel(transformers.CLIPConfig(vision_config=PICTURES, text_config=text)),
            "CLIP",
        ),
        "blip-2": (make_blip, "Blip"),
        "vit": (lambda: transformers.ViTModel(transformers.ViTConfig(**PICTURES)), "ViT"),
        "convnext": (
            lambda: transformers.ConvNextModel(
                transformers.ConvNextConfig(num_stages=2, hidden_sizes=[8, 16], depths=[1, 1])
            ),
            "ConvNext",
        ),
    }
    make, processor = kinds[name]
    with silence_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        make().save_pretrained(folder)
    size = {"shortest_edge": 28} if processor in ("Bit", "CLIP", "ConvNext") else SQUARE
    settings = {"image_processor_type": f"{processor}ImageProcessor", "size": size, "crop_size": SQUARE}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def make_blip() -> Any:
    text = {"model_type": "opt", "hidden_size": 16, "ffn_dim": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.Blip2Model(
        transformers.Blip2Config(
            vision_config=PICTURES,
            qformer_config={**VISION, "vocab_size": 300},
            text_config={**text, "vocab_size": 300, "word_embed_proj_dim": 16},
        )
    )


def draw(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (60, 40), (shade, 255 - shade, 40)).save(file, "PNG")
    return file.getvalue()


def own_pooled(folder: Path, picture: bytes) -> np.ndarray[Any, Any]:
    """What transformers itself gives for one picture."""
    with silence_transformers(), torch.inference_mode():
        model = transformers.AutoModel.from_pretrained(folder)
        inputs = open_image_processor(str(folder))(images=[Image.open(io.BytesIO(picture))], return_tensors="pt")
        output = getattr(model, "vision_model", model)(**inputs)
        pooled = output.last_hidden_state.mean(1) if model.config.model_type == "vit" else output.pooler_output
        return np.asarray(pooled[0].flatten())


@pytest.mark.parametrize("make", [make_bert, make_roberta, make_t5])
def test_a_text_is_the_mean_over_its_tokens(tmp_path: Path, make: Callable[[int], Any]) -> None:
    folder = save_text(tmp_path / "text", make)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoder = TransformersEncoder(text=str(folder), device="cpu", batch=3)
    texts = [" ".join(random.Random(seed).choices(WORDS, k=1 + seed)) for seed in range(4)]
    found = encoder.encode([FeatureInput(text=text) for text in texts])
    with silence_transformers(), torch.inference_mode():
        model = transformers.AutoModel.from_pretrained(folder)
        model = model.get_encoder() if model.config.is_encoder_decoder else model
        for text, row in zip(texts, found, strict=True):
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            own = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].mean(0)
            np.testing.assert_allclose(row, own.numpy(), atol=1e-5)


@pytest.mark.parametrize("make", [make_bert, make_roberta])
def test_a_long_text_loses_its_beginning(tmp_path: Path, make: Callable[[int], Any]) -> None:
    encoder = TransformersEncoder(text=str(save_text(tmp_path / "text", make)))
    end = " then go back" * 40
    one, other, unlike = encoder.encode([FeatureInput(text=text) for text in (f"A{end}", f"Other{end}", f"{end} A")])
    assert one.tobytes() == other.tobytes()
    assert not np.allclose(one, unlike)


@pytest.mark.variations
@pytest.mark.parametrize("name", ["siglip", "siglip vision", "dinov2", "clip", "blip-2", "vit", "convnext"])
def test_the_picture_before_stands_beside_the_present_one(tmp_path: Path, name: str) -> None:
    folder = save_image(tmp_path / "image", name)
    encoder = TransformersEncoder(image=str(folder), device="cpu")
    first, second, third = draw(0), draw(120), draw(250)
    states = [FeatureInput(pictures=seen) for seen in ((first,), (first, second), (first, second, third))]
    found = encoder.encode(states)
    assert found.shape == (3, encoder.size) == (3, 32)
    own = {picture: own_pooled(folder, picture) for picture in (first, second, third)}
    pairs = ((first, first), (first, second), (second, third))
    for row, (before, now) in zip(found, pairs, strict=True):
        np.testing.assert_allclose(row, np.concatenate([own[before], own[now]]), atol=1e-5)
    assert found.tobytes() == encoder.encode(states[::-1])[::-1].tobytes()
    assert type(open_image_processor(str(folder))).__name__.endswith("Pil")


def test_text_and_pictures_stand_side_by_side(bert: Path, tmp_path: Path) -> None:
    image = save_image(tmp_path / "image", "dinov2")
    both, text, sight = (
        TransformersEncoder(text=str(bert), image=str(image)),
        TransformersEncoder(text=str(bert)),
        TransformersEncoder(image=str(image)),
    )
    assert both.size == text.size + sight.size == 16 + 32
    assert len({both.digest, text.digest, sight.digest}) == 3
    state, task = FeatureInput(text="Settings", pictures=(draw(9),)), FeatureInput(text="Save it.")
    found = both.encode([state, task])
    assert found[0].tobytes() == text.encode([state]).tobytes() + sight.encode([state]).tobytes()
    assert found[1].tobytes() == text.encode([task]).tobytes() + bytes(4 * 32)


def test_what_is_no_encoder_is_told_in_one_line(bert: Path, tiny: Path, tmp_path: Path) -> None:
    image = save_image(tmp_path / "image", "dinov2")
    with pytest.raises(ConfigError, match="name a directory in text, in image, or in both"):
        TransformersEncoder()
    with pytest.raises(ConfigError, match=r"models of type bert are no encoders of pictures \(SigLIP"):
        TransformersEncoder(image=str(bert))
    with pytest.raises(ConfigError, match=r"models of type dinov2 are no encoders of texts \(BERT"):
        TransformersEncoder(text=str(image))
    for encoder, state, what in (
        (TransformersEncoder(image=str(image)), FeatureInput(text="Save it."), "a picture has .*; name a text encoder"),
        (TransformersEncoder(text=str(bert)), FeatureInput(ids=(5, 6), pictures=(draw(1),)), "a text has no features$"),
    ):
        with pytest.raises(ConfigError, match=f"a state without {what}"):
            encoder.encode([state])
    with pytest.raises(ModelFailure, match="a picture of 3 bytes cannot be read"):
        TransformersEncoder(image=str(image)).encode([FeatureInput(pictures=(b"abc",))])
    (image / "preprocessor_config.json").unlink()
    with pytest.raises(ConfigError, match="the image processor cannot be loaded"):
        TransformersEncoder(image=str(image))
    (tmp_path / "pickled").mkdir()
    shutil.copy(bert / "config.json", tmp_path / "pickled")
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(ConfigError, match="pickled"):
        TransformersEncoder(text=str(tmp_path / "pickled"))
