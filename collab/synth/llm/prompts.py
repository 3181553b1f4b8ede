"""The teacher's prompts: Jinja templates in a folder of `prompts/`, one per role and question.

    system         who is asked, the action list, the manner of replies      the same for every call
    screen         questions about a screen and its elements                 UI agent, basic
    instructions   one-step instructions with their steps                    UI agent, instruction
    act            the next step of a task                                   UI agent, demonstration and preference
    clumsy         a mistaken step under the same input                      adversary
    critic         scores of proposed steps                                  critic

The built-in folder is `prompts/teacher`; a folder of that name in the user's own library comes before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from collab.envs.grammar import ActionSpace
from collab.prompts.templates import Templates, read_texts
from collab.synth.hands import Hands
from collab.types import Prompt

FOLDER = "teacher"
"""Name of the folder in `prompts/`."""
FILES = ("system", "screen", "instructions", "act", "clumsy", "critic")
_WORLDS = {"mobile": "a phone", "web": "web pages"}


def read_teacher_prompts(folder: Path) -> dict[str, str]:
    """The texts of a folder by template name; ConfigError when one is missing or unreadable."""
    return read_texts(folder, FILES, "a teacher's prompts need", FOLDER)


class TeacherPrompts:
    """The templates, ready to be filled in.

    Args:
        texts: template name → text, see `read_teacher_prompts`.
        space: the actions that are taught.

    Raises:
        ConfigError: a text is missing or no template, or asks for something that no teacher tells it.
    """

    def __init__(self, texts: Mapping[str, str], space: ActionSpace) -> None:
        self._templates = Templates(FOLDER, texts, FILES)
        self._space = space
        self._system = self._templates.render(
            "system", world=_WORLDS.get(space.name, space.name), actions=space.listing()
        )

    def screen(self, screen: str, questions: Sequence[str]) -> Prompt:
        """Questions about one screen, numbered from 1."""
        numbered = [{"number": number, "text": text} for number, text in enumerate(questions, start=1)]
        return self._prompt("screen", screen=screen, questions=numbered)

    def instructions(self, screen: str, count: int) -> Prompt:
        """A request for so many one-step instructions."""
        complete, answer = endings(self._space)
        return self._prompt("instructions", screen=screen, count=count, complete=complete, answer=answer)

    def act(self, state: str) -> Prompt:
        """The next step; `state` is the task, what was done and the screen."""
        return self._prompt("act", state=state)

    def clumsy(self, state: str, right: str) -> Prompt:
        """A step that somebody clumsy would take instead of the right one, which is told in words."""
        return self._prompt("clumsy", state=state, right=right)

    def critic(self, state: str, proposals: Sequence[tuple[str, str]]) -> Prompt:
        """Scores of proposed steps, (action in words, reason) each, numbered from 1."""
        listed = [{"id": place, "action": action, "reason": why} for place, (action, why) in enumerate(proposals, 1)]
        return self._prompt("critic", state=state, proposals=listed)

    def _prompt(self, name: str, **values: object) -> Prompt:
        text = self._templates.render(name, form=action_form(self._space), **values)
        return Prompt(system=self._system, shared=text, segments=())


def action_form(space: ActionSpace) -> str:
    """What stands for an action in the form of a reply: an object, or a call as a JSON text."""
    return '{"action_type": "…"}' if space.syntax == "json" else f'"{space.types[0]}(…)"'


def endings(space: ActionSpace) -> tuple[str, str]:
    """How a space says that a task is done, and how it answers a question; empty where it has no such action."""
    hands = Hands(space)
    done, answer = (None if action is None else space.format(action) for action in (hands.done(), hands.answer("…")))
    return done or "", answer or ""
