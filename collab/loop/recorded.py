"""Recorded runs that an epoch learns from in place of a rollout: those a training begins with, or its own earlier ones.

    inputs = read_inputs([Path("runs/played")], algorithm)  # what is learned from them, with their hashes
    overlap = await check_inputs(config, allow_overlap=False)
    with open_inputs(config, folder, 1) as rollouts: ...    # of an epoch that does not play

    begin_replay(Path("runs/distrl"), Path("runs/again"))   # all epochs learn from what another training recorded
    head = check_fork(config, base, "runs/appvlm@epoch8")   # the first eight epochs are those of another training

A run that a training begins with was finished or stopped before, by any policy. The training names its directory and
its run hash: the episodes are learned from again in later epochs, so it is resumed with the same ones or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from collab.config import RunConfig
from collab.data.splits import (
    EVALUATION_SEEDS,
    NEW_SEEDS,
    HeldOutInstances,
    Split,
    fold,
    list_instances,
    list_kept_by,
    refuse_overlap,
)
from collab.data.tokenize import get_reply_tokens
from collab.envs.base import Suite
from collab.errors import RunError, RunFormatError, UsageError
from collab.evaluation.report import find_recorded
from collab.loop.config import RecordedInput, TrainingConfig
from collab.loop.interfaces import Algorithm, Rollout, load_algorithm, read_training
from collab.loop.record import EpochRecord, TrainingDir, read_record
from collab.loop.state import LoopState
from collab.loop.step_budget import iterate_counted, list_counted, read_step_budget
from collab.rollout.build import build_suite
from collab.rollout.dialects import load_dialect
from collab.rollout.plan import load_splits, plan_episodes
from collab.rollout.run import read_recorded_config
from collab.rollout.seeds import FREE
from collab.seeds import Seeds
from collab.store.fingerprint import hash_run
from collab.store.manifest import format_now
from collab.store.reader import RunReader, Trajectories
from collab.store.run import RunStore
from collab.trainers.prepare import check_installed
from collab.types import Trajectory, Utterance
from collab.utils.files import list_differing, report_write_errors
from collab.utils.text import format_amount
from collab.utils.trust import check_trusted

REPLAYED = "replayed"
"""In the head of a training that only learns again: the directory of the one that played."""
FORKED = "forked"
"""In the head of a training that begins with another one's epochs: its directory, the last of them and its hash."""
HELD_OUT = "held-out seeds"
"""Name of what the training's own evaluations play, in messages."""
_OTHERS = "give other runs"


def read_inputs(named: Sequence[Path], algorithm: Algorithm) -> list[RecordedInput]:
    """Read what an algorithm can learn from runs; a folder of runs stands for all of them.

    Raises:
        UsageError: a run is given twice, is being written, or has no episode to learn from; or a model in it looked at
            solutions, and the algorithm does more than imitate.
        RunFormatError: there is no run, or it lost steps.
    """
    paths = [run.resolve() for one in named for run in find_recorded(one).runs or (one,)]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"--offline {path}: is given twice; name it once")
    found = [_read_input(path) for path in paths]
    shown = next((one.run for one in found if one.privileged), None)
    if shown is not None and not algorithm.imitates:
        raise UsageError(
            f"--offline {shown}: a model in it looked at solutions, which no policy can; {_OTHERS}, or imitate it by "
            f"--algo filtered-bc and give {algorithm.name} the trained team: --agents RUN@last"
        )
    return found


def _read_input(path: Path) -> RecordedInput:
    store, budget = RunStore.open(path), read_step_budget(path)
    with store.open_reader() as reader:
        if reader.status == "running":
            raise UsageError(f"--offline {path}: is being played now; wait until it is over, or stop it")
        lengths = [len(one.steps) for one in iterate_counted(reader, budget) if one.error is None]
        privileged = reader.manifest.privileged
    if not sum(lengths):
        raise UsageError(f"--offline {path}: no episode of it came to its end with a step to learn from; {_OTHERS}")
    return RecordedInput(
        run=str(path), hash=hash_run(store), episodes=len(lengths), steps=sum(lengths), privileged=privileged
    )


def check_unchanged(recorded: Iterable[RecordedInput]) -> None:
    """Check that the runs are there with the same episodes; RunFormatError if one is not."""
    for one in recorded:
        path = Path(one.run)
        again = "put back what was there, or begin another training"
        if not path.is_dir():
            raise RunFormatError(f"{path}: the training learns from this run, and it is not there; {again}")
        now = hash_run(RunStore.open(path))
        if now != one.hash:
            raise RunFormatError(
                f"{path}: has changed since the training began to learn from it: its run hash is {now[:12]}, it was "
                f"{one.hash[:12]}; {again}"
            )


