"""Callbacks of a trainer: metrics, progress, and when to stop.

TRL's means are over all rows. An anchor row (the same reply on both sides) has a margin of 0 and an almost constant
log p, so many of them could hide falling log p of a few pairs. Means over pairs alone (rows whose replies differ) are
therefore logged beside TRL's, with the prefix `PAIRS`, and means over anchor rows with `ANCHORS`. Losses do not change.

A training's result is a mean over the last quarter of its metrics lines, as a single line depends too much on its
batch.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from collab.errors import Diverged
from collab.trainers.batching import BatchStep
from collab.trainers.distributed import release_memory
from collab.trainers.run_dir import FinetuneDir

PAIRS = "pairs/"
"""Prefix of a metric that is a mean over pairs."""
ANCHORS = "anchors/"
"""Prefix of a metric that is a mean over anchor rows."""
_NAMES = (
    *("logps/chosen", "logps/rejected", "rewards/chosen", "rewards/rejected"),
    *("rewards/margins", "rewards/accuracies"),
)
"""TRL's names of metrics of pairs."""
_ANCHORED = ("logps", "gains")
"""Names of metrics of anchor rows: log p, and by how much it is above the reference's."""


class PairMeans:
    """A mixin for preference trainers that logs means over pairs, and over anchor rows, beside those over all rows.

    Sums over all forward passes and processes since the last line are divided by the number of pairs, so every pair has
    equal weight; those over anchor rows by theirs. Nothing is logged of a kind of row that there was none of.
    """

    _noted: tuple[Tensor, Tensor] | None = None
    """The sums since the last line, see `pair_sums` and `anchor_sums`; None before a pass."""

    def compute_loss(self: Any, model: Any, inputs: Mapping[str, Any], *rest: Any, **named: Any) -> Any:
        """Compute the loss and add up both models' log-probabilities."""
        with _record_logps(self.model, self.ref_model) as heard:
            # The type checker does not see the trainer that this class is mixed into.
            loss = super().compute_loss(model, inputs, *rest, **named)  # type: ignore[misc]
        if self.model.training:
            policy, reference = heard
            pairs = find_differing(inputs)
            sums = (pair_sums(policy, reference, pairs, self.beta), anchor_sums(policy, reference, ~pairs))
            added = tuple(self.accelerator.reduce(one, "sum").double() for one in sums)
            self._noted = added if self._noted is None else tuple(map(torch.add, self._noted, added))
        return loss

    def log(self: Any, logs: dict[str, float], *rest: Any, **named: Any) -> None:
        """Log TRL's metrics and the means over pairs and over anchor rows."""
        noted, self._noted = self._noted, None
        for (prefix, names), sums in zip(((PAIRS, _NAMES), (ANCHORS, _ANCHORED)), noted or (), strict=False):
            if sums[-1] > 0:
                for name, value in zip(names, (sums[:-1] / sums[-1]).tolist(), strict=True):
                    self._metrics["train"][f"{prefix}{name}"] = [value]
        super().log(logs, *rest, **named)  # type: ignore[misc]


def find_differing(batch: Mapping[str, Tensor]) -> Tensor:
    """Return which rows of a batch have two different replies, (rows,).

    Args:
        batch: input_ids and completion_mask, (2 * rows, longest), chosen replies first.
    """
    sides = [batch[name].chunk(2) for name in ("input_ids", "completion_mask")]
    return torch.stack([(chosen != rejected).any(1) for chosen, rejected in sides]).any(0)


def pair_sums(policy: Tensor, reference: Tensor, pairs: Tensor, beta: float) -> Tensor:
    """Return the sums of metrics over pairs.

    Args:
        policy: log p of each reply in nats, chosen ones first, (2 * rows,).
        reference: the same under the reference.
        pairs: which rows are pairs, (rows,).
        beta: of the loss.

    Returns:
        (7,), float32: log p of chosen and rejected replies, their rewards, margins, number of pairs that prefer the
        chosen reply, and number of pairs.
    """
    policy, rewards = policy.float(), beta * (policy.float() - reference.float())
    better, worse = rewards.chunk(2)
    told = torch.stack([*policy.chunk(2), better, worse, better - worse, (better > worse).float()])
    return _sum_over(told, pairs)


def anchor_sums(policy: Tensor, reference: Tensor, anchors: Tensor) -> Tensor:
    """Return the sums of metrics over anchor rows.

    Args:
        policy: log p of each reply in nats, chosen ones first, (2 * rows,).
        reference: the same under the reference.
        anchors: which rows are anchors, (rows,).

    Returns:
        (3,), float32: log p, its difference to the reference's, and number of anchor rows.
    """
    better, before = (one.float().chunk(2)[0] for one in (policy, reference))
    return _sum_over(torch.stack([better, better - before]), anchors)


