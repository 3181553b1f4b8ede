"""A language model in this process: any Hugging Face directory of a causal LM with a chat template, some that see.

model = LocalModel(path="checkpoints/qwen2-7b")

Calls of all episodes go into one stream of packed passes, in a worker thread of the model's own (see `engine`), so the
event loop never stands still. What prompts begin with in common is computed once. `determinism: exact` makes a reply a
function of its request alone, bit for bit, at the price of computing one sequence at a time.

Sampling is temperature and top-p of the request and nothing else; penalties and top-k of a generation config are not
applied, so that the reported log-probabilities are those of the model.

The thread in which a local model computes, the way of jobs into it and of answers out of it.

Models that differ in their adapter only speak through one worker, so that they share weights, passes and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from collab.errors import CollabError, ConfigError, MissingExtra, ModelFailure, boundary
from collab.library import resolve_checkpoint
from collab.models.base import Capabilities, Meter, Reply, Request
from collab.models.checkpoint import check_layout, check_over, hash_played_weights
from collab.models.engine.sampling import DecodeRequest, SampledReply
from collab.models.tokenizer import ChatTokenizer, PromptIds, open_chat
from collab.models.vision import Picture, PictureReader
from collab.types import PolicyRef, Prompt
from collab.utils.concurrency import note_doing

if TYPE_CHECKING:
    from collab.models.checkpoint import Checkpoint
    from collab.models.engine.padded import PaddedEngine
    from collab.models.engine.scheduler import Engine


class Worker:
    """The thread that computes, and the way of jobs into it and of answers out of it."""

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
    ) -> None:
        self.chat = chat
        self.sight = PictureReader(chat)
        self.adapters: dict[str, str] = {}
        """Name → directory."""
        self._users: Counter[str | None] = Counter()
        """How many models speak through it with each adapter."""
        self._retired: list[str] = []
        """Adapters that no model speaks with any more, still in memory."""
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-model")
        self._place = (device, dtype)
        self._exact, self._width, self._prefill, self._cache_bytes = exact, width, prefill, cache_bytes
        self._looking: dict[tuple[asyncio.AbstractEventLoop, tuple[bytes, ...]], asyncio.Task[tuple[Picture, ...]]] = {}
        """Pictures that are being read at the moment."""
        self._inbox: deque[DecodeRequest] = deque()
        self._futures: dict[DecodeRequest, asyncio.Future[SampledReply]] = {}
        self.engine: Engine | PaddedEngine | None = None
        self._note = ""
        self._turn: asyncio.Task[None] | None = None
        self._stopping = False

    async def look(self, images: tuple[bytes, ...]) -> tuple[Picture, ...]:
        """Read pictures beside the event loop; whoever asks for the same ones meanwhile goes on in the same moment.

        Raises:
            ModelFailure: the checkpoint takes no pictures, or one of them cannot be read.
            ConfigError: its image processor cannot be loaded.
        """
        key = (asyncio.get_running_loop(), images)
        if key not in self._looking:
            task = asyncio.create_task(asyncio.to_thread(self.sight.read, images))
            task.add_done_callback(lambda _: self._looking.pop(key, None))
            self._looking[key] = task
        return await asyncio.shield(self._looking[key])  # one caller that is cancelled takes it from nobody

    def submit(self, job: DecodeRequest, future: asyncio.Future[SampledReply]) -> None:
        """Take a job; its future gets the answer."""
        self._futures[job] = future
        future.add_done_callback(lambda _: self._futures.pop(job, None))
        self._inbox.append(job)
        loop = future.get_loop()
        if self._turn is None or self._turn.done() or self._turn.get_loop() is not loop:
            self._turn = loop.create_task(self._run_thread())

    def join(self, adapter: str | None, directory: str | None) -> None:
        """Add a model that speaks through it, with an adapter of this name; None for the base weights."""
        self._users[adapter] += 1
        if adapter is not None and directory is not None:
            self.adapters[adapter] = directory

    async def leave(self, adapter: str | None) -> None:
        """Remove a model that speaks through it; the last one closes it.

        The last one with an adapter fails what waits for it and frees its memory, the last of all stops the thread.
        """
        # Models of one checkpoint share a worker; the last one closes it.
        self._users[adapter] -= 1
        if not self._users[adapter]:
            closed = ModelFailure(f"{self.chat.path}: the model was closed")
            for job in [job for job in list(self._futures) if job.adapter == adapter]:
                self._settle(job, closed)
            # Unloaded later, in the worker's thread, which may still compute with it.
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
        """Whether the checkpoint takes pictures; False until the weights are loaded."""
        return self.engine is not None and self.engine.checkpoint.family is not None

    def describe(self, adapter: str | None) -> tuple[str, ...]:
        """Return notes on the loaded model. Runs in the thread, and loads weights and adapter if needed."""
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
            await asyncio.sleep(0)  # who speaks in the same moment comes along
            await loop.run_in_executor(self.thread, self._compute)

    def _compute(self) -> None:
        """Compute passes until nothing is left to do. Runs in the thread."""
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
        except CollabError as error:  # of the weights or the machine, not of one job: everybody hears it
            if self.engine is not None:
                self.engine.clear()
            self._fail_all(error)

    def _free_adapters(self, engine: Engine | PaddedEngine) -> None:
        """Drop adapters that are done; one that was taken up again meanwhile stays."""
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
        """Hand an answer over to the event loop that waits for it; from any thread."""
        future = self._futures.pop(job, None)
        if future is not None:
            post_to_loop(future.get_loop(), functools.partial(_resolve, future, answer))

    def _fail_all(self, error: CollabError) -> None:
        self._inbox.clear()
        for job in list(self._futures):
            self._settle(job, error)

    def _load_engine(self) -> Engine | PaddedEngine:
        """Return the engine; made at the first use, in the thread."""
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
            return PaddedEngine(checkpoint, width=measure_trusted_width(checkpoint, 1 if self._exact else self._width))
        return Engine(
            checkpoint, exact=self._exact, width=self._width, prefill=self._prefill, cache_bytes=self._cache_bytes
        )


def post_to_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call something in a loop; in one that has ended, nothing waits any more."""
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
"""Files of which a tokenizer needs at least one; without them an empty one would be made up."""
_POINTER, _LONGEST_POINTER = b"version https://git-lfs.github.com/", 1024
"""How a file begins that stands for one of Git LFS, and how many bytes it has at most."""
_BILL = 0.0
"""USD per reply: what is computed here is billed by nobody."""


