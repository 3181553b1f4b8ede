"""Read a page as elements by a script inside it, and validate the result.

    snapshot = await look(page)                    # one call into the page, about a millisecond
    observation = observe(snapshot)                # elements and the text a policy reads
    place = await locate(page, element.key)        # where that element is now

A page's content is untrusted data. The script (`dom.js`) reports what a person could see and use: interactive elements
by role and accessible name, the remaining text once, pictures and shapes in words. Parts outside the window or covered
by others are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from collab.envs.text import cut, describe_screen
from collab.envs.web.gate import shorten_address
from collab.envs.web.worlds import FrameWorld, World, find_world
from collab.errors import EnvironmentFailure
from collab.types import Box, Element, Observation, Tab

if TYPE_CHECKING:
    from playwright.async_api import Page

AnswerT = TypeVar("AnswerT", bound=BaseModel)


FRAME_STEP = "/#page/"
"""Parts the key of a frame of another origin from the key of an element within it."""

MAX_ELEMENTS = 600
"""Elements that one look tells, over all frames."""

_FRAME_ANSWER_S = 2.0
"""How long a frame of another origin may take to answer before it is told as a closed box."""


class Opening(BaseModel):
    """Position of a frame's inside in the window."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    origin: tuple[float, float, float, float]
    """Where its (0, 0) is, in CSS pixels of the window, and how wide and high one of its pixels is there."""
    clip: tuple[float, float, float, float]
    """The part of the window that shows it."""


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
    frame: Opening | None = None
    """Set on a frame of another origin, which the page itself cannot look into."""


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
    left: int = 0
    right: int = 0
    """CSS pixels of the page that lie to the left and to the right of the window."""
    suspects: int = 0
    """Elements that may keep a shadow root to themselves."""
    more: bool
    """Whether elements were left out because there are too many."""


class ElementPlace(BaseModel):
    """Position of an element, and what can be done with it."""

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
    rich: bool = False
    """Whether it is a rich text field, which is no form control."""


