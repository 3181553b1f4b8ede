"""Print results: rates with intervals, per task and difficulty, and every episode with its seed.

What the recorded calls of a run cost, per round, layer, agent and model, and whose proposals won.

`collab runs table`: evaluations side by side, as papers print them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from collab.cli import options
from collab.cli.output import REHEARSAL, describe_lost, emit, fail, print_table, say, to_data
from collab.cli.progress import resume_command
from collab.utils.progress import note
from collab.utils.text import format_amount, format_clock, format_count

if TYPE_CHECKING:
    from collab.evaluation.comparison import InstanceKey, RunComparison
    from collab.evaluation.metrics import GroupReport, Rate, Replies, Report, Sampled
    from collab.evaluation.report import EvaluatedRun, Evaluation, ReportCell, ReportTable
    from collab.rollout.run import RunResult
    from collab.seeds import Seeds
    from collab.store.reader import RunReader
    from collab.store.usage import Cost, Costs, Proposals
    from collab.types import Usage


SHOWN = 40
"""Tasks of won and of lost instances that are listed."""
DIFFICULTIES = {"easy": 0, "medium": 1, "hard": 2}
"""The order in which they are listed; others come after them."""


def build_rate_data(value: Rate) -> dict[str, Any]:
    """Return a rate as JSON data."""
    found: dict[str, Any] = to_data(
        {"value": value.value, "interval": value.interval, "successes": value.successes, "episodes": value.episodes}
    )
    return found


def _group(group: GroupReport) -> dict[str, Any]:
    return {**build_rate_data(group.planned), "completed": build_rate_data(group.completed), "broken": group.broken}


def report_data(report: Report) -> dict[str, Any]:
    """Return a report as JSON data; "note" marks a rehearsal."""
    return {
        "environment": report.environment,
        "privileged": report.privileged,
        "note": REHEARSAL if report.privileged else None,
        "success": build_rate_data(report.planned),
        "success_completed": build_rate_data(report.completed),
        "broken": report.broken,
        "mean_steps": to_data(report.mean_steps),
        "replies": build_replies_data(report.replies),
        "sampling": build_sampling_data(report.sampling),
        "by_task": {group.name: _group(group) for group in report.by_task},
        "by_difficulty": {group.name: _group(group) for group in report.by_difficulty},
        "episodes": to_data(report.results),
    }


def build_replies_data(replies: Replies) -> dict[str, Any]:
    """Return replies as JSON data."""
    data = {"total": replies.total, "without_action": replies.without_action, "by_cause": dict(replies.causes)}
    return data | ({"remarks": dict(replies.remarks)} if replies.remarks else {})


def build_sampling_data(sampling: Mapping[str, Sampled]) -> dict[str, Any]:
    """Return temperature, top-p and the like by slot as JSON data; null where the model uses its own."""
    from collab.evaluation.metrics import list_settings

    return {slot: list_settings(one) for slot, one in sampling.items()}


def build_result_data(result: RunResult) -> dict[str, Any]:
    """Return a finished or stopped run as JSON data."""
    progress = result.progress
    return {
        "run": str(result.path),
        "stopped": result.stopped,
        "resume": resume_command(result.path) if result.stopped else None,
        **report_data(result.report),
        "environment": result.label,
        "privileged": result.privileged,
        "note": REHEARSAL if result.privileged else None,
        "spent": to_data(
            # What this process spent; what all have spent stands below under a name of its own.
            {
                "seconds": round(progress.seconds, 3),
                "steps": progress.steps,
                "calls": progress.spent.calls,
                "prompt_tokens": progress.spent.prompt_tokens,
                "completion_tokens": progress.spent.completion_tokens,
                # None where no model reports its cache: 0 would mean that nothing was found in it.
                "computed_tokens": None if progress.hit_rate is None else progress.computed_tokens,
                "prefix_hit_rate": progress.hit_rate,
                "mean_width": progress.mean_width,
                "usd": progress.spent.cost_usd,
                "lost": progress.spent.lost,
            }
        ),
        "spent_in_all": to_data(progress.spent_in_all),
        "warnings": dict(progress.warnings),
        "lost_workers": list(progress.losses),
    }


def show_result(result: RunResult, *, details: bool) -> None:
    """Tell people how a run went; `details` adds tasks, difficulties and episodes."""
    print_headline(result.label, result.report, privileged=result.privileged)
    if details:
        show_tables(result.report)
    # The cause of broken episodes stands beside the rate that they lower.
    show_cause(result.path, result.report)
    progress = result.progress
    say(f"spent    {format_clock(progress.seconds)}, {_describe_usage(progress.spent)}")
    # What earlier processes spent is shown apart, as this one's budget did not pay for it.
    if progress.earlier.calls:
        say(f"in all   {_describe_usage(progress.spent_in_all)}, with what was spent before it was resumed")
    if lost := progress.spent_in_all.lost:
        say(f"         {describe_lost(lost)}")
    for warning, count in progress.warnings.items():
        note(f"warning: {warning} ({count} call{'s' * (count != 1)})")
    for loss in progress.losses:
        note(f"warning: {loss}")
    if (solved := progress.describe_start_solved()) is not None:
        note(f"warning: {solved}")
    say(f"run      {result.path}")


def _describe_usage(spent: Usage) -> str:
    usd = f", {spent.cost_usd:.4f} USD" if spent.cost_usd else ""
    return f"{format_count(spent.calls, 'call')}, {format_count(spent.tokens, 'token')}{usd}"


def show_stop(result: RunResult) -> None:
    """Print on stderr why a run ended early and how to resume it."""
    note(f"stopped: {result.stopped}; resume with: {resume_command(result.path)}")


def end_unplayed(report: Report, resume: str) -> None:
    """End the command with exit code 1 where not one of its episodes could be played.

    Raises:
        typer.Exit: so it is.
    """
    if report.is_lost:
        first = next(one.error for one in report.results if one.error is not None)
        count = format_amount(len(report.results), "episode")
        fail(f"nothing was played: {count} broke, the first with {first}; mend that, then: {resume}")
        raise typer.Exit(1)


def print_headline(label: str, report: Report, *, privileged: bool) -> None:
    """Print environment, rehearsal mark, success rate, replies without an action, and temperatures."""
    from collab.evaluation.metrics import FEW_TOLD, describe_sampling

    say(f"{label}" + (f"  ({REHEARSAL})" if privileged else ""))
    say(f"success  {report.planned.numbers}")
    # The warning stands under the number that it is about.
    if report.planned.is_few:
        say(f"         episodes are {FEW_TOLD}")
    over, planned = len(report.results), report.planned.episodes
    # Unfinished episodes count as unsolved, so a running evaluation shows too low a rate.
    if over < planned:
        say(f"         {over} of {format_amount(planned, 'episode')} are over; the others count as not solved")
    parts = []
    if 0 < report.completed.episodes < planned:
        parts.append(f"{report.completed.numbers} of completed episodes")
    if report.broken:
        parts.append(f"{report.broken} broken: {next(filter(None, (one.error for one in report.results)))}")
    if parts:
        say(f"         {'; '.join(parts)}")
    if cut := sum(one.cut_short for one in report.results):
        say(f"         {cut} of {format_amount(over, 'episode')} ended with the first error, as asked for, unsolved")
    say(f"replies without an action: {report.replies}")
    if report.replies.remarks:
        say(f"replies with remarks: {report.replies.format_remarks()}")
    if report.sampling:
        say(f"sampled  at {describe_sampling(report.sampling)}")


def show_cause(path: Path, report: Report) -> None:
    """Print where to look if at least half of all replies gave no action."""
    replies = report.replies
    if replies.total and 2 * replies.without_action >= replies.total:
        worst = max(report.results, key=lambda one: one.replies.without_action)
        say(f"why      collab runs show {shlex.quote(str(path))} --episode {shlex.quote(worst.id)} --step 0")


def build_evaluation_data(evaluation: Evaluation) -> dict[str, Any]:
    """Return several runs as JSON data: all together, then each with its episodes."""
    whole = report_data(evaluation.report)
    del whole["episodes"]
    runs = [{"run": str(run.path), **build_seeds_data(run.seeds), **report_data(run.report)} for run in evaluation.runs]
    return {**whole, "split": evaluation.setting.split, "runs": runs}


def build_seeds_data(seeds: Seeds) -> dict[str, int | None]:
    """Return a run's seeds as JSON data."""
    return {"seed": seeds.run, "sampling_seed": seeds.sampling}


