"""One-step instructions for a screen, each with the action that fulfils it (CollabUIAgents, Appendix B).

    do        something with an element, or with the whole screen
    complete  what is already so, or was just done: nothing is left but to say so
    answer    a question that the screen answers

An element is named by its label, with its role if several share the label; ambiguous ones are left out.
`propose_instructions` lists possible instructions, worded by `wording`; a trial shows whether one has an effect.

A policy trained only on single steps repeats the first one again and again. `build_two_steps` therefore joins two
instructions in one sentence, asked at the start, halfway and at the end. Both steps are executed on forks of the
environment, so each prompt shows its true screen and history.

    for moment in await build_two_steps(scene, first, rng):
        writer.decide(…, moment.instruction.action)
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from collab.envs.base import Forkable
from collab.envs.text import flatten, format_element
from collab.rewards.structured_replies import format_reason
from collab.rollout.episode import build_history_entry
from collab.synthesis import facts
from collab.synthesis.facts import ActionBuilder
from collab.synthesis.screens import has_effect, list_app_names, try_action
from collab.synthesis.teacher import Scene, Sort
from collab.synthesis.wording import PHRASES, ask, draw_text, name_as_user
from collab.types import Action, Element, HistoryEntry, StepResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """A task of one step."""

    sort: Sort
    goal: str
    action: Action
    because: str | None = None
    """Element line that the reply names first, if not the action's target."""
    history: tuple[HistoryEntry, ...] = ()
    """What was done before."""
    needs_history: bool = False
    """Whether the action follows from what was done before, and not from goal and screen alone."""


def propose_instructions(scene: Scene, rng: random.Random) -> dict[Sort, list[Instruction]]:
    """Return all possible instructions on a scene in random order; rare kinds tend to come first."""
    maker = _Maker(scene, rng)
    found: dict[Sort, list[Instruction]] = {"do": [], "complete": [], "answer": []}
    for instruction in (
        *maker.yield_element_instructions(),
        *maker.yield_screen_instructions(),
        *maker.yield_completed(),
    ):
        found[instruction.sort].append(instruction)
    return {sort: _shuffle_weighted(instructions, rng) for sort, instructions in found.items()}


def _shuffle_weighted(instructions: list[Instruction], rng: random.Random) -> list[Instruction]:
    """Shuffle by weight without replacement (Efraimidis and Spirakis, 2006), so that rare kinds come first."""
    keyed = [(rng.random() ** (1 / _weigh_action(one.action)), place) for place, one in enumerate(instructions)]
    return [instructions[place] for _, place in sorted(keyed, reverse=True)]


def _weigh_action(action: Action) -> float:
    if action.target is None:
        return 0.4
    return 1.0 if action.type == "click" else 3.0


