"""The ways in which people ask for one step: wishes in many wordings, and elements named as users name them.

    it = called(element, rng, alone=True)             # the "OK" button
    ask("tap", rng, role="button", it=it)             # Press the "OK" button.
    ask("type", rng, it="First name", text="Ada")     # Fill in "Ada" for First name.

What can be wished of an element of some role, each wording wishes in one way only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from collab.envs.text import flat
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


def wordings(wanted: str, role: str = "") -> tuple[str, ...]:
    """All ways to ask for something; of an element whose role is given, with those that belong to the role."""
    return PHRASES[wanted] + (TAPS.get(role, ()) if wanted == "tap" else ())


def ask(wanted: str, rng: random.Random, *, role: str = "", **names: str) -> str:
    """One wording, filled in."""
    said = rng.choice(wordings(wanted, role)).format(**names)
    return f"T{said[1:]}" if said.startswith("the ") else said


def called(element: Element, rng: random.Random, *, alone: bool) -> str:
    """An element as somebody calls it: "OK", OK, the "OK" button, the button "OK".

    Args:
        alone: no other element on the screen has this label; else its exact role is said with it.
    """
    name = flat(element.label)
    if not alone:
        return rng.choice((f'the {element.role} "{name}"', f'the "{name}" {element.role}'))
    noun = rng.choice(_NOUNS.get(element.role, (element.role,)))
    forms = [f'"{name}"', f'"{name}"', f'the "{name}" {noun}', f'the {noun} "{name}"']
    if _BARE.fullmatch(name) and name.casefold() not in _NOT_BARE:
        forms.append(name)
    return rng.choice(forms)


_NOT_BARE = frozenset({"home", "back", "up", "down", "on", "off", "it", "more", "less"})
"""Labels that would turn an instruction into another one."""
