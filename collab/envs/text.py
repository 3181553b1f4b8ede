"""The observation as a policy reads it: one line per element, label before index.

Label first, because a reply that names an element then goes on to its index by plain copying: a small model learns
that in minutes and never learns the other order.

    button "Save" [7]
    input "Name": "Ada" [8] (focused)
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from collab.types import Element

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line separators and half characters; joiners inside emoji and scripts stay."""

HIDDEN_FLAGS = frozenset({"surface"})
"""Flags that matter to the canonical form and mean nothing to a reader."""


def line(element: Element) -> str:
    """One element in one line; line breaks in its text become spaces."""
    label = f' "{flat(element.label)}"' if element.label else ""
    value = f': "{flat(element.value)}"' if element.value is not None else ""
    flags = [flag for flag in element.flags if flag not in HIDDEN_FLAGS]
    return f"{element.role}{label}{value} [{element.index}]" + (f" ({', '.join(flags)})" if flags else "")


def describe_screen(title: str, elements: Iterable[Element], extra: Iterable[str] = ()) -> str:
    """The whole screen: title line, then whatever the environment adds (tabs, notices), then one line per element."""
    return "\n".join([f"Screen: {flat(title)}", *extra, *(line(element) for element in elements)])


def cut(text: str, length: int) -> str:
    """The text on one line, at most `length` characters; "…" at its end says that something was left out."""
    whole = flat(text[: 20 * length])
    return whole if len(whole) <= length and len(text) <= 20 * length else whole[: length - 1] + "…"


def flat(text: str) -> str:
    """The text on one line, without characters that cannot be shown or stored."""
    return text if text.isprintable() and "  " not in text else " ".join(_UNPRINTABLE.sub(" ", text).split())
