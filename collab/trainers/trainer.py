"""Build the trainer of a run: TRL's, with its weights loaded and configured by a recipe.

Unlike TRL 1.16 it follows a fixed order, saves complete checkpoints without model cards, and sends no usage data.
Losses, references, adapters, schedules and several processes are TRL's.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from collab.data.tokenize import (
    EncodedExample,
    EncodedPair,
    collate_examples,
    collate_pairs,
    make_position_dataset,
    select,
)
from collab.errors import ConfigError
from collab.models.tokenizer import take_first_line
from collab.models.weights import build_empty
from collab.seeds import derive
from collab.trainers.base_model import load_tokenizer, load_weights, take_up
from collab.trainers.callbacks import PairMeans, check_weights
from collab.trainers.distributed import allow_fsdp, bound_caches, check_split, get_autocast
from collab.trainers.dpo import PASSES, ByPairs, SharedPrefixDPOTrainer, unwrap_model
from collab.trainers.optim import MuonAdamW
from collab.trainers.prefix_sharing import score_labels_only, temper
from collab.trainers.pretrain import compute_prompt_loss
from collab.trainers.recipe import DpoRecipe, Recipe, RLRecipe, SftRecipe
from collab.trainers.rl.policy_gradient import PolicyGradientTrainer, collate_turns
from collab.trainers.run_dir import FinetuneDir, report_save_errors
from collab.trainers.trajectory_dpo import TrajectoryDPOTrainer, collate_trajectories

if TYPE_CHECKING:
    from collab.trainers.prepare import Prepared


class FixedOrder:
    """The common mixin of our trainers."""

    steps: Sequence[Sequence[tuple[int, ...]]] = ()
    """This process's forward passes of each step."""
    folder: FinetuneDir
    keep: int = 1
    recipe: Recipe

    def create_optimizer(self: Any, model: Any = None) -> Any:
        """Build AdamW or Muon by the recipe."""
        if self.optimizer is not None:
            return self.optimizer
        trained = self.model if model is None else model
        if self.recipe.optimizer == "muon":
            self.optimizer = MuonAdamW(
                trained,
                lr=self.args.learning_rate,
                weight_decay=self.args.weight_decay,
                betas=(self.args.adam_beta1, self.args.adam_beta2),
            )
        else:
            # The type checker does not see the trainer that this class is mixed into.
            super().create_optimizer(model)  # type: ignore[misc]
        return self.optimizer

    def get_train_dataloader(self: Any) -> Any:
        """Return batches in the fixed order; `Trainer` skips those that a resumed run has done."""
        batches = [part for parts in self.steps for part in parts]
        return DataLoader(self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator)

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        """Save a checkpoint: all processes write into a temporary folder, then the first one renames it.

        The last step is saved too, so that diverged weights raise before a result is written.
        """
        check_weights(self.state.global_step, self.model, self.accelerator)
        with report_save_errors(self.folder.path, self.folder.resume):
            Trainer._save_checkpoint(self, model, trial)  # not TRL's, which adds a model card
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                self.folder.keep_checkpoint(self.state.global_step, self.keep)
        self.accelerator.wait_for_everyone()

    def _send_telemetry(self) -> None:
        """Send nothing."""


