"""Find and start vLLM, and load LoRA adapters on its server.

    launch = Launch(executable=find_vllm(None), model="Qwen/Qwen2-7B-Instruct", port=8000)
    launch.command      ('…/vllm', 'serve', 'Qwen/Qwen2-7B-Instruct', '--host', '127.0.0.1', …)

vLLM pins versions that clash with this project's, so it has an environment of its own and is started, never imported.

LoRA adapters are loaded before use and unloaded afterwards. vLLM keys its prefix cache by an adapter's name, so a
reused name with other weights would get stale results. Names here therefore contain the policy's version and a digest
of the weights.

`ServerProcess` runs the server, watches it until it is healthy and stops it by its process id:

    async with ServerProcess(command, environment, told=print) as server:
        await server.wait_healthy("http://127.0.0.1:8000/health", limit_s=600)
        …

Its output is passed on line by line. If it dies, our error quotes its last errors or else its last lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import yaml

from collab.errors import ConfigError, ModelFailure, UsageError
from collab.models.http import ServerRefusal, Transport
from collab.types import PolicyRef
from collab.utils.redact import redact

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_READ_BY = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
"""Layers whose input has the model's width."""
_WRITTEN_BY = ("o_proj", "down_proj")
"""Layers whose output has the model's width."""
_LAYER = re.compile(r"\.layers\.(\d+)\.")
"""Layer number in a weight's name; vision towers count their layers separately."""
_TRAINED = re.compile(r"(?P<run>[^/]+)/epochs/(?P<epoch>\d+)/training(/(?P<agent>[^/]+))?/final$")
"""Path of an epoch's trained adapter."""
_UNLOAD_S = 5.0
"""Seconds that a server gets to unload an adapter; closing must not wait for a hanging one."""
_LORA_HINT = "collab serve with --lora-rank does it: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"


def check_adapter(adapter: str) -> Path | None:
    """Return the directory of an `adapter` option; None for the name of an adapter that the server already has.

    Raises:
        ConfigError: it is written as a path, and no PEFT adapter is there.
    """
    folder = Path(adapter).expanduser()
    if not folder.is_dir():
        if os.sep in adapter or adapter.startswith((".", "~")):
            raise ConfigError(f"adapter {adapter!r}: there is no such directory")
        return None
    missing = [name for name in (CONFIG, WEIGHTS[0]) if not (folder / name).is_file()]
    if missing and not (missing == [WEIGHTS[0]] and (folder / WEIGHTS[1]).is_file()):
        raise ConfigError(f"adapter {adapter!r}: no PEFT adapter, {missing[0]} is missing")
    return folder.resolve()


