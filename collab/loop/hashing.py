"""Hashes of epochs and of a whole training: equal where the same was said, done, labelled and learned.

They cover tokens, texts, actions, outcomes, labels and weights, each sorted by name, and no time, cost, place or
order of a log. So a training that was killed and resumed hashes like one that was not. They compare trainings on one
machine; another may round otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from collab.store.digest import trajectory_hash
from collab.types import Trajectory


def played_hash(played: Iterable[Trajectory]) -> str:
    """Return the SHA-256 of episodes, whatever their order."""
    return hash_json(sorted(trajectory_hash(one) for one in played))


def measured_hash(measured: Mapping[int, Iterable[Trajectory]]) -> str:
    """Return the SHA-256 of an evaluation: held-out seed → its episodes."""
    return hash_json(sorted([seed, played_hash(those)] for seed, those in measured.items()))


def named_hash(digests: Mapping[str, str | None]) -> str:
    """Return the SHA-256 of digests by name, e.g. policy → digest of its weights."""
    return hash_json(sorted(digests.items()))


def run_hash(base: Mapping[str, str], epochs: Mapping[int, str]) -> str:
    """Return the SHA-256 of a training.

    Args:
        base: slot → digest of the weights that it began with.
        epochs: number → its hash.
    """
    return hash_json([sorted(base.items()), sorted(epochs.items())])


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")).hexdigest()
