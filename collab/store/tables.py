"""The tables of the index, and the rows each event becomes.

Columns are for finding and counting, not for reading back: long or exact values are read from the log at (segment,
offset, length). Texts are cleaned for SQLite and cut, except for the few that say what broke.

Layers give the depth of a cell in its graph, and so the calls that it had to wait for:

    compute_layers(("ada", "ben", "cyd"), (("ada", "cyd"), ("ben", "cyd")))  # {"ada": 0, "ben": 0, "cyd": 1}
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache

from collab.store.events import (
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Record,
    StepRecorded,
    TextRecorded,
)
from collab.store.log import Place
from collab.types import Action, Point, Target


@lru_cache(maxsize=1024)
def compute_layers(agents: tuple[str, ...], edges: tuple[tuple[str, str], ...]) -> Mapping[str, int]:
    """Return the layer of every agent, from 0: all its speakers stand in earlier layers.

    Agents on or behind a cycle, which a record may contain, have no layer.
    """
    waiting = {agent: {speaker for speaker, hearer in edges if hearer == agent} for agent in agents}
    found: dict[str, int] = {}
    depth = 0
    while ready := [agent for agent, speakers in waiting.items() if speakers <= found.keys()]:
        for agent in ready:
            found[agent] = depth
            del waiting[agent]
        depth += 1
    return found


VERSION = 10
"""Changes with the tables below; an index of another version is rebuilt."""

SCHEMA = """
CREATE TABLE segments (name TEXT PRIMARY KEY, consumed INTEGER, lines INTEGER);
CREATE TABLE problems (segment TEXT, line INTEGER, reason TEXT);
CREATE TABLE events (segment TEXT, offset INTEGER, length INTEGER, type TEXT, time TEXT);
CREATE TABLE texts (hash TEXT PRIMARY KEY, segment TEXT, offset INTEGER, length INTEGER) WITHOUT ROWID;
CREATE TABLE episodes (
    key INTEGER PRIMARY KEY, trajectory TEXT UNIQUE, attempt INTEGER, state TEXT,
    epoch INTEGER, episode INTEGER, task TEXT, goal TEXT, seed TEXT, difficulty TEXT, apps TEXT, max_steps TEXT,
    environment TEXT, privileged INTEGER, success INTEGER, score REAL, reason TEXT,
    error TEXT, error_message TEXT, error_step INTEGER, steps INTEGER, seconds REAL, started TEXT, updated TEXT,
    start_segment TEXT, start_offset INTEGER, start_length INTEGER,
    end_segment TEXT, end_offset INTEGER, end_length INTEGER
);
CREATE TABLE plays (
    trajectory TEXT, number INTEGER, attempt INTEGER, step INTEGER, worker TEXT, version INTEGER, steps INTEGER,
    started TEXT, updated TEXT, state TEXT,
    PRIMARY KEY (trajectory, number)
) WITHOUT ROWID;
CREATE TABLE steps (
    key INTEGER, step INTEGER, segment TEXT, offset INTEGER, length INTEGER, title TEXT, action TEXT,
    words TEXT, effect TEXT, no_action INTEGER, copied INTEGER, agreement REAL, entropy REAL, tie INTEGER,
    ballots INTEGER, abstained INTEGER, privileged INTEGER, deliberation_s REAL, environment_s REAL,
    seen TEXT, done TEXT,
    PRIMARY KEY (key, step)
) WITHOUT ROWID;
CREATE TABLE cells (
    key INTEGER, step INTEGER, position INTEGER, agent TEXT, round INTEGER, layer INTEGER, ballot INTEGER, action TEXT,
    finish TEXT, failure TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, computed_tokens INTEGER,
    latency_s REAL, queue_s REAL, width REAL, cost_usd REAL, remarks TEXT,
    PRIMARY KEY (key, step, position)
) WITHOUT ROWID;
"""

_REOPEN = """
UPDATE episodes SET state = 'unfinished', error = NULL, error_message = NULL, error_step = NULL, steps = NULL,
    seconds = NULL, end_segment = NULL, end_offset = NULL, end_length = NULL, updated = ?
