"""A transfer from its beginning, or from wherever it stands, to its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collab
from collab.background import Stopped
from collab.config import AgentDefinition, Budget, validate_recorded, without_secrets
from collab.errors import RunFormatError, UsageError
from collab.learn.prepare import check_device, check_installed, check_reports
from collab.learn.threads import as_begun, threads_head
from collab.library import checkpoint
from collab.loop.grant import Grant, granted
from collab.loop.interfaces import algorithm_named, options_of
from collab.loop.loop import changed_prompt, check_training
from collab.loop.policy import WHERE
from collab.models.layout import played_digest
from collab.report import RecordedRun, recorded_run
from collab.runs import check
from collab.store.manifest import now
from collab.transfer.config import Arm, Place, TransferConfig
from collab.transfer.layout import TransferFolder, parts_after, parts_before
from collab.transfer.outcome import Told, outcome_of
from collab.transfer.parts import Progress, Work, best_epoch, continued, library_of, measure, train, untrained

Watch = Callable[[Progress], None]
"""Called once, with a live object that changes while the transfer goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResult:
    """How a transfer went."""

    path: Path
    told: Told | None
    """None when it stopped before its end."""
    stopped: str | None
    """Why it ended early; None when it is done."""


async def start(
    config: TransferConfig,
    out: Path,
    *,
    options: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    device: str = "auto",
    report_to: Sequence[str] = (),
    tell: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> TransferResult:
    """Begin a transfer in the directory `out`; arguments as of `collab.loop.loop.start`.

    Raises:
        UsageError: something does not fit or may not be used, or `out` already holds something; nothing was
            started.
        ModelFailure, EnvironmentFailure: a server does not answer, or an environment does not open; nor was anything.
        RunError: something failed while working; what is there stays, and `resume` goes on.
    """
    config = without_secrets(config)
    check_device(device)
    check_reports(report_to)
    if config.training is not None:
        check_installed()
    folder, grant = TransferFolder(out), Grant(budget=budget or Budget(), device=device, reports=tuple(report_to))
    folder.head.check_free()
    taken = {} if config.training is None else options_of(algorithm_named(config.training.algorithm), options or {})
    for line in await _check(config, grant.budget, taken):
        tell(line)
    folder.head.create(
        {
            "created": now(),
            "version": collab.__version__,
            "weights": weights_of(config),
            "options": {name: str(one.resolve()) if isinstance(one, Path) else one for name, one in taken.items()},
            **(threads_head() if config.training and config.training.method.determinism == "exact" else {}),
            **grant.head,
            "config": config.model_dump(mode="json"),
        }
    )
    return await _run(config, folder, grant, watch, stop)


async def resume(
    path: Path,
    *,
    budget: Budget | None = None,
    device: str | None = None,
    report_to: Sequence[str] | None = None,
    tell: Callable[[str], None] = lambda text: None,
    watch: Watch = lambda progress: None,
    stop: asyncio.Event | None = None,
) -> TransferResult:
    """Go on with a transfer where it stopped or died; of one that is done, only tell again what came of it.

    Args:
        budget: what may be spent from here on; None grants the transfer's own budget once more.
        device: None for where it was trained before.
        report_to: None for where it reported before.
        tell: as of `collab.loop.loop.resume`.

    Raises:
        RunFormatError: it cannot be read, or weights are no longer what they were.
        UsageError: prompts are no longer what they were, or another process works on it.
    """
    folder = TransferFolder(path)
    told = folder.told()
    if told is not None:
        return TransferResult(path=path, told=told, stopped=None)
    config, head = stored_config(folder), folder.head.read()
    grant = granted(head, str(folder.file), budget=budget, device=device, report_to=report_to)
    check_device(grant.device)
    check_reports(grant.reports)
    changed = [name for name, known in weights_of(config).items() if known != head["weights"].get(name)]
    if changed:
        raise RunFormatError(f"{path}: the weights of {changed[0]} are not what they were; begin another transfer")
    with as_begun(head, str(folder.file), tell):
        return await _run(config, folder, grant, watch, stop)


async def _check(config: TransferConfig, budget: Budget, options: Mapping[str, Any]) -> list[str]:
    """Open once whatever the parts will open: both environments, base and team, and whom a training asks.

    Returns:
        What is worth knowing of them, a line each; see `collab.runs.check` and `collab.loop.loop.check_training`.
    """
    found: list[str] = []
    transferred = config.transferred if config.training is None else []
    for run in (*config.base[:1], *transferred[:1], *config.first[:1]):
        found += await check(run.model_copy(update={"budget": budget}))
    if config.training is not None:
        found += (await check_training(config.training, budget, options)).notes  # the team where it goes to, too
    return list(dict.fromkeys(found))


def stored_config(folder: TransferFolder) -> TransferConfig:
    """The configuration that a directory holds; RunFormatError or ConfigError when it cannot be read."""
    return validate_recorded(TransferConfig, folder.head.read()["config"], str(folder.file))


def weights_of(config: TransferConfig) -> dict[str, str]:
    """Digests of the checkpoints and adapters here that the base and the team play with, by "arm/slot".

    Of a team on a server it is what lies here of what the server plays; see `collab.models.layout.played_digest`.
    """
    played: dict[Arm, Mapping[str, AgentDefinition]] = {
        "base": config.base[0].agents,
        "transferred": config.transferred[0].agents,
    }
    places = {
        f"{arm}/{slot}": (Path(checkpoint(str(agent.options[WHERE[agent.kind]]))), _adapter_of(agent))
        for arm, agents in played.items()
        for slot, agent in agents.items()
        if agent.kind in WHERE and WHERE[agent.kind] in agent.options
    }
    known = {both: played_digest(*both) for both in set(places.values()) if both[0].is_dir()}
    return {name: known[both] for name, both in places.items() if both in known}


def _adapter_of(agent: AgentDefinition) -> str | None:
    """Its directory; None where it has none, or a server has one of that name by itself."""
    adapter = agent.options.get("adapter")
    return adapter if adapter is not None and Path(adapter).is_dir() else None


async def _run(
    config: TransferConfig, folder: TransferFolder, grant: Grant, watch: Watch, stop: asyncio.Event | None
) -> TransferResult:
    _check_prompts(config, folder)
    many = len(parts_before(config)) + len(parts_after(config)) + (config.training is not None)
    work = Work(
        config=config,
        folder=folder,
        budget=grant.budget,
        stop=stop or asyncio.Event(),
        device=grant.device,
        reports=grant.reports,
        progress=Progress(parts=many),
    )
    with folder.head.held():
        watch(work.progress)
        try:
            stopped = await _all(work)
        except Stopped as why:
            stopped = str(why)
        if stopped is not None:
            return TransferResult(path=folder.path, told=None, stopped=stopped)
        told = _compared(config, folder)
        folder.close(told)
        return TransferResult(path=folder.path, told=told, stopped=None)


def _check_prompts(config: TransferConfig, folder: TransferFolder) -> None:
    """Refuse to compare teams under two prompts: runs read them from the library."""
    for run, own in ((config.transferred[0], config.library), *((one, config.first_library) for one in config.first)):
        changed = changed_prompt(run, library_of(own))
        if changed is not None:
            raise UsageError(
                f"{folder.path}: prompts/{changed} is not what it was when the transfer began; "
                "restore it, or begin anew"
            )


async def _all(work: Work) -> str | None:
    """Make every part that is missing; returns why that stopped, None when all are there."""
    for part in parts_before(work.config):
        stopped = await measure(work, part, part.runs)
        if stopped is not None:
            return stopped
    if work.config.training is None:
        return None
    stopped = await train(work)
    if stopped is not None:
        return stopped
    for part in parts_after(work.config):
        stopped = await measure(work, part, [continued(work.config, work.folder, run) for run in part.runs])
        if stopped is not None:
            return stopped
    return None


def _compared(config: TransferConfig, folder: TransferFolder) -> Told:
    played: dict[Place, dict[Arm, list[RecordedRun]]] = {}
    for part in [*parts_before(config), *parts_after(config)]:
        runs = [recorded_run(folder.part(part) / f"seed-{run.seed}") for run in part.runs]
        played.setdefault(part.place, {})[part.arm] = runs
    return outcome_of(
        played,
        mode=config.mode,
        agents=config.agents,
        base=config.base_name,
        seeds=config.seeds,
        epoch=None if config.training is None else best_epoch(folder),
        method=None if config.training is None else config.training.called,
        untrained=() if config.training is None else untrained(folder, config.training.method.epochs),
    )
