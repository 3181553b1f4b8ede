"""The questions of the basic level (CollabUIAgents, table 9), each in several phrasings of our own.

    about a screen     what it is for, what it aims at, a summary
    about an element   its function, the information it gives, what tapping it does, the action that goes with it

Elements are named in questions as the screen shows them, with their index.
"""

from __future__ import annotations

import random
from types import MappingProxyType
from typing import Literal, TypeAlias

from collab.envs.text import flat
from collab.types import Element

ScreenKind: TypeAlias = Literal["screen-purpose", "screen-aim", "screen-summary"]
ElementKind: TypeAlias = Literal["element-function", "element-information", "element-effect", "element-action"]

SCREEN: MappingProxyType[ScreenKind, tuple[str, ...]] = MappingProxyType(
    {
        "screen-purpose": (
            "What is this screen for?",
            "What is the purpose of what is shown?",
            "Why would somebody open this screen?",
            "Which purpose does this screen serve?",
        ),
        "screen-aim": (
            "What does this screen want its user to do?",
            "What can be done here?",
            "What does this screen aim at?",
            "What is a user meant to achieve here?",
        ),
        "screen-summary": (
            "Sum up this screen.",
            "Describe what is on the screen in a few sentences.",
            "Give a summary of this screen in one paragraph.",
            "What does the screen show, in short?",
        ),
    }
)
"""Kind → its phrasings."""

ELEMENT: MappingProxyType[ElementKind, tuple[str, ...]] = MappingProxyType(
    {
        "element-function": (
            "What is {element} for?",
            "What does {element} do?",
            "Which function does {element} have?",
            "Explain {element}.",
        ),
        "element-information": (
            "What does {element} tell?",
            "Which information does {element} give?",
            "What can be read from {element}?",
            "What is the state of {element}?",
        ),
        "element-effect": (
            "What happens when {element} is tapped?",
            "What does a tap on {element} lead to?",
            "If {element} is tapped, what comes next?",
            "Predict what tapping {element} does.",
        ),
        "element-action": (
            "Which action goes with {element}?",
            "What is the action that uses {element}?",
            "How is {element} operated? Give the action.",
            "Which action would an agent take on {element}?",
        ),
    }
)
"""Kind → its phrasings; {element} is filled in."""


def about_screen(kind: ScreenKind, rng: random.Random) -> str:
    """One phrasing of a question about a screen."""
    return rng.choice(SCREEN[kind])


def about_element(kind: ElementKind, element: Element, rng: random.Random) -> str:
    """One phrasing of a question about an element."""
    return rng.choice(ELEMENT[kind]).format(element=named(element))


def named(element: Element) -> str:
    """An element as a question names it: role, label and index, without value and flags."""
    label = flat(element.label)
    return f'{element.role} "{label}" [{element.index}]' if label else f"{element.role} [{element.index}]"
