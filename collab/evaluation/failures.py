"""Why episodes failed: six modes by rule, from the record and the distances to the goal where these are known.

    mode            rule, the first that holds                                                    coarse
    technical       the episode broke                                                             -
    quit early      declares an end or goes home with at least half of the way left               wrong goal
    wrong page      declares the task complete in an app of the task, but it is not               wrong goal
    no attempt      no step came nearer to the goal                                               stuck midway
    stuck           three steps in a row do the same kind of action and change nothing            stuck midway
    not recovered   came nearer, then away, and never nearer than before                          not recovered
    other           none of these                                                                 -

Source: the user study of DigiRL (Bai et al. 2024, appendix E and Table 4), here without people. The distance is the
number of actions that are left of the environment's own solution, without the declaration at its end
(`collab.rewards.verifiers.failures`). Where it is not known, only the modes that need none are told (technical, an end
by giving up or going home, stuck), and the rest is `unknown`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic import TypeAdapter, ValidationError

from collab.errors import RunFormatError
from collab.store.reader import EpisodeSummary
from collab.types import Observation, Step, Trajectory
from collab.utils.files import read_plain, report_write_errors, write_json

FailureMode: TypeAlias = Literal[
    "technical", "quit early", "wrong page", "no attempt", "stuck", "not recovered", "other", "unknown"
]
MODES: tuple[FailureMode, ...] = get_args(FailureMode)
"""In the order of the rules."""
COARSE: Mapping[FailureMode, str] = {
    "quit early": "wrong goal",
    "wrong page": "wrong goal",
    "no attempt": "stuck midway",
    "stuck": "stuck midway",
    "not recovered": "not recovered",
}
"""Mode → one of three; the others belong to none."""
WORDS: Mapping[FailureMode, str] = {
    "technical": "the episode broke",
    "quit early": "declared an end or went home with half of the way or more left",
    "wrong page": "declared the task complete in a right app, but it was not",
    "no attempt": "no step came nearer to the goal",
    "stuck": "three steps in a row did the same and changed nothing",
    "not recovered": "came nearer, then away, and never nearer than before",
    "other": "none of these",
    "unknown": "the distance to the goal is not known",
}
FILE = "failures.json"
FORMAT = 2
_ALIKE = 3
"""Steps in a row without an effect."""
DECLARES = ("status", "finish")
"""Types of actions by which an agent ends an episode."""
_HOME = "navigate_home"


def classify_failure(trajectory: Trajectory, distances: Sequence[int | None] | None) -> FailureMode:
    """Return why an unsolved episode failed.

    Args:
        distances: before each step and behind the last, actions left to the goal; None where no way leads on. None
            as a whole, or at the first step, if the environment knows no way.
    """
    if trajectory.error is not None:
        return "technical"
    if not trajectory.steps:
        return "unknown"
    last = trajectory.steps[-1]
    action = None if last.executed is None else last.executed.type
    has_declared, is_complete = last.terminated and action in DECLARES, _is_said_complete(last)
    # Without a distance, an end that claims success may lie anywhere; giving up and going home are what they are.
    if not distances or distances[0] is None:
        if action == _HOME or (has_declared and not is_complete):
            return "quit early"
        return "stuck" if _is_stuck(trajectory) else "unknown"
    left = [math.inf if one is None else float(one) for one in distances]
    # What is left when the end is declared, not behind it.
    if (has_declared or action == _HOME) and left[len(trajectory.steps) - 1] >= left[0] / 2:
        return "quit early"
    if has_declared and is_complete and _is_in_own_app(trajectory, last.observation):
        return "wrong page"
    if all(after >= before for before, after in pairwise(left)):
        return "no attempt"
    if _is_stuck(trajectory):
        return "stuck"
    nearest = left.index(min(left))
    return "not recovered" if any(one > left[nearest] for one in left[nearest:]) else "other"


def _is_said_complete(step: Step) -> bool:
    """Return whether a declaration claims success: any but one that says otherwise."""
    return step.executed is not None and step.executed.get("goal_status", "complete") == "complete"


def _is_in_own_app(trajectory: Trajectory, screen: Observation) -> bool:
    """Return whether an app of the task is in the foreground; true where tasks or screens name no app."""
    app = (screen.drawing or {}).get("app", screen.title.partition(":")[0])
    wanted = {name.casefold() for name in trajectory.task.apps}
    return not wanted or str(app).casefold() in wanted


def _is_stuck(trajectory: Trajectory) -> bool:
    """Return whether several steps in a row did the same kind of action and left the screen as it was."""
    steps = trajectory.steps
    screens = [
        *(step.observation.digest for step in steps),
        "" if trajectory.final is None else trajectory.final.digest,
    ]
    kinds = [None if step.executed is None else step.executed.type for step in steps]
    alike = 0
    for place, kind in enumerate(kinds):
        is_idle = screens[place] == screens[place + 1]
        alike = 0 if not is_idle else alike + 1 if alike and kind == kinds[place - 1] else 1
        if alike == _ALIKE:
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFailure:
    """Why one episode failed, as it is stored."""

    mode: FailureMode
    attempt: int
    steps: int
    """Both of the episode that was looked at: one that was played again has another failure."""
    distances: tuple[int | None, ...] | None = None
    """As for `classify_failure`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCounts:
    """Failures of a run."""

    failed: int
    """Unsolved episodes that are over, those that were not looked at included."""
    modes: Mapping[FailureMode, int]
    """In the order of the rules; without those that did not occur."""
    unseen: int
    """Unsolved episodes that were not looked at."""

    @property
    def coarse(self) -> dict[str, int]:
        """Counts of the three coarse modes."""
        counts = Counter[str]()
        for mode, count in self.modes.items():
            if mode in COARSE:
                counts[COARSE[mode]] += count
        return dict(counts)


