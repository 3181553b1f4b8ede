"""The parts of a transfer, each from wherever it stands: an evaluation, the training, and who plays after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from collab.collector import Progress as Collecting
from collab.comparison import is_spoilt
from collab.config import Budget, RunConfig
from collab.errors import UsageError
from collab.library import Library
from collab.loop.layout import FILE as TRAINING_FILE
from collab.loop.layout import clear_unbegun
from collab.loop.loop import TrainingResult
from collab.loop.loop import resume as resume_training
from collab.loop.loop import start as start_training
from collab.loop.policy import playing, policy_after
from collab.loop.record import records_until
from collab.report import recorded_evaluation
from collab.series import left_of, plan_series, play
from collab.store.manifest import FILE as RUN_FILE
from collab.transfer.config import TransferConfig
from collab.transfer.layout import Part, TransferFolder
from collab.wording import amount

TRAINING = "training"
"""What `Progress.part` calls the training."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a transfer is; a live object."""

    part: str = ""
    """What is being done: "second/base", "training" …"""
    number: int = 0
    """Which part that is, from 1."""
    parts: int
    inner: Any = None
    """The live object of what is being done: of a collection, or of a training; None before it has one."""
    training: Any = None
    """That of the training, also when it is over; None before."""


@dataclass(slots=True, kw_only=True)
class Work:
    """One process that works on a transfer."""

    config: TransferConfig
    folder: TransferFolder
    budget: Budget
    stop: asyncio.Event
    device: str
    progress: Progress
    reports: Sequence[str] = ()
    """Further places for metrics of training."""
    meter: Collecting = field(default_factory=lambda: Collecting(planned=0))
    """What this process has spent, and since when."""

    def begin(self, part: str) -> None:
        """Name what is done next."""
        self.progress.part, self.progress.inner = part, None
        self.progress.number += 1

    def watch(self, inner: Any) -> None:
        """Take the live object of what is being done."""
        self.progress.inner = inner
        if self.progress.part == TRAINING:
            self.progress.training = inner

    def left(self) -> Budget | None:
        """What may still be spent; None when a limit is used up."""
        return left_of(self.budget, self.meter)

    @property
    def ending(self) -> str | None:
        """Why nothing more may be begun; None when it may."""
        if self.stop.is_set():
            return "stopped on request"
        return self.meter.exceeded(self.budget)

    def spend(self, tokens: int, cost_usd: float) -> None:
        """Count in what this process has spent on a part."""
        self.meter.prompt_tokens += tokens  # of prompts and replies: a budget does not tell them apart
        self.meter.cost_usd += cost_usd


async def measure(work: Work, part: Part, runs: Sequence[RunConfig]) -> str | None:
    """Play what is missing of an evaluation, broken episodes of an earlier process again.

    Args:
        runs: one per seed.

    Returns:
        Why that stopped; None when it is over and can be compared.
    """
    work.begin(part.name)
    folder, own = work.folder.part(part), work.config.library if part.place == "second" else work.config.first_library
    for config in runs:
        clear_unbegun(folder / f"seed-{config.seed}", RUN_FILE)
    for run in await plan_series(runs, library_of(own), folder):
        if run.over:
            continue
        left = work.left()
        if work.ending is not None or left is None:
            return work.ending
        result = await play(run, library_of(own), budget=left, watch=work.watch, stop=work.stop)
        work.spend(result.progress.tokens, result.progress.cost_usd)
        if result.stopped is not None:
            return result.stopped
    report = recorded_evaluation(folder).report
    if is_spoilt(report.broken, report.planned.episodes):
        return (
            f"{part.name}: {report.broken} of {amount(report.planned.episodes, 'episode')} broke, too many to compare"
        )
    return None


async def train(work: Work) -> str | None:
    """Train in the second environment, from wherever that stands; returns why that stopped, None when it is over."""
    work.begin(TRAINING)
    folder = work.folder.training
    if work.folder.state_of_training() == "over":
        return None
    left = work.left()
    if work.ending is not None or left is None:
        return work.ending
    clear_unbegun(folder.path, TRAINING_FILE)
    result = await _trained(work, left)
    work.spend(result.tokens, result.cost_usd)
    return result.stopped


async def _trained(work: Work, budget: Budget) -> TrainingResult:
    folder, config = work.folder.training, work.config.training
    if folder.file.exists() or config is None:
        return await resume_training(
            folder.path,
            budget=budget,
            device=work.device,
            report_to=work.reports,
            watch=work.watch,
            stop=work.stop,
        )
    head = work.folder.head.read()
    return await start_training(
        config,
        folder.path,
        options=head["options"],
        budget=budget,
        device=work.device,
        report_to=work.reports,
        watch=work.watch,
        stop=work.stop,
    )


def continued(config: TransferConfig, folder: TransferFolder, run: RunConfig) -> RunConfig:
    """An evaluation of the transferred team, played by the policy that training in the second environment left.

    Nothing but weights, their version and the team's name differs from what the transferred team played.

    Raises:
        RunFormatError: the training cannot be read.
        UsageError: it is not over.
    """
    assert config.training is not None, "direct trains nothing"
    policy = policy_after(folder.training, config.training, best_epoch(folder))
    determinism = next(iter(run.agents.values())).options.get("determinism", "fast")
    names = dict.fromkeys(run.agents, f"{folder.training.path.name}@best")
    return playing(run, policy, determinism).model_copy(update={"agent_names": names})


def best_epoch(folder: TransferFolder) -> int:
    """Epoch of the second training that was chosen; UsageError when that is not over."""
    summary = folder.training.head.read().get("summary")
    if summary is None or summary["best"] is None:
        raise UsageError(f"{folder.training.path}: no epoch is the best yet; go on with: {folder.resume}")
    return int(summary["best"])


def untrained(folder: TransferFolder, epochs: int) -> list[str]:
    """What the second training did not train, and why; of as many of its epochs as are over."""
    return [
        f"epoch {record.epoch}, {policy}: {why}"
        for record in records_until(folder.training, epochs)
        for policy, why in record.untrained.items()
    ]


def library_of(own: str | None) -> Library:
    """Where definitions are looked up; None for the built-in ones alone."""
    return Library.recorded(own)
