"""The phone as one immutable value, and the verbs that make the next one.

Nothing here changes in place: every verb returns a new `Phone` that shares what did not change with the old one. A
fork is therefore the same object, a snapshot costs nothing, and a screen is a pure function of the phone.

What lives where follows Android: settings tables, files under real paths, rows of the real databases (turned into
SQLite bytes only on demand, see `databases`), one back stack of pages per app.

Rows of the phone's databases, and the SQLite files other tools expect to find.

Apps work on plain rows: cheap to fork, cheap to compare. The bytes of a database exist only during a look:
`dump` writes them in the real schema, `load` reads a changed file back.

The shared storage: a file tree under Android's real paths.

How a phone presents itself for a whole episode: language, words, order, sizes, colours.

What lies over the screen without being part of any app's back stack.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from collab.types import Scalar

if TYPE_CHECKING:
    from collab.envs.simphone.app import Apps


Language: TypeAlias = Literal["english", "german"]
ACCENTS = ("green", "red", "violet", "orange")
"""Colours of buttons and headings besides the usual blue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The looks of a phone. Whether it is dark is one of its settings instead, as its user may switch that."""

    language: Language = "english"
    wording: int | None = None
    """Seed of the words that are replaced by others of the same meaning; None: the usual words."""
    order: int | None = None
    """Seed of the order of apps, settings and menu entries; None: the usual order."""
    rows: float = 1.0
    """Height of rows, relative to the usual one."""
    inset: int = 0
    """Pixels between the sides of the screen and its rows."""
    font: float = 1.0
    """Size of text, relative to the usual one."""
    accent: str | None = None
    """Name of the colour of buttons and headings (one of `ACCENTS`); None: the usual blue."""


USUAL = Manner()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """An interruption that is shown. The screen below stays unchanged until the cover goes."""

    kind: str
    """A key of `interruptions.STAGES`."""
    stage: str = "first"
    """How far the user has been led on."""
    about: str = ""
    """The caller, or what the banner says."""
    small: bool = False
    """Whether it has shrunk to a banner, as calls and alarms do when the user goes elsewhere."""
    left: int = 0
    """Actions until it changes by itself; 0: it stays."""


WIDTH, HEIGHT = 1080, 2400
"""Screen size in pixels."""
START_MS = 1_697_384_040_000
"""The device clock at the start of every episode: 2023-10-15 15:34:00 UTC, in milliseconds. It is frozen: only
`wait` lets time pass."""
LAUNCHER = "com.google.android.apps.nexuslauncher"
EMPTY: Mapping[str, Any] = MappingProxyType({})

TableRow: TypeAlias = Mapping[str, Scalar]
"""One row of a database table, by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
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
    """Notification of an app while something else is on the screen."""

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
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    """Files and folders by absolute path, without a trailing slash."""
    rows: Mapping[tuple[str, str], tuple[TableRow, ...]] = field(default_factory=dict)
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
    return _show_stack(phone, (*phone.stacks[phone.foreground], page))


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
    return _show_stack(phone, (*phone.stacks[phone.foreground][:-closing], page))


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


def list_recent_apps(phone: Phone) -> list[str]:
    """Return packages of the running apps, the one used last first; the launcher is none of them."""
    return [package for package in reversed(tuple(phone.stacks)) if package != LAUNCHER]


