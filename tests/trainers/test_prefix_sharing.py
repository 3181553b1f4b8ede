"""Log-probabilities of labels alone: equal to those of whole logits, in value and in gradient, and cheaper."""

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from collab.errors import ConfigError
from collab.trainers.prefix_sharing import score_labels_only, temper

IDS = torch.tensor([[5, 9, 40, 41, 42, 7], [8, 3, 60, 61, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
LABELS = torch.tensor([[-100, -100, 40, 41, 42, 7], [-100, -100, -100, 61, -100, -100]])
OUTPUTS = ("log_probs", "entropy", "mean_logits", "is_top1")


@pytest.fixture
def model(base: Path):
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)


def by_hand(model) -> torch.Tensor:
    """Sum of −log p over the five scored tokens, from whole logits of unpadded rows."""
    total = torch.zeros(())
    for ids, labels, length in zip(IDS, LABELS, (6, 4), strict=True):
        logps = model(input_ids=ids[None, :length]).logits[0].log_softmax(-1)
        for place in range(1, length):
            if labels[place] != -100:
                total = total - logps[place - 1, ids[place]]
    return total


def test_values_and_gradients_are_those_of_whole_logits(model) -> None:
    plain = copy.deepcopy(model)
    expected = by_hand(plain)
    expected.backward()
    add_fused_lm_head(model, outputs=OUTPUTS)
    score_labels_only(model)
    found = model(input_ids=IDS, attention_mask=MASK, labels=LABELS, fused_lm_head=True)
    assert found.label_mask.sum() == 5
    torch.testing.assert_close(-found.log_probs.sum(), expected)
    torch.testing.assert_close(found.loss, expected / 5)
    (-found.log_probs.sum()).backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(
            ours.grad, theirs.grad, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_metrics_are_those_of_trl(model) -> None:
    add_fused_lm_head(model, outputs=OUTPUTS)
    theirs = model(input_ids=IDS, attention_mask=MASK, labels=LABELS, fused_lm_head=True)
    score_labels_only(model)
    ours = model(input_ids=IDS, attention_mask=MASK, labels=LABELS, fused_lm_head=True)
    for name in OUTPUTS:
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-5)


def test_the_output_layer_sees_scored_positions_only(model) -> None:
    add_fused_lm_head(model, outputs=OUTPUTS)
    score_labels_only(model)
    seen: list[torch.Size] = []
    model.lm_head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape))
    model(input_ids=IDS, attention_mask=MASK, labels=LABELS, fused_lm_head=True)
    assert seen == [torch.Size([5, model.config.hidden_size])]


def test_a_batch_without_labels_costs_nothing_and_has_a_gradient(model) -> None:
    add_fused_lm_head(model, outputs=OUTPUTS)
    score_labels_only(model)
    found = model(input_ids=IDS, attention_mask=MASK, labels=torch.full_like(LABELS, -100), fused_lm_head=True)
    assert found.loss == 0
    found.loss.backward()


def test_generation_is_as_before(model) -> None:
    expected = model(input_ids=IDS).logits
    add_fused_lm_head(model, outputs=OUTPUTS)
    score_labels_only(model)
    torch.testing.assert_close(model(input_ids=IDS).logits, expected)


@pytest.mark.parametrize("ours", [True, False])
def test_a_temperature_divides_logits_wherever_they_are_computed(ours: bool, model) -> None:
    expected = (model(input_ids=IDS).logits / 1.5).log_softmax(-1)
    temper(model, 1.5)
    torch.testing.assert_close(model(input_ids=IDS).logits.log_softmax(-1), expected)
    add_fused_lm_head(model, outputs=OUTPUTS)
    if ours:
        score_labels_only(model)
    found = model(input_ids=IDS, attention_mask=MASK, labels=LABELS, fused_lm_head=True)
    wanted = expected[:, :-1].gather(-1, IDS[:, 1:, None])[..., 0]
    torch.testing.assert_close(found.log_probs, wanted * found.label_mask, atol=1e-5, rtol=1e-5)


def test_a_later_temperature_takes_the_place_of_the_first(model) -> None:
    logits = model(input_ids=IDS).logits
    for temperature in (1.5, 0.5, 1.0):
        temper(model, temperature)
        torch.testing.assert_close(model(input_ids=IDS).logits, logits / temperature)
    other = copy.deepcopy(model)
    temper(other, 2.0)
    torch.testing.assert_close(model(input_ids=IDS).logits, logits)
    torch.testing.assert_close(other(input_ids=IDS).logits, logits / 2)


def test_logits_that_are_more_than_a_product_have_no_temperature(model) -> None:
    model.config.final_logit_softcapping = 30.0
    temper(model, 1.0)
    with pytest.raises(ConfigError, match=r"temperature 1\.5: the logits of Qwen2ForCausalLM are more than a product"):
        temper(model, 1.5)
