"""Scripted solutions of MiniWoB++ pages, from the goal and the screen, never from hidden state.

    solve("click-button", goal, screen, deeds)     # remaining actions, or None when this screen is not understood

A solution reads the current screen and returns the remaining actions as far as the screen shows them: a form to its
end, a page of search results only up to the click that turns it. It runs again after every step and counts none, so it
recovers from mistakes where the page allows it. Desktop and phone view share the solutions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from collab.envs.grammar import MOBILE, WEB
from collab.types import Action, Element, Observation


class Deed(NamedTuple):
    """An action that was carried out in this episode."""

    type: str
    element: Element | None
    """Its target as it was then; None for an action without one."""


class Move(NamedTuple):
    """Next move of a solution, independent of the action space."""

    element: Element | None
    verb: str = "click"
    """click, type, choose or wait."""
    text: str = ""


class SolutionError(Exception):
    """The screen does not show what the solution looks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageScene:
    """Facts that a solution may use."""

    goal: str
    elements: tuple[Element, ...]
    deeds: tuple[Deed, ...]

    def find_all(self, *roles: str, label: str | None = None) -> list[Element]:
        """Return the elements of these roles (any role when none is given), of exactly this label when one is given."""
        fits = (element for element in self.elements if not roles or element.role in roles)
        return [element for element in fits if label is None or element.label == label]

    def find_one(self, *roles: str, label: str | None = None, nth: int = 0) -> Element:
        """Return the nth of them."""
        found = self.find_all(*roles, label=label)
        if not 0 <= nth < len(found):
            raise SolutionError(f"no {roles} {label!r} number {nth}")
        return found[nth]

    def find_after(self, label: str, *roles: str) -> Element:
        """Return the first of these roles that follows a text."""
        at = self.find_one(label=label).index
        for element in self.elements[at + 1 :]:
            if element.role in roles:
                return element
        raise SolutionError(f"no {roles} after {label!r}")

    def extract_quoted(self, nth: int = 0) -> str:
        """Return the nth text in quotation marks of the goal."""
        return self.extract(r'"([^"]*)"', nth)

    def extract(self, pattern: str, nth: int = 0) -> str:
        """Return the group of a pattern's nth match in the goal."""
        found = re.findall(pattern, self.goal)
        if nth >= len(found):
            raise SolutionError(f"the goal has no {pattern!r}")
        return str(found[nth])

    def list_clicked(self, among: Iterable[Element]) -> list[str]:
        """Return the keys of those of these elements that were clicked, in order, one entry per click.

        Raises:
            SolutionError: a key press may also have clicked, which cannot be seen.
        """
        keys = {element.key for element in among}
        if any(deed.type == "keyboard_enter" for deed in self.deeds):
            raise SolutionError("Enter clicks what has the focus")
        hits = [(deed.element.key, CLICKS.get(deed.type, 0)) for deed in self.deeds if deed.element]
        return [key for key, times in hits if key in keys for _ in range(times)]


CLICKS = {"click": 1, "long_press": 1, "double_tap": 2}
"""How often a deed clicks."""

Solution = Callable[[PageScene], Iterable[Move]]


def fill(field: Element, text: str) -> Iterator[Move]:
    """Type unless it stands there; of a password only the length can be seen."""
    shown = "•" * len(text) if "password" in field.flags else " ".join(text.split())
    if field.value != shown:
        yield Move(field, "type", text)


def submit(scene: PageScene, label: str = "Submit") -> Move:
    """Click the button of this name."""
    return Move(scene.find_one("button", "link", "item", label=label))


def _press_first_button(scene: PageScene) -> Iterator[Move]:
    yield Move(scene.find_one("button"))


def _press_quoted_button(scene: PageScene) -> Iterator[Move]:
    yield Move(scene.find_one("button", label=scene.extract_quoted()))


def _press_named_button(scene: PageScene) -> Iterator[Move]:
    yield Move(scene.find_one("button", label=scene.extract(r"button (\w+)")))


