"""How long a text is in tokens, when the tokenizer is not at hand.

A count by kinds of characters, chosen to err upwards: the size guard of the prompts may cut a little too early, but
a prompt that it lets pass fits. Short common words count one token as in any large vocabulary, longer ones one per
four letters; digits and punctuation count one each, which is the most a byte-level tokenizer makes of them; other
scripts count close to their bytes, which no byte-level tokenizer exceeds.
"""

from __future__ import annotations

import re
from functools import lru_cache

from collab.types import Prompt

_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d|\n+|[ \t]{2,}|[^\sA-Za-z\d]")
"""Runs of letters up to a change of case, single digits, line breaks, indentation, and every other character by
itself; a single space belongs to what follows it."""


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
