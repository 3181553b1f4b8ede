"""The engine for models that cannot share prefixes (sliding windows, recurrence, sight): batches padded on the left.

It has the interface of `Engine`. A batch is taken from the waiting jobs and computed to its end with the model's own
attention and cache. Rows leave when they are done; none joins in between.

What the first pass over a padded batch takes beside its ids, by family of checkpoint.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from collab.errors import ConfigError, ModelFailure
from collab.models.checkpoint import Checkpoint, get_tolerance, is_out_of_memory
from collab.models.engine.sampling import DecodeRequest, Generation, SampledReply, sample
from collab.models.engine.scheduler import Bound, RequestQueue
from collab.models.tokenizer import PromptIds, take_first_line
from collab.models.vision import PREFIX_FAMILIES
from collab.types import Sampling


def prepare_first_pass(
    checkpoint: Checkpoint, batch: Sequence[Generation], ids: Tensor, mask: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return positions and further inputs of a batch that is computed for the first time.

    Args:
        checkpoint: that computes it.
        batch: one per row.
        ids: padded on the left, (rows, longest).
        mask: 0 for padding, 1 for tokens, (rows, longest).

    Returns:
        Positions, (rows, longest), or (3, rows, longest) where pictures have positions in a plane; and the inputs of
        the forward pass that say what is seen, by name. The next token's positions are the last ones plus 1.
    """
    positions = (mask.cumsum(-1) - 1).clamp(min=0)  # (rows, longest); padding takes position 0, which its mask hides
    inputs = _join_pixels(batch, ids.device)
    if checkpoint.family is None:
        return positions, inputs
    # These families attend in both directions within the prompt, and learn what the prompt is by type ids.
    if checkpoint.family in PREFIX_FAMILIES:
        said = torch.zeros_like(ids)
        for row, one in zip(said, batch, strict=True):
            row[len(row) - len(one.tokens) :] = 1  # the prompt attends in both directions, a reply only back
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
    """Return the pictures of all rows, joined in order; empty when there is none."""
    pictures = [picture for one in batch for picture in one.job.pictures]
    names = pictures[0].inputs if pictures else ()
    return {name: torch.cat([picture.inputs[name] for picture in pictures]).to(device) for name in names}


_PATIENCE = 4
"""Whole batches that must fit before a larger one is tried again."""
_CACHES = ("past_key_values", "cache_params")
"""Names under which models take and return what they have read so far."""
_FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)
"""What forward passes raise that are not made for how they are called here."""
_PAD = 0
"""Padding is masked, so any id will do."""


class PaddedEngine:
    """A checkpoint that computes every prompt by itself. Not for use by several threads at once.

    Args:
        checkpoint: any causal language model, with or without sight.
        width: sequences computed together at most, where memory allows it; 1 makes a reply depend on its request alone.
    """

    def __init__(self, checkpoint: Checkpoint, *, width: int) -> None:
        self.checkpoint = checkpoint
        self._width = Bound(most=width, patience=_PATIENCE)
        self._line = RequestQueue(checkpoint)
        known = inspect.signature(checkpoint.model.forward).parameters
        self._cache = next((name for name in _CACHES if name in known), _CACHES[0])
        self.peak_bytes = 0
        """Not known here: the model keeps its own cache."""

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._line)

    def submit(self, job: DecodeRequest) -> None:
        """Put a job in line."""
        self._line.submit(job)

    @torch.inference_mode()
    def step(self) -> list[tuple[DecodeRequest, SampledReply | ModelFailure]]:
        """Answer one batch; returns its jobs with their results."""
        done = self._line.over()
        batch = self._take_batch()
        if batch:
            self.checkpoint.use(batch[0].job.adapter)
            try:
                self.run(batch)
            except (RuntimeError, MemoryError) as error:
                # Only memory makes a batch smaller; any other error is a fault, and is shown.
                if not is_out_of_memory(error):
                    raise
                done += self._retry_smaller(batch)
            else:
                self._width.note_fit(len(batch))
                done += batch
        return [(one.job, one.result) for one in done if one.result is not None]

    def forget(self, adapter: str | None) -> bool:
        """Forget nothing: nothing is kept between batches."""
        return True

    def clear(self) -> None:
        """Give up all jobs."""
        self._line.clear()

    def _take_batch(self) -> list[Generation]:
        # A batch is of one policy, for one adapter computes it; jobs of others go back to the front of the line.
        """Return waiting generations of one policy, first come, first served."""
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
        """Try half as many at once, with what they have sampled; one that does not fit alone has failed."""
        # What is done stays done; the rest keeps what it has sampled and is computed again.
        done = [one for one in batch if one.result is not None]
        rest = [one for one in batch if one.result is None]
        for one in rest:
            if self.checkpoint.image_token in one.tokens:  # in a first pass it would want a picture
                one.restart()
        if self._width.halve(len(batch)):
            self._line.put_back(rest)
            return done
        for one in rest:
            one.fail_for_memory(str(self.checkpoint.device))
        return batch

    def run(self, batch: list[Generation]) -> None:
        """Sample token by token until every generation has its result."""
        # Left padding puts all last tokens into one column, from which the next ones are drawn.
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
            cache, inputs = getattr(output, self._cache), {}  # what is seen stands in the cache from now on
            tokens = sample(batch, output.logits[:, -1].float(), self.checkpoint)  # (rows,)
            going = [index for index, one in enumerate(batch) if one.result is None]
            if not going:
                return
            # Rows that are done leave at once: a long reply must not make the others' tokens dearer.
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
    """Return how many sequences can be computed together so that each is answered as it would be alone.

    Args:
        checkpoint: any, in its own attention.
        width: that is wanted.

    Returns:
        `width`, or 1 where padding or longer companions would change what is said.

    Raises:
        ConfigError: not even one sequence is continued as the model does it by itself.
    """
    # Checkpoints that see have been compared with their own processors; text-only probes would say nothing.
    if checkpoint.family is not None:
        return width
    # Width first: most models bear company, and then the single-row check is not needed.
    if width > 1 and not checkpoint.stretches and _find_difference(checkpoint, 2) is None:
        return width
    # Alone is the last resort; a model that differs even there is computed in another way than it was trained.
    reason = _find_difference(checkpoint, 1)
    if reason is not None:
        kind = checkpoint.model.config.model_type
        raise ConfigError(f"{checkpoint.chat.path}: models of type {kind} cannot be computed here: {reason}; serve it")
    return 1


@torch.inference_mode()
def _find_difference(checkpoint: Checkpoint, width: int) -> str | None:
    """Return why short replies, computed together, differ from those of a plain pass; None when they do not."""
    size = checkpoint.chat.size
    # Of different lengths, so that padding and leaving early are both tried.
    batch = []
    for number in range(width):
        ids = tuple(index * (size - 1) // 23 for index in range(24 - 11 * number))
        greedy = Sampling(temperature=0.0, max_tokens=3 + number)  # so that one leaves while another goes on
        job = DecodeRequest(prompt=PromptIds(pieces=(ids,)), sampling=greedy, seed=0)
        batch.append(Generation.of(job, checkpoint.chat, frozenset(), checkpoint.context))
    try:
        PaddedEngine(checkpoint, width=width).run(batch)
    except _FAILURES as error:
        return f"its forward pass fails ({type(error).__name__}: {take_first_line(error)[:120]})"
    for one in batch:
        if isinstance(one.result, ModelFailure):  # it computes NaN, and its first real call will say so
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
