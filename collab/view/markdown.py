"""A run or a training in Markdown, for the appendix of a paper: the numbers of the overview, in the same order.

    print(report(view, overview, problems))

Tables say what they count and over how much; a value that is not known is a dash, never 0. What comes from outside
(names of tasks, of agents, of checkpoints, messages) is text in it and never markup, links or HTML included.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from collab.view.figures import REHEARSAL, Figure
from collab.view.shapes import EpochView, Heat, Overview, Problem, Rate, RunRow, RunView, Spending

DASH = "–"
_PROBLEMS = 20
"""Of them so many are told one by one."""
_MARKUP = re.compile(r"([\\`*\[\]<>|~&#$!@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_LINK = re.compile(r"(?i)(://|\bwww\.)")


def report(
    view: RunView, overview: Overview, problems: Sequence[Problem] = (), pictures: Iterable[tuple[Figure, str]] = ()
) -> str:
    """The whole document.

    Args:
        view: of the same run as `overview`.
        pictures: figures to refer to, each with its address.
    """
    parts = (
        _head(view, overview),
        _success(overview),
        _epochs(overview),
        _rewards(overview.epochs),
        _pairs(overview.epochs),
        _training(overview.epochs),
        _spent(overview.epochs),
        _cells_without(overview.epochs),
        _graphs(overview.epochs),
        _pictures(pictures),
        _unreadable(problems),
    )
    return "\n".join(chain.from_iterable(parts)).rstrip() + "\n"


def safe(text: str) -> str:
    """Text from outside on one line, in which Markdown finds nothing to do."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    quiet = _MARKUP.sub(r"\\\1", plain)
    quiet = _LINK.sub(lambda found: found[0].replace(":", "\\:").replace(".", "\\."), quiet)
    return re.sub(r"^(\d+)([.)])|^([-+=])", lambda found: f"{found[1] or ''}\\{found[2] or found[3]}", quiet)


# ------------------------------------------------------------------------------------------------------- sections


def _head(view: RunView, overview: Overview) -> Iterator[str]:
    run = overview.run
    training = run.kind == "training"
    done = f"{run.done}{'' if run.planned is None else f' of {run.planned}'} {'epochs' if training else 'episodes'}"
    broken = f", {run.broken} broken" if run.broken else ""
    facts = {
        "environment": run.environment,
        "agents": run.agents,
        "graph": run.graph,
        "seed": run.seed,
        "made by": ", ".join(filter(None, (f"collab {run.command}", run.created))),
        "state": f"{run.status}, {done}{broken}",
        "played": f"{run.steps} steps, {run.calls} calls, {_tokens(run)} tokens, {_cost(run)}, {run.seconds:.0f} s",
        "judged by": overview.labels or "",
        "versions": ", ".join(f"{name} {version}" for name, version in view.versions.items()),
    }
    yield f"# {'Training' if training else 'Run'} {safe(run.path)}"
    yield ""
    if run.privileged:
        yield f"**{REHEARSAL}**: these numbers are no result."
        yield ""
    yield from _table(("", ""), ((name, safe(told)) for name, told in facts.items() if told))


def _success(overview: Overview) -> Iterator[str]:
    run = overview.run
    yield "## Success"
    yield ""
    yield f"{_rate(run.success)}: % over planned episodes [95 % Wilson interval] (episodes)."
    yield ""
    if overview.tasks:
        rows = ((safe(one.name), safe(one.difficulty or DASH), _rate(one.success)) for one in overview.tasks)
        yield from _table(("task", "difficulty", "success"), rows)


def _epochs(overview: Overview) -> Iterator[str]:
    yield "## Epochs"
    yield ""
    rows = [
        (
            f"{one.epoch}{' (best)' if one.epoch == overview.best else ''}{'' if one.over else ' (not over)'}",
            _rate(one.played),
            _rate(one.measured),
            one.steps,
            _share(one.agreement),
            _number(one.entropy),
            one.ties,
        )
        for one in overview.epochs
    ]
    heads = ("epoch", "played", "held out", "steps", "agreement", "entropy of votes (nats)", "ties")
    yield from _table(*_without_empty(heads, rows))


def _rewards(epochs: Sequence[EpochView]) -> Iterator[str]:
    judged = [(one.epoch, one.rewards) for one in epochs if one.rewards is not None and one.rewards.agents]
    if not judged:
        return
    yield "## Rewards"
    yield ""
    yield "Share of judged cells that were rewarded, in %, per agent and round."
    yield ""
    rounds = max(heat.rounds for _, heat in judged)
    heads = ("epoch", "agent", *(f"round {place + 1}" for place in range(rounds)), "critic")
    yield from _table(heads, (row for epoch, heat in judged for row in _heat(epoch, heat, rounds)))


def _heat(epoch: int, heat: Heat, rounds: int) -> Iterator[tuple[object, ...]]:
    for agent, rates in zip(heat.agents, heat.rates, strict=True):
        told = [_share(rate) for rate in rates]
        yield epoch, safe(agent), *told, *[DASH] * (rounds - len(told)), safe(heat.critic or DASH)


