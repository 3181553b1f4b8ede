"""What is checked of critic and adversary: both answer, and the critic's last calibration lets it judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collab.algorithms.collabuiagents.config import CollabConfig
from collab.config import AgentDefinition, Budget
from collab.errors import RunFormatError, UsageError
from collab.preferences.rebuild import ORACLE
from collab.preferences.registry import SAMPLER, opened_adversary
from collab.rewards.calibration.record import EXEMPT, FOLDER, CalibrationRecord, admit, last_calibration, told
from collab.rewards.registry import Bench, opened_critic
from collab.rollout.build import build_suite


async def admitted(config: CollabConfig, *, calibrations: Path = FOLDER, anyway: bool = False) -> str:
    """What is known of the critic of a training, in a line; it may judge.

    Args:
        calibrations: where they are looked for; a directory with one of them each, or a calibration itself.
        anyway: let it judge, whatever is known of it.

    Raises:
        ConfigError: it has no calibration, or one that does not reach the method's `least_auc`; or it or the
            environment cannot be built.
        RunFormatError: its calibration is needed and cannot be read.
    """
    if not config.method.is_judged:
        return f"not asked, objective {config.method.objective} learns from outcomes alone"
    name, kind, least = config.method.critic, config.critic.kind, config.method.least_auc
    bench = Bench.of(name, config.critic, config.critic_texts)
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
