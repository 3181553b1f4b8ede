"""Train the policies of a team on the examples of an epoch: one ordinary fine-tuning run each, begun or resumed.

`TrainingFailure` and `StoreFailure` (a full disk) are fine-tuning's own; its checkpoints keep the progress. A policy
whose loss is NaN, or that has no example, keeps its weights. A divergence is noted beside the run's metrics, so that no
resume repeats it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collab.data.tokenize import NothingFits
from collab.errors import Diverged, RunFormatError
from collab.loop.policy import Policy, get_template
from collab.loop.record import EpochDir, Trained
from collab.loop.state import Halted, LoopState
from collab.models.checkpoint_card import hash_weights
from collab.seeds import derive
from collab.trainers.launch import launch
from collab.trainers.prepare import FinetuneTask, Prepared, read_task
from collab.trainers.recipe import Recipe, Stage
from collab.trainers.run import Result, begin, check_same, train
from collab.trainers.run_dir import FinetuneDir
from collab.utils.concurrency import run_in_background
from collab.utils.files import place_within, read_json, report_write_errors, write_json

NO_NUMBER = "what it learned was no number any more"
_LOST = "untrained.json"
"""In the directory of a fine-tuning run: why its result is discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finetuning:
    """Settings of an algorithm's training of policies."""

    nothing: str
    """Why a policy without examples keeps its weights."""
    has_examples: Callable[[str], bool]
    """Takes a policy's name; returns whether it has examples."""
    prepare: Callable[[str], Prepared]
    """Takes a policy's name and returns its fine-tuning, tokenised and ordered; raises `NothingFits`."""
    measure: Callable[[Sequence[Mapping[str, Any]]], dict[str, float | None]] = lambda lines: {}
    """Takes the logged lines of a run that is over and returns the algorithm's own metrics of it."""


async def finetune(state: LoopState, number: int, how: Finetuning) -> tuple[dict[str, Trained], dict[str, str]]:
    """Train every policy of a team on its examples of an epoch.

    Returns:
        By policy, the result; and by policy that keeps its weights, the reason.

    Raises:
        Halted: stopped with a checkpoint.
        ConfigError: examples, base and recipe do not fit together.
        RunFormatError: a policy's notes cannot be read, or its last checkpoint is damaged.
        TrainingFailure, StoreFailure: see `collab.trainers.run.train`.
    """
    epoch, recipe = state.folder.get_epoch(number), state.config.method.RECIPE
    trained: dict[str, Trained] = {}
    untrained: dict[str, str] = {}
    # Timed as a whole only when nothing was trained before, or a resumed part would look like all of it.
    with state.time_part("training", whole=not is_begun(epoch, state.config.groups)):
        # One policy after the other: each needs the device's memory for itself.
        for group in state.config.groups:
            try:
                if how.has_examples(group):
                    trained[group] = await _finetune(state, epoch, group, how)
                else:
                    untrained[group] = how.nothing
            except NothingFits as all_:
                # Not an error of the training: this policy keeps its weights, and the record says why.
                untrained[group] = (
                    f"{how.nothing}: none of {all_.many} fits into {recipe}.context={all_.context}, "
                    f"the longest has {all_.longest} tokens"
                )
            except Diverged as lost:
                # NaN would destroy the policy; the epoch continues with the weights it had.
                untrained[group] = (
                    f"{NO_NUMBER} ({lost.what}); a lower {recipe}.learning_rate, in another training, may mend that"
                )
            # After each policy, so that a viewer sees which one is being trained.
            state.progress.update(trained=dict(trained), untrained=dict(untrained))
    return trained, untrained


def is_begun(epoch: EpochDir, groups: Iterable[str]) -> bool:
    """Return whether a policy is trained already, or in part."""
    return any(FinetuneDir(epoch.get_training_dir(group)).file.exists() for group in groups)


def clear_checkpoints(epoch: EpochDir, groups: Iterable[str]) -> None:
    """Remove the optimizer states of an epoch that is over; the results stay."""
    for group in groups:
        shutil.rmtree(epoch.get_training_dir(group) / "checkpoints", ignore_errors=True)


