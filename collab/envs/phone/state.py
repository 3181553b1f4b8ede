"""The phone as one immutable value, and the verbs that make the next one.

Nothing here changes in place: every verb returns a new `Phone` that shares what did not change with the old one. A
fork is therefore the same object, a snapshot costs nothing, and a screen is a pure function of the phone.

What lives where follows Android: settings tables, files under real paths, rows of the real databases (turned into
SQLite bytes only when somebody asks, see `databases`), one back stack of pages per app.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from collab.envs.phone.distractions.cover import Cover
from collab.envs.phone.distractions.manner import USUAL, Manner
from collab.types import Scalar

if TYPE_CHECKING:
    from collab.envs.phone.app import Apps

WIDTH, HEIGHT = 1080, 2400
"""Screen size in pixels."""
START_MS = 1_697_384_040_000
"""The device clock at the start of every episode: 2023-10-15 15:34:00 UTC, in milliseconds. It is frozen: only
`wait` lets time pass."""
LAUNCHER = "com.google.android.apps.nexuslauncher"
EMPTY: Mapping[str, Any] = MappingProxyType({})

Row: TypeAlias = Mapping[str, Scalar]
"""One row of a database table, by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or a folder."""

    content: str | None
    """Text of a file; None for a folder."""
    changed_ms: int = START_MS
    """Time of the last change, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One activity or dialog of a back stack: which screen, about what, and what the user left on it."""

    screen: str
    """Name of the screen function, e.g. "contacts.editor"."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What the screen is about, and choices not saved yet (a tab, a selection); immutable values."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Text in its input fields, by field name."""
    focus: str | None = None
    """Field that has the focus."""
    scroll: int = 0
    """How far its content is scrolled down, in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What an app has to say while something else is on the screen."""

    key: str
    """Unique on the phone: a second notification with the same key takes the place of the first."""
    package: str
    """App that says it."""
    title: str
    text: str = ""
    opens: Page | None = None
    """Page of the app that a tap opens on top of the app's own; None: the app as it was left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phone:
    """Everything a phone knows."""

    apps: Apps = field(compare=False, repr=False)
    """What is installed; the same for all phones of an environment."""
    now_ms: int = START_MS
    settings: Mapping[str, str] = field(default_factory=dict)
    """Android's settings tables: "global/wifi_on" → "1"."""
    files: Mapping[str, Entry] = field(default_factory=dict)
    """Files and folders by absolute path, without a trailing slash."""
    rows: Mapping[tuple[str, str], tuple[Row, ...]] = field(default_factory=dict)
    """Database rows by (path of the database, table)."""
    memory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What apps keep for themselves, by package: preferences, a running stopwatch."""
    clipboard: str = ""
    stacks: Mapping[str, tuple[Page, ...]] = field(default_factory=dict)
    """Back stack per running app, bottom first; the launcher's always exists. The app used last comes last."""
    foreground: str = LAUNCHER
    keyboard: bool = False
    """Whether the soft keyboard covers the bottom of the screen."""
    panel: Page | None = None
    """What the system has drawn over the whole screen: the notification shade, quick settings; None: nothing. The
    app below stays in front."""
    notifications: tuple[Notification, ...] = ()
    """The newest first."""
    notice: str | None = None
    """The toast of the last action."""
    answer: str | None = None
    """What the agent answered last."""
    manner: Manner = USUAL
    """Language, words, order, sizes and colours; the same for a whole episode."""
    cover: Cover | None = None
    """An interruption that lies over everything else; None: nothing. It is no app's page and no panel."""
    loading: int = 0
    """Actions until the screen shows; 0: it shows."""

    @property
    def page(self) -> Page:
        """The page on top: the system's panel, else the last of the foreground app's back stack."""
        return self.panel if self.panel is not None else self.stacks[self.foreground][-1]


Handler: TypeAlias = Callable[[Phone], Phone]
"""What a touch does."""


# --------------------------------------------------------------------------------------------------------- pages


def edit_page(phone: Phone, **changes: Any) -> Phone:
    """Change fields of the page on top."""
    if phone.panel is not None:
        return replace(phone, panel=replace(phone.panel, **changes))
    stack = phone.stacks[phone.foreground]
    stacks = {**phone.stacks, phone.foreground: (*stack[:-1], replace(stack[-1], **changes))}
    return replace(phone, stacks=stacks)


def keep(phone: Phone, **data: Any) -> Phone:
    """Change what the page on top remembers."""
    return edit_page(phone, data={**phone.page.data, **data})


