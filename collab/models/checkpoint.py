"""A causal language model in memory, with or without sight: its weights, and one packed forward pass.

Any number of LoRA adapters lie over the weights in memory, one at work at a time.

A checkpoint made here has a card, `collab.json`, beside its weights. It names the prompt layout that it was trained on:
a policy that learned to read one layout does worse on another without any error to be seen, so it is only loaded where
prompts have that layout. And it names its weights by their SHA-256, so that half a copy or another file under the same
name is never taken for it. A checkpoint without the file was not trained here; it reads any layout.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collab.errors import ConfigError
from collab.models.engine.attention import IMPLEMENTATION, PackedPass, PassSegment, SharedKeys, install
from collab.models.engine.kv_cache import CacheShape
from collab.models.tokenizer import ChatTokenizer, silence_transformers, take_first_line
from collab.models.vision import FAMILIES
from collab.models.weights import (
    check_vocabulary,
    find_setting,
    get_text_config,
    load_model,
    read_context_length,
    readable,
)
from collab.prompts.render import LAYOUT
from collab.utils.concurrency import note_doing

PLAIN = (None, True, False, "gaussian", "eva", "orthogonal")
"""Ways of PEFT to begin an adapter that leave the base as it is; others change it whenever they are loaded."""


class Adapters:
    """The adapters of one model.

    Args:
        model: of transformers; adapters are put into it.
        path: where it came from, for messages.
    """

    def __init__(self, model: Any, path: str) -> None:
        self._model = model
        self._path = path
        self._peft: Any = None
        self._names: set[str] = set()
        self._base: dict[Any, Tensor] = {}
        """Weights of the base that some adapter replaces, biases say, and their values without one."""
        self._replaced: dict[str, dict[Any, Tensor]] = {}
        """Adapter → those that it replaces, and its values."""
        self._active: str | None = None
        """Which one computes; None for the base weights."""
        self._stale = False
        """Whether `_active` has to be set anew: adapters have come or gone."""

    def add(self, name: str, path: str) -> None:
        """Load one under a name; nothing happens when the name is known.

        Raises:
            ConfigError: it cannot be read, is no LoRA, or was made for another base; it has left no trace then.
        """
        if name in self._names:
            return
        # Loading an adapter may change the base (biases, embeddings, PiSSA), which other adapters still need as it was.
        before = self._snapshot(path)
        try:
            self._put_in(name, path)
            _check_fits(self._model, self._peft, name, path, self._path)
            # What loading has changed belongs to this adapter, and is written back whenever it computes.
            changed = {
                weight: weight.detach().clone() for weight, old in before.items() if not torch.equal(weight, old)
            }
        except ConfigError:
            # All or nothing: a half-loaded adapter would leave modules that change every pass.
            _write_back(before)
            self._take_out(name)
            raise
        _write_back(before)
        # The base's values are those before the first adapter that changed them.
        self._base |= {weight: before[weight] for weight in changed if weight not in self._base}
        self._replaced[name] = changed
        self._names.add(name)

    def drop(self, name: str) -> None:
        """Forget one; nothing happens when the name is unknown."""
        if name in self._names:
            self._names.remove(name)
            self._replaced.pop(name)
            self._take_out(name)

    def use(self, name: str | None) -> None:
        """Compute with this one from now on; None for the base weights alone."""
        if self._peft is None or (name == self._active and not self._stale):
            return
        _write_back(self._base if name is None else self._base | self._replaced[name])
        if name is None:
            self._peft.base_model.disable_adapter_layers()
        else:
            self._peft.base_model.enable_adapter_layers()
            self._peft.set_adapter(_make_module_name(name))
        self._active, self._stale = name, False

    def merge(self, name: str) -> Any:
        """Return the model with this adapter added to its weights; no adapter is left in it, and this object is done.

        Raises:
            ConfigError: the sum holds a weight that is no number.
        """
        self.use(name)
        if not self._peft.peft_config[_make_module_name(name)].ensure_weight_tying:
            _untie(self._model, _make_module_name(name))
        with readable(f"{self._path} with adapter {name}"):
            model = self._peft.merge_and_unload(safe_merge=True, adapter_names=[_make_module_name(name)])
        vars(model).pop("peft_config", None)  # or transformers would save an adapter
        return model

    def _snapshot(self, path: str) -> dict[Any, Tensor]:
        """Return the values of those weights of the base that loading an adapter may replace.

        PEFT writes biases and embeddings that lie in an adapter's file into the base, and some ways to begin an adapter
        take away from the base what they put into it.
        """
        self.use(None)
        embeddings = [self._model.get_input_embeddings(), self._model.get_output_embeddings()]
        kept = {weight for part in embeddings if part is not None for weight in part.parameters()}
        everything = _changes_base_weights(path)
        return {
            weight: weight.detach().clone()
            for name, weight in self._model.named_parameters()
            if (everything or weight in kept or name.endswith("bias")) and ".lora_" not in name
        }

    def _put_in(self, name: str, path: str) -> None:
        from peft import PeftConfig, PeftModel

        self._stale = True
        with readable(f"{self._path} with adapter {path}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what matters of them is compared afterwards
            config = PeftConfig.from_pretrained(path)
            kind = str(getattr(config.peft_type, "value", config.peft_type))
            if kind != "LORA":
                raise ConfigError(f"{path}: an adapter of kind {kind}; only LoRA adapters can be used")
            if getattr(config, "alora_invocation_tokens", None):  # which begins in the middle of a prompt
                raise ConfigError(f"{path}: an activated LoRA (alora_invocation_tokens), which cannot be used here")
            if self._peft is None:
                self._peft = PeftModel.from_pretrained(self._model, path, adapter_name=_make_module_name(name))
            else:
                self._peft.load_adapter(path, adapter_name=_make_module_name(name))
        self._model.eval()

    def _take_out(self, name: str) -> None:
        """Remove an adapter, also where putting it in has failed on the way."""
        from peft.tuners.tuners_utils import BaseTunerLayer

        module = _make_module_name(name)
        if self._peft is not None and module in self._peft.peft_config:
            self._peft.delete_adapter(module)
        for layer in self._model.modules():
            if isinstance(layer, BaseTunerLayer):
                layer.delete_adapter(module)
        if self._peft is None:
            vars(self._model).pop("peft_config", None)  # or peft would take the model for one that has adapters
        self._stale = True


def _make_module_name(adapter: str) -> str:
    """Return a module name for an adapter: dots separate there, and nothing may collide."""
    return f"adapter_{hashlib.sha256(adapter.encode()).hexdigest()[:16]}"


def _write_back(values: Mapping[Any, Tensor]) -> None:
    with torch.no_grad():
        for weight, value in values.items():
            weight.copy_(value)


def _changes_base_weights(path: str) -> bool:
    """Whether loading an adapter changes the weights that it is put over (PiSSA, OLoRA …)."""
    from peft import PeftConfig

    with readable(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of fields that this PEFT does not know
        return getattr(PeftConfig.from_pretrained(path), "init_lora_weights", True) not in PLAIN


def _untie(model: Any, module: str) -> None:
    """Give the output layer weights of its own where an adapter changes it, or the embeddings, alone."""
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head is None or embeddings.weight is not head.weight:
        return
    changed = [module in dict(part.named_modules()) or _has_weights_in(part, module) for part in (embeddings, head)]
    if any(changed):
        own = getattr(head, "base_layer", getattr(head, "original_module", head))
        own.weight = torch.nn.Parameter(own.weight.detach().clone(), requires_grad=False)
        for config in {id(one): one for one in (model.config, model.config.get_text_config())}.values():
            config.tie_word_embeddings = False


def _has_weights_in(part: Any, module: str) -> bool:
    """Whether an adapter of that name has weights in a part of the model."""
    return any(module in name.split(".") for name in part.state_dict())


def _check_fits(model: Any, peft: Any, name: str, path: str, base: str) -> None:
    """Refuse a file whose weights are not those that PEFT itself would write for this adapter over this base."""
    from peft import get_peft_model_state_dict
    from safetensors import safe_open

    # Shapes alone are read: comparing costs no loading.
    with readable(path), safe_open(Path(path) / "adapter_model.safetensors", "pt") as file:
        given = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}
    with readable(path):
        own = get_peft_model_state_dict(peft, adapter_name=_make_module_name(name), save_embedding_layers=False)
    wanted = {key: list(weight.shape) for key, weight in own.items()}
    # PEFT copies embeddings into the file; they are checked as part of the base.
    copied = {key for key in set(given) - set(wanted) if _is_embedding(model, key)}
    extra, missing = sorted(set(given) - set(wanted) - copied), sorted(set(wanted) - set(given))
    if extra or missing:
        raise ConfigError(
            f"{path}: made for another base than {base}: {len(extra)} of its weights have no place there, "
            f"{len(missing)} are missing, for example {[*extra, *missing][0]}"
        )
    odd = [key for key in wanted if given[key] != wanted[key]]
    if odd:
        raise ConfigError(
            f"{path}: made for another base than {base}: {odd[0]} is {given[odd[0]]}, not {wanted[odd[0]]} as there"
        )


def _is_embedding(model: Any, key: str) -> bool:
    """Whether a weight is that of an embedding or output layer below an adapter, which PEFT writes beside it."""
    name = key.removeprefix("base_model.model.").replace(".base_layer.", ".")
    parts = {id(part) for part in (model.get_input_embeddings(), model.get_output_embeddings())}
    owner, _, _ = name.rpartition(".")
    try:
        return id(model.get_submodule(owner)) in parts
    except AttributeError:
        return False


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_TOLERANCE = {torch.bfloat16: 0.15, torch.float16: 0.05}
_STRETCHING = {"longrope", "dynamic"}
"""Kinds of positions that are reckoned anew when a sequence becomes long, for all that are computed with it."""


def get_tolerance(dtype: torch.dtype) -> float:
    """Return the largest difference of log-probabilities that rounding explains."""
    return _TOLERANCE.get(dtype, 1e-4)


class Checkpoint:
    """Base weights with any number of LoRA adapters over them.

    Args:
        chat: the tokenizer of the same directory.
        device: "auto" takes a GPU when there is one.
        dtype: "auto" keeps the checkpoint's on an accelerator and takes float32 on a CPU.

    Raises:
        ConfigError: the weights cannot be read or do not belong to the tokenizer, or the device does not exist.
    """

    def __init__(self, chat: ChatTokenizer, *, device: str, dtype: str) -> None:
        self.chat = chat
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.model: Any = load_model(chat.path, dtype=self.dtype, local=not chat.download).to(self.device)
        """The transformers model, adapters injected into it."""
        kind = self.model.config.model_type
        self.family: str | None = kind if kind in FAMILIES else None
        """Model type of a checkpoint that sees; None for one that reads text only."""
        self.image_token: int | None = self.model.config.image_token_id if self.family else None
        """Id that stands for a piece of a picture; None for a checkpoint that reads text only."""
        self._adapters = Adapters(self.model, chat.path)
        # For checkpoints that see, the language model's own part of the configuration.
        config = get_text_config(self.model.config, chat.path)
        self.context: int = read_context_length(config)
        """Longest sequence in tokens; `sys.maxsize` where the model sets no limit."""
        self.ends: frozenset[int] = chat.turn_ends.union(_read_configured_ends(self.model))
        """Ids that end a reply."""
        # A tokenizer of another model would produce fluent nonsense: refused here, while both are at hand.
        check_vocabulary(chat, config)
        if max(self.ends, default=0) >= chat.size:
            raise ConfigError(
                f"{chat.path}: the model ends replies with token {max(self.ends)}, the tokenizer has {chat.size}; "
                "the tokenizer belongs to another model"
            )
        self._shape = _build_cache_shape(config, self.model.dtype, self.device)

    def add_adapter(self, name: str, path: str) -> None:
        """Load a LoRA adapter under a name; nothing happens when the name is known.

        Raises:
            ConfigError: it cannot be read, is no LoRA, or was made for another base; it has left no trace then.
        """
        self._adapters.add(name, path)

    def drop_adapter(self, name: str) -> None:
        """Forget an adapter; nothing happens when the name is unknown."""
        self._adapters.drop(name)

    def use(self, adapter: str | None) -> None:
        """Compute with this adapter from now on; None for the base weights alone."""
        self._adapters.use(adapter)

    @silence_transformers()
    @torch.inference_mode()
    def share_prefixes(self) -> str | None:
        """Switch to attention over shared prefixes.

        Returns:
            None when that is how the model now computes; otherwise why it cannot, and nothing has changed.
        """
        # Refused by what the configuration says, before anything is tried: these differences would not show in a probe.
        if self.family is not None:
            return f"the model sees ({self.family}), and its attention and positions are its own"
        config = self.model.config.get_text_config()
        kinds = set(find_setting(config, "layer_types") or ["full_attention"])
        if kinds != {"full_attention"}:
            return f"its layers are not all full attention ({', '.join(sorted(kinds))})"
        if self.stretches:
            return "its positions depend on the longest sequence beside them"
        if self._shape is None:
            return "its layers differ in heads or sizes"
        if "logits_to_keep" not in inspect.signature(self.model.forward).parameters:
            return "its forward pass takes no logits_to_keep"
        own = self.model.config._attn_implementation
        if own == IMPLEMENTATION:
            return None
        # Two short sequences that begin alike, (2, 24): the smallest input in which a prefix is shared.
        ids = torch.arange(48, device=self.device).view(2, 24) * 7 % self.chat.size
        ids[1, :8] = ids[0, :8]
        install()
        try:
            expected = self.model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)  # (2, 24, vocabulary)
            self.model.set_attn_implementation(IMPLEMENTATION)
            # (40, vocabulary): the same log-probabilities by both ways prove that nothing else differs.
            found = self._probe(ids)
        except NotImplementedError as error:
            reason: str | None = str(error)
        except (TypeError, ValueError, RuntimeError, KeyError, AttributeError, IndexError) as error:
            reason = f"its attention cannot be replaced ({type(error).__name__}: {take_first_line(error)[:120]})"
        else:
            # Only rounding may differ; a wrong mask or scale shows at once in some of 40 distributions.
            apart = float((found - torch.cat([expected[0], expected[1, 8:]])).abs().max())
            fits = apart <= get_tolerance(self.model.dtype)
            reason = None if fits else f"its log-probabilities would differ by {apart:.2g}"
        # The model is left as it was found, or the padded engine would compute with a foreign attention.
        if reason is not None and self.model.config._attn_implementation != own:
            self.model.set_attn_implementation(own)
        return reason

    @property
    def shape(self) -> CacheShape:
        """Return the shape of a token's keys and values; ValueError for a model whose layers differ in it."""
        if self._shape is None:
            raise ValueError(f"{self.chat.path}: its layers differ in heads or sizes")
        return self._shape

    @property
    def stretches(self) -> bool:
        """Whether a token's position depends on the longest sequence that is computed with it."""
        rope = find_setting(self.model.config.get_text_config(), "rope_parameters") or {}
        kinds = {part.get("rope_type") for part in (rope, *rope.values()) if isinstance(part, dict)}
        return not kinds.isdisjoint(_STRETCHING)

    def _probe(self, ids: Tensor) -> Tensor:
        """Return log-probabilities of two sequences in one pass: all 24 tokens, then the second's last 16.

        Args:
            ids: (2, 24), of which both begin with the same 8.

        Raises:
            NotImplementedError: a layer did not compute as told.
        """
        # NaN shows which keys were never written: a layer that computes its own attention leaves them.
        kept = [self.shape.empty(tokens).fill_(torch.nan) for tokens in (8, 8, 8, 16)]
        start, middle, end, other = kept  # what is in common, two more pieces of the first sequence, one of the second
        every = torch.arange(40, device=self.device)
        # All three cases in one pass: pieces that follow each other, a piece above, and a shared beginning.
        plan = PackedPass(
            rows=(),
            segments=[
                PassSegment(first=0, kept=[start, middle]),
                PassSegment(first=16, kept=[end], above=[middle]),
                PassSegment(first=24, kept=[other]),
            ],
            shared=[SharedKeys(kv=start, tokens=every[16:])],
        )
        logits = self.forward(torch.cat([ids[0], ids[1, 8:]]), torch.cat([every[:24], every[8:24]]), None, plan)
        if not all(kv.isfinite().all() for kv in kept):
            raise NotImplementedError("some of its layers compute attention of their own")
        return logits.log_softmax(-1)

    def forward(self, ids: Tensor, positions: Tensor, keep: Tensor | None, plan: PackedPass) -> Tensor:
        """Compute one packed pass.

        Args:
            ids: (tokens,).
            positions: each token's position in its own sequence, (tokens,).
            keep: which tokens' logits are wanted; None for all.
            plan: what attends to what.

        Returns:
            Logits, float32, (kept, vocabulary).
        """
        # Packed into one row, (1, tokens): `shared_prefix` says what belongs together, so there is no mask.
        output = self.model(
            input_ids=ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=0 if keep is None else keep,
            shared_prefix=plan,
        )
        logits: Tensor = output.logits[0].float()
        return logits


