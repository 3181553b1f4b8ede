"""What a report holds: the inspector's own answers for chosen episodes, under the addresses by which its pages ask.

    packing = Packing(inspector, id, chosen, known=rows, labels=labels)
    for row in packing.chosen:
        packing.add(row)
    packing.data(), packing.parts

The answers about the run stand open; those about an episode are packed together and compressed, one part per episode,
because the twelve prompts of a step say almost the same. Pictures stand beside them, each once, under names made of
their content, whichever steps show them. `static/packed.js` reads all this back.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from collab.errors import CollabError
from collab.view.answer import encoded
from collab.view.episodes import page
from collab.view.inspector import Inspector
from collab.view.shapes.episodes import EpisodeFilter, EpisodeKey, EpisodeRow
from collab.view.shapes.finds import Finds
from collab.view.shapes.overview import Overview
from collab.view.shapes.runs import Problems, RunRow, RunView
from collab.view.shapes.screen import Screen, ScreenWhole
from collab.view.shapes.step import StepView
from collab.view.thumbnail import looks, thumbnail

_KINDS: tuple[Literal["first-wrong", "overruled", "disagrees"], ...] = ("first-wrong", "overruled", "disagrees")
_FINAL = "final"

Answer = tuple[str, Any]
"""Address below /api/ and what is answered."""


class Packing:
    """A report in the making.

    Args:
        id: of a run or training.
        chosen: episodes of it, in the order in which they are leafed through; those that cannot be opened are left out.
        known: all that it has, from which they were chosen.
        labels: whose scores to show, in the runs that have them; None for those that each run shows first.
    """

    def __init__(
        self,
        inspector: Inspector,
        id: str,
        chosen: Sequence[EpisodeRow],
        *,
        known: Sequence[EpisodeRow],
        labels: str | None,
    ) -> None:
        self.parts: list[bytes] = []
        """Compressed answers of each episode, by number."""
        self.pictures: dict[str, str] = {}
        """Address → data URI."""
        self.steps = 0
        self.unread: list[str] = []
        """Why episodes and steps that the run has are not in the report."""
        self._inspector, self._id, self._asked = inspector, id, labels
        self._known, self._place = tuple(known), Path(inspector.row(id).path)
        self._chosen = [one for one in chosen if self._opens(one)]
        self._places: dict[str, int] = {}
        self._named: dict[str, str] = {}
        self._whose: dict[str, str | None] = {}

    @property
    def chosen(self) -> Sequence[EpisodeRow]:
        """Those of the chosen episodes that can be opened, and so are to be packed."""
        return tuple(self._chosen)

    def add(self, row: EpisodeRow) -> None:
        """Pack one of them."""
        answers = dict(self._episode(row))
        self._places[f"{_piece(row.run)}?episode={_piece(row.id)}"] = len(self.parts)
        self.parts.append(gzip.compress(encoded(answers), compresslevel=9, mtime=0))

    def data(self) -> dict[str, Any]:
        """Everything but the parts; ask when all episodes are packed."""
        known = dict.fromkeys([self._id, *(one.run for one in self._chosen)])
        first = self._inspector.runs()
        answers: dict[str, Any] = {"runs": replace(first, runs=[_without_place(self._inspector.row(self._id))])}
        for run in known:
            answers |= dict(self._run(run, set(known)))
        counts = {run: [len(self._of(rows, run)) for rows in (self._chosen, self._known)] for run in known}
        held = {run: {"episodes": few, "of": of} for run, (few, of) in counts.items()}
        return {"answers": answers, "parts": self._places, "pictures": self.pictures, "held": held}

    # -------------------------------------------------------------------------------------------------- inside

    def _opens(self, row: EpisodeRow) -> bool:
        """Whether an episode is more than its line in the index: that outlives a start that cannot be read any more."""
        try:
            self._inspector.episode(row.run, row.id, "")
        except CollabError as error:
            self.unread.append(f"{row.id}: {error}")
            return False
        return True

    def _labels(self, run: str) -> str | None:
        """Whose scores to show of a run: none where it lacks the labelling that was asked for."""
        if run not in self._whose:
            has = not self._asked or self._asked in self._inspector.run(run).labellings
            self._whose[run] = self._asked if has else ""
        return self._whose[run]

    def _of(self, rows: Sequence[EpisodeRow], run: str) -> list[EpisodeRow]:
        """Those of a run; of the training whose report this is, all."""
        return [one for one in rows if run in (self._id, one.run)]

    def _run(self, run: str, known: set[str]) -> Iterator[Answer]:
        """What is asked about a run or a training, as far as it is about what the report holds."""
        at, ask = f"run/{_piece(run)}", self._inspector
        rows = self._of(self._chosen, run)
        labels = self._labels(run)
        overview = ask.overview(run, labels)
        yield at, _view(ask.run(run), overview, known)
        yield f"{at}/overview", _numbers(overview, known)
        problems = [replace(one, reason=self._placeless(one.reason)) for one in ask.problems(run).problems]
        yield f"{at}/problems", Problems(problems=problems)
        yield f"{at}/episodes", replace(page(rows, EpisodeFilter()), rows=rows, total=len(rows))
        places = {(one.run, one.id) for one in rows}
        for kind in _KINDS:
            found: Finds = ask.finds(run, kind, labels)
            yield (
                f"{at}/finds?kind={kind}",
                replace(found, rows=[o for o in found.rows if (o.run, o.episode) in places]),
            )

    def _episode(self, row: EpisodeRow) -> Iterator[Answer]:
        """Steps first, then the words of all cells: what is alike stands close together, which packs well."""
        view = self._inspector.episode(row.run, row.id, self._labels(row.run))
        before, behind = self._around(row)
        final = list(self._readable(row, "last screen", self._final(row))) if view.final else []
        yield _at(row, "episode"), replace(view, previous=before, next=behind, final=bool(final))
        steps = [one.step for one in view.steps]
        for step in steps:
            yield from self._readable(row, f"step {step}", self._step(row, step))
        yield from final
        for step in steps:
            yield from self._readable(row, f"step {step}", self._cells(row, step))

    def _readable(self, row: EpisodeRow, what: str, answers: Iterator[Answer]) -> Iterator[Answer]:
        try:
            yield from answers
        except CollabError as error:
            self.unread.append(f"{row.id}, {what}: {error}")

    def _step(self, row: EpisodeRow, step: int) -> Iterator[Answer]:
        found: StepView = self._inspector.step(row.run, row.id, step, self._labels(row.run))
        self.steps += 1
        labellings = [] if found.labels is None else [found.labels]
        screen = self._shown(found.screen, row, str(step))
        yield _at(row, "step", step=step), replace(found, screen=screen, labellings=labellings)
        if found.screen.text.cut:
            yield _at(row, "screen", step=step), self._words(row, str(step))

    def _final(self, row: EpisodeRow) -> Iterator[Answer]:
        found = self._inspector.final(row.run, row.id)
        yield _at(row, "final"), self._shown(found, row, _FINAL)
        if found.text.cut:
            yield _at(row, "screen", step=_FINAL), self._words(row, _FINAL)

    def _words(self, row: EpisodeRow, step: str) -> ScreenWhole:
        """What agents read of a screen, whole; its elements stay in the run, for they may be of any size and number."""
        return replace(self._inspector.screen(row.run, row.id, step), elements=())

    def _cells(self, row: EpisodeRow, step: int) -> Iterator[Answer]:
        for cell in self._inspector.cells(row.run, row.id, step, self._labels(row.run)):
            at = _at(row, "cell", step=step, agent=cell.agent, round=cell.round)
            unread = None if cell.unread is None else self._placeless(cell.unread)
            yield at, replace(cell, tokens=None, logprobs=None, unread=unread)

    def _shown(self, screen: Screen, row: EpisodeRow, step: str) -> Screen:
        """The screen with the address of its small picture; where there is none, with the reason."""
        if screen.picture is None:
            why = screen.unpictured
            return screen if why is None else replace(screen, unpictured=self._placeless(why))
        try:
            return replace(screen, picture=f"/api/{self._picture(row, step)}")
        except CollabError as error:
            return replace(screen, picture=None, unpictured=self._placeless(str(error)))

    def _placeless(self, words: str) -> str:
        """A message with the run's name in place of where it lies on this machine."""
        for place in (self._place.resolve(), self._place.absolute(), self._place):
            words = words.replace(f"{place}", self._place.resolve().name) if len(place.parts) > 1 else words
        return words

    def _picture(self, row: EpisodeRow, step: str) -> str:
        """Where in the report the picture of a screen is."""
        observation = self._inspector.observation(row.run, row.id, step)
        known = looks(observation)
        if known not in self._named:
            hash = observation.screenshot
            content = thumbnail(observation, None if hash is None else self._inspector.picture(row.run, hash))
            name = f"picture/{hashlib.sha256(content).hexdigest()[:16]}"
            self.pictures[name] = f"data:image/webp;base64,{base64.b64encode(content).decode('ascii')}"
            self._named[known] = name
        return self._named[known]

    def _around(self, row: EpisodeRow) -> tuple[EpisodeKey | None, EpisodeKey | None]:
        """The chosen episodes before and behind one of them."""
        order = [(one.run, one.id) for one in self._chosen]
        place = order.index((row.run, row.id))
        keys = [EpisodeKey(run=run, episode=id) for run, id in order]
        return keys[place - 1] if place else None, keys[place + 1] if place + 1 < len(keys) else None


def _at(row: EpisodeRow, what: str, **values: str | int) -> str:
    """An address about an episode, as `static/data.js` writes it."""
    given = "".join(f"&{name}={_piece(str(value))}" for name, value in values.items())
    return f"run/{_piece(row.run)}/{what}?episode={_piece(row.id)}{given}"


def _piece(text: str) -> str:
    """A piece of an address, as `encoded` in `static/place.js` writes it: half characters become U+FFFD."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return quote(whole, safe="-_.!~*'()")


def _without_place(row: RunRow) -> RunRow:
    """The run by its name: where it lies is nobody's business who reads a report."""
    return replace(row, path=Path(row.path).name or row.path)


def _view(view: RunView, overview: Overview, known: set[str]) -> RunView:
    return replace(
        view,
        run=_without_place(view.run),
        training=view.training if view.training in known else None,
        parts=[one for one in view.parts if one.id in known],
        labellings=[] if overview.labels is None else [overview.labels],
    )


def _numbers(overview: Overview, known: set[str]) -> Overview:
    epochs = [replace(one, runs=[part for part in one.runs if part.id in known]) for one in overview.epochs]
    return replace(overview, run=_without_place(overview.run), epochs=epochs)
