"""Train a policy on a lesson: each turn's log-likelihood, multiplied by its weight.

    loss = −1/N Σ_i w_i log π(a_i | x_i),   log π(a | x) = Σ_t log π(a_t | x, a_<t)

over the N turns of an optimizer step, or with `per_token` over the tokens of their replies (`losses.nll`). With weights
of 0 and 1 that is filtered imitation: Filtered BC, and the hard filter of DigiRL (Bai et al. 2024, eq. 2.2). With other
weights it is advantage-weighted regression. Weights carry no gradient.

A reply's tokens are scored as they were sampled: logits are divided by the temperature of the pass, and the end of the
turn counts only where the policy said it. A forward pass has one temperature.

All else is the trainer of fine-tuning: order, precision, adapters, checkpoints to resume from, metrics. Each epoch of a
training is a run of its own, so the optimizer's moments are handed on in a file (`write_moments`), which holds numbers
alone and no code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from trl import SFTTrainer

from collab.errors import RunFormatError, UsageError
from collab.trainers.dpo import PASSES, unwrap_model
from collab.trainers.prefix_sharing import score_labels_only, score_replies
from collab.trainers.rl.losses import nll
from collab.trainers.rl.turns import EncodedTurn

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""AdamW's state of a weight."""


class PolicyGradientTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer of scored sequences with the loss of this module.

    A batch is a whole step, as `collate_turns` makes it.
    """

    per_token: bool = False
    moments: Path | None = None
    """File with the moments that the optimizer begins with; None for none."""

    def begin(self, per_token: bool, moments: Path | None) -> None:
        """Decide, once, what is computed and from which moments; UsageError if the model is split over processes."""
        if self.is_deepspeed_enabled or self.is_fsdp_enabled or self.accelerator.num_processes > 1:
            raise UsageError("turns are trained by one process; start it without a launcher")
        self.per_token, self.moments = per_token, moments
        score_labels_only(unwrap_model(self.model), self.accelerator.autocast)

    def create_optimizer(self, model: Any = None) -> Any:
        """Build the optimizer with the moments that were handed on."""
        if self.optimizer is not None:
            return self.optimizer
        super().create_optimizer(model)
        if self.moments is not None:
            read_moments(self.moments, self.model, self.optimizer)
        return self.optimizer

    def write_moments(self, path: Path) -> None:
        """Write the moments that the next run's optimizer begins with."""
        write_moments(path, self.model, self.optimizer)

    def training_step(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        """Compute the gradient of a step, pass by pass."""
        model.train()
        passes = self._prepare_inputs(inputs)[PASSES]
        # Passes may differ in size: each adds its part of one mean over the step.
        total = float(sum(one["completion_mask"].sum() if self.per_token else len(one["weights"]) for one in passes))
        losses, logps, entropies = [], [], []
        for one in passes:
            output = score_replies(model, one)
            log_probs, mask = output.log_probs.float(), output.label_mask
            loss = nll(log_probs, mask, one["weights"], per_token=self.per_token, total=total)
            self.accelerator.backward(loss)
            losses.append(loss.detach())
            logps.append(log_probs.detach().sum(1))  # (rows,): log π(a|x)
            entropies.append(output.entropy[mask].detach())
        metrics = self._metrics["train"]
        metrics["logp"].append(torch.cat(logps).mean().item())
        metrics["entropy"].append(torch.cat(entropies).mean().item())
        return torch.stack(losses).sum()


def collate_turns(
    turns: Sequence[EncodedTurn], padding: int
) -> Callable[[Sequence[Sequence[Sequence[int]]]], dict[str, Any]]:
    """Return a function that makes a step into a batch.

    Args:
        turns: of the lesson.
        padding: id that fills rows up on the right.

    Returns:
        Function of a list with one step, its forward passes as positions of turns, to {PASSES: […]}; a pass has
        input_ids, attention_mask and completion_mask, (rows, longest), weights and temperature, (rows,).
    """

    def collate(found: Sequence[Sequence[Sequence[int]]]) -> dict[str, Any]:
        (step,) = found
        return {PASSES: [_collate_pass([turns[row] for row in rows], padding) for rows in step]}

    return collate


def _collate_pass(turns: Sequence[EncodedTurn], padding: int) -> dict[str, Tensor]:
    shape = (len(turns), max(map(len, turns)))  # (rows, longest)
    ids, mask, completion = (torch.full(shape, value) for value in (padding, 0, 0))
    for place, one in enumerate(turns):
        ids[place, : len(one)] = torch.from_numpy(one.ids)
        mask[place, : len(one)] = 1
        # Only the reply is scored; its prompt is read.
        completion[place, one.scored_from : len(one)] = 1
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "completion_mask": completion,
        "weights": torch.tensor([one.weight for one in turns]),
        "temperature": torch.tensor([one.temperature for one in turns]),
    }


# ------------------------------------------------------------------------------------------------------ moments


def write_moments(path: Path, model: Any, optimizer: Any) -> None:
    """Write the optimizer's moments of all trained weights, by the names of the weights."""
    state = _get_state(optimizer)
    names = _name_weights(model)
    found = {
        f"{names[weight]}.{moment}": values[moment].detach().float().cpu().contiguous()
        for weight, values in state.items()
        for moment in MOMENTS
        if moment in values
    }
    save_file(found, path)


def read_moments(path: Path, model: Any, optimizer: Any) -> None:
    """Give an optimizer the moments that `write_moments` wrote.

    Raises:
        RunFormatError: they cannot be read, or are of other weights.
    """
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunFormatError(f"{path}: the optimizer's moments cannot be read: {error}; train anew") from None
    names = _name_weights(model)
    wanted = {f"{name}.{moment}" for name in names.values() for moment in MOMENTS}
    if wanted != found.keys():
        other = sorted(wanted ^ found.keys())[0]
        raise RunFormatError(f"{path}: these are the optimizer's moments of other weights, {other} is in one of both")
    state = _get_state(optimizer)
    for weight, name in names.items():
        values = {moment: found[f"{name}.{moment}"].to(weight.device) for moment in MOMENTS}
        # torch's fused AdamW counts steps where the weight lies, the plain one on the processor; both take a float32.
        state[weight] = values


def _get_state(optimizer: Any) -> Any:
    """Return the state of torch's own optimizer, without accelerate's wrapper."""
    return getattr(optimizer, "optimizer", optimizer).state


def _name_weights(model: Any) -> dict[Any, str]:
    """Return trained weight → its name, each once."""
    return {weight: name for name, weight in model.named_parameters() if weight.requires_grad}