def show_evaluation(evaluation: Evaluation) -> None:
    """Print success over all runs, then per seed, difficulty and task."""
    report = evaluation.report
    print_headline(report.environment, report, privileged=report.privileged)
    say()
    columns = ["seed", "success", "95 % interval", "episodes", "broken", "run"]
    print_table(
        columns,
        [(run.seeds, *_format_rates(run.report.planned), run.report.broken, run.path) for run in evaluation.runs],
    )
    show_groups(report)
    say()
    silent = max(evaluation.runs, key=lambda run: run.report.replies.without_action)
    show_cause(silent.path, silent.report)


def show_tables(report: Report) -> None:
    """Print success per difficulty and task, then every episode with its seed."""
    show_groups(report)
    say()
    print_table(
        ["episode", "seed", "success", "steps", "broken"],
        [(one.id, one.seed, "yes" if one.success else "no", one.steps, one.error) for one in report.results],
    )
    say()


def show_groups(report: Report) -> None:
    """Print success per difficulty and task."""
    from collab.evaluation.metrics import FEW_TOLD

    by_difficulty = sorted(report.by_difficulty, key=lambda group: DIFFICULTIES.get(group.name, len(DIFFICULTIES)))
    whole = report.planned == report.completed
    for title, groups in (("difficulty", by_difficulty), ("task", report.by_task)):
        say()
        columns = [title, "success", "95 % interval", "episodes", *(() if whole else ("of completed", "broken"))]
        print_table(columns, [_group_row(group)[: len(columns)] for group in groups])
    if any(group.planned.is_few for group in report.by_task):
        say(f"\nwhere episodes are {FEW_TOLD}")


