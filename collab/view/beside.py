"""Judgements and pairs beside a run.

    beside = Beside(reader)
    beside.refresh()
    beside.labellings()                                  # ["oracle", "log:oracle-2"]
    beside.verdict("oracle", "ContactsAddContact/0", 3)
    beside.pairs_of("ContactsAddContact/0", 3)

Files are read when somebody asks about the whole run, once, and what was appended since when asked again. Until then
an answer about one episode takes its own lines out of them. Judgements that stand in the run's own log are labellings,
too; their names begin with "log:".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from collab.credit import pair_store
from collab.credit.critic import Judgement
from collab.credit.labels import FILE as LABELS_HEAD
from collab.credit.labels import FOLDER as LABELS
from collab.credit.labels import labellings, read_label_head
from collab.errors import CollabError, UnknownName
from collab.loop.layout import LABELS as LEARNED_LABELS
from collab.store.reader import RunReader
from collab.store.summary import Problem
from collab.types import Label, PreferencePair
from collab.view.labelled import Key, Labelling, Said, Sums, added, first_line, logged, read_labelling
from collab.view.links import trouble
from collab.view.paired import PairSet, adversary_of, stored_state

LOG = "log:"
"""Begins the names of labellings in the log."""
LEARNED = LEARNED_LABELS
"""Name of the judgements that a training learned from (`collab.algorithms.collabuiagents.labeller`)."""


_T = TypeVar("_T")


class _Read(Protocol):
    def fits(self) -> bool: ...


_R = TypeVar("_R", bound=_Read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a labelling says about a step."""

    judgement: Judgement | None
    """None where nobody could be asked."""
    failed: str | None
    """Why not; None when there is a judgement."""


