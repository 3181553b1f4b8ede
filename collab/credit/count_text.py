"""What became of rewarded cells, as lines: pairs by source, and by cause what there is no pair for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from collab.wording import amount, cause_lines

SOURCES = ("adversary", "contrast", "correction", "trajectory")


class Counted(Protocol):
    """What a set of pairs, or an epoch's record of it, counted; see `collab.credit.pair_store.PairHead`."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Pairs by source, and why a rewarded cell has none."""

    @property
    def off_context(self) -> int:
        """Pairs of two cells that heard other messages than each other."""

    @property
    def refused(self) -> Mapping[str, int]:
        """What the adversary said in vain, by cause."""

    @property
    def failed(self) -> Mapping[str, int]:
        """Steps about which it could not be asked, by class of error."""

    @property
    def unjudged(self) -> int:
        """Steps without a judgement."""

    @property
    def untried(self) -> int:
        """Negatives whose state cannot be brought back."""


def count_lines(counts: Counted) -> list[str]:
    """All that was counted, one line per kind that came up."""
    pairs = {name: count for name, count in counts.counts.items() if name in SOURCES}
    lines = [
        *cause_lines("pairs", pairs),
        *cause_lines("no pair", {name: count for name, count in counts.counts.items() if name not in pairs}),
        *cause_lines("refused", counts.refused),
        *cause_lines("failed", counts.failed),
    ]
    if counts.off_context:
        lines.append(f"context  {amount(counts.off_context, 'pair')} off-context")
    if counts.unjudged:
        lines.append(f"unjudged {amount(counts.unjudged, 'step')}")
    if counts.untried:
        lines.append(f"untried  {amount(counts.untried, 'made-up side')}: their state cannot be brought back")
    return lines