def _show_stack(phone: Phone, stack: tuple[Page, ...]) -> Phone:
    """Show the foreground app with this back stack, nothing drawn over it."""
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
    """Return what an app kept under `name`."""
    return phone.memory.get(package, EMPTY).get(name, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a database file."""

    path: str
    """Where Android keeps the database."""
    name: str
    columns: tuple[tuple[str, str], ...]
    """(column, SQL type and constraints) in the table's order; the first is the integer primary key."""
    used: tuple[str, ...] = ()
    """Columns that every row holds; empty: all. Of the others a row holds those that differ from their default."""
    initial: tuple[TableRow, ...] = field(default=(), hash=False)
    """What is in the table of a new phone."""

    @property
    def names(self) -> tuple[str, ...]:
        """All columns in the table's order."""
        return tuple(name for name, _ in self.columns)

    @property
    def defaults(self) -> dict[str, Scalar]:
        """Return the default of a column: the whole number after DEFAULT, else null; null where all are used."""
        if not self.used:
            return dict.fromkeys(self.names)
        written = {name: kind.partition("DEFAULT ")[2] for name, kind in self.columns}
        return {name: int(default) if default else None for name, default in written.items()}

    @property
    def sql(self) -> str:
        """The statement that creates it."""
        return f"CREATE TABLE {self.name} ({', '.join(f'`{name}` {kind}' for name, kind in self.columns)})"


def rows(phone: Phone, table: Table) -> tuple[TableRow, ...]:
    """Return all rows, in order of their keys."""
    return phone.rows.get((table.path, table.name), table.initial)


def insert(phone: Phone, table: Table, **values: Scalar) -> tuple[Phone, int]:
    """Add a row; columns left out are null, unused ones at their default. Returns the phone and the key."""
    key = find_next_key(phone, table)
    row = {**dict.fromkeys(table.used or table.names), **values, table.columns[0][0]: key}
    return _put(phone, table, (*rows(phone, table), row)), key


def find_next_key(phone: Phone, table: Table) -> int:
    """Return the key of the row that is added next."""
    primary = table.columns[0][0]
    return max((int(row[primary] or 0) for row in rows(phone, table)), default=0) + 1


def fill(phone: Phone, table: Table, records: Iterable[TableRow]) -> Phone:
    """Replace all rows of a table by new ones with keys from 1 on; columns left out are null, unknown ones ignored."""
    primary, *names = (name for name, _ in table.columns)
    content = ({primary: key, **{name: record.get(name) for name in names}} for key, record in enumerate(records, 1))
    return _put(phone, table, tuple(content))


def update(phone: Phone, table: Table, matches: Callable[[TableRow], bool], **values: Scalar) -> Phone:
    """Change columns of all rows that match."""
    return _put(phone, table, tuple({**row, **values} if matches(row) else row for row in rows(phone, table)))


def remove(phone: Phone, table: Table, matches: Callable[[TableRow], bool]) -> Phone:
    """Delete all rows that match."""
    return _put(phone, table, tuple(row for row in rows(phone, table) if not matches(row)))


def dump(phone: Phone, path: str, tables: Iterable[Table]) -> bytes:
    """Return the database file at `path` as SQLite bytes, holding those of `tables` that belong to it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for table in tables:
            if table.path == path:
                connection.execute(table.sql)
                defaults = table.defaults
                marks = ", ".join("?" * len(defaults))
                values = [[row.get(name, default) for name, default in defaults.items()] for row in rows(phone, table)]
                connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", values)
        connection.commit()
        return connection.serialize()


def compact_row(row: TableRow, table: Table) -> TableRow:
    """Return a row without the unused columns that are at their default."""
    if not table.used:
        return row
    defaults = table.defaults
    return {name: value for name, value in row.items() if name in table.used or value != defaults[name]}


def to_whole(value: object) -> int:
    """Return a column's whole number, 0 for anything else: a pushed database may hold anything."""
    return int(value) if isinstance(value, int) else 0


def _put(phone: Phone, table: Table, content: tuple[TableRow, ...]) -> Phone:
    return replace(phone, rows={**phone.rows, (table.path, table.name): content})


ROOT = "/storage/emulated/0"
"""The user's storage; what file managers call internal storage."""
STANDARD_FOLDERS = (
    *("Alarms", "Audiobooks", "DCIM", "Documents", "Download", "Movies", "Music"),
    *("Notifications", "Pictures", "Podcasts", "Recordings", "Ringtones"),
)
"""Folders every Android device has there."""


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def find_folder(path: str) -> str:
    """Return the path without its last part."""
    return path.rpartition("/")[0]


def list_children(phone: Phone, folder: str) -> list[tuple[str, FileEntry]]:
    """Return (path, entry) of what lies directly in a folder, folders first, then by name regardless of case."""
    start = len(folder) + 1
    prefix = folder + "/"
    inside = [
        (path, entry)
        for path, entry in phone.files.items()
        if path.startswith(prefix) and "/" not in path[start:] and len(path) > start
    ]
    return sorted(inside, key=lambda pair: (pair[1].content is not None, pair[0].casefold(), pair[0]))


def is_folder(phone: Phone, path: str) -> bool:
    """Return whether there is a folder at `path`."""
    return path in phone.files and phone.files[path].content is None


def is_file(phone: Phone, path: str) -> bool:
    """Return whether there is a file at `path`."""
    return path in phone.files and phone.files[path].content is not None


def read(phone: Phone, path: str) -> str:
    """Return the text of a file; empty when there is none."""
    entry = phone.files.get(path)
    return (entry.content or "") if entry else ""


def make_folder(phone: Phone, path: str) -> Phone:
    """Create a folder and the ones above it, below the storage root; what exists stays."""
    missing: dict[str, FileEntry] = {}
    while path.startswith("/") and len(path) > 1 and path not in phone.files:
        missing[path] = FileEntry(content=None, changed_ms=phone.now_ms)
        path = find_folder(path)
    return replace(phone, files={**phone.files, **missing}) if missing else phone


def write(phone: Phone, path: str, content: str, *, changed_ms: int | None = None) -> Phone:
    """Create or overwrite a file; the time of change is now unless given."""
    phone = make_folder(phone, find_folder(path))
    entry = FileEntry(content=content, changed_ms=phone.now_ms if changed_ms is None else changed_ms)
    return replace(phone, files={**phone.files, path: entry})


def delete(phone: Phone, path: str) -> Phone:
    """Remove a file, or a folder with all that is in it."""
    prefix = path + "/"
    files = {name: entry for name, entry in phone.files.items() if name != path and not name.startswith(prefix)}
    return replace(phone, files=files)


def move(phone: Phone, path: str, target: str) -> Phone:
    """Give a file or folder another path; refused (unchanged) when that exists or lies inside it."""
    if path not in phone.files or target in phone.files or target.startswith(path + "/"):
        return phone
    prefix = path + "/"
    files = {
        (target + name[len(path) :] if name == path or name.startswith(prefix) else name): entry
        for name, entry in phone.files.items()
    }
    return replace(phone, files=files)
