"""Causal language models with torch: load a checkpoint, answer a batch of prompts.

Batches are padded on the left and share one key-value cache; each row has its own temperature, top-p, seed, length
and stop strings, and leaves the batch when it is done. Jobs arrive with their prompts in pieces, so that a scheduler
can compute a piece that many of them share once; this engine computes every prompt by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from collab.errors import ConfigError, ModelFailure
from collab.models.chat import ChatTokenizer, PromptIds, quiet_transformers
from collab.models.sampling import draw
from collab.types import Sampling

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One prompt to answer."""

    prompt: PromptIds
    sampling: Sampling
    seed: int
    abandoned: Callable[[], bool] = lambda: False
    """Whether nobody waits for the answer any more; asked after every token, from the engine's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was sampled for one job."""

    text: str
    finish: str
    """"stop" or "length"."""
    prompt_tokens: int
    sampled: int
    """How many tokens were sampled, the end of the turn included."""
    tokens: tuple[int, ...]
    """Without the end of the turn, and without what spells a stop string."""
    logprobs: tuple[float, ...]
    behaviour_logprobs: tuple[float, ...]


@dataclass(slots=True)
class _Row:
    """A job while it is being answered."""

    job: Job
    limit: int
    """Tokens that may be sampled."""
    rng: random.Random
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    behaviour: list[float] = field(default_factory=list)
    result: Answer | ModelFailure | None = None


