"""Train a policy on a lesson: each turn's log-likelihood or clipped ratio, multiplied by its weight.

    likelihood   loss = −1/N Σ_i w_i log π(a_i | x_i),   log π(a | x) = Σ_t log π(a_t | x, a_<t)
    ppo-clip     loss = −1/N Σ_i min(ρ_i w_i, clip(ρ_i, 1 ± ε) w_i),   ρ = π / π_old
    importance   loss = −1/N Σ_i ρ̄_i w_i log π(a_i | x_i),   ρ̄ = min(1, π / μ) without a gradient

over the N turns of an optimizer step, or with `per_token` over the tokens of their replies (`losses.nll`,
`losses.ppo_clip`, `losses.policy_gradient`). With weights of 0 and 1, the first is filtered imitation: Filtered BC, and
the hard filter of DigiRL (Bai et al. 2024, eq. 2.2). With other weights it is advantage-weighted regression. Of the
second, the weight is an advantage, as PPO, GRPO and Android Coach compute it, each in its own way. Weights carry no
gradient. The third is DistRL's (eq. 1), for replies that older policies said: μ is what was recorded when a reply was
sampled. With `entropy_weight`, −β times the mean entropy over reply tokens is added to any of them
(`losses.entropy_bonus`).

π_old is the policy that a training begins with. Its log-probabilities are computed here, from its weights, before the
first step and again by a resumed process; they are not those that were recorded, which an engine of other precision may
have computed. How far both are apart is the metric `mismatch`.

With `sharing: prefix`, what the turns of a pass have in common is computed once
(`collab.trainers.prefix_sharing`), as the prompt of several replies to one state.

A reply's tokens are scored as they were sampled: logits are divided by the temperature of the pass, and the end of the
turn counts only where the policy said it. A forward pass has one temperature.

All else is the trainer of fine-tuning: order, precision, adapters, checkpoints to resume from, metrics. Each epoch of a
training is a run of its own, so the optimizer's moments are handed on in a file (`write_moments`), which holds numbers
alone and no code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from trl import SFTTrainer

from collab.errors import RunFormatError, UsageError
from collab.library import resolve_checkpoint
from collab.models.checkpoint import Checkpoint
from collab.models.tokenizer import open_chat
from collab.models.weights import PREFIX_FAMILIES
from collab.trainers.dpo import PASSES, unwrap_model
from collab.trainers.prefix_sharing import pack_batch, score_labels_only, score_replies, share
from collab.trainers.recipe import RLRecipe
from collab.trainers.rl.estimators import UNDERFLOW
from collab.trainers.rl.losses import entropy_bonus, nll, policy_gradient, ppo_clip
from collab.trainers.rl.turns import EncodedTurn, Turn

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""AdamW's state of a weight."""


class PolicyGradientTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer of scored sequences with the loss of this module.

    A batch is a whole step, as `collate_turns` makes it.
    """

    steps: Sequence[Sequence[tuple[int, ...]]]
    """Forward passes of each step, as positions of turns."""
    rl: RLRecipe
    """Recipe of the loss."""
    moments: Path | None = None
    """File with the moments that the optimizer begins with; None for none."""
    collate: Callable[[Sequence[Sequence[tuple[int, ...]]]], dict[str, Any]]
    """Function of `collate_turns`."""
    old: dict[int, Tensor]
    """Position of a turn → log π_old at each of its tokens but the first; empty for a loss without a ratio."""

    def begin(self, recipe: RLRecipe, moments: Path | None) -> None:
        """Decide, once, what is computed and from which moments; UsageError if the model is split over processes."""
        if self.is_deepspeed_enabled or self.is_fsdp_enabled or self.accelerator.num_processes > 1:
            raise UsageError("turns are trained by one process; start it without a launcher")
        self.rl, self.moments, self.old = recipe, moments, {}
        scored = share if recipe.sharing == "prefix" else score_labels_only
        scored(unwrap_model(self.model), self.accelerator.autocast)

    def train(self, *args: Any, **named: Any) -> Any:
        """Train as TRL does, having scored every turn by the policy as it is before any checkpoint is loaded."""
        if self.rl.loss == "ppo-clip":
            self._score_turns()
        return super().train(*args, **named)

    def _score_turns(self) -> None:
        """Compute log π_old of every turn, in the passes in which it is first learned."""
        self.model.eval()  # as it played: without dropout; every training step sets it back
        with torch.no_grad():
            for step in self.steps:
                if all(row in self.old for rows in step for row in rows):
                    continue  # a later pass over the same turns
                for one in self._prepare_inputs(self.collate([step]))[PASSES]:
                    lengths = one["attention_mask"].sum(1).tolist()
                    scored = score_replies(self.model, one).log_probs.float()
                    for row, length, found in zip(one["rows"].tolist(), lengths, scored, strict=True):
                        self.old.setdefault(row, found[: length - 1].clone())

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
        recipe = self.rl
        said = float(sum(one["completion_mask"].sum() for one in passes))
        total = said if recipe.per_token else float(sum(len(one["weights"]) for one in passes))
        losses, found = [], defaultdict[str, list[Tensor]](list)
        for one in passes:
            output = score_replies(model, one, entropy=recipe.entropy_weight > 0)
            log_probs, mask = output.log_probs.float(), output.label_mask
            if recipe.loss == "ppo-clip":
                old = self._pad_old(one["rows"], log_probs)
                loss = ppo_clip(
                    log_probs,
                    old,
                    one["weights"],
                    mask,
                    clip=recipe.clip,
                    level="token" if recipe.per_token else "reply",
                    total=total,
                )
                for name, values in measure_ratios(log_probs.detach(), old, mask, recipe).items():
                    found[name].append(values)
                found["mismatch"].append(measure_mismatch(old, one["behaviour"], mask))
            elif recipe.loss == "importance":
                ratios = compute_ratios(log_probs.detach(), one["behaviour"], mask)
                loss = policy_gradient(log_probs, mask, one["weights"], ratios, total=total)
                found["ratio"].append(ratios)
            else:
                loss = nll(log_probs, mask, one["weights"], per_token=recipe.per_token, total=total)
            if recipe.entropy_weight:
                loss = loss + entropy_bonus(output.entropy, mask, recipe.entropy_weight, total=said)
            self.accelerator.backward(loss)
            losses.append(loss.detach())
            found["logp"].append(log_probs.detach().sum(1))  # (rows,): log π(a|x)
            found["entropy"].append(output.entropy[mask].detach())
        for name, parts in found.items():
            # A server that tells no log-probabilities leaves no mismatch to tell.
            if (values := torch.cat(parts)).numel():
                self._metrics["train"][name].append(values.mean().item())
        return torch.stack(losses).sum()

    def _pad_old(self, rows: Tensor, like: Tensor) -> Tensor:
        """Return log π_old of a pass, (rows, tokens − 1), with 0 behind the end of each."""
        found = torch.zeros_like(like)
        for place, row in enumerate(rows.tolist()):
            one = self.old[row]
            found[place, : len(one)] = one
        return found.detach()


def compute_ratios(log_probs: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """Return ρ̄ = min(1, π / μ) of whole replies, (rows,); 0 below e^−80, and NaN where μ is not known.

    Args:
        log_probs, behaviour: log π and log μ of each reply token, (rows, C).
        mask: (rows, C), bool.
    """
    logs = torch.where(mask, log_probs - behaviour, 0.0).sum(1)
    return torch.where(logs < UNDERFLOW, 0.0, logs.clamp(max=0).exp())


def measure_ratios(log_probs: Tensor, old: Tensor, mask: Tensor, recipe: RLRecipe) -> dict[str, Tensor]:
    """Return what one looks at in a clipped ratio: `ratio` itself, and `clipped`, 1 where it has left 1 ± ε.

    Args:
        log_probs, old, mask: as for `ppo_clip`, (rows, C).

    Returns:
        One number per token or per reply, (n,), as the recipe takes its mean.
    """
    apart = torch.where(mask, log_probs - old, 0.0)
    ratio = (apart[mask] if recipe.per_token else apart.sum(1)).exp()
    return {"ratio": ratio, "clipped": ((ratio - 1).abs() > recipe.clip).float()}


def measure_mismatch(old: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """Return |log π_old − log μ| of each reply token whose log-probability was recorded, (n,).

    Args:
        old: log π_old, (rows, C).
        behaviour: log μ at the same places; NaN where it is unknown.
        mask: (rows, C), bool.
    """
    found = (old - behaviour)[mask]
    return found[~found.isnan()].abs()


def collate_turns(
    turns: Sequence[EncodedTurn], padding: int, sharing: bool = False, config: Any = None
) -> Callable[[Sequence[Sequence[Sequence[int]]]], dict[str, Any]]:
    """Return a function that makes a step into a batch.

    Args:
        turns: of the lesson.
        padding: id that fills rows up on the right.
        sharing: whether what turns of a pass have in common is computed once.
        config: transformers' configuration of the model; None for a model of text.

    Returns:
        Function of a list with one step, its forward passes as positions of turns, to {PASSES: […]}; a pass has
        input_ids, attention_mask and completion_mask, (rows, longest), behaviour, (rows, longest − 1) with NaN for what
        is unknown, and rows (positions of the turns), weights and temperature, (rows,); `packed` beside them with
        `sharing`, and the inputs of `show` of a model that sees.
    """

    def collate(found: Sequence[Sequence[Sequence[int]]]) -> dict[str, Any]:
        (step,) = found
        passes = [_collate_pass(rows, turns, padding, config) for rows in step]
        return {PASSES: [{**one, "packed": pack_batch(one)} for one in passes] if sharing else passes}

    return collate


def show(turns: Sequence[EncodedTurn], ids: Tensor, config: Any) -> dict[str, Tensor]:
    """Return inputs of a model that sees beside tokens: pictures of a pass, joined in the order of its rows, and kinds.

    PaliGemma attends in both directions within a prompt, pictures included, and only backwards within a reply: token
    types are 0 and 1. Qwen2-VL gives the tokens of a picture positions in a plane, so it must know which they are.

    Args:
        ids: (rows, longest).
        config: as of `collate_turns`.
    """
    pictures = [picture for turn in turns if turn.look is not None for picture in turn.look()]
    names = pictures[0].inputs if pictures else ()
    found = {name: torch.cat([one.inputs[name] for one in pictures]) for name in names}
    if config is not None and config.model_type in PREFIX_FAMILIES:
        starts = torch.tensor([one.scored_from for one in turns])[:, None]  # (rows, 1)
        return {**found, "token_type_ids": (torch.arange(ids.shape[1])[None] >= starts).long()}  # (rows, longest)
    return {**found, "mm_token_type_ids": (ids == config.image_token_id).int()} if pictures else {}


def _collate_pass(rows: Sequence[int], known: Sequence[EncodedTurn], padding: int, config: Any) -> dict[str, Tensor]:
    turns = [known[row] for row in rows]
    shape = (len(turns), max(map(len, turns)))  # (rows, longest)
    ids, mask, completion = (torch.full(shape, value) for value in (padding, 0, 0))
    behaviour = torch.full((shape[0], shape[1] - 1), torch.nan)
    for place, one in enumerate(turns):
        ids[place, : len(one)] = torch.from_numpy(one.ids)
        mask[place, : len(one)] = 1
        # Only the reply is scored; its prompt is read.
        completion[place, one.scored_from : len(one)] = 1
        if one.behaviour is not None:
            behaviour[place, one.scored_from - 1 : len(one) - 1] = torch.from_numpy(one.behaviour)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "completion_mask": completion,
        "behaviour": behaviour,
        "rows": torch.tensor(rows),
        "weights": torch.tensor([one.weight for one in turns]),
        "temperature": torch.tensor([one.temperature for one in turns]),
        **show(turns, ids, config),
    }


# ------------------------------------------------------------------------------------------------------- scores


class PolicyScorer:
    """A policy that tells how likely recorded replies are to it, and how sure it is of them; it is not trained.

    Each reply is computed by itself, so that its numbers do not depend on what is scored beside it.
    """

    def __init__(self, path: str, adapter: str | None, device: str) -> None:
        """Load the weights.

        Args:
            path: directory of a checkpoint, or "built-in:NAME".
            adapter: directory of a LoRA adapter over it; None for none.
            device: "auto" (a GPU when there is one) or "cpu".

        Raises:
            ConfigError: the weights cannot be loaded.
        """
        self._checkpoint = Checkpoint(open_chat(resolve_checkpoint(path)), device=device, dtype="float32")
        if adapter is not None:
            self._checkpoint.add_adapter("policy", adapter)
            self._checkpoint.use("policy")

    @torch.inference_mode()
    def score(self, turn: Turn) -> tuple[float, float]:
        """Return Σ log π over a reply's tokens, and the mean entropy over the vocabulary at each, in nats."""
        ids = np.concatenate((turn.prompt, turn.reply)).astype(np.int64)
        wanted = torch.from_numpy(turn.reply.astype(np.int64)).to(self._checkpoint.device)  # (C,)
        output = self._checkpoint.model(
            input_ids=torch.from_numpy(ids)[None].to(self._checkpoint.device),
            use_cache=False,
            logits_to_keep=len(wanted) + 1,
        )
        # The logits at a token are of the next one: the last prompt token's to the last but one's, (C, vocabulary).
        logps = (output.logits[0, -len(wanted) - 1 : -1].float() / turn.temperature).log_softmax(-1)
        entropy = -(logps.exp() * logps).sum(-1)  # (C,)
        return float(logps.gather(1, wanted[:, None]).double().sum()), float(entropy.mean())


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
