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
from collections.abc import Mapping
from dataclasses import dataclass

from collab.credit import pair_store
from collab.credit.critic import Judgement
from collab.credit.labels import labellings
from collab.errors import CollabError
from collab.store.reader import RunReader
from collab.store.summary import Problem
from collab.types import Label, PreferencePair
from collab.view.labelled import Key, Labelling, Said, first_line, logged
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
        self._version = 0

    @property
    def version(self) -> int:
        """Changes when anything new was read."""
        return self._version

    def refresh(self) -> None:
        """Take in what is there now."""
        run = self._reader.directory
        with self._mutex:
            for name in labellings(run):
                if name not in self._labels:
                    self._labels[name] = Labelling(run, name)
                self._version += self._labels[name].refresh()
            for name in self._stored():
                if name not in self._pairs:
                    self._pairs[name] = PairSet(run, name)
                    self._version += 1

    # ------------------------------------------------------------------------------------------- judgements

    def labellings(self) -> list[str]:
        """Names of all labellings, those in the log last."""
        makers = self._reader.query("SELECT DISTINCT maker FROM labels ORDER BY maker")
        return [*sorted(self._labels), *(f"{LOG}{maker}" for (maker,) in makers)]

    def said(self, labels: str) -> Mapping[Key, Said]:
        """All that a labelling says, by trajectory and step."""
        if labels.startswith(LOG):
            return logged(self._logged(), labels.removeprefix(LOG))
        return self._labels[labels].said

    def critic(self, labels: str) -> str | None:
        """Who judges in a labelling; None where that cannot be read."""
        if labels.startswith(LOG):
            return next((one.critic for label in self._logged() for one in label.rewards), None)
        return self._labels[labels].critic

    def verdict(self, labels: str, trajectory: str, step: int) -> Verdict | None:
        """What a labelling says about a step; None when it says nothing."""
        if labels.startswith(LOG):
            return self._from_log(labels.removeprefix(LOG), trajectory, step)
        labelling = self._labels[labels]
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
        if len(self._pairs) < 2:
            return list(self._pairs)
        try:
            return pair_store.pair_names(self._reader.directory)
        except CollabError:  # a head is spoilt: their order is not known
            return sorted(self._pairs)

    def last_pairs(self) -> PairSet | None:
        """The set that was stored last; None when there is none."""
        names = self.pair_sets()
        return self._pairs[names[-1]] if names else None

    def pairs_of(self, trajectory: str, step: int) -> list[tuple[str, PreferencePair]]:
        """Pairs of which a side was said at a step, with the name of their set; what cannot be read is left out."""
        found = [(name, pair) for name in self.pair_sets() for pair in self._pairs[name].of(trajectory, step)]
        logged = [(f"{LOG}{label.maker}", pair) for label in self._logged(trajectory) for pair in label.pairs]
        return found + [one for one in logged if (trajectory, step) in _where(one[1])]

    def pairs_beginning(self, letters: str) -> list[tuple[str, Key]]:
        """Ids of stored pairs that begin with these letters, each with the first step that it is about."""
        return [one for name in self.pair_sets() for one in self._pairs[name].beginning(letters)]

    def problems(self) -> list[Problem]:
        """Lines that cannot be read."""
        labels = [one for part in self._labels.values() for one in part.problems]
        return labels + [one for part in self._pairs.values() for one in part.problems]

    # --------------------------------------------------------------------------------------------- inside

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
