"""A yes-or-no answer at the end of a reply: what a prompt asks for and what is read are made of the same word.

    JUDGMENT = AnswerForm("Judgment")
    JUDGMENT.ask(True)                                          # "Judgment: True", for the prompt
    JUDGMENT.read("It saves the contact. Judgment: True")       # value True, reason "It saves the contact."

The last answer in a reply counts, in any case of letters and however it is emphasised. Prose, an empty reply and one
that repeats both answers have none: the answer is missing, with its cause, and never False.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from collab.prompts.parse import read_thoughts, strip_thoughts

EMPTY = "the reply is empty"
_LONGEST = 1000
"""Most characters of a reason that are kept; the call has the whole reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Content of a reply; exactly one of `value` and `missing` is set."""

    value: bool | None
    reason: str = ""
    """The words before the answer, or else the reply's thoughts, on one line."""
    missing: str | None = None


class AnswerForm:
    """The form of an answer.

    Args:
        word: what stands before it, e.g. "Verdict".
    """

    def __init__(self, word: str) -> None:
        self._word = word
        mark = rf"\b{re.escape(word)}\b[\s*_`\"':=-]{{0,12}}"
        self._said = re.compile(rf"{mark}(?P<said>true|false)\b", re.IGNORECASE)
        # Both answers side by side, as in a repeated question: no answer.
        self._both = re.compile(
            rf"{mark}(?:true|false)\W{{0,6}}(?:\w{{1,6}}\W{{1,4}}){{0,2}}(?:{mark})?(?:true|false)\b", re.IGNORECASE
        )
        self.absent = f"the reply has no {word.casefold()}"
        """Cause of a missing answer."""
        self.cut = f"the reply was cut before its {word.casefold()}"
        """Cause of a missing answer in a reply that was too long."""

    def ask(self, answer: bool) -> str:
        """Return the line that a reply ends with."""
        return f"{self._word}: {answer}"

    def format(self, answer: bool, reason: str = "") -> str:
        """Write a reply as prompts ask for it."""
        return f"{reason}\n{self.ask(answer)}".strip()

    def read(self, text: str, *, cut: bool = False) -> Answer:
        """Read a reply; never raises.

        Args:
            cut: whether the reply ended because it was too long.
        """
        said = strip_thoughts(text)
        found = list(self._said.finditer(self._both.sub(lambda both: " " * len(both[0]), said)))
        if not found:
            return Answer(value=None, missing=self.cut if cut else self.absent if said else EMPTY)
        reason = " ".join(said[: found[-1].start()].split()).strip("*_`# ") or read_thoughts(text)
        return Answer(value=found[-1]["said"].casefold() == "true", reason=reason[:_LONGEST])
