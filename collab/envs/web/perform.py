"""The web actions that touch the page, done the way a hand does them: mouse and keyboard.

Each returns what became of it in a few words, or None when there is nothing to add to what the page shows. None of
them raises for an action that makes no sense here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collab.envs.web import dom
from collab.types import Action, Element

if TYPE_CHECKING:
    from playwright.async_api import Page

SET_NOT_TYPED = frozenset({"date", "time", "datetime-local", "month", "week", "color", "range"})
"""Types of input fields that take a value, not keystrokes."""

LONG_TEXT = 300
"""Longer texts are inserted at once instead of key by key."""


async def perform(page: Page, action: Action, element: Element | None) -> str | None:
    """Execute click, hover, select, type_string or scroll_page.

    Args:
        page: the page that is shown.
        action: a canonical action of one of these types.
        element: its target in the observation that the action was chosen on; None for scroll_page.

    Raises:
        playwright.async_api.Error: the page is gone.
    """
    if element is None:
        change = await dom.scroll(page, down=action["direction"] == "down")
        return None if change.moved else f"the page cannot scroll {action['direction']} any further"
    place = await dom.locate(page, element.key)
    if place is None:
        return f"{_told(element)} is gone"
    if "#text" in element.key and element.box is not None:  # a run of text has no element of its own
        place = place.model_copy(update={"point": element.box.center})
    if action.type == "select":
        return await _select(page, element, place, str(action["option"]))
    if place.tag == "option" and action.type == "click":
        return _problem(element, await dom.choose(page, element.key, element.label))
    if place.point is None:
        why = "is covered by something else" if place.covered else "cannot be reached"
        return f"{_told(element)} {why}; nothing happened"
    if action.type == "hover":
        await page.mouse.move(*place.point)
        return None
    if place.disabled:
        return f"{_told(element)} is disabled; nothing happened"
    if action.type == "type_string":
        return await _type(page, element, place, str(action["content"]), bool(action.get("press_enter")))
    return await _click(page, element, place)


async def _click(page: Page, element: Element, place: dom.Place) -> str | None:
    assert place.point is not None
    if place.type == "file":
        return f"{_told(element)} asks for a file; files cannot be given here"
    if place.tag == "select":  # its list would open outside the page; the screen tells the options instead
        await dom.focus(page, element.key)
        return None
    await page.mouse.click(*place.point)
    return None


async def _select(page: Page, element: Element, place: dom.Place, option: str) -> str | None:
    if place.tag in ("select", "option"):
        return _problem(element, await dom.choose(page, element.key, option))
    if element.role != "drop-down" or place.point is None:
        return f"{_told(element)} is no list; nothing happened"
    await page.mouse.click(*place.point)
    wanted = " ".join(option.split()).casefold()
    for raw in (await dom.look(page)).elements:
        if raw.key != element.key and raw.role in ("option", "list item", "item") and raw.label.casefold() == wanted:
            found = await dom.locate(page, raw.key)
            if found is not None and found.point is not None:
                await page.mouse.click(*found.point)
                return None
    return f"{_told(element)} was opened and shows no option {option[:80]!r}"


async def _type(page: Page, element: Element, place: dom.Place, content: str, press_enter: bool) -> str | None:
    assert place.point is not None
    if place.type in SET_NOT_TYPED:
        change = await dom.fill(page, element.key, content)
        if change.value != content:
            return _problem(element, change) or f"{_told(element)} does not take {content[:80]!r}"
    elif not place.editable:
        return f"{_told(element)} takes no text; nothing happened"
    else:
        await page.mouse.click(*place.point)
        await page.keyboard.press("ControlOrMeta+A")
        await page.keyboard.press("Delete")
        text = content if place.tag == "textarea" else " ".join(content.splitlines())
        await (page.keyboard.insert_text(text) if len(text) > LONG_TEXT else page.keyboard.type(text))
    if press_enter:
        await page.keyboard.press("Enter")
    return None


def _problem(element: Element, change: dom.Change) -> str | None:
    return None if change.error is None else f"{_told(element)}: {change.error}"


def _told(element: Element) -> str:
    return f'{element.role} "{element.label}"' if element.label else f"the {element.role}"
