"""Estimates of steps: read from beside the lessons of a training, and joined by run, trajectory and step.

    found, why = build_episode_estimates(run, "ContactsAddContact/0")    # newest epoch first
    curves = build_calibrations(training)

An episode that is remembered for several epochs is estimated in each of them. All that is shown comes from the columns
of `collab.trainers.rl.step_estimates`, whichever algorithm wrote them. A lesson whose estimates are missing or cannot
be read is told in words.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from collab.errors import CollabError, MissingExtra
from collab.loop.record import find_training
from collab.rewards.calibration.metrics import Bin, KnownStep, compute_reliability
from collab.trainers.rl.candidates import CandidateEstimate, read_candidates
from collab.trainers.rl.step_estimates import ESTIMATES, StepEstimate, read_estimates
from collab.utils.files import place_within
from collab.view.common import explain_unreadable, shorten
from collab.view.schema.episodes import CandidateView, EpisodeEstimates, EstimateView
from collab.view.schema.runs import CalibrationView, ProblemView, RatedThing, ReliabilityBin

WRITTEN = f"epochs/*/examples/*/{ESTIMATES}"
"""Files of estimates in a training."""
_LESSONS = "epochs/*/examples/*/order.json"
"""Files beside which estimates are expected."""
_RATED: Mapping[RatedThing, str] = {"states": "value", "tasks": "instruct_value"}
"""What values rate → their column."""
_TOLD = 3
"""Most files that are named in a line."""
_HELD = 512
"""Calibrations in memory, a few kB each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonPlace:
    """Folder of what a policy learned in an epoch."""

    training: Path
    epoch: int
    policy: str

    @property
    def folder(self) -> Path:
        """Return the folder."""
        return self.training / "epochs" / str(self.epoch) / "examples" / self.policy

    @property
    def file(self) -> str:
        """Return the file of its estimates, relative to the training."""
        return (self.folder / ESTIMATES).relative_to(self.training).as_posix()

    def explain(self) -> str | None:
        """Explain why its estimates are not read; None where they may be."""
        path = self.folder / ESTIMATES
        return explain_unreadable(self.training, path) or (None if path.is_file() else "is missing")


def build_episode_estimates(run: Path, episode: str) -> tuple[list[EpisodeEstimates], str | None]:
    """Return the estimates of an episode, the newest epoch's first, and why there are none or not all.

    Both are empty for a run of no training, and where a training has no lesson.

    Args:
        run: directory of the episode's run.
    """
    training = find_training(run)
    lessons = [] if training is None else _list_lessons(training.path)
    if training is None or not lessons:
        return [], None
    # As estimates name it: relative to the training, so that both can be moved.
    name = place_within(training.path, str(run.resolve()))
    found, lacking = list[EpisodeEstimates](), list[str]()
    for lesson in reversed(lessons):
        why, steps = lesson.explain(), list[EstimateView]()
        try:
            steps = [] if why else _build_views(lesson, name, episode)
        except CollabError as error:
            why = _describe(lesson, error)
        if why:
            lacking.append(f"{lesson.file}: {why}")
        elif steps:
            found.append(EpisodeEstimates(epoch=lesson.epoch, policy=shorten(lesson.policy), steps=steps))
    return found, _join(lacking) or (None if found else "no epoch has estimated this episode")


def build_calibrations(training: Path) -> tuple[list[CalibrationView], str | None]:
    """Return how well the values of each epoch fit outcomes, and which estimates are not read."""
    found, lacking = list[CalibrationView](), list[str]()
    for lesson in _list_lessons(training):
        why, curves = _measure_readable(lesson)
        if why is not None:
            lacking.append(f"{lesson.file}: {why}")
        for rated, bins in curves.items():
            told = [
                ReliabilityBin(low=one.low, high=one.high, count=one.count, mean=one.mean_score, solved=one.good)
                for one in bins
            ]
            found.append(CalibrationView(epoch=lesson.epoch, policy=shorten(lesson.policy), rated=rated, bins=told))
    return found, _join(lacking)


def find_estimate_problems(training: Path) -> list[ProblemView]:
    """Find estimates that are missing or cannot be read."""
    told = ((lesson.file, _measure_readable(lesson)[0]) for lesson in _list_lessons(training))
    return [ProblemView(file=file, line=None, reason=why) for file, why in told if why and why != _UNINSTALLED]


