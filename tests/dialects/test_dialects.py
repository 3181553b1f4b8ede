"""Dialects read the replies that their vendors document, write what they read, and never raise."""

import json
import random
import re
from functools import cache
from pathlib import Path
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from collab.dialects.actions import KINDS, GuiAction
from collab.dialects.base import KEY_KINDS, Dialect, build_example
from collab.dialects.ground import read_in_dialect
from collab.dialects.registry import DIALECTS, find_dialect, guess_dialect, recognise
from collab.envs.grammar import SPACES
from collab.envs.simphone.core import SimPhone
from collab.envs.simphone.suite import SimPhoneSuite
from collab.errors import UnknownName
from collab.types import Box, Element, Observation
from tests.properties import examples

REPLIES = Path(__file__).parent / "replies"
EACH = pytest.mark.parametrize("name", DIALECTS)


def list_samples(name: str) -> list[tuple[str, str]]:
    """List the documented replies of a dialect: what each says, and the reply."""
    parts = re.split(r"^=== (.*)\n", (REPLIES / f"{name}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def describe(dialect: Dialect, text: str) -> str:
    reply = dialect.read(text)
    assert (reply.failure is None) == bool(reply.actions)
    said = [f"{one} ignoring {', '.join(one.ignored)}" if one.ignored else str(one) for one in reply.actions]
    unread = [] if reply.unread is None else [f"?{reply.unread.kind}"]
    return f"!{reply.failure.kind}" if reply.failure else " | ".join([*said, *unread])


@EACH
def test_documented_replies_are_read_right(name):
    samples = list_samples(name)
    assert len(samples) >= 20
    read = [(describe(DIALECTS[name], text), text) for _, text in samples]
    assert read == [(said.strip(), text) for said, text in samples]


def test_one_reply_of_each_syntax_is_cut_behind_its_action():
    cut = {type(DIALECTS[name].syntax) for name in DIALECTS for said, _ in list_samples(name) if "| ?" in said}
    assert cut == {type(one.syntax) for one in DIALECTS.values()}


def test_every_dialect_has_its_samples():
    assert {path.stem for path in REPLIES.iterdir()} == set(DIALECTS)
    assert len(DIALECTS) >= 20


def test_the_reason_is_the_text_before_the_action():
    for name, samples in ((name, list_samples(name)) for name in DIALECTS):
        for said, text in samples:
            reason = DIALECTS[name].read(text).reason
            assert said.startswith("!") or not re.match(r"[<{]|Thought|Action", reason), (name, reason)
    assert DIALECTS["qwen3-vl"].read(list_samples("qwen3-vl")[0][1]).reason == (
        "The clock is open, and the alarm tab is at the top."
    )
    assert DIALECTS["gui-owl"].read(list_samples("gui-owl")[0][1]).reason == "Tap the alarm tab."
    assert DIALECTS["anthropic-computer"].read(list_samples("anthropic-computer")[0][1]).reason == "The next step."


# ------------------------------------------------------------------------------------------- writing and reading

WORDS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=30)
LINES = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=30)
KEYS = st.lists(st.sampled_from(["ctrl", "c", "shift", "enter", "f5", "tab"]), min_size=1, max_size=3).map("+".join)
ONE_LINE = {"gelab", "os-atlas"}
"""Dialects whose texts are one line without spaces around it."""


@st.composite
def actions(draw, dialect: Dialect, world: str) -> GuiAction:
    """An action that the dialect has a word for."""
    row = draw(st.sampled_from([one for one in dialect.verbs if one.world in (None, world)]))
    example = build_example(row, dialect.grid)
    given = {name: getattr(example, name) for name in row.sets} | {"kind": row.kind}
    number = st.integers(0, 10_000).map(lambda value: value / 10_000 if dialect.grid.span == 1 else value)
    for field, argument in row.takes.items():
        if argument.endswith("?") and draw(st.booleans()):
            continue
        if field in ("point", "to"):
            given[field] = draw(st.tuples(number, number))
        elif field == "text":
            text = draw(LINES if dialect.name not in ONE_LINE else WORDS)
            text = " ".join(text.split()).strip("[]") or "x" if dialect.name in ONE_LINE else text
            text = text.rstrip("\n") + "." if dialect.has_submitting_newline else text
            text += "." if dialect.typed_items and row.kind == "done" else ""  # blank words say nothing
            given[field] = draw(KEYS) if row.kind in KEY_KINDS else text
        elif field == "hold":
            given[field] = draw(KEYS)
        elif field == "direction":
            given[field] = draw(st.sampled_from(["up", "down", "left", "right"]))
        elif field in ("enter", "clear"):
            given[field] = draw(st.booleans())
        else:
            given[field] = draw(st.integers(1, 5000))
    if row.signed:
        given["direction"] = draw(st.sampled_from(row.signed))
    if dialect.has_submitting_newline and row.kind == "type":
        given["enter"] = draw(st.booleans())
    return GuiAction(**given)


