"""Keep secrets out of every text that is shown or stored.

A key can come back in an error message: servers quote it, clients print headers, addresses carry passwords. So errors
of models pass through `redact` first. A key can also stand on a page or in a reply. So writers of files hide the values
of secret environment variables in texts before encoding (`hide_values`). Numbers, field names and structural words
(kinds, ids, hashes) are never touched, so all of it can be read back.
"""

from __future__ import annotations

import json
import logging
import os
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS)?_?KEY(?:_ID)?|\w*TOKEN|\w*SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|COOKIE|AUTH"
    r"|AUTHORIZATION|BEARER)$",
    re.IGNORECASE,
)
_MARKS = re.compile(r"^(?:bos|cls|end|eos|mask|pad|sep|start|stop|unk)_token$", re.IGNORECASE)
"""Names of control tokens, which are no secrets."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9_]+")
_KEY = re.compile(
    r"\b(?:(?:sk|pk|rk|xai|nvapi|pplx|csk|glpat|tgp)[-_][\w-]{12,}|(?:gsk|hf|ghp|gho|r8|github_pat)_\w{16,}"
    r"|AIza[\w-]{20,}|AKIA[A-Z0-9]{12,}|eyJ[\w-]{16,}\.[\w-]{16,}[\w.-]*)"
)
"""Keys in the formats of known providers."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_registered: set[str] = set()
"""Secrets from variables of any other name; only ever grows."""
_HEADER = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}")
_ADDRESS = re.compile(r"(?<=://)[^/\s?#]+(?=@)")
_PARAMETER = re.compile(r"(?<=[?&#;])([\w.-]{1,60})=([^&#;\s\"'<>]{8,})")
_SECRET_PARAMETERS = frozenset({"sig", "signature", "jwt", "pwd", "pass", "sid", "sessionid", "session_id"})
_SHORTEST = 8
"""Shorter values ("none", "EMPTY") are placeholders; hiding them would only mangle texts."""


def redact(text: str, *secrets: str) -> str:
    """Replace secrets by "[redacted]"; values under eight characters are left alone.

    Secrets are values of environment variables whose name ends in KEY, TOKEN, SECRET, PASSWORD or the like, registered
    values, `secrets`, and words behind "Bearer" or "Basic". The user part of an address and the form of a key (sk-…)
    count, too.
    """
    for value in _sort_longest_first((*list_secrets(), *(secret.strip() for secret in secrets))):
        text = text.replace(value, HIDDEN)
    return _KEY.sub(HIDDEN, _ADDRESS.sub(HIDDEN, _HEADER.sub(rf"\1\2{HIDDEN}", text)))