class PageChange(BaseModel):
    """Result of an attempt to change the page; exactly one of the fields is set, none when only focused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    error: str | None = None
    """Why nothing was done."""
    chosen: str | None = None
    """The option now chosen."""
    value: str | None = None
    """What the field holds now."""
    moved: int | None = None
    """CSS pixels scrolled, downwards and to the right positive."""


GONE = PageChange(error="it is gone")


async def look(page: Page, *, ignore: str = "") -> Snapshot:
    """Take a snapshot of what the window shows, frames included.

    Args:
        page: the page.
        ignore: CSS selector of parts to leave out.

    Raises:
        EnvironmentFailure: the page answered with something else.
        playwright.async_api.Error: the page is gone, or is just being replaced by another.
    """
    world = await find_world(page)
    snapshot = _validate_answer(Snapshot, await world.ask({"ignore": ignore}), page)
    if not any(raw.frame for raw in snapshot.elements):
        return snapshot
    elements = await _insert_frames(page, world, snapshot.elements, ignore)
    more = snapshot.more or len(elements) > MAX_ELEMENTS
    return snapshot.model_copy(update={"elements": elements[:MAX_ELEMENTS], "more": more})


async def _insert_frames(
    page: Page, world: World, elements: tuple[RawElement, ...], ignore: str
) -> tuple[RawElement, ...]:
    """Put what frames of other origins show in their places; one that cannot be entered stays a closed box."""
    found: list[RawElement] = []
    for raw in elements:
        inside = (
            None if raw.frame is None or len(found) >= MAX_ELEMENTS else await _look_inside(page, world, raw, ignore)
        )
        if inside is None:
            found.append(raw.model_copy(update={"frame": None}))
        else:
            found += [each.model_copy(update={"key": raw.key + FRAME_STEP + each.key}) for each in inside]
    return tuple(found)


async def _look_inside(page: Page, world: World, raw: RawElement, ignore: str) -> tuple[RawElement, ...] | None:
    """Return what a frame of another origin shows; None when it cannot be entered."""
    from playwright.async_api import Error

    frame = await _enter_frame(world, raw.key)
    if frame is None or raw.frame is None:
        return None
    try:
        async with asyncio.timeout(_FRAME_ANSWER_S):
            request = {"ignore": ignore, "frame": raw.frame.model_dump()}
            shown = _validate_answer(Snapshot, await frame.ask(request), page)
            if shown.url.startswith("chrome-error:"):  # it could not be opened
                return None
            return await _insert_frames(page, frame, shown.elements, ignore)
    except TimeoutError:
        frame.silence()
        return None
    except Error:
        return None


async def locate(page: Page, key: str, seen: Element | None = None, *, again: bool = False) -> ElementPlace | None:
    """Find an element again and bring it into the window; None when it is gone.

    Args:
        page: the page.
        key: `Element.key` of an earlier snapshot.
        seen: the element in that snapshot; then only the same node counts, or a new one of equal role and name at its
            key. None for any element at the key.
        again: the element was just found; its name may have changed since (under the mouse), but not its node.
    """
    place = await _locate_once(page, key, seen, again)
    if place is not None and place.point is None and FRAME_STEP in key:
        await asyncio.sleep(0.05)  # the frames around it scroll one after the other
        place = await _locate_once(page, key, seen, again)
    return place


async def _locate_once(page: Page, key: str, seen: Element | None, again: bool) -> ElementPlace | None:
    answer, path = await _ask(page, key, {"again": again}, seen)
    place = None if answer == "null" else _validate_answer(ElementPlace, answer, page)
    if place is None or place.point is None:
        return place
    for world, frame, opening in path:  # nothing lies over the frames either
        if await world.ask({"key": frame, "hit": place.point, "frame": opening}) != "true":
            return place.model_copy(update={"point": None, "covered": True})
    return place


async def choose(page: Page, key: str, option: str, seen: Element | None = None) -> PageChange:
    """Choose an option by its text: `key` names the list, or the option itself. See `locate` for `seen`."""
    return await _change(page, key, {"choose": option}, seen)


async def fill(page: Page, key: str, text: str, seen: Element | None = None) -> PageChange:
    """Set a field that takes no typing: dates, sliders, colours. See `locate` for `seen`."""
    return await _change(page, key, {"fill": text}, seen)


async def focus(page: Page, key: str, seen: Element | None = None) -> PageChange:
    """Put the focus on an element. See `locate` for `seen`."""
    return await _change(page, key, {"focus": True}, seen)


async def scroll(page: Page, *, down: bool, sideways: bool = False) -> PageChange:
    """Scroll the page by nine tenths of the window; where the page does not move, the largest part of it that can.

    Args:
        page: the page.
        down: the way: down, or to the right; False for up, or to the left.
        sideways: whether to the right or left.
    """
    step = 1 if down else -1
    way = [step, 0] if sideways else [0, step]
    world = await find_world(page)
    best: tuple[float, World, dict[str, Any]] = (float(await world.ask({"scroll": way, "measure": True})), world, {})
    for frame, opening in [] if math.isinf(best[0]) else await _find_frames(page, world, {}):
        size = float(await frame.ask({"scroll": way, "measure": True, **opening}))
        best = max(best, (size, frame, opening), key=lambda each: each[0])
    _, world, opening = best
    return _validate_answer(PageChange, await world.ask({"scroll": way, **opening}), page)


async def _find_frames(page: Page, world: World, opening: dict[str, Any]) -> list[tuple[World, dict[str, Any]]]:
    """Return all frames of other origins that can be entered, and where they lie."""
    found: list[tuple[World, dict[str, Any]]] = []
    for raw in _validate_answer(Snapshot, await world.ask(opening), page).elements:
        inside = None if raw.frame is None else await _enter_frame(world, raw.key)
        if inside is not None and raw.frame is not None:
            there = {"frame": raw.frame.model_dump()}
            found += [(inside, there), *await _find_frames(page, inside, there)]
    return found


async def _enter_frame(world: World, key: str) -> FrameWorld | None:
    """Return the world of a frame that answers soon enough."""
    from playwright.async_api import Error

    with contextlib.suppress(Error, TimeoutError):
        async with asyncio.timeout(_FRAME_ANSWER_S):
            return await world.enter(key)
    return None


def build_elements(snapshot: Snapshot) -> tuple[Element, ...]:
    """Return the snapshot's elements, numbered in document order."""
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
    tabs: tuple[Tab, ...] = (),
    notice: str | None = None,
) -> Observation:
    """Return the observation that shows a snapshot.

    In the web space the text also names the address, the tabs when there are several, and how much page is left.

    Args:
        snapshot: what the page shows.
        space: name of the action space.
        tabs: open tabs; () when they do not matter.
        notice: what happened beside the page; None if nothing.
    """
    # Numbers are positions in the list, which actions refer to.
    elements = build_elements(snapshot)
    extra = [*_format_lines(snapshot, tabs)] if space == "web" else []
    if notice:
        extra.append(f"Notice: {notice}")
    return Observation(
        space=space,
        title=snapshot.title,
        elements=elements,
        text=describe_screen(snapshot.title, elements, extra),
        width=snapshot.width,
        height=snapshot.height,
        # Addresses are for web agents; a phone's screen shows none.
        url=shorten_address(snapshot.url) if space == "web" else None,
        tabs=tabs,
        notice=notice,
    )


