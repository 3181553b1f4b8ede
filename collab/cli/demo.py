"""`collab demo`: one agent, a team and a trained team on a phone, then web pages, in a few minutes.

Its folder holds a run for each part, and in `demo.json` what was asked, so that the whole can be resumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import typer

from collab.cli import options
from collab.cli.output import REHEARSAL, emit, fail, print_table, say
from collab.cli.progress import run_interruptible, work
from collab.cli.text.report import build_result_data, end_unplayed
from collab.utils.progress import note
from collab.utils.text import clean_line, format_amount

if TYPE_CHECKING:
    from collab.config import RunConfig
    from collab.loop.record import EpochRecord
    from collab.rollout.demo import DemoRequest
    from collab.rollout.run import RunResult
    from collab.types import Step, Trajectory

SEED = 30
CONCURRENCY = 24
"""Episodes at once: a local model answers many prompts in about the time of one."""
TASKS, TASKS_QUICK = 24, 9
"""Phone tasks, drawn from the short ones whose instances are kept for evaluation."""
SHORT = 20
"""Largest step budget of a demo task; AndroidWorld has some of 60 and more."""
PAGES = ("click-button", "click-dialog", "click-link", "click-test-2", "click-widget", "enter-text", "focus-text-2")
"""Web tasks; `--quick` plays the first `PAGES_QUICK`."""
PAGES_QUICK = 3
BASE, TRAINED = "early", "trained"
"""The agents that play, and what a training made of them; both come with Collab."""
BALLOTS = 5
"""Ballots shown of the example vote, the most voted first."""

GOAL = 200
"""Characters shown of its goal."""

WHY = f"""
They played the same tasks with the same seeds, on instances that are kept for evaluation; tasks with a budget of more
than {SHORT} steps are left out. The team is four agents that talk for three rounds and vote over all twelve proposals.
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPart:
    """One run of the demo."""

    name: str
    """Folder of the run."""
    env: str
    graph: str
    agents: str
    tasks: tuple[str, ...] = ()
    """Empty for all of `split`."""
    split: str | None = None
    most_tasks: int | None = None
    """Most tasks, in a drawn order; None for all."""
    most_steps: int | None = None
    """Largest step budget of a task; None for any."""


def _build_resume(home: Path) -> str:
    from collab.rollout.demo import DemoDir

    return DemoDir(home).resume


