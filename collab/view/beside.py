"""Judgements and pairs beside a run.

    beside = Beside(reader)
    beside.refresh()
    beside.labellings()                                  # ["oracle", "log:oracle-1"]
    beside.verdict("oracle", "ContactsAddContact/0", 3)
    beside.pairs_of("ContactsAddContact/0", 3)

Files are read once, and what was appended since when asked again. Judgements that stand in the run's own log are
labellings, too; their names begin with "log:".
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from collab.credit import pair_store
from collab.credit.critic import Judgement
from collab.credit.labels import FILE as LABELS_HEAD
from collab.credit.labels import FOLDER as LABELS
from collab.credit.labels import labellings
from collab.errors import CollabError, UnknownName
from collab.store.reader import RunReader
from collab.store.summary import Problem
from collab.types import Label, PreferencePair
from collab.view.labelled import Key, Labelling, Said, first_line, logged
from collab.view.links import trouble
from collab.view.paired import PairSet

LOG = "log:"
"""Begins the names of labellings in the log."""


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
        self._labels: dict[str, Labelling] = {}
        self._pairs: dict[str, PairSet] = {}
        self._outward: list[Problem] = []
        self._version = 0

    @property
    def version(self) -> int:
        """Changes when anything new was read."""
        return self._version

    def refresh(self) -> None:
        """Take in what is there now."""
        run = self._reader.directory
        with self._mutex:
            self._outward = []
            for name in self._here(self._labels, LABELS, labellings(run), LABELS_HEAD):
                known = self._labels.get(name)
                if known is None or not known.fits():
                    self._labels[name] = Labelling(run, name)
                    self._version += 1
                self._version += self._labels[name].refresh()
            for name in self._here(self._pairs, pair_store.FOLDER, self._stored(), pair_store.HEAD):
                stored = self._pairs.get(name)
                if stored is None or not stored.fits():
                    self._pairs[name] = PairSet(run, name)
                    self._version += 1

    # ------------------------------------------------------------------------------------------- judgements

    def labellings(self) -> list[str]:
        """Names of all labellings, those in the log last."""
        makers = self._reader.query("SELECT DISTINCT maker FROM labels ORDER BY maker")
        with self._mutex:
            return [*sorted(self._labels), *(f"{LOG}{maker}" for (maker,) in makers)]

    def said(self, labels: str, trajectory: str | None = None) -> Mapping[Key, Said]:
        """What a labelling says now, by trajectory and step: about at least one trajectory, or about all."""
        if labels.startswith(LOG):
            return logged(self._logged(trajectory), labels.removeprefix(LOG))
        with self._mutex:  # others may read what is new meanwhile
            return dict(self._labelling(labels).said)

    def critic(self, labels: str) -> str | None:
        """Who judges in a labelling; None where that cannot be read."""
        if labels.startswith(LOG):
            maker = labels.removeprefix(LOG)
            mine = (label for label in self._logged() if label.maker == maker)
            return next((one.critic for label in mine for one in label.rewards), None)
        return self._labelling(labels).critic

    def verdict(self, labels: str, trajectory: str, step: int) -> Verdict | None:
        """What a labelling says about a step; None when it says nothing."""
        if labels.startswith(LOG):
            return self._from_log(labels.removeprefix(LOG), trajectory, step)
        labelling = self._labelling(labels)
        said = labelling.said.get((trajectory, step))
        if said is None:
            return None
        if said.failed is not None:
            return Verdict(judgement=None, failed=said.failed)
        try:
            return Verdict(judgement=labelling.judgement(said), failed=None)
        except (OSError, ValueError) as error:
            return Verdict(judgement=None, failed=f"its judgement cannot be read: {first_line(error)}")

    # ------------------------------------------------------------------------------------------------ pairs

    def pair_sets(self) -> list[str]:
        """Names of all stored sets of pairs, the one that was stored last at the end."""
        with self._mutex:
            known, outward = sorted(self._pairs), bool(self._outward)
        if len(known) < 2 or outward:
            return known
        try:
            return [name for name in pair_store.pair_names(self._reader.directory) if name in known]
        except (CollabError, OSError):  # a head is spoilt: their order is not known
            return known

    def last_pairs(self) -> PairSet | None:
        """The set that was stored last; None when there is none."""
        sets = self._sets()
        return sets[-1] if sets else None

    def pairs_of(self, trajectory: str, step: int) -> list[tuple[str, PreferencePair]]:
        """Pairs of which a side was said at a step, with the name of their set; what cannot be read is left out."""
        found = [(one.name, pair) for one in self._sets() for pair in one.of(trajectory, step)]
        logged = [(f"{LOG}{label.maker}", pair) for label in self._logged(trajectory) for pair in label.pairs]
        return found + [one for one in logged if (trajectory, step) in _where(one[1])]

    def pairs_beginning(self, letters: str) -> list[tuple[str, Key]]:
        """Ids of stored pairs that begin with these letters, each with the first step that it is about."""
        return [found for one in self._sets() for found in one.beginning(letters)]

    def problems(self) -> list[Problem]:
        """Lines that cannot be read, and files that are not."""
        with self._mutex:
            labels = [one for part in self._labels.values() for one in part.problems]
            return [*self._outward, *labels, *(one for part in self._pairs.values() for one in part.problems)]

    # --------------------------------------------------------------------------------------------- inside

    def _here(self, known: dict[str, Any], folder: str, names: Iterable[str], head: str) -> list[str]:
        """The names in a folder whose head lies in the run; what is gone is forgotten."""
        run, found = self._reader.directory, []
        for name in names:
            why = trouble(run, run / folder / name / head)
            if why is None:
                found.append(name)
            else:
                self._outward.append(Problem(file=f"{folder}/{name}", line=None, reason=why))
        for name in set(known).difference(found):
            del known[name]
            self._version += 1
        return found

    def _labelling(self, name: str) -> Labelling:
        with self._mutex:
            found = self._labels.get(name)
        if found is None:
            raise UnknownName.of("labelling", name, self.labellings())
        return found

    def _sets(self) -> list[PairSet]:
        names = self.pair_sets()
        with self._mutex:
            return [self._pairs[name] for name in names if name in self._pairs]

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
