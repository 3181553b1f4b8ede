"""Stored verdicts of a run, in a folder of their own beside it; the files are those of `collab.rewards.labels`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pydantic import TypeAdapter

from collab.rewards.labels import LabelKind, StoredHead, StoredLabels
from collab.rewards.verifiers.base import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictHead(StoredHead):
    """`verdict.json`: everything that decides a verifier's verdicts."""

    verifier: str
    """Name and version, see `collab.rewards.base.label_of`."""


VerdictSet: TypeAlias = StoredLabels[Verdict, VerdictHead]
"""Stored verdicts of one verifier on one run."""

VERDICTS: LabelKind[Verdict, VerdictHead] = LabelKind(
    folder="verdicts",
    file="verdict.json",
    noun="verdicts",
    head=TypeAdapter(VerdictHead),
    label=TypeAdapter(Verdict),
)