def _group_row(group: GroupReport) -> tuple[str | int | None, ...]:
    """Return name, success, interval and episodes, then the rate over completed episodes, and the broken ones."""
    completed = group.completed
    return (
        group.name,
        *_format_rates(group.planned),
        f"{completed.value:.1%} ({completed.successes}/{completed.episodes})" if completed.episodes else None,
        group.broken,
    )


def _format_rates(planned: Rate) -> tuple[str, str, str]:
    """Format success, interval and episodes."""
    low, high = planned.interval
    return f"{planned.value:.1%}", f"{low:.1%} - {high:.1%}", f"{planned.successes}/{planned.episodes}"


def show_comparison(comparison: RunComparison, first: str, second: str) -> None:
    """Print two rates, their paired difference in percentage points, its instances, and how both were sampled."""
    from collab.evaluation.metrics import FEW_TOLD, describe_sampling

    # In percentage points, as all rates here are in percent.
    low, high = (100 * end for end in comparison.interval)
    width = max(len(first), len(second), len("difference"))
    # Each rate with its sampling: a difference at other temperatures is one of temperatures.
    for name, rate, sampling in zip(
        (first, second), (comparison.first, comparison.second), comparison.sampling, strict=True
    ):
        say(f"{name:<{width}}  {rate}, {describe_sampling(sampling)}")
    instances, tasks = format_amount(comparison.pairs, "equal instance"), format_amount(comparison.tasks, "task")
    # Few instances make intervals that look exact; the warning stands beside them.
    few = f"; {FEW_TOLD}" if comparison.is_few else ""
    say(
        f"{'difference':<{width}}  {100 * comparison.difference:+.1f} percentage points [{low:+.1f}, {high:+.1f}] "
        f"(second minus first, {instances} of {tasks}{few})"
    )
    # Discordant instances are what a paired difference consists of, so they are named.
    won, lost = comparison.won, comparison.lost
    say(f"{'discordant':<{width}}  {len(won) + len(lost)} of {instances}: {len(won)} won, {len(lost)} lost")
    for word, those in (("won", won), ("lost", lost)):
        for line in _format_instances(those):
            say(f"{word:<{width}}  {line}")
    if comparison.has_other_sampling:
        note("the two were sampled differently: what differs may come from that alone")


