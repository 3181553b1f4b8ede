"""What is written at the end of a training."""

from __future__ import annotations

import torch
from peft import LoraConfig, get_peft_model

from collab.trainers.run import merge_adapter


class Two(torch.nn.Module):
    """A layer with an adapter, and one without."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(16, 8, bias=False)
        self.rest = torch.nn.Linear(8, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.rest(self.inner(x))
        return found


def test_an_adapter_is_added_in_float32() -> None:
    """To weights in bfloat16, whose last digit is larger than what the adapter says."""
    torch.manual_seed(0)
    model = get_peft_model(Two().bfloat16(), LoraConfig(r=2, lora_alpha=4, target_modules=["inner"]))
    layer = model.base_model.model.inner
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    for weight in (down, up):
        weight.data = 0.01 * torch.randn(weight.shape)
    expected = layer.base_layer.weight.data.float() + 2 * up.data @ down.data
    whole = merge_adapter(model)
    assert {weight.dtype for weight in whole.parameters()} == {torch.float32}
    torch.testing.assert_close(whole.inner.weight.data, expected, rtol=0, atol=1e-7)
    assert not torch.equal(expected.bfloat16().float(), expected)
