"""From a wish to a `TransferConfig`: the team and its base, both environments, the training, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collab.comparison import check_same_sampling
from collab.config import RUN, RunConfig, bare, run_config
from collab.errors import RunFormatError, UsageError
from collab.library import Library
from collab.loop.config import Method, TrainingConfig
from collab.loop.configure import configure as configure_training
from collab.loop.configure import refuse_run_settings, told_apart
from collab.loop.interfaces import algorithm_named, read_training
from collab.loop.layout import TrainingDir
from collab.loop.loop import base_digests, changed_prompt
from collab.loop.trained import PolicyName, agents_of, parse_policy, trained_agents
from collab.resolve import resolved, with_prompts
from collab.splits.choose import whole
from collab.splits.split import EVALUATION_SEEDS, TRAIN
from collab.transfer.config import TransferConfig, Wish
from collab.trust import check_trusted

_ELSEWHERE = {
    "seed": "say it with --seeds",
    "tasks": "say it with --tasks",
    "episodes": "say it with --episodes",
    "split": "say it with --split",
    "budget": "say it with --budget",
}
"""Settings of what is measured that options decide → what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The training that a team comes from."""

    name: PolicyName
    config: TrainingConfig
    library: Library
    """Where the training's own definitions are looked up."""


async def configure(library: Library, wish: Wish) -> TransferConfig:
    """Put a transfer together; nothing is written.

    Raises:
        UsageError: something does not fit, or would be measured where it was trained or chosen.
    """
    _check_wish(wish)
    source = _source(wish)
    if wish.algorithm is None and source is not None:
        wish = replace(wish, algorithm=source.config.algorithm)
    _check_settings(wish)
    wish = replace(wish, settings=tuple(told_apart(wish.settings, _method_of(wish))))
    base = _base(wish, source)
    transferred, untrained = [await _second(library, wish, agents) for agents in (wish.agents, base)]
    if wish.mode == "direct" and wish.base is None and transferred[0].agents == untrained[0].agents:
        raise UsageError(
            f"--agents {wish.agents}: its weights are those of {base}, so there is nothing to compare; name a later "
            "epoch, or something else with --base"
        )
    check_same_sampling(
        untrained[0].sampling,
        transferred[0].sampling,
        "sample both alike with --set 'run.agents.*.sampling.KEY=…'",
    )
    training, first = None, list[RunConfig]()
    if source is not None:
        _check_elsewhere(source, transferred)
        _check_unseen(wish, source.config, "first training", "measure on others")
    if source is not None and wish.mode == "continual":
        training = await _training(library, wish)
        _check_elsewhere(source, [training.run])
        _check_unseen(wish, training, "second training", "measure on others, or set held_out.seeds")
        first = await _first(wish, source)
    return TransferConfig(
        mode=wish.mode,
        agents=wish.agents,
        base_name=base,
        base=untrained,
        transferred=transferred,
        first=first,
        training=training,
        library=_place(library),
        first_library=None if source is None else _place(source.library),
    )


# ------------------------------------------------------------------------------------------------ who plays where


def _source(wish: Wish) -> Source | None:
    """The training behind a team; None of agents files.

    Raises:
        RunFormatError: there is no training, or what is to be compared with is no longer what it began with.
    """
    name = parse_policy(wish.agents)
    if name is None:
        return None
    folder = TrainingDir(name.run)
    head, config = read_training(folder)
    check_trusted(head["config"], str(folder.file))
    if wish.base is None and base_digests(config) != head["base"]:
        raise RunFormatError(
            f"{name.run}: the checkpoint that it began with is not what it was; name what to compare with: --base"
        )
    return Source(name=name, config=config, library=Library.recorded(config.library))


def _base(wish: Wish, source: Source | None) -> str:
    """What the team is held against, by name."""
    if wish.base is not None:
        return wish.base
    if source is None:
        raise UsageError(
            f"--agents {wish.agents}: no training, so nobody knows what it began as; name what to compare with: --base"
        )
    return f"{source.name.run}@epoch0"


async def _second(library: Library, wish: Wish, agents: str) -> list[RunConfig]:
    """A team's evaluations in the second environment, one per seed."""
    filled = trained_agents(library, agents, wish.graph)
    run = run_config(
        purpose="eval",
        library=library,
        env=wish.env,
        graph=wish.graph,
        agents=agents if filled is None else Path(agents).name,
        filled=filled,
        backend=wish.backend,
        tasks=wish.tasks,
        episodes=wish.episodes,
        seed=wish.seeds[0],
        concurrency=wish.concurrency,
        settings=[bare(one) for one in wish.settings if one.startswith(RUN)],
    )
    shows = [slot for slot, agent in run.agents.items() if agent.kind == "rehearsal"]
    if shows:
        raise UsageError(f"{agents}: {shows[0]} is a rehearsal and not a language model: nothing is a result with it")
    return [
        with_prompts(await resolved(one, once_per_task=wish.episodes is None, split=wish.split), library)
        for one in _seeded(run, wish.seeds)
    ]


