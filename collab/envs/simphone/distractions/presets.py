"""Settings of a phone's distractions: single knobs, and three presets of all of them.

The moments of disturbances are drawn at an episode's start, few enough that its solution fits into the budget. A slow
screen shows its content only after a while, and touches are lost until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from collab.envs.simphone.app import UiNode, View
from collab.envs.simphone.distractions.interruptions import begin
from collab.envs.simphone.state import Phone
from collab.errors import ConfigError
from collab.seeds import derive, generator
from collab.types import Action

DistractionPreset: TypeAlias = Literal["calm", "daily", "hostile"]
Noise: TypeAlias = Literal["none", "some", "plenty"]
Tongue: TypeAlias = Literal["english", "german", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distractions:
    """Amount of each kind of distraction; the default is a calm phone."""

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


PRESETS: Mapping[DistractionPreset, Distractions] = {
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


def adjust_preset(preset: DistractionPreset, changes: Mapping[str, Any]) -> Distractions:
    """Return a preset with changes (None keeps the preset's value); ConfigError for a value out of range."""
    return replace(PRESETS[preset], **{name: value for name, value in changes.items() if value is not None})


def describe_distractions(preset: DistractionPreset, distractions: Distractions) -> list[str]:
    """Return the preset and whatever differs from it: ["hostile", "language=german"]; nothing for a calm phone."""
    usual = PRESETS[preset]
    changed = [
        f"{field.name}={getattr(distractions, field.name)}"
        for field in fields(distractions)
        if getattr(distractions, field.name) != getattr(usual, field.name)
    ]
    return [*([] if preset == "calm" else [preset]), *changed]


def build_loading(phone: Phone) -> View:
    """Return the screen while it loads: a turning wheel and nothing else."""
    return View(title="", style="plain", body=[UiNode("progress", "Loading…", "android:id/progress", height=1600)])


def hold(phone: Phone, steps: int) -> Phone:
    """Let the screen load for so many steps."""
    return replace(phone, loading=steps)


def act_while_loading(phone: Phone, action: Action, below: Callable[[Phone], Phone]) -> Phone:
    """Pass a step while loading: only waiting and answering are executed, by `below`."""
    done = below(phone) if action.type in ("wait", "answer") else phone
    return replace(done, loading=phone.loading - 1)


class Disturbance(NamedTuple):
    """Distraction after a step."""

    kind: str
    """One of `interruptions.KINDS`, or "slow"."""
    cost: int
    """Steps that it takes from an agent that deals with it at once."""
    seed: int
    """For whatever else there is to draw: the caller, what the banner says."""


Schedule = Mapping[int, Disturbance]
"""By the number of the step that it follows; the first step is 1."""


def schedule(
    distractions: Distractions, kinds: tuple[str, ...], seed: int, task: str, *, spare: int, last: int
) -> Schedule:
    """Draw what happens after each step.

    Args:
        kinds: interruptions to choose from.
        seed: of the task instance.
        spare: steps of the budget that the solution leaves over; what is drawn costs at most its share of them.
        last: the step budget; nothing comes after the last step.
    """
    # A share of the steps to spare: the task must stay solvable within its limit.
    left = int(distractions.share * max(0, spare))
    found: dict[int, Disturbance] = {}
    free = 1
    for step in range(1, last):
        if left < 1:
            break
        # A generator per step, so that one disturbance does not shift those after it.
        rng = generator(derive(seed, "distraction", task, step))
        chance = rng.random()
        if step < free or chance >= distractions.interruptions + distractions.slowness:
            continue
        slow = chance >= distractions.interruptions
        cost = min(left, rng.randint(1, distractions.longest_wait)) if slow else 1
        kind = "slow" if slow else rng.choice(kinds)
        found[step] = Disturbance(kind, cost, derive(seed, "disturbance", task, step))
        left -= cost
        # Never right after each other: an agent gets a chance to act in between.
        free = step + cost + 1
    return found


def disturb(phone: Phone, before: Phone, disturbance: Disturbance | None) -> Phone:
    """Apply a disturbance (None for none) to the phone after a step; an unchanged screen does not load."""
    if disturbance is None:
        return phone
    if disturbance.kind != "slow":
        return begin(phone, disturbance.kind, disturbance.seed)
    return phone if phone is before else hold(phone, disturbance.cost)
