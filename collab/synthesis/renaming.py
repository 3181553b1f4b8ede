"""A scene under other names, so that names are read and not known by heart.

A policy that meets a dozen apps and some hundred labels learns them by heart, and on a phone with another app it opens
the one it knows best. So some scenes are taught as if their apps or labels were called otherwise (domain randomisation,
Tobin et al., 2017, of words): wherever the prompt tells the old name it tells the new one, and so does the reply.

    renaming = of_apps(scene, goal, rng)                        # "Simple Calendar Pro" → "Mirado Notes"
    shown, right = renaming.scene(scene), renaming.action(right)

    shown = other_labels(scene, rng)                            # button "Save" [7] → button "Copper Lantern" [7]

What is done in the environment is done under the true names; only rows tell the new ones.
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
        """A text with new names.

        A name of one word counts where it begins with a capital or is all that is said or stands in quotation marks:
        "tasks" may be an app or something to do.
        """
        return self._old.sub(lambda found: self._get_new(found) if _is_name(found) else found[0], said)

    def rename_goal(self, goal: str) -> str:
        """A goal that is known to ask for what has a new name, however it spells it."""
        return self._old.sub(self._get_new, goal)

    def rename_action(self, action: Action) -> Action:
        """An action with new names in what it says. What it opens is an app, and written as actions write it."""
        if action.type == "open_app":
            return replace(action, arguments=(("app_name", self.rename_goal(str(action["app_name"])).casefold()),))
        return replace(action, arguments=tuple((name, self._rename_value(value)) for name, value in action.arguments))

    def rename_scene(self, scene: Scene) -> Scene:
        """The scene as a prompt tells it."""
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
    """Another name for each app that a goal names; None where it names none."""
    known = {_strip_app(name) for name in (*list_app_names(scene.suite), scene.app) if name}
    named = [name for name in sorted(known) if _LETTER.search(name) and _has_name(goal, name)]
    return Renaming({name: draw_name(rng) for name in named}) if named else None


def rename_opened(action: Action, rng: random.Random) -> Renaming:
    """Another name for the app that an action opens."""
    return Renaming({_strip_app(str(action["app_name"])): draw_name(rng)})


def rename_labels(scene: Scene, rng: random.Random) -> Scene:
    """The scene with other names for all that its screen shows, except apps and long texts; nothing done before."""
    kept = {name.casefold() for name in list_app_names(scene.suite)} | {scene.app.casefold()}
    labels = dict.fromkeys(flatten(element.label) for element in scene.observation.elements)
    names = {
        label: draw_name(rng)
        for label in labels
        if _LETTER.search(label) and len(label) <= _LONGEST and label.casefold() not in kept
    }
    screen = _rename_screen(scene.observation, lambda text: names.get(text, text))
    return replace(scene, history=(), last=None, observation=screen)


def find_spelling(app: str, told: str) -> str | None:
    """An app's name as a prompt first spells it; None where the prompt does not name it."""
    found = re.search(_build_pattern(app), told, re.IGNORECASE)
    return None if found is None else found[0]


def as_told(action: Action, told: str) -> Action:
    """An action that opens an app, with the app's name spelled as the prompt first does: copied, not rewritten."""
    name = find_spelling(str(action["app_name"]), told) if action.type == "open_app" else None
    return action if name is None else replace(action, arguments=(("app_name", name),))


def as_told_beside(action: Action, other: Action, told: str) -> Action:
    """The same for an action that stands beside another one as told: its spelling must not tell which of them is right.

    An app that the prompt does not name has capitals where the other's has.
    """
    said = as_told(action, told)
    if said != action or action.type != "open_app" or other.type != "open_app":
        return said
    capital = str(as_told(other, told)["app_name"])[:1].isupper()
    return replace(action, arguments=(("app_name", str(action["app_name"]).title()),)) if capital else action


def _rename_screen(observation: Observation, renamed: Callable[[str], str]) -> Observation:
    """A screen whose title, labels and values have other names."""
    # Labels, values and title together: a screen with half of its names changed contradicts itself.
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
    # Lines between title and elements stay: they say what the screen can do.
    extra = lines[1 : len(lines) - len(elements)]
    text = "\n".join([f"Screen: {title}", *extra, *map(format_element, elements)])
    return replace(observation, title=title, elements=elements, text=text)


def _strip_app(app: str) -> str:
    """An app's name as old names are written, without the word that goals say with it or not."""
    return app.casefold().removesuffix(" app")


def _has_name(goal: str, name: str) -> bool:
    """Whether a goal calls an app by its name."""
    return any(map(_is_name, re.finditer(_build_pattern(name), goal, re.IGNORECASE)))


def _is_name(found: re.Match[str]) -> bool:
    """Whether an old name is meant as one where it was found."""
    before, after = found.string[: found.start()], found.string[found.end() :]
    alone = (not before and not after) or (before[-1:] == '"' == after[:1])
    return alone or found[0][0].isupper() or " " in found[0]


def _compile_names(names: Iterable[str]) -> re.Pattern[str]:
    """Any of the names, the longest that fits."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile("|".join(map(_build_pattern, longest_first)), re.IGNORECASE)


def _build_pattern(name: str) -> str:
    return rf"(?<!\w){re.escape(name)}(?!\w)"