class Engine:
    """One checkpoint in memory. Not for use by several threads at once.

    Args:
        chat: its tokenizer.
        adapter: directory of a PEFT adapter; None for the base weights.
        device: "auto" takes a GPU when there is one.
        dtype: "auto" keeps the checkpoint's on an accelerator and takes float32 on a CPU.

    Raises:
        ConfigError: the weights or the adapter cannot be read, or the device does not exist.
    """

    def __init__(self, chat: ChatTokenizer, *, adapter: str | None, device: str, dtype: str) -> None:
        self.chat = chat
        self.device = _device(device)
        self.dtype = _dtype(dtype, self.device)
        self._model = _load(chat, adapter, self.device, self.dtype)
        config = self._model.config.get_text_config()
        self.context: int = config.max_position_embeddings
        """Longest sequence in tokens."""
        self._pad = 0  # padding is masked, so any id will do
        self._ends = chat.turn_ends.union(_configured_ends(self._model))
        if chat.size > config.vocab_size:
            raise ConfigError(
                f"{chat.path}: the tokenizer has {chat.size} tokens, the model {config.vocab_size}; "
                "the tokenizer belongs to another model"
            )

    @torch.inference_mode()
    def answer(self, jobs: Sequence[Job]) -> list[Answer | ModelFailure]:
        """Answer all jobs in one batch; a failure concerns its own job only.

        Raises:
            ModelFailure: the batch does not fit into memory.
        """
        rows = [self._row(job) for job in jobs]
        try:
            self._run([row for row in rows if row.result is None])
        except torch.OutOfMemoryError:
            raise ModelFailure(
                f"{self.chat.path}: {len(jobs)} prompts of up to {max(len(job.prompt) for job in jobs)} tokens do not "
                f"fit into the memory of {self.device}; lower max_batch or context_tokens"
            ) from None
        return [_result(row) for row in rows]

    # ---------------------------------------------------------------------------------------------------- parts

    def _row(self, job: Job) -> _Row:
        room = self.context - len(job.prompt)
        row = _Row(job, limit=min(job.sampling.max_tokens, room), rng=random.Random(job.seed))
        if room < 1:
            row.result = ModelFailure(
                f"{self.chat.path}: the prompt has {len(job.prompt)} tokens, the model's context is {self.context}; "
                "lower context_tokens in the agents file"
            )
        return row

    def _run(self, rows: list[_Row]) -> None:
        """Sample token by token until every row has its result."""
        if not rows:
            return
        ids, mask = self._padded([row.job.prompt.ids for row in rows])
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache: Any = None
        while True:
            output = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = output.past_key_values
            tokens = self._sample(rows, output.logits[:, -1].float())
            going = [index for index, row in enumerate(rows) if row.result is None]
            if not going:
                return
            if len(going) < len(rows):
                rows = [rows[index] for index in going]
                chosen = torch.tensor(going, device=self.device)
                cache.batch_select_indices(chosen)
                tokens, mask, positions = tokens[chosen], mask[chosen], positions[chosen]
            ids = tokens[:, None]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=-1)
            positions = positions[:, -1:] + 1

    def _sample(self, rows: list[_Row], logits: Tensor) -> Tensor:
        """Draw one token per row and note it; returns the tokens, shape (rows,)."""
        broken = (~logits.isfinite().all(-1)).tolist()
        logits = logits.nan_to_num(0.0)
        drawn = draw(
            logits,
            temperature=torch.tensor([row.job.sampling.temperature for row in rows], device=self.device),
            top_p=torch.tensor([row.job.sampling.top_p for row in rows], dtype=torch.float64, device=self.device),
            uniforms=torch.tensor([row.rng.random() for row in rows], dtype=torch.float64, device=self.device),
        )
        values = zip(drawn.tokens.tolist(), drawn.logprobs.tolist(), drawn.behaviour.tolist(), strict=True)
        for row, bad, (token, logprob, behaviour) in zip(rows, broken, values, strict=True):
            if bad:
                row.result = ModelFailure(
                    f"{self.chat.path}: the model computed NaN or infinite logits after {len(row.tokens)} tokens "
                    f"({self.dtype} on {self.device}); try dtype: float32, or check the weights"
                )
            else:
                self._take(row, token, logprob, behaviour)
        return drawn.tokens

    def _take(self, row: _Row, token: int, logprob: float, behaviour: float) -> None:
        if token in self._ends:
            row.result = self._answer(row, "stop", sampled=len(row.tokens) + 1)
            return
        row.tokens.append(token)
        row.logprobs.append(logprob)
        row.behaviour.append(behaviour)
        if row.job.sampling.stop and self._stopped(row):
            return
        if len(row.tokens) >= row.limit or row.job.abandoned():
            row.result = self._answer(row, "length", sampled=len(row.tokens))

    def _stopped(self, row: _Row) -> bool:
        """End a row whose text contains a stop string.

        The text ends before it; the tokens end with the last one that spells some of that text.
        """
        text = self.chat.decode(row.tokens)
        places = [place for place in (text.find(stop) for stop in row.job.sampling.stop) if place >= 0]
        if not places:
            return False
        cut, sampled = text[: min(places)], len(row.tokens)
        while row.tokens and len(self.chat.decode(row.tokens[:-1])) >= len(cut):
            row.tokens.pop()
        row.result = self._answer(row, "stop", sampled=sampled, text=cut)
        return True

    def _answer(self, row: _Row, finish: str, sampled: int, text: str | None = None) -> Answer:
        kept = len(row.tokens)
        return Answer(
            text=self.chat.decode(row.tokens) if text is None else text,
            finish=finish,
            prompt_tokens=len(row.job.prompt),
            sampled=sampled,
            tokens=tuple(row.tokens),
            logprobs=tuple(row.logprobs[:kept]),
            behaviour_logprobs=tuple(row.behaviour[:kept]),
        )

    def _padded(self, prompts: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Ids and mask, both (rows, longest), padded on the left."""
        longest = max(map(len, prompts))
        ids = [[self._pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)


def _result(row: _Row) -> Answer | ModelFailure:
    assert row.result is not None, "every row ends with a result"
    return row.result


def _load(chat: ChatTokenizer, adapter: str | None, device: torch.device, dtype: torch.dtype | str) -> Any:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(
                chat.path, local_files_only=not chat.download, use_safetensors=True, dtype=dtype
            )
            if adapter is not None:
                from peft import PeftModel

                model = PeftModel.from_pretrained(model, adapter)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        what = chat.path if adapter is None else f"{chat.path} with adapter {adapter}"
        raise ConfigError(f"{what}: the weights cannot be loaded: {lines[0]}") from None
    return model.to(device).eval()


def _configured_ends(model: Any) -> list[int]:
    ends = model.generation_config.eos_token_id if model.generation_config else None
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used: {reason}; allowed: auto, cpu, cuda, cuda:1 …") from None
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype | str:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if name not in _DTYPES:
        raise ConfigError(f"dtype {name!r}: allowed are auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]
