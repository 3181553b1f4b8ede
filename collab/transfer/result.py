"""Result of a transfer: `result.json`, and the same as Markdown; the formulas stand in `collab.transfer`.

Also the paths within a transfer, its parts, and their states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field

from collab.config import Definition, RunConfig, validate
from collab.errors import RunFormatError
from collab.evaluation.comparison import RunComparison, compare
from collab.evaluation.metrics import FEW, FEW_TOLD, Report
from collab.evaluation.report import EvaluatedRun, ReportTable, format_markdown, tabulate
from collab.loop.phases import is_over
from collab.loop.record import Success, TrainingDir
from collab.store.manifest import FILE as RUN_FILE
from collab.store.run_dir import RunDir
from collab.transfer.config import Arm, Mode, Place, TransferConfig
from collab.utils.files import read_json, read_plain, report_write_errors, write_atomic, write_json

Played: TypeAlias = Mapping[Place, Mapping[Arm, Sequence[EvaluatedRun]]]
"""Place → arm → the runs of that evaluation."""


class Difference(Definition):
    """A difference of two success rates over equal instances."""

    value: float
    low: float
    high: float
    """95 % bootstrap interval: tasks are resampled, then their instances."""
    pairs: int
    tasks: int
    """Number of tasks of the pairs."""

    @classmethod
    def of(cls, comparison: RunComparison) -> Difference:
        """Return the difference second minus first."""
        low, high = comparison.interval
        return cls(value=comparison.difference, low=low, high=high, pairs=comparison.pairs, tasks=comparison.tasks)

    def __str__(self) -> str:
        few = f"; {FEW_TOLD}" if self.pairs < FEW else ""
        return (
            f"{100 * self.value:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}] points "
            f"({self.pairs} equal instances{few})"
        )


class Measured(Definition):
    """One environment."""

    environment: str
    """As results are labelled."""
    split: str | None
    """None for freely chosen tasks."""
    success: dict[Arm, Success]
    """With temperatures."""


class TransferOutcome(Definition):
    """`result.json`. Holds no times, so an interrupted and resumed transfer has the same."""

    mode: Mode
    agents: str
    base: str
    """Team and base, as they were named."""
    seeds: list[int]
    second: Measured
    first: Measured | None = None
    """None for direct, as all fields below."""
    generalization: dict[Arm, Difference]
    """Δ_generalization of every team but the base."""
    gained: Difference | None = None
    forgetting: Difference | None = None
    method: str | None = None
    """Method of the training in the second environment: preset and ablation."""
    epoch: int | None = None
    """Epoch of the second training that was chosen; 0 means that none was better than the transferred team."""
    untrained: list[str] = Field(default_factory=list)
    """Policies that kept their weights in an epoch of the second training, and why, e.g. "epoch 1, shared: …"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeReport:
    """An outcome, and the same as Markdown."""

    outcome: TransferOutcome
    markdown: str


def compare_generalization(base: Report, team: Report) -> RunComparison:
    """Return Δ_generalization = SR(team) − SR(base), both in the second environment.

    Source: CollabUIAgents, tables 1 and 2. Deviation: over the instances that both played, with an interval. Raises as
    `collab.evaluation.comparison.compare`.
    """
    return compare(base, team)


def compare_forgetting(before: Report, after: Report) -> RunComparison:
    """Return SR(before) − SR(after) in the first environment, positive if something was forgotten; raises as above."""
    return compare(after, before)


def build_outcome(
    played: Played,
    *,
    mode: Mode,
    agents: str,
    base: str,
    seeds: Sequence[int],
    epoch: int | None = None,
    method: str | None = None,
    untrained: Sequence[str] = (),
) -> OutcomeReport:
    """Compare the played evaluations; names and numbers as in `TransferOutcome`.

    Raises:
        UsageError: something is no result or cannot be compared; see `collab.evaluation.report.tabulate`.
    """
    # Tables refuse what cannot be compared, so they come before any difference.
    tables = {place: tabulate({str(arm): runs for arm, runs in arms.items()}) for place, arms in played.items()}
    second = _collect_reports(played["second"], tables["second"])
    first = _collect_reports(played["first"], tables["first"]) if "first" in played else {}
    outcome = TransferOutcome(
        mode=mode,
        agents=agents,
        base=base,
        seeds=list(seeds),
        second=_build_measured(tables["second"], second),
        first=_build_measured(tables["first"], first) if first else None,
        # Each trained team against the untrained one, on the same instances (see the formulas of this room).
        generalization={
            arm: Difference.of(compare_generalization(second["base"], report))
            for arm, report in second.items()
            if arm != "base"
        },
        # What further training gained, and what it cost at home, exist only in mode continual.
        gained=Difference.of(compare(second["transferred"], second["continued"])) if first else None,
        forgetting=Difference.of(compare_forgetting(first["transferred"], first["continued"])) if first else None,
        method=method,
        epoch=epoch,
        untrained=list(untrained),
    )
    return OutcomeReport(outcome=outcome, markdown=_format_outcome(outcome, tables))


