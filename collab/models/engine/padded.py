"""The engine for models that cannot share prefixes (sliding windows, recurrence, vision): batches padded on the left.

It has the interface of `Engine`. A batch of waiting jobs is computed to its end with the model's own attention and
cache. Rows leave when they are done; none joins in between.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from collab.errors import ConfigError, ModelFailure
from collab.models.checkpoint import Checkpoint, get_tolerance, is_out_of_memory
from collab.models.engine.request_queue import Bound, RequestQueue
from collab.models.engine.sampling import DecodeRequest, Generation, SampledReply, sample
from collab.models.tokenizer import PromptIds, take_first_line
from collab.models.vision import PICTURE_TOKENS, Picture
from collab.models.weights import PREFIX_FAMILIES
from collab.types import Sampling


class PictureFeatures:
    """The vision tower's outputs, computed once per picture and adapter.

    All cells of a step have the same picture, and so have its later rounds. Pictures are computed one by one: memory is
    that of the largest, and an output does not depend on the pictures beside it.

    Args:
        checkpoint: the model.
        most: tokens of pictures whose outputs are kept; those of the present batch always are.
    """

    def __init__(self, checkpoint: Checkpoint, most: int) -> None:
        self._checkpoint, self._most = checkpoint, most
        self._kept: dict[tuple[str | None, Picture], Any] = {}
        """Adapter and picture → output; the last used one is last."""

    def join(self, adapter: str | None, pictures: Sequence[Picture]) -> Any:
        """Return the tower's output for these pictures in order, as the forward pass takes it."""
        outputs = [self._encode(adapter, picture) for picture in pictures]
        wanted = {(adapter, picture) for picture in pictures}
        held = sum(picture.tokens for _, picture in self._kept)
        for key in [key for key in self._kept if key not in wanted]:
            if held <= self._most:
                break
            held -= key[1].tokens
            del self._kept[key]
        pooled = [part for output in outputs for part in output.pooler_output]  # each (tokens, width)
        if self._checkpoint.family in PREFIX_FAMILIES:  # whose pictures have one size
            return SimpleNamespace(pooler_output=torch.stack(pooled))
        # Qwen3-VL adds features of inner layers to its first layers.
        deep = zip(*(getattr(output, "deepstack_features", ()) for output in outputs), strict=True)
        layers = [[part for parts in layer for part in parts] for layer in deep]
        return SimpleNamespace(pooler_output=pooled, deepstack_features=layers)

    def forget(self, adapter: str | None) -> None:
        """Drop the outputs of an adapter that is no longer used."""
        self._kept = {key: output for key, output in self._kept.items() if key[0] != adapter}

    def clear(self) -> None:
        """Drop all outputs, as memory ran out."""
        self._kept.clear()

    def _encode(self, adapter: str | None, picture: Picture) -> Any:
        output = self._kept.pop((adapter, picture), None)
        if output is None:
            inputs = {name: value.to(self._checkpoint.device) for name, value in picture.inputs.items()}
            found = self._checkpoint.model.get_image_features(**inputs, return_dict=True)
            kept = {name: found[name] for name in ("pooler_output", "deepstack_features") if name in found}
            output = SimpleNamespace(**kept)
        self._kept[adapter, picture] = output
        return output


def prepare_first_pass(
    checkpoint: Checkpoint, features: PictureFeatures, batch: Sequence[Generation], ids: Tensor, mask: Tensor
) -> tuple[Tensor, dict[str, Any]]:
    """Return positions and extra inputs for a batch's first pass.

    Args:
        checkpoint: the model; extra inputs depend on its family.
        features: outputs of its vision tower.
        batch: one per row, all with one adapter.
        ids: padded on the left, (rows, longest).
        mask: 0 for padding, 1 for tokens, (rows, longest).

    Returns:
        Positions, (rows, longest), or (3, rows, longest) where pictures have positions in a plane; and the picture
        inputs of the forward pass by name. The next token's positions are the last ones plus 1.
    """
    positions = (mask.cumsum(-1) - 1).clamp(min=0)  # (rows, longest); padding takes position 0, which its mask hides
    if checkpoint.family is None:
        return positions, {}
    pictures = [picture for one in batch for picture in one.job.pictures]
    inputs = {"mm_encoder_outputs": {"image": features.join(batch[0].job.adapter, pictures)}} if pictures else {}
    # These families attend in both directions within the prompt, which type ids mark.
    if checkpoint.family in PREFIX_FAMILIES:
        said = torch.zeros_like(ids)
        for row, one in zip(said, batch, strict=True):
            row[len(row) - len(one.tokens) :] = 1  # 1 marks the reply, which attends backwards only
        return positions + 1, {**inputs, "token_type_ids": said}  # this family counts from 1
    # M-RoPE: a picture's tokens have positions in time, height and width, (3, rows, longest).
    if pictures:
        positions, _ = checkpoint.model.model.get_rope_index(
            ids,
            mm_token_type_ids=(ids == checkpoint.model.config.image_token_id).int(),
            image_grid_thw=torch.cat([picture.inputs["image_grid_thw"] for picture in pictures]),
            attention_mask=mask,
        )
    return positions, inputs


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
        picture_tokens: most tokens of different pictures per batch.
    """

    def __init__(self, checkpoint: Checkpoint, *, width: int, picture_tokens: int = PICTURE_TOKENS) -> None:
        self.checkpoint = checkpoint
        self._width = Bound(most=width, patience=_PATIENCE)
        self._line = RequestQueue(checkpoint)
        self._picture_tokens = picture_tokens
        self._features = PictureFeatures(checkpoint, picture_tokens)
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
        """Drop what is kept of this adapter; True, as that is always possible."""
        self._features.forget(adapter)
        return True

    def clear(self) -> None:
        """Drop all jobs."""
        self._line.clear()

    def _take_batch(self) -> list[Generation]:
        """Return waiting generations of one policy, first come, first served."""
        # One adapter computes a batch; jobs of other policies return to the front of the queue.
        batch: list[Generation] = []
        later: list[Generation] = []
        pictures: set[Picture] = set()
        while len(batch) < self._width.size and (generation := self._line.next()) is not None:
            seen = pictures.union(generation.job.pictures)
            is_dear = sum(picture.tokens for picture in seen) > self._picture_tokens
            if batch and (generation.job.adapter != batch[0].job.adapter or is_dear):
                later.append(generation)
                continue
            pictures = seen
            generation.start()
            batch.append(generation)
        self._line.put_back(later)
        return batch

    def _retry_smaller(self, batch: list[Generation]) -> list[Generation]:
        """Halve the batch width and continue; a sequence that does not fit alone fails."""
        # Unfinished rows keep their sampled tokens and are computed again.
        done = [one for one in batch if one.result is not None]
        rest = [one for one in batch if one.result is None]
        self._features.clear()
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
        positions, inputs = prepare_first_pass(self.checkpoint, self._features, batch, ids, mask)
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
                cache.reorder_cache(chosen)  # selects rows of keys and of recurrent states alike
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
        found = logits.float().log_softmax(-1)[-len(one.tokens) - 1 : -1]
        apart = float((found.amax(-1) - torch.tensor(one.logprobs, device=checkpoint.device)).abs().max())
        if not apart <= get_tolerance(checkpoint.model.dtype, found):
            return f"its log-probabilities would differ by {apart:.2g}"
    return None