def _sum_over(told: Tensor, rows: Tensor) -> Tensor:
    """Sum metrics, (metrics, all rows), over some rows, (all rows,), and append their number."""
    sums = torch.where(rows, told, 0.0).sum(1)
    return torch.cat([sums, sums.new_tensor([int(rows.sum())])])


@contextlib.contextmanager
def _record_logps(model: Any, reference: Any) -> Iterator[Sequence[Tensor]]:
    """Record log p of each reply, (2 * rows,), first by the policy, then by the reference."""
    heard: list[Tensor] = []

    def hear(_module: Any, _inputs: Any, output: Any) -> None:
        heard.append(output.log_probs.detach().sum(1))  # 0 where nothing is scored

    handles = [one.register_forward_hook(hear) for one in (model, reference) if one is not None]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()


_OURS = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "mean_token_accuracy": "token_accuracy",
    "prompt_loss": "prompt_loss",
    "logp": "logp",
    "ratio": "ratio",
    "clipped": "clipped",
    "mismatch": "mismatch",
    "logps/chosen": "logp_chosen",
    "logps/rejected": "logp_rejected",
    "rewards/chosen": "reward_chosen",
    "rewards/rejected": "reward_rejected",
    "rewards/margins": "margin",
    "rewards/accuracies": "preference_accuracy",
    f"{ANCHORS}logps": "logp_anchored",
    f"{ANCHORS}gains": "anchored_gain",
}
"""TRL's name → our name of a metric; of anchor rows it is the name of `PairMeans`."""
_OF_PAIRS = {name for name in _OURS if name.startswith(("logps/", "rewards/"))}
"""TRL's metrics that are taken over pairs alone if there are other rows."""

