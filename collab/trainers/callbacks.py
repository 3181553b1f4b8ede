"""Callbacks of a trainer: metrics, progress, and when to stop.

Means over pairs alone, the rows whose two replies differ: TRL's means are over all rows. A row that is only held on to
(the same reply on both sides) has a margin of 0 and a log p that hardly moves, so that beside many of them the chosen
replies of a few pairs could fall unseen. The means of pairs stand beside TRL's, under the same names behind `PAIRS`.
The loss is not touched.

The result of a training is a mean over the last quarter of its lines of metrics. One line is of one batch or a few, and
tells more of those than of training.
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
from collab.trainers.distributed import give_back
from collab.trainers.run import LOWER
from collab.trainers.run_dir import FinetuneDir

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
        with _record_logps(self.model, self.ref_model) as heard:
            # The trainer beside which this class is mixed in has it; a checker sees this class alone.
            loss = super().compute_loss(model, inputs, *rest, **named)  # type: ignore[misc]
        if self.model.training:
            policy, reference = heard
            sums = self.accelerator.reduce(
                pair_sums(policy, reference, find_differing(inputs), self.beta), "sum"
            ).double()
            self._noted = sums if self._noted is None else self._noted + sums
        return loss

    def log(self: Any, logs: dict[str, float], *rest: Any, **named: Any) -> None:
        """TRL's, with the means over pairs beside its own."""
        noted, self._noted = self._noted, None
        if noted is not None and noted[-1] > 0:
            for name, value in zip(_NAMES, (noted[:-1] / noted[-1]).tolist(), strict=True):
                self._metrics["train"][f"{PAIRS}{name}"] = [value]
        super().log(logs, *rest, **named)  # type: ignore[misc]


def find_differing(batch: Mapping[str, Tensor]) -> Tensor:
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
def _record_logps(model: Any, reference: Any) -> Iterator[Sequence[Tensor]]:
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


_OURS = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "mean_token_accuracy": "token_accuracy",
    "prompt_loss": "prompt_loss",
    "logps/chosen": "logp_chosen",
    "logps/rejected": "logp_rejected",
    "rewards/chosen": "reward_chosen",
    "rewards/rejected": "reward_rejected",
    "rewards/margins": "margin",
    "rewards/accuracies": "preference_accuracy",
}
"""Trainer's names of metrics and ours."""
_OF_PAIRS = {name for name in _OURS if name.startswith(("logps/", "rewards/"))}
"""Which of the trainer's are told of rows whose replies differ, where there may be others."""

FALL = 2.0
"""Nats that a chosen reply may lose, as a whole, before there is an alarm: a factor of seven in its probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneProgress:
    """How far a run is."""

    step: int
    steps: int
    group: str
    """Level that is trained."""
    loss: float | None
    tokens_per_s: float
    """Since this process began, padding left out."""
    left_s: float
    """At the speed so far."""
    margin: float | None = None
    """Of the pairs that were logged last; None where nothing was compared, here and below."""
    accuracy: float | None = None
    """Share of those pairs whose chosen side is preferred."""
    alarm: str | None = None
    """What goes wrong although the loss looks well; None when nothing does."""

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
    """The alarm of preference training: the chosen replies become less likely while the margin grows.

    DPO's loss knows the margin alone, log-ratio of chosen less that of rejected. It falls, too, when both become
    unlikely and the rejected one faster; what is unlearned then goes to replies that nobody looked at.

    Both are told against the reference, whose own margin is 0. So a policy that is not the reference when training
    begins (a later epoch against the initial policy) may have an alarm from its first step on.

    Args:
        now: metrics of a logged step, of its pairs alone; `reward_chosen` is beta (log p − log p of the reference).
            There is neither it nor a `margin` where no pair was compared.
        beta: of the loss.

    Returns:
        What to tell, or None: the chosen replies lost less than `FALL` nats against the reference, or the margin is
        not above that of the reference.
    """
    if now.get("margin", 0.0) <= 0:
        return None
    fall = -now["reward_chosen"] / beta
    if fall < FALL:
        return None
    return (
        f"chosen replies are {fall:.1f} nats less likely than under the reference while the margin grew "
        f"to {now['margin']:.2f}; raise anchor or beta, lower learning_rate, or use pairs that differ less"
    )


class Watcher(TrainerCallback):  # type: ignore[misc]
    """Writes metrics, reports progress, stops in time.

    Args:
        tokens: tokens of each step, padding left out.
        compared: of each step, how many of its rows are pairs; None where all of it is compared, or nothing.
        watch: called with every logged step.
        stopping: asked after every step; True ends the run with a checkpoint.
        writes: whether this is the process that writes.
        gather: of all processes: True when one of them says so.
        beta: of preference training, whose displacement is watched; None for other stages.
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
        self._began, self._first = time.perf_counter(), 0
        self._beta = beta
        self.stopped = False
        """Whether the run was ended before its last step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note when this process began."""
        self._began, self._first = time.perf_counter(), state.global_step
        self._logged = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ask whether to go on."""
        if state.global_step == len(self._steps):
            control.should_log = True
        elif self._gather(self._stopping()):
            self.stopped = control.should_save = control.should_training_stop = True
            control.should_log = True  # what was not logged yet would be lost with this process

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Write a line of metrics and report."""
        # Memory first: the allocator keeps what the longest step took.
        give_back()
        # The trainer also logs its summary, which has no loss of a step.
        if not logs or "loss" not in logs:
            return
        step = state.global_step
        # NaN ends the training on every process, so it is looked for before anything else.
        _check_numbers(step, logs)
        # One process writes, or lines would appear once per process.
        if not self._writes:
            return
        # Values are of the steps since the last line, of which there may be several.
        seconds = time.perf_counter() - self._began
        group = self._steps[step - 1].group
        values = self._list_values(logs, range(self._logged, step))
        self._logged = step
        line = {"step": step, "group": group, "tokens": self._total[step], "seconds": round(seconds, 3), **values}
        # log p of chosen replies that falls while margins grow: a known failure of DPO, of which the user is warned.
        alarm = None if self._beta is None else detect_displacement(line, self._beta)
        if alarm is not None:
            line["alarm"] = alarm
        self._folder.add_metrics(line)
        # Speed since this process began: steps of an earlier one took their time elsewhere.
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
        """Metrics by our names; those of pairs, and how many pairs these steps have, only where they have one."""
        if self._compared is None:
            return {ours: logs[name] for name, ours in _OURS.items() if name in logs}
        names = {f"{PAIRS}{name}" if name in _OF_PAIRS else name: ours for name, ours in _OURS.items()}
        values = {ours: logs[name] for name, ours in names.items() if name in logs}
        pairs = sum(self._compared[step] for step in steps)
        return {**values, "compared": pairs} if pairs else values


