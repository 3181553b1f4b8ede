"""Freed memory goes back to the system; caches are bounded unless the user bounds them."""

import os
import platform
from pathlib import Path

import pytest

from collab.trainers.distributed import bound_caches, release_memory


def resident() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_holes_between_blocks_in_use_are_given_back() -> None:
    """120 MB in blocks too small to be mapped by themselves; one in a hundred stays, so the heap cannot shrink."""
    blocks = [bytearray(60_000) for _ in range(2000)]
    kept = blocks[::100]
    full = resident()
    del blocks
    release_memory()
    assert resident() < full - 80_000_000
    assert len(kept) == 20


def test_what_the_user_said_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    bound_caches()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    bound_caches()
    assert int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) > 30
