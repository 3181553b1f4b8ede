"""Keep secrets out of every text that is shown or stored.

A key can come back in an error message: servers quote it, clients print headers, addresses carry passwords. Whatever
a model raises goes through `redact` first.
"""

from __future__ import annotations

import os
import re

HIDDEN = "[redacted]"

_SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_HEADER = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}")
_ADDRESS = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_SHORTEST = 8
"""Shorter values ("none", "EMPTY") are placeholders; hiding them would only mangle texts."""


def redact(text: str, *secrets: str) -> str:
    """Replace secrets by "[redacted]".

    Hidden are the values of environment variables whose name ends in KEY, TOKEN, SECRET or PASSWORD, what follows
    "Bearer" or "Basic", the user part of an address, and `secrets`. Values under eight characters are left alone.
    """
    named = [value for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    values = {value.strip() for value in (*named, *secrets)}
    for value in sorted(values, key=len, reverse=True):  # longest first: one secret may contain another
        if len(value) >= _SHORTEST:
            text = text.replace(value, HIDDEN)
    return _ADDRESS.sub(HIDDEN, _HEADER.sub(rf"\1\2{HIDDEN}", text))
