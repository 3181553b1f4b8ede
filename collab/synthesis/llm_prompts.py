"""The teacher's prompts: Jinja templates in a folder of `prompts/`, one per role and question.

    system         the role, the action list, the form of replies            the same for every call
    screen         questions about a screen and its elements                 UI agent, basic
    instructions   one-step instructions with their steps                    UI agent, instruction
    act            the next step of a task                                   UI agent, demonstration and preference
    clumsy         a mistaken step under the same input                      adversary
    critic         scores of proposed steps                                  critic
    analysis       why a candidate is right or wrong                         critic, judgement

The built-in folder is `prompts/teacher`; a folder of that name in the user's own library comes before it.

The checks of a teacher's replies read every action against the space and the screen, and every text against the
question. Each returns the cause of a refusal, in short words without data of the case, or None.

`is_foreign` tests for a reply in another language than the question:

    scripts          more than three letters in ten belong to scripts (Latin, Cyrillic, Han …) that stand neither in
                     what was asked nor on the screen
    function words   of seven European languages ("the", "und", "est" …), one has at least three hits and twice as many
                     as any other; it is not the language that the same test finds in what was asked

What was asked is the task's goal. Where there is none, or where it is too short to tell its language, English is
wanted, in which our questions are asked.

Text in quotation marks does not count: a reply may quote a screen. The tests see Chinese for English and German for
English. They do not see languages without a list that share a script with the question (Polish for English, Ukrainian
for Russian), nor replies of a few words; those pass. After a short goal in one of the other six languages, long
replies in it are refused.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from collab.envs.grammar import ActionSpace
from collab.envs.random_actions import ENDINGS
from collab.envs.text import format_element
from collab.prompts.parse import read_reply, write_reply
from collab.prompts.render import Templates, read_texts
from collab.rewards.structured_replies import ProposalItem
from collab.synthesis.facts import ActionBuilder
from collab.types import Action, ElementTarget, Observation, Prompt

FOLDER = "teacher"
"""Name of the folder in `prompts/`."""
FILES = ("system", "screen", "instructions", "act", "clumsy", "critic", "analysis")
_WORLDS = {"mobile": "a phone", "web": "web pages"}


def read_teacher_prompts(folder: Path) -> dict[str, str]:
    """Return the texts of a folder by template name; ConfigError if one is missing or unreadable."""
    return read_texts(folder, FILES, "a teacher's prompts need", FOLDER)


class TeacherPrompts:
    """The templates, ready to be filled in.

    Args:
        texts: template name → text, see `read_teacher_prompts`.
        space: the actions that are taught.

    Raises:
        ConfigError: a text is missing, no template, or uses an unknown variable.
    """

    def __init__(self, texts: Mapping[str, str], space: ActionSpace) -> None:
        self._templates = Templates(FOLDER, texts, FILES)
        self._space = space
        self._system = self._templates.render(
            "system", world=_WORLDS.get(space.name, space.name), actions=space.listing()
        )

    def build_screen(self, screen: str, questions: Sequence[str]) -> Prompt:
        """Build the questions about one screen, numbered from 1."""
        numbered = [{"number": number, "text": text} for number, text in enumerate(questions, start=1)]
        return self._render_prompt("screen", screen=screen, questions=numbered)

    def build_instructions(self, screen: str, count: int) -> Prompt:
        """Build a request for so many one-step instructions."""
        complete, answer = format_endings(self._space)
        return self._render_prompt("instructions", screen=screen, count=count, complete=complete, answer=answer)

    def act(self, state: str) -> Prompt:
        """Build a request for the next step; `state` is the task, the history and the screen."""
        return self._render_prompt("act", state=state)

    def build_clumsy(self, state: str, right: str) -> Prompt:
        """Build a request for a clumsy step in place of the right one, which is given in words."""
        return self._render_prompt("clumsy", state=state, right=right)

    def build_critic(self, state: str, proposals: Sequence[tuple[str, str]]) -> Prompt:
        """Build a request to score steps, each (action in words, reason), numbered from 1."""
        listed = [{"id": place, "action": action, "reason": why} for place, (action, why) in enumerate(proposals, 1)]
        return self._render_prompt("critic", state=state, proposals=listed)

    def build_analysis(self, state: str, proposal: tuple[str, str], right: str, *, is_right: bool) -> Prompt:
        """Build a request to explain why a proposal (action in words, reason) is right or wrong.

        Args:
            right: the demonstrated step in words.
        """
        action, reason = proposal
        return self._render_prompt(
            "analysis", state=state, action=action, reason=reason, right=right, is_right=is_right
        )

    def _render_prompt(self, name: str, **values: object) -> Prompt:
        text = self._templates.render(name, form=format_action_form(self._space), **values)
        return Prompt(system=self._system, shared=text, segments=())


def format_action_form(space: ActionSpace) -> str:
    """Return the placeholder of an action in a reply's form: an object, or a call as a JSON text."""
    return '{"action_type": "…"}' if space.syntax == "json" else f'"{space.types[0]}(…)"'


def format_endings(space: ActionSpace) -> tuple[str, str]:
    """Return the space's actions for a finished task and for an answer; empty without such an action."""
    actions = ActionBuilder(space)
    done, answer = (
        None if action is None else space.format(action) for action in (actions.declare_done(), actions.answer("…"))
    )
    return done or "", answer or ""


