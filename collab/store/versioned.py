"""JSON files that say in which format they are written: heads of labellings, pairs, calibrations and syntheses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from collab.errors import RunFormatError
from collab.plain import read_plain

ContentT = TypeVar("ContentT")


def read_versioned(path: Path, kind: TypeAdapter[ContentT], *, readable: int, absent: str | None = None) -> ContentT:
    """What a file holds, if it is of a format that can be read. One that names no format is read as of this one.

    Args:
        readable: the format that the caller reads.
        absent: what to say where there is no such file; None for the same as of one that cannot be read.

    Raises:
        RunFormatError: it is missing, cannot be read, is not JSON, of another format, or does not fit `kind`.
    """
    try:
        content = json.loads(read_plain(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFormatError(absent or f"{path}: cannot be read: {error.strerror}") from None
    except OSError as error:
        raise RunFormatError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise RunFormatError(f"{path}: not JSON: {error}") from None
    if isinstance(content, dict) and content.get("format") not in (None, readable):
        raise RunFormatError(f"{path}: written in format {content['format']!r}, this version reads {readable}")
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise RunFormatError(f"{path}: {'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}") from None
