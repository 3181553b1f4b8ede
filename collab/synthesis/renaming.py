"""Rename apps and labels of a scene, so that a policy reads names instead of memorising them.

A policy trained on a dozen apps and some hundred labels memorises them, and opens the app that it knows best on other
phones. So some scenes are taught under other names (domain randomisation of words, Tobin et al., 2017), in prompt and
reply alike.

    renaming = rename_apps(scene, goal, rng)                    # "Simple Calendar Pro" → "Mirado Notes"
    shown, right = renaming.rename_scene(scene), renaming.rename_action(right)

    shown = rename_labels(scene, rng)                           # button "Save" [7] → button "Copper Lantern" [7]

Actions are executed under the true names; only rows have the new ones.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from collab.envs.text import flatten, format_element
from collab.synthesis.screens import list_app_names
from collab.synthesis.teacher import Scene
from collab.synthesis.wording import draw_name
from collab.types import Action, Observation, Scalar

_LONGEST = 40
"""Characters of a label that gets another name; what is longer is prose."""
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Renaming:
    """Old names in lower case → new ones; at least one."""

    names: Mapping[str, str]
    _old: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_old", _compile_names(self.names))

    def text(self, said: str) -> str:
        """Replace names in a text.

        A single word counts as a name only with a capital, alone or in quotation marks: "tasks" may be no app.
        """
        return self._old.sub(lambda found: self._get_new(found) if _is_name(found) else found[0], said)

    def rename_goal(self, goal: str) -> str:
        """Replace names in a goal that surely names them, whatever its spelling."""
        return self._old.sub(self._get_new, goal)

    def rename_action(self, action: Action) -> Action:
        """Replace names in an action's texts; an app to open is always a name."""
        if action.type == "open_app":
            return replace(action, arguments=(("app_name", self.rename_goal(str(action["app_name"])).casefold()),))
        return replace(action, arguments=tuple((name, self._rename_value(value)) for name, value in action.arguments))

    def rename_scene(self, scene: Scene) -> Scene:
        """Replace names in a scene's goal, history and screen."""
        history = tuple(
            replace(one, action=self.text(one.action), reason=self.text(one.reason), effect=self.text(one.effect))
            for one in scene.history
        )
        task = replace(scene.task, goal=self.text(scene.task.goal))
        return replace(scene, task=task, history=history, observation=_rename_screen(scene.observation, self.text))

    def _rename_value(self, value: Scalar) -> Scalar:
        return self.text(value) if isinstance(value, str) else value

    def _get_new(self, found: re.Match[str]) -> str:
        new = self.names[found[0].casefold()]
        return new if found[0][0].isupper() else new.casefold()


def rename_apps(scene: Scene, goal: str, rng: random.Random) -> Renaming | None:
    """Draw another name for each app in a goal; None without one."""
    known = {_strip_app(name) for name in (*list_app_names(scene.suite), scene.app) if name}
    named = [name for name in sorted(known) if _LETTER.search(name) and _has_name(goal, name)]
    return Renaming({name: draw_name(rng) for name in named}) if named else None


def rename_opened(action: Action, rng: random.Random) -> Renaming:
    """Draw another name for the app that an action opens."""
    return Renaming({_strip_app(str(action["app_name"])): draw_name(rng)})


def rename_labels(scene: Scene, rng: random.Random) -> Scene:
    """Return the scene with new names for all labels except apps and long texts, and without history."""
    kept = {name.casefold() for name in list_app_names(scene.suite)} | {scene.app.casefold()}
    labels = dict.fromkeys(flatten(element.label) for element in scene.observation.elements)
    names = {
        label: draw_name(rng)
        for label in labels
        if _LETTER.search(label) and len(label) <= _LONGEST and label.casefold() not in kept
    }
    screen = _rename_screen(scene.observation, lambda text: names.get(text, text))
    return replace(scene, history=(), taken=(), observation=screen)


def find_spelling(app: str, told: str) -> str | None:
    """Return an app's name as the prompt first spells it; None if the prompt does not name it."""
    found = re.search(_build_pattern(app), told, re.IGNORECASE)
    return None if found is None else found[0]


def as_told(action: Action, told: str) -> Action:
    """Spell the app of an opening action as the prompt does."""
    name = find_spelling(str(action["app_name"]), told) if action.type == "open_app" else None
    return action if name is None else replace(action, arguments=(("app_name", name),))


def as_told_beside(action: Action, other: Action, told: str) -> Action:
    """Spell the app as the prompt does, or else with capitals like `other`, so that spelling reveals nothing."""
    said = as_told(action, told)
    if said != action or action.type != "open_app" or other.type != "open_app":
        return said
    capital = str(as_told(other, told)["app_name"])[:1].isupper()
    return replace(action, arguments=(("app_name", str(action["app_name"]).title()),)) if capital else action


def _rename_screen(observation: Observation, renamed: Callable[[str], str]) -> Observation:
    """Rename a screen's title, labels and values."""
    # All together: a half-renamed screen contradicts itself.
    elements = tuple(
        replace(
            element,
            label=renamed(flatten(element.label)),
            value=None if element.value is None else renamed(flatten(element.value)),
        )
        for element in observation.elements
    )
    title = ": ".join(renamed(part) for part in flatten(observation.title).split(": "))
    lines = observation.text.split("\n")
    # Keep the lines between title and elements.
    extra = lines[1 : len(lines) - len(elements)]
    text = "\n".join([f"Screen: {title}", *extra, *map(format_element, elements)])
    return replace(observation, title=title, elements=elements, text=text)


def _strip_app(app: str) -> str:
    """Return an app's name in lower case without the word "app"."""
    return app.casefold().removesuffix(" app")


def _has_name(goal: str, name: str) -> bool:
    """Return whether a goal names an app."""
    return any(map(_is_name, re.finditer(_build_pattern(name), goal, re.IGNORECASE)))


def _is_name(found: re.Match[str]) -> bool:
    """Return whether a match is used as a name."""
    before, after = found.string[: found.start()], found.string[found.end() :]
    alone = (not before and not after) or (before[-1:] == '"' == after[:1])
    return alone or found[0][0].isupper() or " " in found[0]


def _compile_names(names: Iterable[str]) -> re.Pattern[str]:
    """Compile a pattern of the names that prefers the longest."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile("|".join(map(_build_pattern, longest_first)), re.IGNORECASE)


def _build_pattern(name: str) -> str:
    return rf"(?<!\w){re.escape(name)}(?!\w)"
