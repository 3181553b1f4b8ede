"""Looking at the phone: state in, observation out.

`look` is pure and the only way from a `Phone` to what an agent sees; the frame it returns also knows which handler
belongs to which element, so that the next action finds its way back into the state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from collab.envs.simphone.app import NodeLine, UiNode, View, icon
from collab.envs.simphone.distractions.interruptions import build_banner, build_covering, is_banner
from collab.envs.simphone.distractions.looks import name_app, reword, reword_node, reword_view, shuffle_view
from collab.envs.simphone.distractions.presets import build_loading
from collab.envs.simphone.state import USUAL, Page, Phone, close_panel, pop
from collab.envs.simphone.ui.layout import Placed, lay_over, place
from collab.envs.text import MAX_NOTICE, MAX_TITLE, bound_elements, cut_middle, describe_screen
from collab.types import Box, Element, Observation

RENDERER = "simphone-1"
OVERLAYS = ("dialog", "menu", "sheet")
"""Styles of views that leave the page below them partly in sight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One look at a phone."""

    phone: Phone
    page: Page
    view: View
    placed: Placed
    elements: tuple[Element, ...]
    """Those of the observation, with their whole texts."""
    observation: Observation

    def index(self, key: str) -> int | None:
        """Return the index of the visible element with this key; None when it is not on the screen."""
        for index, node in enumerate(self.placed.nodes):
            if node.key == key:
                return index
        return None


def build_view(phone: Phone) -> View:
    """Return the screen in front, without places."""
    page = phone.page
    return phone.apps.screens[page.screen](phone, page)


def find_foreground_package(phone: Phone) -> str:
    """Return the package of the page in front: a permission dialog belongs to the system, not to the app that asks."""
    return build_view(phone).package or phone.foreground


def look(phone: Phone) -> Frame:
    """Return what is on the screen now."""
    manner = phone.manner
    # What is in front may be a panel or a cover; the keyboard belongs to the app's page.
    page, view = _find_front(phone)
    keyboard = phone.keyboard and page is phone.page
    # Reworded and shuffled by the phone's manner: other instances must not be solvable by memory of one.
    view = reword_view(shuffle_view(view, page.screen, manner), page.screen, manner)
    placed = place(view, page, keyboard=keyboard, back_icon=_build_arrow(phone, page), manner=manner)
    # A banner lies over the page, unless the cover is all that is shown.
    if phone.cover is not None and page is not _COVERED:
        lay_over(placed, [reword_node(node, manner) for node in build_banner(phone, phone.cover)])
    # Indices are those of placed nodes, which actions refer to.
    whole = tuple(
        _build_element(index, node.role, node.label, box, node.value, _list_flags(node, page), node.key)
        for index, (node, box) in enumerate(zip(placed.nodes, placed.boxes, strict=True))
    )
    # App and page, cut: the title goes into every prompt.
    app = name_app(phone.apps.by_package[phone.foreground].name, manner)
    alone = phone.panel is not None or page is _COVERED
    title = cut_middle(app if view.title in ("", app) else view.title if alone else f"{app}: {view.title}", MAX_TITLE)
    notice = cut_middle(reword(phone.notice, "notice", manner), MAX_NOTICE) if phone.notice else None
    # Bounded for the observation; `whole` keeps all, for acting on what scrolled away.
    elements = bound_elements(whole)
    observation = Observation(
        space="mobile",
        title=title,
        elements=elements,
        text=describe_screen(title, elements, _list_extra(notice, keyboard, placed)),
        notice=notice,
        renderer=RENDERER,
        drawing=_describe_drawing(phone, view, placed, app, notice, keyboard),
    )
    return Frame(phone=phone, page=page, view=view, placed=placed, elements=whole, observation=observation)


def _find_front(phone: Phone) -> tuple[Page, View]:
    """Return what is seen: the page on top, or what hides it."""
    if phone.cover is not None and not is_banner(phone.cover):
        return _COVERED, build_covering(phone, phone.cover)
    page = phone.page
    if phone.loading:
        return _LOADING, build_loading(phone)
    return page, phone.apps.screens[page.screen](phone, page)


def _build_arrow(phone: Phone, page: Page) -> UiNode | None:
    first = phone.panel is not None or page is _COVERED or len(phone.stacks[phone.foreground]) == 1
    return None if first else reword_node(_BACK_ARROW, phone.manner)


def leave(phone: Phone) -> Phone:
    """Let the page that goes out of sight do what it then does (an editor saves); a dialog or panel may cover it."""
    if phone.panel is not None:
        return replace(leave(close_panel(phone)), panel=phone.panel)
    view = build_view(phone)
    if view.leave is not None:
        return view.leave(phone)
    if view.style in OVERLAYS and len(phone.stacks[phone.foreground]) > 1:
        return replace(leave(pop(phone)), stacks=phone.stacks)
    return phone


def go_back(phone: Phone) -> Phone:
    """Return the back key: the keyboard closes first, then the page."""
    if phone.keyboard:
        return _close_keyboard(phone)
    view = build_view(phone)
    if view.back is not None:
        return view.back(phone)
    return pop(view.leave(phone) if view.leave else phone)


def press_back(phone: Phone) -> Phone:
    """Return the arrow in the app bar: closes the page even when the keyboard shows."""
    return go_back(_close_keyboard(phone))


def format_clock(phone: Phone) -> str:
    """Return the time in the status bar, "15:34"."""
    minutes = phone.now_ms // 60_000
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def list_inputs(view: View) -> list[UiNode]:
    """Return all input fields of a view, hidden ones included, in reading order."""
    nodes: list[UiNode] = []
    for entry in (*view.body, *((view.footer,) if view.footer else ())):
        nodes.extend(entry.nodes if isinstance(entry, NodeLine) else (entry,))
    return [node for node in nodes if node.field is not None]


def _close_keyboard(phone: Phone) -> Phone:
    return replace(phone, keyboard=False) if phone.keyboard else phone


def _list_flags(node: UiNode, page: Page) -> tuple[str, ...]:
    flags = node.flags
    if node.field is not None and node.field == page.focus:
        flags = (*flags, "focused")
    if node.hold is not None:
        flags = (*flags, "long-clickable")
    if node.slide is not None:
        flags = (*flags, "surface")
    return flags


@lru_cache(maxsize=1 << 14)
def _build_element(
    index: int, role: str, label: str, box: Box, value: str | None, flags: tuple[str, ...], key: str
) -> Element:
    return Element(index=index, role=role, label=label, box=box, value=value, flags=flags, key=key)


def _list_extra(notice: str | None, keyboard: bool, placed: Placed) -> list[str]:
    lines = [f"Message: {notice}"] if notice else []
    if keyboard:
        lines.append("The keyboard is open.")
    sides = set(placed.hidden.values())
    if sides:
        where = " and ".join(word for side, word in (("up", "above"), ("down", "below")) if side in sides)
        lines.append(f"There is more {where}.")
    return lines


def _list_notifiers(phone: Phone) -> list[str]:
    """Return the names of the apps whose notifications the status bar hints at."""
    packages = dict.fromkeys(one.package for one in phone.notifications)
    return [phone.apps.by_package[package].name if package in phone.apps.by_package else "" for package in packages]


def _describe_drawing(
    phone: Phone, view: View, placed: Placed, app: str, notice: str | None, keyboard: bool
) -> dict[str, object]:
    drawing: dict[str, object] = {
        "app": app,
        "app_bar": view.title if view.style == "screen" else None,
        "keyboard": keyboard,
        "dialog": list(placed.window) if view.style in OVERLAYS else None,
        "notifications": _list_notifiers(phone),
        "surface": view.style if view.style in ("shade", "overview") else None,
        "dark": phone.settings.get("secure/dark_theme") == "1",
        "clock": format_clock(phone),
        "toast": notice,
    }
    if phone.manner != USUAL:
        drawing |= {"font": phone.manner.font, "accent": phone.manner.accent}
        drawing["pictures"] = {str(index): node.picture for index, node in enumerate(placed.nodes) if node.picture}
    if phone.cover is not None and placed.banner is not None:
        drawing["banner"] = list(placed.banner)
    return drawing


_COVERED, _LOADING = Page(screen="cover"), Page(screen="loading")
"""Stand for the page while something hides it: nothing on them scrolls or has the focus."""
_BACK_ARROW = icon("Navigate up", "android:id/up", press_back)
