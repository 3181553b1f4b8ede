"""Rows are compared with what is kept for evaluation wherever they are trained on, also from Python."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from collab.data.example import Example, Provenance
from collab.errors import OverlapError
from collab.library import Library
from collab.synthesis.card import check_rows, list_undefined
from collab.types import Prompt, Segment


def row(environment: str, reply: str) -> Example:
    origin = Provenance(
        environment=environment,
        environment_version="1",
        task="TypeWord",
        seed=1,
        step=0,
        screen="0" * 64,
        apps=(),
        teacher="oracle",
    )
    prompt = Prompt(system="Rules.", shared="Task: type.", segments=(Segment(text="ada?"),))
    return Example(level="basic", kind="one-step", prompt=prompt, reply=reply, provenance=origin)


def test_a_row_that_is_kept_is_refused_and_what_is_unknown_is_named(folder: Path) -> None:
    library = Library(own=folder)
    kept, free, abroad = row("guarded[x]", "A teapot."), row("corridor[x]", "A teapot."), row("abroad[x]", "A teapot.")
    with pytest.raises(OverlapError, match="1 of 1 instances overlap with what is kept for evaluation"):
        asyncio.run(check_rows([free, kept, abroad], library))
    allowed = asyncio.run(check_rows([free, kept, abroad], library, allow_overlap=True))
    assert [found.offenders for found in allowed] == [1]
    assert asyncio.run(check_rows([free, abroad], library)) == []
    assert list_undefined([free, kept, abroad], library) == ["abroad"]
