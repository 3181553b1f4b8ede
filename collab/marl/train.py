"""What of an epoch is learned: one ordinary fine-tuning run per policy, begun or gone on with.

`TrainingFailure` and `StoreFailure` (a full disk) are fine-tuning's own, but for what to do about a loss that is no
number; what was trained until then lies in its checkpoints.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Iterable

from collab.errors import Diverged
from collab.learn.curve import chosen_gain, over_pairs
from collab.learn.data import read_data
from collab.learn.examples import NothingFits
from collab.learn.finetune import Result, begin, check_same, train
from collab.learn.folder import RunFolder
from collab.learn.launch import launch
from collab.learn.prepare import Prepared, Task, prepare
from collab.learn.preset import DpoRecipe, Recipe, SftRecipe
from collab.learn.trajectories import prepare_trajectories
from collab.marl.config import Method
from collab.marl.layout import EpochFolder, clear_unbegun
from collab.marl.loop_state import Halted, Loop
from collab.marl.policy import Policy, first_policy, told
from collab.marl.row_store import own_rows, stored, trajectory_rows_of
from collab.marl.summary import Trained
from collab.models.layout import weights_digest
from collab.seeds import derive

NO_PAIR, NO_REWARD = "no valid pair in this epoch", "no rewarded reply in this epoch"


async def learn(loop: Loop, number: int, policy: Policy) -> tuple[dict[str, Trained], dict[str, str]]:
    """Train every policy of a team on its rows of an epoch.

    Returns:
        By policy, what became of it, and why it stays what it was.

    Raises:
        Halted: stopped with a checkpoint.
        ConfigError: rows, base and recipe do not fit together.
        Diverged: a loss or gradient is no longer a number; says how to begin anew from the epoch before.
        TrainingFailure, StoreFailure: see `collab.learn.finetune.train`.
    """
    epoch = loop.folder.epoch(number)
    trained: dict[str, Trained] = {}
    untrained: dict[str, str] = {}
    nothing = NO_REWARD if loop.config.method.objective == "rft" else NO_PAIR
    for group in loop.config.groups:
        if not own_rows(loop.config, loop.folder, number, group).exists():
            untrained[group] = nothing
            continue
        try:
            trained[group] = await _learn(loop, epoch, number, group, policy)
        except NothingFits as all_:
            untrained[group] = (
                f"{nothing}: none of {all_.many} fits into dpo.context={all_.context}, "
                f"the longest has {all_.longest} tokens"
            )
    return trained, untrained


def is_begun(epoch: EpochFolder, groups: Iterable[str]) -> bool:
    """Whether some policy is trained already, or in part."""
    return any(RunFolder(epoch.training(group)).manifest_path.exists() for group in groups)


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
        await asyncio.to_thread(_train, loop, folder, number, group, policy)
    return _trained(loop, folder)


def _prepared(loop: Loop, number: int, group: str, policy: Policy) -> Prepared:
    """What to train: from the policy as it is, rows tokenised and ordered, against what the objective names.

    Few rows make one smaller step, which the manifest tells.

    Raises:
        NothingFits: all are longer than the context.
    """
    epoch, method = loop.folder.epoch(number), loop.config.method
    folder, dpo = epoch.rows / group, recipe_of(method, number)
    if method.objective == "trajectory-dpo":
        counts = (stored(epoch.rows) or {})[group]
        pairs = trajectory_rows_of(own_rows(loop.config, loop.folder, number, group), counts.replies)
        return prepare_trajectories(_task(loop, number, group, policy, dpo), pairs)
    rows = read_data([folder], ("demonstration" if method.objective == "rft" else "preference",)).rows
    recipe = rewarded_recipe(dpo) if method.objective == "rft" else dpo
    return prepare(_task(loop, number, group, policy, recipe), rows, processes=method.processes, fits=True)


def recipe_of(method: Method, number: int) -> DpoRecipe:
    """The recipe of an epoch, from 1: its rates are `rate_decay` times those of the epoch before."""
    factor = method.rate_decay ** (number - 1)
    last = method.dpo.final_norm_learning_rate
    rates = {
        "learning_rate": method.dpo.learning_rate * factor,
        "final_norm_learning_rate": None if last is None else last * factor,
    }
    return method.dpo.model_copy(update=rates)


def rewarded_recipe(recipe: DpoRecipe) -> SftRecipe:
    """The same recipe without a comparison: rate, batches, passes, adapter and precision are those of DPO.

    What is left of its loss is what the anchor of DPO is, the mean −log p per token of good replies, with weight 1.
    """
    same = {name: getattr(recipe, name) for name in Recipe.model_fields}
    return SftRecipe(**same, levels=("demonstration",))


def _task(loop: Loop, number: int, group: str, policy: Policy, recipe: Recipe) -> Task:
    config = loop.config
    slots = config.groups[group]
    base, first = policy.of(slots), first_policy(config.run, config.method)
    compares = isinstance(recipe, DpoRecipe)
    initial = config.method.reference == "initial"
    with_adapter = (first if initial else policy).adapter_of(slots) if compares else None
    return Task(
        stage="dpo" if isinstance(recipe, DpoRecipe) else "sft",
        base=base,
        preset=config.preset,
        recipe=recipe,
        seed=derive(config.run.seed, "training", number, group),
        data=(str((loop.folder.epoch(number).rows / group).resolve()),),
        reference=first.of(slots) if compares and initial and first.of(slots) != base else None,
        adapter=policy.adapter_of(slots),
        reference_adapter=with_adapter,
    )


def _train(loop: Loop, folder: RunFolder, number: int, group: str, policy: Policy) -> None:
    prepared = _prepared(loop, number, group, policy)
    if folder.manifest_path.exists():
        check_same(prepared, folder.manifest())
    else:
        folder = begin(prepared, folder.path)
    try:
        result = _run(prepared, folder, loop)
    except Diverged as lost:
        raise Diverged(f"epoch {number}, {lost.what}", _anew(loop, number)) from None
    if result.final is None:
        raise Halted(f"stopped after step {result.step} of {result.steps} of {folder.path}")


def _run(prepared: Prepared, folder: RunFolder, loop: Loop) -> Result:
    """Train here, or by others; raises as they do."""
    if prepared.world == 1:
        return train(prepared, folder, watch=loop.inner, stopping=loop.stopping, device=loop.device)
    return launch(
        prepared,
        folder,
        watch=loop.inner,
        stopping=loop.stopping,
        device=loop.device,
        parallelism=loop.config.method.parallelism,
    )


def _anew(loop: Loop, number: int) -> str:
    """How to begin with what the epoch before left, and learn more slowly from there."""
    agents, recipe = shlex.quote(f"{loop.folder.path}@epoch{number - 1}"), recipe_of(loop.config.method, number)
    rates = f"--set dpo.learning_rate={recipe.learning_rate / 10:g}"
    if recipe.final_norm_learning_rate is not None:
        rates += f" --set dpo.final_norm_learning_rate={recipe.final_norm_learning_rate / 10:g}"
    return (
        f"begin another training with the policy of the epoch before and a lower rate: collab train-marl --agents "
        f"{agents} {rates}, with --out and the other options as before"
    )


def _trained(loop: Loop, folder: RunFolder) -> Trained:
    """What a finished run tells of itself."""
    manifest, lines = folder.manifest(), folder.read_metrics()
    last, logps = lines[-1], [line["logp_chosen"] for line in lines if "logp_chosen" in line]
    alarms = [line["alarm"] for line in lines if "alarm" in line]
    return Trained(
        checkpoint=told(loop.folder.path, str(folder.final.resolve())),
        digest=weights_digest(folder.final),
        dropped=sum(manifest["data"]["dropped"].values()),
        steps=manifest["steps"],
        tokens=last["tokens"],
        loss=last["loss"],
        margin=over_pairs(lines, "margin"),
        accuracy=over_pairs(lines, "preference_accuracy"),
        logp_chosen=logps[-1] if logps else None,
        logp_chosen_first=logps[0] if logps else None,
        chosen_gain=chosen_gain(lines, loop.config.method.dpo.beta),
        alarm=alarms[-1] if alarms else None,
    )
