"""A server of single pages, the example shop, and a player that acts by labels."""

import http.server
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import yaml

from collab.envs.grammar import WEB
from collab.envs.web.live import LiveEnvironment, LiveSuite
from collab.types import Observation, StepResult

SHIPPED = yaml.safe_load((Path(__file__).parents[4] / "envs" / "web.yaml").read_text())["backends"]["shop"]["options"]
ENDLESS = "for (;;) {}"


class Server:
    """Pages on loopback, by path; remembers what was asked for."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.statuses: dict[str, int] = {}
        self.delays_s: dict[str, float] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                time.sleep(outer.delays_s.get(self.path, 0.0))
                found = outer.pages.get(self.path)
                status = 302 if self.path in outer.redirects else 200 if found is not None else 404
                self.send_response(outer.statuses.get(self.path, status))
                if self.path in outer.redirects:
                    self.send_header("Location", outer.redirects[self.path])
                body = ("nothing here" if found is None else found).encode()
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def add(self, path: str, html: str) -> str:
        self.pages[path] = html
        return f"http://{self.address}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Player:
    """Plays by labels instead of numbers."""

    def __init__(self, suite: LiveSuite, environment: LiveEnvironment) -> None:
        self.suite, self.environment = suite, environment
        self.seen: Observation
        self.last: StepResult

    async def start(self, name: str) -> Observation:
        self.seen = await self.environment.reset(self.suite.instance(name, seed=0))
        return self.seen

    async def do(self, type: str, label: str | None = None, **fields: Any) -> StepResult:
        if label is not None:
            hits = [element.index for element in self.seen.elements if label.lower() in element.label.lower()]
            assert hits, f"no {label!r} on:\n{self.seen.text}"
            fields["id"] = hits[0]
        self.last = await self.environment.step(WEB.make(type, **fields))
        self.seen = self.last.observation
        return self.last

    @property
    def labels(self) -> list[str]:
        return [element.label for element in self.seen.elements]


Script = Callable[[Player], Coroutine[Any, Any, None]]
