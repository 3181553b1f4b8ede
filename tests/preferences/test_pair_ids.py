"""Short names of pairs, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collab.errors import RunFormatError, UnknownName, UsageError
from collab.preferences.pairs import PairRecipe, RunPairs
from collab.preferences.store import (
    LETTERS,
    find_last_name,
    find_pair,
    list_pair_sets,
    read_short_ids,
    shorten_ids,
    write_pairs,
)
from collab.store.manifest import Manifest
from collab.store.rewards import PreferencePair, ReplyRef
from collab.store.run import RunStore
from collab.types import CellRef

A, B, C = "a" * 64, "a" * 9 + "b" * 55, "c" * 64


def pair(id: str, critic: str = "oracle-2") -> PreferencePair:
    where = ReplyRef(trajectory="Task/0", step=0, cell=CellRef("ada", 0))
    return PreferencePair(id=id, source="adversary", chosen=(where,), rejected=(), synthetic="no", critic=critic)


def write(run: Path, name: str, *pairs: PreferencePair) -> None:
    made = RunPairs(pairs=pairs)
    write_pairs(run, name, made, recipe=PairRecipe(), labels=None, adversary=None)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = RunStore.create(tmp_path / "run", Manifest(command="rollout", config={}, seed=0)).path
    write(path, "first", pair(A), pair(B))
    write(path, "second", pair(C), replace(pair(A), critic="other-1"))
    return path


def test_short_ids_are_as_long_as_they_must_be() -> None:
    assert shorten_ids([]) == {}
    assert shorten_ids([A, C, A]) == {A: A[:LETTERS], C: C[:LETTERS]}
    assert shorten_ids([A, B, C]) == {A: A[:10], B: B[:10], C: C[:10]}


def test_a_short_id_finds_its_pair(run: Path) -> None:
    assert read_short_ids(run) == shorten_ids([A, B, C])
    assert [find_pair(run, letters)[1].id for letters in read_short_ids(run).values()] == list(read_short_ids(run))
    stored, found = find_pair(run, "C")
    assert (stored.name, found.id) == ("second", C)


def test_of_equal_pairs_the_one_that_was_stored_last_is_found(run: Path) -> None:
    assert find_pair(run, A)[1].critic == "other-1"
    assert find_pair(run, A, "first")[1].critic == "oracle-2"


def test_a_spoilt_set_does_not_hide_the_others(run: Path) -> None:
    (run / "pairs/second/pairs.jsonl").write_text("half")
    assert read_short_ids(run) == shorten_ids([A, B])
    assert find_pair(run, A)[0].name == "first"
    with pytest.raises(RunFormatError, match="second"):
        find_pair(run, C)
    (run / "pairs/second/pairs.json").write_text("half")
    assert list_pair_sets(run) == ["second", "first"]
    with pytest.raises(RunFormatError, match="second"):
        find_last_name(run)


def test_what_is_unknown_or_ambiguous_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"2 pairs begin with 'aaaa' \((aaaaaaaaa[ab](, )?){2}\); give more letters"):
        find_pair(run, "aaaa")
    assert find_pair(run, "aaaa", "second")[1].id == A
    for wrong, name in (("d", None), ("", None), ("c", "first")):
        with pytest.raises(UnknownName, match="no pair"):
            find_pair(run, wrong, name)
    with pytest.raises(UnknownName, match="called 'third'"):
        find_pair(run, "a", "third")
    empty = RunStore.create(tmp_path / "empty", Manifest(command="rollout", config={}, seed=0)).path
    with pytest.raises(UnknownName, match="collab pairs rebuild"):
        find_pair(empty, "a")
