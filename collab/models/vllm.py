"""How vLLM is found, and the command that serves a model with it.

    launch = Launch(executable=find_vllm(None), model="Qwen/Qwen2-7B-Instruct", port=8000)
    launch.command      ('…/vllm', 'serve', 'Qwen/Qwen2-7B-Instruct', '--host', '127.0.0.1', …)

vLLM pins versions that clash with those of this project, so it lives in an environment of its own and is only ever
started, never imported.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from collab.errors import ConfigError, UsageError
from collab.models.adapters import CONFIG, check_adapter

VARIABLE = "COLLAB_VLLM"
"""Environment variable that names the executable."""
HOST = "127.0.0.1"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The largest ranks that vLLM can be started for."""
LEAST_ADAPTERS = 4
"""Adapters that may speak in one batch, at least: one per agent of a team of four."""
CONCURRENCY = 64
"""Calls at once that an agents file for vLLM allows; it batches what is in flight."""

_VLLM_HINT = (
    "make an environment of its own for it, since its pins clash with ours: "
    "python3 -m venv vllm-env && vllm-env/bin/pip install vllm; "
    f"then give --vllm vllm-env/bin/vllm or set {VARIABLE} (vLLM's manual tells how on other hardware than NVIDIA's)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One server to be started."""

    executable: Path
    model: str
    """Directory or model hub id; also the name by which requests call it."""
    port: int
    adapters: tuple[tuple[str, Path], ...] = ()
    """LoRA adapters that it has from the start, as (name, directory)."""
    lora_rank: int | None = None
    """Largest rank of adapters loaded while it runs; None for no adapters but those given."""
    dtype: str | None = None
    """None leaves it to vLLM, like the next."""
    max_model_len: int | None = None
    """Longest sequence in tokens."""
    extra: tuple[str, ...] = ()
    """Further arguments, as vLLM knows them."""

    @property
    def has_lora(self) -> bool:
        """Whether it can speak with adapters."""
        return bool(self.adapters) or self.lora_rank is not None

    @property
    def command(self) -> tuple[str, ...]:
        """The program and its arguments. The API key is not among them: vLLM reads VLLM_API_KEY itself.

        Raises:
            ConfigError: an adapter has a larger rank than `lora_rank`, or than vLLM can be started for.
        """
        words = [str(self.executable), "serve", self.model, "--host", HOST, "--port", str(self.port)]
        words += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
        if self.dtype is not None:
            words += ["--dtype", self.dtype]
        if self.max_model_len is not None:
            words += ["--max-model-len", str(self.max_model_len)]
        if self.has_lora:
            rank = largest_rank([folder for _, folder in self.adapters], self.lora_rank)
            together = max(LEAST_ADAPTERS, len(self.adapters))
            words += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(together)]
        if self.adapters:
            words += ["--lora-modules", *(f"{name}={folder}" for name, folder in self.adapters)]
        return (*words, *self.extra)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that are set for it beside those that it inherits."""
        return {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"} if self.has_lora else {}

    @property
    def shell_line(self) -> str:
        """Variables and command as one would type them."""
        return " ".join([*(f"{name}={value}" for name, value in self.environment.items()), shlex.join(self.command)])

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    @property
    def agents_file(self) -> str:
        """A file for `agents/` that uses it."""
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
        if self.has_lora and not self.adapters:
            text += "  # adapter: path/to/adapter, loaded before the first call\n"
        return text


def find_vllm(given: Path | None) -> Path:
    """The vLLM to start: the one given, that of COLLAB_VLLM, or the one on the PATH.

    Raises:
        UsageError: there is none, or what was named is no program; says how to get one.
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
        ConfigError: an item is of another form, a name comes twice, or a path holds no adapter.
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


def largest_rank(adapters: Sequence[Path], asked: int | None) -> int:
    """The rank to start vLLM for: what was asked for or what the adapters need, rounded up to one it knows.

    Raises:
        ConfigError: an adapter needs more than was asked for, or than vLLM knows; or its configuration is broken.
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
    """The port itself when nobody listens there, or any free one for 0.

    Raises:
        UsageError: it is taken.
    """
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, wanted))
        except OSError as error:
            raise UsageError(f"--port {wanted}: {error.strerror}; choose another, or 0 for a free one") from None
        return int(trial.getsockname()[1])


def _rank(folder: Path) -> int:
    """The largest rank in an adapter, some layers may have one of their own."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return max(int(config["r"]), *map(int, (config.get("rank_pattern") or {}).values()), 1)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"adapter {folder}: {CONFIG} is no PEFT configuration of a LoRA adapter") from None
