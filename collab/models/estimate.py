"""How long a text is in tokens, when the tokenizer is not at hand.

A count by kinds of characters, chosen to err upwards: the size guard of the prompts may cut a little too early, but
a prompt that it lets pass fits. Short common words count one token as in any large vocabulary, longer ones one per
four letters; digits and punctuation count one each, which is the most a byte-level tokenizer makes of them; other
scripts count close to their bytes, which no byte-level tokenizer exceeds.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from collab.types import Prompt

_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d|\n+|[ \t]{2,}|[^\sA-Za-z\d]")
"""Runs of letters up to a change of case, single digits, line breaks, indentation, and every other character by
itself; a single space belongs to what follows it."""
_LEAST_PIECES = re.compile(
    r"(?P<run>[A-Za-z\d]+)|(?P<dense>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])|(?P<word>[^\W\d_]+)|(?P<mark>[^\w\s]+|_+)"
)
"""Runs of ASCII letters and digits, single characters of dense scripts, words of others, and runs of marks."""


def estimate_prompt(prompt: Prompt) -> int:
    """An estimate for a whole prompt; its system and shared part are counted once per step, not once per cell."""
    return estimate_tokens(prompt.system) + estimate_tokens(prompt.shared) + estimate_tokens(prompt.suffix)


@lru_cache(maxsize=256)
def estimate_tokens(text: str) -> int:
    """An estimate of the number of tokens; 0 for an empty text."""
    return sum(_length(piece) for piece in _PIECES.findall(text))


def _length(piece: str) -> int:
    if piece.isascii():
        return -(-len(piece) // 4) if piece.isalpha() else 1
    size = len(piece.encode("utf-8", "surrogatepass"))
    return 1 if size == 2 else size - 1  # a three-byte character is two tokens at worst in most vocabularies


def least_tokens(*texts: str) -> int:
    """Return the fewest tokens that texts can have in a large vocabulary; an estimate that errs downwards.

    A word is at least a token, three digits are one, two characters of a dense script nearly one; a run of marks may
    half belong to its neighbours.
    """
    return math.floor(sum(_least_length(piece) for text in texts for piece in _LEAST_PIECES.finditer(text)))


def _least_length(piece: re.Match[str]) -> float:
    match piece.lastgroup:
        case "run":
            return 1 if piece[0].isalpha() else -(-len(piece[0]) // 3)
        case "dense":
            return 0.4
        case "mark":
            return 0.5
        case _:
            return 1