class _Maker:
    """Goes through a scene and words what can be done there."""

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self._scene, self._rng, self._actions = scene, rng, ActionBuilder(scene.suite.space)
        self._last = scene.history[-1:]
        elements = scene.observation.elements
        self._labels = Counter(flatten(element.label).casefold() for element in elements)
        self._pairs = Counter((element.role, flatten(element.label).casefold()) for element in elements)

    def yield_element_instructions(self) -> Iterator[Instruction]:
        """Yield instructions for every uniquely named element."""
        for element in self._scene.observation.elements:
            it = self._name_element(element)
            if it is not None and "disabled" not in element.flags:
                yield from self._ask_about(element, it)

    def yield_screen_instructions(self) -> Iterator[Instruction]:
        """Yield instructions for the whole screen: back, home, scroll, open an app."""
        actions = self._actions
        # What holds on every screen, whatever it shows.
        for wanted, action in (
            ("back", actions.go_back()),
            ("home", actions.go_home()),
            ("scroll down", actions.scroll("down")),
            ("scroll up", actions.scroll("up")),
        ):
            yield from self._do(wanted, action)
        for name in self._draw_other_apps():
            yield from self._do("start", actions.open(name), it=self._rng.choice((name, name.title())))
        shown = self._name_screen()
        # Also one that is fulfilled already: a policy must learn to say that it is done.
        if shown is not None:
            yield from self._ask_completed("is open", actions.declare_done(), it=shown)

    def yield_completed(self) -> Iterator[Instruction]:
        """Yield the last action as an instruction that is already fulfilled."""
        done = self._actions.declare_done()
        if done is not None and self._last and self._last[0].effect not in _NOTHING:
            goal = _write_goal(self._last[0].action)
            yield Instruction(sort="complete", goal=goal, action=done, history=self._last, needs_history=True)

    def _draw_other_apps(self) -> list[str]:
        """Draw two other apps whose names match no element of the screen."""
        elements = self._scene.observation.elements
        taken = {flatten(element.label).casefold() for element in elements if element.role != "app"}
        taken.add(self._scene.app.casefold())
        apps = [name for name in list_app_names(self._scene.suite) if name.casefold() not in taken]
        return self._rng.sample(apps, min(2, len(apps)))

    def _name_screen(self) -> str | None:
        """Return a name for the screen; None if an element has the same name."""
        title = flatten(self._scene.observation.title)
        app, _, part = (piece.strip() for piece in title.partition(":"))
        name = part or app
        called_so = {flatten(one.label).casefold() for one in self._scene.observation.elements if one.role != "heading"}
        if not name or name.casefold() in called_so:
            return None
        return self._rng.choice((title, f'"{part}" in {app}', f"{part} in {app}")) if part else app

    def _ask_about(self, element: Element, it: str) -> Iterator[Instruction]:
        actions, index = self._actions, element.index
        # What an element is for decides which instructions make sense.
        if facts.is_typed_into(element):
            yield from self._ask_typing(element, it)
        elif element.role in facts.TOGGLES:
            yield from self._ask_toggling(element, it)
        elif element.role == "slider":
            yield from self._do("more", actions.swipe(index, "right"), it=it)
            yield from self._do("less", actions.swipe(index, "left"), it=it)
        elif element.role not in facts.SILENT:
            yield from self._do("tap", actions.tap(index), it=it, role=element.role)
            if "long-clickable" in element.flags:
                yield from self._do("hold", actions.hold(index), it=it)
        # A list takes a tap to open and a choice: both are taught.
        if element.role == "drop-down":
            yield from self._ask_setting(element, it)
        if element.value:
            holds = facts.is_typed_into(element) or element.role in facts.SET
            yield from self._answer("value" if holds else "note", element, it, flatten(element.value))

    def _ask_typing(self, element: Element, it: str) -> Iterator[Instruction]:
        text = draw_text(self._rng)
        replacing = bool(element.value)
        action = self._actions.type(element.index, text, instead=replacing)
        yield from self._do("replace" if replacing else "type", action, it=it, text=text)
        if element.value:
            because = format_element(element)
            yield from self._ask_completed(
                "replace", self._actions.declare_done(), it=it, text=flatten(element.value), because=because
            )

    def _ask_toggling(self, element: Element, it: str) -> Iterator[Instruction]:
        # Each instruction comes with its opposite, which is fulfilled already: both are answered differently.
        on, tap, because = facts.is_on(element), self._actions.tap(element.index), format_element(element)
        if element.role == "radio":
            if not on:
                yield from self._do("choose", tap, it=it)
            else:
                yield from self._ask_completed("choose", self._actions.declare_done(), it=it, because=because)
            return
        # Two wordings, drawn, so that neither stands for the element.
        ways = (("turn on", "turn off"), ("tick", "untick"))
        wanted, unwanted = self._rng.choice(ways if element.role == "checkbox" else ways[:1])
        yield from self._do(unwanted if on else wanted, tap, it=it)
        yield from self._ask_completed(wanted if on else unwanted, self._actions.declare_done(), it=it, because=because)
        yield from self._answer("is on", element, it, "on" if on else "off")

    def _ask_setting(self, element: Element, it: str) -> Iterator[Instruction]:
        """Yield instructions for the options below a list."""
        below = self._scene.observation.elements[element.index + 1 :]
        for option in takewhile(lambda one: one.role == "option", below):
            name = flatten(option.label)
            if name and self._pairs["option", name.casefold()] == 1 and name != flatten(element.value or ""):
                action = self._actions.select(element.index, option.label) or self._actions.tap(option.index)
                yield from self._do("set", action, it=it, text=name)
        if element.value:
            because, text = format_element(element), flatten(element.value)
            yield from self._ask_completed("set", self._actions.declare_done(), it=it, text=text, because=because)

    def _do(self, wanted: str, action: Action | None, **names: str) -> Iterator[Instruction]:
        """Yield an instruction with or without history, so that neither wording nor history reveals the answer.

        The history's wording of typing does not say whether old text stays, so replacing never uses it.
        """
        if action is None:
            return
        words = self._scene.suite.space.describe(action, self._scene.observation)
        history = () if self._last and self._last[0].action == words else self._draw_history()
        plain = wanted != "replace" and self._rng.random() < _PLAIN
        goal = _write_goal(words) if plain else ask(wanted, self._rng, **names)
        yield Instruction(sort="do", goal=goal, action=action, history=history)

    def _ask_completed(
        self, wanted: str, action: Action | None, because: str | None = None, **names: str
    ) -> Iterator[Instruction]:
        if action is not None:
            goal, history = ask(wanted, self._rng, **names), self._draw_history()
            yield Instruction(sort="complete", goal=goal, action=action, because=because, history=history)

    def _answer(self, wanted: str, element: Element, it: str, text: str) -> Iterator[Instruction]:
        action = self._actions.answer(text)
        if action is not None:
            goal, history = ask(wanted, self._rng, it=it), self._draw_history()
            yield Instruction(sort="answer", goal=goal, action=action, because=format_element(element), history=history)

    def _draw_history(self) -> tuple[HistoryEntry, ...]:
        """Draw the prompt's history: the last action half of the time, else nothing."""
        return self._last if self._rng.random() < 0.5 else ()

    def _name_element(self, element: Element) -> str | None:
        """Return an instruction's name for an element; None if ambiguous."""
        name = flatten(element.label)
        if not name or self._pairs[element.role, name.casefold()] > 1:
            return None
        return name_as_user(element, self._rng, alone=self._labels[name.casefold()] == 1)


