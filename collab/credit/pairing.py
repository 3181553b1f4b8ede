"""From a judged run to its pairs: what is missing is counted, what is there is paired.

    labels = read_labels(run, "oracle")
    with RunReader(run) as reader:
        made = await pair_up(reader.trajectories(), labels, recipe, space=suite.space, prefix=reader.prefix,
                             adversary=adversary, states=Rebuilder(suite))
    made.pairing.pairs

The record and the judgements are read, nothing is written and nobody plays again: another critic, threshold, source or
adversary is another call, and `pairs_difference` tells what it changes. The same record, judgements, recipe and replies
of the adversary give the same pairs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from collab.credit.adversary import Adversary
from collab.credit.case import Case, States, cases
from collab.credit.judged_step import BEHIND_ERROR, JudgedStep, behind_errors
from collab.credit.labelling import PATIENCE
from collab.credit.labels import Labels
from collab.credit.negatives import Negatives, negatives
from collab.credit.pairs import Pairing, Sources, most_pairs, pair_all, wanted
from collab.envs.grammar import ActionSpace
from collab.errors import ConfigError, EnvironmentFailure, ModelFailure, RunError
from collab.models.meter import lost_by
from collab.redact import redact
from collab.store.cost import total
from collab.types import FREE, Spent, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How pairs are made of judgements.

    Raises:
        ConfigError: a value is out of its range.
    """

    sources: Sources = field(default_factory=Sources)
    threshold: float = 0.5
    """A score above it is rewarded; in [0, 1)."""
    cap: int | None = None
    """The most pairs of one state; None for all."""
    attempts: int = 3
    """How often the adversary is asked about a cell."""
    until_error: bool = False
    """Whether an episode's steps behind its first error are left out; see `collab.credit.judged_step.behind_errors`."""
    seed: int = 0
    """Of the run."""

    def __post_init__(self) -> None:
        wrong = [
            *([] if 0 <= self.threshold < 1 else [f"threshold {self.threshold}, allowed: from 0, below 1"]),
            *([] if self.attempts >= 1 else [f"attempts {self.attempts}, allowed: from 1"]),
            *([] if self.cap is None or self.cap >= 1 else [f"cap {self.cap}, allowed: from 1, or none"]),
        ]
        if wrong:
            raise ConfigError(f"pairs: {'; '.join(wrong)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The pairs of a run, and what there is no pair for."""

    pairing: Pairing
    refused: Counter[str]
    """What the adversary said in vain, by cause."""
    failed: Counter[str]
    """Steps about which it could not be asked, by class of error; they have contrasts at most."""
    asked: int = 0
    """Steps about which it was to be asked, those of `failed` included."""
    unjudged: int
    """Steps without a judgement."""
    untried: int
    """Negatives in pairs or not that nobody could try, for their state cannot be brought back."""
    spent: Spent
    """What asking the adversary cost."""


async def pair_up(
    trajectories: Iterable[Trajectory],
    labels: Labels,
    recipe: Recipe,
    *,
    space: ActionSpace,
    prefix: Callable[[str], str],
    adversary: Adversary,
    states: States | None = None,
    concurrency: int = 4,
) -> Paired:
    """Pair all judged steps.

    Args:
        prefix: stored text of a prompt's shared part by its hash (`RunReader.prefix`).
        states: how to bring states back, so that negatives can be tried; None tries none.
        concurrency: steps about which the adversary is asked at the same time.

    Raises:
        OutOfPatience: asking, or trying the answers, failed for ten steps in a row.
        RunFormatError: the run was recorded in another version of the environment.
    """
    judged, unjudged = _judged(trajectories, labels, recipe, space, states)
    judged, beyond = _until_error(judged, recipe) if recipe.until_error else (judged, 0)
    lost = lost_by(adversary)
    asking = _Asking(recipe=recipe, prefix=prefix, adversary=adversary, gate=asyncio.Semaphore(concurrency))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asking.ask(case, step)) for case, step in judged]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    if asking.ended is not None:
        raise asking.ended
    found = [task.result() for task in tasks]
    steps = [replace(step, negatives=one.negatives) for (_, step), one in zip(judged, found, strict=True)]
    pairing = pair_all(steps, recipe.sources, recipe.seed, cap=recipe.cap)
    if beyond:
        pairing.counts[BEHIND_ERROR] = beyond
    return Paired(
        pairing=pairing,
        refused=sum((one.refused for one in found), Counter[str]()),
        failed=asking.failed,
        asked=asking.steps,
        unjudged=unjudged,
        untried=sum(one.untried for one in found),
        spent=total([*(one.spent for one in found), replace(FREE, lost=lost_by(adversary) - lost)]),
    )


def _judged(
    trajectories: Iterable[Trajectory], labels: Labels, recipe: Recipe, space: ActionSpace, states: States | None
) -> tuple[list[tuple[Case, JudgedStep]], int]:
    """The judged steps, and how many are not judged."""
    judged: list[tuple[Case, JudgedStep]] = []
    unjudged = 0
    for trajectory in trajectories:
        for case in cases(trajectory, space, states):
            judgement = labels.of(case)
            if judgement is None:
                unjudged += 1
            else:
                judged.append((case, JudgedStep.of(trajectory, judgement, recipe.threshold)))
    return judged, unjudged


def _until_error(judged: list[tuple[Case, JudgedStep]], recipe: Recipe) -> tuple[list[tuple[Case, JudgedStep]], int]:
    """The steps up to the first error of their episode, and how many pairs the others could have had."""
    behind = behind_errors(step for _, step in judged)
    kept = [(case, step) for case, step in judged if case.key not in behind]
    lost = (most_pairs(step, recipe.sources, recipe.seed) for case, step in judged if case.key in behind)
    return kept, sum(lost)


class OutOfPatience(RunError):
    """Asking, or trying the answers, failed for so many steps in a row; says why for the last. Answers are kept."""


@dataclass(slots=True, kw_only=True)
class _Asking:
    """Asks an adversary about steps, so many at once."""

    recipe: Recipe
    prefix: Callable[[str], str]
    adversary: Adversary
    gate: asyncio.Semaphore
    failed: Counter[str] = field(default_factory=Counter)
    in_a_row: int = 0
    steps: int = 0
    ended: OutOfPatience | None = None
    """Why no further step is begun; what was asked before is still waited for, for it is paid."""

    async def ask(self, case: Case, step: JudgedStep) -> Negatives:
        """The negatives of a step; none where nobody could be asked."""
        cells, paid = wanted(step, self.recipe.sources, self.recipe.seed), list[Spent]()
        self.steps += bool(cells)
        async with self.gate:
            if self.ended is not None:
                return Negatives(negatives={})
            try:
                found = await negatives(
                    case,
                    step,
                    cells,
                    self.adversary,
                    prefix=self.prefix,
                    seed=self.recipe.seed,
                    attempts=self.recipe.attempts,
                    paid=paid,
                )
            except (EnvironmentFailure, ModelFailure) as failure:
                self.failed[type(failure).__name__] += 1
                self.in_a_row += 1
                if self.in_a_row == PATIENCE:
                    self.ended = OutOfPatience(
                        f"asking for worse sides, or trying them, failed for {PATIENCE} steps in a row, the last: "
                        f"{redact(str(failure))}"
                    )
                return Negatives(negatives={}, spent=total(paid))
        if cells:
            self.in_a_row = 0
        return found
