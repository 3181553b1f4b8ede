"""`collab demo`: a team of agents on a phone and on web pages, in a few minutes and without a model server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collab.cli import options
from collab.cli.output import REHEARSAL, emit, fail, plain, say, table
from collab.cli.report import result_data, show_stop
from collab.cli.watch import work

if TYPE_CHECKING:
    from collab.runs import RunResult
    from collab.types import Step, Trajectory

SEED = 30
PAGES = 10
"""Web pages of the second part."""

TEMPERATURE = 0.7
"""Of every agent; what makes a rehearsal err."""
BALLOTS = 5
"""Of the example vote, the most voted first."""

WHY = """
Both played the same tasks with the same seeds, and every agent errs in {error:.0%} of its replies, each independently
of the others. That is where a gain of the team comes from: single mistakes differ and are outvoted. The rehearsal looks
up each task's solution and errs on purpose; these numbers show how talking, voting and recording work, and say nothing
about language models.""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run of the demo."""

    name: str
    """Folder of the run."""
    env: str
    graph: str
    instances: int = 1
    """Of each task."""
    most_tasks: int | None = None
    """Spread over all there are; None: all."""


def demo(
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the runs; default: runs/demo, numbered when taken."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer episodes: a look in half a minute.")] = False,
    library: options.LibraryFolder = None,
    as_json: options.Json = False,
) -> None:
    """Watch one agent and a team of four on a phone, then the team on real web pages."""
    home = _free(out or Path("runs/demo"))
    instances = 1 if quick else 3
    single, team = (
        _play(Part(name=name, env="androidworld", graph=name, instances=instances), home, library)
        for name in ("single", "team")
    )
    web, problem = _play_pages(home, library, 3 if quick else PAGES)
    if as_json:
        parts = {"single": single, "team": team, "web": web}
        emit({"runs": str(home), **{name: _part_data(result) for name, result in parts.items()}, "problem": problem})
    else:
        _tell(home, library, single, team, web)
    if problem is not None:
        fail(f"the web pages were not played: {problem}")
        raise typer.Exit(1)


def _play_pages(home: Path, library: Path | None, pages: int) -> tuple[RunResult | None, str | None]:
    """The second part; the first one is worth telling even where there is no browser."""
    from collab.errors import RunError, UsageError

    try:
        return _play(Part(name="web", env="miniwob", graph="team", most_tasks=pages), home, library), None
    except (UsageError, RunError) as error:
        return None, str(error)


def _play(part: Part, home: Path, library: Path | None) -> RunResult:
    """Evaluate the rehearsal on all tasks with a known solution.

    Raises:
        typer.Exit: it was interrupted.
    """
    from collab.api import resolved
    from collab.config import run_config
    from collab.runs import start

    definitions = options.library(library)
    asked = run_config(
        library=definitions,
        env=part.env,
        graph=part.graph,
        agents="rehearsal",
        tasks=["tag:oracle"],
        seed=SEED,
        purpose="eval",
        settings=[f"agents.*.sampling.temperature={TEMPERATURE}"],
    )
    config = asyncio.run(resolved(asked, once_per_task=True))
    every = max(1, len(config.tasks) // part.most_tasks) if part.most_tasks else 1
    tasks = config.tasks[::every][: part.most_tasks]
    config = config.model_copy(update={"tasks": tasks, "episodes": len(tasks) * part.instances})
    run = home / part.name
    result = work(
        lambda watch, stop: start(config, definitions, run, watch=watch, stop=stop),
        run,
        opening=f"{part.name}: {config.episodes} episodes of {part.env} ...",
    )
    if result.stopped is not None:
        show_stop(result)
        raise typer.Exit(1)
    return result


def _free(folder: Path) -> Path:
    """The folder, or its first numbered sibling that is not there yet."""
    candidates = (folder.with_name(f"{folder.name}-{number}") if number > 1 else folder for number in count(1))
    return next(path for path in candidates if not path.exists())


def _part_data(result: RunResult | None) -> dict[str, Any] | None:
    return None if result is None else result_data(result)


# -------------------------------------------------------------------------------------------------------- telling


def _tell(home: Path, library: Path | None, single: RunResult, team: RunResult, web: RunResult | None) -> None:
    say(f"1. A phone: {single.label}, one agent against a team of four ({REHEARSAL})\n")
    table(
        ["", "success", "95 % interval", "episodes", "steps per episode", "model calls"],
        [_row("one agent", single), _row("team of four, three rounds", team)],
    )
    say(f"\n{WHY.format(error=_error_rate(library))}")
    _tell_vote(team)
    if web is not None:
        say(f"\n2. Web pages in a real browser: {web.label}, the team of four ({REHEARSAL})\n")
        table(
            ["page", "goal", "solved", "steps"],
            [
                (one.task.name, one.task.goal, "yes" if one.success else "no", len(one.steps))
                for one in web.trajectories
            ],
        )
        say(f"\nsuccess {web.report.planned}")
    say(f"\n3. Everything that was seen, said, voted and done is recorded in {home}\n")
    example = team.trajectories[0].id
    say("Try next:")
    say(f"  collab runs show {team.path}")
    say(f"  collab runs show {team.path} --episode {example} --step 0")
    say("  collab graph show team")
    say("  collab rollout --env androidworld --graph layered4 --agents rehearsal --episodes 20")
    say("  collab doctor")


def _yes(solved: bool) -> str:
    return "yes" if solved else "no"


def _error_rate(library: Path | None) -> float:
    """Of one agent of the demo."""
    from collab.config import AgentDefinition
    from collab.models.rehearsal import RehearsalModel

    options_given = options.library(library).load("agents", "rehearsal", AgentDefinition).options
    return RehearsalModel(**options_given).error_rate(TEMPERATURE)


def _row(name: str, result: RunResult) -> tuple[object, ...]:
    rate = result.report.planned
    low, high = rate.interval
    return (
        name,
        f"{rate.value:.1%}",
        f"{low:.1%} - {high:.1%}",
        f"{rate.successes}/{rate.episodes}",
        f"{result.report.mean_steps:.1f}",
        result.progress.calls,
    )


def _tell_vote(team: RunResult) -> None:
    """One step at which the agents disagreed and the vote was right."""
    found = _most_divided(team.trajectories)
    if found is None:
        return
    trajectory, step = found
    cells = len(step.matrix.utterances)
    say(f"\nFor example {trajectory.id}, step {step.index}: {plain(trajectory.task.goal)}")
    for place, ballot in enumerate(step.vote.ballots[:BALLOTS]):
        speakers = ", ".join(dict.fromkeys(cell.agent for cell in ballot.cells))
        words = step.history.action if place == 0 else _words(trajectory, step, place)
        say(f"  {len(ballot.cells):>2} of {cells} votes: {plain(words)}  ({speakers})")
    if len(step.vote.ballots) > BALLOTS:
        say(f"  and {len(step.vote.ballots) - BALLOTS} other actions with fewer votes or as many")


def _most_divided(trajectories: tuple[Trajectory, ...]) -> tuple[Trajectory, Step] | None:
    solved = [(one, step) for one in trajectories if one.success for step in one.steps if len(step.vote.ballots) > 1]
    return max(solved, key=lambda found: found[1].vote.entropy, default=None)


def _words(trajectory: Trajectory, step: Step, place: int) -> str:
    from collab.envs.actions import SPACES

    return SPACES[step.observation.space].describe(step.vote.ballots[place].action, step.observation)
