"""Metrics over pairs alone: which rows count, their means, and the alarm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from collab.data.tokenize import EncodedPair, collate_pairs
from collab.trainers.batching import BatchStep
from collab.trainers.callbacks import PairMeans, Watcher, anchor_sums, find_differing, pair_sums
from collab.trainers.run_dir import FinetuneDir

BETA = 0.1
PADDING = 9


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def pair(chosen: Sequence[int], rejected: Sequence[int], prompt: Sequence[int] = (1, 2)) -> EncodedPair:
    return EncodedPair(prompt=ids(*prompt), chosen=ids(*chosen), rejected=ids(*rejected), group="preference")


def test_rows_differ_where_their_replies_do() -> None:
    """Also where one reply is the other and what rows are filled up with."""
    rows = [pair([3, 4], [3, 4]), pair([3, 4], [3, 5]), pair([3], [3, PADDING]), pair([3], [3], prompt=[1] * 7)]
    batch = collate_pairs(rows, PADDING)([{"row": place} for place in range(len(rows))])
    assert find_differing(batch).tolist() == [False, True, True, False]


def test_sums_are_of_pairs() -> None:
    """Of three rows the first and the last, by hand; a row that is no pair may be no number."""
    policy = torch.tensor([-1.0, float("nan"), -3.0, -5.0, float("nan"), -4.0])
    reference = torch.tensor([-2.0, -1.0, -1.0, -4.0, -1.0, -1.0])
    found = pair_sums(policy, reference, torch.tensor([True, False, True]), beta=0.5)
    # rewards of chosen replies 0.5 and -1, of rejected ones -0.5 and -1.5
    assert found.tolist() == pytest.approx([-4.0, -9.0, -0.5, -2.0, 1.5, 2.0, 2.0])


def test_sums_are_of_anchor_rows() -> None:
    """Of three rows the first and the last, by hand, each by its first side; a pair's may be no number."""
    policy = torch.tensor([-1.0, float("nan"), -3.0, -1.0, float("nan"), -3.0])
    reference = torch.tensor([-2.5, -1.0, -1.0, -2.5, -1.0, -1.0])
    assert anchor_sums(policy, reference, torch.tensor([True, False, True])).tolist() == pytest.approx([-4, -0.5, 2])


class Said(torch.nn.Module):
    """A model that says what it was told to: log p of each row, chosen ones first."""

    def __init__(self, logps: Sequence[float]) -> None:
        super().__init__()
        self.logps = torch.tensor(logps)

    def forward(self) -> SimpleNamespace:
        return SimpleNamespace(log_probs=torch.stack([self.logps / 2, self.logps / 2], 1))


class Theirs:
    """What a trainer has that `PairMeans` is mixed into."""

    beta = BETA

    def __init__(self, policy: Said, reference: Said | None, watcher: Watcher) -> None:
        self.model, self.ref_model, self.watcher = policy, reference, watcher
        self.accelerator = SimpleNamespace(reduce=lambda values, how: values)
        self._metrics: dict[str, Any] = {"train": defaultdict(list)}

    def compute_loss(self, model: Said, inputs: Any) -> Tensor:
        model()
        (self.ref_model or self.model)()
        return torch.tensor(0.7)

    def log(self, logs: dict[str, float]) -> None:
        means = {name: sum(values) / len(values) for name, values in self._metrics["train"].items()}
        self._metrics["train"].clear()
        self.watcher.on_log(None, SimpleNamespace(global_step=1), None, logs={**logs, **means})


class Trainer(PairMeans, Theirs):
    """One whose numbers are known."""


def test_one_displaced_pair_among_nine_held_replies_sounds_the_alarm(tmp_path: Path) -> None:
    """Its chosen reply lost 5 nats and its rejected one 15; over all ten rows that were half a nat."""
    told: list[Any] = []
    folder = FinetuneDir(tmp_path / "run")
    folder.begin({})
    step = BatchStep(group="preference", parts=(tuple(range(10)),))
    watcher = Watcher(
        folder,
        [step],
        [100],
        [1],
        watch=told.append,
        stopping=lambda: False,
        writes=True,
        gather=lambda said: said,
        beta=BETA,
    )
    held = [-2.0] * 9
    policy, reference = Said([-8.0, *held, -19.0, *held]), Said([-3.0, *held, -4.0, *held])
    trainer = Trainer(policy, reference, watcher)
    batch = collate_pairs([pair([3], [4]), *[pair([3], [3])] * 9], PADDING)([{"row": place} for place in range(10)])
    assert trainer.compute_loss(policy, batch).item() == pytest.approx(0.7)
    trainer.log({"loss": 0.7})
    (line,) = folder.read_metrics()
    assert line["logp_chosen"] == pytest.approx(-8.0)
    assert line["reward_chosen"] == pytest.approx(-5.0 * BETA)
    assert (line["margin"], line["preference_accuracy"], line["compared"]) == (pytest.approx(10 * BETA), 1.0, 1)
    assert (line["logp_anchored"], line["anchored_gain"], line["anchored"]) == (pytest.approx(-2.0), 0.0, 9)
    assert line["alarm"].startswith("chosen replies are 5.0 nats less likely than under the reference")
    assert told[0].alarm == line["alarm"]


def test_a_policy_that_is_its_own_reference_with_another_adapter_is_heard_twice() -> None:
    """And nothing is told of pairs by a step without one, nor anything while nothing is trained."""
    policy = Said([-1.0, -1.0])
    lines: list[dict[str, float]] = []
    watcher: Any = SimpleNamespace(on_log=lambda *_, logs: lines.append(logs))
    trainer = Trainer(policy, None, watcher)
    differ, same = (collate_pairs([one], PADDING)([{"row": 0}]) for one in (pair([3], [4]), pair([3], [3])))
    trainer.compute_loss(policy, differ)
    trainer.compute_loss(policy, same)
    trainer.log({})
    assert lines.pop()["pairs/logps/chosen"] == -1.0
    trainer = Trainer(policy, None, watcher)
    trainer.compute_loss(policy, same)
    trainer.log({})
    policy.eval()
    trainer.compute_loss(policy, differ)
    trainer.log({})
    assert lines == [{"anchors/logps": -1.0, "anchors/gains": 0.0}, {}]
    assert not policy._forward_hooks
