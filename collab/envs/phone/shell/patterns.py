"""Regular expressions from outside, without those that could take for ever."""

from __future__ import annotations

import re

MAX_PATTERN = 500
"""Characters."""


class PatternProblem(ValueError):
    """The expression is none, too long, or repeats something that repeats; the message says which."""


def compile_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile an expression whose time grows no faster than a power of its input's length.

    Raises:
        PatternProblem: refused, or no expression.
    """
    if len(pattern) > MAX_PATTERN:
        raise PatternProblem("expression is too long")
    if _repeats_repetition(pattern):
        raise PatternProblem("expression repeats a group with a choice or repetition in it")
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as problem:
        raise PatternProblem(str(problem)) from None


def _repeats_repetition(pattern: str) -> bool:
    """Whether a group that may match in several ways is repeated, as in (a+)+ or (a|aa)*."""
    plain = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern, flags=re.DOTALL)
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
        elif letter in "*+{|" and open_groups:
            open_groups[-1] = True
    return False
