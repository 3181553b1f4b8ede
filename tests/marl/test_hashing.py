"""Hashes change with what was learned and with nothing else."""

from __future__ import annotations

from dataclasses import replace

from collab.loop.hashing import epoch_hash, run_hash
from collab.types import CellRef, PolicyRef, PreferencePair, ReplyRef


def pair(number: int) -> PreferencePair:
    ref = ReplyRef(trajectory="Task/0", step=number, cell=CellRef("ada", 0))
    return PreferencePair(id=f"{number:064}", source="adversary", chosen=(ref,), rejected=(), synthetic="no")


def test_order_and_place_do_not_count() -> None:
    one, two = pair(1), pair(2)
    moved = replace(two, policy=PolicyRef(base="elsewhere"))
    assert epoch_hash(pairs=[one, two], weights={"ada": "1", "ben": "2"}) == epoch_hash(
        pairs=[moved, one], weights={"ben": "2", "ada": "1"}
    )


def test_every_part_counts() -> None:
    hashes = {
        epoch_hash(),
        epoch_hash(pairs=[pair(1)]),
        epoch_hash(pairs=[replace(pair(1), synthetic="other")]),
        epoch_hash(weights={"shared": "1"}),
        epoch_hash(weights={"shared": "2"}),
        epoch_hash(measured={39: []}),
    }
    assert len(hashes) == 6


def test_a_training_is_its_base_and_its_epochs() -> None:
    assert run_hash({"a": "1", "b": "2"}, {0: "x", 1: "y"}) == run_hash({"b": "2", "a": "1"}, {1: "y", 0: "x"})
    assert run_hash({"a": "1"}, {0: "x", 1: "y"}) != run_hash({"a": "1"}, {0: "y", 1: "x"})
