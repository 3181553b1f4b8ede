"""The web actions that leave the page: go, jump_to, switch_tab.

The web actions that touch the page, done the way a hand does them: mouse and keyboard.

A point outside all elements, or on a surface, is touched as it is; everything else is an element that was seen.

Each returns what became of it in a few words, or None when there is nothing to add to what the page shows. None of
them raises for an action that makes no sense here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar
from urllib.parse import urljoin

from collab.envs.grammar import WEB
from collab.envs.text import cut, find_element_at
from collab.envs.web import dom
from collab.envs.web.gate import HostPolicy
from collab.envs.web.window import BrowserWindow
from collab.types import Action, Element, Observation, Point, Target
from collab.utils.redact import hide_in_addresses

if TYPE_CHECKING:
    from playwright.async_api import Page


AnswerT = TypeVar("AnswerT")


async def navigate(window: BrowserWindow, action: Action, policy: HostPolicy, timeout_s: float) -> str | None:
    """Execute go, jump_to or switch_tab.

    Returns why it did not work, in words; None when the page itself shows what happened.

    Raises:
        playwright.async_api.Error: the page crashed.
    """
    if action.type == "switch_tab":
        return await window.show(int(str(action["i"])))
    if action.type == "go":
        return await _go(window, back=action["direction"] == "backward", timeout_s=timeout_s)
    # Relative addresses are those of the shown page.
    url = complete_address(str(action["url"]), window.page.url)
    # Refused by its text first; the gate checks the address again when it is connected to.
    refusal, told = policy.explain_refusal(url), cut(hide_in_addresses(url), 200)
    if refusal is not None:
        return f"{told} was not opened: {refusal}"
    if action.get("new_tab"):
        await window.open_tab()
    # "commit" and not "load": pages that never finish loading can still be used.
    problem = await explain_arrival(window, window.page.goto(url, wait_until="commit", timeout=timeout_s * 1000))
    return f"{told} was not opened: {problem}" if isinstance(problem, str) else None


async def _go(window: BrowserWindow, *, back: bool, timeout_s: float) -> str | None:
    page = window.page
    before = page.url
    move = page.go_back if back else page.go_forward
    response = await explain_arrival(window, move(wait_until="commit", timeout=timeout_s * 1000))
    if isinstance(response, str):
        return response
    return "there is no such page in the tab's history" if response is None and page.url == before else None


async def explain_arrival(window: BrowserWindow, navigation: Awaitable[AnswerT]) -> AnswerT | str:
    """Return the navigation's response (None where there is none to have), or why it failed, in words."""
    from playwright.async_api import Error

    window.distrusted = None
    try:
        return await navigation
    except Error as error:
        if window.crashed:
            raise
        first = str(error).strip().split("\n", 1)[0]
        if window.distrusted is not None:  # the browser calls this aborted
            return f"net::{window.distrusted}"
        return cut(first.partition(": ")[2].partition(" at http")[0] or first, 200)


def complete_address(url: str, current: str) -> str:
    """Complete an address as an address bar does: a path belongs to the current site, a bare host gets https."""
    if url.startswith(("/", "?", "#")) and not url.startswith("//"):
        return urljoin(current, url)
    bare = url.removeprefix("//")
    head = bare.partition("/")[0]
    if "://" in bare or bare.startswith("about:") or not ("." in head or head.startswith("localhost")):
        return url
    return f"https://{bare}"


SET_NOT_TYPED = frozenset({"date", "time", "datetime-local", "month", "week", "color", "range"})
"""Types of input fields that take a value, not keystrokes."""

CHANGED = "the page changed; nothing happened"
"""What becomes of an action whose element is not there any more."""

LONG_TEXT = 300
"""Longer texts are inserted at once instead of key by key."""


Button: TypeAlias = Literal["left", "right", "middle"]
Spot: TypeAlias = tuple[float, float]
"""A point in CSS pixels of the window."""

CLICKS: dict[str, tuple[Button, int]] = {
    "click": ("left", 1),
    "double_click": ("left", 2),
    "triple_click": ("left", 3),
    "right_click": ("right", 1),
    "middle_click": ("middle", 1),
}
"""Type of action → button of the mouse, and how often it is pressed."""

