"""A language model with a head that says numbers instead of words, in memory: the numbers of many endings at once.

What all endings follow is computed once; its keys are copied for each of them. The head is read at an ending's last
token. Rows are filled up on the right, where plain causal attention keeps what follows out of what is read.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from collab.errors import ConfigError
from collab.models.checkpoint import device_of, dtype_of, out_of_memory
from collab.models.weights import load_model


class RewardHead:
    """A checkpoint for sequence classification over a causal model.

    Args:
        path: its directory.
        device: "auto" takes a GPU when there is one.
        dtype: "auto" keeps the checkpoint's on an accelerator and takes float32 on a CPU.
        width: endings computed together at most; halved for good where memory runs out.

    Raises:
        ConfigError: the weights cannot be read, lack the head or are no causal model, or the device does not exist.
    """

    def __init__(self, path: str, *, device: str, dtype: str, width: int) -> None:
        self.device = device_of(device)
        self.model: Any = _load(path, dtype_of(dtype, self.device)).to(self.device)
        self._width = width

    @torch.inference_mode()
    def logits(self, opening: Sequence[int], endings: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """What the head says of each ending, one number per label.

        Args:
            opening: token ids that all endings follow, not empty.
            endings: token ids, none of them empty.

        Raises:
            RuntimeError, MemoryError: not even one ending fits into memory.
        """
        ids = torch.tensor([tuple(opening)], device=self.device)
        keys = self.model.base_model(input_ids=ids, use_cache=True).past_key_values
        found: list[tuple[float, ...]] = []
        while len(found) < len(endings):
            part = endings[len(found) : len(found) + self._width]
            try:
                found += self._behind(keys, len(opening), part)
            except (RuntimeError, MemoryError) as error:
                if self._width == 1 or not out_of_memory(error):
                    raise
                self._width = (self._width + 1) // 2
        return found

    def _behind(self, keys: Any, first: int, endings: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """The numbers of endings whose first token stands in place `first`."""
        rows, lengths = len(endings), torch.tensor([len(ending) for ending in endings], device=self.device)
        own = copy.deepcopy(keys)  # a pass adds its own keys
        own.batch_repeat_interleave(rows)
        every = torch.arange(rows, device=self.device)
        hidden: Tensor = self.model.base_model(
            input_ids=_filled(endings, self.device),
            position_ids=torch.arange(first, first + int(lengths.max()), device=self.device).expand(rows, -1),
            past_key_values=own,
            use_cache=True,
        ).last_hidden_state
        said: list[list[float]] = self.model.score(hidden[every, lengths - 1]).float().tolist()
        return [tuple(row) for row in said]


def _filled(endings: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """(rows, longest), filled up with token 0 behind each ending."""
    longest = max(map(len, endings))
    return torch.tensor([[*ending, *(0,) * (longest - len(ending))] for ending in endings], device=device)


def _load(path: str, dtype: torch.dtype | str) -> Any:
    model = load_model(path, dtype=dtype, head="scores")
    causal = "past_key_values" in inspect.signature(model.base_model.forward).parameters
    if not causal or not hasattr(model, "score"):
        raise ConfigError(
            f"{path}: {type(model).__name__} is no causal model with a score; a reward model is one, "
            "e.g. Qwen2ForSequenceClassification"
        )
    return model
