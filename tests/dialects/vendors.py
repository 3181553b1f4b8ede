"""Comparing a vendor's own package with a dialect: importing it, drawing values, counting disagreements."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from collab.dialects.actions import Pair, Size

COUNT = 10_000
MISSING = "needs the vendors' packages: make vendors"


def load(name: str) -> Any:
    """Import a vendor's module, or skip the test."""
    return pytest.importorskip(name, reason=MISSING)


def load_part(monkeypatch: pytest.MonkeyPatch, name: str, *, bare: Sequence[str], unused: Sequence[str]) -> Any:
    """Import one module of a package without what the whole package needs.

    Args:
        bare: packages whose own `__init__` is not run.
        unused: modules that it imports and the tests do not reach: speech, video.
    """
    for package in bare:
        found = importlib.util.find_spec(package)
        if found is None:
            pytest.skip(MISSING)
        hollow = ModuleType(package)
        hollow.__path__ = list(found.submodule_search_locations or [])
        monkeypatch.setitem(sys.modules, package, hollow)
    for module in unused:
        monkeypatch.setitem(sys.modules, module, MagicMock())
    return load(name)


@dataclass(slots=True)
class Tally:
    """What was compared with a package, and where it disagreed."""

    actions: int = 0
    error: float = 0
    """Largest distance of two points, in pixels of the screen."""
    wrong: list[str] = field(default_factory=list)

    def add(self, agrees: bool, *shown: object) -> None:
        """Count one action; `shown` explains a disagreement."""
        self.actions += 1
        if not agrees:
            self.wrong.append(" | ".join(map(str, shown)))

    def measure(self, one: Pair, other: Pair) -> bool:
        """Note the distance of two points along the worse axis; return whether it is at most a pixel."""
        distance = max(abs(one[0] - other[0]), abs(one[1] - other[1]))
        self.error = max(self.error, distance)
        return distance <= 1


@contextmanager
def compare(package: str, subject: str, count: int = COUNT) -> Iterator[Tally]:
    """Yield a tally of at least so many actions; print it, and fail if something disagreed."""
    tally = Tally()
    yield tally
    sys.stdout.write(
        f"{package} {version(package)}, {subject}: {tally.actions:,} compared, {len(tally.wrong)} disagreements, "
        f"largest distance {tally.error:.2f} px\n"
    )
    assert not tally.wrong, (len(tally.wrong), tally.wrong[:5])
    assert tally.actions >= count


WORDS = (
    *(
        "milk",
        "it's",
        '"so"',
        "rock 'n', roll",
        "(a, b)",
        "x=1",
        "C:\\new",
        "50 %",
        "Zürich",
        "価格",
        "😀",
        "a<b",
        "#1",
    ),
    *(
        "[1, 2]",
        '{"a": 1}',
        "user@example.org",
        "https://example.org/?q=1&r=2",
        "back\\slash",
        "tab\there",
        "two\nlines",
    ),
)


def draw_text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 5)))


def draw_point(rng: random.Random, most: Size) -> tuple[int, int]:
    return rng.randint(0, most[0]), rng.randint(0, most[1])
