"""What a trainer of preferences logs of its pairs alone: of the rows whose two replies differ.

TRL's means are over all rows. A row that is only held on to (the same reply on both sides) has a margin of 0 and a log
p that hardly moves, so that beside many of them the chosen replies of a few pairs could fall unseen. The means of pairs
stand beside TRL's, under the same names behind `PAIRS`. The loss is not touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

PAIRS = "pairs/"
"""Before the name of a mean that is over pairs alone."""
_NAMES = (
    *("logps/chosen", "logps/rejected", "rewards/chosen", "rewards/rejected"),
    *("rewards/margins", "rewards/accuracies"),
)
"""TRL's names of what is told of pairs."""


class PairMeans:
    """Of trainers of preferences: logs the means over pairs beside those over rows.

    Sums over the pairs of all forward passes and processes since the last line are divided by how many there were, so
    every pair has the same weight, however steps are divided. Where no pair was trained nothing is logged.
    """

    _noted: Tensor | None = None
    """Those sums, see `pair_sums`; None since nothing was trained."""

    def compute_loss(self: Any, model: Any, inputs: Mapping[str, Any], *rest: Any, **named: Any) -> Any:
        """The loss as it is; what the policy and the reference said of each row is noted."""
        with _listening(self.model, self.ref_model) as heard:
            # The trainer beside which this class is mixed in has it; a checker sees this class alone.
            loss = super().compute_loss(model, inputs, *rest, **named)  # type: ignore[misc]
        if self.model.training:
            policy, reference = heard
            sums = self.accelerator.reduce(pair_sums(policy, reference, differing(inputs), self.beta), "sum").double()
            self._noted = sums if self._noted is None else self._noted + sums
        return loss

    def log(self: Any, logs: dict[str, float], *rest: Any, **named: Any) -> None:
        """TRL's, with the means over pairs beside its own."""
        noted, self._noted = self._noted, None
        if noted is not None and noted[-1] > 0:
            for name, value in zip(_NAMES, (noted[:-1] / noted[-1]).tolist(), strict=True):
                self._metrics["train"][f"{PAIRS}{name}"] = [value]
        super().log(logs, *rest, **named)  # type: ignore[misc]


def differing(batch: Mapping[str, Tensor]) -> Tensor:
    """Which rows of a batch of preferences have two replies that differ, (rows,); a batch holds chosen, then rejected.

    Args:
        batch: input_ids and completion_mask, (2 * rows, longest).
    """
    sides = [batch[name].chunk(2) for name in ("input_ids", "completion_mask")]
    return torch.stack([(chosen != rejected).any(1) for chosen, rejected in sides]).any(0)


def pair_sums(policy: Tensor, reference: Tensor, pairs: Tensor, beta: float) -> Tensor:
    """Sums over pairs of what is logged.

    Args:
        policy: log p of each reply in nats, chosen ones first, (2 * rows,).
        reference: the same of the reference.
        pairs: which rows are pairs, (rows,).
        beta: of the loss.

    Returns:
        (7,), in float32: log p of chosen and rejected replies, their rewards, margins, how many prefer the chosen
        reply, and the number of pairs.
    """
    policy, rewards = policy.float(), beta * (policy.float() - reference.float())
    better, worse = rewards.chunk(2)
    told = torch.stack([*policy.chunk(2), better, worse, better - worse, (better > worse).float()])
    sums = torch.where(pairs, told, 0.0).sum(1)
    return torch.cat([sums, sums.new_tensor([int(pairs.sum())])])


@contextlib.contextmanager
def _listening(model: Any, reference: Any) -> Iterator[Sequence[Tensor]]:
    """Log p of each reply, (2 * rows,), by the policy, then by the reference: a model of its own or the policy's."""
    heard: list[Tensor] = []

    def hear(_module: Any, _inputs: Any, output: Any) -> None:
        heard.append(output.log_probs.detach().sum(1))  # 0 where nothing is scored

    handles = [one.register_forward_hook(hear) for one in (model, reference) if one is not None]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()
