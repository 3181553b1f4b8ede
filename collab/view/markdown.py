"""A run or a training in Markdown, for the appendix of a paper: the numbers of the overview, in the same order.

    print(report(view, overview, problems))

Tables name what they count and over how much; an unknown value is a dash, never 0. Text from outside (names of tasks,
agents and checkpoints, messages) is escaped, so that it is never markup, links or HTML.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from collab.evaluation.metrics import FEW, FEW_TOLD
from collab.utils.text import format_amount
from collab.view.plots import REHEARSAL, Plot, average_rewards
from collab.view.schema.runs import (
    Edge,
    EpochView,
    HeatView,
    ProblemView,
    RateView,
    RunOverview,
    RunRow,
    RunView,
    SpendingView,
)

DASH = "–"
"""Stands for an unknown value."""
_MARKUP = re.compile(r"([\\`*\[\]<>|~&#$!@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_LINK = re.compile(r"(?i)(://|\bwww\.)")


def escape_markdown(text: str) -> str:
    """Put a text from outside on one line, and escape all Markdown in it."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    quiet = _MARKUP.sub(r"\\\1", plain)
    quiet = _LINK.sub(lambda found: found[0].replace(":", "\\:").replace(".", "\\."), quiet)
    return re.sub(r"^(\d+)([.)])|^([-+=])", lambda found: f"{found[1] or ''}\\{found[2] or found[3]}", quiet)