def hide_in_addresses(value: Any) -> Any:
    """Replace the user part, and values of parameters that name secrets, in every address of a text.

    Dicts, lists and tuples are searched; other values are returned as they are. Twice is the same as once.
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
    """Hide a value everywhere from now on, whatever the name of its variable."""
    _registered.add(secret.strip())


def is_secret_name(name: str) -> bool:
    """Return whether a field, header or variable of this name holds a secret, however its words are joined."""
    joined = _WORDS.sub("_", name)
    return bool(_SECRET_NAME.search(joined)) and not _MARKS.match(joined)


def find_misplaced_key(options: Any, place: str = "options") -> str | None:
    """Return where a key stands among the options of a model, and what is wrong with it; None if there is none.

    The answer contains no value, so it can be printed.
    """
    if isinstance(options, Mapping):
        for name, value in options.items():
            inner = place if _KEY.search(str(name)) else f"{place}.{name}".lstrip(".")
            found = _find_misplaced(str(name), value, inner)
            if found is not None:
                return found
        return None
    if isinstance(options, list | tuple):
        return next(filter(None, (find_misplaced_key(one, f"{place}[{at}]") for at, one in enumerate(options))), None)
    return f"{place} {_BELONGS}" if isinstance(options, str) and (_KEY.search(options) or _is_header(options)) else None


_BELONGS = (
    "holds a key, which is not repeated here; keys stand in the environment only: export it in a variable, and name "
    "that variable in api_key_env, e.g. OPENAI_API_KEY"
)


def _find_misplaced(name: str, value: Any, place: str) -> str | None:
    if name == "api_key_env":
        return None if value is None or (isinstance(value, str) and _is_variable(value)) else f"{place} {_BELONGS}"
    if _KEY.search(name) or (is_secret_name(name) and value is not None and not isinstance(value, bool)):
        return f"{place} {_BELONGS}"
    if name in ("base_url", "url") and isinstance(value, str) and _has_key(value):
        return f"{place} {_BELONGS}"
    return find_misplaced_key(value, place)


def _is_header(text: str) -> bool:
    """Return whether it is the value of a header with a key: "Bearer 0a1b…", and no words of a text."""
    return bool(_HEADER.fullmatch(text.strip())) and any(map(str.isdigit, text))


def _is_variable(name: str) -> bool:
    """Return whether it can be the name of a variable, and is not a key in its place."""
    if not name or name in os.environ:
        return True
    longest = max(name.split("_"), key=len)
    digits = sum(map(str.isdigit, longest))
    fewest = _DIGITS_OF_CAPITALS if longest.isupper() else 1
    is_random = len(longest) >= _RANDOM and (digits >= fewest or len(longest) >= _LONGEST_WORD)
    return bool(_VARIABLE.fullmatch(name)) and not _KEY.search(name) and not is_random


_RANDOM = 16
"""Length from which a word with digits counts as a key."""
_DIGITS_OF_CAPITALS = 5
"""Digits that a word of capitals needs for that: OPENROUTERACCESS2024 is a name."""
_LONGEST_WORD = 28
"""Length from which a word counts as a key, with or without digits."""


def _has_key(address: str) -> bool:
    """Return whether an address holds a user, a password, or a key in its query or behind "#"."""
    before, *parameters = re.split("[?&;#]", urllib.parse.unquote(address))
    user = "@" in before.partition("://")[2].partition("/")[0]
    names = [one.partition("=")[0] for one in parameters]
    return user or bool(_KEY.search(address)) or any(is_secret_name(one) or one in ("sig", "code") for one in names)


def list_secrets() -> tuple[str, ...]:
    """List registered values and values of secret environment variables, longest first: one may contain another."""
    named = [value.strip() for name, value in os.environ.items() if is_secret_name(name)]
    return _sort_longest_first((*named, *_registered))


def hide_text(text: str, secrets: Iterable[str] | None = None) -> str:
    """Replace secrets in a text; None uses all currently known ones."""
    for secret in list_secrets() if secrets is None else secrets:
        text = text.replace(secret, HIDDEN)
    return text


def hide_values(data: Any, secrets: Sequence[str] | None = None) -> Any:
    """Replace secrets in the texts of JSON data, and nothing else.

    Keys, numbers and structural words stay: ids, names, hashes (`_STRUCTURE`, `_OPAQUE`). A reply whose text held a
    secret loses its tokens, which spell it.

    Args:
        secrets: longest first; None uses all currently known ones.
    """
    secrets = list_secrets() if secrets is None else secrets
    return _hide_value(data, secrets, free=False) if secrets else data


def has_secret(line: bytes, secrets: Iterable[str]) -> bool:
    """Return whether a line of JSON may hold a secret, however it is escaped."""
    forms = {
        form
        for secret in secrets
        for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    }
    return any(form.encode("utf-8", "surrogateescape") in line for form in forms)


class HidingFormatter(logging.Formatter):
    """Formats log lines without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Format as usual, then hide."""
        return hide_text(super().format(record))


_STRUCTURE = frozenset(
    {
        *("format", "format_version", "type", "seq", "time", "created", "writer", "command", "purpose", "state"),
        *("trajectory", "environment", "environment_version", "environment_name", "graph", "graph_name", "agents"),
        *("name", "difficulty", "apps", "role", "flags", "space", "renderer", "screenshot", "kind", "source", "id"),
        *("agent", "heard", "edges", "cell", "cells", "representative", "abstained", "slots", "labels", "tasks"),
        *("prefix", "layout", "trimmed", "tokenizer", "base", "adapter", "adversary", "critic", "maker", "calls"),
        *("hash", "sha256", "digest", "weights", "case", "occasion", "prompt", "missing", "backend", "sampler"),
        *("verifier", "rewire", "vote", "modality", "path", "library", "method", "preset", "unit", "level", "cause"),
    }
)
"""Fields with structural words. They are kept if they hold a word or a list of words."""
_OPAQUE = frozenset({"agent_names", "versions", "weights", "adapters", "base"})
"""Fields whose objects hold only such words."""
_FREE = frozenset({"params", "info", "drawing", "extra", "options"})
"""Fields below which names have no meaning."""


def _hide_value(value: Any, secrets: Sequence[str], *, free: bool) -> Any:
    if isinstance(value, str):
        return hide_text(value, secrets)
    if isinstance(value, Mapping):
        found = {key: _hide_field(key, item, secrets, free=free) for key, item in value.items()}
        if "tokens" in found and found.get("text") != value.get("text"):
            found |= dict.fromkeys(_SPELLING.intersection(found))
        return found
    if isinstance(value, list | tuple):
        return [_hide_value(item, secrets, free=free) for item in value]
    return value


_SPELLING = frozenset({"tokens", "tokenizer", "logprobs", "behaviour_logprobs"})


def _hide_field(key: Any, item: Any, secrets: Sequence[str], *, free: bool) -> Any:
    if not free:
        if key in _STRUCTURE and _is_words(item):
            return item
        if key in _OPAQUE and isinstance(item, Mapping):
            return item
        if key == "arguments" and isinstance(item, list | tuple):  # of an action: names and values
            return [[name, _hide_value(value, secrets, free=True)] for name, value in item]
    return _hide_value(item, secrets, free=free or key in _FREE)


def _is_words(item: Any) -> bool:
    """Return whether it is a word, or a list of words, at any depth."""
    return all(map(_is_words, item)) if isinstance(item, list | tuple) else not isinstance(item, Mapping)


def _sort_longest_first(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if len(value) >= _SHORTEST}, key=len, reverse=True))