def _write_goal(words: str) -> str:
    """Return an action in words as an instruction."""
    return f"{words[:1].upper()}{words[1:]}."


_PLAIN = 0.25
"""Share of instructions in the words in which the history tells actions."""
_NOTHING = frozenset({"nothing changed", "nothing visible changed", "one second passed"})
"""Effects of actions that did nothing."""


_TRIES = 4
"""Second steps that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A screen on the way, and what is to be done there."""

    scene: Scene
    instruction: Instruction


async def build_two_steps(scene: Scene, first: Instruction, rng: random.Random) -> tuple[Moment, ...]:
    """Build the three moments of an instruction and a following one.

    Args:
        first: of sort "do"; its action is canonical on the scene.

    Returns:
        Empty where the environment cannot fork, nothing follows, or the space has no word for being done.

    Raises:
        EnvironmentFailure: the environment broke.
    """
    done = ActionBuilder(scene.suite.space).declare_done()
    # Without a fork, trying the first step would change the screen that rows are made of.
    if not isinstance(scene.environment, Forkable) or done is None:
        return ()
    fork = await scene.environment.fork()
    # The fork holds a device or a page: it is closed on every way out.
    try:
        result = await fork.step(first.action)
        # An episode that ends with the first step has no second one.
        if result.done:
            return ()
        halfway = replace(_advance_scene(replace(scene, history=()), first.action, result), environment=fork)
        found = await _find_following(halfway, rng)
    finally:
        await fork.close()
    if found is None:
        return ()
    second, result = found
    goal = join_wordings(first.goal, second.goal, rng)
    end = _advance_scene(halfway, second.action, result)
    # Three moments of one goal: the first step, the second, and saying that it is done.
    return tuple(
        Moment(
            scene=met,
            instruction=Instruction(sort="do", goal=goal, action=action, history=history),
        )
        for met, action, history in (
            (scene, first.action, ()),
            (halfway, second.action, halfway.history),
            (end, done, end.history),
        )
    )


def join_wordings(first: str, second: str, rng: random.Random) -> str:
    """Join two wordings: "Tap OK and go back."."""
    verb = second.split()[0]
    if verb not in _VERBS or _NAME_FIRST.match(second) or rng.random() < 0.25:
        return f"{first} {second}"
    joint = rng.choice((" and ", " and then ", ", then "))
    return f"{first.removesuffix('.').removesuffix(', please')}{joint}{verb.lower()}{second[len(verb) :]}"


async def _find_following(scene: Scene, rng: random.Random) -> tuple[Instruction, StepResult] | None:
    """Return an instruction with an effect on this screen that does not end the episode; None without one."""
    for second in propose_instructions(scene, rng)["do"][:_TRIES]:
        second = replace(second, action=scene.suite.space.canonical(second.action, scene.observation))
        result = await try_action(scene, second.action)
        if result is not None and has_effect(scene, result) and not result.done:
            return second, result
    return None


def _advance_scene(scene: Scene, action: Action, result: StepResult) -> Scene:
    """Return the scene after an action; its environment is still the old scene's."""
    space, before = scene.suite.space, scene.observation
    entry: HistoryEntry = build_history_entry(space, before, action, format_reason(action, before, space), result)
    return replace(
        scene,
        step=scene.step + 1,
        observation=result.observation,
        history=(*scene.history, entry),
        taken=(*scene.taken, action),
        seed=scene.seed,
    )


_VERBS = frozenset(
    wording.split()[0] for wordings in PHRASES.values() for wording in wordings if not wording.startswith("{")
) - {"I", "On", "One", "Is", "What", "Which"}
"""Words that begin a wording and are small within a sentence."""
_NAME_FIRST = re.compile(r'[^"]*( should be |: ")')
"""Wordings that begin with a name, which may be such a word and keeps its capital."""
