"""Build prompts: everything shared first, the cell's own part last.

    system    rules, action list, reply format        the same for every step of an environment
    shared    task, history, screen                   the same for every agent of a step
    segments  messages heard, in conversation order   the same for cells that heard the same
              slot header                             the cell's own

So a prompt only grows at its end, and cells share the longest possible prefix. Each segment is tokenised by itself, and
a message stands in the tokens in which it was generated: `Segment.tokens`.

Templates lie in `prompts/<name>/` (Jinja, undefined names are errors): `system`, `shared`, `message`, `header`,
`summary` and `question`. `LAYOUT` is the version of their order; a checkpoint names the one it was trained on.

`Templates` reads, compiles and fills the templates of a folder in the same way for agents, critics and teachers:

    texts = read_texts(folder, ("system", "step"), "a critic's prompts need", "critic")
    templates = Templates("critic", texts, ("system", "step"))
    text = templates.render("step", goal=goal)

A folder may hold only the templates that differ; the others are those of the built-in folder. Every error names the
template.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import jinja2
import jinja2.meta

from collab.envs.grammar import SPACES, ActionSpace
from collab.errors import ConfigError, ModelFailure, UnknownName
from collab.library import find_builtin_root, read_text
from collab.prompts.sandbox import WRONG, Sandbox, format_error, render
from collab.types import HistoryEntry, Observation, Prompt, PromptRef, Segment

SUFFIX = ".jinja"


def read_texts(folder: Path, names: Iterable[str], needs: str, default: str) -> dict[str, str]:
    """Read the texts of a folder, by template name; missing ones are those of the default.

    Args:
        names: of the templates that are used.
        needs: beginning of the message about a folder that does not fit, e.g. "a prompt needs".
        default: name of the built-in folder that holds all of them; a folder of that name beside `folder` comes first.

    Raises:
        ConfigError: it holds none of them, or one of another name; one is missing everywhere or unreadable.
    """
    names = tuple(names)
    own = sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
    missing = ", ".join(f"{name}{SUFFIX}" for name in names if name not in own)
    odd = next((name for name in own if name not in names), None)
    if odd is not None:
        known = [f"{name}{SUFFIX}" for name in names]
        raise ConfigError(f"{folder}: {UnknownName.of('template', odd + SUFFIX, known)}; {needs} {missing}")
    if not own:
        raise ConfigError(f"{folder}: {needs} {missing}; those that it does not hold are read from prompts/{default}")
    homes = (folder, folder.parent / default, find_builtin_root() / "prompts" / default)
    return {name: _read(name, homes) for name in names}


def _read(name: str, homes: Sequence[Path]) -> str:
    path = next((found for home in homes if os.path.lexists(found := home / f"{name}{SUFFIX}")), None)
    if path is None:
        raise ConfigError(f"{homes[0]}: {name}{SUFFIX} is missing, and the built-in prompts have none")
    return read_text(path, within=None if path.is_relative_to(find_builtin_root()) else path.parent.parent)


@functools.lru_cache(maxsize=32)
def _build_sandbox(texts: frozenset[tuple[str, str]]) -> Sandbox:
    """Compile these texts, each once in a process."""
    return Sandbox(
        loader=jinja2.DictLoader({f"{name}.jinja": text for name, text in texts}),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # prompts are plain text
    )


@functools.lru_cache(maxsize=128)
def _list_asked(environment: Sandbox, name: str, text: str) -> frozenset[str]:
    """List the names that a template uses and does not set."""
    return frozenset(jinja2.meta.find_undeclared_variables(environment.parse(text, name=f"{name}.jinja")))


class Templates:
    """Compiled templates.

    Args:
        folder: name of their folder in `prompts/`, for messages.
        texts: template name → text.
        names: which of them are used.
        told: template name → the names that it may use; None checks none before rendering.

    Raises:
        ConfigError: one of `names` has no text, or its text is no template or uses an unknown name.
    """

    def __init__(
        self,
        folder: str,
        texts: Mapping[str, str],
        names: Iterable[str],
        told: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        names = tuple(names)
        missing = [name for name in names if name not in texts]
        if missing:
            raise ConfigError(f"prompts/{folder}: {', '.join(f'{name}.jinja' for name in missing)} missing")
        environment = _build_sandbox(frozenset(texts.items()))
        self._folder = folder
        try:
            known = {} if told is None else told
            for name in (name for name in names if name in known):
                for odd in sorted(_list_asked(environment, name, texts[name]) - set(known[name])):
                    raise ConfigError(self._format_missing(name, f"'{odd}' is undefined", known[name]))
            self._templates = {name: environment.get_template(f"{name}.jinja") for name in names}
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"prompts/{folder}/{error.name}:{error.lineno}: {error.message}") from None
        except (SyntaxError, RecursionError, MemoryError) as error:  # of what Jinja makes of it
            raise ConfigError(f"prompts/{folder}: a template cannot be used: {format_error(error)}") from None

    def __contains__(self, name: str) -> bool:
        return name in self._templates

    def render(self, name: str, **values: object) -> str:
        """Render a template; ConfigError if it uses an unknown name, or more than `Sandbox` allows."""
        try:
            return render(self._templates[name], **values)
        except jinja2.UndefinedError as error:
            raise ConfigError(self._format_missing(name, str(error.message), values)) from None
        except WRONG as error:
            raise ConfigError(
                f"prompts/{self._folder}/{name}.jinja: cannot be filled in: {format_error(error)}"
            ) from None

    def _format_missing(self, name: str, what: str, told: Iterable[str]) -> str:
        """Format a message about a name that a template does not get."""
        where = f"prompts/{self._folder}/{name}{SUFFIX}"
        return f"{where}: {what}; it may ask for {', '.join(sorted(told))}"


LAYOUT = "1"
"""Order of the parts, as above."""

_MESSAGE = "\x00message\x00"
_QUESTION = "\x00question\x00"
VARIABLES = {
    "system": ("world", "actions"),
    "shared": ("goal", "summary", "history", "screen"),
    "message": ("agent", "round", "message"),
    "header": ("agent", "round", "rounds"),
    "summary": ("goal", "summary", "history"),
    "question": ("screen", "question"),
    "proposal": ("agent", "round", "rounds"),
    "change": ("goal", "action", "reason", "before", "after", "pictures"),
}
"""Template → the names that it may use."""
_FILES = tuple(VARIABLES)
SECOND_CALLS = ("proposal", "change")
"""Templates of calls beside those for an action, which few agents make."""
_DECLARED = re.compile(r"\{#-?\s*actions:\s*([\w,\s]{1,200}?)\s*-?#\}")
_LISTED = re.compile(r"\{[{%][^{}]{0,500}\bactions\b")
"""A template that shows the environment's list of actions."""
_WORLDS = {"mobile": "a phone", "web": "a web page"}


