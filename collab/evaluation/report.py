"""Recorded results: the kind of a path, and reports of one run or of several runs of one evaluation.

    found = read_evaluation(Path("runs/team"))          # a run, or a folder with one run per suite seed
    print(found.report.planned, found.by_seed[30].planned)

Tables as in papers: a line per arm, a column per environment and split, differences beside the rates.

    table = tabulate({"base": runs_of_base, "+ instruction": runs_of_instruction}, against="previous")
    print(format_markdown(table))

    |  | androidworld[simphone] new-seeds | difference |
    |---|---|---|
    | base | 12.5 [8.9, 17.3] (216) |  |
    | + instruction | 31.0 [25.2, 37.5] (216) | +18.5 [+12.0, +25.9] (216) |
"""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from collab.data.splits import NAMES
from collab.errors import UsageError
from collab.evaluation.comparison import RunComparison, check_result, compare
from collab.evaluation.metrics import (
    FEW_TOLD,
    LONGEST,
    EpisodeResult,
    PlayedSampling,
    Rate,
    Replies,
    Report,
    check_same_environment,
    describe_sampling,
    pool,
    summarise,
)
from collab.seeds import Seeds
from collab.store.log import list_segments
from collab.store.manifest import FILE, Manifest
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.types import PlannedTask
from collab.utils.text import format_amount