def build_task(state: LoopState, number: int, group: str, policy: Policy, recipe: Recipe, stage: Stage) -> FinetuneTask:
    """Return the fine-tuning of a policy in an epoch, from its current weights.

    Args:
        recipe: without the fields that its agents decide.
    """
    config = state.config
    slots = config.groups[group]
    recipe = recipe.model_copy(update=get_template(config.run.agents[slots[0]]))
    begun = FinetuneDir(state.folder.get_epoch(number).get_training_dir(group))
    if recipe.date is None and begun.file.exists():  # of a served agent: the day on which this began
        recipe = recipe.model_copy(update={"date": read_task(begun.read()).recipe.date})
    return FinetuneTask(
        stage=stage,
        base=policy.of(slots),
        preset=config.preset,
        recipe=recipe,
        seed=derive(config.run.seed, "training", number, group),
        data=(str((state.folder.get_epoch(number).examples / group).resolve()),),
        adapter=policy.get_adapter(slots),
    )


# ------------------------------------------------------------------------------------------------------ inside


async def _finetune(state: LoopState, epoch: EpochDir, group: str, how: Finetuning) -> Trained:
    place = epoch.get_training_dir(group)
    folder = FinetuneDir(place, state.folder.resume)
    if not folder.final.is_dir():
        _check_not_lost(folder)
        state.begin("training")
        folder.clear_unbegun()
        await state.close_suite()  # no browser or phone is kept waiting while weights are trained
        # A thread of its own: the event loop keeps running, prints progress and notices a request to stop.
        await run_in_background(_train, state, folder, group, how)
    return _read_trained(state, folder, how)


def _train(state: LoopState, folder: FinetuneDir, group: str, how: Finetuning) -> None:
    prepared = how.prepare(group)
    # A run that was begun is continued only with the same data, order and base.
    if folder.file.exists():
        check_same(prepared, folder.read())
    else:
        folder = begin(prepared, folder.path, state.folder.resume)
    try:
        result = _run(prepared, folder, state)
    except Diverged as lost:
        # Written down, so that a resume does not train into the same divergence again.
        with report_write_errors(folder.path, state.folder.resume):
            write_json(folder.path / _LOST, {"what": lost.what})
        raise
    # No final checkpoint without an error means that it was stopped.
    if result.final is None:
        why = state.explain_stop() or "stopped"
        raise Halted(f"{why}, after step {result.step} of {result.steps} of {folder.path}")


def _check_not_lost(folder: FinetuneDir) -> None:
    """Raise Diverged if an earlier process found that the run diverged."""
    path = folder.path / _LOST
    if path.exists():
        try:
            found = read_json(path, "")
        except RunFormatError as error:
            raise RunFormatError(f"{error}; remove it, and the policy is trained again") from None
        what = found.get("what") if isinstance(found, dict) else None
        raise Diverged(str(what or "at a step that is not known"))


def _run(prepared: Prepared, folder: FinetuneDir, state: LoopState) -> Result:
    """Train in this process, or in several; raises as they do."""
    # One process needs no launcher, and shows its progress without a file in between.
    if prepared.world == 1:
        return train(
            prepared,
            folder,
            watch=state.inner,
            stopping=state.is_stopping,
            device=state.device,
            report_to=state.reports,
        )
    return launch(
        prepared,
        folder,
        watch=state.inner,
        stopping=state.is_stopping,
        device=state.device,
        parallelism=state.config.method.parallelism,
        report_to=state.reports,
    )


def _read_trained(state: LoopState, folder: FinetuneDir, how: Finetuning) -> Trained:
    """Read the result of a finished run."""
    manifest, lines = folder.read(), folder.read_metrics()
    alarms = [line["alarm"] for line in lines if "alarm" in line]
    return Trained(
        # Relative to the training, which may be moved.
        checkpoint=place_within(state.folder.path, str(folder.final.resolve())),
        digest=hash_weights(folder.final),
        dropped=sum(manifest["data"]["dropped"].values()),
        steps=manifest["steps"],
        tokens=lines[-1]["tokens"],
        loss=lines[-1]["loss"],
        metrics=how.measure(lines),
        alarm=f"{alarms[-1]}; at {len(alarms)} of {len(lines)} logged steps" if alarms else None,
    )
