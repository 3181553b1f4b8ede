"""The file that a finished unit leaves, and what is refused: another checkpoint, another training, another recipe.

    write(folder, record)
    records = read_all(folder, plan)
    check_records(plan, records, folder, work)

A file names no place of any machine, and is small enough to be committed. A command alone does not tell how a unit was
made: the same words give another training once a preset, a graph or an agents file was changed. So what the words stood
for is compared, too. Descriptions do not count, nor does which weights an agent plays: their digest is checked.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field

from collab.config import RUN, Definition, RunConfig, Unseen, override, validate
from collab.errors import ConfigError, RunFormatError, StoreFailure, UsageError
from collab.evaluation.metrics import EpisodeResult, Report, summarise
from collab.evidence.plan import SHOWN, EvidenceUnit, Plan
from collab.library import Library
from collab.loop.config import Method
from collab.loop.configure import apply_ablation
from collab.loop.interfaces import load_algorithm, load_config, load_method
from collab.loop.record import TrainingDir
from collab.rollout.build import with_prompts
from collab.rollout.plan import run_config
from collab.synthesis.instruction_suite import unwrap_environment
from collab.utils.files import report_write_errors, write_atomic

FORMAT = 1
LARGEST = 200_000
"""Bytes of a file."""
ALGORITHM = "collabuiagents"
"""By which a unit trains that names none."""
LEARNING = ("critic", "adversary", "values", "samples", "training")
"""Parts of a training beside playing, as `Seconds` names them."""
SHORT = 60
"""Characters of a value that a message repeats."""

Row: TypeAlias = tuple[str, int, int, bool, int, str | None]
"""Task, instance seed, step budget, success, steps, class of the error that broke it (None for none)."""
Recipe: TypeAlias = Mapping[str, Any]
"""Name → value of all that decides a unit beside its command, e.g. "method.dpo.beta" → 0.3."""


class MeasuredEpisodes(Definition):
    """Episodes of one place."""

    environment: str
    """As results are labelled."""
    version: str
    """Version of the environment."""
    split: str | None
    """None for tasks that were chosen freely."""
    episodes: list[Row]

    def report(self) -> Report:
        """Return the report of all episodes."""
        results = [
            EpisodeResult(
                id=f"{task}/{place}",
                task=task,
                difficulty="",
                seed=seed,
                success=success,
                steps=steps,
                max_steps=most,
                error=broken,
            )
            for place, (task, seed, most, success, steps, broken) in enumerate(self.episodes)
        ]
        return summarise(results, environment=self.environment, environment_version=self.version, privileged=False)


class EpochNumbers(Definition):
    """One epoch of a training; see `collab.loop.record.EpochRecord`, of which these are parts."""

    epoch: int
    steps: int = 0
    """Environment steps that were learned from."""
    rollout: list[Row] = Field(default_factory=list)
    held_out: list[Row] = Field(default_factory=list)
    """Empty where it was not measured."""
    pairs: int = 0
    """New pairs, without the rewarded replies that are anchored beside them, or new replies; and rows of older epochs,
    with such replies."""
    updates: int = 0
    """Optimizer steps, of all policies together."""
    loss: float | None = None
    """None where nothing was trained, as all below."""
    margin: float | None = None
    accuracy: float | None = None
    logp_chosen: float | None = None
    logp_chosen_first: float | None = None
    chosen_gain: float | None = None
    alarm: str | None = None
    agreement: float | None = None
    step_accuracy: float | None = None
    """Percent of the steps of held-out demonstrations that the policy would take; None where it was not measured."""
    apart: tuple[int, int] | None = None
    """Groups that ended differently, or states whose replies differ in Q, and how many could have; None for algorithms
    that compare neither, and in an epoch in which Q learns alone."""
    weights: dict[str, str] = Field(default_factory=dict)
    """Policy → digest of what it became; empty where nothing was trained."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Part → seconds that it took; one that was resumed is missing."""
    hash: str

    @property
    def success(self) -> float | None:
        """Percent of the held-out episodes that were solved; None where none were played."""
        return 100 * sum(row[3] for row in self.held_out) / len(self.held_out) if self.held_out else None


class Seconds(Definition):
    """Seconds that a unit took, by part. None where no process recorded it, e.g. because it died."""

    whole: float
    """Seconds of all commands that worked on the unit, loading included; one that was killed counts until the last file
    that it wrote."""
    playing: float | None = None
    """From the first reset of a run to its last step, over all runs; those that were played side by side count once."""
    environment: float | None = None
    """Part of `playing` in which at least one environment was at work; see `collab.evidence.gather`."""
    inference: float | None = None
    """The rest of playing: agents alone."""
    critic: float | None = None
    adversary: float | None = None
    values: float | None = 0.0
    """Fits of what values states or replies, and values read from it."""
    samples: float | None = 0.0
    """Candidates: replies to visited states that are sampled and not executed."""
    training: float | None = None


