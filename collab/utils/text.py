"""Texts for people, with counts beside their nouns; and parsing of lists that people write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from collab.errors import UsageError


def format_amount(number: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun: 1 episode, 2 episodes; `plural` if it is not the noun with an s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def format_causes(word: str, causes: Mapping[str, int]) -> list[str]:
    """Return one line with counts by cause, or none if nothing was counted."""
    told = ", ".join(f"{count} {cause}" for cause, count in causes.items())
    return [f"{word:<8} {sum(causes.values())}: {told}"] if causes else []


def format_count(number: int, noun: str) -> str:
    """Format a short count with its noun, in the singular for one."""
    return format_amount(number, noun) if number == 1 else f"{shorten_number(number)} {noun}s"


def shorten_number(number: int) -> str:
    """Format a count in few letters: 950, 12.3k, 4.56M."""
    if number < 10_000:
        return str(number)
    return f"{number / 1e3:.1f}k" if number < 1_000_000 else f"{number / 1e6:.2f}M"


def format_clock(seconds: float) -> str:
    """Format a duration as 0:07, 12:30 or 1:02:03."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def clean_line(text: str) -> str:
    """Return the text on one line, without control characters."""
    if text.isprintable():
        return text.strip()
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def format_markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table in Markdown."""
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def split_names(
    option: str, values: Sequence[str] | None, *, whole: Callable[[str], bool] = lambda value: False
) -> list[str]:
    """Return the items of an option that may be repeated and holds comma-separated names; none if it is absent.

    Args:
        whole: whether a value is one item, commas included.

    Raises:
        UsageError: it is given but names nothing, e.g. because a script's variable is empty.
    """
    parts = [part for value in values or () for part in ([value] if whole(value) else value.split(","))]
    items = [part.strip() for part in parts if part.strip()]
    if values and not items:
        raise UsageError(f"{option} {values[0]!r}: nothing is named; name something or leave the option out")
    return items


def read_numbers(option: str, values: Sequence[str]) -> list[int]:
    """Return whole numbers of an option, as `split_names`; UsageError if one is none."""
    texts = split_names(option, values)
    try:
        return [int(text) for text in texts]
    except ValueError:
        raise UsageError(f"{option} {','.join(texts)!r}: write whole numbers with commas, e.g. 30,31,32") from None
