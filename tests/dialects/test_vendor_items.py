"""Items of the vendors' own types, one kind of action after another, are read as what they say.

`make vendors` fetches the packages and runs these tests; without them they are skipped.
"""

from __future__ import annotations

import json
import random
from typing import Any, TypeAlias

import pytest

from collab.dialects.actions import GuiAction
from collab.dialects.computer_use import NOT_DONE
from collab.dialects.registry import DIALECTS
from collab.models.base import Request
from collab.models.computer_use import VENDORS
from collab.types import Prompt, Sampling
from tests.dialects.vendors import COUNT, compare, draw_point, draw_text, load

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

Drawn: TypeAlias = tuple[Any, GuiAction]
"""An object of a vendor's type, and what it says."""
SIDES = ("up", "down", "left", "right")
CHORDS = (["CTRL", "A"], ["ENTER"], ["CTRL", "SHIFT", "T"], ["CTRL", "+"], ["SPACE"], ["ALT", "ARROWLEFT"])


def dump(rng: random.Random, item: Any) -> Any:
    """Return an item as JSON, with or without the fields that are None."""
    return item.model_dump(mode="json", by_alias=rng.random() < 0.5, exclude_none=rng.random() < 0.5)


def read_keys(keys: list[str]) -> str:
    return "+".join("plus" if key == "+" else key.lower() for key in keys)


# ------------------------------------------------------------------------------------------------------- OpenAI


def draw_openai(rng: random.Random, types: Any) -> Drawn:
    """Draw an action of OpenAI's types."""
    x, y = point = draw_point(rng, (2047, 2047))
    to, held = draw_point(rng, (2047, 2047)), rng.choice([None, [], ["SHIFT"], ["CTRL", "ALT"]])
    place: dict[str, Any] = {"x": x, "y": y, "keys": held}
    hold = read_keys(held) if held else None
    kind = rng.choice(["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"])
    if kind == "click":
        button = rng.choice(["left", "right", "wheel", "back", "forward"])
        item = types.Click(type="click", button=button, **place)
        if button in ("back", "forward"):
            return item, GuiAction(kind=button)
        names = {"left": "click", "right": "right_click", "wheel": "middle_click"}
        return item, GuiAction(kind=names[button], point=point, hold=hold)
    if kind == "double_click":
        return types.DoubleClick(type=kind, **place), GuiAction(kind=kind, point=point, hold=hold)
    if kind == "drag":
        between = [draw_point(rng, (2047, 2047)) for _ in range(rng.randint(0, 3))]
        path = [types.DragPath(x=one[0], y=one[1]) for one in (point, *between, to)]
        return types.Drag(type=kind, path=path, keys=held), GuiAction(kind=kind, point=point, to=to, hold=hold)
    if kind == "keypress":
        keys = rng.choice(CHORDS)
        return types.Keypress(type=kind, keys=keys), GuiAction(kind="keys", text=read_keys(keys))
    if kind == "move":
        return types.Move(type=kind, **place), GuiAction(kind="hover", point=point, hold=hold)
    if kind == "scroll":
        size, direction = rng.randint(1, 3000), rng.choice(SIDES)
        distance = size if direction in ("down", "right") else -size
        across = direction in ("left", "right")
        # In two directions at once, the longer way counts.
        other = rng.choice([0, 0, rng.randint(1 - size, size - 1)])
        ways = {"scroll_x": distance, "scroll_y": other} if across else {"scroll_x": other, "scroll_y": distance}
        said = GuiAction(kind=kind, point=point, direction=direction, amount=float(size), hold=hold)
        return types.Scroll(type=kind, **ways, **place), said
    if kind == "type":
        text = draw_text(rng)
        return types.Type(type=kind, text=text), GuiAction(kind=kind, text=text)
    return (types.Wait if kind == "wait" else types.Screenshot)(type=kind), GuiAction(kind=kind)


