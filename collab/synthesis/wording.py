"""Word one-step instructions and questions in many ways, as users do.

    it = name_as_user(element, rng, alone=True)       # the "OK" button
    ask("tap", rng, role="button", it=it)             # Press the "OK" button.
    ask("type", rng, it="First name", text="Ada")     # Fill in "Ada" for First name.

Texts to type (names, numbers, file names, sentences) are drawn by seed. There are very many, so that a policy learns to
copy from the task. Codes mix letters with digits and spell no word.

The questions of the basic level (CollabUIAgents, table 9), each in several phrasings of our own.

    about a screen     what it is for, what it aims at, a summary
    about an element   its function, the information it gives, what tapping it does, the action that goes with it

Elements are named in questions as the screen shows them, with their index.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from collab.envs.text import flatten
from collab.types import Element

PHRASES: Mapping[str, tuple[str, ...]] = {
    "tap": (
        "Tap {it}.",
        "Tap on {it}.",
        "Press {it}.",
        "Click {it}.",
        "Click on {it}.",
        "Please tap {it}.",
        "Hit {it}.",
    ),
    "hold": (
        "Hold {it}.",
        "Long-press {it}.",
        "Press {it} for a second.",
        "Keep {it} pressed.",
        "Press and hold {it}.",
    ),
    "turn on": ("Turn {it} on.", "Switch {it} on.", "Activate {it}.", "I want {it} to be on.", "Enable {it}."),
    "turn off": ("Turn {it} off.", "Switch {it} off.", "Deactivate {it}.", "I want {it} to be off.", "Disable {it}."),
    "tick": (
        "Check {it}.",
        "Tick {it}.",
        "Mark {it}.",
        "Put a tick at {it}.",
        "Select {it}.",
        "{it} should be ticked.",
    ),
    "untick": ("Uncheck {it}.", "Untick {it}.", "Unmark {it}.", "Take the tick away from {it}.", "Deselect {it}."),
    "choose": ("Choose {it}.", "Pick {it}.", "Set it to {it}.", "I want {it}.", "Decide for {it}.", "Select {it}."),
    "set": (
        'Select "{text}" from {it}.',
        'Choose "{text}" in {it}.',
        'Set {it} to "{text}".',
        'Pick "{text}" from {it}.',
        'I want "{text}" chosen in {it}.',
    ),
    "type": (
        'Type "{text}" into {it}.',
        'Enter "{text}" in {it}.',
        'Enter "{text}" into {it}.',
        'Write "{text}" into {it}.',
        'Put "{text}" into {it}.',
        'Fill in "{text}" for {it}.',
        'Fill {it} with "{text}".',
        '{it}: "{text}".',
    ),
    "replace": (
        'Replace what {it} holds by "{text}".',
        'Change {it} to "{text}".',
        'Clear {it} and type "{text}".',
        '{it} should be "{text}".',
        'Overwrite {it} with "{text}".',
    ),
    "more": ("Move {it} to the right.", "Turn {it} up.", "Drag {it} to the right.", "Raise {it}.", "Increase {it}."),
    "less": ("Move {it} to the left.", "Turn {it} down.", "Drag {it} to the left.", "Lower {it}.", "Decrease {it}."),
    "start": (
        "Open the app {it}.",
        "Start {it}.",
        "Start the app {it}.",
        "Launch {it}.",
        "Switch to the app {it}.",
        "I want to use {it}.",
        "Bring up the {it} app.",
    ),
    "back": (
        "Go back.",
        "Return to the screen before.",
        "Leave this screen.",
        "One screen back, please.",
        "Take me back.",
    ),
    "home": ("Go to the home screen.", "Go home.", "Leave for the home screen.", "Take me to the home screen."),
    "scroll down": ("Scroll down.", "Show what is further down.", "See more below.", "Move down the page."),
    "scroll up": ("Scroll up.", "Show what is further up.", "See more above.", "Move up the page."),
    "is open": ("Show {it}.", "Show me {it}.", "Go to {it}.", "Get me to {it}.", "Bring me to {it}."),
    "value": (
        "What does {it} say?",
        "What is the value of {it}?",
        "Read {it} to me.",
        "Tell me what {it} is set to.",
        "What stands in {it}?",
    ),
    "note": (
        "What stands next to {it}?",
        "Tell me what is said about {it}.",
        "Which note goes with {it}?",
        "Read out what stands beside {it}.",
        "What does the screen say about {it}?",
    ),
    "is on": ("Is {it} on or off?", "Tell me whether {it} is on or off.", "On or off: what is {it}?"),
}
"""What is wanted → its wordings."""

TAPS: Mapping[str, tuple[str, ...]] = {
    "list item": ("Open {it}.", "Choose {it} in the list."),
    "link": ("Follow {it}.", "Open {it}.", "Go where {it} leads."),
    "tab": ("Open {it}.", "Switch to {it}.", "Change over to {it}."),
    "option": ("Select {it}.", "Choose {it}.", "Pick {it} from the list."),
    "spinner": ("Open {it}.", "Show the choices of {it}."),
    "button": ("Push {it}.", "Select {it}."),
    "chip": ("Select {it}.", "Choose {it}."),
}
"""Role → wordings for tapping it, beside those of every element."""

_NOUNS: Mapping[str, tuple[str, ...]] = {
    "input": ("field", "input", "text field", "box"),
    "textarea": ("field", "text area", "text box"),
    "checkbox": ("checkbox", "box"),
    "radio": ("option", "radio button"),
    "icon": ("icon", "button"),
    "list item": ("entry", "list item", "item"),
    "spinner": ("list", "spinner", "drop-down"),
    "drop-down": ("list", "drop-down", "drop-down list"),
}
"""Role → what people call it; any other is called by its role."""
_BARE = re.compile(r"[^\W_][\w#+@' -]{0,23}")
"""Labels that can stand in a sentence without quotation marks."""


def list_wordings(wanted: str, role: str = "") -> tuple[str, ...]:
    """Return all wordings of a request, with those of the element's role."""
    return PHRASES[wanted] + (TAPS.get(role, ()) if wanted == "tap" else ())