_NO_MEMORY = ("not enough memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What errors say that have no class of their own, by platform and library."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a pass failed for lack of memory; the processor's allocator has no error class of its own."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(one in str(error) for one in _NO_MEMORY)


def _build_cache_shape(config: Any, dtype: torch.dtype, device: torch.device) -> CacheShape | None:
    layers, heads = find_setting(config, "num_hidden_layers"), find_setting(config, "num_attention_heads")
    if layers is None or not isinstance(heads, int):
        return None
    groups, width = find_setting(config, "num_key_value_heads") or heads, find_setting(config, "hidden_size")
    size = find_setting(config, "head_dim") or (width // heads if width else None)
    if not isinstance(groups, int) or size is None:
        return None
    return CacheShape(layers=layers, groups=groups, size=size, dtype=dtype, device=device)


def _read_configured_ends(model: Any) -> list[int]:
    ends = model.generation_config.eos_token_id if model.generation_config else None
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def choose_device(name: str) -> torch.device:
    """Return the device to compute on: "auto" takes a GPU when there is one; ConfigError for a missing device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used: {reason}; allowed: auto, cpu, cuda, cuda:1 …") from None
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype | str:
    """Return the type to compute in: "auto" is the checkpoint's own, float32 on a CPU; ConfigError for others."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if name not in _DTYPES:
        raise ConfigError(f"dtype {name!r}: allowed are auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


FILE = "collab.json"
CARD = "card.json"
"""What a training writes beside its weights: what they were made of."""


def write_layout(directory: Path) -> None:
    """Note that what lies in `directory` was trained on the present layout, and which weights these are."""
    weights = {path.name: hash_file(path) for path in sorted(directory.glob("*.safetensors"))}
    text = json.dumps({"prompt_layout": LAYOUT, "weights": weights}, indent=2)
    (directory / FILE).write_text(text + "\n", encoding="utf-8")


def check_layout(directory: Path) -> None:
    """Refuse a checkpoint of another layout, or with other weights than it was written with; ConfigError names both."""
    path = directory / FILE
    # Checkpoints from elsewhere have no such file, and make no promise about their layout.
    if not path.is_file():
        return
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        trained_on, weights = said["prompt_layout"], dict(said.get("weights", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f'{path}: cannot be read; it should hold {{"prompt_layout": "{LAYOUT}"}}') from None
    # Another layout feeds the model prompts that it has never seen.
    if trained_on != LAYOUT:
        raise ConfigError(
            f"{directory}: trained on prompt layout {trained_on!r}, prompts here have layout {LAYOUT!r}; "
            "use the Collab version that trained it, or train it again"
        )
    _check_weights(directory, weights)


def read_card(directory: Path) -> dict[str, Any]:
    """Return what `card.json` beside weights holds; empty where there is none.

    Raises:
        ConfigError: it cannot be read, or is no card: an object whose "base", where it names one, is an object.
    """
    path = directory / CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(card, dict) or not isinstance(card.get("base") or {}, dict):
        raise ConfigError(f"{path}: cannot be read: no card of a training; copy the whole directory again")
    return card


def check_over(adapter: Path, base: Path, again: str) -> None:
    """Refuse an adapter over another base than it was trained on, where its `card.json` tells which that was.

    Args:
        base: directory of a checkpoint; one that is not here cannot be compared.
        again: what to do about it, for the message.

    Raises:
        ConfigError: the two do not belong together, or the card cannot be read.
    """
    trained_on = (read_card(adapter).get("base") or {}).get("digest") if base.is_dir() else None
    if trained_on is not None and trained_on != (found := hash_weights(base)):
        raise ConfigError(
            f"{base}: not the base that {adapter} was trained on (digest {found[:12]}, expected {trained_on[:12]}); "
            f"{again}"
        )


def _check_weights(directory: Path, weights: Mapping[str, str]) -> None:
    for name, digest in weights.items():
        file = directory / name
        found = hash_file(file)[:12] if file.is_file() else "no file"
        if found != digest[:12]:
            raise ConfigError(
                f"{file}: not the weights that this checkpoint was written with "
                f"(SHA-256 {found}, expected {digest[:12]}); copy the whole directory again"
            )


def hash_weights(directory: Path) -> str:
    """Return the SHA-256 over the names and digests of a checkpoint's weights: the same wherever it lies."""
    digest = hashlib.sha256()
    for file in sorted(directory.glob("*.safetensors")):
        digest.update(f"{file.name}\x1f{hash_file(file)}\n".encode())
    return digest.hexdigest()


def hash_played_weights(base: Path, adapter: str | None) -> str:
    """Return the digest of the weights that play: the base's, and behind a plus those of the adapter over it.

    Args:
        adapter: its directory; None for the base alone.
    """
    return hash_weights(base) + ("" if adapter is None else f"+{hash_weights(Path(adapter))}")


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file; a large unchanged one is read once per process, for many adapters share a base."""
    there = path.stat()
    if there.st_size < _LARGE:
        return _hash_contents(path)
    return _hash_cached(path.resolve(), there.st_ino, there.st_size, there.st_mtime_ns)


_LARGE = 64 * 2**20
"""Bytes. Reading so many takes longer than the smallest step of a file's time, so a change afterwards shows in it."""


@functools.lru_cache(maxsize=256)
def _hash_cached(path: Path, inode: int, size: int, changed: int) -> str:
    return _hash_contents(path)


def _hash_contents(path: Path) -> str:
    with note_doing(f"hashing {path}"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
