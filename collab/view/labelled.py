"""One labelling beside a run, found by step: where each judgement stands in its file, and its scores.

Scores are kept as arrays, their cells and causes once for all steps that share them: 240,000 scores take a few
megabytes, and reading them takes little more than reading their JSON.
"""

from __future__ import annotations

import contextlib
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pydantic_core import from_json

from collab.credit.critic import Judgement
from collab.credit.labels import FILE as LABELS_HEAD
from collab.credit.labels import FOLDER as LABELS
from collab.errors import RunFormatError
from collab.store import log
from collab.store.files import read_json
from collab.store.log import Place
from collab.store.summary import Problem
from collab.types import Label
from collab.view.lines import lines_about
from collab.view.links import trouble

Cells: TypeAlias = tuple[tuple[str, int], ...]
"""Agent and round, in conversation order."""
Key: TypeAlias = tuple[str, int]
"""Trajectory and step."""

Sums: TypeAlias = tuple[int, int | None, int | None, float | None]
"""Of model calls: how many, prompt tokens, completion tokens, USD; over those that tell, None where none does."""
NOTHING: Sums = (0, None, None, None)

_JUDGEMENT: TypeAdapter[Judgement] = TypeAdapter(Judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a labelling says about a step."""

    cells: Cells
    """Empty where nobody could be asked."""
    scores: array[float]
    """One per cell; NaN where it is missing."""
    missing: tuple[str | None, ...]
    """Why, per cell; empty when none is missing."""
    place: Place | None = None
    """Where it stands; None for one that stands in the run's own log."""
    failed: str | None = None
    """Why nobody could be asked; None when somebody judged."""
    spent: Sums = NOTHING
    """Of its calls."""

    def scored(self) -> Iterator[tuple[str, int, float]]:
        """Agent, round and score of the cells that have one."""
        for (agent, round), score in zip(self.cells, self.scores, strict=True):
            if not math.isnan(score):
                yield agent, round, score


@dataclass(slots=True)
class Labelling:
    """A folder of judgements, as far as it was read."""

    run: Path
    name: str
    said: dict[Key, Said] = field(default_factory=dict)
    """Of several on one step the last judgement."""
    problems: list[Problem] = field(default_factory=list)
    _read: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Segment → bytes and lines."""
    _known: dict[Any, Any] = field(default_factory=dict)
    """Equal cells and causes are one object."""

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.run / LABELS / self.name

    @property
    def critic(self) -> str | None:
        """Who judges; None where that cannot be read."""
        try:
            return str(read_json(self.folder / LABELS_HEAD, self.name)["critic"])
        except (RunFormatError, LookupError, TypeError):
            return None

    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Bytes of each of its segments, as they are now."""
        return tuple((segment, log.size(self.folder, segment)) for segment in log.segments(self.folder))

    def fits(self) -> bool:
        """Whether its segments still begin as they were read."""
        return all(log.size(self.folder, segment) >= end for segment, (end, _) in self._read.items())

    def refresh(self) -> bool:
        """Read what was appended since; returns whether anything was."""
        before = (sum(consumed for consumed, _ in self._read.values()), len(self.problems))
        try:
            for segment in log.segments(self.folder):
                why = trouble(self.run, self.folder / log.FOLDER / segment)
                if why is None:
                    self._take(segment)
                else:
                    self._trouble(Problem(file=f"{LABELS}/{self.name}/{log.FOLDER}/{segment}", line=None, reason=why))
        except OSError as error:
            self._trouble(Problem(file=f"{LABELS}/{self.name}", line=None, reason=str(error)))
        return before != (sum(consumed for consumed, _ in self._read.values()), len(self.problems))

    def judgement(self, said: Said) -> Judgement:
        """The whole judgement; OSError or ValueError where it cannot be read any more."""
        assert said.place is not None
        content = from_json(log.read(self.folder, said.place))
        return _JUDGEMENT.validate_python({name: value for name, value in content.items() if name != "type"})

    def about(self, trajectory: str) -> Mapping[Key, Said]:
        """What it says about one trajectory: read from its files now, for whoever does not wait for all of them."""
        found = Labelling(self.run, self.name)
        with contextlib.suppress(OSError):  # told when all is read
            for segment in log.segments(self.folder):
                path = self.folder / log.FOLDER / segment
                if trouble(self.run, path) is None:
                    for offset, line in lines_about(path, trajectory):
                        found._add(line, Place(segment, offset, len(line)))
        return {key: said for key, said in found.said.items() if key[0] == trajectory}

    def _take(self, segment: str) -> None:
        for line in log.scan(self.folder, segment, *self._read.get(segment, (0, 0))):
            self._read[segment] = (line.place.offset + line.place.length, line.number)
            why = self._add(line.content, line.place)
            if why is not None:
                file = f"{LABELS}/{self.name}/{log.FOLDER}/{segment}"
                self._trouble(Problem(file=file, line=line.number, reason=why))

    def _trouble(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _add(self, line: bytes, place: Place) -> str | None:
        """Take in a line; returns why it cannot be read."""
        try:
            self._say(from_json(line, cache_strings="all"), place)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            return first_line(error)
        return None

    def _say(self, content: Any, place: Place) -> None:
        if content["type"] == "failed":
            key = (str(content["trajectory"]), int(content["step"]))
            said = _none(f"{content['error']}: {content['message']}", place)
            if key not in self.said or self.said[key].failed is not None:
                self.said[key] = said
            return
        rewards = content["rewards"]
        words = [(one["cell"], one["score"], one["missing"]) for one in rewards["rewards"]]
        cells = tuple((agent, round) for (agent, round), _, _ in words)
        missing = tuple(why for _, _, why in words) if any(why is not None for _, _, why in words) else ()
        self.said[rewards["trajectory"], rewards["step"]] = Said(
            cells=self._one(cells),
            scores=_scores(score for _, score, _ in words),
            missing=self._one(missing),
            place=place,
            spent=_spent(content["calls"]),
        )

    def _one(self, value: Any) -> Any:
        return self._known.setdefault(value, value)


def read_labelling(run: Path, name: str) -> Labelling:
    """All of it."""
    one = Labelling(run, name)
    one.refresh()
    return one


def logged(labels: Iterable[Label], maker: str) -> Mapping[Key, Said]:
    """What somebody says in the run's own log."""
    return {
        (rewards.trajectory, rewards.step): Said(
            cells=tuple((one.cell.agent, one.cell.round) for one in rewards.rewards),
            scores=_scores(one.score for one in rewards.rewards),
            missing=tuple(one.missing for one in rewards.rewards),
        )
        for label in labels
        if label.maker == maker
        for rewards in label.rewards
    }


def added(sums: Iterable[Sums]) -> Sums:
    """All together."""
    known = list(sums)
    prompt, completion, usd = (told_sum(one[place] for one in known) for place in (1, 2, 3))
    return sum(calls for calls, *_ in known), prompt, completion, usd


def told_sum(values: Iterable[Any]) -> Any:
    """Sum of the numbers that are known; None where none is."""
    told = [one for one in values if one is not None]
    return sum(told) if told else None


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _none(failed: str, place: Place) -> Said:
    return Said(cells=(), scores=array("d"), missing=(), place=place, failed=failed)


def _scores(scores: Iterable[float | None]) -> array[float]:
    return array("d", [math.nan if score is None else score for score in scores])


def _spent(calls: Any) -> Sums:
    if not calls:
        return NOTHING
    prompt, completion, usd = (
        told_sum(call.get(what) for call in calls) for what in ("prompt_tokens", "completion_tokens", "cost_usd")
    )
    return len(calls), prompt, completion, usd
