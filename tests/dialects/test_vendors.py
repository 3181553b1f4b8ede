"""The vendors' own packages agree with the dialects on generated actions: 0 disagreements, at most one pixel apart.

`make vendors` fetches the packages and runs these tests; without them they are skipped.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from collab.dialects.actions import GuiAction, Pair, Resize, Size
from collab.dialects.base import Dialect, Verb, World
from collab.dialects.registry import DIALECTS
from collab.dialects.syntaxes import JsonTool
from collab.envs.syntax import order_keys
from tests.dialects.vendors import COUNT, Tally, compare, draw_point, draw_text, load, load_part

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def draw_screen(rng: random.Random) -> Size:
    return rng.choice([(1080, 2400), (1920, 1080), (160, 210), (rng.randint(200, 4000), rng.randint(200, 4000))])


# ------------------------------------------------------------------------------------------------------ UI-TARS

TARS_KINDS: dict[World, dict[str, str]] = {
    "web": {
        **{"click": "click", "left_single": "click", "left_double": "double_click", "right_single": "right_click"},
        **{"hover": "hover", "move_to": "hover", "drag": "drag", "select": "drag", "scroll": "scroll"},
        **{"type": "type", "hotkey": "keys", "press": "hold_keys", "release": "release_keys"},
        **{"mouse_down": "mouse_down", "mouse_up": "mouse_up"},
        **{"wait": "wait", "finished": "done", "call_user": "ask_user"},
    },
    "mobile": {
        **{"click": "click", "long_press": "long_press", "drag": "swipe", "scroll": "scroll", "type": "type"},
        **{"open_app": "open_app", "press_home": "home", "press_back": "back", "wait": "wait", "finished": "done"},
    },
}
"""World → word of the package → kind."""
POINTLESS = (
    "type",
    "hotkey",
    "press",
    "release",
    "mouse_down",
    "mouse_up",
    "wait",
    "finished",
    "call_user",
    "open_app",
)
HOTKEYS = (
    "ctrl c",
    "ctrl shift t",
    "enter",
    "arrowleft",
    "ctrl arrowdown",
    "space",
    "alt f4",
    "ctrl +",
    "ctrl ,",
    "f5",
)


def draw_tars(rng: random.Random, world: World, most: Size) -> tuple[str, dict[str, Any]]:
    """Draw one action: the package's word, and its arguments with points as numbers."""
    word = rng.choice(list(TARS_KINDS[world]))
    if word in ("drag", "select"):
        return word, {"start_point": draw_point(rng, most), "end_point": draw_point(rng, most)}
    if word == "scroll":
        place = {"point": draw_point(rng, most)} if rng.random() < 0.8 else {}
        return word, {**place, "direction": rng.choice(["up", "down", "left", "right"])}
    if word == "type":
        return word, {"content": draw_text(rng) + rng.choice(["", "", "", "\n", "\\n"])}
    if word == "hotkey":
        return word, {rng.choice(["key", "key", "hotkey"]): rng.choice(HOTKEYS)}
    if word in ("press", "release"):
        return word, {rng.choice(["key", "press"]): rng.choice(["ctrl", "shift", "arrowup", "space"])}
    if word == "open_app":
        return word, {"app_name": rng.choice(["Clock", "Joplin's notes", "Simple SMS"])}
    if word == "finished":
        return word, {"content": draw_text(rng)} if rng.random() < 0.8 else {}
    if word in POINTLESS or word.startswith("press_"):
        return word, {}
    return word, {"point": draw_point(rng, most)}


def quote(rng: random.Random, text: str, *, may_slip: bool) -> str:
    r"""Write a text between quotes, by its escapes; some models leave out \', which a typed text survives."""
    if may_slip and "\\" not in text and "\n" not in text and "\t" not in text and rng.random() < 0.3:
        return f"'{text}'"
    written = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    if rng.random() < 0.2:
        written = written.replace('"', '\\"')
    if rng.random() < 0.2:
        written = "".join(
            letter if letter.isascii() else f"\\u{ord(letter):04x}" if ord(letter) < 65536 else f"\\U{ord(letter):08x}"
            for letter in written
        )
    return f"'{written}'"