class UnitRecord(Definition):
    """A finished unit."""

    format: int = FORMAT
    arm: str
    seed: int | None
    phase: str
    base: str
    """Digest of the weights that every arm began with."""
    policy: str
    """Digest of the weights that were played, or that training began with."""
    code: list[str]
    """Digests of the package's files in all processes that worked on it; one, unless it was changed meanwhile."""
    commit: str | None
    """Commit of the checkout at the end; None outside of one."""
    command: str
    """As it was given, in one line."""
    machine: dict[str, str | int | None]
    """In words; see `collab.evidence.gather.describe_machine`."""
    config: dict[str, Any]
    """Resolved: of a training, or of the first run of an evaluation."""
    seeds: list[int]
    """Run seeds of the evaluation, or the held-out ones of the training."""
    steps: int
    """Environment steps of its episodes; of a training, of all that was learned from."""
    seconds: Seconds
    hashes: dict[str, str]
    """Run hashes: "training", or run seed → hash."""
    measured: MeasuredEpisodes | None = None
    """Episodes of an evaluation; None for a training."""
    critics: list[str] = Field(default_factory=list)
    """Name and version of each critic of a training, e.g. "oracle-2"."""
    best: int | None = None
    """Best epoch of a training on the held-out seeds."""
    epochs: list[EpochNumbers] = Field(default_factory=list)
    """Epochs of a training."""

    @property
    def unit(self) -> EvidenceUnit:
        """Return the unit that it measures."""
        return EvidenceUnit(arm=self.arm, seed=self.seed, phase=self.phase)

    def find_measured(self, epoch: int | None) -> MeasuredEpisodes | None:
        """Return the episodes of an evaluation, or those on held-out seeds behind an epoch of a training.

        Args:
            epoch: None for an evaluation.

        Returns:
            None where nothing was measured.
        """
        if epoch is None:
            return self.measured
        rows = next((one.held_out for one in self.epochs if one.epoch == epoch), [])
        return MeasuredEpisodes(environment="held out", version="", split=None, episodes=rows) if rows else None

    @property
    def share_apart(self) -> float | None:
        """Percent of a training's groups or states that told replies apart (`EpochNumbers.apart`); None without any."""
        found = [one.apart for one in self.epochs if one.apart is not None]
        return 100 * sum(some for some, _ in found) / sum(every for _, every in found) if found else None

    @property
    def method(self) -> Mapping[str, Any]:
        """A training's recorded method; empty where the file holds none."""
        method: Mapping[str, Any] = self.config.get("method", {})
        return method


Records: TypeAlias = Mapping[EvidenceUnit, UnitRecord]


def file_of(folder: Path, unit: EvidenceUnit) -> Path:
    """Return where the file of a unit lies."""
    return folder / f"{unit.name}.json"


def write(folder: Path, record: UnitRecord) -> Path:
    """Write a finished unit, an episode per line, so that a file can be read and its changes be seen.

    Raises:
        StoreFailure: it would be too large to be committed, or cannot be written.
    """
    path = file_of(folder, record.unit)
    data = record.model_dump(mode="json")
    # JSON has no way to indent all but rows, so they are put in afterwards.
    holders = [] if data["measured"] is None else [(data["measured"], "episodes")]
    holders += [(epoch, name) for epoch in data["epochs"] for name in ("rollout", "held_out")]
    lists: list[str] = []
    for holder, name in holders:
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in holder[name])
        lists.append(f"[\n{rows}]" if rows else "[]")
        holder[name] = f"rows {len(lists) - 1}"
    text = json.dumps(data, indent=1, ensure_ascii=False)
    for place, rows in enumerate(lists):
        text = text.replace(f'"rows {place}"', rows, 1)
    content = f"{text}\n".encode()
    if len(content) > LARGEST:
        raise StoreFailure(
            f"{path}: {len(content)} bytes, at most {LARGEST} are committed; play fewer episodes in a unit"
        )
    with report_write_errors(path, "give the same command again"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)
    return path


