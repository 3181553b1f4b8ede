"""How distracting a phone is: single knobs, and three settings of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

from collab.errors import ConfigError

Preset: TypeAlias = Literal["calm", "daily", "hostile"]
Noise: TypeAlias = Literal["none", "some", "plenty"]
Tongue: TypeAlias = Literal["english", "german", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distractions:
    """How much there is of each kind; the default is a calm phone."""

    interruptions: float = 0.0
    """Chance of one after a step, in [0, 1]."""
    slowness: float = 0.0
    """Chance after a step that the screen takes its time, in [0, 1]."""
    longest_wait: int = 3
    """Most steps that a slow screen takes; at least 1."""
    share: float = 0.0
    """Part of an episode's spare steps, its budget less its solution, that distractions may use up, in [0, 1]."""
    shuffle: bool = False
    """Whether apps, settings and menu entries stand in an order of the episode's own."""
    restyle: bool = False
    """Whether sizes, margins and colours are the episode's own."""
    rename: bool = False
    """Whether some labels say the same in other words."""
    language: Tongue = "english"
    """Language of the phone; "either" is drawn per episode."""
    noise: Noise = "some"
    """How much data there is that no task asks about."""

    def __post_init__(self) -> None:
        for name in ("interruptions", "slowness", "share"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"simphone: {name} is {value}; it must lie between 0 and 1")
        if self.interruptions + self.slowness > 1.0:
            raise ConfigError(
                f"simphone: interruptions ({self.interruptions}) and slowness ({self.slowness}) are chances of the "
                "same step; together they must not exceed 1"
            )
        if self.longest_wait < 1:
            raise ConfigError(f"simphone: longest_wait is {self.longest_wait}; it must be at least 1")


PRESETS: Mapping[Preset, Distractions] = {
    "calm": Distractions(),
    "daily": Distractions(interruptions=0.06, slowness=0.08, longest_wait=2, share=0.4, shuffle=True, restyle=True),
    "hostile": Distractions(
        interruptions=0.16,
        slowness=0.14,
        longest_wait=3,
        share=0.8,
        shuffle=True,
        restyle=True,
        rename=True,
        language="either",
        noise="plenty",
    ),
}


def chosen(preset: Preset, changes: Mapping[str, Any]) -> Distractions:
    """A preset with some knobs set otherwise; a change to None keeps the preset's value.

    Raises:
        ConfigError: a value is out of range.
    """
    return replace(PRESETS[preset], **{name: value for name, value in changes.items() if value is not None})


def told(preset: Preset, distractions: Distractions) -> list[str]:
    """The preset and whatever differs from it: ["hostile", "language=german"]; nothing for a calm phone."""
    usual = PRESETS[preset]
    changed = [
        f"{field.name}={getattr(distractions, field.name)}"
        for field in fields(distractions)
        if getattr(distractions, field.name) != getattr(usual, field.name)
    ]
    return [*([] if preset == "calm" else [preset]), *changed]
