"""A training that resumes under other package versions says so."""

from __future__ import annotations

from collab.loop.loop import _compare_versions
from collab.trainers.prepare import collect_training_versions


def test_other_versions_are_told() -> None:
    now = collect_training_versions()
    told = _compare_versions({"versions": {**now, "torch": "1.0"}})
    assert told == (
        f"begun with torch 1.0, resumed with torch {now['torch']}: the rest may differ from an uninterrupted training"
    )
    assert _compare_versions({"versions": now}) is _compare_versions({}) is None
