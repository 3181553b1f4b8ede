"""Whether a reply is in another language than it was asked in: two plain tests, and what they cannot see.

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

import re
import unicodedata
from collections import Counter
from functools import lru_cache

FOREIGN = "another language"
"""Cause of a refusal."""
FOREIGN_SHARE = 0.3
"""Of the letters; above it a reply counts as written in another script."""
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
    """Whether a reply is in another language than it was asked in (see the head of this file).

    Args:
        goal: of the task; empty where a question of our own was asked.
        screen: its scripts are allowed, its language is not asked for.
    """
    plain = _QUOTED.sub(" ", reply)
    letters = [letter for letter in plain if letter.isalpha()]
    known = scripts(goal or "a") | scripts(screen)
    foreign = sum(_script(letter) not in known for letter in letters)
    if foreign > FOREIGN_SHARE * len(letters):
        return True
    spoken = language_of(plain)
    return spoken is not None and spoken != (language_of(goal) or "english")


def scripts(text: str) -> set[str]:
    """Scripts of its letters, as the first word of a Unicode name: "LATIN", "CJK" and the like."""
    return {_script(letter) for letter in set(text) if letter.isalpha()}


def language_of(text: str) -> str | None:
    """The language whose function words it is full of; None when no language of the list stands out."""
    words = Counter(word.casefold() for word in _WORD.findall(text))
    hits = {language: sum(words[word] for word in known) for language, known in _LISTS.items()}
    best, second = sorted(hits, key=lambda language: hits[language], reverse=True)[:2]
    return best if hits[best] >= max(_FEWEST_HITS, 2 * hits[second]) else None


@lru_cache(maxsize=1 << 14)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split(" ")[0].split("-")[0]
