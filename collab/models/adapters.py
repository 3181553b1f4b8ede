"""LoRA adapters on a vLLM server: loaded before they speak, unloaded afterwards, never taken for one another.

vLLM looks up its prefix cache by an adapter's name, so a name that came back with other weights would be answered from
what the old ones had computed. A name here carries the policy's version and a digest of the weights: the same name is
always the same adapter, whoever loaded it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import struct
from pathlib import Path

from collab.errors import ConfigError, ModelFailure
from collab.models.retry import ServerRefusal
from collab.models.transport import Transport
from collab.types import PolicyRef

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_READ_BY = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
"""Layers whose input is as wide as the model."""
_WRITTEN_BY = ("o_proj", "down_proj")
"""Layers whose output is as wide as the model."""
_LAYER = re.compile(r"\.layers\.(\d+)\.")
"""In the name of a weight, the number of its layer; towers that see count their layers apart."""
_TRAINED = re.compile(r"(?P<run>[^/]+)/epochs/(?P<epoch>\d+)/training(/(?P<agent>[^/]+))?/final$")
"""Where a training leaves what an epoch has trained."""
_UNLOAD_S = 5.0
"""How long a server may take to forget an adapter: whoever closes does not wait for one that hangs."""
_LORA_HINT = "collab serve with --lora-rank does it: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora"


def check_adapter(adapter: str) -> Path | None:
    """The directory that an `adapter` option means; None when it is the name of one that the server has by itself.

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
    """Refuse an adapter for a model of other sizes, where the base is a directory that can be read here.

    vLLM loads such an adapter without a word and answers nonsense.

    Raises:
        ConfigError: it does not fit, or one of the two has no readable sizes.
    """
    if not (Path(base) / "config.json").is_file() or not (folder / WEIGHTS[0]).is_file():
        return
    try:
        config = json.loads((Path(base) / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config") or config
        width, layers = int(config["hidden_size"]), config.get("num_hidden_layers")
        shapes = _shapes(folder / WEIGHTS[0])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise ConfigError(f"adapter {folder} or its base {base} cannot be read") from None
    found = {
        shape[side]
        for name, shape in shapes.items()
        for names, half, side in ((_READ_BY, "lora_A", 1), (_WRITTEN_BY, "lora_B", 0))
        if name.rpartition(f".{half}.")[0].rpartition(".")[2] in names and "vis" not in name
    }
    if found - {width}:
        raise ConfigError(f"adapter {folder} is for a model of width {min(found - {width})}, {base} has {width}")
    deepest = max((int(number) for name in shapes if "vis" not in name for number in _LAYER.findall(name)), default=-1)
    if layers is not None and deepest >= layers:
        raise ConfigError(f"adapter {folder} is for a model of at least {deepest + 1} layers, {base} has {layers}")


def served_name(folder: Path, version: int) -> str:
    """The name under which a server gets an adapter: whose it is, version of the policy and digest of the weights."""
    digest = hashlib.sha256()
    for name in (CONFIG, *WEIGHTS):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return f"{_called(folder)}-v{version}-{digest.hexdigest()[:12]}"


class AdapterPlace:
    """What one policy is called on its server, and how it gets there.

    Args:
        policy: its adapter is a directory that the server can read, too, or the name of one that it was started with.

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
        """What the server calls it, for the requests; the base's name before it is loaded."""
        return self._name or self._policy.base

    @property
    def lasting(self) -> bool:
        """Whether there is nothing to load."""
        return self._folder is None

    async def load(self) -> None:
        """Have the server load it; nothing happens when the server has it already.

        Raises:
            ModelFailure: the server cannot, and why.
        """
        if self._policy.adapter is None:
            return
        if self._folder is None:
            self._name = self._policy.adapter  # a name that the server does not know is refused with the first call
            return
        name = await asyncio.to_thread(served_name, self._folder, self._policy.version)
        try:
            await self._transport.command("/load_lora_adapter", {"lora_name": name, "lora_path": str(self._folder)})
        except ServerRefusal as refusal:
            if "already been loaded" not in str(refusal):
                raise ModelFailure(_explained(refusal, self._folder)) from None
        else:
            self._own = True
        self._name = name

    async def unload(self) -> None:
        """Have the server forget it, if this place loaded it. A server that is gone has forgotten it by itself."""
        if not self._own or self._name is None:
            return
        self._own = False
        with contextlib.suppress(ModelFailure, TimeoutError):
            async with asyncio.timeout(_UNLOAD_S):
                await self._transport.command("/unload_lora_adapter", {"lora_name": self._name}, retries=0)


def _called(folder: Path) -> str:
    """Of what a training left run, epoch and agent, as `marl-epoch3-ada`; of other adapters their directory."""
    found = _TRAINED.search(folder.as_posix())
    if found is None:
        return folder.name
    return "-".join(filter(None, (found["run"], f"epoch{found['epoch']}", found["agent"])))


def _shapes(file: Path) -> dict[str, list[int]]:
    """Name → shape of the tensors in a safetensors file: its head says, the weights are not read."""
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        if length > file.stat().st_size:
            raise ValueError("the head is longer than the file")
        head = json.loads(opened.read(length))
    return {name: entry["shape"] for name, entry in head.items() if name != "__metadata__"}


def _explained(refusal: ServerRefusal, folder: Path) -> str:
    """What the server said about an adapter that it did not load, and what to do."""
    said = str(refusal)
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