class Beside:
    """Of one run; safe to use from several threads."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._mutex = threading.RLock()
        self._reading = threading.Lock()
        """Held by who reads a file whole, so that nobody else does, too; taken before the mutex."""
        self._there: tuple[Sequence[str], Sequence[str]] = ((), ())
        """Names of labellings and of sets of pairs."""
        self._labels: dict[str, Labelling] = {}
        self._pairs: dict[str, PairSet] = {}
        """Both as far as they were read whole."""
        self._glance: dict[str, tuple[object, Any]] = {}
        """What was last taken out of a file about one episode, and of which it is."""
        self._outward: list[Problem] = []
        self._version = 0

    @property
    def version(self) -> int:
        """Changes when anything new was read."""
        return self._version

    def refresh(self) -> None:
        """Take in what is there now, of files that were read whole also what is new."""
        with self._mutex:
            self._outward = []
            labels = self._here(LABELS, labellings(self._reader.directory), LABELS_HEAD)
            pairs = self._here(pair_store.FOLDER, self._stored(), pair_store.HEAD)
            self._there = (labels, pairs)
            self._forget(self._labels, labels)
            self._forget(self._pairs, pairs)
            self._version += sum(labelling.refresh() for labelling in self._labels.values())

    def read(self) -> None:
        """Read all of it, as far as that was not done."""
        labels, pairs = self._there
        for name in labels:
            self._labelling(name)
        for name in pairs:
            self._set(name)

    # ------------------------------------------------------------------------------------------- judgements

    def labellings(self) -> list[str]:
        """Names of all labellings, those in the log last."""
        makers = self._reader.query("SELECT DISTINCT maker FROM labels ORDER BY maker")
        with self._mutex:
            return [*self._there[0], *(f"{LOG}{maker}" for (maker,) in makers)]

    def chosen(self, asked: str | None, *, known: bool = True) -> str | None:
        """The labelling that is meant: none where "" is; where none is named, the one learned from, else the first.

        Raises:
            UnknownName: there is none of that name; unless not `known`, then it is none.
        """
        names = self.labellings()
        if asked is None:
            return LEARNED if LEARNED in names else next(iter(names), None)
        if asked and asked not in names and known:
            raise UnknownName.of(f"labelling of {self._reader.directory}", asked, names)
        return asked if asked in names else None

    def said(self, labels: str, trajectory: str | None = None) -> Mapping[Key, Said]:
        """What a labelling says now, by trajectory and step: about at least one trajectory, or about all."""
        if labels.startswith(LOG):
            return logged(self._logged(trajectory), labels.removeprefix(LOG))
        if trajectory is not None and self._is_left(self._labels, labels):
            return self._said_about(labels, trajectory)
        labelling = self._labelling(labels)
        with self._mutex:  # others may read what is new meanwhile
            return dict(labelling.said)

    def critic(self, labels: str) -> str | None:
        """Who judges in a labelling; None where that cannot be read."""
        if labels.startswith(LOG):
            maker = labels.removeprefix(LOG)
            mine = (label for label in self._logged() if label.maker == maker)
            return next((one.critic for label in mine for one in label.rewards), None)
        self._check(labels)
        return Labelling(self._reader.directory, labels).critic

    def verdict(self, labels: str, trajectory: str, step: int) -> Verdict | None:
        """What a labelling says about a step; None when it says nothing."""
        if labels.startswith(LOG):
            return self._from_log(labels.removeprefix(LOG), trajectory, step)
        said = self.said(labels, trajectory).get((trajectory, step))
        if said is None:
            return None
        if said.failed is not None:
            return Verdict(judgement=None, failed=said.failed)
        try:
            return Verdict(judgement=Labelling(self._reader.directory, labels).judgement(said), failed=None)
        except (OSError, ValueError) as error:
            return Verdict(judgement=None, failed=f"its judgement cannot be read: {first_line(error)}")

    # ------------------------------------------------------------------------------------------------ pairs

    def pair_sets(self) -> list[str]:
        """Names of all stored sets of pairs, the one that was stored last at the end."""
        with self._mutex:
            known, outward = list(self._there[1]), bool(self._outward)
        if len(known) < 2 or outward:
            return known
        try:
            return [name for name in pair_store.pair_names(self._reader.directory) if name in known]
        except (CollabError, OSError):  # a head is spoilt: their order is not known
            return known

    def last_pairs(self, trajectory: str | None = None) -> PairSet | None:
        """The set that was stored last, at least its pairs of one trajectory, or all; None when there is none."""
        return next((self._set(name, trajectory) for name in reversed(self.pair_sets())), None)

    def pairs_of(self, trajectory: str, step: int) -> list[tuple[str, PreferencePair]]:
        """Pairs of which a side was said at a step, with the name of their set; what cannot be read is left out."""
        sets = [self._set(name, trajectory) for name in self.pair_sets()]
        found = [(one.name, pair) for one in sets for pair in one.of(trajectory, step)]
        logged = [(f"{LOG}{label.maker}", pair) for label in self._logged(trajectory) for pair in label.pairs]
        return found + [one for one in logged if (trajectory, step) in _where(one[1])]

    def pairs_beginning(self, letters: str) -> list[tuple[str, Key]]:
        """Ids of stored pairs that begin with these letters, each with the first step that it is about."""
        return [found for name in self.pair_sets() for found in self._set(name).beginning(letters)]

    # ------------------------------------------------------------------------------------- what it took, and lacks

    def judging(self, wanted: Callable[[str], bool] = lambda trajectory: True) -> Sums:
        """What the calls of all critics took, about the trajectories that are wanted."""
        every = [self.said(name) for name in self._there[0]]
        return added(one.spent for said in every for (trajectory, _), one in said.items() if wanted(trajectory))

    def erring(self) -> Sums:
        """What the adversaries behind all sets of pairs took."""
        return added(adversary_of(self._reader.directory, name) for name in self.pair_sets())

    def problems(self) -> list[Problem]:
        """Lines that cannot be read, and files that are not."""
        self.read()
        with self._mutex:
            labels = [one for part in self._labels.values() for one in part.problems]
            pairs = [one for part in self._pairs.values() for one in part.problems]
            outward, (labelled, paired) = list(self._outward), self._there
        return [*outward, *self._heads(labelled, paired), *labels, *pairs]

    # --------------------------------------------------------------------------------------------- inside

    def _heads(self, labelled: Iterable[str], paired: Iterable[str]) -> list[Problem]:
        """Heads that cannot be read: without one nobody knows who judged, or why there is no pair."""
        run, found = self._reader.directory, []
        heads: list[tuple[str, Callable[[Path, str], object]]] = [
            *((f"{LABELS}/{name}/{LABELS_HEAD}", read_label_head) for name in labelled),
            *((f"{pair_store.FOLDER}/{name}/{pair_store.HEAD}", pair_store.read_head) for name in paired),
        ]
        for file, read in heads:
            try:
                read(run, file.split("/")[1])
            except (CollabError, OSError, ArithmeticError) as error:
                found.append(Problem(file=file, line=None, reason=str(error)))
        return found

    def _here(self, folder: str, names: Iterable[str], head: str) -> list[str]:
        """The names in a folder whose head lies in the run, sorted."""
        run, found = self._reader.directory, []
        for name in names:
            why = trouble(run, run / folder / name / head)
            if why is None:
                found.append(name)
            else:
                self._outward.append(Problem(file=f"{folder}/{name}", line=None, reason=why))
        return sorted(found)

    def _forget(self, known: dict[str, _R], there: Sequence[str]) -> None:
        """What is gone, or another file by now."""
        for name in [name for name, one in known.items() if name not in there or not one.fits()]:
            del known[name]
            self._version += 1

    def _is_left(self, known: Mapping[str, object], name: str) -> bool:
        """Whether a file was not read whole yet."""
        with self._mutex:
            return name not in known

    def _check(self, labels: str) -> None:
        if labels not in self._there[0]:
            raise UnknownName.of("labelling", labels, self.labellings())

    def _labelling(self, name: str) -> Labelling:
        """A labelling, read whole."""
        self._check(name)
        return self._whole(self._labels, name, lambda: read_labelling(self._reader.directory, name))

    def _set(self, name: str, trajectory: str | None = None) -> PairSet:
        """A set of pairs, read whole; or what it has of one trajectory, where it was not."""
        run = self._reader.directory
        if trajectory is None or not self._is_left(self._pairs, name):
            return self._whole(self._pairs, name, lambda: PairSet(run, name))
        state = (trajectory, stored_state(run, name))
        return self._glanced(f"{pair_store.FOLDER}/{name}", state, lambda: PairSet(run, name, about=trajectory))

    def _said_about(self, name: str, trajectory: str) -> Mapping[Key, Said]:
        self._check(name)
        labelling = Labelling(self._reader.directory, name)
        state = (trajectory, labelling.sizes())
        return self._glanced(f"{LABELS}/{name}", state, lambda: labelling.about(trajectory))

    def _whole(self, known: dict[str, _T], name: str, read: Callable[[], _T]) -> _T:
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

    def _glanced(self, file: str, state: object, take: Callable[[], _T]) -> _T:
        with self._mutex:
            last = self._glance.get(file)
        if last is not None and last[0] == state:
            found: _T = last[1]
            return found
        found = take()
        with self._mutex:
            self._glance[file] = (state, found)
        return found

    def _stored(self) -> list[str]:
        folder = self._reader.directory / pair_store.FOLDER
        return sorted(path.parent.name for path in folder.glob(f"[!.]*/{pair_store.HEAD}"))

    def _logged(self, trajectory: str | None = None) -> list[Label]:
        known = "SELECT 1 FROM labels WHERE trajectory = coalesce(?, trajectory) LIMIT 1"
        return self._reader.labels(trajectory) if self._reader.query(known, trajectory) else []

    def _from_log(self, maker: str, trajectory: str, step: int) -> Verdict | None:
        for label in self._logged(trajectory):
            for rewards in label.rewards:
                if (label.maker, rewards.step) == (maker, step):
                    return Verdict(judgement=Judgement(case="", rewards=rewards), failed=None)
        return None


def _where(pair: PreferencePair) -> set[Key]:
    return {(one.trajectory, one.step) for one in (*pair.chosen, *pair.rejected)}
