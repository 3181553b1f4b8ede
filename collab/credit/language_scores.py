"""A critic's reply → a word on each proposal; whatever is not a proper score is missing, with its cause.

Replies are lists of {agent, round, score, reason}, read as generously as `collab.credit.replies` reads everything.
Nothing is mended: a score outside [0, 1] is not clipped, one of two is not chosen, one that is absent is not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictInt

from collab.credit.critic import ABSENT, Word
from collab.credit.language_prompt import Proposal
from collab.credit.replies import NO_ITEM, Item, Items, read_items

CUT = "the critic's reply was cut before its score"
TWICE = "the critic gave two scores"
STRAY = "the critic counted rounds from 0"
"""So what it says of a round is about another one, and nobody can tell which it means."""


def _number(given: Any) -> Any:
    """A round written as 1.0 or "1" names the same cell."""
    if isinstance(given, float) and given.is_integer():
        return int(given)
    return int(given) if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 9 else given


class Said(Item):
    """One item of a critic's reply; what its score is worth is looked at afterwards, so that the cause can be told."""

    agent: str
    round: Annotated[StrictInt, BeforeValidator(_number)]
    score: Any = None
    reason: Any = ""


def read_scores(text: str, proposals: Sequence[Proposal], *, cut: bool = False) -> list[Word]:
    """One word per proposal, in their order; items about anything else are left unread.

    But an item about a round before the first makes all that was asked missing.

    Args:
        cut: whether the reply ended because it was too long.
    """
    found = read_items(text, Said)
    agents = {proposal.agent for proposal in proposals}
    name = str.casefold if len({agent.casefold() for agent in agents}) == len(agents) else str
    if any(item.round < 1 and name(item.agent) in map(name, agents) for item in found.good):
        return [Word.none(STRAY)] * len(proposals)
    said: dict[tuple[str, int], list[Said]] = {}
    for item in found.good:
        said.setdefault((name(item.agent), item.round), []).append(item)
    absent = Word.none(_why_absent(found, cut))
    words = []
    for proposal in proposals:
        items = said.get((name(proposal.agent), proposal.round), [])
        words.append(absent if not items else _word(items[0]) if len(items) == 1 else Word.none(TWICE))
    return words


def _why_absent(found: Items[Said], cut: bool) -> str:
    """Why a proposal has no item: what became of the reply, or of items that nobody can tell whose they are."""
    if cut:
        return CUT
    if NO_ITEM in found.refused:
        return ABSENT
    return f"the critic: {next(iter(found.refused))}" if found.refused else ABSENT


def _word(item: Said) -> Word:
    return Word.of(item.score, " ".join(item.reason.split()) if isinstance(item.reason, str) else "")