def ask(wanted: str, rng: random.Random, *, role: str = "", **names: str) -> str:
    """Draw one wording and fill it in."""
    said = rng.choice(list_wordings(wanted, role)).format(**names)
    return f"T{said[1:]}" if said.startswith("the ") else said


def name_as_user(element: Element, rng: random.Random, *, alone: bool) -> str:
    """Draw a user's name for an element: "OK", OK, the "OK" button, the button "OK".

    Args:
        alone: whether the label is unique on the screen; otherwise the exact role is added.
    """
    name = flatten(element.label)
    if not alone:
        return rng.choice((f'the {element.role} "{name}"', f'the "{name}" {element.role}'))
    noun = rng.choice(_NOUNS.get(element.role, (element.role,)))
    forms = [f'"{name}"', f'"{name}"', f'the "{name}" {noun}', f'the {noun} "{name}"']
    if _BARE.fullmatch(name) and name.casefold() not in _NOT_BARE:
        forms.append(name)
    return rng.choice(forms)


_NOT_BARE = frozenset({"home", "back", "up", "down", "on", "off", "it", "more", "less"})
"""Labels that would turn an instruction into another one."""


_FIRST = (
    *("Ada", "Ben", "Carla", "Dario", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Karim", "Leila", "Marta"),
    *("Nils", "Olga", "Pavel", "Rosa", "Sven", "Tara", "Umut", "Vera", "Wim", "Yara", "Zoe"),
)
_LAST = (
    *("Almeida", "Brandt", "Castro", "Dumont", "Eriksen", "Fontana", "Grabowski", "Hansen", "Ivanova", "Jansen"),
    *("Kowalski", "Lindgren", "Moreau", "Novak", "Okafor", "Petrov", "Quintana", "Rossi", "Sato", "Tanaka", "Weber"),
)
_THINGS = (
    *("harbor", "lantern", "meadow", "bridge", "garden", "window", "river", "engine", "ticket", "mirror", "pencil"),
    *("station", "island", "copper", "silver", "forest", "kettle", "ladder", "market", "parcel", "saddle", "violin"),
)
_HOW = ("quiet", "rapid", "bright", "green", "old", "small", "clever", "late", "early", "open", "round", "warm")
_VERBS = ("bring", "check", "paint", "call about", "return", "look at", "measure", "clean", "order", "photograph")
_WHEN = ("today", "tomorrow", "on Monday", "before noon", "after lunch", "next week", "at six", "in the evening")
_ONSETS = (*"bcdfghjklmnpqrstvwxyz", "ch", "sh", "st", "tr", "br", "pl", "gr", "")
_VOWELS = (*"aeiouaeio", "ea", "ou", "ai", "y")
_CODAS = (*"nrstlxmdk", "ng", "", "", "", "")
_JOINTS = (" ", " ", "-", " #", ": ", "/", "_")
_ENDINGS = (".txt", ".md", ".pdf", ".jpg", ".csv")


def draw_text(rng: random.Random) -> str:
    """Draw one text of a random kind."""
    return rng.choice(_KINDS)(rng)


def draw_name(rng: random.Random) -> str:
    """Draw an unused name from invented words, real words or a code."""
    dice = rng.random()
    if dice < 0.5:
        return " ".join(_draw_word(rng).capitalize() for _ in range(rng.choice((1, 1, 2))))
    if dice < 0.8:
        return " ".join(word.capitalize() for word in rng.sample((*_THINGS, *_HOW), rng.choice((1, 2, 2, 3))))
    rest = (_number, _draw_code, _draw_word)[rng.randrange(3)](rng)
    return f"{rng.choice(_THINGS).capitalize()}{rng.choice(_JOINTS)}{rest}"


def _draw_word(rng: random.Random) -> str:
    """Draw a pronounceable invented word."""
    syllables = [f"{rng.choice(_ONSETS)}{rng.choice(_VOWELS)}" for _ in range(rng.randrange(2, 5))]
    return f"{''.join(syllables)}{rng.choice(_CODAS)}"


def _name(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)} {rng.choice(_LAST)}" if rng.random() < 0.6 else rng.choice((*_FIRST, *_LAST))


