"""A language model in this process: any Hugging Face directory of a causal LM with a chat template.

model = LocalModel(path="checkpoints/qwen2-7b")

Calls that wait at the same time are answered in one batch, in a worker thread of the model's own, so the event loop
never stands still. `determinism: exact` answers each request alone instead: floating-point sums depend on how wide a
batch is and how its prompts are padded, so only then is a reply the same whatever else is asked at the time.

Sampling is temperature and top-p of the request and nothing else; penalties and top-k of a generation config are not
applied, so that the reported log-probabilities are those of the model.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from collab.errors import CollabError, ConfigError, MissingExtra, ModelFailure, boundary
from collab.models.base import Capabilities, Reply, Request
from collab.models.chat import ChatTokenizer, PromptIds
from collab.models.layout import check_layout
from collab.models.meter import Meter
from collab.types import PolicyRef, Prompt

if TYPE_CHECKING:
    from collab.models.engine import Answer, Engine, Job

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""Files of which a tokenizer needs at least one; without them an empty one would be made up."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A request on its way."""

    request: Request
    prompt: PromptIds
    answer: asyncio.Future[Answer]


class LocalModel:
    """A checkpoint answered in batches by torch.

    Args:
        path: directory with config.json, safetensors weights and tokenizer; or a model hub id.
        adapter: directory of a PEFT adapter (safetensors).
        device: "auto" (a GPU when there is one), "cpu", "cuda", "cuda:1" …
        dtype: "auto" (the checkpoint's on a GPU, float32 on a CPU), "float32", "bfloat16", "float16".
        max_batch: requests answered together at most.
        determinism: "fast" answers in batches; "exact" one by one, so that a reply depends on its request alone.
        wait_ms: how long the first waiting request waits for companions.
        download: whether a hub id may be fetched over the network; otherwise it must be in this machine's cache.

    Raises:
        ConfigError: the directory, its weights' format or its chat template does not fit.
        MissingExtra: torch, transformers or (for an adapter) peft is not installed.
    """

    privileged = False

    def __init__(
        self,
        *,
        path: str,
        adapter: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        max_batch: int = 16,
        determinism: Literal["fast", "exact"] = "fast",
        wait_ms: float = 2,
        download: bool = False,
    ) -> None:
        if max_batch < 1 or wait_ms < 0:
            raise ConfigError(f"local: max_batch {max_batch} (allowed: from 1), wait_ms {wait_ms:g} (from 0)")
        for package in ("torch", "transformers") + (("peft",) if adapter is not None else ()):
            if importlib.util.find_spec(package) is None:
                raise MissingExtra.of(package, "train", "a local model")
        path = str(Path(path).expanduser()) if path.startswith("~") else path
        _check_files(path, adapter)
        self.policy = PolicyRef(base=path, adapter=adapter)
        self.meter = Meter()
        self.chat = ChatTokenizer(path, download)
        """Tokenizer and template."""
        self._load = (adapter, device, dtype)
        self._exact = determinism == "exact"
        self._width = 1 if self._exact else max_batch
        self._wait_s = 0.0 if self._exact else wait_ms / 1000
        self._engine: Engine | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-model")
        self._waiting: deque[_Call] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._closed = False

    # ------------------------------------------------------------------------------------------------- the seam

    async def generate(self, request: Request) -> Reply:
        """Answer one prompt, together with whoever else is waiting. May be cancelled at any time.

        Raises:
            ModelFailure: the prompt is longer than the context, the batch does not fit into memory, the model
                computes NaN, or the model was closed.
            ConfigError: the weights cannot be loaded (first call).
        """
        started = time.perf_counter()
        try:
            answer = await self._answer(request)
        except ModelFailure:
            self.meter.failed(latency_s=time.perf_counter() - started)
            raise
        reply = Reply(
            text=answer.text,
            finish=answer.finish,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.sampled,
            tokens=answer.tokens,
            tokenizer=self.chat.fingerprint,
            logprobs=answer.logprobs,
            behaviour_logprobs=answer.behaviour_logprobs,
        )
        self.meter.answered(
            latency_s=time.perf_counter() - started,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )
        return reply

    async def probe(self) -> Capabilities:
        """What it supports; loads the weights when that has not happened yet.

        Raises:
            ConfigError: they cannot be loaded.
        """
        engine = await asyncio.get_running_loop().run_in_executor(self._worker(), self._loaded)
        return Capabilities(
            logprobs=True,
            seed=True,
            token_ids=True,
            adapters=True,
            counts_tokens=True,
            notes=(
                f"device {engine.device}, context {engine.context} tokens",
                "replies depend on the request alone"
                if self._exact
                else "replies may differ in the last bits by batch",
            ),
        )

    def count_tokens(self, text: str) -> int:
        """Exact length of a text as it stands in a prompt."""
        return len(self.chat.encode(text))

    def prompt_ids(self, prompt: Prompt) -> PromptIds:
        """Token ids of a prompt in pieces; prompts that share their first pieces share these ids."""
        return self.chat.prompt_ids(prompt)

    async def close(self) -> None:
        """Stop generating and give back the memory. Waiting calls fail."""
        self._closed = True
        while self._waiting:
            _fail(self._waiting.popleft(), ModelFailure(f"{self.policy.base}: the model was closed"))
        if self._pump is not None:
            self._pump.cancel()  # its calls are cancelled with it, and the engine stops at its next token
        stop = functools.partial(self._thread.shutdown, wait=True, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, stop)
        self._engine = None

    # ---------------------------------------------------------------------------------------------------- parts

    async def _answer(self, request: Request) -> Answer:
        if request.images:
            raise ModelFailure(f"{self.policy.base}: the local model reads text only; use modality: text")
        self._worker()
        loop = asyncio.get_running_loop()
        call = _Call(request, self.prompt_ids(request.prompt), loop.create_future())
        if request.clock is not None:
            request.clock.hold()  # until its batch begins
        self._waiting.append(call)
        if self._pump is None or self._pump.done() or self._pump.get_loop() is not loop:
            self._pump = loop.create_task(self._work())
        return await call.answer

    async def _work(self) -> None:
        """Answer batch after batch until nobody waits."""
        while self._waiting:
            await asyncio.sleep(self._wait_s)
            await self._answer_batch(self._next_batch())

    def _next_batch(self) -> list[_Call]:
        batch: list[_Call] = []
        while self._waiting and len(batch) < self._width:
            call = self._waiting.popleft()
            if not call.answer.done():  # cancelled while it waited
                batch.append(call)
        return batch

    async def _answer_batch(self, batch: list[_Call]) -> None:
        if not batch:
            return
        for call in batch:
            if call.request.clock is not None:
                call.request.clock.go()
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, batch)
        except asyncio.CancelledError:
            for call in batch:
                _fail(call, ModelFailure(f"{self.policy.base}: the model was closed"))
            raise
        except CollabError as error:
            for call in batch:
                _fail(call, error)
            return
        for call, answer in zip(batch, answers, strict=True):
            if isinstance(answer, ModelFailure):
                _fail(call, answer)
            elif not call.answer.done():
                call.answer.set_result(answer)

    def _compute(self, batch: Sequence[_Call]) -> list[Answer | ModelFailure]:
        """Runs in the worker thread."""
        with boundary(ModelFailure, f"local model {self.policy.base}"):
            return self._loaded().answer([_job(call) for call in batch])

    def _loaded(self) -> Engine:
        """The engine; made at the first use, in the worker thread."""
        if self._engine is None:
            from collab.models.engine import Engine

            adapter, device, dtype = self._load
            self._engine = Engine(self.chat, adapter=adapter, device=device, dtype=dtype)
        return self._engine

    def _worker(self) -> ThreadPoolExecutor:
        if self._closed:
            raise ModelFailure(f"{self.policy.base}: the model was closed")
        return self._thread


def _job(call: _Call) -> Job:
    from collab.models.engine import Job

    request = call.request
    return Job(prompt=call.prompt, sampling=request.sampling, seed=request.seed, abandoned=call.answer.done)


def _fail(call: _Call, error: CollabError) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)


def _check_files(path: str, adapter: str | None) -> None:
    """What can be seen to be wrong without loading anything."""
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{path}: no config.json; a Hugging Face model directory has one")
        if not any(folder.glob("*.safetensors")):
            raise ConfigError(f"{path}: no *.safetensors weights; other formats can hold code and are not loaded")
        if not any((folder / name).is_file() for name in _TOKENIZERS):
            raise ConfigError(f"{path}: no tokenizer ({', '.join(_TOKENIZERS)}); copy the one of its base model")
        check_layout(folder)
    elif folder.is_absolute() or path.startswith(".") or path.count("/") > 1 or folder.exists():  # no hub id
        raise ConfigError(f"{path}: no such model directory")
    if adapter is not None and not (Path(adapter) / "adapter_model.safetensors").is_file():
        raise ConfigError(f"{adapter}: no adapter_model.safetensors in it; an adapter is a PEFT directory")
    if adapter is not None:
        check_layout(Path(adapter))