def read(path: Path) -> UnitRecord:
    """Read one file; RunFormatError when it cannot be read or another version wrote it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; remove it, and the unit is done again") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RunFormatError(f"{path}: not of format {FORMAT}; remove it, and the unit is done again")
    return validate(UnitRecord, data, str(path))


def read_all(folder: Path, plan: Plan) -> dict[EvidenceUnit, UnitRecord]:
    """Read the finished units of a plan; files of others are left alone.

    Raises:
        RunFormatError: one cannot be read, or says that it is another.
        UsageError: they are of different bases, or an evaluation played another training than the one beside it.
    """
    found: dict[EvidenceUnit, UnitRecord] = {}
    for unit in plan.units:
        path = file_of(folder, unit)
        if not path.exists():
            continue
        found[unit] = read(path)
        if found[unit].unit != unit:
            raise RunFormatError(f"{path}: says that it is {found[unit].unit}; put it back where it belongs")
    bases = {record.base: unit for unit, record in found.items()}
    if len(bases) > 1:
        (one, first), (other, second) = list(bases.items())[:2]
        raise UsageError(
            f"{file_of(folder, first)} began with weights {one:.12}, {file_of(folder, second)} with {other:.12}: "
            "results of different checkpoints are not set side by side; remove the files of one of them"
        )
    _check_trainings(found, plan, folder)
    return found


def check_base(records: Records, folder: Path, base: str) -> None:
    """Raise UsageError where finished units began with other weights than those that are there now."""
    for unit, record in records.items():
        if record.base != base:
            raise UsageError(
                f"{file_of(folder, unit)}: began with weights {record.base:.12}, the checkpoint is {base:.12} now; "
                "bring that checkpoint back, or remove the files of the other one"
            )


def _check_trainings(records: Records, plan: Plan, folder: Path) -> None:
    """Refuse an evaluation of a policy that the training beside it did not make."""
    for unit, record in records.items():
        before = plan.needs(unit)
        if before is None and record.policy != record.base:
            raise UsageError(f"{file_of(folder, unit)}: played {record.policy:.12}, not the base; remove it")
        if before is None or before not in records:
            continue
        training = records[before]
        made = {training.policy, *(digest for epoch in training.epochs for digest in epoch.weights.values())}
        if record.policy not in made:
            raise UsageError(
                f"{file_of(folder, unit)}: weights {record.policy:.12} are of no epoch of {before}; "
                "it is of an earlier training: remove it, and it is done again"
            )


# ------------------------------------------------------------------------------------------------------- recipes


def check_records(plan: Plan, records: Records, folder: Path, work: Path) -> None:
    """Refuse finished units of another recipe than today's.

    Args:
        plan: of today.
        records: of the finished units.
        folder: of the units' files.
        work: what `collab` writes, of all bases.

    Raises:
        UsageError: there is one; the message names file, difference and what to remove.
    """
    known: dict[str, Recipe] = {}  # run seeds have one recipe
    for unit, record in records.items():
        recipe = known.get(unit.spot) or known.setdefault(unit.spot, derive_recipe(plan, unit))
        file = file_of(folder, unit)
        found = _compare_commands(record.command, plan.shown_command(unit, record.base))
        found += _compare_recipes(record.config, recipe, str(file))
        if found:
            also = [one.name for one in plan.players(unit) if one in records]
            beside = f", and both of {', '.join(also)}" if also else ""
            raise UsageError(
                f"{file}: was made by another recipe than today's ({_shorten(found)}); remove it and its folder "
                f"{work / record.base[:12] / unit.name}{beside}, and it is done again"
            )


def check_begun(plan: Plan, unit: EvidenceUnit, work: Path, *, base: str, began: str | None) -> None:
    """Refuse to resume, or to play, what was begun by another recipe than today's.

    Args:
        plan: of today.
        unit: which.
        work: folder of all units of this base; the unit's own need not exist.
        base: digest of the weights that every arm begins with.
        began: the command that began it, as `Plan.shown_command`; None where it was not noted.

    Raises:
        UsageError: it was; the message names folder, difference and what to remove. `collab` itself compares what was
            begun of an evaluation with the configuration of today.
        RunFormatError: the training cannot be read.
    """
    folder = work / unit.name
    if not folder.exists():
        return
    found = [] if began is None else _compare_commands(began, plan.shown_command(unit, base))
    training = TrainingDir(folder)
    if plan.is_training(unit) and training.file.exists():
        found += _compare_recipes(training.read()["config"], derive_recipe(plan, unit), str(training.file))
    if found:
        raise UsageError(
            f"{folder}: was begun by another recipe than today's ({_shorten(found)}); "
            "remove that folder, and it is begun anew"
        )


def derive_recipe(plan: Plan, unit: EvidenceUnit) -> Recipe:
    """Return what a unit's command stands for now; UsageError where a definition that it names does not fit."""
    _, *words = plan.command(unit, SHOWN)
    options: dict[str, list[str]] = {}
    for name, value in zip(words[::2], words[1::2], strict=True):
        options.setdefault(name, []).append(value)
    library = Library(own=Path(options["--library"][-1]) if "--library" in options else None)
    graph, settings, method = options.get("--graph", ["team"])[-1], options.get("--set", []), None
    if plan.is_training(unit):
        algorithm = load_algorithm(options.get("--algo", [ALGORITHM])[-1])
        method = load_method(algorithm, options.get("--preset", [algorithm.default_preset])[-1])
        if "--ablation" in options:
            method, graph = apply_ablation(algorithm, method, options["--ablation"][-1], graph=graph)
        method = override(method, [one for one in settings if not one.startswith(RUN)])
        settings = [one.removeprefix(RUN) for one in settings if one.startswith(RUN)]
    run = run_config(library=library, env=options["--env"][-1], graph=graph, agents=plan.agents, settings=settings)
    if "--instructions" in options:
        # As `use_instructions` does: they belong to no split.
        run = run.model_copy(update={"environment": run.environment.model_copy(update={"unseen": Unseen()})})
    return _select_decisive(with_prompts(run, library), method)


