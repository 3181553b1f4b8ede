"""Records of calibrations, and the gate before a critic's rewards are trained on.

    found = find_last_calibration(Path("calibrations"), resources.digest)
    admit(found, 0.75, critic="critic-llm", kind="llm")

A calibration belongs to a critic by its digest: with another prompt, model or temperature it is another critic. An AUC
covers the given scores, so it counts only where few are missing. The oracle needs no calibration, because it defines
the worth of the known steps. It measures by the environment's own solution, which is one of several.

    DIR/calibration.json        the record; its numbers are None while questions are left
    DIR/reliability.svg         the reliability diagram
    DIR/labels/PASS/            every judgement, stored at once (`collab.rewards.labels`)

Nothing in the record depends on how often the work was interrupted.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from collab.errors import ConfigError, RunFormatError
from collab.rewards.calibration.metrics import Calibration
from collab.store.manifest import collect_versions, format_now
from collab.store.run_dir import RunDir
from collab.types import Usage
from collab.utils.files import read_json

FILE = "calibration.json"
PICTURE = "reliability.svg"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """`calibration.json`."""

    critic: str
    """Name of its agents file."""
    label: str
    """Name and version, see `collab.rewards.base.label_of`."""
    digest: str
    """SHA-256 of everything that decides its scores."""
    config: Mapping[str, Any]
    """The resolved configuration; JSON values, no secrets."""
    environment: str
    """Label, as in results."""
    environment_version: str
    model: Mapping[str, Any] = field(default_factory=dict)
    """Policy and capabilities of the critic's model; empty where it asks none."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Template → SHA-256 of its text; empty where no model is asked."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    """Pass → the critic's seed; the run seed is in `config`."""
    versions: Mapping[str, str] = field(default_factory=collect_versions)
    created: str = field(default_factory=format_now)
    """When it was begun."""
    numbers: Calibration | None = None
    """None while questions are left."""
    asked: str | None = None
    """SHA-256 over the hashes of all prompts, by pass, step and call; None while unfinished and without prompts."""
    spent: Usage | None = None
    """Cost of all passes in all processes; None like `numbers`."""


_RECORD: TypeAdapter[CalibrationRecord] = TypeAdapter(CalibrationRecord)


def free_directory(wanted: Path) -> Path:
    """Return `wanted` if it does not exist, else the first free one of wanted-2, wanted-3 and so on."""
    others = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return next(path for path in chain([wanted], others) if not path.exists())


class CalibrationDir(RunDir):
    """A calibration on disk."""

    HEAD, NOUN, FORMAT, COMMAND = FILE, "calibration", 1, "collab critic calibrate --resume"

    def read_record(self) -> CalibrationRecord:
        """Read `calibration.json`; RunFormatError when there is none or it cannot be read by this version."""
        return self.read_as(_RECORD)


FOLDER = Path("calibrations")
"""Folder of calibrations, beneath the working directory."""
EXEMPT = frozenset({"oracle"})
"""Kinds that need no calibration."""
MOST_MISSING = 0.25
"""Largest share of a calibration's cells without a score. Missing scores are not missing at random, so the others
say little about them, and a policy learns nothing from such cells."""


FEW = 50
"""With fewer scores an AUC is reported as a rough measure: its standard error is about 0.08 or more at chance."""


class MeasuredJudge(Protocol):
    """A record of how a critic or a verifier was measured."""

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what it says."""

    @property
    def numbers(self) -> object | None:
        """The result; None while it is not finished."""


MeasuredT = TypeVar("MeasuredT", bound=MeasuredJudge)


def find_last_calibration(folder: Path, digest: str, environment: str | None = None) -> CalibrationRecord | None:
    """Return the finished calibration of a critic that was begun last, or None; see `list_records`.

    Args:
        environment: label of the environment in which it was measured; None for any.
    """
    found = list_records(folder, FILE, lambda path: CalibrationDir(path).read_record(), digest)
    fitting = (record for record in found if environment in (None, record.environment))
    return max(fitting, key=lambda record: record.created, default=None)


def list_records(folder: Path, file: str, read: Callable[[Path], MeasuredT], digest: str) -> list[MeasuredT]:
    """Return the finished records of a judge.

    Unreadable records are skipped if they belong to another judge, or if the judge has a readable one.

    Args:
        folder: holds directories with records, or is one itself; it need not exist.
        file: name of a record in its directory.
        read: reads the record of a directory.
        digest: the present judge's, see `MeasuredJudge.digest`.

    Raises:
        RunFormatError: a record that may be this judge's cannot be read, and it has no other.
    """
    mine, spoilt = list[MeasuredT](), list[RunFormatError]()
    # `folder` may be a folder of directories or a directory itself.
    for path in (*folder.glob(file), *sorted(folder.glob(f"*/{file}"))):
        try:
            record = read(path.parent)
        except RunFormatError as error:
            # A damaged record counts only if it may be this judge's.
            spoilt += [error] if _read_told_digest(path) in (None, digest) else []
        else:
            mine += [record] if record.digest == digest and record.numbers is not None else []
    # An older readable record is better than an error.
    if spoilt and not mine:
        raise RunFormatError(f"{spoilt[0]}; move it out of {folder}, or remove it") from None
    return mine


