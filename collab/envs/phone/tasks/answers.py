"""What tasks that ask a question share: how an answer is given, split and compared."""

from __future__ import annotations

from collections.abc import Sequence

from collab.envs.actions import MOBILE
from collab.envs.phone.state import Phone
from collab.envs.phone.tasks.spec import similar
from collab.types import Action


def say(texts: Sequence[str]) -> Action:
    """Answer with a list."""
    return MOBILE.make("answer", text=", ".join(texts))


def said(phone: Phone) -> list[str]:
    """What the agent answered last, split at the commas; [] when it has not answered."""
    return [] if phone.answer is None else [part.strip() for part in phone.answer.split(",")]


def told(phone: Phone, expected: Sequence[str]) -> float:
    """AndroidWorld's rule: 1 when there are as many answers as expected and each is similar to one of them, else 0."""
    answers = said(phone)
    found = all(any(similar(answer, one) for one in expected) for answer in answers)
    return float(bool(answers) and len(answers) == len(expected) and found)


def counted(phone: Phone, expected: int) -> float:
    """1 when the answer is this one number, else 0."""
    try:
        numbers = [float(answer) for answer in said(phone)]
    except ValueError:
        return 0.0
    return float(numbers == [expected])
