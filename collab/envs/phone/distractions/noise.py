"""Data that no task asks about: people, messages, files and entries that stand around what matters."""

from __future__ import annotations

from collab.envs.phone.distractions.presets import Noise
from collab.envs.phone.fresh import lived_in
from collab.envs.phone.state import Phone
from collab.seeds import derive, generator

_ROUNDS: dict[Noise, int] = {"none": 0, "some": 1, "plenty": 3}
"""How often each app adds something."""


def noisy(phone: Phone, amount: Noise, seed: int, task: str) -> Phone:
    """The fresh phone of an instance, after somebody has lived with it for a while.

    Args:
        seed: of the task instance.
        task: its name.
    """
    for number in range(_ROUNDS[amount]):
        names = (task, number) if number else (task,)
        phone = lived_in(generator(derive(seed, "noise", *names)), phone)
    return phone