_NAMED_KEYS = {
    **{"ctrl": "ControlOrMeta", "alt": "Alt", "shift": "Shift", "meta": "Meta", "plus": "+", "space": "Space"},
    **{name.lower(): name for name in "Enter Escape Tab Backspace Delete Insert Home End PageUp PageDown".split()},
    **{side: f"Arrow{side.capitalize()}" for side in ("up", "down", "left", "right")},
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}


async def hold_keys(page: Page, action: Action, act: Callable[[], Awaitable[AnswerT]]) -> AnswerT | str:
    """Execute an action while its keys are held; return what became of it, or that there is no such key."""
    if action.get("hold") is None:
        return await act()
    names = _find_keys(str(action["hold"]))
    if isinstance(names, str):
        return names
    for name in names:
        await page.keyboard.down(name)
    try:
        return await act()
    finally:
        for name in reversed(names):
            await page.keyboard.up(name)


async def perform(page: Page, action: Action, seen: Observation) -> str | None:
    """Execute an action that stays on the page; keys that it holds are held already (`hold_keys`).

    Nothing but the element that was seen is touched: the page may have changed while the action was chosen.

    Args:
        page: the page that is shown.
        action: canonical.
        seen: the observation that the action was chosen on.

    Raises:
        playwright.async_api.Error: the page is gone.
    """
    if action.type == "scroll_page":
        return await _scroll(page, str(action["direction"]))
    if action.type == "press_keys":
        return await press_keys(page, str(action["keys"]))
    if action.type == "insert_text":
        return await _insert(page, str(action["content"]), find_focused(seen), bool(action.get("press_enter")))
    if action.type == "drag":
        return await _drag(page, action, seen)
    if isinstance(action.target, Point):
        return await _perform_at(page, action, (action.target.x, action.target.y))
    assert action.target is not None
    return await _perform_on(page, action, seen.elements[action.target.index])


async def _perform_on(page: Page, action: Action, element: Element) -> str | None:
    """Execute an action on an element."""
    # The element is looked for again: pages move while a team deliberates.
    place = await dom.locate(page, element.key, element)
    if place is None:
        return _report_gone(element)
    if action.type == "select":
        return await _select(page, element, place, str(action["option"]))
    # Options of a closed list have no place on the screen to be clicked.
    if place.tag == "option" and action.type == "click":
        return _find_problem(element, await dom.choose(page, element.key, element.label, element))
    # Not reachable: covered, or scrolled away inside a frame.
    if place.point is None:
        return _report_unreached(element, place)
    if action.type == "hover":
        await page.mouse.move(*place.point)
        return None
    if action.type == "scroll_at":
        await _turn_wheel(page, place.point, str(action["direction"]))
        return None
    # A disabled element takes clicks without an effect, which the agent has to know.
    if place.disabled:
        return f"{_describe_element(element)} is disabled; nothing happened"
    if action.type == "type_string":
        return await _type(page, element, place, str(action["content"]), bool(action.get("press_enter")))
    return await _click(page, element, place, *CLICKS[action.type])


async def has_same_points(page: Page, action: Action, seen: Observation) -> bool:
    """Return whether the same things lie at an action's points as in the observation that it was chosen on."""
    points = [one for one in (action.target, WEB.find_end(action)) if isinstance(one, Point)]
    if not points:
        return True
    now = dom.observe(await dom.look(page))
    return all(_describe_place(one, seen) == _describe_place(one, now) for one in points)


def _describe_place(point: Point, screen: Observation) -> tuple[str, str] | None:
    element = find_element_at(screen, point.x, point.y)
    return None if element is None else (element.role, element.key)


def find_focused(screen: Observation) -> Element | None:
    """Return the element that has the cursor; None when no element has it."""
    return next((element for element in screen.elements if "focused" in element.flags), None)


