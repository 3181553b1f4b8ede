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
    """Back stack per running app, bottom first; the launcher's always exists."""
    foreground: str = LAUNCHER
    keyboard: bool = False
    """Whether the soft keyboard covers the bottom of the screen."""
    notice: str | None = None
    """The toast of the last action."""
    answer: str | None = None
    """What the agent answered last."""

    @property
    def page(self) -> Page:
        """The page on top of the foreground app's back stack."""
        return self.stacks[self.foreground][-1]


Handler: TypeAlias = Callable[[Phone], Phone]
"""What a touch does."""


# --------------------------------------------------------------------------------------------------------- pages


def edit_page(phone: Phone, **changes: Any) -> Phone:
    """Change fields of the page on top."""
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
    stack = (*phone.stacks[phone.foreground], page)
    return replace(phone, stacks={**phone.stacks, phone.foreground: stack}, keyboard=page.focus is not None)


def pop(phone: Phone, count: int = 1) -> Phone:
    """Close the topmost pages; the app whose last page closes ends, and the launcher shows."""
    stack = phone.stacks[phone.foreground][:-count]
    if not stack:
        if phone.foreground == LAUNCHER:
            return phone
        return close_app(phone, phone.foreground)
    return replace(phone, stacks={**phone.stacks, phone.foreground: stack}, keyboard=False)


def swap(phone: Phone, page: Page, closing: int = 1) -> Phone:
    """Open a page in place of the topmost ones."""
    stack = (*phone.stacks[phone.foreground][:-closing], page)
    return replace(phone, stacks={**phone.stacks, phone.foreground: stack}, keyboard=page.focus is not None)


def go_home(phone: Phone) -> Phone:
    """Show the launcher's first page; apps keep their back stacks."""
    stacks = {**phone.stacks, LAUNCHER: phone.stacks[LAUNCHER][:1]}
    return replace(phone, stacks=stacks, foreground=LAUNCHER, keyboard=False)


def close_app(phone: Phone, package: str) -> Phone:
    """Forget an app's back stack; the launcher shows if the app was in front."""
    closed = replace(phone, stacks={name: stack for name, stack in phone.stacks.items() if name != package})
    return go_home(closed) if phone.foreground == package else closed


def start(phone: Phone, package: str, pages: tuple[Page, ...]) -> Phone:
    """Bring an app to the front as it was left; `pages` is its back stack when it is not running."""
    stacks = phone.stacks if package in phone.stacks else {**phone.stacks, package: pages}
    return replace(phone, stacks=stacks, foreground=package, keyboard=False)


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
