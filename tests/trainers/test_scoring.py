"""Scores of replies as RL asks for them: entropy with a gradient on every path, and one temperature per batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from collab.errors import ConfigError
from collab.trainers import prefix_sharing
from collab.trainers.prefix_sharing import pack_batch, score_labels_only, score_replies, share

PROMPT = list(range(5, 25))
ROWS = [([*PROMPT, 30], [40, 41, 42]), ([*PROMPT, 30], [40, 43]), (PROMPT, [7, 8, 9, 10])]
BATCH = {name: torch.zeros(3, 24, dtype=torch.long) for name in ("input_ids", "attention_mask", "completion_mask")}
for row, (prompt, reply) in enumerate(ROWS):
    stop = len(prompt) + len(reply)
    BATCH["input_ids"][row, :stop] = torch.tensor([*prompt, *reply])
    BATCH["attention_mask"][row, :stop] = 1
    BATCH["completion_mask"][row, len(prompt) : stop] = 1


def load(base: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.model.layers.parameters():
            weight *= 8 if weight.dim() == 2 else 1  # a fresh model hardly looks at what stands before
    return model


def scorer(base: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]]:
    """A model that scores in one of the ways, and the batch as that way reads it."""
    model = load(base)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    if path == "whole logits":
        return model, BATCH
    if path == "labels only":
        score_labels_only(model)
        return model, BATCH
    if path == "packed in pieces":
        monkeypatch.setattr(prefix_sharing, "_LOGITS_AT_ONCE", 2 * len(model.get_input_embeddings().weight))
    share(model)
    return model, {**BATCH, "packed": pack_batch(BATCH, shortest=1)}


def by_hand(model: Any, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of log-probability and of entropy over the nine scored tokens, every row alone and unpadded."""
    logp, entropy = torch.zeros(()), torch.zeros(())
    for prompt, reply in ROWS:
        ids = torch.tensor([[*prompt, *reply]])
        logps = (model(input_ids=ids).logits[0, len(prompt) - 1 : -1] / temperature).log_softmax(-1)
        logp = logp + logps.gather(-1, ids[0, len(prompt) :, None]).sum()
        entropy = entropy - (logps.exp() * logps).sum()
    return logp, entropy


def gradients(model: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def score(model: Any, batch: dict[str, Any], path: str) -> Any:
    """Ask for entropy with a gradient; TRL's own pass, of whole logits, always has one."""
    if path != "whole logits":
        return score_replies(model, batch, entropy=True)
    labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, -100)
    return model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels, fused_lm_head=True
    )


PATHS = ["whole logits", "labels only", "packed", "packed in pieces"]


@pytest.mark.parametrize("path", PATHS)
def test_an_entropy_term_changes_the_weights(path: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load(base)
    _, expected = by_hand(plain)
    wanted = gradients(plain, -expected)
    model, batch = scorer(base, path, monkeypatch)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    found = score(model, batch, path).entropy
    assert found.shape == (3, 23)
    torch.testing.assert_close(found.sum(), expected, rtol=1e-5, atol=1e-5)
    ours = gradients(model, -found.sum())
    assert ours.keys() == wanted.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-3, atol=1e-5)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    changed = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert set(changed) == set(before)


@pytest.mark.parametrize("path", PATHS[1:])
def test_entropy_is_a_metric_unless_it_is_asked_for(path: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = scorer(base, path, monkeypatch)
    scored = score_replies(model, batch)
    assert scored.log_probs.requires_grad
    assert not scored.entropy.requires_grad
    with torch.no_grad():
        assert not score_replies(model, batch, entropy=True).entropy.requires_grad


@pytest.mark.parametrize("path", PATHS[1:])
def test_each_batch_has_its_own_temperature(path: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load(base)
    model, batch = scorer(base, path, monkeypatch)
    for temperature in (0.5, 1.5, 1.0, 0.5):
        scored = score_replies(model, {**batch, "temperature": torch.full((3,), temperature)})
        logp, entropy = by_hand(plain, temperature)
        torch.testing.assert_close(scored.log_probs.sum(), logp, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(scored.entropy.sum(), entropy, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("temperatures", "words"),
    [
        ([0.5, 1.0, 0.5], r"sampled at temperatures 0\.5, 1: one is needed"),
        ([], "sampled at temperatures none: one is needed"),
        ([0.0, 0.0, 0.0], "temperature 0: greedy replies have no log-probabilities"),
    ],
)
def test_mixed_and_greedy_batches_are_refused(temperatures: list[float], words: str) -> None:
    computed: Callable[..., Any] = lambda **_: pytest.fail("a refused batch is not computed")  # noqa: E731
    with pytest.raises(ConfigError, match=words):
        score_replies(computed, {**BATCH, "temperature": torch.tensor(temperatures)})
