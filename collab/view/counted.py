"""Which episodes of a run its success, its tasks and its votes are counted over: as `collab runs show` counts them.

A run answers for all that it planned, as on the command line: episodes that are not over count as not solved, because
short ones end first and are solved more often. A rollout of a training that ends with so many steps
(`collab.loop.step_budget`) answers for what the training learns from, and before it has its steps for what is over.
"""

from __future__ import annotations

from collab.errors import CollabError
from collab.evaluation import Report
from collab.loop.layout import TrainingDir
from collab.loop.step_budget import counted_names, report_of_counted, steps_wanted
from collab.report import report_of
from collab.store.reader import RunReader
from collab.view.links import trouble
from collab.view.roots import Root

_UNREADABLE = (CollabError, LookupError, TypeError, ValueError)
"""What a spoilt configuration of a run or of its training raises."""


def learned_from(root: Root, reader: RunReader) -> frozenset[str] | None:
    """The episodes of a rollout that belong to its epoch; None where all do, and while that is not known.

    It is not known before the rollout has its steps, and where its plan cannot be read (that is among its problems).
    """
    try:
        names = counted_names(reader, _steps_of(root))
    except _UNREADABLE:
        return None
    return None if names is None else frozenset(names)


def _steps_of(root: Root) -> int | None:
    """With how many steps a rollout of a training ends; None for all other runs, and where its training is spoilt."""
    if root.training is None or root.role != "rollout":
        return None
    training = TrainingDir(root.path.parents[2])
    return None if trouble(training.path, training.file) is not None else steps_wanted(root.path)


def report_in(root: Root, reader: RunReader) -> Report:
    """How a run went, over the episodes that count."""
    try:
        return report_of_counted(reader, _steps_of(root), so_far=True)
    except _UNREADABLE:
        return report_of(reader)