def _format_instances(instances: Sequence[InstanceKey]) -> list[str]:
    """Format tasks with the seeds of their instances, one line each; further ones are only counted."""
    by_task: dict[str, list[str]] = {}
    for task, seed, _ in instances:
        by_task.setdefault(task, []).append(str(seed))
    lines = [f"{task}, seed {', '.join(seeds)}" for task, seeds in by_task.items()]
    rest = len(lines) - SHOWN
    return [
        *lines[:SHOWN],
        *([f"and of {format_amount(rest, 'more task')} (--json names them all)"] if rest > 0 else []),
    ]


def build_comparison_data(comparison: RunComparison, first: str, second: str) -> dict[str, Any]:
    """Return a comparison as JSON data."""
    return {
        "first": {"run": first, **build_rate_data(comparison.first)},
        "second": {"run": second, **build_rate_data(comparison.second)},
        **build_difference_data(comparison),
        "few": comparison.is_few,
        "discordant": len(comparison.won) + len(comparison.lost),
        "won": _build_instances_data(comparison.won),
        "lost": _build_instances_data(comparison.lost),
        "sampling": [build_sampling_data(one) for one in comparison.sampling],
        "sampled_alike": not comparison.has_other_sampling,
    }


def build_difference_data(comparison: RunComparison) -> dict[str, Any]:
    """Return the difference alone as JSON data."""
    return {
        "difference": comparison.difference,
        "interval": list(comparison.interval),
        "pairs": comparison.pairs,
        "tasks": comparison.tasks,
    }


def _build_instances_data(instances: Sequence[InstanceKey]) -> list[dict[str, Any]]:
    return [{"task": task, "seed": seed, "max_steps": steps} for task, seed, steps in instances]


_COLUMNS = ("where", "calls", "prompt", "computed", "hits %", "reply", "USD", "width", "queue s", "work s", "latency s")
_WON = ("agent", "model", "proposals", "no action", "won", "of its proposals", "won first", "of all steps")
_MEASURED = {
    "prompt_tokens": "prompt tokens",
    "computed_tokens": "computed tokens",
    "completion_tokens": "reply tokens",
    "usd": "USD",
    "width": "width",
    "queue_s": "queue and work",
}
"""Fields of `Cost` that a model may not report, in words."""


def show_cost(path: Path, reader: RunReader, *, as_json: bool) -> None:
    """Print sums over the recorded steps, with a dash for what no call reported, and how many calls did not."""
    from collab.store.usage import sum_costs

    # Problems are read once more at the end, as an unreadable line is also uncounted.
    costs, privileged = sum_costs(reader), reader.manifest.privileged
    problems = [str(problem) for problem in reader.problems]
    if as_json:
        mark = REHEARSAL if privileged else None
        emit({"run": str(path), "note": mark, **_build_costs_data(costs), "problems": problems})
        return
    say(f"run      {path}" + (f"  ({REHEARSAL})" if privileged else ""))
    counted = f"{format_amount(costs.whole.calls, 'call')} of {format_amount(costs.steps, 'recorded step')}"
    say(f"counted  {counted}; seconds are added up over the calls\n")
    # From the whole to the parts; every axis adds up to the first row.
    rows = [("in all", costs.whole)]
    rows += [(f"round {number + 1}", cost) for number, cost in costs.by_round.items()]
    rows += [("no layer" if number is None else f"layer {number + 1}", cost) for number, cost in costs.by_layer.items()]
    rows += [(f"agent {agent}", cost) for agent, cost in costs.by_agent.items()]
    rows += [(f"model {model}", cost) for model, cost in costs.by_model.items()]
    print_table(_COLUMNS, [(name, *_build_cost_row(cost)) for name, cost in rows])
    say()
    print_table(_WON, [_build_proposal_row(one, costs.steps) for one in costs.proposals])
    say()
    # A sum over calls that did not all report is no total: how many are missing stands below it.
    for count, names in _group_by_count(_count_untold(costs.whole)).items():
        say(f"missing from {format_amount(count, 'call')}: {', '.join(names)}")
    say(f"spent    {_format_spent(costs)}")
    for problem in problems:
        note(f"unreadable, and not counted: {problem}")


