"""A client of AndroidWorld's HTTP server (`server/android_server.py` of its repository). Calls block."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, TypeAlias

from collab.errors import EnvironmentFailure, UsageError

Query: TypeAlias = Mapping[str, str | int | bool]

ROUTES = (
    ("get", "/health"),
    ("get", "/suite/reinitialize"),
    ("get", "/suite/task_list"),
    ("get", "/task/goal"),
    ("get", "/task/score"),
    ("get", "/screenshot"),
    ("post", "/reset"),
    ("post", "/execute_action"),
    ("post", "/task/initialize"),
    ("post", "/task/tear_down"),
)
"""What is used of it. It offers no route for UI elements."""
_LARGEST_ANSWER = 256 * 2**20
"""Bytes; a picture comes as a list of numbers, about 30 million bytes."""


class _Unreached(EnvironmentFailure):
    """Nothing answered."""


class ServerClient:
    """One server.

    Args:
        url: its address, e.g. "http://127.0.0.1:5000".
        timeout_s: how long one answer may take.

    Raises:
        UsageError: the address is none.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"androidworld[http]: url {url!r}, allowed: an address like http://127.0.0.1:5000")
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def check(self) -> None:
        """Find out whether it is AndroidWorld's server, in a version that has what is used.

        Raises:
            EnvironmentFailure: its emulator is not ready.
            UsageError: it cannot be reached, is something else, or another version.
        """
        try:
            self.get("/health")
        except _Unreached as error:
            raise UsageError(str(error)) from None
        offered = self.get("/openapi.json").get("paths", {})
        missing = [f"{method.upper()} {path}" for method, path in ROUTES if method not in offered.get(path, {})]
        if missing:
            raise UsageError(
                f"androidworld[http]: the server at {self._url} has no {', '.join(missing)}; it is no server of "
                "AndroidWorld's, or of another version: use server/android_server.py of its repository"
            )

    def get(self, path: str, query: Query | None = None) -> dict[str, Any]:
        """GET a route; EnvironmentFailure when that fails."""
        return self._ask("GET", path, query or {}, None)

    def post(self, path: str, query: Query | None = None, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """POST to a route, with a JSON body where there is one; EnvironmentFailure when that fails."""
        return self._ask("POST", path, query or {}, body)

    def _ask(self, method: str, path: str, query: Query, body: dict[str, Any] | None) -> dict[str, Any]:
        words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in query.items()}
        address = f"{self._url}{path}" + (f"?{urllib.parse.urlencode(words)}" if words else "")
        data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
        what = f"androidworld[http]: {method} {path} at {self._url}"
        try:
            with self._opener.open(request, timeout=self._timeout_s) as reply:
                said = reply.read(_LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            raise self._refused(what, path, error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise _Unreached(
                f"{what}: {reason}; start AndroidWorld's server (docker run --privileged -p 5000:5000 "
                "android_world:latest) or correct the option url"
            ) from None
        try:
            answer: dict[str, Any] = json.loads(said)
            answer.keys()
        except (ValueError, AttributeError):
            raise EnvironmentFailure(f"{what}: not a JSON object: {said[:80]!r}") from None
        return answer

    def _refused(self, what: str, path: str, error: urllib.error.HTTPError) -> EnvironmentFailure | UsageError:
        said = error.read(500).decode("utf-8", "replace")
        if error.code == 404 and path in ("/health", "/openapi.json"):
            return UsageError(f"{what}: not found; this is no server of AndroidWorld's, correct the option url")
        return EnvironmentFailure(f"{what}: status {error.code}: {' '.join(said.split())}")
