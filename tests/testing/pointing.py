"""Drawn screens on which one box is red, and a policy that sees, made from nothing: does it learn to point?

A screen is 224 pixels wide and high. Up to nine boxes of different colours lie in a grid, in any order; the policy is
shown them with their numbers, as AppVLM is. One touch ends an episode, so guessing solves one in as many as are drawn.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from PIL import Image, ImageDraw

from collab.envs.base import TaskInfo
from collab.envs.grammar import MOBILE, ActionSpace
from collab.envs.overlay import draw_marks, encode
from collab.envs.text import describe_screen
from collab.errors import UnknownName
from collab.library import find_builtin_root
from collab.models.tokenizer import silence_transformers
from collab.seeds import derive
from collab.types import Action, Box, Element, ElementTarget, Observation, Outcome, StepResult, Task
from tests.models.vision.tiny_vision import GRID_TOKENS, TURNS

SIDE, PITCH, BOX = 224, 56, 44
"""Of a screen, from box to box, and of a box, in pixels."""
COLOURS = {
    "red": (220, 20, 30),
    "blue": (30, 60, 220),
    "green": (20, 150, 50),
    "yellow": (250, 220, 40),
    "white": (255, 255, 255),
    "black": (10, 10, 10),
    "brown": (120, 72, 30),
    "pink": (250, 160, 190),
    "grey": (150, 150, 150),
}
TASK = "TouchRed"
INFO = TaskInfo(name=TASK, apps=("pointing",), difficulty="easy", max_steps=1, oracle=True)


class PointingSuite:
    """Screens with two to nine boxes.

    Args:
        grey: draw all of them in one colour, so that nothing tells where red is.
    """

    name = "pointing"
    label = "pointing"
    version = "1"
    space: ActionSpace = MOBILE
    capabilities: frozenset[str] = frozenset({"oracle", "screenshot", "deterministic"})

    def __init__(self, *, grey: bool = False) -> None:
        self._grey = grey

    def tasks(self) -> Sequence[TaskInfo]:
        return [INFO]

    def instance(self, name: str, seed: int) -> Task:
        if name != TASK:
            raise UnknownName.of("task", name, [TASK])
        rng = random.Random(derive(seed, "pointing"))
        others = [colour for colour in COLOURS if colour != "red"]
        drawn = ["red", *rng.sample(others, rng.randint(1, len(others)))]
        rng.shuffle(drawn)
        places = rng.sample(range(9), len(drawn))
        return Task(
            environment=self.name,
            name=name,
            seed=seed,
            goal="Touch the red box.",
            params={"boxes": list(zip(drawn, places, strict=True))},
            max_steps=1,
            difficulty="easy",
            apps=INFO.apps,
        )

    async def open(self) -> PointingEnvironment:
        return PointingEnvironment(self._grey)

    async def close(self) -> None:
        """Nothing is shared."""


class PointingEnvironment:
    """One screen, which does not change."""

    def __init__(self, grey: bool) -> None:
        self._grey = grey
        self._boxes: list[tuple[str, int]] = []

    async def reset(self, task: Task) -> Observation:
        self._boxes = [(str(colour), int(place)) for colour, place in task.params["boxes"]]
        return self._observe()

    async def step(self, action: Action | None) -> StepResult:
        hit = action is not None and action.type == "click" and isinstance(action.target, ElementTarget)
        hit = hit and action.target.index == self._find_red()
        outcome = Outcome(success=hit, score=float(hit), reason="touched red" if hit else "did not touch red")
        return StepResult(
            observation=self._observe(), terminated=True, truncated=False, outcome=outcome, info={"effect": "it ended"}
        )

    def oracle(self) -> tuple[Action, ...]:
        return (MOBILE.make("click", index=self._find_red()),)

    async def screenshot(self, marks: bool = False) -> bytes:
        image = Image.new("RGB", (SIDE, SIDE), (235, 235, 240))
        draw, observation = ImageDraw.Draw(image), self._observe()
        for (colour, _), element in zip(self._boxes, observation.elements, strict=True):
            box = element.box
            assert box is not None
            draw.rectangle(
                (box.left, box.top, box.right - 1, box.bottom - 1), fill=COLOURS["grey" if self._grey else colour]
            )
        if marks:
            draw_marks(image, observation)
        return encode(image)

    async def close(self) -> None:
        """Nothing is held."""

    def _find_red(self) -> int:
        return [colour for colour, _ in self._boxes].index("red")

    def _observe(self) -> Observation:
        corners = [(28 + PITCH * (place % 3), 28 + PITCH * (place // 3)) for _, place in self._boxes]
        elements = tuple(
            Element(index=index, role="button", label="", box=Box(left, top, left + BOX, top + BOX), key=f"box/{index}")
            for index, (left, top) in enumerate(corners)
        )
        text = describe_screen("Boxes", elements)
        return Observation(space=MOBILE.name, title="Boxes", elements=elements, text=text, width=SIDE, height=SIDE)


def make_seeing_checkpoint(folder: Path, *, hidden: int = 64, layers: int = 2, depth: int = 1) -> Path:
    """Write a random Qwen2-VL whose token of a picture is 28 by 28 pixels, so a screen has 64 of them."""
    picture = "'<|vision_start|><|image_pad|><|vision_end|>'"
    tokenizer = transformers.AutoTokenizer.from_pretrained(find_builtin_root() / "agents" / "early")
    tokenizer.add_special_tokens({"additional_special_tokens": list(GRID_TOKENS)})
    tokenizer.chat_template = TURNS.replace("PICTURE", picture)
    tokenizer.save_pretrained(folder)
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(GRID_TOKENS))
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 32,
        "num_key_value_heads": hidden // 32,
        "max_position_embeddings": 1024,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10000.0},
    }
    vision = {"depth": depth, "embed_dim": 64, "hidden_size": hidden, "num_heads": 4, "mlp_ratio": 2, "patch_size": 14}
    tokens = {"vision_start_token_id": start, "vision_end_token_id": end}
    tokens |= {"image_token_id": image, "video_token_id": video}
    config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=False, **tokens)
    with torch.random.fork_rng(devices=[]), silence_transformers():
        torch.manual_seed(0)
        transformers.Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    processor = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2}
    processor |= {"size": {"shortest_edge": 28 * 28, "longest_edge": SIDE * SIDE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder
