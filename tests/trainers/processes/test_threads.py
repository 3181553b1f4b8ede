"""A resumed training computes with the threads with which it began, because sums depend on them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from collab.errors import RunFormatError
from collab.models.checkpoint_card import hash_weights
from collab.trainers.distributed import build_threads_head, use_recorded_threads
from collab.trainers.run import begin, train


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore torch's number of threads for other tests."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_number_is_that_of_the_beginning_and_afterwards_what_it_was() -> None:
    torch.set_num_threads(2)
    head, told = build_threads_head(), list[str]()
    assert head == {"threads": 2}
    with use_recorded_threads(head, "head.json", told.append):
        assert (torch.get_num_threads(), told) == (2, [])
    torch.set_num_threads(1)
    with contextlib.suppress(KeyError), use_recorded_threads(head, "head.json", told.append):
        assert torch.get_num_threads() == 2
        raise KeyError
    assert torch.get_num_threads() == 1
    assert told == ["computing with threads=2, as it began, not 1: sums depend on it to the last bit"]


def test_a_head_that_does_not_tell_changes_nothing_and_a_damaged_one_is_refused() -> None:
    torch.set_num_threads(1)
    with use_recorded_threads({"format": 1}, "head.json"):
        assert torch.get_num_threads() == 1
    for damaged in (0, "2", True):
        with pytest.raises(RunFormatError, match=r"head\.json: threads .*: allowed are whole numbers from 1"):
            with use_recorded_threads({"threads": damaged}, "head.json"):
                pass


@pytest.mark.slow
def test_a_run_is_resumed_in_the_threads_that_it_began_in(samples, base: Path, tmp_path: Path) -> None:
    prepared = samples.states(base, tmp_path / "data", 1)
    torch.set_num_threads(2)
    whole = train(prepared, begin(prepared, tmp_path / "whole"), device="cpu")
    folder, told, seen = begin(prepared, tmp_path / "stopped"), list[str](), list[int]()
    assert folder.read()["threads"] == 2
    assert train(prepared, folder, device="cpu", stopping=lambda: True).step == 1
    torch.set_num_threads(1)

    def watch(progress: object) -> None:
        seen.append(torch.get_num_threads())

    result = train(prepared, folder, device="cpu", watch=watch, note=told.append)
    assert (set(seen), len(told), torch.get_num_threads()) == ({2}, 1, 1)
    assert hash_weights(result.final) == hash_weights(whole.final)


@pytest.mark.slow
def test_a_run_of_before_and_one_of_several_processes_have_no_number(samples, base: Path, tmp_path: Path) -> None:
    """A launcher gives each of several processes threads of its own."""
    assert "threads" not in begin(samples.states(base, tmp_path / "data", 2), tmp_path / "two").read()
    prepared = samples.states(base, tmp_path / "data", 1)
    folder, told = begin(prepared, tmp_path / "old"), list[str]()
    manifest = {name: value for name, value in folder.read().items() if name != "threads"}
    folder.file.write_text(json.dumps(manifest))
    torch.set_num_threads(2)
    assert train(prepared, folder, device="cpu", note=told.append).final == folder.final
    assert (told, torch.get_num_threads()) == ([], 2)
