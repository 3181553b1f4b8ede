"""A chat-completions server on loopback that refuses, hangs and breaks off on demand: for tests.

with FakeServer(supports={"seed"}) as server:
    model = OpenAIModel(model="fake", base_url=server.url)
    await model.probe()
    server.faults.append(Fault(status=429, headers={"Retry-After": "3"}))

It echoes the last user turn, so that a reply can be told from every other.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

FIELDS = {
    "seed": "seed",
    "logprobs": "logprobs",
    "response_format": "response_format",
    "token_ids": "return_token_ids",
}
"""What can be supported, and the field that asks for it; "images" and "adapters" show otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to one request instead of an answer."""

    status: int | None = None
    """Answer with this HTTP status."""
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "fault on demand"
    broken: Literal["hang", "close", "truncate", "shape"] | None = None
    """"hang": no answer until the server stops; "close": the connection ends without one; "truncate": half the
    JSON; "shape": valid JSON that is no completion."""


class FakeServer:
    """Runs in threads of its own on a free port of 127.0.0.1.

    Args:
        supports: of "seed", "logprobs", "response_format", "token_ids", "images" and "adapters"; the rest is refused
            with 400.
        ignores: the rest is accepted and ignored instead of refused.
        delay_s: seconds that every answer takes.
    """

    def __init__(self, supports: Iterable[str] = (), *, ignores: bool = False, delay_s: float = 0.0) -> None:
        self.faults: deque[Fault] = deque()
        """Taken by the next requests, one each, in order of arrival."""
        self.requests: list[dict[str, Any]] = []
        """Bodies received, in order of arrival."""
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        """The largest number of requests that were being answered at the same time."""
        self._supports = frozenset(supports)
        self._ignores = ignores
        self._delay_s = delay_s
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._active = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> FakeServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[Fault | None, dict[str, Any]]:
        """What to say to one request: a fault, or the completion."""
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            self._active += 1
            self.most_at_once = max(self.most_at_once, self._active)
            fault = self.faults.popleft() if self.faults else None
        try:
            if fault is not None and fault.broken == "hang":
                self._stopping.wait()
            self._stopping.wait(self._delay_s)
            return fault or self._refusal(body), self._completion(body)
        finally:
            with self._lock:
                self._active -= 1

    def offers(self) -> dict[str, Any]:
        """The list of models."""
        cards: list[dict[str, Any]] = [{"id": "fake", "max_model_len": 4096}]
        if "adapters" in self._supports:
            cards.append({"id": "fake-adapter", "parent": "fake"})
        return {"object": "list", "data": cards}

    def _refusal(self, body: dict[str, Any]) -> Fault | None:
        wanted = {name for name, field_ in FIELDS.items() if field_ in body} | (
            {"images"} if _pictures(body) else set()
        )
        refused = sorted(wanted - self._supports)
        if not refused or self._ignores:
            return None
        return Fault(status=400, message=f"unsupported: {', '.join(refused)}")

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        text = '{"ok": true}' if self._gives("response_format", body) else _said(body)
        tokens = [*text.encode(), 0]  # one token per byte, and the end of the turn
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        if self._gives("logprobs", body):
            words = [(chr(token), -0.5) for token in tokens[:-1]] + [("<|end|>", -0.25)]
            choice["logprobs"] = {"content": [{"token": word, "logprob": value} for word, value in words]}
        if self._gives("token_ids", body):
            choice["token_ids"] = tokens
        seen = len(json.dumps(body["messages"])) if "images" in self._supports else len(_said(body))
        usage = {"prompt_tokens": seen, "completion_tokens": len(tokens), "total_tokens": seen + len(tokens)}
        return {"id": "fake", "object": "chat.completion", "created": 0, "choices": [choice], "usage": usage}

    def _gives(self, name: str, body: dict[str, Any]) -> bool:
        return name in self._supports and bool(body.get(FIELDS[name]))


def _pictures(body: dict[str, Any]) -> bool:
    return any(isinstance(message["content"], list) for message in body["messages"])


def _said(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement

        def do_GET(self) -> None:
            self._send(200, {}, json.dumps(server.offers()))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fault, completion = server.answer(body, dict(self.headers))
            if fault is None:
                self._send(200, {}, json.dumps(completion))
            elif fault.status is not None:
                self._send(fault.status, fault.headers, json.dumps({"error": {"message": fault.message}}))
            elif fault.broken == "truncate":
                text = json.dumps(completion)
                self._send(200, {}, text[: len(text) // 2])
            elif fault.broken == "shape":
                self._send(200, {}, json.dumps({"choices": []}))
            else:
                self.close_connection = True

        def _send(self, status: int, headers: Mapping[str, str], text: str) -> None:
            data = text.encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **headers,
            }.items():
                self.send_header(name, value)
            with contextlib.suppress(ConnectionError):  # the client may have given up meanwhile
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the tests look at `requests`."""

    return Handler
