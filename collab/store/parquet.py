"""Runs as tables for other tools: Parquet files for episodes, steps and cells, and further tables.

    with ParquetFolder(out, {**COLUMNS, "rewards": {"string": "run trajectory", "double": "score"}}) as folder:
        for episode in reader.list_episodes():
            add_episode(folder, "first", reader, episode)
    folder.files

All tables share `run` and `trajectory`, those of steps and cells also `step`. Actions, parameters and edges are JSON
texts; prompts are whole texts; pictures are named by hash and stay in the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from collab.errors import MissingExtra, UnknownName, UsageError
from collab.store.manifest import Manifest
from collab.store.reader import EpisodeSummary, RunReader
from collab.types import Action, Step, Trajectory, Utterance
from collab.utils.files import report_write_errors

Row = dict[str, Any]
Kinds = Mapping[str, str]
"""Type → names of the columns of that type."""
Scores = Callable[[Trajectory, Step, Utterance], Row]
"""Trajectory, step and cell → values of the `SCORED` columns."""

SCORED: Kinds = {"string": "critic score_reason", "double": "score", "int64": "reward"}
"""A critic's scores of a cell."""

COLUMNS: Mapping[str, Kinds] = {
    "episodes": {
        "string": "run trajectory task environment environment_version goal params difficulty state reason error"
        " error_message command graph agents split",
        "int64": "epoch episode seed steps run_seed",
        "bool": "success privileged",
        "double": "score seconds",
    },
    "steps": {
        "string": "run trajectory title url text screenshot executed effect edges",
        "int64": "step ballots abstained",
        "bool": "no_action tie terminated truncated",
        "double": "entropy deliberation_s environment_s",
    },
    "cells": {
        "string": "run trajectory task split agent heard system user text reason action finish failure failure_detail"
        f" prompt_prefix policy adapter tokenizer {SCORED['string']}",
        "int64": "step round position ballot policy_version seed prompt_tokens completion_tokens computed_tokens"
        f" end_token {SCORED['int64']}",
        "bool": "privileged executed success",
        "double": "temperature top_p latency_s queue_s width cost_usd end_logprob end_behaviour_logprob"
        f" {SCORED['double']}",
        "list<int64>": "tokens",
        "list<double>": "logprobs behaviour_logprobs",
    },
}
"""Per table: the columns of each type. Every column may be null."""

MESSAGES = "messages"
"""A type: turns of a chat, as TRL and transformers read them."""
_ROWS = 1024
"""Rows that are collected before they are written."""


class ParquetFolder:
    """A folder of tables that appear together once all are complete; after an error, none of them stays behind.

    Args:
        out: made if it is not there.
        tables: name → columns.

    Raises:
        MissingExtra: pyarrow is not installed.
        UsageError: one of the tables is there already.
        StoreFailure: the folder cannot be written.
    """

    def __init__(self, out: Path, tables: Mapping[str, Kinds]) -> None:
        MissingExtra.unless("pyarrow", extra="parquet", purpose="an export to Parquet")
        there = next((path for name in tables if (path := out / f"{name}.parquet").exists()), None)
        if there is not None:
            raise UsageError(f"{there}: is there already, and nothing is overwritten; name another folder")
        self.files: list[Path] = []
        """Once all are whole: those that were written, those of `COLUMNS` always, others where they have rows."""
        self._out, self._columns = out, tables
        self._stack = ExitStack()
        self._tables: dict[str, _ParquetTable] = {}

    def __enter__(self) -> ParquetFolder:
        """Open the files for writing."""
        with report_write_errors(self._out, "export again"):
            self._out.mkdir(parents=True, exist_ok=True)
            for name, kinds in self._columns.items():
                self._tables[name] = self._stack.enter_context(closing(_ParquetTable(self._out, name, kinds)))
        return self

    def add(self, table: str, row: Row) -> None:
        """Add a row; StoreFailure if the disk is full."""
        with report_write_errors(self._out, "export again"):
            self._tables[table].add(row)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Move the files into place, or leave none."""
        with self._stack, report_write_errors(self._out, "export again"):
            if error is None:
                kept = [table for name, table in self._tables.items() if name in COLUMNS or table.count]
                self.files = [table.finish() for table in kept]


def add_episode(
    folder: ParquetFolder, run: str, reader: RunReader, episode: EpisodeSummary, scores: Scores = lambda *_: {}
) -> Trajectory:
    """Add an episode of a run with its steps and cells, and return it.

    Args:
        run: the run's name in the rows.
    """
    manifest, trajectory = reader.manifest, reader.read_trajectory(episode.id)
    folder.add("episodes", _build_episode_row(run, manifest, trajectory, episode.state))
    for step in trajectory.steps:
        folder.add("steps", {"run": run, **_step(trajectory.id, step)})
        for position, cell in enumerate(step.matrix):
            system, user = read_prompt(reader, cell)
            told = {"run": run, "split": split_of(manifest), "system": system, "user": user}
            folder.add(
                "cells", told | _build_cell_row(trajectory, step, position, cell) | scores(trajectory, step, cell)
            )
    return trajectory


def read_prompt(reader: RunReader, cell: Utterance) -> tuple[str | None, str | None]:
    """Return the system text and the user turn of a cell's prompt; None for both if the run lost them."""
    try:
        system, _, shared = reader.read_prefix(cell.prompt.prefix).partition("\f")
    except UnknownName:
        return None, None
    return clean(system), clean(shared + cell.prompt.suffix)


