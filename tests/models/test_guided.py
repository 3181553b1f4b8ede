"""What keeps to the pattern is read without complaint about its form, and what agents write keeps to it."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE, WEB, ActionSpace
from collab.envs.random_actions import draw_action
from collab.library import Library
from collab.models.completion import reply_pattern
from collab.prompts.parse import read_reply, write_reply
from collab.prompts.render import Template, read_templates
from collab.types import Element, Observation
from tests.properties import examples

TEMPLATE = Template("default", read_templates(Library().find_path("prompts", "default")))
SPACES = pytest.mark.parametrize("space", [MOBILE, WEB], ids=lambda space: space.name)
WORDS = ("milk", 'a "quote"', "it's", "back\\slash", "two\nlines", "naïve 😀 שלום", "{[(", "")


def screen(space: ActionSpace) -> Observation:
    elements = tuple(Element(index=number, role="button", label=f"b{number}") for number in range(40))
    return Observation(space=space.name, title="", elements=elements, text="")


def pattern_of(space: ActionSpace) -> str:
    pattern = reply_pattern(TEMPLATE.render_system(space))
    assert pattern is not None
    return pattern


@SPACES
@given(seed=st.integers())
def test_what_an_agent_writes_keeps_to_the_pattern(space: ActionSpace, seed: int) -> None:
    action = draw_action(space, screen(space), random.Random(seed), words=WORDS)
    reply = write_reply("It is the next step.", action, space)
    assert re.fullmatch(pattern_of(space), reply), reply
    assert read_reply(reply, space, screen(space)).action is not None


@SPACES
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_what_keeps_to_the_pattern_is_well_formed(space: ActionSpace, data: st.DataObject) -> None:
    """Which fields there are is not the pattern's business; that it is one action of a known type is."""
    reply = data.draw(st.from_regex(re.compile(pattern_of(space)), fullmatch=True))
    parsed = read_reply(reply, space, screen(space))
    if parsed.failure is not None and parsed.failure.kind == "malformed":
        assert "SyntaxError" in parsed.failure.detail, "only a repeated name or a keyword of Python"
        assert space is WEB
    elif parsed.failure is not None:
        assert parsed.failure.kind in ("bad_field", "missing_field", "no_such_element")


@SPACES
def test_the_pattern_knows_the_actions_that_were_told(space: ActionSpace) -> None:
    pattern = pattern_of(space)
    other = WEB if space is MOBILE else MOBILE
    for wrong in (
        'Reason: x\nAction: {"action_type": "dance"}',
        "Reason: x\nAction: dance()",
        'Action: {"action_type": "wait"}',
        'Reason: x\nAction: {"action_type": "wait"',
        'Reason: two\nlines\nAction: {"action_type": "wait"}',
        write_reply("x", draw_action(other, screen(other), random.Random(1)), other),
    ):
        assert not re.fullmatch(pattern, wrong)


def test_without_a_list_of_actions_there_is_no_pattern() -> None:
    assert reply_pattern("") is None
    assert reply_pattern("Say hello (politely).") is None


@SPACES
def test_the_pattern_is_plain_enough_for_grammar_engines(space: ActionSpace) -> None:
    assert not re.search(r"\(\?|\\[bBdDwWsSAZ1-9]|[*+?]\+", pattern_of(space).replace("\\\\", ""))