class PromptMessage(Protocol):
    """The parts of a message in a prompt: an `Utterance` has them."""

    @property
    def agent(self) -> str:
        """Slot of the speaker."""

    @property
    def round(self) -> int:
        """From 0."""

    @property
    def text(self) -> str:
        """The reply as sampled."""

    @property
    def tokens(self) -> tuple[int, ...] | None:
        """Token ids in which it was sampled; None for text that no model wrote."""

    @property
    def tokenizer(self) -> str | None:
        """Fingerprint of the tokenizer of `tokens`; None when these are None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptContext:
    """Content of one step's prompts."""

    goal: str
    space: ActionSpace
    observation: Observation
    history: tuple[HistoryEntry, ...] = ()
    """All executed steps of the episode, oldest first; a prompt shows the last few."""
    summary: str = ""
    """The policy's own summary of the episode so far; empty if none is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """An executed step and what is seen of its effect."""

    goal: str
    entry: HistoryEntry
    before: Observation
    after: Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrompt:
    """The rendered part that all agents with the same definition share in one step."""

    system: str
    text: str
    images: tuple[str, ...]
    trimmed: tuple[str, ...]
    """Parts that the size guard removed."""
    prefix: str = field(init=False)
    """SHA-256 of system and text: the key under which they are stored."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", hash_prefix(self.system, self.text))


