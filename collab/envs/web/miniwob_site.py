"""The pages of the `miniwob` package, served to the browser from this process.

Only the package's folder of pages is used; importing the package itself would pull in its own environment.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from collab.errors import MissingExtra


def pages_folder() -> Path:
    """The folder that holds the pages.

    Raises:
        MissingExtra: the package is not installed.
    """
    spec = importlib.util.find_spec("miniwob")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra.of("miniwob", "web", "the MiniWoB++ pages")
    return Path(spec.submodule_search_locations[0]) / "html"


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: requests are not events of a run."""


class Site:
    """A web server on the loopback interface, on a port that the system picks; runs until `close`."""

    def __init__(self) -> None:
        handler = functools.partial(_Handler, directory=str(pages_folder()))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="miniwob pages", daemon=True)
        self._thread.start()

    def address(self, name: str) -> str:
        """Where the page of a task is."""
        return f"http://127.0.0.1:{self._server.server_port}/miniwob/{name}.html"

    def close(self) -> None:
        """Stop serving. May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
