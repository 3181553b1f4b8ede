"""From a request to a `TransferConfig`: the team and its base, both environments, and the training.

A `TransferConfig` holds everything, so that a directory can be resumed from its own `transfer.json`. Requests that
contradict themselves, or would measure on training instances, are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from collab.config import RUN, Definition, RunConfig, strip_run_prefix
from collab.data.splits import EVALUATION_SEEDS, NEW_SEEDS, TRAIN, restore_apps
from collab.errors import RunFormatError, UsageError
from collab.evaluation.comparison import check_same_sampling
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.configure import configure as configure_training
from collab.loop.configure import mark_run_settings, refuse_run_settings
from collab.loop.interfaces import load_algorithm, load_config, read_training
from collab.loop.loop import find_changed_prompt, hash_base_weights
from collab.loop.policy import build_first_policy
from collab.loop.record import TrainingDir
from collab.loop.trained import PolicyName, load_policy_agents, load_trained_agents, parse_policy
from collab.rollout.build import with_prompts
from collab.rollout.plan import resolve_run, run_config
from collab.utils.trust import check_trusted

Mode: TypeAlias = Literal["direct", "continual"]
Place: TypeAlias = Literal["second", "first"]
"""The environment of the transfer, and the one where the team was trained."""
Arm: TypeAlias = Literal["base", "transferred", "continued"]
"""The untrained start, the team as trained in the first environment, the team after training in the second."""

SEEDS = (30, 31, 32)
"""Run seeds of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest:
    """A transfer as the user requests it."""

    mode: Mode
    agents: str
    """The team: an epoch of a training (`RUN@best`, `RUN@epoch3`, `RUN@last`); for direct also agents files."""
    env: str
    """The second environment."""
    base: str | None = None
    """The team to compare with, named like `agents`; None for the policy that its training began with."""
    graph: str = "team"
    """Graph in the second environment."""
    backend: str | None = None
    """Backend of the second environment; None for its file's choice."""
    tasks: tuple[str, ...] = ()
    """Tasks of the second environment; empty for its file's choice."""
    split: str | None = NEW_SEEDS
    """Split for evaluations in the second environment; None keeps neither evaluation nor training to a split."""
    seeds: tuple[int, ...] = SEEDS
    """Run seeds of all evaluations."""
    episodes: int | None = None
    """Per seed and evaluation; None plays every task once."""
    concurrency: int | None = None
    """Episodes in parallel; None for as many as fill the policies' engine."""
    algorithm: str | None = None
    """Continual: name of the training algorithm; None for the one that trained the team."""
    preset: str | None = None
    """Continual: the method; None for the algorithm's own."""
    instructions: Path | None = None
    """Continual: directory of `collab synth`, whose instructions the training plays; None for the tasks themselves."""
    ablation: str | None = None
    """Continual: ablation of the method, by name; None for nothing."""
    seed: int = 0
    """Continual: seed of the training."""
    settings: tuple[str, ...] = ()
    """Overrides: "epochs=2" of the method; "run.graph.rounds=2" of all runs in the second environment."""


def _load(training: Any) -> Any:
    """Parse a training with its algorithm's configuration."""
    return load_config(training, "training") if isinstance(training, Mapping) else training


class TransferConfig(Definition):
    """Everything that decides a transfer."""

    mode: Mode
    agents: str
    """The team as it was named, for the record."""
    base_name: str
    """Its base as it was named."""
    base: list[RunConfig]
    """The base in the second environment, an evaluation per seed."""
    transferred: list[RunConfig]
    """The team in the second environment, on the same instances."""
    first: list[RunConfig] = Field(default_factory=list)
    """The team in the first environment; empty for direct."""
    training: Annotated[SerializeAsAny[TrainingConfig] | None, BeforeValidator(_load)] = None
    """In the second environment; None for direct."""
    library: str | None = None
    """Folder of the user's own definitions; None if there is none."""
    first_library: str | None = None
    """The same, of the first training."""

    @model_validator(mode="after")
    def _whole(self) -> TransferConfig:
        if (self.mode == "continual") is not (self.training is not None and bool(self.first)):
            raise ValueError(f"{self.mode}: training and first belong to continual, and to it alone")
        return self

    @property
    def seeds(self) -> list[int]:
        """Run seeds of all evaluations."""
        return [run.seed for run in self.transferred]


_ELSEWHERE = {
    "seed": "say it with --seeds",
    "tasks": "say it with --tasks",
    "episodes": "say it with --episodes",
    "split": "say it with --split",
    "budget": "say it with --budget",
}
"""Settings of evaluations that options decide → what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferSource:
    """The training that a team comes from."""

    name: PolicyName
    config: TrainingConfig
    library: Library
    """Library with the training's own definitions."""


