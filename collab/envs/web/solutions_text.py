"""Solutions of the MiniWoB++ pages on which text is typed: forms, search, tables, sums."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collab.envs.web.scene import CLICKS, Lost, Move, Scene, Solution, fill, submit


def _enter_quoted(scene: Scene) -> Iterator[Move]:
    yield from fill(scene.one("input"), scene.quoted())
    yield submit(scene)


def _enter_in_case(scene: Scene) -> Iterator[Move]:
    word = scene.quoted()
    yield from fill(scene.one("input"), word.upper() if "upper case" in scene.goal else word.lower())
    yield submit(scene)


def _enter_twice(scene: Scene) -> Iterator[Move]:
    for field in scene.all("input"):
        yield from fill(field, scene.quoted())
    yield submit(scene)


def _log_in(scene: Scene) -> Iterator[Move]:
    yield from fill(scene.one("input", nth=0), scene.quoted(0))
    yield from fill(scene.one("input", nth=1), scene.quoted(1))
    yield submit(scene, "Login")


def _enter_date(scene: Scene) -> Iterator[Move]:
    date = scene.told(r"Enter (\S+) as the date")
    month, day, year = date.split("/")
    field = scene.one("input")
    if field.value != f"{year}-{month}-{day}":
        yield Move(field, "type", date)
    yield submit(scene)


def _enter_time(scene: Scene) -> Iterator[Move]:
    hour, minute, half = re.findall(r"(\d+):(\d+) ([AP])M", scene.goal)[0]
    time = f"{int(hour) % 12 + 12 * (half == 'P'):02}:{minute}"
    yield from fill(scene.one("input"), time)
    yield submit(scene)


def _copy_word(scene: Scene) -> Iterator[Move]:
    """Type what the page shows as a text."""
    yield from fill(scene.one("input"), scene.one("text").label)
    yield submit(scene)


def _nth_word(scene: Scene) -> Iterator[Move]:
    words = " ".join(element.label for element in scene.all("text")).split()
    nth = int(scene.told(r"the (\d+)\w\w word"))
    if nth > len(words):
        raise Lost("the paragraph is too short")
    yield from fill(scene.one("input"), words[nth - 1].strip(",."))
    yield submit(scene)


def _read_table(scene: Scene) -> Iterator[Move]:
    wanted = scene.told(r"the value of (.*) into")
    yield from fill(scene.one("input"), scene.after(wanted, "cell").label)
    yield submit(scene)


def _read_table_twice(scene: Scene) -> Iterator[Move]:
    for text in scene.all("text"):
        yield from fill(scene.after(text.label, "input"), scene.after(text.label.rstrip(": "), "cell").label)
    yield submit(scene)


def _arithmetic(scene: Scene) -> Iterator[Move]:
    a, sign, b = re.findall(r"(-?\d+)\s*([-+x*×])\s*(-?\d+)\s*=", scene.one("text").label)[0]
    yield from fill(scene.one("input"), str(_apply(int(a), sign, int(b))))
    yield submit(scene)


def _apply(a: int, sign: str, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def _algebra(scene: Scene) -> Iterator[Move]:
    left, sign, right, total = re.findall(r"(x|\d+)\s*([-+])\s*(x|\d+)\s*=\s*(-?\d+)", scene.one("text").label)[0]
    c = int(total)
    if left == "x":
        answer = c - int(right) if sign == "+" else c + int(right)
    else:
        answer = c - int(left) if sign == "+" else int(left) - c
    yield from fill(scene.one("input"), str(answer))
    yield submit(scene)


def _search(scene: Scene) -> Iterator[Move]:
    wanted, nth = scene.quoted(), int(scene.told(r"the (\d+)\w\w search result"))
    field, button = scene.one("input"), scene.one("button", label="Search")
    links = scene.all("link")
    results = [link for link in links if not re.fullmatch(r"\d+|<|>|First|Last", link.label)]
    if field.value != wanted or not results:
        yield from fill(field, wanted)
        yield Move(button)
        return
    page = (nth - 1) // 3 + 1
    if _page_of([deed.element.label for deed in scene.deeds if deed.type in CLICKS and deed.element]) != page:
        yield Move(scene.one("link", label=str(page)))
        return
    yield Move(results[(nth - 1) % 3])


def _page_of(clicked: list[str]) -> int:
    """Which page of results is open after these clicks."""
    page = 1
    for label in clicked:
        if label == "Search":
            page = 1
        elif label.isdecimal():
            page = int(label)
        elif label in "<>":
            page += 1 if label == ">" else -1
    return page


def _autocomplete(scene: Scene) -> Iterator[Move]:
    start = scene.told(r'starts with "([^"]*)"')
    end = re.search(r'ends with "([^"]*)"', scene.goal)
    field = scene.one("input")

    def fits(text: str) -> bool:
        return text.startswith(start) and (end is None or text.endswith(end[1]))

    if fits(field.value or "") and (field.value or "") != start:
        yield submit(scene)
        return
    offers = [item for item in scene.elements if item is not field and item.label != "Submit" and fits(item.label)]
    yield Move(offers[0]) if offers else Move(field, "type", start)


def _movie(scene: Scene) -> Iterator[Move]:
    genre, director, year = re.findall(r"Search for (.*) movies directed by (.*) from year (\d+)", scene.goal)[0]
    fields = scene.all("input")
    words = [element.label for element in scene.elements if _MOVIE_WORDS.search(element.label)]
    if len(fields) != 3 or len(words) < 3:
        raise Lost("not three fields with a word each")
    wanted = {"genre": genre, "director": director, "year": year, "date": year}
    for field, word in zip(fields, words, strict=False):  # words stand in the order of the fields, before or after each
        yield from fill(field, wanted[_MOVIE_WORDS.findall(word)[0].lower()])
    yield Move(scene.all("button", "link", "item", "list item")[-1])


_MOVIE_WORDS = re.compile(r"\b(genre|director|year|date)\b", re.IGNORECASE)


TEXT_SOLUTIONS: dict[str, Solution] = {
    "enter-date": _enter_date,
    "enter-password": _enter_twice,
    "enter-text": _enter_quoted,
    "enter-text-2": _enter_in_case,
    "enter-text-dynamic": _enter_quoted,
    "enter-time": _enter_time,
    "find-word": _nth_word,
    "login-user": _log_in,
    "multi-layouts": _movie,
    "multi-orderings": _movie,
    "read-table": _read_table,
    "read-table-2": _read_table_twice,
    "search-engine": _search,
    "simple-algebra": _algebra,
    "simple-arithmetic": _arithmetic,
    "text-transform": _copy_word,
    "use-autocomplete": _autocomplete,
    "use-autocomplete-nodelay": _autocomplete,
}
"""By the page's name."""
