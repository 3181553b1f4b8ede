"""Indices that the inspector had to build: kept outside of the runs, as long as somebody looks at those."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from pathlib import Path

UNUSED_DAYS = 30
"""After which the index of a run at which nobody looked is deleted."""

_NAME = re.compile(r"[0-9a-f]{64}\.sqlite|\.[0-9a-f]{64}\.sqlite\.[0-9a-f]+|open-[0-9a-f]{16}\.html")
"""An index, or what was left of one whose writing ended early; what leads a browser here (`collab.view.browser`), if
its process was killed. Nothing else in the folder is ours."""
_DAY_S = 24 * 60 * 60


def spare_folder() -> Path:
    """Where this user's indices of runs are kept that lack one of their own."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collab" / "view"


def spare_of(directory: Path, folder: Path) -> Path:
    """The file for the index of a run; it may not be there."""
    return folder / f"{hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()}.sqlite"


def use(spare: Path) -> None:
    """Note that somebody looks at its run; nothing where it is not there."""
    with contextlib.suppress(OSError):
        os.utime(spare)


def tidy(folder: Path) -> None:
    """Delete what nobody used for `UNUSED_DAYS`; what cannot be deleted stays."""
    oldest = time.time() - UNUSED_DAYS * _DAY_S
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                if _NAME.fullmatch(path.name) and path.lstat().st_mtime < oldest:
                    path.unlink()
