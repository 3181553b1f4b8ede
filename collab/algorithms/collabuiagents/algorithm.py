"""CollabUIAgents: multi-agent training with credit re-assignment, as an algorithm of the loop.

Epoch by epoch the graph is drawn anew, the team plays, a critic judges every cell of the action matrix, an adversary or
the team's own disagreement gives the worse sides, and DPO trains the policies (section 3.2 of the paper, eq. 7 and 8).
Open there, chosen here: the epoch that counts is the best on held-out seeds, ties to the earlier one; epoch 0, the
untrained team, is a candidate. Defaults differ from the paper where `presets/collab.yaml` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from collab.algorithms.collabuiagents.checks import admitted, check_asked, doubts
from collab.algorithms.collabuiagents.config import ABLATIONS, CollabConfig, CollabMethod
from collab.algorithms.collabuiagents.estimate import estimate
from collab.algorithms.collabuiagents.labeller import CreditLabeller
from collab.algorithms.collabuiagents.learner import CreditLearner
from collab.algorithms.collabuiagents.metrics import columns, describe, lines
from collab.config import Budget
from collab.errors import ConfigError
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.interfaces import Algorithm, Checked, Estimate, Range, TriedStep
from collab.loop.phases import DrawnTasks
from collab.loop.record import EpochRecord
from collab.preferences.registry import adversary_asked
from collab.rewards.calibration.record import FOLDER as CALIBRATIONS
from collab.rewards.registry import critic_texts, load_critic
from collab.utils.text import amount


class CollabUIAgents(Algorithm):
    """Credit re-assignment by a critic, preferences by an adversary or by disagreement, iterative DPO."""

    name = "collabuiagents"
    description = "credit re-assignment: a critic rewards every cell, DPO learns from better against worse replies"
    method = CollabMethod
    config = CollabConfig
    presets = Path(__file__).parent / "presets"
    default_preset = "collab"
    ablations = ABLATIONS
    options: ClassVar[Mapping[str, Any]] = {"calibrations": CALIBRATIONS, "anyway": False}
    toy = (
        "pairs={adversary: 1, contrast: 1, correction: 0.5}",
        "dpo.anchor=0.5",
        "dpo.final_norm_learning_rate=null",  # adapters can be tried in place of all weights
    )
    curriculum, labeller, learner = DrawnTasks(), CreditLabeller(), CreditLearner()

    def configure(self, library: Library, method: Method) -> dict[str, Any]:
        """Return critic and adversary with all that stands in their files."""
        method = _own(method)
        critic = load_critic(library, method.critic)
        return {
            "critic": critic,
            "critic_texts": critic_texts(library, critic),
            "adversary": adversary_asked(library, method.adversary).told,
        }

    def check_plan(self, method: Method, *, episodes: int, tasks: int) -> None:
        """Refuse whole trajectories of tasks that are played once: no two could be compared."""
        if _own(method).objective == "trajectory-dpo" and episodes <= tasks:
            raise ConfigError(
                f"objective: trajectory-dpo, but an epoch plays {amount(episodes, 'episode')} of "
                f"{amount(tasks, 'task')}: none is played twice, and nothing can be compared; set fewer tasks or more "
                "episodes, e.g. "
                f"--set tasks={max(tasks // 4, 1)} --set episodes={max(tasks // 4, 1) * 4}"
            )

    def check_origin(self, method: Method, other: TrainingConfig, run: Path) -> None:
        """Refuse to mix examples in that this training cannot learn from."""
        own = _own(method)
        if not own.older:
            return
        theirs = other.method.objective if isinstance(other, CollabConfig) else other.algorithm
        kinds = [
            f"objective {what}, policies {one.policies}" for what, one in ((theirs, other.method), (own.objective, own))
        ]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"older: {own.older:g} mixes pairs of {run} in, which has {kinds[0]}, and this training {kinds[1]}; "
                "set older=0, or train as it was trained"
            )

    async def doubts(self, config: TrainingConfig) -> list[str]:
        """Return what the user may not have meant of temperatures, adversary and critic."""
        return await doubts(_mine(config))

    async def check(self, config: TrainingConfig, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Check that critic and adversary answer, and that the critic may judge.

        Args:
            options: `calibrations`, the folder where those of the critic are looked for, and `anyway`: let the critic
                judge, whatever is known of it.
        """
        mine, anyway = _mine(config), bool(options["anyway"])
        known = await admitted(mine, calibrations=Path(options["calibrations"]), anyway=anyway)
        found = await doubts(mine)
        await check_asked(mine, budget)
        notes = (f"critic {mine.method.critic}: {known}", *found)
        return Checked(notes=notes, head={"calibration": known, "anyway": anyway})

    async def check_budget(self, config: TrainingConfig, budget: Budget) -> None:
        """Open critic and adversary with the budget and close them again."""
        await check_asked(_mine(config), budget)

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Return what judging, pairing and learning will take."""
        return await estimate(_mine(config), tried, rolled)

    def describe(self, config: TrainingConfig) -> str:
        """Return how policies are trained, in a clause."""
        return describe(_mine(config).method)

    def describe_examples(self, config: TrainingConfig, records: Sequence[EpochRecord], group: str) -> str:
        """Return what a policy learned from."""
        what = "rewarded replies" if _mine(config).method.objective == "rft" else "pairs"
        return f"{sum(one.examples[group].examples for one in records if group in one.examples)} {what}"

    def columns(self, record: EpochRecord) -> Mapping[str, object]:
        """Return rewards, pairs and what preference training measured."""
        return columns(record)

    def lines(self, record: EpochRecord) -> list[str]:
        """Return rewards, pairs and what became of them, line by line."""
        return lines(record)


def _own(method: Method) -> CollabMethod:
    assert isinstance(method, CollabMethod), "the loop gives each algorithm its own method"
    return method


def _mine(config: TrainingConfig) -> CollabConfig:
    assert isinstance(config, CollabConfig), "the loop gives each algorithm its own configuration"
    return config
