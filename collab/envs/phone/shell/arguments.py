"""Reading command-line arguments."""

from __future__ import annotations

from collections.abc import Iterable


def split_flags(args: Iterable[str], with_value: str = "") -> tuple[dict[str, str], list[str]]:
    """Short flags and the rest: `-rf -n 5 x` with `with_value="n"` → ({"r": "", "f": "", "n": "5"}, ["x"]).

    Flags may stand anywhere; what follows `--` is no flag. Long options keep their name without the dashes.
    """
    flags: dict[str, str] = {}
    rest: list[str] = []
    waiting = iter(args)
    for arg in waiting:
        if arg == "--":
            rest.extend(waiting)
        elif arg.startswith("--"):
            name, _, value = arg[2:].partition("=")
            flags[name] = value
        elif len(arg) > 1 and arg.startswith("-"):
            for place, letter in enumerate(arg[1:], start=1):
                if letter in with_value:
                    flags[letter] = arg[place + 1 :] or next(waiting, "")
                    break
                flags[letter] = ""
        else:
            rest.append(arg)
    return flags, rest


def whole(text: str) -> int | None:
    """A whole number of sensible size; None for anything else."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 16 else None
