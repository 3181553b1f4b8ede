"""Pairs of whole trajectories as a person reads them, and as scripts do."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.cli.output import data, plain, say
from collab.cli.pair_text import mark_of, marked

if TYPE_CHECKING:
    from collab.credit.pair_store import StoredPairs
    from collab.credit.pairs_trajectory import Whole


def say_whole(run: Path, stored: StoredPairs, told: Whole) -> None:
    """Which episodes a pair compares, and how each of them ended."""
    say(f"pair     {told.pair.id}")
    say(marked(f"of       {stored.name!r} of {run}, source {told.pair.source}", run))
    for word, one, replies in (
        ("better", told.chosen, told.pair.chosen),
        ("worse", told.rejected, told.pair.rejected),
    ):
        ended = "solved" if one.success else "not solved"
        why = "" if one.outcome is None or not one.outcome.reason else f": {plain(one.outcome.reason)}"
        say(f"{word:<8} {one.id}, {ended} after {len(one.steps)} steps with {len(replies)} replies{why}")
        say(f"         goal: {plain(one.task.goal)}")
        say(f"         {_episode_command(run, one.id)}")
    say("context  it rests on how the episodes ended, and no critic was asked; all replies of a side are trained")


def whole_data(run: Path, stored: StoredPairs, told: Whole) -> dict[str, Any]:
    """The same as JSON data."""
    sides = {
        name: {"episode": one.id, "seed": one.task.seed, "steps": len(one.steps), "outcome": data(one.outcome)}
        for name, one in (("chosen", told.chosen), ("rejected", told.rejected))
    }
    return {"run": str(run), "note": mark_of(run), "name": stored.name, "pair": data(told.pair), **sides}


def _episode_command(run: Path, episode: str) -> str:
    return f"look: collab runs show {shlex.quote(str(run))} --episode {shlex.quote(episode)}"
