"""The engine for models that cannot share prefixes (sliding windows, recurrence, sight): batches padded on the left.

It speaks as `engine.Engine` does. A batch is taken from those who wait and computed to its end with the model's own
attention and cache; rows leave when they are done, nobody comes in between.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from collab.errors import ModelFailure
from collab.models.checkpoint import Checkpoint, out_of_memory
from collab.models.first_pass import first_pass
from collab.models.generation import Answer, Generation, Job
from collab.models.lane import sample

_PAD = 0
"""Padding is masked, so any id will do."""


class PaddedEngine:
    """A checkpoint that computes every prompt by itself. Not for use by several threads at once.

    Args:
        checkpoint: any causal language model, with or without sight.
        width: sequences computed together at most; 1 makes a reply depend on its request alone.
    """

    def __init__(self, checkpoint: Checkpoint, *, width: int) -> None:
        self.checkpoint = checkpoint
        self._width = width
        self._waiting: deque[Generation] = deque()
        self._done: list[Generation] = []
        self.peak_bytes = 0
        """Not known here: the model keeps its own cache."""

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self._done)

    def submit(self, job: Job) -> None:
        """Put a job in line."""
        generation = Generation.of(job, self.checkpoint.chat, self.checkpoint.ends, self.checkpoint.context)
        (self._waiting if generation.result is None else self._done).append(generation)

    @torch.inference_mode()
    def step(self) -> list[tuple[Job, Answer | ModelFailure]]:
        """Answer one batch; returns its jobs with their results."""
        done, self._done = self._done, []
        batch = self._next_batch()
        if batch:
            self.checkpoint.use(batch[0].job.adapter)
            try:
                self._run(batch)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                done += self._smaller(batch)
            else:
                done += batch
        return [(one.job, one.result) for one in done if one.result is not None]

    def forget(self, adapter: str | None) -> bool:
        """Nothing is kept between batches."""
        return True

    def clear(self) -> None:
        """Give up all jobs."""
        self._waiting.clear()
        self._done.clear()

    def _next_batch(self) -> list[Generation]:
        """Waiting generations of one policy, first come, first served."""
        batch: list[Generation] = []
        later: list[Generation] = []
        while self._waiting and len(batch) < self._width:
            generation = self._waiting.popleft()
            if generation.job.abandoned():
                continue
            if batch and generation.job.adapter != batch[0].job.adapter:
                later.append(generation)
                continue
            generation.start()
            batch.append(generation)
        self._waiting.extendleft(reversed(later))
        return batch

    def _smaller(self, batch: list[Generation]) -> list[Generation]:
        """Try half as many at once, with what they have sampled; one that does not fit alone has failed."""
        done = [one for one in batch if one.result is not None]
        rest = [one for one in batch if one.result is None]
        for one in rest:
            if self.checkpoint.image_token in one.tokens:  # in a first pass it would want a picture
                one.restart()
        if len(batch) > 1:
            self._width = len(batch) // 2
            self._waiting.extendleft(reversed(rest))
            return done
        rest[0].too_big(str(self.checkpoint.device))
        return rest

    def _run(self, batch: list[Generation]) -> None:
        """Sample token by token until every generation has its result."""
        ids, mask = self._padded([(*one.job.prompt.ids, *one.tokens) for one in batch])
        positions, inputs = first_pass(self.checkpoint, batch, ids, mask)
        for one in batch:
            one.computed_tokens += len(one.job.prompt) + len(one.tokens)
        cache: Any = None
        while True:
            output = self.checkpoint.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
                **inputs,
            )
            cache, inputs = output.past_key_values, {}  # what is seen stands in the cache from now on
            tokens = sample(batch, output.logits[:, -1].float(), self.checkpoint)
            going = [index for index, one in enumerate(batch) if one.result is None]
            if not going:
                return
            if len(going) < len(batch):
                batch = [batch[index] for index in going]
                chosen = torch.tensor(going, device=ids.device)
                cache.batch_select_indices(chosen)
                tokens, mask, positions = tokens[chosen], mask[chosen], positions[..., chosen, :]
            ids = tokens[:, None]
            mask = torch.cat([mask, mask.new_ones(len(batch), 1)], dim=-1)
            positions = positions[..., -1:] + 1

    def _padded(self, prompts: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Ids and mask, both (rows, longest), padded on the left."""
        longest = max(map(len, prompts))
        ids = [[_PAD] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        device = self.checkpoint.device
        return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
