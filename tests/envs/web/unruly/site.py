"""A server of unruly pages, and a player that acts by labels."""

import http.server
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from collab.envs.grammar import WEB
from collab.envs.web.live import LiveEnvironment, LiveSuite
from collab.types import Element, Observation, StepResult

CHANGED = "the page changed; nothing happened"


class Server:
    """Pages on loopback by path; a path of `stuck` never answers, one of `endless` never comes to its end."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.stuck: set[str] = set()
        self.endless: set[str] = set()
        self.over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path in outer.stuck:
                    outer.over.wait(60)
                    return
                body = outer.pages.get(path, "").encode()
                if path in outer.endless:
                    self.send_response(200)
                    self.send_header("Content-Type", "text/html; charset=utf-8")
                    self.end_headers()
                    self.wfile.write(body + b" " * 2000)
                    self.wfile.flush()
                    outer.over.wait(60)
                    return
                self.send_response(200 if path in outer.pages else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


class Player:
    """Plays one page by labels; what a test does to the page happens while the team talks."""

    def __init__(self, suite: LiveSuite, environment: LiveEnvironment) -> None:
        self.suite, self.environment = suite, environment
        self.can_go_on = False
        """Whether the environment has one tab, in which the next page can be shown."""
        self.seen: Observation
        self.effect = ""

    async def start(self, name: str = "page") -> Observation:
        """Show the page: in the tab that is open already, which takes far less long than a fresh window."""
        if not self.can_go_on or name != "page" or len(self.seen.tabs) != 1:
            self.seen = await self.environment.reset(self.suite.instance(name, seed=0))
            self.can_go_on = name == "page"
        else:
            await self.do("jump_to", url=self.suite.instance(name, seed=0).params["start"])
        return self.seen

    def find(self, label: str, nth: int = 0) -> Element:
        hits = [element for element in self.seen.elements if label in element.label]
        assert len(hits) > nth, f"no {label!r} number {nth} on:\n{self.seen.text}"
        return hits[nth]

    async def do(self, type: str, label: str | None = None, nth: int = 0, **fields: Any) -> StepResult:
        if label is not None:
            fields["id"] = self.find(label, nth).index
        result = await self.environment.step(WEB.make(type, **fields))
        self.seen, self.effect = result.observation, str(result.info["effect"])
        return result

    async def run(self, script: str) -> Any:
        return await self.environment.window.page.evaluate(script)

    async def heard(self) -> str:
        return str(await self.run("String(window.heard ?? '')"))

    @property
    def labels(self) -> list[str]:
        return [element.label for element in self.seen.elements]


Script = Callable[[Player], Coroutine[Any, Any, None]]
Play = Callable[[str, Script], None]
