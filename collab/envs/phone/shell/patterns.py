"""Regular expressions from outside, without those that could take for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import comb

MAX_PATTERN = 500
"""Characters."""
MAX_WORK = 10**9
"""Steps that an expression may need on all texts together at the worst, about a second."""


class PatternProblem(ValueError):
    """The expression is none, too long, repeats something that repeats, or needs too long; the message says which."""


class Expression:
    """A compiled expression that refuses a text on which it could take too long.

    Args:
        pattern: without repeated repetitions.
        choices: how many of its parts can match in several ways; n characters take at most about
            comb(n + choices, choices + 1) steps, because a search begins anywhere and every such part ends anywhere.
    """

    def __init__(self, pattern: re.Pattern[str], choices: int) -> None:
        self._pattern, self._choices = pattern, choices
        self._left = MAX_WORK

    def search(self, text: str) -> re.Match[str] | None:
        """The first match anywhere; PatternProblem when it could take too long."""
        self._afford(text)
        return self._pattern.search(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """The match of the whole text; PatternProblem when it could take too long."""
        self._afford(text)
        return self._pattern.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """All matches; PatternProblem when it could take too long."""
        self._afford(text)
        return self._pattern.finditer(text)

    def _afford(self, text: str) -> None:
        self._left -= comb(len(text) + self._choices, self._choices + 1)
        if self._left < 0:
            raise PatternProblem("expression may take too long on so much text")


def compile_pattern(pattern: str, flags: int = 0) -> Expression:
    """Compile an expression whose time grows no faster than a power of its input's length.

    Raises:
        PatternProblem: refused, or no expression.
    """
    if len(pattern) > MAX_PATTERN:
        raise PatternProblem("expression is too long")
    plain = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern, flags=re.DOTALL).replace("(?", "(")
    if _repeats_repetition(plain):
        raise PatternProblem("expression repeats a group with a choice or repetition in it")
    try:
        return Expression(re.compile(pattern, flags), len(_CHOICE.findall(plain)))
    except (re.error, OverflowError, RecursionError) as problem:
        raise PatternProblem(str(problem)) from None


_CHOICE = re.compile(r"[*+?]|\{\d*,\d*\}|\|(?=[^(]*\))")
"""A repetition of no fixed number, or an alternative within a group."""


def _repeats_repetition(plain: str) -> bool:
    """Whether a group that may match in several ways is repeated, as in (a+)+ or (a|aa)*."""
    open_groups: list[bool] = []
    for place, letter in enumerate(plain):
        if letter == "(":
            open_groups.append(False)
        elif letter == ")" and open_groups:
            flexible = open_groups.pop()
            if flexible and plain[place + 1 : place + 2] in ("*", "+", "{"):
                return True
            if flexible and open_groups:
                open_groups[-1] = True
        elif letter in "*+?{|" and open_groups:
            open_groups[-1] = True
    return False
