"""What is told and heard while a trainer works: metrics, progress, and when to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from transformers import TrainerCallback

from collab.errors import Diverged
from collab.learn.finetune import LOWER
from collab.learn.folder import RunFolder
from collab.learn.memory import give_back
from collab.learn.order import Step
from collab.learn.pair_means import PAIRS

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
class Progress:
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


def displacement(now: Mapping[str, float], beta: float) -> str | None:
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
        folder: RunFolder,
        steps: Sequence[Step],
        tokens: Sequence[int],
        compared: Sequence[int] | None,
        *,
        watch: Callable[[Progress], None],
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
        give_back()
        if not logs or "loss" not in logs:
            return
        step = state.global_step
        _check_numbers(step, logs)
        if not self._writes:
            return
        seconds = time.perf_counter() - self._began
        group = self._steps[step - 1].group
        values = self._values(logs, range(self._logged, step))
        self._logged = step
        line = {"step": step, "group": group, "tokens": self._total[step], "seconds": round(seconds, 3), **values}
        alarm = None if self._beta is None else displacement(line, self._beta)
        if alarm is not None:
            line["alarm"] = alarm
        self._folder.add_metrics(line)
        speed = (self._total[step] - self._total[self._first]) / max(seconds, 1e-9)
        left = seconds / max(step - self._first, 1) * (len(self._steps) - step)
        self._watch(
            Progress(
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

    def _values(self, logs: Mapping[str, Any], steps: range) -> dict[str, Any]:
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
    if any_process(accelerator)(lost):
        raise Diverged(f"step {step}: some weights are no numbers", LOWER)


def _is_finite(weight: Any) -> bool:
    """Whether all of a tensor is; costs no second one of its size, and of a part in each process sees this one's."""
    own = weight.to_local() if hasattr(weight, "to_local") else weight
    return own.numel() == 0 or bool(torch.isfinite(torch.stack(own.aminmax())).all())


def any_process(accelerator: Any) -> Callable[[bool], bool]:
    """Says of all processes whether one of them says so; costs nothing when there is one."""
    if accelerator.num_processes == 1:
        return lambda said: said

    def gather(said: bool) -> bool:
        return bool(accelerator.gather(torch.tensor([said], device=accelerator.device)).any())

    return gather
