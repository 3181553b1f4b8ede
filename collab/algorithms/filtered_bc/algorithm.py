"""Filtered behaviour cloning: imitate every reply of the remembered episodes that were solved.

    collab train --algo filtered-bc --env androidworld --graph team --agents pocket --out runs/bc
    collab train --algo filtered-bc --env androidworld --graph single --agents mine --offline runs/demos --set epochs=1

The simplest way to learn from own episodes, and the baseline of the others: no values, no comparison, only next tokens
of replies that the verdict on their episode let through. A team that solves nothing in its first rollout is not
trained.

Source: "Filtered BC" in DigiRL (Bai et al. 2024, table 1 and appendix K), there with single agents. Here every agent
that spoke in a solved episode is imitated, in every round, also if the vote went against it. The public code keeps the
best tenth by reward, which lets every failure through where fewer were solved (preset `released`); here only successes
pass.

Recorded runs may be demonstrations: episodes in which a model looked at solutions. Pictures are learned as they were
shown, so demonstrations with pictures make a policy that sees.

Presets: `filtered-bc`, the default, has the schedule of collabuiagents for a team; `sound` and `released` have those of
DigiRL's presets of the same names for one agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from collab.algorithms.turn_algorithm import TurnAlgorithm
from collab.algorithms.turn_learner import Experience, ReplayMethod, TurnLearner, estimate_alike
from collab.loop.state import LoopState
from collab.trainers.rl.estimators import keep_episodes
from collab.trainers.rl.step_estimates import StepEstimate


class FilteredBCMethod(ReplayMethod):
    """Settings of imitating solved episodes."""

    SEES: ClassVar[bool] = True
    most_per_task: int | None = Field(default=None, ge=1)
    """At most so many remembered solutions of a task are imitated, the newest; None imitates all."""
    quantile: float | None = Field(default=None, gt=0, le=1)
    """Imitate the episodes whose outcome is at or above the quantile of this best share, as the public code does: where
    fewer are solved, every failure passes. None imitates solved episodes alone."""


class ImitationLearner(TurnLearner):
    """Learns the replies of solved episodes."""

    async def estimate(self, state: LoopState, group: str, experience: Experience) -> list[StepEstimate]:
        """Return weight 1 for the steps of solved episodes, and 0 for all others."""
        method, found = state.config.method, list[list[StepEstimate]]()
        assert isinstance(method, FilteredBCMethod), "the loop gives each algorithm its own method"
        passed = choose_episodes([one.reward for one in experience.episodes], method.quantile)
        taken = Counter[str]()
        # From the newest on, so that the cap keeps what the present policy is likeliest to say.
        for one, is_passed in zip(reversed(experience.episodes), reversed(passed), strict=True):
            taken[one.task] += is_passed
            why = "kept" if is_passed else "not solved"
            if is_passed and method.most_per_task is not None and taken[one.task] > method.most_per_task:
                why = "beyond most_per_task"
            found.append(estimate_alike(one, weight=float(why == "kept"), why=why))
        return [estimate for episode in reversed(found) for estimate in episode]


def choose_episodes(rewards: Sequence[float], quantile: float | None) -> list[bool]:
    """Return which episodes are imitated; `quantile` as in the method."""
    if quantile is None:
        return [reward > 0 for reward in rewards]
    kept: list[bool] = keep_episodes(rewards, top=quantile, form="quantile", positive=False).tolist()
    return kept


class FilteredBC(TurnAlgorithm):
    """Imitation of solved episodes."""

    name = "filtered-bc"
    description = "filtered behaviour cloning: imitate every reply of the episodes that were solved"
    method = FilteredBCMethod
    presets = Path(__file__).parent / "presets"
    default_preset = "filtered-bc"
    imitates = True
    toy = (  # easy enough to be solved at times
        *("episodes=12", "updates=2", "rl.batch_rows=4"),
        "run.environment.backends.fake.options.declared=false",
    )
    learner = ImitationLearner()
