"""Keep secrets out of every text that is shown or stored.

A key can come back in an error message: servers quote it, clients print headers, addresses carry passwords. Whatever
a model raises goes through `redact` first. A key can also stand on a page or in a reply: the store hides the values of
secret environment variables in every line that it writes (`hide`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import Any

HIDDEN = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS)?_?KEY(?:_ID)?|\w*TOKEN|\w*SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|AUTH)$",
    re.IGNORECASE,
)
_registered: set[str] = set()
"""Secrets from variables of any other name; only ever grows, and only to hide more."""
_HEADER = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}")
_ADDRESS = re.compile(r"(?<=://)[^/\s?#]+(?=@)")
_PARAMETER = re.compile(r"(?<=[?&#;])([\w.-]{1,60})=([^&#;\s\"'<>]{8,})")
_SECRET_PARAMETERS = frozenset({"sig", "signature", "jwt", "pwd", "pass", "sid", "sessionid", "session_id"})
_SHORTEST = 8
"""Shorter values ("none", "EMPTY") are placeholders; hiding them would only mangle texts."""


def redact(text: str, *secrets: str) -> str:
    """Replace secrets by "[redacted]".

    Hidden are the values of environment variables whose name ends in KEY, TOKEN, SECRET, PASSWORD or the like, what
    was registered, what follows "Bearer" or "Basic", the user part of an address, and `secrets`. Values under eight
    characters are left alone.
    """
    for value in _longest_first((*known_secrets(), *(secret.strip() for secret in secrets))):
        text = text.replace(value, HIDDEN)
    return _ADDRESS.sub(HIDDEN, _HEADER.sub(rf"\1\2{HIDDEN}", text))


def hide_in_addresses(value: Any) -> Any:
    """Replace the user part, and values of parameters that name secrets, in every address of a text.

    Dicts, lists and tuples are gone through; anything else is given back as it is. Twice is the same as once.
    """
    if isinstance(value, str):
        return _PARAMETER.sub(_hide_parameter, _ADDRESS.sub(HIDDEN, value)) if "://" in value else value
    if isinstance(value, dict):
        return {key: hide_in_addresses(item) for key, item in value.items()}
    return [hide_in_addresses(item) for item in value] if isinstance(value, (list, tuple)) else value


def _hide_parameter(match: re.Match[str]) -> str:
    name = re.sub("[.-]", "_", match[1])
    is_secret = is_secret_name(name) or name.lower() in _SECRET_PARAMETERS
    return f"{match[1]}={HIDDEN}" if is_secret else match[0]


def register(secret: str) -> None:
    """Hide a value everywhere from now on, whatever the variable it came from is called."""
    _registered.add(secret.strip())


def is_secret_name(name: str) -> bool:
    """Whether a field or variable of this name holds a secret."""
    return bool(_SECRET_NAME.search(name))


def known_secrets() -> tuple[str, ...]:
    """Registered ones and values of environment variables that name secrets, longest first: one may contain another."""
    named = [value.strip() for name, value in os.environ.items() if is_secret_name(name)]
    return _longest_first((*named, *_registered))


def hide(line: bytes, secrets: Iterable[str]) -> bytes:
    """Replace secrets in a line of JSON, however they are escaped in it."""
    for secret in secrets:
        for form in {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}:
            line = line.replace(form.encode("utf-8", "surrogateescape"), HIDDEN.encode())
    return line


def _longest_first(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if len(value) >= _SHORTEST}, key=len, reverse=True))
