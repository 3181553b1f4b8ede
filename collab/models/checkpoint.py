"""A causal language model in memory, with or without sight: its weights, and one packed forward pass."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from collab.errors import ConfigError
from collab.models.attention import IMPLEMENTATION, Pass, Segment, Shared, install
from collab.models.chat import ChatTokenizer, first_line, quiet_transformers
from collab.models.kv_cache import Shape
from collab.models.lora import Adapters
from collab.models.vision import FAMILIES
from collab.models.weights import check_vocabulary, context_of, load_model, setting, text_config

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_TOLERANCE = {torch.bfloat16: 0.15, torch.float16: 0.05}
_STRETCHING = {"longrope", "dynamic"}
"""Kinds of positions that are reckoned anew when a sequence becomes long, for all that are computed with it."""


def tolerance_of(dtype: torch.dtype) -> float:
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
        self.device = device_of(device)
        self.dtype = dtype_of(dtype, self.device)
        self.model: Any = load_model(chat.path, dtype=self.dtype, local=not chat.download).to(self.device)
        """The transformers model, adapters injected into it."""
        kind = self.model.config.model_type
        self.family: str | None = kind if kind in FAMILIES else None
        """Model type of a checkpoint that sees; None for one that reads text only."""
        self.image_token: int | None = self.model.config.image_token_id if self.family else None
        """Id that stands for a piece of a picture; None for a checkpoint that reads text only."""
        self._adapters = Adapters(self.model, chat.path)
        config = text_config(self.model.config, chat.path)
        self.context: int = context_of(config)
        """Longest sequence in tokens; `sys.maxsize` where the model sets no limit."""
        self.ends: frozenset[int] = chat.turn_ends.union(_configured_ends(self.model))
        """Ids that end a reply."""
        check_vocabulary(chat, config)
        if max(self.ends, default=0) >= chat.size:
            raise ConfigError(
                f"{chat.path}: the model ends replies with token {max(self.ends)}, the tokenizer has {chat.size}; "
                "the tokenizer belongs to another model"
            )
        self._shape = _shape(config, self.model.dtype, self.device)

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

    @quiet_transformers()
    @torch.inference_mode()
    def share_prefixes(self) -> str | None:
        """Switch to attention over shared prefixes.

        Returns:
            None when that is how the model now computes; otherwise why it cannot, and nothing has changed.
        """
        if self.family is not None:
            return f"the model sees ({self.family}), and its attention and positions are its own"
        config = self.model.config.get_text_config()
        kinds = set(setting(config, "layer_types") or ["full_attention"])
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
        ids = torch.arange(48, device=self.device).view(2, 24) * 7 % self.chat.size
        ids[1, :8] = ids[0, :8]
        install()
        try:
            expected = self.model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
            self.model.set_attn_implementation(IMPLEMENTATION)
            found = self._probe(ids)
        except NotImplementedError as error:
            reason: str | None = str(error)
        except (TypeError, ValueError, RuntimeError, KeyError, AttributeError, IndexError) as error:
            reason = f"its attention cannot be replaced ({type(error).__name__}: {first_line(error)[:120]})"
        else:
            apart = float((found - torch.cat([expected[0], expected[1, 8:]])).abs().max())
            fits = apart <= tolerance_of(self.model.dtype)
            reason = None if fits else f"its log-probabilities would differ by {apart:.2g}"
        if reason is not None and self.model.config._attn_implementation != own:
            self.model.set_attn_implementation(own)
        return reason

    @property
    def shape(self) -> Shape:
        """Of the keys and values of a token; ValueError for a model whose layers differ in it, or have none."""
        if self._shape is None:
            raise ValueError(f"{self.chat.path}: its layers differ in heads or sizes")
        return self._shape

    @property
    def stretches(self) -> bool:
        """Whether a token's position depends on the longest sequence that is computed with it."""
        rope = setting(self.model.config.get_text_config(), "rope_parameters") or {}
        kinds = {part.get("rope_type") for part in (rope, *rope.values()) if isinstance(part, dict)}
        return not kinds.isdisjoint(_STRETCHING)

    def _probe(self, ids: Tensor) -> Tensor:
        """Log-probabilities of two sequences that begin alike, in one pass: all 24 tokens, then the second's last 16.

        Args:
            ids: (2, 24), of which both begin with the same 8.

        Raises:
            NotImplementedError: a layer did not compute as told.
        """
        kept = [self.shape.empty(tokens).fill_(torch.nan) for tokens in (8, 8, 8, 16)]
        start, middle, end, other = kept  # what is in common, two more pieces of the first sequence, one of the second
        every = torch.arange(40, device=self.device)
        plan = Pass(
            rows=(),
            segments=[
                Segment(first=0, kept=[start, middle]),
                Segment(first=16, kept=[end], above=[middle]),
                Segment(first=24, kept=[other]),
            ],
            shared=[Shared(kv=start, tokens=every[16:])],
        )
        logits = self.forward(torch.cat([ids[0], ids[1, 8:]]), torch.cat([every[:24], every[8:24]]), None, plan)
        if not all(kv.isfinite().all() for kv in kept):
            raise NotImplementedError("some of its layers compute attention of their own")
        return logits.log_softmax(-1)

    def forward(self, ids: Tensor, positions: Tensor, keep: Tensor | None, plan: Pass) -> Tensor:
        """One packed pass.

        Args:
            ids: (tokens,).
            positions: each token's position in its own sequence, (tokens,).
            keep: which tokens' logits are wanted; None for all.
            plan: what attends to what.

        Returns:
            Logits, float32, (kept, vocabulary).
        """
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


def out_of_memory(error: BaseException) -> bool:
    """Whether a pass failed for lack of memory; the processor's allocator has no error class of its own."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(one in str(error) for one in _NO_MEMORY)


def _shape(config: Any, dtype: torch.dtype, device: torch.device) -> Shape | None:
    layers, heads = setting(config, "num_hidden_layers"), setting(config, "num_attention_heads")
    if layers is None or not isinstance(heads, int):
        return None
    groups, width = setting(config, "num_key_value_heads") or heads, setting(config, "hidden_size")
    size = setting(config, "head_dim") or (width // heads if width else None)
    if not isinstance(groups, int) or size is None:
        return None
    return Shape(layers=layers, groups=groups, size=size, dtype=dtype, device=device)


def _configured_ends(model: Any) -> list[int]:
    ends = model.generation_config.eos_token_id if model.generation_config else None
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)


def device_of(name: str) -> torch.device:
    """Where to compute: "auto" takes a GPU when there is one; ConfigError when there is no such device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used: {reason}; allowed: auto, cpu, cuda, cuda:1 …") from None
    return device


def dtype_of(name: str, device: torch.device) -> torch.dtype | str:
    """What to compute in: "auto" is the checkpoint's own, float32 on a CPU; ConfigError for an unknown name."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if name not in _DTYPES:
        raise ConfigError(f"dtype {name!r}: allowed are auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]
