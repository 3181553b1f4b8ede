"""Checkpoints that see, against what transformers' own processors and `generate` make of the same pictures."""

import asyncio
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image

import collab
from collab.errors import ConfigError, ModelFailure
from collab.models.base import Reply, Request
from collab.models.checkpoint import Checkpoint
from collab.models.engine.padded import PaddedEngine
from collab.models.engine.sampling import DecodeRequest, SampledReply
from collab.models.local import LocalModel
from collab.models.tokenizer import ChatTokenizer, silence_transformers
from collab.models.vision import PictureReader
from collab.prompts.render import rebuild
from collab.store.run import RunStore
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.types import Prompt, Sampling, Segment

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of a processor that is compared with

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


def make_grid(folder: Path, family: str) -> Path:
    picture = "'<|vision_start|><|image_pad|><|vision_end|>'"
    tokenizer = tokenizer_with(folder, GRID_TOKENS, TURNS.replace("PICTURE", picture))
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(GRID_TOKENS))
    text = {
        **TEXT,
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
    }
    vision: dict[str, Any] = {"depth": 2, "num_heads": 2, "patch_size": 4, "in_channels": 3}
    if family == "qwen2_vl":
        vision |= {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 2}
        config: Any = transformers.Qwen2VLConfig
        kind: type[Any] = transformers.Qwen2VLForConditionalGeneration
    else:
        vision |= {"hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 32}
        vision |= {"window_size": 16, "fullatt_block_indexes": [1]}
        config, kind = transformers.Qwen2_5_VLConfig, transformers.Qwen2_5_VLForConditionalGeneration
    tokens = {"vision_start_token_id": start, "vision_end_token_id": end}
    tokens |= {"image_token_id": image, "video_token_id": video}
    made = config(text_config=text, vision_config=vision, tie_word_embeddings=False, **tokens)
    save(folder, kind, made, {"image_processor_type": "Qwen2VLImageProcessor", **GRID_PICTURES})
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
    "qwen2_vl": lambda folder: make_grid(folder, "qwen2_vl"),
    "qwen2_5_vl": lambda folder: make_grid(folder, "qwen2_5_vl"),
    "paligemma": make_paligemma,
}


