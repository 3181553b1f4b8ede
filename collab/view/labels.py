"""Stored judgements and pairs beside a run, found by step.

    beside = RunLabels(reader)
    beside.refresh()
    beside.list_label_sets()                                  # ["oracle"]
    beside.read_verdict("oracle", "ContactsAddContact/0", 3)
    beside.list_pairs("ContactsAddContact/0", 3)

Files are read at the first request about the whole run, and appended lines at later ones. Until then an answer about
one episode takes only its own lines out of them.

Scores are kept as arrays, and steps share equal cells and causes: 240,000 scores take a few megabytes, and reading them
takes little more than reading their JSON.
"""

from __future__ import annotations

import contextlib
import math
import threading
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json

from collab.errors import CollabError, RunFormatError, UnknownName
from collab.loop.record import LABELS as LEARNED_LABELS
from collab.preferences import store
from collab.rewards.base import Judgement
from collab.rewards.labels import FILE as LABELS_HEAD
from collab.rewards.labels import FOLDER as LABELS
from collab.rewards.labels import list_label_sets, read_label_head
from collab.store import log
from collab.store.log import Place
from collab.store.reader import Problem, RunReader
from collab.store.rewards import PreferencePair
from collab.utils.files import read_json
from collab.view.common import explain_unreadable, find_lines_about

Cells: TypeAlias = tuple[tuple[str, int], ...]
"""Agent and round, in conversation order."""
StepId: TypeAlias = tuple[str, int]
"""Trajectory and step."""

Sums: TypeAlias = tuple[int, int | None, int | None, float | None]
"""Model calls, prompt tokens, completion tokens, USD: sums over the calls that report them, None without any."""
NOTHING: Sums = (0, None, None, None)

