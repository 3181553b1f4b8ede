"""What the recorded calls of a run cost, per round, layer, agent and model, and whose proposals won."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collab.cli.output import REHEARSAL, data, emit, note, say, table
from collab.wording import amount

if TYPE_CHECKING:
    from collab.store.cost import Cost, Costs, Proposals
    from collab.store.reader import RunReader

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
"""Fields of `Cost` that a model may not tell, in words."""


def show_cost(path: Path, reader: RunReader, *, as_json: bool) -> None:
    """Sums over the recorded steps; what no call told is a dash, and how many calls did not tell is said below."""
    from collab.store.cost import costs_of

    costs, privileged = costs_of(reader), reader.manifest.privileged
    problems = [str(problem) for problem in reader.problems]
    if as_json:
        mark = REHEARSAL if privileged else None
        emit({"run": str(path), "note": mark, **_data(costs), "problems": problems})
        return
    say(f"run      {path}" + (f"  ({REHEARSAL})" if privileged else ""))
    counted = f"{amount(costs.whole.calls, 'call')} of {amount(costs.steps, 'recorded step')}"
    say(f"counted  {counted}; seconds are added up over the calls\n")
    rows = [("in all", costs.whole)]
    rows += [(f"round {number + 1}", cost) for number, cost in costs.by_round.items()]
    rows += [("no layer" if number is None else f"layer {number + 1}", cost) for number, cost in costs.by_layer.items()]
    rows += [(f"agent {agent}", cost) for agent, cost in costs.by_agent.items()]
    rows += [(f"model {model}", cost) for model, cost in costs.by_model.items()]
    table(_COLUMNS, [(name, *_cost_row(cost)) for name, cost in rows])
    say()
    table(_WON, [_proposals(one, costs.steps) for one in costs.proposals])
    say()
    for count, names in _by_count(_not_told(costs.whole)).items():
        say(f"not told by {amount(count, 'call')}: {', '.join(names)}")
    say(f"spent    {_spent(costs)}")
    for problem in problems:
        note(f"unreadable, and not counted: {problem}")


def _spent(costs: Costs) -> str:
    """What was asked in all, beside what is recorded."""
    told = (
        f"{costs.told} of {amount(costs.processes, 'process', 'processes')} that worked on the run told what they spent"
    )
    if costs.spent is None:
        return f"{told}: calls of steps that were never finished are counted nowhere"
    spent, more = costs.spent, costs.spent.calls - costs.whole.calls
    whole = f"{amount(spent.calls, 'call')}, {spent.prompt_tokens} prompt and {spent.completion_tokens} reply tokens"
    whole += f", {spent.cost_usd:.4f} USD" if spent.cost_usd else ""
    whole += f", and what {amount(spent.lost, 'call')} cost that were sent and never answered" if spent.lost else ""
    if costs.told < costs.processes:
        return f"{whole} or more: {told}"
    if more <= 0:
        return whole
    return (
        f"{whole}; {amount(more, 'call')} are not counted above (steps never finished, summaries, episodes begun anew)"
    )


def _cost_row(cost: Cost) -> tuple[float | None, ...]:
    return (
        cost.calls,
        _whole(cost.prompt_tokens.known),
        _whole(cost.computed_tokens.known),
        _rounded(None if cost.hit_rate is None else 100 * cost.hit_rate, 1),
        _whole(cost.completion_tokens.known),
        _rounded(cost.usd.known, 4),
        _rounded(cost.width.mean, 1),
        _rounded(cost.queue_s.known, 2),
        _rounded(cost.work_s.known, 2),
        _rounded(cost.latency_s.known, 2),
    )


def _proposals(one: Proposals, steps: int) -> tuple[object, ...]:
    """How many of an agent's proposals won, and in how many steps it was the first to propose the winner."""
    shares = [f"{some / all_:.0%}" if all_ else None for some, all_ in ((one.won, one.cells), (one.first, steps))]
    return one.agent, one.model, one.cells, one.without_action, one.won, shares[0], one.first, shares[1]


def _not_told(cost: Cost) -> dict[str, int]:
    """By how many calls each measure was not told."""
    return {name: cost.calls - getattr(cost, name).calls for name in _MEASURED}


def _by_count(missing: Mapping[str, int]) -> dict[int, list[str]]:
    """Number of calls, most first, and what they did not tell."""
    counts = sorted({count for count in missing.values() if count}, reverse=True)
    return {count: [_MEASURED[name] for name, found in missing.items() if found == count] for count in counts}


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "calls": cost.calls,
        "prompt_tokens": _whole(cost.prompt_tokens.known),
        "computed_tokens": _whole(cost.computed_tokens.known),
        "prefix_hit_rate": cost.hit_rate,
        "completion_tokens": _whole(cost.completion_tokens.known),
        "usd": cost.usd.known,
        "mean_width": cost.width.mean,
        "queue_s": cost.queue_s.known,
        "work_s": cost.work_s.known,
        "latency_s": cost.latency_s.known,
        "not_told": _not_told(cost),
    }


def _data(costs: Costs) -> dict[str, Any]:
    """All of it as JSON data; rounds and layers count from 0."""
    spent = costs.spent
    return {
        "steps": costs.steps,
        **_cost(costs.whole),
        "by_round": [{"round": number, **_cost(cost)} for number, cost in costs.by_round.items()],
        "by_layer": [{"layer": number, **_cost(cost)} for number, cost in costs.by_layer.items()],
        "by_agent": [{"agent": agent, **_cost(cost)} for agent, cost in costs.by_agent.items()],
        "by_model": [{"model": model, **_cost(cost)} for model, cost in costs.by_model.items()],
        "proposals": data(costs.proposals),
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


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _rounded(number: float | None, places: int) -> float | None:
    return None if number is None else round(number, places)
