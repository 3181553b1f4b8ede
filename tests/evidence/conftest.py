"""What tests of the evidence share: its script can be imported, and files of finished units are made by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from collab.evidence.record import EpochNumbers, MeasuredEpisodes, Seconds, UnitRecord

SCRIPTS = str(Path(__file__).parents[2] / "scripts")

if SCRIPTS not in sys.path:
    sys.path.insert(0, SCRIPTS)

MakeRecord = Callable[..., Any]
METHOD = {
    "objective": "dpo",
    "pairs": {"adversary": 0.0, "contrast": 0.0, "correction": 1.0},
    "dpo": {"learning_rate": 2e-5, "lora": None},
}
"""What tables read of a training's method."""


@pytest.fixture
def make_record() -> MakeRecord:
    """Makes the record of a finished unit: `make_record("full", 0, "new-seeds", "110")` has two of three solved."""

    def make_rows(solved: str) -> list[Any]:
        return [(f"Task{place // 2}", 7000 + place, 10, one == "1", 4, None) for place, one in enumerate(solved)]

    def make_epoch(number: int, solved: str) -> EpochNumbers:
        trained: dict[str, Any] = {"logp_chosen": -0.5, "chosen_gain": -1.0 * number} if number else {}
        weights = {"shared": f"weights-{number}"} if number else {}
        held_out = make_rows(solved)
        return EpochNumbers(epoch=number, steps=8, held_out=held_out, weights=weights, hash="e" * 64, **trained)

    def make(
        arm: str, seed: int | None, phase: str, solved: str = "", *, epochs: Sequence[str] = (), **more: Any
    ) -> UnitRecord:
        trains = bool(epochs)
        given = {
            "base": "base",
            "policy": "base" if trains or seed is None else "weights-1",
            "code": ["c" * 64],
            "commit": None,
            "command": f"collab {'train-marl' if trains else 'eval'} --out {arm}",
            "machine": {"processors": 2, "threads": None, "system": "Linux", "python": "3.12", "torch": "2.13"},
            "config": {"method": METHOD} if trains else {},
            "seeds": [39] if trains else [40],
            "steps": 16 if trains else 4 * len(solved),
            "seconds": Seconds(
                whole=600.0, playing=300, environment=6, inference=294, critic=60, adversary=0, training=120
            ),
            "hashes": {"training": "h" * 64} if trains else {"40": "h" * 64},
            "measured": None
            if trains
            else MeasuredEpisodes(environment="fake", version="1", split="new-seeds", episodes=make_rows(solved)),
            "best": 1 if trains else None,
            "epochs": [make_epoch(number, outcomes) for number, outcomes in enumerate(epochs)],
        }
        return UnitRecord(arm=arm, seed=seed, phase=phase, **{**given, **more})

    return make