async def _perform_at(page: Page, action: Action, spot: Spot) -> str | None:
    """Execute an action at a point that belongs to no element."""
    if action.type == "select":
        return f"there is no list at ({spot[0]:g}, {spot[1]:g}); nothing happened"
    if action.type == "scroll_at":
        await _turn_wheel(page, spot, str(action["direction"]))
        return None
    await page.mouse.move(*spot)
    if action.type == "hover":
        return None
    if action.type != "type_string":
        await _press_button(page, *CLICKS[action.type])
        return None
    await _press_button(page, "left", 1)
    await _replace(page, str(action["content"]), has_lines=True)
    if action.get("press_enter"):
        await page.keyboard.press("Enter")
    return None


async def _press_button(page: Page, button: Button, times: int) -> None:
    for count in range(1, times + 1):
        await page.mouse.down(button=button, click_count=count)
        await page.mouse.up(button=button, click_count=count)


async def _turn_wheel(page: Page, spot: Spot, direction: str) -> None:
    """Scroll what lies at a point by half a window."""
    size = page.viewport_size or {"width": 0, "height": 0}
    x, y = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}[direction]
    await page.mouse.move(*spot)
    await page.mouse.wheel(x * size["width"] / 2, y * size["height"] / 2)


async def _drag(page: Page, action: Action, seen: Observation) -> str | None:
    ends = [one for one in (action.target, WEB.find_end(action)) if one is not None]
    # Bringing the second end into the window may move the first, so that all are looked for once more.
    for again in (False, True):
        spots = [await _find_spot(page, end, seen, again=again) for end in ends]
    problem = next((one for one in spots if isinstance(one, str)), None)
    if problem is not None:
        return problem
    *start, end = (one for one in spots if not isinstance(one, str))
    await drag_mouse(page, start[0] if start else None, end)
    return None


async def _find_spot(page: Page, target: Target, seen: Observation, *, again: bool) -> Spot | str:
    """Return where a target is now, or why it cannot be reached, in words."""
    if isinstance(target, Point):
        return target.x, target.y
    element = seen.elements[target.index]
    place = await dom.locate(page, element.key, element, again=again)
    if place is None:
        return _report_gone(element)
    return place.point or _report_unreached(element, place)


async def drag_mouse(page: Page, start: Spot | None, end: Spot) -> None:
    """Press at one point, or where the mouse is, move in a straight line, release at the other."""
    if start is not None:
        await page.mouse.move(*start)
    await page.mouse.down()
    await page.mouse.move(*end, steps=5)
    await page.mouse.up()


async def press_keys(page: Page, keys: str) -> str | None:
    """Press a key, or several together, by the names of `syntax.order_keys`."""
    names = _find_keys(keys)
    if isinstance(names, str):
        return names
    for name in names[:-1]:
        await page.keyboard.down(name)
    await page.keyboard.press(names[-1])
    for name in reversed(names[:-1]):
        await page.keyboard.up(name)
    return None


def _find_keys(keys: str) -> list[str] | str:
    """Return the browser's names of keys, or that there is no such key."""
    names = [_NAMED_KEYS.get(key, key) for key in keys.split("+")]
    unknown = [key for key, name in zip(keys.split("+"), names, strict=True) if key == name and len(key) != 1]
    return f"the keyboard has no key {unknown[0][:40]!r}; nothing happened" if unknown else names


async def _insert(page: Page, content: str, field: Element | None, press_enter: bool) -> str | None:
    """Type at the cursor."""
    place = None if field is None else await dom.locate(page, field.key, field)
    if field is not None and place is not None and place.type in SET_NOT_TYPED:
        return await _type(page, field, place, content, press_enter)
    await _write(page, content, has_lines=place is not None and (place.tag == "textarea" or place.rich))
    if press_enter:
        await page.keyboard.press("Enter")
    return None


async def _scroll(page: Page, direction: str) -> str | None:
    change = await dom.scroll(page, down=direction in ("down", "right"), sideways=direction in ("left", "right"))
    return None if change.moved else f"the page cannot scroll {direction} any further"


async def _click(
    page: Page, element: Element, place: dom.ElementPlace, button: Button = "left", times: int = 1
) -> str | None:
    if place.type == "file" or element.role == "file input":
        return f"{_describe_element(element)} asks for a file; files cannot be given here"
    # Its list would open outside the page; the screen tells the options instead.
    if place.tag == "select" and button == "left":
        return _find_problem(element, await dom.focus(page, element.key, element))
    return await _press(page, element, place, button, times)