_STORED: TypeAdapter[dict[str, EpisodeFailure]] = TypeAdapter(dict[str, EpisodeFailure])


def list_failed(episodes: Sequence[EpisodeSummary]) -> list[EpisodeSummary]:
    """List the episodes that are over and not solved."""
    return [one for one in episodes if one.state != "unfinished" and not (one.outcome and one.outcome.success)]


def find_failure(stored: Mapping[str, EpisodeFailure], episode: EpisodeSummary) -> EpisodeFailure | None:
    """Return the stored failure of exactly this attempt of an episode, or None."""
    found = stored.get(episode.id)
    return found if found and (found.attempt, found.steps) == (episode.attempt, episode.steps) else None


def count_failures(episodes: Sequence[EpisodeSummary], stored: Mapping[str, EpisodeFailure]) -> FailureCounts:
    """Count why a run's episodes failed."""
    failed = list_failed(episodes)
    found = [one.mode for episode in failed if (one := find_failure(stored, episode)) is not None]
    counts = Counter(found)
    modes = {mode: counts[mode] for mode in MODES if counts[mode]}
    return FailureCounts(failed=len(failed), modes=modes, unseen=len(failed) - len(found))


def read_failures(run: Path) -> dict[str, EpisodeFailure]:
    """Read the stored failures of a run by episode; none if the run was not looked at.

    Raises:
        RunFormatError: the file cannot be read by this version.
    """
    path = run / FILE
    try:
        content = json.loads(read_plain(path))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}, this version reads {FORMAT}")
        return _STORED.validate_python(content["episodes"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, ValidationError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise RunFormatError(f"{path}: cannot be read: {why}; remove it, and look at the failures again") from None


def write_failures(run: Path, failures: Mapping[str, EpisodeFailure]) -> None:
    """Write the failures of a run; StoreFailure if the file cannot be written."""
    with report_write_errors(run / FILE):
        write_json(run / FILE, {"format": FORMAT, "episodes": {name: asdict(one) for name, one in failures.items()}})
