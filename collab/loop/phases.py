"""The played phases of an epoch: its graph, its rollout, its evaluation. Each is an ordinary run.

Each phase reads what is complete, resumes what was begun, or makes what is missing.

A training and its runs name the weights within it relative to it, so that the whole can be moved.

A rollout is sampled at the method's exploration temperatures (`TrainingConfig.explore`), and an evaluation as the
agents file says.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path

from collab.config import GraphDefinition, RunConfig
from collab.data.splits import EVALUATION_SEEDS, TrainingInstance, check_plan
from collab.envs.base import Suite
from collab.errors import NothingToLearn, OverlapError, RunError, RunFormatError
from collab.evaluation.comparison import TOLERATED_FAILURES, is_spoilt
from collab.evaluation.metrics import Report, pool
from collab.evaluation.report import EvaluatedRun, find_runs, pool_runs, read_run, report_of
from collab.graphs.dag import Dag
from collab.graphs.edges import build_dag, sample
from collab.loop.config import TrainingConfig
from collab.loop.continuous import Arrival, ContinuousCollection, open_collection, read_arrivals, start_executor
from collab.loop.interfaces import Algorithm, BranchPlan, Curriculum, EpochPlan, Rollout
from collab.loop.policy import Policy, assign_policy
from collab.loop.record import EpochDir, TrainingDir, hash_named, hash_played
from collab.loop.recorded import list_trajectories, open_inputs, select_trajectories
from collab.loop.state import LoopState
from collab.loop.step_budget import (
    build_counted_report,
    count_steps,
    has_enough,
    iterate_counted,
    open_ending,
    report_run,
    select_results,
)
from collab.rollout.build import build_suite
from collab.rollout.collector import RolloutProgress
from collab.rollout.executors.base import Executor
from collab.rollout.executors.ray import check_place
from collab.rollout.plan import Placement, draw_order, load_splits, plan_episodes
from collab.rollout.run import Beginning, read_recorded_config, resume, start
from collab.rollout.seeds import plan_series, play
from collab.seeds import derive
from collab.store.manifest import FILE
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.store.usage import read_usage
from collab.types import Trajectory, Usage
from collab.utils.files import read_plain, report_write_errors, write_json
from collab.utils.text import format_amount


class DrawnTasks:
    """The default curriculum: tasks, graph and seed are drawn for each epoch."""

    async def plan(self, state: LoopState, number: int, policy: Policy) -> EpochPlan:
        """Return the run of an epoch; a graph that was drawn before is read."""
        config, tasks = state.config, self.list_tasks(state, number)
        dag = draw_graph(config, number, state.folder.get_epoch(number), state.folder.resume)
        suite = await state.open_suite(config.run)
        return EpochPlan(run=await build_rollout_config(config, number, policy, dag, suite, tasks=tasks))

    def list_tasks(self, state: LoopState, number: int) -> Sequence[str]:
        """Return the tasks that an epoch draws from, at least one; here all of the run's."""
        return state.config.run.tasks


def get_curriculum(algorithm: Algorithm) -> Curriculum:
    """Return an algorithm's own curriculum, or the default one."""
    return algorithm.curriculum or DrawnTasks()


def draw_graph(config: TrainingConfig, number: int, folder: EpochDir, next_move: str) -> Dag:
    """Return the graph of an epoch; a new one is drawn and written before it is played.

    Raises:
        GraphError, UnknownName: the sampler does not fit.
        RunFormatError: the written graph cannot be read.
        StoreFailure: it cannot be written.
    """
    graph = config.run.graph
    if folder.graph.exists():
        return _read_graph(folder.graph, graph)
    dag = draw(config, number)
    with report_write_errors(folder.graph, next_move):
        folder.path.mkdir(parents=True, exist_ok=True)
        write_json(
            folder.graph, {"epoch": number, "slots": list(dag.slots), "edges": [list(edge) for edge in dag.edges]}
        )
    return dag