def _read_told_digest(path: Path) -> str | None:
    """Return the judge's digest from a record that this version cannot read, or None."""
    try:
        return str(read_json(path)["digest"])
    except (RunFormatError, LookupError, TypeError):
        return None


def admit(
    found: CalibrationRecord | None,
    min_auc: float,
    *,
    critic: str,
    kind: str,
    folder: Path = FOLDER,
    library: str | None = None,
    allow_uncalibrated: bool = False,
    flip: float | None = None,
) -> None:
    """Check that a critic may judge.

    Args:
        found: its last calibration, or None.
        min_auc: the least AUC, in [0, 1].
        critic: name of its agents file.
        kind: the critic's; those in `EXEMPT` always pass.
        folder: the searched folder, for the message.
        library: folder of the user's own definitions, for the message; None when there is none.
        allow_uncalibrated: let it pass in any case.
        flip: the share of inverted rewards that replaces its agents file's, for the message; None if none does.

    Raises:
        ConfigError: it has no calibration; its AUC is unknown or below `min_auc`; more scores are missing than
            `MOST_MISSING`; or `min_auc` is out of range.
    """
    # Checked even where it is not used: a mistyped threshold must not wait for the next critic.
    if not 0 <= min_auc <= 1:
        raise ConfigError(f"min AUC {min_auc}: allowed are numbers from 0 to 1; 0.5 is chance")
    # The oracle needs no calibration, and `--allow-uncalibrated` is the user's own decision.
    if allow_uncalibrated or kind in EXEMPT:
        return
    otherwise = "or let it judge all the same: --allow-uncalibrated"
    # From "nothing known" to "not good enough": each case has its own next move.
    if found is None or found.numbers is None:
        raise ConfigError(
            f"critic {critic}: no finished calibration of it, as it is now, in {folder}; make one with: "
            f"{format_calibrate_command(critic, folder, library, flip)}, {otherwise}"
        )
    auc = found.numbers.auc
    # AUC needs both good and other actions with scores.
    if auc is None:
        raise ConfigError(
            f"critic {critic}: its calibration of {found.created} knows no AUC ({format_calibration(found)}), at least "
            f"{min_auc:g} is wanted; use another critic, {otherwise}"
        )
    if auc < min_auc:
        raise ConfigError(
            f"critic {critic}: AUC {auc:.3f} in its calibration of {found.created}, at least {min_auc:g} is wanted; "
            f"use another critic, {otherwise}"
        )
    # A critic with many missing scores may have a fine AUC on the few cells that it scored.
    missing, cells = sum(found.numbers.missing.values()), found.numbers.cells
    if missing > MOST_MISSING * cells:
        raise ConfigError(
            f"critic {critic}: gave {cells - missing} of {cells} scores in its calibration of {found.created}, at "
            f"least {1 - MOST_MISSING:.0%} are wanted; see there why they are missing, use another critic, {otherwise}"
        )


def format_calibrate_command(
    critic: str, folder: Path = FOLDER, library: str | None = None, flip: float | None = None
) -> str:
    """Format the command that calibrates a critic into a new directory of `folder`.

    Args:
        critic: name of its agents file.
        library: folder of the user's own definitions, or None.
        flip: the share of inverted rewards that replaces its agents file's, or None.
    """
    out = free_directory(folder / Path(critic).stem)
    own = () if library is None else ("--library", library)
    setting = () if flip is None else ("--set", f"critic.flip={flip:g}")
    return shlex.join(["collab", "critic", "calibrate", "--critic", critic, *own, *setting, "--out", str(out)])


def format_calibration(found: CalibrationRecord) -> str:
    """Format a finished calibration in one line."""
    numbers = found.numbers
    if numbers is None:
        return "not finished"
    values = {"AUC": numbers.auc, "accuracy": numbers.accuracy, "calibration error": numbers.ece}
    parts = [f"{name} {value:.3f}" for name, value in values.items() if value is not None]
    missing = sum(numbers.missing.values())
    if numbers.cells - missing < FEW:
        parts.append(f"of {numbers.cells - missing} scores only, which is a rough measure")
    steps = "1 step" if numbers.cases == 1 else f"{numbers.cases} steps"
    return ", ".join([*parts, f"{missing} of {numbers.cells} scores missing", f"on {steps} of {found.environment}"])
