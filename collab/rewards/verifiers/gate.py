"""Records of how verifiers agree with the environment's rules, and the gate before their verdicts are learned from.

    note = await check_verifier(choice, suite.label)       # raises where its verdicts may not be learned from

A record belongs to a verifier by its digest, as a critic's calibration does: with another prompt, model or temperature
it is another verifier. It counts only in the environment in which it was measured. The rules need no record.

    DIR/agreement.json      the record; all verdicts lie beside the runs
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from collab.errors import ConfigError, RunFormatError
from collab.rewards.base import label_of
from collab.rewards.calibration.record import FEW, FOLDER, MOST_MISSING, list_records
from collab.rewards.verifiers.agreement import Agreement
from collab.rewards.verifiers.registry import VerifierChoice, open_verifier
from collab.rewards.verifiers.rules import RulesVerifier
from collab.store.manifest import collect_versions, format_now
from collab.store.run_dir import read_versioned
from collab.types import Usage
from collab.utils.files import report_write_errors, write_json
from collab.utils.text import format_amount

FILE = "agreement.json"
FORMAT = 1
LEAST_AGREEMENT = 0.9
MOST_FALSE_POSITIVES = 0.1
"""Largest share of failures that are called successes: these are what an algorithm would learn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRecord:
    """`agreement.json`."""

    verifier: str
    """Name of its agents file, or its kind."""
    label: str
    """Name and version, see `collab.rewards.base.label_of`."""
    digest: str
    """SHA-256 of everything that decides its verdicts."""
    config: Mapping[str, Any]
    """Its definition; JSON values, no secrets."""
    against: str
    """Label of the verifier that it was compared with."""
    environment: str
    """Label, as in results."""
    environment_version: str
    runs: Sequence[str]
    """Directories of the runs, as they were given."""
    tasks: Sequence[str]
    """Tasks to which the episodes were restricted; empty for all."""
    seed: int
    numbers: Agreement
    spent: Usage
    """Cost of the verifier's verdicts on these runs, in all processes."""
    versions: Mapping[str, str] = field(default_factory=collect_versions)
    created: str = field(default_factory=format_now)
    format: int = FORMAT


_RECORD: TypeAdapter[AgreementRecord] = TypeAdapter(AgreementRecord)


def read_agreement(directory: Path) -> AgreementRecord:
    """Read `agreement.json`; RunFormatError when there is none or it cannot be read by this version."""
    return read_versioned(directory / FILE, _RECORD, readable=FORMAT)


def write_agreement(directory: Path, record: AgreementRecord) -> None:
    """Write `agreement.json` into a new directory; StoreFailure if it cannot be written."""
    with report_write_errors(directory, "give the same command again: what is judged is not asked again"):
        directory.mkdir(parents=True)
        write_json(directory / FILE, to_jsonable_python(record))


def find_last_agreement(folder: Path, digest: str, environment: str) -> AgreementRecord | None:
    """Return the latest record of a verifier against the rules in an environment, or None.

    Args:
        folder: holds directories with records, or is one itself; it need not exist.
        digest: the present verifier's, see `AgreementRecord.digest`.
        environment: label.

    Raises:
        RunFormatError: a record that may be this verifier's cannot be read, and it has no other.
    """
    found, rules = list_records(folder, FILE, read_agreement, digest), label_of(RulesVerifier())
    fitting = (one for one in found if (one.environment, one.against) == (environment, rules))
    return max(fitting, key=lambda record: record.created, default=None)


async def check_verifier(
    choice: VerifierChoice, environment: str, *, folder: Path = FOLDER, allow_uncalibrated: bool = False
) -> str:
    """Check that a verifier may be learned from in an environment; return a line about its agreement.

    No model is asked. Arguments and errors as of `admit_verifier`; an unreadable record is an error only where one is
    needed.

    Raises:
        ConfigError: it may not, or cannot be built.
        RunFormatError: a record that may be its own cannot be read.
    """
    if choice.is_exact:
        return "needs no measurement: it is the environment's own outcome"
    async with open_verifier(choice, asks=False) as resources:
        digest = resources.compute_digest()
    try:
        found = find_last_agreement(folder, digest, environment)
    except RunFormatError:
        if not allow_uncalibrated:
            raise
        found = None
    admit_verifier(found, choice, environment=environment, folder=folder, allow_uncalibrated=allow_uncalibrated)
    return f"not measured in {environment}" if found is None else f"measured {found.created}: {format_agreement(found)}"


def admit_verifier(
    found: AgreementRecord | None,
    choice: VerifierChoice,
    *,
    environment: str,
    folder: Path = FOLDER,
    allow_uncalibrated: bool = False,
) -> None:
    """Check that a verifier's verdicts may be learned from.

    Args:
        found: its last record in this environment, or None.
        environment: label of the environment that is trained in.
        folder: the searched folder, for the message.
        allow_uncalibrated: let it pass in any case.

    Raises:
        ConfigError: it has no record; it agrees with the rules in less than `LEAST_AGREEMENT` of the episodes; it
            calls more than `MOST_FALSE_POSITIVES` of the failures successes, or met no failure; or more of its
            verdicts are missing than `MOST_MISSING`.
    """
    if allow_uncalibrated or choice.is_exact:
        return
    otherwise = "or let it judge all the same: --allow-uncalibrated"
    name = shlex.quote(choice.name)
    if found is None:
        raise ConfigError(
            f"verifier {choice.name}: not measured in {environment} as it is now (looked in {folder}); measure it on "
            f"runs that were recorded there: collab verifier agree --verifier {name} --runs RUN, {otherwise}"
        )
    refused = explain_refusal(found)
    if refused is not None:
        raise ConfigError(
            f"verifier {choice.name}: in its measurement of {found.created} it {refused}; use another verifier, "
            f"{otherwise}"
        )


def explain_refusal(found: AgreementRecord) -> str | None:
    """Return what keeps a verifier's verdicts from being learned from; None if they may be."""
    numbers = found.numbers
    missing, agreed, positives = sum(numbers.missing.values()), numbers.agreement, numbers.positives
    # Missing ones first: an agreement on the few easy episodes may be perfect.
    if missing > MOST_MISSING * numbers.episodes:
        given = f"{numbers.episodes - missing} of {numbers.episodes} verdicts"
        return f"gave {given}, at least {1 - MOST_MISSING:.0%} are wanted"
    if agreed.value is None or agreed.value < LEAST_AGREEMENT:
        return f"agrees in {agreed} of the episodes, at least {LEAST_AGREEMENT:.0%} are wanted"
    # Without a failure nothing is known of what it would let through.
    if positives.value is None:
        return "met no failed episode, so its false positives are not known"
    if positives.value > MOST_FALSE_POSITIVES:
        return f"calls {positives} of the failures successes, at most {MOST_FALSE_POSITIVES:.0%} are allowed"
    return None


def format_agreement(found: AgreementRecord) -> str:
    """Format a record in one line."""
    numbers = found.numbers
    kappa = "not known" if numbers.kappa is None else f"{numbers.kappa:.3f}"
    few = ", which is a rough measure" if numbers.agreement.total < FEW else ""
    missing = sum(numbers.missing.values())
    return (
        f"agrees in {numbers.agreement}{few}, κ {kappa}, false positives {numbers.positives}, {missing} of "
        f"{format_amount(numbers.episodes, 'verdict')} missing, in {found.environment}"
    )
