"""A phone as it leaves the factory, and the same phone after somebody has lived with it."""

from __future__ import annotations

import random

from collab.envs.phone.app import Apps
from collab.envs.phone.apps import STANDARD
from collab.envs.phone.notes import MARKOR
from collab.envs.phone.state import LAUNCHER, START_MS, Entry, Phone
from collab.envs.phone.storage import ROOT, STANDARD_FOLDERS

_DAY_MS = 86_400_000


def factory(apps: Apps) -> Phone:
    """The home screen of a phone that nobody has used yet."""
    folder = Entry(content=None, changed_ms=START_MS - 30 * _DAY_MS)
    paths = ("/storage", "/storage/emulated", ROOT, *(f"{ROOT}/{name}" for name in STANDARD_FOLDERS), MARKOR)
    return Phone(
        apps=apps,
        settings={name: value for app in apps.all for name, value in app.settings.items()},
        files=dict.fromkeys(paths, folder),
        stacks={LAUNCHER: apps.by_package[LAUNCHER].pages},
    )


FACTORY = factory(STANDARD)


def lived_in(rng: random.Random, phone: Phone = FACTORY) -> Phone:
    """A fresh phone with data in it that no task asks about."""
    for app in phone.apps.all:
        phone = app.noise(phone, rng)
    return phone