class LocalModel:
    """A checkpoint answered by torch.

    Args:
        path: directory with config.json, safetensors weights and tokenizer; "built-in:NAME"; or a model hub id.
        adapter: directory of a LoRA adapter (PEFT, safetensors).
        version: of the policy; a new one starts with an empty cache even when the adapter's directory is the same.
        device: "auto" (a GPU when there is one), "cpu", "cuda", "cuda:1" …
        dtype: "auto" (the checkpoint's on a GPU, float32 on a CPU), "float32", "bfloat16", "float16".
        max_batch: sequences computed together at most.
        prefill_tokens: prompt tokens computed in one pass at most.
        cache_mb: memory for prompt pieces that were computed and may be wanted again, in megabytes.
        determinism: "fast" computes together what is there; "exact" one sequence at a time.
        download: whether a hub id may be fetched over the network; otherwise it must be in this machine's cache.
        date: that a chat template tells which tells the date; None for today's. A run notes the day on which it began.
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
        determinism: Literal["fast", "exact"] = "fast",
        download: bool = False,
        date: datetime.date | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        # Refused before the weights are looked at.
        if max_batch < 1 or prefill_tokens < 256 or cache_mb < 0:
            raise ConfigError(
                f"local: max_batch {max_batch} (allowed: from 1), prefill_tokens {prefill_tokens} (from 256), "
                f"cache_mb {cache_mb} (from 0)"
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
        )
        self._set_worker(adapter, version)

    def with_adapter(self, adapter: str | None, version: int) -> LocalModel:
        """Return a model with the same weights in memory under another adapter; None for the base.

        Raises:
            ConfigError: the adapter's directory does not fit.
            MissingExtra: peft is not installed.
        """
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
        """Answer one prompt, together with whoever else is waiting. May be cancelled at any time.

        Raises:
            ModelFailure: the prompt is longer than the context, does not fit into memory, the model computes NaN, takes
                no pictures or was closed.
            ConfigError: the weights cannot be loaded (first call).
        """
        # From the caller's view: waiting for a place in the batch is included.
        started = time.perf_counter()
        try:
            answer = await self._answer(request)
        except ModelFailure:
            # Failures are metered here and not in the engine, which may fail many requests at once.
            self.meter.count_failure(latency_s=time.perf_counter() - started)
            raise
        # A local model costs no money: the bill is zero, not unknown.
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
            cost_usd=_BILL,
        )
        # What was computed, not only what was read: shared prefixes make the two differ.
        self.meter.count_answer(
            latency_s=time.perf_counter() - started,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            computed_tokens=reply.computed_tokens,
        )
        self.meter.add_queue_time(answer.queue_s)
        return reply

    async def probe(self) -> Capabilities:
        """Return what it supports; loads weights and adapter when that has not happened yet.

        Raises:
            ConfigError: they cannot be loaded, or the adapter was made for another base.
        """
        # In the worker's thread, as it may load the weights.
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
        """Return the digest of the base's weights and the adapter's behind it; None for a base on a model hub."""
        folder = Path(resolve_checkpoint(self._base))
        return hash_played_weights(folder, self.policy.adapter) if folder.is_dir() else None

    @property
    def engine(self) -> Engine | PaddedEngine | None:
        """Return the engine; None until weights are loaded. Its numbers may be read, its methods belong to a thread."""
        return self._worker.engine

    def count_tokens(self, text: str) -> int:
        """Return the exact length of a text as it stands in a prompt."""
        return len(self.chat.encode(text))

    def prompt_ids(self, prompt: Prompt) -> PromptIds:
        """Return the token ids of a prompt's text in pieces; equal first pieces have equal ids."""
        return self.chat.prompt_ids(prompt)

    async def close(self) -> None:
        """Stop generating and give back the memory. Waiting calls fail."""
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
        job = DecodeRequest(
            prompt=self.chat.prompt_ids(request.prompt, self._worker.sight.places(pictures)),
            pictures=pictures,
            sampling=request.sampling,
            seed=request.seed,
            adapter=self._adapter,
            abandoned=future.done,
            started=(lambda: None) if clock is None else functools.partial(post_to_loop, loop, clock.go),
            put_back=(lambda: None) if clock is None else functools.partial(post_to_loop, loop, clock.hold),
        )
        self._open().submit(job, future)
        return await future

    def _open(self) -> Worker:
        if self._closed:
            raise ModelFailure(f"{self.policy.base}: the model was closed")
        return self._worker


def check_files(path: str) -> None:
    """Check a model directory as far as that is possible without loading anything."""
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
        raise ConfigError(f"{path}: no such model directory; name yours with --set 'agents.*.options.path=DIR'")


def check_fetched(folder: Path) -> None:
    """Refuse files that git has left without their content, as it does where Git LFS is not installed.

    Raises:
        ConfigError: names the first one, and the command that fetches it.
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
