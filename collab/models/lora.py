"""LoRA adapters over the weights of a model in memory, any number of them, one at work at a time."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from collab.errors import ConfigError
from collab.models.weights import readable


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
        try:
            self._put_in(name, path)
            _check_fits(self._model, name, path, self._path)
        except ConfigError:
            self._take_out(name)
            raise
        self._names.add(name)

    def drop(self, name: str) -> None:
        """Forget one; nothing happens when the name is unknown."""
        if name in self._names:
            self._names.remove(name)
            self._take_out(name)

    def use(self, name: str | None) -> None:
        """Compute with this one from now on; None for the base weights alone."""
        if self._peft is None or (name == self._active and not self._stale):
            return
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
        with readable(f"{self._path} with adapter {name}"):
            model = self._peft.merge_and_unload(safe_merge=True, adapter_names=[_module_name(name)])
        vars(model).pop("peft_config", None)  # or transformers would save an adapter
        return model

    def _put_in(self, name: str, path: str) -> None:
        from peft import PeftConfig, PeftModel

        self._stale = True
        with readable(f"{self._path} with adapter {path}"):
            kind = PeftConfig.from_pretrained(path).peft_type
            if str(getattr(kind, "value", kind)) != "LORA":
                raise ConfigError(f"{path}: a {kind} adapter; only LoRA adapters can be used")
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


def _check_fits(model: Any, name: str, path: str, base: str) -> None:
    """ConfigError when the file holds weights for modules that this model does not have, or lacks some it has."""
    from safetensors import safe_open

    with safe_open(Path(path) / "adapter_model.safetensors", "pt") as file:
        given = {key.removeprefix("base_model.model.") for key in file.keys()}
    tag = f".{_module_name(name)}."
    wanted = {key.replace(tag, ".") for key, _ in model.named_parameters() if tag in key}
    if given != wanted:
        odd = sorted(given ^ wanted)
        raise ConfigError(
            f"{path}: made for another base than {base}: {len(given - wanted)} of its weights have no place there, "
            f"{len(wanted - given)} are missing, for example {odd[0]}"
        )
