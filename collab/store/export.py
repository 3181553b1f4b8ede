"""A run as tables for other tools: one Parquet file each for episodes, steps and cells.

The three share `trajectory`, and steps and cells also `step`. Actions and parameters are JSON texts; what a run stores
as pictures or prompts is named by hash and stays in the run.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collab.errors import MissingExtra
from collab.store.files import writing
from collab.store.run import RunStore
from collab.types import Action, Step, Trajectory, Utterance

Row = dict[str, Any]

COLUMNS = {
    "episodes": {
        "string": "trajectory task environment environment_version goal params difficulty state reason error"
        " error_message",
        "int64": "epoch episode seed steps",
        "bool": "success privileged",
        "double": "score seconds",
    },
    "steps": {
        "string": "trajectory title url text screenshot executed effect edges",
        "int64": "step ballots abstained",
        "bool": "no_action tie terminated truncated",
        "double": "entropy deliberation_s environment_s",
    },
    "cells": {
        "string": "trajectory agent text reason action failure failure_detail prompt_prefix prompt_suffix policy"
        " adapter tokenizer",
        "int64": "step round position ballot policy_version seed prompt_tokens completion_tokens computed_tokens",
        "bool": "privileged",
        "double": "temperature top_p latency_s queue_s width cost_usd",
        "list<int64>": "tokens",
        "list<double>": "logprobs behaviour_logprobs",
    },
}
"""Per table: the columns of each type. Every column may be null."""

_ROWS = 4096
"""Rows that gather before they are written."""


def export_parquet(store: RunStore, out: Path) -> list[Path]:
    """Write episodes.parquet, steps.parquet and cells.parquet into the folder `out`, replacing older ones.

    Unfinished episodes are included, with state "unfinished" and no success.

    Returns:
        The files.

    Raises:
        MissingExtra: pyarrow is not installed.
        StoreFailure: the folder cannot be written.
    """
    MissingExtra.unless("pyarrow", extra="parquet", purpose="an export to Parquet")
    with writing(out, "export again"), ExitStack() as stack, store.reader() as reader:
        out.mkdir(parents=True, exist_ok=True)
        tables = {name: stack.enter_context(closing(_Table(out, name))) for name in COLUMNS}
        for summary in reader.episodes():
            trajectory = reader.trajectory(summary.id)
            tables["episodes"].add(_episode(trajectory, summary.state))
            for step in trajectory.steps:
                tables["steps"].add(_step(trajectory.id, step))
                for position, cell in enumerate(step.matrix):
                    tables["cells"].add(_cell(trajectory.id, step, position, cell))
        return [table.finish() for table in tables.values()]


class _Table:
    """A Parquet file that appears under its name only when it is whole."""

    def __init__(self, out: Path, name: str) -> None:
        import pyarrow.parquet

        self._path = out / f"{name}.parquet"
        self._temporary = out / f".{name}.parquet"
        self._schema = _schema(name)
        self._writer = pyarrow.parquet.ParquetWriter(self._temporary, self._schema)
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= _ROWS:
            self._flush()

    def finish(self) -> Path:
        """Put the file in its place."""
        self._flush()
        self._writer.close()
        return self._temporary.replace(self._path)

    def close(self) -> None:
        """Leave no half-made file behind."""
        self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        import pyarrow

        self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []


def _schema(name: str) -> Any:
    import pyarrow

    lists = {"list<int64>": pyarrow.list_(pyarrow.int64()), "list<double>": pyarrow.list_(pyarrow.float64())}
    return pyarrow.schema(
        [
            (column, lists.get(kind) or pyarrow.type_for_alias(kind))
            for kind, columns in COLUMNS[name].items()
            for column in columns.split()
        ]
    )


def _episode(trajectory: Trajectory, state: str) -> Row:
    task, outcome, error = trajectory.task, trajectory.outcome, trajectory.error
    return {
        "trajectory": trajectory.id,
        "task": task.name,
        "environment": trajectory.environment,
        "environment_version": trajectory.environment_version,
        "goal": _clean(task.goal),
        "params": json.dumps(task.params),
        "difficulty": task.difficulty,
        "state": state,
        "reason": _clean(outcome.reason) if outcome else None,
        "error": error.type if error else None,
        "error_message": _clean(error.message) if error else None,
        "epoch": trajectory.epoch,
        "episode": trajectory.episode,
        "seed": task.seed,
        "steps": len(trajectory.steps),
        "success": outcome.success if outcome else None,
        "privileged": trajectory.privileged,
        "score": outcome.score if outcome else None,
        "seconds": trajectory.seconds,
    }


def _step(trajectory: str, step: Step) -> Row:
    screen, vote = step.observation, step.vote
    return {
        "trajectory": trajectory,
        "title": _clean(screen.title),
        "url": _clean(screen.url),
        "text": _clean(screen.text),
        "screenshot": screen.screenshot,
        "executed": _action(step.executed),
        "effect": _clean(step.history.effect),
        "edges": json.dumps(step.matrix.edges),
        "step": step.index,
        "ballots": len(vote.ballots),
        "abstained": len(vote.abstained),
        "no_action": step.no_action,
        "tie": vote.tie,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "entropy": vote.entropy,
        "deliberation_s": step.deliberation_s,
        "environment_s": step.environment_s,
    }


def _cell(trajectory: str, step: Step, position: int, cell: Utterance) -> Row:
    ballots = (number for number, ballot in enumerate(step.vote.ballots) if cell.cell in ballot.cells)
    failure = cell.failure
    return {
        "trajectory": trajectory,
        "agent": cell.agent,
        "text": _clean(cell.text),
        "reason": _clean(cell.reason),
        "action": _action(cell.action),
        "failure": failure.kind if failure else None,
        "failure_detail": _clean(failure.detail) if failure else None,
        "prompt_prefix": cell.prompt.prefix,
        "prompt_suffix": _clean(cell.prompt.suffix),
        "policy": cell.policy.base,
        "adapter": cell.policy.adapter,
        "tokenizer": cell.tokenizer,
        "step": step.index,
        "round": cell.round,
        "position": position,
        "ballot": next(ballots, None),
        "policy_version": cell.policy.version,
        "seed": cell.seed,
        "prompt_tokens": cell.prompt_tokens,
        "completion_tokens": cell.completion_tokens,
        "computed_tokens": cell.computed_tokens,
        "privileged": cell.privileged,
        "temperature": cell.sampling.temperature,
        "top_p": cell.sampling.top_p,
        "latency_s": cell.latency_s,
        "queue_s": cell.queue_s,
        "width": cell.width,
        "cost_usd": cell.cost_usd,
        "tokens": cell.tokens,
        "logprobs": cell.logprobs,
        "behaviour_logprobs": cell.behaviour_logprobs,
    }


def _action(action: Action | None) -> str | None:
    return None if action is None else json.dumps(asdict(action))


def _clean(text: str | None) -> str | None:
    """What Parquet can hold: lone surrogates become question marks."""
    return None if text is None else text.encode("utf-8", "replace").decode()
