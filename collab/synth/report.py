"""What a synthesis made, in numbers: from the journal's records and the rows that were kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from collab.store.cost import total
from collab.synth.journal import Done, Record, Said, Unanswered
from collab.synth.plan import Unit
from collab.synth.rows import LEVELS, Row
from collab.synth.select import Selection, group_of
from collab.types import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Numbers of a finished synthesis; of one that stopped, of what it has so far."""

    rows: int
    """Kept."""
    by_level: Mapping[str, int]
    by_kind: Mapping[str, int]
    """"level / kind" → rows."""
    by_app: Mapping[str, int]
    """App of the screen → rows; "" where the environment names none."""
    by_action: Mapping[str, int]
    """Action type of the reply → rows; "" for answers in words."""
    made: int
    """Rows before any was dropped."""
    dropped: Mapping[str, int]
    """Cause → rows."""
    refused: Mapping[str, Mapping[str, int]]
    """Level → cause → things that could have become a row."""
    units: int
    """That are over."""
    broken: Mapping[str, str]
    """Unit → why it broke; none of its rows is here, and a resume makes it again."""
    screens: int
    """That were taught."""
    spent: Spent
    """By all processes; `lost` are calls that were never answered whole. Those in flight at a kill are not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The records of a synthesis, by unit."""

    units: Mapping[str, Done]
    """The last record of each unit that did not break."""
    broken: Mapping[str, str]
    said: Mapping[str, str]
    """Replies of the teacher's model by the calls that they answer."""
    spent: Spent

    def rows(self, order: Sequence[Unit]) -> Iterable[Row]:
        """All rows, in the order of the plan: whoever made them, and whenever."""
        return (row for unit in order if unit.id in self.units for row in self.units[unit.id].rows)


def gather(records: Iterable[Record]) -> Made:
    """Sort out what was made; a unit that broke and was made later is whole."""
    units: dict[str, Done] = {}
    broken: dict[str, str] = {}
    said: dict[str, str] = {}
    spent = Spent(calls=0, prompt_tokens=0, completion_tokens=0, cost_usd=0.0)
    for record in records:
        if isinstance(record, Said):
            said[record.said] = record.text
            spent = total([spent, record.spent])
        elif isinstance(record, Unanswered):
            spent = replace(spent, lost=spent.lost + record.lost)
        elif record.broken is not None:
            broken[record.unit] = record.broken
        else:
            units[record.unit] = record
            broken.pop(record.unit, None)
    return Made(units=units, broken=broken, said=said, spent=spent)


def report(made: Made, selection: Selection) -> Report:
    """Count what was made and what was kept of it."""
    rows, done = selection.rows, made.units.values()
    groups = [group_of(row) for row in rows]
    levels = Counter(row.level for row in rows)
    refused: dict[str, Counter[str]] = {}
    for record in done:
        for level, causes in record.refused.items():
            refused.setdefault(level, Counter()).update(causes)
    return Report(
        rows=len(rows),
        by_level={level: levels[level] for level in LEVELS if levels[level]},
        by_kind=_sorted(Counter(f"{level} / {kind}" for level, kind, _, _ in groups)),
        by_app=_sorted(Counter(app for _, _, app, _ in groups)),
        by_action=_sorted(Counter(action for _, _, _, action in groups)),
        made=sum(len(record.rows) for record in done),
        dropped=dict(selection.dropped),
        refused={level: _sorted(refused[level]) for level in LEVELS if refused.get(level)},
        units=len(made.units) + len(made.broken),
        broken=dict(made.broken),
        screens=sum(record.screens for record in done),
        spent=made.spent,
    )


def most_refused(records: Iterable[Done], shown: int = 3) -> str:
    """The most frequent causes of refusals in words; empty when nothing was refused."""
    causes = Counter[str]()
    for record in records:
        for counts in record.refused.values():
            causes.update(counts)
    return ", ".join(f"{cause} ({count})" for cause, count in list(_sorted(causes).items())[:shown])


def _sorted(counts: Counter[str]) -> dict[str, int]:
    """Most first, equal ones by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