def stamp_estimates(run: Path) -> str:
    """Return a text that changes with the estimates of a run's training; empty for a run of none. Reads no file."""
    training = find_training(run)
    files = () if training is None else training.path.glob(WRITTEN)
    stats = (path.stat() for path in sorted(files) if path.is_file())
    return " ".join(f"{one.st_mtime_ns} {one.st_size}" for one in stats)


# ------------------------------------------------------------------------------------------------------ inside

_UNINSTALLED = "pyarrow, which reads it, is not installed: pip install 'collab-marl[parquet]'"


def _list_lessons(training: Path) -> list[LessonPlace]:
    """List all lessons of a training, the oldest first."""
    folders = [path.parent for path in training.glob(_LESSONS)]
    found = [
        LessonPlace(training=training, epoch=int(one.parent.parent.name), policy=one.name)
        for one in folders
        if one.parent.parent.name.isdecimal()
    ]
    return sorted(found, key=lambda one: (one.epoch, one.policy))


def _build_views(lesson: LessonPlace, run: str, episode: str) -> list[EstimateView]:
    """Build what is shown of an episode's steps; raises as reading estimates and candidates."""
    candidates = defaultdict[int, list[CandidateEstimate]](list)
    for one in read_candidates(lesson.folder, run=run, trajectory=episode):
        candidates[one.step].append(one)
    steps = read_estimates(lesson.folder, run=run, trajectory=episode)
    return [_build_view(one, candidates[one.step]) for one in steps]


def _describe(lesson: LessonPlace, error: CollabError) -> str:
    """Describe why estimates are not read, without the place of the training on this machine."""
    if isinstance(error, MissingExtra):
        return _UNINSTALLED
    return shorten(str(error).removeprefix(f"{lesson.folder / ESTIMATES}: "))


def _join(lacking: Sequence[str]) -> str | None:
    """Join reasons in one text, of which many are counted; None without any."""
    more = [f"and {len(lacking) - _TOLD} more"] if len(lacking) > _TOLD else []
    return "; ".join([*lacking[:_TOLD], *more]) or None


def _build_view(one: StepEstimate, candidates: Iterable[CandidateEstimate]) -> EstimateView:
    return EstimateView(
        step=one.step,
        reward=one.reward,
        value=one.value,
        value_next=one.value_next,
        step_reward=one.step_reward,
        target=one.target,
        instruct_value=one.instruct_value,
        instruct_advantage=one.instruct_advantage,
        advantage=one.advantage,
        penalty=one.penalty,
        ratio=one.ratio,
        entropy=one.entropy,
        staleness=one.staleness,
        priority=one.priority,
        threshold=one.threshold,
        weight=one.weight,
        why=shorten(one.why),
        # The reply that Q prefers comes first.
        candidates=[
            CandidateView(
                count=each.count,
                text=shorten(each.text),
                action=None if each.action is None else shorten(each.action),
                value=each.value,
                advantage=each.advantage,
                truth=each.truth,
            )
            for each in sorted(candidates, key=lambda each: -each.value)
        ],
    )


def _measure_readable(lesson: LessonPlace) -> tuple[str | None, Mapping[RatedThing, Sequence[Bin]]]:
    """Return why a lesson's estimates are not read, or their calibration."""
    why = lesson.explain()
    try:
        stat = (lesson.folder / ESTIMATES).stat() if why is None else None
        return why, {} if stat is None else _measure(lesson, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        return error.strerror or str(error), {}
    except CollabError as error:
        return _describe(lesson, error), {}


@lru_cache(maxsize=_HELD)
def _measure(lesson: LessonPlace, changed: int, size: int) -> Mapping[RatedThing, Sequence[Bin]]:
    """Measure how often episodes were solved, by the values of their states and of their tasks.

    Args:
        changed, size: of the file; others mean that it is read again.
    """
    known: dict[RatedThing, list[KnownStep]] = {rated: [] for rated in _RATED}
    episodes: set[tuple[str, str]] = set()
    for one in read_estimates(lesson.folder):
        for rated, column in _RATED.items():
            value = getattr(one, column)
            # A task has one value per episode, a state one per step.
            is_counted = rated == "tasks" and (one.run, one.trajectory) in episodes
            # What is fitted to another return than the outcome is no probability of it.
            if value is not None and math.isfinite(value) and not is_counted and one.target is None:
                known[rated].append(KnownStep(score=min(1.0, max(0.0, value)), good=one.reward > 0.5))
        episodes.add((one.run, one.trajectory))
    return {rated: compute_reliability(steps) for rated, steps in known.items() if steps}