FALL = 2.0
"""Nats that a whole chosen reply may lose before an alarm: a factor of seven in probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneProgress:
    """Progress of a run."""

    step: int
    steps: int
    group: str
    """Level that is trained."""
    loss: float | None
    tokens_per_s: float
    """Since this process began, without padding."""
    left_s: float
    """Seconds, at the speed so far."""
    margin: float | None = None
    """Mean margin of the last logged pairs; None without pairs, as the next field."""
    accuracy: float | None = None
    """Share of those pairs whose chosen reply is preferred."""
    alarm: str | None = None
    """A problem that the loss does not show, or None."""

    def __str__(self) -> str:
        loss = "-" if self.loss is None else f"{self.loss:.4g}"
        left = timedelta(seconds=round(self.left_s))
        speed = f"{self.tokens_per_s:,.0f} tokens/s"
        pairs = ""
        if self.margin is not None:
            pairs += f"  margin {self.margin:.3f}"
        if self.accuracy is not None:
            pairs += f"  accuracy {self.accuracy:.1%}"
        line = f"step {self.step}/{self.steps}  {self.group}  loss {loss}{pairs}  {speed}  {left} left"
        return line if self.alarm is None else f"{line}\nalarm: {self.alarm}"


def detect_displacement(now: Mapping[str, float], beta: float) -> str | None:
    """Return an alarm if chosen replies become less likely while the margin grows, or if anchored replies do.

    DPO's loss depends only on the margin. It also falls if both replies become unlikely and the rejected one does so
    faster; the lost probability then goes to unseen replies. An anchored reply is in no pair, so what is learned from
    pairs can take its probability unseen by any metric of these.

    Both are measured against the reference. A policy that differs from it at the start (a later epoch against the
    initial policy) may have an alarm from its first step on.

    Args:
        now: a logged step's metrics; of pairs `margin` and `reward_chosen`, beta (log p − log p of the reference), of
            anchor rows `anchored_gain`, log p − log p of the reference. Missing where a step has no such row.
        beta: of the loss.

    Returns:
        The alarm, or None if anchored replies lost less than `FALL` nats, and chosen ones did or the margin is not
        above 0.
    """
    fall = -now["reward_chosen"] / beta if now.get("margin", 0.0) > 0 else 0.0
    if fall >= FALL:
        return (
            f"chosen replies are {fall:.1f} nats less likely than under the reference while the margin grew "
            f"to {now['margin']:.2f}; raise anchor or beta, lower learning_rate, or use pairs that differ less"
        )
    lost = -now.get("anchored_gain", 0.0)
    if lost >= FALL:
        return (
            f"anchored replies, which are to be kept, are {lost:.1f} nats less likely than under the reference; "
            "raise anchor, or lower learning_rate"
        )
    return None


class Watcher(TrainerCallback):  # type: ignore[misc]
    """Writes metrics, reports progress, and stops on request.

    Args:
        tokens: tokens of each step without padding.
        compared: number of pairs of each step; None if all rows are pairs, or none.
        watch: called with every logged step.
        stopping: called after every step; True ends the run with a checkpoint.
        writes: whether this process writes.
        gather: returns True if any process passes True.
        beta: of preference training, to detect displacement; None for other stages.
    """

    def __init__(
        self,
        folder: FinetuneDir,
        steps: Sequence[BatchStep],
        tokens: Sequence[int],
        compared: Sequence[int] | None,
        *,
        watch: Callable[[FinetuneProgress], None],
        stopping: Callable[[], bool],
        writes: bool,
        gather: Callable[[bool], bool],
        beta: float | None = None,
    ) -> None:
        self._folder, self._steps, self._watch = folder, steps, watch
        self._total = [0]
        for count in tokens:
            self._total.append(self._total[-1] + count)
        self._compared, self._logged = compared, 0
        self._stopping, self._writes, self._gather = stopping, writes, gather
        self._began, self._first, self._before = time.perf_counter(), 0, 0.0
        self._beta = beta
        self.stopped = False
        """Whether the run stopped before its last step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the start time."""
        self._began, self._first = time.perf_counter(), state.global_step
        self._before = self._folder.read_seconds()
        self._logged = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop if requested."""
        if state.global_step == len(self._steps):
            control.should_log = True
        elif self._gather(self._stopping()):
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_log = True  # values not yet logged would be lost with this process

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write a line of metrics and report."""
        # The allocator keeps the memory of the longest step.
        release_memory()
        # The trainer also logs a summary without a step's loss.
        if not logs or "loss" not in logs:
            return
        step = state.global_step
        # NaN must end the training on every process, so check it first.
        _check_numbers(step, logs)
        # Only one process writes.
        if not self._writes:
            return
        # Values cover all steps since the last line.
        seconds = time.perf_counter() - self._began
        group = self._steps[step - 1].group
        values = self._list_values(logs, range(self._logged, step))
        self._logged = step
        # Of all processes, so that a resumed training knows how long it took.
        taken = round(self._before + seconds, 3)
        line = {"step": step, "group": group, "tokens": self._total[step], "seconds": taken, **values}
        # Falling log p of chosen replies with growing margins is a known failure of DPO.
        alarm = None if self._beta is None else detect_displacement(line, self._beta)
        if alarm is not None:
            line["alarm"] = alarm
        self._folder.add_metrics(line)
        # Speed since this process began: earlier steps ran elsewhere.
        speed = (self._total[step] - self._total[self._first]) / max(seconds, 1e-9)
        left = seconds / max(step - self._first, 1) * (len(self._steps) - step)
        self._watch(
            FinetuneProgress(
                step=step,
                steps=len(self._steps),
                group=group,
                loss=logs["loss"],
                margin=values.get("margin"),
                accuracy=values.get("preference_accuracy"),
                tokens_per_s=speed,
                left_s=left,
                alarm=alarm,
            )
        )

    def _list_values(self, logs: Mapping[str, Any], steps: range) -> dict[str, Any]:
        """Return metrics by our names; those of pairs, or of anchors, and their number only if the steps have any."""
        if self._compared is None:
            return {ours: logs[name] for name, ours in _OURS.items() if name in logs}
        names = {f"{PAIRS}{name}" if name in _OF_PAIRS else name: ours for name, ours in _OURS.items()}
        values = {ours: logs[name] for name, ours in names.items() if name in logs}
        rows = sum(len(part) for step in steps for part in self._steps[step].parts)
        pairs = sum(self._compared[step] for step in steps)
        counts = {"compared": pairs, "anchored": rows - pairs}
        return {**values, **{name: count for name, count in counts.items() if count}}


def _check_numbers(step: int, logs: Mapping[str, Any]) -> None:
    """Raise Diverged if loss or gradient is NaN or infinite."""
    for name in ("loss", "grad_norm"):
        if not math.isfinite(float(logs.get(name) or 0.0)):
            raise Diverged(f"step {step}: {name} is {logs[name]}")


def check_weights(step: int, model: Any, accelerator: Any) -> None:
    """Check that trained weights are finite; all processes must call it.

    Args:
        step: the last trained step.
        model: its trained weights, or this process's parts of them. DeepSpeed's ZeRO-3 weights are not seen.

    Raises:
        Diverged: a weight is NaN or infinite in any process.
    """
    lost = any(weight.requires_grad and not _is_finite(weight.detach()) for weight in model.parameters())
    if build_gather(accelerator)(lost):
        raise Diverged(f"step {step}: some weights are no numbers")


def _is_finite(weight: Any) -> bool:
    """Return whether a tensor (of a sharded one, this process's part) is finite; allocates no copy of its size."""
    own = weight.to_local() if hasattr(weight, "to_local") else weight
    return own.numel() == 0 or bool(torch.isfinite(torch.stack(own.aminmax())).all())


def build_gather(accelerator: Any) -> Callable[[bool], bool]:
    """Return a function that is True if any process passes True; free for a single process."""
    if accelerator.num_processes == 1:
        return lambda said: said

    def gather(said: bool) -> bool:
        return bool(accelerator.gather(torch.tensor([said], device=accelerator.device)).any())

    return gather
