"""Ten thousand damaged replies: none raises, and each gives an action or says why there is none."""

import json
import random
import re
from dataclasses import replace
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE, WEB
from collab.envs.random_actions import draw_action
from collab.prompts.parse import read_reply, write_reply
from collab.types import Action, Box, Element, Observation, ParseFailure
from tests.properties import examples

BOTH = pytest.mark.parametrize("space", [MOBILE, WEB], ids=["mobile", "web"])
SCREEN = Observation(
    space="mobile",
    title="Contacts",
    text="",
    elements=tuple(
        Element(
            index=index,
            role="button",
            label=f"Button {index}",
            box=Box(0, 100 * index, 1080, 100 * index + 100),
            flags=("surface",) if index == 3 else (),
        )
        for index in range(6)
    ),
)
REASONS = (
    "The button opens the list.",
    "",
    "First I tap {it}, then I type.\nThe action: is clear.",
    "Ich tippe auf „Speichern“ 😀",
    "Action: none of them fits (yet)",
)
PIECES = (
    *("NaN", "Infinity", "-Infinity", "null", "None", "1e999", "9" * 400, "0x" + "f" * 5000, "-0", "true"),
    *("\ud800", "\x00", "\u2028", "\\", '\\"', "'", '"', "```json", "```", "Action:", "action :", "**Action:**"),
    *("{", "}", "[[[[", "((((", "))", ",", ":", '{"action_type":', "click(", "finish()", "<|im_end|>", "=", "*"),
    *("{" * 300, "[" * 3000, "(" * 3000, "a" * 5000, " " * 5000, "action:" * 700, "\n" * 2000, '"index": 99999'),
)


def verdict(text: str, space) -> str:
    """Read a damaged reply and check the promise; what came of it."""
    said = read_reply(text, space, SCREEN)
    assert isinstance(said.reason, str)
    if said.action is not None:
        assert said.failure is None
        assert isinstance(said.action, Action)
        assert space.check(said.action, SCREEN) is None
        assert space.canonical(said.action, SCREEN) == said.action
        assert space.parse(space.format(said.action)) == said.action
        space.format(said.action).encode()
        return "action"
    assert isinstance(said.failure, ParseFailure)
    assert said.failure.detail
    assert "\n" not in said.failure.detail
    said.failure.detail.encode()
    return said.failure.kind


def damaged(text: str, rng: random.Random) -> str:
    """A reply after a few accidents."""
    for _ in range(rng.randint(1, 4)):
        cut, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        accident = rng.randrange(7)
        if accident == 0:
            text = text[:cut] + text[end:]
        elif accident == 1:
            text = text[:cut] + rng.choice(PIECES) + text[cut:]
        elif accident == 2:
            text = text[:cut] + rng.choice(PIECES) + text[end:]
        elif accident == 3:
            text = text[:end] + text[cut:]
        elif accident == 4:
            text = text[:cut]
        elif accident == 5:
            letter = chr(rng.choice((rng.randrange(128), rng.randrange(0x3000), 0xD800, 0x1F600)))
            text = text[:cut] + letter + text[cut + 1 :]
        else:
            text = re.sub(r"\d+|true|up|complete", lambda _: rng.choice(PIECES[:10]), text, count=1)
    return text


@pytest.mark.parametrize("space", [MOBILE, pytest.param(WEB, marks=pytest.mark.slow)], ids=["mobile", "web"])
def test_ten_thousand_damaged_replies(space):
    rng = random.Random(7)
    kinds = {}
    for _ in range(5000):
        action = draw_action(space, SCREEN, rng)
        text = damaged(write_reply(rng.choice(REASONS), action, space), rng)
        kind = verdict(text, space)
        kinds[kind] = kinds.get(kind, 0) + 1
    assert set(kinds) >= {"action", "no_action", "malformed", "unknown_type", "bad_field", "missing_field"}
    assert kinds["action"] > 500
    assert sum(kinds.values()) - kinds["action"] > 500


@BOTH
@settings(deadline=None, max_examples=examples(300))
@given(text=st.text(st.characters(), max_size=60))
def test_any_text(space, text):
    verdict(text, space)


