"""Recorded runs as training material, to be checked before anything learns from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from collab.splits.overlap import Instance
from collab.store.run import RunStore
from collab.types import Trajectory


def instances_of(run: Path) -> Iterator[Instance]:
    """Every episode of a run, unfinished ones included, with all that was seen and said in it; one at a time.

    Raises:
        RunFormatError: the run cannot be read.
    """
    with RunStore.open(run).reader() as reader:
        for trajectory in (*reader.unfinished(), *reader.trajectories()):
            yield Instance(
                task=trajectory.task.name,
                seed=trajectory.task.seed,
                apps=trajectory.task.apps,
                texts=tuple(_texts(trajectory)),
                source=f"{run}: {trajectory.id}",
            )


def _texts(trajectory: Trajectory) -> Iterator[str]:
    yield trajectory.task.goal
    for step in trajectory.steps:
        yield step.observation.text
        yield step.summary
        yield from (utterance.text for utterance in step.matrix.utterances)
