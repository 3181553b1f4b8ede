"""The shared storage: a file tree under Android's real paths."""

from __future__ import annotations

from dataclasses import replace

from collab.envs.phone.state import Entry, Phone

ROOT = "/storage/emulated/0"
"""The user's storage; what file managers call internal storage."""
STANDARD_FOLDERS = (
    *("Alarms", "Audiobooks", "DCIM", "Documents", "Download", "Movies", "Music"),
    *("Notifications", "Pictures", "Podcasts", "Recordings", "Ringtones"),
)
"""Folders every Android device has there."""


def name_of(path: str) -> str:
    """Last part of a path."""
    return path.rpartition("/")[2]


def folder_of(path: str) -> str:
    """Path without its last part."""
    return path.rpartition("/")[0]


def children(phone: Phone, folder: str) -> list[tuple[str, Entry]]:
    """(path, entry) of what lies directly in a folder, folders first, then by name regardless of case."""
    start = len(folder) + 1
    prefix = folder + "/"
    inside = [
        (path, entry)
        for path, entry in phone.files.items()
        if path.startswith(prefix) and "/" not in path[start:] and len(path) > start
    ]
    return sorted(inside, key=lambda pair: (pair[1].content is not None, pair[0].casefold(), pair[0]))


def is_folder(phone: Phone, path: str) -> bool:
    """Whether there is a folder at `path`."""
    return path in phone.files and phone.files[path].content is None


def is_file(phone: Phone, path: str) -> bool:
    """Whether there is a file at `path`."""
    return path in phone.files and phone.files[path].content is not None


def read(phone: Phone, path: str) -> str:
    """Text of a file; empty when there is none."""
    entry = phone.files.get(path)
    return (entry.content or "") if entry else ""


def make_folder(phone: Phone, path: str) -> Phone:
    """Create a folder and the ones above it, below the storage root; what exists stays."""
    missing: dict[str, Entry] = {}
    while path.startswith("/") and len(path) > 1 and path not in phone.files:
        missing[path] = Entry(content=None, changed_ms=phone.now_ms)
        path = folder_of(path)
    return replace(phone, files={**phone.files, **missing}) if missing else phone


def write(phone: Phone, path: str, content: str, *, changed_ms: int | None = None) -> Phone:
    """Create or overwrite a file; the time of change is now unless given."""
    phone = make_folder(phone, folder_of(path))
    entry = Entry(content=content, changed_ms=phone.now_ms if changed_ms is None else changed_ms)
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
