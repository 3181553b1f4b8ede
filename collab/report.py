"""What was recorded, as reports: one run, or several runs that are one evaluation.

found = recorded_evaluation(Path("runs/team"))      # a run, or a folder with one run per suite seed
print(found.report.planned, found.by_seed[30].planned)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab.errors import UsageError
from collab.evaluation import EpisodeResult, Replies, Report, pooled, summarise
from collab.seeds import Seeds
from collab.store.manifest import FILE, Manifest
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.types import PlannedTask, Sampling

TEAM = ("environment", "graph", "agents", "prompts", "split")
"""Parts of a run's configuration that do not change within one evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where results are from: what a column of a table is."""

    environment: str
    """As results are labelled."""
    split: str | None
    """None for tasks and seeds that were chosen freely."""

    def __str__(self) -> str:
        return self.environment if self.split is None else f"{self.environment} {self.split}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """A run and how it went."""

    path: Path
    command: str
    """What it was made for: "eval", "rollout" …"""
    seeds: Seeds
    setting: Setting
    team: Mapping[str, Any]
    """Everything that another run of the same evaluation shares with it; JSON values."""
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How a team did in one setting, over one run or several."""

    setting: Setting
    runs: tuple[RecordedRun, ...]
    report: Report
    """Of all runs together."""
    by_seed: Mapping[int, Report]
    """Run seed (AndroidWorld's suite seed) → report, in ascending order."""


def report_of(reader: RunReader) -> Report:
    """The report of a recorded run, over all its planned episodes."""
    manifest, replies = reader.manifest, replies_of(reader)
    over = [one for one in reader.episodes() if one.state != "unfinished"]
    unknown = PlannedTask(name="unknown", difficulty=None, episodes=max(0, (manifest.planned or 0) - len(over)))
    return summarise(
        [EpisodeResult.recorded(one, replies.get(one.id, Replies())) for one in over],
        manifest.tasks or (unknown,),
        environment=manifest.environment,
        environment_version=manifest.environment_version,
        privileged=manifest.privileged or any(one.privileged for one in over),
        sampling=sampling_of(manifest),
    )


def sampling_of(manifest: Manifest) -> dict[str, Sampling]:
    """Slot → how its replies were sampled, as a run's head tells it; slots that it tells nothing of are missing."""
    found: dict[str, Sampling] = {}
    for slot, model in manifest.models.items():
        told = model.get("sampling") if isinstance(model, Mapping) else None
        if isinstance(told, Mapping):
            temperature, top_p = told.get("temperature"), told.get("top_p", 1.0)
            if isinstance(temperature, int | float) and isinstance(top_p, int | float):
                found[slot] = Sampling(temperature=temperature, top_p=top_p)
    return found


_REPLIES = """
SELECT trajectory, failure, count(*) FROM cells JOIN episodes USING (key) GROUP BY key, failure ORDER BY 3 DESC, failure
"""


def replies_of(reader: RunReader) -> dict[str, Replies]:
    """Episode → how many replies it recorded, and those without an action by cause."""
    found: dict[str, dict[str | None, int]] = {}
    for episode, failure, count in reader.query(_REPLIES):
        found.setdefault(episode, {})[failure] = count
    return {
        episode: Replies(total=sum(counts.values()), causes={kind: n for kind, n in counts.items() if kind is not None})
        for episode, counts in found.items()
    }


def runs_in(folder: Path) -> list[Path]:
    """Run directories in a folder, however deep, or the folder itself; sorted."""
    return sorted(path.parent for path in folder.rglob(FILE)) if folder.is_dir() else []


def recorded_run(path: Path) -> RecordedRun:
    """Read one run; RunFormatError when it is none or cannot be read."""
    with RunStore.open(path).reader() as reader:
        manifest = reader.manifest
        split = manifest.config.get("split")
        return RecordedRun(
            path=path,
            command=manifest.command,
            seeds=manifest.seeds,
            setting=Setting(environment=manifest.environment, split=split["name"] if split else None),
            team=_team(manifest),
            report=report_of(reader),
        )


def recorded_evaluation(path: Path) -> Evaluation:
    """Read a run, or all runs in a folder as one evaluation.

    Raises:
        RunFormatError: there is no run, or one of them cannot be read.
        UsageError: the runs are not of one evaluation, see `evaluation_of`.
    """
    paths = [path] if (path / FILE).exists() else runs_in(path)
    return evaluation_of([recorded_run(one) for one in paths or [path]])


def evaluation_of(runs: Sequence[RecordedRun]) -> Evaluation:
    """Pool runs of one team in one setting; at least one.

    Raises:
        UsageError: they differ in more than seed, tasks and number of episodes, or two played the same instance.
    """
    first, *others = runs
    for other in others:
        _check_alike(first, other)
    _check_apart(runs)
    seeds = sorted({run.seeds.run for run in runs})
    return Evaluation(
        setting=first.setting,
        runs=tuple(runs),
        report=pooled([run.report for run in runs]),
        by_seed={seed: pooled([run.report for run in runs if run.seeds.run == seed]) for seed in seeds},
    )


def _team(manifest: Manifest) -> Mapping[str, Any]:
    policies = {
        slot: (model.get("policy"), model.get("capabilities", {}).get("weights"))
        for slot, model in manifest.models.items()
    }
    settings = {part: manifest.config.get(part) for part in TEAM}
    return {"command": manifest.command, **settings, "policies": policies}


def _check_alike(one: RecordedRun, other: RecordedRun) -> None:
    if one.setting != other.setting:
        raise UsageError(
            f"{one.path} is of {one.setting}, {other.path} of {other.setting}: not one evaluation; name one of them"
        )
    parts = [part for part in one.team if one.team[part] != other.team[part]]
    if parts:
        raise UsageError(
            f"{one.path} and {other.path} differ in {', '.join(parts)}: not one evaluation; name them apart"
        )


def _check_apart(runs: Sequence[RecordedRun]) -> None:
    """Refuse to count an instance twice."""
    where: dict[tuple[str, int, int], Path] = {}
    for run in runs:
        for result in run.report.results:
            earlier = where.setdefault((result.task, result.seed, result.max_steps), run.path)
            if earlier != run.path:
                raise UsageError(
                    f"{earlier} and {run.path} both played {result.task} with instance seed {result.seed}, "
                    "which would count twice; name one of them"
                )
