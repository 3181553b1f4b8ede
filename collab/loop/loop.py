"""The loop of every algorithm: collect → label → learn → evaluate, epoch by epoch, begun or resumed.

    result = await start(config, Path("runs/trained"))
    result = await resume(Path("runs/trained"))

`run_epochs` repeats `run_epoch` until the last epoch, until patience runs out, or until it is stopped. An epoch leaves
its policy, its usage, and its record, which is written last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collab
from collab.config import Budget, Definition, RunConfig, hide_secrets
from collab.errors import RunFormatError, UsageError
from collab.evaluation.report import find_runs
from collab.library import Library, resolve_checkpoint
from collab.loop.checks import check_team
from collab.loop.config import Method, TrainingConfig
from collab.loop.finetuning import clear_checkpoints
from collab.loop.interfaces import (
    Algorithm,
    Checked,
    Labels,
    RecordedLearner,
    Update,
    complete_options,
    join_labels,
    load_algorithm,
    load_config,
)
from collab.loop.phases import NOT_MEASURED, Collected, HeldOutResult, check_playable, collect, measure, sum_paid
from collab.loop.policy import Policy, build_first_policy, load_policy
from collab.loop.record import (
    EpochDir,
    EpochRecord,
    Spending,
    Success,
    Summary,
    Trained,
    TrainingDir,
    TrainingMove,
    collect_play_facts,
    describe_place,
    find_best_epoch,
    hash_json,
    hash_named,
    hash_played,
    hash_training,
    is_patience_over,
    move_training,
    read_record,
    record_move,
    restore_place,
)
from collab.loop.recorded import check_fork, check_replayed, check_unchanged, find_source, list_doubts, take_over
from collab.loop.state import Halted, LoopState, TrainingProgress
from collab.models.checkpoint_card import hash_played_weights
from collab.rollout.build import build_suite, with_prompts
from collab.rollout.plan import UNMOVED, Placement
from collab.store.manifest import collect_versions, format_now
from collab.store.run_dir import RunDir, RunLimits
from collab.trainers.distributed import build_threads_head, use_recorded_threads
from collab.trainers.launch import check_processes
from collab.trainers.prepare import check_device, check_installed, check_reports, collect_training_versions
from collab.types import Usage
from collab.utils.concurrency import Stopped
from collab.utils.files import place_within, report_write_errors, write_json
from collab.utils.text import format_amount
from collab.utils.trust import check_trusted


async def measure_start(state: LoopState, policy: Policy) -> EpochRecord:
    """Evaluate the untrained team as epoch 0, if the method asks for that."""
    folder = state.folder.get_epoch(0)
    if folder.record.exists():
        return read_closed(state, folder)
    # Epoch 0 may have been begun by a process that died: progress shows what that one spent, too.
    count_earlier(state, None, folder)
    found = await measure(state, policy, folder) if _is_measured(state, 0) else NOT_MEASURED
    # Nothing measured still closes epoch 0, so that resuming skips it.
    hashes = {"evaluation": found.hash}
    record = EpochRecord(
        algorithm=state.config.algorithm,
        epoch=0,
        **_describe_weights(policy, state.folder.path),
        success=None if found.report is None else Success.of(found.report),
        spent={"evaluation": Spending.of(found.spent, state.seconds.get("evaluation"))},
        hashes=hashes,
        hash=hash_named(hashes),
    )
    return _close(state, folder, record)


def count_earlier(state: LoopState, algorithm: Algorithm | None, folder: EpochDir) -> None:
    """Count an earlier process's usage for an epoch that is not over.

    Args:
        algorithm: counts its labels, too; None if nothing is labelled.
    """
    # Runs on disk are the only witness of an earlier process: its counters died with it. Where episodes are played on,
    # the epoch in which one arrives counts it, whichever process played it.
    rollouts = [] if state.config.method.is_continuous else [folder.rollout, folder.branches]
    spent = sum_paid([*rollouts, *find_runs(folder.evaluation)])
    if algorithm is not None:
        spent += algorithm.labeller.read_spent(folder.rollout) + algorithm.labeller.read_spent(folder.branches)
    state.progress.spent += spent


def read_closed(state: LoopState, folder: EpochDir) -> EpochRecord:
    """Read the record of an epoch that is over."""
    record = read_record(folder.record)
    clear_checkpoints(folder, state.config.groups)  # left by a kill between record and clean-up
    state.progress.close(record)
    return record


def update_policy(state: LoopState, number: int, policy: Policy, trained: Mapping[str, Trained]) -> Policy:
    """Return the policy with its newly trained weights; untrained slots keep theirs."""
    # Absolute paths inside the process; records hold paths relative to the training, so that it can be moved.
    root, groups = state.folder.path.resolve(), state.config.groups
    new = {slot: str(root / one.checkpoint) for group, one in trained.items() for slot in groups[group]}
    return policy.replace_trained(number, new, adapters=state.config.method.is_adapter_kept)


def close_epoch(
    state: LoopState,
    folder: EpochDir,
    policy: Policy,
    played: Mapping[str, Any],
    number: int,
    collected: Collected,
    labels: Labels,
    update: Update,
    measured: HeldOutResult,
) -> EpochRecord:
    """Write the record of an epoch.

    Args:
        policy: after the epoch.
        played: `collect_play_facts` of what was collected.
    """
    # In order of the phases: where two trainings differ, the first unequal entry names the phase that diverged.
    hashes = {
        "rollout": hash_played(collected.trajectories),
        **labels.hashes,
        "examples": hash_named({group: one.digest for group, one in update.examples.items()}),
        "weights": hash_named({group: one.digest for group, one in update.trained.items()}),
        **update.hashes,
        "evaluation": measured.hash,
    }
    # The algorithm's numbers go into `metrics`: the record has no field that belongs to one of them.
    record = EpochRecord(
        algorithm=state.config.algorithm,
        epoch=number,
        **_describe_weights(policy, state.folder.path),
        success=None if measured.report is None else Success.of(measured.report),
        **played,
        metrics={**labels.metrics, **update.metrics},
        examples=dict(update.examples),
        trained=dict(update.trained),
        untrained=dict(update.untrained),
        spent=_list_spending(state, collected.paid, labels, update, measured),
        hashes=hashes,
        hash=hash_json(list(hashes.items())),
    )
    return _close(state, folder, record)


# ----------------------------------------------------------------------------------------------------- helpers


def _describe_weights(policy: Policy, root: Path) -> dict[str, Any]:
    return {
        "version": policy.version,
        "weights": {slot: place_within(root, path) for slot, path in policy.weights.items()},
        "adapters": {slot: place_within(root, path) for slot, path in policy.adapters.items()},
    }


def _list_spending(
    state: LoopState, rollout: Usage, labels: Labels, update: Update, measured: HeldOutResult
) -> dict[str, Spending]:
    """Return the spending of an epoch by part, in the order of time."""
    seconds = state.seconds
    return {
        "rollout": Spending.of(rollout, seconds.get("rollout")),
        **{part: Spending.of(paid, seconds.get(part)) for part, paid in labels.spent.items()},
        "training": Spending(
            seconds=seconds.get("training"), prompt_tokens=sum(one.tokens for one in update.trained.values())
        ),
        **{part: Spending.of(paid, seconds.get(part)) for part, paid in update.spent.items()},
        "evaluation": Spending.of(measured.spent, seconds.get("evaluation")),
    }


def _close(state: LoopState, folder: EpochDir, record: EpochRecord) -> EpochRecord:
    # The record is written before checkpoints go: a kill in between repeats the clean-up, never the training.
    with report_write_errors(folder.record, state.folder.resume):
        folder.path.mkdir(parents=True, exist_ok=True)
        write_json(folder.record, record.model_dump(mode="json"))
    clear_checkpoints(folder, state.config.groups)
    state.seconds.clear()
    state.progress.close(record)
    return record


Watch = Callable[[TrainingProgress], None]
"""Called once, with a live object that is updated during the training."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainingResult:
    """Result of a training."""

    path: Path
    records: tuple[EpochRecord, ...]
    """Records of all finished epochs, epoch 0 first."""
    summary: Summary | None
    """None if it stopped before its end."""
    stopped: str | None
    """Why it ended early; None if it is done."""
    spent: Usage = Usage()
    """Usage of this process's models; tokens trained on do not count."""

    def __repr__(self) -> str:
        last = self.records[-1].epoch if self.records else 0
        end = f"stopped: {self.stopped}" if self.summary is None else describe_best(self.summary)
        return f"<TrainingResult {self.path}: {format_amount(last, 'epoch')}, {end}>"


def describe_best(summary: Summary) -> str:
    """Describe which epoch is the best, or say that none was better than the untrained team."""
    if summary.best is None:
        return "best not known, for no epoch was measured"
    if summary.best == 0:
        return f"best epoch 0, the untrained team: none of {format_amount(summary.epochs, 'epoch')} was better"
    return f"best epoch {summary.best} of {summary.epochs}"


async def start(
    config: TrainingConfig,
    out: Path,
    *,
    options: Mapping[str, Any] | None = None,
    fork: str | None = None,
    budget: Budget | None = None,
    device: str = "auto",
    report_to: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> TrainingResult:
    """Train a team into the directory `out`.

    Args:
        options: the algorithm's own options, by name (see `Algorithm.check`).
        fork: "RUN@epochN", a training whose epochs up to that one are taken over; None begins with the first.
        budget: None for no limit; `resume` grants it once more.
        device: where policies are trained, "auto" (a GPU when there is one) or "cpu"; `resume` trains there, too.
        report_to: further places for metrics of training, "tensorboard" or "trackio".
        note: takes doubts, a line each: about the configuration before anything is begun, and about what a first
            rollout can teach.

    Raises:
        UsageError: something does not fit or may not be used, a limit is on something uncounted, or `out` already
            holds something; nothing was started.
        ModelFailure, EnvironmentFailure: a model or the environment does not answer; nothing was started.
        RunError: something failed while working; its results stay, and `resume` continues.
    """
    # Refuse before anything is written or paid; from `begin` on, the directory alone says how to resume.
    config = hide_secrets(config)
    limits = RunLimits(budget=budget or Budget(), device=device, reports=tuple(report_to))
    check_limits(limits, config.method)
    folder, first = TrainingDir(out), build_first_policy(config.run, config.method)
    base = hash_base_weights(first)
    folder.check_free()
    forked, told = ({}, None) if fork is None else check_fork(config, base, fork)
    checked = await check_training(config, first, limits.budget, options or {})
    for line in (*checked.notes, *([] if told is None else [told])):
        note(line)
    folder.begin({**checked.head, **forked, "base": base, **build_first_head(config, config.method, limits)})
    return await _run(config, first, folder, limits, watch, stop, note)


def check_limits(limits: RunLimits, method: Method | None) -> None:
    """Check that this machine has the devices and packages that a process may use.

    Args:
        method: how it trains; None if it only plays.

    Raises:
        UsageError: a device, a place for metrics or a package is missing, or processes do not fit.
    """
    if method is not None:
        check_installed()
    check_device(limits.device)
    check_reports(limits.reports)
    if method is not None:
        check_processes(method.processes, limits.device, method.parallelism)


def build_first_head(config: Definition, method: Method | None, limits: RunLimits) -> dict[str, Any]:
    """Return the first entries of a training's or transfer's head: time, versions, threads, limits, configuration.

    Args:
        method: as for `check_limits`.
    """
    return {
        "created": format_now(),
        "versions": {"collab": collab.__version__} if method is None else collect_training_versions(),
        **({} if method is None else build_threads_head()),
        **limits.head,
        "config": config.model_dump(mode="json"),
    }


@contextlib.contextmanager
def compute_as_begun(folder: RunDir, note: Callable[[str], None]) -> Iterator[None]:
    """Use as many threads as a training or transfer began with, and report changed versions.

    Raises:
        RunFormatError: the head cannot be read, or its number of threads is no number.
    """
    # Threads change the order of floating-point sums, and so the weights: an exact training and a replay need as many
    # as before, and a replay has only one number for all epochs of the training that it repeats.
    head = folder.read()
    if other := _compare_versions(head):
        note(other)
    with use_recorded_threads(head, str(folder.file), note):
        yield


async def check_training(config: TrainingConfig, first: Policy, budget: Budget, options: Mapping[str, Any]) -> Checked:
    """Check all parts of a training before anything is written, played or paid; raises as `start`."""
    # Every part is checked before the first episode: a refusal after a night of playing would cost that night.
    algorithm, suite = load_algorithm(config.algorithm), build_suite(config.run)
    try:
        checked = await algorithm.check(config, suite, budget, complete_options(algorithm, options))
        team = await check_team(config, first, suite, budget)
    finally:
        await suite.close()
    algorithm.learner.check(config, first)
    return Checked(notes=(*list_doubts(config), *checked.notes, *team), head=checked.head)


async def resume(
    path: Path,
    *,
    budget: Budget | None = None,
    device: str | None = None,
    report_to: Sequence[str] | None = None,
    placement: Placement = UNMOVED,
    note: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> TrainingResult:
    """Resume a training that stopped or died; return the result of a finished one.

    Args:
        placement: where it is played from here on, also by later resumes; ignored where nothing is left.
        budget: from here on; None grants the training's own budget once more.
        device: None for where it was trained before.
        report_to: None for where it reported before.
        note: takes a line if computing packages have other versions than at the start, and one if it began with another
            number of threads than torch has here; else as of `start`.

    Raises:
        RunFormatError: it cannot be read, or its base or prompts have changed.
        UsageError: another process trains it, or a limit of `budget` is on something that a part does not count.
        ModelFailure: such a part does not answer when there is a `budget`; nothing was played.
    """
    folder = TrainingDir(path)
    head = folder.read()
    # The head may name modules to import, so trust is asked for before any of it is built.
    check_trusted(head.get("config", {}), str(folder.file))
    limits = folder.read_limits(budget=budget, device=device, report_to=report_to)
    config = restore_place(load_config(head.get("config", {}), str(folder.file)), head, str(folder.file))
    before, move = config.run, None
    if "summary" not in head:
        config, move = move_training(config, placement)
    check_limits(limits, config.method)
    first = build_first_policy(config.run, config.method)
    _check_base(path, first, head["base"])
    # What rollouts are played in is looked at before an evaluation is: its data may be gone or changed.
    if "summary" not in head:
        check_unchanged(config.recorded)
        if "replayed" not in head:
            await check_playable(config, has_moved=move is not None)
        load_algorithm(config.algorithm).check_resumed(config, head)
    # Without a new budget the parts were checked when the training began; a finished one asks nothing any more.
    if budget is not None and "summary" not in head:
        await load_algorithm(config.algorithm).check_budget(config, budget)
    if move is not None:
        note(f"played {describe_place(config.run)} from here on; until now {describe_place(before)}")
    with compute_as_begun(folder, note):
        return await _run(config, first, folder, limits, watch, stop, note, move)


def _compare_versions(head: Mapping[str, Any]) -> str | None:
    """Return a line about packages whose version changed since a training began; None if all are the same."""
    recorded = dict(head.get("versions") or {})
    now = collect_versions(recorded)
    begun = {name: was for name, was in recorded.items() if now.get(name) != was}
    if not begun:
        return None
    then, today = (", ".join(f"{name} {known.get(name)}" for name in begun) for known in (begun, now))
    return f"begun with {then}, resumed with {today}: the rest may differ from an uninterrupted training"


def _check_base(path: Path, policy: Policy, begun: Mapping[str, str]) -> None:
    """Check that the checkpoints of a training's start are there with the same weights; else RunFormatError."""
    for place in {*map(resolve_checkpoint, policy.weights.values()), *policy.adapters.values()}:
        if not any(Path(place).glob("*.safetensors")):
            raise RunFormatError(f"{path}: the checkpoint that it began with, {place}, is not there; put it back")
    now = hash_base_weights(policy)
    # Digests and not paths are compared: a folder may have been overwritten since, and then the epochs before and
    # after would not belong together.
    for slot, digest in begun.items():
        if now.get(slot) != digest:
            raise RunFormatError(
                f"{path}: its first checkpoint has changed: {policy.weights.get(slot)} has weights "
                f"{str(now.get(slot))[:12]}, it had {digest[:12]}; put back what was there, or train anew"
            )


def hash_base_weights(policy: Policy) -> dict[str, str]:
    """Return per slot the digest of the weights that training starts from."""
    begun = {slot: (path, policy.adapters.get(slot)) for slot, path in policy.weights.items()}
    known = {
        (path, adapter): hash_played_weights(Path(resolve_checkpoint(path)), adapter)
        for path, adapter in set(begun.values())
    }
    return {slot: known[both] for slot, both in begun.items()}


def find_changed_prompt(run: RunConfig, library: Library) -> str | None:
    """Return the first prompt of a run whose texts have changed in the library; None if all are the same."""
    there = with_prompts(run, library).prompts
    return next((name for name, texts in run.prompts.items() if there.get(name) != texts), None)


async def _run(
    config: TrainingConfig,
    first: Policy,
    folder: TrainingDir,
    limits: RunLimits,
    watch: Watch,
    stop: asyncio.Event | None,
    note: Callable[[str], None],
    move: TrainingMove | None = None,
) -> TrainingResult:
    # Before the lock: a training whose prompts have changed would continue with another team.
    library = Library.for_recorded_training(config.library)
    _check_prompts(config, folder, library)
    state = LoopState(
        config=config,
        folder=folder,
        library=library,
        budget=limits.budget,
        stop=stop or asyncio.Event(),
        device=limits.device,
        progress=TrainingProgress(algorithm=config.algorithm, epochs=config.method.epochs),
        first=first,
        reports=limits.reports,
        note=note,
        source=find_source(folder),
    )
    # One writer per training; a second process that resumes is refused here, before it plays.
    with folder.lock_parts():
        if move is not None:
            record_move(folder, move)
        watch(state.progress)
        take_over(folder)
        records: list[EpochRecord] = []
        stopped: str | None = None
        try:
            await run_epochs(state, load_algorithm(config.algorithm), records)
        except (Halted, Stopped) as why:
            # A stop is a result: what is finished stays, and `resume` continues from it.
            stopped = str(why)
        finally:
            await state.close()
        # The summary exists only for a training that reached its end, so a stopped one is resumable.
        return TrainingResult(
            path=folder.path,
            records=tuple(records),
            summary=_finish(state, records) if stopped is None else None,
            stopped=stopped,
            spent=state.spent,
        )


def _is_measured(state: LoopState, number: int) -> bool:
    return state.source is None and state.config.method.is_measured(number)


async def run_epochs(state: LoopState, algorithm: Algorithm, records: list[EpochRecord]) -> None:
    """Train until the last epoch, or until patience is over; `records` grows as epochs end.

    Raises:
        Halted: it stopped before its end and can be resumed.
        UsageError, RunError: as the phases of an epoch; finished parts stay.
    """
    policy = state.first
    records.append(await measure_start(state, policy))
    # Asked before every epoch, not after: a resumed training stops where an uninterrupted one would have.
    for number in range(1, state.config.method.epochs + 1):
        if is_patience_over(records, state.config.method.patience):
            return
        if state.source is not None and not state.source.get_epoch(number).record.exists():
            return
        state.progress.begin(number)
        records.append(await run_epoch(state, algorithm, number, policy))
        if state.source is not None:
            check_replayed(state, number, records[-1])
        # Read back from disk even when just trained: a resumed epoch must start from the same bytes.
        policy = load_policy(state.folder, state.config, number)


async def run_epoch(state: LoopState, algorithm: Algorithm, number: int, policy: Policy) -> EpochRecord:
    """Collect, label, learn and evaluate, from wherever the epoch stands.

    `epoch.json` is written last; an epoch that has it is never opened again.

    Args:
        number: from 1.
        policy: of the epoch before.
    """
    folder = state.folder.get_epoch(number)
    # An epoch is skipped by its record alone; everything before it is resumed by the phases themselves.
    if folder.record.exists():
        return read_closed(state, folder)
    count_earlier(state, algorithm, folder)
    progress = state.progress

    # Collect: play, or open what was recorded before.
    async with collect(state, algorithm, number, policy) as collected:
        played = collect_play_facts([one.run for one in collected.rollouts], collected.trajectories, collected.report)
        if not state.config.is_played(number):
            played["recorded"] = [place_within(state.folder.path, str(one.path)) for one in collected.rollouts]
        # Progress is updated after each phase, so a viewer sees an epoch grow before its record exists.
        progress.update(**played)

        # Label. Labels lie beside each run and are never made twice.
        found = await algorithm.labeller.label(state, collected.rollouts)
        labelled = list(zip(collected.rollouts, found, strict=True))
        labels = join_labels(found)
        progress.update(metrics=dict(labels.metrics))

        # Learn: every policy on its own examples.
        learner = algorithm.learner
        if state.config.is_played(number) and not state.config.method.is_continuous and len(labelled) == 1:
            update = await learner.update(state, *labelled[0], policy)
        else:
            assert isinstance(learner, RecordedLearner), "its algorithm learns from several runs"
            update = await learner.update_from_recorded(state, labelled, policy)
        policy = update_policy(state, number, policy, update.trained)

        # Evaluate the new policy before closing, so that best-epoch selection never misses a measurement.
        measured = await measure(state, policy, folder) if _is_measured(state, number) else NOT_MEASURED
        return close_epoch(state, folder, policy, played, number, collected, labels, update, measured)


def _finish(state: LoopState, records: list[EpochRecord]) -> Summary:
    """Write the summary into `training.json`."""
    last = records[-1].epoch
    summary = Summary(
        best=find_best_epoch(records),
        epochs=last,
        stopped_early=last < state.config.method.epochs,
        # Over all epochs from the base weights on: equal hashes mean equal trainings, killed or not.
        hash=hash_training(state.folder.read()["base"], {record.epoch: record.hash for record in records}),
    )
    state.folder.write({**state.folder.read(), "summary": summary.model_dump()})
    return summary


def _check_prompts(config: TrainingConfig, folder: TrainingDir, library: Library) -> None:
    """Refuse a training whose prompts in the library have changed."""
    changed = find_changed_prompt(config.run, library)
    if changed is not None:
        raise UsageError(
            f"{folder.path}: prompts/{changed} has changed since the training began; restore it, or train anew"
        )