def format_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Format a table, and the empty line behind it; columns of numbers are aligned right."""
    found = [[DASH if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [bool(found) and all(_is_number(row[place]) for row in found) for place in range(len(heads))]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('---:' if right else '---' for right in numeric)}|"
    for row in found:
        yield f"| {' | '.join(row)} |"
    yield ""


def drop_empty_columns(
    heads: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Drop columns without any known value."""
    kept = [place for place in range(len(heads)) if any(row[place] not in (None, DASH) for row in rows)]
    return [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _is_number(cell: str) -> bool:
    return re.fullmatch(rf"-?\d+(\.\d+)?|{DASH}", cell) is not None


_PROBLEMS = 20
"""Most of them that are listed one by one."""


def report(
    view: RunView,
    overview: RunOverview,
    problems: Sequence[ProblemView] = (),
    pictures: Iterable[tuple[Plot, str]] = (),
) -> str:
    """Format the whole document.

    Args:
        view: of the same run as `overview`.
        pictures: figures to refer to, each with its address.
    """
    # In the order of an appendix: what, how well, by what means, at what cost.
    parts = (
        _format_head(view, overview),
        _format_success(view, overview),
        _format_epochs(overview),
        _format_rewards(overview.epochs),
        _format_pairs(overview.epochs),
        _format_learned(overview),
        _format_training(overview.epochs),
        _format_spent(overview.epochs),
        _format_failures(overview.epochs),
        _format_graphs(overview.epochs),
        _write_pictures(pictures),
        _format_unreadable(problems),
    )
    return "\n".join(chain.from_iterable(parts)).rstrip() + "\n"


# ------------------------------------------------------------------------------------------------------- sections


def _format_head(view: RunView, overview: RunOverview) -> Iterator[str]:
    run = overview.run
    training = run.kind == "training"
    unit = "epoch" if training else "episode"
    done = format_amount(run.done, unit) if run.planned is None else f"{run.done} of {format_amount(run.planned, unit)}"
    asked = f"{format_amount(run.steps, 'step')}, {format_amount(run.calls, 'call')}"
    broken = f", {run.broken} broken" if run.broken else ""
    # In the order in which a reader asks: what, with whom, how far, at what cost; empty facts are left out.
    facts = {
        "environment": run.environment,
        "agents": run.agents,
        "graph": run.graph,
        "seed": run.seed,
        "made by": ", ".join(filter(None, (f"collab {run.command}", run.created))),
        "state": f"{run.status}, {done}{broken}",
        "took": f"{asked}, {_format_tokens(run)} tokens, {_format_cost(run)}, {run.seconds:.0f} s",
        "sampled at": run.sampling,
        "judged by": overview.labels or "",
        "versions": ", ".join(f"{name} {version}" for name, version in view.versions.items()),
    }
    yield f"# {'Training' if training else 'Run'} {escape_markdown(run.path)}"
    yield ""
    # A rehearsal plays known solutions, so its mark comes before any number.
    if run.privileged:
        yield f"**{REHEARSAL}**: these numbers are no result."
        yield ""
    yield from format_table(("", ""), ((name, escape_markdown(told)) for name, told in facts.items() if told))


def _format_success(view: RunView, overview: RunOverview) -> Iterator[str]:
    run = overview.run
    yield "## Success"
    yield ""
    # Small numbers of episodes are marked where the rate stands, and not in a footnote.
    few = f"; {FEW_TOLD}" if 0 < run.success.episodes < FEW else ""
    yield f"{_format_rate(run.success)}: % {_describe_counted(view, overview)} [95 % Wilson interval] (episodes{few})."
    yield ""
    yield f"Replies without an action: {run.without_action} of {run.replies}."
    yield ""
    # Tasks of a rollout were learned from: their rates must not pass for held-out ones.
    if overview.tasks:
        if overview.tasks_epoch is not None:
            yield f"By task, of the rollout of epoch {overview.tasks_epoch}: played to be learned from, not held out."
            yield ""
        rows = (
            (escape_markdown(one.name), escape_markdown(one.difficulty or DASH), _format_rate(one.success))
            for one in overview.tasks
        )
        yield from format_table(("task", "difficulty", "success"), rows)
        if any(0 < one.success.episodes < FEW for one in overview.tasks):
            yield ""
            yield f"Where episodes are {FEW_TOLD}."
            yield ""


def _describe_counted(view: RunView, overview: RunOverview) -> str:
    """Describe the episodes behind `RunRow.success`."""
    run = overview.run
    if run.kind == "training":
        return run.success_of or "of no episode yet"
    episodes = run.success.episodes
    # Inside a training some episodes of a rollout may not count; the second holds where a rollout alone was named.
    part_of_training = view.training is not None or 0 < episodes < run.done
    if part_of_training and episodes <= run.done:
        return (
            "over the episodes that are over" if episodes == run.done else "over the episodes that count for its epoch"
        )
    rest = f", of which {run.done} are over; the others count as not solved" if run.done < episodes else ""
    return f"over planned episodes{rest}"


def _format_epochs(overview: RunOverview) -> Iterator[str]:
    yield "## Epochs"
    yield ""
    rows = [
        (
            f"{one.epoch}{' (best)' if one.epoch == overview.best else ''}{'' if one.over else ' (not over)'}",
            _format_rate(one.played),
            _format_rate(one.measured),
            one.steps,
            _share(one.agreement),
            _number(one.entropy),
            one.ties,
            one.older,
        )
        for one in overview.epochs
    ]
    heads = ("epoch", "played", "held out", "steps", "agreement", "entropy of votes (nats)", "ties", "older rows")
    # Columns that no epoch has are left out.
    yield from format_table(*drop_empty_columns(heads, rows))


def _format_rewards(epochs: Sequence[EpochView]) -> Iterator[str]:
    judged = [(one, one.rewards) for one in epochs if one.rewards is not None and one.rewards.agents]
    if not judged:
        return
    yield "## Rewards"
    yield ""
    yield "Share of judged cells that were rewarded, in %, per agent and round; the mean is over the rounds."
    yield ""
    for one, heat in judged:
        if heat.labelled is not None and heat.cells is not None and heat.labelled < heat.cells:
            yield f"Epoch {one.epoch} is not final: {heat.labelled} of {format_amount(heat.cells, 'cell')} labelled."
            yield ""
    rounds = max(heat.rounds for _, heat in judged)
    heads = ("epoch", "agent", *(f"round {place + 1}" for place in range(rounds)), "mean", "critic")
    yield from format_table(heads, (row for epoch, heat in judged for row in _format_heat(epoch, heat, rounds)))


def _format_heat(epoch: EpochView, heat: HeatView, rounds: int) -> Iterator[tuple[object, ...]]:
    means = average_rewards(epoch)
    for agent, rates in zip(heat.agents, heat.rates, strict=True):
        told = [_share(rate) for rate in rates]
        critic = escape_markdown(heat.critic or DASH)
        yield epoch.epoch, escape_markdown(agent), *told, *[DASH] * (rounds - len(told)), _share(means[agent]), critic


def _format_pairs(epochs: Sequence[EpochView]) -> Iterator[str]:
    # Epochs without pairs would be empty columns.
    shown = [one for one in epochs if one.pairs or one.unpaired]
    parts = (
        ("Pairs by source.", [one.pairs for one in shown]),
        ("By cause, rewarded cells and wrong proposals that no pair was made of.", [one.unpaired for one in shown]),
    )
    if shown:
        yield "## Pairs"
    for caption, counts in parts:
        names = list(dict.fromkeys(name for one in counts for name in one))
        if names:
            yield from ("", caption, "")
            heads = ("", *(f"epoch {one.epoch}" for one in shown))
            yield from format_table(
                heads, ((escape_markdown(name), *(one.get(name, 0) for one in counts)) for name in names)
            )


def _format_learned(overview: RunOverview) -> Iterator[str]:
    """Format what was kept and left out of what was remembered, how well values predict, and their calibration."""
    shown = [one for one in overview.epochs if one.kept or one.predictions]
    if not shown and not overview.calibrations and overview.unestimated is None:
        return
    yield "## What was learned from"
    yield ""
    if overview.unestimated is not None:
        yield f"Not all estimates are counted: {escape_markdown(overview.unestimated)}."
        yield ""
    if names := list(dict.fromkeys(name for one in shown for name in one.kept)):
        yield "Kept of what was remembered, and the steps that were left out."
        yield ""
        # Causes differ between epochs: one without a cause left out none for it.
        causes = list(dict.fromkeys(cause for one in shown for cause in one.left_out))
        heads = ("epoch", *(f"{escape_markdown(name)} kept" for name in names), *map(escape_markdown, causes))
        rows: list[tuple[object, ...]] = [
            (
                one.epoch,
                *(f"{one.kept[name][0]} of {one.kept[name][1]}" if name in one.kept else None for name in names),
                *(one.left_out.get(cause, 0) for cause in causes),
            )
            for one in shown
        ]
        yield from format_table(heads, rows)
    predicted = [
        (one.epoch, escape_markdown(name), _number(told.accuracy), _number(told.auc), _number(told.ece), told.held_out)
        for one in shown
        for name, told in one.predictions.items()
    ]
    if predicted:
        yield "Values (V) against outcomes, on tasks that they were not fitted on."
        yield ""
        yield from format_table(("epoch", "V of", "accuracy", "AUC", "ECE", "n"), predicted)
    newest = max((curve.epoch for curve in overview.calibrations), default=None)
    if newest is not None:
        yield f"How often V came true in epoch {newest}, of all that was remembered: mean V of a bin, and the share"
        yield "whose episode was solved, in %."
        yield ""
        rows = [
            (escape_markdown(curve.policy), curve.rated, _share(one.mean), _share(one.solved), one.count)
            for curve in overview.calibrations
            for one in curve.bins
            if curve.epoch == newest and one.count
        ]
        yield from format_table(("policy", "V of", "V", "solved", "n"), rows)


def _format_training(epochs: Sequence[EpochView]) -> Iterator[str]:
    trained = [(one.epoch, policy) for one in epochs for policy in one.trained]
    # An epoch without training has no table; an empty one would look like a fault.
    if not trained:
        return
    titles = {name: metric.title for _, policy in trained for name, metric in policy.metrics.items()}
    rows = [
        (
            epoch,
            escape_markdown(policy.policy),
            policy.steps,
            policy.tokens,
            *(_number(metric.value if (metric := policy.metrics.get(name)) else None) for name in titles),
            escape_markdown(policy.untrained or policy.alarm or ""),
        )
        for epoch, policy in trained
    ]
    yield "## Training"
    yield ""
    yield "The last logged loss; of other metrics the mean over the last quarter of the logged steps."
    yield ""
    yield from format_table(("epoch", "policy", "steps", "tokens", *titles, "note"), rows)


def _format_spent(epochs: Sequence[EpochView]) -> Iterator[str]:
    names = list(dict.fromkeys(part.part for one in epochs for part in one.spent))
    if not names:
        return
    yield "## Cost"
    yield ""
    # Seconds of parallel episodes add up to more than the clock shows.
    parallel = any(part.part == "deliberation" for one in epochs for part in one.spent)
    clock = "; seconds are added up over episodes, which run at the same time" if parallel else ""
    yield f"Over all epochs{clock}; a dash where a part or a model does not tell."
    yield ""
    rows = [
        (escape_markdown(name), *_sum_parts([part for one in epochs for part in one.spent if part.part == name]))
        for name in names
    ]
    yield from format_table(("part", "seconds", "calls", "prompt tokens", "completion tokens", "USD"), rows)
    noted = [(one.epoch, part) for one in epochs for part in one.spent if part.seconds_note is not None]
    for epoch, part in noted:
        yield f"- Epoch {epoch}, {escape_markdown(part.part)}: time {part.seconds_note}."
    if noted:
        yield ""


def _format_tokens(run: RunRow) -> str:
    told = [count for count in (run.prompt_tokens, run.completion_tokens) if count is not None]
    return str(sum(told)) if told else DASH


def _format_cost(run: RunRow) -> str:
    return "cost not known" if run.cost_usd is None else f"{run.cost_usd:.4f} USD"


def _sum_parts(parts: Sequence[SpendingView]) -> tuple[str, ...]:
    def total(values: Iterable[float | None], digits: int = 0) -> str:
        known = [value for value in values if value is not None]
        return f"{sum(known):.{digits}f}" if known else DASH

    return (
        total((one.seconds for one in parts), 1),
        total(one.calls for one in parts),
        total(one.prompt_tokens for one in parts),
        total(one.completion_tokens for one in parts),
        total((one.cost_usd for one in parts), 4),
    )


def _format_failures(epochs: Sequence[EpochView]) -> Iterator[str]:
    """Format replies without an action, and cells without a score."""
    failures = sum((Counter(one.failures) for one in epochs), Counter[str]())
    missing = sum((Counter(one.missing) for one in epochs), Counter[str]())
    if not failures and not missing:
        return
    yield "## Cells without an action or a score"
    yield ""
    rows = [("no action", escape_markdown(kind), count) for kind, count in failures.most_common()]
    rows += [("no score", escape_markdown(cause), count) for cause, count in missing.most_common()]
    yield from format_table(("", "why", "cells"), rows)


def _format_graphs(epochs: Sequence[EpochView]) -> Iterator[str]:
    drawn = [(one.epoch, one.graph) for one in epochs if one.graph is not None]
    if not drawn:
        return
    yield "## Who heard whom"
    yield ""
    rows = []
    for place, (epoch, graph) in enumerate(drawn):
        layers = " / ".join(", ".join(layer) for layer in graph.layers)
        # The first graph has none to be compared with.
        changed = [_format_edges(graph.added), _format_edges(graph.removed)] if place else [DASH, DASH]
        rows.append((epoch, escape_markdown(layers), _format_edges(graph.edges), *changed))
    heads = ("epoch", "layers", "edges (speaker → hearer)", "new", "gone")
    yield from format_table(*drop_empty_columns(heads, rows))


def _format_edges(edges: Sequence[Edge]) -> str:
    return escape_markdown(", ".join(f"{speaker} → {hearer}" for speaker, hearer in edges) or "none")


def _write_pictures(pictures: Iterable[tuple[Plot, str]]) -> Iterator[str]:
    told = list(pictures)
    if not told:
        return
    yield "## Figures"
    yield ""
    for figure, address in told:
        yield f"![{escape_markdown(figure.title)}](<{address.translate({60: '%3C', 62: '%3E', 10: '%0A', 92: '%5C'})}>)"
        yield ""


def _format_unreadable(problems: Sequence[ProblemView]) -> Iterator[str]:
    if not problems:
        return
    yield "## What cannot be read"
    yield ""
    yield "The numbers above are of the rest."
    yield ""
    for one in problems[:_PROBLEMS]:
        where = "" if one.line is None else f", line {one.line}"
        yield f"- {escape_markdown(one.file)}{where}: {escape_markdown(one.reason)}"
    if len(problems) > _PROBLEMS:
        yield f"- and {len(problems) - _PROBLEMS} more"
    yield ""


# --------------------------------------------------------------------------------------------------------- cells


def _format_rate(rate: RateView | None) -> str:
    """Format percent, interval and episodes, as in the tables of evaluations: 12.5 [8.9, 17.3] (216)."""
    if rate is None or rate.value is None or rate.low is None or rate.high is None:
        return DASH
    return f"{100 * rate.value:.1f} [{100 * rate.low:.1f}, {100 * rate.high:.1f}] ({rate.episodes})"


def _share(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.1f}"


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.3g}"
