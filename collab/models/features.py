"""Frozen features of states, which value models are fitted on: one row of numbers per state.

    encoder = HiddenEncoder(path="built-in:pocket")
    features = encoder.encode([FeatureInput(ids=ids), FeatureInput(text="Turn on Wi-Fi.")])   # (2, 256), float32

    encoder = TransformersEncoder(text="models/roberta-base", image="models/dinov2-small")
    features = encoder.encode([FeatureInput(text=screen, pictures=(before, now))])           # (1, 768 + 2 × 384)

DigiRL's value functions are small networks over a frozen image encoder (that of BLIP-2), with features of the text by
RoBERTa beside it (paper, appendix A). `TransformersEncoder` is that, with any encoders. `HiddenEncoder` needs no other
checkpoint: it reads the hidden state of the policy that a training starts from.

An encoder is never trained. Its digest names all that decides a row, so equal digests mean equal features. A row
depends on its own state alone, not on the order of the states. On a processor each state is computed by itself, which
takes no longer than a batch and gives the same bits beside any other states. Batches, the default on a GPU, differ by
rounding: computed on a processor, by about 1e-6 of a row's largest number.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collab.errors import ConfigError, ModelFailure
from collab.library import resolve_checkpoint
from collab.models.checkpoint import Checkpoint, choose_device, choose_dtype, is_out_of_memory
from collab.models.checkpoint_card import hash_played_weights, hash_weights
from collab.models.local import check_fetched, check_files
from collab.models.tokenizer import hash_tokenizer, make_code_error, open_chat, silence_transformers, take_first_line
from collab.models.vision import open_image_processor, read_pixels
from collab.models.weights import load_model, read_context_length
from collab.types import Prompt

Rows: TypeAlias = NDArray[np.float32]
"""(states, size), or one row, (size,)."""
Pool: TypeAlias = Literal["last", "mean"]
"""The hidden state at the last token, or the mean over all tokens."""
ItemT = TypeVar("ItemT", bound=Hashable)

_BATCH = 16
"""Texts computed together on a GPU."""
_LONGEST = 512
"""Tokens of a text that an encoder reads at most; the first ones are cut, as DigiRL's released code does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureInput:
    """Parts of a state that an encoder may read, or an instruction alone (`text` only)."""

    ids: tuple[int, ...] = ()
    """Token ids of a prompt in the policy's tokenizer; empty for an instruction alone."""
    text: str = ""
    """The state in words, or the instruction."""
    pictures: tuple[bytes, ...] = ()
    """Encoded screenshots, the present one last; only the one before it is read besides."""


class FeatureEncoder(Protocol):
    """Computes features; frozen for a whole training."""

    @property
    def size(self) -> int:
        """Numbers per state."""

    @property
    def digest(self) -> str:
        """SHA-256 of weights and settings: of all that decides a row."""

    def encode(self, states: Sequence[FeatureInput]) -> Rows:
        """Return the features of each state, in order, (states, size); not to be called by two threads at once.

        Raises:
            ConfigError: a state lacks what the encoder reads, or is too long for it.
            ModelFailure: memory runs out, a picture cannot be read, or features are NaN or infinite.
        """