def test_items_of_openai_are_read_as_they_say() -> None:
    types, actions = load("openai.types.responses"), load("openai.types.responses.computer_action")
    dialect, rng = DIALECTS["openai-computer"], random.Random(6)
    with compare("openai", dialect.name) as tally:
        while tally.actions < COUNT:
            drawn = [draw_openai(rng, actions) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
            head = {"id": "item", "call_id": "call", "type": "computer_call", "status": "completed"}
            body = {"action": drawn[0][0].model_dump()} if len(drawn) == 1 else {}
            body = body if rng.random() < 0.5 and body else {"actions": [item.model_dump() for item, _ in drawn]}
            checks = rng.choice([[], [{"id": "check", "code": "malicious_instructions", "message": "Sure?"}]])
            call = types.ResponseComputerToolCall.model_validate(head | {"pending_safety_checks": checks} | body)
            summary = {"type": "summary_text", "text": "First look."}
            thought = types.ResponseReasoningItem.model_validate({"id": "r", "type": "reasoning", "summary": [summary]})
            output = rng.choice([[call], [thought, call]])
            reply = dialect.read(json.dumps({"output": [dump(rng, item) for item in output]}))
            # What the dialect writes has the vendor's type.
            written = json.loads(dialect.write(reply.actions))[-1] if reply.actions else {}
            checked = types.ResponseComputerToolCall.model_validate(written)
            again = dialect.read(json.dumps([dump(rng, checked)]))
            said = tuple(action for _, action in drawn)
            for _ in drawn:
                tally.add(reply.actions == again.actions == said, output, reply.actions, reply.failure, written)


def test_an_answer_of_openai_leaves_out_its_reasoning() -> None:
    types, dialect, rng = load("openai.types.responses"), DIALECTS["openai-computer"], random.Random(7)
    for _ in range(100):
        text = {"type": "output_text", "text": draw_text(rng), "annotations": []}
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        thought = {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "It is over."}]}
        output = [
            types.ResponseReasoningItem.model_validate(thought),
            types.ResponseOutputMessage.model_validate(message),
        ]
        response = types.Response.model_construct(output=output)
        read = dialect.read(json.dumps({"output": [dump(rng, item) for item in output]}))
        assert read.actions == (GuiAction(kind="done", text=response.output_text),)


# ----------------------------------------------------------------------------------------------------- Anthropic


def draw_anthropic(rng: random.Random) -> tuple[str, dict[str, Any], GuiAction]:
    """Draw the name of an action of Anthropic, its input, and what it says."""
    point, to = draw_point(rng, (1567, 1567)), draw_point(rng, (1567, 1567))
    held = rng.choice([{}, {}, {"text": "shift"}, {"text": "ctrl+alt"}])
    hold = held.get("text")
    clicks = {
        **{"left_click": "click", "right_click": "right_click", "middle_click": "middle_click"},
        **{"double_click": "double_click", "triple_click": "triple_click"},
    }
    plain = {
        **{"left_mouse_down": "mouse_down", "left_mouse_up": "mouse_up"},
        **{"screenshot": "screenshot", "cursor_position": "screenshot", "zoom": "zoom"},
    }
    name = rng.choice([*clicks, *plain, "left_click_drag", "mouse_move", "key", "hold_key", "type", "scroll", "wait"])
    if name in clicks:
        aimed = rng.random() < 0.8
        place = {"coordinate": [*point]} if aimed else {}
        return name, place | held, GuiAction(kind=clicks[name], point=point if aimed else None, hold=hold)
    if name in plain:
        return name, {"region": [*point, *to]} if name == "zoom" else {}, GuiAction(kind=plain[name])
    if name == "left_click_drag":
        ends = {"start_coordinate": [*point], "coordinate": [*to]}
        return name, ends | held, GuiAction(kind="drag", point=point, to=to, hold=hold)
    if name == "mouse_move":
        return name, {"coordinate": [*point]}, GuiAction(kind="hover", point=point)
    if name == "key":
        keys = rng.choice(["ctrl+s", "Return", "alt+Tab", "Page_Down", "ctrl++"])
        times = rng.choice([{}, {}, {"repeat": rng.randint(1, 4)}])
        text = "ctrl+plus" if keys == "ctrl++" else keys.lower()
        return name, {"text": keys} | times, GuiAction(kind="keys", text=text, amount=times.get("repeat"))
    if name == "hold_key":
        seconds = rng.randint(1, 9)
        said = GuiAction(kind="hold_keys", text="shift", seconds=float(seconds))
        return name, {"text": "shift", "duration": seconds}, said
    if name == "type":
        text = draw_text(rng)
        return name, {"text": text}, GuiAction(kind="type", text=text)
    if name == "wait":
        seconds = rng.randint(1, 60)
        return name, {"duration": seconds}, GuiAction(kind="wait", seconds=float(seconds))
    direction, clicked, aimed = rng.choice(SIDES), rng.randint(1, 20), rng.random() < 0.8
    place = {"coordinate": [*point]} if aimed else {}
    where = point if aimed else None
    scroll = GuiAction(kind="scroll", point=where, direction=direction, amount=float(clicked), hold=hold)
    return name, {"scroll_direction": direction, "scroll_amount": clicked} | place | held, scroll


