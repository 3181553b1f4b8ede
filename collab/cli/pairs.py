"""`collab pairs`: list, show and explain the preference pairs of a recorded run, and rebuild them by another recipe.

`collab pairs rebuild`: other pairs of a recorded run, and what that changes.
"""

from __future__ import annotations

import contextlib
import operator
import shlex
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import describe_lost, emit, say, to_data
from collab.cli.progress import print_finished, run_interruptible, work
from collab.cli.text.pairs import (
    add_mark,
    build_explanation_data,
    build_rebuilt_data,
    build_row,
    build_whole_data,
    mark_of,
    say_explained,
    say_rebuilt,
    say_rows,
    say_sides,
    say_whole,
)
from collab.utils.progress import note
from collab.utils.text import format_amount, format_count

if TYPE_CHECKING:
    from collab.preferences.explain import PairExplainer, PairExplanation, PairSide
    from collab.preferences.rebuild import RebuildProgress, RebuiltPairs
    from collab.preferences.store import PairSet
    from collab.preferences.trajectory_pairs import TrajectoryPair
    from collab.store.rewards import PreferencePair


_WHAT, _HOW = "What is preferred", "How it is made"


def rebuild(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    *,
    critic: Annotated[
        str | None,
        typer.Option(
            "--critic",
            metavar="NAME",
            help="Source of the scores: oracle, outcome, the agents file of a critic, or labels of the run.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="NAME",
            help="Name of the critic's new labels; default: the critic's name. Without --critic: existing labels to "
            "take the scores from.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Sources of the pairs: adversary, contrast, correction, mix, or weights: adversary=3,contrast=1.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    adversary: Annotated[
        str | None,
        typer.Option(
            "--adversary",
            metavar="NAME",
            help="Adversary that writes rejected replies: sampler, an agents file, or several by weight: "
            "sampler=3,openai=1.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold", metavar="X", help="Score above which a reply counts as rewarded.", rich_help_panel=_WHAT
        ),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option("--cap", metavar="N", min=0, help="Most pairs per state; 0: no limit.", rich_help_panel=_WHAT),
    ] = None,
    stop_at_first_error: Annotated[
        bool | None,
        typer.Option(
            "--stop-at-first-error/--all-steps",
            help="Build pairs only up to an episode's first error, or from all steps.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NEW", help="Name of the new pairs; default: a free one.", rich_help_panel=_HOW),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="NAME",
            help="Pairs to compare with; other options default to their recipe. Default: the last stored.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="K",
            min=1,
            help="Number of steps to ask about at once; default: the run's own --concurrency.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    budget: options.BudgetText = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Build the pairs of a recorded run again, without a new rollout, and print which are added, dropped or flipped.

    Options that are left out keep their earlier values. For the first pairs of a run, the oracle judges and the
    sampler writes rejected replies. No reply is judged or written twice; the same command resumes after a kill. A
    training's rollout yields pairs only from the episodes that the training learns from.
    """
    from collab.config import Budget
    from collab.evaluation.report import find_recorded, refuse_several
    from collab.loop.record import LABELS as PAIRS
    from collab.loop.record import find_training
    from collab.loop.step_budget import build_counted_reader
    from collab.preferences import rebuild as flow
    from collab.preferences.rebuild import RebuildRequest, parse_sources
    from collab.preferences.store import read_short_ids

    # None stands for "not given", which takes what the earlier pairs have.
    request = RebuildRequest(
        run=run,
        critic=critic,
        labels=labels,
        adversary=adversary,
        sources=None if source is None else parse_sources(source),
        threshold=threshold,
        cap=cap,
        stop_at_first_error=stop_at_first_error,
        name=name,
        against=against,
        budget=Budget() if budget is None else Budget.parse(budget),
        concurrency=concurrency,
        # Pairs that a training learned from are kept: its record rests on them.
        kept=frozenset() if find_training(run) is None else frozenset({PAIRS}),
    )
    # A folder of several runs has no pairs of its own.
    refuse_several(find_recorded(run), "collab pairs rebuild {}")
    # Of a training's rollout, episodes beyond its step budget taught nothing.
    definitions, again, played = options.open_library(library), "the same command", build_counted_reader(run)
    result: RebuiltPairs = work(
        lambda watch, stop: flow.rebuild(request, definitions, played=played, watch=watch, stop=stop),
        run,
        describe=describe,
        resume=again,
    )
    # Text and JSON show the same result, also of a run that stopped early.
    if as_json:
        emit(build_rebuilt_data(run, result))
    elif result.stored is not None:
        say_rebuilt(run, result, result.stored, read_short_ids(run))
    elif result.spent.lost:
        say(describe_lost(result.spent.lost))
    # The same command twice changes nothing, which is printed, too.
    if result.stored is not None and not (result.new or result.judged or result.asked):
        print_finished(run, "for other labels or pairs name another --critic, --adversary or --threshold")
    # Stopped is exit code 1: scripts must not take half the pairs for all.
    if result.stopped is not None:
        note(f"stopped: {result.stopped}; resume with {again}: judgements and answers are kept")
        raise typer.Exit(1)


def describe(progress: RebuildProgress) -> str:
    """Format one line: judged steps, paired steps, answered questions, cost, and the time left of the part at work."""
    parts = []
    if (labels := progress.labelling) is not None:
        parts.append(f"{labels.judged}/{format_amount(progress.steps, 'step')} judged")
        if labels.failed:
            parts.append(f"{labels.failed} failed")
        if labels.spent.calls:
            parts.append(f"{format_count(labels.spent.calls, 'call')} of the critic")
        parts += progress.judging.describe_left(labels.judged, progress.steps)
    if progress.paired is not None:
        done, planned = progress.paired
        parts.append(f"{done}/{format_amount(planned, 'step')} paired")
        parts += progress.pairing.describe_left(done, planned)
    if (adversary := progress.adversary) is not None:
        parts.append(f"{format_amount(adversary.answered, 'rejected reply', 'rejected replies')} written")
        if adversary.meter.spent.cost_usd:
            parts.append(f"{adversary.meter.spent.cost_usd:.2f} USD")
    # Nothing asked yet: the run is still being read.
    return " | ".join(parts) or "reading the run"


app = typer.Typer(help="Preference pairs: list, explain and rebuild them, or teach an adversary.", no_args_is_help=True)

app.command("rebuild")(rebuild)

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run, or what eval --seeds, train or transfer made with --out.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="ID of the pair, or its first letters if they are unique.")]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name of the pairs; default: the last stored."),
]


OfAny = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name of the pairs; default: search all, the last stored first."),
]


@app.command("list")
def list_pairs(
    run: Run,
    *,
    name: Name = None,
    task: Annotated[str | None, typer.Option("--task", metavar="NAME", help="Show only pairs of this task.")] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="SLOT", help="Show only pairs of this agent's prompts.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Show only pairs of one source: adversary, contrast, correction or trajectory.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Show only the first N pairs.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List pairs, one line each: the cell, both actions and their scores."""
    runs = _with_pairs(run, name)
    listed = [_list_pairs(one, name, {"task": task, "agent": agent, "source": source}, limit) for one in runs]
    if as_json:
        whole = [{"run": str(one), "note": mark_of(one), **told.data} for one, told in zip(runs, listed, strict=True)]
        # A single run is one object; several are a list.
        emit(whole[0] if runs == [run] else {"run": str(run), "runs": whole})
        return
    for one, told in zip(runs, listed, strict=True):
        if told.rows:
            say_rows(told.rows)
        say(add_mark(f"{len(told.rows)} shown, {told.counted} in {told.name!r} of {one}", one))
        if told.rows:
            again = f"collab pairs explain {shlex.quote(str(one))} {told.rows[0]['short']} --name {told.name}"
            say(f"look closer: {again}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """Pairs of one run."""

    name: str
    rows: list[dict[str, Any]]
    counted: str
    """Number of pairs, in words."""
    data: dict[str, Any]


def _list_pairs(run: Path, name: str | None, wanted: Mapping[str, str | None], limit: int | None) -> _Listed:
    """List the pairs of a run that fit.

    Args:
        wanted: "task", "agent" and "source" → the wanted value; None for any.
    """
    from collab.preferences.store import read_short_ids

    stored = _read_stored(run, name)
    found = list(stored.pairs)
    for what, of in (("task", _get_task), ("agent", _get_agent), ("source", operator.attrgetter("source"))):
        one = wanted[what]
        found = found if one is None else _select_only(found, what, one, of)
    rows = run_interruptible(_build_rows, run, stored, found[:limit], read_short_ids(run))
    chosen = "" if len(found) == len(stored.pairs) else f" of {len(stored.pairs)}"
    told = {"name": stored.name, "head": to_data(stored.head), "pairs": rows}
    return _Listed(name=stored.name, rows=rows, counted=f"{len(found)}{chosen} pairs", data=told)


@app.command("show")
def show_pair(
    run: Run, id: Id, *, name: OfAny = None, trust: options.Trust = False, as_json: options.Json = False
) -> None:
    """Show both replies of a pair in full; for whole trajectories, their names and outcomes."""
    from collab.preferences.trajectory_pairs import TrajectoryPair

    run = _find_run_with(run, id, name)
    stored, told = run_interruptible(_explain_pair, run, id, name)
    if isinstance(told, TrajectoryPair):
        _show_whole(run, stored, told, as_json)
    elif as_json:
        emit(build_explanation_data(run, stored, told) | {"screen": None, "prompt": None})
    else:
        say_sides(run, stored, told)


@app.command("rows")
def rows(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    *,
    name: Name = None,
    prompt: Annotated[
        str, typer.Option("--prompt", metavar="NAME", help="Folder in prompts/ with the adversary's role.")
    ] = "adversary",
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Directory to make.")] = None,
    library: options.LibraryFolder = None,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Write an adversary's questions about rewarded replies with synthesised mistakes as answers, to fine-tune one.

    No model is asked. collab pairs rebuild RUN --source adversary makes such pairs first.
    """
    from collab.errors import UsageError
    from collab.evaluation.report import find_recorded, refuse_several
    from collab.preferences.adversary import read_adversary_prompts
    from collab.preferences.adversary_rows import FILE, write_rows
    from collab.store.manifest import find_manifest

    if out is None:
        raise UsageError("--out is missing: name the directory that is to be made")
    # A folder of several runs has no pairs of its own.
    refuse_several(find_recorded(run), "collab pairs rows {}")
    find_manifest(run)
    texts = read_adversary_prompts(options.open_library(library).find_path("prompts", prompt))
    made, left_out = run_interruptible(write_rows, run, out, texts, name=name)
    if as_json:
        emit({"file": str(out / FILE), "rows": len(made), "left_out": left_out})
        return
    say(f"{format_amount(len(made), 'row')} of {run}, written to {out / FILE}")
    if left_out:
        say(f"{format_amount(left_out, 'pair')} left out: played again since, make them again with pairs rebuild")
    say(
        f"train on them: collab finetune --stage sft --base DIR --data {shlex.quote(str(out))} --levels demonstration "
        "--preset prm-pocket --out NEW"
    )


@app.command("explain")
def explain_pair(
    run: Run,
    id: Id,
    *,
    name: OfAny = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Print the whole input that both sides answer.")] = False,
    trust: options.Trust = False,
    as_json: options.Json = False,
) -> None:
    """Trace a pair back to the critic's judgement, the screen and the prompt; for trajectories, to their outcomes."""
    from collab.preferences.trajectory_pairs import TrajectoryPair

    run = _find_run_with(run, id, name)
    stored, told = run_interruptible(_explain_pair, run, id, name)
    if isinstance(told, TrajectoryPair):
        _show_whole(run, stored, told, as_json)
    elif as_json:
        emit(build_explanation_data(run, stored, told))
    else:
        say_explained(run, stored, told, prompt=prompt)


# ------------------------------------------------------------------------------------------------------ inside


def _with_pairs(path: Path, name: str | None) -> list[Path]:
    """Return the run at a path, or those of several that have pairs.

    Raises:
        UsageError: there are several, and none has pairs.
    """
    from collab.errors import UsageError
    from collab.evaluation.report import find_recorded, suggest_commands
    from collab.preferences.store import list_pair_sets

    found = find_recorded(path)
    if found.kind == "run":
        return [path]
    # Runs without pairs are no error as long as one has some.
    runs = [run for run in found.runs if (name in list_pair_sets(run) if name else list_pair_sets(run))]
    if not runs:
        made = suggest_commands(found, "collab pairs rebuild {}")
        raise UsageError(f"no pairs{f' called {name}' if name else ''} yet; to make some: {made}")
    return runs


def _find_run_with(path: Path, id: str, name: str | None) -> Path:
    """Return the run that holds a pair, of several the first; as `_with_pairs` raises."""
    from collab.errors import UnknownName
    from collab.preferences.store import find_pair

    runs = _with_pairs(path, name)
    for run in runs[:-1]:
        with contextlib.suppress(UnknownName):
            find_pair(run, id, name)
            return run
    return runs[-1]


def _read_stored(run: Path, name: str | None) -> PairSet:
    """Read the pairs of that name, or those that were stored last."""
    from collab.errors import UsageError
    from collab.preferences.store import find_last_name, read_pairs
    from collab.store.manifest import find_manifest

    find_manifest(run)
    wanted = find_last_name(run) if name is None else name
    if wanted is None:
        raise UsageError(f"{run}: has no pairs; make them with: collab pairs rebuild {shlex.quote(str(run))}")
    return read_pairs(run, wanted)


def _select_only(
    pairs: Sequence[PreferencePair], what: str, wanted: str, of: Callable[[PreferencePair], str]
) -> list[PreferencePair]:
    """Return the pairs with that value; UnknownName when there is none."""
    from collab.errors import UnknownName

    found = [pair for pair in pairs if of(pair) == wanted]
    if not found:
        raise UnknownName.of(
            f"{what} among these {format_amount(len(pairs), 'pair')}", wanted, {of(pair) for pair in pairs}
        )
    return found


def _get_task(pair: PreferencePair) -> str:
    return pair.chosen[0].trajectory.split("/")[-2]


def _get_agent(pair: PreferencePair) -> str:
    from collab.errors import UsageError

    if pair.source == "trajectory":
        raise UsageError("--agent: these pairs are of whole episodes, of all agents; leave it out")
    return pair.place.cell.agent


async def _build_rows(
    run: Path, stored: PairSet, pairs: Iterable[PreferencePair], letters: Mapping[str, str]
) -> list[dict[str, Any]]:
    async with _open_explainer(run, stored) as look:
        return [build_row(pair, letters[pair.id], _find_sides(pair, look)) for pair in pairs]


def _find_sides(pair: PreferencePair, look: PairExplainer) -> tuple[PairSide, PairSide] | None:
    from collab.errors import UsageError

    try:
        return look.find_sides(pair)
    except UsageError:  # of whole trajectories, or its episode was played again; other pairs can still be shown
        return None


def _show_whole(run: Path, stored: PairSet, told: TrajectoryPair, as_json: bool) -> None:
    if as_json:
        emit(build_whole_data(run, stored, told))
    else:
        say_whole(run, stored, told)


async def _explain_pair(run: Path, id: str, name: str | None) -> tuple[PairSet, PairExplanation | TrajectoryPair]:
    from collab.preferences.store import find_pair
    from collab.preferences.trajectory_pairs import SOURCE, read_trajectory_pair
    from collab.store.manifest import find_manifest
    from collab.store.reader import RunReader

    find_manifest(run)
    stored, pair = find_pair(run, id, name)
    # A pair of whole trajectories has no step to explain.
    if pair.source == SOURCE:
        with RunReader(run) as reader:
            return stored, read_trajectory_pair(pair, reader)
    async with _open_explainer(run, stored) as look:
        return stored, look.explain(pair)


@contextlib.asynccontextmanager
async def _open_explainer(run: Path, stored: PairSet) -> AsyncIterator[PairExplainer]:
    """Open an explainer of a run's pairs, with their labels where these are stored."""
    from collab.preferences.explain import PairExplainer, read_current_labels
    from collab.preferences.rebuild import build_stored_suite
    from collab.store.reader import RunReader

    labels = read_current_labels(run, stored.head)
    async with build_stored_suite(run) as suite:
        with RunReader(run) as reader:
            yield PairExplainer(reader, labels, suite.space)
