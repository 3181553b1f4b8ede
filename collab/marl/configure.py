"""From names to a `MarlConfig`: the team, its environment and splits, the method, and whom critic and adversary ask."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collab.config import RUN, RunConfig, bare, override, run_config
from collab.critics import critic_texts, load_critic
from collab.errors import ConfigError, UsageError
from collab.library import Library
from collab.marl.ablation import ablated, check_settings
from collab.marl.config import MarlConfig, Method, check_seeds
from collab.marl.origin import origin_of
from collab.marl.play import draw
from collab.marl.policy import first_policy, placed, trained_agents
from collab.preferences.adversaries import adversary_asked
from collab.resolve import resolved, with_prompts
from collab.splits.split import NEW_SEEDS, TRAIN
from collab.wording import amount

_ELSEWHERE = {
    "seed": "say it with --seed",
    "split": "say it with --split",
    "budget": "say it with --budget",
    "tasks": "say it with --tasks; an epoch plays --set tasks=N different ones",
    "episodes": "an epoch has --set episodes=N of them, a held-out seed --set held_out.episodes=N",
    "purpose": "leave it out: each run of a training has its own",
}
"""Settings of a run that a training decides → what to do instead."""


async def configure(
    library: Library,
    *,
    preset: str,
    method: Method,
    env: str,
    graph: str,
    agents: str,
    ablation: str | None = None,
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
        graph: that is played, unless the ablation brings one of its own.
        agents: as of a run, or `RUN@best`, `RUN@epoch3`: go on from a team that was trained.
        ablation: what to change of the method, see `collab.marl.ablation`; None for nothing.
        split: "train" keeps training to it and measures on new seeds; None keeps to none.
        settings: overrides, applied last: "epochs=2", "dpo.beta=0.3" of the method; "graph.rounds=2" of the run, also
            written "run.graph.rounds=2"; none of what the ablation changes.

    Raises:
        UsageError: something does not fit.
    """
    if split not in (None, TRAIN):
        raise UsageError(f"--split {split}: a team is trained on {TRAIN}, or without a split")
    refuse_run_settings(settings, _ELSEWHERE)
    settings = told_apart(settings)
    if ablation is not None:
        method, graph = ablated(method, ablation, graph=graph)
        check_settings(ablation, settings)
    own = [bare(one) for one in settings if one.startswith(RUN)]
    method = override(method, [one for one in settings if not one.startswith(RUN)])
    check_seeds(seed, method.held_out)
    filled = trained_agents(library, agents, graph, as_trained=True)
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
    files = names | {"filled": trained_agents(library, agents, graph), "settings": ()}
    declared = run_config(purpose="rollout", seed=seed, **files).agents
    run = run_config(purpose="rollout", episodes=method.episodes or method.steps, seed=seed, **names)
    run = await resolved(run, once_per_task=method.episodes is None and method.steps is None, split=split)
    run = placed(with_prompts(_planned(run, method), library))
    first_policy(run, method)
    critic = load_critic(library, method.critic)
    config = MarlConfig(
        preset=preset,
        ablation=ablation,
        method=method,
        run=run,
        origin=origin_of(agents, method),
        held_out=[await _held_out(one, method, split, library, names) for one in method.held_out.seeds],
        declared={slot: agent.sampling for slot, agent in declared.items()},
        library=None if library.own is None else str(library.own.resolve()),
        critic=critic,
        critic_texts=critic_texts(library, critic),
        adversary=adversary_asked(library, method.adversary).told,
    )
    draw(config, 1)  # a sampler that does not fit is found before anybody plays
    return config


def told_apart(settings: Sequence[str]) -> list[str]:
    """Return settings with `RUN` in front of those of the run, and of no others, however they were written.

    Where both have one of that name, as both have `episodes`, `RUN` says that the run's is meant.
    """
    return [RUN + bare(one) if _is_of_run(one) else bare(one) for one in settings]


def _is_of_run(setting: str) -> bool:
    name = _name(bare(setting))
    return name in RunConfig.model_fields and (setting.startswith(RUN) or name not in Method.model_fields)


def refuse_run_settings(settings: Sequence[str], elsewhere: Mapping[str, str]) -> None:
    """ConfigError for a setting of the run that is decided elsewhere.

    Args:
        settings: overrides as they were written.
        elsewhere: name → what to do instead.
    """
    for setting in settings:
        name = _name(bare(setting))
        if _is_of_run(setting) and name in elsewhere:
            of_run = "" if setting.startswith(RUN) else f" {name!r} is a setting of the run;"
            raise ConfigError(f"--set {RUN * (not of_run)}{name}:{of_run} {elsewhere[name]}")


def _name(setting: str) -> str:
    return re.split("[.=]", setting, maxsplit=1)[0]


def _planned(run: RunConfig, method: Method) -> RunConfig:
    """The run with as many episodes as an epoch has; ConfigError where no two of them could be compared as a whole."""
    tasks = min(method.tasks or len(run.tasks), len(run.tasks))
    once = method.episodes is None and method.steps is None
    episodes = tasks if once else run.episodes
    if method.objective == "trajectory-dpo" and episodes <= tasks:
        raise ConfigError(
            f"objective: trajectory-dpo, but an epoch plays {amount(episodes, 'episode')} of {amount(tasks, 'task')}: "
            f"none is played twice, and nothing can be compared; set fewer tasks or more episodes, e.g. "
            f"--set tasks={max(tasks // 4, 1)} --set episodes={max(tasks // 4, 1) * 4}"
        )
    return run.model_copy(update={"episodes": episodes})


async def _held_out(
    seed: int, method: Method, split: str | None, library: Library, names: Mapping[str, Any]
) -> RunConfig:
    episodes = method.held_out.episodes
    run = run_config(purpose="eval", episodes=episodes, seed=seed, **names)
    run = await resolved(run, once_per_task=episodes is None, split=None if split is None else NEW_SEEDS)
    return placed(with_prompts(run, library))
