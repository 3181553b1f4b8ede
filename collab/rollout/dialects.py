"""The dialect that an agents file sets or its model is known for, and whether it fits the agent and the environment."""

from __future__ import annotations

from collab.config import AgentDefinition
from collab.dialects.base import Dialect
from collab.dialects.registry import DIALECTS, find_dialect, guess_dialect
from collab.errors import ConfigError

GUESSED = "auto"
"""Dialect that is guessed from the model's name or configuration."""


def find_model_name(definition: AgentDefinition) -> str:
    """Return the name or path of an agent's model, empty if its options name none."""
    named = (definition.options.get(option) for option in ("model", "path"))
    return next((one for one in named if isinstance(one, str)), "")


def load_dialect(definition: AgentDefinition, where: str) -> Dialect | None:
    """Return the dialect of an agent, None if it has none.

    Raises:
        UnknownName: there is no such dialect.
        ConfigError: it does not go together with the rest of the definition.
    """
    if definition.kind == "computer-use":
        dialect = _find_own_dialect(definition, where)
    elif definition.dialect is None:
        return None
    elif definition.dialect == GUESSED:
        dialect = _guess(definition, where)
    else:
        dialect = find_dialect(definition.dialect, where)
    # Refused here and not at the first reply: no model of an agents file answers in items, or sees without a picture.
    if dialect.typed_items and definition.kind != "computer-use":
        raise ConfigError(
            f"{where}: dialect: {dialect.name} speaks in typed items of its vendor's interface, and kind: "
            f"{definition.kind} answers with text; use kind: computer-use, or another dialect: collab agents dialects"
        )
    if definition.modality == "text":
        raise ConfigError(
            f"{where}: dialect: {dialect.name} answers to a picture, but modality: text shows none; "
            "set modality: image, or both to add the screen as text"
        )
    return dialect


def _guess(definition: AgentDefinition, where: str) -> Dialect:
    """Return the dialect that the agent's model is known for; ConfigError if there is none."""
    model = find_model_name(definition)
    if not model:
        raise ConfigError(
            f"{where}: dialect: {GUESSED} is guessed from options.model or options.path, and neither is set; "
            "set one, or name a dialect, see: collab agents dialects"
        )
    guessed = guess_dialect(model)
    if guessed is None:
        raise ConfigError(
            f"{where}: dialect: {GUESSED} knows no dialect of the model {model!r}; "
            "name one, see: collab agents dialects"
        )
    return guessed


def _find_own_dialect(definition: AgentDefinition, where: str) -> Dialect:
    """Return the dialect of a vendor's own interface, which is the only one that it speaks."""
    own = f"{definition.options.get('vendor')}-computer"
    if definition.dialect not in (None, GUESSED, own):
        raise ConfigError(f"{where}: dialect is {definition.dialect!r}, allowed with this vendor: {own}, or none")
    return find_dialect(own, where)


def check_dialect(definition: AgentDefinition, space: str, where: str) -> None:
    """Refuse a dialect in an environment that it has no words for, with a ConfigError."""
    dialect = load_dialect(definition, where)
    if dialect is None or space in dialect.worlds:
        return
    fitting = [one.name for one in DIALECTS.values() if space in one.worlds and not one.typed_items]
    allowed = f"allowed: {', '.join(fitting)}"
    if definition.kind == "computer-use":
        allowed = "its interface is for pages: choose an environment of pages, or another kind"
    raise ConfigError(
        f"{where}: dialect: {dialect.name} is for {' and '.join(dialect.worlds)} actions, the environment takes "
        f"{space} actions; {allowed}"
    )


def describe_dialect(definition: AgentDefinition, where: str) -> str | None:
    """Return the agent's dialect and where it comes from, or one that its model is known for; None for neither.

    Raises:
        UnknownName, ConfigError: as `load_dialect`.
    """
    dialect, model = load_dialect(definition, where), find_model_name(definition)
    if dialect is not None:
        origin = f", guessed from the model {model}" if definition.dialect == GUESSED else ""
        return f"dialect {dialect.name}{origin}"
    known = guess_dialect(model) if model else None
    if known is None or known.typed_items:
        return None
    return f"no dialect is set, and {model} speaks {known.name}: set dialect: {known.name} and modality: image"