def split_of(manifest: Manifest) -> str | None:
    """Return the name of a run's split; None without one."""
    split = manifest.config.get("split")
    return split["name"] if split else None


class _ParquetTable:
    """A Parquet file that appears under its name only once it is complete."""

    def __init__(self, out: Path, name: str, kinds: Kinds) -> None:
        import pyarrow.parquet

        self.count = 0
        """Rows added."""
        self._path = out / f"{name}.parquet"
        self._temporary = out / f".{name}.parquet"
        self._schema = _build_schema(kinds)
        self._writer = pyarrow.parquet.ParquetWriter(self._temporary, self._schema)
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)
        self.count += 1
        if len(self._rows) >= _ROWS:
            self._flush()

    def finish(self) -> Path:
        """Move the file into place."""
        self._flush()
        self._writer.close()
        return self._temporary.replace(self._path)

    def close(self) -> None:
        """Close the writer and remove its temporary file."""
        self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        import pyarrow

        self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows = []


def _build_schema(kinds: Kinds) -> Any:
    import pyarrow

    turn = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
    nested = {
        "list<int64>": pyarrow.list_(pyarrow.int64()),
        "list<double>": pyarrow.list_(pyarrow.float64()),
        MESSAGES: pyarrow.list_(turn),
    }
    return pyarrow.schema(
        [
            (column, nested.get(kind) or pyarrow.type_for_alias(kind))
            for kind, columns in kinds.items()
            for column in columns.split()
        ]
    )


def _build_episode_row(run: str, manifest: Manifest, trajectory: Trajectory, state: str) -> Row:
    task, outcome, error = trajectory.task, trajectory.outcome, trajectory.error
    return {
        "run": run,
        "command": manifest.command,
        "graph": manifest.graph,
        "agents": manifest.agents,
        "split": split_of(manifest),
        "run_seed": manifest.seed,
        "trajectory": trajectory.id,
        "task": task.name,
        "environment": trajectory.environment,
        "environment_version": trajectory.environment_version,
        "goal": clean(task.goal),
        "params": json.dumps(task.params),
        "difficulty": task.difficulty,
        "state": state,
        "reason": clean(outcome.reason) if outcome else None,
        "error": error.type if error else None,
        "error_message": clean(error.message) if error else None,
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
        "title": clean(screen.title),
        "url": clean(screen.url),
        "text": clean(screen.text),
        "screenshot": screen.screenshot,
        "executed": _dump_action(step.executed),
        "effect": clean(step.history.effect),
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


def _build_cell_row(trajectory: Trajectory, step: Step, position: int, cell: Utterance) -> Row:
    ballots = (number for number, ballot in enumerate(step.vote.ballots) if cell.cell in ballot.cells)
    failure, ballot = cell.failure, next(ballots, None)
    return {
        "trajectory": trajectory.id,
        "task": trajectory.task.name,
        "success": trajectory.outcome.success if trajectory.outcome else None,
        "executed": ballot == 0,
        "agent": cell.agent,
        "heard": json.dumps([[one.agent, one.round] for one in cell.heard]),
        "text": clean(cell.text),
        "reason": clean(cell.reason),
        "action": _dump_action(cell.action),
        "finish": cell.finish,
        "failure": failure.kind if failure else None,
        "failure_detail": clean(failure.detail) if failure else None,
        "prompt_prefix": cell.prompt.prefix,
        "policy": cell.policy.base,
        "adapter": cell.policy.adapter,
        "tokenizer": cell.tokenizer,
        "step": step.index,
        "round": cell.round,
        "position": position,
        "ballot": ballot,
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
        "end_token": cell.end_token,
        "end_logprob": cell.end_logprob,
        "end_behaviour_logprob": cell.end_behaviour_logprob,
    }


def _dump_action(action: Action | None) -> str | None:
    return None if action is None else json.dumps(asdict(action))


def clean(text: str | None) -> str | None:
    """Replace lone surrogates, which Parquet cannot hold, by question marks."""
    return None if text is None else text.encode("utf-8", "replace").decode()