class HiddenEncoder:
    """The last layer's hidden state of a language model, at the end of the policy's own prompt.

    A state is read as the ids of its prompt. An instruction alone is put into a prompt without system text and screen:
    the chat template around the user turn "Task: TEXT" and a line break, as prompts of `prompts/default` begin.

    Args:
        path: directory with config.json, safetensors weights, tokenizer and chat template; or "built-in:NAME".
        adapter: directory of a LoRA adapter over it; None for the base alone.
        pool: "last" reads the prompt's last token, which opens the reply and has seen everything; "mean" averages over
            all tokens.
        device: "auto" (a GPU when there is one), "cpu", "cuda", "cuda:1" …
        dtype: "float32" on all devices, so that features can be compared; "bfloat16" or "float16" halve the memory.
        batch: prompts computed together; None for 1 on a processor and 16 on a GPU. Halved when memory runs out.

    Raises:
        ConfigError: there is no such checkpoint, it sees, or it has no layers without its output layer.
    """

    def __init__(
        self,
        *,
        path: str,
        adapter: str | None = None,
        pool: Pool = "last",
        device: str = "auto",
        dtype: str = "float32",
        batch: int | None = None,
    ) -> None:
        folder = _find_folder(path)
        check_files(str(folder))
        loaded = Checkpoint(open_chat(str(folder)), device=device, dtype=dtype)
        if loaded.family is not None or loaded.model.base_model is loaded.model:
            raise ConfigError(
                f"{path}: models of type {loaded.model.config.model_type} give no hidden states of a text here; "
                "name an encoder of its own (kind: transformers)"
            )
        if adapter is not None:
            loaded.add_adapter("policy", adapter)
            loaded.use("policy")
        self._path, self._pool, self._checkpoint = path, pool, loaded
        # Positions that stretch with the longest sequence of a batch would make rows depend on each other.
        self._batch = 1 if loaded.has_stretched_positions else _choose_batch(batch, loaded.device)
        parts = (hash_played_weights(folder, adapter), loaded.chat.fingerprint, pool, str(loaded.model.dtype))
        self.digest: str = _hash_parts("hidden", *parts)
        # One word shows the size, and that the model can be read, before anything is played.
        self.size: int = self._compute([self._build_task_prompt("Wait.")]).popitem()[1].size

    def encode(self, states: Sequence[FeatureInput]) -> Rows:
        """Return features, see `FeatureEncoder.encode`."""
        rows = [state.ids or self._build_task_prompt(state.text) for state in states]
        longest = max(map(len, rows), default=0)
        if longest > self._checkpoint.context:
            raise ConfigError(
                f"{self._path}: a prompt has {longest} tokens, and features are read of {self._checkpoint.context} at "
                "most; shorten prompts (agents' history, elements), or name another encoder"
            )
        found = self._compute(rows)
        return _stack([found[row] for row in rows], self.size)

    def _compute(self, rows: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Rows]:
        model = self._checkpoint.model.base_model
        return _compute_texts(model, rows, self._pool, self._batch, self._path)

    def _build_task_prompt(self, text: str) -> tuple[int, ...]:
        if not text:
            raise ConfigError(f"{self._path}: a state without a prompt and without a text has no features")
        return self._checkpoint.chat.prompt_ids(Prompt(system="", shared=f"Task: {text}\n", segments=())).ids


class TransformersEncoder:
    """Any encoders that transformers knows: of the text, of the picture, or both side by side.

    A row is [text, picture of the step before, present picture]. The first step has its own picture twice, as in
    DigiRL's released code. An instruction alone, without pictures, has zeros in their place. The text's features are
    the mean over its tokens: a frozen RoBERTa has no pooling layer (the released code uses an untrained one). A
    picture's are the model's own pooled ones where it has them, else the mean over its patches.

    Of a checkpoint with both towers (CLIP, SigLIP) or with a language model (BLIP-2), the part in question is kept.

    Args:
        text: directory with config.json, safetensors weights and tokenizer (BERT, RoBERTa …); None reads no text.
        image: directory with config.json, safetensors weights and preprocessor_config.json (SigLIP, DINOv2, CLIP,
            BLIP-2 …); None reads no pictures.
        device, dtype, batch: as for `HiddenEncoder`. `batch` counts texts; pictures are computed one by one.

    Raises:
        ConfigError: neither directory is named, or one holds no such encoder.
    """

    def __init__(
        self,
        *,
        text: str | None = None,
        image: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        batch: int | None = None,
    ) -> None:
        if text is None and image is None:
            raise ConfigError("encoder of kind transformers: name a directory in text, in image, or in both")
        place = choose_device(device)
        kind = choose_dtype(dtype, place)
        self._text = None if text is None else _TextTower(text, place, kind, _choose_batch(batch, place))
        self._image = None if image is None else _ImageTower(image, place, kind)
        towers = [tower for tower in (self._text, self._image) if tower is not None]
        self.size: int = sum(tower.size for tower in towers)
        self.digest: str = _hash_parts("transformers", *(tower.digest for tower in towers))

    def encode(self, states: Sequence[FeatureInput]) -> Rows:
        """Return features, see `FeatureEncoder.encode`."""
        # A row of zeros, or of no words, would look like a state.
        if not all((self._text and state.text) or (self._image and state.pictures) for state in states):
            kinds = [name for name, tower in (("text", self._text), ("picture", self._image)) if tower is not None]
            advice = "" if self._text else "; name a text encoder, too, for instructions alone"
            raise ConfigError(
                f"encoder of kind transformers: a state without a {' or '.join(kinds)} has no features{advice}"
            )
        parts: list[Rows] = []
        if self._text is not None:
            parts.append(self._text.encode([state.text for state in states]))
        if self._image is not None:
            parts.append(self._image.encode([state.pictures[-2:] for state in states]))
        return np.concatenate(parts, axis=1)


