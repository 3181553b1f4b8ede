"""A calibration on disk: which critic was asked about what, and once it is over what came of it.

    DIR/calibration.json        this record; its numbers are None while questions are left
    DIR/reliability.svg         the reliability picture
    DIR/labels/PASS/            every judgement, the moment it was made (`collab.credit.labels`)

Nothing in the record depends on how often the work was interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from collab.credit.calibration import Calibration
from collab.redact import hide_values
from collab.store.files import write_atomic
from collab.store.manifest import now, versions
from collab.store.versioned import read_versioned
from collab.types import Spent

FILE = "calibration.json"
PICTURE = "reliability.svg"
FORMAT = 1
"""Version of the directory that this code reads and writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """`calibration.json`."""

    critic: str
    """Name of its agents file."""
    label: str
    """Name and version, see `collab.credit.critic.label_of`."""
    digest: str
    """SHA-256 of everything that decides its scores."""
    config: Mapping[str, Any]
    """The resolved configuration; JSON values, no secrets."""
    environment: str
    """Label, as results are labelled."""
    environment_version: str
    model: Mapping[str, Any] = field(default_factory=dict)
    """Policy and capabilities of the model that is asked; empty where none is."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Template → SHA-256 of its text; empty where nothing is asked."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    """Pass → the critic's seed; the run seed is in `config`."""
    versions: Mapping[str, str] = field(default_factory=versions)
    created: str = field(default_factory=now)
    """When it was begun."""
    numbers: Calibration | None = None
    """None while questions are left."""
    asked: str | None = None
    """SHA-256 over the hashes of all prompts in the order of passes, steps and calls; None also where none was."""
    spent: Spent | None = None
    """By all passes, whichever process paid; None like `numbers`."""
    format: int = FORMAT


_RECORD: TypeAdapter[CalibrationRecord] = TypeAdapter(CalibrationRecord)


def free_directory(wanted: Path) -> Path:
    """`wanted` where nothing is there of that name, else the first that is free of wanted-2, wanted-3 and so on."""
    others = (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))
    return next(path for path in chain([wanted], others) if not path.exists())


def write_record(directory: Path, record: CalibrationRecord) -> None:
    """Write `calibration.json` whole; OSError when the file system refuses."""
    content = _RECORD.dump_python(record, mode="json")
    text = json.dumps(hide_values(content), indent=2, ensure_ascii=True, allow_nan=False).encode() + b"\n"
    write_atomic(directory / FILE, text)


def read_record(directory: Path) -> CalibrationRecord:
    """Read `calibration.json`; RunFormatError when there is none or it cannot be read by this version."""
    absent = f"{directory}: not a calibration (no {FILE}); name the --out of one"
    return read_versioned(directory / FILE, _RECORD, readable=FORMAT, absent=absent)
