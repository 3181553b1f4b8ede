"""How results are told: rates with intervals, per task and difficulty, every episode with its seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collab.cli.output import REHEARSAL, data, note, say, table
from collab.cli.watch import clock, resume_command, short

if TYPE_CHECKING:
    from collab.comparison import Comparison
    from collab.evaluation import Group, Rate, Report
    from collab.report import Evaluation
    from collab.runs import RunResult
    from collab.seeds import Seeds

DIFFICULTIES = {"easy": 0, "medium": 1, "hard": 2}
"""The order in which they are told; others come after them."""


def rate(value: Rate) -> dict[str, Any]:
    """A rate as JSON data."""
    found: dict[str, Any] = data(
        {"value": value.value, "interval": value.interval, "successes": value.successes, "episodes": value.episodes}
    )
    return found


def _group(group: Group) -> dict[str, Any]:
    return {**rate(group.planned), "completed": rate(group.completed), "broken": group.broken}


def report_data(report: Report) -> dict[str, Any]:
    """A report as JSON data; "note" marks a rehearsal."""
    return {
        "environment": report.environment,
        "privileged": report.privileged,
        "note": REHEARSAL if report.privileged else None,
        "success": rate(report.planned),
        "success_completed": rate(report.completed),
        "broken": report.broken,
        "mean_steps": data(report.mean_steps),
        "by_task": {group.name: _group(group) for group in report.by_task},
        "by_difficulty": {group.name: _group(group) for group in report.by_difficulty},
        "episodes": data(report.results),
    }


def result_data(result: RunResult) -> dict[str, Any]:
    """A finished or stopped run as JSON data."""
    progress = result.progress
    return {
        "run": str(result.path),
        "stopped": result.stopped,
        "resume": resume_command(result.path) if result.stopped else None,
        **report_data(result.report),
        "environment": result.label,
        "privileged": result.privileged,
        "note": REHEARSAL if result.privileged else None,
        "spent": data(
            {
                "seconds": round(progress.seconds, 3),
                "steps": progress.steps,
                "calls": progress.calls,
                "prompt_tokens": progress.prompt_tokens,
                "completion_tokens": progress.completion_tokens,
                "computed_tokens": None if progress.hit_rate is None else progress.computed_tokens,
                "prefix_hit_rate": progress.hit_rate,
                "mean_width": progress.mean_width,
                "usd": progress.cost_usd,
                "lost": progress.lost,
            }
        ),
        "warnings": dict(progress.warnings),
    }


def show_result(result: RunResult, *, details: bool) -> None:
    """Tell people how a run went; `details` adds tasks, difficulties and episodes."""
    headline(result.label, result.report, privileged=result.privileged)
    if details:
        show_tables(result.report)
    progress = result.progress
    say(
        f"spent    {clock(progress.seconds)}, {short(progress.calls)} calls, {short(progress.tokens)} tokens"
        + (f", {progress.cost_usd:.4f} USD" if progress.cost_usd else "")
    )
    if progress.lost:
        say(f"         {progress.lost} calls were sent and never answered whole; what they cost is not known")
    for warning, count in progress.warnings.items():
        note(f"warning: {warning} ({count} call{'s' * (count != 1)})")
    say(f"run      {result.path}")


def show_stop(result: RunResult) -> None:
    """Say on stderr why a run ended early and how to go on."""
    note(f"stopped: {result.stopped}; go on with: {resume_command(result.path)}")


def headline(label: str, report: Report, *, privileged: bool) -> None:
    """Environment, the mark of a rehearsal, and the success rate."""
    say(f"{label}" + (f"  ({REHEARSAL})" if privileged else ""))
    say(f"success  {report.planned}")
    over, planned = len(report.results), report.planned.episodes
    if over < planned:
        say(f"         {over} of {planned} episodes are over; the others count as not solved")
    parts = []
    if 0 < report.completed.episodes < planned:
        parts.append(f"{report.completed} of completed episodes")
    if report.broken:
        parts.append(f"{report.broken} broken: {next(filter(None, (one.error for one in report.results)))}")
    if parts:
        say(f"         {'; '.join(parts)}")


def evaluation_data(evaluation: Evaluation) -> dict[str, Any]:
    """Several runs as JSON data: all together, then each with its episodes."""
    whole = report_data(evaluation.report)
    del whole["episodes"]
    runs = [{"run": str(run.path), **seeds_data(run.seeds), **report_data(run.report)} for run in evaluation.runs]
    return {**whole, "split": evaluation.setting.split, "runs": runs}


def seeds_data(seeds: Seeds) -> dict[str, int | None]:
    """What a run was drawn with, as JSON data."""
    return {"seed": seeds.run, "sampling_seed": seeds.sampling}


def show_evaluation(evaluation: Evaluation) -> None:
    """Success over all runs, then per seed, difficulty and task."""
    report = evaluation.report
    headline(report.environment, report, privileged=report.privileged)
    say()
    columns = ["seed", "success", "95 % interval", "episodes", "broken", "run"]
    table(columns, [(run.seeds, *_rates(run.report.planned), run.report.broken, run.path) for run in evaluation.runs])
    show_groups(report)
    say()


def show_tables(report: Report) -> None:
    """Success per difficulty and task, then every episode with its seed."""
    show_groups(report)
    say()
    table(
        ["episode", "seed", "success", "steps", "broken"],
        [(one.id, one.seed, "yes" if one.success else "no", one.steps, one.error) for one in report.results],
    )
    say()


def show_groups(report: Report) -> None:
    """Success per difficulty and task."""
    by_difficulty = sorted(report.by_difficulty, key=lambda group: DIFFICULTIES.get(group.name, len(DIFFICULTIES)))
    whole = report.planned == report.completed
    for title, groups in (("difficulty", by_difficulty), ("task", report.by_task)):
        say()
        columns = [title, "success", "95 % interval", "episodes", *(() if whole else ("of completed", "broken"))]
        table(columns, [_row(group)[: len(columns)] for group in groups])


def _row(group: Group) -> tuple[str | int | None, ...]:
    """Name, success, interval and episodes; then the rate over completed episodes, and broken ones."""
    completed = group.completed
    return (
        group.name,
        *_rates(group.planned),
        f"{completed.value:.1%} ({completed.successes}/{completed.episodes})" if completed.episodes else None,
        group.broken,
    )


def _rates(planned: Rate) -> tuple[str, str, str]:
    """Success, interval and episodes."""
    low, high = planned.interval
    return f"{planned.value:.1%}", f"{low:.1%} - {high:.1%}", f"{planned.successes}/{planned.episodes}"


def show_comparison(comparison: Comparison, first: str, second: str) -> None:
    """Two rates and their paired difference."""
    low, high = comparison.interval
    width, tasks = max(len(first), len(second), len("difference")), "task" if comparison.tasks == 1 else "tasks"
    say(f"{first:<{width}}  {comparison.first}")
    say(f"{second:<{width}}  {comparison.second}")
    say(
        f"{'difference':<{width}}  {comparison.difference:+.1%} [{low:+.1%}, {high:+.1%}] "
        f"(second minus first, {comparison.pairs} equal instances of {comparison.tasks} {tasks})"
    )


def comparison_data(comparison: Comparison, first: str, second: str) -> dict[str, Any]:
    """A comparison as JSON data."""
    return {
        "first": {"run": first, **rate(comparison.first)},
        "second": {"run": second, **rate(comparison.second)},
        **difference_data(comparison),
    }


def difference_data(comparison: Comparison) -> dict[str, Any]:
    """The difference alone as JSON data."""
    return {
        "difference": comparison.difference,
        "interval": list(comparison.interval),
        "pairs": comparison.pairs,
        "tasks": comparison.tasks,
    }
