"""What freed memory costs on a processor, and how it is given back.

Every step has a shape of its own (so many rows, so long). The C library keeps freed blocks of all these sizes, and
oneDNN keeps a compiled product for every shape; a training that needs 1 GB grows to 7 GB within minutes.
"""

from __future__ import annotations

import ctypes
import os

_PRODUCTS = "128"
"""Compiled products that oneDNN keeps: more than one step uses."""


def bound_caches() -> None:
    """Let oneDNN keep few compiled products; to be called before the first one, and ignored where the user said."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _PRODUCTS)


def give_back() -> None:
    """Return freed memory to the system, where the C library can (glibc)."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return
    trim(0)
