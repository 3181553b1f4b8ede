"""What lies over the screen without being part of any app's back stack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """An interruption that is going on. What is below stays as it is until the cover goes."""

    kind: str
    """A key of `interruptions.STAGES`."""
    stage: str = "first"
    """How far the user has been led on."""
    about: str = ""
    """Who calls, or what the banner says."""
    small: bool = False
    """Whether it has shrunk to a banner, as calls and alarms do when the user goes elsewhere."""
    left: int = 0
    """Actions until it changes by itself; 0: it stays."""
