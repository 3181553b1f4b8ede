"""The engine for models that cannot share prefixes (sliding windows, recurrence, vision): batches padded on the left.

It has the interface of `Engine`. A batch of waiting jobs is computed to its end with the model's own attention and
cache. Rows leave when they are done; none joins in between.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from collab.errors import ConfigError, ModelFailure
from collab.models.checkpoint import Checkpoint, get_tolerance, is_out_of_memory
from collab.models.engine.request_queue import Bound, RequestQueue
from collab.models.engine.sampling import DecodeRequest, Generation, SampledReply, sample
from collab.models.tokenizer import PromptIds, take_first_line
from collab.models.weights import PREFIX_FAMILIES
from collab.types import Sampling


def prepare_first_pass(
    checkpoint: Checkpoint, batch: Sequence[Generation], ids: Tensor, mask: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return positions and extra inputs for a batch's first pass.

    Args:
        checkpoint: the model; extra inputs depend on its family.
        batch: one per row.
        ids: padded on the left, (rows, longest).
        mask: 0 for padding, 1 for tokens, (rows, longest).

    Returns:
        Positions, (rows, longest), or (3, rows, longest) where pictures have positions in a plane; and the picture
        inputs of the forward pass by name. The next token's positions are the last ones plus 1.
    """
    positions = (mask.cumsum(-1) - 1).clamp(min=0)  # (rows, longest); padding takes position 0, which its mask hides
    inputs = _join_pixels(batch, ids.device)
    if checkpoint.family is None:
        return positions, inputs
    # These families attend in both directions within the prompt, which type ids mark.
    if checkpoint.family in PREFIX_FAMILIES:
        said = torch.zeros_like(ids)
        for row, one in zip(said, batch, strict=True):
            row[len(row) - len(one.tokens) :] = 1  # 1 marks the reply, which attends backwards only
        return positions + 1, {**inputs, "token_type_ids": said}  # this family counts from 1
    # M-RoPE: a picture's tokens have positions in time, height and width, (3, rows, longest).
    if inputs:
        positions, _ = checkpoint.model.model.get_rope_index(
            ids,
            mm_token_type_ids=(ids == checkpoint.model.config.image_token_id).int(),
            image_grid_thw=inputs["image_grid_thw"],
            attention_mask=mask,
        )
    return positions, inputs


def _join_pixels(batch: Sequence[Generation], device: torch.device) -> dict[str, Tensor]:
    """Join the pictures of all rows in order; empty without pictures."""
    pictures = [picture for one in batch for picture in one.job.pictures]
    names = pictures[0].inputs if pictures else ()
    return {name: torch.cat([picture.inputs[name] for picture in pictures]).to(device) for name in names}


_PATIENCE = 4
"""Batches that must fit before a larger one is tried."""
_CACHES = ("past_key_values", "cache_params")
"""Names of a model's cache in its inputs and outputs."""
_FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)
"""Errors of forward passes that cannot be called this way."""
_PAD = 0
"""Padding is masked, so any id will do."""


