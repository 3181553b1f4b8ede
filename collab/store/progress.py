"""Where the episodes of a run stand, as its writer has to know."""

from __future__ import annotations

from dataclasses import dataclass

from collab.store.index import Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where an episode stands."""

    attempt: int
    steps: int = 0
    """Recorded without a gap."""
    state: str = "unfinished"
    """"unfinished", "finished" or "failed"."""
    running: bool = False
    """Begun or resumed by this writer, and not ended."""


def progress(index: Index) -> dict[str, Progress]:
    """All episodes as the log left them."""
    steps: dict[int, int] = {}
    for key, step in index.connection.execute("SELECT key, step FROM steps ORDER BY key, step"):
        if step == steps.get(key, 0):
            steps[key] = step + 1
    rows = index.connection.execute("SELECT key, trajectory, attempt, state FROM episodes")
    return {id: Progress(attempt=attempt, state=state, steps=steps.get(key, 0)) for key, id, attempt, state in rows}
