"""The directory of a demo: what was asked of it, beside a run for each of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from collab.store.run_dir import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRequest:
    """Options of a demo."""

    agents: str
    trained: str | None
    quick: bool
    library: Path | None
    """Absolute; None for the built-in definitions alone."""


_HEAD = TypeAdapter(DemoRequest)


class DemoDir(RunDir):
    """A demo on disk."""

    HEAD, NOUN, FORMAT, COMMAND = "demo.json", "demo", 1, "collab demo --resume"

    def read_request(self) -> DemoRequest:
        """Read `demo.json`; RunFormatError when there is none or it cannot be read by this version."""
        return self.read_as(_HEAD)
