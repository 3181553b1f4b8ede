"""LoRA adapters over the weights of a model in memory, any number of them, one at work at a time."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from collab.errors import ConfigError
from collab.models.weights import readable

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
        before = self._snapshot(path)
        try:
            self._put_in(name, path)
            _check_fits(self._model, self._peft, name, path, self._path)
            changed = {
                weight: weight.detach().clone() for weight, old in before.items() if not torch.equal(weight, old)
            }
        except ConfigError:
            _write_back(before)
            self._take_out(name)
            raise
        _write_back(before)
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
            self._peft.set_adapter(_module_name(name))
        self._active, self._stale = name, False

    def merged(self, name: str) -> Any:
        """The model with this one added to its weights; no adapter is left in it, and this object is done.

        Raises:
            ConfigError: the sum holds a weight that is no number.
        """
        self.use(name)
        if not self._peft.peft_config[_module_name(name)].ensure_weight_tying:
            _untie(self._model, _module_name(name))
        with readable(f"{self._path} with adapter {name}"):
            model = self._peft.merge_and_unload(safe_merge=True, adapter_names=[_module_name(name)])
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
        everything = _begins_oddly(path)
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
                self._peft = PeftModel.from_pretrained(self._model, path, adapter_name=_module_name(name))
            else:
                self._peft.load_adapter(path, adapter_name=_module_name(name))
        self._model.eval()

    def _take_out(self, name: str) -> None:
        """Also where putting it in has failed on the way."""
        from peft.tuners.tuners_utils import BaseTunerLayer

        module = _module_name(name)
        if self._peft is not None and module in self._peft.peft_config:
            self._peft.delete_adapter(module)
        for layer in self._model.modules():
            if isinstance(layer, BaseTunerLayer):
                layer.delete_adapter(module)
        if self._peft is None:
            vars(self._model).pop("peft_config", None)  # or peft would take the model for one that has adapters
        self._stale = True


def _module_name(adapter: str) -> str:
    """Adapter names become parts of module names, where dots separate and nothing may collide."""
    return f"adapter_{hashlib.sha256(adapter.encode()).hexdigest()[:16]}"


def _write_back(values: Mapping[Any, Tensor]) -> None:
    with torch.no_grad():
        for weight, value in values.items():
            weight.copy_(value)


def _begins_oddly(path: str) -> bool:
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
    changed = [module in dict(part.named_modules()) or _holds(part, module) for part in (embeddings, head)]
    if any(changed):
        own = getattr(head, "base_layer", getattr(head, "original_module", head))
        own.weight = torch.nn.Parameter(own.weight.detach().clone(), requires_grad=False)
        for config in {id(one): one for one in (model.config, model.config.get_text_config())}.values():
            config.tie_word_embeddings = False


def _holds(part: Any, module: str) -> bool:
    """Whether an adapter of that name has weights in a part of the model."""
    return any(module in name.split(".") for name in part.state_dict())


def _check_fits(model: Any, peft: Any, name: str, path: str, base: str) -> None:
    """Refuse a file whose weights are not those that PEFT itself would write for this adapter over this base."""
    from peft import get_peft_model_state_dict
    from safetensors import safe_open

    with readable(path), safe_open(Path(path) / "adapter_model.safetensors", "pt") as file:
        given = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}
    with readable(path):
        own = get_peft_model_state_dict(peft, adapter_name=_module_name(name), save_embedding_layers=False)
    wanted = {key: list(weight.shape) for key, weight in own.items()}
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
