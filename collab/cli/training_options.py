"""Options of commands that train a team, described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from collab.cli.options import LIMITS

HOW = "How it is trained"
"""A heading in the help."""

AUTO = "auto"
"""Where to train unless said otherwise."""

COLLAB = "collabuiagents"
"""The algorithm that trains unless said otherwise."""

Algo = Annotated[
    str,
    typer.Option(
        "--algo",
        metavar="NAME",
        help="The algorithm: collabuiagents, filtered-bc, or one that an installed package declares.",
        rich_help_panel=HOW,
    ),
]
ContinualAlgo = Annotated[
    str | None,
    typer.Option(
        "--algo",
        metavar="NAME",
        help="The algorithm that trains on there; default: the one that trained the team.",
        rich_help_panel=HOW,
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME|FILE",
        help="The method of the algorithm, by name (of collabuiagents: collab, paper, qwen2.5-0.5b) or a YAML file; "
        "default: the algorithm's own.",
        rich_help_panel=HOW,
    ),
]
_OTHER_ABLATIONS = "adversary-pairs, contrast-pairs, correction-pairs, mixed-pairs, all-steps, anchor or no-anchor"
AblationName = Annotated[
    str | None,
    typer.Option(
        "--ablation",
        metavar="NAME",
        help="Change one thing of the method, for a comparison; of collabuiagents: no-cr, rft, no-edge-update, "
        f"single-agent, {_OTHER_ABLATIONS}.",
        rich_help_panel=HOW,
    ),
]
ContinualAblationName = Annotated[
    str | None,
    typer.Option(
        "--ablation",
        metavar="NAME",
        help="Change one thing of how training goes on, for a comparison; of collabuiagents: no-cr, rft, "
        f"no-edge-update, {_OTHER_ABLATIONS}.",
        rich_help_panel=HOW,
    ),
]
TrainingOut = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory to make.", rich_help_panel=LIMITS)
]
TrainingSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="a=b",
        help="Override a setting of the method, e.g. epochs=2 or dpo.beta=0.3, or of the run, e.g. graph.rounds=2. "
        "May be repeated.",
        rich_help_panel=HOW,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="auto (a GPU if there is one) or cpu; with --resume as before unless given.",
        show_default=AUTO,
        rich_help_panel=HOW,
    ),
]
Calibrations = Annotated[
    Path | None,
    typer.Option(
        "--calibrations",
        metavar="DIR",
        help="Where calibrations of the algorithm's critic lie; default: calibrations/.",
        rich_help_panel=HOW,
    ),
]
Anyway = Annotated[
    bool,
    typer.Option("--anyway", help="Let the algorithm's critic judge, whatever is known of it.", rich_help_panel=HOW),
]
ReportTo = Annotated[
    list[str] | None,
    typer.Option(
        "--report-to",
        metavar="NAMES",
        help="Report metrics of training also to tensorboard or trackio; with --resume as before unless given.",
        rich_help_panel=HOW,
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="DIR",
        help="Go on with what was stopped or killed there.",
        rich_help_panel=LIMITS,
    ),
]


def given(calibrations: Path | None, anyway: bool) -> dict[str, Any]:
    """Return what was given for the algorithm beside the configuration (see `Algorithm.check`)."""
    return {**({} if calibrations is None else {"calibrations": calibrations}), **({"anyway": True} if anyway else {})}
