"""One set of pairs beside a run, found by step: where each pair stands in its file, and who is a side of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from collab.credit.pair_store import FILE, FOLDER
from collab.store.summary import Problem
from collab.types import PreferencePair
from collab.view.labelled import Key, first_line
from collab.view.links import trouble

_PAIR: TypeAdapter[PreferencePair] = TypeAdapter(PreferencePair)


class PairSet:
    """A stored set as it was read; whoever makes it anew under the same name makes another file (`fits`)."""

    def __init__(self, run: Path, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self._path = run / FOLDER / name / FILE
        self._ids: list[str] = []
        self._sources: list[str] = []
        self._places: list[tuple[int, int]] = []
        self._at: defaultdict[Key, list[int]] = defaultdict(list)
        self._stat = self._now()
        why = trouble(run, self._path)
        if why is not None:
            self._trouble(None, OSError(why))
            return
        try:
            with self._path.open("rb") as lines:
                self._read(lines)
        except OSError as error:
            self._trouble(None, error)

    def fits(self) -> bool:
        """Whether its file is the one that was read."""
        return self._stat == self._now()

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

    def _read(self, lines: Any) -> None:
        offset = 0
        for number, line in enumerate(lines, start=1):
            try:
                self._add(from_json(line, cache_strings="all"), offset, len(line))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                self._trouble(number, error)
            offset += len(line)

    def _add(self, content: Any, offset: int, length: int) -> None:
        number = len(self._ids)
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
        self._places.append((offset, length))

    def _now(self) -> tuple[int, ...] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _trouble(self, line: int | None, error: Exception) -> None:
        file = f"{FOLDER}/{self.name}/{FILE}"
        self.problems.append(Problem(file=file, line=line, reason=first_line(error)))
