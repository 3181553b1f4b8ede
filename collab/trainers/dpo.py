"""TRL's DPO trainer over packed rows: all pairs of a state in one pass, shared prefixes computed once.

    trainer = SharedPrefixDPOTrainer(model=model, args=DPOConfig(…), train_dataset=pairs, states=states, …)

Configuration, loss, anchor (`loss_type=["sigmoid", "sft"]`), reference, adapters, callbacks and metrics are TRL's.
Four things differ:

    packed passes       `collab.trainers.prefix_sharing`; with K pairs of a state 2K(P + C) tokens become P + 2KC
    whole states        a micro-batch holds all pairs of a state, or of several
    one mean            micro-batches may differ in size, so each is weighted by its pairs (the anchor by its chosen
                        tokens): an optimizer step has the loss and the gradient of its pairs taken as one batch, and
                        rows that are no pairs do not weaken them (`ByPairs`). TRL takes the mean of the micro-batches'
                        means, which is the same where they are equally large and all rows are pairs
    whole steps         a batch `{PASSES: [micro-batch, …]}` is a step of its own (gradient_accumulation_steps 1), so
                        that one step may have more passes than another; all processes have as many in it
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from trl import DPOTrainer

from collab.errors import ConfigError, UsageError
from collab.seeds import derive, generator
from collab.trainers.callbacks import find_differing
from collab.trainers.distributed import gather_weights
from collab.trainers.prefix_sharing import pack_batch, share

PASSES = "passes"
"""Key of a step's micro-batches in a batch that is a whole step."""


def build_state_batches(states: Sequence[Hashable], most: int, seed: int, epoch: int = 0) -> list[tuple[int, ...]]:
    """Return micro-batches of whole states, in an order drawn by seed and epoch.

    Args:
        states: for each pair, which state it belongs to.
        most: pairs of a micro-batch at most; a state with more is one of its own, never cut.
        seed: the same seed gives the same order.

    Returns:
        Positions of pairs; of a state, in their order.
    """
    # Grouped, so that all pairs of a state share its prompt in one pass.
    groups: dict[Hashable, list[int]] = {}
    for number, state in enumerate(states):
        groups.setdefault(state, []).append(number)
    order = list(groups.values())
    # States are shuffled, not pairs: tearing a state apart would compute its prompt twice.
    generator(derive(seed, "states", epoch)).shuffle(order)
    batches: list[list[int]] = []
    for pairs in order:
        # A state is never cut: one that is too large is a micro-batch of its own.
        if not batches or len(batches[-1]) + len(pairs) > most:
            batches.append([])
        batches[-1] += pairs
    return [tuple(batch) for batch in batches]


class StateBatches:
    """A batch sampler of whole states, in another order every epoch; arguments as `build_state_batches`."""

    def __init__(self, states: Sequence[Hashable], most: int, seed: int) -> None:
        self._states, self._most, self._seed = states, most, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of an epoch; the trainer calls it."""
        self._batches = build_state_batches(self._states, self._most, self._seed, epoch)

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


@dataclass(frozen=True, slots=True)
class PackedCollator:
    """A collator that packs another collator's batches."""

    theirs: Callable[[Any], dict[str, Any]]

    def __call__(self, features: Any) -> dict[str, Any]:
        """Return the same batch, with its packing under "packed"."""
        batch = self.theirs(features)
        return {**batch, "packed": pack_batch(batch)}


