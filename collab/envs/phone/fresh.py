"""A phone as it leaves the factory, and the same phone after somebody has lived with it."""

from __future__ import annotations

import random

from collab.envs.phone.apps import APPS
from collab.envs.phone.notes import MARKOR
from collab.envs.phone.state import LAUNCHER, START_MS, Entry, Phone
from collab.envs.phone.storage import ROOT, STANDARD_FOLDERS

_DAY_MS = 86_400_000


def _factory() -> Phone:
    folder = Entry(content=None, changed_ms=START_MS - 30 * _DAY_MS)
    paths = ("/storage", "/storage/emulated", ROOT, *(f"{ROOT}/{name}" for name in STANDARD_FOLDERS), MARKOR)
    return Phone(
        settings={name: value for app in APPS for name, value in app.settings.items()},
        files=dict.fromkeys(paths, folder),
        stacks={LAUNCHER: next(app.pages for app in APPS if app.package == LAUNCHER)},
    )


FACTORY = _factory()
"""The home screen of a fresh phone."""


def lived_in(rng: random.Random) -> Phone:
    """A fresh phone with data in it that no task asks about."""
    phone = FACTORY
    for app in APPS:
        phone = app.noise(phone, rng)
    return phone
