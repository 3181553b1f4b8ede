"""From names to a `TrainingConfig`: the algorithm and its method, the team, its environment and splits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collab.config import FEW_AT_ONCE, RUN, RunConfig, override, strip_run_prefix
from collab.data.splits import NEW_SEEDS, TRAIN
from collab.errors import ConfigError, UnknownName, UsageError
from collab.library import Library
from collab.loop.config import Method, Origin, TrainingConfig, check_seeds
from collab.loop.interfaces import Algorithm, load_algorithm, load_method, read_training
from collab.loop.phases import draw
from collab.loop.policy import build_first_policy, make_paths_absolute
from collab.loop.record import TrainingDir
from collab.loop.recorded import check_inputs, read_inputs
from collab.loop.trained import load_trained_agents, parse_policy, resolve_epoch
from collab.rollout.build import with_prompts
from collab.rollout.plan import resolve_run, run_config
from collab.synthesis.instruction_suite import use_instructions

UNTRAINED = "untrained-team"
"""Name of the untrained team, which is measured beside ablations but is none: nothing is trained."""
_STEPS_EACH = 16
"""Environment steps of an epoch for each episode that is played at once."""
_ELSEWHERE = {
    "seed": "say it with --seed",
    "split": "say it with --split",
    "budget": "say it with --budget",
    "tasks": "say it with --tasks; an epoch plays --set tasks=N different ones",
    "episodes": "an epoch has --set episodes=N of them, a held-out seed --set held_out.episodes=N",
    "purpose": "leave it out: each run of a training has its own",
    "success_check": "say it with --set success_check=…, for rollouts and held-out evaluations",
}
"""Settings of a run that a training decides → what to do instead."""


async def configure(
    library: Library,
    *,
    algorithm: str,
    preset: str | None = None,
    method: Method | None = None,
    env: str,
    graph: str,
    agents: str,
    ablation: str | None = None,
    backend: str | None = None,
    tasks: Sequence[str] = (),
    instructions: Path | None = None,
    split: str | None = TRAIN,
    seed: int = 0,
    executor: str = "local",
    workers: int | None = None,
    concurrency: int | None = None,
    settings: Sequence[str] = (),
    recorded: Sequence[Path] = (),
    allow_overlap: bool = False,
) -> TrainingConfig:
    """Put a training together.

    Args:
        algorithm: its name, built in or an entry point.
        preset: the method, by name or as a YAML file; None for the algorithm's own.
        method: used instead of the preset; None for the preset.
        graph: played unless the ablation brings its own.
        agents: as for a run, or a trained team to train further: `RUN@best`, `RUN@epoch3`.
        ablation: what to change of the method, by its name in `Algorithm.ablations`; None for nothing.
        instructions: directory of `collab synth`; rollouts play its instructions instead of the tasks in whose
            episodes they were met. Held-out evaluations play the environment's own tasks. None for its tasks alone.
        executor: where rollouts and evaluations are played, "local" or "ray".
        workers: number of Ray workers, in place of `concurrency`; None keeps that.
        concurrency: episodes at once; None for as many as fill the policies' engine
            (`collab.rollout.plan.choose_concurrency`), but at most one per 16 of the method's `steps`; 4 with
            `determinism: exact`.
        split: "train" keeps training to it and measures on new seeds; None keeps to none.
        settings: overrides, applied last: "epochs=2", "steps=600" of the method; "graph.rounds=2" of the run, also
            written "run.graph.rounds=2". An ablation's own settings are refused.
        recorded: runs, or folders of them, that epoch 1 learns from instead of playing.
        allow_overlap: learn from such runs even if they hold what is kept for evaluation.

    Raises:
        UsageError: something does not fit.
    """
    if split not in (None, TRAIN):
        raise UsageError(f"--split {split}: a team is trained on {TRAIN}, or without a split")
    known = load_algorithm(algorithm)
    refuse_run_settings(settings, _ELSEWHERE, known.method)
    settings = mark_run_settings(settings, known.method)
    method = method or load_method(known, preset)
    if ablation is not None:
        method, graph = apply_ablation(known, method, ablation, graph=graph)
        known.ablations[ablation].check_settings(ablation, settings)
    method = override(method, [one for one in settings if not one.startswith(RUN)])
    own = [strip_run_prefix(one) for one in settings if one.startswith(RUN)]
    own.append(f"success_check={method.success_check}")
    check_seeds(seed, method.held_out)
    inputs = read_inputs(recorded, known)
    if inputs:
        method = known.learn_recorded(method, inputs)
    filled = load_trained_agents(library, agents, graph, as_trained=True)
    names: dict[str, Any] = {
        "library": library,
        "env": env,
        "graph": graph,
        "agents": agents if filled is None else Path(agents).name,
        "filled": filled,
        "backend": backend,
        "tasks": tasks,
        "executor": executor,
        "workers": workers,
        "concurrency": concurrency,
        "settings": own,
    }
    if concurrency is None:
        names["concurrency"] = _choose_concurrency(run_config(purpose="rollout", seed=seed, **names), method)
    files = names | {"workers": None, "filled": load_trained_agents(library, agents, graph), "settings": ()}
    declared = run_config(purpose="rollout", seed=seed, **files).agents
    run = run_config(purpose="rollout", episodes=method.episodes or method.steps, seed=seed, **names)
    run = await resolve_run(run, once_per_task=method.episodes is None and method.steps is None, split=split)
    # Only what rollouts play: the held-out runs below are made from the environment itself.
    if instructions is not None:
        run = await use_instructions(run, instructions)
    run = make_paths_absolute(with_prompts(_plan_episodes(run, known, method), library))
    build_first_policy(run, method)
    config = known.config(
        algorithm=algorithm,
        preset=preset or known.default_preset or known.name,
        ablation=ablation,
        method=method,
        run=run,
        origin=_find_origin(agents, known, method),
        held_out=[await _build_held_out(one, method, split, library, names) for one in method.held_out.seeds],
        declared={slot: agent.sampling for slot, agent in declared.items()},
        recorded=inputs,
        library=None if library.own is None else str(library.own.resolve()),
        **known.configure(library, method),
    )
    draw(config, 1)  # a sampler that does not fit is found before anything is played
    return config.model_copy(update={"overlap": await check_inputs(config, allow_overlap=allow_overlap)})


def _choose_concurrency(run: RunConfig, method: Method) -> int:
    """Return how many episodes to play at once, given what fills the engine; `configure` has the rule."""
    if method.determinism == "exact":
        return FEW_AT_ONCE
    # An epoch ends with the episode that reaches its steps: what others have begun by then is lost.
    most = run.concurrency if method.steps is None else method.steps // _STEPS_EACH
    return min(run.concurrency, max(FEW_AT_ONCE, most))


def apply_ablation(algorithm: Algorithm, method: Method, name: str, *, graph: str) -> tuple[Method, str]:
    """Return the method and the graph with one thing changed.

    An ablation is applied over a preset and before the user's settings. So it differs from the full method in exactly
    one thing, and both accept the same settings.

    Args:
        graph: played without the ablation.

    Raises:
        UnknownName: no ablation of the algorithm has that name, or it is the untrained team.
        ConfigError: the method is like that already, or cannot be changed so.
    """
    # The untrained team is no ablation of training, and has commands of its own.
    if name == UNTRAINED:
        raise UnknownName(
            f"--ablation {name}: nothing is trained in it, so it is played: collab eval --agents NAME with the agents "
            "that training begins with, or --agents RUN@epoch0 of any training, whose epoch 0 is that team"
        )
    if name not in algorithm.ablations:
        raise UnknownName.of(f"ablation of {algorithm.name}", name, algorithm.ablations)
    ablation = algorithm.ablations[name]
    changed, played = override(method, ablation.settings), ablation.graph or graph
    # An ablation that changes nothing would measure noise.
    if (changed, played) == (method, graph):
        raise ConfigError(
            f"--ablation {name}: changes nothing, the method has {ablation} already; choose another preset"
        )
    if ablation.leaves_out and all(override(method, [one]) != method for one in ablation.leaves_out):
        raise ConfigError(
            f"--ablation {name}: the method has neither {' nor '.join(ablation.leaves_out)}, so there is nothing to "
            "leave out; choose another preset"
        )
    return changed, played


def mark_run_settings(settings: Sequence[str], method: type[Method]) -> list[str]:
    """Return settings with the prefix `RUN` on those of the run only; it resolves names that both have."""
    return [RUN + strip_run_prefix(one) if _is_of_run(one, method) else strip_run_prefix(one) for one in settings]


def _is_of_run(setting: str, method: type[Method]) -> bool:
    name = _name(strip_run_prefix(setting))
    return name in RunConfig.model_fields and (setting.startswith(RUN) or name not in method.model_fields)


def refuse_run_settings(settings: Sequence[str], elsewhere: Mapping[str, str], method: type[Method]) -> None:
    """Raise a ConfigError for a setting of the run that is decided elsewhere (name → what to do instead)."""
    for setting in settings:
        name = _name(strip_run_prefix(setting))
        if _is_of_run(setting, method) and name in elsewhere:
            of_run = "" if setting.startswith(RUN) else f" {name!r} is a setting of the run;"
            raise ConfigError(f"--set {RUN * (not of_run)}{name}:{of_run} {elsewhere[name]}")


def _name(setting: str) -> str:
    return re.split("[.=]", setting, maxsplit=1)[0]


def _plan_episodes(run: RunConfig, algorithm: Algorithm, method: Method) -> RunConfig:
    """Return the run with an epoch's number of episodes; ConfigError if an epoch could teach nothing."""
    tasks = min(method.tasks or len(run.tasks), len(run.tasks))
    once = method.episodes is None and method.steps is None
    episodes = tasks if once else run.episodes
    algorithm.check_plan(method, episodes=episodes, tasks=tasks)
    return run.model_copy(update={"episodes": episodes})


def _find_origin(agents: str, algorithm: Algorithm, method: Method) -> Origin | None:
    """Return the training that `--agents` names; None for agents files.

    Raises:
        UsageError, RunFormatError: as `collab.loop.trained.load_policy_agents`.
        ConfigError: its examples are to be mixed in, but are not the kind that this training learns from.
    """
    name = parse_policy(agents)
    if name is None:
        return None
    folder = TrainingDir(name.run)
    head, config = read_training(folder)
    algorithm.check_origin(method, config, name.run)
    return Origin(run=str(name.run.resolve()), epoch=resolve_epoch(name, folder, config, head))


async def _build_held_out(
    seed: int, method: Method, split: str | None, library: Library, names: Mapping[str, Any]
) -> RunConfig:
    episodes = method.held_out.episodes
    run = run_config(purpose="eval", episodes=episodes, seed=seed, **names)
    run = await resolve_run(run, once_per_task=episodes is None, split=None if split is None else NEW_SEEDS)
    return make_paths_absolute(with_prompts(run, library))
