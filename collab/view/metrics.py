"""The training of each policy in an epoch, from the epoch's record and from the training's log."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collab.loop.record import EpochDir
from collab.loop.record import Trained as RecordedTrained
from collab.trainers.run_dir import average_over_pairs
from collab.view.common import explain_unreadable, shorten
from collab.view.schema.runs import MetricView, ProblemView, TrainedView

_POINTS = 200
"""Most shown points of a policy, an epoch and a metric."""
LOGS = ("epochs/*/training/metrics.jsonl", "epochs/*/training/*/metrics.jsonl")
"""Their places in a training."""
METRICS = {
    "loss": ("loss", "Loss"),
    "margin": ("margin", "Margin: chosen less rejected, times β"),
    "accuracy": ("preference_accuracy", "Accuracy: pairs whose chosen reply is preferred"),
    "token accuracy": ("token_accuracy", "Accuracy: tokens that are the likeliest"),
    "entropy": ("entropy", "Entropy of the next token (nats)"),
    "clipped": ("clipped", "Tokens whose ratio is clipped"),
    "mismatch": ("mismatch", "Mismatch of log-probabilities between rollout and training"),
}
"""Name of a shown metric → its key in a line of the log, and its title; none is drawn that a training does not log."""
_NUMBERS = ("tokens", *(key for key, _ in METRICS.values()))
MOST = 1 << 53
"""Beyond it, JavaScript cannot distinguish two steps."""


def list_policies_in_training(folder: EpochDir) -> list[TrainedView]:
    """List policies with measures while the epoch is not over."""
    base = folder.get_training_dir("shared")
    found = [("shared", base)] if (base / "metrics.jsonl").is_file() else []
    found += [(path.parent.name, path.parent) for path in sorted(base.glob("*/metrics.jsonl"))]
    return [_build_measured_policy(policy, _read_metrics(folder, path)) for policy, path in found]


def find_metrics_problems(training: Path) -> list[ProblemView]:
    """Find lines in the logs of all epochs that are left out of the curves."""
    paths = [
        path
        for pattern in LOGS
        for path in sorted(training.glob(pattern))
        if explain_unreadable(training, path) is None
    ]
    return [
        ProblemView(file=path.relative_to(training).as_posix(), line=number, reason=why)
        for path in paths
        for number, why in _read(path)[1]
    ]


def build_recorded_policy(policy: str, one: RecordedTrained, folder: EpochDir) -> TrainedView:
    """Build the view of a trained policy from its epoch's record."""
    return TrainedView(
        policy=shorten(policy),
        metrics=_build_metrics(
            _read_metrics(folder, folder.get_training_dir(policy)), {"loss": one.loss, **one.metrics}
        ),
        steps=one.steps,
        tokens=one.tokens,
        untrained=None,
        alarm=None if one.alarm is None else shorten(one.alarm),
    )


def build_untrained_policy(policy: str, why: str) -> TrainedView:
    """Build the view of a policy that was not trained."""
    return TrainedView(
        policy=shorten(policy),
        metrics={},
        steps=0,
        tokens=0,
        untrained=shorten(why),
        alarm=None,
    )


def measure_training(folder: EpochDir) -> float | None:
    """Return how long the logged steps of all policies of an epoch took, in seconds; None where no line tells."""
    base = folder.get_training_dir("shared")
    last = [lines[-1] for path in (base, *sorted(base.glob("*/"))) if (lines := _read_metrics(folder, path))]
    known = [line["seconds"] for line in last if _is_number(line.get("seconds"))]
    return math.fsum(known) if known else None


# ------------------------------------------------------------------------------------------------------ inside


def _build_measured_policy(policy: str, lines: Sequence[Mapping[str, Any]]) -> TrainedView:
    # The last line has the training's progress; means are over several.
    last: Mapping[str, Any] = lines[-1] if lines else {}
    return TrainedView(
        policy=policy,
        metrics=_build_metrics(lines, {"loss": last.get("loss")}),
        steps=last.get("step", 0),
        tokens=int(last.get("tokens") or 0),
        untrained=None,
        alarm=shorten(str(alarm)) if (alarm := last.get("alarm")) else None,
    )


def _build_metrics(lines: Sequence[Mapping[str, Any]], recorded: Mapping[str, float | None]) -> dict[str, MetricView]:
    """Build the views of all metrics of a training that are known; a recorded value wins over the log's."""
    found: dict[str, MetricView] = {}
    for name, (key, title) in METRICS.items():
        value = recorded.get(name)
        value = average_over_pairs(lines, key) if value is None else value
        points = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
        if points or value is not None:
            found[name] = MetricView(title=title, value=value, points=_thin(points))
    return found


def _read_metrics(epoch: EpochDir, folder: Path) -> list[dict[str, Any]]:
    """Read the valid lines; a log that leads out of the run has none."""
    path = folder / "metrics.jsonl"
    return [] if explain_unreadable(epoch.path.parents[1], path) is not None else _read(path)[0]


def _read(path: Path) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """Parse the lines of a log that can be drawn, and the problems of others by number; half a last line is neither."""
    lines: list[dict[str, Any]] = []
    wrong: list[tuple[int, str]] = []
    # By number, so that a problem can be found in the file.
    for number, text in enumerate(_read_whole_lines(path), start=1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            wrong.append((number, "is no JSON"))
            continue
        why = _explain_unfit(line)
        if why is None:
            lines.append(line)
        else:
            wrong.append((number, why))
    return lines, wrong


def _read_whole_lines(path: Path) -> list[str]:
    try:
        content = path.read_bytes()
    except OSError:
        return []
    return content[: content.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")[:-1]


def _explain_unfit(line: Any) -> str | None:
    """Explain why a line is not used; None where it is."""
    if not isinstance(line, dict):
        return "is no object"
    step = line.get("step")
    # Foreign files may hold anything: numbers are checked before they are drawn.
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < MOST:
        return f"step is {shorten(repr(step))}, no number of a step"
    for name, value in ((name, line[name]) for name in _NUMBERS if line.get(name) is not None):
        if not _is_number(value):
            return f"{name} is {shorten(repr(value))}, no finite number"
    compared = line.get("compared", 1)
    if not isinstance(compared, int) or not 0 < compared < MOST:
        return f"compared is {shorten(repr(compared))}, no number of pairs"
    return None if line.get("loss") is not None else "has no loss"


def _thin(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Thin out a list evenly, and keep the first and the last item."""
    most = min(len(points), _POINTS)
    places = {round(place * (len(points) - 1) / max(1, most - 1)) for place in range(most)}
    return [points[place] for place in sorted(places)]


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number that can be drawn."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST
