"""Open the user's browser at an address that works once.

Arguments of processes can be read by every user of a machine, so the browser is not handed the address, but a file
that only this user may read and that leads there. It is deleted when the address was used.
"""

from __future__ import annotations

import contextlib
import html
import os
import secrets
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collab.view.guard import Gate

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>collab view</title>
<p><a href="{address}">Open the inspector</a></p>
</html>
"""


def has_screen() -> bool:
    """Whether a browser would open in a window of its own, not in this terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextlib.contextmanager
def opened(gate: Gate, folder: Path) -> Iterator[None]:
    """Let a browser open what a gate guards, and wait for neither; at the end of the block its file is gone, too.

    Args:
        folder: where the file is written.

    Raises:
        OSError: it cannot be written.
    """
    if gate.token is None:
        _start(gate.address)
        yield
        return
    page = _written(gate.address, folder)
    try:
        _start(page.absolute().as_uri())
        threading.Thread(target=_delete_when_used, args=(gate, page), daemon=True).start()
        yield
    finally:
        page.unlink(missing_ok=True)


def _start(address: str) -> None:
    """In a thread: a browser may take this process's time until it is closed."""
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _written(address: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    page = folder / f"open-{secrets.token_hex(8)}.html"
    descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(_PAGE.format(address=html.escape(address)))
    return page


def _delete_when_used(gate: Gate, page: Path) -> None:
    gate.used.wait()
    page.unlink(missing_ok=True)
