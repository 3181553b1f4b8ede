"""ActionMatrix → Vote."""

from __future__ import annotations

import math
from collections import defaultdict

from collab.types import Action, ActionMatrix, Ballot, CellRef, Vote


def vote(matrix: ActionMatrix) -> Vote:
    """Majority over all n × m cells (CollabUIAgents, eq. 5), on canonical actions; unparsed cells abstain.

    Deviation: eq. 5 leaves ties open; of the tied actions the one whose latest vote comes last in conversation order
    (round, layer, position) wins, so that the vote is deterministic and the better informed word decides.
    """
    cells: dict[Action, list[CellRef]] = defaultdict(list)
    latest: dict[Action, int] = {}
    abstained: list[CellRef] = []
    for position, utterance in enumerate(matrix):
        if utterance.action is None:
            abstained.append(utterance.cell)
            continue
        cells[utterance.action].append(utterance.cell)
        latest[utterance.action] = position
    ranked = sorted(cells, key=lambda action: (-len(cells[action]), -latest[action]))
    ballots = tuple(Ballot(action=action, cells=tuple(cells[action])) for action in ranked)
    winner = ballots[0] if ballots else None
    return Vote(
        action=winner.action if winner else None,
        representative=winner.cells[-1] if winner else None,
        ballots=ballots,
        abstained=tuple(abstained),
        entropy=_entropy([len(ballot.cells) for ballot in ballots]),
        tie=len(ballots) > 1 and len(ballots[0].cells) == len(ballots[1].cells),
    )


def _entropy(counts: list[int]) -> float:
    total = sum(counts)
    return sum(-count / total * math.log(count / total) for count in counts)
