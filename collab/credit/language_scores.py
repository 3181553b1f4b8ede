"""A critic's reply → a word on each proposal; whatever is not a proper score is missing, with its cause.

Replies are lists of {agent, round, score, reason}, read as generously as `collab.credit.replies` reads everything.
The paper's own form, {"agent_0": 0.9, "agent_1": 0.2}, is read where each of these agents made one proposal. Nothing is
mended: a score outside [0, 1] is not clipped, one of two that differ is not chosen, one that is absent is not 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictInt

from collab.credit.critic import ABSENT, Word
from collab.credit.language_prompt import Proposal
from collab.credit.replies import NO_ITEM, Item, Items, Twice, read_items, read_objects

CUT = "the critic's reply was cut before its score"
TWICE = "the critic gave two scores"
"""That differ; equal ones are one."""
ROUNDLESS = "the critic did not say which round"
"""One score by an agent's name, and the agent made several proposals."""
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
    plain = _by_agent(text, {name(agent) for agent in agents}, name)
    many = Counter(name(proposal.agent) for proposal in proposals)
    words = []
    for proposal in proposals:
        own = [_word(item) for item in said.get((name(proposal.agent), proposal.round), [])]
        alone = plain.get(name(proposal.agent), [])
        if own or not alone:
            words.append(_one(own) or absent)
        else:
            words.append(_one(alone) or absent if many[name(proposal.agent)] == 1 else Word.none(ROUNDLESS))
    return words


def _by_agent(text: str, agents: Container[str], name: Callable[[str], str]) -> dict[str, list[Word]]:
    """What objects say that have agents as their keys: agent → its words, of a score or of {score, reason}."""
    found: dict[str, list[Word]] = {}
    for one in read_objects(text):
        if "agent" in one or "score" in one:  # an item of the list
            continue
        for key, given in one.items():
            if name(key.strip()) in agents and not isinstance(given, list):
                words = map(_plain_word, given if isinstance(given, Twice) else (given,))
                found.setdefault(name(key.strip()), []).extend(words)
    return found


def _plain_word(given: Any) -> Word:
    score, reason = (given.get("score"), given.get("reason")) if isinstance(given, dict) else (given, "")
    return Word.of(score, " ".join(reason.split()) if isinstance(reason, str) else "")


def _one(words: Sequence[Word]) -> Word | None:
    """The only word, or the first of equal scores; None without any."""
    if not words:
        return None
    alike = all((word.score, word.missing) == (words[0].score, words[0].missing) for word in words)
    return words[0] if alike else Word.none(TWICE)


def _why_absent(found: Items[Said], cut: bool) -> str:
    """Why a proposal has no item: what became of the reply, or of items that nobody can tell whose they are."""
    if cut:
        return CUT
    if NO_ITEM in found.refused:
        return ABSENT
    return f"the critic: {next(iter(found.refused))}" if found.refused else ABSENT


def _word(item: Said) -> Word:
    return Word.of(item.score, " ".join(item.reason.split()) if isinstance(item.reason, str) else "")