FOREIGN = "another language"
"""Cause of a refusal."""
FOREIGN_SHARE = 0.3
"""Share of letters above which a reply counts as written in another script."""
_FEWEST_HITS = 3
_FUNCTION_WORDS = {
    "english": "the and is are of to this that with for it on an which you from or be current your",
    "german": "der die das und ist nicht ein eine mit für auf zu den dem wird sind oder zum zur auch",
    "french": "le la les des est une dans pour qui que sur avec pas cette du et au aux cet ce",
    "spanish": "el los las una para que con por está del se y en esta este muestra su al o pero",
    "italian": "il lo gli una per che con non di questo questa sono della del nella è si alla e da",
    "portuguese": "o os as uma para que com não do da dos está é em esta este na no ou ao",
    "dutch": "de het een en van is niet met voor op dat deze dit zijn wordt te naar bij ook om",
}
_LISTS = {language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()}
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|'[^'\n]{1,80}'(?!\w)")
_WORD = re.compile(r"[^\W\d_]+")


def is_foreign(reply: str, goal: str, screen: str = "") -> bool:
    """Return whether a reply is in another language than its question (see the module's docstring).

    Args:
        goal: of the task; empty for a question of our own.
        screen: its scripts are allowed too.
    """
    plain = _QUOTED.sub(" ", reply)
    letters = [letter for letter in plain if letter.isalpha()]
    known = find_scripts(goal or "a") | find_scripts(screen)
    foreign = sum(_find_script(letter) not in known for letter in letters)
    if foreign > FOREIGN_SHARE * len(letters):
        return True
    spoken = detect_language(plain)
    return spoken is not None and spoken != (detect_language(goal) or "english")


def find_scripts(text: str) -> set[str]:
    """Return the scripts of its letters, as first words of Unicode names: "LATIN", "CJK" and the like."""
    return {_find_script(letter) for letter in set(text) if letter.isalpha()}


def detect_language(text: str) -> str | None:
    """Return the language with most function words in the text; None if none stands out."""
    words = Counter(word.casefold() for word in _WORD.findall(text))
    hits = {language: sum(words[word] for word in known) for language, known in _LISTS.items()}
    best, second = sorted(hits, key=lambda language: hits[language], reverse=True)[:2]
    return best if hits[best] >= max(_FEWEST_HITS, 2 * hits[second]) else None


@lru_cache(maxsize=1 << 14)
def _find_script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split(" ")[0].split("-")[0]


NOT_SHOWN = "its element is not in the prompt"
_NUMBERED = re.compile(r"\[\s*\d+\s*\]|\b(?:element|index|id|number)\s*#?\d+\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A checked step."""

    action: Action
    """Canonical on its screen."""
    reply: str
    """As a policy would say it."""
    reason: str


def read_action(said: ProposalItem, space: ActionSpace, observation: Observation, goal: str) -> Decided | str:
    """Return a proposal as a valid step on this screen, or the cause of its refusal.

    It is parsed like a policy's reply (`read_reply`).

    Args:
        goal: the reason must have its language.
    """
    if is_foreign(said.reason, goal, observation.text):
        return FOREIGN
    written = said.action if isinstance(said.action, str) else json.dumps(said.action, ensure_ascii=False)
    parsed = read_reply(f"Reason: {said.reason}\nAction: {written}", space, observation)
    if parsed.failure is not None:
        return f"the action does not fit: {parsed.failure.kind}"
    if parsed.action is None:
        return "the action does not fit: empty"
    reply = write_reply(said.reason, parsed.action, space)
    return Decided(action=parsed.action, reply=reply, reason=said.reason)


def is_shown(action: Action, observation: Observation, prompt: Prompt) -> bool:
    """Return whether the prompt shows the action's target, as a long screen may be cut."""
    target = action.target
    return not isinstance(target, ElementTarget) or format_element(observation.elements[target.index]) in prompt.shared


def explain_unfounded(instruction: str, action: Action, space: ActionSpace, observation: Observation) -> str | None:
    """Return why an instruction and its step do not match; None if they may.

    Typed, opened or answered text must be in the instruction or on the screen; an instruction names no indices.
    """
    if _NUMBERED.search(instruction):
        return "the instruction names an element by number"
    given = f"{instruction}\n{observation.text}".casefold()
    for field in space.spec(action.type).fields:
        value = action.get(field.name)
        free = field.kind == "text" and not field.choices
        if free and isinstance(value, str) and " ".join(value.split()).casefold() not in given:
            return "the step holds a text that is neither in the instruction nor on the screen"
    return None


def is_completion(action: Action, space: ActionSpace) -> bool:
    """Return whether the action declares the task done, without an answer."""
    words = [value for _, value in action.arguments if isinstance(value, str)]
    return action.type in ENDINGS and (not space.spec(action.type).fields or words in ([], ["complete"]))


def is_answer(action: Action) -> bool:
    """Return whether the action answers a question: `answer` on a phone, `finish` with an answer on the web."""
    return action.type == "answer" or (action.type == "finish" and action.get("answer") is not None)
