"""What a reward model reads of a proposed action: the very text that is scored.

    system    what a good step is                                    the same for every step
    state     task, summary, history and screen: the user's turn     the same for all actions of a step
    action    one action, in words and as policies write it          the assistant's turn, at whose end the head is read

Reasons are not shown: an action has one score, whoever proposed it in whatever words. The built-in templates are
`prompts/critic-model`; a folder of that name in the user's own library comes before it. Whoever trains a reward model
makes its texts with `ScoringPrompts`, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collab.credit.case import Case
from collab.credit.language_prompt import WORLDS, sendable
from collab.errors import ConfigError
from collab.prompts.templates import Templates, read_texts
from collab.types import Action, Prompt

FOLDER = "critic-model"
"""Name of the folder in `prompts/`."""
FILES = ("system", "state", "action")


def read_scoring_prompts(folder: Path) -> dict[str, str]:
    """The texts of a folder by template name; ConfigError when one is missing or unreadable."""
    return read_texts(folder, FILES, "the prompts of a critic of kind model need", FOLDER)


class ScoringPrompts:
    """The templates, ready to be filled in.

    Args:
        texts: template name → text, see `read_scoring_prompts`.

    Raises:
        ConfigError: a text is missing or no template; from its methods: it asks for something that it is not told.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._templates = Templates(FOLDER, texts, FILES)

    def state(self, case: Case, history: int) -> Prompt:
        """System and user turn, with the last `history` steps."""
        first = max(0, len(case.history) - history)
        entries = [
            {"number": number, "action": entry.action, "effect": entry.effect}
            for number, entry in enumerate(case.history[first:], start=first + 1)
        ]
        world = WORLDS.get(case.space.name, case.space.name)
        text = self._templates.render(
            "state", goal=case.task.goal, summary=case.summary, history=entries, screen=case.observation.text
        )
        return Prompt(system=self._templates.render("system", world=world), shared=sendable(text), segments=())

    def action(self, case: Case, action: Action) -> str:
        """The assistant's turn; ConfigError also where it says nothing."""
        words, written = case.space.describe(action, case.observation), case.space.format(action)
        text = sendable(self._templates.render("action", words=words, written=written)).strip()
        if not text:
            raise ConfigError(f"prompts/{FOLDER}/action.jinja: says nothing of an action; use words, written or both")
        return text