def _draw_phone(rng: random.Random) -> str:
    return f"+1{rng.randrange(10**9, 10**10)}"


def _number(rng: random.Random) -> str:
    whole = rng.randrange(10 ** rng.randrange(1, 6))
    return f"{whole}.{rng.randrange(100):02d}" if rng.random() < 0.3 else str(whole)


def _draw_file(rng: random.Random) -> str:
    return f"{rng.choice(_HOW)}_{rng.choice(_THINGS)}_{rng.randrange(100)}{rng.choice((*_ENDINGS, ''))}"


def _draw_date(rng: random.Random) -> str:
    return f"2023-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"


def _draw_code(rng: random.Random) -> str:
    return "".join(f"{rng.choice('BCDFGHKLMNPRSTVXZ')}{rng.randrange(10)}" for _ in range(rng.randrange(2, 5)))


def _draw_sentence(rng: random.Random) -> str:
    thing = f"the {rng.choice(_HOW)} {rng.choice(_THINGS)}"
    text = f"{rng.choice(_VERBS)} {thing} {rng.choice(_WHEN)}"
    return f"{text[0].upper()}{text[1:]}." if rng.random() < 0.5 else text


def _draw_thing(rng: random.Random) -> str:
    return rng.choice((*_THINGS, *_HOW)) if rng.random() < 0.5 else f"{rng.choice(_HOW)} {rng.choice(_THINGS)}"


_KINDS: tuple[Callable[[random.Random], str], ...] = (
    _name,
    _draw_phone,
    _number,
    _draw_file,
    _draw_date,
    _draw_code,
    _draw_sentence,
    _draw_thing,
)


ScreenKind: TypeAlias = Literal["screen-purpose", "screen-aim", "screen-summary"]
ElementKind: TypeAlias = Literal["element-function", "element-information", "element-effect", "element-action"]

SCREEN: MappingProxyType[ScreenKind, tuple[str, ...]] = MappingProxyType(
    {
        "screen-purpose": (
            "What is this screen for?",
            "What is the purpose of what is shown?",
            "Why would somebody open this screen?",
            "Which purpose does this screen serve?",
        ),
        "screen-aim": (
            "What does this screen want its user to do?",
            "What can be done here?",
            "What does this screen aim at?",
            "What is a user meant to achieve here?",
        ),
        "screen-summary": (
            "Sum up this screen.",
            "Describe what is on the screen in a few sentences.",
            "Give a summary of this screen in one paragraph.",
            "What does the screen show, in short?",
        ),
    }
)
"""Kind → its phrasings."""

ELEMENT: MappingProxyType[ElementKind, tuple[str, ...]] = MappingProxyType(
    {
        "element-function": (
            "What is {element} for?",
            "What does {element} do?",
            "Which function does {element} have?",
            "Explain {element}.",
        ),
        "element-information": (
            "What does {element} tell?",
            "Which information does {element} give?",
            "What can be read from {element}?",
            "What is the state of {element}?",
        ),
        "element-effect": (
            "What happens when {element} is tapped?",
            "What does a tap on {element} lead to?",
            "If {element} is tapped, what comes next?",
            "Predict what tapping {element} does.",
        ),
        "element-action": (
            "Which action goes with {element}?",
            "What is the action that uses {element}?",
            "How is {element} operated? Give the action.",
            "Which action would an agent take on {element}?",
        ),
    }
)
"""Kind → its phrasings; {element} is filled in."""


def ask_about_screen(kind: ScreenKind, rng: random.Random) -> str:
    """Draw a phrasing of a question about a screen."""
    return rng.choice(SCREEN[kind])


def ask_about_element(kind: ElementKind, element: Element, rng: random.Random) -> str:
    """Draw a phrasing of a question about an element."""
    return rng.choice(ELEMENT[kind]).format(element=format_element_name(element))


def format_element_name(element: Element) -> str:
    """Format an element's role, label and index for a question."""
    label = flatten(element.label)
    return f'{element.role} "{label}" [{element.index}]' if label else f"{element.role} [{element.index}]"
