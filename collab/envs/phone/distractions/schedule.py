"""When an episode is disturbed: found out at its start, bounded so that its solution still fits into the budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from collab.envs.phone.distractions.interruptions import begin
from collab.envs.phone.distractions.presets import Distractions
from collab.envs.phone.distractions.slowness import hold
from collab.envs.phone.state import Phone
from collab.seeds import derive, generator


class Disturbance(NamedTuple):
    """What comes after a step."""

    kind: str
    """One of `interruptions.KINDS`, or "slow"."""
    cost: int
    """Steps that it takes from whoever deals with it at once."""
    seed: int
    """For whatever else there is to draw: who calls, what the banner says."""


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
    left = int(distractions.share * max(0, spare))
    found: dict[int, Disturbance] = {}
    free = 1
    for step in range(1, last):
        if left < 1:
            break
        rng = generator(derive(seed, "distraction", task, step))
        chance = rng.random()
        if step < free or chance >= distractions.interruptions + distractions.slowness:
            continue
        slow = chance >= distractions.interruptions
        cost = min(left, rng.randint(1, distractions.longest_wait)) if slow else 1
        kind = "slow" if slow else rng.choice(kinds)
        found[step] = Disturbance(kind, cost, derive(seed, "disturbance", task, step))
        left -= cost
        free = step + cost + 1
    return found


def disturbed(phone: Phone, before: Phone, disturbance: Disturbance | None) -> Phone:
    """The phone after a step, and after what then comes up.

    Args:
        before: the phone as it was; a screen on which nothing happened does not load.
        disturbance: None when nothing comes up.
    """
    if disturbance is None:
        return phone
    if disturbance.kind != "slow":
        return begin(phone, disturbance.kind, disturbance.seed)
    return phone if phone is before else hold(phone, disturbance.cost)