def spell_call(rng: random.Random, word: str, arguments: dict[str, Any], *, boxes: bool) -> str:
    """Write a call as the package's prompts show it."""
    written = []
    for name, value in arguments.items():
        if isinstance(value, str):
            written.append(f"{name}={quote(rng, value, may_slip=word == 'type')}")
        elif boxes:
            x, y = value
            half = rng.randint(0, min(x, y, 20))
            forms = [f"({x},{y})", f"({x}, {y})", f"({x - half},{y - half},{x + half},{y + half})"]
            place = rng.choices(forms, (8, 1, 1))[0]
            written.append(f"{'end_box' if name == 'end_point' else 'start_box'}='{place}'")
        else:
            written.append(f"{name}='<point>{value[0]} {value[1]}</point>'")
    return f"{word}({', '.join(written)})"


def find_place(value: Any, screen: Size) -> Pair:
    """Return the pixel of a place as the package gives it: a box of shares, or its own tag from 0 to 1000."""
    if isinstance(value, str) and "<point>" in value:
        x, y = re.findall(r"\d+", value)
        return int(x) * screen[0] / 1000, int(y) * screen[1] / 1000
    box = json.loads(value) if isinstance(value, str) else value
    return (box[0] + box[2]) / 2 * screen[0], (box[1] + box[3]) / 2 * screen[1]


def list_code(code: str) -> list[tuple[str, list[Any]]]:
    """List the calls of pyautogui in a script: name, values, and the button."""
    calls = []
    for node in ast.parse(code).body:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
        ):
            if ast.unparse(node.value.func.value) == "pyautogui":
                button = [one.value for one in node.value.keywords if one.arg == "button"]
                calls.append((node.value.func.attr, [ast.literal_eval(one) for one in (*node.value.args, *button)]))
    return calls


def list_expected_code(word: str, said: GuiAction, pixel: Pair | None, end: Pair | None) -> list[tuple[str, list[Any]]]:
    """List the calls of pyautogui that do what was read; empty for what the package writes no code for."""
    if said.kind in ("click", "double_click", "right_click"):
        name = "doubleClick" if said.kind == "double_click" else "click"
        return [(name, [*(pixel or ()), "right" if said.kind == "right_click" else "left"])]
    if said.kind == "drag":
        return [("moveTo", [*(pixel or ())]), ("dragTo", [*(end or ())])]
    if said.kind == "scroll" and said.direction in ("up", "down"):
        return [("scroll", [5 if said.direction == "up" else -5])]
    if said.kind == "type":
        return [("hotkey", ["ctrl", "v"]), *([("press", ["enter"])] if said.enter else [])]
    if said.kind in ("keys", "hold_keys", "release_keys"):
        name = {"keys": "hotkey", "hold_keys": "keyDown", "release_keys": "keyUp"}[said.kind]
        return [(name, (said.text or "").split("+"))]
    return [("moveTo", [*(pixel or ())])] if word == "hover" else []


def is_same_code(tally: Tally, one: Sequence[tuple[str, list[Any]]], other: Sequence[tuple[str, list[Any]]]) -> bool:
    """Return whether two scripts do the same, with points within one pixel and keys by any of their names."""
    names = {" ": "space", "+": "plus"}
    for (name, values), (other_name, other_values) in zip(one, other, strict=False):
        texts, others = (
            order_keys("+".join(names.get(value, value) for value in given if isinstance(value, str)))
            for given in (values, other_values)
        )
        points = [[value for value in given if not isinstance(value, str)] for given in (values, other_values)]
        if name != other_name or texts != others or len(points[0]) != len(points[1]):
            return False
        if len(points[0]) == 2 and not tally.measure((points[0][0], points[0][1]), (points[1][0], points[1][1])):
            return False
        if len(points[0]) == 1 and points[0] != points[1]:
            return False
    return len(one) == len(other)


