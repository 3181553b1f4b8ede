"""`collab runs overlap`: whether recorded runs may be trained on."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import data, emit, note, say
from collab.wording import amount

if TYPE_CHECKING:
    from collab.library import Library
    from collab.splits.overlap import HeldOut


def overlap(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs or folders of them, all of one environment.")
    ],
    *,
    kept: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="SPLITS", help="Evaluation splits to compare with; default: all three."),
    ] = None,
    allow_overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Say what overlaps and exit with 0 all the same.")
    ] = False,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Make sure that nothing in these runs is kept for evaluation; exit code 2 when something is.

    Compared are tasks, instance seeds, apps, and every word on screens and in goals and replies.
    """
    from collab.cli.recorded import find_recorded
    from collab.splits.overlap import refuse_overlap
    from collab.splits.recorded import instances_of

    runs = [run for named in runs for run in find_recorded(named).runs or (named,)]
    held = _held_out(options.library(library), runs, options.listed("--with", kept))
    episodes = (episode for run in runs for episode in instances_of(run))
    found = refuse_overlap(episodes, held, allow_overlap=allow_overlap)
    if as_json:
        emit(data(found))
    elif found.offenders:
        note(str(found))
    else:
        say(f"{amount(found.checked, 'episode')}, none overlaps with {_joined(one.name for one in held)}")


def _held_out(definitions: Library, runs: list[Path], wanted: list[str]) -> list[HeldOut]:
    """What the environment of the runs keeps, as its file says today.

    Raises:
        UsageError: the runs are of several environments, or a split is not kept for evaluation.
    """
    from collab.config import EnvironmentDefinition
    from collab.errors import UsageError
    from collab.resolve import splits_in
    from collab.runs import recorded_config
    from collab.splits.overlap import held_out, kept_by
    from collab.splits.split import named

    configs = [recorded_config(run) for run in runs]
    names = list(dict.fromkeys(config.environment_name for config in configs))
    if len(names) > 1:
        command = f"collab runs overlap {shlex.quote(str(runs[0]))}"
        raise UsageError(f"the runs are of {_joined(names)}; check those of one environment at a time: {command}")
    definition = definitions.load("envs", names[0], EnvironmentDefinition)
    backend = configs[0].environment.backend
    if backend in definition.backends:
        definition = definition.model_copy(update={"backend": backend})
    splits = asyncio.run(splits_in(names[0], definition))
    if not wanted:
        return kept_by(splits.values())
    chosen = [named(splits, name) for name in wanted]
    if any(split.trains for split in chosen):
        raise UsageError("--with train: nothing of that split is kept; name new-seeds, unseen-tasks or unseen-app")
    return [held_out(split) for split in chosen]


def _joined(names: Iterable[str]) -> str:
    return ", ".join(names)
