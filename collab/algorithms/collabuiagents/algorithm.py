"""CollabUIAgents: multi-agent training with credit re-assignment, as an algorithm of the loop.

Epoch by epoch the graph is drawn anew, the team plays, a critic judges every cell of the action matrix, an adversary or
the team's own disagreement gives the worse sides, and DPO trains the policies (section 3.2 of the paper, eq. 7 and 8).
Open there, chosen here: the epoch that counts is the best on held-out seeds, ties to the earlier one; epoch 0, the
untrained team, is a candidate. Defaults differ from the paper where `presets/collab.yaml` says so.

What is checked of critic and adversary: both answer, and the critic's last calibration lets it judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from collab.algorithms.collabuiagents.config import ABLATIONS, CollabConfig, CollabMethod
from collab.algorithms.collabuiagents.estimate import estimate
from collab.algorithms.collabuiagents.labeller import CreditLabeller
from collab.algorithms.collabuiagents.learner import CreditLearner
from collab.algorithms.collabuiagents.metrics import columns, describe, lines
from collab.config import AgentDefinition, Budget
from collab.errors import ConfigError, RunFormatError, UsageError
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.interfaces import Algorithm, Checked, Estimate, Range, TriedStep
from collab.loop.phases import DrawnTasks
from collab.loop.record import EpochRecord
from collab.preferences.rebuild import ORACLE
from collab.preferences.registry import SAMPLER, adversary_asked, opened_adversary
from collab.rewards.calibration.record import EXEMPT, FOLDER, CalibrationRecord, admit, last_calibration, told
from collab.rewards.calibration.record import FOLDER as CALIBRATIONS
from collab.rewards.registry import CriticResources, critic_texts, load_critic, opened_critic
from collab.rollout.build import build_suite
from collab.utils.text import amount


async def admitted(config: CollabConfig, *, calibrations: Path = FOLDER, anyway: bool = False) -> str:
    """What is known of the critic of a training, in a line; it may judge.

    Args:
        calibrations: where they are looked for; a directory with one of them each, or a calibration itself.
        anyway: let it judge, whatever is known of it.

    Raises:
        ConfigError: it has no calibration, or one that does not reach the method's `min_critic_auc`; or it or the
            environment cannot be built.
        RunFormatError: its calibration is needed and cannot be read.
    """
    if not config.method.is_judged:
        return f"not asked, objective {config.method.objective} learns from outcomes alone"
    name, kind, least = config.method.critic, config.critic.kind, config.method.min_critic_auc
    bench = CriticResources.of(name, config.critic, config.critic_texts)
    try:
        found = _calibration(bench.digest, calibrations, needed=least is not None and not anyway and kind not in EXEMPT)
    finally:
        await bench.close()
    label = "" if found is None else await _label(config)
    if found is not None and found.environment != label:
        found = last_calibration(calibrations, bench.digest, label) or found
    if least is not None:
        admit(found, least, critic=name, kind=kind, folder=calibrations, library=config.library, anyway=anyway)
    if found is not None:
        cautions = _other_world(found, label) + _elsewhere(found, config)
        return f"calibrated {found.created}: {told(found)}{cautions}"
    if kind in EXEMPT:
        return "needs no calibration: it scores against the environment's own solution"
    return f"no finished calibration of it in {calibrations}"


def _calibration(digest: str, folder: Path, *, needed: bool) -> CalibrationRecord | None:
    """The last one of a critic; one that cannot be read is none where none is needed."""
    try:
        return last_calibration(folder, digest)
    except RunFormatError:
        if needed:
            raise
        return None


async def _label(config: CollabConfig) -> str:
    """Of the environment that is trained in."""
    suite = build_suite(config.run)
    try:
        return suite.label
    finally:
        await suite.close()


def _other_world(found: CalibrationRecord, label: str) -> str:
    """What to know of a calibration in another environment than is trained in: it stops nobody."""
    if label == found.environment:
        return ""
    return f"; warning: that is not {label}, which is trained in: how well it judges there was not measured"


def _elsewhere(found: CalibrationRecord, config: CollabConfig) -> str:
    """What to know of a calibration of a model at another address: it is known to be the same by its name alone."""
    then, now = _address(found.config.get("critic")), _address(config.critic.model_dump(mode="json"))
    if then == now:
        return ""
    return f"; measured of the model at {then}, asked is the one at {now}: take care that both are the same weights"


def _address(critic: Any) -> str:
    """Where the model of a critic is asked, in words."""
    try:
        return str(critic["options"]["model"]["options"]["base_url"])
    except (LookupError, TypeError):
        return "its usual address"


async def check_asked(config: CollabConfig, budget: Budget) -> None:
    """Open critic and adversary, as far as the method asks them, and close them again; raises as `build`."""
    method, run = config.method, config.run
    call_s = run.environment.limits.call_s
    if method.is_judged:
        async with opened_critic(config.judging(method.critic, run.seed), budget, call_s):
            pass
    if method.asks_an_adversary:
        async with opened_adversary(config.erring, budget, call_s):
            pass


async def doubts(config: CollabConfig) -> list[str]:
    """What somebody may not have meant, a line each; it stops nothing. Models and environments are not opened.

    Raises:
        UsageError: the oracle is to judge where it knows no solution: every score would be missing.
    """
    return [*_hotter(config), *_unasked(config), *(await _unsolved(config) if config.method.is_judged else [])]


def _hotter(config: CollabConfig) -> list[str]:
    """That replies are sampled hotter than they are learned from."""
    learned = config.method.dpo.temperature
    hottest = max(max(_temperatures(agent)) for agent in config.run.agents.values())
    if config.method.objective != "dpo" or hottest <= learned:
        return []
    return [
        f"replies are sampled at temperature {hottest:g} and learned from at {learned:g}, as if they had been surer; "
        f"what is played is trained by --set dpo.temperature={hottest:g}"
    ]


def _unasked(config: CollabConfig) -> list[str]:
    """That somebody else than the sampler was named as adversary, of whose replies no pairs are made."""
    method = config.method
    if method.asks_an_adversary or method.adversary.kind == SAMPLER:
        return []
    name = method.adversary.agent or method.adversary.kind
    return [f"adversary {name} is not asked: no pairs are made of what it says; --set pairs.adversary=1 makes them"]


def _temperatures(agent: AgentDefinition) -> list[float]:
    """All that the slots of an agents file may sample at."""
    declared = agent.sampling.temperature
    return declared if isinstance(declared, list) else [declared]


async def _unsolved(config: CollabConfig) -> list[str]:
    """That the oracle is silent on some tasks."""
    if config.critic.kind != ORACLE:
        return []
    suite = build_suite(config.run)
    try:
        able = ORACLE in suite.capabilities
        solved = {info.name for info in suite.tasks() if info.oracle}
    finally:
        await suite.close()
    tasks, without = config.run.tasks, [task for task in config.run.tasks if task not in solved]
    critic, lost = f"critic {config.method.critic}", "and every score would be missing"
    other = "name a critic that needs none, e.g. --set critic=critic-llm"
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
    description = "credit re-assignment: a critic rewards every cell, DPO learns from better against worse replies"
    method = CollabMethod
    config = CollabConfig
    presets = Path(__file__).parent / "presets"
    default_preset = "collab"
    ablations = ABLATIONS
    options: ClassVar[Mapping[str, Any]] = {"calibrations": CALIBRATIONS, "anyway": False}
    toy_options: ClassVar[Mapping[str, Any]] = {"anyway": True}  # nobody calibrated a critic for a toy
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
        if not own.replay_fraction:
            return
        theirs = other.method.objective if isinstance(other, CollabConfig) else other.algorithm
        kinds = [
            f"objective {what}, policies {one.policies}" for what, one in ((theirs, other.method), (own.objective, own))
        ]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"replay_fraction: {own.replay_fraction:g} mixes pairs of {run} in, which has {kinds[0]}, "
                f"and this training {kinds[1]}; set replay_fraction=0, or train as it was trained"
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
