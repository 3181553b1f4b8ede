"""One-step instructions for a screen, each with the action that fulfils it (CollabUIAgents, Appendix B).

    do        something with an element, or with the whole screen
    complete  what is already so, or was just done: nothing is left but to say so
    answer    a question that the screen answers

An element is named by its label, with its role where several share the label; one that cannot be told from another is
left out. `proposals` says what could be asked; whether it makes a difference is for a trial to say.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from collab.envs.text import flat, line
from collab.synth import facts
from collab.synth.hands import Hands
from collab.synth.scenes import app_names
from collab.synth.teacher import Scene
from collab.synth.texts import drawn_text
from collab.types import Action, Element, HistoryEntry

Sort: TypeAlias = Literal["do", "complete", "answer"]

PHRASES: dict[str, tuple[str, ...]] = {
    "tap": ("Tap {it}.", "Press {it}.", "Click on {it}.", "Please tap {it}.", "Select {it}.", "Use {it}."),
    "hold": ("Hold {it}.", "Long-press {it}.", "Press {it} for a second.", "Keep {it} pressed."),
    "turn on": ("Turn {it} on.", "Switch {it} on.", "Activate {it}.", "I want {it} to be on."),
    "turn off": ("Turn {it} off.", "Switch {it} off.", "Deactivate {it}.", "I want {it} to be off."),
    "choose": ("Choose {it}.", "Pick {it}.", "Set it to {it}.", "I want {it}."),
    "type": ('Type "{text}" into {it}.', 'Enter "{text}" in {it}.', 'Write "{text}" into {it}.', '{it}: "{text}".'),
    "replace": (
        'Replace what {it} holds by "{text}".',
        'Change {it} to "{text}".',
        'Clear {it} and type "{text}".',
        '{it} should be "{text}".',
    ),
    "more": ("Move {it} to the right.", "Turn {it} up.", "Drag {it} to the right.", "Raise {it}."),
    "less": ("Move {it} to the left.", "Turn {it} down.", "Drag {it} to the left.", "Lower {it}."),
    "open": ("Open {it}.", "Start the app {it}.", "Launch {it}.", "Switch to the app {it}.", "I want to use {it}."),
    "back": ("Go back.", "Return to the screen before.", "Leave this screen.", "One screen back, please."),
    "home": ("Go to the home screen.", "Go home.", "Leave for the home screen.", "Show the home screen."),
    "scroll down": ("Scroll down.", "Show what is further down.", "See more below.", "Move down the page."),
    "scroll up": ("Scroll up.", "Show what is further up.", "See more above.", "Move up the page."),
    "is open": ("Open {it}.", "Go to {it}.", "Show {it}."),
    "what is": (
        "What does {it} say?",
        "What is the value of {it}?",
        "Read {it} to me.",
        "Tell me what {it} is set to.",
    ),
    "is on": ("Is {it} on or off?", "Tell me whether {it} is on or off.", "On or off: what is {it}?"),
}
"""What is wanted → its phrasings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """A task of one step."""

    sort: Sort
    goal: str
    action: Action
    because: str | None = None
    """What the reply names first where it is not the action's own target."""
    history: tuple[HistoryEntry, ...] = ()
    """What was done before."""


def proposals(scene: Scene, rng: random.Random) -> dict[Sort, list[Instruction]]:
    """All that could be asked on a scene, in random order: what is rare on screens tends to come first."""
    maker = _Maker(scene, rng)
    found: dict[Sort, list[Instruction]] = {"do": [], "complete": [], "answer": []}
    for instruction in (*maker.about_elements(), *maker.about_the_screen(), *maker.just_done()):
        found[instruction.sort].append(instruction)
    return {sort: _shuffled(instructions, rng) for sort, instructions in found.items()}


def _shuffled(instructions: list[Instruction], rng: random.Random) -> list[Instruction]:
    """A weighted order without replacement (Efraimidis and Spirakis, 2006): each next one in proportion to its weight.

    Every screen can be left, scrolled and exchanged for an app in the same few ways, while few have a field.
    """
    keyed = [(rng.random() ** (1 / _weight(one.action)), place) for place, one in enumerate(instructions)]
    return [instructions[place] for _, place in sorted(keyed, reverse=True)]


def _weight(action: Action) -> float:
    if action.target is None:
        return 0.4
    return 1.0 if action.type == "click" else 3.0