def build_prefix(system: str, shared: str) -> str:
    """Join both parts of a prefix by a form feed, for the store."""
    return f"{system}\f{shared}"


def hash_prefix(system: str, shared: str) -> str:
    """Return the SHA-256 of the stored prefix."""
    return hashlib.sha256(build_prefix(system, shared).encode("utf-8", "surrogatepass")).hexdigest()


def rebuild(prefix: str, reference: PromptRef) -> Prompt:
    """Rebuild the prompt of a stored utterance, from the stored prefix text and its reference."""
    system, _, shared = prefix.partition("\f")
    return Prompt(system=system, shared=shared, segments=(Segment(text=reference.suffix),), layout=reference.layout)


def read_templates(folder: Path, second_calls: Collection[str] = ()) -> dict[str, str]:
    """Read the texts of a folder in `prompts/`, by template name; raises as `read_texts`.

    Args:
        second_calls: which of `SECOND_CALLS` are used; a run records no others.
    """
    texts = read_texts(folder, _FILES, "a prompt needs", "default")
    return {name: text for name, text in texts.items() if name not in SECOND_CALLS or name in second_calls}


def find_spaces(texts: Mapping[str, str]) -> frozenset[str]:
    """Return the action spaces that a prompt names itself; empty if it lists the environment's actions.

    A prompt without a list of actions names its policy's spaces in a comment: `{# actions: mobile #}`. One without that
    comment belongs to the space whose actions it spells out.

    Args:
        texts: template name → text.
    """
    whole = "\n".join(texts.values())
    declared = frozenset(name for found in _DECLARED.findall(whole) for name in re.split(r"[,\s]+", found) if name)
    if declared or _LISTED.search(whole):
        return declared
    return frozenset(space.name for space in SPACES.values() if _is_rendering(whole, space))


def _is_rendering(text: str, space: ActionSpace) -> bool:
    if space.syntax == "json":
        return "action_type" in text
    return any(re.search(rf"(?<!\w){re.escape(name)}\(", text) for name in space.types)


