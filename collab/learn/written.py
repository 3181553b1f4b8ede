"""TRL's trainers, taught three things: to follow a written order, to save whole checkpoints, to say nothing to anyone.

TRL 1.16 chooses batches itself, writes checkpoints in place, draws a model card at each of them and sends usage data;
everything else (losses, references, adapters, schedules, several processes) is TRL's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import DataLoader
from transformers import Trainer
from trl import DPOTrainer, SFTTrainer

from collab.learn.batches import at
from collab.learn.folder import RunFolder, saving
from collab.learn.muon import MuonAdamW
from collab.learn.norms import check_scales, final_gain, keep_direction, set_apart
from collab.learn.pair_means import PairMeans
from collab.learn.preset import Recipe
from collab.learn.reading import read
from collab.learn.shared_dpo import PASSES, ByPairs, SharedPrefixDPOTrainer
from collab.learn.trajectory_dpo import TrajectoryDPOTrainer
from collab.learn.watch import check_weights


class Written:
    """The part of all trainers that is ours."""

    steps: Sequence[Sequence[tuple[int, ...]]] = ()
    """Of each step, the forward passes of this process."""
    folder: RunFolder
    keep: int = 1
    recipe: Recipe

    def create_optimizer(self: Any, model: Any = None) -> Any:
        """Transformers' own AdamW, or Muon with the same settings; the last norm at a rate of its own if so asked."""
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
            # The trainer beside which this class is mixed in has it; a checker sees this class alone.
            optimizer = super().create_optimizer(model)  # type: ignore[misc]
            if self.recipe.final_norm_learning_rate is not None:
                gain = final_gain(trained)
                check_scales(trained, gain)
                set_apart(gain, optimizer, self.recipe.final_norm_learning_rate)
                keep_direction(gain, optimizer)
        return self.optimizer

    def get_train_dataloader(self: Any) -> Any:
        """The written order, whole; `Trainer` itself skips what a resumed run has behind it."""
        batches = [part for parts in self.steps for part in parts]
        return DataLoader(self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator)

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        """All processes write into the temporary folder; the first one renames it when all are done.

        The last step is saved, too, so that no result is written of weights that are lost (`Diverged`).
        """
        check_weights(self.state.global_step, self.model, self.accelerator)
        with saving(self.folder.path, self.folder.resume):
            Trainer._save_checkpoint(self, model, trial)  # not TRL's, which adds a model card
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                self.folder.keep_checkpoint(self.state.global_step, self.keep)
        self.accelerator.wait_for_everyone()

    def _send_telemetry(self) -> None:
        """Nothing leaves the machine."""


class WrittenSft(Written, SFTTrainer):  # type: ignore[misc]
    """Next-token loss in a written order."""

    prompt_weight: float = 0.0

    def compute_loss(self, model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> Any:
        """TRL's, on replies; where prompts are scored, too, ours with TRL's metrics."""
        if not self.prompt_weight:
            return super().compute_loss(model, inputs, *rest, **named)
        replies = inputs.pop("replies")
        found = read(model(**inputs, use_cache=False, fused_lm_head=True), replies, self.prompt_weight)
        self._total_train_tokens += int(self.accelerator.reduce(inputs["attention_mask"].sum()).item())
        metrics = self._metrics["train"]
        metrics["num_tokens"] = [self._total_train_tokens]
        metrics["mean_token_accuracy"].append(found.accuracy)
        metrics["entropy"].append(found.entropy)
        metrics["prompt_loss"].append(found.prompt_loss)
        return found.loss / self.current_gradient_accumulation_steps


class Tokenised(Written):
    """Of trainers whose data are token ids already."""

    def _prepare_dataset(self, dataset: Any, *rest: Any) -> Any:
        """TRL would tokenise texts."""
        return dataset


class WholeSteps(Tokenised):
    """Of trainers whose batch is a whole step with all its forward passes."""

    collate: Callable[[Sequence[Sequence[tuple[int, ...]]]], dict[str, Any]]
    """Makes a batch of a list with one step."""

    def get_train_dataloader(self) -> Any:
        """The written order, one step after the other."""
        return DataLoader(list(self.steps), batch_size=1, collate_fn=self.collate)  # type: ignore[arg-type]


class WrittenDpo(PairMeans, ByPairs, Tokenised, DPOTrainer):  # type: ignore[misc]
    """Preferences in a written order, as they were tokenised here."""


class WrittenSharedDpo(PairMeans, WholeSteps, SharedPrefixDPOTrainer):
    """The same, what pairs of a forward pass share computed once; a step has as many passes as its states need."""

    def collate(self, found: Sequence[Sequence[tuple[int, ...]]]) -> dict[str, Any]:
        """The forward passes of a step."""
        (parts,) = found
        return {PASSES: [self.data_collator(at(part)) for part in parts]}


class WrittenTrajectoryDpo(WholeSteps, TrajectoryDPOTrainer):
    """Whole trajectories in a written order."""
