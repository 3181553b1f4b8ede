"""What units took, by part: the table of times, and what its columns are."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.figures import MISSING, Spot, records_of, table, units_of
from evidence.plan import Plan
from evidence.record import Records, UnitRecord

_PARTS_ARE = """Minutes are those of a whole unit. Playing is rollouts and evaluations. Critic and adversary are the
time of judging and of synthesising rejected replies beside them. Training is optimizer steps. Other is the rest:
loading, writing, and gaps between parts. """
_DIVIDED_ARE = """Environment is the part of playing in which at least one environment was at work (agents of other
episodes may have replied meanwhile), inference is the rest of playing."""
_UNDIVIDED_IS = """Some files were written before the split of playing was measured. They do not show how playing, which
includes loading, is divided between environments and agents. `--quick` shows it for its own units. """


def time_words(records: Records) -> str:
    """What the columns of `time_table` are."""
    undivided = any(record.seconds.environment is None for record in _trainings(records))
    told = _PARTS_ARE + (_UNDIVIDED_IS if undivided else "") + (_DIVIDED_ARE if divided(records) else "")
    return told.strip()


def time_table(plan: Plan, records: Records, *, whole: bool = False) -> list[str]:
    """What the trainings took, in the mean of their run seeds, by part.

    Shares are of the trainings that tell all parts, in a row that has any; one that died in between does not. How
    playing is divided between environments and agents is left out where no training tells.

    Args:
        whole: whether a last line tells the sum of all units; evaluations have no critic, adversary or training.
    """
    parts = [part for part in _PARTS if part not in _DIVIDED or divided(records)]
    rows = []
    spots = [Spot(arm=arm, phase=phase) for phase in ("train", "continual") for arm in plan.arms]
    for spot in spots:
        if units_of(plan, spot):
            name = plan.arms[spot.arm].told + ("" if spot.phase == "train" else f", {spot.phase}")
            done = records_of(plan, records, spot)
            telling = [record for record in done if _tells(record)] or done
            of = "" if len(telling) == len(done) else f" (shares: {len(telling)} of {len(done)})"
            told = [_minutes(done, len(done)), *_shares(telling, parts)] if done else [MISSING] * (len(parts) + 2)
            rows.append([name + of, *told])
    if whole:
        every = list(records.values())
        rows.append(["all units", _minutes(every, 1), *_shares(every, parts)])
    return table(["", "minutes", *parts, "other"], rows)


_DIVIDED = ("environment", "inference")
"""What playing is divided into."""
_PARTS = ("playing", *_DIVIDED, "critic", "adversary", "training")
_LEARNING = ("critic", "adversary", "training")


def divided(records: Records) -> bool:
    """Whether a training tells how its playing is divided between environments and agents."""
    return any(record.seconds.environment is not None for record in _trainings(records))


def _trainings(records: Records) -> list[UnitRecord]:
    return [record for record in records.values() if record.measured is None]


def _minutes(records: Sequence[UnitRecord], times: int) -> str:
    """Of each of so many times."""
    return f"{sum(record.seconds.whole for record in records) / 60 / times:.0f}"


def _shares(records: Sequence[UnitRecord], parts: Sequence[str]) -> list[str]:
    """Of each part, and of what is left beside playing, critic, adversary and training."""
    whole = sum(record.seconds.whole for record in records)
    sums = {part: _seconds(records, part) for part in parts}
    outer = [seconds for part, seconds in sums.items() if part not in _DIVIDED]
    told = [seconds for seconds in outer if seconds is not None]
    rest = _share(whole - sum(told), whole) if len(told) == len(outer) else "not told"
    return [*("not told" if seconds is None else _share(seconds, whole) for seconds in sums.values()), rest]


def _share(part: float, whole: float) -> str:
    """In percent; what is there and would round to nothing is told more finely."""
    told = f"{part / whole:.0%}"
    if part <= 0 or told != "0%":
        return told
    return f"{part / whole:.1%}" if part >= whole / 2000 else "<0.1%"


def _tells(record: UnitRecord) -> bool:
    """Whether a unit tells all of its parts, but for what playing is divided into."""
    return all(_seconds([record], part) is not None for part in _PARTS if part not in _DIVIDED)


def _seconds(records: Sequence[UnitRecord], part: str) -> float | None:
    """Of one part; None where a unit that has it does not tell."""
    having = [record for record in records if record.measured is None or part not in _LEARNING]
    parts = [getattr(record.seconds, part) for record in having]
    return None if None in parts else sum(parts)
