"""Runs and trainings in one line each, and where they belong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from collab.errors import CollabError, RunFormatError
from collab.evaluation import Rate as Counted
from collab.evaluation import Report, summarise
from collab.marl.layout import FILE, MarlFolder
from collab.marl.summary import Record, Success, best_of, read_record
from collab.report import report_of
from collab.store.lock import owner
from collab.store.reader import RunReader
from collab.view.answer import short
from collab.view.labelled import Sums, added, told_sum
from collab.view.links import trouble, troubles
from collab.view.pool import Opened
from collab.view.roots import Root
from collab.view.shapes.common import Rate, Status
from collab.view.shapes.runs import Problem, RunRow

_CALLS = "SELECT count(*), sum(prompt_tokens), sum(completion_tokens), sum(cost_usd) FROM cells"

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


def report_in(root: Root, reader: RunReader) -> Report:
    """How a run went, over all that it planned.

    A rollout of a training counts what is over: it may end with its steps, and plans more episodes than it needs.
    """
    report = report_of(reader)
    if root.training is None or root.role != "rollout":
        return report
    return summarise(
        report.results,
        environment=report.environment,
        environment_version=report.environment_version,
        privileged=report.privileged,
    )


def run_row(root: Root, run: Opened) -> RunRow:
    """A run in one line."""
    reader, beside = run.reader, run.beside
    manifest, report = reader.manifest, report_in(root, reader)
    played: Sums = reader.query(_CALLS)[0]
    calls, prompt_tokens, completion_tokens, cost_usd = added([played, beside.judging(), beside.erring()])
    (updated, seconds, over) = reader.query(
        "SELECT max(updated), total(seconds), total(state != 'unfinished') FROM episodes"
    )[0]
    return RunRow(
        id=root.id,
        path=str(root.path),
        kind="run",
        unreadable=None,
        command=short(manifest.command),
        environment=short(manifest.environment),
        graph=short(manifest.graph),
        agents=short(manifest.agents),
        seed=str(manifest.seed),
        created=short(manifest.created),
        updated=updated,
        status=reader.status,
        privileged=report.privileged,
        planned=manifest.planned,
        done=int(over),
        broken=report.broken,
        success=rate(report.planned),
        steps=reader.query("SELECT count(*) FROM steps")[0][0],
        calls=calls,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=cost_usd,
        seconds=seconds,
        problems=len(reader.problems) + len(beside.problems()),
    )


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
        steps=0,
        calls=0,
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        seconds=0.0,
        problems=1,
    )


def training_row(root: Root, parts: Sequence[RunRow], last: RunRow | None) -> RunRow:
    """A training in one line.

    Args:
        parts: its runs, by epoch; what they took is added up.
        last: of them, the last rollout; None before the first.
    """
    (head, unread), (records, problems) = head_of(root.path), records_of(root.path)
    run, method = (_mapping(_mapping(head.get("config")).get(part)) for part in ("run", "method"))
    empty = unreadable_row(root, CollabError())
    first = parts[0] if parts else empty
    return replace(
        empty,
        unreadable=None,
        command="train-marl",
        environment=first.environment or short(_named(run, "environment_name")),
        graph=first.graph or short(_named(run, "graph_name")),
        agents=first.agents,
        seed=short(str(run.get("seed", ""))),
        created=short(str(head.get("created", ""))),
        updated=max((one.updated for one in parts if one.updated), default=None),
        status=_status(root.path, head, parts),
        privileged=any(one.privileged for one in parts),
        planned=epochs if isinstance(epochs := method.get("epochs"), int) else None,
        done=max((one.epoch for one in records), default=0),
        broken=sum(one.broken for one in parts),
        success=_success(records, last),
        steps=sum(one.steps for one in parts),
        calls=sum(one.calls for one in parts),
        prompt_tokens=told_sum(one.prompt_tokens for one in parts),
        completion_tokens=told_sum(one.completion_tokens for one in parts),
        cost_usd=told_sum(one.cost_usd for one in parts),
        seconds=math.fsum([*(one.seconds for one in parts), *_seconds_beside(records)]),
        problems=len(unread) + len(problems) + sum(one.problems for one in parts),
    )


def head_of(training: Path) -> tuple[dict[str, Any], list[Problem]]:
    """`marl.json`; empty, with the reason, where it cannot be read."""
    file = MarlFolder(training).file
    why = trouble(training, file)
    try:
        return ({}, [Problem(file=file.name, line=None, reason=why)]) if why else (MarlFolder(training).read(), [])
    except RunFormatError as error:
        return {}, [Problem(file=file.name, line=None, reason=str(error))]


def records_of(training: Path) -> tuple[list[Record], list[Problem]]:
    """Records of all epochs that are over, by epoch, and those that cannot be read."""
    records: list[Record] = []
    problems: list[Problem] = []
    for path in sorted((training / "epochs").glob("*/epoch.json")):
        if trouble(training, path) is not None:
            continue
        try:
            records.append(read_record(path))
        except CollabError as error:
            problems.append(Problem(file=str(path.relative_to(training)), line=None, reason=str(error)))
    return sorted(records, key=lambda one: one.epoch), problems


def links_of(training: Path) -> list[Problem]:
    """What of a training is not read, for it lies elsewhere."""
    found = [(path.relative_to(training), why) for path, why in troubles(training)]
    return [Problem(file=path.as_posix(), line=None, reason=why) for path, why in found if path.name != FILE]


def config_text(root: Root, reader: RunReader | None) -> str:
    """The configuration of a run or, without a reader, of a training: whole unless it is very long."""
    content: Any = reader.manifest.config if reader else head_of(root.path)[0].get("config")
    told = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    return told if len(told) <= CONFIG else f"{told[:CONFIG]}…"


def _seconds_beside(records: Sequence[Record]) -> list[float]:
    """Of critics, adversaries and training; play and evaluation are in the runs."""
    beside = ("critic", "adversary", "training")
    found = (one.spent[part].seconds for one in records for part in beside if part in one.spent)
    return [seconds for seconds in found if seconds is not None]


def _status(path: Path, head: Mapping[str, Any], parts: Sequence[RunRow]) -> Status:
    if owner(path) is not None:
        return "running"
    if head.get("summary"):
        return "finished"
    return "dead" if parts and parts[-1].status == "dead" else "stopped"


def _success(records: Sequence[Record], last: RunRow | None) -> Rate:
    best = best_of(records)
    found = next((rate_of(one.success) for one in records if one.epoch == best), None)
    return found or (NO_RATE if last is None else last.success)


def _named(config: Mapping[str, Any], name: str) -> str:
    return str(config.get(name) or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
