"""A row: one prompt, the reply to learn, and where both come from.

A row holds the very prompt that a policy would be asked, in the pieces in which it is tokenised (`Prompt`), so that a
checkpoint trains on the token ids that it will read later. Rows are plain values; `table.py` writes them as Parquet.

What a policy said may have other tokens than its text: a hot one does not always spell as its tokenizer would. Such
tokens stand beside the text, of a reply as `Sampled`, of a message in the prompt as `Segment.tokens`. They are learned
where they belong to the tokenizer of the checkpoint; elsewhere, and where there are none, those of the text are.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from collab.data.splits import TrainingInstance
from collab.types import Prompt

Level: TypeAlias = Literal["basic", "instruction", "demonstration", "preference"]
LEVELS: tuple[Level, ...] = ("basic", "instruction", "demonstration", "preference")
"""In the order of the curriculum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a row comes from: enough to make its screen again."""

    environment: str
    """Label of the environment, e.g. "androidworld[simphone]"."""
    environment_version: str
    task: str
    """Name of the task whose instance the screen was met in."""
    seed: int
    """Of the task instance."""
    step: int
    """Actions executed before the screen was seen."""
    screen: str
    """`Observation.digest` of the screen."""
    apps: tuple[str, ...]
    """Visible names of the apps that the task or the screen belongs to."""
    teacher: str
    """"oracle", or the name of the agents file whose model taught."""
    teacher_prompt: str | None = None
    """SHA-256 of the prompt that the teacher answered; None for the oracle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Token ids in which something was said."""

    tokens: tuple[int, ...]
    """In their order, without what ended the turn."""
    tokenizer: str
    """Fingerprint of the tokenizer that they belong to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One thing to learn."""

    level: Level
    kind: str
    """What is asked, e.g. "element-effect", "one-step", "solution", "recovery", "process"."""
    prompt: Prompt
    """As a policy is asked; its images are not part of a row."""
    reply: str
    """What to say; of a preference, the chosen side."""
    reply_sampled: Sampled | None = None
    """In which tokens it was said; None for those of its text."""
    rejected: str | None = None
    """The other side of a preference; None on other levels."""
    rejected_sampled: Sampled | None = None
    """As `reply_sampled`, of the rejected side."""
    action_type: str | None = None
    """Type of the action in `reply`; None when the reply is an answer in words."""
    provenance: Provenance

    @property
    def id(self) -> str:
        """SHA-256 over what is learned: rows with equal prompts and replies, in equal tokens, have equal ids."""
        said = [self.prompt.system, self.prompt.user, self.reply, self.rejected or ""]
        tokens = self._list_tokens()
        if any(tokens):
            said.append(json.dumps(tokens))
        return hashlib.sha256("\x1f".join(said).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def instance(self) -> TrainingInstance:
        """What the check against the evaluation splits looks at."""
        texts = (self.prompt.user, self.reply, self.rejected or "")
        origin = self.provenance
        source = f"row {self.id[:12]} ({self.level}, {self.kind})"
        return TrainingInstance(task=origin.task, seed=origin.seed, apps=origin.apps, texts=texts, source=source)

    def _list_tokens(self) -> list[list[Any]]:
        """Of both replies and of the messages, in which tokens they stand; empty for those of their texts."""
        sides = (self.reply_sampled, self.rejected_sampled)
        replies = [[] if one is None else [one.tokenizer, *one.tokens] for one in sides]
        segments = enumerate(self.prompt.segments)
        return [*replies, [[place, one.tokenizer, *one.tokens] for place, one in segments if one.tokens is not None]]