@EACH
@settings(deadline=None, max_examples=examples(30))
@given(data=st.data())
def test_what_is_written_is_read_back(name, data):
    dialect = DIALECTS[name]
    world = data.draw(st.sampled_from(dialect.worlds))
    said = data.draw(actions(dialect, world))
    text = dialect.write([said], "Because it is there.", world)
    reply = dialect.read(text, world)
    assert reply.failure is None, (text, reply.failure)
    assert reply.actions == (said,), text


def test_the_first_element_can_be_named():
    dialect = DIALECTS["appvlm"]
    said = GuiAction(kind="click", index=0)
    assert dialect.read(dialect.write([said])).actions == (said,)


@EACH
def test_every_word_in_the_prompt_can_be_written_and_read(name):
    dialect = DIALECTS[name]
    for world in dialect.worlds:
        for row in (one for one in dialect.list_verbs(world) if one.doc):
            said = build_example(row, dialect.grid)
            assert row.kind in KINDS
            assert dialect.read(dialect.write([said], "", world), world).actions == (said,)


def test_the_schema_in_the_prompt_allows_what_is_written():
    qwen = DIALECTS["qwen2.5-vl"]
    schema = re.search(r"^\{.*\}$", qwen.render_system("web", (1920, 1080)), re.MULTILINE)
    assert schema is not None
    fields = json.loads(schema[0])["function"]["parameters"]["properties"]
    written = json.loads(qwen.write([GuiAction(kind="keys", text="ctrl+c")], "", "web").split("\n")[1])
    assert written["arguments"]["keys"] == ["ctrl", "c"]
    assert {name: one["type"] for name, one in fields.items()} == {
        **{"action": "string", "coordinate": "array", "text": "string", "keys": "array"},
        **{"pixels": "number", "time": "number", "status": "string"},
    }
    assert fields["status"]["enum"] == ["success", "failure"]


# ----------------------------------------------------------------------------------------------- damaged replies