def _press_button_sequence(scene: PageScene) -> Iterator[Move]:
    buttons = [scene.find_one("button", label=name) for name in re.findall(r"button (\w+)", scene.goal)]
    clicked = scene.list_clicked(buttons)
    if clicked != [button.key for button in buttons][: len(clicked)]:
        raise SolutionError("the order is broken")
    yield from (Move(button) for button in buttons[len(clicked) :])


def _link(scene: PageScene) -> Iterator[Move]:
    yield Move(scene.find_one("link", label=scene.extract_quoted()))


def _close_dialog(scene: PageScene) -> Iterator[Move]:
    wanted = scene.extract_quoted()
    yield Move(scene.find_one("button", label="Close" if wanted == "x" else wanted))


def _choose_tab(scene: PageScene) -> Iterator[Move]:
    yield Move(scene.find_one("tab", label=scene.extract(r"(Tab #\d+)")))


def _link_in_tabs(scene: PageScene) -> Iterator[Move]:
    tabs = scene.find_all("tab")
    links = [
        link
        for link in scene.find_all("link", label=scene.extract_quoted())
        if link.label not in {tab.label for tab in tabs}
    ]
    # The link may be on this tab; otherwise the next tab is opened and looked at.
    if links:
        yield Move(links[0])
        return
    shown = [at for at, tab in enumerate(tabs) if "selected" in tab.flags]
    if not shown:
        raise SolutionError("no tab is open")
    yield Move(tabs[(shown[0] + 1) % len(tabs)])


def _open_collapsible(scene: PageScene) -> Iterator[Move]:
    header = scene.find_one("tab")
    if not {"selected", "expanded"} & set(header.flags):
        yield Move(header)
    yield Move(scene.find_one("button", label="Submit"))


def _link_in_sections(scene: PageScene) -> Iterator[Move]:
    links = scene.find_all("link", label=scene.extract_quoted())
    if links:
        yield Move(links[0])
        return
    headers = scene.find_all("tab")
    is_open = [at for at, header in enumerate(headers) if {"selected", "expanded"} & set(header.flags)]
    if not headers:
        raise SolutionError("there are no sections")
    yield Move(headers[(is_open[0] + 1) % len(headers) if is_open else 0])


def _select_and_submit(*roles: str) -> Solution:
    """Tick exactly the things named in "Select a, b and click Submit."."""

    def solution(scene: PageScene) -> Iterator[Move]:
        names = set(scene.extract(r"Select (.*) and click Submit").split(", ")) - {"nothing"}
        found = scene.find_all(*roles)
        if not names <= {element.label for element in found}:
            raise SolutionError("not all choices are on the screen")
        for element in found:
            if (element.label in names) != ("checked" in element.flags):
                yield Move(element)
        yield submit(scene)

    return solution


def _choose(scene: PageScene) -> Iterator[Move]:
    wanted = scene.extract(r"Select (.*) from the list and click Submit")
    listing = scene.find_one("drop-down")
    if listing.value != wanted:
        yield Move(listing, "choose", wanted)
    yield submit(scene)


def _focus(scene: PageScene) -> Iterator[Move]:
    ordinal = re.search(r"(\d+)\w\w input", scene.goal)
    yield Move(scene.find_one("input", nth=int(ordinal[1]) - 1 if ordinal else 0))


def _choose_colour(scene: PageScene) -> Iterator[Move]:
    yield Move(scene.find_one(label=scene.extract(r"the (\w+) colou?red box")))


def _click_widget(scene: PageScene) -> Iterator[Move]:
    kind = scene.extract_quoted()
    tags = {"text": "input", "textarea": "textarea"}
    for element in scene.elements:
        is_field = element.role == "input" and element.key.rpartition("/")[2].startswith(tags.get(kind, "?"))
        if element.role == kind or is_field:
            yield Move(element)
            return
    raise SolutionError(f"no {kind}")


def _click_grid(scene: PageScene) -> Iterator[Move]:
    x, y = (int(number) for number in re.findall(r"-?\d+", scene.extract(r"coordinate \((.*)\)")))
    dots = [element for element in scene.find_all("shape") if element.label.startswith("circle") and element.box]
    # Positions are read from the dots: the grid's scale differs between instances.
    columns = sorted({dot.box.center[0] for dot in dots if dot.box})
    rows = sorted({dot.box.center[1] for dot in dots if dot.box}, reverse=True)
    column, row = x + len(columns) // 2, y + len(rows) // 2
    if not (0 <= column < len(columns) and 0 <= row < len(rows)):
        raise SolutionError("the point is not on the grid")
    for dot in dots:
        if dot.box and dot.box.center == (columns[column], rows[row]):
            yield Move(dot)
            return
    raise SolutionError("there is no dot")