async def _press(
    page: Page, element: Element, place: dom.ElementPlace, button: Button = "left", times: int = 1
) -> str | None:
    """Click on an element; what the arriving mouse brings up may lie over it or push it away."""
    assert place.point is not None
    # The arriving mouse may open menus, so the element is looked for once more.
    await page.mouse.move(*place.point)
    now = await dom.locate(page, element.key, element, again=True)
    if now is None:
        return _report_gone(element)
    if now.point is None:
        return _report_unreached(element, now)
    # It has moved: the click goes where it is now.
    if now.point != place.point:
        await page.mouse.move(*now.point)
    await _press_button(page, button, times)
    return None


async def _select(page: Page, element: Element, place: dom.ElementPlace, option: str) -> str | None:
    if place.tag in ("select", "option"):
        # A real list is chosen from by the browser, whose own list lies outside the page.
        return _find_problem(element, await dom.choose(page, element.key, option, element))
    if element.role != "drop-down" or place.point is None:
        return f"{_describe_element(element)} is no list; nothing happened"
    # Others are opened like a person opens them, then searched for the option.
    problem = await _press(page, element, place)
    if problem is not None:
        return problem
    wanted = " ".join(option.split()).casefold()
    for entry in dom.build_elements(await dom.look(page)):
        is_choice = entry.key != element.key and entry.role in ("option", "list item", "item")
        if is_choice and entry.label.casefold() == wanted:
            found = await dom.locate(page, entry.key, entry)
            if found is not None and found.point is not None:
                return await _press(page, entry, found)
    return f"{_describe_element(element)} was opened and shows no option {option[:80]!r}"


async def _type(page: Page, element: Element, place: dom.ElementPlace, content: str, press_enter: bool) -> str | None:
    # Dates, colours and the like are set, as typing into them depends on the browser's language.
    if place.type in SET_NOT_TYPED:
        change = await dom.fill(page, element.key, content, element)
        if change.value != content:
            return _find_problem(element, change) or f"{_describe_element(element)} does not take {content[:80]!r}"
    elif not place.editable:
        return f"{_describe_element(element)} takes no text; nothing happened"
    else:
        problem = await _press(page, element, place)
        if problem is not None:
            return problem
        await _replace(page, content, has_lines=place.tag == "textarea" or place.rich)
    if press_enter:
        await page.keyboard.press("Enter")
    return None


async def _replace(page: Page, content: str, *, has_lines: bool) -> None:
    """Type a text in place of what the focused field holds, which pages notice as they notice a person."""
    await page.keyboard.press("ControlOrMeta+A")
    await page.keyboard.press("Delete")
    await _write(page, content, has_lines=has_lines)


async def _write(page: Page, content: str, *, has_lines: bool) -> None:
    """Type a text into the focused field; line breaks by Shift+Enter, which sends no message anywhere."""
    lines = content.splitlines() if has_lines else [" ".join(content.splitlines())]
    for i, text in enumerate([*lines, ""] if has_lines and content.endswith(("\n", "\r")) else lines):
        if i:
            await page.keyboard.press("Shift+Enter")
        await (page.keyboard.insert_text(text) if len(text) > LONG_TEXT else page.keyboard.type(text))


def _report_gone(element: Element) -> str:
    return f"{CHANGED}: {_describe_element(element)} is not there any more"


def _report_unreached(element: Element, place: dom.ElementPlace) -> str:
    why = "is covered by something else" if place.covered else "cannot be reached"
    return f"{_describe_element(element)} {why}; nothing happened"


def _find_problem(element: Element, change: dom.PageChange) -> str | None:
    if change == dom.GONE:
        return _report_gone(element)
    return None if change.error is None else f"{_describe_element(element)}: {change.error}"


def _describe_element(element: Element) -> str:
    label = element.label if len(element.label) <= 80 else element.label[:79] + "…"
    return f'{element.role} "{label}"' if label else f"the {element.role}"