def _collect_reports(arms: Iterable[Arm], table: ReportTable) -> dict[Arm, Report]:
    """Return arm → its report, from a table with one column and a line for each arm."""
    cells = [cell for line in table.lines for cell in line.cells if cell is not None]
    return {arm: cell.evaluation.report for arm, cell in zip(arms, cells, strict=True)}


def _build_measured(table: ReportTable, reports: Mapping[Arm, Report]) -> Measured:
    (column,) = table.columns
    success = {arm: Success.of(report) for arm, report in reports.items()}
    return Measured(environment=column.environment, split=column.split, success=success)


def _format_outcome(outcome: TransferOutcome, tables: Mapping[Place, ReportTable]) -> str:
    how = f" Trained in the second environment by {outcome.method}." if outcome.method else ""
    # First what was measured, then what follows from it.
    lines = [f"# Transfer, {outcome.mode}", "", f"Team {outcome.agents}, base {outcome.base}.{how}", ""]
    for place, table in tables.items():
        lines += [f"## The {place} environment", "", format_markdown(table), ""]
    for arm, difference in outcome.generalization.items():
        lines.append(f"- Δ_generalization of the {arm} team: {difference}")
    if outcome.gained is not None:
        # Epoch 0 is a possible best, and means that training gained nothing.
        chosen = f"epoch {outcome.epoch}" if outcome.epoch else "no epoch was better than the team as it came"
        lines.append(f"- gained by training in the second environment: {outcome.gained} ({chosen})")
    lines += [f"- learned nothing: {one}" for one in outcome.untrained]
    if outcome.forgetting is not None:
        lines.append(f"- forgetting of the first environment, positive where something is lost: {outcome.forgetting}")
    return "\n".join(lines) + "\n"


FILE = "transfer.json"

State: TypeAlias = Literal["missing", "begun", "over"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPart:
    """One evaluation: a team in an environment."""

    place: Place
    arm: Arm
    runs: tuple[RunConfig, ...]
    """One per seed; for the continued team those of the transferred one, whose weights it replaces."""

    @property
    def name(self) -> str:
        """Its directory, e.g. "second/base"."""
        return f"{self.place}/{self.arm}"


def list_parts_before(config: TransferConfig) -> list[TransferPart]:
    """List the evaluations before further training; for direct that is all."""
    found = [
        TransferPart(place="second", arm="base", runs=tuple(config.base)),
        TransferPart(place="second", arm="transferred", runs=tuple(config.transferred)),
    ]
    return (
        found
        if config.training is None
        else [*found, TransferPart(place="first", arm="transferred", runs=_list_first(config))]
    )


def list_parts_after(config: TransferConfig) -> list[TransferPart]:
    """List the evaluations of the continued team; none for direct."""
    if config.training is None:
        return []
    return [
        TransferPart(place="second", arm="continued", runs=tuple(config.transferred)),
        TransferPart(place="first", arm="continued", runs=_list_first(config)),
    ]


def _list_first(config: TransferConfig) -> tuple[RunConfig, ...]:
    return tuple(config.first)


class TransferDir(RunDir):
    """A transfer on disk."""

    HEAD, NOUN, FORMAT, COMMAND = FILE, "transfer", 4, "collab transfer --resume"
    LISTED = True

    @property
    def result(self) -> Path:
        """Exists once the transfer is over."""
        return self.path / "result.json"

    @property
    def table(self) -> Path:
        """The result as Markdown; written before `result`."""
        return self.path / "result.md"

    @property
    def training(self) -> TrainingDir:
        """Training in the second environment."""
        return TrainingDir(self.path / "training")

    def get_part(self, part: TransferPart) -> Path:
        """Return the directory of an evaluation."""
        return self.path / part.place / part.arm

    def find_state(self, part: TransferPart) -> State:
        """Return the state of an evaluation; it can be over with broken episodes."""
        places = [self.get_part(part) / f"seed-{run.seed}" for run in part.runs]
        begun = [place for place in places if (place / RUN_FILE).exists()]
        if len(begun) == len(places) and all(is_over(place) for place in begun):
            return "over"
        return "begun" if begun else "missing"

    def find_training_state(self) -> State:
        """Return the state of the training."""
        if not self.training.file.exists():
            return "missing"
        return "over" if "summary" in self.training.read() else "begun"

    def read_outcome(self) -> OutcomeReport | None:
        """Read the outcome; None before the end. RunFormatError if it cannot be read."""
        if not self.result.exists():
            return None
        content = read_json(self.result, advice="remove it, and it is made again")
        try:
            table = read_plain(self.table).decode("utf-8")
        except (OSError, ValueError) as error:
            raise RunFormatError(f"{self.result}: cannot be read: {error}; remove it, and it is made again") from None
        return OutcomeReport(outcome=validate(TransferOutcome, content, str(self.result)), markdown=table)

    def close(self, told: OutcomeReport) -> None:
        """Write the outcome; StoreFailure if it cannot be written."""
        with report_write_errors(self.result, self.resume):
            write_atomic(self.table, told.markdown.encode("utf-8"))
            write_json(self.result, told.outcome.model_dump(mode="json"))
