"""The sampling adversary behind the seam: a plausible wrong action, in the manner in which the cell speaks.

    adversary = SamplerAdversary(weights={"other element": 3, "premature end": 1})
    proposal = await adversary.propose(occasion)

What can be drawn, and how plausible it is, is told in `collab.credit.sampler`. Deviation from CollabUIAgents (eq. 7):
no model is asked. So that the two sides of a pair differ in what they do and not in how they talk, a cell that names
its element as the screen shows it is answered that way, and any other keeps its own reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import get_args

from collab.credit.adversary import Occasion, Proposal, label_of
from collab.credit.sampler import WEIGHTS, Kind, Spot, mistakes, words_of
from collab.credit.wording import reason
from collab.errors import ConfigError, UnknownName
from collab.prompts.parse import write_reply
from collab.seeds import generator
from collab.types import Action

_DRAWS = 40
"""Mistakes that are looked at before it gives up."""


class SamplerAdversary:
    """Draws wrong actions; a pure function of the occasion.

    Args:
        weights: how often each kind of mistake is tried, by name; one that is not named never is. None for
            `collab.credit.sampler.WEIGHTS`.

    Raises:
        UnknownName: there is no such kind.
        ConfigError: a weight is negative or no number, or all are 0.
    """

    name = "sampler"
    version = "1"

    def __init__(self, *, weights: Mapping[str, float] | None = None) -> None:
        self._weights: Mapping[Kind, float] = WEIGHTS if weights is None else _checked(weights)

    async def propose(self, occasion: Occasion) -> Proposal | None:
        """The first drawn mistake that no rewarded cell of the step made; None where none is possible."""
        case = occasion.case
        spot = Spot(observation=case.observation, space=case.space, last=case.last, words=words_of(case.task.goal))
        drawn = mistakes(occasion.right, spot, generator(occasion.seed), weights=self._weights)
        for mistake in islice(drawn, _DRAWS):
            if mistake.action not in occasion.rewarded:
                text = write_reply(_because(occasion, mistake.action), mistake.action, case.space)
                return Proposal(text=text, maker=f"{label_of(self)}: {mistake.kind}")
        return None


def _because(occasion: Occasion, wrong: Action) -> str:
    """The mistaken reason, in the manner of the cell's own."""
    screen, space = occasion.case.observation, occasion.case.space
    shows = occasion.cell.reason == reason(occasion.right, screen, space)
    return reason(wrong, screen, space) if shows else occasion.cell.reason


def _checked(weights: Mapping[str, float]) -> dict[Kind, float]:
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in weights:
        if kind not in kinds:
            raise UnknownName.of("kind of mistake", kind, kinds)
    if not all(0 <= weight < float("inf") for weight in weights.values()) or not any(weights.values()):
        raise ConfigError(f"weights of mistakes: {dict(weights)}; each is a number from 0, and one at least is above 0")
    return {kind: weights[kind] for kind in kinds if weights.get(kind)}
