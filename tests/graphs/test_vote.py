"""The vote: eq. 5 by hand, and what holds for every matrix."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collab.envs.grammar import MOBILE
from collab.graphs.deliberation import vote
from collab.types import ActionMatrix, CellRef, ParseFailure, PolicyRef, PromptRef, Sampling, Utterance

AGENTS = ("ada", "ben", "cyd", "dan")
ACTIONS = [
    MOBILE.make("click", index=1),
    MOBILE.make("scroll", direction="down"),
    MOBILE.make("scroll", direction="up"),
]


def said(agent: str, round: int, choice: int | None) -> Utterance:
    action = None if choice is None else ACTIONS[choice]
    failure = None if action else ParseFailure(kind="no_action", detail="nothing")
    return Utterance(
        agent=agent,
        round=round,
        heard=(),
        text="",
        reason=f"{agent} {round}",
        action=action,
        failure=failure,
        prompt=PromptRef(prefix="", suffix="", layout="1"),
        policy=PolicyRef(base="test"),
        sampling=Sampling(),
        seed=0,
    )


def matrix(rows: list[list[int | None]]) -> ActionMatrix:
    """One row per round, one column per agent."""
    agents = AGENTS[: len(rows[0])]
    cells = tuple(said(agent, j, row[i]) for j, row in enumerate(rows) for i, agent in enumerate(agents))
    return ActionMatrix(agents=agents, rounds=len(rows), edges=(), utterances=cells)


def test_all_cells_of_all_rounds_vote() -> None:
    decision = vote(matrix([[0, 0, 0, 1], [1, 1, 0, 0], [1, 1, 1, 0]]))
    # click: 3 + 2 + 1 = 6, scroll down: 1 + 2 + 3 = 6; scroll's latest vote is (cyd, 2), click's is (dan, 2)
    assert decision.tie
    assert decision.action == ACTIONS[0]
    assert decision.representative == CellRef("dan", 2)
    assert decision.entropy == pytest.approx(math.log(2))


def test_direction_is_part_of_the_action() -> None:
    decision = vote(matrix([[1, 2, 2]]))
    assert decision.action == ACTIONS[2]
    assert [len(ballot.cells) for ballot in decision.ballots] == [2, 1]
    assert decision.entropy == pytest.approx(-(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3))


def test_unparsed_cells_abstain() -> None:
    decision = vote(matrix([[None, None, None, 2]]))
    assert decision.action == ACTIONS[2]
    assert decision.abstained == (CellRef("ada", 0), CellRef("ben", 0), CellRef("cyd", 0))
    assert not decision.tie
    assert decision.entropy == 0


def test_nothing_parsed_gives_no_action() -> None:
    decision = vote(matrix([[None, None]]))
    assert decision.action is None
    assert decision.representative is None
    assert decision.ballots == ()


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.one_of(st.none(), st.integers(0, 2)), min_size=width, max_size=width), min_size=1, max_size=4
        )
    )
)
def test_laws(rows: list[list[int | None]]) -> None:
    said_by = matrix(rows)
    decision = vote(said_by)
    cells = [cell for ballot in decision.ballots for cell in ballot.cells] + list(decision.abstained)
    assert sorted(cells) == sorted(utterance.cell for utterance in said_by), "every cell is counted once"
    counts = [len(ballot.cells) for ballot in decision.ballots]
    assert counts == sorted(counts, reverse=True)
    assert 0 <= decision.entropy <= math.log(max(1, len(counts))) + 1e-9
    if decision.representative:
        assert said_by[decision.representative].action == decision.action
    assert vote(said_by) == decision


def test_winner_does_not_depend_on_hash_order() -> None:
    rng = random.Random(1)
    for _ in range(50):
        rows = [[rng.choice([0, 1, 2]) for _ in range(4)] for _ in range(3)]
        flat = [choice for row in rows for choice in row]
        most = max(flat.count(choice) for choice in set(flat))
        tied = {choice for choice in flat if flat.count(choice) == most}
        last = next(choice for choice in reversed(flat) if choice in tied)
        assert vote(matrix(rows)).action == ACTIONS[last]
