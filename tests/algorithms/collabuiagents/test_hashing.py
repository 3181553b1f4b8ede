"""Hashes of labels and pairs change with their content, not with their order."""

from __future__ import annotations

from dataclasses import replace

from collab.algorithms.collabuiagents.metrics import hash_pairs
from collab.loop.record import hash_measured, hash_named, hash_training
from collab.store.rewards import PreferencePair, ReplyRef
from collab.types import CellRef, PolicyRef


def pair(number: int) -> PreferencePair:
    ref = ReplyRef(trajectory="Task/0", step=number, cell=CellRef("ada", 0))
    return PreferencePair(id=f"{number:064}", source="adversary", chosen=(ref,), rejected=(), synthetic="no")


def test_order_and_place_do_not_count() -> None:
    one, two = pair(1), pair(2)
    moved = replace(two, policy=PolicyRef(base="elsewhere"))
    assert hash_pairs([one, two]) == hash_pairs([moved, one])
    assert hash_named({"ada": "1", "ben": "2"}) == hash_named({"ben": "2", "ada": "1"})


def test_what_was_made_counts() -> None:
    assert len({hash_pairs(those) for those in ([], [pair(1)], [replace(pair(1), synthetic="other")])}) == 3
    assert hash_named({"shared": "1"}) != hash_named({"shared": "2"})
    assert hash_measured({39: []}) != hash_measured({38: []}) != hash_measured({})


def test_a_training_is_its_base_and_its_epochs() -> None:
    assert hash_training({"a": "1", "b": "2"}, {0: "x", 1: "y"}) == hash_training(
        {"b": "2", "a": "1"}, {1: "y", 0: "x"}
    )
    assert hash_training({"a": "1"}, {0: "x", 1: "y"}) != hash_training({"a": "1"}, {0: "y", 1: "x"})
