"""One set of pairs beside a run, found by step: where each pair stands in its file, and who is a side of it."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import from_json

from collab.credit import pair_store
from collab.errors import CollabError
from collab.store.summary import Problem
from collab.types import PreferencePair
from collab.view.labelled import NOTHING, Key, Sums, first_line
from collab.view.lines import lines_about
from collab.view.links import trouble

_PAIR: TypeAdapter[PreferencePair] = TypeAdapter(PreferencePair)
_UNFIT = (ValueError, LookupError, TypeError, AttributeError)
"""What a line that is no pair raises."""


class PairSet:
    """A stored set as it was read; whoever makes it anew under the same name makes another file (`fits`).

    Args:
        about: a trajectory; only its pairs are known, found without reading the others. None for all.
    """

    def __init__(self, run: Path, name: str, *, about: str | None = None) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self._path = run / pair_store.FOLDER / name / pair_store.FILE
        self._ids: list[str] = []
        self._sources: list[str] = []
        self._places: list[tuple[int, int]] = []
        self._at: defaultdict[Key, list[int]] = defaultdict(list)
        self._made = (run, name)
        self._state = stored_state(run, name)
        why = trouble(run, self._path)
        if why is not None:
            self._trouble(None, OSError(why))
            return
        try:
            if about is None:
                self._read_all()
            else:
                self._read_about(about)
        except OSError as error:
            self._trouble(None, error)

    def fits(self) -> bool:
        """Whether its files are those that were read."""
        return self._state == stored_state(*self._made)

    def of(self, trajectory: str, step: int) -> Iterator[PreferencePair]:
        """Pairs of which a side was said at a step; what cannot be read is left out."""
        for number in self._at.get((trajectory, step), ()):
            try:
                with self._path.open("rb") as file:
                    offset, length = self._places[number]
                    file.seek(offset)
                    yield _PAIR.validate_python(from_json(file.read(length)))
            except (OSError, ValueError):
                continue

    def count(self, trajectory: str, step: int) -> int:
        """How many those are."""
        return len(self._at.get((trajectory, step), ()))

    def sources(self, wanted: Callable[[str], bool]) -> Mapping[str, int]:
        """Pairs by source that have a side in a trajectory that is wanted."""
        numbers = {number for (trajectory, _), found in self._at.items() if wanted(trajectory) for number in found}
        return Counter(self._sources[number] for number in sorted(numbers))

    def beginning(self, letters: str) -> Iterator[tuple[str, Key]]:
        """Ids that begin with these letters, each with the first step that it is about."""
        found = {number for number, id in enumerate(self._ids) if id.startswith(letters)}
        for key in sorted(self._at) if found else ():
            for number in found.intersection(self._at[key]):
                found.discard(number)
                yield self._ids[number], key

    def _read_all(self) -> None:
        offset = 0
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    self._add(line, offset)
                except _UNFIT as error:
                    self._trouble(number, error)
                offset += len(line)

    def _read_about(self, trajectory: str) -> None:
        for offset, line in lines_about(self._path, trajectory):
            with contextlib.suppress(*_UNFIT):  # told when all are read
                self._add(line, offset)

    def _add(self, line: bytes, offset: int) -> None:
        number, content = len(self._ids), from_json(line, cache_strings="all")
        id, source = content["id"], content["source"]
        keys = {(one["trajectory"], one["step"]) for one in (*content["chosen"], *content["rejected"])}
        if not isinstance(id, str) or not isinstance(source, str):
            raise TypeError("id and source of a pair are texts")
        if not all(isinstance(trajectory, str) and isinstance(step, int) for trajectory, step in keys):
            raise TypeError("a side of a pair names a trajectory and the number of a step")
        for key in keys:  # only now: a line counts whole or not at all
            self._at[key].append(number)
        self._ids.append(id)
        self._sources.append(source)
        self._places.append((offset, len(line)))

    def _trouble(self, line: int | None, error: Exception) -> None:
        file = f"{pair_store.FOLDER}/{self.name}/{pair_store.FILE}"
        self.problems.append(Problem(file=file, line=line, reason=first_line(error)))


def stored_state(run: Path, name: str) -> tuple[int, ...] | None:
    """Says which files a set is in, and as they are now; None where one of them is not there."""
    try:
        stats = [(run / pair_store.FOLDER / name / file).stat() for file in (pair_store.FILE, pair_store.HEAD)]
    except OSError:
        return None
    return tuple(told for stat in stats for told in (stat.st_ino, stat.st_mtime_ns, stat.st_size))


def adversary_of(run: Path, name: str) -> Sums:
    """What the adversary behind a set took; nothing where its head cannot be read."""
    try:
        spent = pair_store.read_head(run, name).spent
    except (CollabError, OSError):
        return NOTHING
    # A head has 0 also where nothing was told.
    return spent.calls, spent.prompt_tokens or None, spent.completion_tokens or None, spent.cost_usd or None
