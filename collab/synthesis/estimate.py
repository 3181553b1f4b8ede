"""Estimate a synthesis before anything is written and without calling any model.

The oracle costs nothing, so a few units are really made and extrapolated. For a model, calls and rows are counted per
screen as if every reply were complete, every proposal rewarded and every step useful. A real teacher gives fewer rows,
or needs more calls, up to the tasks' step budgets.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from collab.data.example import LEVELS
from collab.envs.base import Environment, HasOracle, Suite
from collab.rollout.collector import RolloutProgress
from collab.seeds import derive, generator
from collab.synthesis.config import SynthConfig, Unit, list_units
from collab.synthesis.run import open_synthesis
from collab.synthesis.units import Ledger, SynthesisProgress, SynthesisResources, make
from collab.synthesis.wording import ELEMENT, SCREEN
from collab.utils.text import format_amount

SAMPLED = 6
"""Walks and episodes that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisEstimate:
    """Expected numbers of a synthesis."""

    walks: int
    screens: int
    """Explored screens that are taught."""
    episodes: int
    steps: float
    """Per episode, on average."""
    calls: Mapping[str, int]
    """Role → calls of the teacher's model; empty for the oracle."""
    rows: Mapping[str, int]
    """Level → rows, before equal ones are dropped."""
    basis: str
    """Where the figures come from, in words."""


async def estimate(config: SynthConfig) -> SynthesisEstimate:
    """Estimate a synthesis.

    Raises:
        UsageError: a part cannot be built.
        EnvironmentFailure: the environment broke.
    """
    ledger = Ledger(SynthesisProgress(calls=RolloutProgress(planned=0)))
    units = list_units(config)
    rng = generator(derive(config.seed, "plan"))
    # A drawn sample of units: all would take as long as the synthesis itself.
    walks = _sample_units([unit for unit in units if unit.kind == "walk"], rng)
    episodes = _sample_units([unit for unit in units if unit.kind == "episode"], rng)
    async with open_synthesis(config, ledger, ask=False) as opened:
        resources = opened.resources
        environment = await resources.suite.open()
        try:
            # The oracle is tried really, as it costs nothing; a model's calls are only counted.
            if config.teacher is None:
                # A policy is not asked for a plan: its candidates are only counted.
                asks_none = config.model_copy(update={"levels": [one for one in config.levels if one != "judgement"]})
                found = await _try_units(asks_none, resources, environment, walks, episodes)
                return _add_judgements(config, found)
            steps, basis = await _estimate_steps(resources.suite, environment, episodes)
            return _count_calls(config, steps, basis)
        finally:
            await environment.close()


async def _try_units(
    config: SynthConfig,
    resources: SynthesisResources,
    environment: Environment,
    walks: Sequence[Unit],
    episodes: Sequence[Unit],
) -> SynthesisEstimate:
    """Make a few units and extrapolate."""
    rows: Counter[str] = Counter()
    steps = 0.0
    for sample, of_all in ((walks, config.screens), (episodes, config.episodes)):
        done = [await make(unit, environment, config, resources) for unit in sample]
        size = sum(len(unit.scenes) for unit in sample) if sample and sample[0].kind == "walk" else len(sample)
        for level, count in Counter(row.level for one in done for row in one.rows).items():
            rows[level] += round(count / size * of_all)
        if sample and sample[0].kind == "episode":
            steps = sum(one.screens for one in done) / size
    basis = f"extrapolated from {format_amount(len(walks), 'walk')} and {format_amount(len(episodes), 'episode')}"
    return _estimate(config, steps=steps, calls={}, rows=rows, basis=basis)


async def _estimate_steps(suite: Suite, environment: Environment, episodes: Sequence[Unit]) -> tuple[float, str]:
    """Return steps per episode, from known solutions or else half of the budget, and a text on their basis."""
    lengths: list[float] = []
    solved = 0
    for unit in episodes:
        task = suite.instance(unit.task, unit.instance)
        await environment.reset(task)
        solution = environment.oracle() if isinstance(environment, HasOracle) else None
        solved += solution is not None
        # Without a solution, half of the budget: the middle of what is possible.
        lengths.append(len(solution) if solution is not None else task.max_steps / 2)
    known = f"steps as in {solved} known solutions"
    budgets = f" and half of {len(lengths) - solved} step budgets" if solved < len(lengths) else ""
    basis = f"if every reply is whole, every step rewarded and none taken in vain; {known}{budgets}"
    return (sum(lengths) / len(lengths) if lengths else 0.0), basis


def _add_judgements(config: SynthConfig, found: SynthesisEstimate) -> SynthesisEstimate:
    """Add the calls of the policy and the most rows of level judgement."""
    if config.judgement is None:
        return found
    count = round(found.episodes * found.steps) * config.judgement.candidates
    most = count if config.judgement.rows is None else min(count, config.judgement.rows)
    basis = f"{found.basis}; of judgements the most, if candidates differ and half of them are right"
    return replace(
        found, calls={**found.calls, "candidates": count}, rows={**found.rows, "judgement": most}, basis=basis
    )


def _count_calls(config: SynthConfig, steps: float, basis: str) -> SynthesisEstimate:
    """Count a model's calls and rows per screen."""
    # Upper bounds: every screen taught, every step rewarded, nothing in vain.
    taken = round(config.episodes * steps)
    met = config.screens + taken
    wanted = set(config.levels)
    calls = {
        "questions": met * ("basic" in wanted),
        "instructions": met * ("instruction" in wanted),
        "steps": taken,
        "critic": taken * ("preference" in wanted),
        "adversary": taken * ("preference" in wanted),
    }
    rows = {
        "basic": calls["questions"] * (len(SCREEN) + config.elements * len(ELEMENT)),
        "instruction": calls["instructions"] * config.instructions,
        "demonstration": taken * ("demonstration" in wanted),
        "preference": calls["critic"],
    }
    if config.judgement is not None:
        calls["analyses"] = taken * config.judgement.candidates
    return _add_judgements(config, _estimate(config, steps=steps, calls=calls, rows=rows, basis=basis))


def _estimate(
    config: SynthConfig, *, steps: float, calls: Mapping[str, int], rows: Mapping[str, int], basis: str
) -> SynthesisEstimate:
    return SynthesisEstimate(
        walks=sum(unit.kind == "walk" for unit in list_units(config)),
        screens=config.screens,
        episodes=config.episodes,
        steps=steps,
        calls={role: count for role, count in calls.items() if count},
        rows={level: rows.get(level, 0) for level in LEVELS if level in config.levels},
        basis=basis,
    )


def _sample_units(units: Sequence[Unit], rng: random.Random) -> list[Unit]:
    """Draw a few units at random; at regular distances they might all be of one task."""
    return rng.sample(units, min(SAMPLED, len(units)))