@contextlib.contextmanager
def _resumable(home: Path) -> Iterator[None]:
    """Tell how to resume the demo where it is interrupted between two parts."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"stopped: what was played is kept; resume with: {_build_resume(home)}")
        raise typer.Exit(1) from None


def demo(
    context: typer.Context,
    *,
    agents: Annotated[
        str,
        typer.Option(
            "--agents", metavar="NAME", help="Agents file to play, alone and as a team; see collab agents list."
        ),
    ] = BASE,
    trained: Annotated[
        str | None,
        typer.Option(
            "--trained",
            metavar="NAME|DIR@best",
            help="Trained version of --agents: an agents file, or an epoch of a training. It plays beside the "
            f"untrained team, and its training curve is printed. Default: {TRAINED}, for {BASE}; none for others.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the runs; default: runs/demo, numbered when taken."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Play fewer episodes, in about a minute.")] = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="DIR", help="Resume a stopped demo; takes only --threads and --json beside it."
        ),
    ] = None,
    library: options.LibraryFolder = None,
    threads: options.Threads = None,
    as_json: options.Json = False,
) -> None:
    """Watch one agent, a team of four and a trained team on a phone, then the team on real web pages."""
    from collab.errors import UsageError
    from collab.rollout.demo import DemoDir, DemoRequest

    if resume is not None:
        options.refuse_beside_resume(context, {"resume", "threads", "as_json"}, "the demo")
        folder = DemoDir(resume)
        asked = folder.read_request()
    else:
        # One name for all slots: with several the comparison would be of models and not of teams.
        if "=" in agents:
            raise UsageError(f"--agents {agents!r}: the demo compares an agent with a team of its own; give one name")
        if trained is None and agents == BASE:
            trained = TRAINED
        own = None if library is None else library.resolve()
        asked = DemoRequest(agents=agents, trained=trained, quick=quick, library=own)
        folder = DemoDir(_free(out or Path("runs/demo")))
    # Read before anything is played: a wrong name must not cost minutes.
    records = [] if asked.trained is None else _read_course(asked.trained, asked.library)
    if resume is None:
        folder.begin(asked)
    with folder.lock_parts(), _resumable(folder.path):
        _show(folder.path, asked, records, as_json=as_json)


def _show(home: Path, asked: DemoRequest, records: list[EpochRecord], *, as_json: bool) -> None:
    """Play what is not played yet, and print everything."""
    agents, trained, quick, library = asked.agents, asked.trained, asked.quick, asked.library
    # Same tasks, seeds and temperatures: the number of agents differs, and then what they have learned.
    arms = {"single": ("single", agents), "team": ("team", agents)}
    if trained is not None:
        arms["trained"] = ("team", trained)
    tasks = TASKS_QUICK if quick else TASKS
    phone = {
        name: _play(
            DemoPart(
                name=name,
                env="androidworld",
                graph=graph,
                agents=who,
                split="new-seeds",
                most_tasks=tasks,
                most_steps=SHORT,
            ),
            home,
            library,
        )
        for name, (graph, who) in arms.items()
    }
    # A run in which nothing could be played proves nothing, so it ends the demo with its cause.
    for result in phone.values():
        end_unplayed(result.report, _build_resume(home))
    # The pages come last and may fail: without a browser the first part still stands.
    web, problem = _play_pages(home, trained or agents, library, PAGES[:PAGES_QUICK] if quick else PAGES)
    if as_json:
        parts = {"single": None, "team": None, "trained": None, **phone, "web": web}
        emit(
            {
                "runs": str(home),
                **{name: None if one is None else build_result_data(one) for name, one in parts.items()},
                "problem": problem,
            }
        )
    else:
        _print_results(home, trained or agents, phone, records, web)
    if problem is not None:
        fail(f"the web pages were not played: {problem}")
        raise typer.Exit(1)


def _play_pages(
    home: Path, agents: str, library: Path | None, pages: tuple[str, ...]
) -> tuple[RunResult | None, str | None]:
    """Play the web part; the phone part is printed even where there is no browser."""
    from collab.errors import RunError, UsageError

    try:
        part = DemoPart(name="web", env="mobile-miniwob", graph="team", agents=agents, tasks=pages)
        result = _play(part, home, library)
    except (UsageError, RunError) as error:
        return None, str(error)
    return result, next((one.error for one in result.report.results if result.report.is_lost), None)


def _read_course(trained: str, library: Path | None) -> list[EpochRecord]:
    """Return the records of all epochs that are over of the training that made the named agents; none if unknown.

    Raises:
        CollabError: there are no such agents.
    """
    from collab.config import AgentDefinition
    from collab.library import resolve_checkpoint
    from collab.loop.record import TrainingDir, read_records
    from collab.loop.trained import load_trained_agents, parse_policy

    definitions, policy = options.open_library(library), parse_policy(trained)
    if policy is not None:
        load_trained_agents(definitions, trained, "team")
        folder = TrainingDir(policy.run)
    else:
        checkpoint = definitions.load("agents", trained, AgentDefinition).options.get("path", "")
        folder = TrainingDir(Path(resolve_checkpoint(checkpoint)) / "training")
    epochs = folder.path / "epochs"
    return read_records(folder, max((int(one.name) for one in epochs.iterdir()), default=-1)) if epochs.is_dir() else []


def _play(part: DemoPart, home: Path, library: Path | None) -> RunResult:
    """Evaluate the agents of a part on its tasks, or what is left of them.

    Raises:
        typer.Exit: it was interrupted.
    """
    from collab.rollout.run import read_finished, resume
    from collab.store.manifest import FILE as RUN

    run = home / part.name
    if not (run / RUN).exists():
        return _end_part(home, _begin(part, home, library))
    if (done := read_finished(run)) is not None:
        return done
    opening = f"{part.name}: what is left of it ..."
    again = _build_resume(home)
    return _end_part(
        home, work(lambda watch, stop: resume(run, watch=watch, stop=stop), run, opening=opening, resume=again)
    )


def _end_part(home: Path, result: RunResult) -> RunResult:
    """Return a part's result; typer.Exit where it stopped early, as that is no result to compare with."""
    if result.stopped is not None:
        note(f"stopped: {result.stopped}; resume with: {_build_resume(home)}")
        raise typer.Exit(1)
    return result


