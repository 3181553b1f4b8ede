"""The copy warm-up: random tokens that repeat once, for a model made from nothing.

    a b c d … ‖ gap ‖ separator ‖ a b c d …
                                  └ scored ┘

A policy points by copying: it finds on the screen what the task names and says its index. The circuit that finds "what
followed this the last time" (an induction head) forms in minutes on such sequences and hardly at all on rows alone.
What would be learned instead is made impossible by variety: length and distance vary, so no fixed offset helps;
alphabets are as small as ten tokens, so the last token alone does not say where one is.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from collab.learn.examples import Example
from collab.learn.preset import CopyRecipe
from collab.seeds import derive, generator

if TYPE_CHECKING:
    from collab.models.chat import ChatTokenizer

GROUP = "copy"
_SEPARATORS = 8
"""Different tokens that stand before the repetition."""


def copy_sequences(recipe: CopyRecipe, chat: ChatTokenizer, seed: int) -> list[Example]:
    """As many sequences as the recipe's steps need; the same seed gives the same ones.

    Tokens are drawn from the tokenizer's vocabulary without control tokens. The first repeated token is not scored:
    nothing tells which it is.
    """
    tokens = [token for token in range(chat.size) if token not in chat.control]
    return [
        _sequence(recipe, tokens, generator(derive(seed, "copy", number)))
        for number in range(recipe.steps * recipe.batch_rows)
    ]


def _sequence(recipe: CopyRecipe, tokens: list[int], rng: random.Random) -> Example:
    length = rng.randint(recipe.shortest, recipe.longest)
    size = min(rng.choice(recipe.alphabets), len(tokens))
    alphabet = tokens if size == len(tokens) else rng.sample(tokens, size)
    repeated = rng.choices(alphabet, k=length)
    gap = rng.choices(tokens, k=rng.randint(0, recipe.gap))
    separator = tokens[rng.randrange(min(_SEPARATORS, len(tokens)))]
    ids = np.array([*repeated, *gap, separator, *repeated], np.int64)
    return Example(group=GROUP, ids=ids, scored_from=len(ids) - length + 1)
