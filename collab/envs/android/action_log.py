"""The log of a run on devices: every action, on disk before it is executed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collab.redact import HidingFormatter

_ROOM = "collab.envs.android"


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Append what the environments of this room log to a file while the block runs, line by line.

    The file is made with the first line. Of several blocks at once each gets all lines; a line names its device.
    """
    logger, handler = logging.getLogger(_ROOM), logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(HidingFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.setLevel(logging.INFO)
    logger.addHandler(handler)
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        if not logger.handlers:  # nobody else listens any more
            logger.setLevel(logging.NOTSET)
