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
from collab.config import Budget
from collab.envs.base import Suite
from collab.errors import ConfigError, RunFormatError, UsageError
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.interfaces import Algorithm, Checked, EpochSummary, TriedStep
from collab.loop.ranges import Estimate, Range
from collab.loop.record import EpochRecord
from collab.preferences.rebuild import ORACLE
from collab.preferences.registry import SAMPLER, open_adversary, resolve_adversary
from collab.rewards.calibration.record import (
    EXEMPT,
    FOLDER,
    CalibrationRecord,
    admit,
    find_last_calibration,
    format_calibration,
)
from collab.rewards.registry import (
    CriticResources,
    doubt_key,
    load_critic,
    open_critic,
    read_critic_texts,
)
from collab.store.rewards import REWARDED_ABOVE
from collab.utils.text import format_amount


async def admit_critic(
    config: CollabConfig, suite: Suite, *, calibrations: Path = FOLDER, allow_uncalibrated: bool = False
) -> str:
    """Check that a training's critic may judge; return a line about its calibration.

    Args:
        suite: of the run.
        calibrations: a directory with one calibration each, or a calibration itself.
        allow_uncalibrated: let it judge in any case.

    Raises:
        ConfigError: it has no calibration, or one below the method's `min_critic_auc`; or it or the environment cannot
            be built.
        RunFormatError: its calibration is needed and cannot be read.
    """
    if not config.method.is_judged:
        return f"not asked, objective {config.method.objective} learns from outcomes alone"
    name, kind, least = config.method.critic, config.critic.kind, config.method.min_critic_auc
    # Calibrations are found by the critic's digest: the same name with other weights or prompts has none.
    resources = CriticResources.of(name, config.critic, config.critic_texts)
    try:
        found = _find_calibration(
            resources.digest, calibrations, needed=least is not None and not allow_uncalibrated and kind not in EXEMPT
        )
    finally:
        await resources.close()
    # A calibration in the same environment says most; of others the latest is shown, with a caution.
    if found is not None and found.environment != suite.label:
        found = find_last_calibration(calibrations, resources.digest, suite.label) or found
    # The gate comes before the cautions: a critic that may not judge stops the training, whatever else is known.
    if least is not None:
        admit(
            found,
            least,
            critic=name,
            kind=kind,
            folder=calibrations,
            library=config.library,
            allow_uncalibrated=allow_uncalibrated,
            flip=config.method.critic_flip,
        )
    if found is not None:
        cautions = _warn_other_environment(found, suite.label) + _warn_other_address(found, config)
        return f"calibrated {found.created}: {format_calibration(found)}{cautions}"
    # The oracle reads the solution: there is nothing about it to measure.
    if kind in EXEMPT:
        return "needs no calibration: it scores against the environment's own solution"
    return f"no finished calibration of it in {calibrations}"


def _find_calibration(digest: str, folder: Path, *, needed: bool) -> CalibrationRecord | None:
    """Return the critic's latest calibration, or None. An unreadable file is an error only if one is needed."""
    try:
        return find_last_calibration(folder, digest)
    except RunFormatError:
        if needed:
            raise
        return None


def _warn_other_environment(found: CalibrationRecord, label: str) -> str:
    """Return a warning if the calibration was made in another environment; else empty."""
    if label == found.environment:
        return ""
    return f"; warning: that is not {label}, which is trained in: how well it judges there was not measured"


def _warn_other_address(found: CalibrationRecord, config: CollabConfig) -> str:
    """Return a warning if the calibrated model had another address, since only its name is equal; else empty."""
    then, now = _describe_address(found.config.get("critic")), _describe_address(config.critic.model_dump(mode="json"))
    if then == now:
        return ""
    return (
        f"; measured with the model at {then}, but the critic uses the one at {now}: take care that both have the same "
        "weights"
    )


def _describe_address(critic: Any) -> str:
    """Return the address of a critic's model, in words."""
    try:
        return str(critic["options"]["model"]["options"]["base_url"])
    except (LookupError, TypeError):
        return "its usual address"


async def check_asked(config: CollabConfig, budget: Budget) -> None:
    """Open and close the critic and adversary that the method needs; raises as `build`."""
    # Opened and closed again: a key, an address or a model that is wrong shows before anything is played.
    method, run = config.method, config.run
    call_s = run.environment.limits.call_s
    if method.is_judged:
        async with open_critic(config.build_critic_choice(method.critic, run.seed), budget, call_s):
            pass
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
        *_warn_of_flipped(config),
        *_warn_of_whole_episodes(config),
        *(_doubt_oracle(config, suite) if config.method.is_judged else []),
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
    """Return a warning for each model that would be asked without the key that its server needs."""
    method, found = config.method, list[str]()
    if method.is_judged:
        found += doubt_key(config.critic, f"critic {method.critic}")
    if method.has_adversary:
        choices = [config.erring, *(one for one, _ in config.erring.turns)]
        found += [line for one in choices if one.agent is not None for line in doubt_key(one.agent, "adversary")]
    return found


def _warn_of_flipped(config: CollabConfig) -> list[str]:
    """Return a warning if a share of the critic's rewards is inverted on purpose."""
    method, flip = config.method, config.critic.flip
    if not flip or not method.is_judged:
        return []
    return [f"critic {method.critic}: labels flipped on purpose, {flip:.3g} of them; --set critic_flip=0 leaves them"]


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


def _doubt_oracle(config: CollabConfig, suite: Suite) -> list[str]:
    """Return a warning if the oracle lacks solutions of some tasks."""
    if config.critic.kind != ORACLE:
        return []
    # The suite is asked, not the library: solutions belong to the environment's version.
    able, solved = ORACLE in suite.capabilities, {info.name for info in suite.tasks() if info.oracle}
    tasks, without = config.run.tasks, [task for task in config.run.tasks if task not in solved]
    critic, lost = f"critic {config.method.critic}", "and every score would be missing"
    other = "name a critic that needs none, e.g. --set critic=critic-llm"
    # Nothing could ever be learned: refused. A part of the tasks is only mentioned, as it may be meant.
    if not able:
        raise UsageError(f"{critic}: {suite.label} knows no solutions, {lost}; {other}")
    if len(without) == len(tasks):
        raise UsageError(
            f"{critic}: none of the {len(tasks)} chosen tasks of {suite.label} has a known solution, {lost}; "
            f"choose with --tasks tag:oracle, or {other}"
        )
    if not without:
        return []
    return [
        f"{len(without)} of {len(tasks)} tasks have no known solution, so nothing is learned from them; "
        "leave them out: --tasks tag:oracle"
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
        critic = load_critic(library, method.critic)
        if method.critic_flip is not None:
            critic = critic.model_copy(update={"flip": method.critic_flip})
        # With another threshold, an inverted score could earn what the critic's own score earns.
        if critic.flip and method.is_judged and method.pairs.threshold != REWARDED_ABOVE:
            raise ConfigError(
                f"critic {method.critic}: {critic.flip:.3g} of its rewards are flipped on purpose, which are scores "
                f"above {REWARDED_ABOVE:g}, but pairs.threshold is {method.pairs.threshold:g}; "
                f"set pairs.threshold={REWARDED_ABOVE:g} or critic_flip=0"
            )
        return {
            "critic": critic,
            "critic_texts": read_critic_texts(library, critic),
            "adversary": resolve_adversary(library, method.adversary).as_json,
        }

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