async def configure(library: Library, request: TransferRequest) -> TransferConfig:
    """Put a transfer together; nothing is written.

    Raises:
        UsageError: something does not fit, or would be measured on instances of training or selection.
    """
    # What contradicts itself is refused before any file is read.
    _check_wish(request)
    source = _find_source(request)
    # A trained team is trained further by its own algorithm, unless another is named.
    if request.algorithm is None and source is not None:
        request = replace(request, algorithm=source.config.algorithm)
    _check_settings(request)
    # Settings are told apart here: some are of the run, the others of the method.
    request = replace(request, settings=tuple(mark_run_settings(request.settings, _find_method(request))))
    base = _choose_base(request, source)
    # Both teams in the second environment: the untrained one is what a gain is measured against.
    transferred, untrained = [await _configure_second(library, request, agents) for agents in (request.agents, base)]
    # Equal weights on both sides give a difference of zero, whatever is played.
    if request.mode == "direct" and request.base is None and transferred[0].agents == untrained[0].agents:
        raise UsageError(
            f"--agents {request.agents}: its weights are those of {base}, so there is nothing to compare; name a later "
            "epoch, or something else with --base"
        )
    # A difference in sampling would count as one of training.
    check_same_sampling(
        untrained[0].sampling,
        transferred[0].sampling,
        "sample both alike with --set 'run.agents.*.sampling.KEY=…'",
    )
    training, first = None, list[RunConfig]()
    if source is not None:
        _check_whole(request.graph, source, transferred[0])
        # Measured in the environment it was trained in, a transfer would be an ordinary evaluation.
        _check_elsewhere(source, transferred)
        # Instances that were trained on, or chosen by, must not be measured.
        _check_unseen(request, source.config, "first training", "measure on others")
    if source is not None and request.mode == "continual":
        training = await _configure_training(library, request)
        _check_elsewhere(source, [training.run])
        _check_unseen(request, training, "second training", "measure on others, or set held_out.seeds")
        # Forgetting is measured in the first environment, with the team before and after.
        first = await _configure_first(request, source, transferred[0])
    return TransferConfig(
        mode=request.mode,
        agents=request.agents,
        base_name=base,
        base=untrained,
        transferred=transferred,
        first=first,
        training=training,
        library=_place(library),
        first_library=None if source is None else _place(source.library),
    )


# ---------------------------------------------------------------------------------------------------- both teams


def _find_source(request: TransferRequest) -> TransferSource | None:
    """Return the training of a team; None for agents files.

    Raises:
        RunFormatError: there is no training, or its first checkpoint, the base, has changed.
    """
    name = parse_policy(request.agents)
    if name is None:
        return None
    folder = TrainingDir(name.run)
    head, config = read_training(folder)
    check_trusted(head["config"], str(folder.file))
    if request.base is None and hash_base_weights(build_first_policy(config.run, config.method)) != head["base"]:
        raise RunFormatError(f"{name.run}: its first checkpoint has changed; name what to compare with: --base")
    return TransferSource(name=name, config=config, library=Library.for_recorded_training(config.library))


def _choose_base(request: TransferRequest, source: TransferSource | None) -> str:
    """Return the name of the team to compare with."""
    if request.base is not None:
        return request.base
    if source is None:
        raise UsageError(
            f"--agents {request.agents}: no training, so its start is not known; name what to compare with: --base"
        )
    return f"{source.name.run}@epoch0"


async def _configure_second(library: Library, request: TransferRequest, agents: str) -> list[RunConfig]:
    """Return a team's evaluations in the second environment, one per seed."""
    filled = load_trained_agents(library, agents, request.graph)
    run = run_config(
        purpose="eval",
        library=library,
        env=request.env,
        graph=request.graph,
        agents=agents if filled is None else Path(agents).name,
        filled=filled,
        backend=request.backend,
        tasks=request.tasks,
        episodes=request.episodes,
        seed=request.seeds[0],
        concurrency=request.concurrency,
        settings=[strip_run_prefix(one) for one in request.settings if one.startswith(RUN)],
    )
    shows = [slot for slot, agent in run.agents.items() if agent.kind == "rehearsal"]
    if shows:
        raise UsageError(f"{agents}: {shows[0]} is a rehearsal and not a language model: nothing is a result with it")
    return [
        with_prompts(await resolve_run(one, once_per_task=request.episodes is None, split=request.split), library)
        for one in _seed_runs(run, request.seeds)
    ]


async def _configure_first(request: TransferRequest, source: TransferSource, second: RunConfig) -> list[RunConfig]:
    """Return the team's evaluations in the first environment: its training's own, on other seeds.

    They are played where the second environment's are, wherever the training was.
    """
    measured = source.config.held_out[0]
    name = Path(request.agents).name
    # As the training measured itself, but on other seeds: its own chose the best epoch.
    own = {
        "agents": load_policy_agents(source.name, measured.graph.slots),
        "agent_names": dict.fromkeys(measured.graph.slots, name),
        "episodes": request.episodes or 1,
        "executor": second.executor,
        "concurrency": second.concurrency,
    }
    split = None if measured.split is None else measured.split.name
    runs = [
        await resolve_run(one, once_per_task=request.episodes is None, split=split, redraw=True)
        for one in _seed_runs(measured.model_copy(update=own), request.seeds)
    ]
    # Another prompt would count as forgetting.
    changed = find_changed_prompt(runs[0], source.library)
    if changed is not None:
        raise UsageError(f"prompts/{changed} has changed since {source.name.run} was trained; restore it")
    return runs


