"""What a good teacher says in the corridor of `collab.testing.corridor`: for tests, of this project and of its users.

    with FakeServer(says=corridor_teacher) as server: ...

It reads nothing but the prompts of `prompts/teacher`, as a model would, and is a pure function of them. It is no
language model, and nothing measured with it is a result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BUTTON = re.compile(r'button "([^"]+)" \[(\d+)\]')
_INPUT = re.compile(r'input "Word".*? \[(\d+)\]')
_QUESTION = re.compile(r"^(\d+)\. ", re.MULTILINE)
_ROOM = re.compile(r"Screen: Room (\d+) of \d+")
_COMPLETE = {"action_type": "status", "goal_status": "complete"}


def corridor_teacher(body: Mapping[str, Any]) -> str:
    """The reply to one chat; the last turn is said back where none of the teacher's prompts is recognised."""
    asked = str(body["messages"][-1]["content"])
    if "Questions about this screen:" in asked:
        return _dumped({"answers": _answers(asked)})
    if '{"instructions": [' in asked:
        return _dumped({"instructions": _instructions(asked)})
    if '{"scores": [' in asked:
        return _dumped({"scores": [{"id": 1, "reason": "It is the step that the task needs now.", "score": 0.9}]})
    if "very clumsy" in asked:
        return _dumped({"reason": "I would rather leave.", "action": {"action_type": "navigate_home"}})
    if "Which single step" in asked:
        return _dumped(_step(asked))
    return asked


def _answers(asked: str) -> list[dict[str, Any]]:
    screen, _, questions = asked.partition("Questions about this screen:")
    title = screen.splitlines()[0].removeprefix("Screen: ")
    told = f'This is "{title}", and it is a part of the corridor.'
    return [{"question": int(number), "answer": told} for number in _QUESTION.findall(questions)]


def _instructions(asked: str) -> list[dict[str, Any]]:
    taps = [
        {
            "instruction": f"Press {label}.",
            "reason": f"The button {label} is on the screen.",
            "action": {"action_type": "click", "index": int(index)},
        }
        for label, index in _BUTTON.findall(asked)
    ]
    shown = {"instruction": "Show me this room.", "reason": "The room is on the screen.", "action": _COMPLETE}
    return [*taps, shown]


def _step(asked: str) -> dict[str, Any]:
    room, goal = _ROOM.search(asked), asked.partition("Task: ")[2].splitlines()[0]
    if room is None:
        return {"reason": "Nothing is left to do.", "action": _COMPLETE}
    field, typed = _INPUT.search(asked), re.search(r'Type "([^"]+)"', goal)
    if field and typed:
        action = {"action_type": "input_text", "index": int(field.group(1)), "text": typed.group(1)}
        return {"reason": "The word belongs into the field.", "action": action}
    doors = re.sub(r".*(?:button|doors) (.*?) (?:and then|in this order).*", r"\1", goal).split(", ")
    wanted = doors[int(room.group(1)) - 1]
    index = dict(_BUTTON.findall(asked))[wanted]
    return {"reason": f"The task wants {wanted} here.", "action": {"action_type": "click", "index": int(index)}}


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
