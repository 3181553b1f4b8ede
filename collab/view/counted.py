"""Which episodes of a run its success, its tasks and its votes are counted over: as `collab runs show` counts them.

A run answers for all that it planned, finished or not: what was never played is not solved. A rollout of a training
answers for what the training learns from: where an epoch has so many steps (`collab.marl.step_budget`), more was played
than belongs to it, and until it has them it is told by what is over.
"""

from __future__ import annotations

from collab.errors import CollabError
from collab.evaluation import Report
from collab.marl.layout import MarlFolder
from collab.marl.step_budget import counted_names, report_of_counted, steps_wanted
from collab.report import report_of
from collab.store.reader import RunReader
from collab.view.links import trouble
from collab.view.roots import Root


def learned_from(root: Root, reader: RunReader) -> frozenset[str] | None:
    """The episodes of a rollout that belong to its epoch; None where all do, and while that is not known.

    It is not known before the rollout has its steps, and where its plan cannot be read (that is among its problems).
    """
    try:
        names = counted_names(reader, _steps_of(root))
    except (CollabError, LookupError, TypeError, ValueError):
        return None
    return None if names is None else frozenset(names)


def report_in(root: Root, reader: RunReader) -> Report:
    """How a run went, over the episodes that count."""
    try:
        return report_of_counted(reader, _steps_of(root), so_far=True)
    except (CollabError, LookupError, TypeError, ValueError):
        return report_of(reader)


def _steps_of(root: Root) -> int | None:
    """With how many steps a rollout is over; None for all other runs, and where its training lies elsewhere.

    Raises:
        CollabError, LookupError, TypeError, ValueError: the plan of its training cannot be read.
    """
    if root.training is None or root.role != "rollout":
        return None
    training = MarlFolder(root.path.parents[2])
    return None if trouble(training.path, training.file) is not None else steps_wanted(root.path)
