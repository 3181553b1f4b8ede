"""Texts to type in one-step instructions: names, numbers, file names, sentences, drawn by seed.

What matters is that there are very many of them, so that copying from the task is learned and not a list. Codes mix
letters with digits so closely that they spell no word.
"""

from __future__ import annotations

import random
from collections.abc import Callable

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


def drawn_text(rng: random.Random) -> str:
    """One text of a kind drawn at random."""
    return rng.choice(_KINDS)(rng)


def drawn_name(rng: random.Random) -> str:
    """A name that nothing is called by: of words that do not exist, of some that do, a code."""
    dice = rng.random()
    if dice < 0.5:
        return " ".join(_word(rng).capitalize() for _ in range(rng.choice((1, 1, 2))))
    if dice < 0.8:
        return " ".join(word.capitalize() for word in rng.sample((*_THINGS, *_HOW), rng.choice((1, 2, 2, 3))))
    rest = (_number, _code, _word)[rng.randrange(3)](rng)
    return f"{rng.choice(_THINGS).capitalize()}{rng.choice(_JOINTS)}{rest}"


def _word(rng: random.Random) -> str:
    """Syllables that may mean something in some language, and are drawn for their sound alone."""
    syllables = [f"{rng.choice(_ONSETS)}{rng.choice(_VOWELS)}" for _ in range(rng.randrange(2, 5))]
    return f"{''.join(syllables)}{rng.choice(_CODAS)}"


def _name(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)} {rng.choice(_LAST)}" if rng.random() < 0.6 else rng.choice((*_FIRST, *_LAST))


def _phone(rng: random.Random) -> str:
    return f"+1{rng.randrange(10**9, 10**10)}"


def _number(rng: random.Random) -> str:
    whole = rng.randrange(10 ** rng.randrange(1, 6))
    return f"{whole}.{rng.randrange(100):02d}" if rng.random() < 0.3 else str(whole)


def _file(rng: random.Random) -> str:
    return f"{rng.choice(_HOW)}_{rng.choice(_THINGS)}_{rng.randrange(100)}{rng.choice((*_ENDINGS, ''))}"


def _date(rng: random.Random) -> str:
    return f"2023-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"


def _code(rng: random.Random) -> str:
    return "".join(f"{rng.choice('BCDFGHKLMNPRSTVXZ')}{rng.randrange(10)}" for _ in range(rng.randrange(2, 5)))


def _sentence(rng: random.Random) -> str:
    thing = f"the {rng.choice(_HOW)} {rng.choice(_THINGS)}"
    text = f"{rng.choice(_VERBS)} {thing} {rng.choice(_WHEN)}"
    return f"{text[0].upper()}{text[1:]}." if rng.random() < 0.5 else text


def _thing(rng: random.Random) -> str:
    return rng.choice((*_THINGS, *_HOW)) if rng.random() < 0.5 else f"{rng.choice(_HOW)} {rng.choice(_THINGS)}"


_KINDS: tuple[Callable[[random.Random], str], ...] = (_name, _phone, _number, _file, _date, _code, _sentence, _thing)
