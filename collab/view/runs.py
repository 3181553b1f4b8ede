"""Runs and trainings in one line each, and where they belong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collab.algorithms.collabuiagents.metrics import metrics_of
from collab.errors import CollabError, RunFormatError
from collab.evaluation import Rate as Counted
from collab.evaluation import describe_sampling
from collab.loop.interfaces import algorithm_named, load_config
from collab.loop.layout import FILE, TrainingDir
from collab.loop.record import EpochRecord, Success, best_of, read_record
from collab.seeds import Seeds
from collab.store.lock import FILE as LOCK
from collab.store.lock import owner
from collab.store.reader import RunReader
from collab.view.answer import short
from collab.view.counted import report_in
from collab.view.labelled import added, first_line, told_sum
from collab.view.learned import MOST, problems_in_metrics
from collab.view.links import trouble, troubles
from collab.view.pool import Opened
from collab.view.roots import Root
from collab.view.shapes.common import Rate, Status
from collab.view.shapes.runs import Problem, RunRow
from collab.view.spent import paid, seconds_of

CONFIG = 200_000
"""Characters of a configuration that are answered."""

NO_RATE = Rate(successes=0, episodes=0, value=None, low=None, high=None)


def rate(counted: Counted) -> Rate:
    """A rate as it is answered."""
    if not counted.episodes:
        return NO_RATE
    low, high = counted.interval
    return Rate(successes=counted.successes, episodes=counted.episodes, value=counted.value, low=low, high=high)


def rate_of(success: Success | None) -> Rate | None:
    """A recorded rate as it is answered."""
    if success is None:
        return None
    value = success.value if success.episodes else None
    return Rate(successes=success.successes, episodes=success.episodes, value=value, low=success.low, high=success.high)


def run_row(root: Root, run: Opened) -> RunRow:
    """A run in one line."""
    reader, beside = run.reader, run.beside
    manifest, report = reader.manifest, report_in(root, reader)
    took = added([paid(reader), beside.judging(), beside.erring()])
    calls, prompt_tokens, completion_tokens, cost_usd = took
    (updated, over) = reader.query("SELECT max(updated), total(state != 'unfinished') FROM episodes")[0]
    return RunRow(
        id=root.id,
        path=str(root.path),
        kind="run",
        unreadable=None,
        command=short(manifest.command),
        environment=short(manifest.environment),
        graph=short(manifest.graph),
        agents=short(manifest.agents),
        seed=str(manifest.seeds),
        created=short(manifest.created),
        updated=updated,
        status=reader.status,
        privileged=report.privileged,
        planned=manifest.planned,
        done=int(over),
        broken=report.broken,
        success=rate(report.planned),
        replies=report.replies.total,
        without_action=report.replies.without_action,
        sampling=short(describe_sampling(report.sampling)) if report.sampling else "",
        steps=reader.query("SELECT count(*) FROM steps")[0][0],
        calls=calls,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=cost_usd,
        seconds=seconds_of(reader.directory),
        problems=len(reader.problems) + len(beside.problems()),
    )


def _seeds(run: Mapping[str, Any]) -> str:
    """Of a configuration that may be damaged."""
    seed, beside = run.get("seed", ""), run.get("sampling_seed")
    return str(Seeds(seed, beside)) if isinstance(seed, int) and isinstance(beside, int) else str(seed)


def unreadable_row(root: Root, why: CollabError) -> RunRow:
    """A run or training of which nothing can be read."""
    return RunRow(
        id=root.id,
        path=str(root.path),
        kind=root.kind,
        unreadable=str(why),
        command="",
        environment="",
        graph="",
        agents="",
        seed="",
        created="",
        updated=None,
        status="dead",
        privileged=False,
        planned=None,
        done=0,
        broken=0,
        success=NO_RATE,
        replies=0,
        without_action=0,
        sampling="",
        steps=0,
        calls=0,
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        seconds=0.0,
        problems=1,
    )


def training_row(root: Root, parts: Sequence[tuple[Root, RunRow]]) -> RunRow:
    """A training in one line.

    Args:
        parts: its runs, by epoch, those that cannot be read included; what they took is added up.
    """
    rows = [row for _, row in parts if row.unreadable is None]
    rollouts = [row for part, row in parts if part.role == "rollout" and row.unreadable is None]
    measured = [row for part, row in parts if part.role == "evaluation" and row.unreadable is None]
    head, records = head_of(root.path)[0], records_of(root.path)[0]
    run, method = (_mapping(_mapping(head.get("config")).get(part)) for part in ("run", "method"))
    empty = unreadable_row(root, CollabError())
    first = rows[0] if rows else empty
    return replace(
        empty,
        unreadable=None,
        command="train",
        environment=first.environment or short(_named(run, "environment_name")),
        graph=first.graph or short(_named(run, "graph_name")),
        agents=first.agents,
        seed=short(_seeds(run)),
        created=short(str(head.get("created", ""))),
        updated=max((one.updated for one in rows if one.updated), default=None),
        status=_status(root.path, head, rows),
        privileged=any(one.privileged for one in rows),
        planned=epochs if isinstance(epochs := method.get("epochs"), int) else None,
        done=max((one.epoch for one in records), default=0),
        broken=sum(one.broken for one in rows),
        success=_success(records, rollouts),
        replies=sum(one.replies for one in rows),
        without_action=sum(one.without_action for one in rows),
        sampling=next((row.sampling for row in (*measured, *rollouts)), ""),
        steps=sum(one.steps for one in rows),
        calls=sum(one.calls for one in rows),
        prompt_tokens=told_sum(one.prompt_tokens for one in rows),
        completion_tokens=told_sum(one.completion_tokens for one in rows),
        cost_usd=told_sum(one.cost_usd for one in rows),
        seconds=_seconds(records, parts),
        problems=len(problems_beside(root)) + sum(row.problems for _, row in parts),
    )


def head_of(training: Path) -> tuple[dict[str, Any], list[Problem]]:
    """`training.json`; empty, with the reason, where it cannot be read."""
    file = TrainingDir(training).file
    why = trouble(training, file)
    try:
        return ({}, [Problem(file=file.name, line=None, reason=why)]) if why else (TrainingDir(training).read(), [])
    except RunFormatError as error:
        return {}, [Problem(file=file.name, line=None, reason=str(error))]


def records_of(training: Path) -> tuple[list[EpochRecord], list[Problem]]:
    """Records of all epochs that are over, by epoch, and those that cannot be read."""
    records: list[EpochRecord] = []
    problems: list[Problem] = []
    for path in sorted((training / "epochs").glob("*/epoch.json")):
        if trouble(training, path) is not None:
            continue
        try:
            record = read_record(path)
            if not _is_told(record.model_dump()) or str(record.epoch) != path.parent.name:
                raise RunFormatError(f"{path}: cannot be read: a number in it is none that an epoch can have")
            if rewards_cells(record):
                metrics_of(record)
            records.append(record)
        except CollabError as error:
            problems.append(Problem(file=str(path.relative_to(training)), line=None, reason=str(error)))
    return sorted(records, key=lambda one: one.epoch), problems


def rewards_cells(record: EpochRecord) -> bool:
    """Whether the algorithm of a record tells rewards and pairs as credit re-assignment does."""
    from collab.algorithms.collabuiagents.algorithm import CollabUIAgents  # which loads what trains

    try:
        return isinstance(algorithm_named(record.algorithm), CollabUIAgents)
    except CollabError:
        return False


def links_of(training: Path) -> list[Problem]:
    """What of a training is not read, for it lies elsewhere."""
    found = [(path.relative_to(training), why) for path, why in troubles(training)]
    return [Problem(file=path.as_posix(), line=None, reason=why) for path, why in found if path.name != FILE]


def problems_beside(training: Root) -> list[Problem]:
    """All that cannot be read of a training, beside what is in its runs."""
    path = training.path
    head, told = head_of(path)
    plan = told or _plan_of(head)
    return [*plan, *records_of(path)[1], *links_of(path), *problems_in_metrics(path)]


def _plan_of(head: Mapping[str, Any]) -> list[Problem]:
    """Why nobody knows which episodes a training learns from; empty where it is known."""
    try:
        load_config(head["config"], FILE)
    except (CollabError, LookupError, TypeError, ValueError) as error:
        reason = f"{first_line(error)}; its rollouts are told by all that was played in them"
        return [Problem(file=FILE, line=None, reason=reason)]
    return []


def _is_told(value: Any) -> bool:
    """Whether all counts in it are such that can be added up and drawn."""
    if isinstance(value, Mapping):
        return all(_is_told(one) for one in value.values())
    if isinstance(value, list | tuple):
        return all(_is_told(one) for one in value)
    return not isinstance(value, int) or abs(value) < MOST


def config_text(root: Root, reader: RunReader | None) -> str:
    """The configuration of a run or, without a reader, of a training: whole unless it is very long."""
    content: Any = reader.manifest.config if reader else head_of(root.path)[0].get("config")
    told = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    return told if len(told) <= CONFIG else f"{told[:CONFIG]}…"


def _seconds(records: Sequence[EpochRecord], parts: Sequence[tuple[Root, RunRow]]) -> float:
    """As its records tell; of runs about which they tell nothing, what their events tell."""
    told = {
        (one.epoch, part): spent.seconds
        for one in records
        for part, spent in one.spent.items()
        if spent.seconds is not None
    }
    others = [row.seconds for part, row in parts if (part.epoch, part.role) not in told]
    return math.fsum([*told.values(), *others])


def _status(path: Path, head: Mapping[str, Any], parts: Sequence[RunRow]) -> Status:
    if trouble(path, path / LOCK) is None and owner(path) is not None:
        return "running"
    if head.get("summary"):
        return "finished"
    return "dead" if parts and parts[-1].status == "dead" else "stopped"


def _success(records: Sequence[EpochRecord], rollouts: Sequence[RunRow]) -> Rate:
    best = best_of(records)
    found = next((rate_of(one.success) for one in records if one.epoch == best), None)
    return found or (rollouts[-1].success if rollouts else NO_RATE)


def _named(config: Mapping[str, Any], name: str) -> str:
    return str(config.get(name) or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
