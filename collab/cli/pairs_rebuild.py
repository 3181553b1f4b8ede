"""`collab pairs rebuild`: other pairs of a recorded run, and what that changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import describe_lost, emit, note, say
from collab.cli.pair_text import rebuilt_data, say_rebuilt
from collab.cli.watch import counted, tell_finished, work
from collab.wording import amount

if TYPE_CHECKING:
    from collab.preferences.rebuild import Progress, Rebuilt

_WHAT, _HOW = "What is preferred", "How it is made"


def rebuild(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    *,
    critic: Annotated[
        str | None,
        typer.Option(
            "--critic",
            metavar="NAME",
            help="Whose scores decide: oracle, outcome, the agents file of a critic, or labels of the run.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="NAME",
            help="What the critic's labels are called; default: as the critic. Without --critic: the labels that "
            "decide, as they are there.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Where pairs come from: adversary, contrast, correction, mix, or weights: adversary=3,contrast=1.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    adversary: Annotated[
        str | None,
        typer.Option(
            "--adversary",
            metavar="NAME",
            help="Who makes worse sides up: sampler, an agents file whose model is asked, or several by weight: "
            "sampler=3,openai=1.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", metavar="X", help="A score above it is rewarded.", rich_help_panel=_WHAT),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option(
            "--cap", metavar="N", min=0, help="The most pairs of a state; 0: no limit.", rich_help_panel=_WHAT
        ),
    ] = None,
    until_error: Annotated[
        bool | None,
        typer.Option(
            "--until-error/--all-steps",
            help="Whether an episode teaches up to its first error alone.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NEW", help="Of the new pairs; default: a free one.", rich_help_panel=_HOW),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="NAME",
            help="Pairs to compare with, whose recipe counts where nothing is said; default: the last stored.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="K",
            min=1,
            help="Steps asked about at once; default: as many as episodes of the run were played at once.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    budget: options.BudgetText = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Pair a recorded run anew, without a new rollout, and tell what that adds, drops and turns round.

    What is not said is as it was. Of a run without pairs they are made: the oracle judges and the sampler makes worse
    sides up, unless something else is said. Only what was never judged or answered before is asked. The same command
    goes on where one was killed. Of a training's rollout the episodes count that the training learns from.
    """
    from collab.cli.recorded import find_recorded, refuse_several
    from collab.config import Budget
    from collab.credit.pair_ids import letters_of
    from collab.loop.layout import LABELS as PAIRS
    from collab.loop.layout import training_of
    from collab.loop.step_budget import counted_in
    from collab.preferences import rebuild as flow
    from collab.preferences.wish import Wish, sources_of

    wish = Wish(
        run=run,
        critic=critic,
        labels=labels,
        adversary=adversary,
        sources=None if source is None else sources_of(source),
        threshold=threshold,
        cap=cap,
        until_error=until_error,
        name=name,
        against=against,
        budget=Budget() if budget is None else Budget.parse(budget),
        concurrency=concurrency,
        kept=frozenset() if training_of(run) is None else frozenset({PAIRS}),
    )
    refuse_several(find_recorded(run), "collab pairs rebuild {}")
    definitions, again, played = options.library(library), "the same command", counted_in(run)
    result: Rebuilt = work(
        lambda watch, stop: flow.rebuild(wish, definitions, played=played, watch=watch, stop=stop),
        run,
        tell=describe,
        resume=again,
    )
    if as_json:
        emit(rebuilt_data(run, result))
    elif result.stored is not None:
        say_rebuilt(run, result, result.stored, letters_of(run))
    elif result.spent.lost:
        say(describe_lost(result.spent.lost))
    if result.stored is not None and not (result.new or result.judged or result.asked):
        tell_finished(run, "for other labels or pairs name another --critic, --adversary or --threshold")
    if result.stopped is not None:
        note(f"stopped: {result.stopped}; go on with {again}: what was judged and answered is kept")
        raise typer.Exit(1)


def describe(progress: Progress) -> str:
    """One line: steps judged, questions answered, what it cost."""
    parts = []
    if (labels := progress.labelling) is not None:
        parts.append(f"{labels.judged}/{amount(progress.steps, 'step')} judged")
        if labels.failed:
            parts.append(f"{labels.failed} failed")
        if labels.calls:
            parts.append(f"{counted(labels.calls, 'call')} of the critic")
    if (adversary := progress.adversary) is not None:
        parts.append(f"{amount(adversary.answered, 'worse side')} made up")
        if adversary.meter.cost_usd:
            parts.append(f"{adversary.meter.cost_usd:.2f} USD")
    return " | ".join(parts) or "reading the run"
