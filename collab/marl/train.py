"""What of an epoch is learned: one ordinary fine-tuning run per policy, begun or gone on with.

`TrainingFailure` and `StoreFailure` (a full disk) are fine-tuning's own; what was trained until then lies in its
checkpoints. A policy whose loss is no number any more stays what it was, as one without a pair does. That is noted
beside its metrics, so that it is trained once, whoever goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from collab.background import in_background
from collab.errors import Diverged, RunFormatError
from collab.learn.curve import chosen_gain, over_pairs
from collab.learn.data import read_data
from collab.learn.examples import NothingFits
from collab.learn.finetune import LOWER, Result, begin, check_same, train
from collab.learn.folder import RunFolder, write_json
from collab.learn.launch import launch
from collab.learn.prepare import Prepared, Task, prepare, task_of
from collab.learn.preset import DpoRecipe, Recipe, SftRecipe
from collab.learn.trajectories import prepare_trajectories
from collab.marl.config import Method
from collab.marl.layout import EpochFolder, clear_unbegun
from collab.marl.loop_state import Halted, Loop
from collab.marl.policy import Policy, first_policy, template_of, told
from collab.marl.row_store import own_rows, stored, trajectory_rows_of
from collab.marl.summary import Trained
from collab.models.layout import weights_digest
from collab.seeds import derive
from collab.store.files import read_json, writing

NO_PAIR, NO_REWARD = "no valid pair in this epoch", "no rewarded reply in this epoch"
NO_NUMBER = "what it learned was no number any more"
_LOST = "untrained.json"
"""In the directory of a fine-tuning run: why nothing is kept of it."""


async def learn(loop: Loop, number: int, policy: Policy) -> tuple[dict[str, Trained], dict[str, str]]:
    """Train every policy of a team on its rows of an epoch.

    Returns:
        By policy, what became of it, and why it stays what it was.

    Raises:
        Halted: stopped with a checkpoint.
        ConfigError: rows, base and recipe do not fit together.
        RunFormatError: what was noted of a policy cannot be read, or its last checkpoint is damaged.
        TrainingFailure, StoreFailure: see `collab.learn.finetune.train`.
    """
    epoch = loop.folder.epoch(number)
    trained: dict[str, Trained] = {}
    untrained: dict[str, str] = {}
    nothing = NO_REWARD if loop.config.method.objective == "rft" else NO_PAIR
    for group in loop.config.groups:
        try:
            if own_rows(loop.config, loop.folder, number, group).exists():
                trained[group] = await _learn(loop, epoch, number, group, policy)
            else:
                untrained[group] = nothing
        except NothingFits as all_:
            untrained[group] = (
                f"{nothing}: none of {all_.many} fits into dpo.context={all_.context}, "
                f"the longest has {all_.longest} tokens"
            )
        except Diverged as lost:
            untrained[group] = (
                f"{NO_NUMBER} ({lost.what}); a lower dpo.learning_rate, in another training, may mend that"
            )
        loop.progress.tell(trained=dict(trained), untrained=dict(untrained))
    return trained, untrained


def is_begun(epoch: EpochFolder, groups: Iterable[str]) -> bool:
    """Whether some policy is trained already, or in part."""
    return any(RunFolder(epoch.training(group)).manifest_path.exists() for group in groups)


def clear_checkpoints(epoch: EpochFolder, groups: Iterable[str]) -> None:
    """Of an epoch that is over, remove the states of optimizers, which nobody needs any more; the results stay."""
    for group in groups:
        shutil.rmtree(epoch.training(group) / "checkpoints", ignore_errors=True)


async def _learn(loop: Loop, epoch: EpochFolder, number: int, group: str, policy: Policy) -> Trained:
    place = epoch.training(group)
    folder = RunFolder(place, loop.folder.resume)
    if not folder.final.is_dir():
        _check_not_lost(folder)
        loop.begin("training")
        clear_unbegun(place, folder.manifest_path.name)
        # A thread of its own: the loop of events goes on, shows how far it is, and hears who wants it to stop.
        await in_background(_train, loop, folder, number, group, policy)
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
    recipe = recipe.model_copy(update=template_of(config.run.agents[slots[0]]))
    begun = RunFolder(loop.folder.epoch(number).training(group))
    if recipe.date is None and begun.manifest_path.exists():  # of a served agent: the day on which this began
        recipe = recipe.model_copy(update={"date": task_of(begun.manifest()).recipe.date})
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
        folder = begin(prepared, folder.path, loop.folder.resume)
    try:
        result = _run(prepared, folder, loop)
    except Diverged as lost:
        with writing(folder.path, loop.folder.resume):
            write_json(folder.path / _LOST, {"what": lost.what})
        raise
    if result.final is None:
        why = loop.why_stopping() or "stopped"
        raise Halted(f"{why}, after step {result.step} of {result.steps} of {folder.path}")


def _check_not_lost(folder: RunFolder) -> None:
    """Diverged where a process before this one found that nothing can be kept of a run."""
    path = folder.path / _LOST
    if path.exists():
        try:
            found = read_json(path, "")
        except RunFormatError as error:
            raise RunFormatError(f"{error}; remove it, and the policy is trained again") from None
        what = found.get("what") if isinstance(found, dict) else None
        raise Diverged(str(what or "at a step that is not known"), LOWER)


def _run(prepared: Prepared, folder: RunFolder, loop: Loop) -> Result:
    """Train here, or by others; raises as they do."""
    if prepared.world == 1:
        return train(
            prepared, folder, watch=loop.inner, stopping=loop.stopping, device=loop.device, report_to=loop.reports
        )
    return launch(
        prepared,
        folder,
        watch=loop.inner,
        stopping=loop.stopping,
        device=loop.device,
        parallelism=loop.config.method.parallelism,
        report_to=loop.reports,
    )


def _trained(loop: Loop, folder: RunFolder) -> Trained:
    """What a finished run tells of itself."""
    manifest, lines = folder.manifest(), folder.read_metrics()
    alarms = [line["alarm"] for line in lines if "alarm" in line]
    return Trained(
        checkpoint=told(loop.folder.path, str(folder.final.resolve())),
        digest=weights_digest(folder.final),
        dropped=sum(manifest["data"]["dropped"].values()),
        steps=manifest["steps"],
        tokens=lines[-1]["tokens"],
        loss=lines[-1]["loss"],
        margin=over_pairs(lines, "margin"),
        accuracy=over_pairs(lines, "preference_accuracy"),
        logp_chosen=over_pairs(lines, "logp_chosen"),
        logp_chosen_first=over_pairs(lines, "logp_chosen", first=True),
        chosen_gain=chosen_gain(lines, loop.config.method.dpo.beta),
        alarm=f"{alarms[-1]}; at {len(alarms)} of {len(lines)} logged steps" if alarms else None,
    )