@pytest.fixture(scope="module", params=MAKERS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield MAKERS[request.param](tmp_path_factory.mktemp(request.param))
    torch.set_num_threads(threads)


def picture(seed: int, width: int = 40, height: int = 24) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (height // 8, width // 8, 3), generator=generator, dtype=torch.uint8)
    image = Image.fromarray(pixels.numpy()).resize((width, height), Image.Resampling.NEAREST)
    held = io.BytesIO()
    image.save(held, "PNG")
    return held.getvalue()


def asked(text: str, *images: bytes, **sampling: Any) -> Request:
    names = tuple(str(number) for number in range(len(images)))
    prompt = Prompt(system="Rules.", shared=text, segments=(Segment(text="\nYou are ada."),), images=names)
    options = Sampling(**{"temperature": 0.0, "max_tokens": 10, **sampling})
    return Request(prompt=prompt, sampling=options, seed=0, images=images)


CROWD = (
    asked("Tap Save.", picture(1)),
    asked("Tap the other one, which is further down.", picture(2, 64, 48)),
    asked("Nothing to be seen here."),
    asked("Two.", picture(3), picture(4, 16, 56)),
    asked("Tap Save.", picture(5)),
)
"""Other lengths, other sizes, other numbers of pictures."""


def together(checkpoint: Path, requests: tuple[Request, ...], **options: Any) -> list[Reply]:
    model = LocalModel(path=str(checkpoint), **options)

    async def scene() -> list[Reply]:
        try:
            return list(await asyncio.gather(*map(model.generate, requests)))
        finally:
            await model.close()

    return asyncio.run(scene())


class GridProcessor(transformers.Qwen2VLProcessor):
    """The family's own, without the part for videos, which wants torchvision."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> type:
        return type(argument)


def official(checkpoint: Path, request: Request) -> dict[str, torch.Tensor]:
    """What the family's own processor gives the model for a request; by its tokenizer where there is no picture."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    parts = [*({"type": "image"} for _ in request.images), {"type": "text", "text": request.prompt.user}]
    turns = [{"role": "system", "content": "Rules."}, {"role": "user", "content": parts}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    if not request.images:
        return dict(tokenizer(text, return_tensors="pt", return_token_type_ids="paligemma" in str(checkpoint)))
    pixels = transformers.AutoImageProcessor.from_pretrained(checkpoint, backend="pil")
    images = [Image.open(io.BytesIO(image)).convert("RGB") for image in request.images]
    if "paligemma" in str(checkpoint):
        tokenizer.image_token = "<image>"
        tokenizer.image_token_id = tokenizer.convert_tokens_to_ids("<image>")
        processor = transformers.PaliGemmaProcessor(image_processor=pixels, tokenizer=tokenizer)
    else:
        processor = GridProcessor(image_processor=pixels, tokenizer=tokenizer)
    return dict(processor(images=images, text=[text], return_tensors="pt"))


# ------------------------------------------------------------------------------------------------------- equality


def test_prompts_equal_those_of_the_familys_own_processor(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    sight = PictureReader(model.chat)
    for request in CROWD:
        places = sight.places(sight.read(request.images))
        expected = official(checkpoint, request)["input_ids"][0].tolist()
        assert list(model.chat.prompt_ids(request.prompt, places).ids) == expected


def test_greedy_replies_equal_generate(checkpoint: Path) -> None:
    replies = together(checkpoint, CROWD)
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
    for request, reply in zip(CROWD, replies, strict=True):
        inputs = official(checkpoint, request)
        inputs.pop("labels", None)
        length = inputs["input_ids"].shape[1]
        output = model.generate(
            **inputs, do_sample=False, max_new_tokens=10, output_logits=True, return_dict_in_generate=True
        )
        generated, said = output.sequences[0, length:].tolist(), list(reply.tokens or ())
        assert said == generated[: len(said)]
        assert len(said) == 10 or generated[len(said)] == model.config.get_text_config().eos_token_id
        plain = [float(row[0].log_softmax(-1)[token]) for row, token in zip(output.logits, said, strict=False)]
        assert reply.logprobs == pytest.approx(plain, abs=1e-4)
        assert reply.prompt_tokens == reply.computed_tokens == length
    first, other = ((reply.logprobs or ())[0] for reply in (replies[0], replies[4]))
    assert abs(first - other) > 1e-3  # the same words under another picture


def test_exact_replies_depend_on_their_request_alone(checkpoint: Path) -> None:
    crowd = tuple(asked(one.prompt.shared, *one.images, temperature=1.0) for one in CROWD)
    all_at_once = together(checkpoint, crowd, determinism="exact")
    [alone] = together(checkpoint, crowd[3:4], determinism="exact")
    assert (alone.tokens, alone.logprobs) == (all_at_once[3].tokens, all_at_once[3].logprobs)


@pytest.mark.variations
@pytest.mark.parametrize("odd", [False, True])
def test_memory_that_runs_out_halves_the_batch_and_changes_nothing(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, odd: bool
) -> None:
    """Not even when all had just said the token that stands for a picture (odd)."""
    chat = ChatTokenizer(str(checkpoint))
    sight = PictureReader(chat)
    engine = PaddedEngine(Checkpoint(chat, device="cpu", dtype="auto"), width=8)
    forward = engine.checkpoint.model.forward
    widths: list[int] = []

    def scarce(*arguments: Any, **inputs: Any) -> Any:
        widths.append(len(inputs["input_ids"]))
        if len(widths) == 4:
            raise torch.OutOfMemoryError
        output = forward(*arguments, **inputs)
        if odd and len(widths) == 2:
            output.logits[..., engine.checkpoint.image_token] = 1e4
        return output

    monkeypatch.setattr(engine.checkpoint.model, "forward", scarce)
    jobs = []
    for request in CROWD:
        pictures = sight.read(request.images)
        prompt = chat.prompt_ids(request.prompt, sight.places(pictures))
        jobs.append(DecodeRequest(prompt=prompt, pictures=pictures, sampling=request.sampling, seed=0))
        engine.submit(jobs[-1])
    answers = {}
    while engine.busy:
        answers |= engine.step()
    assert widths[:5] == [5, 5, 5, 5, 2]
    for job, expected in zip(jobs, together(checkpoint, CROWD, determinism="exact"), strict=True):
        answer = answers[job]
        assert isinstance(answer, SampledReply)
        assert answer.tokens == expected.tokens
        assert answer.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


def test_cells_that_look_at_one_picture_are_computed_together(checkpoint: Path) -> None:
    replies = together(checkpoint, tuple(asked(f"Cell {number}.", picture(1), max_tokens=1) for number in range(4)))
    assert [reply.width for reply in replies] == [4.0] * 4


# --------------------------------------------------------------------------------------------------------- set-up


def test_probe_says_that_pictures_turn_sharing_off(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    able = asyncio.run(model.probe())
    assert able.images
    assert "every prompt is computed by itself: the model sees" in able.notes[-1]
    asyncio.run(model.close())


def test_what_is_no_picture_fails_alone(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))

    async def scene() -> list[Any]:
        answers = await asyncio.gather(
            model.generate(asked("Tap.", b"no picture")), model.generate(CROWD[0]), return_exceptions=True
        )
        await model.close()
        return list(answers)

    failed, answered = asyncio.run(scene())
    assert isinstance(failed, ModelFailure)
    assert "a picture of 10 bytes cannot be read" in str(failed)
    assert isinstance(answered, Reply)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("preprocessor_config.json", None, "image processor cannot be loaded"),
        ("chat_template.jinja", "{{ messages[-1]['content'] + '' }}", "no place for pictures"),
        ("chat_template.jinja", "{{ messages[-1]['content'] | string }}", "shows 0 places for 1 pictures"),
    ],
)
def test_a_checkpoint_that_cannot_be_shown_pictures(
    tmp_path: Path, checkpoint: Path, file: str, text: str | None, message: str
) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / checkpoint.name)
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    with pytest.raises(ConfigError, match=message):
        together(folder, CROWD[:1])


# ------------------------------------------------------------------------------------------------------- episodes


def test_an_episode_on_a_phone_that_is_looked_at(checkpoint: Path, tmp_path: Path) -> None:
    modality = "image" if "paligemma" in str(checkpoint) else "both"
    agents = tmp_path / "library" / "agents"
    agents.mkdir(parents=True)
    (agents / "seeing.yaml").write_text(
        f"kind: local\noptions: {{path: {checkpoint}}}\nmodality: {modality}\ncontext_tokens: 4000\n"
        "sampling: {temperature: 0.8, max_tokens: 8}\n"
    )
    result = asyncio.run(
        collab.collect(
            env="androidworld",
            agents="seeing",
            graph="single",
            tasks=["SystemBluetoothTurnOn"],
            episodes=1,
            settings=["environment.limits.max_steps=2"],
            library=tmp_path / "library",
            out=tmp_path / "run",
        )
    )
    [trajectory] = result.trajectories
    assert trajectory.error is None
    reader = RunStore.open(tmp_path / "run").open_reader()
    model = LocalModel(path=str(checkpoint))
    sight = PictureReader(model.chat)
    for step in reader.read_trajectory(trajectory.id).steps:
        assert step.observation.screenshot is not None
        seen = (reader.read_blob(step.observation.screenshot),)
        places = sight.places(sight.read(seen))
        assert places is not None
        for said in step.matrix:
            prompt = rebuild(reader.read_prefix(said.prompt.prefix), said.prompt)
            assert (step.observation.text in prompt.shared) == (modality == "both")
            ids = model.chat.prompt_ids(replace(prompt, images=(step.observation.screenshot,)), places)
            assert said.prompt_tokens == len(ids)
            assert ids.ids.count(places.token) == sum(places.counts) >= 16
            assert said.tokens
