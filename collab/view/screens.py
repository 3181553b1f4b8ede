"""Screens and actions as they are shown: elements with their boxes, actions with the spot they touch, pictures."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from collab.envs.actions import SPACES
from collab.envs.targets import target_words
from collab.errors import CollabError, EnvironmentFailure, RunFormatError, UnknownName, boundary
from collab.store.blobs import blob_path, read_blob
from collab.types import Action, Box, Element, ElementTarget, Observation, Point
from collab.view import answer
from collab.view.links import trouble
from collab.view.shapes.screen import ActionView, ElementView, Rectangle, Screen, ScreenWhole, Spot, TabView

if TYPE_CHECKING:
    from PIL import Image

FINAL = "final"
"""In place of a step: the screen after the last action."""
ELEMENTS = 2_000
"""Of a screen that are listed beside it; `screen_whole` has all."""
_FLAGS = 10
"""Of an element."""
PIXELS = 12_000_000
"""Of the largest screen that is drawn: what is recorded may claim any size."""
_DRAWN = 32
"""Drawn screens in memory, about 100 kB each."""


def screen_view(observation: Observation, *, run: str, directory: Path, episode: str, step: int | None) -> Screen:
    """A screen with its texts cut and the address of its picture.

    Args:
        run: id.
        step: None for the screen after the last action.
    """
    picture, unpictured = _picture(observation, run, directory, episode, step)
    return Screen(
        space=answer.short(observation.space),
        title=answer.short(observation.title),
        url=None if observation.url is None else answer.short(observation.url),
        width=observation.width,
        height=observation.height,
        tabs=[
            TabView(title=answer.short(tab.title), url=answer.short(tab.url), active=tab.active)
            for tab in observation.tabs
        ],
        notice=None if observation.notice is None else answer.short(observation.notice),
        text=answer.text(observation.text),
        elements=[element_view(element) for element in observation.elements[:ELEMENTS]],
        more=max(0, len(observation.elements) - ELEMENTS),
        picture=picture,
        unpictured=unpictured,
        digest=observation.digest,
    )


def screen_whole(observation: Observation) -> ScreenWhole:
    """The long parts of a screen uncut."""
    return ScreenWhole(text=observation.text, elements=[element_view(one, whole=True) for one in observation.elements])


def element_view(element: Element, *, whole: bool = False) -> ElementView:
    """An element; its texts cut unless `whole`."""
    cut = str if whole else answer.short
    flags = element.flags if whole else [answer.short(flag) for flag in element.flags[:_FLAGS]]
    return ElementView(
        index=element.index,
        role=cut(element.role),
        label=cut(element.label),
        box=_rectangle(element.box),
        value=None if element.value is None else cut(element.value),
        flags=flags,
    )


def action_view(action: Action, observation: Observation) -> ActionView:
    """An action on the screen for which it was said."""
    element, box, spot = _place(action, observation)
    return ActionView(
        type=answer.short(action.type),
        words=answer.short(_words(action, observation)),
        element=element,
        box=box,
        spot=spot,
        arguments={
            answer.short(name): answer.short(value) if isinstance(value, str) else value
            for name, value in action.arguments
        },
    )


def picture(directory: Path, hash: str) -> bytes:
    """A recorded picture as WebP bytes.

    Raises:
        UsageError: not a hash.
        UnknownName: the run has no such picture.
        RunFormatError: the file is no WebP.
    """
    why = trouble(directory, blob_path(directory, hash))
    if why is not None:
        raise RunFormatError(f"{blob_path(directory, hash)}: {why}")
    content = read_blob(directory, hash)
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
        raise RunFormatError(f"{blob_path(directory, hash)}: is no picture any more")
    return content


def prepare() -> None:
    """Load what draws, which the first screen would have to wait for."""
    importlib.import_module("collab.envs.phone.screen")


def can_draw(observation: Observation) -> bool:
    """Whether a screen can be drawn from its elements alone."""
    from collab.envs.phone.screen import RENDERER

    return observation.renderer == RENDERER


def drawn(observation: Observation) -> bytes:
    """A screen drawn from its elements, as PNG bytes.

    Raises:
        UnknownName: no renderer can draw it.
        RunFormatError, EnvironmentFailure: what is recorded does not make a screen.
    """
    _check(observation)
    return _drawn(_Sheet(observation))


def image_of(observation: Observation) -> Image.Image:
    """As `drawn`, as an image."""
    from collab.envs.phone.render import render

    _check(observation)
    with boundary(EnvironmentFailure, "the screen cannot be drawn"):
        return render(observation)


# ------------------------------------------------------------------------------------------------------ inside


def _check(observation: Observation) -> None:
    if not can_draw(observation):
        raise UnknownName(f"no renderer here draws screens of {str(observation.renderer)[:80]!r}")
    if not 0 < observation.width * observation.height <= PIXELS or observation.width < 0:
        raise RunFormatError(f"a screen of {observation.width} × {observation.height} pixels is not drawn")


class _Sheet:
    """A screen that is equal to another when it looks the same."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self._looks = repr((observation.elements, observation.drawing, observation.width, observation.height))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sheet) and self._looks == other._looks

    def __hash__(self) -> int:
        return hash(self._looks)


@lru_cache(maxsize=_DRAWN)
def _drawn(sheet: _Sheet) -> bytes:
    from collab.envs.phone.render import render_png

    with boundary(EnvironmentFailure, "the screen cannot be drawn"):  # what is recorded decides what it meets
        return render_png(sheet.observation)


def _picture(
    observation: Observation, run: str, directory: Path, episode: str, step: int | None
) -> tuple[str | None, str | None]:
    """Address of a picture, and why there is none although one was taken."""
    if observation.screenshot is None:
        if not can_draw(observation):
            return None, None
        asked = urlencode({"episode": episode, "step": FINAL if step is None else step}, errors="surrogatepass")
        return f"/api/run/{run}/drawn?{asked}", None
    try:
        path = blob_path(directory, observation.screenshot)
    except CollabError as error:
        return None, answer.short(str(error))
    if not path.is_file():
        return None, "its picture was not written before the run died"
    return f"/api/run/{run}/picture/{observation.screenshot}", None


def _words(action: Action, observation: Observation) -> str:
    try:
        return SPACES[action.space].describe(action, observation)
    except LookupError:  # recorded by a version with another grammar
        return " ".join([action.type, target_words(action.target, observation)])


def _place(action: Action, observation: Observation) -> tuple[int | None, Rectangle | None, Spot | None]:
    """Index, box and middle of the element, or the point in pixels."""
    target = action.target
    if isinstance(target, Point):
        scale = (observation.width, observation.height) if target.space == "normalised" else (1, 1)
        return None, None, (target.x * scale[0], target.y * scale[1])
    if not isinstance(target, ElementTarget):
        return None, None, None
    found = _element(observation.elements, target.index)
    box = None if found is None else found.box
    return target.index, _rectangle(box), None if box is None else (float(box.center[0]), float(box.center[1]))


def _element(elements: Sequence[Element], index: int) -> Element | None:
    """Elements stand at their index, unless the record is spoilt."""
    if 0 <= index < len(elements) and elements[index].index == index:
        return elements[index]
    return next((one for one in elements if one.index == index), None)


def _rectangle(box: Box | None) -> Rectangle | None:
    return None if box is None else (box.left, box.top, box.right, box.bottom)