def is_same_tars(
    tally: Tally, theirs: dict[str, Any], said: GuiAction, dialect: Dialect, world: World, screen: Size
) -> bool:
    """Return whether the package's reading of an action is the dialect's: word, places, texts, direction."""
    word, inputs = theirs["action_type"], theirs["action_inputs"]
    if TARS_KINDS[world].get(word) != said.kind:
        return False
    sent = dialect.resize.fit(*screen)
    for point, names in ((said.point, ("start_box", "point", "start_point")), (said.to, ("end_box", "end_point"))):
        value = next((inputs[name] for name in names if name in inputs), None)
        if (value is None) != (point is None):
            return False
        if point is not None and not tally.measure(
            find_place(value, screen), dialect.grid.to_pixel(point, sent, screen)[:2]
        ):
            return False
    if said.kind == "type":
        typed = said.text or ""
        return inputs["content"] in ([typed + "\n", typed + "\\n"] if said.enter else [typed])
    if said.kind in ("keys", "hold_keys", "release_keys"):
        return True  # by their code
    text = inputs.get("content", inputs.get("app_name"))
    return bool(text == said.text and inputs.get("direction") == said.direction)


def runs_same_tars(
    tally: Tally, parser: Any, theirs: dict[str, Any], said: GuiAction, dialect: Dialect, screen: Size, scale: int
) -> bool:
    """Return whether the package's script for an action does what the dialect read."""
    code = parser.parsing_response_to_pyautogui_code(theirs, screen[1], screen[0], scale_factor=scale)
    sent = dialect.resize.fit(*screen)
    pixel, end = (
        None if one is None else dialect.grid.to_pixel(one, sent, screen)[:2] for one in (said.point, said.to)
    )
    return is_same_code(tally, list_code(code), list_expected_code(theirs["action_type"], said, pixel, end))


@pytest.mark.parametrize(
    ("name", "family"), [("ui-tars-1.0", "qwen2vl"), ("ui-tars-1.5", "qwen25vl"), ("ui-tars-doubao", "doubao")]
)
def test_calls_of_ui_tars_are_read_alike(name: str, family: str) -> None:
    parser, dialect, rng = load("ui_tars.action_parser"), DIALECTS[name], random.Random(2)

    def read(text: str, screen: Size) -> list[dict[str, Any]]:
        return parser.parse_action_to_structure_output(text, 1000, screen[1], screen[0], model_type=family)

    with compare("ui-tars", name) as tally:
        while tally.actions < COUNT:
            world: World = rng.choice(["web", "mobile"])
            screen = draw_screen(rng)
            most = (1000, 1000) if dialect.grid.span else dialect.resize.fit(*screen)
            drawn = [draw_tars(rng, world, most) for _ in range(rng.choice([1, 1, 1, 2]))]
            calls = "\n\n".join(spell_call(rng, *one, boxes=family != "doubao") for one in drawn)
            head = rng.choice(["Thought: Tap it, then wait.\n", "", "Reflection: No.\nAction_Summary: Again.\n"])
            text = f"{head}Action: {calls}"
            theirs = read(text, screen)
            spoken = parser.add_box_token(text) if name == "ui-tars-1.0" and rng.random() < 0.5 else text
            reply = dialect.read(spoken, world)
            # What the dialect writes is read by the package as the same.
            rewritten = dialect.write(reply.actions, "why", world) if reply.actions else ""
            # A tokenizer leaves the tokens of boxes out before the package reads a reply.
            written = read(re.sub(r"<\|box_\w+\|>", "", rewritten), screen) if rewritten else []
            pairs = [list(zip(reply.actions, parsed, strict=False)) for parsed in (theirs, written)]
            same = len(reply.actions) == len(theirs) == len(written) and all(
                is_same_tars(tally, one, said, dialect, world, screen)
                and (world == "mobile" or runs_same_tars(tally, parser, one, said, dialect, screen, 1))
                for said, one in (*pairs[0], *pairs[1])
            )
            for _ in theirs:
                tally.add(same, text, theirs, reply.actions, reply.failure)


def test_calls_of_doubao_are_read_alike_by_the_stricter_parser() -> None:
    parser, dialect, rng = load("ui_tars.action_parser"), DIALECTS["ui-tars-doubao"], random.Random(3)
    with compare("ui-tars", "ui-tars-doubao, second parser") as tally:
        while tally.actions < COUNT:
            screen = draw_screen(rng)
            word, arguments = draw_tars(rng, "web", (1000, 1000))
            if "content" in arguments:
                arguments["content"] = rng.choice(["", "  "]) + arguments["content"]
            text = f"Thought: Why not.\nAction: {spell_call(rng, word, arguments, boxes=False)}"
            parsed, is_read = parser.parse_action_to_structure_output_v2(text)
            if not is_read:  # it knows fewer words, and no slips
                continue
            theirs = [
                {"action_type": one.action_type.value, "action_inputs": one.custom_data} for one in parsed["actions"]
            ]
            reply = dialect.read(text, "web")
            same = len(theirs) == len(reply.actions) == 1 and reply.reason == parsed["thought"]
            same = same and is_same_tars(tally, theirs[0], reply.actions[0], dialect, "web", screen)
            tally.add(same, text, theirs, reply.actions, reply.failure)


