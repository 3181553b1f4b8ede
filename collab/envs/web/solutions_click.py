"""Solutions of the MiniWoB++ pages that are clicked through."""

from __future__ import annotations

import re
from collections.abc import Iterator

from collab.envs.web.scene import Lost, Move, Scene, Solution, submit


def _first_button(scene: Scene) -> Iterator[Move]:
    yield Move(scene.one("button"))


def _quoted_button(scene: Scene) -> Iterator[Move]:
    yield Move(scene.one("button", label=scene.quoted()))


def _named_button(scene: Scene) -> Iterator[Move]:
    yield Move(scene.one("button", label=scene.told(r"button (\w+)")))


def _button_sequence(scene: Scene) -> Iterator[Move]:
    buttons = [scene.one("button", label=name) for name in re.findall(r"button (\w+)", scene.goal)]
    clicked = scene.clicked(buttons)
    if clicked != [button.key for button in buttons][: len(clicked)]:
        raise Lost("the order is broken")
    yield from (Move(button) for button in buttons[len(clicked) :])


def _link(scene: Scene) -> Iterator[Move]:
    yield Move(scene.one("link", label=scene.quoted()))


def _dialog(scene: Scene) -> Iterator[Move]:
    wanted = scene.quoted()
    yield Move(scene.one("button", label="Close" if wanted == "x" else wanted))


def _tab(scene: Scene) -> Iterator[Move]:
    yield Move(scene.one("tab", label=scene.told(r"(Tab #\d+)")))


def _link_in_tabs(scene: Scene) -> Iterator[Move]:
    tabs = scene.all("tab")
    links = [link for link in scene.all("link", label=scene.quoted()) if link.label not in {tab.label for tab in tabs}]
    if links:
        yield Move(links[0])
        return
    shown = [at for at, tab in enumerate(tabs) if "selected" in tab.flags]
    if not shown:
        raise Lost("no tab is open")
    yield Move(tabs[(shown[0] + 1) % len(tabs)])


def _collapsible(scene: Scene) -> Iterator[Move]:
    header = scene.one("tab")
    if not {"selected", "expanded"} & set(header.flags):
        yield Move(header)
    yield Move(scene.one("button", label="Submit"))


def _link_in_sections(scene: Scene) -> Iterator[Move]:
    links = scene.all("link", label=scene.quoted())
    if links:
        yield Move(links[0])
        return
    headers = scene.all("tab")
    is_open = [at for at, header in enumerate(headers) if {"selected", "expanded"} & set(header.flags)]
    if not headers:
        raise Lost("there are no sections")
    yield Move(headers[(is_open[0] + 1) % len(headers) if is_open else 0])


def _select_and_submit(*roles: str) -> Solution:
    """Tick exactly the things named in "Select a, b and click Submit."."""

    def solution(scene: Scene) -> Iterator[Move]:
        names = set(scene.told(r"Select (.*) and click Submit").split(", ")) - {"nothing"}
        found = scene.all(*roles)
        if not names <= {element.label for element in found}:
            raise Lost("not all choices are on the screen")
        for element in found:
            if (element.label in names) != ("checked" in element.flags):
                yield Move(element)
        yield submit(scene)

    return solution


def _choose(scene: Scene) -> Iterator[Move]:
    wanted = scene.told(r"Select (.*) from the list and click Submit")
    listing = scene.one("drop-down")
    if listing.value != wanted:
        yield Move(listing, "choose", wanted)
    yield submit(scene)


def _focus(scene: Scene) -> Iterator[Move]:
    ordinal = re.search(r"(\d+)\w\w input", scene.goal)
    yield Move(scene.one("input", nth=int(ordinal[1]) - 1 if ordinal else 0))


def _colour(scene: Scene) -> Iterator[Move]:
    yield Move(scene.one(label=scene.told(r"the (\w+) colou?red box")))


def _widget(scene: Scene) -> Iterator[Move]:
    kind = scene.quoted()
    tags = {"text": "input", "textarea": "textarea"}
    for element in scene.elements:
        is_field = element.role == "input" and element.key.rpartition("/")[2].startswith(tags.get(kind, "?"))
        if element.role == kind or is_field:
            yield Move(element)
            return
    raise Lost(f"no {kind}")


def _grid(scene: Scene) -> Iterator[Move]:
    x, y = (int(number) for number in re.findall(r"-?\d+", scene.told(r"coordinate \((.*)\)")))
    dots = [element for element in scene.all("shape") if element.label.startswith("circle") and element.box]
    columns = sorted({dot.box.center[0] for dot in dots if dot.box})
    rows = sorted({dot.box.center[1] for dot in dots if dot.box}, reverse=True)
    column, row = x + len(columns) // 2, y + len(rows) // 2
    if not (0 <= column < len(columns) and 0 <= row < len(rows)):
        raise Lost("the point is not on the grid")
    for dot in dots:
        if dot.box and dot.box.center == (columns[column], rows[row]):
            yield Move(dot)
            return
    raise Lost("there is no dot")


def _greatest(scene: Scene) -> Iterator[Move]:
    cards = [element for element in scene.all("link", "item", "text") if re.fullmatch(r"-?\d+", element.label)]
    best = max(cards, key=lambda card: int(card.label), default=None)
    if best is None:
        raise Lost("no cards")
    if scene.clicked(cards)[-1:] != [best.key]:
        yield Move(best)
    yield submit(scene)


def _odd_or_even(scene: Scene) -> Iterator[Move]:
    for element in scene.elements:
        if re.fullmatch(r"-?\d+", element.label):
            odd, even = scene.elements[element.index - 1], scene.elements[element.index + 1]
            right = odd if int(element.label) % 2 else even
            if scene.clicked([odd, even])[-1:] != [right.key]:
                yield Move(right)
    yield submit(scene)


def _stock(scene: Scene) -> Iterator[Move]:
    limit = float(scene.told(r"less than \$([\d.]+\d)"))
    price = next((element for element in scene.elements if "Stock price" in element.label), None)
    if price is None:
        raise Lost("no price")
    buy = scene.one("button", label="Buy")
    yield Move(buy) if float(price.label.rpartition("$")[2]) < limit else Move(buy, "wait")


def _generate(scene: Scene) -> Iterator[Move]:
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
    "click-button": _quoted_button,
    "click-button-sequence": _button_sequence,
    "click-checkboxes": _select_and_submit("checkbox"),
    "click-checkboxes-large": _select_and_submit("checkbox"),
    "click-checkboxes-transfer": _select_and_submit("checkbox"),
    "click-collapsible": _collapsible,
    "click-collapsible-2": _link_in_sections,
    "click-collapsible-2-nodelay": _link_in_sections,
    "click-collapsible-nodelay": _collapsible,
    "choose-list": _choose,
    "click-color": _colour,
    "click-dialog": _dialog,
    "click-dialog-2": _dialog,
    "click-link": _link,
    "click-option": _select_and_submit("radio"),
    "click-tab": _tab,
    "click-tab-2": _link_in_tabs,
    "click-tab-2-easy": _link_in_tabs,
    "click-tab-2-hard": _link_in_tabs,
    "click-tab-2-medium": _link_in_tabs,
    "click-test": _first_button,
    "click-test-2": _named_button,
    "click-test-transfer": _named_button,
    "click-widget": _widget,
    "find-greatest": _greatest,
    "focus-text": _focus,
    "focus-text-2": _focus,
    "generate-number": _generate,
    "grid-coordinate": _grid,
    "odd-or-even": _odd_or_even,
    "stock-market": _stock,
    "unicode-test": _quoted_button,
}
"""By the page's name."""
