"""Estimates: the worth of every step that a policy's learning considered in an epoch, and why a step is not learned.

    write_estimates(estimates, folder)                      # estimates.parquet, beside turns and order
    for estimate in read_estimates(folder):
        print(estimate.step, estimate.value, estimate.why)

They are written before anything is learned, and only read by who looks at a training: learning takes its turns and
weights from the lesson (`collab.trainers.rl.turns`). An algorithm leaves out what it does not estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collab.errors import MissingExtra, RunFormatError

ESTIMATES = "estimates.parquet"
"""File of a policy's estimates, in the folder of its lesson."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEstimate:
    """Estimates of one step; None where an algorithm does not estimate that."""

    run: str
    trajectory: str
    step: int
    reward: float
    """Reward of the episode it belongs to."""
    value: float | None = None
    """V of its state, or Q of its reply."""
    value_next: float | None = None
    """V of the state behind it; 0 behind the last one."""
    step_reward: float | None = None
    """Reward of the step itself, by a critic."""
    target: float | None = None
    """Return that its value is fitted to."""
    instruct_value: float | None = None
    """V of its instruction."""
    instruct_advantage: float | None = None
    """Advantage of its episode over its instruction."""
    advantage: float | None = None
    """Advantage of the step itself."""
    penalty: float | None = None
    """What its advantage lost, e.g. for a repetition; at most 0."""
    ratio: float | None = None
    """Probability of its reply now over that when it was sampled, cut at 1."""
    entropy: float | None = None
    """Mean entropy of the policy over its reply's tokens, in nats."""
    staleness: int | None = None
    """Versions between the policy that replied and the one that learns."""
    priority: float | None = None
    """Priority of its episode among those remembered, after the epoch."""
    threshold: float | None = None
    """Above which an advantage is learned."""
    weight: float
    """What multiplies its loss; 0 for a step that is not learned."""
    why: str
    """"kept", or why not."""


def write_estimates(estimates: Sequence[StepEstimate], folder: Path) -> None:
    """Write estimates into a folder that exists."""
    write_table(folder / ESTIMATES, [asdict(one) for one in estimates], _ESTIMATE)


def read_estimates(folder: Path, *, run: str | None = None, trajectory: str | None = None) -> Iterator[StepEstimate]:
    """Yield the estimates in a folder, in their order.

    Args:
        run, trajectory: only of these; None for all.

    Raises:
        MissingExtra: pyarrow is not installed.
        RunFormatError: the file is missing, cannot be read, or has other columns.
    """
    MissingExtra.unless("pyarrow", extra="parquet", purpose="what was estimated of steps")
    wanted = {name: value for name, value in (("run", run), ("trajectory", trajectory)) if value is not None}
    try:
        for row in read_table(folder / ESTIMATES, _ESTIMATE, wanted):
            if any(row[name] is None for name in _KNOWN):
                raise ValueError(f"a row lacks one of {', '.join(_KNOWN)}")
            yield StepEstimate(**row)
    except (OSError, ValueError, TypeError) as error:
        raise RunFormatError(f"{folder / ESTIMATES}: cannot be read: {error}") from None


_ESTIMATE = {
    **{"run": "string", "trajectory": "string", "step": "int32", "reward": "double", "value": "double"},
    **{"value_next": "double", "step_reward": "double", "target": "double", "instruct_value": "double"},
    **{"instruct_advantage": "double", "advantage": "double", "penalty": "double", "ratio": "double"},
    **{"entropy": "double", "staleness": "int32", "priority": "double", "threshold": "double", "weight": "double"},
    **{"why": "string"},
}
"""Column → type of `estimates.parquet`."""
_KNOWN = ("run", "trajectory", "step", "reward", "weight", "why")
"""Columns with a value in every row."""


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Write rows as a table of these columns, name → type; a reader never sees half of it."""
    import pyarrow
    import pyarrow.parquet

    schema = _build_schema(columns)
    part = path.with_name(f".{path.name}")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([dict(row) for row in rows], schema=schema), part)
    part.replace(path)


def read_table(path: Path, columns: Mapping[str, str], wanted: Mapping[str, str] = {}) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, a few thousand at a time in memory.

    Args:
        wanted: column → its value in the rows that are wanted; empty for all rows.

    Raises:
        OSError, ValueError: it cannot be read, or has not these columns.
    """
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if not file.schema_arrow.equals(_build_schema(columns)):
                raise ValueError(f"it has other columns than {', '.join(columns)}")
            for batch in file.iter_batches(4096):
                for name, value in wanted.items():
                    batch = batch.filter(pyarrow.compute.equal(batch[name], value))
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from None


def _build_schema(columns: Mapping[str, str]) -> Any:
    """Build pyarrow's schema of columns and their types."""
    import pyarrow

    kinds = {"int32": pyarrow.int32(), "float": pyarrow.float32(), "string": pyarrow.string()}
    lists = {f"list<{name}>": pyarrow.list_(kind) for name, kind in kinds.items()}
    return pyarrow.schema([(name, lists.get(kind) or pyarrow.type_for_alias(kind)) for name, kind in columns.items()])