@BOTH
@settings(deadline=None, max_examples=examples(300))
@given(reason=st.text(max_size=60), seed=st.integers(0, 10**6))
def test_what_is_written_is_read_back(space, reason, seed):
    action = draw_action(space, SCREEN, random.Random(seed))
    said = read_reply(write_reply(reason, action, space), space, SCREEN)
    assert said.action == space.canonical(action, SCREEN)
    assert said.failure is None


MEGABYTE = 1_000_000
LONG = [
    "a" * MEGABYTE,
    " " * MEGABYTE + "x",
    "\n" * MEGABYTE + "x",
    "*" * MEGABYTE,
    "{" * MEGABYTE,
    "[" * MEGABYTE,
    "(" * MEGABYTE,
    "click(" * (MEGABYTE // 6),
    "f(" * (MEGABYTE // 2),
    "a (" * (MEGABYTE // 3),
    "Action:" * (MEGABYTE // 7),
    "Action:\n" * (MEGABYTE // 8),
    "action" + " " * MEGABYTE,
    "action" + "*" * MEGABYTE,
    "action *" * (MEGABYTE // 8),
    "reason" + " " * MEGABYTE,
    "```" * (MEGABYTE // 3),
    "```\n" * (MEGABYTE // 4),
    "``` " + " " * MEGABYTE + "x",
    '{"action_type": "wait"}' * (MEGABYTE // 23),
    '{"a":' * (MEGABYTE // 5),
    '{"action_type": "answer", "text": "' + "a" * MEGABYTE + '"}',
    '{"action_type": "answer", "text": "' + "a" * MEGABYTE,
    '{"action_type": "click", "index": ' + "9" * MEGABYTE + "}",
    "Action: click(id=" + "1+" * (MEGABYTE // 2) + "1)",
    "Action: click(id=" + "9" * MEGABYTE + ")",
    "Action: type_string(id=1, content='" + "\\" * MEGABYTE + "')",
    "Action: finish('" + "a" * MEGABYTE + "')",
    "click(id=1" + ", 1" * (MEGABYTE // 3) + ")",
]


@pytest.mark.variations
@BOTH
@pytest.mark.parametrize("size", [99_999, MEGABYTE])
@pytest.mark.parametrize("text", LONG, ids=[repr(text[:24]) for text in LONG])
def test_long_replies_are_read_in_time(space, text, size):
    start = perf_counter()
    verdict(text[:size], space)
    assert perf_counter() - start < 5


def test_a_reply_beyond_reason_is_not_read():
    assert reply("a" * 100_001) == ("malformed", "the reply has 100001 characters, at most 100000 are read")


@BOTH
@pytest.mark.parametrize("depth", [10, 100, 900, 990, 1000, 5000, 100_000])
def test_deep_nesting(space, depth):
    nest = "[" * depth + "]" * depth
    for text in (
        f'Action: {{"action_type": "click", "index": {nest}}}',
        f"Action: click(id={nest})",
        '{"a":' * depth + "1" + "}" * depth,
        "click(" * depth + ")" * depth,
    ):
        assert verdict(text, space) != "action"


def reply(text: str, space=MOBILE):
    said = read_reply(text, space, SCREEN)
    return said.failure.kind if said.failure else None, said.failure.detail if said.failure else said.action


def test_the_kinds_of_failure_of_a_reply():
    assert reply("  \n") == ("empty", "the reply is empty")
    assert reply("I would tap it.") == ("no_action", "no action found, expected a JSON object")
    assert reply("I would tap it.", WEB) == ("no_action", "no action found, expected a call such as click(id=7)")
    assert reply('Action: {"action_type": "click", "index": }') == (
        "malformed",
        """not JSON: '{"action_type": "click", "index": }' (JSONDecodeError)""",
    )
    assert reply("Action: click(id=)", WEB) == ("malformed", "not a call: 'click(id=)' (SyntaxError)")
    assert reply('Action: {"action_type": "click", "index": 6}') == (
        "no_such_element",
        "index 6, the screen has 0 to 5",
    )
    assert reply("Action: click(6)", WEB) == ("no_such_element", "id 6, the screen has 0 to 5")
    assert reply("Action: jump(1)", WEB)[0] == "unknown_type"
    assert reply('Action: {"action_type": "scroll"}') == ("missing_field", "scroll needs direction")


@pytest.mark.parametrize(
    "text",
    [
        'Reason: it is there\nAction: {"action_type": "click", "index": 2}',
        '**Reason:** it is there\n**Action:** {"action_type": "click", "index": 2}',
        'it is there\n```json\n{"action_type": "click", "index": 2}\n```',
        'Action: ```{"action_type": "click", "index": 2}``` and that is all {of} it',
        'Thought: {"a": 1} it is there\nAction: {"action_type": "click", "index": 2}',
        '{"action_type": "click", "index": 2}',
        'Action: {"action_type": "wait"}\nNo, wait.\nAction: {"action_type": "click", "index": 2}',
        'First {"action_type": "wait"}, then {"action_type": "click", "index": 2}',
        'Action: {"action_type": "click", "x": 540, "y": 250}',
        '- Action : {"index": 2, "action_type": "click"}',
    ],
)
def test_the_reader_is_generous_around_the_action(text):
    assert reply(text) == (None, MOBILE.make("click", index=2))


def test_a_typed_text_may_look_like_a_marker():
    action = MOBILE.make("input_text", index=1, text='Action: {"action_type": "wait"}\nAction: stop')
    assert read_reply(write_reply("r", action, MOBILE), MOBILE, SCREEN).action == action
    call = WEB.make("type_string", id=1, content="click(id=2)\nAction: finish()")
    assert read_reply(write_reply("r", call, WEB), WEB, SCREEN).action == call
    assert json.loads(MOBILE.format(action))["text"] == action["text"]


CALL = "Action: click(id=1)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"<think>I could write\n{CALL}", "reasoning"),
        (f"<think>\n{CALL}\nbut then", "reasoning"),
        ("<THINK> click(id=1) or click(id=2)", "reasoning"),
        (f"<think>a</think>\n<think>\n{CALL}", "reasoning"),
        (f"Let me see.\n<think>\n{CALL}", "reasoning"),
        (f"Reason: <thinking>Perhaps\n{CALL}", "reasoning"),
        (f"[THINK]{CALL}", "reasoning"),
        (f"<|channel|>analysis<|message|>Then\n{CALL}", "reasoning"),
        (f"<think>Perhaps\n{CALL}\n</think>\n", "reasoning"),
        (f"I may do this:\n{CALL}\n</think>", "reasoning"),
        (f"<think>{CALL}</think> I cannot do that.", "no_action"),
        (f"{CALL}\n</think>I cannot do that.", "no_action"),
        (f"<think>{CALL}</think>click(id=2)", "click(id=2)"),
        (f"{CALL}\n</think>Action: click(id=2)", "click(id=2)"),
        (f"<think>{CALL}</think>\nIt <think>s so.\nAction: click(id=2)", "click(id=2)"),
        ("Action: type_string(id=4, content='<think>')", "type_string(id=4, content='<think>')"),
        ("Action: type_string(id=4, content='a</think>')", "type_string(id=4, content='a</think>')"),
    ],
)
def test_what_is_considered_in_a_thought_is_no_action(text: str, expected: str) -> None:
    field = replace(SCREEN.elements[4], role="text field")
    screen = replace(SCREEN, space="web", elements=(*SCREEN.elements[:4], field, SCREEN.elements[5]))
    parsed = read_reply(text, WEB, screen)
    if parsed.failure is None:
        wanted = read_reply(f"Action: {expected}", WEB, screen).action
        assert (parsed.action, wanted) == (wanted, parsed.action)
        assert wanted is not None
    else:
        assert parsed.failure.kind == expected, parsed.failure


def test_thoughts_without_end_take_no_time() -> None:
    started = perf_counter()
    for piece in ("<think>\n", "</think>", "<think>\n</think>", "</think>click(", "<think></thinking>\n"):
        read_reply(piece * (99_000 // len(piece)), WEB, SCREEN)
    assert perf_counter() - started < 5