class _TextTower:
    def __init__(self, path: str, device: torch.device, dtype: Any, batch: int) -> None:
        folder = _find_folder(path)
        model = _load_tower(folder, path, "text", dtype)
        self._tokenizer = _open_tokenizer(folder)
        self._path, self._batch, self._model = path, batch, model.to(device)
        # RoBERTa numbers positions from 2: that many fewer tokens than positions.
        self._longest = min(self._tokenizer.model_max_length, read_context_length(model.config) - 2, _LONGEST)
        self.digest = _hash_parts(hash_weights(folder), hash_tokenizer(self._tokenizer), str(model.dtype))
        self.size: int = self._compute([self._tokenize("Wait.")]).popitem()[1].size

    def encode(self, texts: Sequence[str]) -> Rows:
        rows = [self._tokenize(text) for text in texts]
        found = self._compute(rows)
        return _stack([found[row] for row in rows], self.size)

    def _compute(self, rows: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Rows]:
        return _compute_texts(self._model, rows, "mean", self._batch, self._path)

    def _tokenize(self, text: str) -> tuple[int, ...]:
        # Cut on the left: the goal and the latest actions stand at a text's end in DigiRL's prompts.
        read = self._tokenizer(text, truncation=True, max_length=self._longest)
        return tuple(read["input_ids"]) or (0,)


class _ImageTower:
    def __init__(self, path: str, device: torch.device, dtype: Any) -> None:
        folder = _find_folder(path)
        self._path = path
        self._model = _load_tower(folder, path, "vision", dtype).to(device)
        self._processor = open_image_processor(str(folder))
        settings = json.dumps(self._processor.to_dict(), sort_keys=True, default=str)
        self.digest = _hash_parts(hash_weights(folder), settings, str(self._model.dtype))
        self.size: int = 2 * self._compute([_draw_black()]).popitem()[1].size

    def encode(self, pictures: Sequence[tuple[bytes, ...]]) -> Rows:
        found = self._compute([one for pair in pictures for one in pair])
        nothing = np.zeros(self.size, dtype=np.float32)
        # pair[0] and pair[-1]: the same picture twice where there is none before it.
        rows = [np.concatenate([found[pair[0]], found[pair[-1]]]) if pair else nothing for pair in pictures]
        return _stack(rows, self.size)

    def _compute(self, pictures: Sequence[bytes]) -> dict[bytes, Rows]:
        def run(part: Sequence[bytes]) -> Tensor:
            inputs = read_pixels(self._processor, part[0], self._path)
            output = self._model(**{name: _place(value, self._model) for name, value in inputs.items()})
            pooled = getattr(output, "pooler_output", None)
            # Patches stand in one dimension, (1, patches, size), or for convolutions in two, (1, size, rows, columns).
            hidden = output.last_hidden_state
            if pooled is None:
                pooled = hidden.mean(1) if hidden.ndim == 3 else hidden.flatten(2).mean(2)
            features: Tensor = pooled.flatten(1)
            return features

        return _compute_rows(sorted(set(pictures)), run, 1, self._path)


def _draw_black() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "PNG")
    return file.getvalue()


# ------------------------------------------------------------------------------------------------------ inside