async def _configure_training(library: Library, request: TransferRequest) -> TrainingConfig:
    """Return the training in the second environment, from the current team."""
    # The same function as a training's own command: a second training is an ordinary one.
    assert request.algorithm is not None, "a team that trains on comes from a training, which names its algorithm"
    return await configure_training(
        library,
        algorithm=request.algorithm,
        preset=request.preset,
        env=request.env,
        graph=request.graph,
        agents=request.agents,
        ablation=request.ablation,
        backend=request.backend,
        tasks=request.tasks,
        instructions=request.instructions,
        split=None if request.split is None else TRAIN,
        seed=request.seed,
        concurrency=request.concurrency,
        settings=request.settings,
    )


def _seed_runs(run: RunConfig, seeds: Sequence[int]) -> list[RunConfig]:
    return [run.model_copy(update={"seed": seed}) for seed in seeds]


def _place(library: Library) -> str | None:
    return None if library.own is None else str(library.own.resolve())


# ------------------------------------------------------------------------------------------------------ refusals


def _check_wish(request: TransferRequest) -> None:
    """Refuse what the request alone shows to be wrong."""
    # What the request alone decides is refused before any file is read.
    if not request.seeds or len(set(request.seeds)) != len(request.seeds):
        raise UsageError(f"--seeds {','.join(map(str, request.seeds))}: name each seed once, and at least one")
    odd = [seed for seed in request.seeds if seed not in EVALUATION_SEEDS]
    if odd:
        raise UsageError(
            f"--seeds: {odd[0]} is a seed for training; results need seeds for evaluation, "
            f"{EVALUATION_SEEDS.start} to {EVALUATION_SEEDS.stop - 1}"
        )
    if request.split == TRAIN:
        raise UsageError(f"--split {TRAIN}: is learned from; measure on new-seeds, unseen-tasks or unseen-app, or none")
    if request.mode == "continual" and parse_policy(request.agents) is None:
        raise UsageError(
            f"--agents {request.agents}: continual continues a training, in whose environment forgetting is measured: "
            "name RUN@best, RUN@last or RUN@epoch3"
        )


def _find_method(request: TransferRequest) -> type[Method]:
    """Return the class of the method's settings; without training, the settings common to all."""
    return Method if request.algorithm is None else load_algorithm(request.algorithm).method


def _check_settings(request: TransferRequest) -> None:
    """Refuse settings that do not fit the training algorithm."""
    # An ablation that changes the graph would transfer another team.
    known = {} if request.algorithm is None else load_algorithm(request.algorithm).ablations
    ablation = known.get(request.ablation or "")
    if ablation is not None and ablation.graph is not None:
        raise UsageError(
            f"--ablation {request.ablation}: plays another graph, but a team is transferred with its own graph; train "
            f"one like that (collab train --ablation {request.ablation}) and name it with --agents"
        )
    refuse_run_settings(request.settings, _ELSEWHERE, _find_method(request))
    told = {one.partition("=")[0] for one in request.settings}
    method = sorted(name for name in mark_run_settings(sorted(told), _find_method(request)) if not name.startswith(RUN))
    # Settings of a method without a training would be ignored silently.
    if request.mode == "direct" and method:
        instead = _ELSEWHERE.get(method[0].partition(".")[0], "leave it out, or add --mode continual")
        raise UsageError(f"--set {method[0]}: direct trains nothing; {instead}")


def _check_whole(graph: str, source: TransferSource, run: RunConfig) -> None:
    """Refuse a graph with some of a team's agents: forgetting is measured with all of them."""
    known, played = source.config.run.graph.slots, run.graph.slots
    if set(played) != set(known):
        raise UsageError(
            f"--graph {graph}: the team was trained as {', '.join(known)}, the graph has {', '.join(played)}; a team "
            "is transferred whole: choose a graph with these agents"
        )


def _check_elsewhere(source: TransferSource, runs: Sequence[RunConfig]) -> None:
    """Refuse a transfer in which a team plays its own training environment."""
    known = source.config.run
    for run in runs:
        common = sorted(set(run.tasks) & set(known.tasks))
        if restore_apps(run.environment).part == restore_apps(known.environment).part and common:
            raise UsageError(
                f"--env {run.environment_name}: {source.name.run} was trained there, on {len(common)} of these tasks "
                f"({common[0]} …); name another environment or other --tasks; for its own: collab eval --agents"
            )


def _check_unseen(request: TransferRequest, training: TrainingConfig, which: str, next_move: str) -> None:
    """Refuse to measure on seeds by which an epoch of a training is chosen."""
    chosen = [seed for seed in request.seeds if seed in training.method.held_out.seeds]
    if chosen:
        raise UsageError(f"--seeds: an epoch of the {which} is chosen on seed {chosen[0]}; {next_move}")