async def _first(wish: Wish, source: Source) -> list[RunConfig]:
    """The team's evaluations in the first environment: as its training measured itself, on other seeds."""
    measured = source.config.held_out[0]
    name = Path(wish.agents).name
    own = {
        "agents": agents_of(source.name, measured.graph.slots),
        "agent_names": dict.fromkeys(measured.graph.slots, name),
        "episodes": wish.episodes or 1,
        "concurrency": wish.concurrency,
    }
    split = None if measured.split is None else measured.split.name
    runs = [
        await resolved(one, once_per_task=wish.episodes is None, split=split, redraw=True)
        for one in _seeded(measured.model_copy(update=own), wish.seeds)
    ]
    changed = changed_prompt(runs[0], source.library)
    if changed is not None:
        raise UsageError(f"prompts/{changed} is not what it was when {source.name.run} was trained; restore it")
    return runs


async def _training(library: Library, wish: Wish) -> TrainingConfig:
    """Training in the second environment, from the team as it is."""
    assert wish.algorithm is not None, "a team that trains on comes from a training, which names its algorithm"
    return await configure_training(
        library,
        algorithm=wish.algorithm,
        preset=wish.preset,
        env=wish.env,
        graph=wish.graph,
        agents=wish.agents,
        ablation=wish.ablation,
        backend=wish.backend,
        tasks=wish.tasks,
        split=None if wish.split is None else TRAIN,
        seed=wish.seed,
        concurrency=wish.concurrency,
        settings=wish.settings,
    )


def _seeded(run: RunConfig, seeds: Sequence[int]) -> list[RunConfig]:
    return [run.model_copy(update={"seed": seed}) for seed in seeds]


def _place(library: Library) -> str | None:
    return None if library.own is None else str(library.own.resolve())


# ------------------------------------------------------------------------------------------------ what is refused


def _check_wish(wish: Wish) -> None:
    """What can be told from the wish alone."""
    if not wish.seeds or len(set(wish.seeds)) != len(wish.seeds):
        raise UsageError(f"--seeds {','.join(map(str, wish.seeds))}: name each seed once, and at least one")
    odd = [seed for seed in wish.seeds if seed not in EVALUATION_SEEDS]
    if odd:
        raise UsageError(
            f"--seeds: {odd[0]} is a seed for training; results are told of seeds for evaluation, "
            f"{EVALUATION_SEEDS.start} to {EVALUATION_SEEDS.stop - 1}"
        )
    if wish.split == TRAIN:
        raise UsageError(f"--split {TRAIN}: is learned from; measure on new-seeds, unseen-tasks or unseen-app, or none")
    if wish.mode == "continual" and parse_policy(wish.agents) is None:
        raise UsageError(
            f"--agents {wish.agents}: continual goes on from a training, in whose environment forgetting is measured: "
            "name RUN@best, RUN@last or RUN@epoch3"
        )


def _method_of(wish: Wish) -> type[Method]:
    """The class of what may be set of a method; where nothing is trained, what all have in common."""
    return Method if wish.algorithm is None else algorithm_named(wish.algorithm).method


def _check_settings(wish: Wish) -> None:
    """What can be told once it is known which algorithm trains."""
    known = {} if wish.algorithm is None else algorithm_named(wish.algorithm).ablations
    ablation = known.get(wish.ablation or "")
    if ablation is not None and ablation.graph is not None:
        raise UsageError(
            f"--ablation {wish.ablation}: plays another graph, and a team goes elsewhere as it was trained; train one "
            f"like that (collab train --ablation {wish.ablation}) and name it with --agents"
        )
    refuse_run_settings(wish.settings, _ELSEWHERE, _method_of(wish))
    told = {one.partition("=")[0] for one in wish.settings}
    method = sorted(name for name in told_apart(sorted(told), _method_of(wish)) if not name.startswith(RUN))
    if wish.mode == "direct" and method:
        instead = _ELSEWHERE.get(method[0].partition(".")[0], "leave it out, or add --mode continual")
        raise UsageError(f"--set {method[0]}: direct trains nothing; {instead}")


def _check_elsewhere(source: Source, runs: Sequence[RunConfig]) -> None:
    """Refuse to call it transfer where a team plays what it was trained on."""
    known = source.config.run
    for run in runs:
        common = sorted(set(run.tasks) & set(known.tasks))
        if whole(run.environment).part == whole(known.environment).part and common:
            raise UsageError(
                f"--env {run.environment_name}: {source.name.run} was trained there, on {len(common)} of these tasks "
                f"({common[0]} …); name another environment or other --tasks; for its own: collab eval --agents"
            )


def _check_unseen(wish: Wish, training: TrainingConfig, which: str, next_move: str) -> None:
    """Refuse to measure on seeds by which an epoch of a training was chosen, or will be."""
    chosen = [seed for seed in wish.seeds if seed in training.method.held_out.seeds]
    if chosen:
        raise UsageError(f"--seeds: an epoch of the {which} is chosen on seed {chosen[0]}; {next_move}")