class PaddedEngine:
    """An engine that computes every prompt without sharing. Not thread-safe.

    Args:
        checkpoint: any causal language model, with or without vision.
        width: most sequences per batch, if memory allows; with 1 a reply depends on its request alone.
    """

    def __init__(self, checkpoint: Checkpoint, *, width: int) -> None:
        self.checkpoint = checkpoint
        self._width = Bound(most=width, patience=_PATIENCE)
        self._line = RequestQueue(checkpoint)
        known = inspect.signature(checkpoint.model.forward).parameters
        self._cache = next((name for name in _CACHES if name in known), _CACHES[0])
        self.peak_bytes = 0
        """Unknown here: the model keeps its own cache."""

    @property
    def busy(self) -> bool:
        """Return whether a step would do anything."""
        return bool(self._line)

    def submit(self, job: DecodeRequest) -> None:
        """Queue a job."""
        self._line.submit(job)

    @torch.inference_mode()
    def step(self) -> list[tuple[DecodeRequest, SampledReply | ModelFailure]]:
        """Answer one batch; return its jobs with their results."""
        done = self._line.over()
        batch = self._take_batch()
        if batch:
            self.checkpoint.use(batch[0].job.adapter)
            try:
                self.run(batch)
            except (RuntimeError, MemoryError) as error:
                # Only out-of-memory shrinks a batch; any other error is a fault and propagates.
                if not is_out_of_memory(error):
                    raise
                done += self._retry_smaller(batch)
            else:
                self._width.note_fit(len(batch))
                done += batch
        return [(one.job, one.result) for one in done if one.result is not None]

    def forget(self, adapter: str | None) -> bool:
        """Return True: nothing is kept between batches."""
        return True

    def clear(self) -> None:
        """Drop all jobs."""
        self._line.clear()

    def _take_batch(self) -> list[Generation]:
        """Return waiting generations of one policy, first come, first served."""
        # One adapter computes a batch; jobs of other policies return to the front of the queue.
        batch: list[Generation] = []
        later: list[Generation] = []
        while len(batch) < self._width.size and (generation := self._line.next()) is not None:
            if batch and generation.job.adapter != batch[0].job.adapter:
                later.append(generation)
                continue
            generation.start()
            batch.append(generation)
        self._line.put_back(later)
        return batch

    def _retry_smaller(self, batch: list[Generation]) -> list[Generation]:
        """Halve the batch width and continue; a sequence that does not fit alone fails."""
        # Unfinished rows keep their sampled tokens and are computed again.
        done = [one for one in batch if one.result is not None]
        rest = [one for one in batch if one.result is None]
        for one in rest:
            if self.checkpoint.image_token in one.tokens:  # a first pass would expect a picture for it
                one.restart()
        if self._width.halve(len(batch)):
            self._line.put_back(rest)
            return done
        for one in rest:
            one.fail_for_memory(str(self.checkpoint.device))
        return batch

    def run(self, batch: list[Generation]) -> None:
        """Sample token by token until every generation has its result."""
        # Left padding puts all last tokens into one column, where the next ones are drawn.
        ids, mask = self._pad([(*one.job.prompt.ids, *one.tokens) for one in batch])
        positions, inputs = prepare_first_pass(self.checkpoint, batch, ids, mask)
        for one in batch:
            one.computed_tokens += len(one.job.prompt) + len(one.tokens)
        cache: Any = None
        while True:
            output = self.checkpoint.model(
                input_ids=ids,
                attention_mask=mask if cache is None or self._cache == _CACHES[0] else None,  # a state holds no padding
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
                **{self._cache: cache},
                **inputs,
            )
            cache, inputs = getattr(output, self._cache), {}  # pictures are in the cache from now on
            tokens = sample(batch, output.logits[:, -1].float(), self.checkpoint)  # (rows,)
            going = [index for index, one in enumerate(batch) if one.result is None]
            if not going:
                return
            # Finished rows leave at once and cost no further computing.
            if len(going) < len(batch):
                batch = [batch[index] for index in going]
                chosen = torch.tensor(going, device=ids.device)
                cache.batch_select_indices(chosen)
                tokens, mask, positions = tokens[chosen], mask[chosen], positions[..., chosen, :]
            ids = tokens[:, None]  # (rows, 1)
            mask = torch.cat([mask, mask.new_ones(len(batch), 1)], dim=-1)
            positions = positions[..., -1:] + 1  # of one token: (rows, 1) or (3, rows, 1)

    def _pad(self, prompts: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Return ids and mask, both (rows, longest), padded on the left."""
        longest = max(map(len, prompts))
        ids = [[_PAD] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        device = self.checkpoint.device
        return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def measure_trusted_width(checkpoint: Checkpoint, width: int) -> int:
    """Return how many sequences can be computed together without changing their replies.

    Args:
        checkpoint: any, with its own attention.
        width: the wanted number.

    Returns:
        `width`, or 1 where padding or longer rows would change a reply.

    Raises:
        ConfigError: even a single sequence differs from the model's plain pass.
    """
    # Vision families are tested against transformers' processors; a text-only probe would prove nothing.
    if checkpoint.family is not None:
        return width
    # Full width first: if that passes, the single-row check is not needed.
    if width > 1 and not checkpoint.has_stretched_positions and _find_difference(checkpoint, 2) is None:
        return width
    # A model that differs even alone would be computed in another way than it was trained.
    reason = _find_difference(checkpoint, 1)
    if reason is not None:
        kind = checkpoint.model.config.model_type
        raise ConfigError(f"{checkpoint.chat.path}: models of type {kind} cannot be computed here: {reason}; serve it")
    return 1


@torch.inference_mode()
def _find_difference(checkpoint: Checkpoint, width: int) -> str | None:
    """Return why short replies, computed together, differ from those of a plain pass; None if they do not."""
    size = checkpoint.chat.size
    # Different lengths test both padding and early leaving.
    batch = []
    for number in range(width):
        ids = tuple(index * (size - 1) // 23 for index in range(24 - 11 * number))
        greedy = Sampling(temperature=0.0, max_tokens=3 + number)  # one leaves while another continues
        job = DecodeRequest(prompt=PromptIds(pieces=(ids,)), sampling=greedy, seed=0)
        batch.append(Generation.of(job, checkpoint.chat, frozenset(), checkpoint.context))
    try:
        PaddedEngine(checkpoint, width=width).run(batch)
    except _FAILURES as error:
        return f"its forward pass fails ({type(error).__name__}: {take_first_line(error)[:120]})"
    for one in batch:
        if isinstance(one.result, ModelFailure):  # it computes NaN, and its first real call will report that
            continue
        ids = (*one.job.prompt.ids, *one.tokens)
        # (tokens, vocabulary)
        logits = checkpoint.model(input_ids=torch.tensor([ids], device=checkpoint.device), use_cache=False).logits[0]
        # Greedy replies: the largest log-probability of each place must be the sampled one.
        found = logits.float().log_softmax(-1)[-len(one.tokens) - 1 : -1].max(-1)
        apart = float((found.values - torch.tensor(one.logprobs, device=checkpoint.device)).abs().max())
        if not apart <= get_tolerance(checkpoint.model.dtype):
            return f"its log-probabilities would differ by {apart:.2g}"
    return None