def _choose_greatest(scene: PageScene) -> Iterator[Move]:
    cards = [element for element in scene.find_all("link", "item", "text") if re.fullmatch(r"-?\d+", element.label)]
    best = max(cards, key=lambda card: int(card.label), default=None)
    if best is None:
        raise SolutionError("no cards")
    if scene.list_clicked(cards)[-1:] != [best.key]:
        yield Move(best)
    yield submit(scene)


def _answer_odd_or_even(scene: PageScene) -> Iterator[Move]:
    for element in scene.elements:
        if re.fullmatch(r"-?\d+", element.label):
            odd, even = scene.elements[element.index - 1], scene.elements[element.index + 1]
            right = odd if int(element.label) % 2 else even
            if scene.list_clicked([odd, even])[-1:] != [right.key]:
                yield Move(right)
    yield submit(scene)


def _buy_stock(scene: PageScene) -> Iterator[Move]:
    limit = float(scene.extract(r"less than \$([\d.]+\d)"))
    price = next((element for element in scene.elements if "Stock price" in element.label), None)
    if price is None:
        raise SolutionError("no price")
    buy = scene.find_one("button", label="Buy")
    yield Move(buy) if float(price.label.rpartition("$")[2]) < limit else Move(buy, "wait")


def _generate(scene: PageScene) -> Iterator[Move]:
    shown = scene.elements[0].label
    rule = scene.goal
    number = int(shown) if re.fullmatch(r"-?\d+", shown) else None
    bound = re.search(r"(less|greater) than (\d+)", rule)
    fits = number is not None and (
        (number < int(bound[2]) if bound[1] == "less" else number > int(bound[2]))
        if bound
        else number % 2 == int("odd" in rule)
    )
    yield submit(scene) if fits else submit(scene, "Generate")


CLICK_SOLUTIONS: dict[str, Solution] = {
    "click-button": _press_quoted_button,
    "click-button-sequence": _press_button_sequence,
    "click-checkboxes": _select_and_submit("checkbox"),
    "click-checkboxes-large": _select_and_submit("checkbox"),
    "click-checkboxes-transfer": _select_and_submit("checkbox"),
    "click-collapsible": _open_collapsible,
    "click-collapsible-2": _link_in_sections,
    "click-collapsible-2-nodelay": _link_in_sections,
    "click-collapsible-nodelay": _open_collapsible,
    "choose-list": _choose,
    "click-color": _choose_colour,
    "click-dialog": _close_dialog,
    "click-dialog-2": _close_dialog,
    "click-link": _link,
    "click-option": _select_and_submit("radio"),
    "click-tab": _choose_tab,
    "click-tab-2": _link_in_tabs,
    "click-tab-2-easy": _link_in_tabs,
    "click-tab-2-hard": _link_in_tabs,
    "click-tab-2-medium": _link_in_tabs,
    "click-test": _press_first_button,
    "click-test-2": _press_named_button,
    "click-test-transfer": _press_named_button,
    "click-widget": _click_widget,
    "find-greatest": _choose_greatest,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "generate-number": _generate,
    "grid-coordinate": _click_grid,
    "odd-or-even": _answer_odd_or_even,
    "stock-market": _buy_stock,
    "unicode-test": _press_quoted_button,
}
"""By the page's name."""


def _enter_quoted(scene: PageScene) -> Iterator[Move]:
    yield from fill(scene.find_one("input"), scene.extract_quoted())
    yield submit(scene)


def _enter_in_case(scene: PageScene) -> Iterator[Move]:
    word = scene.extract_quoted()
    yield from fill(scene.find_one("input"), word.upper() if "upper case" in scene.goal else word.lower())
    yield submit(scene)


def _enter_twice(scene: PageScene) -> Iterator[Move]:
    for field in scene.find_all("input"):
        yield from fill(field, scene.extract_quoted())
    yield submit(scene)