def draw(config: TrainingConfig, number: int) -> Dag:
    """Draw a random graph for an epoch; without an edge sampler return the declared one, or one draw for all epochs."""
    edges, graph, seed = config.method.edges, config.run.graph, config.run.seed
    if edges is None:
        return build_dag(graph, derive(seed, "edges", 0))
    return sample(edges, graph.slots, derive(seed, "edges", number))


async def build_rollout_config(
    config: TrainingConfig, number: int, policy: Policy, dag: Dag, suite: Suite, *, tasks: Sequence[str] | None = None
) -> RunConfig:
    """Return the run of an epoch: its own seed, its own order of tasks, the epoch's graph and policy.

    The seed is derived from run seed and epoch. It is drawn again if it would lead to an instance that is kept for
    evaluation (once in some ten thousand epochs).

    Args:
        suite: of the training's run (`LoopState.open_suite`).
        tasks: that are drawn from; None for all of the run's.
    """
    run = config.run
    wanted = run.tasks if tasks is None else tasks
    drawn = [name for name in _draw_tasks(run, suite, number) if name in wanted][: config.method.tasks]
    graph = run.graph.model_copy(update={"edges": list(dag.edges), "rewire": "never"})
    team = config.explore(assign_policy(run, policy, config.method.determinism))
    episodes = config.method.get_episodes(number) or run.episodes
    team = team.model_copy(update={"tasks": drawn, "graph": graph, "episodes": episodes})
    for attempt in count():
        seed = derive(run.seed, "rollout of epoch", number, attempt)
        chosen = team.model_copy(update={"seed": seed})
        if seed not in EVALUATION_SEEDS and await _is_free(chosen, suite):
            return chosen
    raise AssertionError("count ends never")


async def roll_out(
    state: LoopState,
    config: RunConfig,
    out: Path,
    steps: int | None,
    beginnings: Mapping[str, Beginning] | None = None,
) -> None:
    """Play a rollout to its end, or until it has its steps, from wherever it stands.

    If not one episode could be played, it is played again.

    Args:
        steps: its budget; None plays all its episodes.
        beginnings: as for `collab.rollout.run.start`.

    Raises:
        Halted, and all of `collab.rollout.run.start`.
    """
    RunStore(out).clear_unbegun()
    # With a step budget, a rollout is done when it has its steps, whatever is still running.
    done = out.exists() and (is_over(out) or (steps is not None and has_enough(out, steps)))
    # A rollout in which everything broke is played again: nothing can be learned from it.
    if done and not report_rollout(out, steps).is_lost:
        return
    budget, watch, suite = state.compute_left(), _build_watcher(state, out, steps), await state.open_suite(config)
    # Episodes end by the budget of steps, whose order is planned, not by which was fastest.
    async with open_ending(out, steps, state.stop) as ending:
        place = Placement(executor=config.executor, concurrency=config.concurrency)
        begin_or_resume = (
            partial(resume, out, placement=place, budget=budget)
            if out.exists()
            else partial(start, config.model_copy(update={"budget": budget}), state.library, out)
        )
        result = await begin_or_resume(
            watch=watch, stop=ending.stop, admit=ending.admit, suite=suite, beginnings=beginnings
        )
    state.spend(result.progress.spent)
    if (solved := result.progress.describe_start_solved()) is not None:
        state.note(f"warning: {solved}")
    # A rollout that has its steps was stopped by its own budget, which is no reason to halt.
    if steps is None or not has_enough(out, steps):
        state.halt(result.stopped)


def _build_watcher(state: LoopState, out: Path, steps: int | None) -> Callable[[RolloutProgress], None]:
    """Return a callback that shows a rollout's progress, in steps if it ends by steps."""
    before = 0 if steps is None or not out.exists() else count_steps(out)

    def watch(progress: RolloutProgress) -> None:
        progress.wanted_steps, progress.steps_before = steps, before
        state.watch_rollout(progress)

    return watch