def _begin(part: DemoPart, home: Path, library: Path | None) -> RunResult:
    from collab.api import configure_run
    from collab.rollout.run import start

    # Through the same functions as `collab eval`, so that the demo's numbers are ordinary ones.
    definitions = options.open_library(library)
    config = run_interruptible(
        configure_run,
        definitions,
        "eval",
        env=part.env,
        graph=part.graph,
        agents=part.agents,
        tasks=part.tasks,
        split=part.split,
        episodes=None,
        seed=SEED,
        concurrency=CONCURRENCY,
        budget=None,
        settings=(),
        serial=None,
        allow_apps=(),
        allow_effects=False,
    )
    # Tasks are narrowed after resolving: only the suite knows how long their solutions are.
    among = ""
    if part.most_steps is not None:
        config = config.model_copy(update={"tasks": run_interruptible(_select_short_tasks, config, part.most_steps)})
        among = f" of at most {part.most_steps} steps"
    if part.most_tasks is not None:
        config = config.model_copy(update={"episodes": min(part.most_tasks, len(config.tasks))})
    # What is left out is printed, or the success rate would look like that of all tasks.
    options.print_sample(config.tasks, config.episodes, f"{part.name}: seed {config.seed}", among)
    run = home / part.name
    return work(
        lambda watch, stop: start(config, definitions, run, note=note, watch=watch, stop=stop),
        run,
        opening=f"{part.name}: {format_amount(config.episodes, 'episode')} of {part.env} ...",
        resume=_build_resume(home),
    )


async def _select_short_tasks(config: RunConfig, most_steps: int) -> list[str]:
    """Return the tasks of a run with a step budget of at most `most_steps`, in their order."""
    from collab.rollout.build import build_suite

    suite = build_suite(config)
    try:
        short = {info.name for info in suite.tasks() if info.max_steps <= most_steps}
    finally:
        await suite.close()
    return [task for task in config.tasks if task in short]


def _free(folder: Path) -> Path:
    """Return the folder, or its first numbered sibling that does not exist."""
    candidates = (folder.with_name(f"{folder.name}-{number}") if number > 1 else folder for number in count(1))
    return next(path for path in candidates if not path.exists())


# -------------------------------------------------------------------------------------------------------- telling


def _print_results(
    home: Path, agents: str, phone: dict[str, RunResult], records: list[EpochRecord], web: RunResult | None
) -> None:
    # A rehearsal is marked everywhere: its rates are no result of a language model.
    single, last = phone["single"], phone.get("trained", phone["team"])
    mark = f" ({REHEARSAL})" if last.privileged else ""
    after = ", and the team after training" if "trained" in phone else ""
    say(f"1. A phone: {single.label}, one agent against a team of four{after}{mark}\n")
    # All arms side by side first: this is what the demo is for.
    names = {"single": "one agent", "team": "team of four, three rounds", "trained": "the team after training"}
    print_table(
        ["", "success", "95 % interval", "episodes", "steps per episode", "model calls"],
        [_build_row(names[arm], result) for arm, result in phone.items()],
    )
    if "trained" in phone:
        _print_gain(phone["team"], phone["trained"])
    say(f"\n{WHY}")
    _print_sampling(list(phone.values()))
    _print_vote(last)
    number = 2
    if records:
        _print_training(records, home, number)
        number += 1
    if web is not None:
        team = "the team after training" if "trained" in phone else "the team of four"
        say(f"\n{number}. Web pages in a real browser: {web.label}, {team}{mark}\n")
        print_table(
            ["page", "goal", "solved", "steps"],
            [(one.task.name, one.task.goal, _describe_end(one), len(one.steps)) for one in web.trajectories],
        )
        say(f"\nsuccess {web.report.planned.numbers}")
        _print_sampling([web])
        number += 1
    say(f"\n{number}. Everything that was seen, said, voted and done is recorded in {home}\n")
    # A solved episode where there is one: the commands below should show something that works.
    example = next((one for one in last.trajectories if one.success), last.trajectories[0]).id
    say("Try next:")
    say(f"  collab runs show {last.path}")
    say(f"  collab runs show {last.path} --episode {example} --step 0")
    say(f"  collab runs show {last.path} --cost")
    say("  collab graph show team")
    say(f"  collab rollout --env androidworld --graph layered4 --agents {agents} --episodes 20")
    say("  collab doctor")