_JUDGEMENT: TypeAdapter[Judgement] = TypeAdapter(Judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScores:
    """A label set's scores of a step."""

    cells: Cells
    """Empty where the critic failed."""
    scores: array[float]
    """One per cell; NaN where it is missing."""
    missing: tuple[str | None, ...]
    """Causes of missing scores, per cell; empty when none is missing."""
    place: Place | None = None
    """Its place; None for one in the run's own log."""
    failed: str | None = None
    """Why the critic failed; None for a judged step."""
    spent: Sums = NOTHING
    """Cost of its calls."""

    def iterate_scored(self) -> Iterator[tuple[str, int, float]]:
        """Yield agent, round and score of the cells that have one."""
        for (agent, round), score in zip(self.cells, self.scores, strict=True):
            if not math.isnan(score):
                yield agent, round, score


@dataclass(slots=True)
class LabelSetIndex:
    """A folder of judgements, as far as it was read."""

    run: Path
    name: str
    said: dict[StepId, StepScores] = field(default_factory=dict)
    """The last judgement of each step."""
    problems: list[Problem] = field(default_factory=list)
    _read: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Segment → bytes and lines."""
    _known: dict[Any, Any] = field(default_factory=dict)
    """Equal cells and causes are one object."""

    @property
    def folder(self) -> Path:
        """Return its place."""
        return self.run / LABELS / self.name

    @property
    def critic(self) -> str | None:
        """The critic; None where it cannot be read."""
        try:
            return str(read_json(self.folder / LABELS_HEAD, self.name)["critic"])
        except (RunFormatError, LookupError, TypeError):
            return None

    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Return the present size of each segment in bytes."""
        return tuple((segment, log.get_size(self.folder, segment)) for segment in log.list_segments(self.folder))

    def is_current(self) -> bool:
        """Return whether its segments still begin as they were read."""
        return all(log.get_size(self.folder, segment) >= end for segment, (end, _) in self._read.items())

    def refresh(self) -> bool:
        """Read appended lines, and return whether there were any."""
        # Only appended lines are read: labels may be large, and pages ask often.
        before = (sum(consumed for consumed, _ in self._read.values()), len(self.problems))
        try:
            for segment in log.list_segments(self.folder):
                why = explain_unreadable(self.run, self.folder / log.FOLDER / segment)
                if why is None:
                    self._take(segment)
                else:
                    self._find_trouble(
                        Problem(file=f"{LABELS}/{self.name}/{log.FOLDER}/{segment}", line=None, reason=why)
                    )
        except OSError as error:
            # A folder that vanishes is a problem to show, not an error of the page.
            self._find_trouble(Problem(file=f"{LABELS}/{self.name}", line=None, reason=str(error)))
        return before != (sum(consumed for consumed, _ in self._read.values()), len(self.problems))

    def read_judgement(self, said: StepScores) -> Judgement:
        """Read the whole judgement; OSError or ValueError where it cannot be read any more."""
        assert said.place is not None
        content = from_json(log.read(self.folder, said.place))
        return _JUDGEMENT.validate_python({name: value for name, value in content.items() if name != "type"})

    def about(self, trajectory: str) -> Mapping[StepId, StepScores]:
        """Read the judgements of one trajectory from the files now, without waiting for all of them."""
        found = LabelSetIndex(self.run, self.name)
        with contextlib.suppress(OSError):  # reported when all is read
            for segment in log.list_segments(self.folder):
                path = self.folder / log.FOLDER / segment
                if explain_unreadable(self.run, path) is None:
                    for offset, line in find_lines_about(path, trajectory):
                        found._add(line, Place(segment, offset, len(line)))
        return {key: said for key, said in found.said.items() if key[0] == trajectory}

    def _take(self, segment: str) -> None:
        for line in log.scan(self.folder, segment, *self._read.get(segment, (0, 0))):
            self._read[segment] = (line.place.offset + line.place.length, line.number)
            why = self._add(line.content, line.place)
            if why is not None:
                file = f"{LABELS}/{self.name}/{log.FOLDER}/{segment}"
                self._find_trouble(Problem(file=file, line=line.number, reason=why))

    def _find_trouble(self, problem: Problem) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _add(self, line: bytes, place: Place) -> str | None:
        """Add a line, and return why it cannot be read, or None."""
        try:
            self._say(from_json(line, cache_strings="all"), place)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            return take_first_line(error)
        return None

    def _say(self, content: Any, place: Place) -> None:
        if content["type"] == "failed":
            key = (str(content["trajectory"]), int(content["step"]))
            failed = f"{content['error']}: {content['message']}"
            said = StepScores(cells=(), scores=array("d"), missing=(), place=place, failed=failed)
            # A judged step stays judged, even if the critic failed before or after.
            if key not in self.said or self.said[key].failed is not None:
                self.said[key] = said
            return
        rewards = content["rewards"]
        # Kept as tuples that many steps share: labels of a large run would not fit otherwise.
        words = [(one["cell"], one["score"], one["missing"]) for one in rewards["rewards"]]
        cells = tuple((agent, round) for (agent, round), _, _ in words)
        missing = tuple(why for _, _, why in words) if any(why is not None for _, _, why in words) else ()
        self.said[rewards["trajectory"], rewards["step"]] = StepScores(
            cells=self._read_line(cells),
            scores=array("d", (math.nan if score is None else score for _, score, _ in words)),
            missing=self._read_line(missing),
            place=place,
            spent=_read_spent(content["calls"]),
        )

    def _read_line(self, value: Any) -> Any:
        return self._known.setdefault(value, value)


def index_label_set(run: Path, name: str) -> LabelSetIndex:
    """Read a whole label set."""
    one = LabelSetIndex(run, name)
    one.refresh()
    return one


def add_spent(sums: Iterable[Sums]) -> Sums:
    """Add up costs."""
    known = list(sums)
    prompt, completion, usd = (sum_known(one[place] for one in known) for place in (1, 2, 3))
    return sum(calls for calls, *_ in known), prompt, completion, usd


def sum_known(values: Iterable[Any]) -> Any:
    """Sum of the numbers that are known; None where none is."""
    told = [one for one in values if one is not None]
    return sum(told) if told else None


def take_first_line(error: Exception) -> str:
    """Return an error's message on one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _read_spent(calls: Any) -> Sums:
    if not calls:
        return NOTHING
    prompt, completion, usd = (
        sum_known(call.get(what) for call in calls) for what in ("prompt_tokens", "completion_tokens", "cost_usd")
    )
    return len(calls), prompt, completion, usd


_PAIR: TypeAdapter[PreferencePair] = TypeAdapter(PreferencePair)
_UNFIT = (ValueError, LookupError, TypeError, AttributeError)
"""Errors of a line that is no pair."""


class PairSetIndex:
    """A stored set of pairs as it was read; a new set of the same name is another file (`is_current`).

    Args:
        about: a trajectory; only its pairs are known, found without reading the others. None for all.
    """

    def __init__(self, run: Path, name: str, *, about: str | None = None) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self._path = run / store.FOLDER / name / store.FILE
        self._ids: list[str] = []
        self._sources: list[str] = []
        self._places: list[tuple[int, int]] = []
        self._at: defaultdict[StepId, list[int]] = defaultdict(list)
        self._made = (run, name)
        self._state = stat_pair_set(run, name)
        why = explain_unreadable(run, self._path)
        if why is not None:
            self._find_trouble(None, OSError(why))
            return
        try:
            if about is None:
                self._read_all()
            else:
                self._read_about(about)
        except OSError as error:
            self._find_trouble(None, error)

    def is_current(self) -> bool:
        """Return whether its files are those that were read."""
        return self._state == stat_pair_set(*self._made)

    def of(self, trajectory: str, step: int) -> Iterator[PreferencePair]:
        """Return pairs with a side at a step; unreadable ones are left out."""
        for number in self._at.get((trajectory, step), ()):
            try:
                with self._path.open("rb") as file:
                    offset, length = self._places[number]
                    file.seek(offset)
                    yield _PAIR.validate_python(from_json(file.read(length)))
            except (OSError, ValueError):
                continue

    def count(self, trajectory: str, step: int) -> int:
        """Return their number."""
        return len(self._at.get((trajectory, step), ()))

    def sources(self, wanted: Callable[[str], bool]) -> Mapping[str, int]:
        """Count pairs by source that have a side in a wanted trajectory."""
        numbers = {number for (trajectory, _), found in self._at.items() if wanted(trajectory) for number in found}
        return Counter(self._sources[number] for number in sorted(numbers))

    def find_beginning(self, letters: str) -> Iterator[tuple[str, StepId]]:
        """Return IDs that begin with these letters, each with its first step."""
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
                    self._find_trouble(number, error)
                offset += len(line)

    def _read_about(self, trajectory: str) -> None:
        for offset, line in find_lines_about(self._path, trajectory):
            with contextlib.suppress(*_UNFIT):  # reported when all are read
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

    def _find_trouble(self, line: int | None, error: Exception) -> None:
        file = f"{store.FOLDER}/{self.name}/{store.FILE}"
        self.problems.append(Problem(file=file, line=line, reason=take_first_line(error)))


def stat_pair_set(run: Path, name: str) -> tuple[int, ...] | None:
    """Return the files of a set and their present states; None where one is missing."""
    try:
        stats = [(run / store.FOLDER / name / file).stat() for file in (store.FILE, store.HEAD)]
    except OSError:
        return None
    return tuple(told for stat in stats for told in (stat.st_ino, stat.st_mtime_ns, stat.st_size))


def read_adversary_spent(run: Path, name: str) -> Sums:
    """Read the cost of a set's adversary; nothing where its head cannot be read."""
    try:
        spent = store.read_pair_head(run, name).spent
    except (CollabError, OSError):
        return NOTHING
    # A head has 0 also where nothing was reported.
    return spent.calls, spent.prompt_tokens or None, spent.completion_tokens or None, spent.cost_usd or None


LEARNED = LEARNED_LABELS
"""Name of the labels that a training learned from."""


_T = TypeVar("_T")


class _Read(Protocol):
    def is_current(self) -> bool: ...


_R = TypeVar("_R", bound=_Read)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """A label set's verdict on a step."""

    judgement: Judgement | None
    """None where the critic failed."""
    failed: str | None
    """Why it failed; None when there is a judgement."""


class RunLabels:
    """Labels and pairs of one run; safe to use from several threads."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._mutex = threading.RLock()
        self._reading = threading.Lock()
        """Held while a file is read whole, so that no other thread reads it, too; taken before the mutex."""
        self._there: tuple[Sequence[str], Sequence[str]] = ((), ())
        """Names of label sets and of sets of pairs."""
        self._labels: dict[str, LabelSetIndex] = {}
        self._pairs: dict[str, PairSetIndex] = {}
        """Those that were read whole."""
        self._glance: dict[str, tuple[object, Any]] = {}
        """The last episode that was taken out of a file, and its content."""
        self._outward: list[Problem] = []
        self._version = 0

    @property
    def version(self) -> int:
        """Changes when anything new is read."""
        return self._version

    def refresh(self) -> None:
        """Find new files, and read the appended lines of files that were read whole."""
        with self._mutex:
            self._outward = []
            labels = self._list_names(LABELS, list_label_sets(self._reader.directory), LABELS_HEAD)
            pairs = self._list_names(store.FOLDER, self._list_stored(), store.HEAD)
            self._there = (labels, pairs)
            self._forget(self._labels, labels)
            self._forget(self._pairs, pairs)
            self._version += sum(labels.refresh() for labels in self._labels.values())

    def read(self) -> None:
        """Read all files that were not read whole yet."""
        labels, pairs = self._there
        for name in labels:
            self._load_label_set(name)
        for name in pairs:
            self._set(name)

    # ------------------------------------------------------------------------------------------- judgements

    def list_label_sets(self) -> list[str]:
        """Return the names of all label sets."""
        with self._mutex:
            return list(self._there[0])

    def choose_label_set(self, asked: str | None, *, known: bool = True) -> str | None:
        """Return the chosen label set: None for ""; without a name, the one learned from, else the first.

        Raises:
            UnknownName: there is none of that name; unless not `known`, then it is none.
        """
        names = self.list_label_sets()
        if asked is None:
            return LEARNED if LEARNED in names else next(iter(names), None)
        if asked and asked not in names and known:
            raise UnknownName.of(f"label set of {self._reader.directory}", asked, names)
        return asked if asked in names else None

    def read_scores(self, labels: str, trajectory: str | None = None) -> Mapping[StepId, StepScores]:
        """Return a label set's present scores, by trajectory and step: of at least one trajectory, or of all."""
        if trajectory is not None and self._is_left(self._labels, labels):
            return self._read_scores_about(labels, trajectory)
        found = self._load_label_set(labels)
        with self._mutex:  # other threads may read new lines meanwhile
            return dict(found.said)

    def critic(self, labels: str) -> str | None:
        """Return a label set's critic; None where it cannot be read."""
        self._check(labels)
        return LabelSetIndex(self._reader.directory, labels).critic

    def read_verdict(self, labels: str, trajectory: str, step: int) -> StepVerdict | None:
        """Return a label set's verdict on a step, or None."""
        said = self.read_scores(labels, trajectory).get((trajectory, step))
        if said is None:
            return None
        if said.failed is not None:
            return StepVerdict(judgement=None, failed=said.failed)
        try:
            return StepVerdict(
                judgement=LabelSetIndex(self._reader.directory, labels).read_judgement(said), failed=None
            )
        except (OSError, ValueError) as error:
            return StepVerdict(judgement=None, failed=f"its judgement cannot be read: {take_first_line(error)}")

    # ------------------------------------------------------------------------------------------------ pairs

    def pair_sets(self) -> list[str]:
        """List the names of all stored sets of pairs, the last stored one at the end."""
        with self._mutex:
            known, outward = list(self._there[1]), bool(self._outward)
        if len(known) < 2 or outward:
            return known
        try:
            return [name for name in store.list_pair_sets(self._reader.directory) if name in known]
        except (CollabError, OSError):  # a head is spoilt: their order is not known
            return known

    def read_last_pairs(self, trajectory: str | None = None) -> PairSetIndex | None:
        """Return the last stored set, with at least its pairs of one trajectory, or all; None when there is none."""
        return next((self._set(name, trajectory) for name in reversed(self.pair_sets())), None)

    def list_pairs(self, trajectory: str, step: int) -> list[tuple[str, PreferencePair]]:
        """List pairs with a side at a step, with the names of their sets; unreadable ones are left out."""
        sets = [self._set(name, trajectory) for name in self.pair_sets()]
        return [(one.name, pair) for one in sets for pair in one.of(trajectory, step)]

    def find_pairs(self, letters: str) -> list[tuple[str, StepId]]:
        """Find the IDs of stored pairs that begin with these letters, each with its first step."""
        return [found for name in self.pair_sets() for found in self._set(name).find_beginning(letters)]

    # ------------------------------------------------------------------------------------- what it took, and lacks

    def sum_critic_spent(self, wanted: Callable[[str], bool] = lambda trajectory: True) -> Sums:
        """Sum the calls of all critics about the wanted trajectories."""
        every = [self.read_scores(name) for name in self._there[0]]
        return add_spent(one.spent for said in every for (trajectory, _), one in said.items() if wanted(trajectory))

    def sum_adversary_spent(self) -> Sums:
        """Sum the calls of the adversaries behind all sets of pairs."""
        return add_spent(read_adversary_spent(self._reader.directory, name) for name in self.pair_sets())

    def problems(self) -> list[Problem]:
        """List unreadable lines and files."""
        self.read()
        with self._mutex:
            labels = [one for part in self._labels.values() for one in part.problems]
            pairs = [one for part in self._pairs.values() for one in part.problems]
            outward, (labelled, paired) = list(self._outward), self._there
        return [*outward, *self._find_bad_heads(labelled, paired), *labels, *pairs]

    # --------------------------------------------------------------------------------------------- inside

    def _find_bad_heads(self, labelled: Iterable[str], paired: Iterable[str]) -> list[Problem]:
        """Find heads that cannot be read: without a head, critic and counts are unknown."""
        run, found = self._reader.directory, []
        heads: list[tuple[str, Callable[[Path, str], object]]] = [
            *((f"{LABELS}/{name}/{LABELS_HEAD}", read_label_head) for name in labelled),
            *((f"{store.FOLDER}/{name}/{store.HEAD}", store.read_pair_head) for name in paired),
        ]
        for file, read in heads:
            try:
                read(run, file.split("/")[1])
            except (CollabError, OSError, ArithmeticError) as error:
                found.append(Problem(file=file, line=None, reason=str(error)))
        return found

    def _list_names(self, folder: str, names: Iterable[str], head: str) -> list[str]:
        """List the names in a folder whose head is inside the run, sorted."""
        run, found = self._reader.directory, []
        for name in names:
            why = explain_unreadable(run, run / folder / name / head)
            if why is None:
                found.append(name)
            else:
                self._outward.append(Problem(file=f"{folder}/{name}", line=None, reason=why))
        return sorted(found)

    def _forget(self, known: dict[str, _R], there: Sequence[str]) -> None:
        """Forget files that are gone or replaced."""
        for name in [name for name, one in known.items() if name not in there or not one.is_current()]:
            del known[name]
            self._version += 1

    def _is_left(self, known: Mapping[str, object], name: str) -> bool:
        """Return whether a file was not read whole yet."""
        with self._mutex:
            return name not in known

    def _check(self, labels: str) -> None:
        if labels not in self._there[0]:
            raise UnknownName.of("label set", labels, self.list_label_sets())

    def _load_label_set(self, name: str) -> LabelSetIndex:
        """Read a label set whole."""
        self._check(name)
        return self._read_whole(self._labels, name, lambda: index_label_set(self._reader.directory, name))

    def _set(self, name: str, trajectory: str | None = None) -> PairSetIndex:
        """Read a set of pairs whole; or only its pairs of one trajectory, if it was not read yet."""
        run = self._reader.directory
        if trajectory is None or not self._is_left(self._pairs, name):
            return self._read_whole(self._pairs, name, lambda: PairSetIndex(run, name))
        state = (trajectory, stat_pair_set(run, name))
        return self._read_once(f"{store.FOLDER}/{name}", state, lambda: PairSetIndex(run, name, about=trajectory))

    def _read_scores_about(self, name: str, trajectory: str) -> Mapping[StepId, StepScores]:
        self._check(name)
        found = LabelSetIndex(self._reader.directory, name)
        state = (trajectory, found.sizes())
        return self._read_once(f"{LABELS}/{name}", state, lambda: found.about(trajectory))

    def _read_whole(self, known: dict[str, _T], name: str, read: Callable[[], _T]) -> _T:
        with self._mutex:
            found = known.get(name)
        if found is not None:
            return found
        with self._reading:
            with self._mutex:
                found = known.get(name)
            if found is None:
                found = read()  # others are answered meanwhile
                with self._mutex:
                    known[name] = found
                    self._version += 1
        return found

    def _read_once(self, file: str, state: object, take: Callable[[], _T]) -> _T:
        with self._mutex:
            last = self._glance.get(file)
        if last is not None and last[0] == state:
            found: _T = last[1]
            return found
        found = take()
        with self._mutex:
            self._glance[file] = (state, found)
        return found

    def _list_stored(self) -> list[str]:
        folder = self._reader.directory / store.FOLDER
        return sorted(path.parent.name for path in folder.glob(f"[!.]*/{store.HEAD}"))