TEAM = ("environment", "graph", "agents", "prompts", "split")
"""Parts of a run's configuration that do not change within one evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Environment and split of results: a column of a table."""

    environment: str
    """As results are labelled."""
    split: str | None
    """None for freely chosen tasks and seeds."""

    def __str__(self) -> str:
        return self.environment if self.split is None else f"{self.environment} {self.split}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedRun:
    """A run and its report."""

    path: Path
    command: str
    """Command that made it: "eval", "rollout" …"""
    seeds: Seeds
    setting: Setting
    team: Mapping[str, Any]
    """The part of its configuration that all runs of an evaluation share; JSON values."""
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Results of a team in one setting, over one run or several."""

    setting: Setting
    runs: tuple[EvaluatedRun, ...]
    report: Report
    """Over all runs."""
    by_seed: Mapping[int, Report]
    """Run seed (AndroidWorld's suite seed) → report, in ascending order."""


def report_of(reader: RunReader) -> Report:
    """Return the report of a recorded run, over all its planned episodes."""
    manifest, replies = reader.manifest, count_replies(reader)
    over = [one for one in reader.list_episodes() if one.state != "unfinished"]
    unknown = PlannedTask(name="unknown", difficulty=None, episodes=max(0, (manifest.planned or 0) - len(over)))
    return summarise(
        [EpisodeResult.from_run(one, replies.get(one.id, Replies())) for one in over],
        manifest.tasks or (unknown,),
        environment=manifest.environment,
        environment_version=manifest.environment_version,
        privileged=manifest.privileged or any(one.privileged for one in over),
        sampling=read_sampling(manifest),
    )


def read_sampling(manifest: Manifest) -> dict[str, PlayedSampling]:
    """Return slot → sampling of its replies, from a run's head; slots that it does not describe are missing."""
    found: dict[str, PlayedSampling] = {}
    for slot, model in manifest.models.items():
        told = model.get("sampling") if isinstance(model, Mapping) else None
        able = model.get("capabilities") if isinstance(model, Mapping) else None
        if isinstance(told, Mapping) and isinstance(told.get("temperature"), int | float):
            # What the model made of it comes last: it may take no temperature, or another by `extra`.
            own = able.get("sampled") if isinstance(able, Mapping) else None
            whole = {"top_p": 1.0, LONGEST: None, **told, **(own if isinstance(own, Mapping) else {})}
            values = {name: value if isinstance(value, int | float) else None for name, value in whole.items()}
            temperature, top_p, longest = (values.pop(name) for name in ("temperature", "top_p", LONGEST))
            found[slot] = PlayedSampling(
                temperature=temperature,
                top_p=top_p,
                max_tokens=None if longest is None else int(longest),
                others={name: value for name, value in values.items() if value is not None},
            )
    return found


_REPLIES = """
SELECT trajectory, failure, count(*) FROM cells JOIN episodes USING (key) GROUP BY key, failure ORDER BY 3 DESC, failure
"""


_REMARKS = """
SELECT trajectory, remarks, count(*) FROM cells JOIN episodes USING (key) WHERE remarks IS NOT NULL
GROUP BY key, remarks ORDER BY 3 DESC, remarks
"""


def count_replies(reader: RunReader) -> dict[str, Replies]:
    """Return episode → its recorded replies, those without an action by cause, and those with remarks by kind."""
    found: dict[str, dict[str | None, int]] = {}
    for episode, failure, count in reader.query(_REPLIES):
        found.setdefault(episode, {})[failure] = count
    remarks: dict[str, Counter[str]] = {}
    for episode, kinds, count in reader.query(_REMARKS):
        for kind in str(kinds).split("; "):
            remarks.setdefault(episode, Counter())[kind] += count
    return {
        episode: Replies(
            total=sum(counts.values()),
            causes={kind: n for kind, n in counts.items() if kind is not None},
            remarks=dict(remarks.get(episode, Counter()).most_common()),
        )
        for episode, counts in found.items()
    }


def find_runs(folder: Path) -> list[Path]:
    """Run directories in a folder, however deep, or the folder itself; sorted."""
    return sorted(path.parent for path in folder.rglob(FILE)) if folder.is_dir() else []


Kind: TypeAlias = Literal["run", "series", "runs", "training", "transfer", "finetuning"]
_KINDS: dict[Kind, str] = {
    "run": "a run",
    "series": "an evaluation over several seeds",
    "runs": "a folder of runs",
    "training": "a training",
    "transfer": "a transfer",
    "finetuning": "a fine-tuning run",
}
HEADS: dict[Kind, str] = {
    "run": "run.json",
    "training": "training.json",
    "transfer": "transfer.json",
    "finetuning": "finetune.json",
}
"""Kind → its head file. Named here, so that looking at a folder imports none of the modules that write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Recorded work at a path that a user names."""

    path: Path
    kind: Kind
    """"series" if each run lies in a seed's folder, "runs" for any other folder with runs in it."""
    runs: tuple[Path, ...]
    """All runs in it, at any depth; of a run itself alone. A training's are in the order of its epochs."""

    @property
    def what(self) -> str:
        """Kind in words, with its path."""
        return f"{self.path}: {_KINDS[self.kind]}"


def find_recorded(path: Path) -> Recorded:
    """Find the kind and runs of a path without reading them. An empty path counts as a run that cannot be opened."""
    kind = next((kind for kind, head in HEADS.items() if (path / head).is_file()), None)
    if kind == "run" or (kind is None and list_segments(path)):
        return Recorded(path=path, kind="run", runs=(path,))
    runs = tuple(sorted(find_runs(path), key=_build_number_key))
    if kind is None and not runs:
        return Recorded(path=path, kind="run", runs=(path,))
    together = all(run.parent == path and run.name.startswith("seed-") for run in runs)
    return Recorded(path=path, kind=kind or ("series" if together else "runs"), runs=runs)


def suggest_commands(found: Recorded, command: str) -> str:
    """Return one line for a command that takes one run: what was found, and the command for one of its runs.

    Args:
        command: with "{}" in place of the run.
    """
    first = next((run for run in found.runs if run.name == "rollout"), found.runs[0] if found.runs else found.path)
    if not found.runs:
        return f"{found.what} without a run in it; look at it with: collab runs show {shlex.quote(str(found.path))}"
    runs = f"its {format_amount(len(found.runs), 'run')}" if len(found.runs) > 1 else "its run"
    more = "" if len(found.runs) == 1 else ", and so on for each"
    return f"{found.what}; name one of {runs}: {command.format(quote_path(command, first))}{more}"


def quote_path(command: str, path: Path) -> str:
    """Return a path as it is quoted in that command: for a shell, or within the quotes of a call."""
    return str(path) if '"' in command else shlex.quote(str(path))


def refuse_several(found: Recorded, command: str) -> None:
    """Raise a UsageError if a command that takes one run gets something else; text as `suggest_commands`."""
    if found.kind != "run":
        raise UsageError(suggest_commands(found, command))


def _build_number_key(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts epoch 10 behind epoch 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in path.parts]


def read_run(path: Path, opened: RunReader | None = None) -> EvaluatedRun:
    """Read one run; RunFormatError if it is none or cannot be read.

    Args:
        opened: its reader, which stays open; None opens one.
    """
    with RunStore.open(path).open_reader() if opened is None else contextlib.nullcontext(opened) as reader:
        manifest = reader.manifest
        split = manifest.config.get("split")
        return EvaluatedRun(
            path=path,
            command=manifest.command,
            seeds=manifest.seeds,
            setting=Setting(environment=manifest.environment, split=split["name"] if split else None),
            team=_team(manifest),
            report=report_of(reader),
        )


def read_evaluation(path: Path) -> Evaluation:
    """Read a run, or all runs in a folder as one evaluation.

    Raises:
        RunFormatError: there is no run, or one of them cannot be read.
        UsageError: the runs are not of one evaluation, see `pool_runs`.
    """
    paths = [path] if (path / FILE).exists() else find_runs(path)
    return pool_runs([read_run(one) for one in paths or [path]])


def pool_runs(runs: Sequence[EvaluatedRun]) -> Evaluation:
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
        report=pool([run.report for run in runs]),
        by_seed={seed: pool([run.report for run in runs if run.seeds.run == seed]) for seed in seeds},
    )


