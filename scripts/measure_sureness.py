"""Measure how sure policies are of what they say: how much their replies surprise them, in recorded runs.

    python scripts/measure_sureness.py runs/untrained runs/sharpened runs/trained

A row per folder, with all runs below it: replies with log-probabilities; the mean of −log p of a whole reply, its end
included, under what it was sampled from (temperature and cuts of its agent); and the same at temperature 1. In nats.
Both depend on the states that are met, so compare teams on the same instances.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from collab.errors import CollabError
from collab.evaluation.report import find_runs
from collab.store.run import RunStore
from collab.types import Utterance
from collab.utils.text import format_markdown_table


def iterate_cells(folder: Path) -> Iterator[Utterance]:
    """Yield all replies of the finished episodes below a folder."""
    for path in find_runs(folder):
        with RunStore.open(path).open_reader() as reader:
            for trajectory in reader.iterate_trajectories():
                for step in trajectory.steps:
                    yield from step.matrix


def measure(cells: Iterable[Utterance]) -> tuple[int, float, float]:
    """Return how many replies have log-probabilities, and the means of −log p as sampled and at temperature 1, in nats.

    NaN without any.
    """
    count, sampled, plain = 0, 0.0, 0.0
    for cell in cells:
        if cell.logprobs is None or cell.behaviour_logprobs is None:
            continue
        count += 1
        sampled -= math.fsum(cell.behaviour_logprobs) + (cell.end_behaviour_logprob or 0.0)
        plain -= math.fsum(cell.logprobs) + (cell.end_logprob or 0.0)
    return (count, sampled / count, plain / count) if count else (0, math.nan, math.nan)


def main(words: list[str] | None = None) -> int:
    """Measure the folders that are named, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", help="runs, or folders of runs")
    rows = []
    try:
        for folder in parser.parse_args(words).folders:
            count, sampled, plain = measure(iterate_cells(folder))
            if not count:
                raise CollabError(f"{folder}: no reply has log-probabilities; a model of kind: local records them")
            rows.append([str(folder), str(count), f"{sampled:.3f}", f"{plain:.3f}"])
    except CollabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(format_markdown_table(["", "replies", "nats as sampled", "nats at temperature 1"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