async def check_inputs(config: TrainingConfig, *, allow_overlap: bool) -> str | None:
    """Check that a training can learn from its recorded runs, and that they hold nothing that is kept from it.

    Returns:
        What they share with evaluations, where that is allowed; None for nothing.

    Raises:
        UsageError: a run was played by other slots, in other rounds or in another space of actions, or its agents were
            shown the screen in another way.
        OverlapError: its evaluations, or an evaluation split of its environment, play an episode of these runs.
    """
    if not config.recorded:
        return None
    suite = build_suite(config.held_out[0])
    try:
        for one in config.recorded:
            _check_fit(Path(one.run), config.run, suite)
        kept = await _list_kept(config, suite)
    finally:
        await suite.close()
    found = []
    for one in config.recorded:
        # An instruction that never changes is no reason against the environment's own tasks: their seeds differ.
        is_own = read_recorded_config(Path(one.run)).environment_name == config.run.environment_name
        compared = [replace(each, goals={}) if is_own and each.name == HELD_OUT else each for each in kept]
        remedy = f"--offline {one.run}: {_OTHERS}, or add --allow-overlap"
        found.append(
            refuse_overlap(list_instances(Path(one.run)), compared, allow_overlap=allow_overlap, remedy=remedy)
        )
    return "; ".join(str(one) for one in found if one.offenders) or None


def list_doubts(config: TrainingConfig) -> list[str]:
    """Return whether recorded runs are demonstrations, and what is not known of their replies, a line each.

    Raises:
        UsageError: the method needs probabilities, and a run has none.
    """
    found = []
    for one in config.recorded:
        if one.privileged:
            found.append(f"{one.run}: a model in it looked at solutions; its episodes are learned as demonstrations")
        with RunStore.open(Path(one.run)).open_reader() as reader:
            cells = [cell for played in reader.iterate_trajectories() for step in played.steps for cell in step.matrix]
        replies = format_amount(len(cells), "reply", "replies")
        if withheld := sum(cell.finish not in (None, "stop", "length") for cell in cells):
            found.append(f"{one.run}: {withheld} of {replies} were withheld by a server and are not learned")
        # A method that needs probabilities leaves out what others tokenise again.
        if "probabilities" in config.method.NEEDS:
            found += _doubt_probabilities(config, one, cells)
            continue
        if untold := sum(cell.finish is None or (cell.finish == "stop" and cell.end_token is None) for cell in cells):
            found.append(
                f"{one.run}: {untold} of {replies} do not tell how they ended (recorded before run format 1.2, ended "
                "by a stop string, or by a server that does not say); each is learned with an end"
            )
        if unknown := sum(cell.tokens is None for cell in cells):
            found.append(
                f"{one.run}: {unknown} of {replies} have no tokens or log-probabilities of the policy; their text is "
                "tokenised again and counted as retokenised"
            )
    return found


def _doubt_probabilities(config: TrainingConfig, one: RecordedInput, cells: Sequence[Utterance]) -> list[str]:
    """Return how many replies of a run do not tell with which probability they were sampled; UsageError for all."""
    told = map(get_reply_tokens, cells)
    silent = sum(reply is None or reply.behaviour_logprobs is None for reply in told)
    replies = format_amount(len(cells), "reply", "replies")
    if silent == len(cells):
        raise UsageError(
            f"--offline {one.run}: --algo {config.algorithm} needs the probability with which each reply was sampled, "
            f"and none of its {replies} tells it; {_OTHERS}, played by kind: local or by a server that reports them"
        )
    what = f"{one.run}: {silent} of {replies} do not tell with which probability they were sampled; an episode with"
    return [f"{what} such a reply is not learned"] if silent else []


@contextmanager
def open_inputs(config: TrainingConfig, folder: TrainingDir, number: int) -> Iterator[list[Rollout]]:
    """Yield the runs that an epoch learns from as its rollouts, while they are open."""
    with ExitStack() as stack:
        found = []
        for path in _list_inputs(config, folder, number):
            reader = stack.enter_context(RunStore.open(path).open_reader())
            played = list_trajectories(reader, read_step_budget(path))
            found.append(
                Rollout(number=number, run=read_recorded_config(path), path=path, trajectories=played, reader=reader)
            )
        yield found


def _list_inputs(config: TrainingConfig, folder: TrainingDir, number: int) -> list[Path]:
    """Return the runs that a training begins with, and behind its first epoch those that it played before this one."""
    played = [one for one in range(1, number) if config.is_played(one)]
    return [*(Path(one.run) for one in config.recorded), *(folder.get_epoch(one).rollout for one in played)]


def list_trajectories(reader: RunReader, steps: int | None) -> Sequence[Trajectory]:
    """Return the finished episodes of a run that count, each read on request; `steps` as for `list_counted`."""
    names = list_counted(reader, steps)
    over = (one.id for one in reader.list_episodes() if one.state == "finished")
    return select_trajectories(reader, [id for id in over if names is None or id in names])


