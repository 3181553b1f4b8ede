"""Static sites that exist only behind the gate: a folder of files under a host name, without a server.

The example shop that comes with the project lives here as `http://shop.test/`, so that live pages work on a machine
without the internet and have the same address every time.
"""

from __future__ import annotations

import mimetypes
from importlib import resources
from pathlib import Path
from urllib.parse import unquote, urlsplit

from collab.errors import ConfigError

BUILT_IN = "built-in"
"""Stands for the folder of the example shop."""


def site_folder(host: str, folder: str) -> Path:
    """The folder that a site's definition names; ConfigError when there is none."""
    if folder == BUILT_IN:
        return Path(str(resources.files(__package__).joinpath("shop")))
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ConfigError(f"sites: {host}: {folder!r} is not a folder; give a folder of HTML files or {BUILT_IN!r}")
    return path.resolve()


def response(folder: Path, method: str, path: str) -> bytes:
    """The whole HTTP response to a request for `path` (with or without a query) in a site's folder.

    `/` and folders stand for their index.html. Archives are sent as downloads. Nothing outside the folder is served.
    """
    if method not in ("GET", "HEAD"):
        return _message(405, "text/plain", b"This site only has pages to read.", method)
    wanted = (folder / unquote(urlsplit(path).path).lstrip("/")).resolve()
    if wanted.is_dir():
        wanted = wanted / "index.html"
    if not wanted.is_relative_to(folder) or not wanted.is_file():
        return _message(404, "text/plain", b"There is no such page.", method)
    kind = mimetypes.guess_type(wanted.name)[0] or "application/octet-stream"
    return _message(200, kind, wanted.read_bytes(), method)


def _message(status: int, kind: str, body: bytes, method: str) -> bytes:
    reason = {200: "OK", 404: "Not Found", 405: "Method Not Allowed"}[status]
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    saved = "Content-Disposition: attachment\r\n" if kind.startswith("application/") and "script" not in kind else ""
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}{charset}\r\n{saved}"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)
