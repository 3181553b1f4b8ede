"""Writing down what a teacher says of a scene: rows, and what could not become one."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from collab.credit.wording import reason, reply
from collab.errors import ModelFailure
from collab.prompts.parse import read_reply
from collab.synth.renaming import as_told, spelling
from collab.synth.rows import Level, Row
from collab.synth.teacher import Scene
from collab.types import Action, ElementTarget, Prompt

UNTOLD = "it types words that the prompt does not tell"
"""Cause of a refusal: what was read many steps ago and is forgotten since could only be made up."""
_TYPED = {"input_text": "text", "type_string": "content"}
_WORD = re.compile(r"[^\W\d_]{3,}")


class Refusal(Exception):
    """Something that could have become a row and did not; the message is the reason that is counted."""


@dataclass(slots=True, kw_only=True)
class Book:
    """The rows of one scene and level, while they are made."""

    scene: Scene
    level: Level
    teacher: str
    rng: random.Random
    shown: Scene | None = None
    """The scene as prompts tell it, where that is under other names (`renaming`); None for as it is."""
    rows: list[Row] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, prompt: Prompt, answer: str) -> None:
        """A question and its answer."""
        self._write(kind, prompt, answer)

    def decide(
        self, kind: str, prompt: Prompt, action: Action, *, because: str | None = None, rejected: str | None = None
    ) -> None:
        """A decision and what to say.

        Args:
            action: canonical on the scene.
            because: what the reply names first; None names the action's target.
            rejected: the other side of a preference.

        Raises:
            Refusal: the reply would point at what the prompt does not show, type what it does not tell, open an app
                that an instruction does not name, or not be read back as it is meant.
        """
        space, screen = self.scene.suite.space, (self.shown or self.scene).observation
        aimed = isinstance(action.target, ElementTarget) or because is not None
        if aimed and (because or reason(action, screen, space)) not in prompt.shared:
            raise Refusal("its element is not in the prompt")
        if not _typed_words(action) <= _words(prompt.shared):
            raise Refusal(UNTOLD)
        if self.level == "instruction" and _opens_what_is_not_named(action, prompt.shared):
            raise Refusal("the app to open is not in the prompt")
        text = reply(as_told(action, prompt.shared), screen, space, because)
        if read_reply(text, space, screen).action != action:
            raise Refusal("the reply is not read back as its action")
        self._write(kind, prompt, text, action.type, rejected)

    def _write(
        self, kind: str, prompt: Prompt, said: str, action_type: str | None = None, rejected: str | None = None
    ) -> None:
        row = Row(
            level=self.level,
            kind=kind,
            prompt=prompt,
            reply=said,
            rejected=rejected,
            action_type=action_type,
            provenance=self.scene.provenance(self.teacher),
        )
        self.rows.append(row)


def _typed_words(action: Action) -> frozenset[str]:
    """The words that an action types; of numbers, dates and codes nothing, for they may be worked out."""
    typed = action.get(_TYPED[action.type]) if action.type in _TYPED else None
    return _words(typed) if isinstance(typed, str) else frozenset()


def _opens_what_is_not_named(action: Action, told: str) -> bool:
    return action.type == "open_app" and spelling(str(action["app_name"]), told) is None


def _words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text))


def fitting(ask: Callable[[], Prompt]) -> Prompt:
    """A prompt, or the refusal to make one that does not fit into the context."""
    try:
        return ask()
    except ModelFailure:
        raise Refusal("the prompt does not fit into the context") from None
