"""Preferences between whole trajectories: what is trained of them, and in which order.

    prepared = prepare_trajectories(task, [TrajectoryRows(chosen=solved, rejected=unsolved), …])

A pair has two sides, each with all replies of an episode, every reply under the prompt that it answered. An optimizer
step takes whole pairs, one at least, until their chosen sides have as many replies as the recipe's `batch_rows`: so it
is about as much as a step of preferences between replies. Its replies are computed a few at a time, those of one state
together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from collab.errors import ConfigError
from collab.learn.adapter import open_adapter
from collab.learn.base import Base, open_base, quiet
from collab.learn.examples import Encoded, Example, NothingFits, Part, encode_replies, rows_digest
from collab.learn.order import Step
from collab.learn.prepare import Prepared, Task, check_installed, reference_of, world
from collab.learn.preset import Recipe
from collab.prompts.render import prefix_hash
from collab.seeds import derive, generator
from collab.synth.rows import Row

GROUP = "trajectory"
"""Level of the steps, for the record."""
_ANY = 1 << 62
"""A context that no row exceeds: a reply that is too long takes its whole pair with it, and that is seen here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryRows:
    """A pair: all that was said in two episodes."""

    chosen: Sequence[Row]
    """Of the better one; each row is a reply with its own prompt."""
    rejected: Sequence[Row]

    @property
    def rows(self) -> tuple[Row, ...]:
        """Of both sides, the chosen one first."""
        return (*self.chosen, *self.rejected)


def prepare_trajectories(task: Task, pairs: Sequence[TrajectoryRows]) -> Prepared:
    """Tokenise and order; nothing is written and no weight is loaded.

    A pair with a reply that is longer than the recipe's context is left out whole and counted.

    Raises:
        NothingFits: no pair is short enough.
        ConfigError: base, rows and recipe do not fit together, or several processes should train it.
        MissingExtra: a package is not installed.
    """
    check_installed()
    if world()[1] > 1:
        raise ConfigError("whole trajectories are trained by one process; start it without a launcher")
    base = open_base(task.base, task.recipe)
    with quiet():
        found = [_encoded(pair, base) for pair in pairs]
    kept = [number for number, one in enumerate(found) if max(map(len, one)) <= task.recipe.context]
    longest = max((len(item) for one in found for item in one), default=0)
    if not kept:
        raise NothingFits(len(pairs), task.recipe.context, longest)
    chosen = [pairs[number] for number in kept]
    return Prepared(
        task=task,
        base=base,
        encoded=Encoded(
            items=[item for number in kept for item in found[number]],
            dropped={GROUP: len(pairs) - len(kept)} if len(kept) < len(pairs) else {},
            longest=longest,
        ),
        steps=trajectory_steps(chosen, task.recipe, task.seed),
        rows=pairs_digest(pairs),
        world=1,
        reference=reference_of(task, base),
        adapter=open_adapter(task.adapter, task.recipe, task.base),
        reference_adapter=open_adapter(task.reference_adapter, task.recipe, task.base),
        trajectories=tuple(_parts(chosen)),
    )


def trajectory_steps(pairs: Sequence[TrajectoryRows], recipe: Recipe, seed: int) -> list[Step]:
    """The order of training; positions are those of the replies of all pairs, one pair after the other.

    Args:
        seed: the same seed gives the same order.
    """
    places = list(_places(pairs))
    most = 2 * (recipe.rows_at_once or recipe.batch_rows)
    steps: list[Step] = []
    for number in range(recipe.epochs):
        order = list(range(len(pairs)))
        generator(derive(seed, "pass", GROUP, number)).shuffle(order)
        taken: list[int] = []
        for pair in order:
            taken.append(pair)
            if sum(len(pairs[one].chosen) for one in taken) >= recipe.batch_rows:
                steps.append(_step(pairs, places, taken, most))
                taken = []
        if taken:
            steps.append(_step(pairs, places, taken, most))
    return steps


def pairs_digest(pairs: Sequence[TrajectoryRows]) -> str:
    """SHA-256 over what pairs teach, in their order."""
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(f"{rows_digest(pair.chosen)} {rows_digest(pair.rejected)}\n".encode())
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------ inside


def _encoded(pair: TrajectoryRows, base: Base) -> Sequence[Example]:
    return encode_replies(pair.rows, base.chat, _ANY).items


def _parts(pairs: Sequence[TrajectoryRows]) -> Iterator[Part]:
    for number, pair in enumerate(pairs):
        yield from (Part(pair=number, side=1) for _ in pair.chosen)
        yield from (Part(pair=number, side=-1) for _ in pair.rejected)


def _places(pairs: Sequence[TrajectoryRows]) -> Iterator[range]:
    """Positions of each pair's replies."""
    start = 0
    for pair in pairs:
        yield range(start, start + len(pair.rows))
        start += len(pair.rows)


def _step(pairs: Sequence[TrajectoryRows], places: Sequence[range], taken: Sequence[int], most: int) -> Step:
    """A step of these pairs, its replies in forward passes of at most so many, a state's together where they fit."""
    said = [(place, row) for pair in taken for place, row in zip(places[pair], pairs[pair].rows, strict=True)]
    states = [[place for place, _ in those] for _, those in groupby(said, key=lambda one: _state(one[1]))]
    passes: list[list[int]] = [[]]
    for state in states:
        for start in range(0, len(state), most):
            piece = state[start : start + most]
            if passes[-1] and len(passes[-1]) + len(piece) > most:
                passes.append([])
            passes[-1] += piece
    return Step(group=GROUP, parts=tuple(map(tuple, passes)))


def _state(row: Row) -> str:
    return prefix_hash(row.prompt.system, row.prompt.shared)
