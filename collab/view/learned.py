"""What became of each policy in an epoch: from the record, and from the log that its training writes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collab.learn.folder import RunFolder
from collab.marl.layout import EpochFolder
from collab.marl.summary import Trained as RecordedTrained
from collab.view.answer import short
from collab.view.links import trouble
from collab.view.shapes.overview import Measure, Trained

_MEASURES = 200
"""Of a policy and an epoch that are shown."""


def policies_in_training(folder: EpochFolder) -> list[Trained]:
    """Policies of which there are measures, while the epoch is not over."""
    base = folder.training("shared")
    found = [("shared", base)] if (base / "metrics.jsonl").is_file() else []
    found += [(path.parent.name, path.parent) for path in sorted(base.glob("*/metrics.jsonl"))]
    return [_measured(policy, _metrics(folder, path)) for policy, path in found]


def recorded_policy(policy: str, one: RecordedTrained, folder: EpochFolder) -> Trained:
    """One that was trained, as its epoch's record has it."""
    return Trained(
        policy=short(policy),
        measures=_thinned(_metrics(folder, folder.training(policy))),
        steps=one.steps,
        tokens=one.tokens,
        loss=one.loss,
        margin=one.margin,
        accuracy=one.accuracy,
        untrained=None,
        alarm=None if one.alarm is None else short(one.alarm),
    )


def untrained_policy(policy: str, why: str) -> Trained:
    """One that stayed what it was."""
    return Trained(
        policy=short(policy),
        measures=(),
        steps=0,
        tokens=0,
        loss=None,
        margin=None,
        accuracy=None,
        untrained=short(why),
        alarm=None,
    )


# ------------------------------------------------------------------------------------------------------ inside


def _measured(policy: str, lines: Sequence[Mapping[str, Any]]) -> Trained:
    last: Mapping[str, Any] = lines[-1] if lines else {}
    return Trained(
        policy=policy,
        measures=_thinned(lines),
        steps=int(_number(last.get("step")) or 0),
        tokens=int(_number(last.get("tokens")) or 0),
        loss=_number(last.get("loss")),
        margin=_number(last.get("margin")),
        accuracy=_number(last.get("preference_accuracy")),
        untrained=None,
        alarm=short(str(alarm)) if (alarm := last.get("alarm")) else None,
    )


def _metrics(epoch: EpochFolder, folder: Path) -> list[dict[str, Any]]:
    """Lines that tell a loss; a log that cannot be read has none."""
    if trouble(epoch.path.parents[1], folder / "metrics.jsonl") is not None:
        return []
    try:
        lines = RunFolder(folder).read_metrics()
    except (OSError, ValueError):
        return []
    return [line for line in lines if isinstance(line, dict) and isinstance(line.get("loss"), int | float)]


def _thinned(lines: Sequence[Mapping[str, Any]]) -> list[Measure]:
    """Evenly spread, the first and the last among them."""
    most = min(len(lines), _MEASURES)
    places = {round(place * (len(lines) - 1) / max(1, most - 1)) for place in range(most)}
    return [
        Measure(
            step=int(_number(line.get("step", place)) or 0),
            loss=_number(line["loss"]),
            margin=_number(line.get("margin")),
        )
        for place, line in ((place, lines[place]) for place in sorted(places))
    ]


def _number(value: Any) -> float | None:
    """None where it is none, or no finite one."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
    return value if is_one else None
