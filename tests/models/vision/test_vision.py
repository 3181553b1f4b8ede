"""Checkpoints that see, against what transformers' own processors and `generate` make of the same pictures."""

import asyncio
import io
import re
import shutil
from collections.abc import Iterator
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
from collab.models.tokenizer import ChatTokenizer
from collab.models.vision import PictureReader
from collab.prompts.render import rebuild
from collab.store.run import RunStore
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from tests.models.vision.tiny_vision import MAKERS, asked, picture, together

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # of a processor that is compared with

LIKE_OTHERS = {"qwen2_5_vl", "qwen3_vl_moe", "qwen3_5_moe"}
FAMILIES = [pytest.param(name, marks=pytest.mark.slow if name in LIKE_OTHERS else ()) for name in MAKERS]
ONE_IS_FAST = pytest.mark.parametrize(
    "checkpoint",
    [pytest.param(name, marks=() if name == "qwen3_5" else pytest.mark.slow) for name in MAKERS],
    indirect=True,
)
"""For what hardly depends on the family."""


@pytest.fixture(scope="module", params=FAMILIES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield MAKERS[request.param](tmp_path_factory.mktemp(request.param))
    torch.set_num_threads(threads)


CROWD = (
    asked("Tap Save.", picture(1)),
    asked("Tap the other one, which is further down.", picture(2, 64, 48)),
    asked("Nothing to be seen here."),
    asked("Two.", picture(3), picture(4, 16, 56)),
    asked("Tap Save.", picture(5)),
)
"""Other lengths, other sizes, other numbers of pictures."""


class WithoutVideos:
    """A family's own processor without the part for videos, which wants torchvision."""

    def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> type:
        return type(argument)


class Qwen2Processor(WithoutVideos, transformers.Qwen2VLProcessor):
    """That of Qwen2-VL and Qwen2.5-VL."""


class Qwen3Processor(WithoutVideos, transformers.Qwen3VLProcessor):
    """That of Qwen3-VL and Qwen3.5."""


def official(checkpoint: Path, request: Request) -> dict[str, torch.Tensor]:
    """What the family's own processor gives the model for a request; by its tokenizer where there is no picture."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    parts = [*({"type": "image"} for _ in request.images), {"type": "text", "text": request.prompt.user}]
    parts = [*parts[-1:], *parts[:-1]] if request.prompt.pictures_last else parts
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
        kind = Qwen3Processor if "qwen3" in str(checkpoint) else Qwen2Processor
        processor = kind(image_processor=pixels, tokenizer=tokenizer)
    return dict(processor(images=images, text=[text], return_tensors="pt"))


# ------------------------------------------------------------------------------------------------------- equality


def test_prompts_equal_those_of_the_familys_own_processor(checkpoint: Path) -> None:
    model = LocalModel(path=str(checkpoint))
    sight = PictureReader(model.chat)
    behind = asked("Two.", picture(3), picture(4, 16, 56), last=True)
    for request in CROWD if "paligemma" in str(checkpoint) else (*CROWD, behind):
        pictures = sight.read(request.images)
        ids = model.chat.prompt_ids(request.prompt, sight.places(pictures)).ids
        expected = official(checkpoint, request)
        assert list(ids) == expected["input_ids"][0].tolist()
        for name in expected.keys() & {"pixel_values", "image_grid_thw"}:
            assert torch.equal(torch.cat([picture.inputs[name] for picture in pictures]), expected[name])


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


def test_replies_that_are_done_leave_and_change_no_other(checkpoint: Path) -> None:
    crowd = tuple(asked(one.prompt.shared, *one.images, max_tokens=2 + 2 * number) for number, one in enumerate(CROWD))
    replies, alone = together(checkpoint, crowd), together(checkpoint, crowd, determinism="exact")
    assert replies[4].width < 5
    for reply, expected in zip(replies, alone, strict=True):
        assert reply.tokens == expected.tokens
        assert reply.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


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


@ONE_IS_FAST
def test_a_picture_is_computed_once_for_all_cells_and_rounds(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = tuple(asked(f"Cell {number}.", picture(1), max_tokens=1) for number in range(3))
    model = LocalModel(path=str(checkpoint), max_batch=2)

    async def scene() -> tuple[list[Reply], int]:
        await model.probe()
        assert model.engine is not None
        looks = []
        own = model.engine.checkpoint.model.get_image_features
        monkeypatch.setattr(
            model.engine.checkpoint.model,
            "get_image_features",
            lambda **inputs: [looks.append(1), own(**inputs)][1],
        )
        replies = list(await asyncio.gather(*map(model.generate, (*crowd, asked("Another.", picture(2))))))
        await model.close()
        return replies, len(looks)

    replies, looks = asyncio.run(scene())
    assert looks == 2
    for request, reply in zip(crowd, replies, strict=False):
        [alone] = together(checkpoint, (request,))
        assert reply.logprobs == pytest.approx(alone.logprobs, abs=1e-4)


@ONE_IS_FAST
def test_pictures_beyond_the_budget_are_computed_apart_or_refused(checkpoint: Path) -> None:
    sight = PictureReader(ChatTokenizer(str(checkpoint)))
    largest, most = (sum(one.tokens for one in sight.read(CROWD[number].images)) for number in (1, 3))
    replies = together(checkpoint, CROWD, picture_tokens=max(48, largest))
    assert [reply.tokens for reply in replies] == [reply.tokens for reply in together(checkpoint, CROWD)]
    assert max(reply.width or 0 for reply in replies) < 5
    with pytest.raises(ConfigError, match=f"the 2 pictures take {most} tokens, picture_tokens allows {most - 1}; make"):
        together(checkpoint, CROWD[3:4], picture_tokens=most - 1)


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


def refuse(tmp_path: Path, checkpoint: Path, fields: str, options: str = "") -> str:
    """Begin a run with an agent that sees, and return the one line by which it is refused."""
    (tmp_path / "mine.yaml").write_text(
        f"kind: local\noptions: {{path: {checkpoint}, device: cpu{options}}}\nmodality: image\ncontext_tokens: 4000\n"
        f"sampling: {{max_tokens: 8}}\n{fields}"
    )
    with pytest.raises(ConfigError) as refused:
        asyncio.run(
            collab.collect(
                env="androidworld",
                agents=str(tmp_path / "mine.yaml"),
                graph="single",
                tasks=["SystemBluetoothTurnOn"],
                episodes=1,
                settings=["environment.limits.max_steps=2"],
                out=tmp_path / "run",
                progress=False,
            )
        )
    assert "\n" not in str(refused.value)
    return str(refused.value)


@ONE_IS_FAST
def test_points_in_pixels_need_the_picture_that_was_sent(checkpoint: Path, tmp_path: Path) -> None:
    message = refuse(tmp_path, checkpoint, "dialect: qwen2.5-vl\n")
    seen = "16 × 16" if "paligemma" in str(checkpoint) else "40 × 88"
    assert message.startswith(f"{checkpoint}: sees a picture of 1092 × 2408 as {seen} (size in its preprocessor_config")
    assert "the agent's dialect points at pixels of the sent one; set the published size" in message


@pytest.mark.filterwarnings("ignore:.*no dialect is set")
@ONE_IS_FAST
def test_a_run_is_refused_if_a_picture_is_beyond_the_budget(checkpoint: Path, tmp_path: Path) -> None:
    message = refuse(tmp_path, checkpoint, "", ", picture_tokens: 8")
    assert re.search(r"the picture takes \d+ tokens, picture_tokens allows 8; make pictures smaller", message)


def test_a_run_is_refused_if_a_local_model_takes_no_pictures(tmp_path: Path) -> None:
    tiny = make_tiny_checkpoint(tmp_path / "tiny", context=4096)
    assert refuse(tmp_path, tiny, "") == (
        "agents/mine: modality: image, but its model takes no pictures; use modality: text, or a model that sees"
    )


@pytest.mark.filterwarnings("ignore:.*no dialect is set")
@ONE_IS_FAST
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
