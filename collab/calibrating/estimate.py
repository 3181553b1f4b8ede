"""What a calibration will ask, told before anything is written and without asking anybody.

The known steps are really made and the questions really put together, so their number and length are exact (as exact as
the model's own count of tokens); how much it will say is not known, only how much it may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from collab.calibrating.configure import CalibrationConfig
from collab.calibrating.workplace import opened
from collab.credit.calibration import passes
from collab.credit.case import Case
from collab.credit.known import Worth
from collab.models.reward import RewardModel
from collab.types import Prompt


@runtime_checkable
class Asking(Protocol):
    """A critic that shows its questions."""

    def prompts(self, case: Case) -> list[Prompt]:
        """What it asks about a step, call by call, without asking."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is to be expected."""

    cases: int
    passes: int
    """All cases are judged so often."""
    worth: Mapping[Worth, int]
    """Proposed actions of one pass by what they are worth."""
    calls: int | None
    """Of the critic's model, in all passes; 0 where none is asked, None where a critic does not show its questions."""
    prompt_tokens: int | None
    completion_tokens: int | None
    """At most. Both None like `calls`."""
    unfit: int | None = 0
    """Judgements that would be missing whole: nothing of a step fits into the critic's context; None like `calls`."""


async def estimate(config: CalibrationConfig) -> Estimate:
    """Look ahead.

    Raises:
        UsageError: a part cannot be built, or no step is of known worth.
        EnvironmentFailure: the environment broke.
    """
    async with opened(config, asks=False) as place:
        known = await place.known()
        asked = passes(known, config.permutations)
        calls: int | None = 0
        tokens: int | None = 0
        unfit: int | None = 0
        model = place.bench.model
        if model is not None:
            critics = [(place.critic(one.seed, one.attempt), one.cases) for one in asked]
            found = [list(one.prompts(case)) for one, cases in critics if isinstance(one, Asking) for case in cases]
            prompts = [prompt for asked_of_one in found for prompt in asked_of_one]
            shows = all(isinstance(critic, Asking) for critic, _ in critics)
            unfit = sum(not asked_of_one for asked_of_one in found) if shows else None
            calls = len(prompts) if shows else None
            counted = (model.count_tokens(prompt.system) + model.count_tokens(prompt.user) for prompt in prompts)
            tokens = sum(counted) if shows else None
        replies = 0 if isinstance(model, RewardModel) else config.critic.sampling.max_tokens
        worth = Counter(worth for one in known for worth in one.worth.values())
        return Estimate(
            cases=len(known),
            passes=len(asked),
            worth={name: worth[name] for name in ("good", "neutral", "bad")},
            calls=calls,
            prompt_tokens=tokens,
            completion_tokens=None if calls is None else calls * replies,
            unfit=unfit,
        )
