"""A language model in this process: any Hugging Face directory of a causal LM with a chat template, some with vision.

    model = LocalModel(path="checkpoints/qwen2-7b")

A worker thread computes the calls of all episodes in one stream of packed passes (see `engine`), so the event loop
never blocks. A common beginning of prompts is computed once. `determinism: exact` makes a reply a function of its
request alone, bit for bit, but computes one sequence at a time.

Sampling uses only the request's temperature and top-p. Penalties and top-k of a generation config are ignored, so that
the reported log-probabilities are those of the model.

Models that differ only in their adapter share one worker, and with it weights, passes and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from collab.errors import CollabError, ConfigError, MissingExtra, ModelFailure, boundary
from collab.library import resolve_checkpoint
from collab.models.base import Capabilities, Meter, Reply, Request
from collab.models.checkpoint_card import check_layout, check_over, hash_played_weights
from collab.models.engine.sampling import DecodeRequest, SampledReply
from collab.models.tokenizer import OWN_PATH, ChatTokenizer, PromptIds, open_chat
from collab.models.vision import PICTURE_TOKENS, Picture, PictureReader
from collab.types import PolicyRef, Prompt
from collab.utils.concurrency import note_doing

if TYPE_CHECKING:
    from collab.models.checkpoint import Checkpoint
    from collab.models.engine.padded import PaddedEngine
    from collab.models.engine.scheduler import Engine


class Worker:
    """The computing thread, which takes jobs and returns answers."""

    def __init__(
        self,
        chat: ChatTokenizer,
        *,
        device: str,
        dtype: str,
        exact: bool,
        width: int,
        prefill: int,
        cache_bytes: int,
        picture_tokens: int,
    ) -> None:
        self.chat = chat
        self.picture_tokens = picture_tokens
        self.sight = PictureReader(chat)
        self.adapters: dict[str, str] = {}
        """Name → directory."""
        self._users: Counter[str | None] = Counter()
        """Adapter → number of models that use it."""
        self._retired: list[str] = []
        """Adapters in memory that no model uses any more."""
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-model")
        self._place = (device, dtype)
        self._exact, self._width, self._prefill, self._cache_bytes = exact, width, prefill, cache_bytes
        self._looking: dict[tuple[asyncio.AbstractEventLoop, tuple[bytes, ...]], asyncio.Task[tuple[Picture, ...]]] = {}
        """Pictures being read now."""
        self._inbox: deque[DecodeRequest] = deque()
        self._futures: dict[DecodeRequest, asyncio.Future[SampledReply]] = {}
        self.engine: Engine | PaddedEngine | None = None
        self._note = ""
        self._turn: asyncio.Task[None] | None = None
        self._stopping = False

    async def look(self, images: tuple[bytes, ...]) -> tuple[Picture, ...]:
        """Read pictures outside the event loop; concurrent calls with the same pictures share the result.

        Raises:
            ModelFailure: the checkpoint takes no pictures, or one of them cannot be read.
            ConfigError: its image processor cannot be loaded.
        """
        key = (asyncio.get_running_loop(), images)
        if key not in self._looking:
            task = asyncio.create_task(asyncio.to_thread(self.sight.read, images))
            task.add_done_callback(lambda _: self._looking.pop(key, None))
            self._looking[key] = task
        return await asyncio.shield(self._looking[key])  # a cancelled caller must not stop the others

    def submit(self, job: DecodeRequest, future: asyncio.Future[SampledReply]) -> None:
        """Queue a job; its future gets the answer."""
        self._futures[job] = future
        future.add_done_callback(lambda _: self._futures.pop(job, None))
        self._inbox.append(job)
        loop = future.get_loop()
        if self._turn is None or self._turn.done() or self._turn.get_loop() is not loop:
            self._turn = loop.create_task(self._run_thread())

    def join(self, adapter: str | None, directory: str | None) -> None:
        """Register a model that uses this adapter; None for the base weights."""
        self._users[adapter] += 1
        if adapter is not None and directory is not None:
            self.adapters[adapter] = directory

    async def leave(self, adapter: str | None) -> None:
        """Unregister a model.

        The last model with an adapter fails its waiting jobs and frees its memory. The last model of all stops the
        thread.
        """
        self._users[adapter] -= 1
        if not self._users[adapter]:
            closed = ModelFailure(f"{self.chat.path}: the model was closed")
            for job in [job for job in list(self._futures) if job.adapter == adapter]:
                self._settle(job, closed)
            # The worker's thread unloads it later, as it may still compute with it.
            if adapter is not None:
                self._retired.append(adapter)
        if self._users.total():
            return
        self._stopping = True
        # In another thread: waiting for a pass must not stop the event loop.
        stop = functools.partial(self.thread.shutdown, wait=True, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, stop)
        self.engine = None

    @property
    def sees(self) -> bool:
        """Return whether the checkpoint takes pictures; False until the weights are loaded."""
        return self.engine is not None and self.engine.checkpoint.family is not None

    def describe(self, adapter: str | None) -> tuple[str, ...]:
        """Return notes on the model; runs in the thread and loads weights and adapter if needed."""
        checkpoint = self._load_engine().checkpoint
        if adapter is not None:
            checkpoint.add_adapter(adapter, self.adapters[adapter])
        context = "of any length" if checkpoint.context == sys.maxsize else f"{checkpoint.context} tokens"
        return (
            f"device {checkpoint.device}, {str(checkpoint.model.dtype).removeprefix('torch.')}, context {context}",
            "replies depend on the request alone" if self._exact else "replies may differ in the last bits by batch",
            self._note or "prompts share what they begin with",
            *((self.chat.doubt,) if self.chat.doubt else ()),
        )

    async def _run_thread(self) -> None:
        """Run the thread until no job is left."""
        loop = asyncio.get_running_loop()
        while self._inbox and not self._stopping:
            await asyncio.sleep(0)  # collect jobs submitted at the same moment
            await loop.run_in_executor(self.thread, self._compute)

    def _compute(self) -> None:
        """Compute passes until all jobs are done; runs in the thread."""
        try:
            with boundary(ModelFailure, f"local model {self.chat.path}"):
                engine = self._load_engine()
                while (self._inbox or engine.busy) and not self._stopping:
                    while self._inbox:
                        self._submit(engine, self._inbox.popleft())
                    for job, answer in engine.step():
                        self._settle(job, answer)
                    if self._retired:
                        self._free_adapters(engine)
        except CollabError as error:  # of the weights or the machine, so every job fails
            if self.engine is not None:
                self.engine.clear()
            self._fail_all(error)

    def _free_adapters(self, engine: Engine | PaddedEngine) -> None:
        """Drop unused adapters; one that is used again meanwhile stays."""
        for name in list(self._retired):
            if self._users[name]:
                self._retired.remove(name)
            elif engine.forget(name):
                self._retired.remove(name)
                engine.checkpoint.drop_adapter(name)

    def _submit(self, engine: Engine | PaddedEngine, job: DecodeRequest) -> None:
        try:
            if job.adapter is not None:
                engine.checkpoint.add_adapter(job.adapter, self.adapters[job.adapter])
            engine.submit(job)
        except ConfigError as error:
            self._settle(job, error)

    def _settle(self, job: DecodeRequest, answer: SampledReply | CollabError) -> None:
        """Pass an answer to the event loop that waits for it, from any thread."""
        future = self._futures.pop(job, None)
        if future is not None:
            post_to_loop(future.get_loop(), functools.partial(_resolve, future, answer))

    def _fail_all(self, error: CollabError) -> None:
        self._inbox.clear()
        for job in list(self._futures):
            self._settle(job, error)

    def _load_engine(self) -> Engine | PaddedEngine:
        """Return the engine; built at the first use, in the thread."""
        if self.engine is None:
            with note_doing("loading torch"):
                from collab.models.checkpoint import Checkpoint

            device, dtype = self._place
            with note_doing(f"loading {self.chat.path}"):
                self.engine = self._make_engine(Checkpoint(self.chat, device=device, dtype=dtype))
        return self.engine

    def _make_engine(self, checkpoint: Checkpoint) -> Engine | PaddedEngine:
        from collab.models.engine.padded import PaddedEngine, measure_trusted_width
        from collab.models.engine.scheduler import Engine

        reason = checkpoint.share_prefixes()
        if reason is not None:
            self._note = f"every prompt is computed by itself: {reason}"
            width = measure_trusted_width(checkpoint, 1 if self._exact else self._width)
            return PaddedEngine(checkpoint, width=width, picture_tokens=self.picture_tokens)
        return Engine(
            checkpoint, exact=self._exact, width=self._width, prefill=self._prefill, cache_bytes=self._cache_bytes
        )


def post_to_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Run a callback in a loop; do nothing if the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


def _resolve(future: asyncio.Future[SampledReply], answer: SampledReply | CollabError) -> None:
    if future.done():  # cancelled meanwhile
        return
    if isinstance(answer, CollabError):
        future.set_exception(answer)
    else:
        future.set_result(answer)


_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
"""A tokenizer needs at least one of these files; otherwise transformers would build an empty one."""
_POINTER, _LONGEST_POINTER = b"version https://git-lfs.github.com/", 1024
"""First bytes of a Git LFS pointer, and its largest size in bytes."""
_BILL = 0.0
"""USD per reply of a local model."""


class LocalModel:
    """A checkpoint computed by torch.

    Args:
        path: directory with config.json, safetensors weights and tokenizer; "built-in:NAME"; or a model hub id.
        adapter: directory of a LoRA adapter (PEFT, safetensors).
        version: of the policy; a new one starts with an empty cache even if the adapter's directory is the same.
        device: "auto" (a GPU when there is one), "cpu", "cuda", "cuda:1" …
        dtype: "auto" (the checkpoint's on a GPU, float32 on a CPU), "float32", "bfloat16", "float16".
        max_batch: most sequences computed together.
        prefill_tokens: most prompt tokens computed in one pass.
        cache_mb: memory for computed prompt pieces, in megabytes.
        picture_tokens: most tokens of pictures in one prompt, and of different pictures computed together.
        determinism: "fast" computes waiting sequences together; "exact" one at a time.
        download: whether a hub id may be fetched over the network; otherwise it must be in this machine's cache.
        date: for chat templates that print the date; None for today. A run records the day on which it began.
        chat_template_kwargs: variables for the chat template, e.g. {enable_thinking: false}.

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
        version: int = 0,
        device: str = "auto",
        dtype: str = "auto",
        max_batch: int = 64,
        prefill_tokens: int = 4096,
        cache_mb: int = 2048,
        picture_tokens: int = PICTURE_TOKENS,
        determinism: Literal["fast", "exact"] = "fast",
        download: bool = False,
        date: datetime.date | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        # Refused before the weights are looked at.
        if max_batch < 1 or prefill_tokens < 256 or cache_mb < 0 or picture_tokens < 1:
            raise ConfigError(
                f"local: max_batch {max_batch} (allowed: from 1), prefill_tokens {prefill_tokens} (from 256), "
                f"cache_mb {cache_mb} (from 0), picture_tokens {picture_tokens} (from 1)"
            )
        MissingExtra.unless("torch", "transformers", extra="train", purpose="a local model")
        folder = resolve_checkpoint(path)
        check_files(folder)
        self._base = path
        # One worker per checkpoint: siblings with other adapters join it.
        self._worker = Worker(
            open_chat(folder, download, date=date, template=chat_template_kwargs),
            device=device,
            dtype=dtype,
            exact=determinism == "exact",
            width=max_batch,
            prefill=prefill_tokens,
            cache_bytes=cache_mb << 20,
            picture_tokens=picture_tokens,
        )
        self._set_worker(adapter, version)

    def with_adapter(self, adapter: str | None, version: int) -> LocalModel:
        """Return a model with the same weights and another adapter; raises like the constructor."""
        other = object.__new__(LocalModel)
        other._base, other._worker = self._base, self._worker
        other._set_worker(adapter, version)
        return other

    def _set_worker(self, adapter: str | None, version: int) -> None:
        if adapter is not None:
            MissingExtra.unless("peft", extra="train", purpose="an adapter")
            _check_adapter(adapter, self._base)
        self.policy = PolicyRef(base=self._base, adapter=adapter, version=version)
        self.meter = Meter()
        self.chat = self._worker.chat
        """Tokenizer and template."""
        self._adapter = None if adapter is None else f"{adapter}#{version}"
        self._closed = False
        self._worker.join(self._adapter, adapter)

    # ------------------------------------------------------------------------------------------------- the seam

    async def generate(self, request: Request) -> Reply:
        """Answer one prompt, batched with other waiting calls.

        May be cancelled at any time; one that was being computed then is counted as lost.

        Raises:
            ModelFailure: the prompt is longer than the context or does not fit into memory, or the model computes NaN,
                takes no pictures or was closed.
            ConfigError: the weights cannot be loaded (first call).
        """
        # The caller's latency includes the wait for a place in the batch.
        started = time.perf_counter()
        try:
            answer = await self._answer(request)
        except ModelFailure:
            # Count failures here, not in the engine, which may fail many requests at once.
            self.meter.count_failure(latency_s=time.perf_counter() - started)
            raise
        # A local model costs 0 USD, which differs from "unknown".
        reply = Reply(
            text=answer.text,
            finish=answer.finish,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.sampled,
            computed_tokens=answer.computed_tokens,
            queue_s=answer.queue_s,
            work_s=answer.work_s,
            width=answer.width,
            tokens=answer.tokens,
            tokenizer=self.chat.fingerprint,
            logprobs=answer.logprobs,
            behaviour_logprobs=answer.behaviour_logprobs,
            end_token=answer.end_token,
            end_logprob=answer.end_logprob,
            end_behaviour_logprob=answer.end_behaviour_logprob,
            cost_usd=_BILL,
        )
        # With shared prefixes, computed tokens differ from prompt tokens.
        self.meter.count_answer(
            latency_s=time.perf_counter() - started,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            computed_tokens=reply.computed_tokens,
        )
        self.meter.add_queue_time(answer.queue_s)
        return reply

    async def probe(self) -> Capabilities:
        """Return what the model supports; loads weights and adapter if needed.

        Raises:
            ConfigError: they cannot be loaded, or the adapter was made for another base.
        """
        # In the worker's thread, as this may load the weights.
        describe = functools.partial(self._open().describe, self._adapter)
        notes = await asyncio.get_running_loop().run_in_executor(self._worker.thread, describe)
        sees = self._worker.sees
        return Capabilities(
            logprobs=True,
            seed=True,
            images=sees,
            token_ids=True,
            adapters=True,
            counts_tokens=True,
            knows_price=True,
            weights=self._hash_weights(),
            notes=notes,
        )

    def _hash_weights(self) -> str | None:
        """Return the digest of base and adapter weights; None for a base on a model hub."""
        folder = Path(resolve_checkpoint(self._base))
        return hash_played_weights(folder, self.policy.adapter) if folder.is_dir() else None

    @property
    def engine(self) -> Engine | PaddedEngine | None:
        """The engine; None until weights are loaded. Only its numbers may be read from other threads."""
        return self._worker.engine

    def count_tokens(self, text: str) -> int:
        """Return the exact length of a text as it stands in a prompt."""
        return len(self.chat.encode(text))

    def prompt_ids(self, prompt: Prompt) -> PromptIds:
        """Return the token ids of a prompt's text in pieces; equal beginnings have equal ids."""
        return self.chat.prompt_ids(prompt)

    async def close(self) -> None:
        """Stop generating and free the memory; waiting calls fail."""
        if not self._closed:
            self._closed = True
            await self._worker.leave(self._adapter)

    # ---------------------------------------------------------------------------------------------------- parts

    async def _answer(self, request: Request) -> SampledReply:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[SampledReply] = loop.create_future()
        clock = request.clock
        if clock is not None:
            clock.hold()  # until it leaves the queue
        pictures = await self._worker.look(request.images) if request.images else ()
        self._check_pictures(pictures, has_pixel_points=request.has_pixel_points)
        is_computed = threading.Event()

        def start() -> None:
            is_computed.set()
            if clock is not None:
                post_to_loop(loop, clock.go)

        job = DecodeRequest(
            prompt=self.chat.prompt_ids(request.prompt, self._worker.sight.places(pictures)),
            pictures=pictures,
            sampling=request.sampling,
            seed=request.seed,
            adapter=self._adapter,
            abandoned=future.done,
            started=start,
            put_back=(lambda: None) if clock is None else functools.partial(post_to_loop, loop, clock.hold),
        )
        self._open().submit(job, future)
        try:
            return await future
        except asyncio.CancelledError:
            # One that still waited in the queue cost nothing.
            if is_computed.is_set():
                self.meter.lose()
            raise

    def _check_pictures(self, pictures: tuple[Picture, ...], *, has_pixel_points: bool) -> None:
        """Refuse what every step would have: too many picture tokens, or points in pixels of another picture."""
        tokens, most = sum(picture.tokens for picture in pictures), self._worker.picture_tokens
        if tokens > most:
            shown = "the picture takes" if len(pictures) == 1 else f"the {len(pictures)} pictures take"
            raise ConfigError(
                f"{self.policy.base}: {shown} {tokens} tokens, picture_tokens allows {most}; make pictures smaller "
                f"(size in its preprocessor_config.json), or set options.picture_tokens of its agents file to {tokens}"
            )
        shrunk = next((one for one in pictures if one.seen != one.sent), None)
        if has_pixel_points and shrunk is not None:
            (wide, high), (seen_wide, seen_high) = shrunk.sent, shrunk.seen
            raise ConfigError(
                f"{self.policy.base}: sees a picture of {wide} × {high} as {seen_wide} × {seen_high} (size in its "
                "preprocessor_config.json), and the agent's dialect points at pixels of the sent one; set the "
                "published size, or use a dialect with another unit of points"
            )

    def _open(self) -> Worker:
        if self._closed:
            raise ModelFailure(f"{self.policy.base}: the model was closed")
        return self._worker


def check_files(path: str) -> None:
    """Check a model directory without loading anything."""
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{path}: no config.json; a Hugging Face model directory has one")
        check_layout(folder)
        check_fetched(folder)
        if not any(folder.glob("*.safetensors")):
            raise ConfigError(f"{path}: no *.safetensors weights; other formats can hold code and are not loaded")
        if not any((folder / name).is_file() for name in _TOKENIZERS):
            raise ConfigError(f"{path}: no tokenizer ({', '.join(_TOKENIZERS)}); copy the one of its base model")
    elif folder.is_absolute() or path.startswith(".") or path.count("/") > 1 or folder.exists():  # no hub id
        raise ConfigError(f"{path}: no such model directory; name yours with {OWN_PATH}")


def check_fetched(folder: Path) -> None:
    """Check that no file is a Git LFS pointer, which git leaves where Git LFS is not installed.

    Raises:
        ConfigError: names the first pointer and the command that fetches the file.
    """
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob("tokenizer*")]):
        if not file.is_file() or file.stat().st_size > _LONGEST_POINTER:
            continue
        if file.read_bytes().startswith(_POINTER):
            raise ConfigError(f"{file}: a Git LFS pointer, not the file itself; fetch it: cd {folder} && git lfs pull")


def _check_adapter(adapter: str, base: str) -> None:
    if not (Path(adapter) / "adapter_model.safetensors").is_file():
        raise ConfigError(f"{adapter}: no adapter_model.safetensors in it; an adapter is a PEFT directory")
    check_fetched(Path(adapter))
    check_layout(Path(adapter))
    check_over(Path(adapter), Path(resolve_checkpoint(base)), "give path the one that it was trained on")
