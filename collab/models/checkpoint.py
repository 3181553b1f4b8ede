"""A causal language model in memory, with or without vision: its weights, and one packed forward pass.

Any number of LoRA adapters lie over the weights in memory; one is active at a time.
"""

from __future__ import annotations

import hashlib
import inspect
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
from collab.models.weights import (
    FAMILIES,
    PLAIN,
    check_vocabulary,
    find_setting,
    get_text_config,
    load_model,
    read_context_length,
    readable,
)


class Adapters:
    """The adapters of one model.

    Args:
        model: transformers model that adapters are injected into.
        path: its origin, for messages.
    """

    def __init__(self, model: Any, path: str) -> None:
        self._model = model
        self._path = path
        self._peft: Any = None
        self._names: set[str] = set()
        self._base: dict[Any, Tensor] = {}
        """Base weights that an adapter replaces (e.g. biases) → their values without an adapter."""
        self._replaced: dict[str, dict[Any, Tensor]] = {}
        """Adapter → base weights that it replaces → its values."""
        self._active: str | None = None
        """The active adapter; None for the base weights."""
        self._stale = False
        """Whether `_active` must be set again because adapters were added or dropped."""

    def add(self, name: str, path: str) -> None:
        """Load an adapter under a name; do nothing if the name is known.

        Raises:
            ConfigError: it cannot be read, is no LoRA, or was made for another base; nothing has changed then.
        """
        if name in self._names:
            return
        # Loading an adapter may change the base (biases, embeddings, PiSSA), but other adapters need the original.
        before = self._snapshot(path)
        try:
            self._put_in(name, path)
            _check_fits(self._model, self._peft, name, path, self._path)
            # Changed base weights belong to this adapter and are written back whenever it is active.
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
        """Remove an adapter; do nothing if the name is unknown."""
        if name in self._names:
            self._names.remove(name)
            self._replaced.pop(name)
            self._take_out(name)

    def use(self, name: str | None) -> None:
        """Activate this adapter; None for the base weights alone."""
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
        """Merge this adapter into the model's weights and return the model; do not use this object afterwards.

        Raises:
            ConfigError: it cannot be merged, a merged weight is NaN or infinite, or the result computes something else.
        """
        self.use(name)
        named = f"{name}: cannot be added to {self._path}"
        try:
            before = _compute_sample(self._model)
            _untie(self._model, _make_module_name(name))
            model = self._peft.merge_and_unload(safe_merge=True, adapter_names=[_make_module_name(name)])
        except Exception as error:  # PEFT's kinds of adapters refuse with errors of any type, and none means a bug here
            raise ConfigError(f"{named}: {take_first_line(error)}; play it over its base instead") from error
        vars(model).pop("peft_config", None)  # or transformers would save an adapter
        after = _compute_sample(model)
        if before is not None and after is not None:
            apart = float((after - before).abs().max())
            if not apart <= _MERGED:
                raise ConfigError(
                    f"{named}: log-probabilities would differ by {apart:.2g}; play it over its base instead"
                )
        return model

    def _snapshot(self, path: str) -> dict[Any, Tensor]:
        """Return the values of the base weights that loading an adapter may replace.

        PEFT writes biases and embeddings from an adapter's file into the base. Some initialisations (PiSSA) also
        subtract from the base what they put into the adapter.
        """
        self.use(None)
        embeddings = [self._model.get_input_embeddings(), self._model.get_output_embeddings()]
        kept = {weight for part in embeddings if part is not None for weight in part.parameters()}
        everything = _has_changed_base(path)
        return {
            weight: weight.detach().clone()
            for name, weight in self._model.named_parameters()
            if (everything or weight in kept or name.endswith("bias")) and ".lora_" not in name
        }

    def _put_in(self, name: str, path: str) -> None:
        from peft import PeftConfig, PeftModel

        self._stale = True
        with readable(f"{self._path} with adapter {path}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # `_check_fits` compares what matters
            config = PeftConfig.from_pretrained(path)
            kind = str(getattr(config.peft_type, "value", config.peft_type))
            if kind != "LORA":
                raise ConfigError(f"{path}: an adapter of kind {kind}; only LoRA adapters can be used")
            if getattr(config, "alora_invocation_tokens", None):  # which begins in the middle of a prompt
                raise ConfigError(f"{path}: an activated LoRA (alora_invocation_tokens), which cannot be used here")
            if getattr(
                config, "layer_replication", None
            ):  # it would repeat layers of the base, for every policy over it
                raise ConfigError(
                    f"{path}: it repeats layers of its base (layer_replication), which cannot be used here"
                )
            # Some kinds take a random decomposition of the base apart (pissa_niter_4): always the same one here.
            with torch.random.fork_rng(devices=[self._model.device] if self._model.device.type == "cuda" else []):
                torch.manual_seed(0)
                if self._peft is None:
                    self._peft = PeftModel.from_pretrained(self._model, path, adapter_name=_make_module_name(name))
                else:
                    self._peft.load_adapter(path, adapter_name=_make_module_name(name))
        self._model.eval()

    def _take_out(self, name: str) -> None:
        """Remove an adapter, also after loading it has failed half-way."""
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
    """Return a unique module name without dots for an adapter."""
    return f"adapter_{hashlib.sha256(adapter.encode()).hexdigest()[:16]}"


def _write_back(values: Mapping[Any, Tensor]) -> None:
    with torch.no_grad():
        for weight, value in values.items():
            weight.copy_(value)


def _has_changed_base(path: str) -> bool:
    """Return whether loading an adapter changes the base weights (PiSSA, OLoRA …)."""
    from peft import PeftConfig

    with readable(path), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of fields that this PEFT does not know
        return getattr(PeftConfig.from_pretrained(path), "init_lora_weights", True) not in PLAIN


_MERGED = 0.01
"""Largest difference of log-probabilities, in float32, between an adapter over its base and its merged weights."""


@torch.inference_mode()
def _compute_sample(model: Any) -> Tensor | None:
    """Return log-probabilities of a few tokens, (24, vocabulary); None for a model with vision."""
    if model.config.model_type in FAMILIES:
        return None
    ids = torch.arange(24, device=model.device)[None] * (model.config.get_text_config().vocab_size - 1) // 23
    logits: Tensor = model(input_ids=ids, use_cache=False).logits[0].float()
    return logits.log_softmax(-1)


def _untie(model: Any, module: str) -> None:
    """Untie output layer and embeddings if an adapter changes either, but not if it replaces both by one weight."""
    parts = [model.get_input_embeddings(), model.get_output_embeddings()]
    if any(part is None for part in parts):
        return
    inner = [_find_innermost(part) for part in parts]
    if inner[0].weight is not inner[1].weight:
        return
    replaced = [getattr(part, "modules_to_save", {}) for part in parts]
    if all(module in one for one in replaced) and replaced[0][module].weight is replaced[1][module].weight:
        return
    if any(module in dict(part.named_modules()) or _has_weights_in(part, module) for part in parts):
        inner[1].weight = torch.nn.Parameter(inner[1].weight.detach().clone(), requires_grad=False)
        for config in {id(one): one for one in (model.config, model.config.get_text_config())}.values():
            config.tie_word_embeddings = False


def _find_innermost(part: Any) -> Any:
    """Return the layer of the base within what PEFT puts around it."""
    for name in ("token_adapter", "base_layer", "original_module"):
        within = getattr(part, name, None)
        if within is not None:
            return _find_innermost(within)
    return part


def _has_weights_in(part: Any, module: str) -> bool:
    """Return whether the adapter module has weights in a part of the model."""
    return any(module in name.split(".") for name in part.state_dict())


def _check_fits(model: Any, peft: Any, name: str, path: str, base: str) -> None:
    """Check that a file holds the weights that PEFT would write for this adapter and base; else ConfigError."""
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
    """Return whether a weight belongs to an embedding or output layer, which PEFT stores beside the adapter."""
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
"""RoPE kinds whose positions change for the whole batch when a sequence becomes long."""


def get_tolerance(dtype: torch.dtype, expected: Tensor) -> float:
    """Return how far log-probabilities may be from the expected ones by rounding alone.

    Args:
        dtype: that they were computed in.
        expected: (…, vocabulary); the more they spread, the larger the sums were that were rounded.
    """
    return _TOLERANCE.get(dtype, 3e-4) * float(expected.std(-1).mean())


def measure_difference(found: Tensor, expected: Tensor) -> float:
    """Return how far log-probabilities are apart: the root mean square over the vocabulary, where it is largest.

    The largest difference of a single token is no measure: it grows with the vocabulary. In bfloat16, rounding alone
    made 0.28 among two million log-probabilities of a model of 7 billion weights.

    Args:
        found: (…, vocabulary).
        expected: the same shape.
    """
    return float((found - expected).pow(2).mean(-1).sqrt().max())


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
        """Model type of a checkpoint with vision; None for text only."""
        self.image_token: int | None = self.model.config.image_token_id if self.family else None
        """Token id for a piece of a picture; None for text only."""
        self._adapters = Adapters(self.model, chat.path)
        # For checkpoints with vision, the language model's part of the configuration.
        config = get_text_config(self.model.config, chat.path)
        if hasattr(config, "output_router_logits"):  # left by a training: the loss that balances experts
            config.output_router_logits = False
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
        """Load a LoRA adapter, see `Adapters.add`."""
        self._adapters.add(name, path)

    def drop_adapter(self, name: str) -> None:
        """Remove an adapter; do nothing if the name is unknown."""
        self._adapters.drop(name)

    def use(self, adapter: str | None) -> None:
        """Activate this adapter; None for the base weights alone."""
        self._adapters.use(adapter)

    @silence_transformers()
    @torch.inference_mode()
    def share_prefixes(self) -> str | None:
        """Try to switch to attention over shared prefixes.

        Returns:
            None on success; otherwise the reason, and nothing has changed.
        """
        # Refused by configuration: the probe below would not show these differences.
        if self.family is not None:
            return f"the model sees ({self.family}), and its attention and positions are its own"
        config = self.model.config.get_text_config()
        kinds = set(find_setting(config, "layer_types") or ["full_attention"])
        if kinds != {"full_attention"}:
            return f"its layers are not all full attention ({', '.join(sorted(kinds))})"
        if self.has_stretched_positions:
            return "its positions depend on the longest sequence beside them"
        if self._shape is None:
            return "its layers differ in heads or sizes"
        if "logits_to_keep" not in inspect.signature(self.model.forward).parameters:
            return "its forward pass takes no logits_to_keep"
        own = self.model.config._attn_implementation
        if own == IMPLEMENTATION:
            return None
        # Two short sequences with a common beginning, (2, 24): the smallest input with a shared prefix.
        ids = torch.arange(48, device=self.device).view(2, 24) * 7 % self.chat.size
        ids[1, :8] = ids[0, :8]
        install()
        try:
            expected = self.model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)  # (2, 24, vocabulary)
            self.model.set_attn_implementation(IMPLEMENTATION)
            # (40, vocabulary): equal log-probabilities from both ways prove that nothing else differs.
            found = self._probe(ids)
        except NotImplementedError as error:
            reason: str | None = str(error)
        except (TypeError, ValueError, RuntimeError, KeyError, AttributeError, IndexError) as error:
            reason = f"its attention cannot be replaced ({type(error).__name__}: {take_first_line(error)[:120]})"
        else:
            # Only rounding may differ; a wrong mask or scale shows at once in some of 40 distributions.
            own_way = torch.cat([expected[0], expected[1, 8:]])
            apart = measure_difference(found, own_way)
            fits = apart <= get_tolerance(self.model.dtype, own_way)
            reason = None if fits else f"its log-probabilities would differ by {apart:.2g}"
        # On failure the model's own attention is restored for the padded engine.
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
    def has_stretched_positions(self) -> bool:
        """Return whether a token's position depends on the longest sequence in its batch."""
        rope = find_setting(self.model.config.get_text_config(), "rope_parameters") or {}
        kinds = {part.get("rope_type") for part in (rope, *rope.values()) if isinstance(part, dict)}
        return not kinds.isdisjoint(_STRETCHING)

    def _probe(self, ids: Tensor) -> Tensor:
        """Return log-probabilities of two sequences in one pass: all 24 tokens, then the second's last 16.

        Args:
            ids: (2, 24), equal in the first 8.

        Raises:
            NotImplementedError: a layer ignored the shared attention.
        """
        # NaN exposes a layer that computes its own attention: it never writes its keys.
        kept = [self.shape.empty(tokens).fill_(torch.nan) for tokens in (8, 8, 8, 16)]
        start, middle, end, other = kept  # common beginning, two more pieces of the first sequence, one of the second
        every = torch.arange(40, device=self.device)
        # All three cases in one pass: consecutive pieces, an earlier piece, and a shared beginning.
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
            keep: tokens whose logits are returned; None for all.
            plan: which tokens attend to which keys.

        Returns:
            Logits, float32, (kept, vocabulary).
        """
        # Packed into one row, (1, tokens): `shared_prefix` defines the attention, so there is no mask.
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
"""Messages of out-of-memory errors without a class of their own, by platform and library."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a pass ran out of memory; PyTorch's CPU allocator has no error class for it."""
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