class FixedOrderSFTTrainer(FixedOrder, SFTTrainer):  # type: ignore[misc]
    """Next-token loss in a fixed order."""

    prompt_weight: float = 0.0

    def compute_loss(self, model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> Any:
        """Compute TRL's loss on replies, or our loss on replies and prompts with TRL's metrics."""
        if not self.prompt_weight:
            return super().compute_loss(model, inputs, *rest, **named)
        replies = inputs.pop("replies")
        found = compute_prompt_loss(model(**inputs, use_cache=False, fused_lm_head=True), replies, self.prompt_weight)
        self._total_train_tokens += int(self.accelerator.reduce(inputs["attention_mask"].sum()).item())
        metrics = self._metrics["train"]
        metrics["num_tokens"] = [self._total_train_tokens]
        metrics["mean_token_accuracy"].append(found.accuracy)
        metrics["entropy"].append(found.entropy)
        metrics["prompt_loss"].append(found.prompt_loss)
        return found.loss / self.current_gradient_accumulation_steps


class Tokenised(FixedOrder):
    """A mixin for trainers whose data are token ids."""

    def _prepare_dataset(self, dataset: Any, *rest: Any) -> Any:
        """Return the data unchanged; TRL would tokenise texts."""
        return dataset


class WholeSteps(Tokenised):
    """A mixin for trainers whose batch is a whole step with all its forward passes."""

    collate: Callable[[Sequence[Sequence[tuple[int, ...]]]], dict[str, Any]]
    """Builds a batch from a list with one step."""

    def get_train_dataloader(self) -> Any:
        """Return the steps in the fixed order."""
        return DataLoader(list(self.steps), batch_size=1, collate_fn=self.collate)  # type: ignore[arg-type]


class FixedOrderDPOTrainer(PairMeans, ByPairs, Tokenised, DPOTrainer):  # type: ignore[misc]
    """DPO in a fixed order on our token ids."""


class FixedOrderSharedPrefixDPOTrainer(PairMeans, WholeSteps, SharedPrefixDPOTrainer):
    """DPO that computes shared prefixes once; a step has as many passes as its states need."""

    def collate(self, found: Sequence[Sequence[tuple[int, ...]]]) -> dict[str, Any]:
        """Return the forward passes of a step."""
        (parts,) = found
        return {PASSES: [self.data_collator(select(part)) for part in parts]}


class FixedOrderTrajectoryDPOTrainer(WholeSteps, TrajectoryDPOTrainer):
    """DPO on whole trajectories in a fixed order."""


class FixedOrderPolicyGradientTrainer(WholeSteps, PolicyGradientTrainer):
    """Weighted log-likelihood of turns in a fixed order."""


FixedOrderTrainer: TypeAlias = (
    FixedOrderSFTTrainer
    | FixedOrderDPOTrainer
    | FixedOrderSharedPrefixDPOTrainer
    | FixedOrderTrajectoryDPOTrainer
    | FixedOrderPolicyGradientTrainer
)


def build_trainer(
    prepared: Prepared, folder: FinetuneDir, device: str, report_to: Sequence[str], **changes: Any
) -> FixedOrderTrainer:
    """Build the trainer of a run and load its weights.

    Args:
        device: "auto" takes a GPU when there is one, or "cpu".
        changes: fields of TRL's config that override the recipe's.

    Raises:
        ConfigError: the weights cannot be loaded, or the recipe shares prefixes and the model cannot.
        UsageError: the recipe does not support how the launcher splits the model.
    """
    task, recipe = prepared.task, prepared.task.recipe
    check_split(recipe)
    options = {
        **build_arguments(recipe),
        "output_dir": str(folder.partial),
        "gradient_accumulation_steps": (prepared.parts or 1) // prepared.world or 1,
        "per_device_train_batch_size": recipe.rows_at_once or recipe.batch_rows,
        "warmup_steps": round(recipe.warmup * len(prepared.steps)),
        "seed": derive(task.seed, "trainer"),
        "use_cpu": device == "cpu" or not torch.cuda.is_available(),
        "report_to": list(report_to) or "none",
        "project": "collab",
        "run_name": folder.path.name,
        "trackio_space_id": None,  # on this machine
        "trackio_static_space_id": False,
        **changes,
    }
    bound_caches()
    with _set_tensorboard(folder):
        trainer = _create_trainer(prepared, options)
    take_up(trainer.model, prepared.adapter, prepared.reference_adapter)
    return trainer


def _create_trainer(prepared: Prepared, options: Mapping[str, Any]) -> FixedOrderTrainer:
    recipe, base = prepared.task.recipe, prepared.base
    model = load_weights(base, recipe.weights, marks_replies=isinstance(recipe, RLRecipe))
    tokenizer = load_tokenizer(base)
    if isinstance(recipe, RLRecipe):
        return build_turn_trainer(model, tokenizer, prepared, recipe, options)
    temper(model, recipe.temperature)
    items: Sequence[Any] = prepared.encoded.items
    if not isinstance(recipe, DpoRecipe):
        return build_sft_trainer(model, tokenizer, items, recipe, options)
    with_base = recipe.lora is None or prepared.reference is not None  # else the base, its adapter off
    reference = load_weights(prepared.reference or base, recipe.weights) if with_base else None
    if reference is not None:
        temper(reference, recipe.temperature)
    if prepared.trajectories is not None:
        return build_trajectory_trainer(model, reference, tokenizer, prepared, recipe, options)
    return build_dpo_trainer(model, reference, tokenizer, items, recipe, options)


def build_sft_trainer(
    model: Any, tokenizer: Any, examples: Sequence[EncodedExample], recipe: Recipe, options: Mapping[str, Any]
) -> FixedOrderSFTTrainer:
    """Build a trainer of scored sequences; `options` are fields of TRL's config, see `build_arguments`."""
    weight = recipe.prompt_weight if isinstance(recipe, SftRecipe) else 0.0
    trainer = FixedOrderSFTTrainer(
        model=model,
        args=_build_sft_config(options),
        data_collator=collate_examples(examples, _get_padding(tokenizer), prompts=weight > 0),
        train_dataset=make_position_dataset(examples),
        processing_class=tokenizer,
        peft_config=build_adapter_config(model, recipe),
    )
    trainer.prompt_weight = weight
    score_labels_only(unwrap_model(trainer.model), get_autocast(trainer))
    trainer.recipe = recipe
    # TRL prints every log line; the watcher reports progress here.
    trainer.remove_callback(PrinterCallback)
    return trainer


def build_turn_trainer(
    model: Any, tokenizer: Any, prepared: Prepared, recipe: RLRecipe, options: Mapping[str, Any]
) -> FixedOrderPolicyGradientTrainer:
    """Build a trainer of turns, each with the temperature that it was sampled at; arguments as `build_dpo_trainer`."""
    turns: Sequence[Any] = prepared.encoded.items
    trainer = FixedOrderPolicyGradientTrainer(
        model=model,
        args=_build_sft_config(options),
        train_dataset=make_position_dataset(turns),
        processing_class=tokenizer,
        peft_config=build_adapter_config(model, recipe),
    )
    trainer.collate = collate_turns(
        turns, _get_padding(tokenizer), sharing=recipe.sharing == "prefix", config=model.config
    )
    moments = prepared.task.moments
    trainer.begin(recipe, None if moments is None else Path(moments))
    trainer.recipe = recipe
    trainer.remove_callback(PrinterCallback)
    return trainer


def build_dpo_trainer(
    model: Any,
    reference: Any,
    tokenizer: Any,
    pairs: Sequence[EncodedPair],
    recipe: DpoRecipe,
    options: Mapping[str, Any],
) -> FixedOrderDPOTrainer | FixedOrderSharedPrefixDPOTrainer:
    """Build a trainer of preferences; a `reference` of None with LoRA is the base without adapter."""
    config = _build_dpo_config(recipe, options)
    kind = FixedOrderSharedPrefixDPOTrainer if recipe.sharing == "prefix" else FixedOrderDPOTrainer
    trainer = kind(
        model=model,
        ref_model=reference,
        args=config,
        data_collator=collate_pairs(pairs, _get_padding(tokenizer)),
        train_dataset=make_position_dataset(pairs),
        processing_class=tokenizer,
        peft_config=build_adapter_config(model, recipe),
    )
    if recipe.sharing == "none":
        score_labels_only(unwrap_model(trainer.model), get_autocast(trainer))
    if recipe.sharing == "none" and trainer.ref_model is not None:
        # TRL has already prepared the reference, so mixed precision must be enabled again.
        score_labels_only(unwrap_model(trainer.ref_model), trainer.accelerator.autocast)
    trainer.recipe = recipe
    trainer.remove_callback(PrinterCallback)
    return trainer


def build_trajectory_trainer(
    model: Any, reference: Any, tokenizer: Any, prepared: Prepared, recipe: DpoRecipe, options: Mapping[str, Any]
) -> FixedOrderTrajectoryDPOTrainer:
    """Build a trainer of preferences between whole trajectories; arguments as `build_dpo_trainer`."""
    items: Sequence[Any] = prepared.encoded.items
    trainer = FixedOrderTrajectoryDPOTrainer(
        model=model,
        ref_model=reference,
        args=_build_dpo_config(recipe, options),
        train_dataset=make_position_dataset(items),
        processing_class=tokenizer,
        peft_config=build_adapter_config(model, recipe),
    )
    trainer.collate = collate_trajectories(items, prepared.trajectories or (), _get_padding(tokenizer))
    # Only now: TRL's constructor has replaced the models' heads.
    trainer.score_as(recipe.sharing == "prefix", recipe.anchor)
    trainer.recipe = recipe
    trainer.remove_callback(PrinterCallback)
    return trainer


def _build_sft_config(options: Mapping[str, Any]) -> SFTConfig:
    config = SFTConfig(**options, max_length=None, dataset_kwargs={"skip_prepare_dataset": True}, shuffle_dataset=False)
    _as_said(config)
    return config


def _build_dpo_config(recipe: DpoRecipe, options: Mapping[str, Any]) -> DPOConfig:
    losses = ["sigmoid", "sft"] if recipe.anchor else ["sigmoid"]
    weights = [1.0, recipe.anchor][: len(losses)]
    config = DPOConfig(
        **options, max_length=None, beta=recipe.beta, disable_dropout=True, loss_type=losses, loss_weights=weights
    )
    _as_said(config)
    return config


def build_arguments(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as fields of transformers' training arguments; sets every field that matters."""
    return {
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": recipe.schedule if recipe.schedule != "constant" else "constant_with_warmup",
        "weight_decay": recipe.weight_decay,
        "adam_beta1": recipe.betas[0],
        "adam_beta2": recipe.betas[1],
        "max_grad_norm": recipe.max_grad_norm,
        "num_train_epochs": 1,  # the order holds all epochs
        "bf16": recipe.precision == "bfloat16",
        "gradient_checkpointing": recipe.checkpointing,
        "logging_steps": recipe.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "save_steps": recipe.save_every,
        "eval_strategy": "no",
        "disable_tqdm": True,
        "optim": "adamw_torch_fused",
    }


def _as_said(config: Any) -> None:
    """Set precision by the recipe, not the environment, and one GPU per process."""
    allow_fsdp(config)
    config.mixed_precision = "bf16" if config.bf16 else "no"
    config._n_gpu = min(config.n_gpu, 1)


@contextlib.contextmanager
def _set_tensorboard(folder: FinetuneDir) -> Iterator[None]:
    """Direct TensorBoard events into the run directory, unless the environment names another place."""
    name = "TENSORBOARD_LOGGING_DIR"
    if name in os.environ:
        yield
        return
    os.environ[name] = str(folder.path / "tensorboard")
    try:
        yield
    finally:
        del os.environ[name]


def _get_padding(tokenizer: Any) -> int:
    """Return the padding id; it is never scored or attended to."""
    padding = tokenizer.pad_token_id
    return int(tokenizer.eos_token_id if padding is None else padding)


def build_adapter_config(model: Any, recipe: Recipe) -> Any:
    """Return PEFT's configuration of the recipe's adapter; None for full weights.

    Raises:
        ConfigError: the model lacks a named module.
    """
    if recipe.lora is None:
        return None
    from peft import LoraConfig

    linear = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)}
    linear -= {"lm_head"}  # its weights are used directly, bypassing an adapter
    unknown = [] if recipe.lora.targets == "all-linear" else sorted(set(recipe.lora.targets) - linear)
    if unknown:
        raise ConfigError(
            f"lora.targets {', '.join(unknown)}: no linear layer inside the base; known: {', '.join(sorted(linear))}"
        )
    config = LoraConfig(
        r=recipe.lora.rank,
        lora_alpha=recipe.lora.alpha,
        lora_dropout=recipe.lora.dropout,
        target_modules=recipe.lora.targets,
        task_type="CAUSAL_LM",
    )
    _check_peft(model, config)
    return config


def _check_peft(model: Any, config: Any) -> None:
    """Check that PEFT supports this adapter for the model; ConfigError with PEFT's words."""
    from peft import get_peft_model

    try:
        get_peft_model(build_empty(model.config), copy.deepcopy(config))
    except ValueError as error:
        raise ConfigError(
            f"lora.targets: {take_first_line(error)}; name others, or train all weights (lora=null)"
        ) from error
