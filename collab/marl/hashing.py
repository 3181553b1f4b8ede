"""Hashes of epochs and of a whole training: equal where the same was said, done, rewarded, paired and learned.

They cover tokens, texts, actions, outcomes, scores, pairs and weights, each sorted by name, and no time, cost, place or
order of a log. So a training that was killed and gone on with hashes like one that was not. They compare trainings on
one machine; another may round otherwise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from collab.credit.critic import Judgement
from collab.store.digest import trajectory_hash
from collab.types import PreferencePair, Trajectory


def epoch_hash(
    *,
    played: Iterable[Trajectory] = (),
    judged: Iterable[Judgement] = (),
    pairs: Iterable[PreferencePair] = (),
    learned: Mapping[str, str | None] | None = None,
    weights: Mapping[str, str] | None = None,
    measured: Mapping[int, Iterable[Trajectory]] | None = None,
) -> str:
    """SHA-256 of one epoch.

    Args:
        learned: policy → digest of what it learned from.
        weights: policy → digest of what it became.
        measured: held-out seed → its episodes.
    """
    return _sha256(
        [
            sorted(trajectory_hash(one) for one in played),
            sorted(_judgement(one) for one in judged),
            sorted(_pair(one) for one in pairs),
            sorted((learned or {}).items()),
            sorted((weights or {}).items()),
            sorted([seed, sorted(trajectory_hash(one) for one in those)] for seed, those in (measured or {}).items()),
        ]
    )


def run_hash(base: Mapping[str, str], epochs: Mapping[int, str]) -> str:
    """SHA-256 of a training.

    Args:
        base: slot → digest of the weights that it began with.
        epochs: number → its hash.
    """
    return _sha256([sorted(base.items()), sorted(epochs.items())])


def _judgement(judgement: Judgement) -> str:
    scores = [[*one.cell, one.score, one.missing] for one in judgement.rewards.rewards]
    said = [[call.prompt, call.seed, call.reply] for call in judgement.calls]
    return _sha256([*judgement.key, judgement.case, judgement.rewards.critic, scores, said])


def _pair(pair: PreferencePair) -> str:
    sides = [[[one.trajectory, one.step, *one.cell] for one in side] for side in (pair.chosen, pair.rejected)]
    return _sha256([pair.id, pair.source, sides, pair.synthetic, pair.adversary, pair.prompt, pair.critic])


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")).hexdigest()
