"""How long a text is in tokens, when the tokenizer is not at hand.

A count by kinds of characters, chosen to err upwards: the size guard of the prompts may cut a little too early, but
a prompt that it lets pass fits. English prose comes out at roughly 1.3 times what a common byte-level tokenizer of
100,000 entries counts; digits, punctuation and scripts other than Latin are counted as such tokenizers split them at
worst, or close to it.
"""

from __future__ import annotations

import re

_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d|\n+|[ \t]{2,}|[^\sA-Za-z\d]")
"""Runs of letters up to a change of case, single digits, line breaks, indentation, and every other character by
itself; a single space belongs to what follows it."""


def estimate_tokens(text: str) -> int:
    """An estimate of the number of tokens; 0 for an empty text."""
    return sum(_length(piece) for piece in _PIECES.findall(text))


def _length(piece: str) -> int:
    if piece.isascii():
        return -(-len(piece) // 4) if piece.isalpha() else 1
    size = len(piece.encode("utf-8", "surrogatepass"))
    return 1 if size == 2 else size - 1  # a three-byte character is two tokens at worst in most vocabularies