@pytest.mark.parametrize("form", ["single tool", "toolset"])
def test_blocks_of_anthropic_are_read_as_they_say(form: str) -> None:
    types, dialect, rng = load("anthropic.types.beta"), DIALECTS["anthropic-computer"], random.Random(8)
    with compare("anthropic", f"{dialect.name}, {form}") as tally:
        while tally.actions < COUNT:
            blocks, said = [], []
            for _ in range(rng.choice([1, 1, 1, 2])):
                name, given, meant = draw_anthropic(rng)
                said.append(meant)
                if form == "toolset":  # each action has a type of its own, which checks the input
                    kind = "".join(part.title() for part in name.split("_"))
                    block = getattr(types, f"BetaComputer{kind}ToolUseBlock")
                    head = {"id": "toolu", "name": name, "type": "tool_use", "toolset_name": "computer"}
                    blocks.append(block.model_validate(head | {"input": given}))
                    continue
                head = {"id": "toolu", "name": "computer", "type": "tool_use", "input": {"action": name, **given}}
                blocks.append(types.BetaToolUseBlock.model_validate(head))
            words = types.BetaTextBlock.model_validate({"type": "text", "text": "Next."})
            content = [dump(rng, block) for block in (words, *blocks)]
            reply = dialect.read(json.dumps({"content": content}))
            written = json.loads(dialect.write(reply.actions))[-len(said) :] if reply.actions else []
            checked = [types.BetaToolUseBlock.model_validate(block) for block in written]
            again = dialect.read(json.dumps([dump(rng, block) for block in checked]))
            same = reply.reason == "Next." and reply.actions == again.actions == tuple(said)
            for _ in said:
                tally.add(same, content, reply.actions, reply.failure, written)


# -------------------------------------------------------------------------------------------------------- Gemini


def draw_gemini(rng: random.Random) -> tuple[str, dict[str, Any] | None, GuiAction]:
    """Draw the name of a function of Gemini's computer use, its arguments, and what it says."""
    number = rng.choice([int, float])  # JSON has one kind of number
    point, to = draw_point(rng, (999, 999)), draw_point(rng, (999, 999))
    place = {"x": number(point[0]), "y": number(point[1])}
    pointed = {
        **{"click_at": "click", "click": "click", "double_click": "double_click", "triple_click": "triple_click"},
        **{"middle_click": "middle_click", "right_click": "right_click", "hover_at": "hover", "move": "hover"},
    }
    plain = {
        **{"go_back": "back", "go_forward": "forward", "open_web_browser": "screenshot"},
        **{"take_screenshot": "screenshot", "mouse_down": "mouse_down", "mouse_up": "mouse_up"},
    }
    others = ("type_text_at", "type", "scroll_document", "scroll_at", "scroll", "drag_and_drop", "key_combination")
    held = {"key_down": "hold_keys", "key_up": "release_keys"}
    keyed = ("hotkey", "press_key", *held)
    name = rng.choice([*pointed, *plain, *others, *keyed, "wait_5_seconds", "wait", "navigate"])
    if name in pointed:
        return name, place, GuiAction(kind=pointed[name], point=point)
    if name in plain:
        return name, rng.choice([None, {}]), GuiAction(kind=plain[name])
    if name == "type_text_at":
        options = {one: rng.random() < 0.5 for one in ("press_enter", "clear_before_typing") if rng.random() < 0.5}
        enter, clear = options.get("press_enter", True), options.get("clear_before_typing", True)
        text = draw_text(rng)
        return (
            name,
            place | {"text": text} | options,
            GuiAction(kind="type", point=point, text=text, enter=enter, clear=clear),
        )
    if name == "type":
        text = draw_text(rng)
        return name, {"text": text}, GuiAction(kind="type", text=text)
    if name == "scroll_document":
        direction = rng.choice(SIDES)
        return name, {"direction": direction}, GuiAction(kind="scroll", direction=direction)
    if name in ("scroll_at", "scroll"):
        direction, size = rng.choice(SIDES), rng.randint(1, 999)
        said = GuiAction(kind="scroll", point=point, direction=direction, amount=float(size))
        return name, place | {"direction": direction, "magnitude": number(size)}, said
    if name == "drag_and_drop":
        ends = rng.choice(["destination", "end"])
        given = place | {f"{ends}_x": number(to[0]), f"{ends}_y": number(to[1])}
        return name, given, GuiAction(kind="drag", point=point, to=to)
    if name in ("key_combination", "hotkey", "press_key"):
        keys = rng.choice(["Control+A", "Enter", "control+shift+t", "Control++"])
        said = GuiAction(kind="keys", text="control+plus" if keys == "Control++" else keys.lower())
        return name, {"key" if name == "press_key" else "keys": keys}, said
    if name in held:
        return name, {"key": "Shift"}, GuiAction(kind=held[name], text="shift")
    if name == "navigate":
        return name, {"url": "https://example.org/a?b=c"}, GuiAction(kind="open_url", text="https://example.org/a?b=c")
    if name == "wait_5_seconds":
        return name, rng.choice([None, {}]), GuiAction(kind="wait", seconds=5.0)
    seconds = rng.randint(1, 30)
    return name, {"seconds": number(seconds)}, GuiAction(kind="wait", seconds=float(seconds))