PIECES = (
    *("NaN", "Infinity", "null", "1e999", "9" * 400, "-0", "true", "\ud800", "\x00", "\u2028", "\\", '\\"', "'", '"'),
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<function=", "<parameter=", "Action:", "actions:", "do("),
    *("{", "}", "[[", "((", "))", ",", ":", "=", "\t", "\n", "{" * 300, "[" * 3000, "(" * 3000, "click(" * 300),
    *("a" * 3000, " " * 3000, "Action:" * 300, "<tool_call>{" * 300, "<function=a>" * 300, "action:CLICK\t" * 300),
)


def damage(text: str, rng: random.Random) -> str:
    """A reply after a few accidents."""
    for _ in range(rng.randint(1, 4)):
        cut, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        accident = rng.randrange(5)
        middle = ("", rng.choice(PIECES), chr(rng.choice((rng.randrange(128), 0xD800, 0x1F600))))[min(accident, 2)]
        text = text[:cut] + middle + text[end if accident in (0, 2, 3) else cut :]
        text = re.sub(r"\d+|up|true", lambda _: rng.choice(PIECES), text, count=1) if accident == 4 else text
    return text


@cache
def list_screens() -> dict[str, Observation]:
    """A phone and a page, by world."""
    phone = SimPhone()
    phone.reset(SimPhoneSuite().instance("ContactsAddContact", 5))
    field = Element(index=0, role="input", label="Name", value="Ada", flags=("focused",), box=Box(0, 0, 400, 60))
    canvas = Element(index=1, role="canvas", label="", flags=("surface",), box=Box(0, 100, 1280, 720))
    page = Observation(space="web", title="", text="", elements=(field, canvas), width=1280, height=720)
    return {"mobile": phone.frame.observation, "web": page}


def ground_damaged(dialect: Dialect, text: str, finish: str | None) -> None:
    """Check what becomes of a damaged reply on a phone and on a page."""
    for world, seen in list_screens().items():
        parsed = read_in_dialect(text, dialect, SPACES[world], seen, finish=finish)
        assert (parsed.action is None) != (parsed.failure is None)
        told = [*parsed.remarks, parsed.failure.detail if parsed.failure else ""]
        assert all("\n" not in one and len(one) < 1500 for one in told), told
        if parsed.action is not None:
            assert SPACES[world].check(parsed.action, seen) is None
            assert SPACES[world].canonical(parsed.action, seen) == parsed.action


def read_damaged(name: str, count: int) -> set[str]:
    rng, samples = random.Random(7), list_samples(name)
    kinds = set()
    for number in range(count):
        # One in four is a reply in another dialect.
        source = samples if rng.random() < 0.75 else list_samples(rng.choice(list(DIALECTS)))
        text = damage(rng.choice(source)[1], rng)
        said = describe(DIALECTS[name], text)
        if number % 10 == 0:  # those without an action are read in all dialects
            ground_damaged(DIALECTS[name], text, rng.choice(["stop", "length", None]))
        assert "\n" not in said or not said.startswith("!")
        kinds.add(said if said.startswith("!") else "action")
    return kinds


@EACH
def test_damaged_replies_give_actions_or_causes(name):
    assert read_damaged(name, 500) >= {"action", "!no_action"}


@pytest.mark.slow
@EACH
def test_ten_thousand_damaged_replies(name):
    read_damaged(name, 10_000)


@pytest.mark.slow
@EACH
def test_long_replies_are_read_in_time(name):
    for piece in PIECES[-12:]:
        started = perf_counter()
        describe(DIALECTS[name], (piece * 100_000)[:99_999])
        assert perf_counter() - started < 60


# ---------------------------------------------------------------------------------------------- grids and sizes


def test_absolute_points_mean_the_resized_picture():
    qwen = DIALECTS["qwen2.5-vl"]
    assert qwen.resize.fit(1080, 2400) == (1092, 2408)
    assert qwen.grid.to_pixel((546, 1204), (1092, 2408), (1080, 2400)) == (540, 1200, False)
    assert "1092x2408" in qwen.render_system("mobile", (1080, 2400))
    assert DIALECTS["qwen3-vl"].resize.fit(1080, 2400) == (1088, 2400)
    assert DIALECTS["agentcpm-gui"].resize.fit(1080, 2400) == (504, 1120)
    assert DIALECTS["anthropic-computer"].resize.fit(2560, 1600) == (1280, 800)


def test_points_up_to_999_may_be_thousandths():
    venus = DIALECTS["ui-venus-2"]
    assert "from 0 to 999" in venus.render_system("mobile", (1080, 2400))
    assert venus.grid.to_pixel((500, 500), (1080, 2400), (1080, 2400)) == (540, 1200, False)
    assert venus.grid.to_pixel((999, 999), (1080, 2400), (1080, 2400)) == (1078, 2397, False)


@EACH
def test_a_pixel_survives_the_grid(name):
    dialect, screen = DIALECTS[name], (1080, 2400)
    sent = dialect.resize.fit(*screen)
    for x, y in [(0, 0), (1079, 2399), (540, 1200), (13, 2001)]:
        point = dialect.grid.from_pixel(x, y, sent, screen)
        back_x, back_y, moved = dialect.grid.to_pixel(point, sent, screen)
        # Half a unit of the grid, or of the picture that was sent.
        units = [dialect.grid.span * 10**dialect.grid.digits if dialect.grid.span else side for side in sent]
        assert abs(back_x - x) <= max(1, screen[0] / units[0])
        assert abs(back_y - y) <= max(1, screen[1] / units[1])
        assert not moved


# ------------------------------------------------------------------------------------------ names and other replies


@pytest.mark.parametrize(
    ("model", "dialect"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl"),
        ("checkpoints/Qwen3-VL-8B-Instruct/", "qwen3-vl"),
        ("Qwen/Qwen3.5-9B", "qwen3.5"),
        ("Qwen3.8-Flash-Next", "qwen3.5"),
        ("ByteDance-Seed/UI-TARS-1.5-7B", "ui-tars-1.5"),
        ("UI-TARS-7B-DPO", "ui-tars-1.0"),
        ("UI-TARS-2B-SFT", "ui-tars-1.0"),
        ("doubao-1-5-ui-tars-250428", "ui-tars-doubao"),
        ("UI-TARS-2", "ui-tars-2"),
        ("zai-org/GLM-4.5V", "glm-4.5v"),
        ("AutoGLM-Phone-9B", "autoglm"),
        ("OS-Copilot/OS-Atlas-Pro-7B", "os-atlas"),
        ("Aguvis-7B-720P", "aguvis"),
        ("Tongyi-MAI/MAI-UI-8B", "mai-ui"),
        ("mPLUG/GUI-Owl-1.5-8B-Instruct", "gui-owl"),
        ("inclusionAI/UI-Venus-1.5-8B", "ui-venus-1.5"),
        ("inclusionAI/UI-Venus-2-8B", "ui-venus-2"),
        ("stepfun-ai/GELab-Zero-4B-preview", "gelab"),
        ("openbmb/AgentCPM-GUI", "agentcpm-gui"),
        ("computer-use-preview", "openai-computer"),
        ("claude-sonnet-4-5", "anthropic-computer"),
        ("gemini-2.5-computer-use-preview-10-2025", "gemini-computer"),
        ("gpt-4o-mini", None),
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", None),
        ("Qwen2.5-7B-Instruct", None),
        ("built-in:pocket", None),
    ],
)
def test_the_dialect_is_guessed_from_the_name(model, dialect):
    found = guess_dialect(model)
    assert (found.name if found else None) == dialect


@pytest.mark.parametrize(
    ("model_type", "dialect"),
    [
        ("qwen2_5_vl", "qwen2.5-vl"),
        ("qwen3_vl", "qwen3-vl"),
        ("qwen3_vl_moe", "qwen3-vl"),
        ("qwen3_5", "qwen3.5"),
        ("qwen3_5_moe", "qwen3.5"),
        ("qwen4_exp", "qwen3.5"),
        ("glm4v", "glm-4.5v"),
        ("glm4v_moe", "glm-4.5v"),
        ("glm46v", "glm-4.5v"),
        # Bases of many families, and models that see nothing.
        *((name, None) for name in ("qwen2_vl", "paligemma", "qwen3_5_text", "qwen3", "glm4", "seed_oss", "")),
    ],
)
def test_the_dialect_is_guessed_from_the_configuration(tmp_path, model_type, dialect):
    assert not model_type or model_type in CONFIG_MAPPING_NAMES
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    found = guess_dialect(str(tmp_path))
    assert (found.name if found else None) == dialect
    named = tmp_path / "UI-TARS-1.5-7B"  # the name counts more
    named.mkdir()
    (named / "config.json").write_text(json.dumps({"model_type": model_type}))
    known = guess_dialect(str(named))
    assert known is not None
    assert known.name == "ui-tars-1.5"


def test_a_configuration_that_cannot_be_read_guesses_nothing(tmp_path):
    for text in ("[1]", "{", '{"model_type": null}', "{}"):
        (tmp_path / "config.json").write_text(text)
        assert guess_dialect(str(tmp_path)) is None


def test_a_reply_in_another_dialect_is_recognised():
    ui_tars = list_samples("ui-tars-1.5")[0][1]
    assert recognise(ui_tars, "qwen2.5-vl") == ("ui-tars-1.0", "ui-tars-1.5")
    assert recognise(ui_tars, "ui-tars-1.0") == ("ui-tars-1.5",)
    qwen = list_samples("qwen3-vl")[0][1]
    assert {"qwen2.5-vl", "qwen3-vl", "gui-owl", "mai-ui"} <= set(recognise(qwen, "autoglm"))
    assert recognise("I do not know.", "qwen2.5-vl") == ()


def test_a_word_may_mean_another_thing_on_a_page():
    call = "<tool_call><function=computer_use><parameter=action>call_user</parameter>"
    text = f"{call}<parameter=text>It is 7.</parameter></function></tool_call>"
    said = [DIALECTS["qwen3.5"].read(text, world).actions for world in ("mobile", "web")]
    assert said == [(GuiAction(kind="ask_user", text="It is 7."),), (GuiAction(kind="answer", text="It is 7."),)]


def test_an_unknown_dialect_is_named():
    with pytest.raises(UnknownName, match=r"qwen2\.5-vl"):
        find_dialect("qwen25-vl", "in agents/mine")