WHERE key = ? AND state = 'failed'
"""
"""Reopens a broken episode that resumes after its recorded steps."""

_LAST_PLAY = "trajectory = ?1 AND number = (SELECT max(number) FROM plays WHERE trajectory = ?1)"
"""The play of an episode that its next events belong to."""
_COUNT_STEP = f"""
UPDATE plays SET steps = steps + 1, updated = ?2, version = max(coalesce(version, ?3), ?3) WHERE {_LAST_PLAY}
"""

_LONGEST = 300
"""Characters of a text that the index keeps."""
_DIGITS = 16
"""Digits of a SHA-256 that distinguish screens (`seen`) and executed actions (`done`)."""


def insert(connection: sqlite3.Connection, record: Record, place: Place) -> str | None:
    """Add the rows of one event. An attempt of an episode replaces the rows of lower attempts.

    Returns:
        Why the event cannot count (its episode's start is lost); None if it counts.
    """
    match record.event:
        case StepRecorded() | EpisodeResumed() | EpisodeFinished():
            return _continue(connection, record.event, place, record.time)
        case TextRecorded(hash=hash):
            connection.execute("INSERT OR IGNORE INTO texts VALUES (?, ?, ?, ?)", (clean(hash), *_list_place(place)))
        case EpisodeStarted():
            _start(connection, record.event, place, record.time)
        case _:
            row = (*_list_place(place), _clean_text(record.type), _clean_text(record.time))
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)
    return None


def _continue(
    connection: sqlite3.Connection, event: StepRecorded | EpisodeResumed | EpisodeFinished, place: Place, time: str
) -> str | None:
    row = connection.execute(
        "SELECT key, attempt FROM episodes WHERE trajectory = ?", (clean(event.trajectory),)
    ).fetchone()
    # The log was cut or mixed: the event is reported and not guessed into place.
    if row is None or row[1] < event.attempt:
        return f"the start of attempt {event.attempt} of episode {event.trajectory} is lost"
    # Steps of an attempt that was given up.
    if row[1] > event.attempt:
        return None
    match event:
        case StepRecorded():
            _step(connection, row[0], event, place, time)
        case EpisodeResumed(step=step):
            # A resumed episode goes over its later steps again.
            for table in ("steps", "cells"):
                connection.execute(f"DELETE FROM {table} WHERE key = ? AND step >= ?", (row[0], step))
            connection.execute(_REOPEN, (time, row[0]))
            _begin_play(connection, event, step, time)
        case EpisodeFinished():
            _finish(connection, row[0], event, place, time)
    return None


def _start(connection: sqlite3.Connection, event: EpisodeStarted, place: Place, time: str) -> None:
    known = connection.execute(
        "SELECT key, attempt FROM episodes WHERE trajectory = ?", (clean(event.trajectory),)
    ).fetchone()
    connection.execute("SELECT ?, ?, ?", (event.attempt, event.epoch, event.episode))  # or nothing is deleted below
    if known is not None:
        key, attempt = known
        if event.attempt <= attempt:
            return
        for table in ("steps", "cells", "episodes"):
            connection.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
    task = event.task
    values = {
        "trajectory": clean(event.trajectory),
        "attempt": event.attempt,
        "state": "unfinished",
        "epoch": event.epoch,
        "episode": event.episode,
        "task": _clean_text(task.name),
        "goal": _clean_text(task.goal),
        "seed": str(task.seed),
        "difficulty": _clean_text(task.difficulty),
        "apps": _clean_text(", ".join(task.apps)),
        "max_steps": str(task.max_steps),
        "environment": _clean_text(event.environment),
        "privileged": event.privileged,
        "started": time,
        "updated": time,
        "start_segment": place.segment,
        "start_offset": place.offset,
        "start_length": place.length,
    }
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO episodes ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))
    _begin_play(connection, event, 0, time)


def _begin_play(connection: sqlite3.Connection, event: EpisodeStarted | EpisodeResumed, step: int, time: str) -> None:
    """Add a play: an episode from its start, or from the step at which it resumes, to its end or the next play."""
    connection.execute(
        "INSERT INTO plays SELECT ?1, count(*), ?2, ?3, ?4, NULL, 0, ?5, ?5, 'unfinished' FROM plays"
        " WHERE trajectory = ?1",
        (clean(event.trajectory), event.attempt, step, _clean_text(event.worker), time),
    )


def _finish(connection: sqlite3.Connection, key: int, event: EpisodeFinished, place: Place, time: str) -> None:
    outcome, error = event.outcome, event.error
    values: Mapping[str, object] = {
        "state": "finished" if error is None else "failed",
        "success": outcome.success if outcome else None,
        "score": outcome.score if outcome else None,
        "reason": _clean_text(outcome.reason) if outcome else None,
        "error": _clean_text(error.type) if error else None,
        "error_message": clean(error.message) if error else None,
        "error_step": error.step if error else None,
        "steps": event.steps,
        "seconds": event.seconds,
        "updated": time,
        "end_segment": place.segment,
        "end_offset": place.offset,
        "end_length": place.length,
    }
    columns = ", ".join(f"{name} = ?" for name in values)
    # Only what is unfinished ends: a second end, from a copied line, changes nothing.
    sql = f"UPDATE episodes SET {columns} WHERE key = ? AND state = 'unfinished'"
    if connection.execute(sql, (*values.values(), key)).rowcount:
        connection.execute(
            f"UPDATE plays SET state = ?2, updated = ?3 WHERE {_LAST_PLAY}",
            (clean(event.trajectory), values["state"], time),
        )


def _step(connection: sqlite3.Connection, key: int, event: StepRecorded, place: Place, time: str) -> None:
    step = event.step
    ballots = {cell: number for number, ballot in enumerate(step.vote.ballots) for cell in ballot.cells}
    cells = step.matrix.utterances
    row = (
        key,
        step.index,
        *_list_place(place),
        _clean_text(step.observation.title),
        _describe(step.executed),
        _clean_text(step.history.action),
        _clean_text(step.history.effect),
        step.no_action,
        step.copied,
        step.agreement,
        step.vote.entropy,
        step.vote.tie,
        len(step.vote.ballots),
        len(step.vote.abstained),
        any(cell.privileged for cell in cells),
        step.deliberation_s,
        step.environment_s,
        step.observation.digest[:_DIGITS],
        _hash_action(step.executed),
    )
    cursor = connection.execute(f"INSERT OR IGNORE INTO steps VALUES ({', '.join('?' * len(row))})", row)
    if cursor.rowcount == 0:  # recorded before: the first record counts
        return
    connection.execute("UPDATE episodes SET updated = ? WHERE key = ?", (time, key))
    if step.copied:  # its replies were asked for, and counted, in another episode
        return
    version = max((cell.policy.version for cell in cells), default=0)
    connection.execute(_COUNT_STEP, (clean(event.trajectory), time, version))
    depths = compute_layers(step.matrix.agents, step.matrix.edges)
    connection.executemany(
        f"INSERT INTO cells VALUES ({', '.join('?' * 18)})",
        [
            (
                key,
                step.index,
                position,
                _clean_text(cell.agent),
                cell.round,
                depths.get(cell.agent),
                ballots.get(cell.cell),
                _describe(cell.action),
                _clean_text(cell.finish),
                cell.failure.kind if cell.failure else None,
                cell.prompt_tokens,
                cell.completion_tokens,
                cell.computed_tokens,
                cell.latency_s,
                cell.queue_s,
                cell.width,
                cell.cost_usd,
                # The kinds alone, each once; the whole remarks are in the record.
                _clean_text("; ".join(dict.fromkeys(one.partition(":")[0] for one in cell.remarks))) or None,
            )
            for position, cell in enumerate(cells)
        ],
    )


def _list_place(place: Place) -> tuple[str, int, int]:
    return place.segment, place.offset, place.length


def _describe(action: Action | None) -> str | None:
    """Format an action in one line, for filters and lists: "click [3]", "input_text [5] text='hello'"."""
    if action is None:
        return None
    words = [action.type, *_format_target(action.target), *(f"{name}={value!r}" for name, value in action.arguments)]
    return _clean_text(" ".join(words))


def _hash_action(action: Action | None) -> str | None:
    """Hash an action, whatever the length of its text."""
    if action is None:
        return None
    content = json.dumps(asdict(action), sort_keys=True, ensure_ascii=True).encode("ascii")
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def _format_target(target: Target | None) -> list[str]:
    if target is None:
        return []
    return [f"({target.x:g}, {target.y:g})"] if isinstance(target, Point) else [f"[{target.index}]"]


def clean(text: str) -> str:
    """Replace lone surrogates, which SQLite cannot hold; our own names stay equal."""
    return text.encode("utf-8", "replace").decode()


def _clean_text(text: str | None) -> str | None:
    return None if text is None else clean(text[:_LONGEST])
