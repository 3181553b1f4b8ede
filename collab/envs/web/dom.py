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
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from collab.envs.text import describe_screen
from collab.errors import EnvironmentFailure
from collab.types import Box, Element, Observation, Tab

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page


AnswerT = TypeVar("AnswerT", bound=BaseModel)


class RawElement(BaseModel):
    """One element as the page tells it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str
    label: str
    box: tuple[int, int, int, int] | None
    key: str
    value: str | None
    flags: tuple[str, ...]
    spot: tuple[float, float] | None = None
    """A point, in CSS pixels of the window, where a plain click does all that clicking it means; None when more has to
    be done first, when there is none, or when it was not asked for."""


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
    """Where an element is now, and what can be done with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tag: str
    """Name of its HTML tag, in lower case."""
    type: str | None
    """The `type` of a form control; None for anything else."""
    point: tuple[float, float] | None
    """A point, in CSS pixels of the window, where a click reaches it; None when there is none."""
    covered: bool
    """Whether it is in the window with something else over all of it."""
    disabled: bool
    editable: bool
    """Whether text can be typed into it."""


class Change(BaseModel):
    """What became of an attempt to change the page; exactly one of the fields is set, none when only focused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    error: str | None = None
    """Why nothing was done."""
    chosen: str | None = None
    """The option now chosen."""
    value: str | None = None
    """What the field holds now."""
    moved: int | None = None
    """CSS pixels scrolled, downwards positive."""


GONE = Change(error="it is gone")


async def look(page: Page | Frame, *, ignore: str = "") -> Snapshot:
    """Take a snapshot of what the window shows.

    Args:
        page: the page.
        ignore: CSS selector of parts to leave out.

    Raises:
        EnvironmentFailure: the page answered with something else (its scripts broke the browser's own objects).
        playwright.async_api.Error: the page is gone, or is just being replaced by another.
    """
    return _checked(Snapshot, await _ask(page, {"ignore": ignore}), page)


async def locate(page: Page | Frame, key: str) -> Place | None:
    """Find an element again by its key and bring it into the window; None when it is gone.

    Args:
        page: the page.
        key: `Element.key` of an earlier snapshot.
    """
    answer = await _ask(page, {"key": key})
    return None if answer == "null" else _checked(Place, answer, page)


async def choose(page: Page | Frame, key: str, option: str) -> Change:
    """Choose an option by its text: `key` names the list, or the option itself."""
    return await _change(page, {"key": key, "choose": option})


async def fill(page: Page | Frame, key: str, text: str) -> Change:
    """Set a field that takes no typing: dates, sliders, colours."""
    return await _change(page, {"key": key, "fill": text})


async def focus(page: Page | Frame, key: str) -> Change:
    """Put the focus on an element."""
    return await _change(page, {"key": key, "focus": True})


async def scroll(page: Page | Frame, *, down: bool) -> Change:
    """Scroll the page by nine tenths of the window; where the page does not move, its largest scroll area."""
    return await _change(page, {"scroll": 1 if down else -1})


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
    yield f"Address: {_plain(snapshot.url, 200)}"
    if len(tabs) > 1:
        told = (f"{i} {_plain(tab.title or tab.url)!r}" + " (shown)" * tab.active for i, tab in enumerate(tabs))
        yield f"Tabs: {', '.join(told)}"
    if snapshot.above or snapshot.below:
        yield f"Page: {snapshot.above} pixels above, {snapshot.below} below; the window shows {snapshot.height}"


def _plain(text: str, length: int = 80) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


async def _change(page: Page | Frame, request: dict[str, str | int]) -> Change:
    answer = await _ask(page, request)
    return GONE if answer == "null" else _checked(Change, answer, page)


def _checked(model: type[AnswerT], answer: str, page: Page | Frame) -> AnswerT:
    try:
        return model.model_validate_json(answer)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise EnvironmentFailure(f"the page {page.url[:200]} gave no readable answer: {problem}") from None


async def _ask(page: Page | Frame, request: Mapping[str, str | int]) -> str:
    """Run the script in the page; it stays there until the page is left, because sending it takes longest."""
    answer: str | None = await page.evaluate("request => globalThis.__collabLook?.(request)", request)
    return answer if answer is not None else str(await page.evaluate(_script(), request))


@functools.cache
def _script() -> str:
    """The function of `dom.js`, wrapped so that it hides itself in the page on its first run."""
    look = resources.files(__package__).joinpath("dom.js").read_text(encoding="utf-8")
    keep = "Object.defineProperty(globalThis, '__collabLook', {value: look})"
    return f"request => {{ const look = {look.rstrip().rstrip(';')}; {keep}; return look(request); }}"
