"""A critic's reply → a word on each proposal; whatever is not a proper score is missing, with its cause.

Replies are lists of {agent, round, score, reason}, read as generously as `collab.credit.replies` reads everything.
Nothing is mended: a score outside [0, 1] is not clipped, one of two is not chosen, one that is absent is not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import StrictInt

from collab.credit.critic import Word
from collab.credit.language_prompt import Proposal
from collab.credit.replies import Item, read_items

ABSENT = "the critic gave no score"
CUT = "the critic's reply was cut before its score"
TWICE = "the critic gave two scores"
NO_NUMBER = "the critic's score is no number"
OUT_OF_RANGE = "the critic's score is outside of [0, 1]"


class Said(Item):
    """One item of a critic's reply; what its score is worth is looked at afterwards, so that the cause can be told."""

    agent: str
    round: StrictInt
    score: Any = None
    reason: Any = ""


def read_scores(text: str, proposals: Sequence[Proposal], *, cut: bool = False) -> list[Word]:
    """One word per proposal, in their order; items about anything else are left unread.

    Args:
        cut: whether the reply ended because it was too long.
    """
    found = read_items(text, Said)
    if not found.good:
        return [Word.none(f"the critic: {next(iter(found.refused))}")] * len(proposals)
    said: dict[tuple[str, int], list[Said]] = {}
    for item in found.good:
        said.setdefault((item.agent.casefold(), item.round), []).append(item)
    absent = Word.none(CUT if cut else ABSENT)
    words = []
    for proposal in proposals:
        items = said.get((proposal.agent.casefold(), proposal.round), [])
        words.append(absent if not items else _word(items[0]) if len(items) == 1 else Word.none(TWICE))
    return words


def _word(item: Said) -> Word:
    score = item.score
    if score is None:
        return Word.none(ABSENT)
    if isinstance(score, bool) or not isinstance(score, int | float):
        return Word.none(NO_NUMBER)
    if not 0 <= score <= 1:
        return Word.none(OUT_OF_RANGE)
    reason = " ".join(item.reason.split()) if isinstance(item.reason, str) else ""
    return Word(score=float(score), reason=reason)
