"""Access control and response headers of the inspector.

A page of another site, or a name that was pointed at this machine, has no access: the Host must be a name of this
server, the Origin its own. Recorded runs need the session's cookie, which only the one-time token in the printed
address gives. Every answer forbids scripts, styles, pictures, frames and connections from anywhere else, and guessing
its type.

Every user of a machine can read the arguments of processes. So the browser is not given the address, but a file that
only this user may read and that leads there. It is deleted when the address was used.
"""

from __future__ import annotations

import contextlib
import html
import ipaddress
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from collab.view.common import to_json

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
API = "/api/"
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class Gate:
    """The names of a server and the one-time token to its session.

    Args:
        host: address that it listens on.
        port: likewise; cookies of one machine are told apart by it.
        open_to_all: whether no token is needed.
    """

    def __init__(self, host: str, port: int, *, open_to_all: bool = False) -> None:
        self.host, self.port = host, port
        self.token = None if open_to_all else secrets.token_urlsafe(32)
        """None where no token is needed, or after its exchange."""
        self.used = threading.Event()
        """Set after the token's exchange."""
        self.cookie = f"collab-view-{port}"
        self._session = None if open_to_all else secrets.token_urlsafe(32)
        self._mutex = threading.Lock()

    @property
    def address(self) -> str:
        """The address to open; it works once."""
        named = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        base = f"http://{f'[{named}]' if ':' in named else named}:{self.port}/"
        return base if self.token is None else f"{base}?token={self.token}"

    def is_known_host(self, host: str) -> bool:
        """Return whether a Host header names this server; beyond loopback, addresses count as well as its names."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in _LOCAL or name == self.host.lower():
            return True
        return not is_local(self.host) and (_is_address(name) or name == socket.gethostname().lower())

    def exchange_token(self, token: str) -> str | None:
        """Return the session for a token, once; None for a wrong or a used one."""
        with self._mutex:
            if self.token is None or not secrets.compare_digest(token.encode(), self.token.encode()):
                return None
            self.token = None
            self.used.set()
            return self._session

    def has_session(self, cookies: str) -> bool:
        """Return whether a Cookie header carries the session."""
        if self._session is None:
            return True
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self._session.encode())


class Guard:
    """Guards an application."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        # Pages use no websocket, so any is refused.
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            # Headers are added to every answer, refusals included; those of the application stay.
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {"Cache-Control": "no-store", **HEADERS}.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._find_refusal(scope) or self._app)(scope, receive, send_with_headers)

    def _find_refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the refusal of a request; None when the application may answer."""
        headers, path = Headers(scope=scope), scope["path"]
        # An unknown host name may be another site's that resolves to this machine.
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._gate.is_known_host(hosts[0]):
            return build_error_response(403, "this server does not go by that name")
        origin = headers.get("origin")
        # Pages of other sites may send requests here, and must not read the answers.
        if origin is not None and origin.lower() != f"http://{hosts[0]}".lower():
            return build_error_response(403, "pages of another origin may not ask")
        if path.startswith(API):
            if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                return build_error_response(403, "pages of another site may not ask")
            # The session comes from the printed address, which only its user has.
            if not self._gate.has_session(headers.get("cookie", "")):
                return build_error_response(
                    401, "no session: open the address that collab view printed, or start it again"
                )
        return self._exchange(scope) if path == "/" else None

    def _exchange(self, scope: Scope) -> Response | None:
        """Exchange a token for a cookie; a used or wrong one leads to the page, which explains the next move."""
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if token is None or scope["method"] != "GET":
            return None
        answer = RedirectResponse("/", status_code=303)
        session = self._gate.exchange_token(token[0])
        if session is not None:
            answer.set_cookie(self._gate.cookie, session, path="/", httponly=True, samesite="strict")
        return answer


def build_error_response(status: int, why: str) -> Response:
    """Build the response to an error."""
    return Response(to_json({"error": why}), status_code=status, media_type="application/json")


def is_local(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    return host in _LOCAL or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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
    """Return whether a browser would open in a window of its own, not in this terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextlib.contextmanager
def open_page(gate: Gate, folder: Path) -> Iterator[None]:
    """Open the gate's address in a browser without waiting; the block's end deletes the file that leads there.

    Args:
        folder: where the file is written.

    Raises:
        OSError: it cannot be written.
    """
    if gate.token is None:
        _start(gate.address)
        yield
        return
    page = _write_page(gate.address, folder)
    try:
        _start(page.absolute().as_uri())
        threading.Thread(target=_delete_when_used, args=(gate, page), daemon=True).start()
        yield
    finally:
        page.unlink(missing_ok=True)


def _start(address: str) -> None:
    """Open a page in a thread, as some browsers block until they are closed."""
    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _write_page(address: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    page = folder / f"open-{secrets.token_hex(8)}.html"
    descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(_PAGE.format(address=html.escape(address)))
    return page


def _delete_when_used(gate: Gate, page: Path) -> None:
    gate.used.wait()
    page.unlink(missing_ok=True)
