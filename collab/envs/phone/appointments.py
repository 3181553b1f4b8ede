"""What people put into their calendars, drawn by seed."""

from __future__ import annotations

import random
from typing import Any

from collab.envs.phone.events import DAY

_WITH = ("Breakfast with", "Interview with", "Phone call with", "Planning with", "Rehearsal with", "Walk with")
_ABOUT = ("Briefing on", "Deadline for", "Handover of", "Lecture on", "Notes for", "Training on")
_WHO = ("Milan", "Greta", "Dr. Okafor", "Accounting", "the Choir", "the Neighbours")
_WHAT = ("Garden Fair", "New Website", "Summer Festival", "Travel Costs", "Safety Rules", "Bridge Project")
_VERBS = (
    "agree on",
    "compare",
    "go over",
    "improve",
    "sketch",
    "sort out",
    "sum up",
    "test",
    "write down",
    "decide on",
)
_TOPICS = (
    "the guest list",
    "open questions",
    "our spending so far",
    "the seating plan",
    "next year's dates",
    "who does what",
    "the first drafts",
    "delivery times",
)
_REMARKS = (
    "Bring your own cup.",
    "Room 3 is booked.",
    "It may run late.",
    "Send apologies early.",
    "No slides, please.",
)
LENGTHS = (15, 30, 45, 60)
"""In minutes."""


def draw_title(rng: random.Random) -> str:
    """What an event is called."""
    first = rng.choice((_WITH, _ABOUT))
    return f"{rng.choice(first)} {rng.choice(_WHO if first is _WITH else _WHAT)}"


def draw_description(rng: random.Random) -> str:
    """A sentence or two about an event."""
    words = f"We want to {rng.choice(_VERBS)} {rng.choice(_TOPICS)}."
    return f"{words} {rng.choice(_REMARKS)}" if rng.random() < 0.5 else words


def draw_event(rng: random.Random, day: int) -> dict[str, Any]:
    """An event that starts at some full hour of a day; by column of the database."""
    start = day * DAY + 3600 * rng.randrange(24)
    return {
        "start_ts": start,
        "end_ts": start + 60 * rng.choice(LENGTHS),
        "title": draw_title(rng),
        "location": "",
        "description": draw_description(rng),
        "repeat_interval": 0,
        "repeat_rule": 0,
    }
