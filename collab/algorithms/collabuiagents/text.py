"""How credit re-assignment tells of an epoch and of its method, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collab.algorithms.collabuiagents.config import CollabMethod
from collab.algorithms.collabuiagents.metrics import CollabMetrics, metrics_of
from collab.credit.count_text import count_lines
from collab.loop.record import EpochRecord
from collab.wording import amount, cause_lines


def columns(record: EpochRecord) -> Mapping[str, object]:
    """Return columns of the table of epochs; of several policies that were trained, the mean."""
    found, trained = metrics_of(record), list(record.trained.values())
    margin, accuracy, logp, gain = (
        _mean([one.metrics.get(name) for one in trained])
        for name in ("margin", "accuracy", "logp_chosen", "chosen_gain")
    )
    likely = None if logp is None else f"{logp:.3f}{'' if gain is None else f' ({gain:+.2f})'}"
    return {
        "rewarded": None if found.rewarded is None else f"{found.rewarded:.0%}",
        "pairs": sum(one.examples for one in record.examples.values()) if record.examples else None,
        "margin": None if margin is None else f"{margin:.3f}",
        "accuracy": None if accuracy is None else f"{accuracy:.3f}",
        "log p(chosen)": likely,
    }


def lines(record: EpochRecord) -> list[str]:
    """Return all that is told of rewards and pairs, one line for each kind of it that came up."""
    found = metrics_of(record)
    return [
        *_rewards(found),
        *(line for name, one in record.trained.items() for line in _trained(name, one.metrics)),
        *count_lines(found.pairs),
        *(_anchors(name, count) for name, count in found.anchors.items()),
        *(
            f"unjudged {name}: {amount(count, 'step')} that nobody could judge"
            for name, count in found.unjudged.items()
        ),
        *cause_lines("no score", found.missing),
        *cause_lines("unasked", found.unasked),
    ]


def describe(method: CollabMethod) -> str:
    """Return critic, adversary and objective in a clause."""
    compared = f"reference {method.reference}; DPO with β {method.dpo.beta:g}"
    if method.objective == "rft":
        return f"critic {method.critic}; fine-tuning on rewarded replies"
    if method.objective == "trajectory-dpo":
        return f"{compared} between whole trajectories by their outcome"
    asked = f", adversary {method.adversary.kind}" if method.asks_an_adversary else ""
    return f"critic {method.critic}{asked}, {compared}"


# ------------------------------------------------------------------------------------------------------ inside


def _rewards(found: CollabMetrics) -> list[str]:
    """Share of rewarded cells, per agent and round."""
    if not any(rate is not None for row in found.rewards.values() for rate in row):
        return []
    rows = [
        f"{agent} {' '.join('-' if one is None else f'{one:.0%}' for one in row)}"
        for agent, row in found.rewards.items()
    ]
    rounds = max(len(row) for row in found.rewards.values())
    return [f"rewarded {', '.join(rows)}{f' (rounds 1 to {rounds})' if rounds > 1 else ''}"]


def _trained(name: str, metrics: Mapping[str, float | None]) -> list[str]:
    margin, accuracy, logp, gain = (metrics.get(one) for one in ("margin", "accuracy", "logp_chosen", "chosen_gain"))
    against = "" if gain is None else f" ({gain:+.2f} against the reference)"
    parts = [
        *([] if margin is None else [f"margin {margin:.3f}"]),
        *([] if accuracy is None else [f"accuracy {accuracy:.1%}"]),
        *([] if logp is None else [f"log p(chosen) {logp:.1f}{against}"]),
    ]
    return [f"compared {name}: {', '.join(parts)}"] if parts else []


def _anchors(name: str, count: int) -> str:
    replies = "1 rewarded reply" if count == 1 else f"{count} rewarded replies"
    return f"anchors  {name}: {replies} without a pair, held on to"


def _mean(values: Sequence[float | None]) -> float | None:
    """None where there is no value, or not everywhere one."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
