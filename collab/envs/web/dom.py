"""A page as elements: one look from inside the page, checked when it comes out.

    snapshot = await look(page)                    # one call into the page, about a millisecond
    observation = observe(snapshot)                # elements and the text a policy reads
    place = await locate(page, element.key)        # where that element is now

What a page says about itself is untrusted: it is data in an observation and nothing more. The script (`dom.js`)
tells what a person could see and use: interactive things by role and accessible name, the remaining text once,
pictures and shapes in words. What lies outside the window or under something else is left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from collab.envs.text import describe_screen
from collab.errors import EnvironmentFailure
from collab.types import Box, Element, Observation, Tab

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page


class RawElement(BaseModel):
    """One element as the page tells it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str
    label: str
    box: tuple[int, int, int, int] | None
    key: str
    value: str | None
    flags: tuple[str, ...]


class Snapshot(BaseModel):
    """One look at a page."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    url: str
    width: int
    height: int
    """Size of the window, in CSS pixels."""
    elements: tuple[RawElement, ...]
    above: int
    below: int
    """CSS pixels of the page that lie above and below the window."""
    more: bool
    """Whether elements were left out because there are too many."""


class Place(BaseModel):
    """Where an element is now."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tag: str
    role: str | None
    point: tuple[float, float] | None
    """A point, in CSS pixels of the window, where a click reaches it; None when there is none."""
    disabled: bool
    covered: bool
    """Whether something else lies over all of it."""
    focused: bool


async def look(page: Page | Frame, *, ignore: str = "") -> Snapshot:
    """Take a snapshot of what the window shows.

    Args:
        page: the page.
        ignore: CSS selector of parts to leave out.

    Raises:
        EnvironmentFailure: the page answered with something else (its scripts broke the browser's own objects).
        playwright.async_api.Error: the page is gone, or is just being replaced by another.
    """
    answer = await page.evaluate(_script(), {"ignore": ignore})
    try:
        return Snapshot.model_validate_json(answer)
    except ValidationError as error:
        raise EnvironmentFailure(f"the page {page.url} gave no readable snapshot: {error.errors()[0]['msg']}") from None


async def locate(page: Page | Frame, key: str, *, scroll: bool = True) -> Place | None:
    """Find an element again by its key; None when it is gone.

    Args:
        page: the page.
        key: `Element.key` of an earlier snapshot.
        scroll: whether to bring it into the window first.
    """
    answer = await page.evaluate(_script(), {"locate": key, "scroll": scroll})
    return None if answer == "null" else Place.model_validate_json(answer)


def elements_from(snapshot: Snapshot) -> tuple[Element, ...]:
    """The snapshot's elements, numbered in document order."""
    return tuple(
        Element(
            index=index,
            role=raw.role,
            label=raw.label,
            box=None if raw.box is None else Box(*raw.box),
            value=raw.value,
            flags=raw.flags,
            key=raw.key,
        )
        for index, raw in enumerate(snapshot.elements)
    )


def observe(
    snapshot: Snapshot,
    *,
    space: Literal["web", "mobile"] = "web",
    title: str | None = None,
    tabs: tuple[Tab, ...] = (),
    notice: str | None = None,
) -> Observation:
    """The observation that shows a snapshot.

    In the web space the text also tells the address, the tabs when there are several, and how far the page goes on.

    Args:
        snapshot: what the page shows.
        space: name of the action space.
        title: first line of the text; None for the page's own title.
        tabs: open tabs; () when they do not matter.
        notice: what happened beside the page; None if nothing.
    """
    shown = snapshot.title if title is None else title
    elements = elements_from(snapshot)
    extra = [*_web_lines(snapshot, tabs)] if space == "web" else []
    if notice:
        extra.append(f"Notice: {notice}")
    return Observation(
        space=space,
        title=shown,
        elements=elements,
        text=describe_screen(shown, elements, extra),
        width=snapshot.width,
        height=snapshot.height,
        url=snapshot.url if space == "web" else None,
        tabs=tabs,
        notice=notice,
    )


def _web_lines(snapshot: Snapshot, tabs: tuple[Tab, ...]) -> Iterable[str]:
    yield f"Address: {snapshot.url}"
    if len(tabs) > 1:
        told = (f"{i} {_plain(tab.title or tab.url)!r}" + " (shown)" * tab.active for i, tab in enumerate(tabs))
        yield f"Tabs: {', '.join(told)}"
    if snapshot.above or snapshot.below:
        yield f"Page: {snapshot.above} pixels above, {snapshot.below} below; the window shows {snapshot.height}"


def _plain(text: str) -> str:
    return " ".join(text.split())[:80]


@functools.cache
def _script() -> str:
    return resources.files(__package__).joinpath("dom.js").read_text(encoding="utf-8")
