"""`collab runs table`: evaluations side by side, as papers print them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from collab.cli import options
from collab.cli.output import emit, note, say
from collab.cli.report import difference_data, rate, replies_data, sampling_data, seeds_data

if TYPE_CHECKING:
    from collab.report import RecordedRun
    from collab.tables import Cell, Table

EVALUATION = "eval"
"""What a manifest calls an evaluation."""


def compare_runs(
    arms: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=PATH...",
            help="One line each: a run, or a folder with runs at any depth. The same name again adds to its line.",
        ),
    ],
    *,
    against: Annotated[
        Literal["first", "previous"],
        typer.Option("--against", help="Show each line's difference to the first line or to the one before it."),
    ] = "first",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Show recorded evaluations as a table in Markdown: success per environment and split, and paired differences."""
    from collab.tables import markdown, tabulate

    found = tabulate(_recorded(arms), against, force=force)
    if as_json:
        emit(_table_data(found))
    else:
        say(markdown(found))


def _recorded(arms: list[str]) -> dict[str, list[RecordedRun]]:
    """Arm → its evaluations; what is recorded in a folder for another purpose is named and left out.

    Raises:
        UsageError: a path holds no evaluation.
    """
    from collab.errors import UsageError
    from collab.report import recorded_run, runs_in

    found: dict[str, list[RecordedRun]] = {}
    for arm in arms:
        name, path = _arm(arm)
        runs = [recorded_run(one) for one in runs_in(path) or [path]]
        for run in runs:
            if run.command != EVALUATION:
                note(f"left out: {run.path} was made by collab {run.command}, not by collab eval")
        evaluations = [run for run in runs if run.command == EVALUATION]
        if not evaluations:
            raise UsageError(f"{path}: holds no evaluation; make one with: collab eval --out {path}")
        found.setdefault(name, []).extend(evaluations)
    return found


def _arm(text: str) -> tuple[str, Path]:
    """Read NAME=PATH; a path alone is called by its last part."""
    from collab.errors import UsageError

    name, equals, path = (part.strip() for part in text.partition("="))
    if not equals:
        return Path(text).name or text, Path(text)
    if not name or not path:
        raise UsageError(f"{text!r}: write it as NAME=PATH, e.g. base=runs/base")
    return name, Path(path)


def _table_data(found: Table) -> dict[str, Any]:
    return {
        "against": found.against,
        "columns": [{"environment": one.environment, "split": one.split} for one in found.columns],
        "lines": [{"name": line.name, "cells": [_cell_data(cell) for cell in line.cells]} for line in found.lines],
    }


def _cell_data(cell: Cell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    evaluation, difference = cell.evaluation, cell.difference
    return {
        "success": rate(evaluation.report.planned),
        "by_seed": {str(seed): rate(report.planned) for seed, report in evaluation.by_seed.items()},
        "broken": evaluation.report.broken,
        "replies": replies_data(evaluation.report.replies),
        "sampling": sampling_data(evaluation.report.sampling),
        "runs": [str(run.path) for run in evaluation.runs],
        "seeds": [seeds_data(run.seeds) for run in evaluation.runs],
        "difference": None if difference is None else difference_data(difference),
    }