def select_trajectories(reader: RunReader, ids: Sequence[str]) -> Sequence[Trajectory]:
    """Return these episodes of a run, each read on request."""
    return Trajectories(lambda: nullcontext(reader), tuple(ids))


def begin_replay(path: Path, out: Path) -> None:
    """Make a training that learns again what another one learned, from its recorded episodes alone.

    A training writes down which episodes each epoch learned from, and in which order, before it learns. All else
    follows from that, from seeds and from the number of threads, which is taken over. So `collab.loop.loop.resume` of
    the new directory ends with the same weights, bit for bit, or with an error: another kind of processor, a GPU in
    place of a processor or another torch computes other last bits. Nothing is played and nothing is measured.

    Args:
        path: of the training, which is only read.
        out: directory to make.

    Raises:
        UsageError: its algorithm cannot be replayed, or `out` already holds something; nothing was made.
        RunFormatError: the training cannot be read.
    """
    source, folder = TrainingDir(path), TrainingDir(out)
    # The head may name modules to import, so trust is asked for before any of it is built.
    check_trusted(source.read().get("config", {}), str(source.file))
    head, config = read_training(source)
    if not load_algorithm(config.algorithm).can_replay:
        raise UsageError(
            f"--replay {path}: {config.algorithm} asks models while it learns, so its learning cannot be repeated "
            "without them; resume it, or train anew"
        )
    check_installed()
    folder.check_free()
    kept = {name: part for name, part in head.items() if name != "summary"}
    folder.begin({**kept, "created": format_now(), REPLAYED: str(path.resolve())})


def find_source(folder: TrainingDir) -> TrainingDir | None:
    """Return the training that this one replays; None for one that plays."""
    source = folder.read().get(REPLAYED)
    return None if source is None else TrainingDir(Path(source))


def check_replayed(state: LoopState, number: int, record: EpochRecord) -> None:
    """Compare an epoch with the one that it replays; RunError for other lessons, weights or values."""
    assert state.source is not None, "asked of a replay alone"
    known = read_record(state.source.get_epoch(number).record)
    # What is remembered names its runs by their places, so it differs; the next lesson shows whether it was the same.
    for part in ("examples", "weights", "values"):
        if record.hashes.get(part) != known.hashes.get(part):
            raise RunError(
                f"{state.folder.path}: epoch {number} ends with other {part} than {state.source.path}: "
                f"{str(record.hashes.get(part))[:12]}, they were {str(known.hashes.get(part))[:12]}; it repeats on the "
                "kind of processor or GPU that trained, with the same torch (versions in both training.json)"
            )
    state.note(f"epoch {number}: its lessons and weights are those of {state.source.path}")


def check_fork(config: TrainingConfig, base: Mapping[str, str], name: str) -> tuple[dict[str, Any], str]:
    """Check that a training may begin with the epochs of another one; return its head's part, and what differs.

    Whatever the epochs depend on must be the same. Settings of the method may differ, as from the next epoch on.

    Args:
        config: of the training that begins.
        base: digest of the weights that it begins with, by slot.
        name: "RUN@epochN", the last epoch that is taken over.

    Raises:
        UsageError: it does not fit; nothing was made.
        RunFormatError: the other training cannot be read.
    """
    path, at, number = name.rpartition("@epoch")
    if not at or not number.isdecimal() or not int(number):
        raise UsageError(
            f"--fork {name}: write RUN@epochN, the directory of a training and its last epoch to take over"
        )
    source, last = TrainingDir(Path(path)), int(number)
    check_trusted(source.read().get("config", {}), str(source.file))
    head, other = read_training(source)
    there, here = (one.model_dump(mode="json", exclude={"preset", "ablation", "library"}) for one in (other, config))
    # Epochs depend on all of this. How their method's settings act on what is over, only its user can know.
    decisive = ("algorithm", "run", "declared", "origin", "recorded")
    begun, asked = ({part: one[part] for part in decisive} for one in (there, here))
    for one in (begun, asked):
        one["run"] = {name: value for name, value in one["run"].items() if name not in FREE}
    other_parts = [*list_differing({**begun, "base": head["base"]}, {**asked, "base": dict(base)})]
    if other_parts:
        what, was, wanted = other_parts[0]
        raise UsageError(
            f"--fork {name}: was trained with another {what}: {was!r}, not {wanted!r}; a fork may differ in settings "
            "of the method alone"
        )
    if config.method.epochs <= last:
        raise UsageError(
            f"--fork {name}: epochs={config.method.epochs} leaves nothing to train behind epoch {last}; --set "
            f"epochs={last + 1} or more, or an earlier epoch"
        )
    record = source.get_epoch(last).record
    if not record.exists():
        raise UsageError(f"--fork {name}: epoch {last} is not over; {source.resume}, or name an earlier epoch")
    differing = ", ".join(
        f"{what}={wanted!r} (was {was!r})" for what, was, wanted in list_differing(there["method"], here["method"])
    )
    told = f"epochs 0 to {last} are those of {path}; from then on {differing or 'nothing is set otherwise'}"
    forked = {"training": str(source.path.resolve()), "epoch": last, "hash": read_record(record).hash}
    return {FORKED: forked}, told


