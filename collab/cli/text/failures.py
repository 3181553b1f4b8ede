"""Text and JSON of why a run's episodes failed (`collab runs show RUN --failures`)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.cli.output import print_table, say
from collab.cli.progress import work
from collab.utils.progress import note
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.evaluation.failures import EpisodeFailure
    from collab.store.reader import EpisodeSummary


def look_at_failures(run: Path) -> None:
    """Look at the unsolved episodes of a run that were not looked at, and store why they failed."""
    from collab.rewards.verifiers.failures import measure_failures

    _, progress = work(
        lambda watch, stop: measure_failures(run, watch=watch, stop=stop), run, resume="the same command"
    )
    if progress.problem is not None:
        note(f"distances to the goal are not known everywhere: {progress.problem}")


def show_failures(run: Path, episodes: Sequence[EpisodeSummary]) -> None:
    """Print why these episodes failed, or the command that looks; nothing where all are solved."""
    from collab.evaluation.failures import COARSE, WORDS, count_failures, read_failures

    counts = count_failures(episodes, read_failures(run))
    command = f"collab runs show {shlex.quote(str(run))} --failures"
    if counts.modes:
        say(f"why {format_amount(counts.failed - counts.unseen, 'episode')} failed")
        print_table(
            ["mode", "coarse", "episodes", "what it is"],
            [(mode, COARSE.get(mode), count, WORDS[mode]) for mode, count in counts.modes.items()],
        )
        say()
    if counts.unseen:
        say(f"why {format_amount(counts.unseen, 'episode')} failed: {command}")


def build_failures_data(run: Path, episodes: Sequence[EpisodeSummary]) -> dict[str, Any]:
    """Return the counts as JSON data; modes are empty while nothing was looked at."""
    from collab.evaluation.failures import count_failures, read_failures

    counts = count_failures(episodes, read_failures(run))
    return {"failed": counts.failed, "unseen": counts.unseen, "modes": dict(counts.modes), "coarse": counts.coarse}


def format_failure(found: EpisodeFailure) -> str:
    """Format why one episode failed, with the actions that were left along it where they are known."""
    from collab.evaluation.failures import WORDS

    left = ", ".join("?" if one is None else str(one) for one in found.distances or ())
    return f"{found.mode}: {WORDS[found.mode]}" + (f"; actions left along it: {left}" if left else "")
