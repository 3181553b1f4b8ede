"""Hashes change with what was learned and with nothing else."""

from __future__ import annotations

from dataclasses import replace

from collab.algorithms.collabuiagents.metrics import pairs_hash
from collab.loop.record import measured_hash, named_hash, run_hash
from collab.types import CellRef, PolicyRef, PreferencePair, ReplyRef


def pair(number: int) -> PreferencePair:
    ref = ReplyRef(trajectory="Task/0", step=number, cell=CellRef("ada", 0))
    return PreferencePair(id=f"{number:064}", source="adversary", chosen=(ref,), rejected=(), synthetic="no")


def test_order_and_place_do_not_count() -> None:
    one, two = pair(1), pair(2)
    moved = replace(two, policy=PolicyRef(base="elsewhere"))
    assert pairs_hash([one, two]) == pairs_hash([moved, one])
    assert named_hash({"ada": "1", "ben": "2"}) == named_hash({"ben": "2", "ada": "1"})


def test_what_was_made_counts() -> None:
    assert len({pairs_hash(those) for those in ([], [pair(1)], [replace(pair(1), synthetic="other")])}) == 3
    assert named_hash({"shared": "1"}) != named_hash({"shared": "2"})
    assert measured_hash({39: []}) != measured_hash({38: []}) != measured_hash({})


def test_a_training_is_its_base_and_its_epochs() -> None:
    assert run_hash({"a": "1", "b": "2"}, {0: "x", 1: "y"}) == run_hash({"b": "2", "a": "1"}, {1: "y", 0: "x"})
    assert run_hash({"a": "1"}, {0: "x", 1: "y"}) != run_hash({"a": "1"}, {0: "y", 1: "x"})
