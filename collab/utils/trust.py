"""Foreign parts that may run: importing a module runs it, and so does starting a program.

    vouch(document)                       # a definition of the user's own: its parts may run
    check_trusted(head, "runs/first")     # a recorded one: its parts must be vouched for, or need --trust

Built-in kinds and entry points of installed packages may always run. Other parts of a recorded run, training, label set
or set of pairs may be foreign.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from collab.errors import UsageError

_PROGRAMS = ("adb_path", "browser", "executable_path", "package", "python")
"""Options of environments that name a program, or a folder from which Python imports."""
_SHOWN = 5
"""Parts that a message names."""

_built_in: set[str] = set()
"""Classes that come with the package, as module:Class."""
_vouched: set[str] = set()
"""Parts in the user's own definitions; only ever grows."""
_trusting: ContextVar[bool] = ContextVar("trusting", default=False)


def know_built_in(targets: Iterable[str]) -> None:
    """Register the classes, as module:Class, that come with the package."""
    _built_in.update(targets)


def trust_all(yes: bool) -> None:
    """Trust all parts, or again only those that are vouched for."""
    _trusting.set(yes)


def vouch(data: Any, before: Any = None) -> None:
    """Allow the parts of the user's own definition to run, except those that `before`, its unchanged form, names."""
    _vouched.update(set(list_foreign_parts(data)) - set(list_foreign_parts(before)))


def check_trusted(data: Any, where: str) -> None:
    """Check that all parts of a recorded definition may run.

    Args:
        data: JSON values, as recorded.
        where: place of the definition, for the message.

    Raises:
        UsageError: some may not; it names them.
    """
    if _trusting.get():
        return
    foreign = sorted(set(list_foreign_parts(data)) - _vouched)
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        raise UsageError(
            f"{where}: runs parts that are neither built in nor installed as entry points: "
            f"{', '.join(part[:200] for part in foreign[:_SHOWN])}{more}; if you know who made it, give --trust"
        )


def list_foreign_parts(data: Any) -> Iterator[str]:
    """Yield the parts that are neither built in nor entry points: classes, apps and programs, in words."""
    waiting = [data]
    while waiting:  # recorded data may be nested deeper than Python calls
        data = waiting.pop()
        if isinstance(data, Mapping):
            if isinstance(data.get("kind"), str):
                yield from _list_foreign_names(data["kind"], data.get("options"))
            chosen, backends = data.get("backend"), data.get("backends")
            if isinstance(backends, Mapping) and isinstance(chosen, str) and chosen in backends:
                waiting.append(backends[chosen])  # the others are never made
                data = {name: value for name, value in data.items() if name != "backends"}
            waiting.extend(data.values())
        elif isinstance(data, list | tuple):
            waiting.extend(data)


def _list_foreign_names(kind: str, options: Any) -> Iterator[str]:
    if ":" in kind and kind not in _built_in and kind not in _list_installed():
        yield kind
    if not isinstance(options, Mapping):
        return
    apps = options.get("apps")
    if isinstance(apps, list | tuple):
        yield from (f"app {app}" for app in apps if isinstance(app, str))  # modules, however the phone is named
    yield from (f"{name} {options[name]}" for name in _PROGRAMS if isinstance(options.get(name), str))


def _list_installed() -> set[str]:
    """List classes that installed packages declare as entry points, as module:Class."""
    return {point.value for point in list_entry_points()}


def list_entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Return the entry points that installed packages declare for this one; unchanged folders are not read again."""
    return _list_entry_points(tuple((place, _read_changed(place)) for place in sys.path))


@functools.lru_cache(maxsize=4)
def _list_entry_points(places: tuple[tuple[str, int], ...]) -> tuple[importlib.metadata.EntryPoint, ...]:
    points = importlib.metadata.entry_points()
    return tuple(
        point for group in points.groups if group.startswith("collab.") for point in points.select(group=group)
    )


def _read_changed(place: str) -> int:
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:
        return 0
