"""What another critic, threshold or adversary changes: the difference of two sets of pairs, and what it is due to.

changed = difference(before, after)
changed.added, changed.dropped, changed.flipped
causes(changed.dropped, after, after_labels, threshold)        # why they are not there any more
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from collab.credit.labels import Labels
from collab.types import PreferencePair, ReplyRef

OTHER_WORSE = "set against another worse side"
NOT_REWARDED = "the better side is not rewarded"
NO_SCORE = "the better side has no score"
WITHOUT_PAIR = "the better side is rewarded and has no pair"
IN_NO_PAIR = "the better side is in no pair"
OTHER_BETTER = "corrected by another better side"
NOT_CORRECTED = "the cell that erred there is not corrected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Each tuple in the order in which its pairs were given."""

    added: tuple[PreferencePair, ...]
    dropped: tuple[PreferencePair, ...]
    flipped: tuple[tuple[PreferencePair, PreferencePair], ...]
    """(before, after): the same two replies, preferred the other way round, also by another source; each pair once."""
    kept: tuple[PreferencePair, ...]
    """As they are after."""

    @property
    def empty(self) -> bool:
        """Whether both sets prefer the same."""
        return not (self.added or self.dropped or self.flipped)


def difference(before: Iterable[PreferencePair], after: Iterable[PreferencePair]) -> Difference:
    """Compare two sets of pairs of the same run by what they prefer to what; who judged it does not count.

    A synthesised reply was said in no cell, so a pair with one is never flipped: it is added or dropped.
    """
    old, new = ({pair.id: pair for pair in pairs} for pairs in (before, after))
    gone = [pair for pair in old.values() if pair.id not in new]
    came = [pair for pair in new.values() if pair.id not in old]
    turned = _turned(gone, came)
    moved = {pair.id for pair in turned.values()}
    return Difference(
        added=tuple(pair for pair in came if pair.id not in turned),
        dropped=tuple(pair for pair in gone if pair.id not in moved),
        flipped=tuple((turned[pair.id], pair) for pair in came if pair.id in turned),
        kept=tuple(pair for pair in new.values() if pair.id in old),
    )


def causes(
    missing: Iterable[PreferencePair], others: Iterable[PreferencePair], labels: Labels | None, threshold: float
) -> Counter[str]:
    """Why some pairs are not among others, by cause.

    Args:
        others: the set that lacks them: the later one for pairs that were dropped, the earlier one for added ones.
        labels: by which the others were made, as they are now; None where they are not stored any more.
        threshold: a score above it was rewarded there.
    """
    there = list(others)
    chosen = {pair.chosen for pair in there if pair.source != "correction"}
    corrected = {pair.answered for pair in there if pair.source == "correction"}
    return Counter(
        (OTHER_BETTER if pair.answered in corrected else NOT_CORRECTED)
        if pair.source == "correction"
        else _cause(pair, chosen, labels, threshold)
        for pair in missing
    )


def _cause(pair: PreferencePair, chosen: set[tuple[ReplyRef, ...]], labels: Labels | None, threshold: float) -> str:
    if pair.chosen in chosen:
        return OTHER_WORSE
    if labels is None or len(pair.chosen) != 1:
        return IN_NO_PAIR
    (where,) = pair.chosen
    judgement = labels.judged.get((where.trajectory, where.step))
    score = None if judgement is None else judgement.of(where.cell).score
    if score is None:
        return NO_SCORE
    return WITHOUT_PAIR if score > threshold else NOT_REWARDED


def _turned(gone: Iterable[PreferencePair], came: Iterable[PreferencePair]) -> dict[str, PreferencePair]:
    """ID of a pair that came → the one that went and preferred its replies the other way round.

    Two sources may pair the same replies: what is of one source is matched first, and nothing twice.
    """
    waiting: dict[tuple[tuple[ReplyRef, ...], ...], list[PreferencePair]] = {}
    for pair in gone:
        if pair.rejected:
            waiting.setdefault((pair.rejected, pair.chosen), []).append(pair)
    found: dict[str, PreferencePair] = {}
    arrived = list(came)
    for alike in (True, False):
        for pair in arrived:
            others = waiting.get((pair.chosen, pair.rejected), [])
            fitting = [other for other in others if other.source == pair.source or not alike]
            if fitting and pair.id not in found:
                found[pair.id] = fitting[0]
                others.remove(fitting[0])
    return found
