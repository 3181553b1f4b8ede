"""Whether labels were made by the critic that is named now.

    head = head_now(definition, texts, stored)         # what it would write beside its words
    told = other_than("mine", stored, head)            # "critic 'outcome-1', now it is 'oracle-2'", or None

What decides scores is compared: critic, options, prompt texts, weights. How a model is reached and paid is not, and
neither is where a reward model lies whose weights are known, as for calibrations (`collab.critics.deciding`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from collab.config import validate
from collab.credit.labels import LabelHead
from collab.critics import MODEL, CriticDefinition, deciding
from collab.library import checkpoint
from collab.models.layout import played_digest
from collab.redact import hide_values
from collab.resolve import class_of

WEIGHTS = "weights"
"""Option of a labelling that names the weights by which it was made."""
_SHOWN = 40
"""Values are shown up to so many characters."""


def definition_of(name: str, head: LabelHead) -> CriticDefinition:
    """The critic that made a labelling, as far as its head tells; ConfigError when what it tells does not fit."""
    told = head.options
    if "critic" in told:
        return validate(CriticDefinition, told["critic"], f"labels {name!r}: critic")
    kind = str(told.get("kind", head.critic.rpartition("-")[0]))
    return CriticDefinition(kind=kind, options=dict(told.get("options", {})))


def head_now(definition: CriticDefinition, texts: Mapping[str, str], stored: LabelHead) -> LabelHead:
    """What a critic would write as the head of labels that are there; nothing is loaded, and nobody is asked.

    What cannot be known so is as in the stored head: name and version that only a made critic tells, weights that no
    longer lie where they lay on this machine, and the seed, which labels keep. Weights that lie nowhere and were
    elsewhere before are left out.

    Raises:
        ConfigError: its class cannot be imported.
    """
    made = class_of("critics", definition, f"critic {definition.kind}")
    said, version = getattr(made, "name", None), getattr(made, "version", None)
    critic = f"{said}-{version}" if isinstance(said, str) and isinstance(version, str) else stored.critic
    options: dict[str, Any] = {"critic": definition.model_dump(mode="json", exclude={"description"}), "texts": texts}
    if WEIGHTS in stored.options:
        known = stored.options[WEIGHTS] if _places(definition) == _places(definition_of("", stored)) else None
        found = _weights(definition) or known
        options |= {} if found is None else {WEIGHTS: found}
    return replace(stored, critic=critic, options=options)


def other_than(name: str, old: LabelHead, new: LabelHead) -> str | None:
    """In what the critic of one head is another than that of the other, in words; None where they are the same.

    Args:
        name: of the labels, for messages.
    """
    weighed = WEIGHTS in old.options and WEIGHTS in new.options
    first, second = (_deciding(name, head, placeless=weighed) for head in (old, new))
    for what, before, after in _differing(first, second):
        shown = repr(before), repr(after)
        return f"other {what}" if max(map(len, shown)) > _SHOWN else f"{what} {shown[0]}, now it is {shown[1]}"
    return None


def _deciding(name: str, head: LabelHead, *, placeless: bool) -> dict[str, Any]:
    """All of a head that decides scores, as it is stored: without secrets."""
    told = deciding(definition_of(name, head), placeless=placeless)
    whole = {"critic": head.critic, **told, "texts": head.options.get("texts", {})}
    whole[WEIGHTS] = head.options.get(WEIGHTS)
    stored: dict[str, Any] = hide_values(json.loads(json.dumps(whole, default=str)))
    return stored


def _weights(definition: CriticDefinition) -> str | None:
    """Digest of the weights that a definition names by a path; None where none lie there."""
    path, adapter = _places(definition)
    folders = [Path(checkpoint(str(path))), *([] if adapter is None else [Path(str(adapter))])]
    there = path is not None and all(folder.is_dir() for folder in folders)
    return played_digest(folders[0], adapter) if there else None


def _places(definition: CriticDefinition) -> tuple[Any, Any]:
    """Where a definition says that the checkpoint and its adapter lie; None for what it does not say."""
    engine = definition.options.get(MODEL)
    options = engine.get("options", {}) if isinstance(engine, dict) else definition.options
    return options.get("path"), options.get("adapter")


def _differing(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Places at which two values of JSON are not the same, with both values; None where one is not said."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _differing(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    elif old != new:
        yield where, old, new
