"""Pictures by hash, encoded off the step path.

A picture is named by the SHA-256 of the bytes in which it was taken (usually PNG), so its name is known at once; the
file holds exactly the same pixels as lossless WebP, which is a fraction of the size. A step may therefore name a
picture that is still being written; after a kill it may name one that never was.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from collab.errors import UnknownName, UsageError
from collab.utils.files import read_plain, report_write_errors, write_atomic

FOLDER = "blobs"
FORMATS = ("PNG", "WEBP", "JPEG")
"""Accepted formats of pictures."""

_HASH = re.compile(r"[0-9a-f]{64}")
_WORKERS = 2
_PENDING = 64
"""Pictures that may wait for a worker before `put` blocks: bounds memory."""


def get_blob_path(directory: Path, hash: str) -> Path:
    """Return the path of a picture; UsageError unless `hash` is 64 hexadecimal digits, so no path leaves the run."""
    if not _HASH.fullmatch(hash):
        raise UsageError(f"{hash[:80]!r} is not the SHA-256 of a picture: 64 hexadecimal digits")
    return directory / FOLDER / hash[:2] / f"{hash}.webp"


def read_blob(directory: Path, hash: str) -> bytes:
    """Read a stored picture as WebP bytes.

    Raises:
        UsageError: not a hash.
        UnknownName: the run has no such picture (or was killed before it was written).
    """
    path = get_blob_path(directory, hash)
    try:
        return read_plain(path, within=directory)
    except OSError as error:
        raise UnknownName(f"{directory}: no picture {hash}: {error.strerror}") from None


class BlobWriter:
    """Stores pictures of one run in the background.

    Args:
        directory: the run.
        unreadable: called with hash and reason for bytes that are no picture; from a worker thread.
    """

    def __init__(self, directory: Path, unreadable: Callable[[str, str], None]) -> None:
        self._directory = directory
        self._unreadable = unreadable
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="collab-blobs")
        self._room = threading.BoundedSemaphore(_PENDING)
        self._seen: set[str] = set()
        self._futures: list[Future[None]] = []

    def put(self, picture: bytes) -> str:
        """Store a picture (PNG, WebP or JPEG bytes) and return its name at once; waits only when many are waiting.

        Raises:
            StoreFailure: an earlier picture could not be written.
        """
        self.check()
        hash = hashlib.sha256(picture).hexdigest()
        if hash not in self._seen:
            self._seen.add(hash)
            self._room.acquire()
            self._futures.append(self._pool.submit(self._store, hash, picture))
        return hash

    def copy(self, source: Path, hash: str) -> None:
        """Store a picture of another run under its name; one that was never written stays missing."""
        path = get_blob_path(self._directory, hash)
        if path.exists():
            return
        with contextlib.suppress(UnknownName), report_write_errors(self._directory):
            picture = read_blob(source, hash)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, picture)

    def check(self) -> None:
        """Raise the StoreFailure of the first picture that could not be written."""
        done = [future for future in self._futures if future.done()]
        self._futures = [future for future in self._futures if not future.done()]
        for future in done:
            future.result()

    def close(self) -> None:
        """Wait until every picture is on the disk; StoreFailure if one is not."""
        self._pool.shutdown(wait=True)
        self.check()

    def _store(self, hash: str, picture: bytes) -> None:
        try:
            path = get_blob_path(self._directory, hash)
            # Named by content: what is there is the same picture.
            if path.exists():
                return
            encoded = _encode_webp(picture)
            with report_write_errors(self._directory):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, encoded)
        except _NotAPicture as error:
            # A damaged picture is noted; the step that shows it stays.
            self._unreadable(hash, str(error))
        finally:
            # On every way out, or the writer would wait for a place for ever.
            self._room.release()


class _NotAPicture(Exception):
    """Bytes that no decoder can read."""


def _encode_webp(picture: bytes) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    try:
        with Image.open(io.BytesIO(picture), formats=FORMATS) as image:
            # Lossless: a model that saw the picture can be shown the very same pixels again.
            image.save(out, "WEBP", lossless=True, quality=50, method=2)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _NotAPicture(f"{type(error).__name__}: {error}") from None
    return out.getvalue()
