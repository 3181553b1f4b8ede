"""What of an epoch is learned: one ordinary fine-tuning run per policy, begun or gone on with.

Both `TrainingFailure` (a loss that is no number) and `StoreFailure` (a full disk) are fine-tuning's own; what was
trained until then lies in its checkpoints.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from collab.learn.data import read_data
from collab.learn.finetune import begin, check_same, train
from collab.learn.folder import RunFolder
from collab.learn.launch import launch
from collab.learn.prepare import Prepared, Task, prepare
from collab.learn.steps import fitted
from collab.marl.layout import EpochFolder, clear_unbegun
from collab.marl.loop_state import Halted, Loop
from collab.marl.policy import Policy, first_policy, told
from collab.marl.rows import OWN
from collab.marl.summary import Trained
from collab.models.layout import weights_digest
from collab.seeds import derive

NO_PAIR = "no valid pair in this epoch"


async def learn(loop: Loop, number: int, policy: Policy) -> tuple[dict[str, Trained], dict[str, str]]:
    """Train every policy of a team on its rows of an epoch.

    Returns:
        By policy, what became of it, and why it stays what it was.

    Raises:
        Halted: stopped with a checkpoint.
        ConfigError: rows, base and recipe do not fit together.
        TrainingFailure, StoreFailure: see `collab.learn.finetune.train`.
    """
    epoch = loop.folder.epoch(number)
    trained: dict[str, Trained] = {}
    untrained: dict[str, str] = {}
    for group in loop.config.groups:
        if (epoch.rows / group / OWN).exists():
            trained[group] = await _learn(loop, epoch, number, group, policy)
        else:
            untrained[group] = NO_PAIR
    return trained, untrained


def clear_checkpoints(epoch: EpochFolder, groups: Iterable[str]) -> None:
    """Remove the states of optimizers that nobody needs any more; the results stay."""
    for group in groups:
        if (epoch.training(group) / "final").is_dir():
            shutil.rmtree(epoch.training(group) / "checkpoints", ignore_errors=True)


async def _learn(loop: Loop, epoch: EpochFolder, number: int, group: str, policy: Policy) -> Trained:
    place = epoch.training(group)
    folder = RunFolder(place)
    if not folder.final.is_dir():
        loop.begin("training")
        clear_unbegun(place, folder.manifest_path.name)
        # A thread of its own: the loop of events goes on, shows how far it is, and hears who wants it to stop.
        await asyncio.to_thread(_train, loop, folder, _task(loop, epoch, number, group, policy))
    return _trained(loop, folder)


def _task(loop: Loop, epoch: EpochFolder, number: int, group: str, policy: Policy) -> Task:
    """What to train: from the policy as it is, against the reference that the method names."""
    config = loop.config
    slots = config.groups[group]
    base, first = policy.of(slots), first_policy(config.run, config.method).of(slots)
    return Task(
        stage="dpo",
        base=base,
        preset=config.preset,
        recipe=config.method.dpo,
        seed=derive(config.run.seed, "training", number, group),
        data=(str((epoch.rows / group).resolve()),),
        reference=first if config.method.reference == "initial" and first != base else None,
    )


def _train(loop: Loop, folder: RunFolder, task: Task) -> None:
    prepared = _prepared(task, loop.config.method.processes)
    if folder.manifest_path.exists():
        check_same(prepared, folder.manifest())
    else:
        folder = begin(prepared, folder.path)
    run = train if prepared.world == 1 else launch
    result = run(prepared, folder, watch=loop.inner, stopping=loop.stopping, device=loop.device)
    if result.final is None:
        raise Halted(f"stopped after step {result.step} of {result.steps} of {folder.path}")


def _prepared(task: Task, processes: int) -> Prepared:
    """Rows tokenised and ordered; few rows make one smaller step, which the manifest tells."""
    rows = read_data([Path(folder) for folder in task.data], ("preference",)).rows
    recipe, processes = fitted(task.recipe, len(rows), processes)
    return prepare(replace(task, recipe=recipe), rows, processes=processes)


def _trained(loop: Loop, folder: RunFolder) -> Trained:
    """What a finished run tells of itself."""
    manifest, lines = folder.manifest(), folder.read_metrics()
    first, last = lines[0], lines[-1]
    alarms = [line["alarm"] for line in lines if "alarm" in line]
    return Trained(
        checkpoint=told(loop.folder.path, str(folder.final.resolve())),
        digest=weights_digest(folder.final),
        dropped=sum(manifest["data"]["dropped"].values()),
        steps=manifest["steps"],
        tokens=last["tokens"],
        loss=last["loss"],
        margin=last["margin"],
        accuracy=last["preference_accuracy"],
        logp_chosen=last["logp_chosen"],
        logp_chosen_first=first["logp_chosen"],
        alarm=alarms[-1] if alarms else None,
    )