def test_parts_of_gemini_are_read_as_they_say() -> None:
    types, dialect, rng = load("google.genai.types"), DIALECTS["gemini-computer"], random.Random(9)
    with compare("google-genai", dialect.name) as tally:
        while tally.actions < COUNT:
            drawn = [draw_gemini(rng) for _ in range(rng.choice([1, 1, 1, 2]))]
            consent = {"safety_decision": {"decision": "regular"}}
            calls = [
                types.Part(
                    function_call=types.FunctionCall(
                        name=name, args=given if given is None or rng.random() < 0.8 else given | consent
                    )
                )
                for name, given, _ in drawn
            ]
            content = types.Content(role="model", parts=[types.Part(text="Next."), *calls])
            response = types.GenerateContentResponse(candidates=[types.Candidate(content=content)])
            reply = dialect.read(json.dumps(dump(rng, response)))
            written = json.loads(dialect.write(reply.actions)) if reply.actions else []
            checked = types.Content(role="model", parts=[types.Part.model_validate(part) for part in written])
            again = dialect.read(json.dumps(dump(rng, checked)))
            said = tuple(action for _, _, action in drawn)
            same = reply.reason == "Next." and reply.actions == again.actions == said
            for _ in drawn:
                tally.add(same, content, reply.actions, reply.failure, written)


def test_an_answer_of_gemini_leaves_out_its_thoughts() -> None:
    types, dialect, rng = load("google.genai.types"), DIALECTS["gemini-computer"], random.Random(10)
    for _ in range(100):
        parts = [types.Part(text="It is over.", thought=True), types.Part(text=draw_text(rng))]
        content = types.Content(role="model", parts=parts)
        response = types.GenerateContentResponse(candidates=[types.Candidate(content=content)])
        read = dialect.read(json.dumps(dump(rng, response)))
        assert read.actions == (GuiAction(kind="done", text=response.text),)


# ------------------------------------------------------------------------------------------------------ requests


def test_every_action_that_is_read_is_drawn() -> None:
    """Those that end with words alone have no item."""
    rng = random.Random(11)
    drawn = {
        "anthropic": {draw_anthropic(rng)[0] for _ in range(1000)},
        "gemini": {draw_gemini(rng)[0] for _ in range(1000)},
    }
    for vendor, names in drawn.items():
        assert names == {row.says for row in DIALECTS[f"{vendor}-computer"].verbs} - {"text"}


def test_actions_are_excluded_as_the_vendors_types_say() -> None:
    prompt = Prompt(system="", shared="Click it.", segments=(), layout="1")
    request = Request(prompt=prompt, sampling=Sampling(), seed=0)
    tools = {
        vendor: VENDORS[vendor].build(request, "seer", tool, (320, 240))["tools"][0]
        for vendor, tool in (("anthropic", "computer_toolset_20260801"), ("gemini", "ENVIRONMENT_BROWSER"))
    }
    gemini = load("google.genai.types").Tool.model_validate(tools["gemini"])  # refuses names that it does not know
    assert gemini.computer_use.excluded_predefined_functions == list(NOT_DONE["gemini"])
    anthropic = load("anthropic.types.beta").BetaComputerToolset20260801.model_validate(tools["anthropic"])
    disabled = {name for name, one in anthropic.configs if one is not None and one.enabled is False}
    assert disabled == set(NOT_DONE["anthropic"])
