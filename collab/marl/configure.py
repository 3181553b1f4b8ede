"""From names to a `MarlConfig`: the team, its environment and splits, the method, and whom critic and adversary ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collab.api import resolved
from collab.config import RunConfig, override, run_config
from collab.critics import critic_texts, load_critic
from collab.errors import UsageError
from collab.library import Library
from collab.marl.config import MarlConfig, Method, check_seeds
from collab.marl.policy import first_policy, trained_agents
from collab.preferences.adversaries import adversary_asked
from collab.resolve import with_prompts
from collab.splits.split import NEW_SEEDS, TRAIN

RUN = "run."
"""Begins settings of the run; the others are of the method."""


async def configure(
    library: Library,
    *,
    preset: str,
    method: Method,
    env: str,
    graph: str,
    agents: str,
    backend: str | None = None,
    tasks: Sequence[str] = (),
    split: str | None = TRAIN,
    seed: int = 0,
    concurrency: int = 4,
    settings: Sequence[str] = (),
) -> MarlConfig:
    """Put a training together.

    Args:
        preset: name of the method, for the record.
        agents: as of a run, or `RUN@best`, `RUN@epoch3`: go on from a team that was trained.
        split: "train" keeps training to it and measures on new seeds; None keeps to none.
        settings: overrides: "epochs=2", "dpo.beta=0.3" of the method; "run.graph.rounds=2" of the run.

    Raises:
        UsageError: something does not fit.
    """
    if split not in (None, TRAIN):
        raise UsageError(f"--split {split}: a team is trained on {TRAIN}, or without a split")
    method = override(method, [one for one in settings if not one.startswith(RUN)])
    check_seeds(seed, method.held_out)
    own = [one.removeprefix(RUN) for one in settings if one.startswith(RUN)]
    filled = trained_agents(library, agents, graph)
    names: dict[str, Any] = {
        "library": library,
        "env": env,
        "graph": graph,
        "agents": agents if filled is None else Path(agents).name,
        "filled": filled,
        "backend": backend,
        "tasks": tasks,
        "concurrency": concurrency,
        "settings": own,
    }
    run = run_config(purpose="rollout", episodes=method.episodes, seed=seed, **names)
    run = with_prompts(await resolved(run, once_per_task=method.episodes is None, split=split), library)
    first_policy(run, method)
    critic = load_critic(library, method.critic)
    return MarlConfig(
        preset=preset,
        method=method,
        run=run,
        held_out=[await _held_out(one, method, split, library, names) for one in method.held_out.seeds],
        library=None if library.own is None else str(library.own.resolve()),
        critic=critic,
        critic_texts=critic_texts(library, critic),
        adversary=adversary_asked(library, method.adversary).told,
    )


async def _held_out(
    seed: int, method: Method, split: str | None, library: Library, names: Mapping[str, Any]
) -> RunConfig:
    episodes = method.held_out.episodes
    run = run_config(purpose="eval", episodes=episodes, seed=seed, **names)
    run = await resolved(run, once_per_task=episodes is None, split=None if split is None else NEW_SEEDS)
    return with_prompts(run, library)
