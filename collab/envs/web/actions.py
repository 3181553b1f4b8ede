"""The web actions that leave the page: go, jump_to, switch_tab.

The web actions that touch the page, done the way a hand does them: mouse and keyboard.

Each returns what became of it in a few words, or None when there is nothing to add to what the page shows. None of
them raises for an action that makes no sense here.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urljoin

from collab.envs.text import cut
from collab.envs.web import dom
from collab.envs.web.gate import HostPolicy
from collab.envs.web.window import BrowserWindow
from collab.types import Action, Element
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


async def perform(page: Page, action: Action, element: Element | None) -> str | None:
    """Execute click, hover, select, type_string or scroll_page.

    Nothing but the element that was seen is touched: the page may have changed while the action was chosen.

    Args:
        page: the page that is shown.
        action: a canonical action of one of these types.
        element: its target in the observation that the action was chosen on; None for scroll_page.

    Raises:
        playwright.async_api.Error: the page is gone.
    """
    if element is None:
        return await _scroll(page, str(action["direction"]))
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
    # A disabled element takes clicks without an effect, which the agent has to know.
    if place.disabled:
        return f"{_describe_element(element)} is disabled; nothing happened"
    if action.type == "type_string":
        return await _type(page, element, place, str(action["content"]), bool(action.get("press_enter")))
    return await _click(page, element, place)


async def _scroll(page: Page, direction: str) -> str | None:
    change = await dom.scroll(page, down=direction in ("down", "right"), sideways=direction in ("left", "right"))
    return None if change.moved else f"the page cannot scroll {direction} any further"


async def _click(page: Page, element: Element, place: dom.ElementPlace) -> str | None:
    if place.type == "file" or element.role == "file input":
        return f"{_describe_element(element)} asks for a file; files cannot be given here"
    if place.tag == "select":  # its list would open outside the page; the screen tells the options instead
        return _find_problem(element, await dom.focus(page, element.key, element))
    return await _press(page, element, place)


async def _press(page: Page, element: Element, place: dom.ElementPlace) -> str | None:
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
    await page.mouse.down()
    await page.mouse.up()
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
        # Old text is selected and deleted, which pages notice as they notice a person.
        await page.keyboard.press("ControlOrMeta+A")
        await page.keyboard.press("Delete")
        await _write(page, content, has_lines=place.tag == "textarea" or place.rich)
    if press_enter:
        await page.keyboard.press("Enter")
    return None


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
