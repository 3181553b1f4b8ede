"""What a teacher may say: every action is read against the space and the screen, every text against what was asked.

Each check gives the cause of a refusal, in short words without data of the case, or nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from collab.credit.replies import Proposal
from collab.envs.grammar import ActionSpace
from collab.envs.samples import ENDINGS
from collab.envs.text import line
from collab.prompts.parse import read_reply, write_reply
from collab.synth.llm.language import FOREIGN, is_foreign
from collab.types import Action, ElementTarget, Observation, Prompt

NOT_SHOWN = "its element is not in the prompt"
_NUMBERED = re.compile(r"\[\s*\d+\s*\]|\b(?:element|index|id|number)\s*#?\d+\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A checked step."""

    action: Action
    """Canonical on its screen."""
    reply: str
    """As a policy would say it."""
    reason: str


def read_action(said: Proposal, space: ActionSpace, observation: Observation, goal: str) -> Decided | str:
    """A proposal as a step that can be taken on this screen, or why it is none.

    It is read the way a policy's reply is (`read_reply`), so that what is taught can be said.

    Args:
        goal: in whose language the reason should be.
    """
    if is_foreign(said.reason, goal, observation.text):
        return FOREIGN
    written = said.action if isinstance(said.action, str) else json.dumps(said.action, ensure_ascii=False)
    parsed = read_reply(f"Reason: {said.reason}\nAction: {written}", space, observation)
    if parsed.failure is not None:
        return f"the action does not fit: {parsed.failure.kind}"
    if parsed.action is None:
        return "the action does not fit: empty"
    reply = write_reply(said.reason, parsed.action, space)
    return Decided(action=parsed.action, reply=reply, reason=said.reason)


def is_shown(action: Action, observation: Observation, prompt: Prompt) -> bool:
    """Whether what an action aims at can be read in the prompt: of a long screen, a part may have been left out."""
    target = action.target
    return not isinstance(target, ElementTarget) or line(observation.elements[target.index]) in prompt.shared


def unfounded(instruction: str, action: Action, space: ActionSpace, observation: Observation) -> str | None:
    """Why an instruction and its step do not belong together; None when nothing speaks against them.

    What is typed, opened or answered must stand in the instruction or on the screen; an instruction names no numbers.
    """
    if _NUMBERED.search(instruction):
        return "the instruction names an element by number"
    given = f"{instruction}\n{observation.text}".casefold()
    for field in space.spec(action.type).fields:
        value = action.get(field.name)
        free = field.kind == "text" and not field.choices
        if free and isinstance(value, str) and " ".join(value.split()).casefold() not in given:
            return "the step holds a text that nobody gave"
    return None


def is_completion(action: Action, space: ActionSpace) -> bool:
    """Whether the action says that all is done, without an answer."""
    words = [value for _, value in action.arguments if isinstance(value, str)]
    return action.type in ENDINGS and (not space.spec(action.type).fields or words in ([], ["complete"]))


def is_answer(action: Action) -> bool:
    """Whether the action answers a question: `answer` on a phone, `finish` with an answer on the web."""
    return action.type == "answer" or (action.type == "finish" and action.get("answer") is not None)