def _pairs(epochs: Sequence[EpochView]) -> Iterator[str]:
    causes = list(dict.fromkeys(cause for one in epochs for cause in one.pairs))
    if not causes:
        return
    yield "## Pairs"
    yield ""
    yield "Pairs by source, and rewarded cells without one by cause."
    yield ""
    shown = [one for one in epochs if one.pairs]
    heads = ("", *(f"epoch {one.epoch}" for one in shown))
    yield from _table(heads, ((safe(cause), *(one.pairs.get(cause, 0) for one in shown)) for cause in causes))


def _training(epochs: Sequence[EpochView]) -> Iterator[str]:
    rows = [
        (
            one.epoch,
            safe(policy.policy),
            policy.steps,
            policy.tokens,
            _number(policy.loss),
            _number(policy.margin),
            _share(policy.accuracy),
            safe(policy.untrained or policy.alarm or ""),
        )
        for one in epochs
        for policy in one.trained
    ]
    if not rows:
        return
    yield "## Training"
    yield ""
    yield "Loss, margin (β times the mean difference of log-ratios) and accuracy (%) as last logged."
    yield ""
    yield from _table(("epoch", "policy", "steps", "tokens", "loss", "margin", "accuracy", "note"), rows)


def _spent(epochs: Sequence[EpochView]) -> Iterator[str]:
    names = list(dict.fromkeys(part.part for one in epochs for part in one.spent))
    if not names:
        return
    yield "## Cost"
    yield ""
    yield "Over all epochs; a dash where a part or a model does not tell."
    yield ""
    rows = [(safe(name), *_sums([part for one in epochs for part in one.spent if part.part == name])) for name in names]
    yield from _table(("part", "seconds", "calls", "prompt tokens", "completion tokens", "USD"), rows)


def _tokens(run: RunRow) -> str:
    told = [count for count in (run.prompt_tokens, run.completion_tokens) if count is not None]
    return str(sum(told)) if told else DASH


def _cost(run: RunRow) -> str:
    return "cost not known" if run.cost_usd is None else f"{run.cost_usd:.4f} USD"


def _sums(parts: Sequence[Spending]) -> tuple[str, ...]:
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


def _cells_without(epochs: Sequence[EpochView]) -> Iterator[str]:
    """Replies without an action, and cells without a score."""
    failures = sum((Counter(one.failures) for one in epochs), Counter[str]())
    missing = sum((Counter(one.missing) for one in epochs), Counter[str]())
    if not failures and not missing:
        return
    yield "## Cells without an action or a score"
    yield ""
    rows = [("no action", safe(kind), count) for kind, count in failures.most_common()]
    rows += [("no score", safe(cause), count) for cause, count in missing.most_common()]
    yield from _table(("", "why", "cells"), rows)


def _graphs(epochs: Sequence[EpochView]) -> Iterator[str]:
    drawn = [(one.epoch, one.graph) for one in epochs if one.graph is not None]
    if not drawn:
        return
    yield "## Who heard whom"
    yield ""
    rows = []
    for epoch, graph in drawn:
        edges = ", ".join(f"{speaker} → {hearer}" for speaker, hearer in graph.edges)
        layers = " / ".join(", ".join(layer) for layer in graph.layers)
        rows.append((epoch, safe(layers), safe(edges or "nobody"), len(graph.added), len(graph.removed)))
    yield from _table(("epoch", "layers", "edges (speaker → hearer)", "new", "gone"), rows)


def _pictures(pictures: Iterable[tuple[Figure, str]]) -> Iterator[str]:
    told = list(pictures)
    if not told:
        return
    yield "## Figures"
    yield ""
    for figure, address in told:
        yield f"![{safe(figure.title)}](<{address.translate({60: '%3C', 62: '%3E', 10: '%0A', 92: '%5C'})}>)"
        yield ""


def _unreadable(problems: Sequence[Problem]) -> Iterator[str]:
    if not problems:
        return
    yield "## What cannot be read"
    yield ""
    yield "The numbers above are of the rest."
    yield ""
    for one in problems[:_PROBLEMS]:
        yield f"- {safe(one.file)}{'' if one.line is None else f', line {one.line}'}: {safe(one.reason)}"
    if len(problems) > _PROBLEMS:
        yield f"- and {len(problems) - _PROBLEMS} more"
    yield ""


# --------------------------------------------------------------------------------------------------------- cells


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A table, and the empty line behind it; columns of numbers are aligned right."""
    found = [[DASH if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [bool(found) and all(_is_number(row[place]) for row in found) for place in range(len(heads))]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('---:' if right else '---' for right in numeric)}|"
    for row in found:
        yield f"| {' | '.join(row)} |"
    yield ""


def _without_empty(
    heads: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """The table without columns in which nothing is known."""
    kept = [place for place in range(len(heads)) if any(row[place] not in (None, DASH) for row in rows)]
    return [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _is_number(cell: str) -> bool:
    return re.fullmatch(rf"-?\d+(\.\d+)?|{DASH}", cell) is not None


def _rate(rate: Rate | None) -> str:
    """Percent, interval and episodes, as in the tables of evaluations: 12.5 [8.9, 17.3] (216)."""
    if rate is None or rate.value is None or rate.low is None or rate.high is None:
        return DASH
    return f"{100 * rate.value:.1f} [{100 * rate.low:.1f}, {100 * rate.high:.1f}] ({rate.episodes})"


def _share(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.1f}"


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.3g}"