async def evaluate(state: LoopState, policy: Policy, folder: Path) -> HeldOutResult:
    """Measure a policy on the held-out seeds, from wherever that stands.

    If too many episodes broke, those are played again.

    Raises:
        Halted, and all of `collab.rollout.seeds.play`.
    """
    configs = [assign_policy(one, policy, state.config.method.determinism) for one in state.config.held_out]
    # Seeds are cleared of unbegun parts before they are planned, or these would look begun.
    for config in configs:
        RunStore(folder / f"seed-{config.seed}").clear_unbegun()
    runs = await plan_series(configs, state.library, folder)
    # Finished seeds are read and not opened again.
    over = find_settled([run.path for run in runs])
    for run in runs:
        if run.path in over:
            continue
        suite, budget = await state.open_suite(run.config), state.compute_left()
        async with _open_beside(state, run.config, suite) as executor:
            result = await play(
                run,
                state.library,
                budget=budget,
                watch=state.watch_rollout,
                stop=state.stop,
                suite=suite,
                executor=executor,
            )
        state.spend(result.progress.spent)
        state.halt(result.stopped)
    return _read_measured(folder)


@contextlib.asynccontextmanager
async def _open_beside(state: LoopState, run: RunConfig, suite: Suite) -> AsyncIterator[Executor | None]:
    """Start the workers of an evaluation beside those of a collection, which hold their CPUs; None without one."""
    if state.collection is None:
        yield None
        return
    executor = await start_executor(run, suite, takes_cpus=False)
    try:
        yield executor
    finally:
        await executor.close()