def _log_in(scene: PageScene) -> Iterator[Move]:
    yield from fill(scene.find_one("input", nth=0), scene.extract_quoted(0))
    yield from fill(scene.find_one("input", nth=1), scene.extract_quoted(1))
    yield submit(scene, "Login")


def _enter_date(scene: PageScene) -> Iterator[Move]:
    date = scene.extract(r"Enter (\S+) as the date")
    month, day, year = date.split("/")
    field = scene.find_one("input")
    if field.value != f"{year}-{month}-{day}":
        yield Move(field, "type", date)
    yield submit(scene)


def _enter_time(scene: PageScene) -> Iterator[Move]:
    hour, minute, half = re.findall(r"(\d+):(\d+) ([AP])M", scene.goal)[0]
    time = f"{int(hour) % 12 + 12 * (half == 'P'):02}:{minute}"
    yield from fill(scene.find_one("input"), time)
    yield submit(scene)


def _copy_word(scene: PageScene) -> Iterator[Move]:
    """Type what the page shows as a text."""
    yield from fill(scene.find_one("input"), scene.find_one("text").label)
    yield submit(scene)


def _enter_nth_word(scene: PageScene) -> Iterator[Move]:
    words = " ".join(element.label for element in scene.find_all("text")).split()
    nth = int(scene.extract(r"the (\d+)\w\w word"))
    if nth > len(words):
        raise SolutionError("the paragraph is too short")
    yield from fill(scene.find_one("input"), words[nth - 1].strip(",."))
    yield submit(scene)


def _read_table(scene: PageScene) -> Iterator[Move]:
    wanted = scene.extract(r"the value of (.*) into")
    yield from fill(scene.find_one("input"), scene.find_after(wanted, "cell").label)
    yield submit(scene)


def _read_table_twice(scene: PageScene) -> Iterator[Move]:
    for text in scene.find_all("text"):
        yield from fill(scene.find_after(text.label, "input"), scene.find_after(text.label.rstrip(": "), "cell").label)
    yield submit(scene)


def _solve_arithmetic(scene: PageScene) -> Iterator[Move]:
    a, sign, b = re.findall(r"(-?\d+)\s*([-+x*×])\s*(-?\d+)\s*=", scene.find_one("text").label)[0]
    yield from fill(scene.find_one("input"), str(_apply(int(a), sign, int(b))))
    yield submit(scene)