class Template:
    """The templates of one prompt.

    Args:
        name: of its folder in `prompts/`, for messages.
        texts: template name → text, see `read_templates`. Those of second calls may be absent, and `question`, which
            older recorded runs lack.
        check_command: advised where a text is no template; empty for none.

    Raises:
        ConfigError: a text is missing or no template.
    """

    def __init__(self, name: str, texts: Mapping[str, str], check_command: str = "") -> None:
        missing = [part for part in _FILES if part not in texts and part not in ("question", *SECOND_CALLS)]
        if missing:
            raise ConfigError(f"prompts/{name}: a prompt needs {', '.join(f'{part}.jinja' for part in missing)}")
        self.name = name
        try:
            self._templates = Templates(name, texts, [part for part in _FILES if part in texts], VARIABLES)
        except ConfigError as error:
            raise ConfigError(
                f"{error}; correct it; then try: {check_command}" if check_command else str(error)
            ) from None
        self._system = lru_cache(maxsize=8)(self._render_system)
        self._header = lru_cache(maxsize=1024)(self._render_header)
        self._proposal = lru_cache(maxsize=1024)(self._render_proposal)
        self._frame = lru_cache(maxsize=1024)(self._render_frame)

    def render_system(self, space: ActionSpace) -> str:
        """Render rules, action list and reply format."""
        return self._system(space)

    def render_shared(self, context: PromptContext, *, history: int, lines: int | None, screen: bool) -> str:
        """Render task, summary, the last `history` steps and the first `lines` lines of the screen (None: all)."""
        told = context.history[len(context.history) - history :] if history else ()
        first = len(context.history) - len(told) + 1
        entries = [
            {"number": first + offset, "action": entry.action, "effect": entry.effect, "reason": entry.reason}
            for offset, entry in enumerate(told)
        ]
        text = _cut(context.observation.text, lines) if screen else ""
        return (
            self._templates.render("shared", goal=context.goal, summary=context.summary, history=entries, screen=text)
            + "\n"
        )

    def render_segments(
        self, agent: str, round: int, rounds: int, heard: Sequence[PromptMessage], *, is_proposal: bool = False
    ) -> tuple[Segment, ...]:
        """Render the messages heard, each in its own tokens, then the slot's header.

        Args:
            round: from 0.
            is_proposal: whether a proposal is asked for in place of an action.
        """
        segments: list[Segment] = []
        for utterance in heard:
            before, after = self._frame(utterance.agent, utterance.round)
            said = Segment(text=utterance.text, tokens=utterance.tokens, tokenizer=utterance.tokenizer)
            segments += [Segment(text=before), said, Segment(text=after)]
        ending = self._proposal if is_proposal else self._header
        return (*segments, Segment(text=ending(agent, round, rounds)))

    def render_summary(self, context: PromptContext, since: int) -> str:
        """Render the request for a summary of the steps from `since` on."""
        entries = [
            {"number": number + 1, "action": entry.action, "effect": entry.effect}
            for number, entry in enumerate(context.history)
            if number >= since
        ]
        return self._templates.render("summary", goal=context.goal, summary=context.summary, history=entries)

    def render_change(self, change: StepChange, *, lines: int | None, screen: bool, pictures: bool) -> str:
        """Render the question what a step changed, with the first `lines` lines of both screens (None: all)."""
        return self._templates.render(
            "change",
            goal=change.goal,
            action=change.entry.action,
            reason=change.entry.reason,
            before=_cut(change.before.text, lines) if screen else "",
            after=_cut(change.after.text, lines) if screen else "",
            pictures=pictures,
        )

    def build_question(self, observation: Observation, question: str) -> Prompt:
        """Build a question about a screen, to be answered in words; `system` is empty, since no action is asked for.

        The screen comes first and the question last, so that many questions about one screen share their prefix.

        Raises:
            ConfigError: the template has no `question`, or does not show it.
        """
        if "question" not in self._templates:
            raise ConfigError(f"prompts/{self.name}: a question needs question.jinja")
        asked = self._templates.render("question", screen=observation.text, question=_QUESTION)
        before, found, after = asked.partition(_QUESTION)
        if not found:
            raise ConfigError(f"prompts/{self.name}/question.jinja does not show {{{{ question }}}}")
        return Prompt(system="", shared=before, segments=(Segment(text=question + after),), layout=LAYOUT)

    def _render_system(self, space: ActionSpace) -> str:
        return self._templates.render("system", world=_WORLDS.get(space.name, space.name), actions=space.listing())

    def _render_header(self, agent: str, round: int, rounds: int) -> str:
        return self._templates.render("header", agent=agent, round=round + 1, rounds=rounds)

    def _render_proposal(self, agent: str, round: int, rounds: int) -> str:
        return self._templates.render("proposal", agent=agent, round=round + 1, rounds=rounds)

    def _render_frame(self, agent: str, round: int) -> tuple[str, str]:
        framed = self._templates.render("message", agent=agent, round=round + 1, message=_MESSAGE)
        before, found, after = framed.partition(_MESSAGE)
        if not found:
            raise ConfigError(f"prompts/{self.name}/message.jinja does not show {{{{ message }}}}")
        return before, after + "\n\n"