def check_fit(folder: Path, base: str) -> None:
    """Check that an adapter fits the base's sizes, if the base is a directory here.

    vLLM silently loads an adapter of other sizes and answers nonsense.

    Raises:
        ConfigError: it does not fit, or one of the two has no readable sizes.
    """
    # A base on the hub cannot be read here; the server must check it.
    if not (Path(base) / "config.json").is_file() or not (folder / WEIGHTS[0]).is_file():
        return
    try:
        config = json.loads((Path(base) / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config") or config
        width, layers = int(config["hidden_size"]), config.get("num_hidden_layers")
        shapes = _read_shapes(folder / WEIGHTS[0])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise ConfigError(f"adapter {folder} or its base {base} cannot be read") from None
    # Matrices at the residual stream have its width on that side.
    found = {
        shape[side]
        for name, shape in shapes.items()
        for names, half, side in ((_READ_BY, "lora_A", 1), (_WRITTEN_BY, "lora_B", 0))
        if name.rpartition(f".{half}.")[0].rpartition(".")[2] in names and "vis" not in name
    }
    if found - {width}:
        raise ConfigError(f"adapter {folder} is for a model of width {min(found - {width})}, {base} has {width}")
    # An adapter with fewer layers fits; one with deeper layers does not.
    deepest = max((int(number) for name in shapes if "vis" not in name for number in _LAYER.findall(name)), default=-1)
    if layers is not None and deepest >= layers:
        raise ConfigError(f"adapter {folder} is for a model of at least {deepest + 1} layers, {base} has {layers}")


def build_served_name(folder: Path, version: int) -> str:
    """Return an adapter's name on a server: its origin, the policy's version and a digest of the weights."""
    digest = hashlib.sha256()
    for name in (CONFIG, *WEIGHTS):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"{_describe_adapter(folder)}-v{version}-{digest.hexdigest()[:12]}"


class AdapterPlace:
    """One policy's adapter on its server: loads it and knows its name there.

    Args:
        policy: its adapter is a directory that the server can read, or the name of an adapter on the server.

    Raises:
        ConfigError: see `check_adapter` and `check_fit`.
    """

    def __init__(self, transport: Transport, policy: PolicyRef) -> None:
        self._transport = transport
        self._policy = policy
        self._folder = None if policy.adapter is None else check_adapter(policy.adapter)
        if self._folder is not None:
            check_fit(self._folder, policy.base)
        self._name: str | None = None
        self._own = False

    @property
    def name(self) -> str:
        """The model name for requests; the base's name before the adapter is loaded."""
        return self._name or self._policy.base

    @property
    def lasting(self) -> bool:
        """Return whether the server already has the adapter, so that nothing must be loaded."""
        return self._folder is None

    async def load(self) -> None:
        """Let the server load the adapter, unless it already has it; ModelFailure with the reason if it cannot."""
        if self._policy.adapter is None:
            return
        if self._folder is None:
            self._name = self._policy.adapter  # the first call refuses an unknown name
            return
        name = await asyncio.to_thread(build_served_name, self._folder, self._policy.version)
        try:
            await self._transport.command("/load_lora_adapter", {"lora_name": name, "lora_path": str(self._folder)})
        except ServerRefusal as refusal:
            if "already been loaded" not in str(refusal):
                raise ModelFailure(_explain_refusal(refusal, self._folder)) from None
        else:
            self._own = True
        self._name = name

    async def unload(self) -> None:
        """Let the server unload the adapter, if this object loaded it; ignore a server that is gone."""
        if not self._own or self._name is None:
            return
        self._own = False
        with contextlib.suppress(ModelFailure, TimeoutError):
            async with asyncio.timeout(_UNLOAD_S):
                await self._transport.command("/unload_lora_adapter", {"lora_name": self._name}, retries=0)


def _describe_adapter(folder: Path) -> str:
    """Return run, epoch and agent of a trained adapter, as `marl-epoch3-ada`; else the directory's name."""
    found = _TRAINED.search(folder.as_posix())
    if found is None:
        return folder.name
    return "-".join(filter(None, (found["run"], f"epoch{found['epoch']}", found["agent"])))


def _read_shapes(file: Path) -> dict[str, list[int]]:
    """Return name → shape of the tensors in a safetensors file; reads only its header."""
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        if length > file.stat().st_size:
            raise ValueError("the head is longer than the file")
        head = json.loads(opened.read(length))
    return {name: entry["shape"] for name, entry in head.items() if name != "__metadata__"}


def _explain_refusal(refusal: ServerRefusal, folder: Path) -> str:
    """Format a server's refusal to load an adapter, with the next move."""
    said = str(refusal)
    # Decide by the server's words, as several causes share a status.
    if refusal.status in (404, 405) and "No adapter found" not in said:
        hint = f"the server loads no adapters while it runs; {_LORA_HINT}"
    elif "No adapter found" in said:
        hint = "the server must be able to read the same directory"
    elif "max_lora_rank" in said:
        hint = "start the server with a larger --max-lora-rank (collab serve: --lora-rank)"
    elif "not enabled" in said:
        hint = f"the server was started without LoRA; {_LORA_HINT}"
    else:
        hint = f"check that {CONFIG} fits the base model"
    return f"adapter {folder} was not loaded: {said}; {hint}"


VARIABLE = "COLLAB_VLLM"
"""Environment variable that names the executable."""
HOST = "127.0.0.1"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of vLLM's --max-lora-rank."""
LEAST_ADAPTERS = 4
"""Least number of adapters per batch: one per agent of a team of four."""
CONCURRENCY = 64
"""Concurrent calls in an agents file for vLLM, which batches them."""

_VLLM_HINT = (
    "make an environment of its own for it, since its pins clash with ours: "
    "python3 -m venv vllm-env && vllm-env/bin/pip install vllm; "
    f"then give --vllm vllm-env/bin/vllm or set {VARIABLE} (vLLM's manual tells how on other hardware than NVIDIA's)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Settings of a server to start."""

    executable: Path
    model: str
    """Directory or model hub id; also the model's name in requests."""
    port: int
    adapters: tuple[tuple[str, Path], ...] = ()
    """LoRA adapters loaded at the start, as (name, directory)."""
    lora_rank: int | None = None
    """Largest rank of adapters loaded at run time; None for only the given adapters."""
    dtype: str | None = None
    """None for vLLM's default, like the next field."""
    max_model_len: int | None = None
    """Longest sequence in tokens."""
    extra: tuple[str, ...] = ()
    """Further arguments of vLLM."""

    @property
    def has_lora(self) -> bool:
        """Return whether adapters can be used."""
        return bool(self.adapters) or self.lora_rank is not None

    @property
    def command(self) -> tuple[str, ...]:
        """The program and its arguments, without the API key: vLLM reads VLLM_API_KEY itself.

        Raises:
            ConfigError: an adapter has a larger rank than `lora_rank` or than vLLM supports.
        """
        words = [str(self.executable), "serve", self.model, "--host", HOST, "--port", str(self.port)]
        # Prefix caching makes many cells of one screen cheap; the details report the cached tokens.
        words += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
        if self.dtype is not None:
            words += ["--dtype", self.dtype]
        if self.max_model_len is not None:
            words += ["--max-model-len", str(self.max_model_len)]
        if self.has_lora:
            rank = choose_largest_rank([folder for _, folder in self.adapters], self.lora_rank)
            # More than the given adapters: trainings load new ones at run time.
            together = max(LEAST_ADAPTERS, len(self.adapters))
            words += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(together)]
        if self.adapters:
            words += ["--lora-modules", *(f"{name}={folder}" for name, folder in self.adapters)]
        return (*words, *self.extra)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables set in addition to the inherited ones."""
        return {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"} if self.has_lora else {}

    @property
    def shell_line(self) -> str:
        """Variables and command as typed in a shell."""
        return " ".join([*(f"{name}={value}" for name, value in self.environment.items()), shlex.join(self.command)])

    @property
    def address(self) -> str:
        """The server's address."""
        return f"http://{HOST}:{self.port}"

    @property
    def agents_file(self) -> str:
        """Text of a file for `agents/` that uses the server."""
        options = {
            "model": self.model,
            "base_url": f"{self.address}/v1",
            "api_key_env": "VLLM_API_KEY",
            "concurrency": CONCURRENCY,
        }
        if self.adapters:
            options["adapter"] = self.adapters[0][0]
        definition = {"description": f"{self.model} served by vLLM.", "kind": "openai", "options": options}
        text = yaml.safe_dump(definition, sort_keys=False, allow_unicode=True, width=1000)
        # Without an adapter, show where to put one.
        if self.has_lora and not self.adapters:
            text += "  # adapter: path/to/adapter, loaded before the first call\n"
        return text


def find_vllm(given: Path | None) -> Path:
    """Return the vLLM to start: the given one, that of COLLAB_VLLM, or the one on the PATH.

    Raises:
        UsageError: there is none, or the given path is no program; explains how to get one.
    """
    named = given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if named is None:
        found = shutil.which("vllm")
        if found is None:
            raise UsageError(f"no vLLM: neither --vllm nor {VARIABLE} names it and none is on the PATH; {_VLLM_HINT}")
        return Path(found)
    program = named.expanduser()
    if not program.is_file() or not os.access(program, os.X_OK):
        source = "--vllm" if given is not None else VARIABLE
        raise UsageError(f"{source} {str(named)!r}: no such program; {_VLLM_HINT}")
    return program.absolute()


def read_adapters(values: Sequence[str]) -> tuple[tuple[str, Path], ...]:
    """Read NAME=PATH items.

    Raises:
        ConfigError: an item has another form, a name is given twice, or a path holds no adapter.
    """
    adapters: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path):
            raise ConfigError(f"--adapter {value!r}: write it as NAME=PATH")
        if name in adapters:
            raise ConfigError(f"--adapter {value!r}: {name} is given twice")
        folder = check_adapter(path)
        if folder is None:
            raise ConfigError(f"--adapter {value!r}: there is no such directory")
        adapters[name] = folder
    return tuple(adapters.items())


def choose_largest_rank(adapters: Sequence[Path], asked: int | None) -> int:
    """Return the rank to start vLLM with: the asked or needed one, rounded up to a supported one.

    Raises:
        ConfigError: an adapter needs more than asked for or supported, or its configuration is broken.
    """
    needs = {folder: _rank(folder) for folder in adapters}
    for folder, rank in needs.items():
        if rank > (asked or RANKS[-1]):
            raise ConfigError(f"adapter {folder} has rank {rank}, at most {asked or RANKS[-1]} is possible here")
    need = asked or max(needs.values())
    if not 1 <= need <= RANKS[-1]:
        raise ConfigError(f"--lora-rank {need}: allowed are 1 to {RANKS[-1]}")
    return next(rank for rank in RANKS if rank >= need)


def free_port(wanted: int) -> int:
    """Return the wanted port, or any free one for 0; UsageError if it is taken."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, wanted))
        except OSError as error:
            raise UsageError(f"--port {wanted}: {error.strerror}; choose another, or 0 for a free one") from None
        return int(trial.getsockname()[1])


def _rank(folder: Path) -> int:
    """Return an adapter's largest rank, as layers may have their own."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return max(int(config["r"]), *map(int, (config.get("rank_pattern") or {}).values()), 1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"adapter {folder}: {CONFIG} is no PEFT configuration of a LoRA adapter") from None


_PATIENCE_S = 30.0
"""Seconds to end after a stop signal."""
_POLL_S = 0.1
_ANSWER_S = 2.0
"""Seconds to wait for the first line of an answer."""
_LAST_LINES = 4
_LONGEST_QUOTE = 300
"""Characters of one line in a message."""
_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b:? ")
_LONGEST_LINE = 2**20


class ServerProcess:
    """A server process and its children.

    Args:
        command: program and arguments; no shell reads them.
        environment: variables set beside those inherited.
        told: called with every printed line, without secrets.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], told: Callable[[str], None]) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._told = told
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._errors: deque[str] = deque(maxlen=_LAST_LINES)
        """Kept apart: shutting down can print hundreds of useless lines."""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start the process; ModelFailure if that fails."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=os.environ | self._environment,
                start_new_session=True,  # so that a Ctrl-C reaches it only once, through us
                limit=_LONGEST_LINE,
            )
        except OSError as error:
            raise ModelFailure(f"{self._command[0]} cannot be started: {error.strerror}") from None
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_healthy(self, url: str, limit_s: float) -> None:
        """Wait until the address answers; ModelFailure if the process ends first or the limit passes."""
        deadline = time.monotonic() + limit_s
        while not await _is_answering(url):
            if self._running.returncode is not None:
                raise await self.make_exit_error()
            if time.monotonic() > deadline:
                raise ModelFailure(
                    f"the server was not healthy within {limit_s:g} s; its last output: {self._quote_log()}"
                )
            await asyncio.sleep(_POLL_S)

    async def wait_ended(self) -> int:
        """Wait until the process ends; return its exit code, or minus the signal that killed it."""
        while (code := self._running.returncode) is None:  # wait() would also wait for children that hold its output
            await asyncio.sleep(_POLL_S)
        return code

    async def make_exit_error(self) -> ModelFailure:
        """Wait for the end and return the error that describes it."""
        code = await self.wait_ended()
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=1.0)  # its children may hold the pipe open
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return ModelFailure(f"the server ended with {how}; its last output: {self._quote_log()}")

    async def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Send a signal, and kill the process after half a minute; do nothing if it has ended."""
        process = self._running
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(how)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait_ended(), _PATIENCE_S)
        self.kill()
        await process.wait()
        if self._reading is not None:
            self._reading.cancel()

    def kill(self) -> None:
        """Kill the process and its children; do nothing if it was not started or has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a group of its own

    @property
    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process

    async def _read(self) -> None:
        stream = self._running.stdout
        while stream is not None and (line := await stream.readline()):
            text = redact(line.decode(errors="replace").rstrip().rpartition("\r")[2])  # only the end of a progress bar
            if text.strip():
                self._last.append(text)
            if _ERROR.search(text):
                self._errors.append(text)
            self._told(text)

    def _quote_log(self) -> str:
        """Return the last errors, or else the last lines."""
        lines = [line.strip()[:_LONGEST_QUOTE] for line in self._errors or self._last]
        return " | ".join(lines) or "nothing"


async def _is_answering(url: str) -> bool:
    """Return whether the address answers 200; leaves no thread waiting for an endless answer."""
    parts = urlsplit(url)
    question = f"GET {parts.path or '/'} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n"
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            try:
                writer.write(question.encode())
                status = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):  # ValueError: a line without an end
        return False
    return status.split()[1:2] == [b"200"]