def _format_spent(costs: Costs) -> str:
    """Format all calls, beside the recorded ones."""
    processes = format_amount(costs.processes, "process", "processes")
    told = f"{costs.told} of {processes} that worked on the run told what they spent"
    if costs.spent is None:
        return f"{told}: calls of steps that were never finished are counted nowhere"
    spent, more = costs.spent, costs.spent.calls - costs.whole.calls
    whole = (
        f"{format_amount(spent.calls, 'call')}, {spent.prompt_tokens} prompt and {spent.completion_tokens} reply tokens"
    )
    whole += f", {spent.cost_usd:.4f} USD" if spent.cost_usd else ""
    whole += (
        f", and what {format_amount(spent.lost, 'call')} cost that were sent and never answered" if spent.lost else ""
    )
    # Processes that died reported nothing, so the sum is a lower bound.
    if costs.told < costs.processes:
        return f"{whole} or more: {told}"
    if more <= 0:
        return whole
    uncounted = format_amount(more, "call")
    return f"{whole}; {uncounted} are not counted above (steps never finished, summaries, episodes begun anew)"


def _build_cost_row(cost: Cost) -> tuple[float | None, ...]:
    return (
        cost.calls,
        _to_whole(cost.prompt_tokens.known),
        _to_whole(cost.computed_tokens.known),
        _round_number(None if cost.hit_rate is None else 100 * cost.hit_rate, 1),
        _to_whole(cost.completion_tokens.known),
        _round_number(cost.usd.known, 4),
        _round_number(cost.width.mean, 1),
        _round_number(cost.queue_s.known, 2),
        _round_number(cost.work_s.known, 2),
        _round_number(cost.latency_s.known, 2),
    )


def _build_proposal_row(one: Proposals, steps: int) -> tuple[object, ...]:
    """Build the row of an agent: how many of its proposals won, and in how many steps it proposed the winner first."""
    shares = [f"{some / all_:.0%}" if all_ else None for some, all_ in ((one.won, one.cells), (one.first, steps))]
    return one.agent, one.model, one.cells, one.without_action, one.won, shares[0], one.first, shares[1]


def _count_untold(cost: Cost) -> dict[str, int]:
    """Count by measure the calls that did not report it."""
    return {name: cost.calls - getattr(cost, name).calls for name in _MEASURED}


def _group_by_count(missing: Mapping[str, int]) -> dict[int, list[str]]:
    """Return number of calls, most first, and the measures that they did not report."""
    counts = sorted({count for count in missing.values() if count}, reverse=True)
    return {count: [_MEASURED[name] for name, found in missing.items() if found == count] for count in counts}


def _build_cost_data(cost: Cost) -> dict[str, Any]:
    return {
        "calls": cost.calls,
        "prompt_tokens": _to_whole(cost.prompt_tokens.known),
        "computed_tokens": _to_whole(cost.computed_tokens.known),
        "prefix_hit_rate": cost.hit_rate,
        "completion_tokens": _to_whole(cost.completion_tokens.known),
        "usd": cost.usd.known,
        "mean_width": cost.width.mean,
        "queue_s": cost.queue_s.known,
        "work_s": cost.work_s.known,
        "latency_s": cost.latency_s.known,
        "not_told": _count_untold(cost),
    }