def _read_measured(folder: Path) -> HeldOutResult:
    """Read each run of an evaluation once."""
    runs, hashes, spent = list[EvaluatedRun](), dict[int, str](), list[Usage]()
    for path in find_runs(folder):
        with RunStore.open(path).open_reader() as reader:
            runs.append(read_run(path, reader))
            hashes[reader.manifest.seed] = hash_played(reader.iterate_trajectories())
            spent.append(read_usage(reader))
    return HeldOutResult(report=pool_runs(runs).report, hash=hash_named(hashes), spent=sum(spent, Usage()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Rollouts that an epoch learns from."""

    rollouts: Sequence[Rollout]
    """The one that it played, and the episodes that begin in its states, or runs that were recorded before; their
    episodes are read on request."""
    report: Report
    """Over all planned episodes but those that begin in states of others."""
    paid: Usage
    """For playing in this training."""

    @property
    def trajectories(self) -> Iterator[Trajectory]:
        """The episodes of all of them."""
        return chain.from_iterable(one.trajectories for one in self.rollouts)


@contextlib.asynccontextmanager
async def collect(state: LoopState, algorithm: Algorithm, number: int, policy: Policy) -> AsyncIterator[Collected]:
    """Play the rollout of an epoch, and let the algorithm label finished episodes while others are played.

    An epoch that learns from recorded runs, or again from the rollouts before it, plays nothing. One that plays on
    takes what has arrived.

    Raises:
        Halted: it stopped before its end.
        RunError: not one of its episodes could be played.
    """
    state.begin("rollout")
    if state.source is not None and state.config.is_played(number):
        with _open_replayed(state, state.source, number) as collected:
            yield collected
        return
    if not state.config.is_played(number):
        with open_inputs(state.config, state.source or state.folder, number) as rollouts:
            yield Collected(rollouts=rollouts, report=_report_inputs(rollouts), paid=Usage())
        return
    out, steps = state.folder.get_epoch(number).rollout, state.config.method.get_steps(number)
    # The plan is deterministic in seed and epoch number, so a resumed epoch plays the same tasks.
    plan = await get_curriculum(algorithm).plan(state, number, policy)
    if state.config.method.is_continuous:
        async with _collect_arrived(state, number, plan.run) as collected:
            yield collected
        return
    async with algorithm.labeller.label_while_playing(state, plan.run, out):
        with state.time_part("rollout", whole=not (out / FILE).exists()):
            await roll_out(state, plan.run, out, steps)
    with RunStore.open(out).open_reader() as reader:
        report = require_played(state, build_counted_report(reader, steps), out)
        played = list_trajectories(reader, steps)
        rollout = Rollout(number=number, run=plan.run, path=out, trajectories=played, reader=reader)
        async with _play_branches(state, algorithm.branch(state.config, rollout), rollout) as branches:
            rollouts = [rollout, *branches]
            paid = sum((read_usage(one.reader) for one in rollouts), Usage())
            yield Collected(rollouts=rollouts, report=report, paid=paid)


@contextlib.asynccontextmanager
async def _play_branches(
    state: LoopState, plan: BranchPlan | None, rollout: Rollout
) -> AsyncIterator[Sequence[Rollout]]:
    """Play the episodes that begin in states of a rollout, if any are planned; yield their run, while it is open."""
    if plan is None:
        yield []
        return
    out = state.folder.get_epoch(rollout.number).branches
    # Timed where the rollout before it was: a resumed epoch would report a part as the total.
    with state.time_part("rollout", whole="rollout" in state.seconds):
        await roll_out(state, plan.run, out, None, plan.beginnings)
    with RunStore.open(out).open_reader() as reader:
        played = list_trajectories(reader, None)
        yield [Rollout(number=rollout.number, run=plan.run, path=out, trajectories=played, reader=reader)]


@contextlib.asynccontextmanager
async def _collect_arrived(state: LoopState, number: int, run: RunConfig) -> AsyncIterator[Collected]:
    """Publish a policy to the workers, and collect the episodes of an epoch once they have arrived.

    Args:
        run: of the episodes that the policy begins.
    """
    folder = state.folder
    if state.collection is None:
        state.collection = await open_collection(state, run)
    assert isinstance(state.collection, ContinuousCollection), "nothing else plays in the background"
    with state.time_part("rollout", whole=read_arrivals(folder.get_epoch(number)) is None):
        await state.collection.begin(number, run)
        arrivals = await state.collection.gather(number)
    with _open_arrived(folder, number, arrivals) as collected:
        # For the display alone: the budget counts what this process plays, when it plays it.
        state.progress.count(collected.paid)
        yield collected


@contextlib.contextmanager
def _open_arrived(folder: TrainingDir, number: int, arrivals: Sequence[Arrival]) -> Iterator[Collected]:
    """Open the episodes that arrived in an epoch of a training, whichever policies played them."""
    with contextlib.ExitStack() as stack:
        rollouts, reports = list[Rollout](), list[Report]()
        # By run, because labels lie beside each; within one in the order in which episodes ended.
        for epoch in sorted({one.epoch for one in arrivals}):
            path, ids = folder.get_epoch(epoch).rollout, [one.trajectory for one in arrivals if one.epoch == epoch]
            reader = stack.enter_context(RunStore.open(path).open_reader())
            played = select_trajectories(reader, ids)
            rollouts.append(_describe_recorded(number, path, played, reader))
            reports.append(select_results(report_of(reader), ids))
        cells = chain.from_iterable(
            step.matrix for one in rollouts for played in one.trajectories for step in played.steps
        )
        paid = sum((Usage.of_call(one.prompt_tokens, one.completion_tokens, one.cost_usd) for one in cells), Usage())
        yield Collected(rollouts=rollouts, report=pool(reports), paid=paid)


@contextlib.contextmanager
def _open_replayed(state: LoopState, source: TrainingDir, number: int) -> Iterator[Collected]:
    """Open what another training learned from in an epoch; nothing is paid for it again."""
    if (arrivals := read_arrivals(source.get_epoch(number))) is not None:
        with _open_arrived(source, number, arrivals) as collected:
            yield replace(collected, paid=Usage())
        return
    folder, steps = source.get_epoch(number), state.config.method.get_steps(number)
    with contextlib.ExitStack() as stack:
        rollouts = list[Rollout]()
        for path, budget in ((folder.rollout, steps), (folder.branches, None)):
            if path.is_dir():
                reader = stack.enter_context(RunStore.open(path).open_reader())
                rollouts.append(_describe_recorded(number, path, list_trajectories(reader, budget), reader))
        report = build_counted_report(rollouts[0].reader, steps)
        yield Collected(rollouts=rollouts, report=report, paid=Usage())


def _describe_recorded(number: int, path: Path, played: Sequence[Trajectory], reader: RunReader) -> Rollout:
    """Return a recorded run as a rollout of an epoch."""
    return Rollout(number=number, run=read_recorded_config(path), path=path, trajectories=played, reader=reader)


def _report_inputs(rollouts: Sequence[Rollout]) -> Report:
    """Report recorded runs together, whatever environments they are of; sampling is that of the first."""
    reports = [report_run(one.path, one.reader) for one in rollouts]
    first = reports[0]
    return pool(
        [replace(one, environment=first.environment, environment_version=first.environment_version) for one in reports]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutResult:
    """Result of an evaluation."""

    report: Report | None
    """None if nothing was measured."""
    hash: str
    """As `hash_measured`."""
    spent: Usage


NOT_MEASURED = HeldOutResult(report=None, hash=hash_named({}), spent=Usage())
"""Result of an epoch that is not evaluated."""


async def measure(state: LoopState, policy: Policy, folder: EpochDir) -> HeldOutResult:
    """Evaluate a policy on the held-out seeds; raises as `evaluate` and `require_measured`."""
    state.begin("evaluation")
    with state.time_part("evaluation", whole=not find_runs(folder.evaluation)):
        found = await evaluate(state, policy, folder.evaluation)
        assert found.report is not None, "an evaluation has held-out seeds"
        require_measured(state, found.report, folder.evaluation)
        return found


def require_played(state: LoopState, report: Report, place: Path) -> Report:
    """Return the report; RunError if not one of its episodes could be played. A resume plays them again."""
    if not report.is_lost:
        return report
    raise _build_unplayed_error(
        state, report, f"{place}: none of {format_amount(len(report.results), 'episode')} could be played"
    )


def refuse_barren_rollout(rollout: Rollout, facts: str, advice: str) -> None:
    """Stop a training whose first rollout gives nothing to learn from; later epochs may have nothing left to learn.

    Args:
        facts: what the rollout has, in words.
        advice: what to begin another training with, in words.

    Raises:
        NothingToLearn: it is the first rollout.
    """
    if rollout.number == 1:
        raise NothingToLearn(
            f"{rollout.path}: there is nothing to learn from this first rollout: {facts}; begin another training with "
            f"{advice}"
        )


def require_measured(state: LoopState, report: Report, place: Path) -> Report:
    """Return the report of an evaluation; RunError if too many episodes broke to choose an epoch by it.

    A resume plays those again.
    """
    require_played(state, report, place)
    if not is_spoilt(report.broken, report.planned.episodes):
        return report
    played = format_amount(report.planned.episodes, "episode")
    broken = f"{report.broken} of {played} broke (allowed: {TOLERATED_FAILURES:.0%})"
    raise _build_unplayed_error(state, report, f"{place}: {broken}, too many to choose an epoch by")


def _build_unplayed_error(state: LoopState, report: Report, what: str) -> RunError:
    epoch, first = state.progress.epoch, next(one.error for one in report.results if one.error is not None)
    earlier, rate = shlex.quote(f"{state.folder.path}@epoch{epoch - 1}"), f"{state.config.method.RECIPE}.learning_rate"
    trained = (
        "; where the policy itself is lost, begin another training with the policy of an earlier epoch (--agents "
        f"{earlier}) and a lower {rate}"
    )
    return RunError(
        f"{what}, the first broke with {first}; mend that, and play them again with: {state.folder.resume}"
        f"{trained if epoch > 0 else ''}"
    )


def load_trajectories(path: Path, steps: int | None = None) -> list[Trajectory]:
    """Load all finished episodes of a run, by task and number; `steps` as for `iterate_trajectories`."""
    return list(iterate_trajectories(path, steps))


def load_collected(folder: TrainingDir, number: int, steps: int | None) -> list[Trajectory]:
    """Load the finished episodes that an epoch collected, none if it played none; `steps` as its method has them.

    Those of a training that plays on are the ones that arrived in the epoch, whichever policies began them, also those
    that are too old to be learned. Branches are left out.
    """
    epoch = folder.get_epoch(number)
    if (arrivals := read_arrivals(epoch)) is not None:
        with _open_arrived(folder, number, arrivals) as collected:
            return [one for rollout in collected.rollouts for one in rollout.trajectories]
    return load_trajectories(epoch.rollout, steps) if epoch.rollout.exists() else []


def iterate_trajectories(path: Path, steps: int | None = None) -> Iterator[Trajectory]:
    """Yield the finished episodes of a run one at a time: long ones need not fit into memory together.

    Args:
        steps: of a rollout that has so many, only those that belong to it; see `step_budget`.
    """
    with RunStore.open(path).open_reader() as reader:
        yield from iterate_counted(reader, steps)


def report_rollout(path: Path, steps: int | None) -> Report:
    """Report a rollout, broken episodes included; `steps` as for `iterate_trajectories`."""
    with RunStore.open(path).open_reader() as reader:
        return build_counted_report(reader, steps)


async def check_playable(config: TrainingConfig, *, has_moved: bool) -> None:
    """Build what rollouts are played in, and find room for the workers that a training has just been moved to.

    Raises:
        MissingExtra, UsageError: no worker can be had there; nothing of the move has been recorded.
    """
    suite = build_suite(config.run)
    try:
        if has_moved and config.run.executor == "ray":
            # No more workers than the smallest epoch has episodes, as an executor would start.
            method, wanted = config.method, config.run.concurrency
            for number in range(1, method.epochs + 1):
                wanted = min(wanted, method.get_episodes(number) or method.get_steps(number) or wanted)
            check_place(suite, wanted)
    finally:
        await suite.close()


def find_settled(runs: Sequence[Path]) -> set[Path]:
    """Return the runs of an evaluation that need no further play.

    Finished runs are settled. If all are finished and too many episodes broke, only those without a broken one are.
    """
    over = {path for path in runs if (path / FILE).exists() and is_over(path)}
    if len(over) < len(runs):
        return over
    found = {path: report_rollout(path, None) for path in runs}
    whole = pool(list(found.values()))
    spoilt = is_spoilt(whole.broken, whole.planned.episodes)
    return {path for path, report in found.items() if not (spoilt and report.broken)}


def load_measured(config: TrainingConfig, folder: Path) -> dict[int, Iterator[Trajectory]]:
    """Return held-out seed → its episodes, read one at a time; empty if nothing was measured."""
    places = {one.seed: folder / f"seed-{one.seed}" for one in config.held_out}
    return {seed: iterate_trajectories(place) for seed, place in places.items() if not RunStore(place).is_free}


def sum_paid(runs: Iterable[Path]) -> Usage:
    """Sum the usage of these runs, all their episodes; a missing run counts nothing."""
    parts = []
    for path in runs:
        if not RunStore(path).is_free:
            with RunStore.open(path).open_reader() as reader:
                parts.append(read_usage(reader))
    return sum(parts, Usage())


def is_over(path: Path) -> bool:
    """Return whether a run came to its end; broken episodes are part of it."""
    with RunStore.open(path).open_reader() as reader:
        return reader.status == "finished"


def _read_graph(path: Path, graph: GraphDefinition) -> Dag:
    try:
        content = json.loads(read_plain(path))
        edges: Sequence[tuple[str, str]] = [(speaker, hearer) for speaker, hearer in content["edges"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; remove it, and it is drawn again") from None
    return Dag(slots=tuple(graph.slots), edges=tuple(edges))


def _draw_tasks(run: RunConfig, suite: Suite, number: int) -> list[str]:
    """Draw the order in which an epoch plays the tasks."""
    infos = [info for info in suite.tasks() if info.name in run.tasks]
    return draw_order(infos, derive(run.seed, "tasks of epoch", number))


async def _is_free(run: RunConfig, suite: Suite) -> bool:
    """Return whether a run avoids what is kept for evaluation; always True outside any split."""
    if run.split is None:
        return True
    splits = await load_splits(run.environment_name, run.environment, suite)
    plan = [TrainingInstance(task=one.task, seed=one.seed, source=one.id) for one in plan_episodes(run)]
    try:
        check_plan(splits[run.split.name], splits.values(), plan)
    except OverlapError:
        return False
    return True
