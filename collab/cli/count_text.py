"""What became of rewarded cells, as lines: pairs by source, and by cause what there is no pair for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from collab.cli.output import amount

if TYPE_CHECKING:
    from collab.credit.pair_store import PairHead
    from collab.marl.summary import PairCounts

SOURCES = ("adversary", "contrast", "correction", "trajectory")


def count_lines(counts: PairHead | PairCounts) -> list[str]:
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


def cause_lines(word: str, causes: Mapping[str, int]) -> list[str]:
    """One line, or none where nothing was counted."""
    told = ", ".join(f"{count} {cause}" for cause, count in causes.items())
    return [f"{word:<8} {sum(causes.values())}: {told}"] if causes else []