def _build_costs_data(costs: Costs) -> dict[str, Any]:
    """Return all costs as JSON data; rounds and layers count from 0."""
    spent = costs.spent
    return {
        "steps": costs.steps,
        **_build_cost_data(costs.whole),
        "by_round": [{"round": number, **_build_cost_data(cost)} for number, cost in costs.by_round.items()],
        "by_layer": [{"layer": number, **_build_cost_data(cost)} for number, cost in costs.by_layer.items()],
        "by_agent": [{"agent": agent, **_build_cost_data(cost)} for agent, cost in costs.by_agent.items()],
        "by_model": [{"model": model, **_build_cost_data(cost)} for model, cost in costs.by_model.items()],
        "proposals": to_data(costs.proposals),
        "spent": spent
        and {
            "calls": spent.calls,
            "prompt_tokens": spent.prompt_tokens,
            "completion_tokens": spent.completion_tokens,
            "usd": spent.cost_usd,
            "lost": spent.lost,
        },
        "processes": {"worked": costs.processes, "told": costs.told},
    }


def _to_whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _round_number(number: float | None, places: int) -> float | None:
    return None if number is None else round(number, places)


EVALUATION = "eval"
"""What a manifest calls an evaluation."""


def compare_runs(
    arms: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=PATH...",
            help="Lines of the table: a run, or a folder with runs at any depth. A repeated name adds to its line.",
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
    from collab.evaluation.report import format_markdown, tabulate

    found = tabulate(_read_evaluations(arms), against, force=force)
    if as_json:
        emit(_build_table_data(found))
    else:
        say(format_markdown(found))


def _read_evaluations(arms: list[str]) -> dict[str, list[EvaluatedRun]]:
    """Return arm → its evaluations; runs in a folder that are no evaluation are named and left out.

    Raises:
        UsageError: a path holds no evaluation.
    """
    from collab.errors import UsageError
    from collab.evaluation.report import find_runs, read_run

    found: dict[str, list[EvaluatedRun]] = {}
    for arm in arms:
        name, path = _parse_arm(arm)
        # A folder may hold several runs; those that are no evaluation are named and left out.
        runs = [read_run(one) for one in find_runs(path) or [path]]
        for run in runs:
            if run.command != EVALUATION:
                note(f"left out: {run.path} was made by collab {run.command}, not by collab eval")
        evaluations = [run for run in runs if run.command == EVALUATION]
        if not evaluations:
            raise UsageError(f"{path}: holds no evaluation; make one with: collab eval --out {path}")
        found.setdefault(name, []).extend(evaluations)
    return found


def _parse_arm(text: str) -> tuple[str, Path]:
    """Read NAME=PATH; a path alone is called by its last part."""
    from collab.errors import UsageError

    name, equals, path = (part.strip() for part in text.partition("="))
    if not equals:
        return Path(text).name or text, Path(text)
    if not name or not path:
        raise UsageError(f"{text!r}: write it as NAME=PATH, e.g. base=runs/base")
    return name, Path(path)


def _build_table_data(found: ReportTable) -> dict[str, Any]:
    return {
        "against": found.against,
        "columns": [{"environment": one.environment, "split": one.split} for one in found.columns],
        "lines": [
            {"name": line.name, "cells": [_build_cell_data(cell) for cell in line.cells]} for line in found.lines
        ],
    }


def _build_cell_data(cell: ReportCell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    evaluation, difference = cell.evaluation, cell.difference
    return {
        "success": build_rate_data(evaluation.report.planned),
        "by_seed": {str(seed): build_rate_data(report.planned) for seed, report in evaluation.by_seed.items()},
        "broken": evaluation.report.broken,
        "replies": build_replies_data(evaluation.report.replies),
        "sampling": build_sampling_data(evaluation.report.sampling),
        "runs": [str(run.path) for run in evaluation.runs],
        "seeds": [build_seeds_data(run.seeds) for run in evaluation.runs],
        "difference": None if difference is None else build_difference_data(difference),
    }
