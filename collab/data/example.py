"""A training example: one prompt, the reply to learn, and the source of both.

An example holds the exact prompt of a policy, in its tokenised pieces (`Prompt`), so that a checkpoint trains on the
token ids that it will read later. Examples are plain values; `parquet.py` writes them.

A sampled reply may have other tokens than its text: a policy at a high temperature does not always spell as its
tokenizer would. Such tokens stand beside the text: a reply's in `Sampled`, a heard message's in `Segment.tokens`. They
are trained if they belong to the checkpoint's tokenizer; otherwise the text is tokenised.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from collab.data.splits import TrainingInstance
from collab.types import Prompt, Task

Level: TypeAlias = Literal["basic", "instruction", "demonstration", "preference", "candidate", "judgement"]
POLICY_LEVELS: tuple[Level, ...] = ("basic", "instruction", "demonstration", "preference")
"""Those that a policy learns, in the order of the curriculum."""
LEVELS: tuple[Level, ...] = (*POLICY_LEVELS, "candidate", "judgement")
"""All levels. A process reward model learns the last one, a critic of actions the one before (`--algo coach`)."""


class PlayedTask(Protocol):
    """Trajectory, or a judged step of one, with its task and where it was played."""

    @property
    def environment(self) -> str:
        """Label of the environment."""
        ...

    @property
    def environment_version(self) -> str:
        """Version of the environment."""
        ...

    @property
    def task(self) -> Task:
        """The instance."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Source of a row: enough to rebuild its screen."""

    environment: str
    """Label of the environment, e.g. "androidworld[simphone]"."""
    environment_version: str
    task: str
    """Name of the task instance's task."""
    seed: int
    """Seed of the task instance."""
    step: int
    """Actions executed before the screen was seen."""
    screen: str
    """`Observation.digest` of the screen."""
    apps: tuple[str, ...]
    """Visible names of the apps that the task or the screen belongs to."""
    teacher: str
    """"oracle", or the name of the teacher's agents file."""
    teacher_prompt: str | None = None
    """SHA-256 of the teacher's prompt; None for the oracle."""

    @classmethod
    def of_step(
        cls, played: PlayedTask, *, step: int, screen: str, teacher: str, teacher_prompt: str | None = None
    ) -> Provenance:
        """Return the provenance of a step that was played; arguments as the fields."""
        return cls(
            environment=played.environment,
            environment_version=played.environment_version,
            task=played.task.name,
            seed=played.task.seed,
            step=step,
            screen=screen,
            apps=played.task.apps,
            teacher=teacher,
            teacher_prompt=teacher_prompt,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Token ids as sampled."""

    tokens: tuple[int, ...]
    """In order, without the end of the turn."""
    tokenizer: str
    """Fingerprint of their tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One training example."""

    level: Level
    kind: str
    """Kind of the question, e.g. "element-effect", "one-step", "solution", "recovery", "process", "right"."""
    prompt: Prompt
    """As a policy reads it; its images are not part of a row."""
    reply: str
    """Reply to learn; of a preference, the chosen side."""
    reply_sampled: Sampled | None = None
    """Its tokens as sampled; None for those of its text."""
    rejected: str | None = None
    """The other side of a preference; None on other levels."""
    rejected_sampled: Sampled | None = None
    """As `reply_sampled`, of the rejected side."""
    action_type: str | None = None
    """Type of the action in `reply`; None if the reply is an answer in words."""
    provenance: Provenance

    @property
    def id(self) -> str:
        """SHA-256 over prompt and replies in their tokens: equal examples have equal ids."""
        said = [self.prompt.system, self.prompt.user, self.reply, self.rejected or ""]
        tokens = self._list_tokens()
        if any(tokens):
            said.append(json.dumps(tokens))
        return hashlib.sha256("\x1f".join(said).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def instance(self) -> TrainingInstance:
        """Its task and seed for the check against the evaluation splits."""
        texts = (self.prompt.user, self.reply, self.rejected or "")
        origin = self.provenance
        source = f"row {self.id[:12]} ({self.level}, {self.kind})"
        return TrainingInstance(task=origin.task, seed=origin.seed, apps=origin.apps, texts=texts, source=source)

    def _list_tokens(self) -> list[list[Any]]:
        """List the sampled tokens of both replies and of the messages; empty for those of their texts."""
        sides = (self.reply_sampled, self.rejected_sampled)
        replies = [[] if one is None else [one.tokenizer, *one.tokens] for one in sides]
        segments = enumerate(self.prompt.segments)
        return [*replies, [[place, one.tokenizer, *one.tokens] for place, one in segments if one.tokens is not None]]
