"""What parts of a training share."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.config import Budget
from collab.loop.state import Halted
from collab.types import Usage


def test_a_limit_is_told_as_it_was_set(configure_toy, process, tmp_path: Path) -> None:
    """A part is granted what the parts before it have left, and tells of that."""
    loop = process(configure_toy(), tmp_path)
    loop.budget = Budget(tokens=6000)
    loop.spent = Usage(prompt_tokens=6102)
    with pytest.raises(Halted, match=r"^budget used up: tokens=6000$"):
        loop.halt("budget used up: 1683 of 1581 tokens")
    with pytest.raises(Halted, match=r"^the server is gone$"):
        loop.halt("the server is gone")