def _apply(a: int, sign: str, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def _solve_algebra(scene: PageScene) -> Iterator[Move]:
    left, sign, right, total = re.findall(r"(x|\d+)\s*([-+])\s*(x|\d+)\s*=\s*(-?\d+)", scene.find_one("text").label)[0]
    c = int(total)
    if left == "x":
        answer = c - int(right) if sign == "+" else c + int(right)
    else:
        answer = c - int(left) if sign == "+" else int(left) - c
    yield from fill(scene.find_one("input"), str(answer))
    yield submit(scene)


def _search(scene: PageScene) -> Iterator[Move]:
    wanted, nth = scene.extract_quoted(), int(scene.extract(r"the (\d+)\w\w search result"))
    field, button = scene.find_one("input"), scene.find_one("button", label="Search")
    links = scene.find_all("link")
    results = [link for link in links if not re.fullmatch(r"\d+|<|>|First|Last", link.label)]
    # Until the field holds the query there are no results to count.
    if field.value != wanted or not results:
        yield from fill(field, wanted)
        yield Move(button)
        return
    # Three results a page, as the task shows them.
    page = (nth - 1) // 3 + 1
    if _compute_page([deed.element.label for deed in scene.deeds if deed.type in CLICKS and deed.element]) != page:
        yield Move(scene.find_one("link", label=str(page)))
        return
    yield Move(results[(nth - 1) % 3])


def _compute_page(clicked: list[str]) -> int:
    """Return which page of results is open after these clicks."""
    page = 1
    for label in clicked:
        if label == "Search":
            page = 1
        elif label.isdecimal():
            page = int(label)
        elif label in "<>":
            page += 1 if label == ">" else -1
    return page


def _complete_entry(scene: PageScene) -> Iterator[Move]:
    start = scene.extract(r'starts with "([^"]*)"')
    end = re.search(r'ends with "([^"]*)"', scene.goal)
    field = scene.find_one("input")

    def fits(text: str) -> bool:
        return text.startswith(start) and (end is None or text.endswith(end[1]))

    # What is offered is taken only once it fits both ends.
    if fits(field.value or "") and (field.value or "") != start:
        yield submit(scene)
        return
    offers = [item for item in scene.elements if item is not field and item.label != "Submit" and fits(item.label)]
    yield Move(offers[0]) if offers else Move(field, "type", start)


def _find_movie(scene: PageScene) -> Iterator[Move]:
    genre, director, year = re.findall(r"Search for (.*) movies directed by (.*) from year (\d+)", scene.goal)[0]
    fields = scene.find_all("input")
    words = [element.label for element in scene.elements if _MOVIE_WORDS.search(element.label)]
    if len(fields) != 3 or len(words) < 3:
        raise SolutionError("not three fields with a word each")
    wanted = {"genre": genre, "director": director, "year": year, "date": year}
    for field, word in zip(fields, words, strict=False):  # words stand in the order of the fields, before or after each
        yield from fill(field, wanted[_MOVIE_WORDS.findall(word)[0].lower()])
    yield Move(scene.find_all("button", "link", "item", "list item")[-1])


_MOVIE_WORDS = re.compile(r"\b(genre|director|year|date)\b", re.IGNORECASE)


TEXT_SOLUTIONS: dict[str, Solution] = {
    "enter-date": _enter_date,
    "enter-password": _enter_twice,
    "enter-text": _enter_quoted,
    "enter-text-2": _enter_in_case,
    "enter-text-dynamic": _enter_quoted,
    "enter-time": _enter_time,
    "find-word": _enter_nth_word,
    "login-user": _log_in,
    "multi-layouts": _find_movie,
    "multi-orderings": _find_movie,
    "read-table": _read_table,
    "read-table-2": _read_table_twice,
    "search-engine": _search,
    "simple-algebra": _solve_algebra,
    "simple-arithmetic": _solve_arithmetic,
    "text-transform": _copy_word,
    "use-autocomplete": _complete_entry,
    "use-autocomplete-nodelay": _complete_entry,
}
"""By the page's name."""


_SOLUTIONS = CLICK_SOLUTIONS | TEXT_SOLUTIONS

SOLVED = frozenset(_SOLUTIONS)
"""Pages with a solution."""


def solve(name: str, goal: str, screen: Observation, deeds: tuple[Deed, ...] = ()) -> tuple[Action, ...] | None:
    """Return the remaining actions of a page, as far as the screen names them.

    Args:
        name: of the page; one of `SOLVED`.
        goal: as the page words it.
        screen: the present observation, in either view.
        deeds: what was done so far.

    Returns:
        Actions of the screen's space; None when the solution does not know this screen.
    """
    scene = PageScene(goal=goal, elements=screen.elements, deeds=deeds)
    try:
        moves = list(_SOLUTIONS[name](scene))
    except (SolutionError, ValueError):
        return None
    return tuple(_build_action(move, screen) for move in moves)


def _build_action(move: Move, screen: Observation) -> Action:
    index = None if move.element is None else move.element.index
    if screen.space == MOBILE.name:
        if move.verb == "choose":
            return MOBILE.make("click", index=_find_option(move, screen))
        if move.verb == "type":
            return MOBILE.make("input_text", index=index, text=move.text, clear_text=True)
        return MOBILE.make("click", index=index) if move.verb == "click" else MOBILE.make("wait")
    if move.verb == "choose":
        return WEB.make("select", id=index, option=move.text)
    if move.verb == "type":
        return WEB.make("type_string", id=index, content=move.text)
    return WEB.make("click", id=index) if move.verb == "click" else WEB.make("hover", id=index or 0)


def _find_option(move: Move, screen: Observation) -> int:
    """Find the element of an option: a phone shows options as elements, some lists only after a tap."""
    options = [element for element in screen.elements if element.role == "option" and element.label == move.text]
    return options[0].index if options else move.element.index if move.element else 0