def _cut(text: str, lines: int | None) -> str:
    if lines is None:
        return text
    kept = text.split("\n")
    left = len(kept) - lines
    return text if left <= 0 else "\n".join([*kept[:lines], f"... {left} more lines are not shown"])


class PromptWriter(Protocol):
    """Writes the part of a prompt that all agents with one definition share."""

    def render_system(self, space: ActionSpace) -> str:
        """Render rules, action list and reply format."""

    def render_shared(self, context: PromptContext, *, history: int, lines: int | None, screen: bool) -> str:
        """Render task, history and screen; see `Template.render_shared`."""


def fit_shared(
    template: PromptWriter,
    context: PromptContext,
    *,
    history: int,
    limit: int,
    count: Callable[[str], int],
    screen: bool = True,
    images: tuple[str, ...] = (),
) -> SharedPrompt:
    """Render the shared part so that system and shared together stay within `limit` tokens.

    The guard first shortens the history, oldest first, then drops elements from the far end of the screen; rules,
    action list and reply format are never touched. `SharedPrompt.trimmed` records the removed parts.

    Raises:
        ModelFailure: not even the task alone fits.
    """
    system = template.render_system(context.space)
    space_left = limit - count(system)
    told = min(history, len(context.history))
    for kept in range(told, -1, -1):
        text = template.render_shared(context, history=kept, lines=None, screen=screen)
        if _is_within(text, space_left, count):
            trimmed = (f"history:{told - kept}",) if kept < told else ()
            return SharedPrompt(system=system, text=text, images=images, trimmed=trimmed)

    # Without history, as many lines of the screen as fit.
    def render(lines: int) -> str:
        return template.render_shared(context, history=0, lines=lines, screen=screen)

    total = context.observation.text.count("\n") + 1
    low = _find_most_lines(render, total, space_left, count)
    if low < 0 or not screen:
        needed = count(system) + count(render(0))
        raise ModelFailure(
            f"the task alone needs {needed} tokens of prompt, {limit} are left for it; raise context_tokens"
        )
    removed = [f"history:{told}"] if told else []
    return SharedPrompt(system=system, text=render(low), images=images, trimmed=(*removed, f"elements:{total - low}"))


def fit_change(
    template: Template,
    change: StepChange,
    *,
    limit: int,
    count: Callable[[str], int],
    screen: bool,
    images: tuple[str, ...],
) -> SharedPrompt:
    """Render the question what a step changed within `limit` tokens, shortening both screens alike.

    Raises:
        ModelFailure: not even the task alone fits.
    """

    # One number of lines for both, so that what left the screen can be told from what was cut.
    def render(lines: int | None) -> str:
        return template.render_change(change, lines=lines, screen=screen, pictures=bool(images))

    whole = render(None)
    if _is_within(whole, limit, count):
        return SharedPrompt(system="", text=whole, images=images, trimmed=())
    total = max(one.text.count("\n") + 1 for one in (change.before, change.after))
    low = _find_most_lines(render, total, limit, count)
    if low < 0 or not screen:
        raise ModelFailure(
            f"a question about the last step needs {count(render(0))} tokens of prompt, {limit} are left for it; "
            "raise context_tokens"
        )
    return SharedPrompt(system="", text=render(low), images=images, trimmed=(f"elements:{total - low}",))


def _is_within(text: str, limit: int, count: Callable[[str], int]) -> bool:
    """Return whether a text has at most `limit` tokens; it is counted only if it could have more.

    A token stands for at least one byte, but for rare letters that some tokenizers normalise to longer ones. Where the
    model is in another process, a count is a call.
    """
    return len(text.encode("utf-8", "surrogatepass")) <= limit or count(text) <= limit


def _find_most_lines(render: Callable[[int], str], total: int, limit: int, count: Callable[[str], int]) -> int:
    """Return the most lines below `total` that fit, by bisection; -1 if not even none does."""
    low, high = -1, total
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(render(middle)) <= limit else (low, middle)
    return low