def _find_folder(path: str) -> Path:
    folder = Path(resolve_checkpoint(path))
    if not folder.is_dir():
        raise ConfigError(f"{path}: no such model directory; name the one of an encoder")
    return folder


def _load_tower(folder: Path, path: str, part: Literal["text", "vision"], dtype: Any) -> Any:
    """Load the part of a checkpoint that reads texts or pictures; ConfigError without one."""
    check_fetched(folder)
    model = load_model(folder, dtype=dtype, head="none", named=path)
    tower = model.get_encoder() if model.config.is_encoder_decoder else getattr(model, f"{part}_model", model)
    own, other = ("input_ids", "pixel_values") if part == "text" else ("pixel_values", "input_ids")
    read = inspect.signature(tower.forward).parameters
    if own not in read or other in read:
        what = "texts (BERT, RoBERTa …)" if part == "text" else "pictures (SigLIP, DINOv2, CLIP, BLIP-2 …)"
        raise ConfigError(f"{path}: models of type {model.config.model_type} are no encoders of {what}")
    return tower


def _open_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        with silence_transformers():
            options = {"local_files_only": True, "trust_remote_code": False, "truncation_side": "left"}
            return AutoTokenizer.from_pretrained(folder, **options)
    except Exception as error:  # the libraries that read tokenizers have errors of their own
        raise make_code_error(str(folder), error) or ConfigError(
            f"{folder}: the tokenizer cannot be loaded: {take_first_line(error)}"
        ) from error


def _choose_batch(batch: int | None, device: torch.device) -> int:
    if batch is not None and batch < 1:
        raise ConfigError(f"encoder: batch {batch}; allowed: from 1")
    return batch or (1 if device.type == "cpu" else _BATCH)


def _compute_texts(
    model: Any, rows: Collection[tuple[int, ...]], pool: Pool, batch: int, named: str
) -> dict[tuple[int, ...], Rows]:
    """Return the pooled last hidden state of each sequence of ids; none may be empty."""

    def run(part: Sequence[tuple[int, ...]]) -> Tensor:
        lengths = torch.tensor([len(row) for row in part])
        longest = int(lengths.max())
        ids = torch.tensor([[*row, *(0,) * (longest - len(row))] for row in part])  # (rows, longest)
        mask = torch.arange(longest) < lengths[:, None]  # padding on the right, which causal attention cannot see
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        placed = {name: _place(value, model) for name, value in inputs.items()}
        options = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
        hidden: Tensor = model(**placed, **options).last_hidden_state.float()  # (rows, longest, size)
        if pool == "last":
            return hidden[torch.arange(len(part)), lengths - 1]
        seen = mask.to(hidden.device)[..., None]
        return hidden.where(seen, 0).sum(1) / seen.sum(1)

    # Neighbours of similar length waste little, and the order of the states decides nothing.
    return _compute_rows(sorted(set(rows), key=lambda row: (len(row), row)), run, batch, named)


@torch.inference_mode()
def _compute_rows(
    items: Sequence[ItemT], run: Callable[[Sequence[ItemT]], Tensor], batch: int, named: str
) -> dict[ItemT, Rows]:
    """Return each item's row; the batch is halved when memory runs out.

    Args:
        items: all different.
        run: computes the rows of a part, (items, size).
        named: the checkpoint's name in messages.
    """
    found: dict[ItemT, Rows] = {}
    while len(found) < len(items):
        part = items[len(found) : len(found) + batch]
        try:
            rows = run(part).float().cpu().numpy()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if batch == 1:
                raise ModelFailure(f"{named}: features of a state do not fit into memory") from error
            batch = (batch + 1) // 2
            continue
        if not np.isfinite(rows).all():
            raise ModelFailure(f"{named}: features of a state are NaN or infinite; set dtype: float32")
        found.update(zip(part, rows, strict=True))
    return found


def _place(value: Tensor, model: Any) -> Tensor:
    """Move an input to the model, in its type where it is a number of a picture."""
    return value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)


def _stack(rows: Sequence[Rows], size: int) -> Rows:
    return np.stack(rows) if rows else np.zeros((0, size), dtype=np.float32)


def _hash_parts(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