def recipe_of_config(config: Mapping[str, Any], source: str) -> Recipe:
    """Return what a recorded configuration stands for; ConfigError where it does not fit today's definitions.

    What it lacks was at its default when it was recorded.

    Args:
        config: of a training, or of a run.
        source: where it was read, for messages.
    """
    if "method" not in config:
        return _select_decisive(validate(RunConfig, config, source), None)
    training = load_config(config, source)
    return _select_decisive(training.run, training.method)


def _select_decisive(run: RunConfig, method: Method | None) -> Recipe:
    """Return where, by what team and how; not which tasks and seeds, which are in the command."""
    # Instructions are named by the command, and told apart by the SHA-256 in the recorded configuration.
    environment, part = run.environment, unwrap_environment(run.environment.part)
    comment = re.compile(r"\{#.*?#\}\n?", re.DOTALL)  # of a template: no model reads it
    decisive: dict[str, Any] = {
        "environment": {
            "name": run.environment_name,
            "kind": part.kind,
            "options": {name: value for name, value in part.options.items() if name != "without"},  # by the split
            "limits": environment.limits.model_dump(mode="json"),
            "unseen": environment.unseen.apps,
        },
        "graph": run.graph.model_dump(mode="json", exclude={"description"}),
        "agents": {
            slot: agent.model_dump(mode="json", exclude={"description", "options"})
            for slot, agent in run.agents.items()
        },
        "prompts": {
            name: {part: comment.sub("", text) for part, text in texts.items()} for name, texts in run.prompts.items()
        },
    }
    if method is not None:
        decisive["method"] = _hide_folders(method.model_dump(mode="json", exclude={"description"}))
    return dict(_flatten(hide_places(decisive, SHOWN)))


def _hide_folders(method: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which folders stand by their last name: where they lie is known where they exist alone.

    How they are named is in the command.
    """
    return {
        name: f"…/{Path(value).name}" if isinstance(value, str) and "/" in value else value
        for name, value in method.items()
    }


def _flatten(values: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{head}{name}.")
        else:
            yield f"{head}{name}", value


def hide_places(value: Any, work: Path) -> Any:
    """Return a configuration without places of this machine.

    Args:
        value: what JSON holds.
        work: folder of all units of this base; what lies in it is called as in `SHOWN`, the rest by its last name.
    """
    if isinstance(value, Mapping):
        return {key: hide_places(one, work) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [hide_places(one, work) for one in value]
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    place, home = Path(value), work.resolve()
    return str(SHOWN / home.name / place.relative_to(home)) if place.is_relative_to(home) else f"…/{place.name}"


def _compare_commands(there: str, now: str) -> list[str]:
    """Return the differences of two commands in words; empty where they are the same."""
    if there == now:
        return []
    first, second = Counter(shlex.split(there)), Counter(shlex.split(now))
    gone, new = (shlex.join(one.elements()) for one in (first - second, second - first))
    return [f"command: {gone or 'nothing'} there, {new or 'nothing'} today" if gone or new else "order of its options"]


def _compare_recipes(config: Mapping[str, Any], now: Recipe, source: str) -> list[str]:
    """Return the differences of a recorded configuration and today's recipe in words; empty where there are none."""
    try:
        there = recipe_of_config(config, source)
    except ConfigError as error:
        return [f"configuration of another version: {error}"]
    return list(_name_changes(there, now, dict.fromkeys([*now, *there])))


def _name_changes(there: Recipe, now: Recipe, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if there.get(name) != now.get(name):
            one, other = (json.dumps(of.get(name), ensure_ascii=False) for of in (there, now))
            is_long = max(len(one), len(other)) > SHORT
            yield f"{name}: another text today" if is_long else f"{name}: {one} there, {other} today"


def _shorten(found: Sequence[str]) -> str:
    return "; ".join(found[:3]) + (f"; {len(found) - 3} more" if len(found) > 3 else "")
