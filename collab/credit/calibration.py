"""A critic against steps whose worth is known: asked several times, then told in numbers.

    calibration = await calibrate(lambda seed, attempt: LanguageCritic(…), known)
    calibration.auc

    once                    accuracy, auc, reliability picture, calibration error
    the same again          test-retest reliability
    under other names       position bias; all worths stand in all places
    with longer reasons     length bias; in half of the cells, which say nothing more

Each of these is a `Pass`: `passes` says what is asked, `measure` makes numbers of what was answered, wherever that was
kept meanwhile; `calibrate` does both in one go.

Numbers are over the cells that were scored; how many were not stands beside them. A critic that shows no names and no
list (the oracle), or a list that never changes (`permute: false`), has no position bias to be measured.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from collab.credit.calibrate import (
    Bin,
    Retest,
    accuracy,
    auc,
    ece,
    length_bias,
    position_bias,
    position_effects,
    reliability,
    retest,
    scored,
)
from collab.credit.case import Case
from collab.credit.critic import Critic, Judgement, label_of
from collab.credit.known import KnownCase, Worth
from collab.types import CellRef

Make = Callable[[int, int], Critic]
"""(seed, attempt) → the critic. The seed decides the names it shows; the attempt only how its model samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How far a critic can be trusted; numbers are None where nothing can be said."""

    critic: str
    cases: int
    cells: int
    missing: Mapping[str, int]
    """Cells of the first pass without a score, by cause."""
    mean_scores: Mapping[Worth, float]
    """Of the first pass; a worth that was never scored is left out."""
    accuracy: float | None
    auc: float | None
    """Good actions against all others."""
    picture: tuple[Bin, ...]
    ece: float | None
    retest: Retest | None
    position_effects: Mapping[int, float]
    """By place in the list, from 0, of places that are compared; empty where none are, because the critic shows no
    list or always in the same order, or was not asked under other names."""
    position_bias: float | None
    """What the best of them adds to a score over the worst."""
    length_bias: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """All steps, asked about once."""

    name: str
    """Unique among the passes of a calibration, e.g. "names-2"; a name that a folder may have."""
    seed: int
    attempt: int
    """What the critic is made with, see `Make`."""
    cases: tuple[Case, ...]
    """As many as there are known steps, in their order."""


FIRST, AGAIN, NAMES, LONGER = "first", "again", "names", "longer"
"""Names of the passes; those under other names are numbered."""


def passes(known: Sequence[KnownCase], permutations: int = 3) -> tuple[Pass, ...]:
    """What is asked, 3 + `permutations` times all steps; the critic's seed is 0 but under other names."""
    plain = tuple(one.case for one in known)
    longer = tuple(one.case for one, _ in _longer(known))
    return (
        Pass(name=FIRST, seed=0, attempt=0, cases=plain),
        Pass(name=AGAIN, seed=0, attempt=1, cases=plain),
        *(Pass(name=f"{NAMES}-{seed}", seed=seed, attempt=0, cases=plain) for seed in range(1, 1 + permutations)),
        Pass(name=LONGER, seed=0, attempt=0, cases=longer),
    )


def measure(
    critic: str, known: Sequence[KnownCase], judged: Mapping[str, Sequence[Judgement]], bins: int = 10
) -> Calibration:
    """Judgements of all passes → numbers.

    Args:
        critic: its name and version.
        judged: pass → its judgements, in the order of the known steps.
        bins: columns of the reliability picture.
    """
    first = judged[FIRST]
    pairs = [(judgement.of(cell).score, worth) for judgement, cell, worth in _cells(first, known)]
    values, _ = scored((score, worth == "good") for score, worth in pairs)
    picture = reliability(values, bins)
    renamed = [said for name, said in judged.items() if name.startswith(NAMES)]
    effects = position_effects(_places([first, *renamed])) if renamed else {}
    return Calibration(
        critic=critic,
        cases=len(known),
        cells=len(pairs),
        missing=sum((judgement.missing for judgement in first), Counter[str]()),
        mean_scores=_means(pairs),
        accuracy=accuracy(values),
        auc=auc(values),
        picture=picture,
        ece=ece(picture),
        retest=retest(_both(first, judged[AGAIN])),
        position_effects=effects,
        position_bias=position_bias(effects),
        length_bias=length_bias(
            (before.of(cell).score, after.of(cell).score)
            for before, after, (_, chosen) in zip(first, judged[LONGER], _longer(known), strict=True)
            for cell in sorted(chosen)
        ),
    )


async def calibrate(
    make: Make, known: Sequence[KnownCase], *, permutations: int = 3, concurrency: int = 4, bins: int = 10
) -> Calibration:
    """Judge all known steps 3 + `permutations` times.

    Args:
        permutations: passes under other names than the first.
        concurrency: steps that are judged at the same time.

    Raises:
        EnvironmentFailure, ModelFailure: a step could not be asked about.
    """
    judged: dict[str, Sequence[Judgement]] = {}
    for one in passes(known, permutations):
        judged[one.name] = await _judged(make(one.seed, one.attempt), one.cases, concurrency)
    return measure(label_of(make(0, 0)), known, judged, bins)


def _longer(known: Sequence[KnownCase]) -> list[tuple[KnownCase, frozenset[CellRef]]]:
    """Each step with longer reasons in some cells, and which cells these are."""
    return [one.lengthened(0) for one in known]


async def _judged(critic: Critic, cases: Sequence[Case], concurrency: int) -> list[Judgement]:
    """Judgements in the order of the cases."""
    room = asyncio.Semaphore(concurrency)

    async def judge(case: Case) -> Judgement:
        async with room:
            return await critic.judge(case)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(judge(case)) for case in cases]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _cells(judgements: Sequence[Judgement], known: Sequence[KnownCase]) -> Iterable[tuple[Judgement, CellRef, Worth]]:
    for judgement, one in zip(judgements, known, strict=True):
        for cell, worth in one.worth.items():
            yield judgement, cell, worth


def _means(pairs: Sequence[tuple[float | None, Worth]]) -> dict[Worth, float]:
    found: dict[Worth, list[float]] = defaultdict(list)
    for score, worth in pairs:
        if score is not None:
            found[worth].append(score)
    return {worth: sum(scores) / len(scores) for worth, scores in found.items()}


def _both(first: Sequence[Judgement], second: Sequence[Judgement]) -> Iterable[tuple[float | None, float | None]]:
    """Scores of each cell in two passes."""
    for one, other in zip(first, second, strict=True):
        for reward in one.rewards.rewards:
            yield reward.score, other.of(reward.cell).score


def _places(passes: Sequence[Sequence[Judgement]]) -> Iterable[list[tuple[int, float]]]:
    """(place in the list, score) of each cell over all passes; nothing for cells that stood in no list."""
    found: dict[tuple[int, CellRef], list[tuple[int, float]]] = defaultdict(list)
    for judgements in passes:
        for number, judgement in enumerate(judgements):
            for place, cell in ((place, cell) for call in judgement.calls for place, cell in enumerate(call.cells)):
                score = judgement.of(cell).score
                if score is not None:
                    found[number, cell].append((place, score))
    return found.values()