class ByPairs:
    """A mixin for preference trainers: a step's loss is the mean over all its pairs, and over all its chosen tokens.

        loss = 1/P sum over pairs of -log sigmoid(margin)  +  anchor/T sum over chosen tokens of -log p

    P counts the rows whose two replies differ, T the tokens of chosen replies of all rows. An anchor row has the same
    reply on both sides, so it does not weaken the first term.
    """

    _totals: Tensor | None = None
    _rows: Sequence[float] = ()
    """Counts of each forward pass of the step, over all processes."""

    def get_batch_samples(self: Any, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Return the micro-batches of a step, and note how much they hold over all processes."""
        # The trainer beside which this class is mixed in has it; a checker sees this class alone.
        samples, items = super().get_batch_samples(epoch_iterator, num_batches, device)  # type: ignore[misc]
        if samples:
            # Of the whole step and over all processes: micro-batches may differ in size, and weights need the totals.
            held = torch.stack([_count_held(part) for one in samples for part in one.get(PASSES, [one])]).to(device)
            held = self.accelerator.reduce(held, "sum").cpu()
            self._totals, self._rows = held.sum(0), held[:, 0].tolist()
        return samples, items

    def compute_loss(self: Any, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        """Compute TRL's loss, a mean over rows, with the weights of the class's formula."""
        # Evaluation is no optimizer step: TRL's own mean is right there.
        if not self.model.training or self._totals is None:
            return super().compute_loss(model, inputs, *rest, **named)  # type: ignore[misc]
        # The trainer divides by these two afterwards, so they are multiplied in here.
        parts = self.current_gradient_accumulation_steps * self.accelerator.num_processes
        rows, pairs, tokens = _count_held(inputs).tolist()
        _, per_pair, per_token = (parts / max(1, one) for one in self._totals.tolist())
        weights = self.loss_weights
        # Per term: TRL's mean over a micro-batch, times its count, over the step's count, is its part of one mean.
        try:
            self.loss_weights = [
                weight * (tokens * per_token if kind == "sft" else rows * per_pair * bool(self._totals[1]))
                for kind, weight in zip(self.loss_types, weights, strict=True)
            ]
            with gather_unequal(self.accelerator):
                # L = 1/P Σ −log σ(β [r(y⁺) − r(y⁻)]), r(y) = log π(y|x) − log π_ref(y|x)  (CollabUIAgents, eq. 8)
                #   + anchor/T Σ −log π(y⁺|x), over tokens                                   (ours)
                loss = super().compute_loss(model, inputs, *rest, **named)  # type: ignore[misc]
        finally:
            self.loss_weights = weights
        # An anchor row compares a reply with itself: −log σ(0) = log 2, a constant that must not show in the loss.
        if self.loss_types[0] == "sigmoid" and self._totals[1]:
            loss = loss - weights[0] * per_pair * (rows - pairs) * math.log(2)  # of rows with a margin of 0
        return loss


class SharedPrefixDPOTrainer(ByPairs, DPOTrainer):  # type: ignore[misc]
    """TRL's DPO trainer that computes shared prefixes once.

    Args:
        states: the state of each row's pair in `train_dataset`. With None, TRL chooses the batches; a chosen and a
            rejected reply still share their prompt.
        rest: as `trl.DPOTrainer`; `per_device_train_batch_size` counts pairs.

    Raises:
        ConfigError: the model or the configuration does not allow sharing.
        UsageError: the model is split over processes by DeepSpeed.
    """

    data_collator: Any
    loss_weights: list[float]

    def __init__(self, *rest: Any, states: Sequence[Hashable] | None = None, **named: Any) -> None:
        self._states = states
        self._sharing = False
        super().__init__(*rest, **named)
        # A mismatch would pair rows with foreign states silently.
        if states is not None and len(states) != len(self.train_dataset):
            raise ConfigError(f"{len(states)} states for {len(self.train_dataset)} pairs; each pair has one")
        self._share()

    def get_train_dataloader(self) -> Any:
        """Load whole states together, where they are known."""
        # Without states, TRL's own sampler: a chosen and a rejected reply still share their prompt.
        if self._states is None:
            return super().get_train_dataloader()
        if self.accelerator.num_processes > 1:
            raise UsageError("states are not divided among processes here; hand each process its written batches")
        batches = StateBatches(self._states, self.args.per_device_train_batch_size, self.args.seed)
        return DataLoader(self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator)  # type: ignore[arg-type]

    def training_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        """Run TRL's step pass by pass; synchronise gradients after the last one."""
        if PASSES not in inputs:
            return super().training_step(model, inputs, *rest, **named)
        passes = inputs[PASSES]
        # As many passes as this step has: the trainer divides losses by it.
        self.current_gradient_accumulation_steps = len(passes)
        # Only what these passes add to a metric is merged below.
        before = {name: len(values) for name, values in self._metrics["train"].items()}
        losses = []
        for number, part in enumerate(passes, start=1):
            last = number == len(passes)
            # Gradients of processes are put together once, behind the last pass.
            with contextlib.nullcontext() if last else self.accelerator.no_sync(model):
                losses.append(super().training_step(model, part, *rest, **named))
        for name, values in self._metrics["train"].items():
            _merge(values, before.get(name, 0), self._rows)
        # Each pass's loss is its part of one mean already, so they add up.
        return torch.stack(losses).sum()

    def _precompute_ref_logps(self, *rest: Any) -> Any:
        """Share prefixes before TRL asks for this, while the trainer is still being made."""
        self._share()
        return super()._precompute_ref_logps(*rest)

    def _share(self) -> None:
        """Switch models and collator to packed rows, once."""
        if self._sharing:
            return
        if self.is_deepspeed_enabled:
            raise UsageError("prefixes are not shared with DeepSpeed; use FSDP, MULTI_GPU or one GPU")
        reason = self._find_obstacle()
        if reason is not None:
            raise ConfigError(f"prefixes cannot be shared in this training: {reason}; use sharing: none")
        for model in filter(None, (self.model, self.ref_model)):
            # Sharded weights are put together for the probe, which computes a real pass.
            with gather_weights(model):
                share(unwrap_model(model), self.accelerator.autocast)
        # After the probe: if sharing is refused, TRL's collator is still in place.
        self.data_collator = PackedCollator(self.data_collator)
        self._sharing = True

    def _find_obstacle(self) -> str | None:
        if self._is_vision_dataset:
            return "its data has pictures"
        # Shared tokens are in the pass once, but the balancing loss would need them once per row.
        if self.aux_loss_enabled:
            return (
                "its loss balances experts, which would count shared tokens once (router_aux_loss_coef: 0 turns it off)"
            )
        if self.use_weighting:
            return "weights by the policy's own probabilities (use_weighting) are not computed for packed rows"
        adapter = getattr(self.model, "active_peft_config", None)
        if adapter is not None and adapter.is_prompt_learning:
            return "the adapter puts tokens of its own before each row"
        return None


def unwrap_model(model: Any) -> Any:
    """Return the causal LM itself, without wrappers of processes and adapters."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "peft_config") else model


@contextlib.contextmanager
def gather_unequal(accelerator: Any) -> Iterator[None]:
    """Let TRL gather metrics of processes with unequal numbers of pairs, which it does not expect."""
    if accelerator.num_processes == 1:
        yield
        return
    # `gather` of tensors of unequal length hangs or cuts; here they are padded to the longest and cut again.
    equal = accelerator.gather

    def gather(values: Tensor) -> Tensor:
        if values.dim() == 0:
            return equal(values)  # type: ignore[no-any-return]
        # Every process learns all lengths first.
        counts = equal(torch.tensor([len(values)], device=values.device)).tolist()
        padded = values.new_zeros(max(counts), *values.shape[1:])
        padded[: len(values)] = values
        parts = equal(padded).split(max(counts))
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    accelerator.gather = gather
    try:
        yield
    finally:
        del accelerator.gather


def _merge(values: list[float], since: int, weights: Sequence[float]) -> None:
    """Replace a metric's per-pass values of a step by their weighted mean; leave metrics that add up."""
    # A metric that has one value per pass is a mean of that pass; others add up over the step and stay.
    added = values[since:]
    if len(added) == len(weights):
        values[since:] = [sum(value * weight for value, weight in zip(added, weights, strict=True)) / sum(weights)]


def _count_held(batch: Any) -> Tensor:
    """Return rows, pairs that differ, and tokens of chosen replies, of a micro-batch; (3,)."""
    chosen = batch["completion_mask"].chunk(2)[0]  # (rows, tokens): the chosen half comes first
    # The first token of a row is never predicted, so it is not counted.
    return torch.tensor([len(chosen), int(find_differing(batch).sum()), int(chosen[:, 1:].sum())])
