"""Where Markor keeps its notes: plain files in one folder of the shared storage."""

from __future__ import annotations

from collab.envs.phone.state import Phone
from collab.envs.phone.storage import ROOT, children

MARKOR = f"{ROOT}/Documents/Markor"
"""Markor's notebook folder."""


def note_files(phone: Phone) -> dict[str, int]:
    """Regular files directly in the notebook: path → time of the last change in milliseconds."""
    return {path: entry.changed_ms for path, entry in children(phone, MARKOR) if entry.content is not None}