def _check_numbers(step: int, logs: Mapping[str, Any]) -> None:
    """Diverged when weights are lost; steps that come after could not mend them."""
    for name in ("loss", "grad_norm"):
        if not math.isfinite(float(logs.get(name) or 0.0)):
            raise Diverged(f"step {step}: {name} is {logs[name]}", LOWER)


def check_weights(step: int, model: Any, accelerator: Any) -> None:
    """Refuse to keep weights that are lost, also where no step since was logged; all processes ask.

    Args:
        step: the last one trained.
        model: whose trained weights, or this process's parts of them, are looked at. Those that lie elsewhere
            (DeepSpeed's, with ZeRO-3) are not seen.

    Raises:
        Diverged: one of them is no number, or infinite, in any process.
    """
    lost = any(weight.requires_grad and not _is_finite(weight.detach()) for weight in model.parameters())
    if build_gather(accelerator)(lost):
        raise Diverged(f"step {step}: some weights are no numbers", LOWER)


def _is_finite(weight: Any) -> bool:
    """Whether all of a tensor is; costs no second one of its size, and of a part in each process sees this one's."""
    own = weight.to_local() if hasattr(weight, "to_local") else weight
    return own.numel() == 0 or bool(torch.isfinite(torch.stack(own.aminmax())).all())


def build_gather(accelerator: Any) -> Callable[[bool], bool]:
    """Says of all processes whether one of them says so; costs nothing when there is one."""
    if accelerator.num_processes == 1:
        return lambda said: said

    def gather(said: bool) -> bool:
        return bool(accelerator.gather(torch.tensor([said], device=accelerator.device)).any())

    return gather


def average_over_pairs(lines: Sequence[Mapping[str, Any]], name: str, *, first: bool = False) -> float | None:
    """A metric of pairs, such as `margin` or `logp_chosen`, lines by the number of pairs that they are about.

    Args:
        lines: metrics, as logged; a line without `compared` counts as one pair.
        first: over the first quarter of them, not the last.

    Returns:
        None where nothing was compared.
    """
    told = [(line[name], line.get("compared", 1)) for line in _select_quarter(lines, name, first=first)]
    return sum(value * pairs for value, pairs in told) / sum(pairs for _, pairs in told) if told else None


def compute_chosen_gain(lines: Sequence[Mapping[str, Any]], beta: float) -> float | None:
    """How much likelier the chosen side of a pair became: its mean log-ratio to the reference.

    The log p of a batch tells more of its replies than of training; what is compared with the reference does not.

    Args:
        lines: metrics, as logged.
        beta: of the loss.

    Returns:
        Nats; None where nothing was compared with a reference.
    """
    reward = average_over_pairs(lines, "reward_chosen")
    return None if reward is None else reward / beta


def _select_quarter(lines: Sequence[Mapping[str, Any]], name: str, *, first: bool) -> Sequence[Mapping[str, Any]]:
    told = [line for line in lines if line.get(name) is not None]
    size = max(1, len(told) // 4)
    return told[:size] if first else told[-size:]