class _Maker:
    """Goes through a scene and words what can be done there."""

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self._scene, self._rng, self._hands = scene, rng, Hands(scene.suite.space)
        self._last = scene.history[-1:]
        elements = scene.observation.elements
        self._labels = Counter(flat(element.label).casefold() for element in elements)
        self._pairs = Counter((element.role, flat(element.label).casefold()) for element in elements)

    def about_elements(self) -> Iterator[Instruction]:
        """With every element that has a name of its own."""
        for element in self._scene.observation.elements:
            it = self._named(element)
            if it is not None and "disabled" not in element.flags:
                yield from self._about(element, it)

    def about_the_screen(self) -> Iterator[Instruction]:
        """With all of it: back, home, scroll, open an app."""
        hands, scene = self._hands, self._scene
        for wanted, action in (
            ("back", hands.back()),
            ("home", hands.home()),
            ("scroll down", hands.scroll("down")),
            ("scroll up", hands.scroll("up")),
        ):
            yield from self._do(wanted, action)
        here = scene.app.casefold()
        apps = [name for name in app_names(scene.suite) if name.casefold() != here]
        for name in self._rng.sample(apps, min(2, len(apps))):
            yield from self._do("open", hands.open(name), it=self._rng.choice((name, name.title())))
        title = flat(scene.observation.title)
        if title:
            yield from self._over("is open", hands.done(), it=title)

    def just_done(self) -> Iterator[Instruction]:
        """What the last action did: it need not be done again."""
        done = self._hands.done()
        if done is not None and self._last and self._last[0].effect not in _NOTHING:
            goal = _plain(self._last[0].action)
            yield Instruction(sort="complete", goal=goal, action=done, history=self._last)

    def _about(self, element: Element, it: str) -> Iterator[Instruction]:
        hands, index = self._hands, element.index
        if facts.typed_into(element):
            yield from self._typing(element, it)
        elif element.role in facts.TOGGLES:
            yield from self._toggling(element, it)
        elif element.role == "slider":
            yield from self._do("more", hands.swipe(index, "right"), it=it)
            yield from self._do("less", hands.swipe(index, "left"), it=it)
        elif element.role not in facts.SILENT:
            yield from self._do("tap", hands.tap(index), it=it)
            if "long-clickable" in element.flags:
                yield from self._do("hold", hands.hold(index), it=it)
        if element.value:
            yield from self._answer("what is", element, it, flat(element.value))

    def _typing(self, element: Element, it: str) -> Iterator[Instruction]:
        text = drawn_text(self._rng)
        replacing = bool(element.value)
        action = self._hands.type(element.index, text, instead=replacing)
        yield from self._do("replace" if replacing else "type", action, it=it, text=text)
        if element.value:
            because = line(element)
            yield from self._over("replace", self._hands.done(), it=it, text=flat(element.value), because=because)

    def _toggling(self, element: Element, it: str) -> Iterator[Instruction]:
        on, tap, because = facts.is_on(element), self._hands.tap(element.index), line(element)
        if element.role == "radio":
            if not on:
                yield from self._do("choose", tap, it=it)
            else:
                yield from self._over("choose", self._hands.done(), it=it, because=because)
            return
        yield from self._do("turn off" if on else "turn on", tap, it=it)
        yield from self._over("turn on" if on else "turn off", self._hands.done(), it=it, because=because)
        yield from self._answer("is on", element, it, "on" if on else "off")

    def _do(self, wanted: str, action: Action | None, **names: str) -> Iterator[Instruction]:
        """Something to do, with or without what was done before: neither words nor history give the answer away."""
        if action is None:
            return
        words = self._scene.suite.space.describe(action, self._scene.observation)
        history = () if self._last and self._last[0].action == words else self._before()
        goal = _plain(words) if self._rng.random() < _PLAIN else self._phrase(wanted, names)
        yield Instruction(sort="do", goal=goal, action=action, history=history)

    def _over(
        self, wanted: str, action: Action | None, because: str | None = None, **names: str
    ) -> Iterator[Instruction]:
        if action is not None:
            goal, history = self._phrase(wanted, names), self._before()
            yield Instruction(sort="complete", goal=goal, action=action, because=because, history=history)

    def _answer(self, wanted: str, element: Element, it: str, text: str) -> Iterator[Instruction]:
        action = self._hands.answer(text)
        if action is not None:
            goal, history = self._phrase(wanted, {"it": it}), self._before()
            yield Instruction(sort="answer", goal=goal, action=action, because=line(element), history=history)

    def _before(self) -> tuple[HistoryEntry, ...]:
        """What the prompt tells of what was done: half of the time the last action, else nothing."""
        return self._last if self._rng.random() < 0.5 else ()

    def _phrase(self, wanted: str, names: dict[str, str]) -> str:
        return self._rng.choice(PHRASES[wanted]).format(**names)

    def _named(self, element: Element) -> str | None:
        """How an instruction names an element; None when it could be another one."""
        name = flat(element.label)
        if not name or self._pairs[element.role, name.casefold()] > 1:
            return None
        return f'"{name}"' if self._labels[name.casefold()] == 1 else f'the {element.role} "{name}"'


def _plain(words: str) -> str:
    """An action in words as an instruction."""
    return f"{words[:1].upper()}{words[1:]}."


_PLAIN = 0.25
"""Share of instructions in the words in which the history tells actions."""
_NOTHING = frozenset({"nothing changed", "nothing visible changed", "one second passed"})
"""Effects of actions that did nothing."""