def _print_gain(team: RunResult, trained: RunResult) -> None:
    """Print the paired difference that training made."""
    from collab.evaluation.comparison import compare

    found = compare(team.report, trained.report, force=True)
    low, high = found.interval
    told = "" if found.is_separable else "; not separable"
    other = "; sampled differently" if found.has_other_sampling else ""
    say(f"\nTraining: {100 * found.difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]{told}{other}")


def _print_training(records: list[EpochRecord], home: Path, number: int) -> None:
    """Print and draw success and reward rate over the epochs of the training."""
    from collab.evidence.page import Curve, draw_curves
    from collab.utils.plotting import to_svg

    success = [(one.epoch, one.success.value) for one in records if one.success is not None]
    rewarded = [(one.epoch, share) for one in records if (share := one.metrics.get("rewarded")) is not None]
    say(f"\n{number}. How it was trained: tasks solved after each epoch, and rewarded proposals\n")
    shares = [dict(success), dict(rewarded)]
    rows = [
        (one.epoch, *(f"{found[one.epoch]:.1%}" if one.epoch in found else "-" for found in shares)) for one in records
    ]
    print_table(["epoch", "solved", "rewarded"], rows)
    curves = [
        Curve(name=name, dots=tuple((epoch, 100 * value) for epoch, value in dots), look=look)
        for look, (name, dots) in enumerate((("solved", success), ("rewarded", rewarded)))
        if dots
    ]
    picture = home / "training.svg"
    picture.write_text(to_svg(draw_curves("How the team was trained", "percent", curves)), encoding="utf-8")
    say(f"\npicture  {picture}")


def _build_row(name: str, result: RunResult) -> tuple[object, ...]:
    rate = result.report.planned
    low, high = rate.interval
    return (
        name,
        f"{rate.value:.1%}",
        f"{low:.1%} - {high:.1%}",
        f"{rate.successes}/{rate.episodes}",
        f"{result.report.mean_steps:.1f}",
        result.progress.spent.calls,
    )


def _describe_end(episode: Trajectory) -> str:
    """Return whether an episode was solved, or that it broke: that is no failure of the team."""
    if episode.error is not None:
        return "broken"
    return "yes" if episode.success else "no"


def _print_sampling(results: Sequence[RunResult]) -> None:
    """Print broken episodes, replies without an action by cause, and the sampling, for the runs of one table."""
    from collab.evaluation.metrics import FEW_TOLD, Replies, describe_sampling

    broken = [one for result in results for one in result.report.results if one.error is not None]
    for one in broken:
        say(f"Broken, and counted as not solved: {one.task}: {clean_line(one.error or '')}.")
    say(f"Replies without an action: {Replies.sum(one.report.replies for one in results)}.")
    different = dict.fromkeys(describe_sampling(one.report.sampling) for one in results)
    say(f"Sampled at {'; '.join(different)}.")
    if any(one.report.planned.is_few for one in results):
        say(f"Episodes are {FEW_TOLD}.")


def _print_vote(team: RunResult) -> None:
    """Print the step at which the agents disagreed most, of a solved episode where there is one."""
    # The most divided step: a unanimous one shows nothing of a team.
    found = _find_most_divided(team.trajectories)
    if found is None:
        return
    trajectory, step = found
    cells = len(step.matrix.utterances)
    solved = "solved" if trajectory.success else "not solved"
    say(
        f"\nFor example {trajectory.id} ({solved}), step {step.index}: "
        f"{shorten(clean_line(trajectory.task.goal), GOAL)}"
    )
    for place, ballot in enumerate(step.vote.ballots[:BALLOTS]):
        speakers = ", ".join(dict.fromkeys(cell.agent for cell in ballot.cells))
        words = step.history.action if place == 0 else _describe_proposal(trajectory, step, place)
        say(f"  {len(ballot.cells):>2} of {cells} votes: {clean_line(words)}  ({speakers})")
    if len(step.vote.ballots) > BALLOTS:
        say(f"  and {len(step.vote.ballots) - BALLOTS} other actions with fewer votes or as many")


def _find_most_divided(trajectories: Iterable[Trajectory]) -> tuple[Trajectory, Step] | None:
    divided = [(one, step) for one in trajectories for step in one.steps if len(step.vote.ballots) > 1]
    return max(divided, key=lambda found: (bool(found[0].success), found[1].vote.entropy), default=None)


def _describe_proposal(trajectory: Trajectory, step: Step, place: int) -> str:
    from collab.envs.grammar import SPACES

    return SPACES[step.observation.space].describe(step.vote.ballots[place].action, step.observation)
