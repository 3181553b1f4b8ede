"""What the records say about goals that were missed: nothing else, and nothing of goals that were reached.

Every number is computed; what it means is left open where the records leave it open. The words around the numbers are
to be read again when units were done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import mean
from typing import TypeAlias

from collab.evaluation.report import show_difference
from evidence.figures import Spot, difference, filled, is_done, records_of
from evidence.goals import Goal, difference_to_means, goals, is_missed, plays_of_the_untrained
from evidence.plan import Plan
from evidence.record import Records, UnitRecord

STILL = 0.1
"""Nats: a training that never changed its chosen replies by more is said to have hardly moved them."""
ALIKE = 3.0
"""Points: trainings whose success lies no farther apart are said to do alike."""
NAMED = 3
"""Pages, those that won most."""

_ALIKE = """The training runs agree: they solve {rates} %, and two of them differ in {apart} of {all} instances. So no
single run failed."""
_LUCK = """One hot run of the untrained team is part of every difference to it on new seeds, so all differences share
its sampling luck. {names} hardly moved their chosen replies (by {moved:.2f} nats at most{rejected}). Yet two trainings
of one of these arms differ in {apart} of {all} instances. Their {count} trainings solve {least:.1f} to {most:.1f} %, by
arm {means} in the mean; the untrained team solves {own:.1f}. So its one run may have been lucky by some points. Or
these trainings cost something that the likelihood of chosen replies does not show."""
_NOT_AGAIN = """These records do not decide it: sampling is seeded, too, and the untrained team did not play these
instances with another seed. On other instances, with which recipes were chosen, it did worse ([how the recipe was
chosen](recipe.md) has the numbers)."""
_PARTLY_AGAIN = """Of {planned} more runs of it on these instances, with other sampling seeds, {done} done; the joint
result follows when all are."""
_AGAIN = """The untrained team played these instances again at the same temperature, with other sampling seeds and the
same command and configuration otherwise. It solves {others} of them, {later_rate:.1f} % in the mean; its first run
solved {own}. The mean of all its runs is {rate:.1f} %, and any two of them differ in {apart} instances. Full method
minus the mean of the later runs: {later} points; minus the mean of all: {whole}. Trained teams sampled with the seeds
of the first run: trainings of the full method differ from it in {near} instances, from the later ones in {far}. So a
comparison with the first run has part of this luck on both sides, and one with the later runs on one side."""
_HEAT = """The gain exists at the high temperature. Cold, the untrained team solves {cold:.1f} %, {heat:+.1f} points
over itself hot. The full method solves {full:.1f} hot and {full_cold:.1f} cold, {gained:+.1f} over the untrained team
there. Most of the gain may only recover what sampling at the high temperature costs."""
_NEVER = """Of {all} instances {never} are solved by neither team, hot or cold, in any training; of {tasks} tasks
{unsolved} not once."""
_SPREAD = """The trainings gain {gains} points, which lie {apart:.1f} apart: three trainings estimate their mean
poorly."""
_PAGES = """Of {all} pages {never} are not solved once, before or after. {part:.0%} of the gain is on {most} pages
({named} points there), and {worse} pages are solved less often than before."""
_ALARMS = """In the first epoch on the pages {alarmed} of {all} trainings raise the alarm that is explained below.
Chosen replies of all trainings there end that epoch at {early} nats from the reference, and the last one at {late}.
So one epoch of two may have taught little. The rate was halved against forgetting, as explained above."""

Outcomes: TypeAlias = Mapping[tuple[str, int], bool]
"""Task and instance seed → whether it was solved."""


def reasons(plan: Plan, records: Records) -> list[str]:
    """Lines in Markdown: a list for each of the two goals that can be told of, unless it was reached or is open."""
    told = []
    for goal in goals(plan):
        spots = (goal.first, goal.second)
        found = _REASONS.get(spots)
        if found is not None and is_done(plan, records, spots) and is_missed(goal, plan, records):
            told += ["", f"Missed: {goal.told}.", "", *_listed(found(plan, records, goal))]
    return told


def _listed(points: Iterable[str]) -> list[str]:
    return [line for point in points for line in filled(f"- {point}", hanging="  ")]


# ------------------------------------------------------------------------------------------------------- new seeds


_UNTRAINED, _FULL = (Spot(arm=arm, phase="new-seeds") for arm in ("untrained-team", "full"))
_COLD, _FULL_COLD = (Spot(arm=arm, phase="new-seeds-cold") for arm in ("untrained-team", "full"))


def _new_seeds(plan: Plan, records: Records, goal: Goal) -> list[str]:
    (base,) = (outcomes(one) for one in records_of(plan, records, goal.first))
    full = [outcomes(one) for one in records_of(plan, records, goal.second)]
    rates = _enumerated(f"{_rate(one):.1f}" for one in full)
    solved = [_rate(one) for one in full]
    alike = max(solved) - min(solved) <= ALIKE
    points = [_ALIKE.format(rates=rates, apart=_span(_apart(full)), all=len(base))] if alike else []
    points += _luck(plan, records, base)
    if is_done(plan, records, (_COLD, _FULL_COLD)):
        points += _heat(plan, records, base, full)
    return points


def _luck(plan: Plan, records: Records, base: Outcomes) -> list[str]:
    """Of the one play that all differences have in common, by the arms that hardly moved what they chose."""
    graph = plan.arms[_UNTRAINED.arm].graph
    played = {
        arm: [outcomes(one) for one in records_of(plan, records, Spot(arm=arm, phase="new-seeds"))]
        for arm in plan.arms
        if plan.arms[arm].graph == graph
        and _is_still(plan, records, arm)
        and is_done(plan, records, [Spot(arm=arm, phase="new-seeds")])
    }
    apart = [count for those in played.values() for count in _apart(those)]
    if not apart:
        return []
    rates = [_rate(one) for those in played.values() for one in those]
    return [
        _LUCK.format(
            names=_enumerated(f"“{plan.arms[arm].told}”" for arm in played),
            moved=max(abs(gain) for arm in played for gain in _gains(plan, records, arm)),
            rejected="".join(_rejected(plan, records, arm) for arm in played),
            apart=_span(apart),
            all=len(base),
            count=len(rates),
            least=min(rates),
            most=max(rates),
            means=_enumerated(f"{mean(_rate(one) for one in those):.1f}" for those in played.values() if those),
            own=_rate(base),
        ),
        _again(plan, records),
    ]


def _again(plan: Plan, records: Records) -> str:
    """What other plays of the untrained team say about the one that goals are judged by."""
    first, *others = plays_of_the_untrained(plan)
    later = [outcomes(one) for spot in others for one in records_of(plan, records, spot)]
    if not later:
        return _NOT_AGAIN
    to_later, to_all = difference_to_means(plan, records)
    if to_later is None or to_all is None:
        many = f"{len(later)} {'is' if len(later) == 1 else 'are'}"
        return _PARTLY_AGAIN.format(planned=len(others), done=many)
    (base,) = (outcomes(one) for one in records_of(plan, records, first))
    full = [outcomes(one) for one in records_of(plan, records, _FULL)]
    return _AGAIN.format(
        others=_enumerated(f"{sum(one.values())}" for one in later),
        later_rate=mean(map(_rate, later)),
        own=sum(base.values()),
        rate=mean(map(_rate, (base, *later))),
        apart=_span(_apart([base, *later])),
        later=show_difference(to_later),
        whole=show_difference(to_all),
        near=_span([_unlike(one, base) for one in full]),
        far=_span([_unlike(one, other) for one in full for other in later]),
    )


def _heat(plan: Plan, records: Records, base: Outcomes, full: Sequence[Outcomes]) -> list[str]:
    """What there was to be won back, and what nobody solves."""
    (cold,) = (outcomes(one) for one in records_of(plan, records, _COLD))
    full_cold = [outcomes(one) for one in records_of(plan, records, _FULL_COLD)]
    both = difference(plan, records, _COLD, _FULL_COLD)
    if both is None:
        return []
    solved = {instance for one in (base, cold, *full, *full_cold) for instance in one if one[instance]}
    hot, gained = mean(_rate(one) for one in full) - _rate(base), 100 * both.difference
    told = _HEAT.format(
        cold=_rate(cold),
        heat=_rate(cold) - _rate(base),
        full=mean(_rate(one) for one in full),
        full_cold=mean(_rate(one) for one in full_cold),
        gained=gained,
    )
    tasks = {task for task, _ in base}
    unsolved = tasks - {task for task, _ in solved}
    never = _NEVER.format(
        all=len(base), never=len(base.keys() - solved), tasks=len(tasks), unsolved=len(unsolved) or "none"
    )
    return [told, never] if 2 * gained <= hot else [never]


def _is_still(plan: Plan, records: Records, arm: str) -> bool:
    """Whether all trainings of an arm are done and tell that they hardly changed what they learned."""
    spot, gains = Spot(arm=arm, phase="train"), _gains(plan, records, arm)
    epochs = sum(1 for one in records_of(plan, records, spot) for epoch in one.epochs if epoch.weights)
    return is_done(plan, records, [spot]) and 0 < epochs == len(gains) and max(map(abs, gains)) <= STILL


def _rejected(plan: Plan, records: Records, arm: str) -> str:
    """By how much rejected replies moved at most, in words; empty for whole episodes, whose margins are sums."""
    moved = [
        abs(epoch.chosen_gain - epoch.margin / method["dpo"]["beta"])
        for one in records_of(plan, records, Spot(arm=arm, phase="train"))
        if (method := one.config.get("method", {})).get("objective") == "dpo"
        for epoch in one.epochs
        if epoch.chosen_gain is not None and epoch.margin is not None
    ]
    return f"; rejected ones of “{plan.arms[arm].told}” by {max(moved):.1f}" if moved else ""


def _gains(plan: Plan, records: Records, arm: str) -> list[float]:
    """By how much chosen replies became likelier, by training and epoch; see `EpochNumbers`."""
    trainings = records_of(plan, records, Spot(arm=arm, phase="train"))
    return [epoch.chosen_gain for one in trainings for epoch in one.epochs if epoch.chosen_gain is not None]


# ----------------------------------------------------------------------------------------------------------- pages


_DIRECT, _CONTINUED = (Spot(arm="full", phase=phase) for phase in ("pages", "pages-continued"))


def _pages(plan: Plan, records: Records, goal: Goal) -> list[str]:
    before, after = ([outcomes(one) for one in records_of(plan, records, spot)] for spot in (goal.first, goal.second))
    gains = [_rate(late) - _rate(early) for early, late in zip(before, after, strict=True)]
    pages = sorted({page for page, _ in before[0]})
    early, late = ({page: mean(_rate(one, page) for one in those) for page in pages} for those in (before, after))
    won = {page: late[page] - early[page] for page in pages}
    most = sorted(pages, key=lambda page: -won[page])[:NAMED]
    points = [_SPREAD.format(gains=_enumerated(f"{gain:+.1f}" for gain in gains), apart=max(gains) - min(gains))]
    if sum(won.values()) > 0:
        told = _PAGES.format(
            all=len(pages),
            never=sum(early[page] == late[page] == 0 for page in pages),
            part=sum(won[page] for page in most) / sum(gain for gain in won.values() if gain > 0),
            most=len(most),
            named=", ".join(f"`{page}` {won[page]:+.0f}" for page in most),
            worse=sum(won[page] < 0 for page in pages),
        )
        points.append(told)
    return points + _alarms(plan, records)


def _alarms(plan: Plan, records: Records) -> list[str]:
    """How the first epoch there went, and the last."""
    trainings = records_of(plan, records, Spot(arm="full", phase="continual"))
    firsts = [epoch for one in trainings for epoch in one.epochs if epoch.epoch == 1]
    early = [epoch.chosen_gain for epoch in firsts if epoch.chosen_gain is not None]
    late = [one.epochs[-1].chosen_gain for one in trainings if one.epochs[-1].chosen_gain is not None]
    alarmed = sum(epoch.alarm is not None for epoch in firsts)
    if not (alarmed and early and late):
        return []
    return [_ALARMS.format(alarmed=alarmed, all=len(trainings), early=_signed(early), late=_signed(late))]


# --------------------------------------------------------------------------------------------------------- numbers


def outcomes(record: UnitRecord) -> Outcomes:
    """Of an evaluation, by instance."""
    return {} if record.measured is None else {(row[0], row[1]): row[3] for row in record.measured.episodes}


def _rate(solved: Outcomes, task: str | None = None) -> float:
    """In percent, of all tasks or of one."""
    own = [success for (name, _), success in solved.items() if task in (None, name)]
    return 100 * sum(own) / len(own)


def _apart(played: Sequence[Outcomes]) -> list[int]:
    """In how many instances any two of them differ."""
    return [_unlike(one, other) for one, other in combinations(played, 2)]


def _unlike(one: Outcomes, other: Outcomes) -> int:
    """In how many of the same instances."""
    return sum(one[instance] != other[instance] for instance in one)


def _enumerated(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _span(counts: Sequence[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{min(counts)}"


def _signed(values: Sequence[float]) -> str:
    return f"{min(values):+.2f} to {max(values):+.2f}"


_REASONS = {(_UNTRAINED, _FULL): _new_seeds, (_DIRECT, _CONTINUED): _pages}
"""Spots of a goal → what is said where it was missed."""
