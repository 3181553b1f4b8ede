"""CollabUIAgents: multi-agent training with credit re-assignment, as an algorithm of the loop.

Each epoch draws a new graph, and the team plays. A critic judges every cell of the action matrix. Rejected replies come
from an adversary or from the team's own disagreement, and DPO trains the policies (section 3.2 of the paper, eq. 7
and 8). The paper leaves open which epoch counts: here it is the best on held-out seeds, ties to the earlier one, and
epoch 0, the untrained team, is a candidate. Other defaults differ where `presets/collab.yaml` says so.

Before a training, critic and adversary must answer, and the critic's latest calibration must let it judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from collab.algorithms.collabuiagents.config import ABLATIONS, CollabConfig, CollabMethod
from collab.algorithms.collabuiagents.estimate import estimate
from collab.algorithms.collabuiagents.labeller import CreditLabeller
from collab.algorithms.collabuiagents.learner import CreditLearner
from collab.algorithms.collabuiagents.metrics import build_columns, describe, format_lines, summarize
from collab.algorithms.judging import admit_critic, check_critic_answers, configure_critic, list_critic_doubts
from collab.config import Budget
from collab.envs.base import Suite
from collab.errors import ConfigError
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.interfaces import Algorithm, Checked, EpochSummary, TriedStep
from collab.loop.ranges import Estimate, Range
from collab.loop.record import EpochRecord
from collab.preferences.rebuild import ORACLE
from collab.preferences.registry import SAMPLER, open_adversary, resolve_adversary
from collab.rewards.calibration.record import (
    FOLDER,
)
from collab.rewards.registry import (
    doubt_key,
)
from collab.utils.text import format_amount


async def check_asked(config: CollabConfig, budget: Budget) -> None:
    """Open and close the critic and adversary that the method needs; raises as `build`."""
    # Opened and closed again: a key, an address or a model that is wrong shows before anything is played.
    method, run = config.method, config.run
    call_s = run.environment.limits.call_s
    await check_critic_answers(config, budget)
    if method.has_adversary:
        async with open_adversary(config.erring, budget, call_s):
            pass


def list_doubts(config: CollabConfig, suite: Suite) -> list[str]:
    """Return settings that may be mistakes, a line each. Models and environments are not opened.

    Args:
        suite: of the run.

    Raises:
        UsageError: the oracle is the critic but knows no solution, so every score would be missing.
    """
    return [
        *_doubt_temperatures(config),
        *_doubt_adversary(config),
        *_doubt_keys(config),
        *list_critic_doubts(config, suite),
        *_warn_of_whole_episodes(config),
    ]


def _doubt_temperatures(config: CollabConfig) -> list[str]:
    """Return a warning if replies are sampled hotter than they are learned from."""
    # DPO's log π is at the learning temperature; replies sampled hotter look less likely than they were drawn.
    learned = config.method.dpo.temperature
    hottest = max(one.temperature for one in config.as_explored.sampling.values())
    if config.method.objective != "dpo" or hottest <= learned:
        return []
    return [
        f"replies are sampled at temperature {hottest:g} and learned from at {learned:g}, as if they had been surer; "
        f"what is played is trained by --set dpo.temperature={hottest:g}"
    ]


def _doubt_adversary(config: CollabConfig) -> list[str]:
    """Return a warning if an adversary is named that no source of pairs asks."""
    method = config.method
    if method.has_adversary or method.adversary.kind == SAMPLER:
        return []
    name = method.adversary.agent or method.adversary.kind
    return [f"adversary {name} is not asked: no source of pairs uses it; --set pairs.adversary=1 makes them"]


def _doubt_keys(config: CollabConfig) -> list[str]:
    """Return a warning for each adversary that would be asked without the key that its server needs."""
    if not config.method.has_adversary:
        return []
    choices = [config.erring, *(one for one, _ in config.erring.turns)]
    return [line for one in choices if one.agent is not None for line in doubt_key(one.agent, "adversary")]


def _warn_of_whole_episodes(config: CollabConfig) -> list[str]:
    """Warn that episodes continue after their first error, although the method would end them there."""
    method = config.method
    if not method.is_taught_to_first_error or config.can_end_at_first_error:
        return []
    why = "its rewards are flipped" if config.critic.kind == ORACLE else "it is not the oracle"
    return [
        f"rollouts play whole episodes, although they teach up to the first error alone: critic {method.critic} cannot "
        f"tell it while they are played ({why})"
    ]


class CollabUIAgents(Algorithm):
    """Credit re-assignment by a critic, preferences by an adversary or by disagreement, iterative DPO."""

    name = "collabuiagents"
    description = "credit re-assignment: a critic rewards every cell, DPO learns from chosen and rejected replies"
    method = CollabMethod
    config = CollabConfig
    presets = Path(__file__).parent / "presets"
    default_preset = "collab"
    ablations = ABLATIONS
    options: ClassVar[Mapping[str, Any]] = {"calibrations": FOLDER, "allow_uncalibrated": False}
    toy_options: ClassVar[Mapping[str, Any]] = {"allow_uncalibrated": True}  # no critic was calibrated for a toy
    toy = (
        "pairs={adversary: 1, contrast: 1, correction: 0.5}",
        "dpo.anchor=0.5",
        "replay_fraction=0",
    )
    labeller, learner = CreditLabeller(), CreditLearner()

    def configure(self, library: Library, method: Method) -> dict[str, Any]:
        """Return critic and adversary with the content of their files."""
        method = _narrow_method(method)
        adversary = resolve_adversary(library, method.adversary).as_json
        return {**configure_critic(library, method), "adversary": adversary}

    def check_plan(self, method: Method, *, episodes: int, tasks: int) -> None:
        """Refuse whole trajectories if each task is played once: no two could be compared."""
        # A pair of trajectories needs two episodes of one task, one solved and one not.
        if _narrow_method(method).objective == "trajectory-dpo" and episodes <= tasks:
            raise ConfigError(
                f"objective: trajectory-dpo, but an epoch plays {format_amount(episodes, 'episode')} of "
                f"{format_amount(tasks, 'task')}: none is played twice, and nothing can be compared; set fewer tasks "
                "or more episodes, e.g. "
                f"--set tasks={max(tasks // 4, 1)} --set episodes={max(tasks // 4, 1) * 4}"
            )

    def check_origin(self, method: Method, other: TrainingConfig, run: Path) -> None:
        """Refuse examples of a training that this one cannot learn from."""
        own = _narrow_method(method)
        if not own.replay_fraction:
            return
        # Pairs cannot be replayed into single replies, nor a shared policy's rows into one of several.
        theirs = other.method.objective if isinstance(other, CollabConfig) else other.algorithm
        kinds = [
            f"objective {what}, policies {one.policies}" for what, one in ((theirs, other.method), (own.objective, own))
        ]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"replay_fraction: {own.replay_fraction:g} mixes pairs of {run} in, which has {kinds[0]}, "
                f"and this training {kinds[1]}; set replay_fraction=0, or use that training's settings"
            )

    def list_doubts(self, config: TrainingConfig, suite: Suite) -> list[str]:
        """Return doubts about temperatures, adversary and critic."""
        return list_doubts(_narrow_config(config), suite)

    async def check(self, config: TrainingConfig, suite: Suite, budget: Budget, options: Mapping[str, Any]) -> Checked:
        """Check that critic and adversary answer, and that the critic may judge.

        Args:
            options: `calibrations`, the folder with those of the critic, and `allow_uncalibrated`: let the critic judge
                in any case.
        """
        # The calibration is looked up first: that is free, while opening critic and adversary may start a server.
        mine, allow_uncalibrated = _narrow_config(config), bool(options["allow_uncalibrated"])
        known = await admit_critic(
            mine, suite, calibrations=Path(options["calibrations"]), allow_uncalibrated=allow_uncalibrated
        )
        found = list_doubts(mine, suite)
        await check_asked(mine, budget)
        notes = (f"critic {mine.method.critic}: {known}", *found)
        return Checked(notes=notes, head={"calibration": known, "allow_uncalibrated": allow_uncalibrated})

    async def check_budget(self, config: TrainingConfig, budget: Budget) -> None:
        """Open critic and adversary with the budget and close them again."""
        await check_asked(_narrow_config(config), budget)

    async def estimate(self, config: TrainingConfig, tried: TriedStep, rolled: Range) -> Estimate:
        """Estimate judging, pairing and learning."""
        return await estimate(_narrow_config(config), tried, rolled)

    def describe(self, config: TrainingConfig) -> str:
        """Return how policies are trained, in a clause."""
        mine = _narrow_config(config)
        return describe(mine.method, mine.critic.flip)

    def describe_examples(self, config: TrainingConfig, records: Sequence[EpochRecord], group: str) -> str:
        """Return a description of a policy's examples."""
        what = "rewarded replies" if _narrow_config(config).method.objective == "rft" else "pairs"
        return f"{sum(one.examples[group].examples for one in records if group in one.examples)} {what}"

    def build_columns(self, record: EpochRecord) -> Mapping[str, object]:
        """Return rewards, pairs and metrics of preference training."""
        return build_columns(record)

    def summarize(self, record: EpochRecord) -> EpochSummary:
        """Return rewards and pairs for the inspector."""
        return summarize(record)

    def format_lines(self, record: EpochRecord) -> list[str]:
        """Format rewards, pairs and skipped cells, line by line."""
        return format_lines(record)


def _narrow_method(method: Method) -> CollabMethod:
    assert isinstance(method, CollabMethod), "the loop gives each algorithm its own method"
    return method


def _narrow_config(config: TrainingConfig) -> CollabConfig:
    assert isinstance(config, CollabConfig), "the loop gives each algorithm its own configuration"
    return config
