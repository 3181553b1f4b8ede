"""Candidates: what a critic of actions said of several replies to one state.

    write_candidates(candidates, folder)                         # beside the lesson that was made of them
    for one in read_candidates(folder, run=run, trajectory=trajectory): print(one.step, one.value, one.advantage)

Of the replies to one state that are token for token the same, one row is kept, with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from collab.errors import MissingExtra, RunFormatError
from collab.trainers.rl.step_estimates import read_table, write_table

CANDIDATES = "candidates.parquet"
"""File of a policy's candidates, in the folder of its lesson."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateEstimate:
    """A reply that was sampled at a recorded step, and not executed."""

    run: str
    trajectory: str
    step: int
    count: int
    """Replies that are this one, at least 1."""
    text: str
    action: str | None
    """As a reply writes it; None for a reply without an action."""
    value: float
    """Q of the reply in its state."""
    advantage: float
    """Q less the mean Q of the other replies, or as its algorithm says."""
    truth: float | None = None
    """Score of its action by the environment's own solution, in [0, 1]; None where it was not asked for, or is not
    known."""


def write_candidates(candidates: Sequence[CandidateEstimate], folder: Path) -> None:
    """Write candidates into a folder that exists."""
    write_table(folder / CANDIDATES, [asdict(one) for one in candidates], _CANDIDATE)


def read_candidates(
    folder: Path, *, run: str | None = None, trajectory: str | None = None
) -> Iterator[CandidateEstimate]:
    """Yield the candidates in a folder, in their order; none where an algorithm has none.

    Args:
        run, trajectory: only of these; None for all.

    Raises:
        MissingExtra: pyarrow is not installed.
        RunFormatError: the file cannot be read, or has other columns.
    """
    if not (folder / CANDIDATES).exists():
        return
    MissingExtra.unless("pyarrow", extra="parquet", purpose="candidates of steps")
    wanted = {name: value for name, value in (("run", run), ("trajectory", trajectory)) if value is not None}
    try:
        for row in read_table(folder / CANDIDATES, _CANDIDATE, wanted):
            yield CandidateEstimate(**row)
    except (OSError, ValueError, TypeError) as error:
        raise RunFormatError(f"{folder / CANDIDATES}: cannot be read: {error}") from None


_CANDIDATE = {
    **{"run": "string", "trajectory": "string", "step": "int32", "count": "int32", "text": "string"},
    **{"action": "string", "value": "double", "advantage": "double", "truth": "double"},
}
"""Column → type of `candidates.parquet`."""
