"""The vendors' own code agrees: sizes of pictures, replies of UI-TARS, and the types of the closed models' interfaces.

`pip install ui-tars openai anthropic google-genai` in the environment of the tests runs all of them.
"""

import json
import random

import pytest

from collab.dialects.actions import GuiAction
from collab.dialects.registry import DIALECTS


@pytest.mark.slow
def test_pictures_have_the_size_of_the_vendors_processor():
    module = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    rng = random.Random(1)
    for _ in range(10_000):
        width, height = rng.randint(40, 6000), rng.randint(40, 6000)
        rule = DIALECTS[rng.choice(["qwen2.5-vl", "qwen3-vl", "ui-tars-1.5", "ui-venus-1.5"])].resize
        high, wide = module.smart_resize(height, width, rule.factor, rule.least, rule.most)
        assert rule.fit(width, height) == (wide, high)


def draw_point(rng: random.Random, most: tuple[int, int]) -> tuple[int, int]:
    return rng.randint(0, most[0]), rng.randint(0, most[1])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "family"), [("ui-tars-1.5", "qwen25vl"), ("ui-tars-doubao", "doubao")])
def test_ui_tars_own_parser_finds_the_same_places(name, family):
    parser = pytest.importorskip("ui_tars.action_parser")
    dialect, screen, rng = DIALECTS[name], (1080, 2400), random.Random(2)
    sent = dialect.resize.fit(*screen)
    most = (1000, 1000) if dialect.grid.span else sent
    for _ in range(5000):
        said = GuiAction(kind="drag", point=draw_point(rng, most), to=draw_point(rng, most))
        text = dialect.write([said], "why", "web")
        theirs = parser.parse_action_to_structure_output(text, 1000, sent[1], sent[0], model_type=family)[0]
        assert theirs["action_type"] == "drag"
        for point, key in ((said.point, "start_box"), (said.to, "end_box")):
            box = json.loads(theirs["action_inputs"][key])
            x, y, _ = dialect.grid.to_pixel(point, sent, screen)
            assert abs(min(box[0] * 1080, 1079) - x) <= 1
            assert abs(min(box[1] * 2400, 2399) - y) <= 1


@pytest.mark.parametrize(
    ("name", "module", "type"),
    [
        ("openai-computer", "openai.types.responses", "ResponseComputerToolCall"),
        ("anthropic-computer", "anthropic.types.beta", "BetaToolUseBlock"),
        ("gemini-computer", "google.genai.types", "Part"),
    ],
)
def test_items_have_the_types_of_the_vendors_interface(name, module, type):
    item, dialect, rng = getattr(pytest.importorskip(module), type), DIALECTS[name], random.Random(3)
    for _ in range(500):
        point, to = draw_point(rng, (999, 999)), draw_point(rng, (999, 999))
        said = rng.choice(
            [
                GuiAction(kind="click", point=point),
                GuiAction(kind="drag", point=point, to=to),
                GuiAction(kind="scroll", point=point, direction="down", amount=float(rng.randint(1, 900))),
                GuiAction(kind="keys", text="ctrl+c"),
                GuiAction(kind="wait", seconds=5.0) if name != "openai-computer" else GuiAction(kind="wait"),
            ]
        )
        checked = item.model_validate(json.loads(dialect.write([said]))[-1])
        assert dialect.read(json.dumps([checked.model_dump(mode="json", exclude_none=True)])).actions == (said,)