def _team(manifest: Manifest) -> Mapping[str, Any]:
    policies = {
        slot: (model.get("policy"), model.get("capabilities", {}).get("weights"))
        for slot, model in manifest.models.items()
    }
    settings = {part: manifest.config.get(part) for part in TEAM}
    return {"command": manifest.command, **settings, "policies": policies}


def _check_alike(one: EvaluatedRun, other: EvaluatedRun) -> None:
    if one.setting != other.setting:
        raise UsageError(
            f"{one.path} is of {one.setting}, {other.path} of {other.setting}: not one evaluation; name one of them"
        )
    parts = [part for part in one.team if one.team[part] != other.team[part]]
    if parts:
        raise UsageError(
            f"{one.path} and {other.path} differ in {', '.join(parts)}: not one evaluation; name them apart"
        )


def _check_apart(runs: Sequence[EvaluatedRun]) -> None:
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


Against: TypeAlias = Literal["first", "previous"]
"""Line to which a line is compared."""
Arms: TypeAlias = Mapping[str, Mapping[Setting, Evaluation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCell:
    """One arm in one setting."""

    evaluation: Evaluation
    difference: RunComparison | None
    """This line minus the one it is compared with; None for the first line, or if that one was not played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    """One arm."""

    name: str
    cells: tuple[ReportCell | None, ...]
    """One per column of the table; None if the arm was not played there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Arms by settings."""

    against: Against
    columns: tuple[Setting, ...]
    lines: tuple[ReportLine, ...]


def tabulate(
    arms: Mapping[str, Sequence[EvaluatedRun]], against: Against = "first", *, force: bool = False
) -> ReportTable:
    """Tabulate arms side by side.

    Args:
        arms: name → runs, in the order of the lines; runs of one setting are pooled.
        against: compare each line with the first one or with the one before it.
        force: accept runs that are unfinished, have more than 2 % broken episodes, or were sampled differently.

    Raises:
        UsageError: names the arm and the setting whose runs are not one evaluation, are no results or cannot be
            compared with those of the other arms.
    """
    # By setting: arms are compared only where they played the same.
    played = {name: _group_by_setting(name, runs) for name, runs in arms.items()}
    columns = _order_settings(dict.fromkeys(setting for settings in played.values() for setting in settings))
    for setting in columns:
        _check_column(setting, played, force)
    lines: list[ReportLine] = []
    names = list(played)
    for place, name in enumerate(names):
        # The first arm has nothing to be compared with.
        other = None if place == 0 else names[0 if against == "first" else place - 1]
        lines.append(
            ReportLine(name=name, cells=tuple(_format_cell(one, name, other, played, force) for one in columns))
        )
    return ReportTable(against=against, columns=columns, lines=tuple(lines))


def format_markdown(table: ReportTable) -> str:
    """Format the table in Markdown, rates and differences in percent, with a line that explains the numbers.

    A cell is "success [low, high] (episodes)"; a difference is followed by the number of equal instances.
    """
    compared = len(table.lines) > 1
    heads = [_escape(str(column)) for column in table.columns]
    rows = [["", *(text for head in heads for text in ((head, "difference") if compared else (head,)))]]
    rows.append(["---"] * len(rows[0]))
    for line in table.lines:
        cells = [text for cell in line.cells for text in _texts(cell)[: 2 if compared else 1]]
        rows.append([_escape(line.name), *cells])
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{text}\n\n{_format_legend(table)}"


def show_rate(rate: Rate) -> str:
    """Format percent, 95 % Wilson interval and number of episodes, e.g. "12.5 [8.9, 17.3] (216)"."""
    return show_share(rate.value, rate.interval, str(rate.episodes))


def show_share(share: float, interval: tuple[float, float], episodes: str) -> str:
    """Format a share in percent with its interval and its episodes in words, e.g. "70.1 [60.3, 79.2] (3 x 432)"."""
    low, high = interval
    return f"{100 * share:.1f} [{100 * low:.1f}, {100 * high:.1f}] ({episodes})"


def show_difference(difference: RunComparison) -> str:
    """Format percentage points with their 95 % interval, e.g. "+18.5 [+12.0, +25.9]"."""
    low, high = difference.interval
    return f"{100 * difference.difference:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _has_few_instances(table: ReportTable) -> bool:
    """Return whether an interval of the table is over too few instances to be meaningful."""
    cells = [cell for line in table.lines for cell in line.cells if cell is not None]
    return any(
        cell.evaluation.report.planned.is_few or (cell.difference is not None and cell.difference.is_few)
        for cell in cells
    )


def _format_sampling(table: ReportTable) -> str:
    """Format the temperatures of each line, once if all lines share them; empty if none are known."""
    told: dict[str, str] = {}
    for line in table.lines:
        known = [cell.evaluation.report.sampling for cell in line.cells if cell is not None]
        told[line.name] = "; ".join(dict.fromkeys(describe_sampling(one) for one in known if one))
    if not any(told.values()):
        return ""
    if len(set(told.values())) == 1:
        return f" Sampled at {next(iter(told.values()))}."
    each = "; ".join(f"{_escape(name)} at {words or 'temperatures not known'}" for name, words in told.items())
    return f" Sampled: {each}."


def _format_silent(table: ReportTable) -> str:
    """Format the number of replies without an action of each line; empty if there are none."""
    told = {
        line.name: Replies.sum(cell.evaluation.report.replies for cell in line.cells if cell is not None)
        for line in table.lines
    }
    if not any(replies.without_action for replies in told.values()):
        return ""
    each = (f"{_escape(name)} {replies.without_action} of {replies.total}" for name, replies in told.items())
    return f" Replies without an action: {', '.join(each)}."


def _group_by_setting(name: str, runs: Iterable[EvaluatedRun]) -> dict[Setting, Evaluation]:
    found: dict[Setting, list[EvaluatedRun]] = {}
    for run in runs:
        found.setdefault(run.setting, []).append(run)
    try:
        return {setting: pool_runs(same) for setting, same in found.items()}
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _order_settings(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """Sort settings: environments as they come, the splits of each in their fixed order."""
    known = list(settings)
    environments = list(dict.fromkeys(setting.environment for setting in known))
    splits = {name: place for place, name in enumerate(NAMES)}
    return tuple(
        sorted(known, key=lambda one: (environments.index(one.environment), splits.get(one.split or "", len(splits))))
    )


def _check_column(setting: Setting, arms: Arms, force: bool) -> None:
    """Refuse what is no result, and results of different versions or lists of tasks."""
    here = {name: settings[setting] for name, settings in arms.items() if setting in settings}
    for name, evaluation in here.items():
        # The message names arm and setting, as a table may have many.
        try:
            check_result(evaluation.report, force=force)
        except UsageError as error:
            raise UsageError(f"{name}, {setting}: {error}") from None
    try:
        check_same_environment([evaluation.report for evaluation in here.values()])
    except UsageError as error:
        raise UsageError(f"{setting}: {error}") from None
    # Equal names of splits are not enough: a split's list of tasks may have changed.
    hashes = {name: (evaluation.runs[0].team["split"] or {}).get("hash") for name, evaluation in here.items()}
    first, *_ = hashes
    odd = next((name for name in hashes if hashes[name] != hashes[first]), None)
    if odd is not None:
        raise UsageError(
            f"{setting}: {first} and {odd} were played with different lists of tasks "
            f"(hash {hashes[first]:.12} and {hashes[odd]:.12}); play one of them again"
        )


def _format_cell(setting: Setting, name: str, other: str | None, arms: Arms, force: bool) -> ReportCell | None:
    evaluation = arms[name].get(setting)
    if evaluation is None:
        return None
    before = None if other is None else arms[other].get(setting)
    if before is None:
        return ReportCell(evaluation=evaluation, difference=None)
    try:
        return ReportCell(evaluation=evaluation, difference=compare(before.report, evaluation.report, force=force))
    except UsageError as error:
        raise UsageError(f"{name} against {other}, {setting}: {error}") from None


def _texts(cell: ReportCell | None) -> tuple[str, str]:
    if cell is None:
        return "", ""
    report, difference = cell.evaluation.report, cell.difference
    if difference is None:
        return show_rate(report.planned), ""
    return show_rate(report.planned), f"{show_difference(difference)} ({difference.pairs})"


def _format_legend(table: ReportTable) -> str:
    found = {run.seeds for line in table.lines for cell in line.cells if cell for run in cell.evaluation.runs}
    seeds = sorted(found, key=lambda one: (one.run, one.sampling is not None, one.sampling or 0))
    told = f"Success in % with 95 % Wilson intervals (episodes); run seeds {', '.join(map(str, seeds))}."
    told += _format_sampling(table) + _format_silent(table)
    if _has_few_instances(table):
        told += f" Where episodes are {FEW_TOLD}."
    if len(table.lines) == 1:
        return told
    line = "the first line" if table.against == "first" else "the line above"
    return (
        f"{told} Differences to {line} in percentage points (number of equal instances), "
        "with 95 % bootstrap intervals that resample tasks, then their instances."
    )


def _escape(text: str) -> str:
    """Escape foreign text for one line of a table cell."""
    return "".join(letter if letter.isprintable() else " " for letter in text).replace("|", "\\|").strip()