TARS_TAGS = (
    ("formatter_xml02", "parse_xml_action_02"),
    ("formatter_xml02", "parse_xml_action_v5"),
    ("formatter_xml02_sptoken", "parse_xml_action_02sptoken"),
    ("formatter_xml06", "parse_xml_action_06"),
    ("formatter_xml65", "parse_xml_action_65"),
)
"""Modules of the package that write a form of tags, and its functions that read this form."""


@pytest.mark.parametrize(("writer", "reader"), TARS_TAGS)
def test_tags_of_ui_tars_are_read_alike(writer: str, reader: str) -> None:
    parser, dialect, rng = load("ui_tars.action_parser"), DIALECTS["ui-tars-2"], random.Random(4)
    write, read = load(f"ui_tars.{writer}").make_assistant_response, getattr(parser, reader)
    with compare("ui-tars", f"ui-tars-2, {writer}, {reader}") as tally:
        while tally.actions < COUNT:
            world: World = rng.choice(["web", "mobile"])
            screen = draw_screen(rng)
            word, arguments = draw_tars(rng, world, (1000, 1000))
            spelt = {
                name: value if isinstance(value, str) else f"<point>{value[0]} {value[1]}</point>"
                for name, value in arguments.items()
            }
            if "content" in spelt and writer.startswith("formatter_xml02"):
                spelt["content"] = f"the {spelt['content']}"  # a text that is JSON as a whole is decoded there
            tags = write({"function": {"name": word, "arguments": spelt}})
            text = f"<gui_think>Tap it.</gui_think>{tags}"
            theirs = [{"action_type": one["function"], "action_inputs": one["parameters"]} for one in read(text)]
            reply = dialect.read(text, world)
            same = (
                len(theirs) == len(reply.actions) == 1
                and reply.reason == "Tap it."
                and is_same_tars(tally, theirs[0], reply.actions[0], dialect, world, screen)
                and (
                    world == "mobile"
                    or runs_same_tars(tally, parser, theirs[0], reply.actions[0], dialect, screen, 1000)
                )
            )
            tally.add(same, text, theirs, reply.actions, reply.failure)


# --------------------------------------------------------------------------------------------------------- Qwen

FACTORED = [name for name, one in DIALECTS.items() if one.resize.factor > 1]


def compare_sizes(tally: Tally, resize: Callable[..., tuple[int, int]]) -> None:
    """Compare a vendor's rule of sizes with the dialects'."""
    rng = random.Random(1)
    for _ in range(COUNT):
        width, height = rng.randint(40, 6000), rng.randint(40, 6000)
        name = rng.choice(FACTORED)
        rule: Resize = DIALECTS[name].resize
        high, wide = resize(height, width, rule.factor, rule.least, rule.most)
        tally.add(rule.fit(width, height) == (wide, high), name, (width, height), (wide, high))


def test_pictures_have_the_size_of_the_processor() -> None:
    module = load("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    with compare("transformers", "sizes") as tally:
        compare_sizes(tally, module.smart_resize)


def test_pictures_have_the_size_of_qwens_utilities(monkeypatch: pytest.MonkeyPatch) -> None:
    unused = ("torchvision", "torchvision.io", "torchvision.transforms")
    module = load_part(monkeypatch, "qwen_vl_utils.vision_process", bare=["qwen_vl_utils"], unused=unused)
    with compare("qwen-vl-utils", "sizes") as tally:
        compare_sizes(tally, module.smart_resize)
        rng, rule = random.Random(2), DIALECTS["qwen2.5-vl"].resize
        for _ in range(COUNT):  # its own limits are those of Qwen2.5-VL
            width, height = rng.randint(40, 6000), rng.randint(40, 6000)
            high, wide = module.smart_resize(height, width, 28)
            tally.add(rule.fit(width, height) == (wide, high), (width, height), (wide, high))


def draw_action(rng: random.Random, dialect: Dialect, world: World) -> GuiAction:
    """Draw an action that the dialect has a word for."""
    row: Verb = rng.choice([one for one in dialect.list_verbs(world) if one.doc])
    given: dict[str, Any] = {"kind": row.kind, **row.sets}
    for name, argument in row.takes.items():
        if argument.endswith("?") and rng.random() < 0.5:
            continue
        if name in ("point", "to"):
            given[name] = draw_point(rng, (999, 999))
        elif name == "text":
            is_key = row.kind == "keys"
            given[name] = rng.choice(["ctrl+c", "enter", "alt+shift+tab"]) if is_key else draw_text(rng)
        elif name == "direction":
            given[name] = rng.choice(["up", "down", "left", "right"])
        else:
            given[name] = float(rng.randint(1, 900))
    if row.signed is not None:
        given["direction"] = rng.choice(row.signed)
    return GuiAction(**given)


def spell_object(rng: random.Random, text: str) -> str:
    """Write a JSON object as it is, or with a slip that is known: single quotes, a comma too many."""
    return rng.choices([text, repr(json.loads(text)), f"{text[:-1]},}}"], (8, 1, 1))[0]


CALLING = ("qwen2.5-vl", "qwen3-vl", "gui-owl", "mai-ui")


@pytest.mark.parametrize("name", CALLING)
def test_tool_calls_are_read_and_written_as_by_qwens_agent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = ("qwen_agent", "qwen_agent.llm", "qwen_agent.tools")
    prompts = "qwen_agent.llm.fncall_prompts.nous_fncall_prompt"
    nous = load_part(monkeypatch, prompts, bare=bare, unused=["soundfile"])
    base = load("qwen_agent.tools.base")
    prompt, dialect, rng = nous.NousFnCallPrompt(), DIALECTS[name], random.Random(5)
    assert isinstance(dialect.syntax, JsonTool)
    tools = {}
    for world in dialect.worlds:
        schema = json.loads(re.findall(r"^\{.*\}$", dialect.render_system(world, (1080, 2400)), re.MULTILINE)[0])
        function = schema["function"]
        members = {"name": function["name"], "parameters": function["parameters"], "call": lambda self, params: ""}
        tools[world] = type("Tool", (base.BaseTool,), members | {"description": function["description"]})()

    def parse(text: str) -> list[tuple[str, str]]:
        said = [nous.Message(nous.ASSISTANT, [nous.ContentItem(text=text)])]
        found = [one.function_call for one in prompt.postprocess_fncall_messages(said)]
        return [(one.name, one.arguments) for one in found if one is not None]

    count = COUNT // len(CALLING)
    with compare("qwen-agent", name, count) as tally:
        while tally.actions < count:
            world = rng.choice(dialect.worlds)
            said = tuple(draw_action(rng, dialect, world) for _ in range(rng.choice([1, 1, 1, 2])))
            text = dialect.write(said, "It is there.", world)
            thought = '<think>\nNot <tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>.\n</think>\n'
            text = thought + text if rng.random() < 0.2 else text
            text = re.sub(r"(?<=<tool_call>\n)\{.*\}", lambda found: spell_object(rng, found[0]), text)
            calls = parse(text)
            for tool, arguments in calls:
                assert tool == tools[world].name
                tools[world]._verify_json_format_args(arguments)  # raises what the schema of the prompt forbids
            again = [
                nous.Message(nous.ASSISTANT, [], function_call=nous.FunctionCall(tool, arguments))
                for tool, arguments in calls
            ]
            parts = prompt.preprocess_fncall_messages(again, [tools[world].function], "en")[-1].content
            theirs = "".join(part.text for part in parts)
            same = dialect.read(text, world).actions == dialect.read(theirs, world).actions == _join(said)
            for _ in said:
                tally.add(same and len(calls) == len(said), text, calls, theirs)


def _join(said: Sequence[GuiAction]) -> tuple[GuiAction, ...]:
    """Return actions with a move of the mouse and a drag from there as one."""
    first, second = said[0], said[-1]
    if len(said) == 2 and first.kind == "hover" and second.kind == "drag":
        return (GuiAction(kind="drag", point=first.point, to=second.to),)
    return tuple(said)