def put_field(phone: Phone, name: str, text: str) -> Phone:
    """Set the text of an input field of the page on top."""
    return edit_page(phone, fields={**phone.page.fields, name: text})


def focus_on(phone: Phone, name: str | None) -> Phone:
    """Give a field of the page on top the focus and show the keyboard; None takes both away."""
    return replace(edit_page(phone, focus=name), keyboard=name is not None)


def push(phone: Phone, page: Page) -> Phone:
    """Open a page of the foreground app; the keyboard shows when the page starts with a focused field."""
    return _shown(phone, (*phone.stacks[phone.foreground], page))


def pop(phone: Phone, count: int = 1) -> Phone:
    """Close the topmost pages; the app whose last page closes ends, and the launcher shows. A panel closes alone."""
    if phone.panel is not None:
        return close_panel(phone)
    stack = phone.stacks[phone.foreground][:-count]
    if not stack:
        if phone.foreground == LAUNCHER:
            return phone
        return close_app(phone, phone.foreground)
    return replace(phone, stacks={**phone.stacks, phone.foreground: stack}, keyboard=False)


def swap(phone: Phone, page: Page, closing: int = 1) -> Phone:
    """Open a page in place of the topmost ones."""
    return _shown(phone, (*phone.stacks[phone.foreground][:-closing], page))


def go_home(phone: Phone) -> Phone:
    """Show the launcher's first page; apps keep their back stacks."""
    stacks = {**phone.stacks, LAUNCHER: phone.stacks[LAUNCHER][:1]}
    return replace(phone, stacks=stacks, foreground=LAUNCHER, keyboard=False, panel=None)


def close_app(phone: Phone, package: str) -> Phone:
    """Forget an app's back stack; the launcher shows if the app was in front."""
    closed = replace(phone, stacks={name: stack for name, stack in phone.stacks.items() if name != package})
    return go_home(closed) if phone.foreground == package else closed


def start(phone: Phone, package: str, pages: tuple[Page, ...]) -> Phone:
    """Bring an app to the front as it was left; `pages` is its back stack when it is not running."""
    stacks = {name: stack for name, stack in phone.stacks.items() if name != package}
    stacks[package] = phone.stacks.get(package, pages)
    return replace(phone, stacks=stacks, foreground=package, keyboard=False, panel=None)


def recent_apps(phone: Phone) -> list[str]:
    """Packages of the running apps, the one used last first; the launcher is none of them."""
    return [package for package in reversed(tuple(phone.stacks)) if package != LAUNCHER]


def _shown(phone: Phone, stack: tuple[Page, ...]) -> Phone:
    """The foreground app with this back stack, nothing drawn over it."""
    stacks = {**phone.stacks, phone.foreground: stack}
    return replace(phone, stacks=stacks, keyboard=stack[-1].focus is not None, panel=None)


# -------------------------------------------------------------------------------------- what the system draws over it


def open_panel(phone: Phone, screen: str) -> Phone:
    """Draw a screen of the system over the whole screen; the keyboard goes."""
    return replace(phone, panel=Page(screen=screen), keyboard=False)


def close_panel(phone: Phone) -> Phone:
    """Show the app again."""
    return replace(phone, panel=None)


def notify(phone: Phone, notification: Notification) -> Phone:
    """Post a notification, in place of one with the same key."""
    others = (one for one in phone.notifications if one.key != notification.key)
    return replace(phone, notifications=(notification, *others))


def dismiss(phone: Phone, key: str) -> Phone:
    """Take a notification away; nothing happens when it is gone."""
    return replace(phone, notifications=tuple(one for one in phone.notifications if one.key != key))


# ------------------------------------------------------------------------------------------------------ the rest


def toast(phone: Phone, text: str) -> Phone:
    """Show a short message beside the screen until the next action."""
    return replace(phone, notice=text)


def put_setting(phone: Phone, name: str, value: str) -> Phone:
    """Write a settings table: `put_setting(phone, "global/wifi_on", "1")`."""
    return replace(phone, settings={**phone.settings, name: value})


def remember(phone: Phone, package: str, **values: Any) -> Phone:
    """Change what an app keeps for itself."""
    kept = {**phone.memory.get(package, EMPTY), **values}
    return replace(phone, memory={**phone.memory, package: kept})


def recall(phone: Phone, package: str, name: str, default: Any = None) -> Any:
    """What an app kept under `name`."""
    return phone.memory.get(package, EMPTY).get(name, default)