def take_over(folder: TrainingDir) -> None:
    """Copy the epochs that a fork begins with, as far as they are not there.

    Raises:
        RunFormatError: the other training is gone, or was trained anew.
        StoreFailure: they cannot be written.
    """
    forked = folder.read().get(FORKED)
    if forked is None or folder.get_epoch(forked["epoch"]).record.exists():
        return
    source = TrainingDir(Path(forked["training"]))
    record = source.get_epoch(forked["epoch"]).record
    if not record.exists() or read_record(record).hash != forked["hash"]:
        raise RunFormatError(
            f"{folder.path}: begins with epochs of {source.path}, which are others now; put back what was there, or "
            "begin anew"
        )
    with report_write_errors(folder.path, folder.resume):
        for number in range(forked["epoch"] + 1):
            target = folder.get_epoch(number).path
            if not target.exists():
                partial = target.with_name(f"{number}.partial")
                shutil.rmtree(partial, ignore_errors=True)
                shutil.copytree(source.get_epoch(number).path, partial)
                partial.rename(target)


# ------------------------------------------------------------------------------------------------------ inside


def _check_fit(path: Path, run: RunConfig, suite: Suite) -> None:
    """Raise a UsageError for a run whose replies the team could not have given."""
    played = read_recorded_config(path)
    graph, other = run.graph, played.graph
    if (set(other.slots), other.rounds) != (set(graph.slots), graph.rounds):
        told, wanted = (f"{', '.join(one.slots)} in {format_amount(one.rounds, 'round')}" for one in (other, graph))
        raise UsageError(
            f"--offline {path}: was played by {told}, and the graph {run.graph_name} has {wanted}; {_OTHERS}, or "
            "another --graph"
        )
    # Shown otherwise, the same reply would be learned to another prompt than it answered.
    for slot in graph.slots:
        told, wanted = (_describe_sight(one, slot) for one in (played, run))
        if told != wanted:
            raise UsageError(
                f"--offline {path}: was played by {slot} with {told}, and agents/{run.agent_names[slot]} has {wanted}; "
                f"{_OTHERS}, or set both alike: a policy learns from what it will read"
            )
    with RunStore.open(path).open_reader() as reader:
        space = next((step.observation.space for one in reader.iterate_trajectories() for step in one.steps), None)
    if space not in (None, suite.space.name):
        raise UsageError(
            f"--offline {path}: its actions are of the space {space}, those of {run.environment_name} of "
            f"{suite.space.name}; {_OTHERS}"
        )


def _describe_sight(run: RunConfig, slot: str) -> str:
    """Return in words how an agent is shown the screen."""
    dialect = load_dialect(run.agents[slot], f"agents/{run.agent_names[slot]}")
    spoken = "" if dialect is None else f" and dialect: {dialect.name}"
    return f"modality: {run.agents[slot].modality}{spoken}"


async def _list_kept(config: TrainingConfig, suite: Suite) -> list[HeldOutInstances]:
    """Return what evaluation splits keep, if the training has a split, and what its own held-out seeds play."""
    first, kept = config.held_out[0], list[HeldOutInstances]()
    if first.split is not None:
        splits = await load_splits(first.environment_name, first.environment, suite)
        # Tasks of the other splits are kept whole, and so are their instructions under any other name.
        kept = [
            one if one.name == NEW_SEEDS else replace(one, goals=_collect_goals(suite, _draw_seeds(splits[one.name])))
            for one in list_kept_by(splits.values())
        ]
    played: dict[str, list[int]] = {}
    for run in config.held_out:
        for episode in plan_episodes(run):
            played.setdefault(episode.task, []).append(episode.seed)
    instances = {fold(task): frozenset(seeds) for task, seeds in played.items()}
    return [*kept, HeldOutInstances(name=HELD_OUT, seeds=instances, goals=_collect_goals(suite, played))]


def _draw_seeds(split: Split) -> dict[str, list[int]]:
    """Return task → the first instance of each evaluation seed."""
    return {task: [Seeds(seed).task(task, 0) for seed in EVALUATION_SEEDS] for task in split.tasks}


def _collect_goals(suite: Suite, instances: dict[str, list[int]]) -> dict[str, str]:
    """Return instruction, folded → its task; environments that state goals only after a reset have none."""
    goals = ((suite.instance(task, seed).goal, task) for task, seeds in instances.items() for seed in seeds)
    return {fold(goal): task for goal, task in goals if goal}
