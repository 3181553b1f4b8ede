"""Numbers without quotes: texts keep their spelling, indices and points are numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collab.envs.grammar import MOBILE, WEB, ActionSpace
from collab.prompts.parse import read_reply
from collab.types import Action, Observation, ParseFailure, Point

SPELLED = ("21.00", "007", "1e5", "+1", "-0", "-007.50", "0.50", ".5", "5.", "1E+5", "12345678901234567890")


@pytest.mark.parametrize("number", SPELLED)
@pytest.mark.parametrize("syntax", ["json", "call"])
@pytest.mark.parametrize(
    ("space", "type", "field"),
    [
        (MOBILE, "answer", "text"),
        (MOBILE, "input_text", "text"),
        (MOBILE, "open_app", "app_name"),
        (WEB, "finish", "answer"),
        (WEB, "type_string", "content"),
        (WEB, "user_input", "message"),
    ],
)
def test_a_number_without_quotes_keeps_its_spelling_as_a_text(
    space: ActionSpace, type: str, field: str, syntax: str, number: str
) -> None:
    space = replace(space, syntax=syntax)  # type: ignore[arg-type]
    target = {space.index_field: 0} if space.spec(type).target == "required" else {}
    parts = {**{name: str(value) for name, value in target.items()}, field: number}
    if syntax == "json":
        text = "".join(f', "{name}": {value}' for name, value in parts.items())
        text = f'{{"action_type": "{type}"{text}}}'
    else:
        text = f"{type}({', '.join(f'{name}={value}' for name, value in parts.items())})"
    action = space.parse(text)
    assert isinstance(action, Action), action
    assert action[field] == number
    assert space.parse(space.format(action)) == action


def test_numbers_inside_texts_stay_texts_and_indices_stay_numbers() -> None:
    assert WEB.parse('finish(answer="it is 007, 1)")') == WEB.make("finish", answer="it is 007, 1)")
    assert WEB.parse("type_string(id=007, content=007)") == WEB.make("type_string", id=7, content="007")
    assert MOBILE.parse('{"action_type": "click", "index": 7.0}') == MOBILE.make("click", index=7)
    point = MOBILE.parse('{"action_type": "click", "x": 5, "y": 7.50}')
    assert isinstance(point, Action)
    assert repr(point.target) == repr(Point(x=5, y=7.5))
    assert {type(part) for part in (point.target.x, point.target.y)} == {int, float}  # type: ignore[union-attr]


def test_a_long_reply_full_of_quotes_is_read_in_no_time() -> None:
    assert isinstance(WEB.parse('finish(answer="' + '\\"' * 200_000), ParseFailure)
    assert isinstance(WEB.parse('finish(answer="' + '\\"' * 3_000), ParseFailure)


@pytest.mark.parametrize("number", SPELLED)
def test_a_reply_may_go_on_after_a_number_without_quotes(number: str) -> None:
    screen = Observation(space="mobile", title="", elements=(), text="")
    reply = f'Reason: 1\nAction: {{"action_type": "answer", "text": {number}}}\nThat is all.'
    read = read_reply(reply, MOBILE, screen)
    assert read.action == MOBILE.make("answer", text=number), read.failure
    assert read_reply(f"Action: finish({number}).\n", WEB, screen).action == WEB.make("finish", answer=number)
