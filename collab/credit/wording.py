"""What a taught policy says: first the element as the screen shows it, then the action.

    Reason: button "Save" [7]
    Action: {"action_type": "click", "index": 7}

A reply that names its element by copying the element's line goes on to the index by copying, too; that is what lets
models of a few million parameters point. An action without an element is named in words.
"""

from __future__ import annotations

from collab.envs.grammar import ActionSpace
from collab.envs.text import line
from collab.prompts.parse import read_reply, write_reply
from collab.types import Action, ElementTarget, Observation


def reason(action: Action, observation: Observation, space: ActionSpace) -> str:
    """The line of the element that the action aims at, or the action in words where it aims at none on the screen."""
    target = action.target
    if isinstance(target, ElementTarget) and target.index < len(observation.elements):
        return line(observation.elements[target.index])
    return space.describe(action, observation)


def reply(action: Action, observation: Observation, space: ActionSpace, because: str | None = None) -> str:
    """The whole reply; `because` stands in for the reason where something else is worth naming."""
    return write_reply(reason(action, observation, space) if because is None else because, action, space)


def said_reason(text: str, observation: Observation, space: ActionSpace) -> str:
    """The reason of a reply as it will be read from it, and so stand in the history."""
    return read_reply(text, space, observation).reason
