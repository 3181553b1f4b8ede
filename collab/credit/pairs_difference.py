"""What another critic, threshold or adversary changes: the difference of two sets of pairs.

changed = difference(before, after)
changed.added, changed.dropped, changed.flipped
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collab.types import PreferencePair, ReplyRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Each tuple in the order in which its pairs were given."""

    added: tuple[PreferencePair, ...]
    dropped: tuple[PreferencePair, ...]
    flipped: tuple[tuple[PreferencePair, PreferencePair], ...]
    """(before, after): the same two replies, preferred the other way round."""
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
    gone = {_sides(pair): pair for pair in old.values() if pair.id not in new and pair.rejected}
    came = [pair for pair in new.values() if pair.id not in old]
    flipped = [(gone[turned], pair) for pair in came if (turned := _sides(pair)[::-1]) in gone]
    moved = {pair.id for both in flipped for pair in both}
    return Difference(
        added=tuple(pair for pair in came if pair.id not in moved),
        dropped=tuple(pair for pair in old.values() if pair.id not in new and pair.id not in moved),
        flipped=tuple(flipped),
        kept=tuple(pair for pair in new.values() if pair.id in old),
    )


def _sides(pair: PreferencePair) -> tuple[tuple[ReplyRef, ...], tuple[ReplyRef, ...]]:
    return pair.chosen, pair.rejected
