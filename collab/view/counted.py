"""Which episodes of a run its success, its tasks and its votes are counted over.

A run that is finished answers for all that it planned. One that is not is told by what is over: episodes that nobody
has played yet are no failures. A rollout of a training answers for what the training learns from: where an epoch has
so many steps (`collab.marl.step_budget`), more was played than belongs to it.
"""

from __future__ import annotations

from collab.errors import CollabError
from collab.evaluation import Report, summarise
from collab.marl.layout import MarlFolder
from collab.marl.step_budget import counted_names, steps_wanted
from collab.report import report_of
from collab.store.reader import RunReader
from collab.view.links import trouble
from collab.view.roots import Root


def learned_from(root: Root, reader: RunReader) -> frozenset[str] | None:
    """The episodes of a rollout that belong to its epoch; None where all do, and while that is not known.

    It is not known before the rollout has its steps, and where its plan cannot be read (that is among its problems).
    """
    if root.training is None or root.role != "rollout":
        return None
    training = MarlFolder(root.path.parents[2])
    if trouble(training.path, training.file) is not None:
        return None
    try:
        names = counted_names(reader, steps_wanted(root.path))
    except (CollabError, LookupError, TypeError, ValueError):
        return None
    return None if names is None else frozenset(names)


def report_in(root: Root, reader: RunReader) -> Report:
    """How a run went, over the episodes that count."""
    report = report_of(reader)
    rollout = root.training is not None and root.role == "rollout"
    if reader.status == "finished" and not rollout:
        return report
    wanted = learned_from(root, reader)
    return summarise(
        [one for one in report.results if wanted is None or one.id in wanted],
        environment=report.environment,
        environment_version=report.environment_version,
        privileged=report.privileged,
    )
