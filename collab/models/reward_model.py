"""A reward model in this process: a Hugging Face directory whose head scores a text.

    model = RewardModel(path="checkpoints/my-critic")
    [first, second] = await model.score(prompt, ["tap Save", "go back"])

It scores conversations in the checkpoint's chat template: the prompt as system and user turn, an ending as the
assistant's reply. The head is read at the token that ends the reply. The endings of one prompt are computed together
and apart from other prompts, so that a score depends on its prompt's endings alone.

The prompt is computed once, and its keys are copied for each ending. Rows are padded on the right, where causal
attention cannot see the padding.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import functools
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from collab.errors import ConfigError, MissingExtra, ModelFailure, boundary
from collab.library import resolve_checkpoint
from collab.models.base import Capabilities, RewardScore
from collab.models.checkpoint import choose_device, choose_dtype, is_out_of_memory
from collab.models.checkpoint_card import hash_weights
from collab.models.local import check_files
from collab.models.tokenizer import open_chat
from collab.models.weights import check_vocabulary, get_text_config, load_model, read_config, read_context_length
from collab.types import PolicyRef, Prompt

LABELS = (1, 2)
"""Allowed numbers of labels."""
_HEAD = "ForSequenceClassification"
ResultT = TypeVar("ResultT")


class RewardModel:
    """A checkpoint for sequence classification with one or two labels, over a causal model.

    Args:
        path: directory with config.json, safetensors weights, tokenizer and chat template; or "built-in:NAME".
        device: "auto" (a GPU when there is one), "cpu", "cuda", "cuda:1" …
        dtype: "auto" (the checkpoint's on a GPU, float32 on a CPU), "float32", "bfloat16", "float16".
        max_batch: most endings computed together.
        date: for chat templates that print the date; None for today. A run records the day on which it began.
        chat_template_kwargs: variables for the chat template.

    Raises:
        ConfigError: the directory is missing or holds no such checkpoint.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self,
        *,
        path: str,
        device: str = "auto",
        dtype: str = "auto",
        max_batch: int = 16,
        date: datetime.date | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if max_batch < 1:
            raise ConfigError(f"reward model: max_batch {max_batch}; allowed: from 1")
        MissingExtra.unless("torch", "transformers", extra="train", purpose="a reward model")
        # Check at construction all that needs no weights.
        self._folder = resolve_checkpoint(path)
        if not Path(self._folder).is_dir():
            raise ConfigError(f"{path}: no such model directory; name the one of a reward model")
        check_files(self._folder)
        config = get_text_config(_check_config(self._folder), path)
        self.context = read_context_length(config)
        """Longest sequence in tokens; `sys.maxsize` where the model sets no limit."""
        self.chat = open_chat(self._folder, date=date, template=chat_template_kwargs)
        check_vocabulary(self.chat, config)
        self.policy = PolicyRef(base=path)
        # Load weights at the first use: plans and checks need none.
        self._place = (device, dtype, max_batch)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reward-model")
        self._head: RewardHead | None = None
        self._closed = False

    async def score(self, prompt: Prompt, endings: Sequence[str]) -> list[RewardScore]:
        """Return the model's score of each ending, in order.

        Raises:
            ModelFailure: it does not fit into memory, or the model was closed.
            ConfigError: the weights cannot be loaded (first call).
        """
        if not endings:
            return []
        opening = self.chat.prompt_ids(prompt).ids
        return await self._run_in_thread(
            functools.partial(self._compute, opening, [self._tokenize(one) for one in endings])
        )

    def length(self, prompt: Prompt, endings: Sequence[str]) -> int:
        """Return the number of tokens of the longest sequence."""
        return len(self.chat.prompt_ids(prompt)) + max((len(self._tokenize(one)) for one in endings), default=0)

    async def probe(self) -> Capabilities:
        """Return what the model supports; loads the weights if needed.

        Raises:
            ConfigError: they cannot be loaded, or lack the head.
        """
        head = await self._run_in_thread(self._load)
        kind = str(head.model.dtype).removeprefix("torch.")
        return Capabilities(
            seed=True,
            counts_tokens=True,
            knows_price=True,  # computed here: 0 USD
            weights=await asyncio.to_thread(lambda: self.weights),
            notes=(f"device {head.device}, {kind}, {head.model.config.num_labels} labels",),
        )

    @functools.cached_property
    def weights(self) -> str:
        """Return the digest of the weights, see `collab.models.checkpoint_card.hash_weights`."""
        return hash_weights(Path(self._folder))

    def count_tokens(self, text: str) -> int:
        """Return the exact length of a text as it stands in a prompt."""
        return len(self.chat.encode(text))

    async def close(self) -> None:
        """Free the memory; waiting calls fail. May be called twice."""
        if not self._closed:
            self._closed = True
            stop = functools.partial(self._thread.shutdown, wait=True, cancel_futures=True)
            await asyncio.get_running_loop().run_in_executor(None, stop)
            self._head = None

    # ---------------------------------------------------------------------------------------------------- parts

    def _tokenize(self, ending: str) -> tuple[int, ...]:
        end = self.chat.turn_end
        return self.chat.encode_reply(ending) + (() if end is None else (end,))

    async def _run_in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        if self._closed:
            raise ModelFailure(f"{self.policy.base}: the model was closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _compute(self, opening: tuple[int, ...], endings: list[tuple[int, ...]]) -> list[RewardScore]:
        """Score endings; runs in the thread."""
        with boundary(ModelFailure, f"reward model {self.policy.base}"):
            head, started = self._load(), time.perf_counter()
            said = head.logits(opening, endings)
        seconds = (time.perf_counter() - started) / len(endings)
        return [
            RewardScore(logits=logits, tokens=len(opening) + len(ending), seconds=seconds)
            for logits, ending in zip(said, endings, strict=True)
        ]

    def _load(self) -> RewardHead:
        """Return the head; loads the weights at the first use. Runs in the thread."""
        if self._head is None:
            device, dtype, width = self._place
            self._head = RewardHead(self._folder, device=device, dtype=dtype, width=width)
        return self._head


def _check_config(folder: str) -> Any:
    """Return the configuration of a reward model's directory; ConfigError for any other model."""
    config = read_config(folder)
    kinds = list(config.architectures or [])
    if not any(kind.endswith(_HEAD) for kind in kinds):
        raise ConfigError(
            f"{folder}: holds {', '.join(kinds) or 'an unnamed architecture'}, which has no score; a reward model is a "
            f"checkpoint for sequence classification, e.g. Qwen2{_HEAD}"
        )
    if config.num_labels not in LABELS:
        raise ConfigError(
            f"{folder}: its head has {config.num_labels} labels; a reward model has 1 (the higher, the better) or "
            "2 (bad, good)"
        )
    return config


class RewardHead:
    """A checkpoint for sequence classification over a causal model.

    Args:
        path: its directory.
        device: "auto" takes a GPU when there is one.
        dtype: "auto" keeps the checkpoint's on an accelerator and takes float32 on a CPU.
        width: most endings computed together; halved for good when memory runs out.

    Raises:
        ConfigError: the weights cannot be read, lack the head or are no causal model, or the device does not exist.
    """

    def __init__(self, path: str, *, device: str, dtype: str, width: int) -> None:
        self.device = choose_device(device)
        self.model: Any = _load(path, choose_dtype(dtype, self.device)).to(self.device)
        self._width = width

    @torch.inference_mode()
    def logits(self, opening: Sequence[int], endings: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Return the head's numbers for each ending, one per label.

        Args:
            opening: token ids before every ending, not empty.
            endings: token ids, none empty.

        Raises:
            RuntimeError, MemoryError: not even one ending fits into memory.
        """
        ids = torch.tensor([tuple(opening)], device=self.device)  # (1, opening)
        # Compute the opening once; each batch of endings gets a copy of its keys.
        keys = self.model.base_model(input_ids=ids, use_cache=True).past_key_values
        found: list[tuple[float, ...]] = []
        while len(found) < len(endings):
            # Smaller for good: the larger batch would not fit the next time either.
            part = endings[len(found) : len(found) + self._width]
            try:
                found += self._select_endings(keys, len(opening), part)
            except (RuntimeError, MemoryError) as error:
                if self._width == 1 or not is_out_of_memory(error):
                    raise
                self._width = (self._width + 1) // 2
        return found

    def _select_endings(self, keys: Any, first: int, endings: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Return the head's numbers for endings whose first token has position `first`."""
        rows, lengths = len(endings), torch.tensor([len(ending) for ending in endings], device=self.device)
        own = copy.deepcopy(keys)  # a pass adds its own keys
        own.batch_repeat_interleave(rows)
        every = torch.arange(rows, device=self.device)
        hidden: Tensor = self.model.base_model(  # (rows, longest, hidden size)
            input_ids=_pad(endings, self.device),  # (rows,)
            position_ids=torch.arange(first, first + int(lengths.max()), device=self.device).expand(rows, -1),
            past_key_values=own,
            use_cache=True,
        ).last_hidden_state
        # Read at each ending's last token, (rows, labels); causal attention cannot see the padding behind it.
        said: list[list[float]] = self.model.score(hidden[every, lengths - 1]).float().tolist()
        return [tuple(row) for row in said]


def _pad(endings: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Return ids (rows, longest), padded with token 0 on the right."""
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