def _format_lines(snapshot: Snapshot, tabs: tuple[Tab, ...]) -> Iterable[str]:
    yield f"Address: {cut(shorten_address(snapshot.url), 200)}"
    if len(tabs) > 1:
        told = (f"{i} {cut(tab.title or tab.url, 80)!r}" + " (shown)" * tab.active for i, tab in enumerate(tabs))
        yield f"Tabs: {', '.join(told)}"
    if snapshot.above or snapshot.below:
        yield f"Page: {snapshot.above} pixels above, {snapshot.below} below; the window shows {snapshot.height}"
    if snapshot.left or snapshot.right:
        sides = f"{snapshot.left} to the left, {snapshot.right} to the right"
        yield f"Page: {sides}; the window shows {snapshot.width}"
    if snapshot.more:
        yield f"Left out: everything after the first {MAX_ELEMENTS} elements of the screen"


async def _change(page: Page, key: str, request: Mapping[str, Any], seen: Element | None) -> PageChange:
    answer, _ = await _ask(page, key, request, seen)
    return GONE if answer == "null" else _validate_answer(PageChange, answer, page)


def _validate_answer(model: type[AnswerT], answer: str, page: Page) -> AnswerT:
    try:
        return model.model_validate_json(answer)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise EnvironmentFailure(f"the page {page.url[:200]} gave no readable answer: {problem}") from None


_Path = list[tuple[World, str, dict[str, Any] | None]]
"""The frames of other origins on the way to an element: a world, the frame's key there, and where that world lies."""


async def _ask(page: Page, key: str, request: Mapping[str, Any], seen: Element | None) -> tuple[str, _Path]:
    """Put a request about an element to the world that it is in; the answer, and the frames on the way there."""
    world, path, opening = await find_world(page), _Path(), None
    *frames, last = key.split(FRAME_STEP)
    # Through the frames from the outside in; each may live in a process of its own.
    for frame in frames:
        answer = await world.ask({"key": frame, "enter": True, "frame": opening})
        inside = None if answer == "null" else await world.enter(frame)
        if inside is None:
            return "null", path
        path.append((world, frame, opening))
        world, opening = inside, Opening.model_validate_json(answer).model_dump()
    whole = {**request, "key": last, "frame": opening}
    # What it looked like goes along: the script refuses an element that became another.
    if seen is not None:
        whole["seen"] = {"role": seen.role, "label": seen.label}
    return await world.ask(whole), path
