"""What work in a directory may spend and where it trains: kept in its head file, so that it goes on as it was begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collab.config import Budget, Definition, validate
from collab.errors import RunFormatError

KEY = "granted"
"""Of the head file."""


class Grant(Definition):
    """What a process may use."""

    budget: Budget = Budget()
    """For all that one process does; each that goes on has as much again."""
    device: str = "auto"
    """Where policies are trained, "auto" (a GPU when there is one) or "cpu"."""

    reports: tuple[str, ...] = ()
    """Further places for metrics of training: "tensorboard", "trackio"."""

    @property
    def head(self) -> dict[str, Any]:
        """Its entry of the head file."""
        return {KEY: self.model_dump(mode="json")}


def granted(
    head: Mapping[str, Any],
    where: str,
    *,
    budget: Budget | None,
    device: str | None,
    report_to: Sequence[str] | None = None,
) -> Grant:
    """What a process that goes on may use.

    Args:
        head: of the directory.
        where: it was read, for errors.
        budget: None grants what the directory was begun with once more.
        device: None for the one that it was begun with.
        report_to: None for those that it was begun with.

    Raises:
        RunFormatError: the head does not say.
        ConfigError: what it says does not fit.
    """
    if KEY not in head:
        raise RunFormatError(f"{where}: does not say what may be spent and where to train; begin anew")
    stored = validate(Grant, head[KEY], where)
    reports = stored.reports if report_to is None else tuple(report_to)
    return Grant(budget=budget or stored.budget, device=device or stored.device, reports=reports)
