"""How hot a team explores: as hot as in the first epoch, however sure training makes its policy, or hotter.

    heat = heat_of(method, policy, first)       # {"ada": 1.72, …}; empty where temperatures stay as declared
    run = heated(run, heat)                     # the rollout; evaluations are played as declared

What a hot policy learns first is to be surer: the gain of its last norm becomes longer, and all logits with it. At the
same temperature its agents then agree in nearly all steps, right or wrong; where all are wrong alike, no cell is
rewarded and nothing is corrected, so a second epoch teaches next to nothing (docs/recipe.md has the numbers). With
temperatures that grow as the gain does, agents disagree as they did at first about what they have not learned yet.

Two limits. What is trained stays the policy at the recipe's `temperature`, the one that is played in evaluations:
replies of a heated rollout come from a flatter one. And growth is measured from where this training began: one that
goes on from a trained team, on its own or in a transfer, begins as sure as that team is. The method's own `heat` makes
up for it: it multiplies the temperatures of all rollouts, those of the first epoch, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collab.config import AgentDefinition, RunConfig
from collab.library import checkpoint
from collab.loop.config import Method
from collab.loop.policy import Policy


def heat_of(method: Method, policy: Policy, first: Policy) -> dict[str, float]:
    """Slot → what the temperatures of its rollout are multiplied by.

    Args:
        policy: that plays.
        first: that the training began with.

    Returns:
        The method's `heat`, times how much longer the last norm's gain is in this policy than in the first one where
        the method explores as hot as at first. Empty where temperatures stay as declared.

    Raises:
        ConfigError: a checkpoint cannot be read.
    """
    grown = _grown(method, policy, first)
    if method.heat == 1:
        return grown
    return {slot: method.heat * grown.get(slot, 1.0) for slot in policy.weights}


def _grown(method: Method, policy: Policy, first: Policy) -> dict[str, float]:
    """How much more the policy's gains are; empty where nothing was trained yet or the method explores as declared.

    So it is, too, where the last norm has no rate of its own: then its gain stays what it was, or nearly so.
    """
    if not method.grows_hotter or policy.weights == first.weights:
        return {}
    then, now = lengths_of(first), lengths_of(policy)
    return {slot: now[slot] / then[slot] for slot in now}


def lengths_of(policy: Policy) -> dict[str, float]:
    """Slot → length of the last norm's gain of its weights; ConfigError where a checkpoint cannot be read."""
    from collab.learn.norms import length_of_gain

    found = {path: length_of_gain(Path(checkpoint(path))) for path in set(policy.weights.values())}
    return {slot: found[path] for slot, path in policy.weights.items()}


def heated(run: RunConfig, heat: Mapping[str, float]) -> RunConfig:
    """The same run with the temperatures of these slots multiplied; a greedy agent stays greedy."""
    agents = {slot: _hotter(agent, heat.get(slot, 1.0)) for slot, agent in run.agents.items()}
    return run.model_copy(update={"agents": agents})


def _hotter(agent: AgentDefinition, factor: float) -> AgentDefinition:
    declared = agent.sampling.temperature
    found = [factor * one for one in declared] if isinstance(declared, list) else factor * declared
    return agent.model_copy(update={"sampling": agent.sampling.model_copy(update={"temperature": found})})
